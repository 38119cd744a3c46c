/* Blocked matrix product for REAL, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
 * (TOMS 34:3, 2008): B is packed in KC x NC blocks of NR-wide panels, A in MC x KC blocks of MR-high panels, and a
 * register tile of MR x NR is summed over k in order. Element (i, j) is therefore the same sum whatever m, n, and its
 * place in the matrix are: results do not depend on how rows are grouped.
 *
 * Vectors are gcc's; the tile fits the registers of AVX-512 (32), else of 16-register machines. Contraction is on for the
 * register tile alone, where each product feeds one sum and fused multiply-add is what the processor has.
 */
#ifndef TRAINER_GEMM_IMPL_H
#define TRAINER_GEMM_IMPL_H

#include <string.h>

#include "trainer/ops_cpu_priv.h"

#if defined(__AVX512F__)
enum { VEC_BYTES = 64, MR = 12 };
#elif defined(__AVX__)
enum { VEC_BYTES = 32, MR = 6 };
#else
enum { VEC_BYTES = 16, MR = 4 };
#endif
enum { LANES = VEC_BYTES / sizeof(REAL), NR = 2 * LANES };
enum { KC = 256, MC = 12 * MR, NC = 512 };
_Static_assert(NC % NR == 0, "blocks hold whole panels");

typedef REAL vec __attribute__((vector_size(VEC_BYTES)));

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
/* tile [MR][NR] = sum over k of a[k][MR] ⊗ b[k][NR] */
static void gemm_tile(int64_t k, const REAL *restrict a, const REAL *restrict b, REAL *restrict tile)
{
    vec c[MR][2] = {0};
    for (int64_t p = 0; p < k; p++) {
        const vec *bv = (const vec *)(b + p * NR);
        vec b0 = bv[0], b1 = bv[1];
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            c[i][0] += a[p * MR + i] * b0;
            c[i][1] += a[p * MR + i] * b1;
        }
    }
    for (int i = 0; i < MR; i++) {
        memcpy(tile + i * NR, &c[i][0], VEC_BYTES);
        memcpy(tile + i * NR + LANES, &c[i][1], VEC_BYTES);
    }
}
#pragma GCC pop_options

/* A strided operand: element (i, j) at ptr[i * rs + j * cs]. */
struct operand {
    const REAL *ptr;
    int64_t rs, cs;
};

/* Panels of MR rows, k-major, zero rows below m. */
static void pack_a(struct operand a, int64_t m, int64_t k, REAL *restrict out)
{
    for (int64_t i0 = 0; i0 < m; i0 += MR, out += MR * k) {
        int64_t rows = m - i0 < MR ? m - i0 : MR;
        const REAL *src = a.ptr + i0 * a.rs;
        if (rows < MR)
            memset(out, 0, (size_t)(MR * k) * sizeof(REAL));
        if (rows == MR && a.rs == 1) {
            for (int64_t p = 0; p < k; p++)
                memcpy(out + p * MR, src + p * a.cs, MR * sizeof(REAL));
        } else if (rows == MR) {
            for (int64_t p = 0; p < k; p++)
                for (int64_t i = 0; i < MR; i++)
                    out[p * MR + i] = src[i * a.rs + p * a.cs];
        } else {
            for (int64_t i = 0; i < rows; i++)
                for (int64_t p = 0; p < k; p++)
                    out[p * MR + i] = src[i * a.rs + p * a.cs];
        }
    }
}

/* Panels of NR columns, k-major, zero columns past n. */
static void pack_b(struct operand b, int64_t k, int64_t n, REAL *restrict out)
{
    for (int64_t j0 = 0; j0 < n; j0 += NR, out += NR * k) {
        int64_t cols = n - j0 < NR ? n - j0 : NR;
        const REAL *src = b.ptr + j0 * b.cs;
        if (cols < NR)
            memset(out, 0, (size_t)(NR * k) * sizeof(REAL));
        if (cols == NR && b.cs == 1) {
            for (int64_t p = 0; p < k; p++)
                memcpy(out + p * NR, src + p * b.rs, NR * sizeof(REAL));
        } else {
            for (int64_t j = 0; j < cols; j++)
                for (int64_t p = 0; p < k; p++)
                    out[p * NR + j] = src[p * b.rs + j * b.cs];
        }
    }
}

