/* Philox: published answers, packing, accuracy of the normals, and permutations that are
 * permutations. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox_impl.h"

/* Random123's kat_vectors, lines "philox4x32 10". */
static void known_answers(void **state)
{
    static const struct { uint32_t counter[4], key[2], out[4]; } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct philox_block b = philox_rounds(rows[i].counter, rows[i].key);
        assert_memory_equal(b.w, rows[i].out, sizeof b.w);
    }
}

/* Every field of (seed, stream, ordinal, block) reaches its own bits of key and counter. */
static void packing(void **state)
{
    uint64_t seed = 0x0123456789abcdef, ordinal = 0xfedcba9876543210, block = 0x00a1b2c3d4e5f607;
    uint32_t key[2] = {0x89abcdef, 0x01234567};
    uint32_t counter[4] = {0xd4e5f607, 0x03a1b2c3, 0x76543210, 0xfedcba98};
    struct philox_block expect = philox_rounds(counter, key),
                        got = philox_at(seed, PHILOX_LEVEL, ordinal, block);

    (void)state;
    assert_memory_equal(&got, &expect, sizeof got);
}

static void uniform_is_open(void **state)
{
    (void)state;
    assert_true(philox_uniform(0, 0) == 0x1p-53);
    assert_true(philox_uniform(0, 0xfff) == 0x1p-53); /* the low 12 bits are dropped */
    assert_true(philox_uniform(0, 0x1000) == 0x1.8p-52);
    assert_true(philox_uniform(0x80000000, 0) == 0.5 + 0x1p-53);
    assert_true(philox_uniform(~0u, ~0u) == 1.0 - 0x1p-53);
}

/* Newton's method on the normal distribution in extended precision: x with Phi(x) = u. */
static double reference_normal(double u, double start)
{
    long double p = u < 0.5 ? (long double)u : 1.0L - (long double)u,
                x = -fabsl((long double)start);

    for (int i = 0; i < 4; i++) {
        long double f = 0.5L * erfcl(-x * sqrtl(0.5L)) - p;
        x -= f / (expl(-0.5L * x * x) * 0.398942280401432677939946L);
    }
    return (double)(u < 0.5 ? x : -x);
}

static double worst_error(uint64_t first, uint64_t last, uint64_t n)
{
    double worst = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t k = first + (last - first) / n * i;
        double u = ((double)k + 0.5) * 0x1p-52, x = philox_normal_from_uniform(u), e;
        e = fabs(x - reference_normal(u, x));
        worst = e > worst ? e : worst;
    }
    return worst;
}

/* The header promises 1e-14 at every u that can occur: each octave down to the smallest, both
 * sides, and the seams. */
static void normal_accuracy(void **state)
{
    const uint64_t one = UINT64_C(1) << 52;
    double worst = 0;

    (void)state;
    for (int b = 0; b < 52; b++) {
        uint64_t low = UINT64_C(1) << b, high = low * 2;
        double a = worst_error(low, high, low < 500 ? low : 500);
        double c = worst_error(one - high, one - low, low < 500 ? low : 500);
        worst = fmax(worst, fmax(a, c));
    }
    worst = fmax(worst, worst_error(0, 1, 1));
    for (int side = -1; side <= 1; side += 2) { /* |u - 1/2| = 0.425 and -log p = 25 */
        uint64_t center = (uint64_t)((0.5 + side * 0.425) * 0x1p52);
        uint64_t tail = (uint64_t)((side < 0 ? exp(-25) : 1 - exp(-25)) * 0x1p52);
        worst = fmax(worst, worst_error(center - 500, center + 500, 1000));
        worst = fmax(worst, worst_error(tail - 500, tail + 500, 1000));
    }
    printf("# largest error of philox_normal_from_uniform: %.3g\n", worst);
    assert_true(worst < 1e-14);
}

