#include "db/store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "db/schema.h"
#include "db/store_priv.h"

struct store {
    sqlite3 *sql;
    unsigned flags;
    dev_t dev; /* of the opened file: a rebuild may replace it */
    ino_t ino;
    char path[LIMIT_PATH_BYTES];
};

struct store_query {
    sqlite3 *sql;
    sqlite3_stmt *stmt;
    /* SQLite's code after a bind or a column ran out of memory; the next step reports it */
    int failed;
};

/* ---- errors ---- */

static int readonly_error(sqlite3 *sql, const char *file, const char *what, struct err *err)
{
    if (sqlite3_extended_errcode(sql) == SQLITE_READONLY_ROLLBACK)
        return err_set(err, ERR_STATE,
                       "%s: an interrupted write is to be undone first: run 'reel db ingest'",
                       file);
    return err_set(err, ERR_INPUT, "%s: opened for reading only, cannot %s", file, what);
}

static int no_locks(const char *file, struct err *err)
{
    return err_set(err, ERR_IO,
                   "%s: its file system has no locks (fcntl), which a database needs: give --db a "
                   "path on one that has them",
                   file);
}

/* Reports why the disk failed; `last` is errno after the call. */
static int io_error(sqlite3 *sql, int last, const char *file, const char *what, struct err *err)
{
    int code = sqlite3_extended_errcode(sql);
    /* SQLite does not keep the reason of a COMMIT that could not write. */
    int why = code == SQLITE_IOERR_WRITE ? last : sqlite3_system_errno(sql);
    if (code == SQLITE_IOERR_RDLOCK || code == SQLITE_IOERR_LOCK ||
        code == SQLITE_IOERR_CHECKRESERVEDLOCK)
        return no_locks(file, err);
    if (why == EDQUOT) /* SQLITE_FULL stands for ENOSPC alone */
        return err_set(err, ERR_IO,
                       "%s: the disk quota is used up, cannot %s: nothing was changed", file, what);
    if (why == EFBIG)
        return err_set(err, ERR_IO,
                       "%s: cannot %s: %s: raise the limit of file sizes (ulimit -f)", file, what,
                       strerror(why));
    return err_set(err, ERR_IO, "%s: cannot %s: %s", file, what, sqlite3_errmsg(sql));
}

int store_error(sqlite3 *sql, int rc, const char *what, struct err *err)
{
    int last = errno;
    const char *file = sqlite3_db_filename(sql, "main");
    if (!file || !file[0])
        file = "database";
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return err_set(err, ERR_NOMEM, "%s: out of memory, cannot %s", file, what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        if (last == ENOLCK) /* see busy_wait */
            return no_locks(file, err);
        return err_set(err, ERR_BUSY,
                       "%s: locked by another process for %d s, cannot %s: try again", file,
                       STORE_BUSY_S, what);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(err, ERR_CORRUPT,
                       "%s: damaged, or not a database (%s): 'reel db rebuild' makes it anew from "
                       "the event logs",
                       file, sqlite3_errmsg(sql));
    case SQLITE_FULL:
        return err_set(err, ERR_IO,
                       "%s: no space left on the device, cannot %s: nothing was changed", file,
                       what);
    case SQLITE_READONLY: return readonly_error(sql, file, what, err);
    case SQLITE_IOERR: return io_error(sql, last, file, what, err);
    case SQLITE_ERROR:
    case SQLITE_RANGE:
        return err_set(err, ERR_INPUT, "%s: cannot %s: %s", file, what, sqlite3_errmsg(sql));
    default:
        return err_set(err, ERR_IO, "%s: cannot %s: %s", file, what, sqlite3_errmsg(sql));
    }
}

/* ---- journal mode ---- */

/* Lists the f_type of file systems whose locks and shared memory stay on one host (linux/magic.h,
 * statfs(2)). */
static const struct {
    long type;
    const char *name;
} local_fs[] = {
    {0xEF53, "ext2/3/4"},  {0x58465342, "xfs"},  {0x9123683E, "btrfs"}, {0x01021994, "tmpfs"},
    {0xF2F52010, "f2fs"},  {0x2FC12FC1, "zfs"},  {0xCA451A4E, "bcachefs"},
};
enum { WAL_SAFE_VERSION = 3051003 }; /* the first release without the WAL-reset bug */

