/* How long a job still runs, whatever the host's clock says. */
// LINK: -Wl,--wrap=clock_wall_s
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "launcher/run/limit.h"

static double wall_s;

double __wrap_clock_wall_s(void);
double __wrap_clock_wall_s(void) { return wall_s; }

/* A job of 120 s that began at 1000. */
static void left(void **state)
{
    static const struct {
        double wall_s, lasted_s, left_s;
    } table[] = {
        /* a script may have worked for 50 s before it came to us */
        {1000, 0, 120}, {1050, 50, 70}, {1050, 0, 70},
        {910, 0, 120}, {960, 50, 70},                  /* a clock that is 90 s behind */
        /* and one that is ahead: a notice too early loses little */
        {1030, 0, 90},
    };
    struct sched_ending e = {.limit_at = 1120, .limit_s = 120};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        wall_s = table[i].wall_s;
        assert_true(limit_left_s(&e, table[i].lasted_s) == table[i].left_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(left)};
    return cmocka_run_group_tests_name("launcher limit", tests, NULL, NULL);
}
