/* The tokenizer "wavelet-haar-8x8x8x16/1".
 *
 * RGB becomes Y, Cb, Cr (ITU-R BT.601, full range) scaled to [-1, 1]. The first frame is cut into blocks of 8x8, each further group of 8
 * frames into blocks of 8x8x8, and each block goes through the orthonormal Haar transform of three levels along every axis
 * (tensor product: along an axis, index 0 is the mean, 1 the coarsest difference, 2..3 the middle, 4..7 the finest ones).
 * Of the 64 or 512 coefficients of each of the three components, 16 in all are kept: the table below, one row a channel.
 * Each is multiplied by the row's scale, which brings the channels of ordinary footage to comparable variance. Decoding
 * divides, fills the rest with zeros and inverts; for the kept coefficients it is exact.
 */
#include "curator/tokenizer.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 16, EDGE = 8, BLOCK = EDGE * EDGE * EDGE };

struct kept { int component, t, h, w; float scale; };

/* Means of all components, then luma: first differences, middle ones across and down, mixed ones. */
static const struct kept first_frame[CHANNELS] = {
    {0, 0, 0, 0, 0.25f}, {1, 0, 0, 0, 0.8f}, {2, 0, 0, 0, 0.8f}, {0, 0, 0, 1, 0.8f}, {0, 0, 1, 0, 0.8f}, {0, 0, 1, 1, 1.5f},
    {0, 0, 0, 2, 1.5f},  {0, 0, 0, 3, 1.5f}, {0, 0, 2, 0, 1.5f}, {0, 0, 3, 0, 1.5f}, {0, 0, 1, 2, 2.5f}, {0, 0, 1, 3, 2.5f},
    {0, 0, 2, 1, 2.5f},  {0, 0, 3, 1, 2.5f}, {1, 0, 0, 1, 3.0f}, {2, 0, 0, 1, 3.0f},
};
/* The same idea with time: first differences in time take the place of the least of the mixed ones. */
static const struct kept group[CHANNELS] = {
    {0, 0, 0, 0, 0.09f}, {1, 0, 0, 0, 0.3f}, {2, 0, 0, 0, 0.3f}, {0, 0, 0, 1, 0.3f}, {0, 0, 1, 0, 0.3f}, {0, 0, 1, 1, 0.6f},
    {0, 0, 0, 2, 0.6f},  {0, 0, 0, 3, 0.6f}, {0, 0, 2, 0, 0.6f}, {0, 0, 3, 0, 0.6f}, {0, 1, 0, 0, 0.6f}, {0, 1, 0, 1, 1.0f},
    {0, 1, 1, 0, 1.0f},  {0, 2, 0, 0, 1.2f}, {0, 3, 0, 0, 1.2f}, {0, 0, 1, 2, 1.0f},
};

/* Haar of 8 values a stride apart: mean first, then differences from coarse to fine. */
static void haar8(float *x, int stride)
{
    const float r = 0.70710678118654752f;
    float s[EDGE], out[EDGE];
    for (int i = 0; i < EDGE; i++)
        s[i] = x[i * stride];
    for (int n = EDGE; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++) {
            float a = s[2 * i], b = s[2 * i + 1];
            s[i] = (a + b) * r;
            out[n / 2 + i] = (a - b) * r;
        }
    out[0] = s[0];
    for (int i = 0; i < EDGE; i++)
        x[i * stride] = out[i];
}

static void haar8_inverse(float *x, int stride)
{
    const float r = 0.70710678118654752f;
    float s[EDGE], next[EDGE];
    s[0] = x[0];
    for (int n = 1; n < EDGE; n *= 2) {
        for (int i = 0; i < n; i++) {
            float d = x[(n + i) * stride];
            next[2 * i] = (s[i] + d) * r;
            next[2 * i + 1] = (s[i] - d) * r;
        }
        memcpy(s, next, sizeof s);
    }
    for (int i = 0; i < EDGE; i++)
        x[i * stride] = s[i];
}

typedef void axis_fn(float *x, int stride);

static void all_axes(float *block, int t, axis_fn *fn)
{
    for (int k = 0; k < t * EDGE; k++)
        fn(block + k * EDGE, 1);
    for (int k = 0; k < t; k++)
        for (int w = 0; w < EDGE; w++)
            fn(block + k * EDGE * EDGE + w, EDGE);
    for (int k = 0; k < EDGE * EDGE && t == EDGE; k++)
        fn(block + k, EDGE * EDGE);
}

