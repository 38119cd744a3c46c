/* Blocked matrix product for REAL, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
 * (TOMS 34:3, 2008): B is packed in KC x NC blocks of NR-wide panels, A a panel of MR rows at a time, and a register tile of
 * MR x NR is summed over k in order. Element (i, j) is therefore the same sum whatever m, n, and its place in the matrix are:
 * results do not depend on how rows are grouped.
 *
 * A panel of A (12 KiB) stays in the first cache while it meets the whole block of B, which streams from the second; C is written
 * row by row, so that whole lines and pages of it follow one another. An operand whose rows run along k is packed by
 * transposing squares of LANES x LANES in registers.
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
enum { KC = 256, NC = 768 };
_Static_assert(NC % NR == 0, "blocks hold whole panels");

typedef REAL vec __attribute__((vector_size(VEC_BYTES)));
#ifdef REAL_IS_F64
typedef int64_t lane_number;
#else
typedef int32_t lane_number;
#endif
typedef lane_number lane_index __attribute__((vector_size(VEC_BYTES)));
static const lane_number lane_numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
/* tile [MR][NR] = sum over k of a[k][MR] ⊗ b[k][NR]; rows of a are `step` apart. */
static void gemm_tile(int64_t k, const REAL *restrict a, int64_t step, const REAL *restrict b, REAL *restrict tile)
{
    vec c[MR][2];
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++)
        c[i][0] = c[i][1] = (vec){0};
    for (int64_t p = 0; p < k; p++, a += step, b += NR) {
        vec b0 = ((const vec *)b)[0], b1 = ((const vec *)b)[1];
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            c[i][0] += a[i] * b0;
            c[i][1] += a[i] * b1;
        }
    }
#pragma GCC unroll 12
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

/* x[i][j] and x[j][i] change places: at each width h, of every two rows h apart, the halves that are h apart. */
static inline void transpose(vec x[LANES])
{
    lane_index lane;
    memcpy(&lane, lane_numbers, sizeof lane);
#pragma GCC unroll 4
    for (int h = 1; h < LANES; h *= 2) {
        lane_index low = lane + (((lane & h) != 0) & (LANES - h)), high = low + h;
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & h)) {
                vec a = x[i], b = x[i + h];
                x[i] = __builtin_shuffle(a, b, low);
                x[i + h] = __builtin_shuffle(a, b, high);
            }
    }
}

/* out[p * width + i] = src[i * stride + p] for `rows` (known to the compiler, at most LANES) rows and p < k. What a whole vector writes
 * past `rows` lies in the row of `out` below it. */
static inline __attribute__((always_inline)) void pack_transposed(const REAL *restrict src, int64_t stride, const int rows,
                                                                  int64_t k, int width, REAL *restrict out)
{
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES) {
        vec x[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            x[i] = (vec){0};
            if (i < rows)
                memcpy(&x[i], src + i * stride + p, VEC_BYTES);
        }
        transpose(x);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (p + LANES < k)
                memcpy(out + (p + i) * width, &x[i], VEC_BYTES);
            else
                memcpy(out + (p + i) * width, &x[i], (size_t)rows * sizeof(REAL));
    }
    for (; p < k; p++)
        for (int i = 0; i < rows; i++)
            out[p * width + i] = src[i * stride + p];
}

/* One panel of `width` columns, k-major: out[p * width + j] = element (p, j), zero past n. */
static inline __attribute__((always_inline)) void pack_panel(struct operand b, int64_t k, int64_t n, const int width,
                                                             REAL *restrict out)
{
    if (n < width) {
        memset(out, 0, (size_t)(width * k) * sizeof(REAL));
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++)
                out[p * width + j] = b.ptr[p * b.rs + j * b.cs];
    } else if (b.cs == 1) {
        for (int64_t p = 0; p < k; p++)
            memcpy(out + p * width, b.ptr + p * b.rs, (size_t)width * sizeof(REAL));
    } else if (b.rs == 1) {
        const int whole = width / LANES * LANES;
        if (whole < width) /* first: it may write past its columns */
            pack_transposed(b.ptr + whole * b.cs, b.cs, width - whole, k, width, out + whole);
        for (int j = 0; j < whole; j += LANES)
            pack_transposed(b.ptr + j * b.cs, b.cs, LANES, k, width, out + j);
    } else {
        for (int64_t p = 0; p < k; p++)
            for (int j = 0; j < width; j++)
                out[p * width + j] = b.ptr[p * b.rs + j * b.cs];
    }
}

/* Panels of MR rows, k-major, zero rows below m. */
static void pack_a(struct operand a, int64_t m, int64_t k, REAL *restrict out)
{
    for (int64_t i = 0; i < m; i += MR, out += MR * k)
        pack_panel((struct operand){a.ptr + i * a.rs, a.cs, a.rs}, k, m - i, MR, out);
}

/* Panels of NR columns, k-major, zero columns past n. */
static void pack_b(struct operand b, int64_t k, int64_t n, REAL *restrict out)
{
    for (int64_t j = 0; j < n; j += NR, out += NR * k)
        pack_panel((struct operand){b.ptr + j * b.cs, b.rs, b.cs}, k, n - j, NR, out);
}

/* c = alpha · tile + beta · c on the part of the tile inside the matrix. */
static inline void add_row_of_tile(const REAL *restrict tile, int64_t cols, REAL alpha, REAL beta, REAL *restrict c)
{
    if (beta == 0)
        for (int64_t j = 0; j < cols; j++)
            c[j] = alpha * tile[j];
    else
        for (int64_t j = 0; j < cols; j++)
            c[j] = alpha * tile[j] + beta * c[j];
}

static void add_tile(const REAL *restrict tile, int64_t rows, int64_t cols, REAL alpha, REAL beta, REAL *restrict c, int64_t ldc)
{
    for (int64_t i = 0; i < rows; i++, c += ldc, tile += NR) {
        if (cols == NR) /* a length that the compiler knows */
            add_row_of_tile(tile, NR, alpha, beta, c);
        else
            add_row_of_tile(tile, cols, alpha, beta, c);
    }
}

/* A left operand, k-major: element (i, p) of panel i / MR at ptr[(i / MR) * panel + p * step + i % MR]. */
struct left {
    const REAL *ptr;
    int64_t panel, step;
};

static inline struct left left_packed(const REAL *ptr, int64_t k) { return (struct left){ptr, MR * k, MR}; }

/* Product with packed B: any m and n, k <= KC. Rows of A's last panel are there, whatever they hold. */
static void gemm_packed(struct left a, const REAL *pb, int64_t m, int64_t n, int64_t k, REAL alpha, REAL beta, REAL *c, int64_t ldc)
{
    REAL tile[MR * NR] __attribute__((aligned(64)));
    for (int64_t i = 0; i < m; i += MR)
        for (int64_t j = 0; j < n; j += NR) {
            gemm_tile(k, a.ptr + i / MR * a.panel, a.step, pb + j * k, tile);
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
            for (int64_t i = 0; i < m; i += MR) {
                int64_t mb = m - i < MR ? m - i : MR;
                pack_a((struct operand){a.ptr + i * a.rs + p * a.cs, a.rs, a.cs}, mb, kb, o->pack_a);
                gemm_packed(left_packed(o->pack_a, kb), o->pack_b, mb, nb, kb, alpha, p ? 1 : beta, c + i * ldc + j, ldc);
            }
            ops_cpu_tick(&o->ops);
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
