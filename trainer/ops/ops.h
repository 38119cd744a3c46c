/* ops: declares the arithmetic of the trainer as one table of calls. Each call is large enough to
 * be a fused kernel on a GPU and small enough to be checked on a CPU.
 *
 * The model calls only this table and knows neither the backend nor the number format. A tensor
 * carries its dtype, and the table says which dtype each class of tensor has (`act`: activations
 * and compute weights; `stat`: statistics, losses, modulation gradients, weight gradients,
 * optimizer state). The CPU tables have act = stat = f64 (the oracle) or f32, or act = bf16 and
 * stat = f32.
 *
 * With bf16, arithmetic is done in f32. Numbers are widened exactly, and each result is rounded
 * once, to nearest even, when it is stored; no partial sum is rounded to bf16. (The exception is
 * attention by a GPU's library, `narrow_attn`: it rounds P and dS to bf16 before it multiplies with
 * them.) With beta or an accumulate flag the old value is read as stored, that is, already rounded.
 * In such a table a tensor of the class act may also be f32: products, activations, norms and
 * learned tables accept either type for each tensor separately. Tensors marked stat are f32.
 *
 * Every call takes the table, a stream and one struct of arguments, which is read before the call
 * returns. Calls queue work and do not fail: the next stream_sync returns the device's errors.
 * Wrong shapes are broken invariants. Optional tensors have ptr NULL. The same inputs always give
 * the same results, whatever the thread or repetition: every sum has a fixed order. There is one
 * exception: where a GPU's library adds up dq of attn_bwd, the order varies. `deterministic`
 * forbids that.
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
    /* Bounds 3 · width of rows that are summed by sample, or for the gradient of a gain. */
    OPS_ROW_MAX = 1 << 16,
};

/* GELU by erf is the reference for the plain MLP. cuBLASLt could fuse only the tanh form, which is
 * not done (trainer/cuda/gemm.h). SWIGLU is silu(gate) * up. */
enum ops_act_kind {
    OPS_ACT_NONE, OPS_ACT_SILU, OPS_ACT_GELU_ERF, OPS_ACT_GELU_TANH, OPS_ACT_SWIGLU
};

/* Computes c [m, n] = act(alpha · op(a) [m, k] · op(b) [k, n] + beta · c), where op(x) is x or its
 * transpose. An act needs beta 0. A linear layer y = x Wᵀ is {.a = x, .b = W, .tb = true}. `aux`
 * [m, n], if present, stores the value before act. c is then act of the number as aux stores it, so
 * that act_fwd of aux gives the same c. With beta 0, c is never read. */
struct ops_gemm {
    struct tensor a, b, c;
    bool ta, tb;
    double alpha, beta;
    enum ops_act_kind act; /* not SWIGLU */
    struct tensor aux;
};

/* Holds the segment arrays of ops_attn, by the same names, in the host's memory. */
struct ops_segments { const int32_t *q_start, *k_start, *k_len, *k_all; };

/* Computes softmax attention over packed segments: queries q_start[i] .. q_start[i+1]-1 attend to
 * keys k_start[i] .. k_start[i]+k_len[i]-1 and no others. o = softmax(scale · q kᵀ) v; lse = log
 * sum exp of the scaled logits. With k_len 0: o = 0, lse = -inf, and there is no gradient. With
 * grouped queries, head h reads kv head h / (H / K).
 *
 * k_all, if not NULL, gives the total number of keys of each segment, of which this call has a part
 * (ring attention); NULL means that k_len is the total. The attention of a segment with one key in
 * total does not depend on the logits: dq and that key's dk are then exactly 0, without the
 * rounding error of a difference.
 *
 * uneven says that the lengths of key segments differ from call to call, as with captions.
 *
 * `host` has the same four arrays in the host's memory, so that a device can choose kernels by the
 * lengths of segments without reading device memory. They are borrowed for the call and required if
 * n > 0.
 *
 * Backward needs o, lse and d_o; the key ranges of two segments must not overlap. The accumulate
 * flags add to the contents of dq, or of dk and dv (ring attention). Without them every row of
 * every segment is written, and rows outside segments are not changed. */
