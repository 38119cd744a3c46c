/* Where a run's time went: by cause, under clocks that are stepped, and folded in any pieces: what
 * comes of it is what one reading of all logs gives, and costs what is new. HISTORIES=n tries so
 * many. */
// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
#include "tests/lib/db_fixture.h"

#include "db/fold.h"
#include "db/store_priv.h"

static void time_invariants(void)
{
    assert_true(ask_num("SELECT count(*) FROM v_time") > 0);
    assert_true(ask_num("SELECT count(*) FROM v_time WHERE NOT (seconds >= 0) OR seconds <> \"to\" "
                        "- \"from\"") == 0);
    assert_true(ask_num("SELECT count(*) FROM (SELECT \"from\" <> lag(\"to\") OVER (PARTITION BY "
                        "run ORDER BY \"from\") AS gap FROM v_time) WHERE gap") == 0);
    double sum = ask_num("SELECT sum(seconds) FROM v_time");
    double wall = ask_num("SELECT (SELECT max(at) FROM event_time WHERE run = '" FX_RUN
                          "') - (SELECT min(at) FROM event_time WHERE kind = 'submit_intent')");
    assert_true(fabs(sum - wall) < 1e-5);
}

/* Each cause's seconds are what the fixture spent on it. */
static void test_time_by_cause(void **state)
{
    static const struct {
        const char *cause;
        double seconds;
    } rows[] = {
        {"queue", 4.6},       {"start", 3 * (0.8 + 1.1)},
        {"load", 2 * 0.6},    {"save", (2 + 1 + 2 + 2 + 1) * 0.7},
        {"down:preempt", 11}, {"down:crash", 2.5},
    };
    (void)state;
    fx_home(home);
    ingest();
    time_invariants();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT sum(seconds) FROM v_time WHERE cause = '%s'",
                 rows[i].cause);
        if (fabs(ask_num(sql) - rows[i].seconds) > 1e-4)
            fail_msg("%s: %.6f s, not %.6f", rows[i].cause, ask_num(sql), rows[i].seconds);
    }
    assert_true(fabs(ask_num("SELECT sum(step_s) FROM v_step WHERE NOT replayed") -
                     ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'train'")) < 1e-4);
    assert_true(fabs(ask_num("SELECT sum(step_s) FROM v_step WHERE replayed") -
                     ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'replay'")) < 1e-4);
    assert_true(fabs(ask_num("SELECT sum(seconds) FROM v_time") -
                     (fx.wall - 1.8e9 - 20 - 7 * 8 - 3 - 1)) < 1e-4);
}

/* The wall clock jumps in the middle, the second attempt runs on a host whose clock is an hour off:
 * same durations. */
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
        assert_true(fabs(ask_num("SELECT sum(seconds) FROM v_time WHERE cause = 'down:preempt'") -
                         10) < 1e-4);
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

/* ---- any history, read in any pieces ---- */

static unsigned random_state;
static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (unsigned)n);
}

/* What an agent reads of a wrapped trainer: rows of several steps, told late, the first without a
 * time. */
static void wrapped_make(const char *dir, int attempt, int from, int to)
{
    struct evlog *log = fx_open(dir, FX_RUN, attempt, "agent");
    for (int done = from, stride = 1 + random_below(4); done < to; done += stride) {
        double seconds = 0.5 * stride;
        fx_pass(seconds + 0.25 * random_below(3));
        fx_event(log, "step", "step", 'i', done + stride - 1, "steps", 'i', stride, "started_at",
                 'n', fx.wall - seconds, "step_s", 'n', done == from ? (double)NAN : seconds,
                 "ended_ago_s", 'n', 0.125 * random_below(3), "again", 'i', random_below(5) == 0,
                 NULL);
    }
    evlog_close(log);
}

/* Attempts that end early, replay, move to hosts with clocks of their own, and whose wall clocks
 * are stepped. */
static void history_make(const char *dir)
{
    static const char *const causes[] = {"preempt", "crash", "node_fail", "preempt"},
                             *const hosts[] = {"node1", "node2", "node3"};
    static const char *const boots[] = {"boot-1", "boot-2", "boot-3"};
    struct evlog *submit = fx_open(dir, FX_RUN, 0, "submit-1");
    int next = 0, attempts = 2 + random_below(4);
    fx_event(submit, "submit_intent", "sched", 't', "local", NULL);
    fx_event(submit, "submitted", "sched", 't', "local", NULL);
    evlog_close(submit);
    for (int n = 1; n <= attempts; n++) {
        int last = next + random_below(25), host = random_below(3);
        fx_pass(0.25 + random_below(40));
        fx.host = hosts[host];
        fx.boot = boots[host];
        if (random_below(4) == 0)
            fx.wall += random_below(3) * 1800 - 1800;
        if (random_below(5) == 0)
            fx.mono = 1000.0 * host + fx.mono;
        fx_attempt(dir, FX_RUN, n, next, last, 200,
                   n == attempts && random_below(2) ? "done" : causes[random_below(4)]);
        if (random_below(3) == 0)
            wrapped_make(dir, n, last + 1, last + 12);
        /* steps behind the last save are done again */
        next = last + 1 > 8 ? last + 1 - random_below(8) : last + 1;
    }
}

/* The file of this name in `to` becomes the first `bytes` bytes of the one in `from`. */
static void prefix_copy(const char *from, const char *to, const char *name, int64_t bytes)
{
    char a[700], b[700];
    struct str text = STR_INIT;
    snprintf(a, sizeof a, "%s/%s", from, name);
    snprintf(b, sizeof b, "%s/%s", to, name);
    assert_int_equal(file_read(a, 1 << 24, &text, NULL), 0);
    FILE *f = fopen(b, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text.p, 1, (size_t)bytes, f), bytes);
    fclose(f);
    str_release(&text);
}

