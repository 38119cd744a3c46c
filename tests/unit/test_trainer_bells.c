/* A rank that sleeps is woken by its bell, and one that was rung before does not fall asleep. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "trainer/comm/comm_mpi_bells.h"

enum { RANKS = 3, SLEEPER = 1 };
static const double longer_than_a_test_s = 1e5;

static struct comm_bells *bells_of(int size)
{
    int fd = comm_bells_make(size);
    assert_true(fd >= 0);
    struct comm_bells *b = comm_bells_open(getpid(), fd, size);
    close(fd);
    assert_non_null(b);
    return b;
}

static void *sleep_once(void *bells)
{
    comm_bells_sleep(bells, SLEEPER, comm_bells_heard(bells, SLEEPER), longer_than_a_test_s);
    return NULL;
}

static void a_bell_wakes_its_rank_alone(void **state)
{
    struct comm_bells *b = bells_of(RANKS);
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, sleep_once, b), 0);
    while (comm_bells_asleep(b) == 0)
        sched_yield();
    comm_bells_ring(b, SLEEPER - 1);
    comm_bells_ring(b, SLEEPER + 1);
    assert_int_equal(comm_bells_heard(b, SLEEPER), 0);
    assert_int_equal(comm_bells_asleep(b), 1);
    comm_bells_ring(b, SLEEPER);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(comm_bells_asleep(b), 0);
    comm_bells_close(b);
}

static void a_bell_before_the_sleep_is_heard(void **state)
{
    struct comm_bells *b = bells_of(RANKS);
    (void)state;
    uint32_t heard = comm_bells_heard(b, SLEEPER);
    comm_bells_ring(b, SLEEPER);
    comm_bells_sleep(b, SLEEPER, heard, longer_than_a_test_s);
    assert_int_equal(comm_bells_heard(b, SLEEPER), heard + 1);
    comm_bells_close(b);
}

/* Another process's page is the same page. */
static void ranks_share_their_bells(void **state)
{
    int fd = comm_bells_make(RANKS);
    (void)state;
    struct comm_bells *a = comm_bells_open(getpid(), fd, RANKS),
                      *b = comm_bells_open(getpid(), fd, RANKS);
    close(fd);
    comm_bells_ring(a, SLEEPER);
    assert_int_equal(comm_bells_heard(b, SLEEPER), 1);
    comm_bells_close(a);
    comm_bells_close(b);
}

/* Who leaves is known to the others, and in which order. */
static void ranks_that_leave_are_known(void **state)
{
    struct comm_bells *b = bells_of(RANKS);
    (void)state;
    assert_false(comm_bells_left(b, SLEEPER));
    assert_int_equal(comm_bells_leave(b, SLEEPER), 0);
    assert_true(comm_bells_left(b, SLEEPER));
    assert_false(comm_bells_left(b, 0));
    assert_int_equal(comm_bells_leave(b, 0), 1);
    comm_bells_close(b);
    assert_int_equal(comm_bells_leave(NULL, 0), 0);
    assert_false(comm_bells_left(NULL, 0));
}

/* Without bells a sleep ends by itself. */
static void where_there_are_none(void **state)
{
    (void)state;
    assert_null(comm_bells_open(getpid(), -1, RANKS));
    comm_bells_ring(NULL, SLEEPER);
    comm_bells_sleep(NULL, SLEEPER, comm_bells_heard(NULL, SLEEPER), 0);
    comm_bells_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bell_wakes_its_rank_alone),
        cmocka_unit_test(a_bell_before_the_sleep_is_heard),
        cmocka_unit_test(ranks_share_their_bells),
        cmocka_unit_test(ranks_that_leave_are_known), cmocka_unit_test(where_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
