/* Elementwise calls for REAL: activations, column sums, copies, sinusoid, rotary angles, optimizer. */
#ifndef TRAINER_OPS_CPU_ELEM_IMPL_H
#define TRAINER_OPS_CPU_ELEM_IMPL_H

#include "base/bf16.h"
#include "trainer/math_impl.h"
#include "trainer/gemm_impl.h"

/* With e = exp(-x): s = 1 / (1 + e) is the logistic function and e s = 1 - s, without its cancellation near s = 1. Where e is near
 * the largest number, e x overflows and e s does not. */
static inline REAL silu(REAL x) { return x / (1 + real_exp(-x)); }
static inline REAL silu_slope(REAL x)
{
    REAL e = real_exp(-x), s = 1 / (1 + e);
    return s * (1 + x * (e * s));
}

static inline REAL gelu_erf(REAL x) { return (REAL)0.5 * x * (1 + real_erf(x * (REAL)0.70710678118654752440)); }
static inline REAL gelu_erf_slope(REAL x)
{
    REAL cdf = (REAL)0.5 * (1 + real_erf(x * (REAL)0.70710678118654752440));
    return cdf + x * (REAL)0.39894228040143267794 * real_exp((REAL)-0.5 * x * x);
}

/* (1 + tanh(u)) / 2 is the logistic function of 2u. */
static inline REAL gelu_tanh_exp(REAL x)
{
    REAL u = (REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x);
    return real_exp(-2 * u);
}
static inline REAL gelu_tanh(REAL x) { return x / (1 + gelu_tanh_exp(x)); }
static inline REAL gelu_tanh_slope(REAL x)
{
    REAL e = gelu_tanh_exp(x), s = 1 / (1 + e);
    REAL du = (REAL)0.79788456080286535588 * (1 + 3 * (REAL)0.044715 * x * x);
    return s + 2 * x * s * (e * s) * du;
}

/* Rows may be the same memory: element j is read before it is written, which ivdep promises the vectoriser. */
static void act_row(enum ops_act_kind kind, int64_t n, const REAL *x, REAL *y)
{
    switch (kind) {
    case OPS_ACT_NONE:
        if (y != x)
            memcpy(y, x, (size_t)n * sizeof *y);
        return;
    case OPS_ACT_SILU:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            y[j] = silu(x[j]);
        return;
    case OPS_ACT_GELU_ERF:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            y[j] = gelu_erf(x[j]);
        return;
    case OPS_ACT_GELU_TANH:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            y[j] = gelu_tanh(x[j]);
        return;
    case OPS_ACT_SWIGLU:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            y[j] = silu(x[j]) * x[n + j];
        return;
    }
}

static void act_row_bwd(enum ops_act_kind kind, int64_t n, const REAL *x, const REAL *dy, REAL *dx)
{
    switch (kind) {
    case OPS_ACT_NONE:
        if (dx != dy)
            memcpy(dx, dy, (size_t)n * sizeof *dx);
        return;
    case OPS_ACT_SILU:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            dx[j] = dy[j] * silu_slope(x[j]);
        return;
    case OPS_ACT_GELU_ERF:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            dx[j] = dy[j] * gelu_erf_slope(x[j]);
        return;
    case OPS_ACT_GELU_TANH:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++)
            dx[j] = dy[j] * gelu_tanh_slope(x[j]);
        return;
    case OPS_ACT_SWIGLU:
        _Pragma("GCC ivdep")
        for (int64_t j = 0; j < n; j++) {
            REAL gate = x[j], up = x[n + j];
            dx[j] = dy[j] * up * silu_slope(gate);
            dx[n + j] = dy[j] * silu(gate);
        }
        return;
    }
}

static void op_act_fwd(struct ops *o, struct dev_stream *s, const struct ops_act *a)
{
    (void)o, (void)s;
    BUG_ON(a->x.rows != a->y.rows || a->x.cols != a->y.cols * (a->kind == OPS_ACT_SWIGLU ? 2 : 1));
    for (int64_t i = 0; i < a->y.rows; i++)
        act_row(a->kind, a->y.cols, row_of(&a->x, i), row_of(&a->y, i));
}

