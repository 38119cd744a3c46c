/* Multiplies matrices of REAL in blocks, after Goto and van de Geijn, "Anatomy of high-performance
 * matrix multiplication" (TOMS 34:3, 2008). B is packed in KC x NC blocks of NR-wide panels. A is
 * read one panel of MR rows at a time. A register tile of MR x NR is summed over k in order. So
 * element (i, j) is the same sum whatever m, n and its place in the matrix are: results do not
 * depend on how rows are grouped.
 *
 * A panel of A (12 KiB of f32 with AVX-512) stays in the L1 cache while it is multiplied with the
 * whole block of B, which streams from the L2 cache. C is written row by row, so that its cache
 * lines and pages are written in order. Rows of A that are contiguous along k are read in place:
 * the tile reads one number at a time from each. An operand whose columns are contiguous along k is
 * packed by transposing squares of LANES x LANES in registers.
 *
 * Vectors are gcc's vector types. The tile fits the 32 registers of AVX-512, or else 16 registers.
 * Only the register tile is compiled with contraction, which gives fused multiply-adds where the
 * processor has them. A tile that reaches past the matrix's edge is added with real_fma, which
 * rounds in the same way.
 */
#ifndef TRAINER_OPS_GEMM_IMPL_H
#define TRAINER_OPS_GEMM_IMPL_H

#include <string.h>

#include "trainer/ops/math_impl.h"
#include "trainer/ops/ops_cpu_act_impl.h"
#include "trainer/ops/rows_impl.h"

#if defined(__AVX512F__)
enum { VEC_BYTES = 64, MR = 12 };
#elif defined(__AVX__)
enum { VEC_BYTES = 32, MR = 6 };
#else
enum { VEC_BYTES = 16, MR = 4 };
#endif
enum { LANES = VEC_BYTES / sizeof(REAL), NR = 2 * LANES };
enum { KC = 256, NC = 768, MC = 768 };
_Static_assert(NC % NR == 0 && MC % MR == 0, "blocks hold whole panels");

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
/* Computes c [MR][NR] = alpha · sum over k of a[MR][k] b[k][NR], plus c if `add`. The strides are
 * `down` between rows of a, `step` between its columns, and `ld` between rows of c. */
static void gemm_tile(int64_t k, const REAL *restrict a, int64_t down, int64_t step,
                      const REAL *restrict b, REAL alpha, bool add, REAL *restrict c, int64_t ld)
{
    vec sum[MR][2];
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = (vec){0};
    for (int64_t p = 0; p < k; p++, a += step, b += NR) {
        vec b0 = ((const vec *)b)[0], b1 = ((const vec *)b)[1];
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            sum[i][0] += a[i * down] * b0;
            sum[i][1] += a[i * down] * b1;
        }
    }
    if (add) {
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            vec old0, old1;
            memcpy(&old0, c + i * ld, VEC_BYTES);
            memcpy(&old1, c + i * ld + LANES, VEC_BYTES);
            old0 += alpha * sum[i][0];
            old1 += alpha * sum[i][1];
            memcpy(c + i * ld, &old0, VEC_BYTES);
            memcpy(c + i * ld + LANES, &old1, VEC_BYTES);
        }
    } else {
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            vec out0 = alpha * sum[i][0], out1 = alpha * sum[i][1];
            memcpy(c + i * ld, &out0, VEC_BYTES);
            memcpy(c + i * ld + LANES, &out1, VEC_BYTES);
        }
    }
}
#pragma GCC pop_options

/* Describes a strided operand of REAL or bf16: element (i, j) is ptr[i * rs + j * cs]. */
struct operand {
    const void *ptr;
    int64_t rs, cs;
    bool narrow;
};

static struct operand operand_of(const struct tensor *t, bool transposed)
{
    return (struct operand){t->ptr, transposed ? 1 : t->ld, transposed ? t->ld : 1, is_narrow(t)};
}

static inline struct operand operand_at(struct operand x, int64_t i, int64_t j)
{
    int64_t bytes = x.narrow ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(REAL);
    return (struct operand){(const char *)x.ptr + (i * x.rs + j * x.cs) * bytes, x.rs, x.cs,
                            x.narrow};
}