static void normal_symmetry_and_order(void **state)
{
    double before = -INFINITY;

    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        double u = ((double)(i * ((UINT64_C(1) << 52) / 20000)) + 0.5) * 0x1p-52,
               x = philox_normal_from_uniform(u);
        assert_true(x > before);
        assert_true(philox_normal_from_uniform(1.0 - u) == -x);
        before = x;
    }
}

static uint64_t bits_of(double x)
{
    uint64_t b;

    memcpy(&b, &x, sizeof b);
    return b;
}

/* One row in the center, one in the middle, both tails: a contracted multiply-add or another libm
 * would change these. */
static void golden_bits(void **state)
{
    static const struct {
        double u;
        uint64_t bits;
    } rows[] = {
        {0x1p-53, 0xc0206b48528cea51}, {0x1.8p-40, 0xc01bf6d4348f688a}, {0.01, 0xc0029c5c4630ff0e},
        {0.3, 0xbfe0c7e39582c5fa},     {0.9, 0x3ff4813c36e26d34},       {0.999, 0x4008b8cbb7204470},
    };
    static const uint64_t normals[4] = {0xbfcd123ef853f098, 0x3fc360bce75dd14e, 0xbff20598425121a6,
                                        0xbffe0701edb2916e};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(bits_of(philox_normal_from_uniform(rows[i].u)), rows[i].bits);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(bits_of(philox_normal_at(1234, PHILOX_NOISE, 56, i)), normals[i]);
}

/* Checks n elements of both fills against single ones, and that none is written behind them. */
static void check_fill(uint64_t first, size_t n)
{
    enum { MOST = 1000 };
    double out[MOST + 1], even[MOST + 1];

    out[n] = even[n] = -77;
    philox_normal_fill(9, PHILOX_NOISE, 3, first, n, out);
    philox_uniform_fill(9, PHILOX_NOISE, 3, first, n, even);
    for (size_t i = 0; i < n; i++)
        assert_true(out[i] == philox_normal_at(9, PHILOX_NOISE, 3, first + i) &&
                    even[i] == philox_uniform_at(9, PHILOX_NOISE, 3, first + i));
    assert_true(out[n] == -77 && even[n] == -77);
}

static void fill_equals_single(void **state)
{
    (void)state;
    for (uint64_t first = 0; first < 4; first++)
        for (size_t n = 0; n < 10; n++)
            check_fill(first, n);
    for (uint64_t first = 0; first < 2; first++)
        check_fill(first, 1000); /* fills compute 128 elements at a time */
}

/* The middle ratio holds down to exp(-25), and one draw in 3.6e10 is below. This one was searched
 * for. */
static void fill_of_a_far_draw(void **state)
{
    enum { AT = 64, N = 256 };
    const uint64_t far = UINT64_C(9488814564);
    double out[N];

    (void)state;
    assert_true(philox_uniform_at(1, PHILOX_TEST, 0, far) < exp(-25));
    philox_normal_fill(1, PHILOX_TEST, 0, far - AT, N, out);
    assert_true(out[AT] == philox_normal_at(1, PHILOX_TEST, 0, far));
    assert_true(out[AT] < -6.6 && out[AT] > -6.9);
}

static void moments(void **state)
{
    enum { N = 200000 };
    double *x = malloc(N * sizeof *x), m1 = 0, m2 = 0, m3 = 0, m4 = 0;

    (void)state;
    philox_normal_fill(5, PHILOX_NOISE, 1, 0, N, x);
    for (int i = 0; i < N; i++) {
        double y = x[i];
        m1 += y / N, m2 += y * y / N, m3 += y * y * y / N, m4 += y * y * y * y / N;
    }
    free(x);
    /* five standard deviations of each estimate */
    assert_true(fabs(m1) < 5 * sqrt(1.0 / N));
    assert_true(fabs(m2 - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m3) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m4 - 3) < 5 * sqrt(96.0 / N));
}

static void expect_bijection(uint64_t seed, uint64_t epoch, uint64_t n)
{
    unsigned char *seen = calloc(1, n);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = philox_permute(seed, epoch, n, i);
        assert_true(v < n);
        assert_int_equal(seen[v], 0);
        seen[v] = 1;
    }
    free(seen);
}

