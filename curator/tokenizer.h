/* tokenizer: turns video clips into latents and back, through one interface, and has a built-in
 * causal 3D wavelet.
 *
 * A clip has 1 + 8k frames of RGB, and its height and width are multiples of 8. Latents are
 * [channels, 1 + k, H/8, W/8] floats, row-major. The first frame alone gives latent frame 0, and
 * every further 8 frames give one more, so that latent frame j depends on no frame after 8j (causal
 * in time).
 */
#ifndef CURATOR_TOKENIZER_H
#define CURATOR_TOKENIZER_H

#include <stdint.h>

#include "base/err.h"

struct tokenizer {
    const char *name; /* "wavelet-cdf97-haar-8x8x8x16/2" */
    int64_t channels;
    /* rgb: [frames, height, width, 3] bytes. latent: channels·(1 + k)·(height/8)·(width/8) floats.
     * The only error is ERR_NOMEM. */
    int (*encode)(const uint8_t *rgb, int64_t frames, int64_t height, int64_t width, float *latent,
                  struct err *err);
    int (*decode)(const float *latent, int64_t frames, int64_t height, int64_t width, uint8_t *rgb,
                  struct err *err);
};

extern const struct tokenizer tokenizer_wavelet;

static inline int64_t tokenizer_latent_frames(int64_t frames) { return 1 + (frames - 1) / 8; }
static inline int64_t tokenizer_elements(const struct tokenizer *t, int64_t frames, int64_t height,
                                         int64_t width)
{
    return t->channels * tokenizer_latent_frames(frames) * (height / 8) * (width / 8);
}

/* Returns the peak signal-to-noise ratio of 8-bit data in dB; 99 if they are equal. */
double psnr(const uint8_t *a, const uint8_t *b, int64_t n);

/* Do the wavelet transform of a plane whose sides are multiples of 8 in place, by three levels
 * of CDF 9/7, and back. They are public for tests. In each cell of 8x8, place (0, 0) holds the
 * mean, (0, 4) (4, 0) (4, 4) the coarsest details, (0 or 4, 2 or 6) … the middle ones, and
 * places with an odd coordinate the finest. wavelet_time returns the value of orthonormal Haar
 * function t of 8 (0: the mean) at a frame of the group. */
void wavelet_forward(float *plane, int64_t height, int64_t width);
void wavelet_inverse(float *plane, int64_t height, int64_t width);
float wavelet_time(int t, int frame);

#endif
