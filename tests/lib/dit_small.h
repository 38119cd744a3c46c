/* dit_small: the model whose gradients and first values the tests of dit/ look at. */
#ifndef TESTS_DIT_SMALL_H
#define TESTS_DIT_SMALL_H

#include "tests/lib/trainer_model.h"

/* Returns a model of two layers. Its heads have 12 dimensions: six pairs, two for each axis. */
struct model small(enum model_adaln adaln, int64_t kv_heads, bool gated, bool text,
                   int64_t cond_channels);

/* Returns new: the gradients, which may lie where the host does not reach. */
void *grads_get(const struct rig *r);

/* A rig of f64, and its weights as the host has them. */
struct probe {
    struct rig *r;
    double *weights;
};

double probe_loss(void *ctx);

/* Checks the gradient of every tensor that is trained, by central differences. */
void gradients_check(struct rig *r, const char *what);

#endif
