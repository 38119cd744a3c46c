/* store: the one SQLite database of reel: opening, checking, migrating, asking.
 *
 * The database is a cache of the event logs (db/ingest.h): it can be deleted and rebuilt. Only `reel` opens it, through
 * one connection a process, and only an ingester that holds the lease `<path>.lock` writes to it.
 *
 * Journal: write-ahead logging only when the file lies on a file system known to be local (allow-list of statfs types)
 * AND the SQLite library is 3.51.3 or newer: WAL needs shared memory on one host, and older libraries can corrupt
 * a WAL file when a checkpoint meets a commit (sqlite.org/wal.html, "WAL-reset bug"). Otherwise the rollback journal.
 * store_journal() says which and why. The mode is set at every open for writing, so a moved file follows its new place.
 *
 * Schema: application_id marks the file as ours, user_version counts the migrations applied (db/schema.h). Opening for
 * writing migrates, each step in a transaction; a file from a newer reel is refused.
 *
 * Errors: ERR_NOT_FOUND no file (reading), ERR_CORRUPT damaged or not ours (the sentence says `reel db rebuild`),
 * ERR_STATE newer or older schema than this program's, ERR_BUSY locked longer than STORE_BUSY_S, ERR_IO the rest.
 *
 *     struct store *db;
 *     struct store_query *q;
 *     store_open("reel.db", STORE_READ, &db, err);
 *     store_ask(db, "SELECT step, mfu FROM v_step WHERE run = ?", &q, err);
 *     store_bind_text(q, 1, run);
 *     while ((rc = store_next(q, err)) > 0) … store_int(q, 0), store_num(q, 1) …
 *     store_end(q);
 *     store_close(db);
 */
#ifndef DB_STORE_H
#define DB_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum store_flags {
    STORE_READ = 0,  /* never writes, never migrates */
    STORE_WRITE = 1, /* creates and migrates */
    STORE_CHECK = 2, /* run quick_check (reads the whole file) before returning */
};
enum { STORE_BUSY_S = 10 }; /* how long a statement waits for another process's lock */

struct store;
int store_open(const char *path, unsigned flags, struct store **out, struct err *err); /* STORE_WRITE makes the folder */
int store_folder_make(const char *path, struct err *err);
bool store_is_foreign(const char *path); /* something stands there that never was reel's database, damaged or not */
void store_close(struct store *db); /* NULL is fine */
const char *store_path(const struct store *db);
/* "wal: …" or "delete: …" with the reason. */
const char *store_journal(const struct store *db);

/* If the file at the path is no longer the one opened (a rebuild replaced it), open the new one in its place. No query
 * may be in progress. */
int store_refresh(struct store *db, struct err *err);

/* The journal rule as a function of the statfs f_type and sqlite3_libversion_number(); *why (may be NULL) is static. */
bool store_wal_allowed(long fs_type, int sqlite_version, const char **why);

/* ---- asking ---- */
struct store_query;

/* Statements without a result, several at once. */
int store_exec(struct store *db, const char *sql, struct err *err);
/* One statement, parameters ?1, ?2 … unbound (NULL). Text bound is copied. */
int store_ask(struct store *db, const char *sql, struct store_query **out, struct err *err);
void store_bind_text(struct store_query *q, int i, const char *text); /* from 1; NULL text: NULL */
void store_bind_int(struct store_query *q, int i, int64_t value);
void store_bind_num(struct store_query *q, int i, double value); /* NaN: NULL */
int store_next(struct store_query *q, struct err *err);          /* 1 a row, 0 the end, <0 */
void store_reset(struct store_query *q);                          /* run again with new bindings */
void store_end(struct store_query *q);                           /* NULL is fine */

enum store_type { STORE_NULL, STORE_INT, STORE_NUM, STORE_TEXT, STORE_BLOB };
int store_columns(const struct store_query *q);
const char *store_column_name(const struct store_query *q, int i); /* from 0 */
enum store_type store_column_type(const struct store_query *q, int i);
const char *store_text(struct store_query *q, int i); /* borrowed until the next call on q; "" for NULL */
int64_t store_int(struct store_query *q, int i);      /* 0 for NULL */
double store_num(struct store_query *q, int i);       /* NaN for NULL */

/* One row, one column; *out untouched and ERR_NOT_FOUND when there is no row. */
int store_ask_int(struct store *db, const char *sql, int64_t *out, struct err *err);

#endif
