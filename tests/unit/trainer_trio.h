/* Three CPU tables on the same numbers: f64, f32 and bf16. Every operation of the bf16 table is
 * held to two statements:
 *
 *  - trio_same: it is f32's on the widened inputs, rounded once where it is stored: bit for bit;
 *  - trio_near: it is off the f64 table's by at most 2^-8 of it (half a step of the format, at
 *  worst) and by what f32 lost, `lost`, which each
 *    test derives: terms · 2^-24 · size, for a result of that many roundings of numbers of that
 *    size.
 *
 * Central differences say nothing here: a step that f32's sums can see is far below one of bf16.
 * Backward is held to the f64 table's, which the other tests hold to central differences.
 *
 * A tensor of a trio is `act` (f64, f32, bf16) or `stat` (f64, f32, f32), its numbers those of bf16
 * or f32; columns beyond `cols` up to `ld` belong to nobody and must stay as they are.
 */
#ifndef TESTS_TRAINER_TRIO_H
#define TESTS_TRAINER_TRIO_H

#include "base/bf16.h"
#include "tests/unit/trainer_fixture.h"

enum { TRIO = 3, MARGIN = 3 };
static const double F32 = 0x1p-24; /* of a number, at most, in one rounding */

struct trio { struct tensor t[TRIO]; };

static inline double trio_get(const struct tensor *t, int64_t i, int64_t j)
{
    const void *p = tensor_at(t, i, j);
    return t->dtype == DTYPE_F64   ? *(const double *)p
           : t->dtype == DTYPE_F32 ? (double)*(const float *)p
                                   : (double)bf16_value(*(const uint16_t *)p);
}

static inline void trio_put(const struct tensor *t, int64_t i, int64_t j, double x)
{
    void *p = tensor_at(t, i, j);
    if (t->dtype == DTYPE_F64)
        *(double *)p = x;
    else if (t->dtype == DTYPE_F32)
        *(float *)p = (float)x;
    else
        *(uint16_t *)p = bf16_round_double(x);
}

/* Returns three tensors that are NaN everywhere, margins included. */
static inline struct trio trio_new(enum dtype narrow, int64_t rows, int64_t cols)
{
    const enum dtype types[TRIO] = {DTYPE_F64, DTYPE_F32, narrow};
    struct trio x;
    for (int k = 0; k < TRIO; k++) {
        size_t bytes = (size_t)((rows + 1) * (cols + MARGIN) * dtype_bytes(types[k]));
        x.t[k] = (struct tensor){malloc(bytes), types[k], rows, cols, cols + MARGIN};
        assert_non_null(x.t[k].ptr);
        memset(x.t[k].ptr, 0xff, bytes);
    }
    return x;
}

/* Copies the numbers of one tensor, which have to be bf16's, into all three. */
static inline void trio_spread(const struct trio *x, int from)
{
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t j = 0; j < x->t[0].cols; j++)
            for (int k = 0; k < TRIO; k++)
                trio_put(&x->t[k], i, j, trio_get(&x->t[from], i, j));
}

static inline struct trio trio_random(enum dtype narrow, int64_t rows, int64_t cols, uint64_t id)
{
    struct trio x = trio_new(narrow, rows, cols);
    double *v = new_normal(rows * cols, id);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            trio_put(&x.t[2], i, j, v[i * cols + j]);
    trio_spread(&x, 2);
    free(v);
    return x;
}

static inline struct trio act_new(int64_t rows, int64_t cols)
{
    return trio_new(DTYPE_BF16, rows, cols);
}
static inline struct trio stat_new(int64_t rows, int64_t cols)
{
    return trio_new(DTYPE_F32, rows, cols);
}
static inline struct trio act_random(int64_t rows, int64_t cols, uint64_t id)
{
    return trio_random(DTYPE_BF16, rows, cols, id);
}
static inline struct trio stat_random(int64_t rows, int64_t cols, uint64_t id)
{
    return trio_random(DTYPE_F32, rows, cols, id);
}
static inline struct trio trio_none(void)
{
    return (struct trio){{tensor_none(), tensor_none(), tensor_none()}};
}

static inline void trio_free(struct trio *x)
{
    for (int k = 0; k < TRIO; k++)
        free(x->t[k].ptr);
}

static inline double trio_most(const struct trio *x)
{
    double most = 0;
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t j = 0; j < x->t[0].cols; j++)
            most = fmax(most, fabs(trio_get(&x->t[0], i, j)));
    return most;
}

static inline void trio_same(const char *what, const struct trio *x)
{
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t j = 0; j < x->t[2].ld; j++) {
            float wide = *(const float *)tensor_at(&x->t[1], i, j);
            uint32_t want = x->t[2].dtype == DTYPE_BF16 ? bf16_round(wide) : 0, got = 0;
            if (x->t[2].dtype == DTYPE_F32)
                memcpy(&want, &wide, sizeof want);
            if (j >= x->t[0].cols)
                want = x->t[2].dtype == DTYPE_BF16 ? 0xffff : 0xffffffff;
            memcpy(&got, tensor_at(&x->t[2], i, j), (size_t)dtype_bytes(x->t[2].dtype));
            if (got != want)
                fail_msg("%s (%ld, %ld): bits %x, f32 rounded %x", what, (long)i, (long)j, got,
                         want);
        }
}

/* Checks the three tensors against a bound: `lost` [rows, cols], or the number `all` for every
 * element. */
static inline void trio_near_each(const char *what, const struct trio *x, const double *lost,
                                  double all)
{
    double step = x->t[2].dtype == DTYPE_BF16 ? 0x1p-8 : 0;
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t j = 0; j < x->t[0].cols; j++) {
            double want = trio_get(&x->t[0], i, j), got = trio_get(&x->t[2], i, j),
                   e = lost ? lost[i * x->t[0].cols + j] : all;
            if (!(fabs(got - want) <= step * fabs(want) + (1 + step) * e + 0x1p-134) &&
                !(got == want))
                fail_msg("%s (%ld, %ld): %.9g, f64 %.9g, f32 may lose %.3g", what, (long)i, (long)j,
                         got, want, e);
        }
}

static inline void trio_near(const char *what, const struct trio *x, double lost)
{
    trio_near_each(what, x, NULL, lost);
}

static inline void trio_check(const char *what, const struct trio *x, double lost)
{
    trio_same(what, x);
    trio_near(what, x, lost);
}

struct tables { struct bench b[TRIO]; };

static inline struct tables tables_open(void)
{
    return (struct tables){{bench_open(DTYPE_F64), bench_open(DTYPE_F32), bench_open(DTYPE_BF16)}};
}

static inline void tables_close(struct tables *t)
{
    for (int k = 0; k < TRIO; k++)
        bench_close(&t->b[k]);
}

/* The call of every table: K is the number of the one in hand. */
#define EACH(tables, call, ...)                                                                    \
    for (int K = 0; K < TRIO; K++) {                                                               \
        __typeof__(__VA_ARGS__) args = __VA_ARGS__;                                                \
        (tables)->b[K].ops->call((tables)->b[K].ops, (tables)->b[K].stream, &args);                \
    }

#endif
