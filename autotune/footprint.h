/* footprint: predicts the bytes of the fullest rank by category, and the probability that they fit.
 * Its functions are pure.
 *
 * The account (profiles/work.h) gives the bytes that formulas know. Constants stand for what they
 * do not know: how much more a stack keeps, what its allocator loses, what the process takes.
 *
 *     struct footprint f;
 *     footprint_of(&w, &layout, v, &f);                 // v: from constants_resolve()
 *     footprint_fits(&f, v, limit_bytes)                // 0..1
 *
 * More memory never makes a layout less likely to fit.
 */
#ifndef AUTOTUNE_FOOTPRINT_H
#define AUTOTUNE_FOOTPRINT_H

#include "profiles/constants.h"
#include "profiles/work.h"

struct footprint {
    int64_t stage;           /* which stage is the fullest */
    double bytes[WORK_HELD];
    double total;            /* their sum */
};
void footprint_of(const struct work *w, const struct layout *l, const double v[CONSTANTS],
                  struct footprint *out);
/* Returns the share of what comes and goes in a step that the allocator loses. reel's own trainer
 * allocates all its buffers once, and loses none. */
double footprint_lost(const struct work *w, const double v[CONSTANTS]);
/* Returns the probability that a rank with this footprint fits. The logarithm of the bytes is taken
 * to be normally distributed, with the constant memory_sd as its standard deviation. */
double footprint_fits(const struct footprint *f, const double v[CONSTANTS], double limit_bytes);
/* Returns the most bytes that a footprint may have to fit with probability p, 0 < p < 1. */
double footprint_room(const double v[CONSTANTS], double limit_bytes, double p);

#endif