bool store_wal_allowed(long fs_type, int sqlite_version)
{
    bool local = false;
    for (size_t i = 0; i < ARRAY_LEN(local_fs); i++)
        local = local || local_fs[i].type == fs_type;
    return local && sqlite_version >= WAL_SAFE_VERSION;
}

static int journal_set(struct store *db, struct err *err)
{
    struct statfs fs;
    sqlite3_stmt *stmt = NULL;
    if (statfs(db->path, &fs) != 0)
        return err_set_errno(err, ERR_IO, "cannot ask the file system of %s", db->path);
    bool wal = store_wal_allowed((long)fs.f_type, sqlite3_libversion_number());
    int rc = sqlite3_prepare_v2(
        db->sql, wal ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    bool agreed = rc == SQLITE_ROW &&
                  strcmp((const char *)sqlite3_column_text(stmt, 0), wal ? "wal" : "delete") == 0;
    sqlite3_finalize(stmt);
    if (agreed)
        return 0;
    return store_error(db->sql, rc == SQLITE_ROW ? SQLITE_BUSY : rc, "choose the journal", err);
}

/* ---- opening ---- */

static int quick_check(struct store *db, struct err *err)
{
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(db, "PRAGMA quick_check(1)", &q, err)) < 0)
        return rc;
    if ((rc = store_next(q, err)) > 0 && strcmp(store_text(q, 0), "ok") != 0)
        rc = err_set(err, ERR_CORRUPT,
                     "%s: damaged (%s): 'reel db rebuild' makes it anew from the event logs",
                     db->path, store_text(q, 0));
    store_end(q);
    return rc < 0 ? rc : 0;
}

/* Reads whose file it is, in one statement: between two, another process may make the database. */
static int schema_look(struct store *db, int64_t *app, int64_t *version, int64_t *objects,
                       struct err *err)
{
    static const char sql[] = "SELECT application_id, user_version,"
                              " (SELECT count(*) FROM sqlite_schema)"
                              " FROM pragma_application_id, pragma_user_version";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(db, sql, &q, err)) < 0)
        return rc;
    if ((rc = store_next(q, err)) > 0) {
        *app = store_int(q, 0);
        *version = store_int(q, 1);
        *objects = store_int(q, 2);
    }
    store_end(q);
    return rc < 0 ? rc : 0;
}

/* Checks the schema. A reader accepts only the version it knows; a writer migrates, and renews the
 * views. A file of size 0 is a new database. */
static int schema_settle(struct store *db, struct err *err)
{
    int64_t app = 0, version = 0, objects = 0;
    int rc;
    if ((rc = schema_look(db, &app, &version, &objects, err)) < 0)
        return rc;
    if (app != SCHEMA_APPLICATION_ID && (objects || app || version))
        return err_set(err, ERR_CORRUPT,
                       "%s: a database of another program (application id %lld): give another --db",
                       db->path, (long long)app);
    if (version > schema_version())
        return err_set(
            err, ERR_STATE,
            "%s: written by a newer reel (schema %lld, this one knows %d): use that reel, or "
            "'reel db rebuild' to make it anew",
            db->path, (long long)version, schema_version());
    if (db->flags & STORE_WRITE)
        return schema_migrate(db->sql, schema_version(), err);
    if (version < schema_version())
        return err_set(
            err, ERR_STATE,
            "%s: schema %lld is older than this reel's %d: 'reel db ingest' brings it up to date",
            db->path, (long long)version, schema_version());
    return 0;
}

int store_folder_make(const char *path, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return 0;
    *slash = 0;
    return file_mkdirs(dir, err);
}

/* Reads the application id, which is at byte 68 of an SQLite file, high byte first. So it is found
 * even if earlier bytes are damaged. */
bool store_is_foreign(const char *path)
{
    enum { APPLICATION_ID_AT = 68 };
    unsigned char head[APPLICATION_ID_AT + 4] = {0};
    bool ours = true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    for (int i = 0; i < 4; i++)
        ours = ours && head[APPLICATION_ID_AT + i] ==
                           (unsigned char)(SCHEMA_APPLICATION_ID >> (24 - 8 * i));
    if (fd >= 0)
        close(fd);
    return n > 0 && !ours;
}

