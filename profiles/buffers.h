/* buffers: lists every buffer that a rank needs to train a DiT, by pure arithmetic.
 *
 * The trainer allocates from this list once, and never in a step; the tuner predicts bytes from it.
 * So prediction and allocation agree. buffers.c gives the shapes of a micro-batch's buffers.
 * Weights, gradients, moments and the scratch for messages between ranks follow from the parameter
 * list (buffers_state). The trainer adds what it alone knows: its tiles, its loaders' buffers, the
 * measured size of the process. One printed table then shows all memory of a rank.
 *
 *     struct buffer_list list = {0};
 *     buffers_dit(&spec, &list, err);      // list.items[DIT_QKV], ... are the model's buffers
 *     buffers_state(&(struct buffer_state){.elements = sh.total, ...}, &list, err);
 *     buffer_list_add(&list, "loader", BUFFER_LOADER, DTYPE_BYTE, 1, 1, bytes, err);
 *     list.total      // bytes
 *
 * Each buffer is on a side: in the device's memory, in pinned memory of the host that the device
 * copies from and to, or in other memory of the host. Where a device's memory is the host's, the
 * buffers of all sides share it, and together they take list.total bytes of it.
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
    BUFFER_SAVED,  /* kept from forward until backward */
    BUFFER_WORK,   /* used inside one block's forward or backward only */
    BUFFER_OF_DIT, /* categories of a micro-batch's buffers */
    BUFFER_WEIGHT = BUFFER_OF_DIT,
    BUFFER_GRAD,
    BUFFER_OPTIM,
    BUFFER_EMA,
    BUFFER_COMM,
    BUFFER_LOADER,
    BUFFER_PROCESS, /* program, libraries, MPI, stacks: all memory that is in no buffer */
    BUFFER_CATEGORIES,
};
extern const char *const buffer_category_names[];

/* Says where a buffer lies: in memory from a device's alloc or alloc_host (trainer/dev/dev.h), or
 * elsewhere. */
enum buffer_side { BUFFER_ON_DEVICE, BUFFER_PINNED, BUFFER_ON_HOST, BUFFER_SIDES };

/* Names the buffers of a DiT's micro-batch. buffers.c gives their shapes. */
enum dit_buffer {
    /* input */
    DIT_STAGE, DIT_LATENT, DIT_NOISE, DIT_COND_LATENT, DIT_PATCHES, DIT_TEXT, DIT_COS, DIT_SIN,
    /* conditioning of each sample, saved */
    DIT_TIME_SIN, DIT_TIME_PRE, DIT_TIME_ACT, DIT_FPS_SIN, DIT_FPS_PRE, DIT_FPS_ACT,
    DIT_COND_PRE, DIT_COND_RSTD, DIT_COND, DIT_COND_SILU, DIT_SHARED, DIT_FINAL_LOW,
    DIT_FINAL_MOD,
    /* saved for every block, even when it is recomputed: its input and modulation */
    DIT_X, DIT_MOD_LOW, DIT_MOD,
    /* saved for each block, or once when blocks are recomputed; with selective recompute
     * attention's are saved for each block */
    DIT_QKV, DIT_ATTN, DIT_LSE, DIT_CROSS_Q, DIT_CROSS_KV, DIT_CROSS_ATTN, DIT_CROSS_LSE,
    DIT_MLP_PRE,
    /* the residual before each sub-block but the first, and each sub-block's output */
    DIT_RES, DIT_OUT,
    /* output */
    DIT_X_FINAL, DIT_PRED, DIT_DPRED,
    /* working, forward and backward */
    DIT_STATS, DIT_NORMED, DIT_NORMED_ALL, DIT_PARTIAL, DIT_QK, DIT_QK_RSTD, DIT_CROSS_QN,
    DIT_CROSS_KN, DIT_CROSS_RSTD, DIT_CROSS_K_RSTD, DIT_MLP_ACT, DIT_MOD_OWN, DIT_MOD_PARTS,
    /* working, backward */
    DIT_DX, DIT_DX_OUT, DIT_DBRANCH, DIT_DNORMED, DIT_DATTN, DIT_DELTA, DIT_DQKV, DIT_DCROSS_Q,
    DIT_DCROSS_KV, DIT_DMLP, DIT_DMLP_ACT, DIT_DMOD, DIT_DMOD_OWN, DIT_DMOD_PARTS, DIT_DLOW,
    DIT_DCOND_SILU, DIT_DCOND, DIT_DCOND_PRE, DIT_DSHARED, DIT_DTIME, DIT_DFPS, DIT_DNULL,
    /* attention over context-parallel ranks: the heads or segments that ranks exchange, the keys
     * and values that travel round the ring */
    DIT_CP_PACK, DIT_CP_UNPACK, DIT_CP_QKV, DIT_CP_O, DIT_CP_KV, DIT_CP_O_PART, DIT_CP_LSE_PART,
    DIT_CP_D_O, DIT_CP_DELTA, DIT_CP_DQKV, DIT_CP_DKV, DIT_CP_O_SUM, DIT_CP_DQ,
    /* adapters */
    DIT_LORA_LOW, DIT_LORA_DLOW, DIT_BUFFERS,
};

