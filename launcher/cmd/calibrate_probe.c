#include "launcher/cmd/calibrate_probe.h"

#include <math.h>
#include <stdio.h>

#include "autotune/host.h"
#include "autotune/probe.h"

/* The probe runs on one device and measures which shares of its peak rates are reached. While all
 * devices of a node work, a share may differ; PROBE_SD is the standard deviation of its logarithm.
 * A 90 % interval reaches Z90 standard deviations to both sides. */
static const double PROBE_SD = 0.1, Z90 = 1.645;

/* Sets a constant of the device, and its 90 % interval, from the measured share. Both stay within
 * the constant's bounds. */
static int share_set(struct constants *c, enum constant_id id, const struct device *d,
                     const struct stack *s, double share, struct err *err)
{
    const struct constant_info *info = &constant_table[id];
    struct constant *k = constants_at(c, id, d, s);
    if (!k)
        return err_set(err, ERR_LIMIT, "more than %d constants: give fewer tables at a time",
                       CONSTANTS_MAX);
    k->value = fmin(fmax(share, info->lo), info->hi);
    if (k->value != share)
        fprintf(stderr, "%s was measured as %.3g, which is out of its bounds: is the peak of %s "
                "right, and its model's extent?\n", info->name, share, d->name);
    k->lo = fmax(info->lo, k->value * exp(-Z90 * PROBE_SD));
    k->hi = fmin(info->hi, k->value * exp(Z90 * PROBE_SD));
    snprintf(k->source, sizeof k->source, "probe");
    return 0;
}

/* Returns by how much the device's curve of attention is above the share of its profile at the
 * measured size: predictions multiply it by the constant over that share. 1: it has no curve. */
static double over_profile(const struct cluster *c, const struct calibrate_probe *p,
                           const struct model *model, bool backward)
{
    double tokens = (double)seq_tokens(p->seq), pairs = tokens * tokens;
    const struct work_attention a = {.q = tokens, .k = tokens,
                                     .dim = (double)model_head_dim(model),
                                     .pairs = model_is_video(model) ? pairs : pairs / 2,
                                     .backward = backward};
    const struct price_machine machine = {.cluster = c, .act = p->dtype};
    const struct curve *found = price_attention_curve(&machine, ATTENTION_FLASH, &a);
    const struct device *d = &c->device;
    return found ? curve_at(found, tokens) /
                       (backward ? d->attn_bwd_efficiency : d->attn_fwd_efficiency)
                 : 1;
}

static int shares_set(struct constants *c, const struct cluster *cluster, const struct stack *s,
                      const struct calibrate_probe *p, const struct model *model,
                      const struct probe_pace *at, struct err *err)
{
    const struct device *d = &cluster->device;
    double peak = d->peak_flops[p->dtype];
    const struct { enum constant_id id; double share; } shares[] = {
        {CONSTANT_GEMM_SHARE, at->gemm_flops_s / peak},
        {CONSTANT_ATTENTION_FORWARD,
         at->attn_flops_s[0] / peak / over_profile(cluster, p, model, false)},
        /* this share counts the backward's FLOPs, 2.5 times the forward's; attn_flops_s[1] counts
         * the forward's */
        {CONSTANT_ATTENTION_BACKWARD,
         2.5 * at->attn_flops_s[1] / peak / over_profile(cluster, p, model, true)},
        {CONSTANT_COPY_SHARE, at->copy_bytes_s / d->memory_bytes_per_s}};
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        int rc = share_set(c, shares[i].id, d, s, shares[i].share, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void say(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "%s\n", line);
}

/* Runs the probe on this machine, with one rank. */
static int pace_measure(const struct cmd_env *env, const struct calibrate_probe *p,
                         const struct model *model, struct probe_pace *out, struct err *err)
{
    const struct probe_spec spec = {env->bin_dir, model, p->seq, p->dtype, "own",
                                    .say = say};
    static struct host host; /* too large for the stack */
    struct sched *s = NULL;
    struct probe probe;
    const struct work_spec work = {.model = model, .seq = p->seq, .gbs = 1, .act = p->dtype};
    int rc;
    if ((rc = host_open(&host, &work, err)) < 0)
        return rc;
    if ((rc = sched_open("local", env->home, &s, err)) < 0)
        return rc;
    if ((rc = probe_run(s, &spec, 1, &probe, err)) == 0)
        *out = probe_pace(&probe, &host.spec);
    sched_close(s);
    return rc;
}

int calibrate_probe(const struct cmd_env *env, const struct calibrate_probe *p,
                    struct constants *c, struct err *err)
{
    char sized[LIMIT_PATH_BYTES];
    struct cluster cluster;
    struct stack stack;
    struct model model;
    struct probe_pace pace;
    int rc;
    snprintf(sized, sizeof sized, "%s:1", p->cluster); /* the description may leave the number of
                                                        * nodes open */
    if (cluster_load(p->cluster, &cluster, NULL) < 0 &&
        (rc = cluster_load(sized, &cluster, err)) < 0)
        return rc;
    if (!(cluster.device.peak_flops[p->dtype] > 0))
        return err_set(err, ERR_INPUT,
                       "%s says no peak of %s: give --dtype, or a device that has one", p->cluster,
                       dtype_names[p->dtype]);
    if ((rc = stack_load("reel", &stack, err)) < 0)
        return rc;
    if ((rc = model_load(p->model, &model, err)) < 0)
        return rc;
    if ((rc = pace_measure(env, p, &model, &pace, err)) < 0)
        return rc;
    return shares_set(c, &cluster, &stack, p, &model, &pace, err);
}
