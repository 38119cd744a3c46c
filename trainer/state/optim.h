/* optim: weights, gradients and optimizer state of one rank, and the step that changes them, under
 * any layout.
 *
 * profiles/shard.h says what a rank holds: units in one flat buffer, each cut into the pieces of a
 * shard group. The weights are all of it, the other buffers its trained part: what is frozen has no
 * gradient, moments or average (the average of what stays is itself). Some buffers are whole
 * ([sh.total] or [sh.trained], element by element as in shard.h), and some hold the own pieces
 * alone (/ group, see profiles/piece.h). Which do follows from zero (ZeRO, Rajbhandari et al.,
 * "ZeRO: memory optimizations toward training trillion parameter models"):
 *
 *     zero            0      1      2      3
 *     weights         whole  whole  whole  own
 *     gradients       whole  whole  own    own
 *     m, v, average   whole  own    own    own
 *     master          whole  own    own    own
 *
 * Weights are of the table's `act`, all else of its `stat` (ops.h). Where the two differ (bf16 and
 * f32), what is trained has a master: the number that is updated and saved, of which the weight is
 * at all times the nearest in its type. So updates far below a weight's last digit add up. Where
 * they are the same, the weight is its own master. What is frozen needs none.
 *
 * A step sums each unit's gradients over the shard group into the own piece (with zero 2 and 3 the
 * model has done so) and the pieces over the replicas of the shard group (sums.h; mostly that is
 * over by now). Then come the partial sums that tp ranks, copies of k/v heads or pp stages hold, in
 * one packed all-reduce an axis; the global norm, in which every element of the model counts once;
 * clipping; AdamW by unit, in spans of tensors (decay, trainable, lr_scale from the parameter
 * list); the average (EMA). With zero 0 the gradients are gathered and everybody updates
 * everything, with 1 and 2 the weights are gathered, with 3 the model gathers them.
 *
 * Sums are formed in rank order whatever zero is. So zero 0 and 1, and zero 2 and 3, give bitwise
 * the same run, and with one micro-batch a step all four do (2 and 3 sum over the ranks micro-batch
 * by micro-batch). m and v may be kept in bf16 (numerics.moments); they are rounded at random by
 * (update, element of the model), so that this holds for them too. Rounding amplifies what else
 * differs. A gradient that is not finite anywhere skips the update on all ranks alike.
 */
#ifndef TRAINER_STATE_OPTIM_H
#define TRAINER_STATE_OPTIM_H

#include "profiles/buffers.h"
#include "profiles/piece.h"
#include "profiles/run.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"
#include "trainer/state/slab.h"
#include "trainer/state/sums.h"
#include "trainer/state/update.h"

/* All borrowed. */
struct optim_conf {
    const struct param_list *params;
    const struct shards *sh;
    const struct run *run;
    const struct layout *layout;
    struct comm *world;
    const struct comm_grid *grid;
    struct ops *ops;
    struct dev_stream *stream;
    int64_t tp_bytes; /* dit_tp_sum_bytes */
    enum buffer_sums sums;
};

/* These cross between host and device in a step. */
struct optim_host {
    struct ops_step step;
    struct ops_health health;
    struct ops_change change;
};

struct optim {
    struct optim_conf c;
    int64_t own;                         /* elements of own pieces of what is trained */
    int64_t n_weights, n_grads, n_state; /* elements of the buffers */
    void *weights;             /* act */
    void *master;              /* stat, of what is trained; NULL: the weight is its own */
    void *grads, *m, *v, *ema; /* stat; ema NULL when off */
    enum dtype moments;        /* of m and v */
    void *swap;    /* [BUFFER_SWAP_ELEMENTS] with ema and without master, for validation */
    bool averaged; /* weights are the average, between two calls of optim_average_swap */
    struct piece_spans spans[PIECE_RULES];
    /* Sums over data-parallel ranks: optim_step begins what units.c has not begun in backward. */
    struct sums sums;
    struct update update; /* what one launch a unit updates */
    void *pack;            /* of the longest of the sums over tp, kv, pp; NULL without any */
    struct ops_step *step; /* device-resident step block */
    struct ops_health *health;
    struct ops_change *change;
    struct optim_host *host; /* pinned: the host's side of these three */
    struct slab *slab;       /* for files; NULL where device memory is the host's */
    int64_t updates; /* optimizer updates done: the t of the bias corrections */
};

struct optim_result {
    double grad_norm; /* of the global batch, before clipping */
    /* These are the norms of what is trained, before the update, and of its change; NaN when
     * skipped. */
    double weight_norm, update_norm;
    bool skipped;   /* nothing was changed: */
    bool nonfinite; /* a gradient was not finite; else the norm was past its limit */
};

/* Describes what the rank keeps from step to step. */
int optim_state(const struct optim_conf *c, struct buffer_state *out, struct err *err);
/* Adds to the memory plan what optim_open, units_open, and the groups that optim_open reserves
 * scratch in will take. */
int optim_memory(const struct optim_conf *c, struct buffer_list *memory, struct err *err);
int optim_open(struct optim *o, const struct optim_conf *c, struct err *err);
void optim_close(struct optim *o); /* safe on a zeroed struct */
/* Sets all buffers to zero, gaps between tensors included, before a checkpoint is loaded. */
int optim_zero(struct optim *o, struct err *err);
/* Fills weights, masters and average from values by tensor and global element, at most 512 a call.
 * Where values gives 1 instead of 0, first values are drawn as by optim_init; values NULL: they are
 * everywhere. Moments become zero. */
typedef int optim_values_fn(void *ctx, int64_t tensor, int64_t global, int64_t n, double *out,
                            struct err *err);
int optim_fill(struct optim *o, optim_values_fn *values, void *ctx, struct err *err);
/* Makes first weights from the seed, by global name and element, the same under any layout; zero
 * moments; average = weights. */
int optim_init(struct optim *o, struct err *err);
/* Puts the average in the place of the weights, on all ranks; a second call brings everything back,
 * bit for bit. Without masters the average is meanwhile the weights; with them, weights are rounded
 * from it, and then from them. Gathered copies become void (units_forget). */
int optim_average_swap(struct optim *o, struct err *err);
/* Do an optimizer step, in two parts; collective over the world. optim_sum forms the sums of the
 * gradients, which are those of this rank's samples, and queues the measure of their norm. It may
 * wait for messages, not for the device. After a sync of the stream optim_update decides by the
 * norm, updates, and waits for that with a sync. `step` is the step's index, for the learning rate.
 * A norm greater than norm_limit skips the update; INFINITY: none does. */
int optim_sum(struct optim *o, struct err *err);
int optim_update(struct optim *o, int64_t step, double norm_limit, struct optim_result *out,
                 struct err *err);

#endif
