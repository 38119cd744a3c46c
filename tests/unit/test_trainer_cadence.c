/* How often to save: the interval against what a run loses with it, the decision, and that it does
 * not waver. */
// LINK: -Wl,--wrap=comm_max
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trainer/run/cadence.h"

int __wrap_comm_max(struct comm *c, double *v, int n, struct err *err);

static double of_others[2]; /* the longest save and step of the other ranks, s */

int __wrap_comm_max(struct comm *c, double *v, int n, struct err *err)
{
    (void)c;
    (void)err;
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++)
        v[i] = fmax(v[i], of_others[i]);
    return 0;
}

/* Wall time per time of training when failures come at random with mean M, a save of C after each
 * interval, and nothing for the restart: Daly 2006, equation 20. */
static double cost(double interval_s, double save_s, double mtbf_s)
{
    return mtbf_s * expm1((interval_s + save_s) / mtbf_s) / interval_s;
}

static void interval(void **state)
{
    static const struct {
        double save_s, mtbf_s;
    } table[] = {{1, 3600}, {60, 86400}, {300, 86400}, {600, 3600},
                 {0.01, 5}, {40, 10800}, {1, 22809600}};
    (void)state;
    /* worked out by hand: 3219.94 * 1.00624988 - 60 */
    assert_float_equal(cadence_interval_s(60, 86400), 3180.06, 0.02);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double save = table[i].save_s, mtbf = table[i].mtbf_s,
               chosen = cost(cadence_interval_s(save, mtbf), save, mtbf), best = INFINITY;
        for (double t = save; t < 4 * mtbf; t *= 1.001)
            best = fmin(best, cost(t, save, mtbf));
        if (!(chosen - 1 <= (best - 1) * 1.001))
            fail_msg("a save of %g s every %g s: chosen %.6f, best %.6f", save, mtbf, chosen, best);
    }
    /* hardly anything but saving: no more than half */
    assert_true(cadence_interval_s(100, 30) == 100 && cadence_interval_s(10, 0) == 10);
}

static void steps_take(struct cadence *c, int n, double step_s)
{
    for (int i = 0; i < n; i++)
        cadence_step(c, step_s);
}

static void decision(void **state)
{
    struct cadence c;
    struct comm *world;
    bool changed;
    (void)state;
    assert_int_equal(comm_self_open(&world, NULL), 0);
    cadence_init(&c, 86400, 0, 1);
    assert_true(c.mtbf_measured && !c.save_measured && c.every_steps == 0);
    cadence_step(&c, 50); /* the first step is slow, and does not count */
    steps_take(&c, 2, 2);
    assert_false(cadence_is_due(&c));
    cadence_step(&c, 2);
    assert_true(cadence_is_due(&c));
    assert_int_equal(cadence_decide(&c, world, &changed, NULL), 0);
    assert_true(changed && c.every_steps == llround(cadence_interval_s(1, 86400) / 2) &&
                !cadence_is_due(&c));
    cadence_saved(&c, 60);
    assert_true(cadence_is_due(&c) && c.save_measured);
    assert_int_equal(cadence_decide(&c, world, &changed, NULL), 0);
    assert_true(changed && c.every_steps == 1590);
    cadence_saved(&c, 61);
    assert_int_equal(cadence_decide(&c, world, &changed, NULL), 0);
    assert_true(!changed && c.every_steps == 1590);
    comm_close(world);
}

/* Ranks that measured different times decide for the same steps, or one would wait in a save that
 * the other does not begin: the longest save and the longest step count. */
static void decision_is_one(void **state)
{
    static const double save_s[] = {1, 60}, step_s[] = {2, 0.5};
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct cadence c;
        bool changed;
        cadence_init(&c, 86400, save_s[rank], 1);
        steps_take(&c, 4, step_s[rank]);
        of_others[0] = save_s[!rank];
        of_others[1] = step_s[!rank];
        assert_int_equal(cadence_decide(&c, NULL, &changed, NULL), 0);
        assert_true(changed && c.every_steps == 1590);
    }
    of_others[0] = of_others[1] = 0;
}

/* A prior for as many nodes as there are; a measured rate is one of the run, and not divided. */
static void prior(void **state)
{
    struct cadence one, many, measured;
    (void)state;
    cadence_init(&one, 0, 0, 1);
    cadence_init(&many, 0, 5, 128);
    cadence_init(&measured, 7200, 5, 128);
    assert_true(!one.mtbf_measured && one.mtbf_s == 264 * 86400.0 &&
                many.mtbf_s == one.mtbf_s / 128 && many.save_s == 5);
    assert_true(measured.mtbf_s == 7200 && measured.mtbf_measured && measured.save_measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(interval), cmocka_unit_test(decision),
                                       cmocka_unit_test(decision_is_one), cmocka_unit_test(prior)};
    return cmocka_run_group_tests_name("trainer cadence", tests, NULL, NULL);
}
