/* ingest: event logs into the database.
 *
 * Every event becomes one row of `event`, keyed by (run, attempt, writer, seq); every typed row (`step`,
 * `train_start`, `ckpt`) is a projection of exactly one event; whatever combines events is a view or, for v_time and the clocks
 * behind it, a fold over one run's events, brought up to date when the run has new ones. So the content is a
 * function of the set of logs: order of reading, repeated reading and copies of a file do not matter.
 *
 * Two different events under one key (a log lost its tail and grew again, while a copy of the old
 * one remains, or two processes held it at once): an attempt's end counts before anything else,
 * then the later by wall time, then by text; the other is kept in table `conflict`.
 *
 * Files are read on from where the last ingest stopped. A file that became shorter, or whose last bytes before
 * that point changed, is read anew and what it had given is dropped. A file that vanished keeps its rows.
 *
 * One ingester at a time: it holds the lease `<db>.lock`. Others get ERR_BUSY after wait_s and may go on reading.
 *
 * Folders: a folder given may be a REEL_HOME (runs/<id>/events, tunes/<id>/events, curations/<id>/.reel/events), a
 * run, a tune, a dataset, or a folder of *.evlog. Folders of trials (tunes/<id>/trials/…) are not read: their
 * result is the tune's own trial_ended event.
 */
#ifndef DB_INGEST_H
#define DB_INGEST_H

#include <stdint.h>

#include "db/store.h"

struct ingest_report {
    int64_t files, files_read; /* known; opened this time (the others had not changed) */
    int64_t events_new;
    int64_t conflicts;             /* in the database now */
    int64_t damage, damage_bytes;  /* regions in the database now, all files; table `damage` lists them */
    bool kept_foreign;             /* rebuild: what stood there was not reel's and is kept as <path>.replaced */
};

/* Read what is new under the folders given and under those given before. One transaction: all or nothing.
 * report may be NULL. */
int ingest_run(struct store *db, const char *const *dirs, size_t n_dirs, double wait_s, struct ingest_report *report,
               struct err *err);

/* Open the database for writing (creating it) and ingest; the store stays open for the caller.
 * A busy lock (ERR_BUSY) is turned into reading what is there: *stale becomes true and the store is opened read-only. */
int ingest_open(const char *db_path, const char *const *dirs, size_t n_dirs, double wait_s, struct store **out,
                bool *stale, struct err *err);

/* Build a fresh database beside `db_path` and put it in its place by rename. The folders remembered by the old one are
 * read too, if it can still be opened. On failure the old file stands. A file there that
 * never was reel's database is kept as <db_path>.replaced; ERR_INPUT if it cannot be. */
int ingest_rebuild(const char *db_path, const char *const *dirs, size_t n_dirs, double wait_s,
                   struct ingest_report *report, struct err *err);

/* Make a dataset's log known to a REEL_HOME: the link <home>/curations/<id> to `dir`. Repeating it is fine. */
int ingest_link_curation(const char *home, const char *id, const char *dir, struct err *err);

#endif
