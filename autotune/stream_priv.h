/* stream, inside: what the walk over the space (stream.c) and the list of the best (stream_keep.c)
 * share. */
#ifndef AUTOTUNE_STREAM_PRIV_H
#define AUTOTUNE_STREAM_PRIV_H

#include "autotune/stream.h"

enum { STREAM_GROUPS = 256 /* no number up to LIMIT_RANKS has more divisors */ };

/* An order of the grid's ranks: it shares the work and the bytes of all orders. */
struct stream_order {
    int order;
    double floor;      /* n X */
    bool closed;       /* for this micro-batch size and all larger ones */
    bool open;         /* for what is met now */
    double seconds;    /* of the layout that was priced last, while it is open */
    struct price price;
};

struct stream {
    const struct stream_spec *spec;
    struct stream_found *found;
    size_t room;       /* layouts that are kept */
    double cap;        /* what takes longer is not kept */
    bool first_only;   /* one that fits is enough */
    bool coarse;       /* virtual stages are powers of two, and all ranks shard */
    struct stream_order orders[LAYOUT_ORDERS]; /* those that differ in time, the default first */
    int n_orders;
    bool gathers_priced; /* of this size of micro-batch, in all that are not closed */
    int64_t all_orders;     /* of the grid's ranks, with those that do not */
    int64_t groups[STREAM_GROUPS]; /* into which the grid's dp cp ranks divide, from 2 on */
    int n_groups;
    /* of each way to shard and order: it is too slow with this micro-batch size and any further
     * virtual stages; *slow is the way that is met now */
    bool slow_states[1 + 3 * STREAM_GROUPS][LAYOUT_ORDERS];
    bool *slow;
    struct work work;
    size_t most;       /* layouts that are wanted */
    struct work replay_work;   /* of the layout that is replayed, while the walk goes on */
    struct price replay_price;
    int rc;            /* of a replay on the walk */
    struct err err;
};

/* Returns the time that a further layout must beat. */
double stream_worst(const struct stream *s);
/* Keeps a layout whose step takes no less than so many seconds, if that beats the worst. */
void stream_keep(struct stream *s, const struct layout *l, double seconds, double bytes);
/* Replays kept layouts until `most` of them are no slower than whatever was not replayed. */
int stream_settle(struct stream *s, struct err *err);

#endif
