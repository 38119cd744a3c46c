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
    double layer_s;    /* seconds of a layer with the last micro-batch size that was considered */
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
    struct price_machine even; /* the machine, for bounds that hold for many micro-batch sizes */
    size_t most;       /* how many layouts the caller wants */
    struct work replay_work;   /* of the layout that is replayed, while the walk goes on */
    struct price replay_price;
    int rc;            /* result of a replay during the walk */
    struct err err;
};

/* ---- bounds (stream_bound.c) ---- */

/* Returns the samples of the busiest replica. */
int64_t stream_samples(const struct stream *s, const struct layout *l);
/* Returns the smallest micro-batch size that gives no more micro-batches than this one. */
int64_t stream_smallest_mbs(int64_t samples, int64_t mbs);
/* Returns the next micro-batch size that gives fewer micro-batches; samples + 1 after the last. */
int64_t stream_next_mbs(int64_t samples, int64_t mbs);
/* Returns the seconds of a layer's forward and backward for a micro-batch. */
double stream_layer_seconds(const struct price *p);
/* Returns a lower bound on the step of a grid: `work` is a layer's seconds for all micro-batches,
 * `once` those for the micro-batch that must reach the last stage first. */
double stream_grid_bound(const struct stream *s, const struct layout *l, double work, double once,
                         int64_t vpp);
/* Sets in s->even the least factors of depths that any micro-batch size from l->mbs to `to` has. */
void stream_even_set(struct stream *s, const struct layout *l, int64_t to);
/* Returns a lower bound on a layer's seconds, x(b), that no smaller micro-batch beats for each
 * sample. s->work was priced on the machine s->even. Where ranks of reel's trainer get whole rows,
 * it leaves out one row, and half of the time where products are cut into slices only when the
 * micro-batch is large enough. */
double stream_least_seconds(const struct stream *s, const struct price *p);

/* ---- the walk and its list ---- */

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
