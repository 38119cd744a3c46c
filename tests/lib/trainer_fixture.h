/* trainer_fixture: gives the trainer's unit tests an open table of CPU operations, random tensors,
 * and gradients by central differences. */
#ifndef TESTS_TRAINER_FIXTURE_H
#define TESTS_TRAINER_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "trainer/state/init.h"
#include "trainer/ops/compute.h"

#define LEN(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct bench {
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
};

struct bench bench_open(enum dtype dtype);
void bench_close(struct bench *b);

/* Checks that nothing is allocated on a bench but its own workspace. */
void bench_is_idle(const struct bench *b);

/* Copies to device memory, and from it. */
void bench_put(const struct bench *b, void *to, const void *from, int64_t bytes);
void bench_get_to(const struct bench *b, void *to, const void *from, int64_t bytes);

/* Returns a new copy of device memory. */
void *bench_get(const struct bench *b, const void *from, int64_t bytes);

/* Computes elements first .. first+n-1 of the initial values of parameter p, on the device. */
void first_values(const struct param *p, uint64_t seed, int64_t first, int64_t n,
                  double *out);

/* Fills x with N(0, 1) numbers that depend on `id` only. */
void fill_normal(double *x, int64_t n, uint64_t id);
double *new_normal(int64_t n, uint64_t id);
double *new_nan(int64_t n);
double dot(const double *a, const double *b, int64_t n);
struct tensor f64(double *p, int64_t rows, int64_t cols);

/* Holds one tensor whose gradient is checked. */
struct fd_slot {
    const char *name;
    double *x;
    const double *grad;
    int64_t n;
};

/* Compares the derivative of f along one random direction of x with grad · direction, to the
 * relative tolerance `tol`. The derivative is taken by central differences of fourth order: (8
 * (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h. */
void fd_check(const char *what, const struct fd_slot *s, uint64_t id,
              double (*f)(void *), void *ctx, double tol);

#endif
