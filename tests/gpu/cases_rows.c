/* This file makes the cases of operations on rows: activations, sums of columns, copies, rows by
 * index. */
#include "tests/gpu/cases_lab.h"

#include <math.h>
#include <stdlib.h>

enum { LONG = 21893 }; /* an odd length, longer than ROW_SLOT, a slot of a row on the CPU */

/* ---- activations ---- */

struct act_case {
    const char *name;
    enum ops_act_kind kind;
    int64_t rows, cols; /* of y */
    enum lab_class x, y;
    double scale;
    bool in_place, y_too; /* of backward */
};

static const struct act_case act_cases[] = {
    {"none", OPS_ACT_NONE, 3, 43, LAB_ACT, LAB_ACT, 2, false, true},
    {"silu", OPS_ACT_SILU, 5, 40, LAB_ACT, LAB_ACT, 2, false, true},
    {"silu, in place", OPS_ACT_SILU, 3, 43, LAB_ACT, LAB_ACT, 2, true, false},
    {"silu, long", OPS_ACT_SILU, 2, LONG, LAB_ACT, LAB_ACT, 2, false, false},
    {"silu, far from 0", OPS_ACT_SILU, 3, 67, LAB_ACT, LAB_ACT, 40, false, true},
    {"silu, wide", OPS_ACT_SILU, 3, 67, LAB_WIDE, LAB_WIDE, 1, false, true},
    {"silu, from wide", OPS_ACT_SILU, 3, 67, LAB_WIDE, LAB_ACT, 1, false, true},
    {"gelu", OPS_ACT_GELU_ERF, 65, 64, LAB_ACT, LAB_ACT, 2, false, true},
    {"gelu, in place", OPS_ACT_GELU_ERF, 3, 43, LAB_ACT, LAB_ACT, 2, true, true},
    {"gelu, far from 0", OPS_ACT_GELU_ERF, 3, 67, LAB_ACT, LAB_ACT, 40, false, false},
    {"gelu, long", OPS_ACT_GELU_ERF, 1, LONG, LAB_ACT, LAB_ACT, 1, false, true},
    {"gelu, tanh", OPS_ACT_GELU_TANH, 7, 129, LAB_ACT, LAB_ACT, 2, false, true},
    {"gelu, tanh, in place", OPS_ACT_GELU_TANH, 1, 1, LAB_ACT, LAB_ACT, 2, true, false},
    {"gelu, tanh, far from 0", OPS_ACT_GELU_TANH, 3, 67, LAB_ACT, LAB_ACT, 40, false, true},
    {"swiglu", OPS_ACT_SWIGLU, 5, 40, LAB_ACT, LAB_ACT, 2, false, true},
    {"swiglu, odd", OPS_ACT_SWIGLU, 3, 43, LAB_ACT, LAB_ACT, 2, false, false},
    {"swiglu, long", OPS_ACT_SWIGLU, 2, LONG, LAB_ACT, LAB_ACT, 2, false, true},
    {"no rows", OPS_ACT_SILU, 0, 9, LAB_ACT, LAB_ACT, 2, false, true},
    {"no rows, swiglu", OPS_ACT_SWIGLU, 0, 9, LAB_ACT, LAB_ACT, 2, false, true},
};

/* Returns the input. Among its random numbers are some at which exp and erf overflow, underflow or
 * saturate. */
static struct tensor act_input(struct lab *l, const struct act_case *c)
{
    static const double at[] = {0, -0.0, 1e-30, -1e-30, 88, -88, 104, -104, 120, -120, 5.5, -5.5};
    enum { N = sizeof at / sizeof *at };
    struct tensor x = lab_in(l, "x", c->x, c->rows, (c->kind == OPS_ACT_SWIGLU ? 2 : 1) * c->cols);
    lab_scale(l, x, c->scale, 0);
    for (int k = 0; k < N && c->rows && c->cols > N; k++)
        lab_put(l, x, 0, (int64_t)k * (c->cols - 1) / (N - 1), at[k]);
    return x;
}