void wavelet_forward(float *block, int t)
{
    all_axes(block, t, haar8);
}

void wavelet_inverse(float *block, int t)
{
    all_axes(block, t, haar8_inverse);
}

/* Component c of one pixel in [-1, 1]. */
static float component(const uint8_t *p, int c)
{
    float r = p[0], g = p[1], b = p[2];
    if (c == 0)
        return (0.299f * r + 0.587f * g + 0.114f * b) / 127.5f - 1;
    if (c == 1)
        return (-0.168736f * r - 0.331264f * g + 0.5f * b) / 127.5f;
    return (0.5f * r - 0.418688f * g - 0.081312f * b) / 127.5f;
}

static uint8_t to_byte(float v)
{
    v = (v + 1) * 127.5f;
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)(v + 0.5f);
}

static void put_pixel(uint8_t *p, float y, float cb, float cr)
{
    p[0] = to_byte(y + 1.402f * cr);
    p[1] = to_byte(y - 0.344136f * cb - 0.714136f * cr);
    p[2] = to_byte(y + 1.772f * cb);
}

/* Where a clip's block begins, and how it is laid out. */
struct place { int64_t frame, y, x, height, width; int t; };

static void block_read(const uint8_t *rgb, const struct place *p, int c, float *block)
{
    for (int k = 0; k < p->t; k++)
        for (int h = 0; h < EDGE; h++)
            for (int w = 0; w < EDGE; w++)
                block[(k * EDGE + h) * EDGE + w] = component(rgb + (((p->frame + k) * p->height + p->y + h) * p->width + p->x + w) * 3, c);
}

static void block_write(uint8_t *rgb, const struct place *p, float block[3][BLOCK])
{
    for (int k = 0; k < p->t; k++)
        for (int h = 0; h < EDGE; h++)
            for (int w = 0; w < EDGE; w++) {
                int i = (k * EDGE + h) * EDGE + w;
                put_pixel(rgb + (((p->frame + k) * p->height + p->y + h) * p->width + p->x + w) * 3, block[0][i], block[1][i], block[2][i]);
            }
}

static int index_of(const struct kept *k)
{
    return (k->t * EDGE + k->h) * EDGE + k->w;
}

/* Calls for every block of the clip: latent frame j, block row and column. */
static struct place place_of(int64_t j, int64_t by, int64_t bx, int64_t height, int64_t width)
{
    return (struct place){j ? 1 + (j - 1) * EDGE : 0, by * EDGE, bx * EDGE, height, width, j ? EDGE : 1};
}

static void encode(const uint8_t *rgb, int64_t frames, int64_t height, int64_t width, float *latent)
{
    int64_t t = tokenizer_latent_frames(frames), rows = height / EDGE, cols = width / EDGE, cells = t * rows * cols;
    float block[3][BLOCK];
    for (int64_t cell = 0; cell < cells; cell++) {
        int64_t j = cell / (rows * cols);
        struct place p = place_of(j, cell / cols % rows, cell % cols, height, width);
        const struct kept *kept = j ? group : first_frame;
        for (int c = 0; c < 3; c++) {
            block_read(rgb, &p, c, block[c]);
            wavelet_forward(block[c], p.t);
        }
        for (int k = 0; k < CHANNELS; k++)
            latent[k * cells + cell] = block[kept[k].component][index_of(&kept[k])] * kept[k].scale;
    }
}

static void decode(const float *latent, int64_t frames, int64_t height, int64_t width, uint8_t *rgb)
{
    int64_t t = tokenizer_latent_frames(frames), rows = height / EDGE, cols = width / EDGE, cells = t * rows * cols;
    float block[3][BLOCK];
    for (int64_t cell = 0; cell < cells; cell++) {
        int64_t j = cell / (rows * cols);
        struct place p = place_of(j, cell / cols % rows, cell % cols, height, width);
        const struct kept *kept = j ? group : first_frame;
        memset(block, 0, sizeof block);
        for (int k = 0; k < CHANNELS; k++)
            block[kept[k].component][index_of(&kept[k])] = latent[k * cells + cell] / kept[k].scale;
        for (int c = 0; c < 3; c++)
            wavelet_inverse(block[c], p.t);
        block_write(rgb, &p, block);
    }
}

const struct tokenizer tokenizer_wavelet = {"wavelet-haar-8x8x8x16/1", CHANNELS, encode, decode};

double psnr(const uint8_t *a, const uint8_t *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)(a[i] - b[i]) * (a[i] - b[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : 99;
}