struct buffer {
    char name[40];
    enum buffer_category category;
    enum buffer_side side;
    enum dtype dtype;
    /* number of copies: slots · each + shared; 0 when the model has no such buffer */
    int64_t count;
    /* copies in each slot: `per` for each layer that is not recomputed, or 1; 0: all slots share
     * one */
    int64_t each;
    /* copies that all recomputed layers, or all slots, share; they come after the others */
    int64_t shared;
    /* copies for one layer: one for each of its self-attentions or sub-blocks; 0: the buffer does
     * not belong to layers */
    int64_t per;
    int64_t rows, cols; /* of one copy */
    int64_t bytes;      /* of all copies; each copy starts at a multiple of BUFFER_ALIGN_BYTES */
    int64_t offset;     /* bytes from the start of an arena that holds all buffers of its side */
};
enum {
    BUFFER_ALIGN_BYTES = 256,
    /* each rank's part of a sum's scratch is aligned to a cache line */
    BUFFER_PART_ALIGN_BYTES = 64,
    BUFFER_LIST_MAX = 160,
    /* in elements: in a flat buffer tensors begin at multiples of this number, and pieces have
     * multiples of it */
    BUFFER_FLAT_ALIGN = 16,
    BUFFER_SUMS_FLIGHT = 3, /* units whose gradients are summed at a time, with zero 0 and 1 */
    BUFFER_EXCHANGE_BYTES = 1 << 18,  /* bytes of each rank's piece in flight at a time */
    BUFFER_ORDERED_BYTES = 4 << 20,   /* bytes of a part at a time where devices sum in order */
};

struct buffer_list {
    int64_t n, total;            /* buffers, bytes */
    int64_t sides[BUFFER_SIDES]; /* bytes by side */
    struct buffer items[BUFFER_LIST_MAX];
};

struct buffer_spec {
    const struct model *model;
    enum dtype act, stat;   /* activations; statistics and modulation gradients */
    int64_t tokens, samples; /* the largest micro-batch, counted over all context-parallel ranks */
    int64_t text_tokens;    /* the most caption tokens of a micro-batch, without null tokens */
    const struct layout *layout; /* NULL: layout_default() */
    /* micro-batches of a pipeline chunk whose activations are held at the same time; 0: 1 */
    int64_t slots;
    /* largest seq_longest_segment() of any sample; 0: unknown, then a whole sample may be one
     * segment */
    int64_t segment_tokens;
    int64_t lora_rank;      /* rank of the run's adapters; 0: none */
    bool residual_wide;     /* the residual stream and its gradient have type `stat` */
};
/* Returns the most tokens of a micro-batch that one of `spans` context-parallel ranks holds, when
 * each has a span of every sample. */
int64_t buffers_span_tokens(const struct buffer_spec *spec, int64_t spans);

/* Returns the most tokens of a micro-batch whose spatial or temporal segments are dealt to one
 * context-parallel rank; 0 when the model has no such attentions. buffers.c derives the formula. */
int64_t buffers_dealt_tokens(const struct buffer_spec *spec);

/* Fills an empty list with DIT_BUFFERS entries. ERR_INPUT: the model is for planning only.
 * ERR_LIMIT: more than 2^61 bytes, or 2^31 or more tokens or samples. */
int buffers_dit(const struct buffer_spec *spec, struct buffer_list *list, struct err *err);
/* Holds the bytes of the same buffers added up, for whoever sizes many layouts of one grid: by
 * category, and by the five ways in which copies are counted (enum copies of buffers.c). The first
 * is for buffers that exist once. Where buffers_dit() would refuse, there are too many bytes. */
