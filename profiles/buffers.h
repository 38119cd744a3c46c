/* buffers: every buffer that a rank training a DiT needs, by pure arithmetic.
 *
 * One list, used by the trainer to allocate once (and never in a step) and by the tuner to predict bytes, so that the two
 * agree. The buffers of a micro-batch and their shapes are the table at the top of buffers.c; weights, gradients, moments and
 * what is on its way between ranks follow from the parameter list (buffers_state). The trainer adds what it knows alone
 * (its tiles, its loaders' buffers, the measured process), so that one printed table shows all memory of a rank.
 *
 *     struct buffer_list list = {0};
 *     buffers_dit(&spec, &list, err);                      // items[DIT_*] are the model's, in that order
 *     buffers_state(&(struct buffer_state){.elements = sh.total, ...}, &list, err);
 *     buffer_list_add(&list, "loader", BUFFER_LOADER, DTYPE_BYTE, 1, 1, bytes, err);
 *     list.total                                           // bytes
 */
#ifndef PROFILES_BUFFERS_H
#define PROFILES_BUFFERS_H

#include <stdint.h>

#include "base/dtype.h"
#include "profiles/layout.h"
#include "profiles/model.h"
#include "profiles/params.h"
#include "profiles/piece.h"

enum buffer_category {
    BUFFER_INPUT,  /* latents, noise, text, positions of the micro-batch */
    BUFFER_SAVED,  /* kept from forward for backward */
    BUFFER_WORK,   /* lives inside one block's forward or backward */
    BUFFER_WEIGHT,
    BUFFER_GRAD,
    BUFFER_OPTIM,
    BUFFER_EMA,
    BUFFER_COMM,
    BUFFER_LOADER,
    BUFFER_PROCESS, /* program, libraries, MPI, stacks: all that no buffer is */
    BUFFER_CATEGORIES,
};
extern const char *const buffer_category_names[];

/* What a micro-batch of a DiT needs; shapes in buffers.c. */
enum dit_buffer {
    /* input */
    DIT_STAGE, DIT_LATENT, DIT_NOISE, DIT_COND_LATENT, DIT_PATCHES, DIT_TEXT, DIT_COS, DIT_SIN,
    /* conditioning of each sample, saved */
    DIT_TIME_SIN, DIT_TIME_PRE, DIT_TIME_ACT, DIT_FPS_SIN, DIT_FPS_PRE, DIT_FPS_ACT, DIT_COND_PRE, DIT_COND_RSTD,
    DIT_COND, DIT_COND_SILU, DIT_SHARED, DIT_FINAL_LOW, DIT_FINAL_MOD,
    /* of each block, in any case: its input and modulation */
    DIT_X, DIT_MOD_LOW, DIT_MOD,
    /* of each block, or of one when blocks are recomputed; attention's also with selective recompute */
    DIT_QKV, DIT_ATTN, DIT_LSE, DIT_CROSS_Q, DIT_CROSS_KV, DIT_CROSS_ATTN, DIT_CROSS_LSE, DIT_MLP_PRE,
    DIT_RES, DIT_OUT, /* the residual before each sub-block but the first, and each sub-block's output */
    /* output */
    DIT_X_FINAL, DIT_PRED, DIT_DPRED,
    /* working, forward and backward */
    DIT_STATS, DIT_NORMED, DIT_NORMED_ALL, DIT_PARTIAL, DIT_QK, DIT_QK_RSTD, DIT_CROSS_QN, DIT_CROSS_KN, DIT_CROSS_RSTD,
    DIT_CROSS_K_RSTD, DIT_MLP_ACT, DIT_MOD_OWN, DIT_MOD_PARTS,
    /* working, backward */
    DIT_DX, DIT_DX_OUT, DIT_DBRANCH, DIT_DNORMED, DIT_DATTN, DIT_DELTA, DIT_DQKV, DIT_DCROSS_Q, DIT_DCROSS_KV, DIT_DMLP,
    DIT_DMLP_ACT, DIT_DMOD, DIT_DMOD_OWN, DIT_DMOD_PARTS, DIT_DLOW, DIT_DCOND_SILU, DIT_DCOND, DIT_DCOND_PRE, DIT_DSHARED, DIT_DTIME, DIT_DFPS, DIT_DNULL,
    /* attention over context-parallel ranks: heads or segments exchanged, keys and values on their way round the ring */
    DIT_CP_PACK, DIT_CP_UNPACK, DIT_CP_QKV, DIT_CP_O, DIT_CP_KV, DIT_CP_O_PART, DIT_CP_LSE_PART, DIT_CP_D_O, DIT_CP_DELTA,
    DIT_CP_DQKV, DIT_CP_DKV, DIT_CP_O_SUM, DIT_CP_DQ,
    /* adapters */
    DIT_LORA_LOW, DIT_LORA_DLOW,
    DIT_BUFFERS,
};

struct buffer {
    char name[40];
    enum buffer_category category;
    enum dtype dtype;
    int64_t count;      /* copies: slots · each + shared; 0 when the model has no such buffer */
    int64_t each;       /* copies in each slot: `per` a layer that is not recomputed, or 1; 0: all slots share */
    int64_t shared;     /* the last so many copies serve all layers that are recomputed, or all slots */
    int64_t per;        /* copies of a layer: one for each of its self-attentions or sub-blocks; 0: not of layers */
    int64_t rows, cols; /* of one copy */
    int64_t bytes;      /* of all copies; each copy starts at a multiple of BUFFER_ALIGN_BYTES */
    int64_t offset;     /* in one arena that holds every buffer of the list */
};
enum {
    BUFFER_ALIGN_BYTES = 256,
    BUFFER_PART_ALIGN_BYTES = 64,     /* of scratch: a cache line */
    BUFFER_LIST_MAX = 128,
    BUFFER_FLAT_ALIGN = 16,           /* elements: where tensors begin in a flat buffer, and what pieces of it are a multiple of */
    BUFFER_EXCHANGE_BYTES = 1 << 18,  /* of every rank's piece that are on the way at a time */
};

