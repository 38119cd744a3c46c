/* The objective table: EDM's published coefficients, and the identities that make each row an
 * objective. */
#include "tests/lib/trainer_fixture.h"

#include "trainer/data/objective.h"

/* sigma, c_skip, c_out, c_in, c_noise, weight of the x0 loss (= 1 / c_out² in F-space), for
 * sigma_data 0.5. */
static const double edm[][6] = {
    {0.002, 0.99998400, 0.00199998, 1.99998400, -1.55365202, 250004},
    {0.05, 0.99009901, 0.04975186, 1.99007438, -0.74893307, 404},
    {0.5, 0.5, 0.35355339, 1.41421356, -0.17328680, 8},
    {1, 0.2, 0.44721360, 0.89442719, 0, 5},
    {5, 0.00990099, 0.49751860, 0.19900744, 0.40235948, 4.04},
    {80, 3.906097e-5, 0.49999023, 0.01249976, 1.09550666, 4.00015625},
};

static void close_to(double got, double want, double tol)
{
    if (!(fabs(got - want) <= tol * fmax(1, fabs(want))))
        fail_msg("%.12g, want %.12g", got, want);
}

static void test_edm_table(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(edm); i++) {
        struct objective_coef c;
        objective_rows[OBJECTIVE_EDM].coef(log(edm[i][0]), &c);
        close_to(c.sigma, edm[i][0], 1e-12);
        close_to(c.c_skip, edm[i][1], 5e-9);
        close_to(c.c_out, edm[i][2], 5e-9);
        close_to(c.c_in, edm[i][3], 5e-9);
        close_to(c.c_noise, edm[i][4], 5e-9);
        close_to(c.w / (c.c_out * c.c_out), edm[i][5], 1e-8);
    }
    assert_true(objective_rows[OBJECTIVE_EDM].data_scale == 0.5);
}

/* Predicting the target exactly gives back x0; noise and data amplitudes have the ratio that the
 * level states. */
static void test_identities(void **state)
{
    (void)state;
    for (int row = OBJECTIVE_EDM; row <= OBJECTIVE_V; row++)
        for (double level = -6; level <= 5; level += 0.5) {
            struct objective_coef c;
            double x0 = 0.7, eps = -1.3;
            objective_rows[row].coef(level, &c);
            double x_t = c.alpha * x0 + c.sigma * eps, target = c.p * x0 + c.q * eps;
            close_to(c.c_skip * x_t + c.c_out * target, x0, 1e-12);
            close_to(log(c.sigma / c.alpha), level, 1e-12);
            close_to(c.c_noise, level / 4, 1e-15);
            assert_true(c.w > 0 && c.c_in > 0);
        }
}

static void test_rows(void **state)
{
    (void)state;
    struct objective_coef c;
    double sd = OBJECTIVE_SIGMA_DATA;
    /* unit variance of input and target, for unit-variance latents */
    for (double level = -4; level <= 4; level += 1) {
        objective_rows[OBJECTIVE_EDM].coef(level, &c);
        close_to(c.c_in * c.c_in * (sd * sd + c.sigma * c.sigma), 1, 1e-13);
        close_to(c.p * c.p * sd * sd + c.q * c.q, 1, 1e-13);
        objective_rows[OBJECTIVE_V].coef(level, &c);
        close_to(c.alpha * c.alpha + c.sigma * c.sigma, 1, 1e-14);
        close_to(c.p * c.alpha + c.q * c.sigma, 0, 1e-14); /* v is at right angles to x_t */
        objective_rows[OBJECTIVE_RECTIFIED_FLOW].coef(level, &c);
        close_to(c.alpha + c.sigma, 1, 1e-15);
        close_to(c.p, -1, 0);
        close_to(c.q, 1, 0);
    }
}

static void test_draws(void **state)
{
    (void)state;
    enum { N = 40000 };
    const struct run_level law = {.mean = -0.4, .std = 1.2, .shift = 1};
    double sum = 0, sumsq = 0;
    int dropped = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = objective_level_draw(5, i, &law, 7);
        sum += x;
        sumsq += x * x;
        dropped += objective_text_dropped(5, i, 0.2);
        assert_false(objective_text_dropped(5, i, 0));
        assert_true(objective_text_dropped(5, i, 1));
    }
    double mean = sum / N, sd = sqrt(sumsq / N - mean * mean);
    close_to(mean, -0.4, 5 * 1.2 / sqrt(N));
    close_to(sd, 1.2, 5 * 1.2 / sqrt(2.0 * N));
    close_to((double)dropped / N, 0.2, 5 * 0.4 / sqrt(N));
    assert_true(objective_level_draw(5, 3, &law, 7) == objective_level_draw(5, 3, &law, 9));
    assert_true(objective_level_draw(5, 3, &law, 7) != objective_level_draw(6, 3, &law, 7));
}

/* Rectified flow's time t = sigma of each law, by its published formula. */
static double time_of(double level)
{
    struct objective_coef c;
    objective_rows[OBJECTIVE_RECTIFIED_FLOW].coef(level, &c);
    return c.sigma;
}

static void test_laws(void **state)
{
    (void)state;
    const struct run_level logistic = {.dist = LEVEL_LOGISTIC, .std = 1, .shift = 1},
                           cosine = {.dist = LEVEL_COSINE, .shift = 1},
                           uniform = {.dist = LEVEL_UNIFORM, .min = -6, .max = 4, .shift = 1},
                           mode = {.dist = LEVEL_MODE, .mode_scale = 1.29, .shift = 1},
                           normal = {.mean = 0.5, .std = 2, .shift = 1};
    const struct run_level *all[] = {&logistic, &cosine, &uniform, &mode, &normal};
    for (double u = 0.01; u < 0.995; u += 0.01) {
        double v = 1 - u, c = cos(M_PI / 2 * v), published = 1 - v - 1.29 * (c * c - 1 + v);
        close_to(time_of(objective_level(&logistic, u, 1)), u, 1e-12);
        close_to(objective_level(&uniform, u, 1), -6 + 10 * u, 1e-13);
        close_to(time_of(objective_level(&mode, u, 1)), published, 1e-12);
        close_to(time_of(objective_level(&cosine, u, 1)), 1 - 1 / (tan(M_PI / 2 * u) + 1), 1e-12);
        close_to(0.5 * erfc(-(objective_level(&normal, u, 1) - 0.5) / 2 / sqrt(2)), u, 1e-12);
        for (int i = 0; i < LEN(all); i++)
            assert_true(objective_level(all[i], u, 1) < objective_level(all[i], u + 0.001, 1));
    }
    for (int i = 0; i < LEN(all); i++) /* the ends of what philox_uniform can give */
        assert_true(isfinite(objective_level(all[i], 0x1p-53, 1)) &&
                    isfinite(objective_level(all[i], 1 - 0x1p-53, 1)));
}

/* t' = a t / (1 + (a - 1) t), a = shift · (n / N)^power. */
static void test_shift(void **state)
{
    (void)state;
    struct run_level plain = {.std = 1, .shift = 1},
                     shifted = {.std = 1, .shift = 1.5, .shift_tokens = 256, .shift_power = 0.5};
    for (double u = 0.05; u < 1; u += 0.1)
        for (int64_t n = 64; n <= 4096; n *= 4) {
            double t = time_of(objective_level(&plain, u, n)), a = 1.5 * sqrt((double)n / 256);
            close_to(time_of(objective_level(&shifted, u, n)), a * t / (1 + (a - 1) * t), 1e-12);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edm_table), cmocka_unit_test(test_identities),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_draws),
        cmocka_unit_test(test_laws),      cmocka_unit_test(test_shift)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