static void op_act_bwd(struct ops *o, struct dev_stream *s, const struct ops_act *a)
{
    (void)o, (void)s;
    BUG_ON(a->x.rows != a->dy.rows || a->dx.rows != a->x.rows || a->dx.cols != a->x.cols);
    BUG_ON(a->x.cols != a->dy.cols * (a->kind == OPS_ACT_SWIGLU ? 2 : 1));
    for (int64_t i = 0; i < a->x.rows; i++) {
        if (a->y.ptr)
            act_row(a->kind, a->dy.cols, row_of(&a->x, i), row_of(&a->y, i));
        act_row_bwd(a->kind, a->dy.cols, row_of(&a->x, i), row_of(&a->dy, i), row_of(&a->dx, i));
    }
}

static void op_gemm(struct ops *o, struct dev_stream *s, const struct ops_gemm *g)
{
    (void)s;
    BUG_ON(g->act != OPS_ACT_NONE && g->beta != 0);
    gemm_product((struct ops_cpu *)o, g);
    if (g->act == OPS_ACT_NONE && !g->aux.ptr)
        return;
    for (int64_t i = 0; i < g->c.rows; i++) {
        if (g->aux.ptr)
            memcpy(row_of(&g->aux, i), row_of(&g->c, i), (size_t)g->c.cols * sizeof(REAL));
        act_row(g->act, g->c.cols, row_of(&g->c, i), row_of(&g->c, i));
    }
}

/* Partial sums of 64 rows at a time, so that rounding grows with the square root of far fewer terms. */
static void column_sums(const struct tensor *x, int64_t col, int64_t n, REAL *total, REAL *part)
{
    memset(total, 0, (size_t)n * sizeof *total);
    for (int64_t i0 = 0; i0 < x->rows; i0 += 64) {
        memset(part, 0, (size_t)n * sizeof *part);
        for (int64_t i = i0; i < x->rows && i < i0 + 64; i++) {
            const REAL *r = row_of(x, i) + col;
            for (int64_t j = 0; j < n; j++)
                part[j] += r[j];
        }
        for (int64_t j = 0; j < n; j++)
            total[j] += part[j];
    }
}

static void op_colsum(struct ops *o, struct dev_stream *s, const struct ops_colsum *a)
{
    (void)s;
    REAL *scratch = ((struct ops_cpu *)o)->rows;
    BUG_ON(a->out.cols != a->x.cols);
    for (int64_t col = 0; col < a->x.cols; col += OPS_ROW_MAX / 2) {
        int64_t n = a->x.cols - col < OPS_ROW_MAX / 2 ? a->x.cols - col : OPS_ROW_MAX / 2;
        REAL *out = row_of(&a->out, 0) + col;
        column_sums(&a->x, col, n, scratch, scratch + OPS_ROW_MAX / 2);
        for (int64_t j = 0; j < n; j++)
            out[j] = scratch[j] + (a->beta == 0 ? 0 : (REAL)a->beta * out[j]);
    }
}

static void op_sinusoid(struct ops *o, struct dev_stream *s, const struct ops_sinusoid *a)
{
    (void)o, (void)s;
    int64_t half = a->out.cols / 2;
    for (int64_t i = 0; i < a->out.rows; i++) {
        REAL *r = row_of(&a->out, i);
        for (int64_t j = 0; j < half; j++) {
            double angle = a->values[i] * exp(-log(10000.0) * (double)j / (double)half);
            r[j] = (REAL)cos(angle);
            r[half + j] = (REAL)sin(angle);
        }
        if (a->out.cols % 2)
            r[2 * half] = 0;
    }
}

static void rope_axis(double place, int64_t pairs, double theta, REAL *cosines, REAL *sines)
{
    for (int64_t j = 0; j < pairs; j++) {
        double angle = place * exp(-log(theta) * (double)j / (double)pairs);
        cosines[j] = (REAL)cos(angle);
        sines[j] = (REAL)sin(angle);
    }
}

static void op_rope(struct ops *o, struct dev_stream *s, const struct ops_rope *a)
{
    (void)o, (void)s;
    BUG_ON(a->cos.cols != a->pairs_t + a->pairs_h + a->pairs_w);
    for (int64_t i = 0; i < a->cos.rows; i++) {
        REAL *c = row_of(&a->cos, i), *sn = row_of(&a->sin, i);
        int64_t h = a->pairs_t, w = h + a->pairs_h;
        rope_axis(a->pos[3 * i] * 24.0 / a->fps[a->sample[i]], a->pairs_t, a->theta, c, sn);
        rope_axis(a->pos[3 * i + 1], a->pairs_h, a->theta, c + h, sn + h);
        rope_axis(a->pos[3 * i + 2], a->pairs_w, a->theta, c + w, sn + w);
    }
}

