/* dit_priv: declares what the files of the model share: the context, the indices of parameters,
 * views of buffers, and the calls of each file. */
#ifndef TRAINER_DIT_DIT_PRIV_H
#define TRAINER_DIT_DIT_PRIV_H

#include "trainer/data/objective.h"
#include "trainer/dit/dit.h"

#define DIT_EPS 1e-6 /* of every norm */
enum { DIT_NO_LAYER = -100 };

/* Describes one product that makes modulation columns col .. col+width-1 of a sample: silu(e) wᵀ,
 * or silu(e) aᵀ wᵀ through low-rank columns low .. low+rank-1. a and w are indices of the parameter
 * list; a is -1 for the full form. */
struct mod_unit {
    int64_t a, w;
    int64_t col, width, low, rank;
};
enum { MOD_UNITS = 5, DIT_SELVES = 3, DIT_SUBS = 5 };

/* Hold indices into the parameter list; -1 where the model has no such tensor. */
struct dit_attn_params { int64_t qkv, q_norm, k_norm, out; };
struct dit_block_params {
    struct dit_attn_params self[DIT_SELVES];
    int64_t cross_q, cross_kv, cross_q_norm, cross_k_norm, cross_out;
    int64_t fc1, fc2;
    int64_t n_units;
    struct mod_unit units[MOD_UNITS];
};
struct dit_params {
    int64_t patch_embed, pos[3], time0, time2, fps0, fps2, cond_norm, text_null, final_out;
    struct mod_unit final_unit;
    struct dit_block_params *blocks; /* [layers] */
};

/* Names the sub-blocks of a layer, in their order. The modulation's columns have the same order. */
enum dit_sub_kind { DIT_SELF, DIT_CROSS, DIT_MLP };
/* Says what a token of a self-attention sees: the tokens of its frame, those of its place in all
 * frames, or the whole sample. */
enum dit_reach { DIT_SPATIAL, DIT_TEMPORAL, DIT_FULL };
/* Counts the reaches whose segments are dealt to context-parallel ranks (dit_segments.c). */
enum { DIT_DEALS = DIT_FULL };
struct dit_sub {
    enum dit_sub_kind kind;
    int64_t self; /* which of the layer's self-attentions it is */
    enum dit_reach reach;
};

/* Names one of the `of` slices of a tp rank's rows: number i. Each slice is summed by itself, while
 * the product of the next one is computed. */
struct dit_slice { int64_t i, of; };

/* Tells how the tokens of a reach go from each rank's spans to whole segments. For every rank p,
 * the arrays on the host say how many rows go to it or come from it, and where they begin among the
 * rows that leave or come. */
struct dit_deal_index {
    int32_t *send;        /* [s]: this rank's token that leaves as row j */
    int32_t *come;        /* [rows]: which of the received rows is row j of the segments */
    int32_t *start, *len; /* [segments + 1], [segments] */
    int64_t *send_n, *send_at, *come_n, *come_at; /* [cp]: on the host only */
};
struct dit_deal_extent { int64_t rows, segments, longest; };

/* Holds what kernels read besides tensors. It is one block of memory on the host, and one with the
 * same layout on the device. */
struct dit_index {
    struct ops_sample *samples;     /* [n] */
    double *fps, *c_noise;          /* [n] */
    int32_t *sample, *pos;          /* [s], [s, 3] */
    int32_t *q_start;               /* [n + 1]: where this rank's tokens of each sample begin */
    int32_t *row_start;             /* [n + 1]: the same for its rows of the residual stream */
    int32_t *u_start;               /* [n + 1]: the same for its all-to-all group's tokens */
    int32_t *ring_start, *ring_len; /* [ring, n]: where each group's keys of each sample lie */
    int32_t *tokens;                /* [n]: tokens of each whole sample */
    int32_t *k_start, *k_len;       /* [n]: text rows of each sample */
    struct dit_deal_index deal[DIT_DEALS];
};
/* Holds the bounds of everything in an index. */
struct dit_index_most { int64_t tokens, samples, ring, dealt, cp; };

/* Holds what dit_begin and dit_forward need of a sample. */
struct dit_view {
    const float *cond, *text;
    int32_t t, h, w, text_len;
    double fps;
    bool null_text; /* the random choice, or the caller, drops the caption */
};

/* Holds the sizes of the current micro-batch. */
struct dit_extent {
    int64_t n, s, cells, text; /* samples, tokens of this rank, latent cells of all, text rows */
    int64_t r_first, r;        /* the span of these tokens in this rank's residual stream */
    int64_t u;                 /* tokens of this rank's all-to-all group */
    int64_t null_rows;         /* text rows 0 .. null_rows-1 are the null token */
    int64_t max_q, max_u, max_k; /* longest segment of tokens, of a group's tokens, of text */
    struct dit_deal_extent deal[DIT_DEALS];
};

