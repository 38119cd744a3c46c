/* ingest_priv: declares what the three files of ingest share. ingest.c reads logs into a database,
 * ingest_named.c reads files whose name tells an end, ingest_rebuild.c makes a database anew from
 * its logs. */
#ifndef DB_INGEST_PRIV_H
#define DB_INGEST_PRIV_H

#include "base/lease.h"
#include "base/str.h"
#include "db/ingest.h"

/* Remembers a folder under its resolved name, so that a home that is reached through a link is not
 * read twice. */
int ingest_source_add(struct store *db, const char *dir, struct err *err);

/* Takes the lease for ingesting, which the caller drops. Waits for it up to wait_s. */
int ingest_lock(const char *db_path, double wait_s, struct lease **held, struct err *err);

/* Reads new events under the folders, like ingest_run. The caller holds the lease. */
int ingest_locked(struct store *db, const char *const *dirs, size_t n_dirs,
                  struct ingest_report *report, struct err *err);

/* Makes the event of the end that the name of this file tells, for a run whose logs were read; an
 * empty text where it tells none. */
int ingest_named_event(struct store *db, const char *path, struct str *text, struct err *err);

#endif
