/* ops_cpu_priv: what the CPU tables share: the context, and the type that the `_impl.h` files are compiled for.
 *
 * ops_cpu_f64.c, ops_cpu_f32.c and ops_cpu_bf16.c define REAL, the type of arithmetic, and include every `_impl.h`; there is one source of
 * each operation. With ACT_IS_BF16 REAL is float and a tensor may also be of bf16 (rows_impl.h). Alone, an `_impl.h` compiles for double.
 */
#ifndef TRAINER_OPS_OPS_CPU_PRIV_H
#define TRAINER_OPS_OPS_CPU_PRIV_H

#include "trainer/ops/ops.h"

#ifndef REAL
#define REAL double
#define REAL_IS_F64 1
#endif

typedef void ops_cpu_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                           const double *b, int ldb, double beta, double *c, int ldc);
typedef void ops_cpu_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                           const float *b, int ldb, float beta, float *c, int ldc);

enum {
    ROW_SLOTS = 8,
    ROW_SLOT = (OPS_ROW_MAX / 3 + 63) / 64 * 64,
    ROW_PIECE = 4096, /* of rows that are worked on element by element */
};

struct ops_cpu {
    struct ops ops; /* first member: the table is the context */
    void *pack_a, *pack_b; /* GEMM panels */
    void *tiles;           /* attention scratch */
    void *rows;            /* partial sums of row reductions, OPS_ROW_MAX elements */
    void *widened;         /* bf16: ROW_SLOTS rows as floats */
    void *block;           /* bf16: a block of a product before it is rounded */
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
void ops_cpu_fill_f64(struct ops_cpu *c);
void ops_cpu_fill_f32(struct ops_cpu *c);
void ops_cpu_fill_bf16(struct ops_cpu *c);
/* Bytes that a table of each type needs: pack_a, pack_b, tiles, rows, widened, block; returns their sum. */
int64_t ops_cpu_workspace_f64(int64_t parts[OPS_CPU_PARTS]);
int64_t ops_cpu_workspace_f32(int64_t parts[OPS_CPU_PARTS]);
int64_t ops_cpu_workspace_bf16(int64_t parts[OPS_CPU_PARTS]);

#endif
