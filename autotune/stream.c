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
 * - Micro-batch sizes. Products slow down where a side is no multiple of 64 or of 8, and in the
 *   gradients of weights one side is b times the tokens of a rank, or b, or b times the tokens of a
 *   caption. Of the sizes that give the same m and are as even, the smallest is considered, since
 *   the others compute and hold more.
 * - Bounds for larger micro-batches. Products get more efficient with b, and latencies are shared,
 *   so x(b)/b does not grow with b. Since m b >= n, the bounds hold for every larger size b' if
 *   m x(b) is replaced by n X, with X = x(n)/n, and v by the largest there is: n X L/pp, and
 *   n X F + x(b) (L - F)/v. Once either is slower than the time to beat, all larger sizes are
 *   passed over. Where ranks get whole rows of tokens, or their number is no multiple of 64, x(b)/b
 *   may grow a little, and x(b) may fall; stream_least_seconds() and stream_uneven_seconds() allow
 *   for that: n X is that of the most even size there is, and x(b) that of even products.
 * - Ranges of micro-batches. The same bounds hold for all sizes from b to b' with X = x(b')/b' and
 *   once x(b). Each size holds at least what b holds with the number of micro-batches that b' has,
 *   so what must be recomputed there is added, and the last stage's head. A range that is too slow
 *   is passed over; any other is halved.
 * - Orders of ranks. These change no work, only which messages leave a domain of fast links or a
 *   leaf switch. Orders with equal facts (struct order_sight) take the same time, so one of them is
 *   priced. The coarse pass considers the default order alone. Each order has bounds with its own
 *   x(b), and these close most of the orders.
 * - Virtual stages. More of them send more messages, and shorten nothing in a step but the wait for
 *   other stages. So the least of them send, and the most of them wait, in a bound for a range of
 *   numbers. A range that is too slow is passed over; any other is halved. If a way to shard is too
 *   slow even without that wait and without gathers, which get fewer with v where chunks are short,
 *   it is passed over for this b and all larger v.
 * - Ways to shard the state. A range of virtual stages is priced without its state (price_least()):
 *   no way can be faster. Then each zero is priced with the least seconds that each of its messages
 *   takes in any group, and with what its largest group, which holds the fewest bytes, must
 *   recompute. If all of them are too slow, so is the range. The same closes a zero for one number
 *   of virtual stages, where also groups that are too small to fit are left out.
 * - Memory. Parts and kept activations grow with b. Only the number of micro-batches in flight may
 *   fall, and not before 2 pp b > n (without a pipeline, b > n). Until then, if nothing fits with
 *   b, nothing fits with more.
 * - Recomputation costs time and saves memory. A layout that fits without it dominates those with
 *   it. Where it does not fit, `selective` is priced if that fits, and of `full` the smallest
 *   recompute_layers that fits. Bisection finds that number, as each further layer saves bytes.
 */
#include "autotune/stream_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static bool is_bounded(const struct stream *s) { return !s->first_only; }

/* ---- prices ---- */

/* Says whether no step with this many virtual stages or more is fast enough. Everything except the
 * wait for other stages and, with zero 3, what gathers expose only grows with their number. */
static bool is_slow(const struct stream *s, const struct layout *l, const struct price_step *step)
{
    double spread = step->term[PRICE_SPREAD], sum = step->seconds - spread -
                    step->term[PRICE_OVERHEAD];
    double falls = step->term[PRICE_BUBBLE] +
                   (l->zero == 3 ? step->term[PRICE_GATHER] + step->term[PRICE_REDUCE] : 0);
    double wait = falls * (1 + spread / sum);
    return l->recompute == RECOMPUTE_NONE && step->seconds - wait >= stream_worst(s);
}

/* Says whether an order may be fast enough with the present way to shard. */
static bool is_open(const struct stream *s, int i)
{ return s->orders[i].open && !s->slow[s->way][i] && !s->out[i]; }

