// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
#include "base/lease.h"
#include "db/schema.h"
#include "tests/lib/db_fixture.h"

#include <fcntl.h>
#include <unistd.h>

/* ---- the views on the whole fixture ---- */

static void test_views_of_a_whole_home(void **state)
{
    static const struct {
        const char *sql;
        double value;
    } rows[] = {
        {"SELECT count(*) FROM v_step", FX_EXECUTED},
        {"SELECT sum(replayed) FROM v_step", FX_REPLAYED},
        {"SELECT group_concat(step || ':' || attempt) = '40:3,41:3,42:3' FROM (SELECT * FROM "
         "v_step WHERE replayed ORDER BY step)", 1},
        {"SELECT count(DISTINCT step) FROM v_step WHERE NOT replayed", FX_TOTAL},
        {"SELECT count(*) FROM v_attempt", 3},
        {"SELECT group_concat(cause || first_step || '-' || last_step) = "
         "'preempt0-23,crash24-42,done40-59' FROM (SELECT * FROM v_attempt ORDER BY attempt)", 1},
        {"SELECT count(*) FROM v_attempt WHERE ended_at > started_at AND scheduler = 'local' AND "
         "job_id = 100 + attempt", 3},
        {"SELECT count(*) FROM v_trial", FX_TRIALS},
        {"SELECT count(measured_step_s) FROM v_trial", FX_MEASURED},
        {"SELECT count(*) FROM v_trial WHERE predicted_at > 0 AND tp = 1 AND dp IN (1, 2) AND "
         "model = 'dit-tiny' AND seq = '4x8x8'", FX_TRIALS},
        {"SELECT count(*) FROM v_trial WHERE state = 'oom_host' AND mbs = 8 AND dp = 2 AND cause LIKE "
         "'rank 1%'", 1},
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
    static const char *const orders[][4] = {{"runs", "tunes", "curations/c1", "copy"},
                                            {"copy", "curations/c1", "tunes", "runs"},
                                            {"copy", "runs", "copy", "tunes"}};
    char paths[4][400], cmd[900], other[320];
    (void)state;
    fx_home(home);
    snprintf(cmd, sizeof cmd, "mkdir -p %s/copy && cp %s/runs/*/events/rank0.a1.evlog %s/copy/",
             home, home, home);
    assert_int_equal(system(cmd), 0);
    ingest_at(db_path, (const char *const[]){home}, 1);
    char *want = dump(db_path);
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        snprintf(other, sizeof other, "%s/order%zu.db", home, i);
        for (size_t k = 0; k < 4; k++) {
            const char *o = orders[i][k];
            snprintf(paths[k], sizeof paths[k], "%s/%s", home,
                     !strcmp(o, "runs")    ? "runs/" FX_RUN
                     : !strcmp(o, "tunes") ? "tunes/" FX_TUNE
                                           : o);
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

static void zero_block(const char *path, int64_t at, int n)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, zeros, (size_t)n, at), n);
    close(fd);
}

/* Steps [0, before) are ingested, the log is damaged behind them, goes on, and is ingested
 * again. */
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

/* The file system lost the log's last records after they were ingested, and the writer went on with
 * the same numbers. */
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

/* A copy of the log as it was stays elsewhere: two events under one key. The later one counts, in
 * any order. */
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

/* Records that are valid but make no sense: kept raw, never counted, and no view fails over
 * them. */
