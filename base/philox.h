/* philox: draws counter-based random numbers by Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC'11). A draw is a pure function of key and counter, so it is the
 * same on every rank, in every layout and on every device.
 *
 * The key is the run's seed. The counter is (block low, block high | stream << 24, ordinal low,
 * ordinal high), and philox_packed() (philox_impl.h) packs it. Normals come from fixed rational
 * approximations of the inverse normal distribution that use only IEEE + - * / and sqrt, with
 * contraction off, so CPU and GPU agree bit for bit.
 */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct philox_block { uint32_t w[4]; };

/* A stream identifies the purpose of the numbers. Never renumber streams: checkpoints and goldens
 * depend on them. */
enum philox_stream {
    PHILOX_INIT = 1,    /* initial weights: ordinal = hash of the parameter's global name */
    PHILOX_NOISE = 2,   /* Gaussian noise of a sample: ordinal = draw ordinal */
    PHILOX_LEVEL = 3,   /* noise level of a sample */
    PHILOX_DROPOUT = 4, /* text dropout of a sample */
    PHILOX_ORDER = 5,   /* data order: ordinal = epoch */
    PHILOX_SYNTH = 6,   /* synthetic data */
    PHILOX_TEST = 7,
    PHILOX_SAMPLE = 8, /* initial noise of a generated sample: ordinal = number of the sample */
    /* rounding of moments: ordinal = optimizer update; one word per element, four per block */
    PHILOX_ROUND = 9,
};

/* Returns the four words of block `block` (below 2^56) of draw `ordinal`. In a draw of doubles they
 * are elements 2*block and 2*block+1; other callers use the words as they need. */
struct philox_block philox_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                              uint64_t block);

/* Returns a number in (0,1), never 0 or 1, made of the upper 52 of the 64 bits. */
double philox_uniform(uint32_t hi, uint32_t lo);
/* Returns the inverse normal CDF of u in (0,1), with an absolute error < 1e-14. */
double philox_normal_from_uniform(double u);

/* Return element `index` of the draw. An element uses two words, so a block has two elements. The
 * fill functions write elements first .. first + n - 1 and compute each block once. */
double philox_uniform_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                         uint64_t index);
double philox_normal_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t index);
void philox_uniform_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                         size_t n, double *out);
void philox_normal_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                        size_t n, double *out);

/* Returns element i of a permutation of 0..n-1 that depends on seed and epoch (a cycle-walking
 * Feistel network on Philox). It takes O(1) time on average and no table. */
uint64_t philox_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#ifdef __cplusplus
}
#endif
#endif