/* Logs arrive in pieces of any length and in any order, cut within records too; now and then one
 * loses its end, and has it again. */
static void history_ingest(const char *from, const char *to)
{
    char name[16][64];
    int64_t size[16], have[16] = {0};
    int n = 0, left = 0;
    static const char *const writers[] = {"submit-1", "agent", "rank0"};
    for (int attempt = 0; attempt < 8; attempt++)
        for (int w = 0; w < 3; w++) {
            char path[700];
            snprintf(name[n], sizeof name[n], "%s.a%d.evlog", writers[w], attempt);
            snprintf(path, sizeof path, "%s/%s", from, name[n]);
            if (!file_exists(path))
                continue;
            size[n] = file_size(path);
            left++;
            n++;
        }
    for (int round = 0; left > 0; round++) {
        int i = random_below(n);
        if (have[i] == size[i])
            continue;
        int64_t piece = 1 + random_below(random_below(3) ? (int)size[i] : 300);
        have[i] = random_below(12) == 0       ? have[i] / 2
                  : have[i] + piece < size[i] ? have[i] + piece
                                              : size[i];
        left -= have[i] == size[i];
        prefix_copy(from, to, name[i], have[i]);
        ingest();
        if (random_below(6) == 0)
            equals_fresh();
    }
    equals_fresh();
}

static void test_random_histories_in_random_pieces(void **state)
{
    (void)state;
    const char *count = getenv("HISTORIES");
    for (int seed = 1; seed <= (count ? atoi(count) : 4); seed++) {
        char from[400], to[400];
        print_message("history %d\n", seed);
        random_state = (unsigned)seed;
        fx_reset();
        file_remove_tree(home, NULL);
        snprintf(from, sizeof from, "%s/whole", home);
        snprintf(to, sizeof to, "%s/runs/" FX_RUN "/events", home);
        assert_int_equal(file_mkdirs(to, NULL), 0);
        history_make(from);
        history_ingest(from, to);
        time_invariants();
    }
}

/* A database of an older reel has no fold's memory: its runs are listed to be folded from their
 * first event. */
static void test_listed_runs_are_folded_anew(void **state)
{
    struct store *db = NULL;
    struct err err = {0};
    (void)state;
    fx_home(home);
    ingest();
    assert_int_equal(store_open(db_path, STORE_WRITE, &db, &err), 0);
    assert_int_equal(
        store_exec(db,
                   "DELETE FROM span; DELETE FROM fold; DELETE FROM fold_diff; DELETE FROM "
                   "fold_part; DELETE FROM fold_attempt;"
                   "DELETE FROM fold_writer; UPDATE run_clock SET offset_s = offset_s + 1e-4;"
                   "INSERT INTO refold SELECT DISTINCT run FROM event", &err),
        0);
    store_close(db);
    assert_int_equal(ingest().events_new, 0);
    equals_fresh();
}

/* ---- work ---- */

static int64_t work; /* of SQLite: the operations its statements took */

static int work_count(unsigned event, void *context, void *stmt, void *ns)
{
    (void)event;
    (void)context;
    (void)ns;
    work += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
    return 0;
}

