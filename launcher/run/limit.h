/* limit: decides when the agent must stop the trainer before the job's time limit.
 *
 * The scheduler sends a signal before the limit if the submission asked for one, with a lead time
 * that was chosen at submission; under the partition's limit nobody asked for a signal. The agent
 * knows when its job ends (sched_ending) and how long saves took. So it raises the stop notice
 * itself, early enough for two saves and a step. It asks the scheduler for the limit at least
 * twice, because saves get longer: after half of the time, and when the notice is due. It also asks
 * every ten minutes, because a limit can be changed or added. It does not wait for a controller
 * that does not answer: it goes on with the limit that it knows, and asks again soon.
 *
 *     struct limit l;
 *     limit_init(&l, time_limit_s, known);   // as the attempt begins; 0: none
 *     if (limit_is_due(&l) && limit_look(&l, asker, fold)) … // now and then; true: save and stop
 */
#ifndef LAUNCHER_RUN_LIMIT_H
#define LAUNCHER_RUN_LIMIT_H

#include "launcher/run/asker.h"
#include "launcher/state/state.h"

/* Sets, in tests, how often the scheduler is asked for the limit, in seconds. */
#define LIMIT_LOOK_ENV "REEL_LIMIT_LOOK_S"

struct limit {
    double begun_mono, ends_mono; /* 0: no limit */
    double look_mono;  /* when to ask the scheduler next */
    double lead_s;     /* how long before the end the notice comes */
    double every_s;    /* between two requests */
    double asked_mono; /* when the scheduler was asked; 0: no request is in flight */
};
/* Begins with this limit. known: the scheduler has answered what the limit is; if not, it is asked
 * at once. */
void limit_init(struct limit *l, double time_limit_s, bool known);
/* Returns how long the job may still run, s, where the scheduler gave the time limit_at of its end.
 * The job began at least lasted_s ago, so the result is at most the whole limit less lasted_s, even
 * if our clock is behind the scheduler's. */
double limit_left_s(const struct sched_ending *e, double lasted_s);
bool limit_is_due(const struct limit *l);
/* Asks the scheduler when the job ends now, and the run's state how long saves take. Returns
 * whether the notice is due. While it waits for the scheduler's answer it returns false, and must
 * be called again soon. */
bool limit_look(struct limit *l, struct asker *asker, struct run_fold *fold);

#endif
