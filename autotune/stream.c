/* This file walks the space of layouts. This comment says why it can pass over parts of the space
 * without missing one of the best. A layout is *dominated* if another one is at least as fast and
 * holds no more bytes, so that nobody would choose it.
 *
 * The busiest replica has n samples. With b samples in a micro-batch it has m = ceil(n/b)
 * micro-batches. The model has L layers, pp stages of v virtual stages each, and x(b) is the time
 * that one layer takes, forward and backward, for a micro-batch. A stage has F = floor(L/pp) layers
 * or one more, and the last stage never has more than another. So no step of a grid is shorter than
 * either of
 *
 *     m x(b) L/pp                               the stage with the most layers
 *     m x(b) F + x(b) (L - F)/v                 the last stage, and what precedes it (price.c)
 *
 * - Micro-batch sizes. Of the sizes that give the same m only the smallest is considered: the
 *   others compute and hold more. So b goes from one m to the next.
 * - Bounds for larger micro-batches. Products get more efficient with b, and latencies are shared,
 *   so x(b)/b does not grow with b. Since m b >= n, the bounds hold for every larger size b' if
 *   m x(b) is replaced by n X, with X = x(n)/n, and v by the largest there is: n X L/pp, and
 *   n X F + x(b) (L - F)/v. Once either is slower than the time to beat, all larger sizes are
 *   passed over. Where ranks get whole rows of tokens, x(b)/b may grow a little; X is made smaller
 *   by SLACK_ROWS rows to allow for that.
 * - Orders of ranks. These change no work, only which messages leave a domain of fast links or a
 *   leaf switch. Orders with equal facts (struct order_sight) take the same time, so one of them is
 *   priced. The coarse pass considers the default order alone. Each order has bounds with its own
 *   x(b), and these close most of the orders.
 * - Virtual stages. More of them send more messages, and shorten nothing in a step but the wait for
 *   other stages. If a way to shard is too slow even without that wait, it is passed over for this
 *   b and all larger v.
 * - Ways to shard the state. Before any is considered, the grid is priced as if its state were not
 *   sharded (price_least()): no way can be faster.
 * - Memory. Parts and kept activations grow with b. Only the number of micro-batches in flight may
 *   fall, and not before 2 pp b > n (without a pipeline, b > n). Until then, if nothing fits with
 *   b, nothing fits with more.
 * - Before ways to shard are considered one by one, the one that holds the fewest bytes is sized.
 *   If it does not fit, none does; and every way must recompute at least as much as it.
 * - Recomputation costs time and saves memory. A layout that fits without it dominates those with
 *   it. Where it does not fit, `selective` is priced if that fits, and of `full` the smallest
 *   recompute_layers that fits. Bisection finds that number, as each further layer saves bytes.
 */
#include "autotune/stream_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { SLACK_ROWS = 8 };

static const struct model *model_of(const struct stream *s) { return s->spec->work->model; }

/* ---- counting ---- */

/* Returns the layers of the longest chunk. That number, or 0, in recompute_layers means all. */
static int64_t longest_chunk(const struct stream *s, const struct layout *l)
{ return num_ceil_div(model_of(s)->layers, l->pp * l->vpp); }

static void groups_find(struct stream *s, const struct layout *l)
{
    int64_t ranks = l->dp * l->cp;
    s->n_groups = 0;
    for (int64_t g = 2; g <= ranks; g++)
        if (ranks % g == 0) {
            BUG_ON(s->n_groups == STREAM_GROUPS);
            s->groups[s->n_groups++] = g;
        }
}

/* Holds the facts of an order that decide the time: how many neighbours along each axis are in one
 * domain and under one leaf, and (beyond one domain) whether dp follows cp: then their ranks form
 * one row. */
struct order_sight { int64_t near[2][4]; bool one_row; };

