#include "autotune/memory.h"

#include <math.h>
#include <stdlib.h>

/* CUDA's libraries add this much to a process; it was measured by loading them. */
enum { GPU_LIBRARY_BYTES = 155000000 };

static double bytes_of(const struct buffer_list *list, enum buffer_category category)
{
    return (double)buffer_list_bytes(list, category);
}

static struct memory_bytes bytes_sum(const struct held_spec *spec, const struct layout *l,
                                     const struct buffer_list *list)
{
    int64_t ranks = layout_world(l);
    struct memory_bytes b = {
        .process = (double)(buffers_process_bytes(ranks) + buffers_process_growth_bytes(ranks) +
                            (spec->gpus ? GPU_LIBRARY_BYTES : 0))};
    b.weights = bytes_of(list, BUFFER_WEIGHT);
    b.gradients = bytes_of(list, BUFFER_GRAD);
    b.optimizer = bytes_of(list, BUFFER_OPTIM);
    b.ema = bytes_of(list, BUFFER_EMA);
    b.activations = bytes_of(list, BUFFER_SAVED) + bytes_of(list, BUFFER_INPUT);
    b.work = bytes_of(list, BUFFER_WORK);
    b.comm = bytes_of(list, BUFFER_COMM);
    b.total = (double)list->total + b.process;
    b.device = spec->gpus ? (double)list->sides[BUFFER_ON_DEVICE] : 0;
    b.host = b.total - b.device;
    return b;
}

/* Says whether rank a is fuller than b: in the device's memory on GPUs, in all its memory on
 * CPUs. */
static bool fuller(const struct held_spec *spec, const struct memory_bytes *a,
                   const struct memory_bytes *b)
{ return spec->gpus ? a->device > b->device : a->total > b->total; }

/* Says whether the ranks of two layouts keep the same buffers from step to step. */
static bool same_kept(struct layout a, struct layout b)
{
    a.mbs = b.mbs, a.recompute = b.recompute, a.recompute_layers = b.recompute_layers;
    return layout_equal(&a, &b);
}

void memory_kept_release(struct memory_kept *kept)
{
    free(kept->stages);
    *kept = (struct memory_kept){0};
}

static int kept_find(const struct held_spec *spec, const struct layout *l,
                     const struct param_list *params, struct memory_kept *kept, struct err *err)
{
    int rc = 0;
    if (kept->stages && same_kept(kept->of, *l))
        return 0;
    memory_kept_release(kept);
    struct buffer_state *stages = calloc((size_t)l->pp, sizeof *stages);
    if (!stages)
        return err_set(err, ERR_NOMEM, "out of memory for %lld stages", (long long)l->pp);
    for (int64_t stage = 0; stage < l->pp; stage++)
        if ((rc = held_state(spec, l, params, stage, &stages[stage], err)) < 0)
            goto out;
    *kept = (struct memory_kept){*l, stages};
    stages = NULL;
out:
    free(stages);
    return rc;
}

static int fullest_find(const struct held_spec *spec, const struct layout *l,
                        const struct memory_kept *kept, struct memory_bytes *out, struct err *err)
{
    struct memory_bytes most = {0};
    struct buffer_list list;
    for (int64_t stage = 0; stage < l->pp; stage++) {
        int rc = held_list(spec, l, &kept->stages[stage], stage, &list, err);
        if (rc < 0)
            return rc;
        struct memory_bytes b = bytes_sum(spec, l, &list);
        most = fuller(spec, &b, &most) ? b : most;
    }
    *out = most;
    return 0;
}

int memory_predict_next(const struct held_spec *spec, const struct layout *l,
                        struct memory_kept *kept, struct memory_bytes *out, struct err *err)
{
    int rc = kept_find(spec, l, spec->params, kept, err);
    if (rc < 0)
        return rc;
    return fullest_find(spec, l, kept, out, err);
}

static int predict_with(const struct held_spec *spec, const struct layout *l,
                        const struct param_list *params, struct memory_bytes *out, struct err *err)
{
    struct held_spec with = *spec;
    struct memory_kept kept = {0};
    with.params = params;
    int rc = memory_predict_next(&with, l, &kept, out, err);
    memory_kept_release(&kept);
    return rc;
}

int memory_predict(const struct held_spec *spec, const struct layout *l, struct memory_bytes *out,
                   struct err *err)
{
    struct param_list params;
    int rc;
    if (spec->params)
        return predict_with(spec, l, spec->params, out, err);
    rc = spec->finetune ? finetune_params(spec->model, spec->finetune, &params, err)
                        : params_build(spec->model, &params, err);
    if (rc < 0)
        return rc;
    rc = predict_with(spec, l, &params, out, err);
    params_release(&params);
    return rc;
}

/* Stands for the loader's buffers and a BLAS library, before any trial. */
#define OVERHEAD_PRIOR_BYTES (4.0 * 1024 * 1024)

void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes)
{
    double over = peak_bytes - planned_bytes, share = over / peak_bytes;
    m->n++;
    m->overhead_sum += over;
    m->weights += 1 / (peak_bytes * peak_bytes);
    m->weighted += share / peak_bytes;
    m->squares += share * share;
}

double memory_peak(const struct memory_learned *m, double planned_bytes)
{
    double over = m->n ? m->overhead_sum / (double)m->n : OVERHEAD_PRIOR_BYTES;
    /* `over` is negative when planned pages are never touched */
    return fmax(planned_bytes + over, planned_bytes / 2);
}

/* Returns how far a corrected plan may be off, as the standard deviation of a logarithm. It is
 * learnt from how far the measured overheads are from their mean, as shares of the peaks. */
static double memory_sd(const struct memory_learned *m)
{
    static const double UNKNOWN_SD = 0.10, PRIOR_SD = 0.06, PRIOR_N = 2;
    double n = (double)m->n;
    if (m->n == 0)
        return UNKNOWN_SD;
    double mean = m->overhead_sum / n;
    double squares = fmax(0, m->squares - 2 * mean * m->weighted + mean * mean * m->weights);
    return sqrt((PRIOR_N * PRIOR_SD * PRIOR_SD + squares) / (PRIOR_N + n - 1));
}

double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes)
{
    if (limit_bytes <= 0)
        return 1; /* no limit known */
    double sd = memory_sd(m);
    return 0.5 * erfc(log(memory_peak(m, planned_bytes) / limit_bytes) / (sd * sqrt(2)));
}
