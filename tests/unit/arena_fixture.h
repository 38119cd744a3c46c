/* An arena for each test, or for a group of them:
 * cmocka_unit_test_setup_teardown(test, arena_setup, arena_teardown). */
#ifndef TESTS_UNIT_ARENA_FIXTURE_H
#define TESTS_UNIT_ARENA_FIXTURE_H

#include "base/arena.h"

static struct arena arena;

static inline int arena_setup(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

static inline int arena_teardown(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

#endif
