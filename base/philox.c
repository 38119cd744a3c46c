/* The generator
 *
 * The generator is Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3", SC'11, section 3.3. Each of its ten rounds has two 32x32 -> 64 bit products, and
 * between rounds Weyl constants are added to the key.
 *
 * philox_at packs key = (seed low, seed high) and counter = (block low, block high 24 bits | stream
 * << 24, ordinal low, ordinal high). Streams therefore never share a counter, whatever ordinal and
 * block are.
 *
 * Normals
 *
 * A normal number is the inverse normal distribution of a uniform one, by Wichura's algorithm AS
 * 241 (PPND16; Applied Statistics 37, 1988): three ratios of polynomials of degree 7. Its tails
 * need sqrt(-log p). philox_log computes the logarithm: p = m 2^e with m in [sqrt(1/2), sqrt(2)),
 * log m = 2 atanh(s) with s = (m-1)/(m+1), by its series up to s^23 (|s| < 0.1716, so the first
 * omitted term is below 2e-20), and log 2 in two parts. All operations are IEEE double + - * / and
 * sqrt in a fixed order. No libm function is used that may differ between machines, and no fused
 * multiply-add (nvcc needs -fmad=false). The unit test measures that the absolute error is below
 * 1e-14 for every u that the generator can make.
 *
 * Contraction must be off. gcc has it off with -std=c17, and the pragma is for clang; the unit test
 * compares with golden bits.
 *
 * Permutation
 *
 * philox_permute is a Feistel network over the b bits that n-1 needs (at least 2). The bits are
 * split into parts of b/2 and b - b/2 bits, and each round xors one part with Philox of the other.
 * The network is a bijection on 0..2^b-1. If its result is n or more, it is applied again until a
 * result is below n (cycle walking). The walk follows a cycle of the permutation that contains
 * i < n, so it ends, after at most 2^b - n + 1 steps, and since 2^b < 2n (n > 2) after fewer than 2
 * on average. The result is a bijection on 0..n-1: the permutation with the values of n and above
 * cut out of its cycles.
 */
#include "base/philox.h"

#include <float.h>

#include "base/err.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
#include "base/philox_impl.h"

_Static_assert(FLT_EVAL_METHOD == 0, "normals need plain double arithmetic: on 32-bit x86 compile "
                                     "with -msse2 -mfpmath=sse");

struct philox_block philox_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                              uint64_t block)
{
    BUG_ON(block >> 56 != 0);
    return philox_packed(seed, stream, ordinal, block);
}

double philox_uniform(uint32_t hi, uint32_t lo) { return philox_unit(hi, lo); }

double philox_normal_from_uniform(double u)
{
    BUG_ON(!(u > 0 && u < 1));
    return philox_normal_of(u);
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

/* ---- fills ----
 *
 * These compute many blocks at a time in arrays, so that the compiler uses the processor's vectors.
 * The operations of each element are those of the functions above, so each has the same bits. */
enum { LANES = 64, FILL = 2 * LANES /* the elements of LANES blocks */ };
#define MIDDLE_SURE 2e-11 /* a little above exp(-25) */

/* Compiles a function for each kind of processor; the loader takes the widest that this one has. */
#if defined __x86_64__ && defined __GLIBC__ && defined __OPTIMIZE__ && !defined __clang__ &&       \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

/* Holds the words of LANES blocks; w[k][i] is word k of block i. */
struct lanes { uint32_t w[4][LANES]; };

/* Computes one round of philox_rounds() for all lanes. */
static inline void lanes_round(struct lanes *l, uint32_t k0, uint32_t k1)
{
    uint32_t *c0 = l->w[0], *c1 = l->w[1], *c2 = l->w[2], *c3 = l->w[3];

    for (int i = 0; i < LANES; i++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0[i], p1 = (uint64_t)PHILOX_M1 * c2[i];
        c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = (uint32_t)p1;
        c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = (uint32_t)p0;
    }
}

/* Writes the FILL elements of LANES blocks from block `block` on. */
static WIDE void uniform_lanes(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                               uint64_t block, double *restrict out)
{
    struct lanes l;

    for (uint64_t i = 0; i < LANES; i++) {
        l.w[0][i] = (uint32_t)(block + i);
        l.w[1][i] = (uint32_t)((block + i) >> 32) | (uint32_t)stream << 24;
        l.w[2][i] = (uint32_t)ordinal;
        l.w[3][i] = (uint32_t)(ordinal >> 32);
    }
    for (uint32_t r = 0; r < PHILOX_ROUNDS; r++)
        lanes_round(&l, (uint32_t)seed + r * PHILOX_W0, (uint32_t)(seed >> 32) + r * PHILOX_W1);
    for (int i = 0; i < LANES; i++) {
        out[2 * i] = philox_unit(l.w[0][i], l.w[1][i]);
        out[2 * i + 1] = philox_unit(l.w[2][i], l.w[3][i]);
    }
}

void philox_uniform_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                         size_t n, double *out)
{
    size_t i = 0;

    if (n > 0 && first % 2 == 1)
        out[i++] = philox_uniform_at(seed, stream, ordinal, first);
    BUG_ON((first + n) / 2 >> 56 != 0);
    for (; i + FILL <= n; i += FILL)
        uniform_lanes(seed, stream, ordinal, (first + i) / 2, out + i);
    for (; i + 1 < n; i += 2) {
        struct philox_block b = philox_at(seed, stream, ordinal, (first + i) / 2);
        out[i] = philox_uniform(b.w[0], b.w[1]);
        out[i + 1] = philox_uniform(b.w[2], b.w[3]);
    }
    if (i < n)
        out[i] = philox_uniform_at(seed, stream, ordinal, first + i);
}

/* Replaces FILL uniform numbers by normals of the central ratio, which are right for central
 * numbers only. */
static WIDE void center_lanes(double *x)
{
    for (int i = 0; i < FILL; i++)
        x[i] = philox_center(x[i]);
}

/* Replaces n uniform numbers by normals of the middle ratio. */
static WIDE void middle_lanes(double *x, int n)
{
    for (int i = 0; i < n; i++) {
        double far = philox_middle(sqrt(-philox_log(philox_to_end(x[i]))) - 1.6);
        x[i] = x[i] < 0.5 ? -far : far;
    }
}

/* Replaces FILL uniform numbers by their normals. The three in twenty that are not central are
 * gathered first. Few of these are beyond the middle ratio, which ends at exp(-25). */
static void normal_lanes(double *x)
{
    double u[FILL], middle[FILL];
    int n = 0, at[FILL];

    for (int i = 0; i < FILL; i++) {
        u[n] = middle[n] = x[i];
        at[n] = i;
        n += !philox_is_central(x[i]);
    }
    center_lanes(x);
    middle_lanes(middle, n);
    for (int i = 0; i < n; i++)
        x[at[i]] = philox_to_end(u[i]) > MIDDLE_SURE ? middle[i] : philox_normal_of(u[i]);
}

void philox_normal_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                        size_t n, double *out)
{
    philox_uniform_fill(seed, stream, ordinal, first, n, out);
    size_t i = 0;
    for (; i + FILL <= n; i += FILL)
        normal_lanes(out + i);
    for (; i < n; i++)
        out[i] = philox_normal_of(out[i]);
}

enum { FEISTEL_ROUNDS = 8 };

static uint64_t feistel(uint64_t seed, uint64_t epoch, int low_bits, int high_bits, uint64_t x)
{
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1, high_mask = (UINT64_C(1) << high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> low_bits;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        /* at most 32 bits; the round's number is above bit 40 */
        uint64_t from = round % 2 ? high : low;
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
