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
 *   passed over. Where ranks get whole rows of tokens, or their number is no multiple of 64, x(b)/b
 *   may grow a little; stream_least_seconds() allows for that.
 * - Ranges of micro-batches. The same bounds hold for all sizes from b to b' with X = x(b')/b' and
 *   once x(b). A range that is too slow is passed over; any other is halved.
 * - Orders of ranks. These change no work, only which messages leave a domain of fast links or a
 *   leaf switch. Orders with equal facts (struct order_sight) take the same time, so one of them is
 *   priced. The coarse pass considers the default order alone. Each order has bounds with its own
 *   x(b), and these close most of the orders.
 * - Virtual stages. More of them send more messages, and shorten nothing in a step but the wait for
 *   other stages. So the least of them send, and the most of them wait, in a bound for a range of
 *   numbers. A range that is too slow is passed over; any other is halved. If a way to shard is too
 *   slow even without that wait, it is passed over for this b and all larger v.
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

static const struct model *model_of(const struct stream *s) { return s->spec->work->model; }

static bool is_bounded(const struct stream *s) { return !s->spec->all && !s->first_only; }

/* ---- counting ---- */

/* Returns the layers of the longest chunk. That number, or 0, in recompute_layers means all. */
static int64_t longest_chunk(const struct stream *s, const struct layout *l)
{ return num_ceil_div(model_of(s)->layers, l->pp * l->vpp); }

