/* stack: describes the software that trains (`reel.stack/1`): what it fuses, hides, gathers and
 * keeps. A stack is data, like a GPU: under another stack, the same layout on the same devices
 * takes other bytes and another time. What is learnt for a stack holds on other devices too.
 *
 * A stack is looked up by name among the compiled-in files (profiles/stacks/NAME.json) or read from
 * a path. It holds only facts: how many bytes a gradient has, whether gradients are reduced while
 * the backward runs. Speeds, and the share of time that is really hidden, are fitted constants
 * (profiles/constants.h). The format is the table of stack.c.
 */
#ifndef PROFILES_STACK_H
#define PROFILES_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/limits.h"

/* Names the trainer by whose rules a rank's work is computed (profiles/work.h). */
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
    /* prefixes of its names in published tables: "Megatron-LM, Megatron-Core" */
    char frameworks[LIMIT_NAME_BYTES];
    char like[LIMIT_NAME_BYTES]; /* the stack that this one is built on; "": none */
    enum stack_kind kind;
    enum stack_attention attention; /* used where a model or a table does not say */
    bool fused_norm;  /* a norm is one operation, and only its input is kept */
    bool fused_gate;  /* a gated MLP's activation is one operation */
    bool dropout;     /* dropout masks are kept */
    bool keeps_gathered; /* sequence parallelism keeps gathered inputs whole */
    /* These are facts of video models (work_video.h): each operation of a layer is done alone,
     * norms and gates in f32; norms of queries and keys go over all heads, which tensor-parallel
     * ranks gather; a ring carries the caption's keys and values too; its steps are merged by
     * operations of their own */
    bool eager, gathers_heads, ring_text, ring_merges;
    bool parallel_block; /* self-attention and MLP share a norm, their input, and the sum over tp */
    /* its cuBLAS is of CUDA before 11.7, whose batched products in bf16 are slow where 8 does not
     * divide a side (PyTorch's issue 83272) */
    bool early_cublas;
    bool sums_apart; /* gradients of weights are added up by operations of their own */
    int64_t weight_bytes;    /* of a kept weight; 0: as activations */
    int64_t gradient_bytes;  /* of a gradient summed over micro-batches */
    int64_t reduce_bytes;    /* of a gradient in messages */
    int64_t optimizer_bytes; /* of an element's moments, and of a separate master weight */
    /* With products in fp8, bytes: of the copies of a layer's weight that are kept beside it; of a
     * product's input that a layer keeps, and of a layer's weight that is gathered (0: as
     * otherwise) */
    int64_t fp8_copy_bytes, fp8_input_bytes, fp8_gather_bytes;
    /* bytes of all copies of one logit at the peak: 2, and 4 or 8 more where the loss is computed
     * in f32 */
    int64_t logit_bytes;
    double layer_stays;      /* share of a layer's bytes that stays reserved beside the logits */
    bool logits_whole;       /* every tensor-parallel rank has the logits of the whole vocabulary */
    bool gradients_overlap;  /* gradients are reduced during the last backward */
    bool gathers_overlap;    /* weights are gathered ahead of their use */
    bool sums_overlap;       /* sums over tensor-parallel ranks overlap with products */
    bool sends_overlap;      /* messages between stages overlap with compute */
    bool sends_divided;      /* each tensor-parallel rank sends its part of a stage's message */
    bool regather;           /* zero 3: weights are dropped after the forward and gathered again */
    bool reduce_each;        /* zero 2 and 3: gradients are scattered after each micro-batch */
    /* zero 1: each bucket of gradients is reduce-scattered, not all-reduced */
    bool scatter;
    /* value of the layout's `zero` where a table leaves it out */
    int64_t zero;
    int64_t units_gathered;  /* zero 3: units whose whole weights are held at a time */
};

/* Returns the name of the stack whose constants (profiles/constants.h) are meant, borrowed. */
static inline const char *stack_constants(const struct stack *s)
{ return *s->like ? s->like : s->name; }

/* Loads a stack by name or path. ERR_NOT_FOUND names the nearest known one. */
int stack_load(const char *name_or_path, struct stack *out, struct err *err);
/* Writes all fields except its source. */
void stack_write(const struct stack *s, struct json_out *o);
/* All compiled-in stacks, in the order of their names. */
struct stacks { struct stack *items; size_t n; };
int stacks_load(struct stacks *out, struct err *err);
void stacks_release(struct stacks *all); /* safe on a zeroed struct */
/* Returns the stack with this name, borrowed; NULL: there is none. */
const struct stack *stacks_find(const struct stacks *all, const char *name);
/* Returns the stack that has this name, or in whose `frameworks` the text's longest prefix, which
 * ends with a word, is listed, both in letters of any case; of several such, the one with this
 * attention (-1: not known, then flash), and if none has it, the first by name. So a row of
 * Megatron-LM that names FlashAttention-2 has the account of megatron-2021, with its own attention:
 * the eight published ones are of 2023, and the newer account, which hides more, predicts their
 * table worse (MAPE 5.1 in place of 4.1 %). NULL: there is none. Borrowed. */
const struct stack *stack_of_framework(const struct stacks *all, const char *framework,
                                       int attention);
/* Tells whether a stack's `frameworks` have this name, in letters of any case. */
bool stack_lists(const struct stack *s, const char *framework);
/* Writes the listed framework, or the stack's name, that was probably meant, or "": without its
 * version, if need be. */
void stack_nearest_framework(const struct stacks *all, const char *framework, char *out,
                             size_t size);

#endif
