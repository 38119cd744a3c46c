#include "db/ingest.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/evlog.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/num.h"
#include "db/event.h"
#include "db/fold.h"
#include "db/ingest_priv.h"
#include "db/queries.h"
#include "db/schema_text.h"
#include "profiles/layout.h"

enum { HASH_HEX_BYTES = 17 };

struct ingest {
    struct store *db;
    struct event_writer *writer;
    char run[LIMIT_NAME_BYTES]; /* the run whose new events are being gathered; "": none */
    struct fold_news news;
    struct ingest_report report;
};

/* Holds the state of a log at the last ingest (table file), and now. */
struct log_file {
    const char *path;
    int64_t bytes, mtime_ns, read_to, last_seq; /* bytes -1: the log must be read anew */
    char tail_hash[HASH_HEX_BYTES];
    int64_t now_bytes, now_mtime_ns;
};

/* ---- small questions ---- */

static int tail_hash(const char *path, int64_t end, char out[HASH_HEX_BYTES], struct err *err)
{
    uint64_t hash = 0;
    int rc;
    if ((rc = evlog_tail_hash(path, end, &hash, err)) < 0)
        return rc;
    snprintf(out, HASH_HEX_BYTES, "%016llx", (unsigned long long)hash);
    return 0;
}

/* Returns 1 if the file is there, 0 if it is gone, <0 on an error. */
static int log_file_look(struct ingest *in, struct log_file *f, struct err *err)
{
    struct store_query *q = NULL;
    struct stat st;
    if (stat(f->path, &st) != 0)
        return errno == ENOENT
                   ? 0
                   : err_set_errno(err, ERR_IO, "cannot look at event log '%s'", f->path);
    f->now_bytes = st.st_size;
    f->now_mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    f->bytes = -1;
    f->read_to = f->last_seq = 0;
    f->tail_hash[0] = 0;
    int rc = store_ask(
        in->db, "SELECT bytes, mtime_ns, read_to, last_seq, tail_hash FROM file WHERE path = ?1",
        &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->path);
    if ((rc = store_next(q, err)) > 0) {
        f->bytes = store_int(q, 0);
        f->mtime_ns = store_int(q, 1);
        f->read_to = store_int(q, 2);
        f->last_seq = store_int(q, 3);
        snprintf(f->tail_hash, sizeof f->tail_hash, "%s", store_text(q, 4));
    }
    store_end(q);
    return rc < 0 ? rc : 1;
}

static bool log_file_unchanged(const struct log_file *f)
{
    return f->bytes >= 0 && f->bytes == f->now_bytes && f->mtime_ns == f->now_mtime_ns;
}

/* ---- which files ---- */

int ingest_source_add(struct store *db, const char *dir, struct err *err)
{
    char real[PATH_MAX];
    if (!realpath(dir, real)) {
        if (errno == ENOENT)
            return 0; /* nothing has been written there yet */
        return err_set_errno(err, ERR_IO, "cannot look into folder '%s'", dir);
    }
    return store_each(db, "INSERT INTO source(path) VALUES (?1) ON CONFLICT DO NOTHING", real, NULL,
                      NULL, err);
}

static void glob_escape(struct str *out, const char *path)
{
    for (; *path; path++) {
        if (strchr("\\*?[", *path))
            str_addc(out, '\\');
        str_addc(out, *path);
    }
}

