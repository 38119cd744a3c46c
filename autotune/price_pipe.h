/* price_pipe: says how long the micro-batches of a pipeline take, from the seconds of its stages.
 * Its functions are pure. Stages of equal work form classes, at most PRICE_STAGES of them, in the
 * order of the stages; below, c has n of these.
 */
#ifndef AUTOTUNE_PRICE_PIPE_H
#define AUTOTUNE_PRICE_PIPE_H

#include "autotune/price.h"

/* Holds the seconds for which gathers and reductions in every micro-batch are exposed, and those
 * for which compute hides them. */
struct unit_price {
    double gather[2], gather_hidden, reduce, reduce_hidden; /* gathers forward and backward */
    /* parts of under[] and alone[] in struct price_step */
    double gather_under, gather_alone, reduce_under, reduce_alone;
    double under_backward; /* seconds that backwards hide */
};

struct stage_price {
    struct work_stage s;
    double forward, backward;      /* seconds of a micro-batch, with its messages */
    double again;                  /* seconds of `backward` for recomputed forwards */
    double pieces; /* seconds of `backward` that clear gradients and add them to shards */
    double computes;               /* forward and backward without messages */
    double packed, update;         /* seconds of partial sums and of the update, once a step */
    double forward_compute, backward_compute;
    /* seconds for which messages of layers keep wires busy, forward and backward, and those of
     * recomputed forwards */
    double busy[2][PRICE_WIRES], again_busy[PRICE_WIRES];
    struct unit_price units;       /* sums over the stage's units, for a micro-batch */
};

struct stage_class { int64_t from, to; struct stage_price price; };

/* Returns the greatest of the bounds at the top of price_pipe.c but the fourth, for m
 * micro-batches. */
double price_pipe_bound(double m, const struct layout *l, const struct stage_class *c, int n);
/* Returns a bound that no replay is below. A replay of fewer micro-batches is bounded, and then
 * extended like the replay itself. */
double price_pipe_replay_bound(double m, const struct layout *l, const struct stage_class *c,
                               int n);
/* Returns how many of m micro-batches are replayed: all, or m less the multiple of pp that makes
 * the replay short enough. */
int64_t price_pipe_batches(const struct layout *l, int64_t m);
/* Replays the schedule. Returns its seconds, or -1: out of memory. `cost` has room for two numbers
 * a chunk: seconds forward and backward. */
double price_pipe_replay(const struct layout *l, int64_t m, const struct stage_class *c, int n,
                         double *cost);

#endif
