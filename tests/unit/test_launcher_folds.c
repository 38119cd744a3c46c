/* The table of histories, folded by the run's state and by the database: both say the same of every
 * attempt. */
// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
#include "launcher/state/gap.h"
#include "tests/lib/db_fixture.h"
#include "tests/lib/histories.h"

static const char *writer_of(const struct ev *e)
{
    static const char *const of_rank[] = {"step", "ckpt_", "train_", "stop_"};
    for (size_t i = 0; i < ARRAY_LEN(of_rank); i++)
        if (str_starts(e->kind, of_rank[i]))
            return "rank0";
    return e->attempt ? "agent" : "submit-1";
}

/* Writes an event as its writer would have, at its own time, by these clocks. */
static void event_put(const char *dir, const char *run, const struct ev *e,
                      struct host_clocks clocks)
{
    char text[300];
    struct json_doc doc;
    struct evlog_event out;
    struct err err = {0};
    const cJSON *field;
    double later_s = 1.8e9 + clocks.ahead_s;
    fx.wall = e->wall + later_s;
    fx.mono = e->wall + clocks.mono_s;
    fx.host = clocks.host;
    fx.boot = clocks.boot;
    struct evlog *log = fx_open(dir, run, e->attempt, writer_of(e));
    snprintf(text, sizeof text, "{%s}", e->fields);
    assert_int_equal(json_parse(text, strlen(text), e->kind, &doc, &err), 0);
    evlog_begin(log, &out, e->kind);
    cJSON_ArrayForEach(field, doc.root)
        if (str_ends(field->string, "_at"))
            json_put_num(&out.out, field->string, field->valuedouble + later_s);
        else if (strcmp(field->string, "token") != 0) /* the log adds it */
            json_put_tree(&out.out, field->string, field);
    assert_int_equal(evlog_commit(log, &out, false, &err), 0);
    evlog_close(log);
    json_release(&doc);
}

/* The run called by a history's number. */
static const char *run_of(size_t i, char run[ID_TEXT_BYTES])
{
    snprintf(run, ID_TEXT_BYTES, "%032zx", i + 1);
    return run;
}

static void state_of(size_t i, struct run_state *s)
{
    char dir[400], run[ID_TEXT_BYTES];
    struct err err = {0};
    snprintf(dir, sizeof dir, "%s/runs/%s", home, run_of(i, run));
    run_state_init(s);
    if (run_state_load(dir, s, &err) < 0)
        fail_msg("%s", err.text);
}

static void histories_write(void)
{
    for (size_t i = 0; i < n_histories; i++) {
        char dir[400], run[ID_TEXT_BYTES];
        snprintf(dir, sizeof dir, "%s/runs/%s/events", home, run_of(i, run));
        for (size_t k = 0; k < count_events(&histories[i]); k++)
            event_put(dir, run, &histories[i].events[k], clocks_of(&histories[i], k));
    }
}

/* A query's number for run and attempt, `otherwise` where it has no row or NULL. */
static double ask_of(const char *run, int64_t attempt, const char *what, double otherwise)
{
    char sql[600];
    snprintf(sql, sizeof sql, "SELECT coalesce((SELECT %s FROM v_attempt a"
             " WHERE a.run = '%s' AND a.attempt = %lld), %.17g)", what, run,
             (long long)attempt, otherwise);
    return ask_num(sql);
}

static void same(const char *what, int64_t attempt, const char *column, double state,
                 double database)
{
    if (fabs(state - database) > 2e-3) /* the database keeps a clock's place in ms */
        fail_msg("%s: attempt %lld: %s is %.3f to the state, %.3f to the database", what,
                 (long long)attempt, column, state, database);
}

static void attempt_same(const char *what, const char *run, const struct run_attempt *a)
{
    const char *cause = attempt_cause_names[a->cause];
    const struct { const char *column; double state; bool known; } table[] = {
        {"started_at", a->started_at, a->started_at > 0}, {"ended_at", a->ended_at, true},
        {"first_step", (double)a->first_step, true},
        {"last_step", (double)a->last_step, a->first_step >= 0},
        {"(SELECT sum(seconds) FROM v_time t WHERE t.run = a.run AND t.cause = 'start'"
         " AND t.\"from\" >= a.started_at - 1e-2 AND t.\"to\" <= a.ended_at + 1e-2)",
         a->first_step_at - a->started_at,
         a->started_at > 0 && a->first_step_at > a->started_at && a->ended_at > a->first_step_at},
    };
    char is_cause[80];
    snprintf(is_cause, sizeof is_cause, "coalesce(a.cause, '') = '%s'", cause);
    if (ask_of(run, a->number, is_cause, -1) != 1)
        fail_msg("%s: attempt %lld ended by '%s' to the state, not to v_attempt", what,
                 (long long)a->number, cause);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].known)
            same(what, a->number, table[i].column, table[i].state,
                 ask_of(run, a->number, table[i].column, i < 2 ? 0 : -1));
}

