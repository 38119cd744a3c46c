/* tokenizer: video clips to latents and back, behind one interface; and the built-in causal wavelet.
 *
 * A clip has 1 + 8k frames of RGB, height and width multiples of 8. Latents are [channels, 1 + k, H/8, W/8] floats, row-major:
 * the first frame alone gives latent frame 0, every further 8 frames one more, so that latent frame j depends on no later
 * frame than 8j (causal in time).
 */
#ifndef CURATOR_TOKENIZER_H
#define CURATOR_TOKENIZER_H

#include <stdint.h>

#include "base/err.h"

struct tokenizer {
    const char *name; /* "wavelet-haar-8x8x8x16/1" */
    int64_t channels;
    /* rgb: [frames, height, width, 3] bytes; latent: channels·(1 + k)·(height/8)·(width/8) floats. */
    void (*encode)(const uint8_t *rgb, int64_t frames, int64_t height, int64_t width, float *latent);
    void (*decode)(const float *latent, int64_t frames, int64_t height, int64_t width, uint8_t *rgb);
};

extern const struct tokenizer tokenizer_wavelet;

static inline int64_t tokenizer_latent_frames(int64_t frames) { return 1 + (frames - 1) / 8; }
static inline int64_t tokenizer_elements(const struct tokenizer *t, int64_t frames, int64_t height, int64_t width)
{
    return t->channels * tokenizer_latent_frames(frames) * (height / 8) * (width / 8);
}

/* Peak signal-to-noise ratio of 8-bit data in dB; 99 when equal. */
double psnr(const uint8_t *a, const uint8_t *b, int64_t n);

/* The orthonormal 3-level Haar transform of one block of t x 8 x 8 (t = 1 or 8), in place, and its inverse: for tests. */
void wavelet_forward(float *block, int t);
void wavelet_inverse(float *block, int t);

#endif