static struct order_sight sight_of(const struct layout *l, const struct cluster *c)
{
    const struct layout_place one[4] = {{.tp = 1}, {.cp = 1}, {.dp = 1}, {.pp = 1}};
    const int64_t sizes[4] = {l->tp, l->cp, l->dp, l->pp};
    const int64_t boxes[2] = {cluster_domain_devices(c), cluster_leaf_devices(c)};
    struct order_sight sight = {{{0}}, false};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            sight.near[k][i] =
                num_min_i64(sizes[i], num_max_i64(1, boxes[k] / layout_rank(l, one[i])));
    sight.one_row = layout_world(l) <= boxes[0] ||
                    layout_rank(l, one[2]) == layout_rank(l, one[1]) * l->cp;
    return sight;
}

static bool sight_equal(const struct order_sight *a, const struct order_sight *b)
{
    return memcmp(a->near, b->near, sizeof a->near) == 0 && a->one_row == b->one_row;
}

/* Lists the orders of a grid's ranks, and of those with an equal order_sight only the first. */
static void orders_find(struct stream *s, const struct layout *grid)
{
    struct order_sight sights[LAYOUT_ORDERS];
    int orders[LAYOUT_ORDERS];
    struct layout l = *grid;
    bool default_only = s->coarse || s->first_only;
    int n_orders = layout_orders(grid, orders); /* the default is the first */
    s->all_orders = s->spec->one_order ? 1 : n_orders;
    s->n_orders = 0;
    for (int i = 0; i < s->all_orders; i++) {
        int k = 0, n = s->n_orders;
        l.order = orders[i];
        sights[n] = sight_of(&l, s->spec->machine->cluster);
        while (!sight_equal(&sights[k], &sights[n]))
            k++;
        if (k == n && !(n && default_only))
            s->orders[s->n_orders++].order = orders[i];
    }
}

static int64_t most_vpp(const struct stream *s, const struct layout *l)
{ return l->pp > 1 ? num_max_i64(1, model_of(s)->layers / l->pp) : 1; }

static int64_t samples_of(const struct stream *s, const struct layout *l)
{ return num_ceil_div(s->spec->work->gbs, l->dp); }

/* Returns how many layouts a grid has over all virtual stages: recomputation none, selective, or
 * each number of layers; times micro-batch sizes, orders of ranks and ways to shard (none, or ZeRO
 * 1 to 3 over each group). */
static int64_t layout_count(const struct stream *s, struct layout l)
{
    int64_t kinds = 0, most = most_vpp(s, &l);
    for (l.vpp = 1; l.vpp <= most; l.vpp++)
        kinds += RECOMPUTE_FULL + longest_chunk(s, &l);
    return kinds * samples_of(s, &l) * (1 + 3 * s->n_groups) * s->all_orders;
}

/* ---- prices ---- */

/* Says whether no step with this many virtual stages or more is fast enough. Everything except the
 * wait for other stages only grows with their number. */
static bool is_slow(const struct stream *s, const struct layout *l, const struct price_step *step)
{
    double spread = step->term[PRICE_SPREAD], sum = step->seconds - spread -
                    step->term[PRICE_OVERHEAD];
    double wait = step->term[PRICE_BUBBLE] * (1 + spread / sum);
    return !s->spec->all && l->recompute == RECOMPUTE_NONE &&
           step->seconds - wait >= stream_worst(s);
}

/* Prices a layout for each open order. Says whether it is fast enough in any. */
static bool orders_price(struct stream *s, struct layout l)
{
    double worst = stream_worst(s);
    bool any = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        struct price_step step;
        if (!o->open || s->slow[i]) {
            o->seconds = INFINITY;
            continue;
        }
        l.order = o->order;
        price_step(&o->price, &l, &step);
        o->seconds = step.seconds;
        s->slow[i] = is_slow(s, &l, &step);
        any = any || o->seconds < worst;
        s->found->priced++;
    }
    return any;
}

/* Keeps a layout for each order in which it was just priced and is not too slow. */
static void orders_keep(struct stream *s, struct layout l, double bytes)
{
    for (int i = 0; i < s->n_orders; i++) {
        l.order = s->orders[i].order;
        const struct stream_item item = {l, s->orders[i].seconds, bytes, s->grid};
        if (s->orders[i].open && !s->slow[i])
            stream_keep(s, &item);
    }
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
        s->found->nearest = (struct stream_item){.layout = *l, .bytes = f.total, .grid = s->grid};
    return false;
}