/* Holds pinned memory in which a micro-batch waits for the device: its index arrays, and its
 * numbers as f32. */
struct dit_staging {
    char *ptr;
    struct dev_event *copied; /* recorded after the last copy out of it */
    int64_t taken;            /* bytes used by this micro-batch */
};

/* Holds the factors of a sample's sum of squares: `loss` gives the loss, `loss_x0` the loss of
 * clean latents. w is the objective's weight. `elements` counts the sample's latent elements
 * without padding, for its mean. */
struct dit_factors { double loss, loss_x0, w, elements; };

/* Holds the losses of the last chunks of some micro-batches until the host reads them. */
struct dit_losses {
    double *device, *host;       /* [most_micros, max_samples] sums of squares; host: pinned */
    struct dit_factors *factors; /* [most_micros, max_samples] pinned, too */
    int64_t *samples;            /* [most_micros] number of samples of each */
    int64_t n;                   /* micro-batches */
};

/* Holds a chunk of a micro-batch that is under way. */
struct dit_slot {
    int64_t number;                   /* from 0 */
    double *loss;                     /* [n] in device memory; for a last chunk */
    void *host_block, *device_block;  /* the memory of the index arrays */
    struct dit_index host, device;
    struct dit_extent now;
    int64_t first, end;               /* its layers */
};

struct dit {
    struct dit_config c;
    const struct model *m;
    struct ops *o;
    struct dev *dev;
    struct dev_stream *stream;
    void *arena;
    struct units *units;
    struct layout_place place;
    struct buffer_list memory; /* the buffers in the arena */
    struct dit_params p;
    struct dit_slot *slots;        /* [c.slots] */
    struct dit_slot *slot;         /* the current one */
    void *host_block;              /* pinned: the host's index arrays of all slots */
    struct dit_staging staging[2]; /* ptr NULL: batches are copied without staging */
    int64_t staged;                /* micro-batches staged so far */
    struct dit_losses losses;
    struct dit_view *views;        /* [max_samples] */
    /* layer and slot whose activations are in the copy that recomputed layers share; -1: none */
    int64_t kept;
    const struct dit_slot *kept_slot;
    int64_t *part_n, *part_at;   /* [tp] elements of each tp rank's rows of the residual stream */
    int64_t *slice_n, *slice_at; /* [tp] the same for the slice of them that is being summed */
    int64_t *cp_counts;          /* [4, cp] counts and places of an exchange of heads or segments */
    int64_t ring, ring_rank;     /* number of all-to-all groups of cp ranks; which one is ours */
    int failed;                  /* an error of communication, kept for dit_failed */
    struct err err;
    struct dit_sub subs[DIT_SUBS];
    int64_t n_subs;
    int64_t head_dim, heads, kv_heads; /* heads of this tp rank */
    int64_t q_width, kv_width;         /* H d, K d */
    enum ops_act_kind mlp_act;
    double lora_scale;
};

/* Returns a view of a layer's buffer. Recomputed layers share a copy. `rows` is the number of rows
 * in this micro-batch. */
struct tensor dit_buffer(const struct dit *d, enum dit_buffer id, int64_t layer, int64_t rows);
/* Returns copy `which` of a buffer that has several for each layer. */
struct tensor dit_copy(const struct dit *d, enum dit_buffer id, int64_t layer, int64_t which,
                       int64_t rows);
bool dit_recomputed(const struct dit *d, int64_t layer);
struct tensor dit_weight(const struct dit *d, int64_t param);
bool dit_trained(const struct dit *d, int64_t param);
/* Returns the gradient of a parameter; tensor_none() when it is frozen. */
struct tensor dit_grad(const struct dit *d, int64_t param);
/* Returns the factor of a parameter's old gradient when the next summand is added: 0 or 1. */
double dit_beta(const struct dit *d, int64_t param);
/* Makes the weights of a layer's unit available, and starts to gather those of `next`
 * (DIT_NO_LAYER: none). */
void dit_use(struct dit *d, int64_t layer, int64_t next);
static inline struct tensor dit_tokens(const struct dit *d, enum dit_buffer id, int64_t layer)
{
    return dit_buffer(d, id, layer, d->slot->now.s);
}
static inline struct tensor dit_rows(const struct dit *d, enum dit_buffer id, int64_t layer)
{
    return dit_buffer(d, id, layer, d->slot->now.r);
}
bool dit_has_cond(const struct dit *d);
/* Returns the reach of a self-attention. The self-attentions are a layer's first sub-blocks. */
static inline enum dit_reach dit_self_reach(const struct dit *d, int64_t self)
{
    return d->subs[self].reach;
}

