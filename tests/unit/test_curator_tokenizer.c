/* The wavelet tokenizer, captions' embedding, and the .npy we write. */
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/npy.h"
#include "base/philox_impl.h"
#include "curator/text.h"
#include "curator/tokenizer.h"

enum { H = 32, W = 48, FRAMES = 17, PIXELS = FRAMES * H * W * 3 };

/* The plane's transform is inverted to rounding at any size, the smallest too, and keeps the energy
 * of noise within a fifth: 9/7 is nearly orthonormal. A level plane is all mean: eight times its
 * value, and no detail, at the borders neither. */
static void space_inverts(void **state)
{
    static const int64_t sizes[][2] = {{8, 8}, {8, 24}, {32, 48}, {136, 16}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t h = sizes[s][0], w = sizes[s][1], n = h * w;
        float *plane = malloc((size_t)n * sizeof *plane),
              *before = malloc((size_t)n * sizeof *before);
        double energy = 0, after = 0;
        for (int64_t i = 0; i < n; i++)
            energy += pow(
                before[i] = plane[i] = (float)philox_normal_at(3, PHILOX_TEST, s, (uint64_t)i), 2);
        wavelet_forward(plane, h, w);
        for (int64_t i = 0; i < n; i++)
            after += (double)plane[i] * plane[i];
        assert_true(after / energy > 0.8 && after / energy < 1.25);
        assert_true(fabsf(plane[1] - before[1]) > 1e-3f);
        wavelet_inverse(plane, h, w);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(plane[i] - before[i]) < 1e-5f);
        for (int64_t i = 0; i < n; i++)
            plane[i] = 0.5f;
        wavelet_forward(plane, h, w);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(plane[i] - (i / w % 8 == 0 && i % 8 == 0 ? 4 : 0)) < 1e-5f);
        free(plane), free(before);
    }
}

/* Haar's functions are orthonormal, and any of the eight frames can be told from them. */
static void time_orthonormal(void **state)
{
    (void)state;
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++) {
            double over_frames = 0, over_functions = 0;
            for (int i = 0; i < 8; i++) {
                over_frames += (double)wavelet_time(a, i) * wavelet_time(b, i);
                over_functions += (double)wavelet_time(i, a) * wavelet_time(i, b);
            }
            assert_true(fabs(over_frames - (a == b)) < 1e-6 &&
                        fabs(over_functions - (a == b)) < 1e-6);
        }
}

/* A drifting coloured gradient: smooth in space and time, as the kept coefficients want it. */
static void clip_draw(uint8_t *rgb, double speed)
{
    for (int f = 0; f < FRAMES; f++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                for (int c = 0; c < 3; c++)
                    rgb[((f * H + y) * W + x) * 3 + c] =
                        (uint8_t)(128 + 60 * sin(0.11 * (x + speed * f) + c) + 40 * cos(0.13 * y));
}

/* What can be said by the kept coefficients comes back; detail beyond them costs what PSNR says. */
static void round_trip(void **state)
{
    const struct tokenizer *t = &tokenizer_wavelet;
    int64_t n = tokenizer_elements(t, FRAMES, H, W);
    struct err err = {0};
    uint8_t *rgb = malloc(PIXELS), *back = malloc(PIXELS);
    float *latent = malloc((size_t)n * sizeof *latent), *again = malloc((size_t)n * sizeof *again);
    (void)state;
    assert_int_equal(n, 16 * 3 * (H / 8) * (W / 8));
    memset(rgb, 77, PIXELS);
    assert_int_equal(t->encode(rgb, FRAMES, H, W, latent, &err), 0);
    assert_int_equal(t->decode(latent, FRAMES, H, W, back, &err), 0);
    assert_true(psnr(rgb, back, PIXELS) > 50); /* one colour: nothing is lost but rounding */
    clip_draw(rgb, 0.5);
    assert_int_equal(t->encode(rgb, FRAMES, H, W, latent, &err), 0);
    assert_int_equal(t->decode(latent, FRAMES, H, W, back, &err), 0);
    double smooth = psnr(rgb, back, PIXELS);
    assert_true(smooth > 36 && smooth < 60);
    /* a decoded clip is a fixed point up to rounding to bytes */
    assert_int_equal(t->encode(back, FRAMES, H, W, again, &err), 0);
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)again[i] - latent[i]));
    assert_true(worst < 0.1);
    for (int i = 0; i < PIXELS; i++)
        rgb[i] = (uint8_t)philox_rounds((uint32_t[]){(uint32_t)i, 0, 0, 0}, (uint32_t[]){1, 2}).w[0];
    assert_int_equal(t->encode(rgb, FRAMES, H, W, latent, &err), 0);
    assert_int_equal(t->decode(latent, FRAMES, H, W, back, &err), 0);
    assert_true(psnr(rgb, back, PIXELS) < 15); /* noise has no few coefficients */
    free(rgb), free(back), free(latent), free(again);
}

