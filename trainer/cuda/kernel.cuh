/* kernel: declares what all kernels share: access to numbers of tensors, launches, and sums in a
 * fixed order.
 *
 * A kernel is a template over the type of arithmetic, `real`: double in the table of operations for
 * f64, otherwise float. Each tensor has a type of its own, which is the same for all threads. All
 * shared memory is in block_memory, whose size the launch gives; so tests on the CPU can detect
 * reads of memory that was not written, or that is past its end.
 *
 *     template <class real> static __global__ void scale(struct tensor x, real by)
 *     {
 *         for (int64_t e = thread_first(); e < elements(x); e += thread_step())
 *             put_at<real>(x, e, by * get_at<real>(x, e)); // x is dense
 *     }
 *     LAUNCH_REAL(o, s, scale, blocks_for(n), THREADS, 0, x, 2.0);
 */
#ifndef TRAINER_CUDA_KERNEL_CUH
#define TRAINER_CUDA_KERNEL_CUH

#include <cuda_runtime.h>

#include "base/bf16.h"
#include "base/host_device.h"
#include "trainer/cuda/cuda_priv.h"

enum { THREADS = 256, WARP = 32, ALL_LANES = -1 };

/* Unrolls the next loop, so that an array of a thread, which the loop indexes, stays in
 * registers. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

extern __shared__ __align__(16) unsigned char block_memory[];

/* ---- launches ---- */

/* Queues a kernel of one-dimensional blocks and threads, or nothing if blocks is 0. An error is
 * left for cudaGetLastError. */
template <class... P, class... A>
static void launch(cudaStream_t s, void (*kernel)(P...), int64_t blocks, int threads,
                   int64_t shared_bytes, A... args)
{
    cudaLaunchConfig_t c = {};
    BUG_ON(blocks < 0 || blocks > INT32_MAX);
    if (blocks == 0)
        return;
    c.gridDim = dim3((unsigned)blocks);
    c.blockDim = dim3((unsigned)threads);
    c.dynamicSmemBytes = (size_t)shared_bytes;
    c.stream = s;
    cudaLaunchKernelEx(&c, kernel, (P)(args)...);
}

/* Launches kernel<double> or kernel<float>, depending on the table's arithmetic. */
#define LAUNCH_REAL(o, s, kernel, ...)              \
    do {                                            \
        if ((o)->ops.stat == DTYPE_F64)             \
            launch(s, kernel<double>, __VA_ARGS__); \
        else                                        \
            launch(s, kernel<float>, __VA_ARGS__);  \
    } while (0)

HOST_DEVICE static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
HOST_DEVICE static inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* Returns how many blocks of THREADS threads serve n elements, at most 2^16; each thread loops. */
static inline int64_t blocks_for(int64_t n)
{
    return lesser((n + THREADS - 1) / THREADS, 1 << 16);
}

__device__ static inline int64_t thread_first(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static inline int64_t thread_step(void) { return (int64_t)gridDim.x * blockDim.x; }

/* ---- functions for float and double ---- */

__device__ static inline float exp_of(float x) { return expf(x); }
__device__ static inline double exp_of(double x) { return exp(x); }
__device__ static inline float log_of(float x) { return logf(x); }
__device__ static inline double log_of(double x) { return log(x); }
__device__ static inline float sqrt_of(float x) { return sqrtf(x); }
__device__ static inline double sqrt_of(double x) { return sqrt(x); }

/* ---- numbers of tensors ---- */

__device__ static inline int64_t elements(const struct tensor &t) { return t.rows * t.cols; }

/* Returns a number, given its offset in elements from the tensor's first one. */
template <class real> __device__ static inline real get_at(const struct tensor &t, int64_t place)
{
    switch (t.dtype) {
    case DTYPE_F64: return (real)((const double *)t.ptr)[place];
    case DTYPE_F32: return (real)((const float *)t.ptr)[place];
    default: return (real)bf16_value(((const uint16_t *)t.ptr)[place]);
    }
}

__device__ static inline uint16_t to_bf16(float x) { return bf16_round(x); }
__device__ static inline uint16_t to_bf16(double x) { return bf16_round_double(x); }

/* Stores a number, rounding it once. */
template <class real>
__device__ static inline void put_at(const struct tensor &t, int64_t place, real x)
{
    switch (t.dtype) {
    case DTYPE_F64: ((double *)t.ptr)[place] = (double)x; break;
    case DTYPE_F32: ((float *)t.ptr)[place] = (float)x; break;
    default: ((uint16_t *)t.ptr)[place] = to_bf16(x);
    }
}

template <class real>
__device__ static inline real get(const struct tensor &t, int64_t row, int64_t col)
{
    return get_at<real>(t, row * t.ld + col);
}

template <class real>
__device__ static inline void put(const struct tensor &t, int64_t row, int64_t col, real x)
{
    put_at<real>(t, row * t.ld + col, x);
}

/* ---- sums of a block ---- */

/* Returns the sum over a warp to every lane. Lanes at distance 16, 8, 4, 2, 1 are added. */
template <class T> __device__ static inline T warp_sum(T v)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        v += __shfl_xor_sync((unsigned)ALL_LANES, v, distance);
    return v;
}

/* Returns the sum over a block of whole warps to every thread. Its order depends only on the number
 * of threads. `parts` is shared memory with one number per warp; it can be reused after the
 * call. */
template <class T> __device__ static inline T block_sum(T v, T *parts)
{
    int warps = (int)blockDim.x / WARP;
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = v;
    __syncthreads();
    T sum = parts[0];
    for (int w = 1; w < warps; w++)
        sum += parts[w];
    __syncthreads();
    return sum;
}

#endif