#define BUFFER_TOO_MANY_BYTES 0x1p60
enum { BUFFER_COPIES = 5 };
struct buffer_totals { double bytes[BUFFER_OF_DIT][BUFFER_COPIES]; };
/* Computes them from all of the spec but its slots and its layout's recomputation. The spec has a
 * layout. */
void buffers_dit_totals(const struct buffer_spec *spec, struct buffer_totals *out);
/* Adds the bytes of the list that a model of `layers` layers has with this recomputation and these
 * slots, by category. */
void buffers_totals_add(const struct buffer_totals *sums, const struct layout *l, int64_t layers,
                      int64_t slots, double bytes[BUFFER_CATEGORIES]);
/* Returns the bytes of latents, conditioning and captions of one micro-batch as f32. They wait in
 * pinned memory for the device in this form. */
int64_t buffers_staged_bytes(const struct buffer_spec *spec);
/* Returns the most bytes that one sum over tp ranks moves, all ranks' parts together: of
 * activations, or of the conditioning's gradients. It is 0 without tp. */
int64_t buffers_tp_sum_bytes(const struct buffer_spec *spec);

/* The functions below list what a rank keeps from step to step: weights, their masters when act is
 * not stat, gradients, moments and the average (EMA). Each is whole, or only the rank's own pieces,
 * as zero says (trainer/state/optim.h). Ranks that own pieces also hold the units in use
 * (trainer/state/units.h). The buffer in which partial sums are packed, and the scratch of sums,
 * come on top. */
/* This is the size in elements of the buffer through which weights without masters swap places with
 * their average. */
enum { BUFFER_SWAP_ELEMENTS = 1 << 14 };
/* Says who computes sums over ranks: the host; or the devices among themselves
 * (trainer/comm/comm_plane.h), either by a library wherever trainer/comm/comm.h allows that, or all
 * in rank order. */
enum buffer_sums { SUMS_OF_HOST, SUMS_OF_LIBRARY, SUMS_IN_ORDER };
struct buffer_state {
    int64_t elements; /* of the flat buffer: struct shards' total, a multiple of group */
    int64_t trained;  /* how many of them are trained (struct shards' trained) */
    int64_t group;    /* shard group's size */
    int zero;         /* 0..3 */
    bool ema;
    enum dtype act, stat; /* act: type of the weights; stat: type of everything else */
    int64_t replicas; /* replicas of the shard group; 0 means 1, here and for tp, kv and pp */
    bool moments_bf16;
    /* elements of the largest unit together with its sibling, and of the largest unit that is
     * trained */
    int64_t unit, trained_unit;
    int64_t tp, kv, pp;              /* sizes of these groups */
    int64_t span_bytes; /* bytes of the table of updates (buffers_span_bytes) */
    /* elements of each rule's packed sum at the end of a step (piece_sum_elements) */
    int64_t pieces[PIECE_RULES];
    /* most bytes of one sum over tp during a step (buffers_tp_sum_bytes) */
    int64_t tp_bytes;
    bool tp_uneven; /* ranks' parts of sums over tp may differ in size */
    enum buffer_sums sums;
};
/* Fills what follows from the shards of rank sh->place: all members except ema, act, stat,
 * moments_bf16, tp_bytes and sums. */
int buffer_state_of(const struct shards *sh, const struct param_list *params,
                    const struct layout *l, struct buffer_state *out, struct err *err);
/* Returns the greatest size in bytes of the table of updates, which has a row of BUFFER_SPAN_BYTES
 * for each range of rows of each trained tensor. */
enum { BUFFER_SPAN_BYTES = 96 };
int64_t buffers_span_bytes(const struct shards *sh);
/* Returns it for a number of trained tensors. */
int64_t buffers_tensor_span_bytes(int64_t tensors);
/* Names the rows of that list but for the scratch of sums. */
enum buffer_state_row {
    KEPT_WEIGHTS, KEPT_MASTERS, KEPT_GRADS, KEPT_MOMENTS, KEPT_EMA, KEPT_SWAP, KEPT_SPANS,
    /* units in use, with zero 2 and 3 */
    KEPT_GATHERED, KEPT_UNIT_GRADS, KEPT_UNIT_SUMS,
    KEPT_PACK, BUFFER_STATE_ROWS
};
int buffers_state(const struct buffer_state *spec, struct buffer_list *list, struct err *err);
/* Computes the bytes of these rows without making a list. */
void buffers_state_bytes(const struct buffer_state *spec, double bytes[BUFFER_STATE_ROWS]);