static void permute_is_bijection(void **state)
{
    static const uint64_t large[] = {1023, 1024, 1025, 4095, 4097, 10007, 65536, 65537};

    (void)state;
    for (uint64_t n = 1; n <= 300; n++)
        expect_bijection(n * 77, n % 3, n);
    for (size_t k = 0; k < sizeof large / sizeof large[0]; k++)
        expect_bijection(42, 7, large[k]);
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Sizes too large to run through: distinct and in range over a sample. */
static void permute_huge(void **state)
{
    static const uint64_t sizes[] = {(UINT64_C(1) << 32) + 1, UINT64_C(1) << 40,
                                     UINT64_C(1000000000000), UINT64_MAX};
    enum { N = 3000 };
    uint64_t got[N];

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (uint64_t i = 0; i < N; i++) {
            got[i] = philox_permute(1, 0, sizes[k], i % 2 ? sizes[k] - 1 - i : i);
            assert_true(got[i] < sizes[k]);
        }
        qsort(got, N, sizeof got[0], compare_u64);
        for (int i = 1; i < N; i++)
            assert_true(got[i] != got[i - 1]);
    }
}

/* Epochs and seeds give unrelated orders: two random permutations of 1000 agree in one place on
 * average. */
static void permute_differs(void **state)
{
    int same_epoch = 0, same_seed = 0, fixed = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t v = philox_permute(3, 0, 1000, i);
        same_epoch += v == philox_permute(3, 1, 1000, i);
        same_seed += v == philox_permute(4, 0, 1000, i);
        fixed += v == i;
    }
    assert_true(same_epoch < 8 && same_seed < 8 && fixed < 8);
}

/* All 24 orders of 4 come up equally often: chi-squared with 23 degrees of freedom, 99.99 % point
 * 57. */
static void permute_small_is_uniform(void **state)
{
    enum { EPOCHS = 4800 };
    int count[256] = {0}, orders = 0;
    double chi = 0;

    (void)state;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        unsigned code = 0;
        for (uint64_t i = 0; i < 4; i++)
            code = code << 2 | (unsigned)philox_permute(11, epoch, 4, i);
        count[code]++;
    }
    for (int c = 0; c < 256; c++)
        if (count[c] > 0) {
            double d = count[c] - EPOCHS / 24.0;
            chi += d * d / (EPOCHS / 24.0);
            orders++;
        }
    assert_int_equal(orders, 24);
    assert_true(chi < 57);
}

/* Where the first of 100 goes over 20,000 epochs: 99 degrees of freedom, 99.99 % point 161. */
static void permute_first_is_uniform(void **state)
{
    enum { EPOCHS = 20000, N = 100 };
    int count[N] = {0};
    double chi = 0;

    (void)state;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        count[philox_permute(12, epoch, N, 0)]++;
    for (int i = 0; i < N; i++)
        chi += pow(count[i] - (double)EPOCHS / N, 2) / ((double)EPOCHS / N);
    assert_true(chi < 161);
}

/* Orders of runs under way must never change. */
static void permute_golden(void **state)
{
    static const uint64_t expect[10] = {2, 7, 8, 3, 4, 5, 6, 0, 9, 1};

    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(philox_permute(1, 2, 10, i), expect[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(packing),
        cmocka_unit_test(uniform_is_open),
        cmocka_unit_test(normal_accuracy),
        cmocka_unit_test(normal_symmetry_and_order),
        cmocka_unit_test(golden_bits),
        cmocka_unit_test(fill_equals_single),
        cmocka_unit_test(fill_of_a_far_draw),
        cmocka_unit_test(moments),
        cmocka_unit_test(permute_is_bijection),
        cmocka_unit_test(permute_huge),
        cmocka_unit_test(permute_differs),
        cmocka_unit_test(permute_small_is_uniform),
        cmocka_unit_test(permute_first_is_uniform),
        cmocka_unit_test(permute_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
