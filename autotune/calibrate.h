/* calibrate: fits constants on tables of measurements (`reel calibrate`). It reads and writes no
 * files.
 *
 * Every constant that a used row depends on is fitted at once, in its scope: a stack's constant on
 * the rows of all devices, and a device's constant on those of all stacks. Errors are relative, and
 * outliers weigh less (Huber). Where rows say little about a constant, its prior decides. Time is
 * learnt from measured steps, memory from published peaks and from which rows fitted and which ran
 * out. The formulas are at the top of calibrate.c.
 *
 *     calibrate_tables(tables, n, "my tables", NULL, &constants, &report, err);
 *
 * `constants` holds the values in force before the call. The fitted values and their intervals
 * replace them; constants about which the rows say nothing stay as they were.
 */
#ifndef AUTOTUNE_CALIBRATE_H
#define AUTOTUNE_CALIBRATE_H

#include "profiles/constants.h"
#include "autotune/table.h"

struct calibrate_report {
    int64_t timed, fitted_memory; /* rows from which time, and memory, were learnt */
    int64_t constants;            /* how many were fitted */
    double time_rms, memory_rms;  /* of ln(measured / predicted), after the fit; NAN: no rows */
};
/* Says whether a fit can learn from a row: it is used, and says how long it took, what it held, or
 * whether it fitted. */
bool calibrate_learns(const struct table_case *c);
/* Fits the constants. `told` is called after each row of each round; NULL: no progress is reported.
 * Returns ERR_INPUT if it can learn from no row. */
int calibrate_tables(const struct table *tables, size_t n, const char *source,
                     const struct told_rows *told, struct constants *c,
                     struct calibrate_report *out, struct err *err);

#endif
