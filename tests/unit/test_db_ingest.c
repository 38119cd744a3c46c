// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
#include "tests/unit/events_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/fold.h"
#include "db/ingest.h"

static char *home, db_path[300];
static int fresh_count;

static int setup(void **state)
{
    (void)state;
    home = fx_dir();
    fx_reset();
    snprintf(db_path, sizeof db_path, "%s/reel.db", home);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return file_remove_tree(home, NULL);
}

static struct ingest_report ingest_at(const char *path, const char *const *dirs, size_t n)
{
    struct ingest_report r = {0};
    struct store *db = NULL;
    struct err err = {0};
    if (store_open(path, STORE_WRITE, &db, &err) < 0 || ingest_run(db, dirs, n, 0, &r, &err) < 0)
        fail_msg("%s", err.text);
    store_close(db);
    return r;
}

static struct ingest_report ingest(void) { return ingest_at(db_path, (const char *const[]){home}, 1); }

static void rows_dump(struct store *db, const char *sql, struct str *out)
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
                str_addf(out, "%s|", store_column_type(q, i) == STORE_NULL ? "NULL" : store_text(q, i));
        str_addc(out, '\n');
    }
    assert_string_equal(err.text, "");
    store_end(q);
}

/* Everything a query can give but the raw row ids and the file table: returns new. */
static char *dump(const char *path)
{
    static const char *const sql[] = {
        "SELECT * FROM v_trial ORDER BY tune, trial",
        "SELECT * FROM v_step ORDER BY run, step, attempt, started_at",
        "SELECT * FROM v_attempt ORDER BY run, attempt",
        "SELECT * FROM v_time ORDER BY run, \"from\"",
        "SELECT * FROM run ORDER BY run",
        "SELECT * FROM ckpt ORDER BY run, at, kind",
        "SELECT * FROM signal ORDER BY run, at",
        "SELECT * FROM check_mfu ORDER BY source, run, item",
        "SELECT run, attempt, writer, seq, kind, wall, mono, boot, host, json FROM event ORDER BY run, attempt, writer, seq",
        "SELECT run, attempt, writer, seq, json FROM conflict ORDER BY 1, 2, 3, 4, 5",
        "SELECT * FROM damage ORDER BY 1, 2, 3, 4",
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

static double ask_num(const char *sql)
{
    struct store *db = NULL;
    struct store_query *q = NULL;
    struct err err = {0};
    if (store_open(db_path, STORE_READ, &db, &err) < 0 || store_ask(db, sql, &q, &err) < 0 || store_next(q, &err) < 0)
        fail_msg("%s: %s", sql, err.text);
    double value = store_num(q, 0);
    store_end(q);
    store_close(db);
    return value;
}

static void same_text(const char *a, const char *b)
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

/* A database made anew from the files has the content of the one at db_path. */
static void equals_fresh(void)
{
    char other[320];
    snprintf(other, sizeof other, "%s/fresh%d.db", home, fresh_count++);
    ingest_at(other, (const char *const[]){home}, 1);
    char *a = dump(db_path), *b = dump(other);
    same_text(a, b);
    free(a);
    free(b);
}

/* ---- the views on the whole fixture ---- */

static void test_views_of_a_whole_home(void **state)
{
    static const struct {
        const char *sql;
        double value;
    } rows[] = {
        {"SELECT count(*) FROM v_step", FX_EXECUTED},
        {"SELECT sum(replayed) FROM v_step", FX_REPLAYED},
        {"SELECT group_concat(step || ':' || attempt) = '40:3,41:3,42:3' FROM (SELECT * FROM v_step WHERE replayed ORDER BY step)", 1},
        {"SELECT count(DISTINCT step) FROM v_step WHERE NOT replayed", FX_TOTAL},
        {"SELECT count(*) FROM v_attempt", 3},
        {"SELECT group_concat(cause || first_step || '-' || last_step) = 'preempt0-23,crash24-42,done40-59' FROM (SELECT * FROM v_attempt ORDER BY attempt)", 1},
        {"SELECT count(*) FROM v_attempt WHERE ended_at > started_at AND scheduler = 'local' AND job_id = 100 + attempt", 3},
        {"SELECT count(*) FROM v_trial", FX_TRIALS},
        {"SELECT count(measured_step_s) FROM v_trial", FX_MEASURED},
        {"SELECT count(*) FROM v_trial WHERE predicted_at > 0 AND tp IS NULL AND dp IN (1, 2) AND model = 'dit-tiny' AND seq = '4x8x8'", FX_TRIALS},
        {"SELECT count(*) FROM v_trial WHERE state = 'oom' AND mbs = 8 AND dp = 2 AND cause LIKE 'rank 1%'", 1},
        {"SELECT count(*) FROM v_trial WHERE state = 'predicted'", 1},
        {"SELECT name = 'demo' AND total_steps = 60 FROM run", 1},
        {"SELECT count(*) FROM run", 1},
        {"SELECT count(DISTINCT run) FROM v_time", 1},
        {"SELECT count(*) FROM check_mfu", FX_EXECUTED + FX_MEASURED},
    };
    (void)state;
    fx_home(home);
    struct ingest_report r = ingest();
    assert_int_equal(r.damage, 0);
    assert_int_equal(r.conflicts, 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (ask_num(rows[i].sql) != rows[i].value)
            fail_msg("%s gives %g, not %g", rows[i].sql, ask_num(rows[i].sql), rows[i].value);
}

static void time_invariants(void)
{
    assert_true(ask_num("SELECT count(*) FROM v_time") > 0);
    assert_true(ask_num("SELECT count(*) FROM v_time WHERE NOT (seconds >= 0) OR seconds <> \"to\" - \"from\"") == 0);
    assert_true(ask_num("SELECT count(*) FROM (SELECT \"from\" <> lag(\"to\") OVER (PARTITION BY run ORDER BY \"from\") AS gap FROM v_time) WHERE gap") == 0);
    double sum = ask_num("SELECT sum(seconds) FROM v_time");
    double wall = ask_num("SELECT (SELECT max(at) FROM event_time WHERE run = '" FX_RUN "') - (SELECT min(at) FROM event_time WHERE kind = 'submit_intent')");
    assert_true(fabs(sum - wall) < 1e-5);
}

/* Each cause's seconds are what the fixture spent on it. */
static void test_time_by_cause(void **state)
{
    static const struct {
        const char *cause;
        double seconds;
    } rows[] = {
        {"queue", 4.6},  {"start", 3 * (0.8 + 1.1)}, {"load", 2 * 0.6}, {"save", (2 + 1 + 2 + 2 + 1) * 0.7},
        {"down:preempt", 11}, {"down:crash", 2.5},
    };
    (void)state;
    fx_home(home);
    ingest();
    time_invariants();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT sum(seconds) FROM v_time WHERE cause = '%s'", rows[i].cause);
        if (fabs(ask_num(sql) - rows[i].seconds) > 1e-4)
            fail_msg("%s: %.6f s, not %.6f", rows[i].cause, ask_num(sql), rows[i].seconds);
    }
    assert_true(fabs(ask_num("SELECT sum(step_s) FROM v_step WHERE NOT replayed") - ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'train'")) < 1e-4);
    assert_true(fabs(ask_num("SELECT sum(step_s) FROM v_step WHERE replayed") - ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'replay'")) < 1e-4);
    assert_true(fabs(ask_num("SELECT sum(seconds) FROM v_time") - (fx.wall - 1.8e9 - 20 - 7 * 8 - 3 - 1)) < 1e-4);
}

/* The wall clock jumps in the middle, the second attempt runs on a host whose clock is an hour off: same durations. */
static void test_time_under_clock_steps(void **state)
{
    static const double steps[][2] = {{3600, 0}, {-3600, 0}, {0, -3600}, {0, 3600}, {-7200, 3600}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        char events[512];
        fx_reset();
        file_remove_tree(home, NULL);
        snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
        struct evlog *submit = fx_open(events, FX_RUN, 0, "submit-1");
        fx_event(submit, "submit_intent", "sched", 't', "local", NULL);
        fx_event(submit, "submitted", "sched", 't', "local", NULL);
        evlog_close(submit);
        fx_pass(3);
        fx_attempt(events, FX_RUN, 1, 0, 7, 30, "preempt");
        fx.wall += steps[i][0]; /* stepped between two attempts on one host */
        fx_pass(10);
        struct evlog *rank0 = fx_open(events, FX_RUN, 2, "rank0");
        fx_train_started(rank0, 8, 30);
        fx_step(rank0, 8, 2.0, 0.5);
        fx.wall -= 2 * steps[i][0]; /* and in the middle of a step */
        fx_step(rank0, 9, 2.0, 0.5);
        evlog_close(rank0);
        fx_pass(5);
        fx.host = "node2";
        fx.boot = "boot-2";
        fx.mono = 77;
        fx.wall += steps[i][1];
        fx_attempt(events, FX_RUN, 3, 10, 14, 30, "done");
        ingest();
        time_invariants();
        double train = ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'train'");
        assert_true(fabs(train - ask_num("SELECT sum(step_s) FROM v_step")) < 1e-4);
        assert_true(fabs(ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'down:preempt'") - 10) < 1e-4);
        assert_true(ask_num("SELECT count(*) FROM v_attempt WHERE ended_at < started_at") == 0);
    }
}

static void test_sweep(void **state)
{
    static const struct {
        struct fold_interval in[4];
        size_t n;
        const char *out;
    } rows[] = {
        {{{0, 0, 0}}, 0, "9[0,10]"},
        {{{2, 4, 1}}, 1, "9[0,2]1[2,4]9[4,10]"},
        {{{2, 6, 1}, {4, 8, 0}}, 2, "9[0,2]1[2,4]0[4,8]9[8,10]"},
        {{{2, 6, 0}, {4, 8, 1}}, 2, "9[0,2]0[2,6]1[6,8]9[8,10]"},
        {{{-5, 3, 2}, {8, 99, 2}}, 2, "2[0,3]9[3,8]2[8,10]"},
        {{{0, 5, 1}, {5, 10, 1}}, 2, "1[0,10]"},
        {{{0, 10, 3}, {2, 3, 1}, {2, 3, 0}, {7, 7, 0}}, 4, "3[0,2]0[2,3]3[3,10]"},
        {{{6, 4, 1}, {11, 12, 1}}, 2, "9[0,10]"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fold_edge edges[16];
        struct fold_span spans[17];
        struct str text = STR_INIT;
        size_t n = fold_sweep(rows[i].in, rows[i].n, 0, 10, 9, edges, spans);
        for (size_t k = 0; k < n; k++)
            str_addf(&text, "%d[%g,%g]", spans[k].cause, spans[k].from, spans[k].to);
        assert_string_equal(text.p, rows[i].out);
        str_release(&text);
    }
}

/* ---- order, repetition, copies ---- */

static void test_ingest_again_changes_nothing(void **state)
{
    (void)state;
    fx_home(home);
    struct ingest_report first = ingest(), second = ingest();
    assert_int_equal(second.events_new, 0);
    assert_int_equal(second.files_read, 0);
    assert_int_equal(second.files, first.files);
    equals_fresh();
}

static void test_any_order_of_files_and_copies(void **state)
{
    static const char *const orders[][4] = {
        {"runs", "tunes", "curations/c1", "copy"}, {"copy", "curations/c1", "tunes", "runs"}, {"copy", "runs", "copy", "tunes"}};
    char paths[4][400], cmd[900], other[320];
    (void)state;
    fx_home(home);
    snprintf(cmd, sizeof cmd, "mkdir -p %s/copy && cp %s/runs/*/events/rank0.a1.evlog %s/copy/", home, home, home);
    assert_int_equal(system(cmd), 0);
    ingest_at(db_path, (const char *const[]){home}, 1);
    char *want = dump(db_path);
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        snprintf(other, sizeof other, "%s/order%zu.db", home, i);
        for (size_t k = 0; k < 4; k++) {
            const char *o = orders[i][k];
            snprintf(paths[k], sizeof paths[k], "%s/%s", home,
                     !strcmp(o, "runs") ? "runs/" FX_RUN : !strcmp(o, "tunes") ? "tunes/" FX_TUNE : o);
            ingest_at(other, (const char *const[]){paths[k]}, 1);
        }
        ingest_at(other, (const char *const[]){home}, 1);
        char *got = dump(other);
        same_text(want, got);
        free(got);
    }
    free(want);
}

static void test_reading_on_while_the_log_grows(void **state)
{
    char events[512];
    (void)state;
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
    fx_train_started(log, 0, 20);
    for (int s = 0; s < 20; s++) {
        fx_step(log, s, 1.0, 0.5);
        struct ingest_report r = ingest();
        assert_int_equal(r.events_new, s ? 1 : 2);
        assert_int_equal(r.damage, 0);
    }
    evlog_close(log);
    equals_fresh();
}

/* ---- damage ---- */

static void log_path(char out[600], const char *name)
{
    snprintf(out, 600, "%s/runs/" FX_RUN "/events/%s", home, name);
}

static int64_t file_size(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void zero_block(const char *path, int64_t at, int n)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, zeros, (size_t)n, at), n);
    close(fd);
}

/* Steps [0, before) are ingested, the log is damaged behind them, goes on, and is ingested again. */
static void test_damage_is_listed_and_costs_what_it_covers(void **state)
{
    char events[512], path[600];
    (void)state;
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    log_path(path, "rank0.a1.evlog");
    struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
    for (int s = 0; s < 10; s++)
        fx_step(log, s, 1.0, 0.5);
    ingest();
    int64_t at = file_size(path);
    for (int s = 10; s < 20; s++)
        fx_step(log, s, 1.0, 0.5);
    zero_block(path, at + 10, 100);
    evlog_close(log);
    struct ingest_report r = ingest();
    assert_true(r.damage >= 1 && r.damage_bytes >= 100);
    assert_true(ask_num("SELECT count(*) FROM v_step") == 19);
    assert_true(ask_num("SELECT count(*) FROM damage WHERE reason LIKE 'missing seq 11'") == 1);
    equals_fresh();
}

static void test_torn_tail_is_damage_until_the_log_goes_on(void **state)
{
    char events[512], path[600];
    (void)state;
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    log_path(path, "rank0.a1.evlog");
    struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
    for (int s = 0; s < 5; s++)
        fx_step(log, s, 1.0, 0.5);
    evlog_close(log);
    int64_t whole = file_size(path);
    char *bytes = malloc((size_t)whole);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(bytes, 1, (size_t)whole, f), whole);
    fclose(f);
    assert_int_equal(truncate(path, whole - 7), 0);
    assert_true(ingest().damage == 1);
    assert_true(ask_num("SELECT count(*) FROM v_step") == 4);
    f = fopen(path, "ab"); /* the rest arrives: it was an append in progress */
    fwrite(bytes + whole - 7, 1, 7, f);
    fclose(f);
    free(bytes);
    assert_int_equal(ingest().damage, 0);
    assert_true(ask_num("SELECT count(*) FROM v_step") == 5);
    equals_fresh();
}

/* The file system lost the log's last records after they were ingested, and the writer went on with the same numbers. */
static void test_truncated_and_regrown(void **state)
{
    char events[512], path[600];
    (void)state;
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    log_path(path, "rank0.a1.evlog");
    struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
    int64_t cut = 0;
    for (int s = 0; s < 10; s++) {
        fx_step(log, s, 1.0, 0.5);
        if (s == 5)
            cut = file_size(path);
    }
    evlog_close(log);
    ingest();
    assert_int_equal(truncate(path, cut), 0);
    for (int longer = 0; longer < 2; longer++) { /* first shorter than what was read, then longer */
        log = fx_open(events, FX_RUN, 1, "rank0");
        for (int s = longer ? 8 : 6; s < (longer ? 14 : 8); s++)
            fx_step(log, s, 1.5, 0.25);
        evlog_close(log);
        ingest();
        assert_true(ask_num("SELECT count(*) FROM v_step") == (longer ? 14 : 8));
        assert_true(ask_num("SELECT count(*) FROM v_step WHERE step >= 6 AND loss <> 0.25") == 0);
        equals_fresh();
    }
}

/* A copy of the log as it was stays elsewhere: two events under one key. The later one counts, in any order. */
static void test_conflict_is_settled_by_time(void **state)
{
    char old[400], new[400], other[400];
    (void)state;
    snprintf(old, sizeof old, "%s/b-old", home);
    snprintf(new, sizeof new, "%s/a-new", home);
    struct evlog *log = fx_open(old, FX_RUN, 1, "rank0");
    fx_step(log, 0, 1.0, 0.5);
    fx_step(log, 1, 1.0, 0.75);
    evlog_close(log);
    fx_reset();
    log = fx_open(new, FX_RUN, 1, "rank0");
    fx_step(log, 0, 1.0, 0.5); /* the same bytes */
    fx_pass(60);
    fx_step(log, 1, 1.0, 0.125);
    evlog_close(log);
    snprintf(other, sizeof other, "%s/other.db", home);
    assert_int_equal(ingest_at(db_path, (const char *const[]){old, new}, 2).conflicts, 1);
    ingest_at(other, (const char *const[]){new}, 1);
    assert_int_equal(ingest_at(other, (const char *const[]){old}, 1).conflicts, 1);
    assert_true(ask_num("SELECT loss FROM v_step WHERE step = 1") == 0.125);
    char *a = dump(db_path), *b = dump(other);
    same_text(a, b);
    free(a);
    free(b);
}

/* Records that are valid but make no sense: kept raw, never counted, and no view fails over them. */
static void test_strange_events(void **state)
{
    char dir[400];
    (void)state;
    snprintf(dir, sizeof dir, "%s/runs/" FX_RUN "/events", home);
    struct evlog *log = fx_open(dir, FX_RUN, 1, "rank0");
    fx_event(log, "step", "step", 't', "seven", NULL);
    fx_event(log, "step", "step", 'i', 3, "tokens", 'i', 0, "model_flops", 'n', 1e9, "step_s", 'n', (double)NAN, "mfu", 'n', 0.5, NULL);
    fx_event(log, "train_started", "peak_flops", 't', "much", "layout", 'i', 4, NULL);
    fx_event(log, "trial_predicted", "trial", 't', "t1", "layout", 't', "no \"layout", "predicted_step_s", 't', "soon", NULL);
    fx_event(log, "trial_ended", "trial", 'i', 4, "mfu", 'n', 0.1, NULL);
    fx_event(log, "a_kind_of_the_future", "x", 'i', 1, NULL);
    fx_event(log, "attempt_ended", "cause", 'i', 1, NULL);
    evlog_close(log);
    assert_int_equal(ingest().events_new, 7);
    assert_true(ask_num("SELECT count(*) FROM v_step") == 1);
    assert_true(ask_num("SELECT count(*) FROM v_trial") == 1);
    assert_true(ask_num("SELECT count(*) FROM check_mfu WHERE difference IS NULL") == 2);
    free(dump(db_path));
}

static void test_trial_steps_are_not_steps_of_runs(void **state)
{
    char dir[400];
    (void)state;
    snprintf(dir, sizeof dir, "%s/tunes/x/trials/t1/events", home);
    struct evlog *log = fx_open(dir, "t1", 1, "rank0");
    fx_event(log, "train_started", "next_step", 'i', 0, "trial", 't', "t1", NULL);
    fx_step(log, 0, 1.0, 0.5);
    evlog_close(log);
    assert_int_equal(ingest().events_new, 0); /* not looked at */
    ingest_at(db_path, (const char *const[]){dir}, 1);
    assert_true(ask_num("SELECT count(*) FROM event") == 2);
    assert_true(ask_num("SELECT (SELECT count(*) FROM v_step) + (SELECT count(*) FROM v_attempt) + (SELECT count(*) FROM run)") == 0);
}

/* A prediction made again after the measurement must not replace the one the measurement is held against. */
static void test_prediction_is_the_last_before_the_trial(void **state)
{
    char dir[400];
    (void)state;
    snprintf(dir, sizeof dir, "%s/tunes/x/events", home);
    struct evlog *log = fx_open(dir, "x", 0, "tune");
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            fx_event(log, "trial_started", "trial", 't', "t1", NULL);
        else
            fx_event(log, "trial_predicted", "trial", 't', "t1", "layout", 't', "tp=2,cp_kind=ring", "predicted_step_s", 'n', 1.0 + i, NULL);
        fx_pass(1);
    }
    evlog_close(log);
    ingest();
    assert_true(ask_num("SELECT predicted_step_s FROM v_trial WHERE tp = 2 AND cp_kind = 'ring' AND state = 'running'") == 2.0);
}

/* ---- ingesters, rebuild ---- */

static void test_second_ingester_waits_or_reads(void **state)
{
    char lock[320];
    int fd = -1;
    struct store *db = NULL;
    struct err err = {0};
    bool stale = false;
    (void)state;
    fx_home(home);
    ingest();
    snprintf(lock, sizeof lock, "%s.lock", db_path);
    assert_int_equal(file_lock(lock, 0, &fd, &err), 0);
    assert_int_equal(store_open(db_path, STORE_WRITE, &db, &err), 0);
    assert_int_equal(ingest_run(db, (const char *const[]){home}, 1, 0, NULL, &err), ERR_BUSY);
    store_close(db);
    db = NULL;
    /* wait_s 0: the fixture's clock stands still; waiting is file_lock's, and tested there */
    assert_int_equal(ingest_open(db_path, (const char *const[]){home}, 1, 0, &db, &stale, &err), 0);
    assert_true(stale);
    assert_true(store_exec(db, "DELETE FROM event", NULL) < 0);
    store_close(db);
    file_unlock(fd);
    assert_int_equal(ingest_open(db_path, (const char *const[]){home}, 1, 0, &db, &stale, &err), 0);
    assert_false(stale);
    store_close(db);
}

static void test_rebuild_equals_and_replaces(void **state)
{
    char extra[400];
    struct store *open = NULL;
    struct ingest_report r = {0};
    struct err err = {0};
    (void)state;
    fx_home(home);
    snprintf(extra, sizeof extra, "%s/elsewhere", home); /* a folder only the database knows */
    struct evlog *log = fx_open(extra, "c9", 0, "curate");
    fx_event(log, "curate_started", "sources", 'i', 1, NULL);
    evlog_close(log);
    ingest_at(db_path, (const char *const[]){home, extra}, 2);
    char *before = dump(db_path);
    assert_int_equal(store_open(db_path, STORE_WRITE, &open, &err), 0);
    if (ingest_rebuild(db_path, (const char *const[]){home}, 1, 0, &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(r.events_new > 60);
    char *after = dump(db_path);
    same_text(before, after);
    free(after);
    /* a process that had the old file open writes to the new one */
    log = fx_open(extra, "c9", 0, "curate");
    fx_event(log, "curate_ended", "clips", 'i', 1, NULL);
    evlog_close(log);
    assert_int_equal(ingest_run(open, NULL, 0, 0, &r, &err), 0);
    assert_int_equal(r.events_new, 1);
    store_close(open);
    assert_true(ask_num("SELECT count(*) FROM event WHERE run = 'c9'") == 2);
    free(before);
}

static void test_rebuild_of_a_damaged_database(void **state)
{
    struct err err = {0};
    struct store *db = NULL;
    bool stale;
    (void)state;
    fx_home(home);
    assert_int_equal(file_publish(db_path, "garbage garbage garbage garbage garbage garbage", 47, NULL), 0);
    assert_int_equal(ingest_open(db_path, (const char *const[]){home}, 1, 0, &db, &stale, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "reel db rebuild"));
    if (ingest_rebuild(db_path, (const char *const[]){home}, 1, 0, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(ask_num("SELECT count(*) FROM v_step") == FX_EXECUTED);

    /* what was never reel's is kept, once; a second one is not replaced */
    char kept[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct ingest_report report = {0};
    snprintf(kept, sizeof kept, "%s.replaced", db_path);
    assert_int_equal(file_read(kept, 100, &text, NULL), 0);
    assert_string_equal(text.p, "garbage garbage garbage garbage garbage garbage");
    assert_int_equal(ingest_rebuild(db_path, (const char *const[]){home}, 1, 0, &report, NULL), 0);
    assert_false(report.kept_foreign);
    assert_int_equal(file_publish(db_path, "a note", 6, NULL), 0);
    assert_int_equal(ingest_rebuild(db_path, (const char *const[]){home}, 1, 0, &report, &err), ERR_INPUT);
    str_clear(&text);
    assert_int_equal(file_read(db_path, 100, &text, NULL), 0);
    assert_string_equal(text.p, "a note");
    str_release(&text);
}

/* ---- MFU ---- */

static void test_every_mfu_recomputed(void **state)
{
    char dir[400];
    (void)state;
    fx_home(home);
    ingest();
    assert_true(ask_num("SELECT max(difference) FROM check_mfu") < 1e-12);
    assert_true(ask_num("SELECT count(*) FROM check_mfu WHERE difference IS NULL") == 0);
    snprintf(dir, sizeof dir, "%s/runs/other/events", home);
    struct evlog *log = fx_open(dir, "other", 1, "rank0");
    fx_train_started(log, 0, 1);
    fx_event(log, "step", "step", 'i', 0, "tokens", 'i', FX_TOKENS, "step_s", 'n', 2.0, "model_flops", 'n', FX_STEP_FLOPS, "mfu", 'n',
             FX_STEP_FLOPS / (2.0 * FX_PEAK) * 1.001, NULL);
    evlog_close(log);
    ingest();
    assert_true(fabs(ask_num("SELECT max(difference) FROM check_mfu") - 1e-3) < 1e-9);
}

static void test_curation_link(void **state)
{
    char dataset[400], events[420];
    struct err err = {0};
    (void)state;
    snprintf(dataset, sizeof dataset, "%s/data [x]", home);
    snprintf(events, sizeof events, "%s/.reel/events", dataset);
    struct evlog *log = fx_open(events, "c7", 0, "curate");
    fx_event(log, "curate_started", "sources", 'i', 1, NULL);
    evlog_close(log);
    assert_int_equal(ingest().events_new, 0);
    for (int i = 0; i < 2; i++)
        if (ingest_link_curation(home, "c7", dataset, &err) < 0)
            fail_msg("%s", err.text);
    assert_int_equal(ingest().events_new, 1);
    assert_int_equal(ingest_link_curation(home, "a/b", dataset, &err), ERR_INPUT);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_views_of_a_whole_home), T(test_time_by_cause), T(test_time_under_clock_steps), T(test_sweep),
        T(test_ingest_again_changes_nothing), T(test_any_order_of_files_and_copies), T(test_reading_on_while_the_log_grows),
        T(test_damage_is_listed_and_costs_what_it_covers), T(test_torn_tail_is_damage_until_the_log_goes_on),
        T(test_truncated_and_regrown), T(test_conflict_is_settled_by_time), T(test_strange_events),
        T(test_trial_steps_are_not_steps_of_runs), T(test_prediction_is_the_last_before_the_trial),
        T(test_second_ingester_waits_or_reads), T(test_rebuild_equals_and_replaces), T(test_rebuild_of_a_damaged_database),
        T(test_every_mfu_recomputed), T(test_curation_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
