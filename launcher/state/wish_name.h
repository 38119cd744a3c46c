/* wish_name: what a run's owner wishes of it, kept in a file's name, without any room on the disk.
 *
 * Each run has one empty file, made with it, among its logs. Where a wish finds no room for an
 * event, that file is renamed, and its name says all that the event would have said:
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
/* Returns what is to be kept of this wish, said now, with the turn after all that this state
 * knows. */
struct wish_name wish_name_make(const struct run_state *s, enum run_wish wish, bool at_scheduler);
/* Folds what a name says. */
void wish_name_apply(const struct wish_name *m, struct run_state *s);

/* Is this the name of the file, whatever it says? */
bool wish_name_is(const char *name);
/* Reads what the name says; false for a name that says nothing. */
bool wish_name_parse(const char *name, struct wish_name *out);

#endif
