/* waits: what the scheduler says of the job of a run that is not over: why it waits, in the
 * scheduler's own words, and what to do where it waits for somebody; that it is being cancelled, or
 * is over or gone and nobody has told the run; that it is suspended; that it waits to run again,
 * and the execution that the run's logs tell of was lost. Of a run that no scheduler knows it says
 * who brings it back.
 */
#ifndef LAUNCHER_SUBMIT_WAITS_H
#define LAUNCHER_SUBMIT_WAITS_H

#include "launcher/state/state.h"

/* Is kept from one run to the next by one who asks about many, and zeroed before the first: a
 * scheduler that did not answer about one run is not waited for again. */
struct waits_silence {
    char kind[32], said[STATE_TEXT_BYTES];
};
/* Says why the job waits. "" when the run is over or was never submitted, or its job does what the
 * run's logs say. Asks through the answer that all processes of a user share, and writes nothing of
 * the run; that there is no answer is said. Another user's run is not asked about. silence: NULL
 * where one run alone is asked about. Returns the word for the run's state. It is run_state_word's,
 * unless the logs of a run that is to go on do not tell that its execution is over: "interrupted"
 * where the job is over or gone, "waiting" where it is to run again; "suspended" where it is. */
const char *waits_why(const char *home, const struct run_state *s, const struct run_budget *budget,
                      struct waits_silence *silence, char text[STATE_TEXT_BYTES]);

/* Has its attempt ended outside of any job, so that nobody but its owner brings it back? */
bool waits_for_owner(const struct run_state *s, const struct run_budget *budget);

#endif
