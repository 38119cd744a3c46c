/* stream_priv: declares what the search (stream_search.c), the walk over the space (stream.c) and
 * the list of the best (stream_keep.c) share. */
#ifndef AUTOTUNE_STREAM_PRIV_H
#define AUTOTUNE_STREAM_PRIV_H

#include "autotune/stream.h"

enum { STREAM_GROUPS = 256 /* no number up to LIMIT_RANKS has more divisors */ };

/* Holds the prices of one order of the grid's ranks. All orders have the same work and bytes. */
struct stream_order {
    int order;
    double floor;      /* lower bound on a layer's seconds in a step: n X of stream.c */
    bool closed;       /* for this micro-batch size and all larger ones */
    bool open;         /* for the layouts considered now */
    double seconds;    /* of the layout that was priced last; INFINITY: not priced */
    struct price_routes routes; /* of the grid considered now */
    struct price price;
};

struct stream {
    const struct stream_spec *spec;
    struct stream_found *found;
    uint32_t part, parts; /* the walk considers the grids of this part; parts 1: all grids */
    int64_t grid;      /* how many grids the walk has come to, the present one included */
    size_t room;       /* room for this many kept layouts */
    double cap;        /* slower layouts are not kept */
    bool first_only;   /* stop at the first layout that fits */
    bool coarse;       /* virtual stages are powers of two, and all ranks shard */
    struct stream_order orders[LAYOUT_ORDERS]; /* those that differ in time, the default first */
    int n_orders;
    bool gathers_priced; /* for this micro-batch size, in all orders not closed */
    int64_t all_orders;     /* all orders, with those of equal time */
    int64_t groups[STREAM_GROUPS]; /* divisors of dp·cp from 2 on: sizes of shard groups */
    int n_groups;
    /* Tells for each way to shard and each order whether it is too slow with this micro-batch size
     * and any further virtual stages. *slow is the row of the way considered now. */
    bool slow_states[1 + 3 * STREAM_GROUPS][LAYOUT_ORDERS];
    bool *slow;
    struct work work;
    size_t most;       /* how many layouts the caller wants */
    struct work replay_work;   /* of the layout that is replayed, while the walk goes on */
    struct price replay_price;
    int rc;            /* result of a replay during the walk */
    struct err err;
};

/* Walks the space and keeps the best layouts of its part, by the bounds of their steps. The result
 * of replays on the way is in s->rc. */
void stream_walk(struct stream *s);
/* Returns the time that a further layout must beat. */
double stream_worst(const struct stream *s);
/* Keeps a layout if `seconds`, a lower bound on its step, beats stream_worst(). */
void stream_keep(struct stream *s, const struct stream_item *item);
/* Replays kept layouts until `most` of them are no slower than the bounds of all that were not
 * replayed. Drops the others. */
int stream_settle(struct stream *s, struct err *err);

#endif
