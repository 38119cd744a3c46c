/* calibrate: fits constants on tables of measurements (`reel calibrate`). Pure.
 *
 * Every constant that a used row depends on is fitted at once, in its own scope: one of a stack on
 * the rows of all devices, one of a device on those of all stacks. Error is robust and relative,
 * and priors hold what the rows do not tell. Time is learnt from measured steps, memory from
 * published peaks and from which rows fitted and which ran out. The essay is at the top of
 * calibrate.c.
 *
 *     calibrate_tables(tables, n, "my tables", NULL, &constants, &report, err);
 *
 * constants holds what counts before, and takes the fitted values with their intervals.
 */
#ifndef AUTOTUNE_CALIBRATE_H
#define AUTOTUNE_CALIBRATE_H

#include "profiles/constants.h"
#include "autotune/table.h"

struct calibrate_report {
    int64_t timed, fitted_memory; /* rows that were learnt from */
    int64_t constants;            /* that were fitted */
    double time_rms, memory_rms;  /* of the logarithms, after the fit; NAN: nothing was learnt */
};
/* Fits them. `told` hears of each row in each round; NULL: nobody does. ERR_INPUT when all rows are
 * skipped. */
int calibrate_tables(const struct table *tables, size_t n, const char *source,
                     const struct told_rows *told, struct constants *c,
                     struct calibrate_report *out, struct err *err);

#endif