static void act_fwd_make(struct lab *l, const void *data)
{
    const struct act_case *c = data;
    struct tensor x = act_input(l, c), y = lab_new(l, "y", c->y, c->rows, c->cols);
    lab_out(l, "y", 0, y);
    LAB_CALL(l, act_fwd, (struct ops_act){.kind = c->kind, .x = x, .y = y});
}
LAB_CASES(act_fwd, act_cases, act_fwd_make)

static void act_bwd_make(struct lab *l, const void *data)
{
    const struct act_case *c = data;
    struct ops_act a = {.kind = c->kind, .x = act_input(l, c),
                        .dy = lab_in(l, "dy", c->y, c->rows, c->cols)};
    struct tensor first = lab_new(l, "y", c->y, c->rows, c->cols);
    a.dx = c->in_place ? a.dy : lab_new(l, "dx", c->x, a.x.rows, a.x.cols);
    lab_out(l, "dx", 0, a.dx);
    if (c->y_too) { /* backward recomputes y with the same bits */
        a.y = lab_new(l, "y again", c->y, c->rows, c->cols);
        lab_out(l, "y", 0, first);
        lab_out(l, "y again", 0, a.y);
        lab_twin(l, "y");
        LAB_CALL(l, act_fwd, (struct ops_act){.kind = c->kind, .x = a.x, .y = first});
    }
    LAB_CALL(l, act_bwd, a);
}
LAB_CASES(act_bwd, act_cases, act_bwd_make)

/* ---- sums of columns ---- */

struct colsum_case {
    const char *name;
    int64_t rows, cols;
    enum lab_class x;
    double beta;
};
static const struct colsum_case colsum_cases[] = {
    {"odd", 150, 9, LAB_ACT, 0},          {"half added", 150, 37, LAB_ACT, 0.5},
    {"added", 65, 64, LAB_ACT, 1},        {"one row", 1, 33, LAB_ACT, 0},
    {"wide", 70, 35, LAB_WIDE, 1},        {"long rows", 3, LONG, LAB_ACT, 0.5},
    {"many rows", 1030, 3, LAB_ACT, 0},   {"no rows", 0, 9, LAB_ACT, 0},
    {"no rows, added", 0, 9, LAB_ACT, 1}, {"one column", 129, 1, LAB_ACT, 0},
};

static void colsum_make(struct lab *l, const void *data)
{
    const struct colsum_case *c = data;
    struct tensor x = lab_in(l, "x", c->x, c->rows, c->cols);
    struct tensor out = (c->beta == 0 ? lab_new : lab_in)(l, "out", LAB_STAT, 1, c->cols);
    lab_out(l, "out", 0, out);
    LAB_CALL(l, colsum, (struct ops_colsum){x, out, c->beta});
}
LAB_CASES(colsum, colsum_cases, colsum_make)

/* ---- copies ---- */

struct copy_case {
    const char *name;
    int64_t from_rows, rows, cols;
    enum lab_class from, to;
};
static const struct copy_case copy_cases[] = {
    {"of its own", 5, 5, 37, LAB_ACT, LAB_ACT},
    {"one row repeated", 1, 5, 37, LAB_ACT, LAB_ACT},
    {"one row repeated, narrower", 1, 70, 3, LAB_STAT, LAB_ACT},
    {"no rows", 0, 0, 3, LAB_STAT, LAB_ACT},
    {"from one row to none", 1, 0, 3, LAB_STAT, LAB_ACT},
    {"even", 66, 66, 64, LAB_ACT, LAB_STAT},
    {"long", 2, 2, LONG, LAB_STAT, LAB_ACT},
    {"f64 to f64", 3, 3, 41, LAB_F64, LAB_F64},
    {"f64 to f32", 3, 3, 41, LAB_F64, LAB_F32},
    {"f64 to bf16", 3, 3, 41, LAB_F64, LAB_BF16},
    {"f32 to f64", 3, 3, 41, LAB_F32, LAB_F64},
    {"f32 to f32", 3, 3, 41, LAB_F32, LAB_F32},
    {"f32 to bf16", 3, 3, 41, LAB_F32, LAB_BF16},
    {"bf16 to f64", 3, 3, 41, LAB_BF16, LAB_F64},
    {"bf16 to f32", 3, 3, 41, LAB_BF16, LAB_F32},
    {"bf16 to bf16", 3, 3, 41, LAB_BF16, LAB_BF16},
};

