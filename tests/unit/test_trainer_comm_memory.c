/* A group for which there is no memory is none, and the world goes on. */
// LINK: -Wl,--wrap=calloc,--wrap=realloc
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "trainer/comm/comm.h"

static int until_out; /* the so-manieth allocation fails; 0: none does */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool is_out(void)
{
    return until_out > 0 && --until_out == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_out() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return is_out() ? NULL : __real_realloc(p, size);
}

static void each_allocation_fails_in_turn(void **state)
{
    char name[] = "test", *words[] = {name, NULL}, **argv = words;
    struct comm *world = NULL;
    struct err err = {0};
    int argc = 1, met = 0;
    (void)state;
    if (comm_mpi_open(&argc, &argv, &world, &err) < 0)
        fail_msg("%s", err.text);
    for (int n = 1, rc = ERR_NOMEM; rc != 0; n++) {
        struct comm *part = NULL;
        until_out = n;
        rc = comm_split(world, "part", 0, 0, &part, &err);
        until_out = 0;
        if (rc != 0)
            assert_int_equal(rc, ERR_NOMEM);
        met += rc != 0;
        comm_close(part);
        assert_int_equal(comm_barrier(world, &err), 0);
    }
    assert_true(met >= 4);
    comm_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_fails_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
