/* This file implements the tokenizer "wavelet-cdf97-haar-8x8x8x16/2".
 *
 * Colour: RGB scaled to [-1, 1] goes through the orthonormal rotation (R+G+B)/√3, (R-B)/√2,
 * (R-2G+B)/√6 (Y. Ohta, T. Kanade and T. Sakai, "Color information for region segmentation", 1980):
 * an error in a component is the same error in RGB.
 *
 * Time: the first frame stands alone; each further group of 8 frames goes through the orthonormal
 * Haar functions over the group.
 *
 * Space: three levels of the Cohen-Daubechies-Feauveau 9/7 wavelet over the whole plane, by lifting
 * (I. Daubechies and W. Sweldens, "Factoring wavelet transforms into lifting steps", 1998;
 * coefficients as in JPEG 2000, ISO/IEC 15444-1 annex F, scaled to be nearly orthonormal), mirrored
 * at the borders. Each part is inverted exactly.
 *
 * A latent position stands for 192 (first frame) or 1,536 (group) coefficients, of which 16 are
 * kept: the tables below have one row a channel. They are the coefficients whose loss costs most
 * PSNR, averaged over real footage (weight 0.7) and synthetic footage (0.3), with rows and columns
 * treated alike. Each is multiplied by the row's scale, about one over its standard deviation in
 * that footage. Decoding divides by the scale, sets the other coefficients to zero and inverts.
 */
#include "curator/tokenizer.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 16, EDGE = 8, LEVELS = 3, LIFTS = 4 };

/* Names one kept coefficient: its component, its Haar function in time, its place in the cell of
 * 8x8. Rows of one component and function follow each other, because they share a plane. */
struct kept { int component, t, y, x; float scale; };

static const struct kept first_frame[CHANNELS] = {
    {0, 0, 0, 0, 0.15f}, {0, 0, 0, 4, 1.0f}, {0, 0, 4, 0, 1.0f}, {0, 0, 4, 4, 1.7f},
    {0, 0, 0, 2, 2.2f}, {0, 0, 0, 6, 2.2f},
    {0, 0, 2, 0, 2.2f},  {0, 0, 6, 0, 2.2f}, {0, 0, 4, 2, 2.2f}, {0, 0, 4, 6, 2.2f},
    {0, 0, 2, 4, 2.2f}, {0, 0, 6, 4, 2.2f},
    {1, 0, 0, 0, 0.3f},  {1, 0, 0, 4, 2.5f}, {1, 0, 4, 0, 2.5f}, {2, 0, 0, 0, 0.3f},
};
static const struct kept group[CHANNELS] = {
    {0, 0, 0, 0, 0.055f}, {0, 0, 0, 4, 0.4f}, {0, 0, 4, 0, 0.4f},  {0, 0, 4, 4, 0.75f},
    {0, 0, 0, 2, 1.2f}, {0, 0, 0, 6, 1.2f},
    {0, 0, 2, 0, 1.2f},   {0, 0, 6, 0, 1.2f}, {0, 0, 4, 6, 1.2f},  {0, 0, 6, 4, 1.2f},
     {0, 1, 0, 0, 0.35f}, {0, 2, 0, 0, 0.5f},
    {0, 3, 0, 0, 0.7f},   {1, 0, 0, 0, 0.1f}, {1, 1, 0, 0, 0.45f}, {2, 0, 0, 0, 0.1f},
};

/* ---- space ---- */

static const float lifts[LIFTS] = {-1.586134342f, -0.052980119f, 0.882911076f, 0.443506852f};
static const float LOW_GAIN = 1.149604398f;

/* Describes `lines` parallel lines, `between` apart, each of `n` values (even), `stride` apart,
 * along the axis of the transform. */
struct axis { float *x; int64_t n, stride, lines, between; };

/* Adds c times the sum of its two neighbours to every second value, from `parity` on. Beyond an
 * end, the other neighbour counts twice. */
static void lift(const struct axis *a, int parity, float c)
{
    for (int64_t k = parity; k < a->n; k += 2) {
        float *x = a->x + k * a->stride;
        const float *before = k > 0 ? x - a->stride : x + a->stride, *after = k + 1 < a->n
        ? x + a->stride : x - a->stride;
        for (int64_t i = 0; i < a->lines; i++)
            x[i * a->between] += c * (before[i * a->between] + after[i * a->between]);
    }
}