/* Puts in numbers halfway between two bf16 and close to that, ends of the ranges, and numbers that
 * are not finite. */
static void halves_put(struct lab *l, struct tensor t)
{
    static const double at[] = {
        1 + 0x1p-8, 1 + 0x3p-8, -(1 + 0x1p-8), 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40,
        1 + 0x1p-8 + 0x1p-23, 1 + 0x1p-24, 1 + 0x3p-24, 1e300, -1e-300, 0x1p-134, 0x1p-133,
        3.3961775e38, 0.0, -0.0, HUGE_VAL, -HUGE_VAL,
    };
    for (int64_t k = 0; k < (int64_t)(sizeof at / sizeof *at) && k < t.cols && t.rows; k++)
        lab_put(l, t, t.rows - 1, k, at[k]);
    if (t.rows && t.cols > 20)
        lab_put(l, t, t.rows - 1, 20, (double)NAN);
}

static void copy_make(struct lab *l, const void *data)
{
    const struct copy_case *c = data;
    struct tensor src = lab_in(l, "src", c->from, c->from_rows, c->cols);
    struct tensor dst = lab_new(l, "dst", c->to, c->rows, c->cols);
    halves_put(l, src);
    lab_exact(lab_out(l, "dst", 0, dst));
    LAB_CALL(l, copy, (struct ops_copy){src, dst});
}
LAB_CASES(copy, copy_cases, copy_make)

struct axpy_case {
    const char *name;
    int64_t rows, cols;
    enum lab_class x, y;
    double alpha;
};
static const struct axpy_case axpy_cases[] = {
    {"of its own", 3, 37, LAB_ACT, LAB_ACT, -2},  {"even", 65, 64, LAB_ACT, LAB_ACT, 0.3},
    {"long", 3, LONG, LAB_ACT, LAB_ACT, 1},       {"into stat", 3, 37, LAB_ACT, LAB_STAT, -0.7},
    {"of stat", 3, 37, LAB_STAT, LAB_ACT, 0.7},   {"no rows", 0, 37, LAB_ACT, LAB_ACT, 1},
    {"f64, f64", 3, 37, LAB_F64, LAB_F64, 0.7},   {"f64, f32", 3, 37, LAB_F64, LAB_F32, 0.7},
    {"f64, bf16", 3, 37, LAB_F64, LAB_BF16, 0.7}, {"f32, f64", 3, 37, LAB_F32, LAB_F64, 0.7},
    {"f32, f32", 3, 37, LAB_F32, LAB_F32, 0.7},   {"f32, bf16", 3, 37, LAB_F32, LAB_BF16, 0.7},
    {"bf16, f64", 3, 37, LAB_BF16, LAB_F64, 0.7}, {"bf16, f32", 3, 37, LAB_BF16, LAB_F32, 0.7},
    {"bf16, bf16", 3, 1030, LAB_BF16, LAB_BF16, 0.7},
};

static void axpy_make(struct lab *l, const void *data)
{
    const struct axpy_case *c = data;
    struct tensor x = lab_in(l, "x", c->x, c->rows, c->cols);
    struct tensor y = lab_in(l, "y", c->y, c->rows, c->cols);
    lab_out(l, "y", 0, y)->rounds_itself = c->x >= LAB_F64;
    LAB_CALL(l, axpy, (struct ops_axpy){x, y, c->alpha});
}
LAB_CASES(axpy, axpy_cases, axpy_make)

/* ---- rows by index ---- */

