#include "tests/lib/db_fixture.h"

char *home, db_path[300];

static int fresh_count;

int db_setup(void **state)
{
    (void)state;
    home = fx_dir();
    fx_reset();
    snprintf(db_path, sizeof db_path, "%s/reel.db", home);
    return 0;
}

int db_teardown(void **state)
{
    (void)state;
    return file_remove_tree(home, NULL);
}

struct ingest_report ingest_at(const char *path, const char *const *dirs, size_t n)
{
    struct ingest_report r = {0};
    struct store *db = NULL;
    struct err err = {0};
    if (store_open(path, STORE_WRITE, &db, &err) < 0 || ingest_run(db, dirs, n, 0, &r, &err) < 0)
        fail_msg("%s", err.text);
    store_close(db);
    return r;
}

struct ingest_report ingest(void)
{
    return ingest_at(db_path, (const char *const[]){home}, 1);
}

void rows_dump(struct store *db, const char *sql, struct str *out)
{
    struct store_query *q = NULL;
    struct err err = {0};
    if (store_ask(db, sql, &q, &err) < 0)
        fail_msg("%s: %s", sql, err.text);
    while (store_next(q, &err) > 0) {
        for (int i = 0; i < store_columns(q); i++)
            if (store_column_type(q, i) == STORE_NUM)
                str_addf(out, "%.17g|", store_num(q, i));
            else
                str_addf(out, "%s|",
                         store_column_type(q, i) == STORE_NULL ? "NULL" : store_text(q, i));
        str_addc(out, '\n');
    }
    assert_string_equal(err.text, "");
    store_end(q);
}

char *dump(const char *path)
{
    static const char *const sql[] = {
        "SELECT * FROM v_trial ORDER BY tune, trial",
        "SELECT * FROM v_step ORDER BY run, step, attempt, started_at",
        "SELECT * FROM v_attempt ORDER BY run, attempt",
        "SELECT * FROM v_time ORDER BY run, \"from\"",
        "SELECT * FROM run ORDER BY run",
        "SELECT run, host, boot, offset_s FROM run_clock ORDER BY 1, 2, 3",
        "SELECT run, attempt, writer, seq, at FROM event_time ORDER BY 1, 2, 3, 4",
        "SELECT * FROM ckpt ORDER BY run, at, kind",
        "SELECT * FROM signal ORDER BY run, at",
        "SELECT * FROM check_mfu ORDER BY source, run, item",
        "SELECT run, attempt, writer, seq, kind, wall, mono, boot, host, json FROM event ORDER BY "
        "run, attempt, writer, seq",
        "SELECT run, attempt, writer, seq, json FROM conflict ORDER BY 1, 2, 3, 4, 5",
        "SELECT * FROM damage ORDER BY 1, 2, 3, 4",
        "SELECT * FROM fold_attempt ORDER BY 1, 2",
        "SELECT * FROM fold_writer ORDER BY 1, 2, 3",
    };
    struct store *db = NULL;
    struct str out = STR_INIT;
    struct err err = {0};
    if (store_open(path, STORE_READ, &db, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(sql); i++) {
        str_addf(&out, "-- %s\n", sql[i]);
        rows_dump(db, sql[i], &out);
    }
    store_close(db);
    return str_detach(&out);
}

double ask_num(const char *sql)
{
    struct store *db = NULL;
    struct store_query *q = NULL;
    struct err err = {0};
    if (store_open(db_path, STORE_READ, &db, &err) < 0 || store_ask(db, sql, &q, &err) < 0 ||
        store_next(q, &err) < 0)
        fail_msg("%s: %s", sql, err.text);
    double value = store_num(q, 0);
    store_end(q);
    store_close(db);
    return value;
}

void same_text(const char *a, const char *b)
{
    if (strcmp(a, b) == 0)
        return;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    while (i > 0 && a[i - 1] != '\n')
        i--;
    fail_msg("differ at:\n  %.200s\n  %.200s", a + i, b + i);
}

void equals_fresh(void)
{
    char other[320];
    snprintf(other, sizeof other, "%s/fresh%d.db", home, fresh_count++);
    ingest_at(other, (const char *const[]){home}, 1);
    char *a = dump(db_path), *b = dump(other);
    same_text(a, b);
    free(a);
    free(b);
}

int64_t file_size(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}