/* Compute y = x wᵀ, dx = dy w + beta · dx, and dw = dyᵀ x, which overwrites the gradient or is
 * added to it (dit_beta). They include the adapters. A frozen parameter gets no dw. */
void dit_linear(struct dit *d, struct tensor x, int64_t param, struct tensor y);
void dit_linear_add(struct dit *d, struct tensor x, int64_t param, struct tensor y); /* y += x wᵀ */
void dit_linear_dx(struct dit *d, struct tensor dy, int64_t param, struct tensor dx, double beta);
void dit_linear_dw(struct dit *d, struct tensor dy, struct tensor x, int64_t param);

/* These add an adapter's part to y, dx and dw (dit_lora.c). Without an adapter they do nothing. */
bool dit_lora_has(const struct dit *d, int64_t param);
void dit_lora_add(struct dit *d, struct tensor x, int64_t param, struct tensor y);
void dit_lora_dx(struct dit *d, struct tensor dy, int64_t param, struct tensor dx);
void dit_lora_dw(struct dit *d, struct tensor dy, struct tensor x, int64_t param);

/* These move token rows and columns between tensor-parallel ranks (dit_tp.c). Without tp nothing is
 * moved, and the views are the same memory. */
/* Starts to gather the rows of all ranks. They are complete after dit_rows_wait. */
struct tensor dit_gather_rows(struct dit *d, struct tensor own, enum dit_buffer all,
                              struct comm_work **work);
/* Multiplies DIT_NORMED of all tokens, which becomes g.a and is returned. This rank's rows are
 * multiplied while the other ranks' rows arrive. */
struct tensor dit_gemm_all(struct dit *d, struct ops_gemm g);
void dit_rows_wait(struct dit *d, struct comm_work *work);
/* Returns the buffer for this rank's summands. */
struct tensor dit_partial(const struct dit *d, struct tensor own);
/* Starts the sum over tp ranks of a slice of their rows (layout_tp_slices). This rank's rows of the
 * sum are complete after dit_rows_wait. */
struct comm_work *dit_sum_rows(struct dit *d, struct tensor partial, struct tensor own,
                               struct dit_slice slice, const char *what, int fault);
/* Computes partial = x wᵀ, adapters included, and sums it over tp ranks: `own` gets this rank's
 * rows of the sum. Waits for all of it. */
void dit_linear_sum(struct dit *d, struct tensor x, int64_t param, struct tensor own,
                    const char *what, int fault);
/* Sums a tensor over tp ranks in place. `fault` is the fault point that leaves the sum out. */
void dit_sum_tp(struct dit *d, struct tensor t, const char *what, int fault);
/* Gathers all columns of a modulation from each rank's DIT_MOD_OWN. */
void dit_mod_gather(struct dit *d, struct tensor mod, const struct mod_unit *units, int64_t n);
/* Returns this rank's columns of a modulation's gradient; with sp they are summed over tp ranks. */
struct tensor dit_dmod_own(struct dit *d, struct tensor dmod, const struct mod_unit *units,
                           int64_t n);
/* Returns how many columns of a unit are this rank's. */
int64_t dit_mod_width(const struct dit *d, const struct mod_unit *unit);
/* These compute self-attention over context-parallel ranks (dit_cp.c). They read the normed q and k
 * in DIT_QK, and v in DIT_QKV. */
void dit_attention_fwd(struct dit *d, int64_t layer, int64_t self);
void dit_attention_bwd(struct dit *d, int64_t layer, int64_t self); /* DIT_DATTN -> DIT_DQKV */
/* These record a failure in d->failed; dit_comm_start then returns NULL. */
void dit_comm(struct dit *d, struct comm *c, const struct comm_op *op);
struct comm_work *dit_comm_start(struct dit *d, struct comm *c, const struct comm_op *op);
void dit_comm_wait(struct dit *d, struct comm *c, struct comm_work *work);
/* Returns rows [at, at + rows) of a buffer of exchanged blocks, as a matrix with the blocks'
 * width. */
struct tensor dit_cp_block(const struct dit *d, enum dit_buffer id, int64_t at, int64_t rows,
                           int64_t width);
/* Fills in q, k, v, the output and their gradients for an attention with a->heads and a->kv_heads.
 * With `moved` they are the `rows` rows that an exchange has brought, else this rank's tokens. */
void dit_attention_tensors(const struct dit *d, struct ops_attn *a, int64_t layer, int64_t self,
                           bool moved, int64_t rows);
