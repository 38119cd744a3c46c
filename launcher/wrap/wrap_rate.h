/* wrap_rate: what a wrapped trainer's step is worth: its model FLOPs, its tokens, and the peak of
 * the devices it runs on, for its MFU. */
#ifndef LAUNCHER_WRAP_WRAP_RATE_H
#define LAUNCHER_WRAP_WRAP_RATE_H

#include "launcher/wrap/wrap.h"

struct wrap_rate { /* as the user says it; NULL, 0: not given */
    const char *model, *seq; /* of profiles/; tokens of a sample, "8192" or "32x16x16" */
    int64_t gbs;             /* samples of a step */
    double flops_per_step;
    const char *device;      /* "h100-sxm:bf16" */
    int64_t gpus;            /* 0: as many as the job has, by Slurm's environment */
};
/* Fills in w's model, flops_per_step, flops_formula, tokens_per_step, device, gpus, peak_flops and
 * peak_source; or no_mfu: why there will be none. ERR_USAGE, ERR_INPUT for what contradicts itself
 * or is not known by that name. */
int wrap_rate_fill(struct wrap *w, const struct wrap_rate *rate, struct err *err);

#endif
