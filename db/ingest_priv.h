/* ingest, inside: what its two files share. ingest.c reads logs into a database, ingest_rebuild.c
 * makes a database anew from its logs. */
#ifndef DB_INGEST_PRIV_H
#define DB_INGEST_PRIV_H

#include "base/lease.h"
#include "db/ingest.h"

/* Remembers a folder under its resolved name, so that a home that is met through a link is not read
 * twice. */
int ingest_source_add(struct store *db, const char *dir, struct err *err);

/* Takes the lease of one who ingests; the caller drops it. Waits up to wait_s for it. */
int ingest_lock(const char *db_path, double wait_s, struct lease **held, struct err *err);

/* Reads what is new under the folders, as ingest_run does. The caller holds the lease. */
int ingest_locked(struct store *db, const char *const *dirs, size_t n_dirs,
                  struct ingest_report *report, struct err *err);

#endif