struct ops_attn {
    struct tensor q, k, v;  /* [s, H d], [keys, K d], [keys, K d] */
    struct tensor o;        /* [s, H d] */
    struct tensor lse;      /* [s, H] stat */
    int64_t n;              /* segments */
    const int32_t *q_start;         /* [n + 1] */
    const int32_t *k_start, *k_len; /* [n] */
    const int32_t *k_all;           /* [n]; NULL: k_len */
    struct ops_segments host;
    int64_t max_q, max_k;           /* upper bounds of a segment's lengths */
    int64_t heads, kv_heads, head_dim;
    double scale;
    struct tensor d_o, dq, dk, dv; /* backward */
    struct tensor delta;           /* [s, H] stat, workspace of backward */
    bool accumulate_dq, accumulate_dkv;
    bool uneven;
};

/* Merges two partial attentions over disjoint keys into o and lse. The weights are exp(lse -
 * lse_total). */
struct ops_lse_merge {
    struct tensor o, lse; /* [s, H d], [s, H]: in and out */
    struct tensor o_part, lse_part;
    int64_t heads, head_dim;
};

/* Computes gate, residual, norm and modulation of AdaLN in one call. With m = sample[row]:
 *
 *     x_out = x + gate[m] * branch     (branch absent: x_out = x; gate absent: gate 1)
 *     y = (x_out - mean) · rstd · (1 + scale[m]) + shift[m]
 *                                      (scale and shift absent: plain norm; y absent: none)
 *
 * Mean and variance are over the row: LayerNorm without learned affine parameters. With `rms` the
 * mean is taken as 0, which is RMSNorm. x_out must not overlap x; it may be absent. The norm is
 * computed from x_out as stored, so that recomputing it from x_out gives the same bits.
 *
 * Backward: dx holds the gradient of x_out from later layers, and the norm's gradient is added to
 * it; the sum is also the gradient of x (dy absent: there is no norm, dx does not change). dbranch
 * = gate[m] * dx. Over the rows of sample m, dshift[m] = sum dy, dscale[m] = sum dy · norm and
 * dgate[m] = sum dx · branch; they are overwritten, not added to. Backward reads x_out and stats.
 *
 * The rows of sample m are row_start[m] .. row_start[m+1]-1; there may be none. `sample` gives the
 * sample of each row, in agreement. `host_row_start` is row_start in the host's memory, borrowed
 * for the call. If n > 0, all three are required. */
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

/* Computes the RMS norm of each head with a learned gain [d], then applies rotary positions: pair
 * (j, j + d/2) is rotated by the angle whose cosine and sine are in column j of cos and sin
 * (absent: no rotation). With heads 1 and d = D it is a norm of whole rows. Backward computes dsrc
 * from ddst (they may share memory), and dgain = the gain's gradient, summed over rows and heads, +
 * beta · dgain. */
struct ops_headnorm {
    struct tensor src, dst;  /* [s, heads · d] */
    int64_t heads, head_dim;
    struct tensor gain;      /* [1, d] */
    struct tensor rstd;      /* [s, heads] stat */
    struct tensor cos, sin;  /* [s, d/2] stat */
    double eps;
    struct tensor ddst, dsrc;
    struct tensor dgain;     /* [1, d] stat; absent: not computed */
    double beta;
};

/* Computes cosines and sines of 3D rotary positions. The d/2 pairs of a head are pairs_t for time,
 * pairs_h for height and pairs_w for width, in that order. Pair j of an axis with p pairs has
 * frequency theta^(-j/p). Time is measured in frames at 24 frames a second: index · 24 / fps. */
struct ops_rope {
    const int32_t *pos;    /* [s, 3] token's place t, h, w in its sample */
    const int32_t *sample; /* [s] */
    const double *fps;     /* [n] */
    int64_t pairs_t, pairs_h, pairs_w;
    double theta;
    struct tensor cos, sin; /* [s, d/2] stat */
};

