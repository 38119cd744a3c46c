/* end_name: records in the name of a file, which needs no room on the disk, what became of an
 * attempt.
 *
 * The events of an agent wait in memory while the disk has no room, and die with it. Each run has
 * one empty file among its logs (launcher/state/name_file.h). If there is no room for the event of
 * a stop notice or of the attempt's end, that file is renamed to
 *
 *     events/end.<attempt>.<notice>.<0|1>.<ms>.<how>.<cause>.<exit code>.<signal>.<ms>
 *
 * <notice> is the signal of the first notice, or 0; then stand whether it came to a node agent, and
 * when. <how> is "open" while the attempt goes on, "given" if its job was given back before that
 * ended, "ended", or "died" if its agent did. Then stand why, how its trainer or agent exited, and
 * when this was written. Times are in Unix milliseconds. The fold of the run's logs reads the name
 * (run_state_named), and an event counts rather than it. The next attempt's agent, which has room,
 * writes the events that are missing, so that the name of a newer attempt may replace that of an
 * older one.
 */
#ifndef LAUNCHER_STATE_END_NAME_H
#define LAUNCHER_STATE_END_NAME_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/state/state.h"

/* Makes the file in this folder of logs if there is none. A failure is no error: end_name_put tries
 * again. */
void end_name_reserve(const char *events_dir);
/* Records this, instead of what is recorded of the same attempt or an older one. ERR_FULL: there is
 * no such file, and no room for one; ERR_BUSY: a newer attempt is recorded. */
int end_name_put(const char *run_dir, const struct run_named *n, struct err *err);

/* Tells whether this is the name of that file, with or without a record. */
bool end_name_is(const char *name);
/* Reads the record from the name. Returns false for a name without one. */
bool end_name_parse(const char *name, struct run_named *out);

#endif
