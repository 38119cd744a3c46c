/* work_reel: accounts for the parts of reel's own trainer, as trainer/dit computes them: exactly
 * what it sends and multiplies, and the bytes that its elementwise operations read and write. The
 * formulas are at the top of work_reel.c. They hold for video models, the only ones that it trains.
 */
#ifndef PROFILES_WORK_REEL_H
#define PROFILES_WORK_REEL_H

#include "profiles/work.h"

/* Fills the empty parts. */
void work_reel_parts(const struct work_spec *spec, const struct layout *l, struct work *out);
/* Writes how often a stage gathers the weights of each unit with zero 3, as a share of once before
 * each forward and each backward: two units are held at a time, and a unit that is still held is
 * not gathered again (trainer/state/units.c). It walks the stage's schedule; with many
 * micro-batches only the first ones, whose pattern the others repeat. */
void work_reel_gather_share(const struct work *w, const struct layout *l, int64_t stage,
                            double share[WORK_UNITS]);
/* Returns how many micro-batches it walks. With equal numbers of stages, virtual stages and these,
 * a model's shares are equal. */
int64_t work_reel_gather_batches(const struct work *w);

#endif
