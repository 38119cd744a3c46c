/* What became of an attempt stands in a file's name: kept without a new file, found by the fold,
 * overruled by events, and written as events by the next attempt, once. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/evlog.h"
#include "launcher/state/attempt.h"
#include "launcher/state/end_name.h"
#include "tests/lib/scratch.h"

static const char run_id[] = "0123456789abcdef0123456789abcdef";
static const struct attempt_ending untold = {.why = SCHED_END_UNKNOWN};

static int files(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static const struct run_attempt *folded(struct run_state *s, int64_t number)
{
    run_state_init(s);
    assert_int_equal(run_state_load(scratch, s, NULL), 0);
    const struct run_attempt *a = attempt_told(s, number);
    assert_non_null(a);
    return a;
}

static void event_put(int64_t attempt, const char *kind, const char *cause)
{
    struct evlog_ids ids = {run_id, attempt, "agent", NULL};
    struct evlog *log;
    struct evlog_event e;
    assert_int_equal(evlog_open(in_scratch("events"), &ids, &log, NULL), 0);
    evlog_begin(log, &e, kind);
    if (cause)
        json_put_text(&e.out, "cause", cause);
    assert_int_equal(evlog_commit(log, &e, true, NULL), 0);
    evlog_close(log);
}

/* The next attempt is claimed. */
static void follow(void)
{
    static const struct sched_self self = {.nodes = 1};
    struct run_state s;
    struct attempt a;
    run_state_init(&s);
    assert_int_equal(run_state_load(scratch, &s, NULL), 0);
    attempt_init(&a, scratch, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    assert_int_equal(attempt_claim(&a, &s, &untold, NULL), 0);
    attempt_release(&a);
    run_state_release(&s);
}

static void begin(void)
{
    assert_int_equal(mkdir(in_scratch("events"), 0777), 0);
    follow();
    event_put(1, "attempt_started", NULL);
}

static void kept_in_one_file(void **state)
{
    struct run_state s;
    (void)state;
    begin();
    int n = files(in_scratch("events"));
    struct run_named m = {.attempt = 1, .signo = SIGTERM, .notice_at = 1700000000.5,
                          .at = 1700000001};
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    const struct run_attempt *a = folded(&s, 1);
    assert_true(a->cause == CAUSE_NONE && a->signal_at == 1700000000.5 && !a->signal_at_step);
    assert_string_equal(a->signal, "SIGTERM");
    run_state_release(&s);
    m.end = NAMED_ENDED;
    m.cause = CAUSE_TIME_LIMIT;
    m.exit_code = -1;
    m.exit_signal = SIGKILL;
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    a = folded(&s, 1);
    assert_true(a->cause == CAUSE_TIME_LIMIT && a->ended_at == 1700000001 && a->end_named);
    assert_non_null(strstr(a->detail, "SIGKILL"));
    run_state_release(&s);
    assert_int_equal(files(in_scratch("events")), n);
    m.attempt = 2;
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    m.attempt = 1;
    assert_int_equal(end_name_put(scratch, &m, NULL), ERR_BUSY);
}

static void overruled_by_the_log(void **state)
{
    struct run_state s;
    struct run_named m = {.attempt = 1, .end = NAMED_ENDED, .cause = CAUSE_PREEMPT, .at = 1700000001};
    (void)state;
    begin();
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    event_put(1, "attempt_ended", "crash");
    const struct run_attempt *a = folded(&s, 1);
    assert_true(a->cause == CAUSE_CRASH && !a->end_named);
    run_state_release(&s);
}

/* How often the logs of attempt 1 tell of this kind of event. */
static int told(const char *kind)
{
    static const char *const logs[] = {"events/agent.a1.evlog", "events/follower.a1.evlog"};
    const cJSON *event;
    int n = 0;
    for (size_t i = 0; i < 2; i++) {
        struct evlog_reader *r;
        if (evlog_reader_open(in_scratch(logs[i]), &r, NULL) < 0)
            continue;
        while (evlog_reader_next(r, &event, NULL) == 1)
            n += strcmp(json_text(event, "ev", ""), kind) == 0;
        evlog_reader_close(r);
    }
    return n;
}

static void written_by_the_next(void **state)
{
    struct run_state s;
    (void)state;
    begin();
    double now = clock_wall_s();
    struct run_named m = {.attempt = 1, .signo = SIGTERM, .notice_at = now,
                          .end = NAMED_ENDED, .cause = CAUSE_PREEMPT, .exit_code = 3, .at = now};
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    follow();
    follow();
    assert_int_equal(told("attempt_ended"), 1);
    assert_int_equal(told("signal"), 1);
    m = (struct run_named){.attempt = 2, .at = now};
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    const struct run_attempt *a = folded(&s, 1);
    assert_true(a->cause == CAUSE_PREEMPT && a->exit_code == 3 && !a->end_named);
    assert_true(fabs(a->signal_at - now) < 1);
    run_state_release(&s);
}

/* A job that was given back because its time limit was over is not taken for a preempted one. */
static void given_back(void **state)
{
    struct run_state s;
    struct run_named m = {.attempt = 1, .signo = SIGTERM, .notice_at = 1700000000.5,
                          .end = NAMED_GIVEN_BACK, .cause = CAUSE_TIME_LIMIT, .exit_code = -1,
                          .at = 1700000001};
    (void)state;
    begin();
    assert_int_equal(end_name_put(scratch, &m, NULL), 0);
    follow();
    const struct run_attempt *a = folded(&s, 1);
    assert_int_equal(a->cause, CAUSE_TIME_LIMIT);
    run_state_release(&s);
}

/* The guard of a killed agent that found no room until its job was told to stop. */
static void mourned(void **state)
{
    static const struct sched_self self = {.nodes = 1}, other = {.id = "7"};
    struct run_state s;
    struct run_fold *fold;
    struct attempt a;
    (void)state;
    begin();
    assert_int_equal(run_fold_open(scratch, &fold, NULL), 0);
    attempt_init(&a, scratch, &other);
    attempt_mourn_name(&a, fold, SIGKILL, SCHED_END_PREEMPTED);
    assert_int_equal(folded(&s, 1)->cause, CAUSE_NONE); /* it was an attempt of another job */
    run_state_release(&s);
    attempt_init(&a, scratch, &self);
    attempt_mourn_name(&a, fold, SIGKILL, SCHED_END_PREEMPTED);
    assert_int_equal(folded(&s, 1)->cause, CAUSE_CRASH);
    assert_non_null(strstr(s.attempts[0].detail, "agent died of SIGKILL"));
    run_state_release(&s);
    run_fold_close(fold);
    follow();
    assert_true(folded(&s, 1)->cause == CAUSE_CRASH && !attempt_told(&s, 1)->end_named);
    run_state_release(&s);
}

static void names(void **state)
{
    struct run_named m;
    (void)state;
    assert_true(end_name_is("end.none") && !end_name_parse("end.none", &m));
    assert_true(end_name_parse("end.3.15.1.1700000000123.open.none.0.0.1700000000456", &m));
    assert_true(m.attempt == 3 && m.signo == SIGTERM && m.at_node && m.end == NAMED_OPEN);
    assert_false(end_name_parse("end.3.15.1.17.ended.slept.0.0.17", &m));
    assert_false(end_name_parse("end.3.15.1.17.kept.none.0.0.17", &m));
    assert_false(end_name_is("agent.a1.evlog"));
}

#define IN_SCRATCH(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest all[] = {IN_SCRATCH(kept_in_one_file), IN_SCRATCH(overruled_by_the_log),
                                     IN_SCRATCH(written_by_the_next), IN_SCRATCH(given_back),
                                     IN_SCRATCH(mourned),
                                     IN_SCRATCH(names)};
    return cmocka_run_group_tests_name("names of ends", all, NULL, NULL);
}
