#include "autotune/memory.h"

#include <math.h>

/* CUDA's libraries take a process so much, as loading them showed. */
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

/* Says whether one rank is fuller than another where memory is scarce. */
static bool fuller(const struct held_spec *spec, const struct memory_bytes *a,
                   const struct memory_bytes *b)
{ return spec->gpus ? a->device > b->device : a->total > b->total; }

static int fullest_find(const struct held_spec *spec, const struct layout *l,
                        const struct param_list *params, struct memory_bytes *out, struct err *err)
{
    struct memory_bytes most = {0};
    struct buffer_list list;
    for (int64_t stage = 0; stage < l->pp; stage++) {
        int rc = held_list(spec, l, params, stage, &list, err);
        if (rc < 0)
            return rc;
        struct memory_bytes b = bytes_sum(spec, l, &list);
        most = fuller(spec, &b, &most) ? b : most;
    }
    *out = most;
    return 0;
}

int memory_predict(const struct held_spec *spec, const struct layout *l, struct memory_bytes *out,
                   struct err *err)
{
    struct param_list params;
    int rc;
    if (spec->params)
        return fullest_find(spec, l, spec->params, out, err);
    rc = spec->finetune ? finetune_params(spec->model, spec->finetune, &params, err)
                        : params_build(spec->model, &params, err);
    if (rc < 0)
        return rc;
    rc = fullest_find(spec, l, &params, out, err);
    params_release(&params);
    return rc;
}

/* Stands for the loader's buffers and a BLAS library, before any trial. */
#define OVERHEAD_PRIOR_BYTES (4.0 * 1024 * 1024)

void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes)
{
    double over = peak_bytes - planned_bytes;
    m->n++;
    m->overhead_sum += over;
}

double memory_peak(const struct memory_learned *m, double planned_bytes)
{
    double over = m->n ? m->overhead_sum / (double)m->n : OVERHEAD_PRIOR_BYTES;
    /* `over` is negative when planned pages are never touched */
    return fmax(planned_bytes + over, planned_bytes / 2);
}

double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes)
{
    if (limit_bytes <= 0)
        return 1; /* no limit known */
    double sd = m->n ? 0.04 : 0.10;
    return 0.5 * erfc(log(memory_peak(m, planned_bytes) / limit_bytes) / (sd * sqrt(2)));
}