/* Finds the fewest layers whose full recomputation makes the layout fit. The caller knows that it
 * fits with all of them and does not fit with none. */
static void recompute_solve(struct stream *s, struct layout *l, double *bytes)
{
    int64_t all = longest_chunk(s, l), low = 0, high = all; /* low does not fit, high does */
    double b;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        l->recompute_layers = middle;
        if (fits(s, l, &b))
            high = middle, *bytes = b;
        else
            low = middle;
    }
    l->recompute_layers = high == all ? 0 : high;
}

/* ---- sharding and recomputation ---- */

/* Says whether the adapter's trainer can run the layout, and counts the answer. */
static bool can_run(struct stream *s, const struct layout *l)
{
    const struct work_spec *w = s->spec->work;
    struct adapter_facts facts = {l, w->model, w->seq, w->gbs, 0, NULL};
    int rule = s->spec->adapter ? adapter_broken_rule(s->spec->adapter, &facts) : -1;
    if (rule >= 0)
        s->found->refused[rule]++;
    else
        s->found->able++;
    return rule < 0;
}

/* Keeps a layout that does not fit without recomputation, with as much of it as it needs to fit. */
static void recomputed_meet(struct stream *s, struct layout l)
{
    struct layout full = l;
    double bytes;
    full.recompute = RECOMPUTE_FULL;
    /* Its time without recomputation is a lower bound on its time with any. */
    if (!fits(s, &full, &bytes) || (!s->first_only && !orders_price(s, l)))
        return;
    recompute_solve(s, &full, &bytes);
    if (!can_run(s, &full)) {
        full.recompute_layers = 0;
        fits(s, &full, &bytes);
    }
    if (can_run(s, &full) && orders_price(s, full))
        orders_keep(s, full, bytes);
    l.recompute = RECOMPUTE_SELECTIVE;
    if (can_run(s, &l) && fits(s, &l, &bytes) && orders_price(s, l))
        orders_keep(s, l, bytes);
}

/* Considers one way to shard. */
static void state_meet(struct stream *s, struct layout l)
{
    double bytes;
    if (!can_run(s, &l))
        return;
    if (!fits(s, &l, &bytes))
        recomputed_meet(s, l);
    else if (orders_price(s, l))
        orders_keep(s, l, bytes);
}

/* Sizes and prices every kind of recomputation. */
static void state_meet_all(struct stream *s, struct layout l)
{
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        double bytes;
        l.recompute = (enum recompute)r;
        bool fast = orders_price(s, l);
        if (fits(s, &l, &bytes) && fast)
            orders_keep(s, l, bytes);
    }
}

/* Says whether a way to shard is too slow in each order that is open. */
static bool all_slow(const struct stream *s)
{
    for (int i = 0; i < s->n_orders; i++)
        if (s->orders[i].open && !s->slow[i])
            return false;
    return true;
}

/* Computes the shares of gathers once, and copies them: they are equal in all orders. */
static void gathers_price(struct stream *s)
{
    const struct price *first = NULL;
    for (int i = 0; !s->gathers_priced && i < s->n_orders; i++) {
        struct price *p = &s->orders[i].price;
        if (s->orders[i].closed)
            continue;
        if (first)
            memcpy(p->gathered, first->gathered, sizeof p->gathered);
        else
            price_gathers(p);
        first = p;
    }
    s->gathers_priced = true;
}

static void states_meet(struct stream *s, struct layout l)
{
    void (*meet)(struct stream *, struct layout) = s->spec->all ? state_meet_all : state_meet;
    gathers_price(s);
    s->slow = s->slow_states[0];
    if (!all_slow(s))
        meet(s, l);
    for (l.zero = 1; l.zero <= 3; l.zero++)
        for (int i = s->coarse && s->n_groups ? s->n_groups - 1 : 0; i < s->n_groups; i++) {
            if (s->first_only && s->found->fit)
                return;
            l.fsdp = s->groups[i] == l.dp ? 0 : s->groups[i];
            s->slow = s->slow_states[1 + (l.zero - 1) * s->n_groups + i];
            if (!all_slow(s))
                meet(s, l);
        }
}