static inline struct operand operand_turned(struct operand x)
{
    return (struct operand){x.ptr, x.cs, x.rs, x.narrow};
}

/* Return numbers of an operand from index `at` on: one number, one vector, or n numbers in `out`.
 * `narrow` is a constant at compile time. */
static inline __attribute__((always_inline)) REAL number_at(const void *x, int64_t at,
                                                            const bool narrow)
{
    return narrow ? (REAL)bf16_value(((const uint16_t *)x)[at]) : ((const REAL *)x)[at];
}

static inline __attribute__((always_inline)) vec lanes_at(const void *x, int64_t at,
                                                          const bool narrow)
{
    vec v;
#ifdef ACT_IS_BF16
    typedef uint16_t halves __attribute__((vector_size(VEC_BYTES / 2)));
    typedef uint32_t words __attribute__((vector_size(VEC_BYTES)));
    if (narrow) {
        halves h;
        memcpy(&h, (const uint16_t *)x + at, sizeof h);
        return (vec)(__builtin_convertvector(h, words) << 16);
    }
#endif
    (void)narrow;
    memcpy(&v, (const REAL *)x + at, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) void numbers_at(const void *x, int64_t at, const int n,
                                                             const bool narrow, REAL *restrict out)
{
    if (!narrow) {
        memcpy(out, (const REAL *)x + at, (size_t)n * sizeof(REAL));
        return;
    }
    for (int j = 0; j < n; j++)
        out[j] = number_at(x, at + j, narrow);
}

/* Transposes x in place. For each width h, it takes every two rows that are h apart and exchanges
 * the lanes that are h apart. */
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

/* Sets out[p * width + i] = src[i * stride + p] for i < rows and p < k; `rows` is a constant at
 * compile time, at most LANES. A whole vector also writes past `rows`, into the next row of `out`,
 * which is written later. */
static inline __attribute__((always_inline)) void
pack_transposed(const void *restrict src, int64_t stride, const int rows, int64_t k, int width,
                const bool narrow, REAL *restrict out)
{
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES) {
        vec x[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            x[i] = (vec){0};
            if (i < rows)
                x[i] = lanes_at(src, i * stride + p, narrow);
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
            out[p * width + i] = number_at(src, i * stride + p, narrow);
}

/* Packs one panel of `width` columns, k-major: out[p * width + j] = element (p, j), zero past n. */
static inline __attribute__((always_inline)) void
pack_panel_of(struct operand b, int64_t k, int64_t n, const int width, const bool narrow,
              REAL *restrict out)
{
    if (n < width) {
        memset(out, 0, (size_t)(width * k) * sizeof(REAL));
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++)
                out[p * width + j] = number_at(b.ptr, p * b.rs + j * b.cs, narrow);
    } else if (b.cs == 1) {
        for (int64_t p = 0; p < k; p++)
            numbers_at(b.ptr, p * b.rs, width, narrow, out + p * width);
    } else if (b.rs == 1) {
        const int whole = width / LANES * LANES;
        if (whole < width) /* comes first: it may write into the columns packed afterwards */
            pack_transposed(operand_at(b, 0, whole).ptr, b.cs, width - whole, k, width, narrow,
                            out + whole);
        for (int j = 0; j < whole; j += LANES)
            pack_transposed(operand_at(b, 0, j).ptr, b.cs, LANES, k, width, narrow, out + j);
    } else {
        for (int64_t p = 0; p < k; p++)
            for (int j = 0; j < width; j++)
                out[p * width + j] = number_at(b.ptr, p * b.rs + j * b.cs, narrow);
    }
}

static inline __attribute__((always_inline)) void pack_panel(struct operand b, int64_t k, int64_t n,
                                                             const int width, REAL *restrict out)
{
#ifdef ACT_IS_BF16
    if (b.narrow) {
        pack_panel_of(b, k, n, width, true, out);
        return;
    }
#endif
    pack_panel_of(b, k, n, width, false, out);
}

/* Packs panels of MR rows, k-major, with zero rows past m. This function, pack_b and gemm_packed
 * are not inlined: when they were inlined in attention, they took a third of this table's compile
 * time, and attention was no faster. */
static __attribute__((noinline)) void pack_a(struct operand a, int64_t m, int64_t k,
                                             REAL *restrict out)
{
    for (int64_t i = 0; i < m; i += MR, out += MR * k)
        pack_panel(operand_turned(operand_at(a, i, 0)), k, m - i, MR, out);
}

/* Packs panels of NR columns, k-major, with zero columns past n. */
static __attribute__((noinline)) void pack_b(struct operand b, int64_t k, int64_t n,
                                             REAL *restrict out)
{
    for (int64_t j = 0; j < n; j += NR, out += NR * k)
        pack_panel(operand_at(b, 0, j), k, n - j, NR, out);
}

/* Computes c = alpha · tile + beta · c on the part of the tile inside the matrix, rounded as
 * gemm_tile rounds. */
static void add_tile(const REAL *restrict tile, int64_t rows, int64_t cols, REAL alpha, REAL beta,
                     REAL *restrict c, int64_t ldc)
{
    for (int64_t i = 0; i < rows; i++, c += ldc, tile += NR)
        for (int64_t j = 0; j < cols; j++)
            c[j] = beta == 0 ? alpha * tile[j] : real_fma(alpha, tile[j], beta * c[j]);
}

/* Describes a left operand: element (i, p) is ptr[i / MR * panel + i % MR * down + p * step]. All
 * MR rows of its last panel are readable; rows past the operand may hold anything. */
struct left {
    const REAL *ptr;
    int64_t panel, down, step;
};

static inline struct left left_packed(const REAL *ptr, int64_t k)
{
    return (struct left){ptr, MR * k, 1, MR};
}

/* Returns the operand in place if its rows are contiguous REALs and its panels are whole. Otherwise
 * packs it, so that no panel reads past the last row. */
static struct left left_of(struct operand a, int64_t m, int64_t k, REAL *packed)
{
    if (!a.narrow && a.cs == 1 && m % MR == 0)
        return (struct left){a.ptr, MR * a.rs, a.rs, 1};
    pack_a(a, m, k, packed);
    return left_packed(packed, k);
}

/* Multiplies `a` with a packed B, for any m and n, and k <= KC. */
static __attribute__((noinline)) void gemm_packed(struct left a, const REAL *pb, int64_t m,
                                                  int64_t n, int64_t k, REAL alpha, REAL beta,
                                                  REAL *c, int64_t ldc)
{
    REAL tile[MR * NR] __attribute__((aligned(64)));
    for (int64_t i = 0; i < m; i += MR)
        for (int64_t j = 0; j < n; j += NR) {
            const REAL *pa = a.ptr + i / MR * a.panel;
            REAL *at = c + i * ldc + j;
            if (m - i >= MR && n - j >= NR && (beta == 0 || beta == 1)) {
                gemm_tile(k, pa, a.down, a.step, pb + j * k, alpha, beta == 1, at, ldc);
            } else {
                gemm_tile(k, pa, a.down, a.step, pb + j * k, 1, false, tile, NR);
                add_tile(tile, m - i < MR ? m - i : MR, n - j < NR ? n - j : NR, alpha, beta, at,
                         ldc);
            }
        }
}

/* Computes c = beta · c, which is all of a product with k = 0. */
static void scale_rows(struct block c, int64_t m, int64_t n, REAL beta)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c.ptr[i * c.ld + j] = beta == 0 ? 0 : beta * c.ptr[i * c.ld + j];
}

