/* batch: holds the samples of one micro-batch, as the loader gives them to the model.
 *
 * All pointers are borrowed. The function that fills a batch keeps the data that they point to
 * until it fills the next one.
 */
#ifndef TRAINER_DATA_BATCH_H
#define TRAINER_DATA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct batch_sample {
    uint64_t ordinal;     /* of its draw, plus its place in the pack · 2^48 (loader.h) */
    const float *latent;  /* [C, t, h, w], normalised */
    const float *cond;    /* [cond_channels, t, h, w]; NULL: zeros */
    int32_t t, h, w;      /* latent cells; multiples of the patch */
    /* how many cells of each axis, from the first on, count in the loss; 0, 0, 0: all */
    int32_t valid_t, valid_h, valid_w;
    const float *text;    /* [text_len, text_width] */
    int32_t text_len;     /* true length, 0 = no caption */
    double fps;
    double level;         /* ln(sigma / alpha): objective_level_draw() */
    bool drop_text;       /* the null token replaces the caption */
    /* 1 for loss_norm token; 1 / (its latent elements) for loss_norm sample */
    double loss_weight;
};
struct batch {
    const struct batch_sample *samples;
    /* 0 is an empty micro-batch: loss 0, gradient 0; it takes part in all communication */
    int64_t n;
};

struct err;
/* Is called with a micro-batch whose samples have shapes and random choices, but no payloads. */
typedef int batch_shapes_fn(void *ctx, const struct batch *b, struct err *err);

#endif