/* Adds the files that match the pattern to a temporary table, by their resolved names. */
static int pattern_list(struct ingest *in, const char *pattern, const char *sql, struct err *err)
{
    char real[PATH_MAX];
    glob_t found = {0};
    int rc = 0;
    if (glob(pattern, 0, NULL, &found) == GLOB_NOSPACE) {
        rc = err_set(err, ERR_NOMEM, "out of memory listing event logs by '%s'", pattern);
        goto out;
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (realpath(found.gl_pathv[i], real) &&
            (rc = store_each(in->db, sql, real, NULL, NULL, err)) < 0)
            goto out;
out:
    globfree(&found);
    return rc;
}

static int source_list(struct ingest *in, const char *dir, struct err *err)
{
    static const char logs[] = "INSERT INTO found(path) VALUES (?1) ON CONFLICT DO NOTHING";
    static const char ends[] = "INSERT INTO found_end(path) VALUES (?1) ON CONFLICT DO NOTHING";
    static const struct {
        const char *text, *sql;
    } patterns[] = {{"/*.evlog", logs},
                    {"/events/*.evlog", logs},
                    {"/.reel/events/*.evlog", logs},
                    {"/runs/*/events/*.evlog", logs},
                    {"/tunes/*/events/*.evlog", logs},
                    {"/curations/*/.reel/events/*.evlog", logs},
                    {"/events/end.*", ends},
                    {"/runs/*/events/end.*", ends}};
    struct str pattern = STR_INIT;
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        str_clear(&pattern);
        glob_escape(&pattern, dir);
        str_add(&pattern, patterns[i].text);
        if ((rc = str_check(&pattern, err)) < 0)
            goto out;
        if ((rc = pattern_list(in, pattern.p, patterns[i].sql, err)) < 0)
            goto out;
    }
out:
    str_release(&pattern);
    return rc;
}

/* Lists all logs under all known folders in the temporary table `found`, and the files whose names
 * may tell an end in `found_end`. */
static int files_find(struct ingest *in, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(in->db, "SELECT path FROM source ORDER BY path", &q, err);
    if (rc < 0)
        return rc;
    while ((rc = store_next(q, err)) > 0)
        if ((rc = source_list(in, store_text(q, 0), err)) < 0)
            break;
    store_end(q);
    return rc;
}

/* ---- reading one file ---- */

static int log_file_save(struct ingest *in, const struct log_file *f, const struct event_key *k,
                         struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(in->db, sql_file_save, &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->path);
    store_bind_int(q, 2, f->now_bytes);
    store_bind_int(q, 3, f->now_mtime_ns);
    store_bind_int(q, 4, f->read_to);
    store_bind_int(q, 5, f->last_seq);
    store_bind_text(q, 6, f->tail_hash);
    if (k->run) {
        store_bind_text(q, 7, k->run);
        store_bind_int(q, 8, k->attempt);
        store_bind_text(q, 9, k->writer);
    }
    rc = store_next(q, err);
    store_end(q);
    return rc;
}

static int damage_add(struct ingest *in, const char *path, int64_t at, int64_t bytes,
                      const char *reason, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(in->db,
                       "INSERT INTO damage(file, at_byte, bytes, reason) VALUES (?1, ?2, ?3, ?4)"
                       " ON CONFLICT DO NOTHING",
                       &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, path);
    store_bind_int(q, 2, at);
    store_bind_int(q, 3, bytes);
    store_bind_text(q, 4, reason);
    rc = store_next(q, err);
    store_end(q);
    return rc;
}

/* Writes the gathered news of one run into the temporary table `touched`. */
static int news_save(struct ingest *in, struct err *err)
{
    struct store_query *q = NULL;
    if (!in->run[0])
        return 0;
    int rc = store_ask(
        in->db,
        "INSERT INTO touched(run, first_id, last_id, whole) VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT(run) DO UPDATE SET first_id = min(first_id, ?2), last_id = max(last_id, ?3),"
        " whole = max(whole, ?4)",
        &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, in->run);
    store_bind_int(q, 2, in->news.first_id);
    store_bind_int(q, 3, in->news.last_id);
    store_bind_int(q, 4, in->news.whole);
    rc = store_next(q, err);
    store_end(q);
    in->run[0] = 0;
    return rc;
}

/* Remembers which events of a run are new. Events come run by run, so the table is written when
 * those of another run begin. */
static int news_add(struct ingest *in, const char *run, int64_t id, bool replaced, struct err *err)
{
    if (strcmp(in->run, run) != 0) {
        int rc = news_save(in, err);
        if (rc < 0)
            return rc;
        snprintf(in->run, sizeof in->run, "%s", run);
        in->news = (struct fold_news){id, id, false};
    }
    in->news.first_id = id < in->news.first_id ? id : in->news.first_id;
    in->news.last_id = num_max_i64(in->news.last_id, id);
    in->news.whole |= replaced;
    return 0;
}

