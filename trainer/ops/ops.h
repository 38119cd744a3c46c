/* ops: the arithmetic of the trainer as one table of calls, at the granularity that a GPU wants
 * fused and a CPU can check.
 *
 * The model is written over this table and knows neither the backend nor the number format: a
 * tensor carries its dtype, and the table says which dtype each class of tensor has (`act`:
 * activations and compute weights; `stat`: statistics, losses, modulation gradients, weight
 * gradients, optimizer state). The CPU tables have act = stat = f64 (the oracle) or f32, or act =
 * bf16 and stat = f32.
 *
 * With bf16, arithmetic is f32's: numbers are widened exactly, and each result is rounded once, to
 * nearest even, when it is stored; no sum passes through bf16 on its way. (Attention by a GPU's
 * library is `narrow_attn`: it rounds P and dS to bf16 before it multiplies with them.) With beta
 * or an accumulate flag the old value is read back as stored, that is, already rounded. A tensor of
 * the class act may then also be of f32: products, activations, norms and tables take either
 * wherever they take tensors, each tensor on its own; those marked stat are f32.
 *
 * Every call takes the table, a stream and one struct of arguments, which is read before the call
 * returns. Calls queue work; they do not fail: errors of a device come with the next stream_sync.
 * Wrong shapes are broken invariants. Optional tensors have ptr NULL. All results are the same for
 * the same inputs whatever the thread or repetition: every sum has a fixed order. There is one
 * exception, dq of attn_bwd where a GPU's library adds it up; `deterministic` forbids that, too.
 *
 * Letters: s tokens of the micro-batch, n samples, D hidden, H heads, K kv_heads, d head dim, C
 * latent channels, P cells of a patch. Index arrays are int32 in device memory.
 */
#ifndef TRAINER_OPS_OPS_H
#define TRAINER_OPS_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/philox.h"
#include "trainer/dev/dev.h"
#include "trainer/dev/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    OPS_HEAD_DIM_MAX = 256, /* bounds the attention tiles */
    /* Bounds 3 · width of the rows whose sums, by sample or of a gain, are kept while summing. */
    OPS_ROW_MAX = 1 << 16,
};

/* GELU by erf is the reference for the plain MLP; the tanh form is what cuBLASLt fuses. SWIGLU is
 * silu(gate) * up. */
enum ops_act_kind {
    OPS_ACT_NONE, OPS_ACT_SILU, OPS_ACT_GELU_ERF, OPS_ACT_GELU_TANH, OPS_ACT_SWIGLU
};

/* Computes c [m, n] = act(alpha · op(a) [m, k] · op(b) [k, n] + beta · c), where op(x) is x or its
 * transpose; an act needs beta 0. A linear layer y = x Wᵀ is {.a = x, .b = W, .tb = true}. `aux`
 * [m, n] takes the value before act, and c is then act of what aux holds, so that act_fwd of aux
 * makes the same c. With beta 0 c is never read. */
struct ops_gemm {
    struct tensor a, b, c;
    bool ta, tb;
    double alpha, beta;
    enum ops_act_kind act; /* not SWIGLU */
    struct tensor aux;
};

/* The host knows these arrays of segments; they are those of ops_attn with the same names. */
struct ops_segments { const int32_t *q_start, *k_start, *k_len, *k_all; };

/* Softmax attention over packed segments: queries q_start[i] .. q_start[i+1]-1 see keys k_start[i]
 * .. + k_len[i]-1 and nothing else. o = softmax(scale · q kᵀ) v; lse = log sum exp of the scaled
 * logits. With k_len 0: o = 0, lse = -inf and no gradient. Grouped queries: head h reads kv head h
 * / (H / K).
 *
 * k_all, where it is not NULL, is the number of keys that each segment has wherever they stand;
 * those of this call are a part of them. A query that sees one key alone does not depend on it: its
 * dq and that key's dk are exactly 0, and not what rounding leaves of a difference.
 *
 * uneven: the lengths of keys differ from call to call, as those of captions do.
 *
 * `host` has the same four arrays in the host's memory, so that a device chooses its kernels by the
 * lengths of segments without reading its memory. They are borrowed for the call, and n > 0 wants
 * them.
 *
 * Backward needs o, lse and d_o, and there the key ranges of two segments must not overlap. The
 * accumulate flags add to what dq, or dk and dv, hold (ring attention). Without them every row of
 * every segment is written, and rows outside segments are left alone. */
