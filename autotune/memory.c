/* What a rank of the data-parallel trainer holds, P parameters padded to dp equal pieces, w bytes a number:
 *     weights, gradients   P w each
 *     optimizer            2 P w, the average P w; divided by dp with zero 1
 *     comm                 P w when dp > 1: the pieces of all ranks
 *     activations, work    the buffer list of a micro-batch
 * The trainer adds tiles and the loader's buffers: a few megabytes, which `overhead` covers.
 */
#include "autotune/memory.h"

#include <math.h>

#include "base/num.h"
#include "profiles/params.h"

int memory_predict(const struct memory_spec *spec, const struct layout *l, struct memory_bytes *out, struct err *err)
{
    struct buffer_list list = {0};
    struct param_list params;
    struct buffer_spec buffers = {spec->model, spec->dtype, spec->dtype, seq_tokens(spec->seq) * l->mbs, l->mbs,
                                  spec->model->text_len * l->mbs, l->recompute};
    int rc = buffers_dit(&buffers, &list, err);
    if (rc == 0)
        rc = params_build(spec->model, &params, err);
    if (rc < 0)
        return rc;
    double piece = (double)num_ceil_div(params.total, l->dp), all = piece * (double)l->dp;
    double width = (double)dtype_bytes(spec->dtype), own = (l->zero ? piece : all) * width;
    params_release(&params);
    struct memory_bytes b = {.weights = all * width, .gradients = all * width, .optimizer = 2 * own,
                             .ema = spec->ema ? own : 0, .comm = l->dp > 1 ? all * width : 0};
    b.activations = (double)(buffer_list_bytes(&list, BUFFER_SAVED) + buffer_list_bytes(&list, BUFFER_INPUT));
    b.work = (double)buffer_list_bytes(&list, BUFFER_WORK);
    b.total = b.weights + b.gradients + b.optimizer + b.ema + b.activations + b.work + b.comm;
    *out = b;
    return 0;
}

#define OVERHEAD_PRIOR_BYTES (64.0 * 1024 * 1024) /* program, MPI and BLAS, before any trial */

void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes)
{
    double over = peak_bytes - planned_bytes;
    m->n++;
    m->overhead_sum += over;
}

double memory_peak(const struct memory_learned *m, double planned_bytes)
{
    double over = m->n ? m->overhead_sum / (double)m->n : OVERHEAD_PRIOR_BYTES;
    return fmax(planned_bytes + over, planned_bytes / 2); /* pages that are planned but never touched make `over` negative */
}

double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes)
{
    if (limit_bytes <= 0)
        return 1; /* no limit known */
    double sd = m->n ? 0.04 : 0.10;
    return 0.5 * erfc(log(memory_peak(m, planned_bytes) / limit_bytes) / (sd * sqrt(2)));
}