static void gain(const struct axis *a, float low, float high)
{
    for (int64_t k = 0; k < a->n; k++)
        for (int64_t i = 0; i < a->lines; i++)
            a->x[k * a->stride + i * a->between] *= k % 2 ? high : low;
}

static void axis_forward(const struct axis *a)
{
    for (int i = 0; i < LIFTS; i++)
        lift(a, i % 2 == 0, lifts[i]);
    gain(a, LOW_GAIN, 1 / LOW_GAIN);
}

static void axis_inverse(const struct axis *a)
{
    gain(a, 1 / LOW_GAIN, LOW_GAIN);
    for (int i = LIFTS - 1; i >= 0; i--)
        lift(a, i % 2 == 0, -lifts[i]);
}

void wavelet_forward(float *plane, int64_t height, int64_t width)
{
    for (int64_t step = 1; step < 1 << LEVELS; step *= 2) {
        for (int64_t y = 0; y < height; y += step)
            axis_forward(&(struct axis){plane + y * width, width / step, step, 1, 0});
        axis_forward(&(struct axis){plane, height / step, step * width, width / step, step});
    }
}

void wavelet_inverse(float *plane, int64_t height, int64_t width)
{
    for (int64_t step = 1 << (LEVELS - 1); step > 0; step /= 2) {
        axis_inverse(&(struct axis){plane, height / step, step * width, width / step, step});
        for (int64_t y = 0; y < height; y += step)
            axis_inverse(&(struct axis){plane + y * width, width / step, step, 1, 0});
    }
}

/* ---- time ---- */

float wavelet_time(int t, int frame)
{
    /* amplitudes of the coarsest, the middle and the finest functions */
    static const float amplitude[] = {0.35355339059f, 0.5f, 0.70710678118f};
    int level = t >= 4 ? 2 : t >= 2, pieces = 1 << level, length = EDGE / pieces;
    if (t == 0)
        return amplitude[0];
    if (frame / length != t - pieces)
        return 0;
    return frame % length < length / 2 ? amplitude[level] : -amplitude[level];
}

/* ---- colour ---- */

static const float rotation[3][3] = {
    {0.57735026919f, 0.57735026919f, 0.57735026919f}, {0.70710678118f, 0, -0.70710678118f},
    {0.40824829046f, -0.81649658093f, 0.40824829046f},
};

static uint8_t to_byte(float v)
{
    v = (v + 1) * 127.5f;
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)(v + 0.5f);
}

static void put_pixel(uint8_t *p, const float v[3])
{
    for (int c = 0; c < 3; c++)
        p[c] = to_byte(rotation[0][c] * v[0] + rotation[1][c] * v[1] + rotation[2][c] * v[2]);
}

/* ---- clips ---- */

/* Describes latent frame j: its first frame, how many frames it stands for, and its table of kept
 * coefficients. */
struct span { int64_t first; int n; const struct kept *kept; };

static struct span span_of(int64_t j)
{
    return j ? (struct span){1 + (j - 1) * EDGE, EDGE, group} : (struct span){0, 1, first_frame};
}

static float time_at(const struct span *s, int t, int frame)
{
    return s->n == 1 ? 1 : wavelet_time(t, frame);
}

static bool same_plane(const struct kept *a, const struct kept *b)
{
    return a->component == b->component && a->t == b->t;
}

/* Computes the plane of one component under one function of time. */
static void plane_gather(const uint8_t *rgb, int64_t pixels, const struct span *s,
                         const struct kept *k, float *plane)
{
    const float *r = rotation[k->component], offset = r[0] + r[1] + r[2];
    memset(plane, 0, (size_t)pixels * sizeof *plane);
    for (int f = 0; f < s->n; f++) {
        const uint8_t *p = rgb + (s->first + f) * pixels * 3;
        float w = time_at(s, k->t, f);
        for (int64_t i = 0; i < pixels && w != 0; i++)
            plane[i] += w * ((r[0] * p[3 * i] + r[1] * p[3 * i + 1] + r[2] * p[3 * i + 2]) /
                                 127.5f - offset);
    }
}