struct ops_attn {
    struct tensor q, k, v;  /* [s, H d], [keys, K d], [keys, K d] */
    struct tensor o;        /* [s, H d] */
    struct tensor lse;      /* [s, H] stat */
    int64_t n;              /* segments */
    const int32_t *q_start;         /* [n + 1] */
    const int32_t *k_start, *k_len; /* [n] */
    const int32_t *k_all;           /* [n]; NULL: k_len */
    struct ops_segments host;
    int64_t max_q, max_k;           /* bounds of a segment's lengths */
    int64_t heads, kv_heads, head_dim;
    double scale;
    struct tensor d_o, dq, dk, dv; /* backward */
    struct tensor delta;           /* [s, H] stat, working */
    bool accumulate_dq, accumulate_dkv;
    bool uneven;
};

/* Makes one of two partial attentions over disjoint keys, in o and lse. The weights are exp(lse -
 * lse_total). */
struct ops_lse_merge {
    struct tensor o, lse; /* [s, H d], [s, H]: in and out */
    struct tensor o_part, lse_part;
    int64_t heads, head_dim;
};

/* Gate, residual, norm and modulation of AdaLN in one pass. With m = sample[row]:
 *
 *     x_out = x + gate[m] * branch     (branch absent: x_out = x; gate absent: gate 1)
 *     y = (x_out - mean) · rstd · (1 + scale[m]) + shift[m]
 *                                      (scale and shift absent: plain norm; y absent: none)
 *
 * Mean and variance are over the row: LayerNorm without affine. With `rms` the mean is 0: RMSNorm.
 * x_out is other memory than x, or absent. The norm is that of x_out as it is stored, so that it
 * has the same bits when it is made again from x_out.
 *
 * Backward: dx holds the gradient that reaches x_out from later layers and gets the whole one,
 * which is also that of x (dy absent: no norm, dx stays); dbranch = gate[m] * dx; over the rows of
 * sample m, dshift[m] = sum dy, dscale[m] = sum dy · norm and dgate[m] = sum dx · branch are
 * written, not added. It reads x_out and stats.
 *
 * The rows of sample m are row_start[m] .. row_start[m+1]-1; there may be none. `sample` says the
 * same row by row. `host_row_start` is row_start in the host's memory, borrowed for the call.
 * n > 0 wants all three. */
struct ops_adaln {
    const int32_t *sample;                     /* [s] */
    const int32_t *row_start, *host_row_start; /* [n + 1], from 0 to s */
    int64_t n;
    struct tensor x, branch, x_out, y; /* [s, D] */
    struct tensor gate, shift, scale;  /* [n, D] */
    struct tensor stats;               /* [s, 2] stat: mean, rstd; written forward, read backward */
    double eps;
    bool rms;
    struct tensor dy, dx, dbranch;       /* [s, D] */
    struct tensor dgate, dshift, dscale; /* [n, D] stat */
};

/* RMS norm of each head with a learned gain [d], then rotary positions: pair (j, j + d/2) is turned
 * by the angle whose cosine and sine stand in column j of cos and sin (absent: no positions). With
 * heads 1 and d = D it is a norm of rows. Backward: dsrc from ddst (may be the same memory); dgain
 * = its column sums + beta · dgain. */
struct ops_headnorm {
    struct tensor src, dst;  /* [s, heads · d] */
    int64_t heads, head_dim;
    struct tensor gain;      /* [1, d] */
    struct tensor rstd;      /* [s, heads] stat */
    struct tensor cos, sin;  /* [s, d/2] stat */
    double eps;
    struct tensor ddst, dsrc;
    struct tensor dgain;     /* [1, d] stat; absent: not wanted */
    double beta;
};

/* Angles of 3D rotary positions: the d/2 pairs of a head are pairs_t for time, pairs_h, pairs_w, in
 * that order. Pair j of an axis with p pairs has frequency theta^(-j/p). Time counts at 24 frames a
 * second: index · 24 / fps. */
