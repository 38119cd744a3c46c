/* This file computes what a step does once: the sums of gradients that are partial on some ranks,
 * and the bytes that the update moves. */
#include "profiles/work.h"

/* Return the elements of gradients that are partial sums on each tp rank, and on each stage. */
static double partial_over_tp(const struct work *w, const struct layout *l,
                              const struct work_stage *s)
{
    return l->tp == 1 ? 0
                      : s->layers * w->partial[UNIT_LAYER] + s->first * w->partial[UNIT_FIRST] +
                            s->last * w->partial[UNIT_LAST];
}
static double partial_over_pp(const struct work *w, const struct layout *l)
{
    return l->pp > 1 && w->stack->kind == STACK_REEL ? w->unit_elements[UNIT_EACH] : 0;
}

int work_once(const struct work *w, const struct layout *l, const struct work_stage *s,
              struct work_message out[WORK_ONCE])
{
    double t = (double)l->tp, pp = (double)l->pp, tp = partial_over_tp(w, l, s),
           each = partial_over_pp(w, l);
    int n = 0;
    if (tp > 0)
        out[n++] = (struct work_message){TRAFFIC_TP, TRAFFIC_ALL_REDUCE, HIDE_NOTHING,
                                         2 * (t - 1) / t * tp * w->stat_bytes, 1};
    if (each > 0)
        out[n++] = (struct work_message){TRAFFIC_PP, TRAFFIC_ALL_REDUCE, HIDE_NOTHING,
                                         2 * (pp - 1) / pp * each * w->stat_bytes, 1};
    return n;
}

/* Sets the bytes that reel's AdamW moves: it reads gradient, moments and master, and writes the
 * last three. The norm is taken of a rank's own piece of the gradients. Where ranks sum gradients,
 * numbers that are not finite are looked for before: in the same piece, or with zero 2 and 3 after
 * each micro-batch in all of them. There each micro-batch also clears its gradients and adds them
 * to the own piece, which the first one overwrites. Own pieces of partial sums are packed for their
 * sum and unpacked. */
static void reel_moved(const struct work *w, const struct layout *l, const struct work_stage *s,
                       struct work_moved *out)
{
    double n = work_stage_elements(w, s), shards = (double)layout_shard_group(l),
           piece = n / shards, own = l->zero ? piece : n, m = w->micro_batches, f = w->stat_bytes,
           looked = 0;
    if (l->zero >= 2)
        looked = n * m;
    else if (l->dp * l->cp > 1)
        looked = piece;
    out->cleared = l->zero >= 2 ? f * n : 0;
    out->each = l->zero >= 2 ? f * piece * (3 - 1 / m) : 0;
    out->packed = 4 * f * (partial_over_tp(w, l, s) + partial_over_pp(w, l)) / shards;
    out->norm = (piece + looked) * f;
    out->update = own * ((w->ema_bytes > 0 ? 5 : 3) * f + 4 * w->moment_bytes +
                         (w->act_bytes < f ? w->act_bytes : 0));
}

void work_moved(const struct work *w, const struct layout *l, const struct work_stage *s,
                struct work_moved *out)
{
    double n = work_stage_elements(w, s), g = l->zero ? (double)layout_shard_group(l) : 1;
    *out = (struct work_moved){0};
    if (w->frozen)
        return;
    if (w->stack->kind == STACK_REEL) {
        reel_moved(w, l, s, out);
        return;
    }
    out->norm = n / g * w->gradient_bytes;
    out->update = n / g * (w->gradient_bytes + 2 * (w->optimizer_bytes + w->ema_bytes) +
                           w->weight_bytes);
}
