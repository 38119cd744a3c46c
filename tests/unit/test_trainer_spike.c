/* Spikes: the rule by numbers worked out by hand, what is noted, and how long a level that stays is
 * held up. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trainer/state/spike.h"

static void limits(void **state)
{
    double x[SPIKE_STEPS];
    (void)state;
    for (int i = 0; i < SPIKE_STEPS; i++)
        x[i] = 5 + (i % 2 ? 1 : -1);
    assert_true(isinf(spike_limit(x, SPIKE_LEAST - 1, 3)) && spike_limit(x, 0, 3) > 0);
    /* squares add up to n, over n - 1 */
    assert_true(fabs(spike_limit(x, SPIKE_LEAST, 3) - (5 + 3 * sqrt(64. / 63))) < 1e-14);
    assert_true(fabs(spike_limit(x, SPIKE_STEPS, 6) - (5 + 6 * sqrt(128. / 127))) < 1e-14);
    for (int i = 0; i < SPIKE_STEPS; i++)
        x[i] = 2;
    assert_true(fabs(spike_limit(x, SPIKE_STEPS, 6) - (2 + 6 * SPIKE_FLOOR * 2)) < 1e-14);
}

static void what_is_noted(void **state)
{
    struct spike_history h = {0};
    (void)state;
    spike_note(&h, NAN, 1), spike_note(&h, 1, INFINITY), spike_note(&h, -INFINITY, 1);
    assert_int_equal(h.n, 0);
    for (int i = 0; i < SPIKE_STEPS + 3; i++)
        spike_note(&h, i, -i);
    assert_int_equal(h.n, SPIKE_STEPS);
    for (int i = 0; i < SPIKE_STEPS; i++)
        assert_true(h.loss[i] == i + 3 && h.norm[i] == -i - 3);
}

static void a_level_that_stays_is_taken(void **state)
{
    static const struct { double z; int steps; } rows[] = {{6, 4}, {3, 13}, {10, 2}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct spike_history h = {0};
        int held = 0;
        for (int i = 0; i < SPIKE_STEPS; i++)
            spike_note(&h, 1, 1);
        while (1000 > spike_limit(h.loss, h.n, rows[k].z)) {
            assert_true(held++ < SPIKE_STEPS);
            spike_note(&h, 1000, 1);
        }
        assert_int_equal(held, rows[k].steps);
        assert_int_equal(held, (int)ceil(SPIKE_STEPS / (rows[k].z * rows[k].z + 1)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits), cmocka_unit_test(what_is_noted),
                                       cmocka_unit_test(a_level_that_stays_is_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