struct ops_rope {
    const int32_t *pos;    /* [s, 3] token's place t, h, w in its sample */
    const int32_t *sample; /* [s] */
    const double *fps;     /* [n] */
    int64_t pairs_t, pairs_h, pairs_w;
    double theta;
    struct tensor cos, sin; /* [s, d/2] stat */
};

/* y = act(x). SWIGLU: x [rows, 2 F] holds gate then up, y is [rows, F]. Backward: dx from dy and x
 * (dx may be dy's memory except for SWIGLU); y, when given, is written again. */
struct ops_act {
    enum ops_act_kind kind;
    struct tensor x, y;
    struct tensor dy, dx;
};

struct ops_colsum {
    struct tensor x, out; /* [rows, cols], [1, cols] stat */
    double beta;          /* out = sum + beta · out */
};

/* One sample of a micro-batch as the kernels see it; the array lies in device memory. The network's
 * input is in_data · latent + in_noise · noise, its target out_data · latent + out_noise · noise
 * (objective.h). */
struct ops_sample {
    int64_t token, n_tokens; /* its rows here */
    /* These rows are tokens first .. first+n_tokens-1 of the sample, in (t, h, w) order of its
     * patches. */
    int64_t first;
    /* Its first latent cell: element cell · C of the latent and noise buffers, [C, t, h, w]. */
    int64_t cell;
    int32_t t, h, w; /* latent cells */
    /* The first valid_t, valid_h, valid_w of these count in the loss; the rest is padding. */
    int32_t valid_t, valid_h, valid_w;
    uint64_t ordinal;
    double in_data, in_noise, out_data, out_noise;
    double weight;   /* of its squared error */
    double inv_norm; /* the loss is divided by the inverse of this, the same for all samples */
};

/* The calls between latents and tokens share these. Columns of a token: channel, then patch t, h, w
 * (fastest last). */
struct ops_latents {
    const struct ops_sample *samples; /* [n] */
    int64_t n, channels, cond_channels;
    int64_t cells; /* of all samples together; the buffers may be longer */
    int64_t patch_t, patch_h, patch_w;
    struct tensor latent, noise; /* [1, cells · C] stat */
    struct tensor cond;          /* [1, cells · cond_channels] stat; absent: zeros */
    /* patchify writes [s, (C + cond) P]; unpatchify and loss read [s, C P]. */
    struct tensor tokens;
    struct tensor out;           /* unpatchify: [1, cells · C] stat */
    /* Loss: error e = tokens - target; loss[i] = sum e² of sample i, without weight; dtokens = 2 ·
     * weight · inv_norm · e; in padding e = 0, whatever stands there. */
    struct tensor dtokens;
    double *loss; /* [n] in device memory */
};

/* Standard normals: element j of sample i's latent is philox_normal_at(seed, stream, ordinal,
 * j). */
struct ops_normal {
    const struct ops_sample *samples;
    int64_t n, channels, cells;
    uint64_t seed;
    enum philox_stream stream;
    struct tensor out; /* [1, cells · C] stat, or longer */
};

/* First weights: element j of out is `scale` times 1, or times a standard normal number, or times
 * one that is uniform in (-1, 1); the numbers are those of element first + j of (seed, PHILOX_INIT,
 * ordinal). Numbers of bf16 are rounded by way of f32: they are what their masters round to. */
enum ops_draw_kind { OPS_DRAW_ONE, OPS_DRAW_NORMAL, OPS_DRAW_UNIFORM };
struct ops_draw {
    struct tensor out; /* [1, count] */
    enum ops_draw_kind kind;
    double scale;
    uint64_t seed, ordinal, first;
};

/* out[i] = cos(v f_j) for the first half of the columns, sin(v f_j) for the rest, with f_j =
 * 10000^(-j / half), half = width / 2 rounded down. An odd last column is 0. */
struct ops_sinusoid {
    const double *values; /* [n] */
    struct tensor out;    /* [n, width] */
};

/* The numbers that change from step to step lie in device memory, so that a captured graph stays
 * valid. */
struct ops_step {
    double lr;
    double bias1, bias2; /* 1 - beta1^t, 1 - beta2^t, t from 1 */
    double grad_scale;   /* clip factor */
    uint64_t update;     /* t: the draw of the rounding */
    int32_t skip;        /* not 0: change nothing */
    int32_t reserved;
};

