/* untold: reports what is missing from the logs of a run because a log is lost or damaged.
 *
 * A log may be lost with its file system, cut, or moved away. The other logs are folded as if they
 * were complete; commands that show the result add these reports.
 */
#ifndef LAUNCHER_STATE_UNTOLD_H
#define LAUNCHER_STATE_UNTOLD_H

#include "launcher/state/state.h"

/* Gets one clause for people, such as "attempt 1 left no log". */
typedef void untold_fn(void *ctx, const char *text);
/* Calls `say` (may be NULL) for each thing that is missing. Returns the number of them. */
int untold_each(const struct run_state *s, untold_fn *say, void *ctx);

#endif