static void convert_row(const struct tensor *src, int64_t i, const struct tensor *dst, int64_t to)
{
    const void *from = tensor_at(src, i, 0);
    void *out = tensor_at(dst, to, 0);
    if (src->dtype == dst->dtype)
        memmove(out, from, (size_t)(dst->cols * dtype_bytes(dst->dtype)));
    else if (src->dtype == DTYPE_F32 && dst->dtype == DTYPE_F64)
        for (int64_t j = 0; j < dst->cols; j++)
            ((double *)out)[j] = ((const float *)from)[j];
    else if (src->dtype == DTYPE_F64 && dst->dtype == DTYPE_F32)
        for (int64_t j = 0; j < dst->cols; j++)
            ((float *)out)[j] = (float)((const double *)from)[j];
    else
        err_bug(__FILE__, __LINE__, "no conversion from %s to %s", dtype_names[src->dtype], dtype_names[dst->dtype]);
}

static void op_copy(struct ops *o, struct dev_stream *s, const struct ops_copy *a)
{
    (void)o, (void)s;
    BUG_ON(a->src.cols != a->dst.cols || (a->src.rows != a->dst.rows && a->src.rows != 1));
    for (int64_t i = 0; i < a->dst.rows; i++)
        convert_row(&a->src, a->src.rows == 1 ? 0 : i, &a->dst, i);
}

static void op_axpy(struct ops *o, struct dev_stream *s, const struct ops_axpy *a)
{
    (void)o, (void)s;
    REAL alpha = (REAL)a->alpha;
    BUG_ON(a->x.cols != a->y.cols || a->x.rows != a->y.rows);
    for (int64_t i = 0; i < a->y.rows; i++) {
        const REAL *restrict x = row_of(&a->x, i);
        REAL *restrict y = row_of(&a->y, i);
        for (int64_t j = 0; j < a->y.cols; j++)
            y[j] += alpha * x[j];
    }
}

static void op_permute(struct ops *o, struct dev_stream *s, const struct ops_permute *a)
{
    (void)o, (void)s;
    BUG_ON(a->src.cols != a->dst.cols || a->src.rows != a->dst.rows || a->src.dtype != a->dst.dtype);
    size_t bytes = (size_t)(a->dst.cols * dtype_bytes(a->dst.dtype));
    for (int64_t i = 0; i < a->dst.rows; i++) {
        int64_t from = a->back ? i : a->index[i], to = a->back ? a->index[i] : i;
        memcpy(tensor_at(&a->dst, to, 0), tensor_at(&a->src, from, 0), bytes);
    }
}

static void op_table_fwd(struct ops *o, struct dev_stream *s, const struct ops_table *a)
{
    (void)o, (void)s;
    BUG_ON(a->x.cols != a->table.cols);
    for (int64_t i = 0; i < a->x.rows; i++) {
        const REAL *restrict row = row_of(&a->table, a->index[i * a->stride]);
        REAL *restrict x = row_of(&a->x, i);
        for (int64_t j = 0; j < a->x.cols; j++)
            x[j] += row[j];
    }
}

static void op_table_bwd(struct ops *o, struct dev_stream *s, const struct ops_table *a)
{
    (void)o, (void)s;
    BUG_ON(a->dx.cols != a->dtable.cols);
    for (int64_t k = 0; k < a->dtable.rows; k++) {
        REAL *row = row_of(&a->dtable, k);
        for (int64_t j = 0; j < a->dtable.cols; j++)
            row[j] = a->beta == 0 ? 0 : (REAL)a->beta * row[j];
    }
    for (int64_t i = 0; i < a->dx.rows; i++) {
        const REAL *restrict dx = row_of(&a->dx, i);
        REAL *restrict row = row_of(&a->dtable, a->index[i * a->stride]);
        for (int64_t j = 0; j < a->dx.cols; j++)
            row[j] += dx[j];
    }
}

/* Sixteen running sums of squares and counts, in whole registers: element j of a row goes to lane j mod 16. */
typedef double eight_f64 __attribute__((vector_size(64)));
typedef int64_t eight_i64 __attribute__((vector_size(64)));
struct squares {
    eight_f64 sum[2];
    eight_i64 bad[2];
};

/* What is not finite counts, and adds nothing. */
static inline void add_squares(struct squares *q, const REAL *restrict x)
{
    typedef REAL eight __attribute__((vector_size(8 * sizeof(REAL))));
    for (int h = 0; h < 2; h++) {
        eight part;
        memcpy(&part, x + 8 * h, sizeof part);
        eight_f64 v = __builtin_convertvector(part, eight_f64);
        eight_i64 finite = v - v == 0; /* all ones, or 0 for inf and NaN */
        q->sum[h] += (eight_f64)((eight_i64)(v * v) & finite);
        q->bad[h] += finite + 1;
    }
}

