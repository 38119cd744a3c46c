/* The database under faults: the n-th allocation (SQLite's too), read, write, sync, rename or mkdir
 * fails, or the disk is full from some byte on. What was in it stays in it, the logs are never
 * touched, and the next ingest ends where it should.
 */
// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
// SLOW
#include "tests/lib/day.h"
#include "tests/lib/events_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/hash.h"
#include "db/ingest.h"
#include "tests/lib/fault.h"

static char *home, db_path[300], events[300];

/* ---- SQLite's own calls ---- */

static sqlite3_mem_methods plain;
static void *sql_malloc(int n) { return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : plain.xMalloc(n); }
static void *sql_realloc(void *p, int n)
{
    return fault_hits(FAULT_ALLOC, ENOMEM) ? NULL : plain.xRealloc(p, n);
}

typedef ssize_t pread_fn(int, void *, size_t, off_t);
typedef ssize_t pwrite_fn(int, const void *, size_t, off_t);
static pread_fn *plain_pread;
static pwrite_fn *plain_pwrite;

static ssize_t sql_pread(int fd, void *p, size_t n, off_t at)
{
    return fault_hits(FAULT_READ, EIO) ? -1 : plain_pread(fd, p, n, at);
}

static ssize_t sql_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (!fault_hits(FAULT_WRITE, ENOSPC))
        return plain_pwrite(fd, p, n, at);
    (void)!plain_pwrite(fd, p, n / 2, at);
    errno = ENOSPC;
    return -1;
}

static void sqlite_take(void)
{
    static const char *const reads[] = {"pread", "pread64"}, *const writes[] = {"pwrite",
                                                                                "pwrite64"};
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &plain), SQLITE_OK);
    sqlite3_mem_methods ours = plain;
    ours.xMalloc = sql_malloc;
    ours.xRealloc = sql_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &ours), SQLITE_OK);
    /* each allocation is one */
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    plain_pread = pread;
    plain_pwrite = pwrite;
    for (int i = 0; i < 2; i++) {
        vfs->xSetSystemCall(vfs, reads[i], (sqlite3_syscall_ptr)sql_pread);
        vfs->xSetSystemCall(vfs, writes[i], (sqlite3_syscall_ptr)sql_pwrite);
    }
}

/* ---- the case: attempt 1 is in the database, attempt 2 comes ---- */

static int setup(void **state)
{
    (void)state;
    home = fx_dir();
    fx_reset();
    snprintf(db_path, sizeof db_path, "%s/reel.db", home);
    snprintf(events, sizeof events, "%s/runs/one/events", home);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return file_remove_tree(home, NULL);
}

static int ingest(struct err *err)
{
    struct store *db = NULL;
    int rc = store_open(db_path, STORE_WRITE, &db, err);
    if (rc == 0)
        rc = ingest_run(db, (const char *const[]){home}, 1, 0, NULL, err);
    store_close(db);
    return rc;
}

static int rebuild(struct err *err)
{
    return ingest_rebuild(db_path, (const char *const[]){home}, 1, 0, NULL, err);
}

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

