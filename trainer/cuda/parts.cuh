/* parts: adds partial sums over rows, which the blocks of a first kernel have left in memory. The
 * order depends only on the number of parts and on the number of threads of a block. */
#ifndef TRAINER_CUDA_PARTS_CUH
#define TRAINER_CUDA_PARTS_CUH

#include "trainer/cuda/kernel.cuh"

/* Returns the sum of n numbers that are `stride` apart. Each lane of the first warp gets the sum of
 * its own column: warp w adds numbers w, w + warps, ..., and then the sums of the warps are added
 * in order. Lanes without `mine` have no column. `shared` has room for one number per thread. */
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

/* Writes to a row the sum of its n parts, which are `stride` apart, plus beta times the old row. A
 * block computes 32 columns. */
template <class real>
static __global__ void parts_row(const real *parts, int64_t n, int64_t stride, struct tensor out,
                                 double beta)
{
    int64_t col = (int64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    real sum = parts_sum(parts + col, stride, n, col < out.cols, (real *)block_memory);
    if (threadIdx.x < WARP && col < out.cols)
        put<real>(out, 0, col, sum + (beta == 0 ? 0 : (real)beta * get<real>(out, 0, col)));
}

/* Queues parts_row for the parts in a table's workspace. */
template <class real>
static void parts_add(struct ops_cuda *o, cudaStream_t s, int64_t n, int64_t stride,
                      const struct tensor &out, double beta)
{
    launch(s, parts_row<real>, (out.cols + WARP - 1) / WARP, THREADS,
           THREADS * (int64_t)sizeof(real), (const real *)o->parts, n, stride, out, beta);
}

#endif
