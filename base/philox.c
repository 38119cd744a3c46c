/* The generator
 *
 * Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC'11, section 3.3: ten rounds of two 32x32 -> 64 bit products and a key that is bumped by Weyl
 * constants between rounds.
 *
 * philox_at packs key = (seed low, seed high) and counter = (block low, block high 24 bits | stream
 * << 24, ordinal low, ordinal high). Streams therefore never share a counter, whatever ordinal and
 * block are.
 *
 * Normals
 *
 * They are the inverse of the normal distribution by Wichura's algorithm AS 241 (PPND16; Applied
 * Statistics 37, 1988): three ratios of polynomials of degree 7. Its tails need sqrt(-log p); the
 * logarithm is ours: p = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m-1)/(m+1)) by its
 * series up to s^23 (|s| < 0.1716, so the first term left out is below 2e-20), log 2 in two parts.
 * Everything is IEEE double + - * / sqrt in a fixed order: no libm function that may differ between
 * machines, no fused multiply-add. A CUDA translation must use the _rn intrinsics or -fmad=false.
 * The largest error over every u that the generator can make is below 1e-14 absolute, measured by
 * the unit test.
 *
 * Contraction must be off. gcc has it off with -std=c17, and the pragma is for clang; the unit test
 * holds golden bits.
 *
 * Permutation
 *
 * philox_permute is a Feistel network over the b bits that n-1 needs (at least 2), split b/2 : b -
 * b/2, the two parts changed in turn by Philox of the other. It is a bijection on 0..2^b-1. Values
 * of n and above are sent through it again until one below n comes out (cycle walking). The walk
 * follows a cycle of the permutation that holds i < n, so it ends, after at most 2^b - n + 1 steps,
 * and since 2^b < 2n (n > 2) after fewer than 2 on average. The result is again a bijection, of
 * 0..n-1: walking is the permutation with the values of n and above cut out of its cycles.
 */
#include "base/philox.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/err.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "normals need plain double arithmetic: on 32-bit x86 compile "
                                     "with -msse2 -mfpmath=sse");

struct philox_block philox4x32(const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0],
             k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    return (struct philox_block){{c0, c1, c2, c3}};
}

struct philox_block philox_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                              uint64_t block)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32) | (uint32_t)stream << 24,
                                 (uint32_t)ordinal, (uint32_t)(ordinal >> 32)};

    BUG_ON(block >> 56 != 0);
    return philox4x32(counter, key);
}

double philox_uniform(uint32_t hi, uint32_t lo)
{
    uint64_t k = ((uint64_t)hi << 32 | lo) >> 12; /* below 2^52, so that k + 0.5 is exact */

    return ((double)k + 0.5) * 0x1p-52;
}

/* Returns the natural logarithm of a normal positive double, with an absolute error below 2 ulp of
 * the result or 1e-16. */
static double log_fixed(double x)
{
    /* ln2_hi has 17 low zero bits, so that e*hi is exact. */
    static const double ln2_hi = 0x1.62e42fefa0000p-1, ln2_lo = 0x1.cf79abc9e3b3ap-40;
    uint64_t bits;
    double m, s, z, p;
    int e;

    memcpy(&bits, &x, sizeof bits);
    e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m); /* in [1, 2) */
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        e++;
    }
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    p = 1.0 / 23;
    for (int k = 21; k >= 3; k -= 2)
        p = p * z + 1.0 / k;
    return e * ln2_hi + (e * ln2_lo + (2.0 * s + 2.0 * s * z * p));
}

/* Returns c[0] + c[1] x + ... + c[7] x^7. */
static double poly7(const double c[8], double x)
{
    double y = c[7];

    for (int i = 6; i >= 0; i--)
        y = y * x + c[i];
    return y;
}

/* These are the three ratios of AS 241: for |u - 1/2| <= 0.425; for r = sqrt(-log p) up to 5;
 * beyond. */