/* What the views give, as one number. */
static struct hash128 content(void)
{
    static const char *const sql[] = {
        "SELECT * FROM v_step ORDER BY run, step, attempt, started_at",
        "SELECT * FROM v_attempt ORDER BY run, attempt",
        "SELECT * FROM v_time ORDER BY run, \"from\"",
        "SELECT run, attempt, writer, seq, json FROM event ORDER BY 1, 2, 3, 4",
        "SELECT count(*) FROM damage"};
    struct store *db = NULL;
    struct str out = STR_INIT;
    struct err err = {0};
    must(store_open(db_path, STORE_READ | STORE_CHECK, &db, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(sql); i++) {
        struct store_query *q = NULL;
        must(store_ask(db, sql[i], &q, &err), &err);
        while (store_next(q, &err) > 0)
            for (int k = 0; k < store_columns(q); k++)
                str_addf(&out, "%s|",
                         store_column_type(q, k) == STORE_NULL ? "NULL" : store_text(q, k));
        store_end(q);
    }
    store_close(db);
    struct hash128 h = hash_128(out.p, out.len);
    str_release(&out);
    return h;
}

static bool same(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static struct str before_file; /* the database file with attempt 1 alone */
static struct hash128 before, after;

static void case_make(void)
{
    struct err err = {0};
    fx_attempt(events, "one", 1, 0, 3, 8, "preempt");
    must(ingest(&err), &err);
    before = content();
    must(file_read(db_path, 1 << 24, &before_file, &err), &err);
    fx_pass(5);
    fx_attempt(events, "one", 2, 4, 7, 8, "done");
    must(ingest(&err), &err);
    after = content();
    assert_false(same(before, after));
}

static void case_reset(void)
{
    char name[320];
    struct err err = {0};
    must(file_publish(db_path, before_file.p, before_file.len, &err), &err);
    snprintf(name, sizeof name, "%s-journal", db_path);
    unlink(name);
}

static void expect_whole(const char *what, const char *how, long n, int rc, const struct err *err)
{
    char name[320];
    struct err again = {0};
    if (rc != 0 && (err->code != rc || !err->text[0]))
        fail_msg("%s, %s %ld: %d (%d) '%s'", what, how, n, rc, err->code, err->text);
    snprintf(name, sizeof name, "%s-journal", db_path);
    /* else the disk was too full to undo as well: readers refuse, the next ingest undoes it */
    bool undone = !file_exists(name);
    struct hash128 now = undone ? content() : before;
    if (!same(now, after) && (rc == 0 || !same(now, before)))
        fail_msg("%s, %s %ld: the database is neither as before nor as after (%d '%s')", what, how,
                 n, rc, err->text);
    snprintf(name, sizeof name, "%s.rebuild", db_path);
    assert_false(file_exists(name));
    must(ingest(&again), &again);
    assert_true(same(content(), after));
}

static void nth_call_fails(void **state)
{
    static const struct {
        const char *name;
        int (*run)(struct err *);
    } scenes[] = {{"ingest", ingest}, {"rebuild", rebuild}};
    static const struct {
        enum fault_kind kind;
        int code;
        long step;
    } kinds[] = {{FAULT_ALLOC, ERR_NOMEM, 419},
                 {FAULT_READ, ERR_IO, 19},
                 {FAULT_WRITE, ERR_IO, 19},
                 {FAULT_RENAME, ERR_IO, 1},
                 {FAULT_SYNC, ERR_IO, 1}};
    (void)state;
    case_make();
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++)
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            bool met = true;
            long hits = 0;
            for (long n = 1 + day_from(fault_step(kinds[k].step)); met;
                 n += fault_step(kinds[k].step)) {
                struct err err = {0};
                case_reset();
                fault_arm(kinds[k].kind, n);
                int rc = scenes[i].run(&err);
                met = fault_disarm();
                hits += met;
                /* SQLite itself turns EIO on a read into "malformed" */
                if (rc != 0 && rc != kinds[k].code &&
                    !(kinds[k].kind == FAULT_WRITE && rc == ERR_FULL) &&
                    !(kinds[k].kind == FAULT_READ && rc == ERR_CORRUPT))
                    fail_msg("%s, %s %ld: %d '%s'", scenes[i].name, fault_names[kinds[k].kind], n,
                             rc, err.text);
                expect_whole(scenes[i].name, fault_names[kinds[k].kind], n, rc, &err);
            }
            if (!hits && (kinds[k].step > 1 || i == 1))
                fail_msg("%s: met no %s", scenes[i].name, fault_names[kinds[k].kind]);
        }
    str_release(&before_file);
}

static void full_disk(void **state)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    int refused = 0;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    case_make();
    for (long limit = 0; limit <= (long)before_file.len + 65536; limit += 4096 * fault_step(4)) {
        struct rlimit full = {(rlim_t)limit, RLIM_INFINITY};
        struct err err = {0};
        case_reset();
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
        int rc = ingest(&err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        if (rc != 0 && rc != ERR_IO)
            fail_msg("full at %ld: %d '%s'", limit, rc, err.text);
        refused += rc != 0;
        expect_whole("full disk", "byte", limit, rc, &err);
    }
    assert_true(refused >= 3);
    str_release(&before_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nth_call_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(full_disk, setup, teardown)};
    sqlite_take();
    return cmocka_run_group_tests_name("db_fault", tests, NULL, NULL);
}
