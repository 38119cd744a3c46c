/* stream_priv: declares what the search (stream_search.c), the walk over the space (stream.c) and
 * the list of the best (stream_keep.c) share. */
#ifndef AUTOTUNE_STREAM_PRIV_H
#define AUTOTUNE_STREAM_PRIV_H

#include "autotune/stream.h"

enum { STREAM_GROUPS = 256 /* no number up to LIMIT_RANKS has more divisors */,
       STREAM_WAYS = 1 + 3 * STREAM_GROUPS, STREAM_MULTIPLES = 27,
       STREAM_GATHERS = 4096, STREAM_STATES = 4096 };

/* Keeps the shares of gathers, which need a walk of the schedule and depend on nothing else. */
struct stream_gathers {
    int64_t pp, vpp, micro_batches; /* pp 0: nothing is kept */
    double share[PRICE_STAGES][WORK_UNITS];
};

/* Keeps what a walk computes once and asks for often. Who walks has one of his own, zeroed. */
struct stream_cache {
    struct stream_gathers gathers[STREAM_GATHERS];
    /* By order and way, for the grid considered now: the seconds of its messages, and the least
     * seconds that each message takes in this way or one with the same zero and a larger group. */
    bool known[STREAM_STATES], least_known[STREAM_STATES];
    struct price_state states[STREAM_STATES], least[STREAM_STATES];
};

/* Holds how many layers the last stage must recompute for each micro-batch so that a layout fits,
 * if all of them are recomputed selectively or some of them fully; INFINITY: it does not fit so. */
struct stream_again { double selective, full; };

/* Holds the prices of one order of the grid's ranks. All orders have the same work and bytes. */
struct stream_order {
    int order;
    double floor;      /* lower bound on a layer's seconds in a step: n X of stream.c */
    double layer_s;    /* the least seconds of a layer with the last micro-batch size that was
                        * considered, or a larger one */
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
    const int64_t *only; /* the n_only grids that are walked; n_only 0: all */
    size_t n_only;
    int64_t met;       /* how many layouts the walk has kept */
    size_t room;       /* room for this many kept layouts */
    double cap;        /* slower layouts are not kept */
    bool first_only;   /* stop at the first layout that fits */
    bool coarse;       /* virtual stages are powers of two, and all ranks shard */
    struct stream_order orders[LAYOUT_ORDERS]; /* those that differ in time, the default first */
    int n_orders;
    int64_t all_orders;     /* all orders, with those of equal time */
    int64_t groups[STREAM_GROUPS]; /* divisors of dp·cp from 2 on: sizes of shard groups */
    int n_groups;
    /* of the grid: micro-batch sizes divide by these that have products as even as any other */
    int64_t multiples[STREAM_MULTIPLES];
    int n_multiples;
    struct stream_again zeros[4]; /* for each zero, with this micro-batch size and any vpp */
    int way;           /* the way to shard that is considered now: see stream_way() */
    /* Tells for each way to shard and each order whether it is too slow with this micro-batch size
     * and any further virtual stages. */
    bool slow[STREAM_WAYS][LAYOUT_ORDERS];
    bool out[LAYOUT_ORDERS]; /* orders that are too slow with every way of the present zero */
    struct stream_cache *cache; /* borrowed */
    struct work work;
    struct price_machine even; /* the machine, for bounds that hold for many micro-batch sizes */
    size_t most;       /* how many layouts, or places, the caller wants */
    struct work replay_work;   /* of the layout that is replayed, while the walk goes on */
    struct price replay_price;
    int rc;            /* result of a replay during the walk */
    struct err err;
};

/* ---- grids (stream_grids.c) ---- */

/* Calls `meet` for each grid of this part, with a layout of it. */
void stream_grids_walk(struct stream *s, void (*meet)(struct stream *, struct layout));
/* Name keys of an adapter's rules that are not decided yet where vpp, where mbs or where a grid is
 * considered. */
enum {
    STREAM_WITHIN_VPP = 1 << ADAPTER_ZERO | 1 << ADAPTER_SHARD | 1 << ADAPTER_RECOMPUTE |
                        1 << ADAPTER_RECOMPUTE_LAYERS,
    STREAM_WITHIN_MBS = STREAM_WITHIN_VPP | 1 << ADAPTER_VPP,
    STREAM_WITHIN_GRID = STREAM_WITHIN_MBS | 1 << ADAPTER_MBS,
};
/* Says whether the adapter's trainer can run neither the layout nor those that differ from it in
 * these keys alone (0: the layout itself), and counts the answer for `n` layouts. */
bool stream_refused(struct stream *s, const struct layout *l, uint32_t keys, int64_t n);
/* Returns how many layouts a grid has over all virtual stages: recomputation none, selective, or
 * each number of layers; times micro-batch sizes, orders of ranks and ways to shard (none, or ZeRO
 * 1 to 3 over each group). */
int64_t stream_layout_count(const struct stream *s, struct layout l);
/* Returns the layers of the longest chunk. That number, or 0, in recompute_layers means all. */
int64_t stream_longest_chunk(const struct stream *s, const struct layout *l);
int64_t stream_most_vpp(const struct stream *s, const struct layout *l);

/* ---- groups and orders (stream_orders.c) ---- */

