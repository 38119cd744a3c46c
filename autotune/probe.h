/* probe: measures the machine's rates for a model by running `reel-train probe --json` on one rank
 * and on several.
 *
 *     {"schema": "reel.probe/2", "ranks": 1, "dtype": "f32", "model": "dit-s", "fma_flops": ...,
 *      "layer": [{"seq": "1x16x16", "samples": 1, "gemm_s", "attn_fwd_s", "attn_bwd_s",
 *                 "elementwise_s", "inputs_s"}, ...],
 *      "update_elements": ..., "update_s": ..., "norm_s": ..., "latency_s": ...,
 *      "bus_bytes_per_s": ...}
 *
 * "layer" has what micro-batches of several sizes take in a model of one layer, in CPU time of one
 * rank while all ranks do the same. Rates follow by the account of the same work: seconds of
 * products and of attention are fitted by FLOPs and bytes, and what the fit leaves is a share by
 * tokens. The trainer measures as large micro-batches as a few seconds allow; larger ones take what
 * their FLOPs and bytes do at the rate of the largest measured.
 */
#ifndef AUTOTUNE_PROBE_H
#define AUTOTUNE_PROBE_H

#include "launcher/sched/sched.h"
#include "profiles/speed.h"

/* A micro-batch through one layer. */
struct probe_view {
    struct seq seq;
    int64_t samples;
    double gemm_s, attn_s[2], elementwise_s, inputs_s; /* attn_s: forward, backward */
};
struct probe {
    int64_t ranks;
    double fma_flops; /* per rank */
    int n_views; /* 0: only messages were measured */
    struct probe_view view[SPEED_POINTS];
    double update_elements, update_s, norm_s;
    double latency_s, bus_bytes;              /* 0 with one rank */
};
struct probe_spec {
    const char *bin_dir; /* borrowed, like all pointers here */
    const struct model *model;
    struct seq seq; /* tokens of a sample */
    enum dtype dtype;
    const char *blas;
    bool messages_only; /* computation is not measured: n_views will be 0 */
    /* is told every few seconds that it goes on; may be NULL */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};
/* Runs the probe as a step of s, so that on Slurm the ranks lie on the nodes of the allocation.
 * SIGINT, SIGTERM and SIGHUP end it with ERR_TEMP, and are delivered when nothing is left of it. */
int probe_run(struct sched *s, const struct probe_spec *spec, int64_t ranks, struct probe *out,
              struct err *err);
int probe_parse(const char *text, size_t len, const char *name, struct probe *out, struct err *err);
/* Says how fast the micro-batch of most tokens went: FLOPs/s, forward and backward apart in
 * attention, and elementwise bytes a second. */
struct probe_pace { double gemm_flops_s, attn_flops_s[2], copy_bytes_s; };
/* Returns that of a probe which measured computation. `work` says of which model. */
struct probe_pace probe_pace(const struct probe *p, const struct work_spec *work);
/* Derives rates and this machine's device from probes of one rank, of as many as have a core each,
 * and of more, which share cores. The same probe may stand for several. `work` says of which
 * model. */
void probe_rates(const struct probe *one, const struct probe *apart, const struct probe *shared,
                 const struct work_spec *work, struct device *device, struct speed *out);

#endif
