/* Defines scalar functions for REAL that gcc vectorises in a loop (they have no call, branch or
 * table), and sums in a fixed order.
 *
 * exp: x = n ln2 + r, |r| <= ln2/2, Taylor series of r to r^13 (double; remainder below 5e-18) or
 * r^7 (float; below 6e-9), times 2^n, which is put together from bits. Arguments are clamped to the
 * range where the result is a normal number. real_exp_low clamps from below only, for callers whose
 * arguments are never large, such as softmax: gcc makes nine instructions of two successive clamps
 * and two of one.
 *
 * erf: for float the Chebyshev series of erf(x)/x in x² on |x| <= 4, written as a polynomial of
 * degree 16 in x²/8 - 1 (largest absolute error 1.7e-7 in float arithmetic over 40,000 points). For
 * double, the oracle, it is libm's, which gcc does not vectorise.
 */
#ifndef TRAINER_OPS_MATH_IMPL_H
#define TRAINER_OPS_MATH_IMPL_H

#include <math.h>
#include <string.h>

#include "trainer/ops/ops_cpu_priv.h"

/* Returns a b + c, rounded once if the processor has fused multiply-add. In these series the result
 * is then as accurate or more, with half the instructions. */
static inline REAL real_fma(REAL a, REAL b, REAL c)
{
#if defined(__FP_FAST_FMA) && defined(REAL_IS_F64)
    return __builtin_fma(a, b, c);
#elif defined(__FP_FAST_FMAF) && !defined(REAL_IS_F64)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

#ifdef REAL_IS_F64
static inline REAL real_exp_low(REAL x)
{
    const double magic = 0x1.8p52; /* adding it rounds to an integer, held in the low bits */
    x = x < -708.0 ? -708.0 : x;
    double shifted = x * 1.4426950408889634 + magic, n = shifted - magic;
    double r = real_fma(n, -0x1.cf79abc9e3b3ap-40, real_fma(n, -0x1.62e42fefa0000p-1, x));
    double p = 1.0 / 6227020800.0;
    p = real_fma(p, r, 1.0 / 479001600.0);
    p = real_fma(p, r, 1.0 / 39916800.0);
    p = real_fma(p, r, 1.0 / 3628800.0);
    p = real_fma(p, r, 1.0 / 362880.0);
    p = real_fma(p, r, 1.0 / 40320.0);
    p = real_fma(p, r, 1.0 / 5040.0);
    p = real_fma(p, r, 1.0 / 720.0);
    p = real_fma(p, r, 1.0 / 120.0);
    p = real_fma(p, r, 1.0 / 24.0);
    p = real_fma(p, r, 1.0 / 6.0);
    p = real_fma(p, r, 0.5);
    p = real_fma(p, r, 1.0);
    p = real_fma(p, r, 1.0);
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
static inline REAL real_exp(REAL x) { return real_exp_low(x > 709.0 ? 709.0 : x); }
static inline REAL real_erf(REAL x) { return erf(x); }
static inline REAL real_sqrt(REAL x) { return sqrt(x); }
#else
static inline REAL real_exp_low(REAL x)
{
    const float magic = 0x1.8p23f;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504f + magic, n = shifted - magic;
    float r = real_fma(n, -0x1.7f7d1cp-20f, real_fma(n, -0x1.62e4p-1f, x));
    float p = 1.0f / 5040.0f;
    p = real_fma(p, r, 1.0f / 720.0f);
    p = real_fma(p, r, 1.0f / 120.0f);
    p = real_fma(p, r, 1.0f / 24.0f);
    p = real_fma(p, r, 1.0f / 6.0f);
    p = real_fma(p, r, 0.5f);
    p = real_fma(p, r, 1.0f);
    p = real_fma(p, r, 1.0f);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

static inline REAL real_exp(REAL x) { return real_exp_low(x > 88.0f ? 88.0f : x); }

static inline REAL real_erf(REAL x)
{
    float a = x > 4.0f ? 4.0f : x < -4.0f ? -4.0f : x;
    float u = a * a * 0.125f - 1.0f;
    float p = 0.000596425068f;
    p = real_fma(p, u, -0.00137281509f);
    p = real_fma(p, u, 0.000616610737f);
    p = real_fma(p, u, -0.00107694211f);
    p = real_fma(p, u, 0.00557736365f);
    p = real_fma(p, u, -0.010085907f);
    p = real_fma(p, u, 0.0139081462f);
    p = real_fma(p, u, -0.0216625323f);
    p = real_fma(p, u, 0.0332170011f);
    p = real_fma(p, u, -0.0460143214f);
    p = real_fma(p, u, 0.0598559936f);
    p = real_fma(p, u, -0.0746875307f);
    p = real_fma(p, u, 0.0902120427f);
    p = real_fma(p, u, -0.107713361f);
    p = real_fma(p, u, 0.131675001f);
    p = real_fma(p, u, -0.176576172f);
    p = real_fma(p, u, 0.353530996f);
    return a * p;
}
static inline REAL real_sqrt(REAL x) { return sqrtf(x); }
#endif

enum { SUM_LANES = 16 };

/* Adds sixteen partial sums pairwise. The order is the same in every call, and the compiler can use
 * vectors. */
static inline REAL lanes_total(REAL *restrict lane)
{
    for (int width = SUM_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

static inline REAL row_sum(const REAL *restrict x, int64_t n)
{
    REAL lane[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= n; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += x[j + l];
    for (int l = 0; j < n; j++, l++)
        lane[l] += x[j];
    return lanes_total(lane);
}

static inline REAL row_dot(const REAL *restrict x, const REAL *restrict y, int64_t n)
{
    REAL lane[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= n; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += x[j + l] * y[j + l];
    for (int l = 0; j < n; j++, l++)
        lane[l] += x[j] * y[j];
    return lanes_total(lane);
}

/* Returns the sum of (x - center)². */
static inline REAL row_sumsq(const REAL *restrict x, REAL center, int64_t n)
{
    REAL lane[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= n; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += (x[j + l] - center) * (x[j + l] - center);
    for (int l = 0; j < n; j++, l++)
        lane[l] += (x[j] - center) * (x[j] - center);
    return lanes_total(lane);
}

#endif
