/* Which GPU each rank takes, of seats that are written down here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/run/gpu.h"

enum { RANKS = 6 };

/* Seats on two hosts, ranks 0, 2, 3 on the first, 1, 4, 5 on the second. */
static void seats_make(struct gpu_seat seats[RANKS], int64_t gpus)
{
    static const uint64_t hosts[RANKS] = {7, 9, 7, 7, 9, 9};
    memset(seats, 0, RANKS * sizeof *seats);
    for (int r = 0; r < RANKS; r++)
        seats[r] = (struct gpu_seat){.host = hosts[r], .gpus = gpus, .gpu = {.name = "H200"}};
}

/* The ranks of a host take its GPUs in order, wherever they stand in the world. */
static void test_order(void **state)
{
    (void)state;
    struct gpu_seat seats[RANKS];
    const int of_eight[RANKS] = {0, 0, 1, 2, 1, 2}, of_two[RANKS] = {0, 0, 1, 0, 1, 0};
    seats_make(seats, 8);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(gpu_index(seats, r), of_eight[r]);
    seats_make(seats, 2);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(gpu_index(seats, r), of_two[r]);
    seats_make(seats, 1); /* each process is shown its own, or all share one */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(gpu_index(seats, r), 0);
}

static void test_shared(void **state)
{
    (void)state;
    struct gpu_seat seats[RANKS];
    struct err err = {0};
    seats_make(seats, 8);
    for (int r = 0; r < RANKS; r++)
        seats[r].gpu.uuid[15] = (uint8_t)r;
    assert_int_equal(gpu_check(seats, RANKS, "rest", &err), 0);
    seats[4].gpu.uuid[15] = 1;
    assert_int_equal(gpu_check(seats, RANKS, "rest", &err), ERR_ENV);
    assert_non_null(strstr(err.text, "ranks 1 and 4 have the same GPU (H200), of 8 that they see: start as many ranks "
                           "on a node as it has GPUs, or rest"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
