/* The samplers on data whose denoiser is known: exact end points, orders of convergence,
 * evaluations counted, levels as published. */
#include "tests/lib/trainer_fixture.h"

#include "trainer/data/sampler.h"

/* Gaussian data of mean m and deviation s0, element by element: D = (s0² x + s² m) / (s0² + s²),
 * and on the ODE's path (x - m) / sqrt(s0² + s²) stays what it is. A mixture of two points besides,
 * which is far from linear. */
enum { N = 3 };
static const double mean[N] = {0.7, -0.2, 0}, deviation[N] = {0.5, 0.3, 0};
struct counted { int64_t calls; int fail_at; };

static int denoise(void *ctx, const double *x, double s, double *clean, struct err *err)
{
    struct counted *c = ctx;
    for (int j = 0; j < 2; j++) {
        double v = deviation[j] * deviation[j];
        clean[j] = (v * x[j] + s * s * mean[j]) / (v + s * s);
    }
    clean[2] = tanh(x[2] / (s * s)); /* points at -1 and 1 */
    c->calls++;
    return c->calls == c->fail_at ? err_set(err, ERR_IO, "as asked") : 0;
}

static struct sampler sampler_of(enum sampler_kind kind, int64_t steps, struct counted *c)
{
    return (struct sampler){.kind = kind, .steps = steps, .level_max = 20, .level_min = 0.02,
                            .rho = 7, .denoise = denoise, .ctx = c};
}

static void levels(void **state)
{
    (void)state;
    struct counted c = {0};
    struct sampler p = sampler_of(SAMPLER_EULER, 18, &c);
    p.level_max = 80, p.level_min = 0.002;
    assert_true(fabs(sampler_level(&p, 0) - 80) < 1e-9 &&
                fabs(sampler_level(&p, 17) - 0.002) < 1e-12 && sampler_level(&p, 18) == 0);
    /* published for 18 steps */
    assert_true(fabs(sampler_level(&p, 1) - 57.586) < 5e-4 &&
                fabs(sampler_level(&p, 9) - 1.9233) < 5e-5);
    for (int64_t i = 0; i < 18; i++)
        assert_true(sampler_level(&p, i + 1) < sampler_level(&p, i));
}

/* Error at level_min, relative to the exact path, of the two Gaussian elements. */
static double error_of(enum sampler_kind kind, int64_t steps)
{
    struct counted c = {0};
    struct sampler p = sampler_of(kind, steps, &c);
    double x[N] = {11, -23, 5}, work[2 * N], worst = 0;
    const double begun[N] = {11, -23, 5};
    struct err err = {0};
    assert_int_equal(sampler_run_part(&p, 0, steps - 1, x, N, work, &err), 0);
    for (int j = 0; j < 2; j++) {
        double v = deviation[j] * deviation[j], s = sampler_level(&p, steps - 1);
        double exact = mean[j] + (begun[j] - mean[j]) * sqrt((v + s * s) / (v + 400));
        worst = fmax(worst, fabs(x[j] - exact));
    }
    return worst;
}

static void orders(void **state)
{
    static const struct {
        enum sampler_kind kind;
        double order;
    } kinds[] = {{SAMPLER_EULER, 1}, {SAMPLER_HEUN, 2}, {SAMPLER_RES, 2}};
    (void)state;
    for (int k = 0; k < LEN(kinds); k++)
        for (int64_t steps = 129; steps <= 1025; steps = 2 * steps - 1) {
            double order = log2(error_of(kinds[k].kind, steps) /
                                error_of(kinds[k].kind, 2 * steps - 1));
            print_message("# %s, %lld steps: order %.3f\n", sampler_names[kinds[k].kind],
                          (long long)steps, order);
            if (!(fabs(order - kinds[k].order) < 0.1))
                fail_msg("%s: order %.3f between %lld steps and twice as many, %g is right",
                         sampler_names[kinds[k].kind], order, (long long)steps, kinds[k].order);
        }
    print_message("# 65 steps: euler %.3g, heun %.3g, res %.3g\n", error_of(SAMPLER_EULER, 65),
                  error_of(SAMPLER_HEUN, 65), error_of(SAMPLER_RES, 65));
    /* they are not the same */
    assert_true(error_of(SAMPLER_HEUN, 65) < 0.1 * error_of(SAMPLER_EULER, 65));
}

/* A clean estimate a + b l, l = -ln s, whatever x: dx/dl = -x + a + b l has x = K e^-l + a + b (l -
 * 1), and the two-step method is exact for it, on levels as far from even as these (steps of l from
 * 0.9 to 2.0). Its first step takes the estimate for constant. */
static const double line[2] = {0.3, -1.7};
static int linear(void *ctx, const double *x, double s, double *clean, struct err *err)
{
    (void)ctx, (void)x, (void)err;
    *clean = line[0] - line[1] * log(s);
    return 0;
}

static void exact_on_uneven_steps(void **state)
{
    struct sampler p = {.kind = SAMPLER_RES, .steps = 6, .level_max = 20, .level_min = 0.02,
                        .rho = 7, .denoise = linear};
    double x = 4, work[2], l[6];
    struct err err = {0};
    (void)state;
    for (int i = 0; i < 6; i++)
        l[i] = -log(sampler_level(&p, i));
    double decay = exp(l[0] - l[1]), one = decay * 4 + (1 - decay) * (line[0] + line[1] * l[0]);
    assert_true((l[5] - l[4]) / (l[1] - l[0]) > 2);
    for (int i = 1; i < 6; i++) {
        double exact = (one - line[0] - line[1] * (l[1] - 1)) * exp(l[1] - l[i]) + line[0] +
                       line[1] * (l[i] - 1);
        x = 4;
        assert_int_equal(sampler_run_part(&p, 0, i, &x, 1, work, &err), 0);
        assert_true(fabs(x - exact) < 1e-13);
    }
}

/* To level 0: the points of the mixture, and the distribution's quantile of the Gaussians;
 * evaluations as the method says. */
static void end_points(void **state)
{
    static const int64_t calls[] = {40, 79, 40};
    (void)state;
    for (int k = SAMPLER_EULER; k <= SAMPLER_RES; k++) {
        struct counted c = {0};
        struct sampler p = sampler_of(k, 40, &c);
        double x[N] = {11, -23, k == SAMPLER_HEUN ? -6 : 6}, work[2 * N];
        struct err err = {0};
        assert_int_equal(sampler_run(&p, x, N, work, &err), 0);
        assert_int_equal(c.calls, calls[k]);
        assert_true(fabs(x[2] - (k == SAMPLER_HEUN ? -1 : 1)) < 1e-9);
        assert_true(fabs(x[0] - (0.7 + 10.3 * 0.5 / sqrt(0.25 + 400))) <
                    (k == SAMPLER_EULER ? 0.1 : 0.02));
    }
}

static void failures(void **state)
{
    (void)state;
    for (int k = SAMPLER_EULER; k <= SAMPLER_RES; k++)
        for (int at = 1; at <= 4; at++) {
            struct counted c = {.fail_at = at};
            struct sampler p = sampler_of(k, 10, &c);
            double x[N] = {1, 2, 3}, work[2 * N];
            struct err err = {0};
            assert_int_equal(sampler_run(&p, x, N, work, &err), ERR_IO);
            assert_int_equal(c.calls, at);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels), cmocka_unit_test(orders), cmocka_unit_test(end_points),
        cmocka_unit_test(exact_on_uneven_steps), cmocka_unit_test(failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
