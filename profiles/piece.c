#include "profiles/piece.h"

#include <stdlib.h>

#include "base/num.h"
#include "profiles/buffers.h"

struct piece piece_of(const struct shards *sh, const struct shard_unit *u,
                      const struct shard_tensor *t, int64_t first, int64_t end)
{
    int64_t each = u->elements / sh->group, piece = u->offset + sh->group_rank * each;
    int64_t from = num_max_i64(t->offset + first, piece),
            to = num_min_i64(t->offset + end, piece + each);
    if (from >= to)
        return (struct piece){0};
    return (struct piece){from - t->offset, from - piece + u->offset / sh->group, to - from};
}

int64_t piece_whole(const struct shards *sh, int64_t unit, int64_t at)
{
    const struct shard_unit *u = &sh->units[unit];
    return u->offset + sh->group_rank * (u->elements / sh->group) + at - u->offset / sh->group;
}

void piece_rule_range(const struct shard_tensor *t, enum piece_rule rule, int64_t *first,
                      int64_t *end)
{
    static const unsigned bit[PIECE_RULES] = {0, SHARD_SUM_TP, SHARD_SUM_KV, SHARD_SUM_PP};
    *first = rule == PIECE_SUM_KV ? t->kv_row * t->cols : 0;
    *end = rule == PIECE_ONCE ? t->own_rows * t->cols : t->sums & bit[rule] ? t->count : 0;
}

/* Adds a span, or extends the last one when the new span follows it directly in the same unit. */
static void span_add(struct piece_spans *spans, struct piece_span span)
{
    struct piece_span *last = spans->n ? &spans->items[spans->n - 1] : NULL;
    spans->elements += span.n;
    if (last && last->unit == span.unit && last->at + last->n == span.at)
        last->n += span.n;
    else
        spans->items[spans->n++] = span;
}

/* Collects the spans of a unit. A range that reaches a tensor's end is extended to the next
 * tensor's beginning: the zeros between them join what lies on both sides. */
static void unit_spans(const struct shards *sh, int64_t unit, enum piece_rule rule,
                       struct piece_spans *spans)
{
    const struct shard_unit *u = &sh->units[unit];
    for (int64_t i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct shard_tensor *t = &sh->tensors[i];
        int64_t first, end;
        piece_rule_range(t, rule, &first, &end);
        if (t->unit != unit || first >= end)
            continue;
        struct piece p =
            piece_of(sh, u, t, first, end == t->count ? num_round_up(end, BUFFER_FLAT_ALIGN) : end);
        if (p.n > 0)
            span_add(spans, (struct piece_span){unit, p.at, p.n});
    }
}

int piece_spans_build(const struct shards *sh, const struct param_list *params,
                      enum piece_rule rule, struct piece_spans *out, struct err *err)
{
    struct piece_spans spans = {.items = malloc((size_t)(params->n + 1) * sizeof *spans.items)};
    if (!spans.items)
        return err_set(err, ERR_NOMEM, "no memory for the spans of %lld tensors",
                       (long long)params->n);
    for (int64_t u = 0; u < sh->n_trained; u++)
        unit_spans(sh, u, rule, &spans);
    *out = spans;
    return 0;
}

void piece_spans_release(struct piece_spans *spans)
{
    free(spans->items);
    *spans = (struct piece_spans){0};
}

int piece_sum_elements(const struct shards *sh, const struct param_list *params,
                       int64_t out[PIECE_RULES], struct err *err)
{
    out[PIECE_ONCE] = 0;
    for (enum piece_rule rule = PIECE_SUM_TP; rule < PIECE_RULES; rule++) {
        struct piece_spans spans;
        int rc = piece_spans_build(sh, params, rule, &spans, err);
        if (rc < 0)
            return rc;
        out[rule] = spans.elements;
        piece_spans_release(&spans);
    }
    return 0;
}