/* ---- bounds ---- */

/* Returns the seconds of a layer's forward and backward for a micro-batch. */
static double layer_seconds(const struct price *p)
{
    double s = 0;
    for (int i = WORK_LAYER_FORWARD; i <= WORK_LAYER_BACKWARD; i++) {
        const struct price_part *q = &p->parts[i];
        s += q->gemm + q->attention + q->elementwise + q->launch + q->tp + q->cp;
    }
    return s;
}

/* Returns a lower bound on the step of a grid: `work` is a layer's seconds for all micro-batches,
 * `once` those for the micro-batch that must reach the last stage first. */
static double grid_bound(const struct stream *s, const struct layout *l, double work, double once,
                         int64_t vpp)
{
    double layers = (double)model_of(s)->layers,
           fewest = (double)(model_of(s)->layers / l->pp);
    double most = work * layers / (double)l->pp;
    return l->pp == 1 ? most
                      : fmax(most, work * fewest + once * (layers - fewest) / (double)vpp);
}

/* Returns a lower bound on steps with vpp or more virtual stages: the last stage's work alone. */
static double vpp_floor(const struct stream *s, const struct price *p, const struct layout *l,
                        int64_t vpp)
{
    double sends = l->pp > 1 ? (2 * (double)vpp - 1) * p->parts[WORK_SEND].pp : 0;
    return s->work.micro_batches *
           (layer_seconds(p) * (double)(model_of(s)->layers / l->pp) + sends);
}

/* Says whether a layout might fit with some way to shard the state. The leanest way divides
 * everything over all ranks. Its gathered weights are left out, because other ways gather fewer. */
static bool some_state_fits(struct stream *s, struct layout l)
{
    const double *v = s->spec->machine->v;
    struct footprint f;
    l.zero = s->n_groups ? 3 : 0;
    l.fsdp = s->n_groups ? s->groups[s->n_groups - 1] : 0;
    footprint_of(&s->work, &l, v, &f);
    s->found->sized++;
    double lean = f.total - f.bytes[HELD_GATHERED] * (1 + v[CONSTANT_FRAGMENTATION]);
    if (lean > s->spec->limit_bytes &&
        (s->found->nearest.bytes <= 0 || f.total < s->found->nearest.bytes))
        s->found->nearest = (struct stream_item){.layout = l, .bytes = f.total, .grid = s->grid};
    return lean <= s->spec->limit_bytes;
}

/* Returns the seconds of recomputing a layer's forward, in the fastest order. */
static double again_seconds(const struct stream *s, enum work_part_id part)
{
    double least = INFINITY;
    for (int i = 0; i < s->n_orders; i++) {
        const struct price_part *q = &s->orders[i].price.parts[part];
        double all = q->gemm + q->attention + q->elementwise + q->launch + q->tp + q->cp;
        least = s->orders[i].open ? fmin(least, all) : least;
    }
    return s->spec->machine->v[CONSTANT_AGAIN] * least;
}

/* Returns the fewest layers of a chunk that must be recomputed fully so that some way to shard
 * fits. With all of them it fits. */
static int64_t fewest_recomputed(struct stream *s, struct layout l)
{
    int64_t low = 0, high = longest_chunk(s, &l);
    l.recompute = RECOMPUTE_FULL;
    while (high - low > 1) {
        l.recompute_layers = (low + high) / 2;
        if (some_state_fits(s, l))
            high = l.recompute_layers;
        else
            low = l.recompute_layers;
    }
    return high;
}

/* Returns the least time in seconds that the last stage spends on recomputation for a micro-batch;
 * INFINITY: nothing fits. */
