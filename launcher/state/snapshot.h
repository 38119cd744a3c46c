/* snapshot: what a run's logs folded to, kept beside them, so that the next to ask reads only what
 * came since.
 *
 * <run_dir>/state.snapshot holds the folded state, and for each log how far it had been read. It is
 * derived, and nothing is believed because it says so: whoever folded much writes it, by rename,
 * where that is allowed; whoever cannot use it folds from the first event. It cannot be used when
 * it is damaged, when another program made it (its size and time differ: the fold may mean
 * something else there), or when a log it saw is gone, shorter, or has other bytes before the place
 * reached or where it could not be read: a file system may give such a place back later. It may be
 * deleted at any time.
 */
#ifndef LAUNCHER_STATE_SNAPSHOT_H
#define LAUNCHER_STATE_SNAPSHOT_H

#include "base/evlog.h"
#include "launcher/state/state.h"

struct snapshot_log {
    char name[LIMIT_NAME_BYTES]; /* of the file in <run_dir>/events */
    int64_t offset, seq;         /* just past the last record read, and its number */
    uint64_t tail_hash;          /* of the bytes before offset */
    int64_t n_damage;            /* places before offset that could not be read */
};
struct snapshot_logs {
    struct snapshot_log *list;
    struct evlog_damage *damage; /* of the first log, then of the next, … */
    size_t n, n_damage;
};
void snapshot_logs_release(struct snapshot_logs *logs); /* zeroes it, too */

/* Loads both as they were saved. False: there is none that can be used. *state must be initialised,
 * *logs is new. */
bool snapshot_load(const char *run_dir, struct run_state *state, struct snapshot_logs *logs);
/* Fills in tail_hash of each; returns false if one cannot be read. */
bool snapshot_logs_hash(const char *run_dir, struct snapshot_logs *logs);
/* Returns whether each still has the bytes that stood before its place then, and where it could not
 * be read. */
bool snapshot_logs_go_on(const char *run_dir, const struct snapshot_logs *logs);
/* Writes the state, folded from logs whose tail_hash is known. That it cannot be written is no
 * error. */
void snapshot_save(const char *run_dir, const struct run_state *state,
                   const struct snapshot_logs *logs);

#endif
