/* day: of a list a test may take a part, another one each day. */
#ifndef TESTS_DAY_H
#define TESTS_DAY_H

#include <stdbool.h>
#include <stdint.h>

/* Tells whether item i of a list is tried today: one of n is. DRAW=K takes those of day K, DRAW=all
 * all of them. The first call prints what K is. */
bool day_has(int64_t i, int64_t n);

/* Returns from which item of a list on a day tries each n-th; with DRAW=all, 0. */
int64_t day_from(int64_t n);

#endif
