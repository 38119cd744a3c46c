/* optim: holds weights, gradients and optimizer state of one rank, and does the step that changes
 * them, under any layout.
 *
 * profiles/shard.h says what a rank holds: units in one flat buffer, each cut into the pieces of a
 * shard group. The weights are the whole buffer; the other buffers have its trained part only,
 * because frozen weights have no gradients or moments, and are their own average. A buffer is
 * either whole ([sh.total] or [sh.trained], element by element as in shard.h), or holds only this
 * rank's own pieces (/ group, see profiles/piece.h). That depends on zero (ZeRO, Rajbhandari et
 * al., "ZeRO: memory optimizations toward training trillion parameter models"):
 *
 *     zero            0      1      2      3
 *     weights         whole  whole  whole  own
 *     gradients       whole  whole  own    own
 *     m, v, average   whole  own    own    own
 *     master          whole  own    own    own
 *
 * Weights have the type `act` of the table of operations, all else has its `stat` (ops.h). If the
 * two differ (bf16 and f32), each trained weight has a master. The master is updated and saved, and
 * the weight is always the master rounded to its type, so updates far below a weight's last digit
 * add up. If the types are the same, the weight is its own master. Frozen weights need none.
 *
 * A step sums each unit's gradients over the shard group into this rank's piece (with zero 2 and 3
 * the model has done this already), and the pieces over the shard group's replicas (sums.h; most of
 * these sums are finished when the step begins). Then come: the partial sums of tp ranks, of
 * copies of k/v heads and of pp stages, in one packed all-reduce per axis; the global norm, in
 * which every element of the model counts once; clipping; AdamW by unit, in spans of tensors
 * (decay, trainable, lr_scale from the parameter list); and the average (EMA). With zero 0 the
 * gradients are gathered and every rank updates everything. With 1 and 2 the weights are gathered
 * after the update. With 3 the model gathers them.
 *
 * Sums over ranks are formed in the same order under every zero (comm.h says which). So zero 0 and
 * 1, and zero 2 and 3, give bitwise the same run, and with one micro-batch a step all four do (2
 * and 3 sum over the ranks micro-batch by micro-batch). m and v may be stored in bf16
 * (numerics.moments). Their rounding is stochastic, by (update, element of the model), so this is
 * true for them too; but rounding amplifies any other difference. If any gradient is not finite,
 * all ranks skip the update.
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

/* Holds what optim_open needs. All pointers are borrowed. */
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

/* Holds the numbers that host and device copy to each other in a step. */
struct optim_host {
    struct ops_step step;
    struct ops_health health;
    struct ops_change change;
};

struct optim {
    struct optim_conf c;
    int64_t own;                         /* elements of this rank's pieces of trained units */
    int64_t n_weights, n_grads, n_state; /* elements of the buffers */
    void *weights;             /* act */
    void *master;              /* stat, of trained weights; NULL: the weights are the masters */
    void *grads, *m, *v, *ema; /* stat; ema NULL when off */
    enum dtype moments;        /* of m and v */
    void *swap;    /* [BUFFER_SWAP_ELEMENTS] if there is ema and no master, for validation */
    bool averaged; /* weights are the average: between two calls of optim_average_swap */
    struct piece_spans spans[PIECE_RULES];
    /* These are the sums over data-parallel ranks. optim_sum starts those that units.c did not
     * start in backward. */
    struct sums sums;
    struct update update;  /* table of the spans that one launch per unit updates */
    void *pack;            /* for the longest of the sums over tp, kv, pp; NULL if there are none */
    struct ops_step *step; /* device-resident step block */
    struct ops_health *health;
    struct ops_change *change;
    struct optim_host *host; /* pinned: the host's copies of these three */
    struct slab *slab;       /* for files; NULL if device memory is host memory */
    int64_t updates; /* optimizer updates done: the t of the bias corrections */
};

struct optim_result {
    double grad_norm; /* of the global batch, before clipping */
    /* These are the norms of the trained weights before the update, and of their change; NaN if
     * the update was skipped. */
    double weight_norm, update_norm;
    bool skipped;   /* nothing was changed, for one of two reasons: */
    bool nonfinite; /* true: a gradient was not finite; false: the norm was past its limit */
};

/* Describes the buffers that the rank holds from step to step. */
int optim_state(const struct optim_conf *c, struct buffer_state *out, struct err *err);
/* Adds to the memory plan what optim_open and units_open will allocate, and the scratch that
 * optim_open reserves in groups. */
int optim_memory(const struct optim_conf *c, struct buffer_list *memory, struct err *err);
int optim_open(struct optim *o, const struct optim_conf *c, struct err *err);
void optim_close(struct optim *o); /* safe on a zeroed struct */
/* Sets all buffers to zero, gaps between tensors included, before a checkpoint is loaded. */
int optim_zero(struct optim *o, struct err *err);
/* Fills weights, masters and average with numbers that `values` gives by tensor and global element,
 * at most 512 a call. If values returns 1 instead of 0, these elements, and all that follow them in
 * the same span of the tensor, are drawn as by optim_init; if values is NULL, all are. Moments
 * become zero. */
typedef int optim_values_fn(void *ctx, int64_t tensor, int64_t global, int64_t n, double *out,
                            struct err *err);
int optim_fill(struct optim *o, optim_values_fn *values, void *ctx, struct err *err);
/* Draws the first weights from the seed, by global name and element, the same under any layout.
 * Moments become zero, and the average becomes the weights. */
int optim_init(struct optim *o, struct err *err);
/* Exchanges the weights with their average, on all ranks; a second call restores everything, bit
 * for bit. Without masters, the average buffer holds the weights in between. With masters, the
 * weights are rounded from the average, and at the second call from the masters. Gathered copies
 * become invalid (units_forget). */
int optim_average_swap(struct optim *o, struct err *err);
/* Do an optimizer step, in two parts; all ranks of the world call both. optim_sum sums the
 * gradients, which are those of this rank's samples before, and queues the measurement of their
 * norm. It may wait for messages, and, where messages are staged, for their data, but never for all
 * that is queued. After a sync of the stream, optim_update decides by the norm, updates, and waits
 * for the update with a sync. `step` is the step's index, for the learning rate. A norm greater
 * than norm_limit skips the update; INFINITY: none does. */
int optim_sum(struct optim *o, struct err *err);
int optim_update(struct optim *o, int64_t step, double norm_limit, struct optim_result *out,
                 struct err *err);

#endif
