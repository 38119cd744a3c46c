/* snapshot: stores a run's folded state beside its logs, so that the next process reads only the
 * records that were added since.
 *
 * <run_dir>/state.snapshot holds the folded state, and for each log how far it had been read. The
 * snapshot is only a cache of the logs: a process that has folded many events publishes it by
 * rename, if it has write permission; a process that cannot use it folds from the first event. It
 * cannot be used if it is damaged, or if another build made it, whose structs or fold may differ;
 * the size and time of the program file show that. Nor can it be used if one of its logs is missing
 * or shorter, or has other bytes before the offset reached, or if bytes have changed at a place
 * that was unreadable when the snapshot was made. It may be deleted at any time.
 */
#ifndef LAUNCHER_STATE_SNAPSHOT_H
#define LAUNCHER_STATE_SNAPSHOT_H

#include "base/evlog.h"
#include "launcher/state/state.h"

struct snapshot_log {
    char name[LIMIT_NAME_BYTES]; /* of the file in <run_dir>/events */
    int64_t offset, seq;         /* end of the last record read, and that record's number */
    uint64_t tail_hash;          /* of the bytes before offset */
    int64_t n_damage;            /* number of places before offset that could not be read */
};
struct snapshot_logs {
    struct snapshot_log *list;
    struct evlog_damage *damage; /* of the first log, then of the next, and so on */
    size_t n, n_damage;
};
void snapshot_logs_release(struct snapshot_logs *logs); /* zeroes it, too */

/* Loads the state and the offsets reached in the logs. Returns false if there is no snapshot that
 * can be used. *state must be initialised; *logs is filled anew. */
bool snapshot_load(const char *run_dir, struct run_state *state, struct snapshot_logs *logs);
/* Fills in tail_hash of each log; returns false if one cannot be read. */
bool snapshot_logs_hash(const char *run_dir, struct snapshot_logs *logs);
/* Returns whether each log still has the same bytes before the offset reached, and at the places
 * that could not be read. */
bool snapshot_logs_go_on(const char *run_dir, const struct snapshot_logs *logs);
/* Writes the state that was folded from these logs, whose tail_hash must be filled in. A failure is
 * ignored, because the logs hold everything. */
void snapshot_save(const char *run_dir, const struct run_state *state,
                   const struct snapshot_logs *logs);

#endif