static void squares_of(const REAL *restrict x, int64_t n, struct squares *q)
{
    int64_t j = 0;
    for (; j + SUM_LANES <= n; j += SUM_LANES)
        add_squares(q, x + j);
    REAL rest[SUM_LANES] = {0};
    memcpy(rest, x + j, (size_t)(n - j) * sizeof *x);
    add_squares(q, rest);
}

static void op_sumsq(struct ops *o, struct dev_stream *s, const struct ops_sumsq *a)
{
    (void)o, (void)s;
    struct ops_health h = a->accumulate ? *a->out : (struct ops_health){0, 0};
    struct squares q = {0};
    for (int64_t i = 0; i < a->x.rows; i++)
        squares_of(row_of(&a->x, i), a->x.cols, &q);
    for (int l = 0; l < SUM_LANES; l++) {
        h.sumsq += q.sum[l / 8][l % 8];
        h.nonfinite += q.bad[l / 8][l % 8];
    }
    *a->out = h;
}

static void adamw_run(const struct ops_adamw *a, const struct ops_step *t, int64_t n)
{
    const REAL *restrict grad = a->grad.ptr;
    REAL *restrict w = a->master.ptr, *restrict m = a->m.ptr, *restrict v = a->v.ptr;
    REAL beta1 = (REAL)a->beta1, beta2 = (REAL)a->beta2, eps = (REAL)a->eps, decay = (REAL)a->weight_decay;
    REAL lr = (REAL)(t->lr * a->lr_scale), scale = (REAL)t->grad_scale;
    REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    for (int64_t i = 0; i < n; i++) {
        REAL g = scale * grad[i];
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        w[i] -= lr * (m[i] * unbias1 / (real_sqrt(v[i] * unbias2) + eps) + decay * w[i]);
    }
}

static void adamw_run_bf16(const struct ops_adamw *a, const struct ops_step *t, int64_t n)
{
    const REAL *restrict grad = a->grad.ptr;
    REAL *restrict w = a->master.ptr;
    uint16_t *restrict ms = a->m.ptr, *restrict vs = a->v.ptr;
    REAL beta1 = (REAL)a->beta1, beta2 = (REAL)a->beta2, eps = (REAL)a->eps, decay = (REAL)a->weight_decay;
    REAL lr = (REAL)(t->lr * a->lr_scale), scale = (REAL)t->grad_scale;
    REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    struct philox_block bits = {{0}};
    for (int64_t i = 0; i < n; i++) {
        uint64_t e = a->first + (uint64_t)i;
        if (i == 0 || e % 4 == 0)
            bits = philox_at(a->seed, PHILOX_ROUND, a->update, e / 4);
        REAL g = scale * grad[i], m = beta1 * (REAL)bf16_value(ms[i]) + (1 - beta1) * g, v = beta2 * (REAL)bf16_value(vs[i]) + (1 - beta2) * g * g;
        w[i] -= lr * (m * unbias1 / (real_sqrt(v * unbias2) + eps) + decay * w[i]);
        ms[i] = bf16_round_random((float)m, (uint16_t)bits.w[e % 4]);
        vs[i] = bf16_round_random((float)v, (uint16_t)(bits.w[e % 4] >> 16));
    }
}

static void op_adamw(struct ops *o, struct dev_stream *s, const struct ops_adamw *a)
{
    (void)o, (void)s;
    int64_t n = a->master.cols;
    BUG_ON(a->master.rows != 1 || a->grad.cols != n || a->m.cols != n || a->v.cols != n);
    BUG_ON(a->m.dtype != a->v.dtype);
    if (!a->step->skip)
        (a->m.dtype == DTYPE_BF16 ? adamw_run_bf16 : adamw_run)(a, a->step, n);
    if (!a->step->skip && a->ema.ptr) {
        REAL *restrict ema = a->ema.ptr;
        const REAL *restrict w = a->master.ptr;
        REAL d = (REAL)a->ema_decay;
        for (int64_t i = 0; i < n; i++)
            ema[i] = d * ema[i] + (1 - d) * w[i];
    }
    if (a->weight.ptr && a->weight.ptr != a->master.ptr)
        memcpy(a->weight.ptr, a->master.ptr, (size_t)n * sizeof(REAL));
}

#endif