struct permute_case {
    const char *name;
    int64_t rows, cols;
    enum lab_class class;
    bool back;
};
static const struct permute_case permute_cases[] = {
    {"odd", 100, 5, LAB_ACT, false},     {"back", 100, 5, LAB_ACT, true},
    {"even", 66, 64, LAB_ACT, false},    {"even, back", 66, 64, LAB_ACT, true},
    {"stat", 31, 33, LAB_STAT, false},   {"stat, back", 31, 33, LAB_STAT, true},
    {"f64", 31, 7, LAB_F64, true},       {"bf16", 31, 7, LAB_BF16, false},
    {"one row", 1, 130, LAB_ACT, false}, {"no rows", 0, 7, LAB_ACT, false},
    {"long", 3, LONG, LAB_ACT, true},
};

/* Returns 0 .. n - 1 in another order, in device memory. */
static const int32_t *shuffled(struct lab *l, int64_t n)
{
    int32_t *order = malloc((size_t)(n + 1) * sizeof *order);
    for (int64_t i = 0; order && i < n; i++)
        order[i] = (int32_t)philox_permute(l->c->seed, 0, (uint64_t)n, (uint64_t)i);
    const int32_t *index = lab_bytes(l, "index", order, n * (int64_t)sizeof *order);
    free(order);
    return index;
}

static void permute_make(struct lab *l, const void *data)
{
    const struct permute_case *c = data;
    struct tensor src = lab_in(l, "src", c->class, c->rows, c->cols);
    struct tensor dst = lab_new(l, "dst", c->class, c->rows, c->cols);
    const int32_t *index = c->rows ? shuffled(l, c->rows) : NULL;
    lab_exact(lab_out(l, "dst", 0, dst));
    LAB_CALL(l, permute, (struct ops_permute){src, dst, index, c->back});
}
LAB_CASES(permute, permute_cases, permute_make)

struct table_case {
    const char *name;
    int64_t s, rows, cols, stride;
    enum lab_class x;
    double beta;
};
static const struct table_case table_cases[] = {
    {"odd", 40, 6, 5, 1, LAB_ACT, 0},           {"every third", 40, 6, 37, 3, LAB_ACT, 0.5},
    {"even", 130, 9, 64, 2, LAB_ACT, 1},        {"wide", 40, 6, 37, 1, LAB_WIDE, 0},
    {"one row of the table", 70, 2, 33, 1, LAB_ACT, 0},
    {"many tokens, long rows", 601, 4, 267, 1, LAB_ACT, 0.5},
    {"no tokens", 0, 3, 33, 1, LAB_ACT, 0.5},   {"no tokens, written", 0, 3, 33, 1, LAB_ACT, 0},
};

/* Returns indices, `stride` apart, with -1 between them. None names the last row of the table. */
static const int32_t *table_index(struct lab *l, const struct table_case *c)
{
    int64_t n = c->s * c->stride;
    int32_t *index = malloc((size_t)(n + 1) * sizeof *index);
    for (int64_t i = 0; index && i < n; i++)
        index[i] = i % c->stride ? -1
                                 : (int32_t)(lab_uniform(l, (uint64_t)i) * (double)(c->rows - 1));
    const int32_t *at = lab_bytes(l, "index", index, n * (int64_t)sizeof *index);
    free(index);
    return at;
}

static void table_fwd_make(struct lab *l, const void *data)
{
    const struct table_case *c = data;
    struct ops_table a = {.index = table_index(l, c), .stride = c->stride,
                          .x = lab_in(l, "x", c->x, c->s, c->cols),
                          .table = lab_in(l, "table", LAB_ACT, c->rows, c->cols)};
    lab_out(l, "x", 0, a.x);
    LAB_CALL(l, table_fwd, a);
}
LAB_CASES(table_fwd, table_cases, table_fwd_make)

static void table_bwd_make(struct lab *l, const void *data)
{
    const struct table_case *c = data;
    struct ops_table a = {.index = table_index(l, c), .stride = c->stride, .beta = c->beta,
                          .dx = lab_in(l, "dx", c->x, c->s, c->cols)};
    a.dtable = (c->beta == 0 ? lab_new : lab_in)(l, "dtable", LAB_STAT, c->rows, c->cols);
    lab_out(l, "dtable", 0, a.dtable);
    LAB_CALL(l, table_bwd, a);
}
LAB_CASES(table_bwd, table_cases, table_bwd_make)
