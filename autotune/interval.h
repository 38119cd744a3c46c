/* interval: says how far a predicted step may be from the true one. Its functions are pure.
 *
 * Three things are not known. Steps differ from their predictions where all constants were fitted:
 * that is CONSTANT_TIME_SD of the stack. Where a constant was never fitted, for a device or a stack
 * that no row was of, its prior may be wrong by its standard deviation; the step is so by as much
 * as it depends on the constant. And a stack on a device of which there was no row differs from
 * others in ways that no constant has: by the spread between such pairs. A constant that was fitted
 * adds nothing: its error is part of what TIME_SD was measured as.
 *
 *     double sd = interval_sd(&of, &work, &layout);       // of ln(measured / predicted)
 *     lo = s * exp(-INTERVAL_SDS * sd), hi = s * exp(INTERVAL_SDS * sd);
 */
#ifndef AUTOTUNE_INTERVAL_H
#define AUTOTUNE_INTERVAL_H

#include "autotune/price.h"

/* 90 % of normally distributed values lie within this many standard deviations of the mean. */
#define INTERVAL_SDS 1.645

struct interval_of { /* all borrowed */
    const struct constants *constants;
    const double *v; /* [CONSTANTS], of constants_resolve() */
    const struct cluster *cluster;
    const struct stack *stack;
    enum dtype act;
    bool fp8;
};
double interval_sd(const struct interval_of *in, const struct work *w, const struct layout *l);

#endif