/* Names the groups in which a rank takes part in sums. A sum's scratch holds the other ranks' parts
 * while it runs; sums of a library need no scratch of ours. */
enum buffer_group { BUFFER_SHARD, BUFFER_REPLICA, BUFFER_TP, BUFFER_KV, BUFFER_PP, BUFFER_GROUPS };
struct buffer_scratch {
    int64_t ranks;
    /* sums in flight at a time, each with whole parts; 0: one sum, of which BUFFER_EXCHANGE_BYTES
     * of each part are in flight */
    int64_t works;
    int64_t bytes; /* bytes of all ranks' parts of one sum */
};
void buffers_scratch(const struct buffer_state *spec, struct buffer_scratch out[BUFFER_GROUPS]);
/* Returns the bytes of one rank's part of one sum; 0 in a group of one. */
int64_t buffer_scratch_part_bytes(const struct buffer_scratch *s);
int64_t buffer_scratch_bytes(const struct buffer_scratch *s);
/* Returns the bytes of device memory that hold the ranks' parts of one sum when devices sum in rank
 * order. */
int64_t buffer_ordered_bytes(const struct buffer_scratch *s);

/* Names the groups whose messages wait in pinned memory, where device memory is not the host's.
 * Each needs room for the messages that are in flight at the same time. */
enum buffer_stages {
    /* the groups above: weights and gradients of units, sums, messages of tp and between stages */
    STAGES_GATHER, STAGES_SHARD, STAGES_REPLICA, STAGES_TP, STAGES_KV, STAGES_PP,
    /* heads or segments that ranks exchange, and keys and values that travel round the ring */
    STAGES_A2A, STAGES_CP, STAGES_RING, BUFFER_STAGES,
};
struct buffer_stage { int64_t count, bytes; }; /* messages, bytes of each */
/* Returns the bytes of pinned memory for a message that sends and receives this many bytes. */
int64_t buffer_stage_bytes(int64_t sent, int64_t received);
/* Computes the messages of each group. `dit` must have a layout, and `list` must begin with the
 * buffers that buffers_dit lists for it. */
void buffers_stages(const struct buffer_state *spec, const struct buffer_spec *dit,
                    const struct buffer_list *list, struct buffer_stage out[BUFFER_STAGES]);
/* Adds the pinned memory of these messages to a list. */
int buffers_stages_add(const struct buffer_stage stages[BUFFER_STAGES], struct buffer_list *list,
                       struct err *err);

/* Return the bytes of a process before any buffer of the list is allocated, and the bytes by which
 * it grows in its first steps. It grows by code and stacks that are touched for the first time, and
 * by the part of each rank's message segment that MPI touches where ranks of a node can read each
 * other's memory. Where they cannot, MPI copies messages through these segments and fills as much
 * of them as is in flight, up to 4 MiB of each; the memory plan does not count that. The figures
 * were measured with Open MPI 4 on Linux x86-64. The trainer measures the first one itself. */
int64_t buffers_process_bytes(int64_t ranks);
int64_t buffers_process_growth_bytes(int64_t ranks);

/* Adds a buffer of the device. */
int buffer_list_add(struct buffer_list *list, const char *name, enum buffer_category category,
                    enum dtype dtype, int64_t count, int64_t rows, int64_t cols, struct err *err);
/* Adds a buffer of the host: `count` copies of `bytes` bytes. */
int buffer_list_add_host(struct buffer_list *list, const char *name, enum buffer_category category,
                         enum buffer_side side, int64_t count, int64_t bytes, struct err *err);
int64_t buffer_list_bytes(const struct buffer_list *list, enum buffer_category category);
/* Computes the bytes from one copy of a buffer to the next. Returns false if they are more than
 * 2^61. */
bool buffer_copy_bytes(int64_t rows, int64_t cols, enum dtype dtype, int64_t *out);
/* Returns the bytes from one copy of b to the next. */
int64_t buffer_stride_bytes(const struct buffer *b);

#endif
