/* probe: measures the machine's constants by running `reel-train probe --json` on one rank and on
 * several.
 *
 *     {"schema": "reel.probe/1", "ranks": 1, "dtype": "f32", "fma_flops": ...,
 *      "gemm": [{"m","n","k","flops"}], "gemm_flops": ..., "copy_bytes_per_s": ...,
 *      "all_reduce": [{"bytes","seconds"}], "latency_s": ..., "bus_bytes_per_s": ...}
 *
 * Rates are of one rank while all ranks do the same. all_reduce is there when there are two ranks
 * or more.
 */
#ifndef AUTOTUNE_PROBE_H
#define AUTOTUNE_PROBE_H

#include "autotune/cost.h"
#include "launcher/sched/sched.h"

struct probe {
    int64_t ranks;
    double fma_flops, gemm_flops, copy_bytes; /* per rank */
    double latency_s, bus_bytes;              /* 0 with one rank */
};
/* Runs the probe as a step of s, so that on Slurm the ranks lie on the nodes of the allocation. */
int probe_run(struct sched *s, const char *bin_dir, int64_t ranks, enum dtype dtype,
              const char *blas, struct probe *out, struct err *err);
int probe_parse(const char *text, size_t len, const char *name, struct probe *out, struct err *err);
/* Derives rates and this machine's device from a probe of one rank and one of several (`many` may
 * equal `one`). */
void probe_rates(const struct probe *one, const struct probe *many, enum dtype dtype, int64_t cores,
                 struct device *device, struct cost_rates *out);

#endif