/* Computes y = act(x). For SWIGLU, x [rows, 2 F] holds gate, then up, and y is [rows, F]. Backward
 * computes dx from dy and x (dx may share dy's memory except for SWIGLU). If y is present there, it
 * is recomputed. */
struct ops_act {
    enum ops_act_kind kind;
    struct tensor x, y;
    struct tensor dy, dx;
};

struct ops_colsum {
    struct tensor x, out; /* [rows, cols], [1, cols] stat */
    double beta;          /* out = sum + beta · out */
};

/* Describes one sample of a micro-batch to the kernels; the array is in device memory. The
 * network's input is in_data · latent + in_noise · noise, its target out_data · latent + out_noise
 * · noise (objective.h). */
struct ops_sample {
    int64_t token, n_tokens; /* first row and number of rows in this micro-batch */
    /* These rows are tokens first .. first+n_tokens-1 of the sample, in (t, h, w) order of its
     * patches. */
    int64_t first;
    /* The sample's latent [C, t, h, w] begins at element cell · C of latent and noise buffers. */
    int64_t cell;
    int32_t t, h, w; /* extents in latent cells */
    /* The first valid_t, valid_h, valid_w cells count in the loss; the rest is padding. */
    int32_t valid_t, valid_h, valid_w;
    uint64_t ordinal;
    double in_data, in_noise, out_data, out_noise;
    double weight;   /* of its squared error */
    double inv_norm; /* factor of the loss, the same for all samples of the step */
};

/* Holds the arguments of the calls between latents and tokens. The columns of a token are ordered
 * by channel, then by t, h, w within the patch (w fastest). */
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
    /* The loss computes the error e = tokens - target, loss[i] = sum e² of sample i, without
     * weight, and dtokens = 2 · weight · inv_norm · e. In padding e = 0, whatever tokens holds. */
    struct tensor dtokens;
    double *loss; /* [n] in device memory */
};

/* Fills out with standard normal numbers: element j of sample i's latent is
 * philox_normal_at(seed, stream, ordinal, j). */
struct ops_normal {
    const struct ops_sample *samples;
    int64_t n, channels, cells;
    uint64_t seed;
    enum philox_stream stream;
    struct tensor out; /* [1, cells · C] stat, or longer */
};

/* Draws initial weights: element j of out is `scale` times 1, times a standard normal number, or
 * times a number uniform in (-1, 1). The random number is that of element first + j of (seed,
 * PHILOX_INIT, ordinal). For bf16 it is rounded to f32 first, so that a bf16 weight equals its f32
 * master rounded to bf16. */
enum ops_draw_kind { OPS_DRAW_ONE, OPS_DRAW_NORMAL, OPS_DRAW_UNIFORM };
struct ops_draw {
    struct tensor out; /* [1, count] */
    enum ops_draw_kind kind;
    double scale;
    uint64_t seed, ordinal, first;
};

/* Computes out[i] = cos(v f_j) in the first half of the columns and sin(v f_j) in the second, where
 * v = values[i], f_j = 10000^(-j / half), half = width / 2 rounded down. An odd last column is
 * 0. */
struct ops_sinusoid {
    const double *values; /* [n] */
    struct tensor out;    /* [n, width] */
};

/* Holds the numbers of an update that change from step to step. It is in device memory, so that a
 * captured graph stays valid. */
struct ops_step {
    double lr;
    double bias1, bias2; /* 1 - beta1^t, 1 - beta2^t, t from 1 */
    double grad_scale;   /* clip factor */
    uint64_t update;     /* t: selects the random numbers of the rounding */
    int32_t skip;        /* not 0: do not update anything */
    int32_t reserved;
};

