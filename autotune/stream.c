/* How the space is walked, and what may be passed over.
 *
 * Symbols: n samples of the busiest replica, b of a micro-batch, m = ceil(n/b) micro-batches, L
 * layers, v virtual stages; x(b) seconds of a layer's forward and backward for a micro-batch, F =
 * floor(L/pp). A stage has F layers or one more, and the last one has the fewest. So no step of a
 * grid is shorter than each of
 *
 *     m x(b) L/pp                               the stage with the most layers
 *     m x(b) F + x(b) (L - F)/v                 the last one, and what goes before it (price.c)
 *
 * - Micro-batch sizes with an equal m: the smallest is dominated by none of the others, which
 *   compute and hold more. So b goes from one m to the next.
 * - Larger b: x(b)/b does not grow with b, as products only get more efficient and latencies are
 *   shared; m b >= n. So with X = x(n)/n the bounds hold for all b' >= b as n X L/pp and n X F +
 *   x(b) (L - F)/v, v being the most there are. Where rows are dealt in whole ones, x(b)/b may grow
 *   by one row in as many as a rank has: X is taken smaller by some rows.
 * - Larger v: messages between stages grow with it.
 * - Memory: parts and what is kept grow with b. Only the number of micro-batches in flight may
 *   fall, and not before 2 pp b > n (without a pipeline, b > n). Until then, if nothing fits with
 *   b, nothing fits with more.
 * - Recomputation takes time and gives memory: where a layout fits without, the others are
 *   dominated. Else `selective` is priced where it fits, and of `full` the smallest
 *   recompute_layers that does, which is solved by halves: bytes fall with each layer more.
 *
 * The stream keeps layouts by price_step(), a bound of the replay. Then the kept ones are replayed
 * in the order of their bounds, until as many as are wanted are no slower than the next bound. If
 * the kept ones do not suffice for that, more are kept.
 */
#include "autotune/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { SLACK_ROWS = 8 };

struct stream {
    const struct stream_spec *spec;
    struct stream_found *found;
    size_t room;       /* layouts that are kept */
    bool first_only;   /* one that fits is enough */
    double floor;      /* n X of the grid at hand */
    struct work work;
    struct price price;
};

static const struct model *model_of(const struct stream *s) { return s->spec->work->model; }

/* ---- counting ---- */

/* Returns into how many longest-stage layers full recomputation can be divided. */
static int64_t longest_chunk(const struct stream *s, const struct layout *l)
{ return num_ceil_div(model_of(s)->layers, l->pp * l->vpp); }

/* Returns how many ways there are to shard the state of a grid. */
static int64_t state_count(const struct layout *l)
{
    int64_t ranks = l->dp * l->cp, n = 0;
    for (int64_t g = 2; g <= ranks; g++)
        n += ranks % g == 0;
    return 1 + 3 * n;
}

static int64_t most_vpp(const struct stream *s, const struct layout *l)
{ return l->pp > 1 ? num_max_i64(1, model_of(s)->layers / l->pp) : 1; }

static int64_t samples_of(const struct stream *s, const struct layout *l)
{ return num_ceil_div(s->spec->work->gbs, l->dp); }

/* Returns how many layouts a grid has, with all its virtual stages: none, selective and each number
 * of recomputed layers, for each micro-batch size and way to shard. */
static int64_t layout_count(const struct stream *s, struct layout l)
{
    int64_t kinds = 0, most = most_vpp(s, &l);
    for (l.vpp = 1; l.vpp <= most; l.vpp++)
        kinds += RECOMPUTE_FULL + longest_chunk(s, &l);
    return kinds * samples_of(s, &l) * state_count(&l);
}

/* ---- the best ---- */

/* Returns the time that a further layout must beat. */
static double worst_kept(const struct stream *s)
{
    return s->found->n < s->room ? INFINITY : s->found->items[s->room - 1].seconds;
}

