/* wish_name: records a run owner's request (wish) to pause or cancel the run in the name of a file,
 * which needs no room on the disk.
 *
 * Each run has one empty file among its logs, made with the run. If the disk has no room for the
 * event of a request, that file is renamed, and its name holds what the event would have held:
 * events/wish.<cancel|pause|scancel>.<turn>.<met attempt>.<when, Unix milliseconds>. A rename needs
 * neither space nor an inode. <turn> numbers the requests (enum run_wish), and <met attempt> is the
 * newest attempt that the requesting process knew. The fold of the run's logs
 * (launcher/state/state.h) reads the name like an event. A later request has a higher turn and
 * replaces it, as an event or as the file's next name.
 */
#ifndef LAUNCHER_STATE_WISH_NAME_H
#define LAUNCHER_STATE_WISH_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "launcher/state/state.h"

struct wish_name {
    enum run_wish wish; /* WISH_CANCEL or WISH_PAUSE */
    bool at_scheduler;  /* somebody cancelled the run's job with the scheduler's own command */
    int64_t turn, met_attempt;
    double at; /* UTC s */
};

/* Makes the file in this folder of logs if there is none. A failure is no error: wish_name_put
 * tries again. */
void wish_name_reserve(const char *events_dir);
/* Records a request with a higher turn than the recorded one. ERR_FULL: the run was made by an
 * older version without such a file, and there is no room for one. ERR_BUSY: another process
 * recorded a request with this turn or a higher one first. */
int wish_name_put(const char *run_dir, const struct wish_name *m, struct err *err);
/* Returns this request, made now, with a turn above all that the state knows. */
struct wish_name wish_name_make(const struct run_state *s, enum run_wish wish, bool at_scheduler);
/* Folds the request that a name holds. */
void wish_name_apply(const struct wish_name *m, struct run_state *s);

/* Tells whether this is the name of that file, with or without a request. */
bool wish_name_is(const char *name);
/* Reads the request from the name. Returns false for a name without one. */
bool wish_name_parse(const char *name, struct wish_name *out);

#endif
