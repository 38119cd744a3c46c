/* gemm: a product goes to cuBLASLt where that has it, else to our own kernels.
 *
 * cuBLASLt (cuBLAS library, "Using the cuBLASLt API") has no product of f32 by bf16, and wants
 * pointers and leading dimensions that are multiples of 16 bytes; gemm_fits_lt tells which products
 * it may be asked for. It gets no epilogue: its GELU keeps the rounded number but activates the one
 * before, where ops.h promises the act of what aux holds. So it writes to aux, if there is one, and
 * act_fwd runs behind it.
 *
 * Which algorithm computes a product is a function of the product, the device and the library: the
 * one that a table names (gemm_table.h); else, of few rows, our own kernel for such; else the first
 * that the library's heuristic gives for fixed preferences. Nothing is timed here: bits that depend
 * on noise could not be made again.
 */
#ifndef TRAINER_CUDA_GEMM_H
#define TRAINER_CUDA_GEMM_H

#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All that an algorithm is chosen by: d [m, n] = op(a) op(b) with k terms; leading dimensions count
 * elements. It has no padding, so that keys compare as bytes. */
struct gemm_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t in, out; /* enum dtype of a and b, and of d */
    int32_t ta, tb;
};

enum {
    GEMM_ALIGN_BYTES = 16,
    GEMM_FEW = 16, /* rows: see gemm_is_few */
};

/* Returns where a product itself is written, before its act: aux, or c. */
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

/* Has the result so few rows that what bounds the product is how fast memory gives b? So have those
 * of AdaLN, with one a sample of the micro-batch. */
static inline bool gemm_is_few(const struct gemm_key *k) { return !k->ta && k->m <= GEMM_FEW; }

static inline bool gemm_is_aligned(const struct tensor *t)
{
    return (uintptr_t)t->ptr % GEMM_ALIGN_BYTES == 0 &&
           t->ld * dtype_bytes(t->dtype) % GEMM_ALIGN_BYTES == 0;
}

/* Tells whether cuBLASLt may be asked for a product. It has a and b of one type, and a result of
 * theirs or, of bf16, f32. An act on what is rounded to bf16 and not kept in aux would round
 * twice. */
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