/* Latent frame j sees no frame past 8j: changing the last eight frames changes the last latent
 * frame only. */
static void causal(void **state)
{
    const struct tokenizer *t = &tokenizer_wavelet;
    int64_t n = tokenizer_elements(t, FRAMES, H, W), cells = (H / 8) * (W / 8), changed = 0;
    struct err err = {0};
    uint8_t *rgb = malloc(PIXELS);
    float *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    (void)state;
    clip_draw(rgb, 1);
    assert_int_equal(t->encode(rgb, FRAMES, H, W, a, &err), 0);
    memset(rgb + 9 * H * W * 3, 200, (size_t)8 * H * W * 3);
    assert_int_equal(t->encode(rgb, FRAMES, H, W, b, &err), 0);
    for (int64_t c = 0; c < 16; c++)
        for (int64_t i = 0; i < 3 * cells; i++) {
            bool differs = a[c * 3 * cells + i] != b[c * 3 * cells + i];
            changed += differs;
            if (i < 2 * cells)
                assert_false(differs);
        }
    assert_true(changed > 0);
    free(rgb), free(a), free(b);
}

static double dot(const float *a, const float *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)a[i] * b[i];
    return s;
}

static void captions(void **state)
{
    static const struct {
        const char *caption;
        int64_t rows;
    } table[] = {
        {"", 0},
        {"  ,.; ", 0},
        {"one", 1},
        {"A dog, running!", 3},
        {"\xc3\xa9t\xc3\xa9 d'or", 3},
        {"a b c d e f g h i j k l", 8},
    };
    float out[8 * 64], other[8 * 64];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t n = text_encoder_hashed.encode(table[i].caption, 64, 8, out);
        assert_int_equal(n, table[i].rows);
        for (int64_t k = 0; k < n; k++)
            assert_true(fabs(dot(out + 64 * k, out + 64 * k, 64) - 1) < 1e-5);
    }
    text_encoder_hashed.encode("Running runner DOG", 64, 8, out);
    text_encoder_hashed.encode("running dog", 64, 8, other);
    assert_true(dot(out, other, 64) > 0.999);                      /* case does not matter */
    /* running is nearer to runner than to dog */
    assert_true(dot(out, out + 64, 64) > dot(out, out + 128, 64));
}

static void npy_bytes(void **state)
{
    static const float values[] = {1, 2, 3, 4, 5, 6};
    struct str s = STR_INIT;
    (void)state;
    npy_format(values, (const int64_t[]){2, 3}, 2, &s);
    assert_int_equal(s.len, 128 + sizeof values);
    assert_memory_equal(
        s.p, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        69);
    assert_int_equal(s.p[127], '\n');
    assert_memory_equal(s.p + 128, values, sizeof values);
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(space_inverts), cmocka_unit_test(time_orthonormal),
        cmocka_unit_test(round_trip),    cmocka_unit_test(causal),
        cmocka_unit_test(captions),      cmocka_unit_test(npy_bytes)};
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
