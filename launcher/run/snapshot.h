/* snapshot: what a run's logs folded to, kept beside them, so that the next to ask reads only what
 * came since.
 *
 * <run_dir>/state.snapshot holds the folded state, and for each log how far it had been read. It is
 * derived, and nothing is believed because it says so: whoever folded much writes it, by rename,
 * where that is allowed; whoever cannot use it folds from the first event. It cannot be used when
 * it is damaged, when another program made it (its size and time differ: the fold may mean
 * something else there), or when a log it saw is gone, shorter, or has other bytes before the place
 * reached. None is made while a log has a place that cannot be read: a file system may give it back
 * later. It may be deleted at any time.
 */
#ifndef LAUNCHER_RUN_SNAPSHOT_H
#define LAUNCHER_RUN_SNAPSHOT_H

#include "launcher/run/state.h"

struct snapshot_log {
    char name[LIMIT_NAME_BYTES]; /* of the file in <run_dir>/events */
    int64_t offset, seq;         /* just past the last record read, and its number */
    uint64_t tail_hash;          /* of the bytes before offset */
};

/* Loads both as they were saved. False: there is none that can be used. *state must be initialised,
 * *logs is new. */
bool snapshot_load(const char *run_dir, struct run_state *state, struct snapshot_log **logs,
                   size_t *n_logs);
/* Fills in tail_hash of each; returns false if one cannot be read. */
bool snapshot_logs_hash(const char *run_dir, struct snapshot_log *logs, size_t n);
/* Returns whether each still has the bytes that stood before its place then. */
bool snapshot_logs_go_on(const char *run_dir, const struct snapshot_log *logs, size_t n);
/* Writes the state, folded from logs whose tail_hash is known. That it cannot be written is no
 * error. */
void snapshot_save(const char *run_dir, const struct run_state *state,
                   const struct snapshot_log *logs, size_t n_logs);

#endif
