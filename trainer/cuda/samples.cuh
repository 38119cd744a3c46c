/* samples: divides blocks among the samples of a micro-batch.
 *
 * The samples are described in device memory, so the host knows only the total size of all of them.
 * Each sample gets the same number of blocks, whose threads loop over its elements. */
#ifndef TRAINER_CUDA_SAMPLES_CUH
#define TRAINER_CUDA_SAMPLES_CUH

#include "trainer/cuda/kernel.cuh"

/* Returns how many blocks serve n samples of similar size that have `all` elements together. */
static inline int64_t blocks_for_samples(int64_t n, int64_t all)
{
    return n ? n * ((blocks_for(all) + n - 1) / n) : 0;
}

/* Describes a thread's elements of a sample: first, first + step, ... */
struct share { int64_t sample, first, step; };

/* Returns this thread's share of n samples. The number of blocks must be a multiple of n. */
__device__ static inline struct share share_of(int64_t n)
{
    struct share p;
    p.sample = blockIdx.x % n;
    p.first = blockIdx.x / n * blockDim.x + threadIdx.x;
    p.step = gridDim.x / n * blockDim.x;
    return p;
}

__device__ static inline int64_t cells_of(const struct ops_sample &m)
{
    return (int64_t)m.t * m.h * m.w;
}

#endif
