/* dit_small: the model whose gradients and first values the tests of dit/ look at. */
#ifndef TESTS_UNIT_DIT_SMALL_H
#define TESTS_UNIT_DIT_SMALL_H

#include "tests/unit/trainer_model.h"

/* Returns a model of two layers. Its heads have 12 dimensions: six pairs, two for each axis. */
static inline struct model small(enum model_adaln adaln, int64_t kv_heads, bool gated, bool text,
                                 int64_t cond_channels)
{
    struct model m = {.name = "small", .family = MODEL_DIT, .layers = 2, .hidden = 24, .heads = 2,
                      .kv_heads = kv_heads, .ffn = 20, .gated_mlp = gated,
                      .text_width = text ? TEXT_WIDTH : 0, .text_len = text ? 8 : 0, .adaln = adaln,
                      .adaln_rank = adaln == ADALN_NONE || adaln == ADALN_FULL ? 0 : 3,
                      .patch_t = 1, .patch_h = 2, .patch_w = 2, .latent_channels = CHANNELS,
                      .cond_channels = cond_channels, .rope_theta = 100};
    return m;
}

#endif
