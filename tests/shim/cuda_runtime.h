/* Defines the language extensions of CUDA C as C++ on the CPU; see shim.h. */
#ifndef TESTS_SHIM_CUDA_RUNTIME_H
#define TESTS_SHIM_CUDA_RUNTIME_H

#include <cmath>
#include <cstring>
#include <tuple>

#include "shim.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ /* only on extern declarations */
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) double2 { double x, y; };

extern dim3 gridDim, blockDim, blockIdx, threadIdx;

static inline void __syncthreads() { shim_wait_block(); }
static inline void __syncwarp(unsigned = ~0u) { shim_wait_warp(); }

/* Shows a value to the warp and returns the value of lane `from`. All lanes must call it. */
template <class T> static inline T shim_shuffle(T v, unsigned from)
{
    T got;
    static_assert(sizeof(T) <= SHIM_SHOWN, "a lane shows no more at a time");
    shim_show(&v, sizeof v);
    std::memcpy(&got, shim_shown(from % SHIM_WARP), sizeof got);
    return got;
}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask)
{
    return shim_shuffle(v, shim_lane() ^ (unsigned)mask);
}
template <class T> static inline T __shfl_sync(unsigned, T v, int lane)
{
    return shim_shuffle(v, (unsigned)lane);
}
template <class T> static inline T __shfl_down_sync(unsigned, T v, unsigned by)
{
    unsigned lane = shim_lane();
    return shim_shuffle(v, lane + by < SHIM_WARP ? lane + by : lane);
}

/* Returns one bit for each lane of a whole warp: whether its predicate is true. */
static inline unsigned __ballot_sync(unsigned, int predicate)
{
    unsigned bits = 0;
    shim_show(&predicate, sizeof predicate);
    for (unsigned lane = 0; lane < SHIM_WARP; lane++)
        bits |= (unsigned)(*(const int *)shim_shown(lane) != 0) << lane;
    return bits;
}
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

/* Holds a kernel and its arguments while they wait in a queue. */
template <class... P> struct shim_call {
    shim_grid grid;
    void (*kernel)(P...);
    std::tuple<P...> args;
    static void body(void *c)
    {
        auto *call = static_cast<shim_call *>(c);
        std::apply(call->kernel, call->args);
    }
    static void run(void *c) { shim_run(&static_cast<shim_call *>(c)->grid, body, c); }
};

template <class... P, class... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...),
                                             A &&...args)
{
    shim_call<P...> call = {{c->gridDim.x, c->blockDim.x, c->dynamicSmemBytes}, kernel,
                            std::tuple<P...>(args...)};
    cudaError_t e = shim_check_launch(reinterpret_cast<const void *>(kernel), c->gridDim.x,
                                      c->blockDim.x, c->dynamicSmemBytes);
    return e != cudaSuccess ? e : shim_queue(c->stream, call.run, &call, sizeof call);
}

#endif