static void keep(struct stream *s, const struct layout *l, double seconds, double bytes)
{
    struct stream_found *f = s->found;
    if (!(seconds < worst_kept(s)))
        return;
    size_t i = f->n < s->room ? f->n++ : s->room - 1;
    for (; i > 0 && f->items[i - 1].seconds > seconds; i--)
        f->items[i] = f->items[i - 1];
    f->items[i] = (struct stream_item){*l, seconds, bytes};
}

static double price(struct stream *s, const struct layout *l)
{
    struct price_step step;
    price_step(&s->price, l, &step);
    s->found->priced++;
    return step.seconds;
}

/* ---- memory ---- */

static bool fits(struct stream *s, const struct layout *l, double *bytes)
{
    struct footprint f;
    footprint_of(&s->work, l, s->spec->machine->v, &f);
    *bytes = f.total;
    s->found->sized++;
    if (f.total <= s->spec->limit_bytes) {
        s->found->fit++;
        return true;
    }
    if (s->found->nearest.bytes <= 0 || f.total < s->found->nearest.bytes)
        s->found->nearest = (struct stream_item){.layout = *l, .bytes = f.total};
    return false;
}

/* Finds the fewest layers whose full recomputation makes the layout fit; false: not even all do. */
static bool recompute_solve(struct stream *s, struct layout *l, double *bytes)
{
    int64_t low = 0, high = longest_chunk(s, l); /* low does not fit, high does */
    double b;
    l->recompute = RECOMPUTE_FULL, l->recompute_layers = 0;
    if (!fits(s, l, bytes))
        return false;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        l->recompute_layers = middle;
        if (fits(s, l, &b))
            high = middle, *bytes = b;
        else
            low = middle;
    }
    l->recompute_layers = high == longest_chunk(s, l) ? 0 : high;
    return true;
}

/* ---- what is added over ---- */

/* Prices a layout with the recomputation it needs. Returns whether any fits. */
static bool state_meet(struct stream *s, struct layout l)
{
    double bytes;
    if (fits(s, &l, &bytes)) {
        keep(s, &l, price(s, &l), bytes);
        return true;
    }
    struct layout full = l;
    if (!recompute_solve(s, &full, &bytes))
        return false;
    keep(s, &full, price(s, &full), bytes);
    l.recompute = RECOMPUTE_SELECTIVE;
    if (fits(s, &l, &bytes))
        keep(s, &l, price(s, &l), bytes);
    return true;
}

/* Sizes and prices every kind of recomputation. */
static bool state_meet_all(struct stream *s, struct layout l)
{
    bool any = false;
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        double bytes;
        l.recompute = (enum recompute)r;
        double seconds = price(s, &l);
        if (!fits(s, &l, &bytes))
            continue;
        keep(s, &l, seconds, bytes);
        any = true;
    }
    return any;
}

static bool states_meet(struct stream *s, struct layout l)
{
    int64_t ranks = l.dp * l.cp;
    bool any = false;
    for (l.zero = 0; l.zero <= (ranks > 1 ? 3 : 0); l.zero++)
        for (int64_t g = l.zero ? 2 : 1; g <= (l.zero ? ranks : 1); g++) {
            if (ranks % g)
                continue;
            l.fsdp = l.zero == 0 || g == l.dp ? 0 : g;
            any |= s->spec->all ? state_meet_all(s, l) : state_meet(s, l);
            if (any && s->first_only)
                return true;
        }
    return any;
}

/* ---- bounds ---- */

/* Returns the seconds of a layer's forward and backward, of a micro-batch. */
static double layer_seconds(const struct price *p)
{
    double s = 0;
    for (int i = WORK_LAYER_FORWARD; i <= WORK_LAYER_BACKWARD; i++) {
        const struct price_part *q = &p->parts[i];
        s += q->gemm + q->attention + q->elementwise + q->launch + q->tp + q->cp;
    }
    return s;
}

/* Bounds the step of a grid by what its layers compute in all, `work` for a layer, and by what goes
 * before the last stage, `once` for a layer. */
