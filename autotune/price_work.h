/* price_work: tells what the seconds of a step's terms are spent on, and which constant makes them
 * long or short. Its functions are pure. Seconds come from price.h, amounts from the account in
 * profiles/work.h; amount divided by seconds is the rate that the term reaches.
 */
#ifndef AUTOTUNE_PRICE_WORK_H
#define AUTOTUNE_PRICE_WORK_H

#include "autotune/price.h"

extern const char *const price_work_units[PRICE_TERMS];
/* Sums what a rank of a stage does in a step, by term, in price_work_units: FLOPs, bytes read and
 * written, bytes that leave the rank, operations. For the bubble it writes the number of other
 * stages, for contention and spread that of all ranks. */
void price_work(const struct work *w, const struct layout *l, int64_t stage,
                double out[PRICE_TERMS]);
/* Returns the constant on which the term's rate depends most, -1 where there is none. */
int price_work_constant(const struct price_machine *m, const struct work *w,
                        const struct layout *l, enum price_term term);

#endif
