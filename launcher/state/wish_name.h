/* wish_name: keeps a wish of a run's owner in the name of a file, which needs no room on the disk.
 *
 * Each run has one empty file, made with it, among its logs. If there is no room for the event of a
 * wish, that file is renamed, and its name holds all that the event would have held:
 * events/wish.<cancel|pause|scancel>.<turn>.<met attempt>.<when, Unix milliseconds>. A rename asks
 * no file system for space or for a file. Whoever folds the run's logs (launcher/state/state.h)
 * reads the name like the event. A later wish has a higher turn, and counts, be it an event or the
 * next name of the same file.
 */
#ifndef LAUNCHER_STATE_WISH_NAME_H
#define LAUNCHER_STATE_WISH_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "launcher/state/state.h"

struct wish_name {
    enum run_wish wish; /* WISH_CANCEL or WISH_PAUSE */
    bool at_scheduler;  /* somebody cancelled its job by the scheduler's own means */
    int64_t turn, met_attempt;
    double at; /* UTC s */
};

/* Makes the file among these logs if there is none. That it cannot be made is no error:
 * wish_name_put tries again. */
void wish_name_reserve(const char *events_dir);
/* Keeps a wish of a higher turn than the one that is kept. ERR_FULL: the run is of an older
 * version and has no such file, and there is no room for one. ERR_BUSY: another process was
 * faster, with a wish of this turn or a higher one. */
int wish_name_put(const char *run_dir, const struct wish_name *m, struct err *err);
/* Returns this wish, made now, with a turn after all that the state knows. */
struct wish_name wish_name_make(const struct run_state *s, enum run_wish wish, bool at_scheduler);
/* Folds the wish that a name holds. */
void wish_name_apply(const struct wish_name *m, struct run_state *s);

/* Is this the name of that file, with or without a wish? */
bool wish_name_is(const char *name);
/* Reads the wish from the name. Returns false for a name without one. */
bool wish_name_parse(const char *name, struct wish_name *out);

#endif
