/* shim: CUDA C kernels and the CUDA runtime on the processor, for tests without a GPU.
 *
 * The trainer's .cu sources are compiled as C++ against cuda_runtime.h of this folder. Memory,
 * streams, events and copies are those of dev_far: the host cannot touch device memory, and work
 * runs at syncs, in an order that a seed draws. The threads of a block are fibers; blocks run one
 * after another. A thread runs until it waits at a barrier or for the other lanes of its warp, and
 * who goes on next is drawn too, so that a barrier that is missing changes results.
 *
 * Not covered: memory order between barriers, tensor cores, TMA, PTX, occupancy, speed.
 *
 * Environment: REEL_SHIM_SEED orders work and threads (0: in their order); REEL_SHIM_GPUS is how
 * many there are (8), and REEL_SHIM_FIRST the number that is in the name of the first;
 * REEL_SHIM_BYTES is the memory of each (64 GiB); REEL_SHIM_FAIL=CALL:N:ERROR lets the Nth call of a
 * function, from 1, fail; REEL_SHIM_LOST=PATTERN loses the GPU for good as soon as there is a
 * file of such a name: every call fails then, and leaves all memory as it is;
 * REEL_SHIM_PROFILER=NAME: a profiler of this name holds CUPTI (cupti.c).
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
    SHIM_THREADS = 1024,        /* of a block, at most */
    SHIM_SHOWN = 16,            /* bytes that a lane shows the others at a time, at most */
    SHIM_SHARED = 227 << 10,    /* shared memory of a block on sm_90 */
    SHIM_SHARED_PLAIN = 48 << 10, /* what a kernel has without cudaFuncSetAttribute */
};

/* Returns the error that the environment asks of this call, or 0. */
int shim_failure(const char *call);
/* Queues a call, with a copy of its arguments, on a stream. */
cudaError_t shim_queue(cudaStream_t s, void (*run)(void *args), const void *args, size_t bytes);
/* The same of a call that holds the stream until it returns true. */
cudaError_t shim_queue_poll(cudaStream_t s, bool (*poll)(void *args), const void *args,
                            size_t bytes);
/* Checks a launch as the runtime would, and counts it; what fails stays for cudaGetLastError. */
cudaError_t shim_check_launch(const void *kernel, int64_t blocks, int64_t threads, size_t shared);
uint64_t shim_seed(void);

/* Runs a kernel: body(args) once for each thread of each block. */
struct shim_grid { unsigned blocks, threads; size_t shared_bytes; };
void shim_run(const struct shim_grid *g, void (*body)(void *args), void *args);

/* Waits for all threads of the block, or of the warp. */
void shim_wait_block(void);
void shim_wait_warp(void);
unsigned shim_lane(void);
/* Shows a value of at most SHIM_SHOWN bytes to this thread's warp, and waits until all lanes have
 * shown one. */
void shim_show(const void *value, size_t bytes);
/* Returns what a lane has shown last, until this thread shows something again. */
const void *shim_shown(unsigned lane);

#ifdef __cplusplus
}
#endif
#endif