/* Prices a layout for each open order. Says whether it is fast enough in any. */
static bool orders_price(struct stream *s, struct layout l)
{
    double worst = stream_worst(s);
    bool any = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        struct price_step step;
        if (!is_open(s, i)) {
            o->seconds = INFINITY;
            continue;
        }
        l.order = o->order;
        price_bound(&o->price, &l, stream_state(s, i, &l), &step);
        o->seconds = step.seconds;
        s->slow[s->way][i] = is_slow(s, &l, &step);
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
        const struct stream_item item = {l, s->orders[i].seconds, bytes, s->grid, s->met++};
        if (is_open(s, i))
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
    s->found->fit += f.total <= s->spec->limit_bytes;
    return f.total <= s->spec->limit_bytes;
}

/* Finds the fewest layers whose full recomputation makes the layout fit. The caller knows that it
 * fits with all of them and does not fit with none. */
static void recompute_solve(struct stream *s, struct layout *l, double *bytes)
{
    int64_t all = stream_longest_chunk(s, l), low = 0, high = all; /* low does not fit, high does */
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

static bool can_run(struct stream *s, const struct layout *l)
{ return !stream_refused(s, l, 0, 1); }

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

/* Says whether a way to shard is too slow in each order that is open. */
static bool all_slow(const struct stream *s)
{
    for (int i = 0; i < s->n_orders; i++)
        if (is_open(s, i))
            return false;
    return true;
}

/* Says whether every way of the present zero is too slow in each order that is open. */
static bool all_out(const struct stream *s)
{
    for (int i = 0; i < s->n_orders; i++)
        if (s->orders[i].open && !s->out[i])
            return false;
    return true;
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
    return lean <= s->spec->limit_bytes;
}

/* Says whether a layout might fit with l.zero and some shard group. The largest holds the fewest
 * bytes but for its padding. */
static bool zero_fits(struct stream *s, struct layout l)
{
    struct footprint f;
    l.fsdp = l.zero ? s->groups[s->n_groups - 1] : 0;
    footprint_of(&s->work, &l, s->spec->machine->v, &f);
    s->found->sized++;
    double padding = (1 + footprint_lost(&s->work, s->spec->machine->v)) *
                     work_padding_bytes(&s->work, &l);
    return f.total - padding <= s->spec->limit_bytes;
}

/* Returns the fewest layers of a chunk that must be recomputed fully so that a layout fits. With
 * all of them it fits. */
static int64_t fewest_recomputed(struct stream *s, struct layout l,
                                 bool (*it_fits)(struct stream *, struct layout))
{
    int64_t low = 0, high = stream_longest_chunk(s, &l);
    while (high - low > 1) {
        l.recompute_layers = (low + high) / 2;
        if (it_fits(s, l))
            high = l.recompute_layers;
        else
            low = l.recompute_layers;
    }
    return high;
}

/* Returns what the last stage must recompute for each micro-batch so that it_fits() is true. With
 * `spare` full layers fewer are counted. */
static struct stream_again least_again(struct stream *s, struct layout l, double spare,
                                       bool (*it_fits)(struct stream *, struct layout))
{
    struct stream_again a = {INFINITY, INFINITY};
    struct work_stage last;
    if (it_fits(s, l))
        return (struct stream_again){0, 0};
    l.recompute = RECOMPUTE_SELECTIVE;
    work_stage(&s->work, &l, l.pp - 1, &last);
    if (it_fits(s, l))
        a.selective = fmax(0, last.selective - last.there);
    l.recompute = RECOMPUTE_FULL;
    if (!it_fits(s, l))
        return a;
    l.recompute_layers = fewest_recomputed(s, l, it_fits);
    work_stage(&s->work, &l, l.pp - 1, &last);
    a.full = fmax(0, last.full - last.there - spare);
    return a;
}

/* Returns the least seconds in which the last stage recomputes for a micro-batch; INFINITY: nothing
 * fits. */
static double again_seconds(const struct stream *s, const struct price *p, struct stream_again a)
{
    double selective = stream_part_seconds(&p->parts[WORK_LAYER_SELECTIVE]),
           full = stream_part_seconds(&p->parts[WORK_LAYER_FULL]);
    return s->spec->machine->v[CONSTANT_AGAIN] *
           fmin(isfinite(a.selective) ? a.selective * selective : INFINITY,
                isfinite(a.full) ? a.full * full : INFINITY);
}

/* Builds the work of a layout. Returns false if nothing fits with this micro-batch size; more
 * virtual stages than one never hold less. */
static bool some_fits(struct stream *s, struct layout l)
{
    static const enum recompute kinds[] = {RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE};
    work_rebuild(s->spec->work, &l, &s->work);
    bool fits = false;
    for (int i = 0; i < 3 && !fits; i++) {
        l.recompute = kinds[i];
        fits = some_state_fits(s, l);
    }
    return fits;
}

static const struct price_ids LAYER_ITSELF = {WORK_LAYER_FORWARD, WORK_LAYER_BACKWARD + 1},
                              LAYER_AND_ENDS = {WORK_LAYER_FORWARD, WORK_LAST_BACKWARD + 1},
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
}

