/* spike: judges whether a step's loss, or the norm of its gradients, is far above those of the
 * steps before it. It has no effects.
 *
 * A value is far above if it exceeds the mean of the last SPIKE_STEPS steps by more than z standard
 * deviations (of n - 1), and at least SPIKE_LEAST steps are noted. The deviation counts as at least
 * SPIKE_FLOOR of the mean, so that rounding is no spike where a loss does not change. The rule and
 * its numbers (128, at least half of them; z 6) are those of SkipStepOptimizer in AI2's OLMo-core
 * 2, except the floor, and that values which are not finite are not noted here. A value that was
 * far above is noted like the rest, so a level that persists is accepted after at most SPIKE_STEPS
 * / (z² + 1) steps, rounded up; with z 6 after four.
 *
 *     double most = spike_limit(h.norm, h.n, z);      // INFINITY: too few steps yet
 *     spike_note(&h, loss, norm);                     // after each step, also if it was skipped
 */
#ifndef TRAINER_STATE_SPIKE_H
#define TRAINER_STATE_SPIKE_H

#include <stdint.h>

enum { SPIKE_STEPS = 128, SPIKE_LEAST = SPIKE_STEPS / 2 };
#define SPIKE_FLOOR 1e-3

struct spike_history {
    int64_t n;
    double loss[SPIKE_STEPS], norm[SPIKE_STEPS]; /* [n], the oldest first; all finite */
};
/* Notes a step, unless one of the two is not finite. */
void spike_note(struct spike_history *h, double loss, double norm);
/* Returns the limit above which a value is far. */
double spike_limit(const double *values, int64_t n, double z);

#endif
