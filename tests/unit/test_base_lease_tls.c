/* Leases in a program whose libraries keep much per thread: that room is taken from a thread's
 * stack. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/lease.h"
#include "tests/lib/scratch.h"

static _Thread_local volatile char of_a_library[256 << 10];

static void it_is_taken(void **state)
{
    struct lease *l = NULL;
    struct err err = {0};
    (void)state;
    of_a_library[0] = 1;
    if (lease_take(in_scratch("lock"), 0, &l, &err) < 0)
        print_error("%s\n", err.text);
    assert_non_null(l);
    lease_drop(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_taken, scratch_setup, scratch_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