static double least_again(struct stream *s, struct layout l)
{
    int64_t chunk = model_of(s)->layers / (l.pp * l.vpp);
    double selective = INFINITY;
    struct work_stage last;
    if (some_state_fits(s, l))
        return 0;
    l.recompute = RECOMPUTE_SELECTIVE;
    work_stage(&s->work, &l, l.pp - 1, &last);
    if (some_state_fits(s, l))
        selective = again_seconds(s, WORK_LAYER_SELECTIVE) *
                    fmax(0, (double)(chunk * l.vpp) - last.there);
    l.recompute = RECOMPUTE_FULL;
    if (!some_state_fits(s, l))
        return selective;
    int64_t k = num_min_i64(chunk, fewest_recomputed(s, l));
    return fmin(selective, again_seconds(s, WORK_LAYER_FULL) *
                               fmax(0, (double)(k * l.vpp) - last.there));
}

static bool is_bounded(const struct stream *s) { return !s->spec->all && !s->first_only; }

/* Builds the work of a layout. Returns false if nothing fits with this micro-batch size; more
 * virtual stages never hold less. */
static bool some_fits(struct stream *s, struct layout l)
{
    static const enum recompute kinds[] = {RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE};
    work_build(s->spec->work, &l, &s->work);
    bool fits = s->spec->all;
    for (int i = 0; i < 3 && !fits; i++) {
        l.recompute = kinds[i];
        fits = some_state_fits(s, l);
    }
    return fits;
}

/* Prices the parts of s->work in each order that is not closed. */
static void parts_price(struct stream *s)
{
    const struct price *first = NULL;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        s->work.grid.order = o->order;
        if (o->closed)
            continue;
        if (first)
            price_reorder(first, &o->routes, &o->price);
        else
            price_terms(s->spec->machine, &s->work, &o->routes, &o->price);
        first = &o->price;
    }
    s->gathers_priced = false;
}

/* Closes the orders that are too slow with every micro-batch size. Sets the others' floor, n X. */
static void floors_set(struct stream *s, struct layout l)
{
    double rows = (double)seq_tokens(s->spec->work->seq) / (double)(l.cp * (l.sp ? l.tp : 1));
    for (int i = 0; i < s->n_orders; i++)
        s->orders[i].floor = 0, s->orders[i].closed = false,
        s->orders[i].routes = (struct price_routes){0};
    if (!is_bounded(s) || model_of(s)->family == MODEL_STDIT)
        return; /* ranks get whole frames; where these are few, x(b)/b may grow with b */
    l.mbs = samples_of(s, &l);
    work_build(s->spec->work, &l, &s->work);
    parts_price(s);
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        o->floor = layer_seconds(&o->price) * fmax(0, 1 - SLACK_ROWS / rows);
        o->closed = grid_bound(s, &l, o->floor, 0, 1) >= stream_worst(s);
    }
}

/* ---- grids ---- */

/* Opens the orders that may be fast enough with this many virtual stages, or returns false. */
static bool orders_open(struct stream *s, const struct layout *l)
{
    double m = s->work.micro_batches, worst = stream_worst(s);
    bool any = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        double x = o->closed ? 0 : layer_seconds(&o->price);
        o->open = !o->closed &&
                  (!is_bounded(s) || (grid_bound(s, l, m * x, x, l->vpp) < worst &&
                                      price_least(&o->price, l, 0) < worst));
        any = any || o->open;
    }
    return any;
}

/* Closes the orders that are too slow once the least recomputation of any way to shard is added. */
static bool orders_narrow(struct stream *s, const struct layout *l, double again)
{
    bool asked = !is_bounded(s) || again <= 0, any = false; /* the second by orders_open() */
    for (int i = 0; !asked && i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        o->open = o->open && price_least(&o->price, l, again) < stream_worst(s);
        any = any || o->open;
    }
    return any || asked;
}

/* Says whether no order is fast enough with this many virtual stages or more. */
static bool vpp_closes(const struct stream *s, const struct layout *l)
{
    if (!is_bounded(s))
        return false;
    for (int i = 0; i < s->n_orders; i++)
        if (!s->orders[i].closed &&
            vpp_floor(s, &s->orders[i].price, l, l->vpp) < stream_worst(s))
            return false;
    return true;
}