/* Describes a span of elements of one model tensor that is contiguous in every buffer. Offsets are
 * in elements: `grad` in the gradients, `state` in m, v and ema, and so on.
 *
 * Element j has, in the whole model, the number first + j + (col + j) / row · skip. That is, rows
 * of the tensor have row + skip elements, of which this rank has `row`, and the span begins at
 * column `col` of a row. row 0 means that the numbers are consecutive. */
struct ops_adamw_span {
    int64_t grad, master, state, weight;
    int64_t n;
    int64_t counted; /* this many elements, from the first, are added to ops_change */
    uint64_t first;
    int64_t col, row, skip;
    double weight_decay, lr_scale;
};

/* Holds sums of squares: of the weights before an update, and of the changes it makes. */
struct ops_change { double weight_sumsq, update_sumsq; };

/* Does AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2) on a
 * table of spans, such as those of a unit: g = grad_scale · grad; m and v are updated; master -= lr
 * · lr_scale · (m̂ / (sqrt(v̂) + eps) + weight_decay · master); ema = ema_decay · ema + (1 -
 * ema_decay) · master; weight = master in weight's dtype. Elements outside the spans do not change.
 *
 * m and v may be bf16. They are then computed in the same way and rounded stochastically
 * (base/bf16.h). The random bits of element number e are half of word e mod 4 of philox_at(seed,
 * PHILOX_ROUND, update, e / 4): the low half for m, the high half for v.
 *
 * `host_spans` is the same table in the host's memory, from which launch sizes are computed. It is
 * borrowed for the call. */
struct ops_adamw {
    const struct ops_step *step;
    const struct ops_adamw_span *spans, *host_spans; /* [n] */
    int64_t n;
    struct tensor grad, master, m, v; /* [1, elements] stat, whole buffers; m and v may be bf16 */
    struct tensor ema, weight;        /* optional; weight may be master's memory */
    uint64_t seed;                    /* of the rounding */
    double beta1, beta2, eps, ema_decay;
    /* The squares of each span's first `counted` elements are added to it, in device memory. NULL:
     * no span has such elements. */
    struct ops_change *change;
};

/* Holds the sum of squares of the finite values of a tensor and the number of the other values. */
struct ops_health {
    double sumsq;
    int64_t nonfinite;
};
struct ops_sumsq {
    struct tensor x;
    struct ops_health *out; /* device memory */
    bool accumulate;        /* adds to *out */
};

/* Adds to *bad the number of elements that are not finite, for a tensor of any type. */
struct ops_finite {
    struct tensor x;
    int64_t *bad; /* device memory */
};

/* Reorders rows: dst row i = src row index[i]; with `back`, dst row index[i] = src row i. The index
 * is a permutation. dst must not overlap src and has the same type. */
struct ops_permute {
    struct tensor src, dst;
    const int32_t *index; /* [rows] */
    bool back;
};

/* Adds rows of a learned table: x row i += table row index[i · stride]. Backward computes dtable
 * row k = the sum of the dx rows i whose index is k, + beta · dtable. */
struct ops_table {
    const int32_t *index;
    int64_t stride;
    struct tensor x, table;   /* [s, D], [rows, D] */
    struct tensor dx, dtable; /* [s, D], [rows, D] stat */
    double beta;
};

/* Copies between any two of f64, f32 and bf16; a single source row is repeated. axpy: y += alpha ·
 * x, computed in f64 if x or y has a type that the table does not use. */
struct ops_copy { struct tensor src, dst; };
struct ops_axpy { struct tensor x, y; double alpha; };

/* Lists every operation: X(name, arguments). The calls of struct ops, their CPU implementations
 * (op_NAME), what meter.h measures and what scan.h scans are made from this list. If an operation
 * is missing from one of these, the program does not compile. */