/* Writes aux and applies act and rounding to the finished sums. act is applied to the number as aux
 * stores it, so that backward, which reads aux, computes the same activation. */
static void gemm_finish(const struct ops_gemm *g, struct block c)
{
    for (int64_t i = 0; i < g->c.rows && (g->aux.ptr || g->act != OPS_ACT_NONE); i++) {
        REAL *row = c.ptr + i * c.ld;
        if (g->aux.ptr)
            row_keep(&g->aux, i, row);
        act_row(g->act, g->c.cols, row, NULL, row);
    }
    block_store(&g->c, c);
}

/* Returns the part of a product that gives rows i .. i+m-1 and columns j .. j+n-1 of c. */
static struct ops_gemm gemm_part(const struct ops_gemm *g, int64_t i, int64_t m, int64_t j,
                                 int64_t n)
{
    struct ops_gemm p = *g;
    p.a = g->ta ? tensor_cols(g->a, i, m) : tensor_rows(g->a, i, m);
    p.b = g->tb ? tensor_rows(g->b, j, n) : tensor_cols(g->b, j, n);
    p.c = tensor_cols(tensor_rows(g->c, i, m), j, n);
    if (g->aux.ptr)
        p.aux = tensor_cols(tensor_rows(g->aux, i, m), j, n);
    return p;
}

