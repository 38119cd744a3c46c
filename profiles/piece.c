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

/* Finds the local elements *first .. *end-1 of a tensor that a rule is about. */
static void rule_range(const struct shard_tensor *t, enum piece_rule rule, int64_t *first,
                       int64_t *end)
{
    static const unsigned bit[PIECE_RULES] = {0, SHARD_SUM_TP, SHARD_SUM_KV, SHARD_SUM_PP};
    *first = rule == PIECE_SUM_KV ? t->kv_row * t->cols : 0;
    *end = rule == PIECE_ONCE ? t->own_rows * t->cols : t->sums & bit[rule] ? t->count : 0;
}

/* Adds a span, or extends the last one when the new span follows it directly in the same unit. */
static void run_add(struct piece_runs *runs, struct piece_run run)
{
    struct piece_run *last = runs->n ? &runs->items[runs->n - 1] : NULL;
    runs->elements += run.n;
    if (last && last->unit == run.unit && last->at + last->n == run.at)
        last->n += run.n;
    else
        runs->items[runs->n++] = run;
}

/* Collects the spans of a unit. A range that reaches a tensor's end is extended to the next
 * tensor's beginning: the zeros between them join what lies on both sides. */
static void unit_runs(const struct shards *sh, int64_t unit, enum piece_rule rule,
                      struct piece_runs *runs)
{
    const struct shard_unit *u = &sh->units[unit];
    for (int64_t i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct shard_tensor *t = &sh->tensors[i];
        int64_t first, end;
        rule_range(t, rule, &first, &end);
        if (t->unit != unit || first >= end)
            continue;
        struct piece p =
            piece_of(sh, u, t, first, end == t->count ? num_round_up(end, BUFFER_FLAT_ALIGN) : end);
        if (p.n > 0)
            run_add(runs, (struct piece_run){unit, p.at, p.n});
    }
}

int piece_runs_build(const struct shards *sh, const struct param_list *params, enum piece_rule rule,
                     struct piece_runs *out, struct err *err)
{
    struct piece_runs runs = {.items = malloc((size_t)(params->n + 1) * sizeof *runs.items)};
    if (!runs.items)
        return err_set(err, ERR_NOMEM, "no memory for the runs of %lld tensors",
                       (long long)params->n);
    for (int64_t u = 0; u < sh->n_trained; u++)
        unit_runs(sh, u, rule, &runs);
    *out = runs;
    return 0;
}

void piece_runs_release(struct piece_runs *runs)
{
    free(runs->items);
    *runs = (struct piece_runs){0};
}

int piece_sum_elements(const struct shards *sh, const struct param_list *params,
                       int64_t out[PIECE_RULES], struct err *err)
{
    out[PIECE_ONCE] = 0;
    for (enum piece_rule rule = PIECE_SUM_TP; rule < PIECE_RULES; rule++) {
        struct piece_runs runs;
        int rc = piece_runs_build(sh, params, rule, &runs, err);
        if (rc < 0)
            return rc;
        out[rule] = runs.elements;
        piece_runs_release(&runs);
    }
    return 0;
}
