/* Computes activations and their gradients for REAL. */
#ifndef TRAINER_OPS_OPS_CPU_ACT_IMPL_H
#define TRAINER_OPS_OPS_CPU_ACT_IMPL_H

#include "trainer/ops/math_impl.h"
#include "trainer/ops/rows_impl.h"

/* Compute the activations and their derivatives. They use the logistic function s =
 * 1 / (1 + e) with e = exp(-x), and compute 1 - s as e s, which does not cancel near s = 1. They
 * multiply e by s first: for the largest e, e x would overflow and e s does not. */
static inline REAL silu(REAL x) { return x / (1 + real_exp(-x)); }
static inline REAL silu_slope(REAL x)
{
    REAL e = real_exp(-x), s = 1 / (1 + e);
    return s * (1 + x * (e * s));
}

static inline REAL gelu_erf(REAL x)
{
    return (REAL)0.5 * x * (1 + real_erf(x * (REAL)0.70710678118654752440));
}
static inline REAL gelu_erf_slope(REAL x)
{
    REAL cdf = (REAL)0.5 * (1 + real_erf(x * (REAL)0.70710678118654752440));
    return cdf + x * (REAL)0.39894228040143267794 * real_exp((REAL)-0.5 * x * x);
}

/* Returns e = exp(-2u): (1 + tanh(u)) / 2 is the logistic function of 2u. */
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

/* Applies an activation to a row. x and y may be the same memory: each element is read before it is
 * written, so `ivdep` is correct. `up` is used by SWIGLU only. */
static void act_row(enum ops_act_kind kind, int64_t n, const REAL *x, const REAL *up, REAL *y)
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
            y[j] = silu(x[j]) * up[j];
        return;
    }
}

static void act_row_bwd(enum ops_act_kind kind, int64_t n, const REAL *x, const REAL *up,
                        const REAL *dy, REAL *dx, REAL *dup)
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
            dx[j] = dy[j] * up[j] * silu_slope(x[j]);
            dup[j] = dy[j] * silu(x[j]);
        }
        return;
    }
}

/* Returns the call restricted to columns col .. col + n - 1 of every tensor. */
static struct ops_act act_piece(const struct ops_act *a, int64_t col, int64_t n)
{
    struct ops_act p = *a;
    p.x = columns(&a->x, col, n);
    p.y = columns(&a->y, col, n);
    p.dy = columns(&a->dy, col, n);
    p.dx = columns(&a->dx, col, n);
    return p;
}

enum { ACT_X, ACT_UP, ACT_Y, ACT_DX, ACT_DUP, ACT_DY = ACT_Y }; /* slots of rows */

/* Returns SWIGLU's up, `width` columns after the gate; an absent tensor for other kinds. */
static struct tensor up_of(const struct ops_act *a, const struct tensor *gate, int64_t width)
{
    return a->kind == OPS_ACT_SWIGLU ? columns(gate, width, gate->cols) : tensor_none();
}

/* Computes y = act(x) on a piece of `width` columns. */
static void act_piece_fwd(const struct ops_cpu *c, const struct ops_act *p, int64_t width)
{
    struct tensor up = up_of(p, &p->x, width);
    for (int64_t i = 0; i < p->y.rows; i++) {
        REAL *y = row_open(c, &p->y, i, ACT_Y);
        act_row(p->kind, p->y.cols, row_load(c, &p->x, i, ACT_X), row_load(c, &up, i, ACT_UP), y);
        row_store(&p->y, i, y);
    }
}

static void act_piece_bwd(const struct ops_cpu *c, const struct ops_act *p, int64_t width)
{
    struct tensor up = up_of(p, &p->x, width), dup = up_of(p, &p->dx, width);
    for (int64_t i = 0; i < p->dx.rows; i++) {
        REAL *dx = row_open(c, &p->dx, i, ACT_DX), *dup_row = row_open(c, &dup, i, ACT_DUP);
        act_row_bwd(p->kind, p->dy.cols, row_load(c, &p->x, i, ACT_X), row_load(c, &up, i, ACT_UP),
                    row_load(c, &p->dy, i, ACT_DY), dx, dup_row);
        row_store(&p->dx, i, dx);
        if (dup_row)
            row_store(&dup, i, dup_row);
    }
}

static void op_act_fwd(struct ops *o, struct dev_stream *s, const struct ops_act *a)
{
    (void)s;
    BUG_ON(a->x.rows != a->y.rows || a->x.cols != a->y.cols * (a->kind == OPS_ACT_SWIGLU ? 2 : 1));
    for (int64_t col = 0; col < a->y.cols; col += ROW_PIECE) {
        struct ops_act p = act_piece(a, col, piece_of(a->y.cols, col));
        act_piece_fwd((struct ops_cpu *)o, &p, a->y.cols);
    }
}

static void op_act_bwd(struct ops *o, struct dev_stream *s, const struct ops_act *a)
{
    (void)s;
    BUG_ON(a->x.rows != a->dy.rows || a->dx.rows != a->x.rows || a->dx.cols != a->x.cols);
    BUG_ON(a->x.cols != a->dy.cols * (a->kind == OPS_ACT_SWIGLU ? 2 : 1));
    for (int64_t col = 0; col < a->dy.cols; col += ROW_PIECE) {
        struct ops_act p = act_piece(a, col, piece_of(a->dy.cols, col));
        if (a->y.ptr)
            act_piece_fwd((struct ops_cpu *)o, &p, a->dy.cols);
        act_piece_bwd((struct ops_cpu *)o, &p, a->dy.cols);
    }
}

#endif