/* These compute self-attention inside frames or along time (dit_segments.c). */
/* Fill the index arrays of the current micro-batch: where its segments lie, and where their rows
 * come from. */
void dit_deal_segments(struct dit *d);
void dit_deal_rows(struct dit *d);
void dit_segments_fwd(struct dit *d, int64_t layer, int64_t self);
void dit_segments_bwd(struct dit *d, int64_t layer, int64_t self);
/* Announce the calls of a self-attention to the table: see dit_attn_plan. */
int dit_segments_plan(struct dit *d, int64_t layer, int64_t self, bool backward, struct err *err);
int dit_attention_plan(struct dit *d, int64_t layer, int64_t self, bool backward, struct err *err);
/* ---- dit_params.c ---- */
int dit_params_find(const struct model *m, const struct param_list *list, struct dit_params *out,
                    struct err *err);
/* Makes a slot current, for a chunk (dit.c). Every chunk has at least one layer. */
void dit_chunk_take(struct dit *d, int64_t slot, int64_t chunk);
/* These check a micro-batch, lay it out and upload it (dit_batch.c). They fill the current slot and
 * the input buffers. */
/* Points the arrays of *x into a block, or sets them to NULL when the block is NULL. Returns the
 * bytes that the arrays need. */
int64_t dit_index_bind(struct dit_index *x, void *block, const struct dit_index_most *most);
int64_t dit_staging_bytes(const struct dit *d); /* Returns the size of one of the two buffers. */
/* Computes extents and segments of a batch of which only the shapes are known. ERR_INPUT: it does
 * not fit. */
int dit_lay_segments(struct dit *d, const struct batch *b, struct err *err);
void dit_parts(struct dit *d); /* Fills part_n and part_at for the current micro-batch. */
int dit_stage(struct dit *d, const struct batch *b, double inv_norm, struct err *err);
int dit_stage_eval(struct dit *d, const struct dit_eval_sample *samples, int64_t n,
                   struct err *err);
void dit_fetch_eval(struct dit *d, const struct dit_eval_sample *samples, int64_t n);
/* These compute the modulation of every layer from noise level and frame rate, and the backward of
 * that (dit_cond.c). */
void dit_cond_fwd(struct dit *d);
void dit_mod_fwd(struct dit *d, int64_t layer);
void dit_final_mod_fwd(struct dit *d);
void dit_cond_bwd_start(struct dit *d);
void dit_mod_bwd(struct dit *d, const struct mod_unit *units, int64_t n_units, struct tensor low,
                 struct tensor dmod);
void dit_cond_bwd(struct dit *d);
/* ---- dit_block.c, dit_block_bwd.c ---- */
/* Computes a layer's forward from the output of the layer before; a chunk's first layer reads
 * DIT_X. */
void dit_block_fwd(struct dit *d, int64_t layer);
/* Recomputes a layer from its input DIT_X, which was kept. */
void dit_block_again(struct dit *d, int64_t layer);
/* Computes x_out = residual + gate · output of the last sub-block of `layer` and, if there is a y,
 * the next norm of it. */
void dit_block_close(struct dit *d, int64_t layer, struct tensor x_out, struct tensor y,
                     struct tensor shift, struct tensor scale);
/* Turns the gradient DIT_DX of the block's output into that of its input. */
void dit_block_bwd(struct dit *d, int64_t layer);
/* These recompute parts of the forward in backward. */
void dit_norm_again(struct dit *d, int64_t layer, int64_t sub); /* a sub-block's DIT_NORMED */
void dit_qk_again(struct dit *d, int64_t layer, int64_t self);
void dit_cross_qk_again(struct dit *d, int64_t layer);
/* Return the residual before a sub-block, and a sub-block's output. */
struct tensor dit_res(const struct dit *d, int64_t layer, int64_t sub);
struct tensor dit_out(const struct dit *d, int64_t layer, int64_t sub);
/* Returns a part of a sub-block's modulation: 0 is the shift, 1 the scale, 2 the gate. */
struct tensor dit_mod(const struct dit *d, int64_t layer, int64_t sub, int64_t part);
/* Returns what all calls of AdaLN have in common. */
struct ops_adaln dit_adaln(const struct dit *d);
struct ops_attn dit_attn(const struct dit *d); /* Returns what all attentions have in common. */
struct ops_attn dit_cross_attn(const struct dit *d, int64_t layer, bool backward);
struct ops_headnorm dit_headnorm(const struct dit *d, struct tensor src, struct tensor dst,
                                 int64_t gain, struct tensor rstd, bool positions);

#endif