/* c = alpha · tile + beta · c on the part of the tile inside the matrix. */
static void add_tile(const REAL *restrict tile, int64_t rows, int64_t cols, REAL alpha, REAL beta, REAL *restrict c, int64_t ldc)
{
    for (int64_t i = 0; i < rows; i++, c += ldc, tile += NR) {
        if (beta == 0)
            for (int64_t j = 0; j < cols; j++)
                c[j] = alpha * tile[j];
        else
            for (int64_t j = 0; j < cols; j++)
                c[j] = alpha * tile[j] + beta * c[j];
    }
}

/* Product of packed panels: m <= MC rows, any n, k <= KC. */
static void gemm_packed(const REAL *pa, const REAL *pb, int64_t m, int64_t n, int64_t k, REAL alpha, REAL beta, REAL *c,
                        int64_t ldc)
{
    REAL tile[MR * NR] __attribute__((aligned(64)));
    for (int64_t j = 0; j < n; j += NR)
        for (int64_t i = 0; i < m; i += MR) {
            gemm_tile(k, pa + i * k, pb + j * k, tile);
            add_tile(tile, m - i < MR ? m - i : MR, n - j < NR ? n - j : NR, alpha, beta, c + i * ldc + j, ldc);
        }
}

static void gemm_own(struct ops_cpu *o, int64_t m, int64_t n, int64_t k, REAL alpha, struct operand a, struct operand b,
                     REAL beta, REAL *c, int64_t ldc)
{
    for (int64_t j = 0; j < n; j += NC) {
        int64_t nb = n - j < NC ? n - j : NC;
        for (int64_t p = 0; p < k; p += KC) {
            int64_t kb = k - p < KC ? k - p : KC;
            pack_b((struct operand){b.ptr + p * b.rs + j * b.cs, b.rs, b.cs}, kb, nb, o->pack_b);
            for (int64_t i = 0; i < m; i += MC) {
                int64_t mb = m - i < MC ? m - i : MC;
                pack_a((struct operand){a.ptr + i * a.rs + p * a.cs, a.rs, a.cs}, mb, kb, o->pack_a);
                gemm_packed(o->pack_a, o->pack_b, mb, nb, kb, alpha, p ? 1 : beta, c + i * ldc + j, ldc);
                ops_cpu_tick(&o->ops);
            }
        }
    }
}

/* k = 0: only beta acts. */
static void scale_rows(REAL *c, int64_t m, int64_t n, int64_t ldc, REAL beta)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

static void gemm_blas(struct ops_cpu *o, const struct ops_gemm *g, int64_t m, int64_t n, int64_t k)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* cblas.h */
    int ta = g->ta ? TRANSPOSED : PLAIN, tb = g->tb ? TRANSPOSED : PLAIN;
#ifdef REAL_IS_F64
    o->dgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, g->alpha, g->a.ptr, (int)g->a.ld, g->b.ptr, (int)g->b.ld, g->beta,
             g->c.ptr, (int)g->c.ld);
#else
    o->sgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, (float)g->alpha, g->a.ptr, (int)g->a.ld, g->b.ptr, (int)g->b.ld,
             (float)g->beta, g->c.ptr, (int)g->c.ld);
#endif
    ops_cpu_tick(&o->ops);
}

static struct operand operand_of(const struct tensor *t, bool transposed)
{
    return (struct operand){t->ptr, transposed ? 1 : t->ld, transposed ? t->ld : 1};
}

/* The product alone, without epilogue. */
static void gemm_product(struct ops_cpu *o, const struct ops_gemm *g)
{
    int64_t m = g->c.rows, n = g->c.cols, k = g->ta ? g->a.rows : g->a.cols;
    BUG_ON((g->ta ? g->a.cols : g->a.rows) != m);
    BUG_ON((g->tb ? g->b.rows : g->b.cols) != n || (g->tb ? g->b.cols : g->b.rows) != k);
    if (m == 0 || n == 0)
        return;
    if (k == 0)
        scale_rows(g->c.ptr, m, n, g->c.ld, (REAL)g->beta);
    else if (o->blas)
        gemm_blas(o, g, m, n, k);
    else
        gemm_own(o, m, n, k, (REAL)g->alpha, operand_of(&g->a, g->ta), operand_of(&g->b, g->tb), (REAL)g->beta, g->c.ptr,
                 g->c.ld);
}

#endif
