/* Reads and writes rows and blocks of tensors as REAL.
 *
 * In the f64 and f32 tables of operations (ops_cpu.c) a tensor is of REAL and a row is used in
 * place: the functions below compile to pointers. In the bf16 table (ACT_IS_BF16) a tensor is of
 * bf16 or f32. A row of bf16 is widened into one of the context's slots before a loop over it, and
 * rounded when it is stored. So arithmetic sees floats only, and each result is rounded once.
 *
 *     const REAL *x = row_load(c, &a->x, i, SLOT_X); its numbers; NULL when the tensor is absent
 *     REAL *y = row_open(c, &a->y, i, SLOT_Y);       must be written whole; in another slot than x
 *     for (...) y[j] = f(x[j]);
 *     row_store(&a->y, i, y);                        or row_keep, which also sets y to what a
 *                                                    later row_load returns
 *
 * A row has at most ROW_SLOT numbers; elementwise operations split longer rows into pieces
 * (piece_of). Sums over several rows are kept in REAL: in tensors of REAL (row_of), or in a block,
 * which is opened before the first addition and stored after the last.
 */
#ifndef TRAINER_OPS_ROWS_IMPL_H
#define TRAINER_OPS_ROWS_IMPL_H

#include <string.h>

#include "base/bf16.h"
#include "trainer/ops/ops_cpu_priv.h"

/* These are the slots of an operation that uses at most two rows at a time. Operations with more
 * rows define other names. */
enum { SLOT_X, SLOT_Y };

enum { REAL_DTYPE = sizeof(REAL) == 8 ? DTYPE_F64 : DTYPE_F32 };

/* Returns whether the tensor is bf16; in tables of one type this is a compile-time constant. */
static inline bool is_narrow(const struct tensor *t)
{
#ifdef ACT_IS_BF16
    BUG_ON(t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F32);
    return t->dtype == DTYPE_BF16;
#else
    (void)t;
    return false;
#endif
}

static inline bool is_real(const struct tensor *t) { return t->dtype == (enum dtype)REAL_DTYPE; }

/* Returns row `i` of a tensor of REAL, NULL when the tensor is absent. */
static inline REAL *row_of(const struct tensor *t, int64_t i)
{
    if (!t->ptr)
        return NULL;
    BUG_ON(is_narrow(t));
    return (REAL *)t->ptr + i * t->ld;
}

/* Convert a row from bf16 (widen) and to bf16 (narrow). They are not inlined: inlined, they took a
 * third of the compile time of the bf16 table. */
static __attribute__((noinline, unused)) void widen(const uint16_t *restrict x, int64_t n,
                                                    REAL *restrict y)
{
    for (int64_t j = 0; j < n; j++)
        y[j] = (REAL)bf16_value(x[j]);
}

static __attribute__((noinline, unused)) void narrow(const REAL *restrict x, int64_t n,
                                                     uint16_t *restrict y)
{
    for (int64_t j = 0; j < n; j++)
        y[j] = bf16_round((float)x[j]);
}

static inline REAL *row_slot(const struct ops_cpu *c, const struct tensor *t, int slot)
{
    BUG_ON(t->cols > ROW_SLOT || slot >= ROW_SLOTS);
    return (REAL *)c->widened + (int64_t)slot * ROW_SLOT;
}

static inline REAL *row_open(const struct ops_cpu *c, const struct tensor *t, int64_t i, int slot)
{
    return t->ptr && is_narrow(t) ? row_slot(c, t, slot) : row_of(t, i);
}

static inline REAL *row_load(const struct ops_cpu *c, const struct tensor *t, int64_t i, int slot)
{
    REAL *x = row_open(c, t, i, slot);
    if (x && is_narrow(t))
        widen(tensor_at(t, i, 0), t->cols, x);
    return x;
}

static inline void row_store(const struct tensor *t, int64_t i, const REAL *x)
{
    if (is_narrow(t))
        narrow(x, t->cols, tensor_at(t, i, 0));
    else if (x != row_of(t, i))
        memcpy(row_of(t, i), x, (size_t)t->cols * sizeof *x);
}

static inline void row_keep(const struct tensor *t, int64_t i, REAL *x)
{
    row_store(t, i, x);
    if (is_narrow(t))
        widen(tensor_at(t, i, 0), t->cols, x);
}

/* Returns columns col .. col + n - 1 of a tensor, or an absent tensor if it is absent. */
static inline struct tensor columns(const struct tensor *t, int64_t col, int64_t n)
{
    return t->ptr ? tensor_cols(*t, col, n) : *t;
}

static inline int64_t piece_of(int64_t cols, int64_t col)
{
    return cols - col < ROW_PIECE ? cols - col : ROW_PIECE;
}

/* ---- blocks ---- */

/* Describes a matrix of REAL: element (i, j) is ptr[i * ld + j]. */
struct block {
    REAL *ptr;
    int64_t ld;
};

/* Returns the tensor in place if it is of REAL, else `scratch`, which must be large enough. With
 * `read`, scratch is set to the tensor's numbers. */
static inline struct block block_open(const struct tensor *t, REAL *scratch, bool read)
{
    if (!is_narrow(t))
        return (struct block){t->ptr, t->ld};
    for (int64_t i = 0; read && i < t->rows; i++)
        widen(tensor_at(t, i, 0), t->cols, scratch + i * t->cols);
    return (struct block){scratch, t->cols};
}

static inline void block_store(const struct tensor *t, struct block b)
{
    for (int64_t i = 0; is_narrow(t) && i < t->rows; i++)
        row_store(t, i, b.ptr + i * b.ld);
}

/* ---- conversion, the same in all tables ---- */

#define CONVERT(from_type, to_type, expression) \
    do {                                        \
        const from_type *restrict x = from;     \
        to_type *restrict y = to;               \
        for (int64_t j = 0; j < n; j++)         \
            y[j] = expression;                  \
    } while (0)

static void convert(const void *from, enum dtype from_dtype, void *to, enum dtype to_dtype,
                    int64_t n)
{
    if (from_dtype == to_dtype)
        memmove(to, from, (size_t)(n * dtype_bytes(to_dtype)));
    else if (from_dtype == DTYPE_F32 && to_dtype == DTYPE_F64)
        CONVERT(float, double, (double)x[j]);
    else if (from_dtype == DTYPE_F64 && to_dtype == DTYPE_F32)
        CONVERT(double, float, (float)x[j]);
    else if (from_dtype == DTYPE_BF16 && to_dtype == DTYPE_F64)
        CONVERT(uint16_t, double, (double)bf16_value(x[j]));
    else if (from_dtype == DTYPE_BF16 && to_dtype == DTYPE_F32)
        CONVERT(uint16_t, float, bf16_value(x[j]));
    else if (from_dtype == DTYPE_F64 && to_dtype == DTYPE_BF16)
        CONVERT(double, uint16_t, bf16_round_double(x[j]));
    else if (from_dtype == DTYPE_F32 && to_dtype == DTYPE_BF16)
        CONVERT(float, uint16_t, bf16_round(x[j]));
    else
        err_bug(__FILE__, __LINE__, "no conversion from %s to %s", dtype_names[from_dtype],
                dtype_names[to_dtype]);
}
#undef CONVERT

#endif
