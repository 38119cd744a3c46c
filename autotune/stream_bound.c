/* This file computes bounds on the steps of a grid for one or many micro-batch sizes, and says
 * which sizes are considered. The essay at the top of stream.c says why they hold. */
#include "autotune/stream_priv.h"

#include <math.h>

#include "base/num.h"

static const struct model *model_of(const struct stream *s) { return s->spec->work->model; }

/* ---- micro-batch sizes ---- */

int64_t stream_samples(const struct stream *s, const struct layout *l)
{ return num_ceil_div(s->spec->work->gbs, l->dp); }

/* Holds the depth of a product for one sample, as a fraction. */
struct depth { int64_t over, under; };

/* Returns the depth of weights' gradients that is of this kind, as work_build() computes it; 0: no
 * product has it. */
static struct depth depth_of(const struct stream *s, const struct layout *l, enum price_depth kind)
{
    int64_t tokens = seq_tokens(s->spec->work->seq);
    bool whole = s->spec->work->stack->kind == STACK_REEL && model_is_trainable(model_of(s));
    if (kind == PRICE_OF_TOKENS)
        return whole ? (struct depth){num_ceil_div(tokens, l->cp), 1}
                     : (struct depth){tokens, l->cp};
    if (!model_is_video(model_of(s)))
        return (struct depth){0, 1};
    return (struct depth){kind == PRICE_OF_SAMPLES ? 1 : model_of(s)->text_len, 1};
}

static void multiple_add(struct stream *s, int64_t multiple)
{
    for (int i = 0; i < s->n_multiples; i++)
        if (s->multiples[i] == multiple)
            return;
    s->multiples[s->n_multiples++] = multiple;
}

/* Lists the common multiples of the smallest sizes with which each depth is a multiple of 1, of 8
 * and of 64: nothing else counts (price_ragged() in price_part.c). */
void stream_multiples_find(struct stream *s, const struct layout *l)
{
    static const int64_t sides[] = {8, 64};
    s->multiples[0] = s->n_multiples = 1;
    for (enum price_depth kind = 0; kind < PRICE_DEPTHS; kind++) {
        struct depth d = depth_of(s, l, kind);
        int before = s->n_multiples;
        for (size_t i = 0; i < ARRAY_LEN(sides) && d.over > 0; i++) {
            int64_t even = sides[i] * d.under / num_gcd(sides[i] * d.under, d.over);
            for (int k = 0; k < before; k++)
                multiple_add(s, s->multiples[k] / num_gcd(s->multiples[k], even) * even);
        }
    }
}

int64_t stream_considered_mbs(const struct stream *s, const struct layout *l, int64_t mbs)
{
    int64_t samples = stream_samples(s, l), m = num_ceil_div(samples, mbs),
            smallest = num_ceil_div(samples, m), found = smallest;
    for (int i = 0; i < s->n_multiples; i++) {
        int64_t even = num_round_up(smallest, s->multiples[i]);
        found = even <= mbs ? num_max_i64(found, even) : found;
    }
    return found;
}

int64_t stream_next_mbs(const struct stream *s, const struct layout *l, int64_t mbs)
{
    int64_t samples = stream_samples(s, l), m = num_ceil_div(samples, mbs),
            smallest = num_ceil_div(samples, m),
            next = m == 1 ? samples + 1 : num_ceil_div(samples, m - 1);
    for (int i = 0; i < s->n_multiples; i++) {
        int64_t even = num_round_up(smallest, s->multiples[i]);
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

/* Writes the depths of weights' gradients with b samples. */
static void depths_of(const struct stream *s, const struct layout *l, int64_t b,
                      double out[PRICE_DEPTHS])
{
    for (enum price_depth kind = 0; kind < PRICE_DEPTHS; kind++) {
        struct depth d = depth_of(s, l, kind);
        out[kind] = (double)(b * d.over) / (double)d.under;
    }
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

double stream_uneven_seconds(struct stream *s, const struct price *p)
{
    const struct price_ids backward = {WORK_LAYER_BACKWARD, WORK_LAYER_BACKWARD + 1};
    struct price_routes routes = {0};
    struct price even;
    double depths[PRICE_DEPTHS], most = 1;
    depths_of(s, &s->work.grid, s->work.grid.mbs, depths);
    for (int k = 0; k < PRICE_DEPTHS; k++) {
        most = fmax(most, price_ragged(s->spec->machine, depths[k]));
        s->even.even[k] = 1;
    }
    if (most == 1)
        return 0;
    price_terms(&s->even, &s->work, backward, &routes, &even);
    return p->parts[WORK_LAYER_BACKWARD].gemm - even.parts[WORK_LAYER_BACKWARD].gemm;
}
