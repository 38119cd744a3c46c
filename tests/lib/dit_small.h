/* dit_small: makes a small model whose gradients and initial values the tests of dit/ check. */
#ifndef TESTS_DIT_SMALL_H
#define TESTS_DIT_SMALL_H

#include "tests/lib/trainer_model.h"

/* Returns a model of two layers. Its heads have 12 dimensions: six pairs, two for each axis. */
struct model small(enum model_adaln adaln, int64_t kv_heads, bool gated, bool text,
                   int64_t cond_channels);

/* Returns a new copy of the gradients in host memory. */
void *grads_get(const struct rig *r);

/* Holds a rig of f64, and a copy of its weights in host memory. */
struct probe {
    struct rig *r;
    double *weights;
};

double probe_loss(void *ctx);

/* Checks the gradient of every trained tensor by central differences. */
void gradients_check(struct rig *r, const char *what);

#endif
