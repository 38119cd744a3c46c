/* This file computes what ways to shard the state cost, once for a grid or a schedule, and bounds
 * many of them at once. */
#include "autotune/stream_priv.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "profiles/work_reel.h"

/* ---- gathers ---- */

/* Returns the shares of gathers with this many virtual stages, computed at the first call. */
static const struct stream_gathers *gathers_of(struct stream *s, int64_t vpp, struct price *p)
{
    int64_t pp = s->work.grid.pp, m = work_reel_gather_batches(&s->work);
    uint64_t hash = (uint64_t)(pp * 131 + vpp * 17 + m);
    struct stream_gathers *g = &s->cache->gathers[hash % STREAM_GATHERS];
    if (g->pp != pp || g->vpp != vpp || g->micro_batches != m) {
        price_gathers(p, vpp);
        *g = (struct stream_gathers){.pp = pp, .vpp = vpp, .micro_batches = m};
        memcpy(g->share, p->gathered, sizeof g->share);
    }
    return g;
}

/* Writes a bound on the shares with at most `vpp` virtual stages. A rank holds two units at a time,
 * so that each pass over a chunk gathers all of its layers but two, or more. */
static void shares_bound(struct price *p, int64_t vpp)
{
    memset(p->gathered, 0, sizeof p->gathered);
    for (int i = 0; i < PRICE_STAGES; i++) {
        double layers = floor((double)p->work->model->layers / (double)p->work->grid.pp);
        p->gathered[i][UNIT_LAYER] = fmax(0, 1 - 2 * (double)vpp / layers);
    }
}

void stream_gathers_price(struct stream *s, int i, int64_t vpp, int64_t to)
{
    struct price *p = &s->orders[i].price;
    if (s->orders[i].closed)
        return;
    if (vpp == to || p->work->stack->kind != STACK_REEL)
        memcpy(p->gathered, gathers_of(s, to, p)->share, sizeof p->gathered);
    else
        shares_bound(p, to);
}

/* ---- messages ---- */

/* Returns the place of an order and a way in the cache; -1: it has no room for the grid. */
static int place_of(const struct stream *s, int order, int way)
{
    int ways = 1 + 3 * s->n_groups;
    return s->n_orders * ways <= STREAM_STATES ? order * ways + way : -1;
}

void stream_states_clear(struct stream *s)
{
    size_t n = (size_t)num_min_i64(STREAM_STATES, (int64_t)s->n_orders * (1 + 3 * s->n_groups));
    memset(s->cache->known, 0, n * sizeof *s->cache->known);
    memset(s->cache->least_known, 0, n * sizeof *s->cache->least_known);
}

const struct price_state *stream_state(struct stream *s, int i, const struct layout *l)
{
    struct stream_cache *c = s->cache;
    int at = place_of(s, i, s->way);
    if (at < 0)
        at = 0, c->known[0] = false;
    if (!c->known[at])
        price_state(&s->orders[i].price, l, &c->states[at]);
    c->known[at] = true;
    return &c->states[at];
}

static void state_least(struct price_state *out, const struct price_state *other)
{
    for (int i = 0; i < WORK_STATES; i++)
        for (int u = 0; u < WORK_UNITS; u++) {
            for (int x = 0; x < PRICE_WIRES; x++) {
                out->each[i][u][x] = fmin(out->each[i][u][x], other->each[i][u][x]);
                out->step[i][u][x] = fmin(out->step[i][u][x], other->step[i][u][x]);
            }
        }
}

/* Returns the least seconds of each message with l.zero and a group that is not smaller than
 * `first`, in order i. The cache has room for the grid. */
static const struct price_state *least_state(struct stream *s, int i, struct layout l, int first)
{
    struct stream_cache *c = s->cache;
    int at = place_of(s, i, stream_way(s, l.zero, 0)), last = s->n_groups - 1;
    l.order = s->orders[i].order;
    for (int g = last; g >= 0 && !c->least_known[at]; g--) {
        l.fsdp = s->groups[g] == l.dp ? 0 : s->groups[g];
        s->way = stream_way(s, l.zero, g);
        c->least[at + g] = *stream_state(s, i, &l);
        if (g < last)
            state_least(&c->least[at + g], &c->least[at + g + 1]);
    }
    c->least_known[at] = true;
    return &c->least[at + first];
}

double stream_ways_bound(struct stream *s, int i, struct layout l, int first, int64_t vpp,
                         double again)
{
    const struct price_state *least = NULL;
    l.order = s->orders[i].order;
    if (l.zero)
        l.fsdp = s->groups[s->n_groups - 1] == l.dp ? 0 : s->groups[s->n_groups - 1];
    s->way = 0;
    if (place_of(s, 0, 0) >= 0)
        least = l.zero ? least_state(s, i, l, first) : stream_state(s, i, &l);
    return price_least(&s->orders[i].price, &l, least, vpp, again);
}
