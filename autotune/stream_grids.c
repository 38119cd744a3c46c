/* This file goes through the grids of the space, for whoever looks for the fastest layouts
 * (stream.c) or for the smallest one (stream_nearest.c), and says which of them an adapter's
 * trainer cannot run at all. */
#include "autotune/stream_priv.h"

#include "base/num.h"

int64_t stream_longest_chunk(const struct stream *s, const struct layout *l)
{ return num_ceil_div(s->spec->work->model->layers, l->pp * l->vpp); }

int64_t stream_most_vpp(const struct stream *s, const struct layout *l)
{ return l->pp > 1 ? num_max_i64(1, s->spec->work->model->layers / l->pp) : 1; }

int64_t stream_layout_count(const struct stream *s, struct layout l)
{
    int64_t kinds = 0, most = stream_most_vpp(s, &l);
    for (l.vpp = 1; l.vpp <= most; l.vpp++)
        kinds += RECOMPUTE_FULL + stream_longest_chunk(s, &l);
    return kinds * stream_samples(s, &l) * (1 + 3 * s->n_groups) * s->all_orders;
}

bool stream_refused(struct stream *s, const struct layout *l, uint32_t keys, int64_t n)
{
    const struct work_spec *w = s->spec->work;
    const struct adapter *a = s->spec->adapter;
    struct adapter_facts facts = {l, w->model, w->seq, w->gbs, 0, NULL};
    int rule = a ? adapter_broken_rule_without(a, &facts, keys) : -1;
    if (rule >= 0)
        s->found->refused[rule] += n;
    else if (!keys)
        s->found->able += n;
    return rule >= 0;
}

static bool is_wanted(const struct stream *s, int64_t grid)
{
    for (size_t i = 0; i < s->n_only; i++)
        if (s->only[i] == grid)
            return true;
    return s->n_only == 0;
}

/* Counts the next grid of the walk, and tells whether it belongs to this part. A hash mixes the
 * grids, as neighbours are alike in how long they take. */
static bool next_is_ours(struct stream *s)
{
    bool ours = ((uint32_t)s->grid++ * 2654435769u >> 16) % s->parts == s->part;
    return ours && is_wanted(s, s->grid);
}

static void kinds_meet(struct stream *s, struct layout l,
                       void (*meet)(struct stream *, struct layout))
{
    for (l.sp = 0; l.sp <= (l.tp > 1); l.sp++)
        for (int k = CP_RING; k <= (l.cp > 1 ? CP_2D : CP_RING); k++) {
            l.cp_kind = (enum cp_kind)k;
            if (s->first_only && s->found->fit)
                return;
            if (next_is_ours(s))
                meet(s, l);
        }
}

void stream_grids_walk(struct stream *s, void (*meet)(struct stream *, struct layout))
{
    struct layout l = layout_default();
    int64_t gpus = s->spec->gpus;
    for (l.tp = 1; l.tp <= gpus; l.tp++)
        for (l.cp = 1; gpus % l.tp == 0 && l.cp <= gpus / l.tp; l.cp++)
            for (l.pp = 1; gpus / l.tp % l.cp == 0 && l.pp <= gpus / l.tp / l.cp; l.pp++) {
                if (gpus / l.tp / l.cp % l.pp)
                    continue;
                l.dp = gpus / l.tp / l.cp / l.pp;
                kinds_meet(s, l, meet);
            }
}
