#include "launcher/wrap/wrap_rate.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/flops.h"
#include "profiles/hw.h"

/* Computes the FLOPs of one step, forward and backward, by the formula that reel's own trainer uses
 * for MFU. */
static int model_fill(struct wrap *w, const struct wrap_rate *rate, struct err *err)
{
    struct model model;
    struct seq seq;
    struct flops flops;
    struct err why = {0};
    int rc;
    if (!rate->seq || rate->gbs < 1)
        return err_set(err, ERR_USAGE,
                       "--model needs --seq and --gbs: give the tokens of a sample and the samples "
                       "of a step, or --flops-per-step");
    if (seq_parse(rate->seq, "--seq", &seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    if ((rc = model_load(rate->model, &model, err)) < 0)
        return rc;
    if ((rc = flops_reel_sample(&model, seq, model.text_len, &flops, err)) < 0)
        return rc;
    w->flops_per_step = flops.total * (double)rate->gbs;
    w->flops_formula = FLOPS_REEL_VERSION;
    w->tokens_per_step = (double)seq_tokens(seq) * (double)rate->gbs;
    return 0;
}

static int flops_fill(struct wrap *w, const struct wrap_rate *rate, struct err *err)
{
    if (rate->flops_per_step > 0 && rate->seq)
        return err_set(err, ERR_USAGE,
                       "--flops-per-step and --seq: give one of them, --seq goes with --model");
    if (rate->flops_per_step > 0) {
        w->flops_per_step = rate->flops_per_step;
        w->flops_formula = "given";
        return 0;
    }
    if (rate->model && (rate->seq || rate->gbs))
        return model_fill(w, rate, err);
    return rate->seq || rate->gbs ? err_set(err, ERR_USAGE,
                                            "--seq and --gbs go with --model: name the model, or "
                                            "give --flops-per-step")
                                  : 0;
}

static int64_t variable_int(const char *name)
{
    const char *text = getenv(name);
    int64_t value = 0;
    return text && num_parse_i64(text, name, &value, NULL) == 0 && value > 0 ? value : 0;
}

/* Returns the job's number of GPUs, assuming that each node has as many as this one, because Slurm
 * tells the job script no more. */
static int64_t gpus_of_job(void)
{
    int64_t nodes = variable_int("SLURM_JOB_NUM_NODES"), here = variable_int("SLURM_GPUS_ON_NODE");
    return here * (nodes > 0 ? nodes : 1);
}

static int dtype_find(const char *name)
{
    for (int d = 0; d < DTYPE_NUMBERS; d++)
        if (strcmp(dtype_names[d], name) == 0)
            return d;
    return -1;
}

static int device_fill(struct wrap *w, const struct wrap_rate *rate, struct err *err)
{
    struct device device;
    const char *colon = strrchr(rate->device, ':');
    int dtype = colon ? dtype_find(colon + 1) : -1;
    if (dtype < 0)
        return err_set(err, ERR_USAGE,
                       "--device '%s': give a device and what it computes in, like h100-sxm:bf16; "
                       "f64, f32, bf16 or fp8",
                       rate->device);
    char *name = arena_strndup(&w->arena, rate->device, (size_t)(colon - rate->device));
    w->gpus = rate->gpus > 0 ? rate->gpus : gpus_of_job();
    int rc = name ? device_load(name, &device, err) : err_set(err, ERR_NOMEM, "out of memory");
    if (rc < 0)
        return rc;
    w->device = rate->device;
    w->peak_flops = device.peak_flops[dtype] * (double)w->gpus;
    w->peak_source = w->peak_flops > 0 ? arena_printf(&w->arena, "%s x %lld", device.peak_source,
                                                      (long long)w->gpus)
                                       : NULL;
    if (w->gpus == 0)
        w->no_mfu = "how many GPUs it has is not known: give --gpus";
    else if (!(w->peak_flops > 0))
        w->no_mfu = "no peak of this device in this type is known";
    return 0;
}

int wrap_rate_fill(struct wrap *w, const struct wrap_rate *rate, struct err *err)
{
    int rc;
    if ((rc = flops_fill(w, rate, err)) < 0)
        return rc;
    w->model = rate->model;
    w->gpus = rate->gpus;
    if (rate->device && (rc = device_fill(w, rate, err)) < 0)
        return rc;
    if (!rate->device)
        w->no_mfu = "the device is not known: give --device, like h100-sxm:bf16";
    if (!(w->flops_per_step > 0))
        w->no_mfu = "the FLOPs of a step are not known: give --flops-per-step, or --model, --seq "
                    "and --gbs";
    if (!w->step_pattern && !w->format)
        w->no_mfu = "its steps are not known: give --format or --step-pattern";
    return 0;
}