/* Finds the divisors: those up to the root, and from there on what they divide by. */
static void groups_find(struct stream *s, const struct layout *l)
{
    int64_t ranks = l->dp * l->cp, small = 1;
    s->n_groups = 0;
    for (int64_t g = 2; g * g <= ranks; g++)
        if (ranks % g == 0)
            s->groups[s->n_groups++] = small = g;
    for (int64_t g = small; g >= 1 && ranks > 1; g--)
        if (ranks % g == 0 && ranks / g != small) {
            BUG_ON(s->n_groups == STREAM_GROUPS);
            s->groups[s->n_groups++] = ranks / g;
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

/* Lists all orders of a grid's ranks, the default first. */
static void orders_count(struct stream *s, const struct layout *grid, int orders[LAYOUT_ORDERS])
{
    int n = layout_orders(grid, orders);
    s->all_orders = s->spec->one_order ? 1 : n;
}

/* Keeps only the first of the orders with an equal order_sight. */
static void orders_find(struct stream *s, const struct layout *grid,
                        const int orders[LAYOUT_ORDERS])
{
    struct order_sight sights[LAYOUT_ORDERS];
    struct layout l = *grid;
    bool default_only = s->coarse || s->first_only;
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

/* Returns how many layouts a grid has over all virtual stages: recomputation none, selective, or
 * each number of layers; times micro-batch sizes, orders of ranks and ways to shard (none, or ZeRO
 * 1 to 3 over each group). */
static int64_t layout_count(const struct stream *s, struct layout l)
{
    int64_t kinds = 0, most = most_vpp(s, &l);
    for (l.vpp = 1; l.vpp <= most; l.vpp++)
        kinds += RECOMPUTE_FULL + longest_chunk(s, &l);
    return kinds * stream_samples(s, &l) * (1 + 3 * s->n_groups) * s->all_orders;
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

/* Sizes a layout, and says whether it fits without recomputation or with all of it, or might with
 * less padding. Where no recomputation fits, recomputed_meet() keeps nothing. */
static bool may_fit(struct stream *s, struct layout l)
{
    double bytes, lost = 1 + footprint_lost(&s->work, s->spec->machine->v);
    if (fits(s, &l, &bytes))
        return true;
    l.recompute = RECOMPUTE_FULL;
    return fits(s, &l, &bytes) ||
           bytes - lost * work_padding_bytes(&s->work, &l) <= s->spec->limit_bytes;
}

/* Returns the first shard group with which a layout may fit; n_groups: there is none. A larger
 * group never holds more, but for its padding. */
static int group_first(struct stream *s, struct layout l)
{
    int low = -1, high = s->n_groups - 1; /* low does not fit */
    l.fsdp = high >= 0 ? s->groups[high] : 0;
    if (high < 0 || !may_fit(s, l))
        return s->n_groups;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        l.fsdp = s->groups[middle];
        *(may_fit(s, l) ? &high : &low) = middle;
    }
    return high;
}

/* Considers the ways to shard with l.zero. */
static void groups_meet(struct stream *s, struct layout l)
{
    void (*meet)(struct stream *, struct layout) = s->spec->all ? state_meet_all : state_meet;
    int first = is_bounded(s) && !s->coarse ? group_first(s, l) : 0;
    for (int i = s->coarse && s->n_groups ? s->n_groups - 1 : 0; i < s->n_groups; i++) {
        if (s->first_only && s->found->fit)
            return;
        l.fsdp = s->groups[i] == l.dp ? 0 : s->groups[i];
        s->slow = s->slow_states[1 + (l.zero - 1) * s->n_groups + i];
        if (i < first)
            can_run(s, &l); /* it counts */
        else if (!all_slow(s))
            meet(s, l);
    }
}

static void states_meet(struct stream *s, struct layout l)
{
    gathers_price(s);
    s->slow = s->slow_states[0];
    if (!all_slow(s))
        (s->spec->all ? state_meet_all : state_meet)(s, l);
    for (l.zero = 1; l.zero <= 3; l.zero++)
        groups_meet(s, l);
}

/* ---- bounds ---- */

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
    double lean = f.total - f.bytes[HELD_GATHERED] * (1 + footprint_lost(&s->work, v));
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
 * INFINITY: nothing fits. With `spare` full layers fewer are counted. */
static double least_again(struct stream *s, struct layout l, double spare)
{
    double selective = INFINITY;
    struct work_stage last;
    if (some_state_fits(s, l))
        return 0;
    l.recompute = RECOMPUTE_SELECTIVE;
    work_stage(&s->work, &l, l.pp - 1, &last);
    if (some_state_fits(s, l))
        selective = again_seconds(s, WORK_LAYER_SELECTIVE) * fmax(0, last.selective - last.there);
    l.recompute = RECOMPUTE_FULL;
    if (!some_state_fits(s, l))
        return selective;
    l.recompute_layers = fewest_recomputed(s, l);
    work_stage(&s->work, &l, l.pp - 1, &last);
    return fmin(selective, again_seconds(s, WORK_LAYER_FULL) *
                               fmax(0, last.full - last.there - spare));
}

/* Builds the work of a layout. Returns false if nothing fits with this micro-batch size; more
 * virtual stages than one never hold less. */
static bool some_fits(struct stream *s, struct layout l)
{
    static const enum recompute kinds[] = {RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE};
    work_rebuild(s->spec->work, &l, &s->work);
    bool fits = s->spec->all;
    for (int i = 0; i < 3 && !fits; i++) {
        l.recompute = kinds[i];
        fits = some_state_fits(s, l);
    }
    return fits;
}

static const struct price_ids LAYER_ITSELF = {WORK_LAYER_FORWARD, WORK_LAYER_BACKWARD + 1},
                              ALL_ELSE = {WORK_LAYER_BACKWARD + 1, WORK_PARTS};

/* Prices parts of s->work on a machine, in each order that is not closed. The bounds for ranges of
 * micro-batch sizes need LAYER_ITSELF alone. */
static void parts_price(struct stream *s, const struct price_machine *m, struct price_ids ids)
{
    const struct price *first = NULL;
    s->found->opened += ids.from == LAYER_ITSELF.from;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        s->work.grid.order = o->order;
        if (o->closed)
            continue;
        if (first)
            price_reorder(first, ids, &o->routes, &o->price);
        else
            price_terms(m, &s->work, ids, &o->routes, &o->price);
        first = &o->price;
    }
    s->gathers_priced = false;
}

/* Says whether x(b)/b does not grow with b. Where ranks of stdit get whole frames, and these are
 * few, it may. */
static bool floors_hold(const struct stream *s)
{ return is_bounded(s) && model_of(s)->family != MODEL_STDIT; }

/* Closes the orders that are too slow with every micro-batch size. Sets the others' floor, n X. */
static void floors_set(struct stream *s, struct layout l)
{
    for (int i = 0; i < s->n_orders; i++)
        s->orders[i].floor = s->orders[i].layer_s = 0, s->orders[i].closed = false,
        s->orders[i].routes = (struct price_routes){0};
    if (!floors_hold(s))
        return;
    struct layout last = l;
    last.mbs = stream_samples(s, &l);
    work_rebuild_times(s->spec->work, &last, &s->work);
    stream_even_set(s, &l, last.mbs);
    parts_price(s, &s->even, LAYER_ITSELF);
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        o->floor = stream_least_seconds(s, &o->price);
        o->closed = stream_grid_bound(s, &l, o->floor, 0, 1) >= stream_worst(s);
    }
}

/* ---- grids ---- */

/* Opens the orders that may be fast enough with some number of virtual stages from l->vpp to `to`,
 * where the last stage spends `again` seconds or more on recomputation. Says whether there are
 * any. */
static bool orders_open(struct stream *s, const struct layout *l, int64_t to, double again)
{
    double worst = stream_worst(s);
    bool any = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        o->open = !o->closed &&
                  (!is_bounded(s) || price_least(&o->price, l, to, again) < worst);
        any = any || o->open;
    }
    return any;
}

/* Considers one number of virtual stages. */
static void vpp_meet(struct stream *s, struct layout l)
{
    double again = s->spec->all ? 0 : least_again(s, l, 0);
    if (isfinite(again) && (again <= 0 || orders_open(s, &l, l.vpp, again)))
        states_meet(s, l);
}

/* Considers the numbers of virtual stages from l.vpp to `to`: those of a range that is too slow are
 * passed over, and any other is halved. `again`: as for orders_open(). */