/* Closes the orders that are too slow with every micro-batch size. Sets the others' floor, n X. */
static void floors_set(struct stream *s, struct layout l)
{
    for (int i = 0; i < s->n_orders; i++)
        s->orders[i].floor = s->orders[i].layer_s = 0, s->orders[i].closed = false,
        s->orders[i].routes = (struct price_routes){0};
    if (!is_bounded(s))
        return;
    struct layout last = l;
    last.mbs = stream_samples(s, &l);
    work_rebuild_times(s->spec->work, &last, &s->work);
    stream_even_set(s, &l, last.mbs);
    parts_price(s, &s->even, LAYER_ITSELF);
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        o->floor = stream_least_seconds(s, &o->price);
        o->closed = stream_grid_bound(s, &l, o->floor, 0, 1, 0) >= stream_worst(s);
    }
}

/* ---- grids ---- */

/* Says whether order i may be fast enough with some way to shard and some number of virtual stages
 * from l.vpp to `to`. */
static bool some_way_fast(struct stream *s, int i, struct layout l, int64_t to)
{
    double worst = stream_worst(s);
    for (l.zero = 0; l.zero <= (s->n_groups ? 3 : 0); l.zero++) {
        double again = again_seconds(s, &s->orders[i].price, s->zeros[l.zero]);
        if (l.zero == 3 && isfinite(again))
            stream_gathers_price(s, i, l.vpp, to);
        if (isfinite(again) && stream_ways_bound(s, i, l, 0, to, again) < worst)
            return true;
    }
    return false;
}

/* Opens the orders that are not too slow even without a state and recomputation, with some number
 * of virtual stages from l->vpp to `to`. Says whether there are any. */
static bool orders_open_bare(struct stream *s, const struct layout *l, int64_t to)
{
    double worst = stream_worst(s);
    bool any = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        o->open = !o->closed &&
                  (!is_bounded(s) || price_least(&o->price, l, NULL, to, 0) < worst);
        any = any || o->open;
    }
    return any;
}

/* Opens the orders as orders_open_bare() does, and says whether some way to shard may be fast
 * enough in one of them. */
static bool orders_open(struct stream *s, const struct layout *l, int64_t to)
{
    bool fast = orders_open_bare(s, l, to);
    if (!fast || !is_bounded(s))
        return fast;
    for (int i = 0; i < s->n_orders; i++)
        if (s->orders[i].open && some_way_fast(s, i, *l, to))
            return true;
    return false;
}

/* Sets s->out for the ways to shard with l.zero and group `first` or a larger one, if the last
 * stage must recompute as `a` says. Returns whether some order may be fast enough. */
static bool ways_left(struct stream *s, struct layout l, int first, struct stream_again a)
{
    double worst = stream_worst(s);
    for (int i = 0; i < s->n_orders; i++) {
        double again = again_seconds(s, &s->orders[i].price, a);
        if (s->orders[i].open && !s->out[i])
            s->out[i] = isinf(again) || stream_ways_bound(s, i, l, first, l.vpp, again) >= worst;
    }
    return !all_out(s);
}

/* Returns the first of the ways to shard with l.zero that may fit and be fast enough; n_groups:
 * there is none. */
static int way_first(struct stream *s, struct layout l)
{
    struct stream_again a = s->zeros[l.zero];
    if (!ways_left(s, l, 0, a))
        return s->n_groups;
    a = least_again(s, l, 0, zero_fits);
    if (!ways_left(s, l, 0, a))
        return s->n_groups;
    int first = group_first(s, l);
    return first > 0 && first < s->n_groups && !ways_left(s, l, first, a) ? s->n_groups : first;
}

