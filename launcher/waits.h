/* waits: why a run's job waits, in the scheduler's own words, and what to do where it waits for somebody. */
#ifndef LAUNCHER_WAITS_H
#define LAUNCHER_WAITS_H

#include "launcher/state.h"

/* "" when the run does not wait for a job, or nobody can say. Asks through the answer that all processes of a user share. */
void waits_why(const char *home, const struct run_state *s, const struct run_budget *budget, char text[STATE_TEXT_BYTES]);

/* The same of a job with this reason; pure. */
void waits_format(const char *kind, const char *job_id, const char *reason, char text[STATE_TEXT_BYTES]);

#endif
