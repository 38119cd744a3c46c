/* buffers: every buffer that a rank training a DiT needs, by pure arithmetic.
 *
 * One list, used by the trainer to allocate once (and never in a step) and by the tuner to predict bytes, so that the two
 * agree. The buffers of a micro-batch and their shapes are the table at the top of buffers.c; weights, gradients, moments and
 * what is on its way between ranks follow from the parameter list (buffers_state). The trainer adds what it knows alone
 * (its tiles, its loaders' buffers, the measured process), so that one printed table shows all memory of a rank.
 *
 *     struct buffer_list list = {0};
 *     buffers_dit(&spec, &list, err);                      // items[DIT_*] are the model's, in that order
 *     buffers_state(&(struct buffer_state){elements, dp, zero, ema, dtype}, &list, err);
 *     buffer_list_add(&list, "loader", BUFFER_LOADER, DTYPE_FP8, 1, 1, bytes, err);
 *     list.total                                           // bytes
 */
#ifndef PROFILES_BUFFERS_H
#define PROFILES_BUFFERS_H

#include <stdint.h>

#include "profiles/hw.h"
#include "profiles/layout.h"
#include "profiles/model.h"
#include "profiles/params.h"

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
    /* of each block, or of one when blocks are recomputed */
    DIT_QKV, DIT_ATTN, DIT_LSE, DIT_ATTN_OUT, DIT_X_CROSS, DIT_CROSS_Q, DIT_CROSS_KV, DIT_CROSS_ATTN, DIT_CROSS_LSE,
    DIT_CROSS_OUT, DIT_X_MLP, DIT_MLP_PRE, DIT_MLP_OUT,
    /* output */
    DIT_X_FINAL, DIT_PRED,
    /* working, forward and backward */
    DIT_STATS, DIT_NORMED, DIT_QK, DIT_QK_RSTD, DIT_CROSS_QN, DIT_CROSS_KN, DIT_CROSS_RSTD, DIT_CROSS_K_RSTD, DIT_MLP_ACT,
    /* working, backward */
    DIT_DPRED, DIT_DX, DIT_DBRANCH, DIT_DNORMED, DIT_DATTN, DIT_DELTA, DIT_DQKV, DIT_DCROSS_Q, DIT_DCROSS_KV, DIT_DMLP,
    DIT_DMLP_ACT, DIT_DMOD, DIT_DLOW, DIT_DCOND_SILU, DIT_DCOND, DIT_DCOND_PRE, DIT_DSHARED, DIT_DTIME, DIT_DFPS, DIT_DNULL,
    DIT_BUFFERS,
};

struct buffer {
    char name[40];
    enum buffer_category category;
    enum dtype dtype;
    int64_t count;      /* copies: one per layer, or 1; 0 when the model has no such buffer */
    int64_t rows, cols; /* of one copy */
    int64_t bytes;      /* of all copies; each copy starts at a multiple of BUFFER_ALIGN_BYTES */
    int64_t offset;     /* in one arena that holds every buffer of the list */
};
enum {
    BUFFER_ALIGN_BYTES = 256,
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
    int64_t tokens, samples; /* most of a micro-batch */
    int64_t text_tokens;    /* most caption tokens of a micro-batch, null tokens apart */
    enum recompute recompute;
};

/* Fills an empty list with DIT_BUFFERS entries. ERR_INPUT for a family other than dit, ERR_LIMIT past 2^62 bytes. */
int buffers_dit(const struct buffer_spec *spec, struct buffer_list *list, struct err *err);
/* What a rank of a data-parallel group keeps over the steps: weights and gradients whole, moments and average (EMA) whole or, with
 * zero, its own piece of dp, and the chunks of an exchange. */
struct buffer_state {
    int64_t elements; /* buffers_flat_elements */
    int64_t dp;
    bool zero, ema;
    enum dtype dtype;
};
int buffers_state(const struct buffer_state *spec, struct buffer_list *list, struct err *err);
/* Elements of a flat buffer of all tensors, and of one of the dp pieces it is padded to. */
int64_t buffers_flat_elements(const struct param_list *params);
int64_t buffers_piece_elements(int64_t elements, int64_t dp);
/* Memory for exchanging pieces of piece_bytes among dp ranks. */
int64_t buffers_exchange_bytes(int64_t dp, int64_t piece_bytes);
/* A process before anything of the list is taken, and what it grows by in its first steps (code and stacks touched first, MPI's
 * segments of messages). Measured with Open MPI 4 on Linux x86-64; the trainer measures the first itself. */
int64_t buffers_process_bytes(int64_t ranks);
int64_t buffers_process_growth_bytes(int64_t ranks);

int buffer_list_add(struct buffer_list *list, const char *name, enum buffer_category category, enum dtype dtype,
                    int64_t count, int64_t rows, int64_t cols, struct err *err);
int64_t buffer_list_bytes(const struct buffer_list *list, enum buffer_category category);
/* Bytes from one copy of b to the next. */
int64_t buffer_stride_bytes(const struct buffer *b);

#endif
