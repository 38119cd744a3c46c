/* store: opens, checks, migrates and queries the one SQLite database of reel.
 *
 * The database is a cache of the event logs (db/ingest.h): it can be deleted and rebuilt. Only
 * `reel` opens it, through one connection a process. Apart from migrations, only an ingester that
 * holds the lease `<path>.lock` writes to it.
 *
 * Journal: write-ahead logging (WAL) is used only when the file lies on a file system that is known
 * to be local (an allow-list of statfs types) AND the SQLite library is 3.51.3 or newer. WAL needs
 * shared memory on one host, and older libraries can corrupt a WAL file when a checkpoint meets a
 * commit (sqlite.org/wal.html, "WAL-reset bug"). Otherwise the rollback journal is used.
 * The mode is set at every open for writing, so a moved file gets the mode of its new place.
 *
 * Schema: application_id marks the file as ours, and user_version counts the migrations that were
 * applied (db/schema.h). Opening for writing migrates, each step in a transaction, and makes the
 * views anew if this program has another text of them. A file from a newer reel is refused.
 *
 * Errors: ERR_NOT_FOUND says that there is no file (when reading), ERR_CORRUPT that the file is
 * damaged (the sentence names `reel db rebuild`) or not ours, ERR_STATE that its schema is newer or
 * older than this program's or that an interrupted write must be undone first, ERR_BUSY that it was
 * locked longer than STORE_BUSY_S, ERR_INPUT that the path is no file, or that the SQL is wrong or
 * writes to a database that was opened for reading. The rest is ERR_NOMEM or ERR_IO.
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
#include "base/json.h"

enum store_flags {
    STORE_READ = 0,  /* never writes and never migrates */
    STORE_WRITE = 1, /* creates and migrates */
    STORE_CHECK = 2, /* runs quick_check, which reads the whole file */
};
enum { STORE_BUSY_S = 10 }; /* how long a statement waits for another process's lock */

struct store;
int store_open(const char *path, unsigned flags, struct store **out, struct err *err);
int store_folder_make(const char *path, struct err *err); /* makes the folder of a database */
/* Says whether there is a file that never was reel's database, damaged or not. */
bool store_is_foreign(const char *path);
void store_close(struct store *db); /* NULL is fine */
const char *store_path(const struct store *db);

/* Opens the file at the path again if it is no longer the one that was opened, because a rebuild
 * replaced it. No query may be in progress. */
int store_refresh(struct store *db, struct err *err);

/* Decides whether WAL may be used, given the statfs f_type and sqlite3_libversion_number(). */
bool store_wal_allowed(long fs_type, int sqlite_version);

/* ---- asking ---- */
struct store_query;

/* Runs statements without a result, several at once. */
int store_exec(struct store *db, const char *sql, struct err *err);
/* Prepares one statement. Its parameters ?1, ?2 … are NULL until they are bound. Bound text is
 * copied. */
int store_ask(struct store *db, const char *sql, struct store_query **out, struct err *err);
/* Bind a parameter, counted from 1. A text of NULL and a number of NaN become SQL's NULL. */
void store_bind_text(struct store_query *q, int i, const char *text);
void store_bind_int(struct store_query *q, int i, int64_t value);
void store_bind_num(struct store_query *q, int i, double value);
/* Returns 1 when there is a row, 0 at the end, <0 on an error. */
int store_next(struct store_query *q, struct err *err);
/* Returns the id of the row that the last statement of this connection, an INSERT, made; 0: it made
 * none. */
int64_t store_inserted(const struct store_query *q);
void store_reset(struct store_query *q); /* Lets the query run again with new bindings. */
void store_end(struct store_query *q);   /* NULL is fine */
/* Runs one statement with its parameter ?1 bound to `text`, and calls `row` for each of its rows;
 * `row` may be NULL. */
typedef void store_row_fn(struct store_query *q, void *ctx);
int store_each(struct store *db, const char *sql, const char *text, store_row_fn *row, void *ctx,
               struct err *err);

enum store_type { STORE_NULL, STORE_INT, STORE_NUM, STORE_TEXT, STORE_BLOB };
int store_columns(const struct store_query *q);
const char *store_column_name(const struct store_query *q, int i); /* i counts from 0 */
enum store_type store_column_type(const struct store_query *q, int i);
/* Returns a text that is borrowed until the next call on q; "" for NULL. */
const char *store_text(struct store_query *q, int i);
int64_t store_int(struct store_query *q, int i);      /* 0 for NULL */
double store_num(struct store_query *q, int i);       /* NaN for NULL */
/* Writes the row as an object, with its columns by name. */
void store_row_write(struct store_query *q, struct json_out *o);

/* Reads one row with one column. ERR_NOT_FOUND: there is no row, and *out is unchanged. */
int store_ask_int(struct store *db, const char *sql, int64_t *out, struct err *err);

#endif