static void vpps_meet(struct stream *s, struct layout l, int64_t to, double again)
{
    int64_t middle = s->coarse ? l.vpp : (l.vpp + to) / 2;
    if (!orders_open(s, &l, to, again) || (s->first_only && s->found->fit))
        return;
    if (l.vpp == to) {
        vpp_meet(s, l);
        return;
    }
    vpps_meet(s, l, middle, again);
    l.vpp = s->coarse ? 2 * l.vpp : middle + 1;
    if (l.vpp <= to)
        vpps_meet(s, l, to, again);
}

/* Considers all numbers of virtual stages. One that is greater never holds less, and recomputes on
 * the last stage at most one layer less than one stage alone must. */
static void all_vpps_meet(struct stream *s, struct layout l)
{
    if (!orders_open(s, &l, most_vpp(s, &l), 0))
        return;
    vpps_meet(s, l, most_vpp(s, &l), is_bounded(s) ? least_again(s, l, 1) : 0);
}

/* Says whether larger micro-batches cannot fit, given that nothing fits with this size. */
static bool memory_closes(const struct stream *s, const struct layout *l)
{
    return !s->spec->all && (l->pp == 1 ? 1 : 2 * l->pp) * l->mbs <= stream_samples(s, l);
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
        double x = o->closed ? 0 : stream_layer_seconds(&o->price);
        int64_t most = most_vpp(s, l);
        o->layer_s = x;
        o->closed = o->closed || (is_bounded(s) &&
                                  stream_grid_bound(s, l, o->floor, x, most) >= worst);
        left += !o->closed;
        *now = *now || (!o->closed &&
                        (!is_bounded(s) || stream_grid_bound(s, l, m * x, x, most) < worst));
    }
    return left;
}

/* Considers the grid with one micro-batch size. Returns false when all larger ones are closed. */
static bool mbs_meet(struct stream *s, const struct layout *l)
{
    bool now;
    if (!some_fits(s, *l))
        return !memory_closes(s, l);
    parts_price(s, s->spec->machine, LAYER_ITSELF);
    if (orders_left(s, l, &now) == 0)
        return false;
    if (!now)
        return true;
    parts_price(s, s->spec->machine, ALL_ELSE);
    memset(s->slow_states, 0, (size_t)(1 + 3 * s->n_groups) * sizeof *s->slow_states);
    all_vpps_meet(s, *l);
    return !(s->first_only && s->found->fit);
}

/* Says whether no order is fast enough with the micro-batch sizes from l.mbs to `to`. */
static bool sizes_slow(struct stream *s, struct layout l, int64_t to)
{
    double samples = (double)stream_samples(s, &l), worst = stream_worst(s);
    int64_t most = most_vpp(s, &l);
    struct layout last = l;
    if (!floors_hold(s))
        return false;
    last.mbs = to;
    work_rebuild_times(s->spec->work, &last, &s->work);
    stream_even_set(s, &l, to);
    parts_price(s, &s->even, LAYER_ITSELF);
    for (int i = 0; i < s->n_orders; i++) {
        const struct stream_order *o = &s->orders[i];
        double least = samples / (double)to * stream_least_seconds(s, &o->price);
        if (!o->closed && stream_grid_bound(s, &l, least, o->layer_s, most) < worst)
            return false;
    }
    return true;
}

/* Considers the grid with the micro-batch sizes from l.mbs to `to`. Returns false when all larger
 * ones are closed. */
static bool sizes_meet(struct stream *s, struct layout l, int64_t to)
{
    int64_t samples = stream_samples(s, &l), middle;
    if (l.mbs == to)
        return mbs_meet(s, &l);
    if (sizes_slow(s, l, to))
        return true;
    middle = s->coarse ? l.mbs
                       : stream_smallest_mbs(samples, (int64_t)sqrt((double)l.mbs * (double)to));
    if (!sizes_meet(s, l, middle))
        return false;
    l.mbs = s->coarse ? stream_smallest_mbs(samples, num_min_i64(samples, 2 * l.mbs))
                      : stream_next_mbs(samples, middle);
    return sizes_meet(s, l, to);
}

static void grid_meet(struct stream *s, struct layout l)
{
    const struct work_spec *w = s->spec->work;
    int orders[LAYOUT_ORDERS];
    orders_count(s, &l, orders);
    groups_find(s, &l);
    int64_t samples = stream_samples(s, &l), count = layout_count(s, l);
    int rule = layout_broken_rule(&l, w->model, w->seq, w->gbs, s->spec->gpus);
    if (rule >= 0) {
        s->found->excluded[rule] += count;
        return;
    }
    work_cut(w, &l, &s->work);
    orders_find(s, &l, orders);
    s->found->grids += most_vpp(s, &l);
    s->found->legal += count;
    for (l.mbs = 1; l.mbs <= samples && !some_fits(s, l); l.mbs = stream_next_mbs(samples, l.mbs))
        if (memory_closes(s, &l))
            return;
    if (l.mbs > samples)
        return;
    floors_set(s, l);
    sizes_meet(s, l, samples);
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
