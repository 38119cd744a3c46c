/* wrap_rate: computes for a wrapped trainer's MFU the model FLOPs and tokens of a step, and the
 * peak of the devices it runs on. */
#ifndef LAUNCHER_WRAP_WRAP_RATE_H
#define LAUNCHER_WRAP_WRAP_RATE_H

#include "launcher/wrap/wrap.h"

struct wrap_rate { /* the user's options; NULL, 0: not given */
    const char *model, *seq; /* model of profiles/; tokens of a sample, "8192" or "32x16x16" */
    int64_t gbs;             /* number of samples in a step */
    double flops_per_step;
    const char *device;      /* "h100-sxm:bf16" */
    int64_t gpus;            /* 0: the number of the job's GPUs, from Slurm's environment */
};
/* Fills in w's model, flops_per_step, flops_formula, tokens_per_step, device, gpus, peak_flops and
 * peak_source; or no_mfu: why there will be no MFU. ERR_USAGE or ERR_INPUT for options that
 * contradict each other, or names that are not known. */
int wrap_rate_fill(struct wrap *w, const struct wrap_rate *rate, struct err *err);

#endif