/* Who heard the first notice and when, where an event of its own tells it. */
static void notice_same(const char *what, const char *run, const struct run_attempt *a)
{
    char sql[300], of[200];
    snprintf(of, sizeof of, "FROM v_notice WHERE run = '%s' AND attempt = %lld", run,
             (long long)a->number);
    snprintf(sql, sizeof sql, "SELECT count(*) %s", of);
    if (ask_num(sql) == 0)
        return;
    snprintf(sql, sizeof sql, "SELECT noticed_at %s", of);
    same(what, a->number, "the notice", a->signal_at, ask_num(sql));
    snprintf(sql, sizeof sql, "SELECT count(*) %s AND signal = '%s' AND (level <> 'batch') = %d",
             of, a->signal, a->signal_at_step);
    if (ask_num(sql) != 1)
        fail_msg("%s: attempt %lld heard '%s' to the state, not to v_notice", what,
                 (long long)a->number, a->signal);
}

/* Between two attempts v_time has the cause that the state knows, for as long as the state says. */
static void gap_same(const char *what, const char *run, const struct run_attempt *a,
                     const struct run_attempt *b)
{
    char sql[300];
    if (a->cause == CAUSE_NONE || b->started_at <= a->ended_at)
        return;
    snprintf(sql, sizeof sql, "SELECT coalesce(sum(seconds), 0) FROM v_time WHERE run = '%s'"
             " AND cause = 'down:%s' AND \"from\" >= %.17g AND \"to\" <= %.17g", run,
             attempt_cause_names[a->cause], a->ended_at - 1e-2, b->started_at + 1e-2);
    same(what, a->number, "time down after it", b->started_at - a->ended_at, ask_num(sql));
}

/* Returns when the history says that an attempt had this kind of event; 0 never. */
static double true_time(const struct fold_case *c, int64_t attempt, const char *kind)
{
    for (size_t k = 0; k < count_events(c); k++)
        if (c->events[k].attempt == attempt && strcmp(c->events[k].kind, kind) == 0)
            return c->events[k].wall;
    return 0;
}

/* Whatever was done to wall clocks, an attempt lasted as long as it did, by its agent's host. */
static void lasted_true(const struct fold_case *c, const struct run_attempt *a)
{
    double from = true_time(c, a->number, "attempt_started");
    double to = true_time(c, a->number, "attempt_ended");
    if (c->clocks[0].host && from > 0 && to > 0)
        same(c->what, a->number, "the time that it lasted", a->ended_at - a->started_at, to - from);
}

/* The last step took as long, without the time that its job was suspended. */
static void last_same(const char *what, const char *run, const struct run_state *s)
{
    char sql[300];
    if (s->last.step < 0)
        return;
    for (int mfu = 0; mfu < 2; mfu++) {
        snprintf(sql, sizeof sql, "SELECT coalesce((SELECT %s FROM v_step WHERE run = '%s'"
                 " AND step = %lld ORDER BY attempt DESC LIMIT 1), -1)", mfu ? "mfu" : "step_s",
                 run, (long long)s->last.step);
        double told = mfu ? s->last.mfu : s->last.step_s;
        same(what, s->last_attempt_of_step, mfu ? "mfu of its last step" : "its last step",
             isnan(told) ? -1 : told, ask_num(sql));
    }
}

static void histories_same(void)
{
    histories_write();
    ingest();
    for (size_t i = 0; i < n_histories; i++) {
        char run[ID_TEXT_BYTES];
        struct run_state s;
        state_of(i, &s);
        run_of(i, run);
        assert_int_equal(s.n_attempts, histories[i].attempts);
        last_same(histories[i].what, run, &s);
        for (int64_t k = 0; k < s.n_attempts; k++) {
            attempt_same(histories[i].what, run, &s.attempts[k]);
            notice_same(histories[i].what, run, &s.attempts[k]);
            lasted_true(&histories[i], &s.attempts[k]);
            if (k + 1 < s.n_attempts)
                gap_same(histories[i].what, run, &s.attempts[k], &s.attempts[k + 1]);
        }
        run_state_release(&s);
    }
}

