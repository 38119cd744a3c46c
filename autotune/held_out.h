/* held_out: says how far off a fit of constants is on rows that it has not seen. `reel calibrate`
 * writes that beside the constants. It reads and writes no files.
 *
 * Rows are held out by the size of their model: models with as many layers of the same width are
 * one size. The sizes are dealt to parts, a part each or, where there are more than HELD_OUT_PARTS,
 * so that the parts have about as many rows. Constants are fitted on the rows of all other parts,
 * from their priors on, and predict the rows of a part. So each row is judged once, by a fit that
 * saw no model of its size. The figures are those of score.h, of all rows together.
 *
 *     held_out_judge(tables, n, "my tables", NULL, &start, &constants.held_out, err);
 *
 * For p parts this takes about p - 1 times as long as the fit on all rows.
 */
#ifndef AUTOTUNE_HELD_OUT_H
#define AUTOTUNE_HELD_OUT_H

#include "autotune/calibrate.h"

enum { HELD_OUT_PARTS = 4 };

/* Fills *out, or only its `because` where the tables do not allow a judgement: all rows that count
 * are of one size, or those of one part are all that can be learnt from. `start` has the constants
 * with which calibrate_tables() began on all rows, and `of` names the tables. `told` is called for
 * each row of each fit; NULL: no progress is reported. */
int held_out_judge(const struct table *tables, size_t n, const char *of,
                   const struct told_rows *told, const struct constants *start,
                   struct held_out *out, struct err *err);

#endif
