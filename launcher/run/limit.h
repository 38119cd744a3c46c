/* limit: gives notice to the agent before its job reaches its time limit.
 *
 * A scheduler sends the signal that a submission asked for, as long before the end as seemed right
 * then; if the limit is the partition's, nobody asked for a signal. The agent knows when its job
 * ends (sched_ending), and how long saves took. It raises the notice itself, early enough for two
 * saves and a step. It looks at least twice, because saves get longer: when half of the time has
 * passed, and when the notice is due. It also looks every ten minutes, because a limit can be
 * changed, and a job without one can be given one. It does not wait for a controller that does not
 * answer: the limit stays as it was known, and the controller is asked again soon.
 *
 *     struct limit l;
 *     limit_init(&l, time_limit_s, known);   // as the attempt begins; 0: none
 *     if (limit_is_due(&l) && limit_look(&l, asker, fold)) … // now and then; true: save and stop
 */
#ifndef LAUNCHER_RUN_LIMIT_H
#define LAUNCHER_RUN_LIMIT_H

#include "launcher/run/asker.h"
#include "launcher/state/state.h"

/* This variable sets how often the limit is looked up, s; it is for tests. */
#define LIMIT_LOOK_ENV "REEL_LIMIT_LOOK_S"

struct limit {
    double begun_mono, ends_mono; /* 0: no limit */
    double look_mono;  /* when to look next */
    double lead_s;     /* how long before the end the notice comes */
    double every_s;    /* between two looks */
    double asked_mono; /* when the scheduler was asked; 0: no answer is waited for */
};
/* Begins with this limit. known: the scheduler has said so; if not, it is asked at once. */
void limit_init(struct limit *l, double time_limit_s, bool known);
/* Returns how long the job may still run, s, if the limit_at of its ending is known. It began at
 * least lasted_s ago. So the result is at most the whole limit less lasted_s, even if our clock is
 * behind the scheduler's. */
double limit_left_s(const struct sched_ending *e, double lasted_s);
bool limit_is_due(const struct limit *l);
/* Asks the scheduler when the job ends now, and the run's record how long saves take. Returns
 * whether the notice is due. If it waits for the scheduler's answer it returns false, and is to be
 * called again soon. */
bool limit_look(struct limit *l, struct asker *asker, struct run_fold *fold);

#endif
