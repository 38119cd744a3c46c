/* arena_fixture: gives each test an arena: cmocka_unit_test_setup_teardown(test, arena_setup,
 * arena_teardown). The two functions can also be the setup of a group of tests. */
#ifndef TESTS_ARENA_FIXTURE_H
#define TESTS_ARENA_FIXTURE_H

#include "base/arena.h"

extern struct arena arena;

int arena_setup(void **state);
int arena_teardown(void **state);

#endif
