/* gap: divides the time between the training of two attempts into its parts. */
#ifndef LAUNCHER_STATE_GAP_H
#define LAUNCHER_STATE_GAP_H

#include "launcher/state/state.h"

struct run_gap {     /* seconds; NAN where an event is missing */
    double total;    /* from the notice to stop, else the end, to the next first step */
    double stopping; /* from the notice to the end, or to the last event where nobody saw the end */
    double waiting;  /* to the start of the next attempt */
    double starting; /* to its first step */
    double load;     /* part of `starting` in which it loaded its checkpoint */
    int64_t replayed; /* steps done again; -1: not known yet */
};

/* Returns the gap after attempt `a`, which has ended. b: the next attempt; NULL: there is none
 * yet. */
struct run_gap run_gap_of(const struct run_attempt *a, const struct run_attempt *b);

#endif
