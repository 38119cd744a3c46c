/* waits: asks the scheduler about the job of a run that is not over, and says: why it waits, in the
 * scheduler's own words, and what to do if it waits for somebody; that it is being cancelled; that
 * it is over or gone, though the run's logs do not say so; that it is suspended; that it waits to
 * run again, because the execution in the run's logs was lost. Of a run that no scheduler knows it
 * says who brings it back.
 */
#ifndef LAUNCHER_SUBMIT_WAITS_H
#define LAUNCHER_SUBMIT_WAITS_H

#include "launcher/state/state.h"

/* Remembers, for a caller that asks about many runs, that a scheduler did not answer, so that it is
 * not waited for again; zeroed before the first. */
struct waits_silence {
    char kind[32], said[STATE_TEXT_BYTES];
};
/* Writes to `text` why the job waits; "" if the run is over or was never submitted, or if its job
 * does what the run's logs say. Takes the scheduler's answer that all processes of a user share,
 * and writes nothing about the run; if there is no answer `text` says so. Does not ask about
 * another user's run. silence: NULL if the caller asks about one run only. Returns the word for the
 * run's state: that of run_state_word, but "suspended" for a suspended job, and, if the logs lack
 * the end of an execution that is over, "interrupted" if the job is over or gone, or "waiting" if
 * it is to run again. */
const char *waits_why(const char *home, const struct run_state *s, const struct run_budget *budget,
                      struct waits_silence *silence, char text[STATE_TEXT_BYTES]);

/* Has the run's attempt ended outside of any job, so that only its owner brings it back? */
bool waits_for_owner(const struct run_state *s, const struct run_budget *budget);

#endif
