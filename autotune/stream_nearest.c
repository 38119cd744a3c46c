/* This file finds the layout that holds the fewest bytes, for a space in which none fits. It walks
 * all grids, and passes over what cannot be smaller than the smallest layout met before:
 *
 * - Micro-batch sizes. Each size from b to b' holds at least what b holds with as few
 *   micro-batches as b' has (stream.c). A range whose bound is not smaller is passed over; any
 *   other is halved. So without a pipeline only b = 1 is considered, and with one also sizes that
 *   leave fewer micro-batches in flight, where rows are rounded for each of them.
 * - Virtual stages. v chunks of a stage hold v times as many micro-batches in flight as one, or
 *   more, and together as many layers, or more. So no v holds less than a smaller one.
 * - Ways to shard. In a zero the largest group holds the fewest bytes, but for its padding.
 * - Recomputation. Bytes are linear in recompute_layers from 1 on, and so the least of a grid is
 *   that of none, of selective, or of full for 1 layer or for all. In full, 1 layer holds no less
 *   than none or than all.
 *
 * Where an adapter refuses the smallest, all of these are tried that could be the next.
 */
#include "autotune/stream_priv.h"

#include <math.h>

#include "base/num.h"

static double bytes_of(struct stream *s, const struct layout *l)
{
    struct footprint f;
    footprint_of(&s->work, l, s->spec->machine->v, &f);
    s->found->sized++;
    return f.total;
}

static bool is_smaller(const struct stream *s, double bytes)
{ return s->found->nearest.bytes <= 0 || bytes < s->found->nearest.bytes; }

/* Returns the bytes of the smallest of a layout's recomputations. */
static double least_recomputed(struct stream *s, struct layout l)
{
    double least = INFINITY;
    for (int i = RECOMPUTE_NONE; i <= RECOMPUTE_FULL; i++) {
        l.recompute = (enum recompute)i;
        least = fmin(least, bytes_of(s, &l));
    }
    return least;
}

/* Returns the bytes by which a smaller shard group may hold less, because it pads less. */
static double padding_of(const struct stream *s, const struct layout *l)
{
    return (1 + footprint_lost(&s->work, s->spec->machine->v)) * work_padding_bytes(&s->work, l);
}

/* Returns a bound on the bytes of all layouts with l.zero and l.mbs. */
static double zero_bound(struct stream *s, struct layout l)
{
    int last = s->n_groups - 1;
    l.fsdp = l.zero && s->groups[last] != l.dp ? s->groups[last] : 0;
    return least_recomputed(s, l) - padding_of(s, &l);
}

/* Returns a bound on the bytes of all layouts with the micro-batch sizes from l.mbs to `to`. Builds
 * the work of l.mbs. */
static double sizes_bound(struct stream *s, struct layout l, int64_t to)
{
    double least = INFINITY;
    work_rebuild(s->spec->work, &l, &s->work);
    s->work.micro_batches = (double)num_ceil_div(stream_samples(s, &l), to);
    for (l.zero = 0; l.zero <= (s->n_groups ? 3 : 0); l.zero++)
        least = fmin(least, zero_bound(s, l));
    return least;
}

/* Takes a layout as the smallest if it is smaller and can run. Says whether it is smaller. */
static bool layout_meet(struct stream *s, const struct layout *l)
{
    double bytes = bytes_of(s, l);
    if (!is_smaller(s, bytes))
        return false;
    if (!stream_refused(s, l, 0, 1))
        s->found->nearest = (struct stream_item){.layout = *l, .bytes = bytes, .grid = s->grid};
    return true;
}

/* Considers the recomputations of a layout: none of them is smaller once that of all layers is not,
 * or the trainer can run it. */
static void recomputed_meet(struct stream *s, struct layout l)
{
    layout_meet(s, &l);
    l.recompute = RECOMPUTE_SELECTIVE;
    layout_meet(s, &l);
    l.recompute = RECOMPUTE_FULL;
    for (int64_t left = stream_longest_chunk(s, &l); left > 0; left--) {
        l.recompute_layers = left == stream_longest_chunk(s, &l) ? 0 : left;
        if (!layout_meet(s, &l) || !s->spec->adapter)
            return;
    }
}

/* Considers all virtual stages of one way to shard. Returns the bytes of the fewest of them; 0:
 * the trainer can run none. */
static double vpps_meet(struct stream *s, struct layout l)
{
    double first = 0;
    for (int64_t most = stream_most_vpp(s, &l), v = 1; v <= most; v++) {
        l.vpp = v;
        if (stream_refused(s, &l, STREAM_WITHIN_VPP, 1))
            continue;
        double least = least_recomputed(s, l);
        first = first > 0 ? first : least;
        if (!is_smaller(s, least))
            break;
        recomputed_meet(s, l);
    }
    return first;
}

/* Considers the ways to shard with l.zero, the largest group first. */
static void groups_meet(struct stream *s, struct layout l)
{
    for (int i = l.zero ? s->n_groups - 1 : 0; i >= 0; i--) {
        l.fsdp = l.zero && s->groups[i] != l.dp ? s->groups[i] : 0;
        if (!is_smaller(s, vpps_meet(s, l) - padding_of(s, &l)))
            return;
    }
}

/* Considers the micro-batch sizes from l.mbs to `to`. */
static void sizes_meet(struct stream *s, struct layout l, int64_t to)
{
    int64_t middle = (int64_t)sqrt((double)l.mbs * (double)to);
    if ((l.mbs == to && stream_refused(s, &l, STREAM_WITHIN_MBS, 1)) ||
        !is_smaller(s, sizes_bound(s, l, to)))
        return;
    if (l.mbs < to) {
        sizes_meet(s, l, middle);
        l.mbs = middle + 1;
        sizes_meet(s, l, to);
        return;
    }
    for (l.zero = 0; l.zero <= (s->n_groups ? 3 : 0); l.zero++)
        if (is_smaller(s, zero_bound(s, l)))
            groups_meet(s, l);
}

static void grid_meet(struct stream *s, struct layout l)
{
    const struct work_spec *w = s->spec->work;
    if (layout_broken_rule(&l, w->model, w->seq, w->gbs, s->spec->gpus) >= 0)
        return;
    if (stream_refused(s, &l, STREAM_WITHIN_GRID, 1))
        return;
    stream_groups_find(s, &l);
    work_cut(w, &l, &s->work);
    sizes_meet(s, l, stream_samples(s, &l));
}

void stream_nearest_walk(struct stream *s) { stream_grids_walk(s, grid_meet); }