#define OPS_LIST(X) \
    X(gemm, ops_gemm) X(attn_fwd, ops_attn) X(attn_bwd, ops_attn) X(lse_merge, ops_lse_merge) \
    X(adaln_fwd, ops_adaln) X(adaln_bwd, ops_adaln) X(headnorm_fwd, ops_headnorm) \
    X(headnorm_bwd, ops_headnorm) X(rope, ops_rope) X(act_fwd, ops_act) X(act_bwd, ops_act) \
    X(colsum, ops_colsum) X(patchify, ops_latents) X(unpatchify, ops_latents) \
    X(loss, ops_latents) X(normal, ops_normal) X(draw, ops_draw) X(sinusoid, ops_sinusoid) \
    X(adamw, ops_adamw) X(sumsq, ops_sumsq) X(finite, ops_finite) X(copy, ops_copy) \
    X(axpy, ops_axpy) X(permute, ops_permute) \
    X(table_fwd, ops_table) X(table_bwd, ops_table)

/* Says why the library (cuDNN) does not compute a call of attention, so that our own kernels do. */
enum ops_attn_own {
    OPS_ATTN_TAKEN,       /* the library computes it */
    OPS_ATTN_TYPES,       /* q, k, v or dO is not bf16, or another tensor's type is not supported */
    OPS_ATTN_HEAD_DIM,    /* the head dim is no multiple of 8, or more than 256 */
    OPS_ATTN_ALIGNMENT,   /* a tensor's rows do not begin at multiples of 16 bytes */
    OPS_ATTN_SEGMENTS,    /* no segment is worth a call of the library */
    OPS_ATTN_ORDER,       /* key ranges overlap or are out of order; backward: have gaps */
    OPS_ATTN_ORDER_OF_DQ, /* deterministic, but the library sums dq in f32 in any order */
    OPS_ATTN_ENGINE,      /* the library has no engine for the class */
    OPS_ATTN_ROOM,        /* the library needs more workspace than it is allowed */
    OPS_ATTN_REASONS
};

/* Counts the library's plans for attention, one for each class of calls. `made`: announced by
 * attn_plan. `late`: made when an unannounced call came. `used`: plans of both kinds that have
 * computed something. `own`: calls that our own kernels computed, by reason. They are counted when
 * they are queued, so a call in a graph counts once, at the capture. */
struct ops_attn_plans {
    int64_t made, late, used, own[OPS_ATTN_REASONS];
    int64_t bytes; /* the largest device workspace that an announced call needs */
};

struct scan;
struct ops {
    const char *name;        /* "cpu-f64" */
    struct dev *dev;         /* borrowed; outlives the table */
    enum dtype act, stat;
    int64_t workspace_bytes; /* allocated so far: by opening, and by attn_reserve */
    bool deterministic;      /* set by the caller after opening; see the top of this file */
    bool narrow_attn;        /* see the top of this file */
    /* Announces a later call of attn_fwd or attn_bwd, before anything is computed, so that slow
     * preparations are done now. It reads the types, strides and address alignment of the tensors,
     * and the segments in the host's memory. An unannounced call is computed in the same way; its
     * plan is made when it comes. ERR_ENV: the library failed. NULL: the table needs no plans. */
    int (*attn_plan)(struct ops *o, const struct ops_attn *a, bool backward, struct err *err);
    /* Allocates the workspace of all announced calls; steps then allocate no more. Returns
     * ERR_NOMEM if memory runs out. */
    int (*attn_reserve)(struct ops *o, struct dev_stream *s, struct err *err);
    struct ops_attn_plans attn_plans;
    void *self;              /* the backend's context */
    /* Is called between parts of products and of attention by a table that computes within its
     * calls, so that messages progress meanwhile. NULL: not called. */
    void (*tick)(void *ctx);
    void *tick_ctx;
    /* The model sets these, for scan.h and profilers: the layer that is being computed, 0.. or
     * PARAM_LAYER_*, and whether its backward is computed. */
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
 * bf16: ERR_INPUT) loads libopenblas at run time and sets it to one thread; if there is none,
 * ERR_ENV says what to install. The promise of equal results holds for our own GEMM only.
 * o->close closes the table. */
int ops_cpu_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out,
                 struct err *err);

#ifdef __cplusplus
}
#endif
#endif
