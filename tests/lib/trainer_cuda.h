/* Unit tests of the CUDA backend share its library on the shim's GPU, and tensors that cross between
 * host and device. */
#ifndef TESTS_TRAINER_CUDA_H
#define TESTS_TRAINER_CUDA_H

#include "base/bf16.h"
#include "tests/lib/trainer_fixture.h"

/* Names the library of the shim, which is built beside the folder of this program. */
void cuda_library(const char *self);
struct bench cuda_bench(enum dtype dtype);

/* A matrix on both sides. Elements of the host's are of the device's type; between rows lies what
 * the device must leave alone. */
struct pair {
    struct tensor on; /* the device's */
    void *host, *block;
    int64_t bytes;
};

double pair_at(const void *host, const struct tensor *t, int64_t i, int64_t j);
void pair_set(void *host, enum dtype dtype, int64_t at, double x);

/* Draws a matrix of normal numbers, and NaN between its rows. The first number on the device lies
 * `before` bytes behind an aligned place. */
struct pair pair_new(const struct bench *b, enum dtype dtype, int64_t rows,
                     int64_t cols, int64_t ld, int64_t before, uint64_t id);
void pair_free(const struct bench *b, struct pair *p);

#endif
