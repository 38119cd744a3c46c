/* units: gives the model the weights of a unit (embedding, conditioning, a layer, head) and takes
 * its gradients, whatever is sharded over data-parallel ranks. The frozen weights of a layer are a
 * unit of their own (shard.h), the layer's sibling, which is gathered and released with it and has
 * no gradients.
 *
 *     zero 0, 1   whole flat buffers of weights and gradients; the first micro-batch of a step
 *                 overwrites gradients, later ones add; with the last one units_done starts the
 *                 unit's sum over the shard group (sums.h)
 *     zero 2      gradients of one unit at a time in one of two working buffers; units_done starts
 *                 their sum over the shard group, which is added to this rank's pieces while the
 *                 next unit is computed
 *     zero 3      gradients as with zero 2; weights are gathered into one of two working buffers,
 *                 those of the next unit during the computation of the present one
 *
 * Starting and awaiting are separate, so that both overlap with computation. How far a message
 * advances meanwhile depends on the backend (MPI advances it only in our calls: comm_progress, from
 * the operations' tick).
 *
 * One unit is in use at a time:
 *
 *     units_use(&u, unit, next);  // weights are there, and the sibling's; the gather of `next`
 *                                 // (-1: none) begins
 *     units_weights(&u, unit), units_grads(&u, unit)
 *     units_done(&u, unit);       // in backward: this micro-batch's gradients of the unit are
 *                                 // written
 *     units_flush(&u);            // after the last micro-batch of a step: own pieces, or whole
 *                                 // buffers, are complete here
 *
 * A gradient that is not finite is detected in sums over ranks, when the norm is computed
 * (optim.h). To find its origin, units_nonfinite then checks those gradients of this rank that no
 * sum has overwritten: with zero 0 and 1 all but its own pieces, or, if no other rank sums them,
 * all but the partial sums over tp, kv and pp. Gradients that sums overwrite are checked before
 * that, in units_done; with zero 2 and 3 these are all.
 *
 * Calls queue work; a failure is kept and returned by units_failed. profiles/shard.h says how
 * pieces are laid out.
 */
#ifndef TRAINER_STATE_UNITS_H
#define TRAINER_STATE_UNITS_H

#include "profiles/piece.h"
#include "profiles/shard.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"
#include "trainer/state/sums.h"

/* Holds a working buffer and the exchanges that use it. */
struct unit_buffer {
    int64_t unit; /* in the buffer, followed by its sibling; -1: none */
    void *ptr;
    struct comm_work *work, *sibling; /* gathers into it, or the sum out of it, under way */
};

struct units {
    const struct shards *sh; /* borrowed, like ops, stream, group, weights, grads */
    struct ops *ops;
    struct dev_stream *stream;
    struct comm *group; /* shard group */
    int zero;
    void *weights, *grads; /* own pieces with zero 3, and with zero 2 and 3; else whole */
    bool *written;         /* [n_trained] this step has written gradients */
    /* [n_trained] micro-batches of this step whose gradients are still to come; negative: their
     * number is not known. */
    int64_t *left;
    /* The owner sets these two; they are borrowed. NULL: the optimizer starts all sums, and it is
     * not known which parts are summed. */
    struct sums *sums;
    const struct piece_spans *spans; /* [PIECE_RULES] */
    struct unit_buffer w[2], g[2];
    void *summed[2]; /* zero 2, 3: this rank's piece of the sum of g[i] */
    /* [n_trained] in device memory: health of this rank's gradients in the step, before any sum
     * over ranks. */
    struct ops_health *health;
    struct ops_health *told; /* [n_trained] pinned: the host's copy of it */
    int turn; /* the g used next */
    /* These are the elements of the largest pair of units, and of the largest trained unit. */
    int64_t most, most_trained;
    int failed;
    struct err err;
};

/* Adds to the memory plan what units_open allocates, except the working buffers, which
 * buffers_state lists. */
int units_memory(const struct shards *sh, struct buffer_list *memory, struct err *err);
int units_open(struct units *u, const struct shards *sh, int zero, struct comm *shard_group,
               struct ops *ops, struct dev_stream *stream, void *weights, void *grads,
               struct err *err);
void units_close(struct units *u); /* safe on a zeroed struct */

/* Begins a step, before its first micro-batch. units_done will be called `micros` times for a unit
 * (0: not known), and `chunks` times as often for the conditioning. The last call starts the unit's
 * sum over the data-parallel ranks. */
void units_begin(struct units *u, int64_t micros, int64_t chunks);
void units_use(struct units *u, int64_t unit, int64_t next);
void *units_weights(struct units *u, int64_t unit);
void *units_grads(struct units *u, int64_t unit);
/* Returns 0 if the next gradients overwrite the unit's, 1 if they are added to them. */
double units_beta(const struct units *u, int64_t unit);
void units_done(struct units *u, int64_t unit);
void units_flush(struct units *u);
int units_failed(struct units *u, struct err *err);
/* Finds the unit in which backward first met a gradient of this rank that is not finite; -1: none.
 * It is called after a step whose sums are not finite, before the gradients are overwritten.
 * (A failure of the forward shows in the last layer of the stage.) */
int units_nonfinite(struct units *u, int64_t *unit, struct err *err);
/* Says that the weights have changed, which makes gathered copies invalid. */
void units_forget(struct units *u);

#endif