static void test_strange_events(void **state)
{
    char dir[400];
    (void)state;
    snprintf(dir, sizeof dir, "%s/runs/" FX_RUN "/events", home);
    struct evlog *log = fx_open(dir, FX_RUN, 1, "rank0");
    fx_event(log, "step", "step", 't', "seven", NULL);
    fx_event(log, "step", "step", 'i', 3, "tokens", 'i', 0, "model_flops", 'n', 1e9, "step_s", 'n',
             (double)NAN, "mfu", 'n', 0.5, NULL);
    fx_event(log, "train_started", "peak_flops", 't', "much", "layout", 'i', 4, NULL);
    fx_event(log, "trial_predicted", "trial", 't', "t1", "layout", 't', "no \"layout",
             "predicted_step_s", 't', "soon", NULL);
    fx_event(log, "trial_ended", "trial", 'i', 4, "mfu", 'n', 0.1, NULL);
    fx_event(log, "a_kind_of_the_future", "x", 'i', 1, NULL);
    fx_event(log, "attempt_ended", "cause", 'i', 1, NULL);
    evlog_close(log);
    assert_int_equal(ingest().events_new, 7);
    assert_true(ask_num("SELECT count(*) FROM v_step") == 1);
    assert_true(
        ask_num("SELECT count(*) FROM v_trial WHERE tp IS NULL AND layout = 'no \"layout'") == 1);
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
    assert_true(ask_num("SELECT (SELECT count(*) FROM v_step) + (SELECT count(*) FROM v_attempt) + "
                        "(SELECT count(*) FROM run)") == 0);
}

/* A prediction made again after the measurement must not replace the one the measurement is held
 * against. */
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
            fx_event(log, "trial_predicted", "trial", 't', "t1", "layout", 't', "tp=2,cp_kind=ring",
                     "predicted_step_s", 'n', 1.0 + i, NULL);
        fx_pass(1);
    }
    evlog_close(log);
    ingest();
    assert_true(ask_num("SELECT predicted_step_s FROM v_trial WHERE tp = 2 AND cp_kind = 'ring' "
                        "AND state = 'running'") == 2.0);
}

