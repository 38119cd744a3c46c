/* control: carries out the owner's requests to pause, resume and retry a run, and finds out whether
 * a job of the run still lives. */
#ifndef LAUNCHER_SUBMIT_CONTROL_H
#define LAUNCHER_SUBMIT_CONTROL_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/submit/launch.h"

enum control_wish { CONTROL_PAUSE, CONTROL_RESUME, CONTROL_RETRY };
struct control_retry {
    /* true: earlier attempts no longer count against the run's budgets; false: the run gets one
     * attempt, after which they count again */
    bool reset_budget;
    const char *exclude; /* nodes to add to resources.exclude; NULL: none */
};
/* Checks, without changing anything, whether the call below for this request would be refused:
 * because of the run's state, because a job of the run is left over, because another user must make
 * it, or because the scheduler would refuse its next job. how: of a retry; else NULL. */
int control_may(const struct launch *l, struct sched *s, const struct run_state *state,
                enum control_wish wish, const struct control_retry *how, struct err *err);

/* Pauses the run. s may be NULL for a wrapped run. ERR_NO: the run is over. If the request could
 * not be recorded at all (LAUNCH_UNSAID), the job is cancelled at the scheduler, because a job that
 * was only signalled to save would be requeued. */
int control_pause(const struct launch *l, struct sched *s, enum launch_kept *kept, struct err *err);

/* Lets a paused run go on. ERR_NO: it is not paused (the error names the command that lets it go
 * on), or a job of it is left over; ERR_BUSY: its job is still ending; ERR_INPUT, ERR_LIMIT: the
 * scheduler would refuse its next job. */
int control_resume(const struct launch *l, struct sched *s, struct err *err);

/* Lets a run go on that failed or was cancelled, or whose job is over although the run is not.
 * ERR_NO: it is none of these (the error names the command that lets it go on), or a job of it is
 * left over; ERR_BUSY: its job is still ending; ERR_INPUT, ERR_LIMIT: nodes to exclude for a run
 * that is wrapped or not Slurm's, or the scheduler would refuse its next job. */
int control_retry(const struct launch *l, struct sched *s, const struct control_retry *how,
                  struct err *err);

/* Tells whether a job of a run lives. UNSURE: a job is ending, or is too new to be listed. */
enum control_life { CONTROL_DEAD, CONTROL_UNSURE, CONTROL_LIVES };
/* Asks the run's log and scheduler whether a job of the run lives. `what` gets a clause for people
 * about the job that lives or may live. s: the scheduler of the run's newest submission; NULL:
 * none. */
int control_lives(const struct launch *l, struct sched *s, const struct run_state *state,
                  enum control_life *life, char what[STATE_TEXT_BYTES], struct err *err);

struct control_left {
    char id[SCHED_ID_BYTES];     /* "": there is no such job */
    char handle[SCHED_ID_BYTES]; /* names it for the scheduler's own commands (sched_job) */
    enum sched_state state;
};
/* Finds a job that waits or runs at the scheduler though the log says that the run is over. If the
 * run's end was recorded only seconds ago, it waits for the job's end, because an agent records the
 * end before its job ends. */
int control_left_over(const struct launch *l, struct sched *s, const struct run_state *state,
                      struct control_left *left, struct err *err);
/* Fails with ERR_NO if control_left_over finds a job; the error names the job and the command that
 * ends it. */
int control_left_over_check(const struct launch *l, struct sched *s, const struct run_state *state,
                            struct err *err);

#endif
