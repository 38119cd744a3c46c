/* shim: runs CUDA C kernels and the CUDA runtime on the CPU, for tests without a GPU.
 *
 * The trainer's .cu sources are compiled as C++ against cuda_runtime.h of this folder. Memory,
 * streams, events and copies are those of dev_far: the host cannot touch device memory, and work
 * runs at syncs, in a random order that depends on a seed. The threads of a block are fibers;
 * blocks run one after another. A thread runs until it waits at a barrier or for the other lanes of
 * its warp. The thread that runs next is chosen at random too, so that a missing barrier changes
 * results.
 *
 * The shim does not model memory order between barriers, tensor cores, TMA, PTX, occupancy or
 * speed.
 *
 * Environment: REEL_SHIM_SEED is the seed of the order of work and threads (0: the given order);
 * REEL_SHIM_GPUS is the number of GPUs (8), and REEL_SHIM_FIRST the number in the UUID of the first
 * one; REEL_SHIM_BYTES is the memory of each (64 GiB); REEL_SHIM_FAIL=CALL:N:ERROR makes the Nth
 * call of a function, from 1, return this error; REEL_SHIM_LOST=PATTERN: the GPU is lost for good
 * once a file matches the pattern, and then every call fails and leaves all memory as it is;
 * REEL_SHIM_PROFILER=NAME: a profiler of this name uses CUPTI (cupti.c).
 */
#ifndef TESTS_SHIM_SHIM_H
#define TESTS_SHIM_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SHIM_WARP = 32,
    SHIM_THREADS = 1024,        /* most threads of a block */
    SHIM_SHOWN = 16,            /* most bytes that a lane shows the others at a time */
    SHIM_SHARED = 227 << 10,    /* shared memory of a block on sm_90 */
    SHIM_SHARED_PLAIN = 48 << 10, /* shared memory that needs no cudaFuncSetAttribute */
};

/* Returns the error that the environment requests for this call, or 0. */
int shim_failure(const char *call);
/* Queues a function call, with a copy of its arguments, on a stream. */
cudaError_t shim_queue(cudaStream_t s, void (*run)(void *args), const void *args, size_t bytes);
/* Queues a function that blocks the stream until it returns true, with a copy of its arguments. */
cudaError_t shim_queue_poll(cudaStream_t s, bool (*poll)(void *args), const void *args,
                            size_t bytes);
/* Checks a launch as the runtime would, and counts it. An error is stored for cudaGetLastError. */
cudaError_t shim_check_launch(const void *kernel, int64_t blocks, int64_t threads, size_t shared);
uint64_t shim_seed(void);

/* Runs a kernel: body(args) once for each thread of each block. */
struct shim_grid { unsigned blocks, threads; size_t shared_bytes; };
void shim_run(const struct shim_grid *g, void (*body)(void *args), void *args);

/* Wait for all threads of the block, or of the warp. */
void shim_wait_block(void);
void shim_wait_warp(void);
unsigned shim_lane(void);
/* Shows a value of at most SHIM_SHOWN bytes to this thread's warp, and waits until all lanes have
 * shown one. */
void shim_show(const void *value, size_t bytes);
/* Returns the value that a lane has shown last. It is valid until this thread shows another
 * value. */
const void *shim_shown(unsigned lane);

#ifdef __cplusplus
}
#endif
#endif