/* Reads the events from f->read_to to the end. *gap becomes true when the first one is not the
 * successor of the last one read before. Missing events can then be found only by reading from the
 * start. */
static int events_read(struct ingest *in, struct evlog_reader *r, struct log_file *f,
                       struct event_key *first, char run[], char writer[], bool *gap,
                       struct err *err)
{
    const cJSON *event = NULL;
    struct event_key k;
    int64_t id = 0;
    bool replaced = false;
    int rc;
    while ((rc = evlog_reader_next(r, &event, err)) > 0) {
        if (!event_key_read(event, &k)) {
            rc = damage_add(in, f->path, evlog_reader_offset(r) - 1, 1,
                            "not an event: run, attempt, writer, seq, ev, wall, mono", err);
        } else {
            *gap = *gap || (f->read_to > 0 && !first->run && k.seq > f->last_seq + 1);
            if (!first->run) {
                snprintf(run, LIMIT_NAME_BYTES, "%s", k.run);
                snprintf(writer, LIMIT_NAME_BYTES, "%s", k.writer);
                *first = (struct event_key){run, writer, k.attempt, k.seq};
            }
            f->last_seq = num_max_i64(f->last_seq, k.seq);
            size_t bytes;
            const char *text = evlog_reader_text(r, &bytes);
            rc = event_write(in->writer, event, text, bytes, &id, &replaced, err);
            in->report.events_new += rc > 0;
            if (rc > 0)
                rc = news_add(in, k.run, id, replaced, err);
        }
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* Drops the damage that the last reading recorded from f->read_to on: it is found again if it is
 * still there. */
static int damage_drop(struct ingest *in, const struct log_file *f, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(in->db, "DELETE FROM damage WHERE file = ?1 AND at_byte >= ?2", &q, err);
    if (rc < 0)
        return rc;
    store_bind_text(q, 1, f->path);
    store_bind_int(q, 2, f->read_to);
    rc = store_next(q, err);
    store_end(q);
    return rc;
}

/* Says whether there is damage before the place that was reached. An unfinished end is no reason to
 * read everything again. */
static bool is_damaged_within(const struct evlog_reader *r)
{
    const struct evlog_damage *list;
    size_t n = evlog_reader_damage(r, &list);
    for (size_t i = 0; i < n; i++)
        if (list[i].offset < evlog_reader_offset(r))
            return true;
    return false;
}

static int damage_save(struct ingest *in, struct evlog_reader *r, const char *path, struct err *err)
{
    const struct evlog_damage *list;
    size_t n = evlog_reader_damage(r, &list);
    int rc;
    for (size_t i = 0; i < n; i++)
        if ((rc = damage_add(in, path, list[i].offset, list[i].bytes, list[i].reason, err)) < 0)
            return rc;
    return 0;
}

/* Continues reading where the last ingest stopped. If there is damage, the whole file is read again
 * to list it: skipped parts may be complete by now, and a gap in the numbering is seen only with
 * the events on both sides of it. */
static int events_read_on(struct ingest *in, struct evlog_reader *r, struct log_file *f,
                          struct event_key *first, char run[], char writer[], struct err *err)
{
    bool gap = false, again = f->read_to > 0;
    int rc;
    if ((rc = damage_drop(in, f, err)) < 0)
        return rc;
    if (again && (rc = evlog_reader_seek(r, f->read_to, err)) < 0)
        return rc;
    if ((rc = events_read(in, r, f, first, run, writer, &gap, err)) < 0)
        return rc;
    if (!again || !(gap || is_damaged_within(r)))
        return 0;
    f->read_to = f->last_seq = 0;
    if ((rc = evlog_reader_seek(r, 0, err)) < 0)
        return rc;
    if ((rc = damage_drop(in, f, err)) < 0)
        return rc;
    return events_read(in, r, f, first, run, writer, &gap, err);
}

static int log_file_read(struct ingest *in, struct log_file *f, struct err *err)
{
    struct evlog_reader *r = NULL;
    struct event_key first = {0};
    char run[LIMIT_NAME_BYTES], writer[LIMIT_NAME_BYTES];
    int rc;
    in->report.files_read++;
    if ((rc = evlog_reader_open(f->path, &r, err)) < 0)
        return rc;
    if ((rc = log_file_save(in, f, &first, err)) < 0) /* damage refers to this row */
        goto out;
    if ((rc = events_read_on(in, r, f, &first, run, writer, err)) < 0)
        goto out;
    if ((rc = damage_save(in, r, f->path, err)) < 0)
        goto out;
    f->read_to = evlog_reader_offset(r);
    if ((rc = tail_hash(f->path, f->read_to, f->tail_hash, err)) < 0)
        goto out;
    rc = log_file_save(in, f, &first, err);
out:
    evlog_reader_close(r);
    return rc;
}

/* ---- rewritten files ---- */

static int writer_forget(struct ingest *in, const char *path, struct err *err)
{
    static const char *const sql[] = {
        "INSERT INTO touched(run, first_id, last_id, whole)"
        " SELECT run, 0, 0, 1 FROM file WHERE path = ?1 AND run IS NOT NULL"
        " ON CONFLICT(run) DO UPDATE SET whole = 1",
        "DELETE FROM event WHERE (run, attempt, writer) ="
        " (SELECT run, attempt, writer FROM file WHERE path = ?1)",
        "DELETE FROM conflict WHERE (run, attempt, writer) ="
        " (SELECT run, attempt, writer FROM file WHERE path = ?1)",
        "UPDATE file SET bytes = -1, read_to = 0, last_seq = 0 WHERE path = ?1"
        " OR (run, attempt, writer) = (SELECT run, attempt, writer FROM file WHERE path = ?1)",
        "DELETE FROM damage WHERE file = ?1",
    };
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(sql); i++)
        if ((rc = store_each(in->db, sql[i], path, NULL, NULL, err)) < 0)
            return rc;
    return 0;
}

/* Checks a log that changed. If it became shorter or its end was rewritten, all events of the log's
 * writer are dropped; the log and its copies are read anew. */
static int log_file_verify(struct ingest *in, struct log_file *f, struct err *err)
{
    char now[HASH_HEX_BYTES] = "";
    int rc = log_file_look(in, f, err);
    if (rc <= 0 || f->bytes < 0 || log_file_unchanged(f))
        return rc < 0 ? rc : 0;
    if (f->now_bytes >= f->read_to && (rc = tail_hash(f->path, f->read_to, now, err)) < 0)
        return rc;
    return strcmp(now, f->tail_hash) == 0 ? 0 : writer_forget(in, f->path, err);
}

static int log_file_ingest(struct ingest *in, struct log_file *f, struct err *err)
{
    int rc = log_file_look(in, f, err);
    if (rc <= 0)
        return rc;
    in->report.files++;
    return log_file_unchanged(f) ? 0 : log_file_read(in, f, err);
}

typedef int log_file_fn(struct ingest *in, struct log_file *f, struct err *err);

static int files_each(struct ingest *in, log_file_fn *fn, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(in->db, "SELECT path FROM found ORDER BY path", &q, err);
    if (rc < 0)
        return rc;
    while ((rc = store_next(q, err)) > 0) {
        struct log_file f = {.path = store_text(q, 0)};
        if ((rc = fn(in, &f, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

/* ---- ends that a file's name tells ---- */

static int named_ingest(struct ingest *in, const char *path, struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct event_key k;
    int64_t id = 0;
    bool replaced = false;
    int rc;
    if ((rc = ingest_named_event(in->db, path, &text, err)) < 0 || !text.len)
        goto out;
    if ((rc = json_parse(text.p, text.len, path, &doc, err)) < 0)
        goto out;
    if ((rc = event_write(in->writer, doc.root, text.p, text.len, &id, &replaced, err)) <= 0)
        goto out;
    in->report.events_new++;
    rc = event_key_read(doc.root, &k) ? news_add(in, k.run, id, replaced, err) : 0;
out:
    json_release(&doc);
    str_release(&text);
    return rc;
}

static int named_each(struct ingest *in, struct err *err)
{
    struct store_query *q = NULL;
    int rc = store_ask(in->db, "SELECT path FROM found_end ORDER BY path", &q, err);
    if (rc < 0)
        return rc;
    while ((rc = store_next(q, err)) > 0)
        if ((rc = named_ingest(in, store_text(q, 0), err)) < 0)
            break;
    store_end(q);
    return rc;
}

/* ---- the whole ---- */

static int runs_fold(struct ingest *in, struct err *err)
{
    static const char sql[] = "SELECT run, first_id, last_id, whole FROM touched ORDER BY run";
    struct store_query *q = NULL;
    int rc;
    if ((rc = news_save(in, err)) < 0)
        return rc;
    if ((rc = store_ask(in->db, sql, &q, err)) < 0)
        return rc;
    while ((rc = store_next(q, err)) > 0) {
        struct fold_news news = {store_int(q, 1), store_int(q, 2), store_int(q, 3)};
        if ((rc = fold_run(in->db, store_text(q, 0), &news, err)) < 0)
            break;
    }
    store_end(q);
    return rc;
}

/* ---- layouts ---- */

/* Writes the keys of a layout into its row. If the text is no layout, its row is deleted. */
static int layout_row_write(struct store *db, const char *text, struct err *err)
{
    struct layout l;
    struct store_query *q = NULL;
    if (layout_parse(text, &l, NULL) < 0)
        return store_each(db, "DELETE FROM layout WHERE text = ?1", text, NULL, NULL, err);
    const int64_t numbers[] = {l.tp, l.sp,   l.cp,   l.pp,  l.vpp,
                               l.dp, l.zero, l.fsdp, l.mbs, l.recompute_layers};
    int rc, n = (int)ARRAY_LEN(numbers);
    if ((rc = store_ask(db, sql_layout_save, &q, err)) < 0)
        return rc;
    store_bind_text(q, 1, text);
    for (int i = 0; i < n; i++)
        store_bind_int(q, 2 + i, numbers[i]);
    store_bind_text(q, 2 + n, cp_kind_names[l.cp_kind]);
    store_bind_text(q, 3 + n, recompute_names[l.recompute]);
    store_bind_text(q, 4 + n, layout_order_names[l.order]);
    rc = store_next(q, err);
    store_end(q);
    return rc < 0 ? rc : 0;
}

/* Reads layouts that exist only as text, from new events or from an older database. */
static int layouts_read(struct store *db, struct err *err)
{
    int rc;
    do {
        struct store_query *q = NULL;
        char *text = NULL;
        if ((rc = store_ask(db, "SELECT text FROM layout WHERE tp IS NULL LIMIT 1", &q, err)) < 0)
            return rc;
        if ((rc = store_next(q, err)) > 0 && !(text = strdup(store_text(q, 0))))
            rc = err_set(err, ERR_NOMEM, "out of memory reading layouts");
        store_end(q);
        if (text && (rc = layout_row_write(db, text, err)) == 0)
            rc = 1;
        free(text);
    } while (rc > 0);
    return rc;
}

static int report_fill(struct ingest *in, struct err *err)
{
    static const char bytes[] = "SELECT coalesce(sum(bytes), 0) FROM damage";
    struct ingest_report *r = &in->report;
    int rc;
    if ((rc = store_ask_int(in->db, "SELECT count(*) FROM damage", &r->damage, err)) < 0)
        return rc;
    if ((rc = store_ask_int(in->db, bytes, &r->damage_bytes, err)) < 0)
        return rc;
    return store_ask_int(in->db, "SELECT count(*) FROM conflict", &r->conflicts, err);
}

/* Does everything inside the transaction, and commits it. */
static int ingest_commit(struct ingest *in, const char *const *dirs, size_t n_dirs, struct err *err)
{
    int rc;
    for (size_t i = 0; i < n_dirs; i++)
        if ((rc = ingest_source_add(in->db, dirs[i], err)) < 0)
            return rc;
    if ((rc = files_find(in, err)) < 0)
        return rc;
    if ((rc = files_each(in, log_file_verify, err)) < 0)
        return rc;
    if ((rc = files_each(in, log_file_ingest, err)) < 0)
        return rc;
    if ((rc = named_each(in, err)) < 0)
        return rc;
    if ((rc = runs_fold(in, err)) < 0)
        return rc;
    if ((rc = layouts_read(in->db, err)) < 0)
        return rc;
    if ((rc = report_fill(in, err)) < 0)
        return rc;
    return store_exec(in->db, "COMMIT", err);
}

static int ingest_all(struct ingest *in, const char *const *dirs, size_t n_dirs, struct err *err)
{
    int rc;
    if ((rc = store_exec(in->db, schema_ingest, err)) < 0)
        return rc;
    if ((rc = ingest_commit(in, dirs, n_dirs, err)) < 0)
        store_exec(in->db, "ROLLBACK", NULL);
    return rc;
}

int ingest_lock(const char *db_path, double wait_s, struct lease **held, struct err *err)
{
    char lock[LIMIT_PATH_BYTES];
    if (snprintf(lock, sizeof lock, "%s.lock", db_path) >= (int)sizeof lock)
        return err_set(err, ERR_LIMIT, "database path '%.80s…' is too long", db_path);
    return lease_take(lock, wait_s, held, err);
}

int ingest_locked(struct store *db, const char *const *dirs, size_t n_dirs,
                  struct ingest_report *report, struct err *err)
{
    struct ingest in = {.db = db};
    int rc;
    if ((rc = event_writer_new(db, &in.writer, err)) < 0)
        return rc;
    if ((rc = ingest_all(&in, dirs, n_dirs, err)) < 0)
        goto out;
    if (report)
        *report = in.report;
out:
    event_writer_free(in.writer);
    return rc;
}

int ingest_run(struct store *db, const char *const *dirs, size_t n_dirs, double wait_s,
               struct ingest_report *report, struct err *err)
{
    struct lease *held = NULL;
    int rc;
    if ((rc = ingest_lock(store_path(db), wait_s, &held, err)) < 0)
        return rc;
    /* While this process waited, a rebuild may have replaced the database file. */
    if ((rc = store_refresh(db, err)) < 0)
        goto out;
    rc = ingest_locked(db, dirs, n_dirs, report, err);
out:
    lease_drop(held);
    return rc;
}

int ingest_open(const char *db_path, const char *const *dirs, size_t n_dirs, double wait_s,
                struct store **out, bool *stale, struct err *err)
{
    struct store *db = NULL;
    *stale = false;
    int rc = 0;
    if (file_exists(db_path) && access(db_path, W_OK) != 0)
        rc = ERR_BUSY; /* this process may only read the database */
    else if ((rc = store_open(db_path, STORE_WRITE, &db, err)) == 0)
        rc = ingest_run(db, dirs, n_dirs, wait_s, NULL, err);
    if (rc == ERR_BUSY) {
        store_close(db);
        db = NULL;
        *stale = true;
        rc = store_open(db_path, STORE_READ, &db, err);
    }
    if (rc < 0) {
        store_close(db);
        return rc;
    }
    *out = db;
    return 0;
}

int ingest_link_curation(const char *home, const char *id, const char *dir, struct err *err)
{
    char folder[LIMIT_PATH_BYTES], link[LIMIT_PATH_BYTES + LIMIT_NAME_BYTES], real[PATH_MAX];
    if (!*id || strchr(id, '/') || strlen(id) >= LIMIT_NAME_BYTES)
        return err_set(err, ERR_INPUT, "curation id '%.80s': give a name without '/'", id);
    if (!realpath(dir, real))
        return err_set_errno(err, ERR_IO, "cannot look at dataset '%s'", dir);
    snprintf(folder, sizeof folder, "%s/curations", home);
    snprintf(link, sizeof link, "%s/%s", folder, id);
    int rc = file_mkdirs(folder, err);
    if (rc < 0)
        return rc;
    unlink(link);
    if (symlink(real, link) != 0 && errno != EEXIST)
        return err_set_errno(err, ERR_IO, "cannot link '%s' to '%s'", link, real);
    return 0;
}