static double grid_bound(const struct stream *s, const struct layout *l, double work, double once,
                         int64_t vpp)
{
    double layers = (double)model_of(s)->layers,
           fewest = (double)(model_of(s)->layers / l->pp);
    double most = work * layers / (double)l->pp;
    return l->pp == 1 ? most
                      : fmax(most, work * fewest + once * (layers - fewest) / (double)vpp);
}

/* Returns what no step with this many virtual stages or more takes less than: the last stage's
 * compute and messages. */
static double vpp_floor(const struct stream *s, const struct layout *l, int64_t vpp)
{
    double sends = l->pp > 1 ? 2 * (double)vpp * s->price.parts[WORK_SEND].pp : 0;
    return s->work.micro_batches *
           (layer_seconds(&s->price) * (double)(model_of(s)->layers / l->pp) + sends);
}

static void parts_price(struct stream *s, const struct layout *l)
{
    work_build(s->spec->work, l, &s->work);
    price_parts(s->spec->machine, &s->work, &s->price);
}

/* Returns n X for the grid of l. */
static double floor_of(struct stream *s, struct layout l)
{
    double rows = (double)seq_tokens(s->spec->work->seq) / (double)(l.cp * (l.sp ? l.tp : 1));
    if (s->spec->all || s->first_only || model_of(s)->family == MODEL_STDIT)
        return 0; /* frames are dealt in whole ones, and they may be few */
    l.mbs = samples_of(s, &l);
    parts_price(s, &l);
    return layer_seconds(&s->price) * fmax(0, 1 - SLACK_ROWS / rows);
}

/* ---- grids ---- */

static bool vpps_meet(struct stream *s, struct layout l)
{
    int64_t most = most_vpp(s, &l);
    double x = layer_seconds(&s->price), m = s->work.micro_batches;
    bool any = false, bounded = !s->spec->all && !s->first_only;
    for (l.vpp = 1; l.vpp <= most; l.vpp++) {
        if (bounded && vpp_floor(s, &l, l.vpp) >= worst_kept(s))
            return any;
        if (bounded && grid_bound(s, &l, m * x, x, l.vpp) >= worst_kept(s))
            continue;
        any |= states_meet(s, l);
        if (any && s->first_only)
            return true;
    }
    return any;
}

/* Says whether nothing that fits is left with more samples in a micro-batch. */
static bool memory_closes(const struct stream *s, const struct layout *l)
{
    int64_t held = l->pp == 1 ? 1 : 2 * l->pp;
    return !s->spec->all && held * l->mbs <= samples_of(s, l);
}

/* Prices the grid with one size of micro-batch. Returns false when larger ones are closed. */
static bool mbs_meet(struct stream *s, const struct layout *l)
{
    int64_t most = most_vpp(s, l);
    parts_price(s, l);
    double x = layer_seconds(&s->price), m = s->work.micro_batches, worst = worst_kept(s);
    bool bounded = !s->spec->all && !s->first_only;
    if (bounded && grid_bound(s, l, s->floor, x, most) >= worst)
        return false;
    if (bounded && grid_bound(s, l, m * x, x, most) >= worst)
        return true;
    bool any = vpps_meet(s, *l);
    return any ? !s->first_only : !memory_closes(s, l);
}

/* Returns the next size of micro-batch that has fewer of them; past `samples`, samples + 1. */
static int64_t next_mbs(int64_t samples, int64_t mbs)
{
    int64_t m = num_ceil_div(samples, mbs);
    return m == 1 ? samples + 1 : num_ceil_div(samples, m - 1);
}

static void grid_meet(struct stream *s, struct layout l)
{
    const struct work_spec *w = s->spec->work;
    int64_t samples = samples_of(s, &l), count = layout_count(s, l);
    int rule = layout_broken_rule(&l, w->model, w->seq, w->gbs, s->spec->gpus);
    if (rule >= 0) {
        s->found->excluded[rule] += count;
        return;
    }
    s->found->grids += most_vpp(s, &l);
    s->found->legal += count;
    s->floor = floor_of(s, l);
    if (grid_bound(s, &l, s->floor, 0, 1) >= worst_kept(s))
        return;
    for (l.mbs = 1; l.mbs <= samples && mbs_meet(s, &l);)
        l.mbs = next_mbs(samples, l.mbs);
}

