/* price_work: computes how much work stands behind each term of a step's price. It is pure. The
 * seconds come from price.h, the amounts from profiles/work.h; an amount divided by its seconds is
 * the rate that the term reaches.
 */
#ifndef AUTOTUNE_PRICE_WORK_H
#define AUTOTUNE_PRICE_WORK_H

#include "autotune/price.h"

extern const char *const price_work_units[PRICE_TERMS];
/* Sums what a rank does in a step, by term, in price_work_units: FLOPs, bytes read and written,
 * bytes that leave the rank, numbers of inputs, operations. It is a rank of the busiest stage, but
 * for what is done once a step, of that where this takes longest. A message that is repeated
 * counts as many bytes as it takes seconds: its own times CONSTANT_AGAIN, so that the rate stays
 * that of the links. For the bubble it writes the number of other stages, for overhead 1 step.
 * Contention and spread are shares of other terms: their work is the seconds of all terms before
 * them. */
void price_work(const struct price *p, const struct layout *l, const struct price_step *step,
                double out[PRICE_TERMS]);

#endif