static const double center_num[8] = {
    3.3871328727963666080e0, 1.3314166789178437745e2,
    1.9715909503065514427e3, 1.3731693765509461125e4,
    4.5921953931549871457e4, 6.7265770927008700853e4,
    3.3430575583588128105e4, 2.5090809287301226727e3};
static const double center_den[8] = {
    1.0,                     4.2313330701600911252e1,
    6.8718700749205790830e2, 5.3941960214247511077e3,
    2.1213794301586595867e4, 3.9307895800092710610e4,
    2.8729085735721942674e4, 5.2264952788528545610e3};
static const double middle_num[8] = {
    1.42343711074968357734e0,  4.63033784615654529590e0,
    5.76949722146069140550e0,  3.64784832476320460504e0,
    1.27045825245236838258e0,  2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4};
static const double middle_den[8] = {
    1.0,                       2.05319162663775882187e0,
    1.67638483018380384940e0,  6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2,
    5.47593808499534494600e-4, 1.05075007164441684324e-9};
static const double tail_num[8] = {
    6.65790464350110377720e0,  5.46378491116411436990e0,
    1.78482653991729133580e0,  2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7};
static const double tail_den[8] = {
    1.0,                       5.99832206555887937690e-1,
    1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5,
    1.42151175831644588870e-7, 2.04426310338993978564e-15};

double philox_normal_from_uniform(double u)
{
    double q = u - 0.5, r, x;

    BUG_ON(!(u > 0 && u < 1));
    if (q >= -0.425 && q <= 0.425) {
        r = 0.180625 - q * q;
        return q * poly7(center_num, r) / poly7(center_den, r);
    }
    r = sqrt(-log_fixed(q < 0 ? u : 1.0 - u));
    if (r <= 5.0)
        x = poly7(middle_num, r - 1.6) / poly7(middle_den, r - 1.6);
    else
        x = poly7(tail_num, r - 5.0) / poly7(tail_den, r - 5.0);
    return q < 0 ? -x : x;
}

double philox_uniform_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t index)
{
    struct philox_block b = philox_at(seed, stream, ordinal, index / 2);
    unsigned at = (index & 1) * 2;

    return philox_uniform(b.w[at], b.w[at + 1]);
}

double philox_normal_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t index)
{
    return philox_normal_from_uniform(philox_uniform_at(seed, stream, ordinal, index));
}

void philox_normal_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                        size_t n, double *out)
{
    size_t i = 0;

    if (n > 0 && first % 2 == 1)
        out[i++] = philox_normal_at(seed, stream, ordinal, first);
    for (; i + 1 < n; i += 2) {
        struct philox_block b = philox_at(seed, stream, ordinal, (first + i) / 2);
        out[i] = philox_normal_from_uniform(philox_uniform(b.w[0], b.w[1]));
        out[i + 1] = philox_normal_from_uniform(philox_uniform(b.w[2], b.w[3]));
    }
    if (i < n)
        out[i] = philox_normal_at(seed, stream, ordinal, first + i);
}

enum { FEISTEL_ROUNDS = 8 };

static uint64_t feistel(uint64_t seed, uint64_t epoch, int low_bits, int high_bits, uint64_t x)
{
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1, high_mask = (UINT64_C(1) << high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> low_bits;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t from = round % 2 ? high : low; /* at most 32 bits, above which the round stands */
        uint64_t f = philox_at(seed, PHILOX_ORDER, epoch, round << 40 | from).w[0];
        if (round % 2)
            low ^= f & low_mask;
        else
            high ^= f & high_mask;
    }
    return high << low_bits | low;
}

uint64_t philox_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    int bits = 2;

    BUG_ON(i >= n);
    while (bits < 64 && (n - 1) >> bits != 0)
        bits++;
    do
        i = feistel(seed, epoch, bits / 2, bits - bits / 2, i);
    while (i >= n);
    return i;
}
