/* untold: says what the logs of a run lack, because one is missing or damaged.
 *
 * A log may be lost with its file system, cut, or moved away. What is left is folded as if it were
 * all; whoever shows the result says beside it what is missing. Pure.
 */
#ifndef LAUNCHER_STATE_UNTOLD_H
#define LAUNCHER_STATE_UNTOLD_H

#include "launcher/state/state.h"

/* Takes one clause that people are to read: "attempt 1 left no log". */
typedef void untold_fn(void *ctx, const char *text);
/* Calls `say` (may be NULL) for each thing that is missing. Returns how many there are. */
int untold_each(const struct run_state *s, untold_fn *say, void *ctx);

#endif
