/* parts: the second stage of sums over rows: the sums of parts, which blocks have left in memory,
 * are added in an order that their number fixes. */
#ifndef TRAINER_CUDA_PARTS_CUH
#define TRAINER_CUDA_PARTS_CUH

#include "trainer/cuda/kernel.cuh"

/* Returns the sum of n numbers that stand `stride` apart, to the lanes of the first warp, each its
 * own: warp w adds numbers w, w + warps, ..., and the sums of the warps are added in their order. A
 * lane that is not `mine` has none. `shared` has room for a number a thread. */
template <class real>
__device__ static inline real parts_sum(const real *first, int64_t stride, int64_t n, bool mine,
                                        real *shared)
{
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    real sum = 0;
    for (int64_t p = warp; mine && p < n; p += warps)
        sum += first[p * stride];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int w = 1; warp == 0 && w < warps; w++)
        sum += shared[w * WARP + threadIdx.x];
    return sum;
}

#endif
