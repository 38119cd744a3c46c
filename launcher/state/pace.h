/* pace: computes from the folded states of runs how long saves and steps take and how often a run
 * fails. */
#ifndef LAUNCHER_STATE_PACE_H
#define LAUNCHER_STATE_PACE_H

#include "launcher/state/state.h"

/* Returns the 99th percentile, s, of the longest saves of the run's attempts; 0: none was made. */
double pace_save_s(const struct run_state *s);

/* Holds what the event logs of a home tell of runs of one model. */
struct pace_model {
    double save_s; /* 99th percentile of the longest saves of their attempts, s; 0: none was made */
    double step_s; /* the longest of their last steps, s; 0: none is known */
};
/* Folds the event logs of every run of this model (NULL: any model) under the home, and nothing
 * else: no database is asked and nothing is made. Runs that cannot be read are left out. */
void pace_model_find(const char *home, const char *model, struct pace_model *out);
/* This variable tells a job the 99th percentile, in seconds, of the saves of its model when it was
 * submitted. */
#define PACE_SAVE_ENV "REEL_JOB_SAVE_S"

/* Returns the mean training time, s, between ends that lost work: crashes, hangs, lost nodes, and
 * preemptions and time limits at which the trainer did not save in time. 0: there was none. */
double pace_mtbf_s(const struct run_state *s);

/* Returns how long before the end of a time limit the stop notice comes, s: a minute, or two saves
 * and a step if these take longer; at most half of the limit. Unknown times are passed as 0. */
double pace_lead_s(double time_limit_s, double save_s, double step_s);

#endif
