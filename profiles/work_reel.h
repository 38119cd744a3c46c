/* work_reel: accounts for the parts of reel's own trainer, as trainer/dit does them: exactly what
 * it sends and multiplies, and the bytes that its elementwise operations read and write. The
 * formulas stand at the top of work_reel.c. They hold for models of videos, which alone it trains.
 */
#ifndef PROFILES_WORK_REEL_H
#define PROFILES_WORK_REEL_H

#include "profiles/work.h"

/* Fills the parts, which are empty, and what is kept of a layer and beside the layers. */
void work_reel_parts(const struct work_spec *spec, const struct layout *l, struct work *out);
/* Returns how often a stage gathers the weights of each unit with zero 3, as a share of once before
 * each forward and each backward: two units are held at a time, and what is still held is not
 * gathered again (trainer/state/units.c). It goes through the stage's schedule, of many
 * micro-batches only through the first ones, which the others repeat. */
void work_reel_gather_share(const struct work *w, const struct layout *l, int64_t stage,
                            double share[WORK_UNITS]);

#endif
