/* timeline: sums up where the time of steps went on a device, from the list of activities there.
 * timeline_sums() is pure.
 *
 * Activities of several streams overlap. Each moment of the steps counts for one thing: for
 * computation while any kernel computes (in equal shares for the classes that do), else for
 * communication while any runs, else for copies while any runs, else as idle. So the classes and
 * idle_s add up to step_s.
 *
 * Communication is hidden while something is computed at the same time, and exposed otherwise. Both
 * are lengths of time, not sums over streams: two messages at once count once. Activities outside
 * the steps are left out, and those that cross their beginning or end are cut there.
 *
 * mfu is model_flops / (step_s · peak), as everywhere else. hfu counts the floating-point
 * operations of recomputation too (Korthikanti et al. 2022, "Reducing Activation Recomputation in
 * Large Transformer Models", section 5): hardware_flops / (step_s · peak). busy_hfu divides by the
 * time in which kernels compute instead of step_s: it is what these kernels reach by themselves.
 *
 *     struct timeline t = {.items = items, .n = n, .from_ns = a, .to_ns = b, .steps = 2};
 *     struct timeline_sum s;
 *     timeline_sums(&t, &s, err);
 */
#ifndef PROFILES_TIMELINE_H
#define PROFILES_TIMELINE_H

#include <stdint.h>

#include "base/err.h"
#include "profiles/kernels.h"

/* Describes an activity on the device, from start_ns to before end_ns. */
struct timeline_item {
    int64_t start_ns, end_ns;
    enum kernel_class class;
};

struct timeline {
    const struct timeline_item *items; /* [n] in any order */
    int64_t n;
    int64_t from_ns, to_ns; /* the steps, without a gap between them */
    int64_t steps;          /* 1 or more */
    /* FLOPs of one step on this device, and its peak in FLOP/s; 0: not known. hardware_flops
     * includes model_flops. */
    double model_flops, hardware_flops, peak_flops;
};

/* Holds times of one step: means over the steps. */
struct timeline_sum {
    double step_s;
    double class_s[KERNEL_CLASSES]; /* disjoint; of communication the exposed part */
    double idle_s;
    double comm_s, exposed_s, hidden_s; /* comm_s is the sum of the others */
    double compute_s;                   /* while some kernel computes */
    double mfu, hfu, busy_hfu;          /* NaN: not known */
};

/* Computes the sums. Returns ERR_INPUT if the steps have no length or an activity ends before it
 * starts, ERR_NOMEM if memory runs out. */
int timeline_sums(const struct timeline *t, struct timeline_sum *out, struct err *err);

#endif
