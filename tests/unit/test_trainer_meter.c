/* The meter by itself: spans, and whose time is whose. */
// LINK: -Wl,--wrap=clock_cpu_s
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "trainer/watch/meter.h"

static void the_newest_spans_win(void **state)
{
    struct meter m;
    struct err err = {0};
    (void)state;
    assert_int_equal(meter_open(&m, 3, &err), 0);
    for (int i = 0; i < 5; i++)
        meter_span(&m, meter_begin(&m), "x", i);
    assert_int_equal(m.n, 5);
    for (int i = 2; i < 5; i++)
        assert_int_equal(m.spans[i % 3].arg, i);
    meter_close(&m);
}

/* An inner call's time is its own: the outer one's is what is left. */
static void times_are_exclusive(void **state)
{
    struct meter m;
    struct err err = {0};
    double step_s[METER_KINDS];
    (void)state;
    assert_int_equal(meter_open(&m, 0, &err), 0);
    struct meter_start outer = meter_begin(&m), span = meter_begin(&m), inner = meter_begin(&m);
    clock_sleep_s(0.01);
    meter_end(&m, inner, METER_OP_gemm, -1);
    meter_span(&m, span, "layer", 0);
    double took = clock_mono_s() - outer.start_s;
    meter_end(&m, outer, METER_STAGE, -1);
    assert_true(m.seconds[METER_OP_gemm] >= 0.01 && m.seconds[METER_STAGE] >= 0);
    assert_true(m.seconds[METER_STAGE] <= took - 0.01 + (clock_mono_s() - outer.start_s - took));
    double sum = m.seconds[METER_OP_gemm] + m.seconds[METER_STAGE];
    assert_true(fabs(meter_step(&m, sum, step_s) - 1) < 1e-9 &&
                step_s[METER_OP_gemm] == m.seconds[METER_OP_gemm]);
    assert_true(meter_step(&m, 1, step_s) == 0);
    meter_close(&m);
}

/* While it is on, only readings of the CPU clock take CPU time, 1 s each. */
static struct { bool on; double s; } cpu;
double __real_clock_cpu_s(void);
double __wrap_clock_cpu_s(void);
double __wrap_clock_cpu_s(void) { return cpu.on ? ++cpu.s : __real_clock_cpu_s(); }

/* The CPU time of a call is without that of reading the clock for it and for the calls within. */
static void reading_the_clock_counts_for_no_call(void **state)
{
    struct meter m;
    struct err err = {0};
    (void)state;
    cpu.on = true;
    assert_int_equal(meter_open(&m, 0, &err), 0);
    struct meter_start outer = meter_begin(&m);
    cpu.s += 100;
    struct meter_start span = meter_begin(&m);
    for (int i = 0; i < 2; i++) {
        struct meter_start inner = meter_begin(&m);
        cpu.s += 10;
        meter_end(&m, inner, METER_OP_copy, -1);
    }
    meter_span(&m, span, "layer", 0);
    meter_end(&m, outer, METER_STAGE, -1);
    assert_true(m.cpu_s[METER_OP_copy] == 20 && m.cpu_s[METER_STAGE] == 100);
    cpu.on = false;
    meter_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_spans_win),
        cmocka_unit_test(times_are_exclusive),
        cmocka_unit_test(reading_the_clock_counts_for_no_call),
    };
    return cmocka_run_group_tests_name("trainer meter", tests, NULL, NULL);
}
