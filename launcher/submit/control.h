/* control: what a run's owner asks of it beside starting and following it: pause and resume, retry,
 * removal.
 *
 * Each wish is one event in the run's log and counts by its turn (launcher/state/state.h). So
 * whoever would bring the run back (its agent, its guard, a follower, a successor) reads the wish
 * first. What is done about the run's job comes after the event and may be repeated: if the command
 * is killed in between, the same command again finishes what it began.
 *
 *     pause            the running job is told to save and stop, what waits is cancelled; the
 *                      agent of a wrapped run hears of it by the log
 *     resume, retry    the run may go on: launch_submit (launcher/submit/launch.h) brings it back;
 *                      the job script of a wrapped run does when it is submitted again
 */
#ifndef LAUNCHER_SUBMIT_CONTROL_H
#define LAUNCHER_SUBMIT_CONTROL_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/submit/launch.h"

enum control_wish { CONTROL_PAUSE, CONTROL_RESUME, CONTROL_RETRY };
/* Checks, and changes nothing, whether the call below would be refused with ERR_NO: for what the
 * run is, or for a job of it that is left over. */
int control_may(const struct launch *l, struct sched *s, const struct run_state *state,
                enum control_wish wish, struct err *err);

/* Pauses the run. s may be NULL for a wrapped run. ERR_NO when the run is over. A wish that could
 * not be kept at all (LAUNCH_UNSAID) ends the job at the scheduler, as a cancel does: a job that
 * was only told to save would come back. */
int control_pause(const struct launch *l, struct sched *s, enum launch_kept *kept, struct err *err);

/* Lets a paused run go on. ERR_NO when it is not paused, with the command that lets it go on
 * instead, or when a job of it is left over; ERR_BUSY while its job still ends. */
int control_resume(const struct launch *l, struct sched *s, struct err *err);

struct control_retry {
    /* If true, the end of the run is forgotten for good; else it gets one attempt before that
     * counts again. */
    bool reset_budget;
    const char *exclude; /* nodes added to resources.exclude; NULL: none */
};
/* Lets a run go on that failed or was cancelled, or whose job is over and the run is not. ERR_NO
 * when it is none of these, with the command that lets it go on instead, or when a job of it is
 * left over; ERR_BUSY while its job still ends; ERR_INPUT for nodes to exclude where there are
 * none. */
int control_retry(const struct launch *l, struct sched *s, const struct control_retry *how,
                  struct err *err);

/* Tells whether a job of a run lives. UNSURE: the one that may live is ending, or is too new to be
 * listed. */
enum control_life { CONTROL_DEAD, CONTROL_UNSURE, CONTROL_LIVES };
/* Asks whether a job of the run lives, as far as its log and its scheduler tell. `what` names for
 * people the one that does, or may. s: the scheduler of the run's newest submission, NULL: none. */
int control_lives(const struct launch *l, struct sched *s, const struct run_state *state,
                  enum control_life *life, char what[STATE_TEXT_BYTES], struct err *err);

/* Looks whether a run that is over by its log has a job that waits or runs at the scheduler all the
 * same, and gives its id and in *job_state how it stands. id is "" when there is none. Waits for
 * that while the run's end was told but seconds ago, because an agent tells it before its job
 * ends. */
int control_left_over(const struct launch *l, struct sched *s, const struct run_state *state,
                      char id[SCHED_ID_BYTES], enum sched_state *job_state, struct err *err);
/* Refuses with ERR_NO when there is such a job, naming it and the command that ends it. */
int control_left_over_check(const struct launch *l, struct sched *s, const struct run_state *state,
                            struct err *err);

#endif
