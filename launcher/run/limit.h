/* limit: the agent's own notice before the end of its job's time limit.
 *
 * A scheduler sends the signal that a submission asked for, so long before the end as was known
 * then; where the limit is the partition's, nobody asked for one. The agent knows when its job ends
 * (sched_ending), and how long saves took. It raises the notice itself, so long before the end that
 * a save and the step it waits for fit in twice over. It looks twice at least, for saves get
 * longer: when half of the time has passed, and when the notice is due. It looks every ten minutes
 * too, for a limit can be changed, and a job that had none can be given one. A controller that does
 * not answer is not waited for: what was known holds, and it is asked again soon.
 *
 *     struct limit l;
 *     limit_init(&l, time_limit_s, known);   // as the attempt begins; 0: none
 *     if (limit_is_due(&l) && limit_look(&l, asker, fold)) … // now and then; true: save and stop
 */
#ifndef LAUNCHER_RUN_LIMIT_H
#define LAUNCHER_RUN_LIMIT_H

#include "launcher/run/asker.h"
#include "launcher/state/state.h"

/* So often it looks whether the limit was changed, s. This is for tests. */
#define LIMIT_LOOK_ENV "REEL_LIMIT_LOOK_S"

struct limit {
    double begun_mono, ends_mono; /* 0: no limit */
    double look_mono, lead_s, every_s;
    double asked_mono; /* when the scheduler was asked; 0: no answer is waited for */
};
/* Begins with this limit; known: the scheduler has said so, else it is asked at once. */
void limit_init(struct limit *l, double time_limit_s, bool known);
/* Returns how long the job still runs, if its ending's limit_at is known. It began at least
 * lasted_s ago, so a clock of ours that is behind the scheduler's does not make it longer than that
 * leaves of the whole. */
double limit_left_s(const struct sched_ending *e, double lasted_s);
bool limit_is_due(const struct limit *l);
/* Asks the scheduler when the job ends now, and the run's record how long saves take. Where the
 * answer is waited for it is to be called again soon. True: the notice is due. */
bool limit_look(struct limit *l, struct asker *asker, struct run_fold *fold);

#endif
