/* probe: measures the machine's rates for a model by running `reel-train probe --json` on one rank
 * and on several.
 *
 *     {"schema": "reel.probe/3", "ranks": 1, "dtype": "f32", "model": "dit-s", "fma_flops": ...,
 *      "layer": [{"seq": "1x16x16", "samples": 1, "gemm_s", "attn_fwd_s", "attn_bwd_s",
 *                 "elementwise_s", "samples_s", "angles_s", "patches_s", "loss_s"}, ...],
 *      "update_elements": ..., "update_s": ..., "norm_s": ..., "clear_s": ..., "move_s": ...,
 *      "latency_s": ..., "bus_bytes_per_s": ...}
 *
 * "layer" holds the CPU seconds of one rank for micro-batches of several sizes in a model of one
 * layer, while all ranks do the same. The rates follow from the FLOPs and bytes of the same work
 * (profiles/work.h): the seconds of products and of attention are fitted to them, and the rest is a
 * factor that depends on the tokens. The trainer measures micro-batches as large as a few seconds
 * allow. Larger ones are predicted from their FLOPs and bytes at the rate of the largest that was
 * measured.
 */
#ifndef AUTOTUNE_PROBE_H
#define AUTOTUNE_PROBE_H

#include "launcher/sched/sched.h"
#include "profiles/speed.h"

/* Holds the seconds of a micro-batch in a model of one layer. */
struct probe_view {
    struct seq seq;
    int64_t samples;
    double gemm_s, attn_s[2], elementwise_s, inputs_s[WORK_INPUTS]; /* attn_s: forward, backward */
};
struct probe {
    int64_t ranks;
    double fma_flops; /* per rank */
    int n_views; /* 0: only messages were measured */
    struct probe_view view[SPEED_POINTS];
    double update_elements, update_s, norm_s, clear_s, move_s;
    double latency_s, bus_bytes;              /* 0 with one rank */
};
struct probe_spec {
    const char *bin_dir; /* borrowed, like all pointers here */
    const struct model *model;
    struct seq seq; /* tokens of a sample */
    enum dtype dtype;
    const char *blas;
    bool messages_only; /* computation is not measured: n_views will be 0 */
    /* called every few seconds with a line that says that the probe goes on; may be NULL */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};
/* Runs the probe as a job step of the scheduler s, so that on Slurm the ranks run on the nodes of
 * the allocation. SIGINT, SIGTERM and SIGHUP end it with ERR_TEMP, and are delivered after the
 * probe's files are removed. */
int probe_run(struct sched *s, const struct probe_spec *spec, int64_t ranks, struct probe *out,
              struct err *err);
int probe_parse(const char *text, size_t len, const char *name, struct probe *out, struct err *err);
/* Holds the rates that the micro-batch with the most tokens reached: FLOP/s, for attention forward
 * and backward, and elementwise bytes a second. */
struct probe_pace { double gemm_flops_s, attn_flops_s[2], copy_bytes_s; };
/* Returns the rates of a probe that measured computation. `work` names the model and its data
 * types. */
struct probe_pace probe_pace(const struct probe *p, const struct work_spec *work);
/* Derives the rates and the device of this machine from three probes: of one rank (`one`), of at
 * most one rank a core (`apart`), and of all ranks, which may share cores (`shared`). The same
 * probe may serve as several of them. */
void probe_rates(const struct probe *one, const struct probe *apart, const struct probe *shared,
                 const struct work_spec *work, struct device *device, struct speed *out);

#endif
