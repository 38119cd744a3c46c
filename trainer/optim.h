/* optim: weights, gradients and optimizer state of one rank, and the step that changes them.
 *
 * All buffers have the flat layout (flat.h), padded so that it divides by the data-parallel size. Piece r of `shard` elements
 * belongs to rank r of the data-parallel group: with zero 1 it alone updates them and holds their moments (ZeRO stage 1, Rajbhandari
 * et al., "ZeRO: memory optimizations toward training trillion parameter models"); with zero 0 every rank updates
 * everything. Gradient sums are formed piece by piece in rank order in both, so both give bitwise the same run.
 *
 * A step: sum gradients, global norm, clip, AdamW by tensor (decay, trainable, lr_scale from the parameter list), average
 * (EMA), and with zero 1 an all-gather of the weights. A gradient that is not finite anywhere skips the update on all ranks alike.
 */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "profiles/buffers.h"
#include "profiles/run.h"
#include "trainer/comm.h"
#include "trainer/flat.h"
#include "trainer/ops.h"

struct optim {
    const struct param_list *params; /* borrowed, like flat, run, ops, dp */
    const struct flat *flat;
    const struct run *run;
    struct ops *ops;
    struct dev_stream *stream;
    struct comm *dp;
    int zero;
    int64_t padded, shard;      /* elements of the whole buffer; of a piece */
    int64_t own_first, own_n;   /* what this rank updates and holds moments of */
    void *weights, *grads;      /* [padded]; act = stat on the CPU, so master is the weight itself */
    void *m, *v, *ema;          /* [own_n]; ema NULL when off */
    struct ops_step *step;      /* device-resident step block */
    struct ops_health *health;
    int64_t updates;            /* optimizer updates done: the t of the bias corrections */
};

struct optim_result {
    double grad_norm; /* of the global batch, before clipping */
    bool skipped;
};

/* Bytes this rank will take, as entries of the memory plan. */
int optim_plan(const struct flat *flat, const struct run *run, int zero, int dp_size, enum dtype t, struct buffer_list *plan,
               struct err *err);
int optim_open(struct optim *o, const struct param_list *params, const struct flat *flat, const struct run *run, int zero,
               struct comm *dp, struct ops *ops, struct dev_stream *stream, struct err *err);
void optim_close(struct optim *o); /* safe on a zeroed struct */
int optim_zero(struct optim *o, struct err *err); /* all buffers, gaps between tensors included: before a checkpoint is loaded */
/* First weights from the seed; zero moments; average = weights. */
int optim_init(struct optim *o, struct err *err);
/* `step`: index of the optimizer step, for the learning rate. Gradients are those of this rank's samples. */
int optim_step(struct optim *o, int64_t step, struct optim_result *out, struct err *err);

#endif