/* Lists the sizes of shard groups. */
void stream_groups_find(struct stream *s, const struct layout *l);
/* Lists all orders of a grid's ranks, the default first. */
void stream_orders_count(struct stream *s, const struct layout *grid, int orders[LAYOUT_ORDERS]);
/* Keeps only the first of the orders that take the same time. */
void stream_orders_find(struct stream *s, const struct layout *grid,
                        const int orders[LAYOUT_ORDERS]);

/* ---- bounds (stream_bound.c) ---- */

/* Returns the samples of the busiest replica. */
int64_t stream_samples(const struct stream *s, const struct layout *l);
/* Lists s->multiples of a grid. */
void stream_multiples_find(struct stream *s, const struct layout *l);
/* Returns the largest micro-batch size up to this one that is considered, of those with as many
 * micro-batches: the smallest multiple of one of s->multiples. */
int64_t stream_considered_mbs(const struct stream *s, const struct layout *l, int64_t mbs);
/* Returns the next micro-batch size that is considered; samples + 1 after the last. */
int64_t stream_next_mbs(const struct stream *s, const struct layout *l, int64_t mbs);
/* Returns the seconds of a part of a layer for a micro-batch. */
double stream_part_seconds(const struct price_part *q);
/* Returns the seconds of a layer's forward and backward for a micro-batch. */
double stream_layer_seconds(const struct price *p);
/* Returns by how many seconds at most, at the size of s->work, a layer is slower than it would be
 * if its products were as even as those of a larger size; p holds its price. */
double stream_uneven_seconds(struct stream *s, const struct price *p);
/* Returns the seconds of the model's end, which the last stage has, for a micro-batch. */
double stream_end_seconds(const struct price *p);
/* Returns a lower bound on the step of a grid: `work` is a layer's seconds for all micro-batches,
 * `once` those for the micro-batch that must reach the last stage first, and `more` what the last
 * stage does besides its layers, for all micro-batches. */
double stream_grid_bound(const struct stream *s, const struct layout *l, double work, double once,
                         int64_t vpp, double more);
/* Sets in s->even the least factors of depths that any micro-batch size from l->mbs to `to` has. */
void stream_even_set(struct stream *s, const struct layout *l, int64_t to);
/* Returns the share of a layer's seconds, x(b), or of a part of it, that no smaller micro-batch
 * beats for each sample. s->work was priced on the machine s->even. Where ranks of reel's trainer
 * get whole rows, it leaves out one row, and half of the time where products are cut into slices
 * only when the micro-batch is large enough. */
double stream_least_share(const struct stream *s);
/* Returns that share of x(b), in seconds. */
double stream_least_seconds(const struct stream *s, const struct price *p);

/* ---- sharding (stream_state.c) ---- */

/* Returns the number of a way to shard: 0 with zero 0, and else one for each zero and group. */
static inline int stream_way(const struct stream *s, int64_t zero, int group)
{ return zero ? 1 + (int)(zero - 1) * s->n_groups + group : 0; }
/* Forgets the states of the grid before. */
void stream_states_clear(struct stream *s);
/* Returns the seconds of the state's messages for order i of the way s->way of layout l. Borrowed
 * until the next call. */
const struct price_state *stream_state(struct stream *s, int i, const struct layout *l);
/* Returns a bound on the steps of order i with l.vpp to `vpp` virtual stages, l.zero, and a shard
 * group that is not smaller than the one numbered `first`, where each stage recomputes for `again`
 * seconds at least. With zero 3 their gathers must be priced. */
double stream_ways_bound(struct stream *s, int i, struct layout l, int first, int64_t vpp,
                         double again);
/* Prices the gathers of layouts with zero 3 in order i; a bound on them for more than one number of
 * virtual stages, vpp to `to`. */
void stream_gathers_price(struct stream *s, int i, int64_t vpp, int64_t to);

/* ---- the walk and its list ---- */

/* Walks the space and keeps the best layouts of its part, by the bounds of their steps. The result
 * of replays on the way is in s->rc. */
void stream_walk(struct stream *s);
/* Walks the space, and writes the layout that holds the fewest bytes, of those that the adapter's
 * trainer can run, to found->nearest: of several the first. */
void stream_nearest_walk(struct stream *s);
/* Returns the time that a further layout must beat. */
double stream_worst(const struct stream *s);
/* Keeps a layout if `seconds`, a lower bound on its step, beats stream_worst(). */
void stream_keep(struct stream *s, const struct stream_item *item);
/* Holds layouts in the order of stream_item_compare(), a total order: the fastest first. */
struct stream_list {
    struct stream_item *items;
    size_t n;
};
int stream_item_compare(const void *a, const void *b);
/* Replays the layouts of a list until the best `most` places are faster than the bounds of all that
 * were not replayed. Drops the others. With spec->places it lets one layout stand for all of its
 * place, except for those places of which the walk, which has come to `open`, may still meet a
 * layout; NULL: the walk is over. */
int stream_settle(struct stream *s, struct stream_list *list, const struct stream_item *open,
                  struct err *err);
/* Returns a time that no layout of the best `most` places reaches, if a settled list has as many;
 * else INFINITY. */
double stream_reach(const struct stream *s, const struct stream_list *list);

#endif