/* Waits for another process's lock; returns 0 after STORE_BUSY_S. To SQLite a file system that
 * refuses locks with ENOLCK is busy, too: that is not waited for. */
static int busy_wait(void *unused, int waits)
{
    enum { WAIT_MS = 20 };
    (void)unused;
    if (errno == ENOLCK || waits >= STORE_BUSY_S * 1000 / WAIT_MS)
        return 0;
    sqlite3_sleep(WAIT_MS);
    return 1;
}

static int store_connect(struct store *db, struct err *err)
{
    struct stat st;
    bool write = db->flags & STORE_WRITE;
    int rc = write ? store_folder_make(db->path, err) : 0;
    if (rc < 0)
        return rc;
    if (stat(db->path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(err, ERR_INPUT, "%s is not a file: give the path of a database", db->path);
    if (!write && stat(db->path, &st) != 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND,
                       "%s: no database there: 'reel db ingest' makes it from the event logs",
                       db->path);
    int mode = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    /* Only one thread uses the connection, so it needs no mutex at each call. */
    rc = sqlite3_open_v2(db->path, &db->sql, mode | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return err_set(err, rc == SQLITE_NOMEM ? ERR_NOMEM : ERR_IO,
                       "cannot open the database %s: %s: check the folder and its permissions",
                       db->path, sqlite3_errstr(rc));
    sqlite3_extended_result_codes(db->sql, 1);
    sqlite3_busy_handler(db->sql, busy_wait, NULL);
    if ((rc = store_exec(db, "PRAGMA foreign_keys=ON", err)) < 0)
        return rc;
    if (db->flags & STORE_CHECK && (rc = quick_check(db, err)) < 0)
        return rc;
    if ((rc = schema_settle(db, err)) < 0)
        return rc;
    if (stat(db->path, &st) != 0)
        return err_set_errno(err, ERR_IO, "cannot look at %s", db->path);
    db->dev = st.st_dev;
    db->ino = st.st_ino;
    return write ? journal_set(db, err) : 0;
}

int store_open(const char *path, unsigned flags, struct store **out, struct err *err)
{
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof (*out)->path)
        return err_set(err, ERR_INPUT, "database path '%.80s' is empty or too long", path);
    struct store *db = calloc(1, sizeof *db);
    int rc;
    if (!db)
        return err_set(err, ERR_NOMEM, "out of memory opening %s", path);
    db->flags = flags;
    memcpy(db->path, path, n + 1);
    if ((rc = store_connect(db, err)) < 0)
        goto out;
    *out = db;
    db = NULL;
out:
    store_close(db);
    return rc;
}

void store_close(struct store *db)
{
    if (!db)
        return;
    sqlite3_close_v2(db->sql);
    free(db);
}

int store_refresh(struct store *db, struct err *err)
{
    struct stat st;
    if (stat(db->path, &st) == 0 && st.st_dev == db->dev && st.st_ino == db->ino)
        return 0;
    sqlite3_close_v2(db->sql);
    db->sql = NULL;
    return store_connect(db, err);
}

const char *store_path(const struct store *db) { return db->path; }
sqlite3 *store_sqlite(struct store *db) { return db->sql; }

/* ---- asking ---- */

int store_exec(struct store *db, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(db->sql, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_error(db->sql, rc, "run a statement", err);
}

int store_ask(struct store *db, const char *sql, struct store_query **out, struct err *err)
{
    const char *tail = NULL;
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db->sql, sql, -1, &stmt, &tail);
    if (rc != SQLITE_OK)
        return store_error(db->sql, rc, "prepare the query", err);
    if (!stmt || tail[strspn(tail, " \t\r\n;")]) {
        sqlite3_finalize(stmt);
        return err_set(err, ERR_INPUT, "%s: give exactly one SQL statement",
                       stmt ? "text after the first statement" : "no statement");
    }
    struct store_query *q = calloc(1, sizeof *q);
    if (!q) {
        sqlite3_finalize(stmt);
        return err_set(err, ERR_NOMEM, "out of memory preparing a query");
    }
    *q = (struct store_query){.sql = db->sql, .stmt = stmt};
    *out = q;
    return 0;
}

/* Checks the result of a bind, because after a failed one the statement would silently ask
 * something else. A parameter that does not exist is a bug in the caller; the next step reports
 * missing memory. */
static void bound(struct store_query *q, int rc)
{
    BUG_ON(rc != SQLITE_OK && rc != SQLITE_NOMEM && rc != SQLITE_TOOBIG);
    if (rc != SQLITE_OK)
        q->failed = rc;
}

void store_bind_text(struct store_query *q, int i, const char *text)
{
    bound(q, sqlite3_bind_text(q->stmt, i, text, -1, SQLITE_TRANSIENT));
}

void store_bind_int(struct store_query *q, int i, int64_t value)
{
    bound(q, sqlite3_bind_int64(q->stmt, i, value));
}

void store_bind_num(struct store_query *q, int i, double value)
{
    bound(q, sqlite3_bind_double(q->stmt, i, value));
}

int store_next(struct store_query *q, struct err *err)
{
    int rc = q->failed ? q->failed : sqlite3_step(q->stmt);
    if (rc == SQLITE_ROW)
        return 1;
    return rc == SQLITE_DONE ? 0 : store_error(q->sql, rc, "run the query", err);
}

int64_t store_inserted(const struct store_query *q)
{
    return sqlite3_changes(q->sql) ? sqlite3_last_insert_rowid(q->sql) : 0;
}

void store_reset(struct store_query *q)
{
    /* The result repeats the error of the last step, which the caller has seen. */
    sqlite3_reset(q->stmt);
    sqlite3_clear_bindings(q->stmt);
    q->failed = SQLITE_OK;
}

void store_end(struct store_query *q)
{
    if (!q)
        return;
    sqlite3_finalize(q->stmt);
    free(q);
}

int store_each(struct store *db, const char *sql, const char *text, store_row_fn *row, void *ctx,
               struct err *err)
{
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(db, sql, &q, err)) < 0)
        return rc;
    store_bind_text(q, 1, text);
    while ((rc = store_next(q, err)) > 0)
        if (row)
            row(q, ctx);
    store_end(q);
    return rc;
}

