/* gemm: decides whether cuBLASLt or our own kernels compute a product.
 *
 * cuBLASLt (cuBLAS library, "Using the cuBLASLt API") has no product of f32 by bf16, and requires
 * pointers and leading dimensions that are multiples of 16 bytes. gemm_fits_lt says which products
 * it can compute. No epilogue is used: its GELU stores the rounded number but activates the number
 * before rounding, while ops.h promises the act of the number as aux stores it. So the product is
 * written to aux, if present, and act_fwd follows.
 *
 * The algorithm of a product depends only on the product, the device and the library version. A
 * table may name it (gemm_table.h); else it is our own kernel, if there are few rows; else it is
 * the first that the library's heuristic returns for fixed preferences. Nothing is timed here:
 * results whose bits depend on noise could not be reproduced.
 */
#ifndef TRAINER_CUDA_GEMM_H
#define TRAINER_CUDA_GEMM_H

#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Holds everything on which the choice of an algorithm depends: d [m, n] = op(a) op(b) with k
 * terms; leading dimensions are in elements. It has no padding, so that keys compare as bytes. */
struct gemm_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t in, out; /* enum dtype of a and b, and of d */
    int32_t ta, tb;
};

enum {
    GEMM_ALIGN_BYTES = 16,
    GEMM_FEW = 16, /* largest number of rows of gemm_is_few */
};

/* Returns the tensor to which the product before its act is written: aux, or c. */
static inline const struct tensor *gemm_target(const struct ops_gemm *g)
{
    return g->aux.ptr ? &g->aux : &g->c;
}

static inline struct gemm_key gemm_key_of(const struct ops_gemm *g)
{
    const struct tensor *d = gemm_target(g);
    struct gemm_key key = {g->c.rows, g->c.cols, g->ta ? g->a.rows : g->a.cols,
                           g->a.ld,   g->b.ld,   d->ld,
                           g->a.dtype, d->dtype, g->ta, g->tb};
    return key;
}

/* Returns whether the result has so few rows that the time to read b bounds the product. AdaLN has
 * such products, with one row for each sample of the micro-batch. */
static inline bool gemm_is_few(const struct gemm_key *k) { return !k->ta && k->m <= GEMM_FEW; }

static inline bool gemm_is_aligned(const struct tensor *t)
{
    return (uintptr_t)t->ptr % GEMM_ALIGN_BYTES == 0 &&
           t->ld * dtype_bytes(t->dtype) % GEMM_ALIGN_BYTES == 0;
}

/* Returns whether cuBLASLt can compute a product. a and b must have one type, and the result the
 * same type, or f32 for bf16. Without aux, a product of bf16 must have no act: in a bf16 result the
 * act would round a second time. */
static inline bool gemm_fits_lt(const struct ops_gemm *g)
{
    const struct tensor *d = gemm_target(g);
    bool types = g->a.dtype == g->b.dtype && (d->dtype == g->a.dtype || d->dtype == DTYPE_F32) &&
                 (g->a.dtype == DTYPE_F64) == (d->dtype == DTYPE_F64);
    bool once = g->act == OPS_ACT_NONE || g->aux.ptr ||
                (d->dtype != DTYPE_BF16 && d->dtype == g->a.dtype);
    bool some = g->c.rows > 0 && g->c.cols > 0 && (g->ta ? g->a.rows : g->a.cols) > 0;
    return types && once && some && gemm_is_aligned(&g->a) && gemm_is_aligned(&g->b) &&
           gemm_is_aligned(d);
}

#ifdef __cplusplus
}
#endif
#endif
