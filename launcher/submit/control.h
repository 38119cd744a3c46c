/* control: handles what a run's owner asks of it beside starting and following it: pause and
 * resume, retry, removal. */
#ifndef LAUNCHER_SUBMIT_CONTROL_H
#define LAUNCHER_SUBMIT_CONTROL_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/submit/launch.h"

enum control_wish { CONTROL_PAUSE, CONTROL_RESUME, CONTROL_RETRY };
/* Checks, without changing anything, whether the call below for this wish would be refused with
 * ERR_NO: because of the run's state, or because a job of the run is left over. */
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
    /* true: what counted against the run's budgets is forgotten; false: the run gets one attempt,
     * and then that counts again */
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
 * people the job that lives, or may live. s: the scheduler of the run's newest submission, NULL:
 * none. */
int control_lives(const struct launch *l, struct sched *s, const struct run_state *state,
                  enum control_life *life, char what[STATE_TEXT_BYTES], struct err *err);

/* Finds a job that waits or runs at the scheduler though the run is over by its log. `id` is "" if
 * there is none, else *job_state is its state. If the run's end was recorded only seconds ago, this
 * waits for the job's end, because an agent records the end before its job ends. */
int control_left_over(const struct launch *l, struct sched *s, const struct run_state *state,
                      char id[SCHED_ID_BYTES], enum sched_state *job_state, struct err *err);
/* Refuses with ERR_NO when there is such a job, naming it and the command that ends it. */
int control_left_over_check(const struct launch *l, struct sched *s, const struct run_state *state,
                            struct err *err);

#endif
