#include "tests/lib/arena_fixture.h"

struct arena arena;

int arena_setup(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

int arena_teardown(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}
