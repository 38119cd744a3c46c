/* price_work: computes how much work stands behind each term of a step's price. It is pure. The
 * seconds come from price.h, the amounts from profiles/work.h; an amount divided by its seconds is
 * the rate that the term reaches.
 */
#ifndef AUTOTUNE_PRICE_WORK_H
#define AUTOTUNE_PRICE_WORK_H

#include "autotune/price.h"

extern const char *const price_work_units[PRICE_TERMS];
/* Sums what a rank of a stage does in a step, by term, in price_work_units: FLOPs, bytes read and
 * written, bytes that leave the rank, numbers of inputs, operations. For the bubble it writes the
 * number of other stages, for contention and spread that of all ranks, for overhead 1 step. */
void price_work(const struct work *w, const struct layout *l, int64_t stage,
                double out[PRICE_TERMS]);

#endif
