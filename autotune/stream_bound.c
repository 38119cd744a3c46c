/* This file computes bounds on the steps of a grid for one or many micro-batch sizes, and says
 * which sizes are considered. The essay at the top of stream.c says why they hold. */
#include "autotune/stream_priv.h"

#include <math.h>

#include "base/num.h"

static const struct model *model_of(const struct stream *s) { return s->spec->work->model; }

/* ---- micro-batch sizes ---- */

int64_t stream_samples(const struct stream *s, const struct layout *l)
{ return num_ceil_div(s->spec->work->gbs, l->dp); }

/* Returns the largest power of two by which it matters whether a size is divisible: 64, or 1 where
 * the tokens of each sample are a multiple of 64 and no product has as many rows as there are
 * samples (price_ragged() in price_part.c). */
static int64_t even_most(const struct stream *s, const struct layout *l)
{
    bool rows_of_tokens = !model_is_video(model_of(s));
    return rows_of_tokens && seq_tokens(s->spec->work->seq) % (64 * l->cp) == 0 ? 1 : 64;
}

int64_t stream_considered_mbs(const struct stream *s, const struct layout *l, int64_t mbs)
{
    int64_t samples = stream_samples(s, l), m = num_ceil_div(samples, mbs),
            smallest = num_ceil_div(samples, m), found = smallest;
    for (int64_t p = even_most(s, l); p >= 2; p /= 2) {
        int64_t even = num_round_up(smallest, p);
        found = even <= mbs ? num_max_i64(found, even) : found;
    }
    return found;
}

int64_t stream_next_mbs(const struct stream *s, const struct layout *l, int64_t mbs)
{
    int64_t samples = stream_samples(s, l), m = num_ceil_div(samples, mbs),
            smallest = num_ceil_div(samples, m),
            next = m == 1 ? samples + 1 : num_ceil_div(samples, m - 1);
    for (int64_t p = even_most(s, l); p >= 2; p /= 2) {
        int64_t even = num_round_up(smallest, p);
        next = even > mbs ? num_min_i64(next, even) : next;
    }
    return next;
}

/* ---- bounds ---- */

double stream_part_seconds(const struct price_part *q)
{ return q->gemm + q->attention + q->elementwise + q->launch + q->tp + q->cp; }

double stream_end_seconds(const struct price *p)
{
    return stream_part_seconds(&p->parts[WORK_LAST_FORWARD]) +
           stream_part_seconds(&p->parts[WORK_LAST_BACKWARD]);
}

double stream_layer_seconds(const struct price *p)
{
    double s = 0;
    for (int i = WORK_LAYER_FORWARD; i <= WORK_LAYER_BACKWARD; i++)
        s += stream_part_seconds(&p->parts[i]);
    return s;
}

double stream_grid_bound(const struct stream *s, const struct layout *l, double work, double once,
                         int64_t vpp, double more)
{
    double layers = (double)model_of(s)->layers,
           fewest = (double)(model_of(s)->layers / l->pp);
    double most = work * layers / (double)l->pp;
    return l->pp == 1 ? most + more
                      : fmax(most, work * fewest + more + once * (layers - fewest) / (double)vpp);
}

double stream_least_share(const struct stream *s)
{
    const struct layout *l = &s->work.grid;
    double rows = s->work.tokens / (l->sp ? (double)l->tp : 1);
    bool cut = rows < LAYOUT_TP_SLICES * LAYOUT_TP_SLICE_ROWS * s->work.samples;
    double share = s->work.stack->kind != STACK_REEL ? 1 : rows / (rows + 1) * (cut ? 0.5 : 1);
    return share * (1 - 1e-9);
}

double stream_least_seconds(const struct stream *s, const struct price *p)
{ return stream_layer_seconds(p) * stream_least_share(s); }

/* Writes the depths of weights' gradients with b samples, as work_build() computes them. */
static void depths_of(const struct stream *s, const struct layout *l, int64_t b,
                      double out[PRICE_DEPTHS])
{
    double samples = (double)b, tokens = (double)seq_tokens(s->spec->work->seq);
    bool whole = s->work.stack->kind == STACK_REEL && model_is_trainable(model_of(s));
    out[PRICE_OF_TOKENS] = whole ? samples * ceil(tokens / (double)l->cp)
                                 : samples * tokens / (double)l->cp;
    out[PRICE_OF_SAMPLES] = samples;
    out[PRICE_OF_TEXT] = samples * (double)model_of(s)->text_len;
}

void stream_even_set(struct stream *s, const struct layout *l, int64_t to)
{
    double depths[PRICE_DEPTHS], *even = s->even.even, most = 2;
    for (int k = 0; k < PRICE_DEPTHS; k++)
        even[k] = INFINITY;
    for (int64_t b = l->mbs; b <= to && most > 1; b = stream_next_mbs(s, l, b)) {
        depths_of(s, l, b, depths);
        most = 1;
        for (int k = 0; k < PRICE_DEPTHS; k++) {
            even[k] = fmin(even[k], price_ragged(&s->even, depths[k]));
            most = fmax(most, even[k]);
        }
    }
}
