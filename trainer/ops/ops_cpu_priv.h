/* ops_cpu_priv: declares what the CPU tables share: their context, and the arithmetic type REAL for
 * which the `_impl.h` files are compiled.
 *
 * ops_cpu_f64.c, ops_cpu_f32.c and ops_cpu_bf16.c each define REAL and include every `_impl.h`, so
 * that each operation has one source. With ACT_IS_BF16, REAL is float and a tensor may also be bf16
 * (rows_impl.h). An `_impl.h` that is compiled alone uses double.
 */
#ifndef TRAINER_OPS_OPS_CPU_PRIV_H
#define TRAINER_OPS_OPS_CPU_PRIV_H

#include "trainer/ops/ops.h"

#ifndef REAL
#define REAL double
#define REAL_IS_F64 1
#endif

typedef void ops_cpu_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha,
                           const double *a, int lda, const double *b, int ldb, double beta,
                           double *c, int ldc);
typedef void ops_cpu_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha,
                           const float *a, int lda, const float *b, int ldb, float beta, float *c,
                           int ldc);

enum {
    ROW_SLOTS = 8,
    ROW_SLOT = (OPS_ROW_MAX / 3 + 63) / 64 * 64,
    ROW_PIECE = 4096, /* elementwise operations compute this many columns of a row at a time */
};

struct ops_cpu {
    struct ops ops; /* first member: the table is the context */
    void *pack_a, *pack_b; /* GEMM panels */
    void *tiles;           /* attention scratch */
    void *rows;            /* partial sums of row reductions, OPS_ROW_MAX elements */
    void *widened;         /* bf16: ROW_SLOTS rows as floats */
    void *block;           /* bf16: sums of a block of a product before they are rounded */
    void *blas;            /* handle of libopenblas, or NULL */
    ops_cpu_dgemm *dgemm;
    ops_cpu_sgemm *sgemm;
};

static inline void ops_cpu_tick(const struct ops *o)
{
    if (o->tick)
        o->tick(o->tick_ctx);
}

enum { OPS_CPU_PARTS = 6 };

/* Describes one table of operations, as compiled from one of the three files. */
struct ops_cpu_kind {
    enum dtype act, stat;
    const char *name;
    void (*fill)(struct ops *t);
    /* Writes the bytes of pack_a, pack_b, tiles, rows, widened and block, and returns their
     * sum. */
    int64_t (*workspace)(int64_t parts[OPS_CPU_PARTS]);
};

/* Files that are compiled for several kinds of processors (simd.h) append the kind to each global
 * name: SIMD_NAME(x) is x_v3 where the Makefile passes -DSIMD=v3. */
#ifndef SIMD
#define SIMD generic
#endif
#define SIMD_JOIN(name, simd) name##_##simd
#define SIMD_JOINED(name, simd) SIMD_JOIN(name, simd)
#define SIMD_NAME(name) SIMD_JOINED(name, SIMD)
#define SIMD_DECLARE(simd)                                                                        \
    extern const struct ops_cpu_kind ops_cpu_f64_##simd, ops_cpu_f32_##simd, ops_cpu_bf16_##simd; \
    double fma_rate_##simd(enum dtype t);
SIMD_DECLARE(generic)
SIMD_DECLARE(v3)
SIMD_DECLARE(v4)

#endif