int store_columns(const struct store_query *q) { return sqlite3_column_count(q->stmt); }
const char *store_column_name(const struct store_query *q, int i)
{
    return sqlite3_column_name(q->stmt, i);
}

enum store_type store_column_type(const struct store_query *q, int i)
{
    switch (sqlite3_column_type(q->stmt, i)) {
    case SQLITE_INTEGER: return STORE_INT;
    case SQLITE_FLOAT: return STORE_NUM;
    case SQLITE_TEXT: return STORE_TEXT;
    case SQLITE_BLOB: return STORE_BLOB;
    default: return STORE_NULL;
    }
}

const char *store_text(struct store_query *q, int i)
{
    const char *text = (const char *)sqlite3_column_text(q->stmt, i);
    if (!text && sqlite3_column_type(q->stmt, i) != SQLITE_NULL)
        q->failed = SQLITE_NOMEM;
    return text ? text : "";
}

int64_t store_int(struct store_query *q, int i) { return sqlite3_column_int64(q->stmt, i); }

double store_num(struct store_query *q, int i)
{
    return sqlite3_column_type(q->stmt, i) == SQLITE_NULL ? NAN : sqlite3_column_double(q->stmt, i);
}

void store_row_write(struct store_query *q, struct json_out *o)
{
    json_obj_begin(o, NULL);
    for (int i = 0; i < store_columns(q); i++) {
        const char *name = store_column_name(q, i);
        switch (store_column_type(q, i)) {
        case STORE_INT: json_put_int(o, name, store_int(q, i)); break;
        case STORE_NUM: json_put_num(o, name, store_num(q, i)); break;
        case STORE_NULL: json_put_null(o, name); break;
        case STORE_TEXT:
        case STORE_BLOB: json_put_text(o, name, store_text(q, i)); break;
        }
    }
    json_obj_end(o);
}

int store_ask_int(struct store *db, const char *sql, int64_t *out, struct err *err)
{
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(db, sql, &q, err)) < 0)
        return rc;
    if ((rc = store_next(q, err)) > 0)
        *out = store_int(q, 0);
    else if (rc == 0) /* there is no row */
        rc = err_set(err, ERR_NOT_FOUND, "%s: no row for: %s", db->path, sql);
    store_end(q);
    return rc < 0 ? rc : 0;
}