struct buffer_list {
    int64_t n, total; /* buffers, bytes */
    struct buffer items[BUFFER_LIST_MAX];
};

struct buffer_spec {
    const struct model *model;
    enum dtype act, stat;   /* activations; statistics and modulation gradients */
    int64_t tokens, samples; /* most of a micro-batch, all context-parallel ranks together */
    int64_t text_tokens;    /* most caption tokens of a micro-batch, null tokens apart */
    const struct layout *layout; /* NULL: layout_default() */
    int64_t slots;          /* micro-batches of a pipeline chunk whose activations are held at a time; 0: 1 */
    int64_t segment_tokens; /* most seq_longest_segment() of a sample; 0: not known, then a sample may be one segment */
    int64_t lora_rank;      /* of a run's adapters; 0: none */
    bool residual_wide;     /* the residual stream and its gradient are of stat */
};
/* Most tokens of a micro-batch that one of `runs` context-parallel ranks has, each with a run of every sample. */
int64_t buffers_run_tokens(const struct buffer_spec *spec, int64_t runs);

/* Most tokens of a micro-batch whose spatial or temporal segments are dealt to one of the context-parallel ranks; 0 without such
 * attentions. Derived in buffers.c. */
int64_t buffers_dealt_tokens(const struct buffer_spec *spec);

/* Fills an empty list with DIT_BUFFERS entries. ERR_INPUT for a family of language models, ERR_LIMIT past 2^62 bytes. */
int buffers_dit(const struct buffer_spec *spec, struct buffer_list *list, struct err *err);
/* Most that the tp ranks' sums of activations and of the conditioning's gradients take at a time, all ranks' parts; 0 without tp. */
int64_t buffers_tp_sum_bytes(const struct buffer_spec *spec);

/* What a rank keeps over the steps: weights, their masters where act is not stat, gradients, moments and average (EMA), each whole or, by
 * zero, its own pieces alone (trainer/state/optim.h); the units in use where a rank has pieces (trainer/state/units.h); what it packs for partial
 * sums; and the scratch of sums. */
enum { BUFFER_SWAP_ELEMENTS = 1 << 14 }; /* through which weights without masters and average change places */
struct buffer_state {
    int64_t elements; /* of the flat buffer: struct shards' total, which divides by group */
    int64_t trained;  /* of them: struct shards' trained */
    int64_t group;    /* shard group's size */
    int zero;         /* 0..3 */
    bool ema;
    enum dtype act, stat; /* of the weights; of all else */
    int64_t replicas; /* of the shard group; 0 like 1, also of tp, kv and pp */
    bool moments_bf16;
    int64_t unit, trained_unit;      /* elements of the largest unit with its sibling, of the largest that is trained */
    int64_t tp, kv, pp;              /* ranks of these groups, */
    int64_t pieces[PIECE_RULES];     /* elements that are summed over them at the end of a step: piece_sum_elements, */
    int64_t tp_bytes;                /* and over tp meanwhile: buffers_tp_sum_bytes */
};
/* elements .. pieces but ema, act, stat and moments_bf16, of rank sh->place. */
int buffer_state_of(const struct shards *sh, const struct param_list *params, const struct layout *l, struct buffer_state *out,
                    struct err *err);
int buffers_state(const struct buffer_state *spec, struct buffer_list *list, struct err *err);

/* Groups in which a rank takes part in sums, and what lies in the scratch of one of them meanwhile: the other ranks' parts. */
enum buffer_group { BUFFER_SHARD, BUFFER_REPLICA, BUFFER_TP, BUFFER_KV, BUFFER_PP, BUFFER_GROUPS };
struct buffer_scratch {
    int64_t ranks;
    int64_t works; /* in flight at a time, with whole parts; 0: one, BUFFER_EXCHANGE_BYTES of each part at a time */
    int64_t bytes; /* of all ranks' parts for one */
};
void buffers_scratch(const struct buffer_state *spec, struct buffer_scratch out[BUFFER_GROUPS]);
int64_t buffer_scratch_part_bytes(const struct buffer_scratch *s); /* of one rank, for one work; 0 in a group of one */
int64_t buffer_scratch_bytes(const struct buffer_scratch *s);

/* A process before anything of the list is taken, and what it grows by in its first steps: code and stacks touched first, and of each
 * rank's segment of messages what MPI touches where ranks of a node can read each other's memory. Where they cannot, MPI copies messages
 * through these segments and fills as much of them as it finds in flight, up to 4 MiB of each: that is MPI's, and not in the plan.
 * Measured with Open MPI 4 on Linux x86-64; the trainer measures the first itself. */
int64_t buffers_process_bytes(int64_t ranks);
int64_t buffers_process_growth_bytes(int64_t ranks);

int buffer_list_add(struct buffer_list *list, const char *name, enum buffer_category category, enum dtype dtype,
                    int64_t count, int64_t rows, int64_t cols, struct err *err);
int64_t buffer_list_bytes(const struct buffer_list *list, enum buffer_category category);
/* Bytes from one copy of b to the next. */
int64_t buffer_stride_bytes(const struct buffer *b);

#endif
