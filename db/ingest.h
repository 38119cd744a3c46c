/* ingest: reads event logs into the database.
 *
 * Every event becomes one row of `event`, with the key (run, attempt, writer, seq). Every typed row
 * (`step`, `train_start`, `trial_event`) is a projection of exactly one event. Whatever combines
 * events is a view. Only v_time and the clocks behind it are a fold over one run's events, which is
 * brought up to date when the run has new ones. So the content is a function of the set of logs: it
 * does not matter in which order and how often files are read, or whether there are copies of a
 * file.
 *
 * An end of an attempt that only a file's name tells (fold/named.h) becomes an event, too, whose
 * writer is end-name.
 *
 * Two different events can have one key: a log lost its tail and grew again while a copy of the old
 * one remains, or two processes held it at once. Then an attempt's end wins over anything else,
 * then the later event by wall time, then by text. The other one is kept in table `conflict`.
 *
 * Reading continues where the last ingest stopped. A file that became shorter, or whose last bytes
 * before that point changed, is read anew, and its earlier events are dropped. A file that vanished
 * keeps its rows.
 *
 * Only one process ingests at a time: it holds the lease `<db>.lock`. Others get ERR_BUSY after
 * wait_s and may continue to read.
 *
 * A folder that is given may be a REEL_HOME (runs/<id>/events, tunes/<id>/events,
 * curations/<id>/.reel/events), that of a run, of a tuning or of a dataset, or a folder of *.evlog.
 * Folders of trials (tunes/<id>/trials/…) are not read, because a trial's result is in the tuning's
 * own event trial_ended.
 */
#ifndef DB_INGEST_H
#define DB_INGEST_H

#include <stdint.h>

#include "db/store.h"

struct ingest_report {
    /* known logs; logs that were opened this time (the others had not changed) */
    int64_t files, files_read;
    int64_t events_new;
    int64_t conflicts; /* in the database now */
    /* unreadable regions in the database now, of all files; table `damage` lists them */
    int64_t damage, damage_bytes;
    /* rebuild: the file at the path was not reel's; it is kept as <path>.replaced */
    bool kept_foreign;
};

/* Reads new events under the folders that are given now and those that were given before, in one
 * transaction: all or nothing. report may be NULL. */
int ingest_run(struct store *db, const char *const *dirs, size_t n_dirs, double wait_s,
               struct ingest_report *report, struct err *err);

/* Opens the database for writing (and creates it) and ingests. The store stays open for the caller.
 * If another process ingests (ERR_BUSY), or this one may not write to the file, the store is opened
 * for reading what is there, and *stale becomes true. */
int ingest_open(const char *db_path, const char *const *dirs, size_t n_dirs, double wait_s,
                struct store **out, bool *stale, struct err *err);

/* Builds a fresh database beside `db_path` and renames it to `db_path`. It also reads the
 * folders that the old database remembered, if that can still be opened. On failure the old file
 * stays. A file that never was reel's database is kept as <db_path>.replaced; ERR_INPUT: it
 * cannot be kept. */
int ingest_rebuild(const char *db_path, const char *const *dirs, size_t n_dirs, double wait_s,
                   struct ingest_report *report, struct err *err);

/* Makes a dataset's log known to a REEL_HOME: the link <home>/curations/<id> leads to `dir`. Doing
 * it again is fine. */
int ingest_link_curation(const char *home, const char *id, const char *dir, struct err *err);

#endif