/* Considers each number of virtual stages of the grid. Returns false if none of them fits. */
static bool vpps_meet(struct stream *s, struct layout l)
{
    int64_t most = most_vpp(s, &l);
    bool open = false;
    for (l.vpp = 1; l.vpp <= most; l.vpp += s->coarse ? l.vpp : 1) {
        if (vpp_closes(s, &l))
            return true;
        if (!orders_open(s, &l)) {
            open = true;
            continue;
        }
        double again = s->spec->all ? 0 : least_again(s, l);
        if (!isfinite(again))
            continue;
        open = true;
        if (orders_narrow(s, &l, again))
            states_meet(s, l);
        if (s->first_only && s->found->fit)
            return true;
    }
    return open;
}

/* Says whether larger micro-batches cannot fit, given that nothing fits with this size. */
static bool memory_closes(const struct stream *s, const struct layout *l)
{
    return !s->spec->all && (l->pp == 1 ? 1 : 2 * l->pp) * l->mbs <= samples_of(s, l);
}

/* Closes the orders that are too slow with this micro-batch size and all larger ones. Returns how
 * many are left; *now: some of them may be fast enough with this one. */
static int orders_left(struct stream *s, const struct layout *l, bool *now)
{
    double m = s->work.micro_batches, worst = stream_worst(s);
    int left = 0;
    *now = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        double x = o->closed ? 0 : layer_seconds(&o->price);
        int64_t most = most_vpp(s, l);
        o->closed = o->closed || (is_bounded(s) && grid_bound(s, l, o->floor, x, most) >= worst);
        left += !o->closed;
        *now = *now || (!o->closed &&
                        (!is_bounded(s) || grid_bound(s, l, m * x, x, most) < worst));
    }
    return left;
}

/* Considers the grid with one micro-batch size. Returns false when all larger ones are closed. */
static bool mbs_meet(struct stream *s, const struct layout *l)
{
    bool now;
    if (!some_fits(s, *l))
        return !memory_closes(s, l);
    parts_price(s);
    if (orders_left(s, l, &now) == 0)
        return false;
    if (!now)
        return true;
    memset(s->slow_states, 0, (size_t)(1 + 3 * s->n_groups) * sizeof *s->slow_states);
    bool open = vpps_meet(s, *l);
    if (s->first_only && s->found->fit)
        return false;
    return open || !memory_closes(s, l);
}

/* Returns the next micro-batch size that gives fewer micro-batches; samples + 1 after the last. */
static int64_t next_mbs(int64_t samples, int64_t mbs)
{
    int64_t m = num_ceil_div(samples, mbs);
    return m == 1 ? samples + 1 : num_ceil_div(samples, m - 1);
}

static void grid_meet(struct stream *s, struct layout l)
{
    const struct work_spec *w = s->spec->work;
    orders_find(s, &l);
    groups_find(s, &l);
    int64_t samples = samples_of(s, &l), count = layout_count(s, l);
    int rule = layout_broken_rule(&l, w->model, w->seq, w->gbs, s->spec->gpus);
    if (rule >= 0) {
        s->found->excluded[rule] += count;
        return;
    }
    s->found->grids += most_vpp(s, &l);
    s->found->legal += count;
    for (l.mbs = 1; l.mbs <= samples && !some_fits(s, l); l.mbs = next_mbs(samples, l.mbs))
        if (memory_closes(s, &l))
            return;
    if (l.mbs <= samples)
        floors_set(s, l);
    while (l.mbs <= samples && mbs_meet(s, &l))
        l.mbs = next_mbs(samples, l.mbs);
}

/* Counts the next grid of the walk, and tells whether it belongs to this part. A hash mixes the
 * grids, as neighbours are alike in how long they take. */
static bool next_is_ours(struct stream *s)
{ return ((uint32_t)s->grid++ * 2654435769u >> 16) % s->parts == s->part; }

static void kinds_meet(struct stream *s, struct layout l)
{
    for (l.sp = 0; l.sp <= (l.tp > 1); l.sp++)
        for (int k = CP_RING; k <= (l.cp > 1 ? CP_2D : CP_RING); k++) {
            l.cp_kind = (enum cp_kind)k;
            if (s->first_only && s->found->fit)
                return;
            if (next_is_ours(s))
                grid_meet(s, l);
        }
}

void stream_walk(struct stream *s)
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
