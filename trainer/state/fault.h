/* fault: lets a test leave out a reduction on purpose, or take a total over a part only, to show
 * that another test would catch it.
 *
 * A sum over ranks that is forgotten changes numbers a little and stops nothing. Only a comparison
 * of layouts finds it, and only a fault made on purpose shows that the comparison would. Tests set
 * `fault_active` on every rank alike; a program never does.
 *
 *     if (fault_active != FAULT_POINT_SUM_TP)
 *         rc = sum over tp ...
 */
#ifndef TRAINER_STATE_FAULT_H
#define TRAINER_STATE_FAULT_H

enum fault_point {
    FAULT_POINT_NONE,
    FAULT_POINT_SUM_REPLICA,    /* gradients over the shard groups */
    FAULT_POINT_SUM_TP,         /* gradients of tensors that tp replicates */
    FAULT_POINT_SUM_KV,         /* gradients of copied k/v heads */
    FAULT_POINT_SUM_PP,         /* gradients of the conditioning */
    FAULT_POINT_COUNT_ONCE,     /* the norm counts copies, too */
    FAULT_POINT_SUM_UNIT,       /* gradients over a shard group */
    FAULT_POINT_SUM_BRANCH,     /* row-parallel products over tp: a branch's output */
    FAULT_POINT_SUM_INPUT,      /* the gradient of a branch's input */
    FAULT_POINT_SUM_MOD,        /* gradients of shift, scale, gate over the token parts of sp */
    FAULT_POINT_SUM_COND,       /* the gradient of the conditioning vector over tp */
    FAULT_POINT_SUM_SHARED,     /* the gradient of the shared modulation over tp */
    FAULT_POINT_RING_MERGE,     /* the partial attentions of the ring */
    FAULT_POINT_RING_DKV,       /* gradients of keys and values on the ring */
    FAULT_POINT_A2A_DKV,        /* gradients of k/v heads that several all-to-all ranks hold */
    FAULT_POINT_SEGMENTS_IN,    /* q, k, v of segments, which are dealt to cp ranks */
    FAULT_POINT_SEGMENTS_OUT,   /* the segments' attention, on the way back */
    FAULT_POINT_SEGMENTS_D_IN,  /* the attention and its gradient, before backward */
    FAULT_POINT_SEGMENTS_D_OUT, /* gradients of the segments' q, k, v, on the way back */
    /* The loss is divided by the sum over this replica's samples, not over the global batch. */
    FAULT_POINT_LOSS_NORM,
    /* This is no reduction: a number of every micro-batch becomes NaN, but not when the step is
     * computed again. */
    FAULT_POINT_TRANSIENT,
    FAULT_POINTS,
};
extern int fault_active; /* an enum fault_point */

#endif