static void test_histories(void **state)
{
    (void)state;
    histories_same();
}

/* What the state says of steps in which the job was suspended. */
static void test_rests(void **state)
{
    static const struct { const char *what; double step_s, mfu; } table[] = {
        {"suspended within a step, from before it, and after the last", 3, 0.1 * 5 / 3},
        {"the last of three steps was", 3, 0.1 * 13 / 3},
        {"and its clock is set forward by 2 h meanwhile", 3, 0.1 * 13 / 3},
        {"rank 0 is on a host 90 s behind", 3, 0.1 * 13 / 3},
    };
    size_t found = 0;
    (void)state;
    histories_write();
    for (size_t i = 0; i < n_histories; i++)
        for (size_t k = 0; k < ARRAY_LEN(table); k++) {
            struct run_state s;
            if (strcmp(histories[i].what, table[k].what) != 0)
                continue;
            found++;
            state_of(i, &s);
            same(table[k].what, 1, "the last step", s.last.step_s, table[k].step_s);
            same(table[k].what, 1, "its MFU", s.last.mfu, table[k].mfu);
            run_state_release(&s);
        }
    assert_int_equal(found, ARRAY_LEN(table));
}

/* An agent that was taken for lost goes on writing with a number that the next one has used: the
 * end that was told stays. */
static void test_two_agents_in_one_log(void **state)
{
    static const struct fold_case before = {.events = {CREATED, SUBMITTED, STARTED(1, 110)}};
    static const struct ev next = STARTED(2, 130);
    char dir[400], run[ID_TEXT_BYTES];
    struct run_state s;
    (void)state;
    snprintf(dir, sizeof dir, "%s/runs/%s/events", home, run_of(0, run));
    for (size_t k = 0; k < count_events(&before); k++)
        event_put(dir, run, &before.events[k], clocks_of(&before, k));
    struct evlog *late = fx_open(dir, run, 1, "agent");
    event_put(dir, run, &(struct ev)ENDED(1, 120, "node_fail"), clocks_of(&before, 0));
    event_put(dir, run, &next, clocks_of(&before, 0));
    fx.mono += 10;
    fx.wall += 10;
    fx_event(late, "trainer_exited", "code", 'i', 75, NULL);
    fx_event(late, "attempt_ended", "cause", 't', "preempt", NULL);
    evlog_close(late);
    ingest();
    state_of(0, &s);
    assert_int_equal(s.attempts[0].cause, CAUSE_NODE_FAIL);
    attempt_same("two agents in one log", run, &s.attempts[0]);
    gap_same("two agents in one log", run, &s.attempts[0], &s.attempts[1]);
    run_state_release(&s);
    equals_fresh();
}

/* The next attempt runs on a host whose clock is behind or ahead: explain and v_time tell one
 * gap. */
static void test_clocks_of_two_hosts(void **state)
{
    static const double ahead_s[] = {0, -3600, 3600, -5, -86400};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ahead_s); i++) {
        char dir[400], run[ID_TEXT_BYTES];
        struct run_state s;
        fx_reset();
        snprintf(dir, sizeof dir, "%s/runs/%s/events", home, run_of(i, run));
        struct evlog *submit = fx_open(dir, run, 0, "submit-1");
        fx_event(submit, "submit_intent", "sched", 't', "local", NULL);
        evlog_close(submit);
        fx_pass(3);
        fx_attempt(dir, run, 1, 0, 7, 30, "crash");
        fx_pass(10);
        fx.host = "node2";
        fx.boot = "boot-2";
        fx.mono = 77;
        fx.wall += ahead_s[i];
        fx_attempt(dir, run, 2, 4, 14, 30, "done");
        ingest();
        state_of(i, &s);
        char sql[300];
        snprintf(sql, sizeof sql, "SELECT sum(t.seconds) FROM v_time t JOIN v_attempt a USING(run)"
                 " WHERE t.run = '%s' AND a.attempt = 1 AND t.\"from\" >= a.ended_at - 1e-2"
                 " AND (t.cause IN ('start', 'load') OR t.cause GLOB 'down:*')", run);
        same("two hosts", 1, "the gap", run_gap_of(&s.attempts[0], &s.attempts[1]).total,
             ask_num(sql));
        run_state_release(&s);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, db_setup, db_teardown)
    const struct CMUnitTest tests[] = {T(test_histories), T(test_rests), T(test_two_agents_in_one_log),
                                       T(test_clocks_of_two_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
