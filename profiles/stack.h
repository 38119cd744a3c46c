/* stack: describes the software that trains (`reel.stack/1`): what it fuses, hides, gathers and
 * keeps. A stack is data, as a GPU is: the same layout on the same devices takes other bytes and
 * another time under another one, and what is learnt of a stack carries over to other devices.
 *
 * A stack is looked up by name among the compiled-in files (profiles/stacks/NAME.json) or read from
 * a path. It holds facts alone: how many bytes a gradient has, whether gradients are reduced while
 * the backward goes on. How fast, and how much of it is hidden in fact, are constants that are
 * fitted (profiles/constants.h). The format is the table of stack.c.
 */
#ifndef PROFILES_STACK_H
#define PROFILES_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/limits.h"

/* Whose account of a rank's work a stack has (profiles/work.h). */
enum stack_kind { STACK_MEGATRON, STACK_FSDP, STACK_REEL };
/* Says how attention is computed. The first two keep the matrix of scores, whose softmax is several
 * operations or one; the others do not. */
enum stack_attention {
    ATTENTION_SCORES,
    ATTENTION_FUSED_SCORES,
    ATTENTION_FLASH1,
    ATTENTION_FLASH2,
    ATTENTION_FLASH, /* the fastest kernel that the device has: FlashAttention-3, cuDNN's */
};
extern const char *const stack_kind_names[], *const stack_attention_names[];

static inline bool attention_keeps_scores(enum stack_attention a)
{ return a < ATTENTION_FLASH1; }

struct stack {
    char name[LIMIT_NAME_BYTES];
    /* beginnings of what published tables call it: "Megatron-LM, Megatron-Core" */
    char frameworks[LIMIT_NAME_BYTES];
    enum stack_kind kind;
    enum stack_attention attention; /* where a model or a table does not say */
    bool fused_norm;  /* a norm is one operation, and its input alone is kept */
    bool fused_gate;  /* so is a gated MLP's activation */
    bool dropout;     /* masks of dropout are kept */
    bool keeps_gathered; /* sequence parallelism keeps what it gathered, whole */
    int64_t weight_bytes;    /* of one element that is kept; 0: as activations */
    int64_t gradient_bytes;  /* of one element, in which micro-batches are summed */
    int64_t reduce_bytes;    /* of one element, in which gradients travel */
    int64_t optimizer_bytes; /* of one element: moments, and the master weight if it is another */
    /* of one logit, in all its copies at the peak: 2, and 4 or 8 more where the loss is computed in
     * f32 */
    int64_t logit_bytes;
    bool logits_whole;       /* every tensor-parallel rank has the logits of the whole vocabulary */
    bool gradients_overlap;  /* gradients are reduced while the last backward goes on */
    bool gathers_overlap;    /* weights are gathered ahead of their use */
    bool sums_overlap;       /* sums of tensor-parallel ranks go on beside products */
    bool sends_overlap;      /* what stages send each other is sent beside computing */
    bool sends_divided;      /* each tensor-parallel rank sends its part of what a stage sends */
    bool regather;           /* zero 3: weights are dropped after the forward, gathered once more */
    bool reduce_each;        /* zero 2 and 3: gradients are scattered after each micro-batch */
    /* zero 1: each bucket of gradients is scattered, and not all of it summed */
    bool scatter;
    /* what zero means where a table leaves it out */
    int64_t zero;
    int64_t units_gathered;  /* zero 3: units whose whole weights are held at a time */
};

/* Loads a stack by name or path. ERR_NOT_FOUND names the nearest known one. */
int stack_load(const char *name_or_path, struct stack *out, struct err *err);
/* Writes all but its source. */
void stack_write(const struct stack *s, struct json_out *o);
/* Returns the name of the compiled-in stack whose `frameworks` have the longest beginning of the
 * text; of several that have, the one with this attention (-1: not known, then flash). NULL: none
 * has. */
const char *stack_of_framework(const char *framework, int attention);

#endif
