/* This is the arithmetic of philox.h as inline functions, which the CPU and CUDA kernels share, so
 * that both compute the same bits. philox.c names the sources of the algorithms. Contraction must
 * be off: -std=c17 for gcc, the pragma in philox.c for clang, -fmad=false for nvcc.
 */
#ifndef BASE_PHILOX_IMPL_H
#define BASE_PHILOX_IMPL_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/host_device.h"
#include "base/philox.h"

/* These are the multipliers of a round, and what is added to the key between rounds: the
 * golden ratio and sqrt(3) - 1. */
#define PHILOX_ROUNDS 10
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

/* Computes the ten rounds of Philox4x32-10. The published known-answer tests are for this
 * function. */
static inline HOST_DEVICE struct philox_block philox_rounds(const uint32_t counter[4],
                                                            const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0],
             k1 = key[1];

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    struct philox_block out = {{c0, c1, c2, c3}};
    return out;
}

/* Packs key and counter and computes the rounds; block is below 2^56. */
static inline HOST_DEVICE struct philox_block philox_packed(uint64_t seed,
                                                            enum philox_stream stream,
                                                            uint64_t ordinal, uint64_t block)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32) | (uint32_t)stream << 24,
                                 (uint32_t)ordinal, (uint32_t)(ordinal >> 32)};
    return philox_rounds(counter, key);
}

/* Returns the number in (0,1) that the upper 52 of the 64 bits make. A double of 2^52 + k has the
 * bits of 2^52 with k in its fraction, and few processors convert many integers at a time. */
static inline HOST_DEVICE double philox_unit(uint32_t hi, uint32_t lo)
{
    uint64_t bits = ((uint64_t)hi << 32 | lo) >> 12 | 0x4330000000000000u;
    double k;

    memcpy(&k, &bits, sizeof k);
    return (k - 0x1p52 + 0.5) * 0x1p-52; /* below 2^52, so that k + 0.5 is exact */
}

/* Returns the natural logarithm of a normal positive double, with an absolute error below 2 ulp of
 * the result or 1e-16. */
static inline HOST_DEVICE double philox_log(double x)
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
static inline HOST_DEVICE double philox_poly7(const double c[8], double x)
{
    double y = c[7];

    for (int i = 6; i >= 0; i--)
        y = y * x + c[i];
    return y;
}

/* Tells whether the central ratio holds for u. */
static inline HOST_DEVICE bool philox_is_central(double u)
{
    return u - 0.5 >= -0.425 && u - 0.5 <= 0.425;
}

/* Returns the inverse normal distribution of a central u, where q = u - 1/2: q times the central
 * ratio of AS 241 at r = 0.425^2 - q^2. */
static inline HOST_DEVICE double philox_center(double u)
{
    static const double num[8] = {
        3.3871328727963666080e0, 1.3314166789178437745e2,
        1.9715909503065514427e3, 1.3731693765509461125e4,
        4.5921953931549871457e4, 6.7265770927008700853e4,
        3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double den[8] = {
        1.0,                     4.2313330701600911252e1,
        6.8718700749205790830e2, 5.3941960214247511077e3,
        2.1213794301586595867e4, 3.9307895800092710610e4,
        2.8729085735721942674e4, 5.2264952788528545610e3};
    double q = u - 0.5, r = 0.180625 - q * q;
    return q * philox_poly7(num, r) / philox_poly7(den, r);
}

/* Returns the distance from u to the nearer end of (0,1). */
static inline HOST_DEVICE double philox_to_end(double u) { return u < 0.5 ? u : 1.0 - u; }

/* Returns the middle ratio of AS 241, for sqrt(-log p) <= 5. The argument is sqrt(-log p) - 1.6. */
static inline HOST_DEVICE double philox_middle(double r)
{
    static const double num[8] = {
        1.42343711074968357734e0,  4.63033784615654529590e0,
        5.76949722146069140550e0,  3.64784832476320460504e0,
        1.27045825245236838258e0,  2.41780725177450611770e-1,
        2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double den[8] = {
        1.0,                       2.05319162663775882187e0,
        1.67638483018380384940e0,  6.89767334985100004550e-1,
        1.48103976427480074590e-1, 1.51986665636164571966e-2,
        5.47593808499534494600e-4, 1.05075007164441684324e-9};
    return philox_poly7(num, r) / philox_poly7(den, r);
}

/* Returns the tail ratio of AS 241, for sqrt(-log p) > 5. The argument is sqrt(-log p) - 5. */
static inline HOST_DEVICE double philox_tail(double r)
{
    static const double num[8] = {
        6.65790464350110377720e0,  5.46378491116411436990e0,
        1.78482653991729133580e0,  2.96560571828504891230e-1,
        2.65321895265761230930e-2, 1.24266094738807843860e-3,
        2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double den[8] = {
        1.0,                       5.99832206555887937690e-1,
        1.36929880922735805310e-1, 1.48753612908506148525e-2,
        7.86869131145613259100e-4, 1.84631831751005468180e-5,
        1.42151175831644588870e-7, 2.04426310338993978564e-15};
    return philox_poly7(num, r) / philox_poly7(den, r);
}

/* Returns the inverse normal distribution of u in (0,1). */
static inline HOST_DEVICE double philox_normal_of(double u)
{
    if (philox_is_central(u))
        return philox_center(u);
    double r = sqrt(-philox_log(philox_to_end(u)));
    double x = r <= 5.0 ? philox_middle(r - 1.6) : philox_tail(r - 5.0);
    return u < 0.5 ? -x : x;
}

#endif