static int64_t ingest_work(void)
{
    struct store *db = NULL;
    struct err err = {0};
    work = 0;
    assert_int_equal(store_open(db_path, STORE_WRITE, &db, &err), 0);
    sqlite3_trace_v2(store_sqlite(db), SQLITE_TRACE_PROFILE, work_count, NULL);
    if (ingest_run(db, (const char *const[]){home}, 1, 0, NULL, &err) < 0)
        fail_msg("%s", err.text);
    store_close(db);
    return work;
}

static int64_t work_of_steps(struct evlog *log, int from, int to)
{
    for (int s = from; s < to; s++, fx_pass(0.01))
        fx_step(log, s, 1.0, 0.5);
    return ingest_work();
}

/* What an ingest costs depends on what is new, and not on how much there was before: nor where the
 * wall clock was stepped meanwhile, since the offset is that of most events, old and new. */
static void test_work_is_that_of_the_news(void **state)
{
    char events[512];
    int64_t all[2], news[2], stepped[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        int steps = i ? 4000 : 1000;
        file_remove_tree(home, NULL);
        fx_reset();
        snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
        struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
        fx_train_started(log, 0, 2 * steps);
        all[i] = work_of_steps(log, 0, steps);
        news[i] = work_of_steps(log, steps, steps + 100);
        fx.wall += 3600;
        stepped[i] = work_of_steps(log, steps + 100, steps + 200);
        evlog_close(log);
        assert_true(ask_num("SELECT count(*) FROM v_time WHERE cause = 'train'") == steps + 200);
    }
    print_message(
        "operations: %lld for 1000 steps, %lld for 4000; for 100 more %lld and %lld; behind a "
        "stepped clock %lld and %lld\n",
        (long long)all[0], (long long)all[1], (long long)news[0], (long long)news[1],
        (long long)stepped[0], (long long)stepped[1]);
    assert_true(all[1] < 5 * all[0]);
    assert_true(news[1] < 1.2 * (double)news[0] && news[0] < all[0] / 5);
    assert_true(stepped[1] < 1.2 * (double)stepped[0] && stepped[0] < all[0] / 5);
}

/* Makes a run of `attempts` attempts of 40 steps, 8 of them replays, and reads it. Then steps come
 * late to the log of attempt 5, which attempt 6 has done. */
static void late_steps_make(int attempts)
{
    char events[512];
    file_remove_tree(home, NULL);
    fx_reset();
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    for (int a = 1, first = 0; a <= attempts; a++, first += 32, fx_pass(10))
        fx_attempt(events, FX_RUN, a, first, first + 39, 32 * attempts + 8, "preempt");
    ingest_work();
    struct evlog *log = fx_open(events, FX_RUN, 5, "rank0");
    for (int s = 0; s < 20; s++)
        fx_step(log, 32 * 4 + 40 + s, 0.25, 0.5);
    evlog_close(log);
}

/* Steps that are told late of an old attempt make replays of those of the next one. Only that one
 * is folded again. */
static void test_work_of_late_steps(void **state)
{
    (void)state;
    late_steps_make(10);
    int64_t few = ingest_work();
    late_steps_make(60);
    int64_t many = ingest_work();
    print_message("operations: %lld after 10 attempts, %lld after 60\n", (long long)few,
                  (long long)many);
    assert_true(many < 2 * few);
    assert_true(ask_num("SELECT count(*) FROM v_step WHERE attempt = 6 AND replayed") == 28);
    equals_fresh();
}

/* An older reel has not kept where the activities of its attempts lie. */
static void test_late_steps_after_an_older_reel(void **state)
{
    struct store *db = NULL;
    (void)state;
    late_steps_make(7);
    assert_int_equal(store_open(db_path, STORE_WRITE, &db, NULL), 0);
    assert_int_equal(
        store_exec(db, "UPDATE fold_attempt SET acts_from = -9e999, acts_to = 9e999", NULL), 0);
    store_close(db);
    assert_int_equal(ingest().events_new, 20);
    equals_fresh();
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, db_setup, db_teardown)
    const struct CMUnitTest tests[] = {
        T(test_time_by_cause), T(test_time_under_clock_steps), T(test_sweep),
        T(test_random_histories_in_random_pieces), T(test_listed_runs_are_folded_anew),
        T(test_work_is_that_of_the_news), T(test_work_of_late_steps),
        T(test_late_steps_after_an_older_reel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
