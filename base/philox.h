/* philox: counter-based random numbers, Philox4x32-10 (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC'11). A draw is a pure function of key and counter: the same on every rank,
 * layout, and device.
 *
 * In our use the key is the run's seed, and the counter is (element block low, element block high |
 * stream << 24 …, draw ordinal low, high); philox_at() is the one place that packs them. Normals
 * come from a fixed rational polynomial of the inverse normal distribution in IEEE + - x / sqrt
 * only, with contraction off, so CPU and GPU agree bit for bit.
 */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct philox_block { uint32_t w[4]; };

/* A stream says what the numbers are for. Never renumber them: checkpoints and goldens depend on
 * it. */
enum philox_stream {
    PHILOX_INIT = 1,    /* weight init: ordinal = hash of the parameter's global name */
    PHILOX_NOISE = 2,   /* Gaussian noise of a sample: ordinal = draw ordinal */
    PHILOX_LEVEL = 3,   /* noise level of a sample */
    PHILOX_DROPOUT = 4, /* text dropout of a sample */
    PHILOX_ORDER = 5,   /* data order: ordinal = epoch */
    PHILOX_SYNTH = 6,   /* synthetic data */
    PHILOX_TEST = 7,
    PHILOX_SAMPLE = 8, /* first noise of a sample that is generated: ordinal = its number */
    PHILOX_ROUND = 9,  /* rounding of moments: ordinal = optimizer update; a word an element, four
                        * a block */
};

/* Returns four words of block `block` (below 2^56) of draw `ordinal`. They are the two elements
 * 2*block and 2*block+1, or whatever a caller makes of them. */
struct philox_block philox_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                              uint64_t block);

/* Returns a number in (0,1), never 0 or 1, of 52 bits. */
double philox_uniform(uint32_t hi, uint32_t lo);
/* Returns the inverse normal CDF of u in (0,1), with an absolute error < 1e-14. */
double philox_normal_from_uniform(double u);

/* Return element `index` of the draw, one 64-bit pair an element and two elements a block.
 * The fills write elements first .. first + n, and make each block once. */
double philox_uniform_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal,
                         uint64_t index);
double philox_normal_at(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t index);
void philox_uniform_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                         size_t n, double *out);
void philox_normal_fill(uint64_t seed, enum philox_stream stream, uint64_t ordinal, uint64_t first,
                        size_t n, double *out);

/* Returns place i of epoch `epoch` in a keyed permutation of 0..n-1 (a cycle-walking Feistel
 * network on Philox), in O(1) and without a table. */
uint64_t philox_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#ifdef __cplusplus
}
#endif
#endif