/* Computes a product of at most NC columns. If c must be rounded, which happens after the sum over
 * all of k, it has at most MC rows. */
static void gemm_block(struct ops_cpu *o, const struct ops_gemm *g, int64_t k)
{
    struct operand a = operand_of(&g->a, g->ta), b = operand_of(&g->b, g->tb);
    struct block c = block_open(&g->c, o->block, g->beta != 0);
    int64_t m = g->c.rows, n = g->c.cols;
    if (k == 0)
        scale_rows(c, m, n, (REAL)g->beta);
    for (int64_t p = 0; p < k; p += KC) {
        int64_t kb = k - p < KC ? k - p : KC;
        pack_b(operand_at(b, p, 0), kb, n, o->pack_b);
        for (int64_t i = 0; i < m; i += MR) {
            int64_t mb = m - i < MR ? m - i : MR;
            struct left left = left_of(operand_at(a, i, p), mb, kb, o->pack_a);
            gemm_packed(left, o->pack_b, mb, n, kb, (REAL)g->alpha, p ? 1 : (REAL)g->beta,
                        c.ptr + i * c.ld, c.ld);
        }
        ops_cpu_tick(&o->ops);
    }
    gemm_finish(g, c);
}

static void gemm_own(struct ops_cpu *o, const struct ops_gemm *g, int64_t k)
{
    int64_t m = g->c.rows, n = g->c.cols, rows = is_narrow(&g->c) ? MC : m;
    for (int64_t j = 0; j < n; j += NC)
        for (int64_t i = 0; i < m; i += rows) {
            struct ops_gemm part = gemm_part(g, i, m - i < rows ? m - i : rows, j,
                                             n - j < NC ? n - j : NC);
            gemm_block(o, &part, k);
        }
}

static void gemm_blas(struct ops_cpu *o, const struct ops_gemm *g, int64_t m, int64_t n, int64_t k)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* cblas.h */
    int ta = g->ta ? TRANSPOSED : PLAIN, tb = g->tb ? TRANSPOSED : PLAIN;
#ifdef REAL_IS_F64
    o->dgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, g->alpha, g->a.ptr, (int)g->a.ld, g->b.ptr,
             (int)g->b.ld, g->beta, g->c.ptr, (int)g->c.ld);
#else
    o->sgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, (float)g->alpha, g->a.ptr, (int)g->a.ld,
             g->b.ptr, (int)g->b.ld, (float)g->beta, g->c.ptr, (int)g->c.ld);
#endif
    gemm_finish(g, (struct block){g->c.ptr, g->c.ld});
    ops_cpu_tick(&o->ops);
}

static void op_gemm(struct ops *o, struct dev_stream *s, const struct ops_gemm *g)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    int64_t m = g->c.rows, n = g->c.cols, k = g->ta ? g->a.rows : g->a.cols;
    (void)s;
    BUG_ON((g->ta ? g->a.cols : g->a.rows) != m || (g->act != OPS_ACT_NONE && g->beta != 0));
    BUG_ON((g->tb ? g->b.rows : g->b.cols) != n || (g->tb ? g->b.cols : g->b.rows) != k);
    if (c->blas && m > 0 && n > 0 && k > 0)
        gemm_blas(c, g, m, n, k);
    else
        gemm_own(c, g, k);
}

#endif
