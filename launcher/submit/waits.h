/* waits: asks the scheduler about the job of a run that is not over, and explains its state. It
 * gives the scheduler's reason for a job that waits, and what the user must do, if anything. It
 * reports a job that is being cancelled, is suspended, is over or gone though the run's logs do not
 * say so, or waits to run again because its last execution was lost. For a run without a scheduler
 * it says how to bring it back.
 */
#ifndef LAUNCHER_SUBMIT_WAITS_H
#define LAUNCHER_SUBMIT_WAITS_H

#include "launcher/state/state.h"

/* Remembers, for a caller that asks about many runs, that a scheduler did not answer, so that it is
 * not asked again; zeroed before the first call. */
struct waits_silence {
    char kind[32], said[STATE_TEXT_BYTES];
};
/* Writes into `text` why the job waits; "" if the run is over or was never submitted, or if its job
 * does what the run's logs say. Uses the scheduler's answer that all processes of a user share, and
 * writes nothing to the run; without an answer `text` says so. Does not ask about another user's
 * run. silence: NULL if the caller asks about one run only. Returns the name of the run's state:
 * that of run_state_word, or "suspended" for a suspended job, or, if the logs lack the end of an
 * execution that is over, "interrupted" if the job is over or gone and "waiting" if it is to run
 * again. */
const char *waits_why(const char *home, const struct run_state *s, const struct run_budget *budget,
                      struct waits_silence *silence, char text[STATE_TEXT_BYTES]);

/* Tells whether the run's attempt ended outside of any job, so that only its owner can bring the
 * run back. */
bool waits_for_owner(const struct run_state *s, const struct run_budget *budget);

#endif
