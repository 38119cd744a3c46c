/* For how long a trainer has given no sign: what somebody saw who may be suspended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pulse.h"

/* One row a look: its time, the log's size, and the seconds of silence that are known then. */
static void looks(void **state)
{
    static const struct {
        double mono;
        int64_t bytes;
        double quiet_s;
    } table[] = {
        {5000, 0, 0}, {5000.25, 0, 0.25}, {5000.5, 0, 0.5}, /* there is no log yet */
        {5000.75, 900, 0}, {5001, 900, 0.25}, {5001.25, 900, 0.5},
        {5601.25, 900, 1.5}, {5601.5, 900, 1.75},           /* suspended for ten minutes */
        {5604.25, 900, 2.75}, {5607, 900, 3.75},            /* twice for less than three seconds */
        {5607.25, 950, 0}, {5607.5, 950, 0.25},
        {6000, 990, 0},                                     /* and it grew meanwhile */
        {6000.25, 10, 0}, {6000.5, 10, 0.25},               /* another log of that name */
    };
    struct pulse p = {0};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (pulse_look(&p, table[i].mono, table[i].bytes) != table[i].quiet_s)
            fail_msg("look %zu: %g s of silence, not %g", i, p.quiet_s, table[i].quiet_s);
    pulse_forgive(&p);
    assert_true(pulse_look(&p, 6000.75, 10) == 0.25);
}

/* A trainer that hangs is found even if every look takes long, as on a slow file system. */
static void slow_looks(void **state)
{
    struct pulse p = {0};
    int n = 1;
    (void)state;
    for (double now = 100; pulse_look(&p, now, 7) < 60; now += 10)
        assert_true(n++ < 100);
    assert_int_equal(n, 61);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(looks), cmocka_unit_test(slow_looks)};
    return cmocka_run_group_tests_name("pulse", tests, NULL, NULL);
}