/* Considers the ways to shard with l.zero. */
static void groups_meet(struct stream *s, struct layout l)
{
    memset(s->out, 0, sizeof s->out);
    int first = is_bounded(s) && s->n_groups ? way_first(s, l) : 0;
    for (int i = s->coarse && s->n_groups ? s->n_groups - 1 : 0; i < s->n_groups; i++) {
        if (s->first_only && s->found->fit)
            return;
        l.fsdp = s->groups[i] == l.dp ? 0 : s->groups[i];
        s->way = stream_way(s, l.zero, i);
        if (i < first)
            can_run(s, &l); /* it counts */
        else if (!all_slow(s))
            state_meet(s, l);
    }
}

/* Considers one number of virtual stages. */
static void states_meet(struct stream *s, struct layout l)
{
    if (stream_refused(s, &l, STREAM_WITHIN_VPP, 1))
        return;
    s->way = 0;
    memset(s->out, 0, sizeof s->out);
    if (!all_slow(s))
        state_meet(s, l);
    for (l.zero = 1; l.zero <= 3; l.zero++) {
        for (int i = 0; l.zero == 3 && i < s->n_orders; i++)
            stream_gathers_price(s, i, l.vpp, l.vpp);
        groups_meet(s, l);
    }
}

/* Considers the numbers of virtual stages from l.vpp to `to`: those of a range that is too slow are
 * passed over, and any other is halved. */
static void vpps_meet(struct stream *s, struct layout l, int64_t to)
{
    int64_t middle = s->coarse ? l.vpp : (l.vpp + to) / 2;
    if (!orders_open(s, &l, to) || (s->first_only && s->found->fit))
        return;
    if (l.vpp == to) {
        states_meet(s, l);
        return;
    }
    vpps_meet(s, l, middle);
    l.vpp = s->coarse ? 2 * l.vpp : middle + 1;
    if (l.vpp <= to)
        vpps_meet(s, l, to);
}

/* Considers all numbers of virtual stages. One that is greater never holds less, and recomputes on
 * the last stage at most one layer less than one stage alone must. */
static void all_vpps_meet(struct stream *s, struct layout l)
{
    if (!orders_open_bare(s, &l, stream_most_vpp(s, &l)))
        return;
    for (l.zero = 0; l.zero <= (s->n_groups ? 3 : 0) && is_bounded(s); l.zero++)
        s->zeros[l.zero] = least_again(s, l, 1, zero_fits);
    l.zero = 0;
    vpps_meet(s, l, stream_most_vpp(s, &l));
}

/* Says whether larger micro-batches cannot fit, given that nothing fits with this size. */
static bool memory_closes(const struct stream *s, const struct layout *l)
{
    return (l->pp == 1 ? 1 : 2 * l->pp) * l->mbs <= stream_samples(s, l);
}

/* Returns by how much the layer may be slower than with larger sizes, because its products are
 * less even. It is the same in all orders, and matters in pipelines alone. */
static double uneven_seconds(struct stream *s, const struct layout *l)
{
    for (int i = 0; i < s->n_orders && l->pp > 1 && is_bounded(s); i++)
        if (!s->orders[i].closed)
            return stream_uneven_seconds(s, &s->orders[i].price);
    return 0;
}

/* Closes the orders that are too slow with this micro-batch size and all larger ones. Returns how
 * many are left; *now: some of them may be fast enough with this one. */
static int orders_left(struct stream *s, const struct layout *l, bool *now)
{
    double m = s->work.micro_batches, worst = stream_worst(s), uneven = uneven_seconds(s, l);
    int left = 0;
    *now = false;
    for (int i = 0; i < s->n_orders; i++) {
        struct stream_order *o = &s->orders[i];
        double x = o->closed ? 0 : stream_layer_seconds(&o->price);
        int64_t most = stream_most_vpp(s, l);
        o->layer_s = x - uneven;
        o->closed = o->closed ||
                    (is_bounded(s) &&
                     stream_grid_bound(s, l, o->floor, o->layer_s, most, 0) >= worst);
        left += !o->closed;
        *now = *now || (!o->closed &&
                        (!is_bounded(s) || stream_grid_bound(s, l, m * x, x, most, 0) < worst));
    }
    return left;
}

