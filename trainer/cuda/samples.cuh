/* samples: how blocks are shared out among the samples of a micro-batch.
 *
 * The samples lie in device memory, so the host knows how much there is of all of them together
 * alone. Each sample gets the same number of blocks, which go through its elements in steps. */
#ifndef TRAINER_CUDA_SAMPLES_CUH
#define TRAINER_CUDA_SAMPLES_CUH

#include "trainer/cuda/kernel.cuh"

/* Returns blocks for n samples that have `all` elements together, and of about one size. */
static inline int64_t blocks_for_samples(int64_t n, int64_t all)
{
    return n ? n * ((blocks_for(all) + n - 1) / n) : 0;
}

/* A thread does this share of a sample: elements first, first + step, ... */
struct share { int64_t sample, first, step; };

/* Returns this thread's share of n samples; the grid has a multiple of n blocks. */
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
