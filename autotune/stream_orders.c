/* This file lists the shard groups of a grid, and the orders of its ranks that differ in time. */
#include "autotune/stream_priv.h"

#include <string.h>

#include "base/num.h"

/* Finds the divisors: those up to the root, and from there on what they divide by. */
void stream_groups_find(struct stream *s, const struct layout *l)
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
 * one row. Where the border of a domain may go through ranks along an axis, its stride counts; 0:
 * it does not. */
struct order_sight { int64_t near[2][4], strides[4]; bool one_row; };

/* Says whether the border of a domain may go through a group, of a number of ranks that divides
 * `size`, for which a domain has room. */
static bool may_cut(int64_t size, int64_t stride, int64_t domain)
{ return size > 1 && stride < domain && domain % (size * stride) != 0; }

static struct order_sight sight_of(const struct layout *l, const struct cluster *c)
{
    const struct layout_place one[4] = {{.tp = 1}, {.cp = 1}, {.dp = 1}, {.pp = 1}};
    const int64_t sizes[4] = {l->tp, l->cp, l->dp, l->pp};
    const int64_t boxes[2] = {cluster_domain_devices(c), cluster_leaf_devices(c)};
    struct order_sight sight = {0};
    for (int i = 0; i < 4; i++) {
        int64_t stride = layout_rank(l, one[i]);
        if (layout_world(l) > boxes[0] && may_cut(sizes[i], stride, boxes[0]))
            sight.strides[i] = stride;
        for (int k = 0; k < 2; k++)
            sight.near[k][i] = num_min_i64(sizes[i], num_max_i64(1, boxes[k] / stride));
    }
    sight.one_row = layout_world(l) <= boxes[0] ||
                    layout_rank(l, one[2]) == layout_rank(l, one[1]) * l->cp;
    return sight;
}

static bool sight_equal(const struct order_sight *a, const struct order_sight *b)
{
    return memcmp(a->near, b->near, sizeof a->near) == 0 &&
           memcmp(a->strides, b->strides, sizeof a->strides) == 0 && a->one_row == b->one_row;
}

void stream_orders_count(struct stream *s, const struct layout *grid, int orders[LAYOUT_ORDERS])
{
    int n = layout_orders(grid, orders);
    s->all_orders = s->spec->one_order ? 1 : n;
}

void stream_orders_find(struct stream *s, const struct layout *grid,
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