/* Elements of one tensor of the model that follow one another in every buffer. The places are in
 * elements: `grad` of the gradients, `state` of m, v and ema, and so on.
 *
 * Element j has, in the whole model, the number first + j + (col + j) / row · skip: the tensor's
 * rows are of row + skip numbers, of which `row` are here, and the span begins at col of one. row
 * 0: all numbers follow one another. */
struct ops_adamw_span {
    int64_t grad, master, state, weight;
    int64_t n;
    int64_t counted; /* the first so many go into ops_change */
    uint64_t first;
    int64_t col, row, skip;
    double weight_decay, lr_scale;
};

/* Sums of squares of the weights before an update, and of what it changes. */
struct ops_change { double weight_sumsq, update_sumsq; };

/* AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2) on a table of
 * spans, such as a unit's: g = grad_scale · grad; m and v are updated; master -= lr · lr_scale ·
 * (m̂ / (sqrt(v̂) + eps) + weight_decay · master); ema = ema_decay · ema + (1 - ema_decay) ·
 * master; weight = master in weight's own dtype. Elements outside the spans stay as they are.
 *
 * m and v may be bf16. They are then computed as the rest and rounded at random (base/bf16.h), for
 * an element of number e by a half of word e mod 4 of philox_at(seed, PHILOX_ROUND, update, e / 4):
 * the low half for m, the high one for v.
 *
 * `host_spans` is the same table in the host's memory, for the sizes of a launch. It is borrowed
 * for the call. */
struct ops_adamw {
    const struct ops_step *step;
    const struct ops_adamw_span *spans, *host_spans; /* [n] */
    int64_t n;
    struct tensor grad, master, m, v; /* [1, elements] stat, whole buffers; m and v may be bf16 */
    struct tensor ema, weight;        /* optional; weight may be master's memory */
    uint64_t seed;                    /* of the rounding */
    double beta1, beta2, eps, ema_decay;
    /* Device memory, to which what is counted is added, span by span. Optional if nothing is. */
    struct ops_change *change;
};

/* One read gives the sum of squares (of the finite values) and the count of the others. */
struct ops_health {
    double sumsq;
    int64_t nonfinite;
};
struct ops_sumsq {
    struct tensor x;
    struct ops_health *out; /* device memory */
    bool accumulate;        /* adds to *out */
};

/* Adds to *bad how many numbers of a tensor of any type are not finite. */
struct ops_finite {
    struct tensor x;
    int64_t *bad; /* device memory */
};

/* Rows in another order: dst row i = src row index[i]; with `back` dst row index[i] = src row i.
 * The index names every row once; dst is other memory than src, of the same type. */
struct ops_permute {
    struct tensor src, dst;
    const int32_t *index; /* [rows] */
    bool back;
};

/* Rows of a learned table by index: x row i += table row index[i · stride]. Backward: dtable row k
 * = the sum of the dx rows i with that index k, + beta · dtable. */
struct ops_table {
    const int32_t *index;
    int64_t stride;
    struct tensor x, table;   /* [s, D], [rows, D] */
    struct tensor dx, dtable; /* [s, D], [rows, D] stat */
    double beta;
};

/* Copy goes between any of f64, f32 and bf16; one source row is repeated. y += alpha · x is
 * computed in f64 when one of them is of a type that is not the table's. */
struct ops_copy { struct tensor src, dst; };
struct ops_axpy { struct tensor x, y; double alpha; };

/* Lists every operation: X(name, arguments). From this list come the calls of struct ops, their CPU
 * implementations (op_NAME), what meter.h measures and what scan.h looks at: one that is missing
 * from any of these does not compile. */
