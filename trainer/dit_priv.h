/* dit_priv: what the files of the model share: the context, where parameters stand, views of buffers, one call a file. */
#ifndef TRAINER_DIT_PRIV_H
#define TRAINER_DIT_PRIV_H

#include "trainer/dit.h"
#include "trainer/objective.h"

#define DIT_EPS 1e-6 /* of every norm */

/* One product that makes modulation columns col .. col+width-1 of a sample: silu(e) wᵀ, or silu(e) aᵀ bᵀ through low-rank
 * columns low .. low+rank-1. Parameters as indices of the list; a is -1 for the full form. */
struct mod_unit {
    int64_t a, w;
    int64_t col, width, low, rank;
};
enum { MOD_UNITS = 3 };

/* Indices into the parameter list; -1 where the model has no such tensor. */
struct dit_block_params {
    int64_t qkv, q_norm, k_norm, out;
    int64_t cross_q, cross_kv, cross_q_norm, cross_k_norm, cross_out;
    int64_t fc1, fc2;
    int64_t n_units;
    struct mod_unit units[MOD_UNITS];
};
struct dit_params {
    int64_t patch_embed, time0, time2, fps0, fps2, cond_norm, text_null, final_out;
    struct mod_unit final_unit;
    struct dit_block_params *blocks; /* [layers] */
};

/* What the kernels read beside tensors: one block of memory on the host, one with the same layout on the device. */
struct dit_index {
    struct ops_sample *samples; /* [n] */
    double *fps, *c_noise, *loss; /* [n] */
    int32_t *sample, *pos;      /* [s], [s, 3] */
    int32_t *q_start, *q_len;   /* [n + 1], [n]: tokens of each sample */
    int32_t *k_start, *k_len;   /* [n]: text rows of each sample */
};

/* What dit_step and dit_forward have in common of a sample. */
struct dit_view {
    const float *cond, *text;
    int32_t t, h, w, text_len;
    double fps;
    bool null_text; /* the coin, or the caller, drops the caption */
};

/* The micro-batch in hand. */
struct dit_extent {
    int64_t n, s, cells, text; /* samples, tokens, latent cells, text rows */
    int64_t null_rows;         /* text rows 0 .. null_rows-1 are the null token */
    int64_t max_q, max_k;      /* longest segment of tokens, of text */
};

struct dit {
    struct dit_config c;
    const struct model *m;
    struct ops *o;
    struct dev *dev;
    struct dev_stream *stream;
    void *weights, *grads, *arena;
    struct buffer_list plan;
    struct dit_params p;
    struct dit_index host, device;
    void *host_block, *device_block;
    struct dit_view *views; /* [max_samples] */
    struct dit_extent now;
    double *sample_loss, *sample_level; /* [max_samples] */
    double *sample_w, *sample_out;      /* [max_samples] the objective's w and c_out */
    double beta;          /* of weight gradients: 0 overwrites, 1 accumulates */
    struct dev_event *event[4]; /* start, staged, forward done, backward done */
    int64_t head_dim, q_width, kv_width; /* d, H d, K d */
    enum ops_act_kind mlp_act;
};

/* A block's buffers are indexed by layer; with full recompute one copy serves all layers. `rows`: of the micro-batch. */
struct tensor dit_buffer(const struct dit *d, enum dit_buffer id, int64_t copy, int64_t rows);
struct tensor dit_weight(const struct dit *d, int64_t param);
struct tensor dit_grad(const struct dit *d, int64_t param);
bool dit_has_cond(const struct dit *d);

/* y = x wᵀ; dx = dy w + beta · dx; dw = dyᵀ x, overwriting or accumulating as the step says. */
void dit_linear(struct dit *d, struct tensor x, int64_t param, struct tensor y);
void dit_linear_add(struct dit *d, struct tensor x, int64_t param, struct tensor y); /* y += x wᵀ */
void dit_linear_dx(struct dit *d, struct tensor dy, int64_t param, struct tensor dx, double beta);
void dit_linear_dw(struct dit *d, struct tensor dy, struct tensor x, int64_t param);

/* dit_params.c */
int dit_params_find(const struct model *m, const struct param_list *list, struct dit_params *out, struct err *err);
/* dit_batch.c: checks, lays out and uploads a micro-batch; fills d->now and the input buffers. */
int64_t dit_index_bind(struct dit_index *x, void *block, int64_t tokens, int64_t samples); /* returns bytes */
int dit_stage(struct dit *d, const struct batch *b, struct err *err);
int dit_stage_eval(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err);
void dit_fetch_eval(struct dit *d, const struct dit_eval_sample *samples, int64_t n);
/* dit_cond.c: from noise level and frame rate to the modulation of every layer, and back. */
void dit_cond_fwd(struct dit *d);
void dit_cond_bwd_start(struct dit *d);
void dit_mod_bwd(struct dit *d, const struct mod_unit *units, int64_t n_units, struct tensor low, struct tensor dmod);
void dit_cond_bwd(struct dit *d);
/* dit_block.c, dit_block_bwd.c */
void dit_block_fwd(struct dit *d, int64_t layer);    /* from the block before (layer 0: from DIT_X 0) */
void dit_block_again(struct dit *d, int64_t layer);  /* from the kept DIT_X of the layer: recompute */
void dit_close_block(struct dit *d, int64_t layer, struct tensor x_out, struct tensor y, struct tensor shift,
                     struct tensor scale); /* x_out = residual + gate · MLP of `layer`, and the next norm */
void dit_block_bwd(struct dit *d, int64_t layer);    /* DIT_DX: from the block's output to its input */
/* Pieces that backward makes again. */
void dit_norm_again(struct dit *d, struct tensor x, int64_t layer, int64_t sub);
void dit_qk_again(struct dit *d, int64_t layer);
void dit_cross_qk_again(struct dit *d, int64_t layer);
struct tensor dit_mod(const struct dit *d, int64_t layer, int64_t sub, int64_t chunk); /* chunk: 0 shift, 1 scale, 2 gate */
struct ops_attn dit_self_attn(const struct dit *d, int64_t layer);
struct ops_attn dit_cross_attn(const struct dit *d, int64_t layer);
struct ops_headnorm dit_headnorm(const struct dit *d, struct tensor src, struct tensor dst, int64_t gain, struct tensor rstd,
                                 bool positions);

/* Sub-blocks in the order of the modulation's columns; without text, MLP stands second. */
static inline int64_t dit_sub_mlp(const struct dit *d) { return model_has_cross(d->m) ? 2 : 1; }

#endif