static void kinds_meet(struct stream *s, struct layout l)
{
    for (l.sp = 0; l.sp <= (l.tp > 1); l.sp++)
        for (int k = CP_RING; k <= (l.cp > 1 ? CP_2D : CP_RING); k++) {
            l.cp_kind = (enum cp_kind)k;
            if (s->first_only && s->found->fit)
                return;
            grid_meet(s, l);
        }
}

static void space_meet(struct stream *s)
{
    struct layout l = layout_default();
    int64_t gpus = s->spec->gpus;
    for (l.tp = 1; l.tp <= gpus; l.tp++)
        for (l.cp = 1; gpus % l.tp == 0 && l.cp <= gpus / l.tp; l.cp++)
            for (l.pp = 1; gpus / l.tp % l.cp == 0 && l.pp <= gpus / l.tp / l.cp; l.pp++) {
                if (gpus / l.tp / l.cp % l.pp)
                    continue;
                l.dp = gpus / l.tp / l.cp / l.pp;
                kinds_meet(s, l);
            }
}

/* ---- replays ---- */

static int item_replay(struct stream *s, struct stream_item *item, struct err *err)
{
    struct price_step step;
    parts_price(s, &item->layout);
    int rc = price_replay(&s->price, &item->layout, &step, err);
    item->seconds = step.seconds;
    s->found->replayed++;
    return rc;
}

/* Moves item i, whose time has grown, to its place among the first i. */
static void item_settle(struct stream_found *f, size_t i)
{
    struct stream_item item = f->items[i];
    for (; i > 0 && f->items[i - 1].seconds > item.seconds; i--)
        f->items[i] = f->items[i - 1];
    f->items[i] = item;
}

/* Replays kept layouts until `most` of them are no slower than whatever was not replayed. Returns 1
 * when they are, 0 when more must be kept. */
static int found_settle(struct stream *s, size_t most, struct err *err)
{
    struct stream_found *f = s->found;
    bool whole = f->n < s->room;
    int rc;
    for (size_t i = 0; i < f->n; i++) {
        if (i >= most && f->items[most - 1].seconds <= f->items[i].seconds) {
            f->n = most;
            return 1;
        }
        if ((rc = item_replay(s, &f->items[i], err)) < 0)
            return rc;
        item_settle(f, i);
    }
    f->n = f->n < most ? f->n : most;
    return whole || s->room == STREAM_ITEMS;
}

static void found_reset(struct stream_found *f)
{
    int64_t replayed = f->replayed;
    memset(f, 0, sizeof *f);
    f->replayed = replayed;
}

int stream_search(const struct stream_spec *spec, size_t most, struct stream_found *found,
                  struct err *err)
{
    struct stream *s = malloc(sizeof *s);
    int rc = 0;
    BUG_ON(most < 1 || most > STREAM_ITEMS / 4);
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
    memset(found, 0, sizeof *found);
    *s = (struct stream){.spec = spec, .found = found};
    for (size_t room = 4 * most; rc == 0; room *= 4) {
        s->room = room < STREAM_ITEMS ? room : STREAM_ITEMS;
        found_reset(found);
        space_meet(s);
        rc = found_settle(s, most, err);
    }
    free(s);
    return rc < 0 ? rc : 0;
}

int stream_any_fits(const struct stream_spec *spec, bool *fits, struct err *err)
{
    struct stream *s = malloc(sizeof *s);
    struct stream_found *found = calloc(1, sizeof *found);
    int rc = 0;
    if (!s || !found) {
        rc = err_set(err, ERR_NOMEM, "out of memory for a search of layouts");
        goto out;
    }
    *s = (struct stream){.spec = spec, .found = found, .room = 1, .first_only = true};
    space_meet(s);
    *fits = found->fit > 0;
out:
    free(found);
    free(s);
    return rc;
}