#define OPS_LIST(X) \
    X(gemm, ops_gemm) X(attn_fwd, ops_attn) X(attn_bwd, ops_attn) X(lse_merge, ops_lse_merge) \
    X(adaln_fwd, ops_adaln) X(adaln_bwd, ops_adaln) X(headnorm_fwd, ops_headnorm) \
    X(headnorm_bwd, ops_headnorm) X(rope, ops_rope) X(act_fwd, ops_act) X(act_bwd, ops_act) \
    X(colsum, ops_colsum) X(patchify, ops_latents) X(unpatchify, ops_latents) \
    X(loss, ops_latents) X(normal, ops_normal) X(draw, ops_draw) X(sinusoid, ops_sinusoid) \
    X(adamw, ops_adamw) X(sumsq, ops_sumsq) X(finite, ops_finite) X(copy, ops_copy) \
    X(axpy, ops_axpy) X(permute, ops_permute) \
    X(table_fwd, ops_table) X(table_bwd, ops_table)

/* Why a library does not compute a call of attention, so that own kernels do. */
enum ops_attn_own {
    OPS_ATTN_TAKEN,       /* it does */
    OPS_ATTN_TYPES,       /* q, k, v or dO is not bf16, or another is of a type that it has not */
    OPS_ATTN_HEAD_DIM,    /* is no multiple of 8, or more than 256 */
    OPS_ATTN_ALIGNMENT,   /* a tensor's rows do not begin at multiples of 16 bytes */
    OPS_ATTN_SEGMENTS,    /* there is none that it takes */
    OPS_ATTN_ORDER,       /* keys of its segments overlap, or go back; in backward, stand apart */
    OPS_ATTN_ORDER_OF_DQ, /* deterministic, and dq in f32, which it adds up in any order */
    OPS_ATTN_ENGINE,      /* it has none for the class */
    OPS_ATTN_ROOM,        /* it wants more memory than it may have */
    OPS_ATTN_REASONS
};

/* Plans by which a library computes attention, one for each class of calls. `made` are those of the
 * calls that attn_plan was told of; `late` are those of calls that came without. `used` of both
 * have computed something. `own` counts the calls, by reason, that were not the library's as they
 * were queued: those of a graph once, when it was recorded. */
struct ops_attn_plans {
    int64_t made, late, used, own[OPS_ATTN_REASONS];
    int64_t bytes; /* the most that a call wants of the device, of those that were told of */
};

struct scan;
struct ops {
    const char *name;        /* "cpu-f64" */
    struct dev *dev;         /* borrowed; outlives the table */
    enum dtype act, stat;
    int64_t workspace_bytes; /* taken so far: at opening, and by attn_reserve */
    bool deterministic;      /* the caller's wish, from opening on: see above */
    bool narrow_attn;        /* see above */
    /* Tells of a call of attn_fwd or attn_bwd that will come, before anything is computed: what
     * takes long is done. Of its tensors types, strides and the alignment of addresses are read,
     * of its segments what the host knows. A call that nobody told of is computed just so, and its
     * plan made then. ERR_ENV: the library failed. NULL: nothing takes long. */
    int (*attn_plan)(struct ops *o, const struct ops_attn *a, bool backward, struct err *err);
    /* Takes the memory of all that was told of; no more is needed in a step. ERR_NOMEM. */
    int (*attn_reserve)(struct ops *o, struct dev_stream *s, struct err *err);
    struct ops_attn_plans attn_plans;
    void *self;              /* the backend's own */
    /* A table whose calls run at once calls this between the parts of products and attention, so
     * that messages move meanwhile; NULL: it does not. */
    void (*tick)(void *ctx);
    void *tick_ctx;
    /* The model keeps here, for messages, its part that is at work, 0.. or PARAM_LAYER_*, and
     * whether that is in backward. */
    int64_t layer;
    bool backward;
    struct scan *scan; /* scan.h; NULL: not attached */

#define OPS_CALL(name, args) \
    void (*name)(struct ops *o, struct dev_stream *s, const struct args *a);
    OPS_LIST(OPS_CALL)
#undef OPS_CALL

    void (*close)(struct ops *o);
};

enum ops_blas { OPS_BLAS_OWN, OPS_BLAS_OPENBLAS };

/* Opens the CPU table whose act is f64, f32 or bf16 (else ERR_INPUT). OPS_BLAS_OPENBLAS (not for
 * bf16: ERR_INPUT) loads libopenblas at run time, set to one thread; ERR_ENV says what to install
 * when there is none. What is said of bits holds for the own GEMM only. o->close closes the
 * table. */
int ops_cpu_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out,
                 struct err *err);

#ifdef __cplusplus
}
#endif
#endif
