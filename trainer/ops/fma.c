/* fma.c measures the rate that fma.h describes. It is compiled once for each kind of processor. */
#include <math.h>

#include "base/clock.h"
#include "trainer/ops/ops_cpu_priv.h"

/* A vector is exactly one register of the processor that this file is compiled for. The compiler
 * splits a wider vector, and its parts go through memory. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
/* Twelve chains hide a latency of five cycles at two instructions a cycle. With the two constants
 * they fit into sixteen registers. */
enum { CHAINS = 12, FMA_ROUNDS = 200000, FMA_REPEATS = 7 };
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES)));

/* Defines a function that computes `rounds` rounds of all chains. In this function alone the
 * compiler may fuse multiply and add into one instruction. It returns the sum, so that the compiler
 * cannot drop the work. */
#define FMA_LOOP(name, vec, elem)                                                                \
    __attribute__((optimize("fp-contract=fast", "O3"), noinline)) static double name(int rounds) \
    {                                                                                            \
        vec x[CHAINS], a = {0}, b = {0};                                                         \
        elem sum = 0;                                                                            \
        a += (elem)0.999;                                                                        \
        b += (elem)0.001;                                                                        \
        for (int c = 0; c < CHAINS; c++)                                                         \
            x[c] = a * (elem)(c + 1);                                                            \
        for (int r = 0; r < rounds; r++)                                                         \
            for (int c = 0; c < CHAINS; c++)                                                     \
                x[c] = x[c] * a + b;                                                             \
        for (int c = 0; c < CHAINS; c++)                                                         \
            for (size_t i = 0; i < VECTOR_BYTES / sizeof(elem); i++)                             \
                sum += x[c][i];                                                                  \
        return (double)sum;                                                                      \
    }
FMA_LOOP(fma_f32, vec_f32, float)
FMA_LOOP(fma_f64, vec_f64, double)

double SIMD_NAME(fma_rate)(enum dtype t)
{
    double best = 0;
    volatile double sink = 0;
    for (int i = 0; i < FMA_REPEATS; i++) {
        double start = clock_cpu_s();
        sink = sink + (t == DTYPE_F64 ? fma_f64(FMA_ROUNDS) : fma_f32(FMA_ROUNDS));
        double flops = 2.0 * FMA_ROUNDS * CHAINS *
                       (double)(VECTOR_BYTES / dtype_bytes(dtype_stat(t)));
        best = fmax(best, flops / (clock_cpu_s() - start));
    }
    return best;
}
