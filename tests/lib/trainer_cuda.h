/* trainer_cuda: opens the CUDA backend on the GPU that tests/shim simulates, and makes tensors on
 * host and device, for the backend's unit tests. */
#ifndef TESTS_TRAINER_CUDA_H
#define TESTS_TRAINER_CUDA_H

#include "base/bf16.h"
#include "tests/lib/trainer_fixture.h"

/* Sets REEL_CUDA_LIBRARY, unless it is set, to the backend that is built with tests/shim, in the
 * folder shim beside the folder of this program. */
void cuda_library(const char *self);
struct bench cuda_bench(enum dtype dtype);

/* Holds a matrix on host and device, with elements of the same type. The padding between its rows
 * must not be changed by the device. */
struct pair {
    struct tensor on; /* the matrix on the device */
    void *host, *block;
    int64_t bytes;
};

double pair_at(const void *host, const struct tensor *t, int64_t i, int64_t j);
void pair_set(void *host, enum dtype dtype, int64_t at, double x);

/* Draws a matrix of normal numbers with NaN between its rows. On the device the first number is
 * `before` bytes after an aligned address. */
struct pair pair_new(const struct bench *b, enum dtype dtype, int64_t rows,
                     int64_t cols, int64_t ld, int64_t before, uint64_t id);
void pair_free(const struct bench *b, struct pair *p);

#endif