/* Returns the index in a plane of coefficient k of a cell. */
static int64_t place_of(const struct kept *k, int64_t cell, int64_t width)
{
    int64_t cols = width / EDGE;
    return (cell / cols * EDGE + k->y) * width + cell % cols * EDGE + k->x;
}

static int encode(const uint8_t *rgb, int64_t frames, int64_t height, int64_t width, float *latent,
                  struct err *err)
{
    int64_t n = tokenizer_latent_frames(frames), pixels = height * width,
            cells = pixels / (EDGE * EDGE);
    float *plane = malloc((size_t)pixels * sizeof *plane);
    if (!plane)
        return err_set(err, ERR_NOMEM, "out of memory for a plane of %lldx%lld", (long long)height,
                       (long long)width);
    for (int64_t j = 0; j < n; j++) {
        struct span s = span_of(j);
        for (int k = 0; k < CHANNELS; k++) {
            if (k == 0 || !same_plane(&s.kept[k], &s.kept[k - 1])) {
                plane_gather(rgb, pixels, &s, &s.kept[k], plane);
                wavelet_forward(plane, height, width);
            }
            for (int64_t cell = 0; cell < cells; cell++)
                latent[(k * n + j) * cells + cell] =
                    plane[place_of(&s.kept[k], cell, width)] * s.kept[k].scale;
        }
    }
    free(plane);
    return 0;
}

/* Writes the planes of latent frame j, one after the other, and to of[] the row of the table to
 * which each belongs. Returns the number of planes. */
static int planes_fill(const float *latent, int64_t n, int64_t j, int64_t height, int64_t width,
                       float *planes, int of[CHANNELS])
{
    int64_t pixels = height * width, cells = pixels / (EDGE * EDGE);
    const struct kept *kept = span_of(j).kept;
    int count = 0;
    for (int k = 0; k < CHANNELS; k++) {
        if (k == 0 || !same_plane(&kept[k], &kept[k - 1])) {
            memset(planes + count * pixels, 0, (size_t)pixels * sizeof *planes);
            of[count++] = k;
        }
        for (int64_t cell = 0; cell < cells; cell++)
            planes[(count - 1) * pixels + place_of(&kept[k], cell, width)] =
                latent[(k * n + j) * cells + cell] / kept[k].scale;
    }
    for (int i = 0; i < count; i++)
        wavelet_inverse(planes + i * pixels, height, width);
    return count;
}

static void frame_compose(const float *planes, int count, const int *of, int64_t pixels,
                          const struct span *s, int frame, uint8_t *rgb)
{
    float weight[CHANNELS];
    for (int i = 0; i < count; i++)
        weight[i] = time_at(s, s->kept[of[i]].t, frame);
    for (int64_t i = 0; i < pixels; i++) {
        float v[3] = {0};
        for (int k = 0; k < count; k++)
            v[s->kept[of[k]].component] += weight[k] * planes[k * pixels + i];
        put_pixel(rgb + ((s->first + frame) * pixels + i) * 3, v);
    }
}

static int decode(const float *latent, int64_t frames, int64_t height, int64_t width, uint8_t *rgb,
                  struct err *err)
{
    int64_t n = tokenizer_latent_frames(frames), pixels = height * width;
    float *planes = malloc((size_t)(CHANNELS * pixels) * sizeof *planes);
    if (!planes)
        return err_set(err, ERR_NOMEM, "out of memory for planes of %lldx%lld", (long long)height,
                       (long long)width);
    for (int64_t j = 0; j < n; j++) {
        struct span s = span_of(j);
        int of[CHANNELS], count = planes_fill(latent, n, j, height, width, planes, of);
        for (int f = 0; f < s.n; f++)
            frame_compose(planes, count, of, pixels, &s, f, rgb);
    }
    free(planes);
    return 0;
}

const struct tokenizer tokenizer_wavelet = {"wavelet-cdf97-haar-8x8x8x16/2", CHANNELS,
                                            encode, decode};

double psnr(const uint8_t *a, const uint8_t *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)(a[i] - b[i]) * (a[i] - b[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : 99;
}