/* Considers the grid with one micro-batch size. Returns false when all larger ones are closed. */
static bool mbs_meet(struct stream *s, const struct layout *l)
{
    bool now;
    if (stream_refused(s, l, STREAM_WITHIN_MBS, 1))
        return true;
    if (!some_fits(s, *l))
        return !memory_closes(s, l);
    parts_price(s, s->spec->machine, LAYER_ITSELF);
    if (orders_left(s, l, &now) == 0)
        return false;
    if (!now)
        return true;
    parts_price(s, s->spec->machine, ALL_ELSE);
    memset(s->slow, 0, (size_t)(1 + 3 * s->n_groups) * sizeof *s->slow);
    all_vpps_meet(s, *l);
    return !(s->first_only && s->found->fit);
}

/* Returns what the last stage must recompute with any of the micro-batch sizes from l.mbs to `to`.
 * Each holds at least what the smallest size holds with as few micro-batches as the largest has. */
static struct stream_again range_again(struct stream *s, struct layout l, int64_t to)
{
    work_rebuild(s->spec->work, &l, &s->work);
    s->work.micro_batches = (double)num_ceil_div(stream_samples(s, &l), to);
    return least_again(s, l, 1, some_state_fits);
}

/* Says whether no order is fast enough if a step takes as long as this many micro-batches of those
 * that are priced, and the last stage must recompute `a` for each. */
static bool orders_slow(const struct stream *s, const struct layout *l, double batches,
                        struct stream_again a)
{
    double worst = stream_worst(s);
    int64_t most = stream_most_vpp(s, l);
    for (int i = 0; i < s->n_orders; i++) {
        const struct stream_order *o = &s->orders[i];
        double layers = batches * stream_layer_seconds(&o->price),
               more = batches * (again_seconds(s, &o->price, a) + stream_end_seconds(&o->price));
        if (!o->closed && stream_grid_bound(s, l, layers, o->layer_s, most, more) < worst)
            return false;
    }
    return true;
}

/* Says whether no order is fast enough with the micro-batch sizes from l.mbs to `to`: without
 * recomputation, or else with what must be recomputed. */
static bool sizes_slow(struct stream *s, struct layout l, int64_t to)
{
    double batches = (double)stream_samples(s, &l) / (double)to;
    struct layout last = l;
    if (!is_bounded(s) || !isfinite(stream_worst(s)))
        return false;
    last.mbs = to;
    work_rebuild_times(s->spec->work, &last, &s->work);
    stream_even_set(s, &l, to);
    parts_price(s, &s->even, LAYER_AND_ENDS);
    batches *= stream_least_share(s);
    return orders_slow(s, &l, batches, (struct stream_again){0, 0}) ||
           orders_slow(s, &l, batches, range_again(s, l, to));
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
                       : stream_considered_mbs(s, &l, (int64_t)sqrt((double)l.mbs * (double)to));
    if (!sizes_meet(s, l, middle))
        return false;
    l.mbs = s->coarse ? stream_considered_mbs(s, &l, num_min_i64(samples, 2 * l.mbs))
                      : stream_next_mbs(s, &l, middle);
    return sizes_meet(s, l, to);
}

static void grid_meet(struct stream *s, struct layout l)
{
    const struct work_spec *w = s->spec->work;
    int orders[LAYOUT_ORDERS];
    stream_orders_count(s, &l, orders);
    stream_groups_find(s, &l);
    int64_t samples = stream_samples(s, &l), count = stream_layout_count(s, l);
    int rule = layout_broken_rule(&l, w->model, w->seq, w->gbs, s->spec->gpus);
    if (rule >= 0) {
        s->found->excluded[rule] += count;
        return;
    }
    s->found->grids += stream_most_vpp(s, &l);
    s->found->legal += count;
    if (stream_refused(s, &l, STREAM_WITHIN_GRID, count))
        return;
    work_cut(w, &l, &s->work);
    stream_multiples_find(s, &l);
    stream_orders_find(s, &l, orders);
    stream_states_clear(s);
    for (l.mbs = 1; l.mbs <= samples && !some_fits(s, l); l.mbs = stream_next_mbs(s, &l, l.mbs))
        if (memory_closes(s, &l))
            return;
    if (l.mbs > samples)
        return;
    floors_set(s, l);
    sizes_meet(s, l, samples);
}

void stream_walk(struct stream *s) { stream_grids_walk(s, grid_meet); }
