#include "tests/lib/day.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool all_drawn(void)
{
    const char *draw = getenv("DRAW");
    return draw && strcmp(draw, "all") == 0;
}

static int64_t day_drawn(void)
{
    static int64_t day = -1;
    const char *draw = getenv("DRAW");
    if (day < 0) {
        day = draw ? atoi(draw) : time(NULL) / (24 * 3600);
        printf("# a part of the lists is drawn by DRAW=%lld\n", (long long)day);
    }
    return day;
}

bool day_has(int64_t i, int64_t n)
{
    return all_drawn() || (i + day_drawn()) % n == 0;
}

int64_t day_from(int64_t n)
{
    return all_drawn() ? 0 : day_drawn() % n;
}