/* A database of before stands without its logs: their events give the layouts all the same. */
static void test_an_older_database_gets_its_layouts(void **state)
{
    enum { BEFORE_LAYOUTS = 11 };
    sqlite3 *sql = NULL;
    struct err err = {0};
    (void)state;
    assert_int_equal(sqlite3_open(db_path, &sql), SQLITE_OK);
    assert_int_equal(schema_migrate(sql, BEFORE_LAYOUTS, &err), 0);
    assert_int_equal(sqlite3_exec(sql,
                                  "INSERT INTO event(id, run, attempt, writer, seq, kind, wall, "
                                  "mono, boot, host, json) VALUES"
                                  " (1, 'x', 0, 'tune', 1, 'trial_predicted', 1, 1, 'b', 'h', "
                                  "'{\"trial\": \"t1\", \"layout\": \"tp=2,zero=1\"}');"
                                  "INSERT INTO trial_event(event, tune, trial, kind, seq) VALUES "
                                  "(1, 'x', 't1', 'trial_predicted', 1)", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(sql);
    ingest();
    assert_true(ask_num("SELECT tp * 100 + zero * 10 + dp FROM v_trial WHERE recompute = 'none'") ==
                211);
}

/* ---- the text of an event ---- */

/* Writes what the log's writer and a tree write in different characters, and what they do not. */
static void texts_write(const char *events)
{
    static const double numbers[] = {0.1,   1.0 / 3, -0.0,  5e-324, 1.7976931348623157e308,
                                     1e15,  1e16,    2.5e18, 999999999999999,
                                     12345678901234568};
    static const int64_t integers[] = {0, -17, 999999999999999, 1000000000000000,
                                       9007199254740990, 9007199254740992, INT64_MAX};
    struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
    struct evlog_event e;
    for (size_t i = 0; i < ARRAY_LEN(numbers) + ARRAY_LEN(integers); i++) {
        evlog_begin(log, &e, "tried");
        json_put_text(&e.out, "text", "a \"line\"\n\001\303\251\377");
        json_arr_begin(&e.out, "list");
        if (i < ARRAY_LEN(numbers))
            json_put_num(&e.out, NULL, numbers[i]);
        else
            json_put_int(&e.out, NULL, integers[i - ARRAY_LEN(numbers)]);
        json_arr_end(&e.out);
        json_put_null(&e.out, "none");
        assert_int_equal(evlog_commit(log, &e, false, NULL), 0);
    }
    evlog_close(log);
}

static void same_as_its_tree(struct store_query *q, void *rows)
{
    struct json_doc doc;
    struct json_out out;
    struct str text = STR_INIT;
    assert_int_equal(json_parse(store_text(q, 0), strlen(store_text(q, 0)), "event", &doc, NULL), 0);
    json_out_init(&out, &text, 0);
    json_put_tree(&out, NULL, doc.root);
    assert_string_equal(store_text(q, 0), text.p);
    str_release(&text);
    json_release(&doc);
    ++*(int *)rows;
}

static void test_the_text_of_an_event_is_that_of_its_tree(void **state)
{
    char events[512];
    struct store *db = NULL;
    struct err err = {0};
    int rows = 0;
    (void)state;
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    texts_write(events);
    ingest();
    assert_true(ask_num("SELECT count(*) FROM event WHERE json GLOB '*[[]1e+15]*'") == 2);
    assert_int_equal(store_open(db_path, STORE_READ, &db, &err), 0);
    assert_int_equal(store_each(db, "SELECT json FROM event WHERE kind = ?1", "tried",
                                same_as_its_tree, &rows, &err), 0);
    assert_int_equal(rows, 17);
    store_close(db);
}

/* ---- ingesters, rebuild ---- */

static void test_second_ingester_waits_or_reads(void **state)
{
    char lock[320];
    struct lease *held = NULL;
    struct store *db = NULL;
    struct err err = {0};
    bool stale = false;
    (void)state;
    fx_home(home);
    ingest();
    snprintf(lock, sizeof lock, "%s.lock", db_path);
    assert_int_equal(lease_take(lock, 0, &held, &err), 0);
    assert_int_equal(store_open(db_path, STORE_WRITE, &db, &err), 0);
    assert_int_equal(ingest_run(db, (const char *const[]){home}, 1, 0, NULL, &err), ERR_BUSY);
    store_close(db);
    db = NULL;
    /* wait_s 0: the fixture's clock stands still; waiting is lease_take's, and tested there */
    assert_int_equal(ingest_open(db_path, (const char *const[]){home}, 1, 0, &db, &stale, &err), 0);
    assert_true(stale);
    assert_true(store_exec(db, "DELETE FROM event", NULL) < 0);
    store_close(db);
    lease_drop(held);
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
    assert_int_equal(
        file_publish(db_path, "garbage garbage garbage garbage garbage garbage", 47, NULL), 0);
    assert_int_equal(ingest_open(db_path, (const char *const[]){home}, 1, 0, &db, &stale, &err),
                     ERR_CORRUPT);
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
    assert_int_equal(ingest_rebuild(db_path, (const char *const[]){home}, 1, 0, &report, &err),
                     ERR_INPUT);
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
    fx_event(log, "step", "step", 'i', 0, "tokens", 'i', FX_TOKENS, "step_s", 'n', 2.0,
             "model_flops", 'n', FX_STEP_FLOPS, "mfu", 'n', FX_STEP_FLOPS / (2.0 * FX_PEAK) * 1.001,
             NULL);
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
#define T(name) cmocka_unit_test_setup_teardown(name, db_setup, db_teardown)
    const struct CMUnitTest tests[] = {
        T(test_views_of_a_whole_home), T(test_ingest_again_changes_nothing),
        T(test_any_order_of_files_and_copies), T(test_reading_on_while_the_log_grows),
        T(test_damage_is_listed_and_costs_what_it_covers),
        T(test_torn_tail_is_damage_until_the_log_goes_on), T(test_truncated_and_regrown),
        T(test_conflict_is_settled_by_time), T(test_strange_events),
        T(test_trial_steps_are_not_steps_of_runs), T(test_prediction_is_the_last_before_the_trial),
        T(test_an_older_database_gets_its_layouts),
        T(test_the_text_of_an_event_is_that_of_its_tree),
        T(test_second_ingester_waits_or_reads), T(test_rebuild_equals_and_replaces),
        T(test_rebuild_of_a_damaged_database), T(test_every_mfu_recomputed), T(test_curation_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
