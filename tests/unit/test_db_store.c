#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include <sqlite3.h>

#include "base/file.h"
#include "base/json.h"
#include "db/schema.h"
#include "db/store.h"
#include "db/view_text.h"

static char dir[256], path[300];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "%s/reel-store.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/reel.db", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return file_remove_tree(dir, NULL);
}

static struct store *open_ok(unsigned flags)
{
    struct store *db = NULL;
    struct err err = {0};
    if (store_open(path, flags, &db, &err) < 0)
        fail_msg("%s", err.text);
    return db;
}

static int open_fails(unsigned flags, const char *needle)
{
    struct store *db = NULL;
    struct err err = {0};
    int rc = store_open(path, flags, &db, &err);
    assert_true(rc < 0);
    assert_null(db);
    if (!strstr(err.text, needle))
        fail_msg("'%s' does not say '%s'", err.text, needle);
    return rc;
}

static void exec_ok(struct store *db, const char *sql)
{
    struct err err = {0};
    if (store_exec(db, sql, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_wal_rule(void **state)
{
    static const struct {
        long fs;
        int version;
        bool wal;
    } rows[] = {
        {0xEF53, 3051003, true},      {0xEF53, 3051002, false},
        {0xEF53, 3040001, false},     {0x58465342, 3053000, true},
        {0x6969, 3053000, false},     {0x0BD00BD0, 3053000, false}, /* nfs, lustre */
        {0x65735546, 3053000, false}, {0, 3053000, false},          /* fuse, unknown */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(store_wal_allowed(rows[i].fs, rows[i].version), rows[i].wal);
    }
}

/* The file's mode is what the rule says, whatever it was before. */
static void test_journal_follows_the_rule(void **state)
{
    (void)state;
    struct store *db = open_ok(STORE_WRITE);
    struct statfs fs;
    assert_int_equal(statfs(store_path(db), &fs), 0);
    bool wal = store_wal_allowed((long)fs.f_type, sqlite3_libversion_number());
    exec_ok(db, wal ? "PRAGMA journal_mode=DELETE" : "PRAGMA journal_mode=WAL");
    store_close(db);
    db = open_ok(STORE_WRITE);
    struct store_query *q = NULL;
    assert_int_equal(store_ask(db, "PRAGMA journal_mode", &q, NULL), 0);
    assert_int_equal(store_next(q, NULL), 1);
    assert_string_equal(store_text(q, 0), wal ? "wal" : "delete");
    store_end(q);
    store_close(db);
}

static void test_open_refuses(void **state)
{
    (void)state;
    assert_int_equal(open_fails(STORE_READ, "reel db ingest"), ERR_NOT_FOUND);
    assert_int_equal(
        file_publish(path, "this is no database, and long enough to be seen as none", 55, NULL), 0);
    assert_int_equal(open_fails(STORE_READ, "reel db rebuild"), ERR_CORRUPT);
    assert_int_equal(open_fails(STORE_WRITE, "reel db rebuild"), ERR_CORRUPT);
    unlink(path);
    sqlite3 *other = NULL;
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(other, "PRAGMA application_id=77; CREATE TABLE t(x)", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(other);
    assert_int_equal(open_fails(STORE_WRITE, "another program"), ERR_CORRUPT);
}

/* ---- another process makes the database while this one looks at it ---- */

static int comers; /* processes that have come in between, each before a look at the version */

static int other_comes(unsigned what, void *unused, void *stmt, void *sql)
{
    (void)what, (void)unused, (void)stmt;
    if (comers == 0 && strstr(sql, "user_version")) {
        comers++;
        store_close(open_ok(STORE_WRITE));
    }
    return 0;
}

static int trace_begin(sqlite3 *sql, const char **message, const sqlite3_api_routines *api)
{
    (void)message, (void)api;
    return sqlite3_trace_v2(sql, SQLITE_TRACE_STMT, other_comes, NULL);
}

static void test_two_make_it_at_once(void **state)
{
    (void)state;
    comers = 0;
    sqlite3_auto_extension((void (*)(void))trace_begin);
    struct store *db = open_ok(STORE_WRITE);
    sqlite3_cancel_auto_extension((void (*)(void))trace_begin);
    assert_int_equal(comers, 1);
    store_close(db);
}

static void test_newer_schema_is_refused(void **state)
{
    (void)state;
    struct store *db = open_ok(STORE_WRITE);
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d", schema_version() + 1);
    exec_ok(db, sql);
    store_close(db);
    assert_int_equal(open_fails(STORE_WRITE, "newer reel"), ERR_STATE);
    assert_int_equal(open_fails(STORE_READ, "newer reel"), ERR_STATE);
}

static void schema_dump(struct store *db, struct str *out)
{
    struct store_query *q = NULL;
    assert_int_equal(
        store_ask(db, "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name", &q, NULL),
        0);
    while (store_next(q, NULL) > 0) {
        str_addf(out, "%s %s: ", store_text(q, 0), store_text(q, 1));
        str_addf(out, "%s\n", store_text(q, 2));
    }
    store_end(q);
}

/* From every earlier version the same schema comes out. */
static void test_migrates_from_every_version(void **state)
{
    (void)state;
    struct str fresh = STR_INIT, migrated = STR_INIT;
    struct store *db = open_ok(STORE_WRITE);
    schema_dump(db, &fresh);
    store_close(db);
    assert_non_null(strstr(fresh.p, "view v_trial"));
    for (int from = 0; from < schema_version(); from++) {
        unlink(path);
        sqlite3 *sql = NULL;
        struct err err = {0};
        assert_int_equal(sqlite3_open(path, &sql), SQLITE_OK);
        if (schema_migrate(sql, from, &err) < 0)
            fail_msg("%s", err.text);
        sqlite3_close(sql);
        if (from > 0)
            assert_int_equal(open_fails(STORE_READ, "reel db ingest"), ERR_STATE);
        db = open_ok(STORE_WRITE);
        str_clear(&migrated);
        schema_dump(db, &migrated);
        store_close(db);
        assert_string_equal(migrated.p, fresh.p);
    }
    str_release(&fresh);
    str_release(&migrated);
}

static int64_t schema_cookie(struct store *db)
{
    int64_t cookie = 0;
    assert_int_equal(store_ask_int(db, "PRAGMA schema_version", &cookie, NULL), 0);
    return cookie;
}

/* Views that another reel of this version worded otherwise serve a reader as they are. The next
 * writer makes them anew, once, and the reader then asks the new ones. */
static void test_views_follow_their_text(void **state)
{
    (void)state;
    static const char *const others[] = {"DROP VIEW views_text",
                                         "DROP VIEW views_text; CREATE VIEW views_text AS SELECT 1"};
    struct str fresh = STR_INIT, renewed = STR_INIT;
    struct store *db = open_ok(STORE_WRITE);
    schema_dump(db, &fresh);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct store_query *q = NULL;
        exec_ok(db, others[i]);
        exec_ok(db, "DROP VIEW v_run; CREATE VIEW v_run AS SELECT 'old' AS run");
        store_close(db);
        struct store *reader = open_ok(STORE_READ);
        assert_int_equal(store_ask(reader, "SELECT run FROM v_run", &q, NULL), 0);
        assert_int_equal(store_next(q, NULL), 1);
        assert_string_equal(store_text(q, 0), "old");
        store_reset(q);
        db = open_ok(STORE_WRITE);
        str_clear(&renewed);
        schema_dump(db, &renewed);
        assert_string_equal(renewed.p, fresh.p);
        assert_int_equal(store_next(q, NULL), 0);
        store_end(q);
        store_close(reader);
    }
    int64_t before = schema_cookie(db);
    store_close(db);
    db = open_ok(STORE_WRITE);
    assert_int_equal(schema_cookie(db), before);
    store_close(db);
    str_release(&fresh);
    str_release(&renewed);
}

/* Finds the line "  NAME  sentence" of a column in what is said of a view. */
static bool is_described(const char *view, const char *column)
{
    struct str all = STR_INIT, head = STR_INIT;
    char line[128];
    schema_describe(&all, false);
    str_addf(&head, "\n\n%s\n", view);
    const char *at = strstr(all.p, head.p);
    assert_non_null(at);
    const char *end = strstr(at + head.len, "\n\n");
    snprintf(line, sizeof line, "\n  %s ", column);
    const char *found = strstr(at + head.len, line);
    bool said = found && (!end || found < end) &&
                found[strlen(line) + strspn(found + strlen(line), " ")] != '\n';
    str_release(&all);
    str_release(&head);
    return said;
}

/* Each column of a public view has its sentence, in the database too. */
static void test_every_column_is_described(void **state)
{
    (void)state;
    int n = 0;
    struct store *db = open_ok(STORE_WRITE);
    struct store_query *q = NULL;
    assert_int_equal(
        store_ask(
            db, "SELECT v.name, c.name, v.sql FROM sqlite_schema v JOIN pragma_table_info(v.name) c"
            " WHERE v.type = 'view' AND v.name GLOB 'v_*'", &q, NULL),
        0);
    for (; store_next(q, NULL) > 0; n++) {
        char view[64], column[64];
        snprintf(view, sizeof view, "%s", store_text(q, 0));
        snprintf(column, sizeof column, "%s", store_text(q, 1));
        if (!is_described(view, column))
            fail_msg("nothing is said of %s.%s", view, column);
        assert_non_null(strstr(store_text(q, 2), ", -- "));
    }
    assert_true(n > 80);
    store_end(q);
    store_close(db);
}

/* A comment that goes on may end as code does, and a column may stand in a view's first line of
 * code and in its last. */
static void test_a_view_is_described_to_its_end(void **state)
{
    static const char views[] =
        "-- Text before them.\n"
        "\nCREATE VIEW v_a AS\n-- Holds a.\n-- It has all;\n"
        "SELECT a, -- first\n  -- goes on;\n  b AS long, -- second\n"
        "  /* no column */\n  c, -- third\n  -- and on.\nFROM t;\n"
        "\nCREATE VIEW other AS\nSELECT\n  d, -- no more\n  -- or less\n  'x;' AS e; -- last\n"
        "\nCREATE VIEW v_b AS\n-- Holds f.\nSELECT\n  f -- one\nFROM t;\n";
    static const char public[] =
        "\nv_a\nHolds a.\nIt has all;\n"
        "  a     first\n        goes on;\n  long  second\n  c     third\n        and on.\n"
        "\nv_b\nHolds f.\n  f  one\n";
    static const char inner[] = "\nother\n  d  no more\n     or less\n  e  last\n";
    struct str out = STR_INIT;
    (void)state;
    view_text_describe(&out, views, true);
    assert_string_equal(out.p, public);
    str_clear(&out);
    view_text_describe(&out, views, false);
    assert_string_equal(out.p, inner);
    str_clear(&out);
    view_text_list(&out, views);
    assert_string_equal(out.p, "v_a, v_b");
    str_release(&out);
}

static void test_quick_check_finds_damage(void **state)
{
    (void)state;
    struct store *db = open_ok(STORE_WRITE);
    exec_ok(db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
                " INSERT INTO source SELECT 'folder number ' || i FROM n");
    store_close(db);
    store_close(open_ok(STORE_READ | STORE_CHECK));
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    char junk[4096];
    memset(junk, 0xA5, sizeof junk);
    fseek(f, size - 8192, SEEK_SET);
    assert_int_equal(fwrite(junk, 1, sizeof junk, f), sizeof junk);
    fclose(f);
    assert_int_equal(open_fails(STORE_READ | STORE_CHECK, "reel db rebuild"), ERR_CORRUPT);
}

static void test_queries_refused(void **state)
{
    static const struct {
        const char *sql, *needle;
    } rows[] = {
        {"", "one SQL statement"},
        {"  ;", "one SQL statement"},
        {"SELECT 1; SELECT 2", "one SQL statement"},
        {"SELECT a FROM nowhere", "nowhere"},
        {"SELEC 1", "SELEC"},
    };
    (void)state;
    store_close(open_ok(STORE_WRITE));
    struct store *db = open_ok(STORE_READ);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct store_query *q = NULL;
        struct err err = {0};
        assert_int_equal(store_ask(db, rows[i].sql, &q, &err), ERR_INPUT);
        assert_null(q);
        if (!strstr(err.text, rows[i].needle))
            fail_msg("'%s' does not say '%s'", err.text, rows[i].needle);
    }
    struct err err = {0};
    assert_int_equal(store_exec(db, "DELETE FROM event", &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "reading only"));
    store_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wal_rule),
        cmocka_unit_test_setup_teardown(test_journal_follows_the_rule, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_make_it_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_schema_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_migrates_from_every_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_follow_their_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_column_is_described, setup, teardown),
        cmocka_unit_test(test_a_view_is_described_to_its_end),
        cmocka_unit_test_setup_teardown(test_quick_check_finds_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_queries_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
