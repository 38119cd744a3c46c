/* What an agent asks of a scheduler that does not answer: it asks for as long as its job lasts, and
 * writes down what it asked. Time passes when somebody sleeps, and only then. */
// LINK: -Wl,--wrap=clock_sleep_s,--wrap=clock_mono_s,--wrap=evlog_reader_open
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/events.h"
#include "launcher/run/duty.h"
#include "launcher/state/wish_name.h"
#include "launcher/submit/launch.h"
#include "tests/lib/scratch.h"

/* ---- time ---- */

static double slept_s;

double __real_clock_mono_s(void);
double __wrap_clock_mono_s(void);
double __wrap_clock_mono_s(void) { return __real_clock_mono_s() + slept_s; }

void __wrap_clock_sleep_s(double seconds);
void __wrap_clock_sleep_s(double seconds) { slept_s += fmax(0, seconds); }

/* ---- the run's logs ---- */

static int n_logs_opened;

int __real_evlog_reader_open(const char *path, struct evlog_reader **out, struct err *err);
int __wrap_evlog_reader_open(const char *path, struct evlog_reader **out, struct err *err);
int __wrap_evlog_reader_open(const char *path, struct evlog_reader **out, struct err *err)
{
    n_logs_opened++;
    return __real_evlog_reader_open(path, out, err);
}

/* ---- the scheduler ---- */

static double answers_after_s; /* of sleep */
static int n_asked, n_requeued, n_forgotten, n_cancelled, restarts;
static enum sched_state state_told;
static const char *wish_at_asking; /* the run's folder: its owner cancels it while this one asks */

static int answer(struct err *err)
{
    n_asked++;
    if (slept_s < answers_after_s)
        return err_set(err, ERR_TEMP, "the controller does not answer");
    return 0;
}

static void wish_put(void)
{
    struct run_state s;
    if (!wish_at_asking)
        return;
    run_state_init(&s);
    assert_int_equal(run_state_load(wish_at_asking, &s, NULL), 0);
    struct wish_name m = wish_name_make(&s, WISH_CANCEL, false);
    assert_int_equal(wish_name_put(wish_at_asking, &m, NULL), 0);
    run_state_release(&s);
    wish_at_asking = NULL;
}

static int fake_requeue(struct sched *s, const char *id, struct err *err)
{
    (void)s, (void)id;
    wish_put();
    int rc = answer(err);
    n_requeued += rc == 0;
    return rc;
}

static int fake_ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err)
{
    (void)s, (void)id;
    wish_put();
    int rc = answer(err);
    if (rc == 0)
        *out = (struct sched_ending){.why = SCHED_END_PREEMPTED};
    return rc;
}

/* A scheduler that has forgotten a requeue has the job running as before. */
static int fake_look(struct sched *s, const char *id, struct sched_jobs *out, struct err *err)
{
    (void)s;
    int rc = answer(err);
    if (rc < 0)
        return rc;
    arena_init(&out->arena, 0);
    out->jobs = arena_array(&out->arena, 1, sizeof *out->jobs);
    enum sched_state state = n_forgotten > 0 ? SCHED_RUNNING : state_told;
    out->jobs[out->n++] = (struct sched_job){.id = id, .token = "", .name = "", .reason = "",
                                             .state = state, .restarts = restarts};
    n_forgotten -= n_forgotten > 0;
    return 0;
}

static int fake_cancel(struct sched *s, const char *id, struct err *err)
{
    (void)s, (void)err;
    assert_string_equal(id, "5");
    n_cancelled++;
    return 0;
}

static const struct sched_ops ops = {.kind = "local", .requeue = fake_requeue,
                                     .ending = fake_ending, .look = fake_look,
                                     .cancel = fake_cancel};
static struct sched sched = {.ops = &ops, .settle_s = 10};

/* ---- the run ---- */

static struct launch l;
static struct attempt attempt;
static struct duty duty;

static void begin(void)
{
    static const char text[] = "{\"schema\": \"reel.run/1\", \"name\": \"one\", \"model\": "
                               "\"dit-tiny\", \"stages\": [{\"data\": \"synthetic:1x4x4\", "
                               "\"gbs\": 2, \"steps\": 4}]}";
    static const struct attempt_ending untold = {.why = SCHED_END_UNKNOWN};
    struct evlog_event e;
    struct run run;
    static int n_homes;
    char home[32];
    struct run_state s;
    bool existed;
    snprintf(home, sizeof home, "home%d", n_homes++);
    slept_s = answers_after_s = 0;
    run_fold_close(duty.fold);
    assert_int_equal(run_parse(text, strlen(text), "run.json", &run, NULL), 0);
    struct plan plan = {.layout = layout_default(), .seq = {1, 4, 4}, .gbs = 2,
                        .dtype = run.dtype, .device = "cpu", .model = "dit-tiny"};
    assert_int_equal(launch_create(in_scratch(home), "/bin", &run, &plan, NULL, &l, &existed,
                                   NULL), 0);
    run_release(&run);
    duty = (struct duty){.sched = &sched, .self = {.id = "5", .restarts = 1}, .teller = &attempt};
    attempt_init(&attempt, l.run_dir, &duty.self);
    run_state_init(&s);
    assert_int_equal(run_state_load(l.run_dir, &s, NULL), 0);
    assert_int_equal(attempt_lock(&attempt, NULL), 0);
    assert_int_equal(attempt_claim(&attempt, &s, &untold, NULL), 0);
    run_state_release(&s);
    event_begin(attempt.log, &e, attempt_started);
    event_text(&e, attempt_started, job_id, duty.self.id);
    attempt_event(&attempt, &e);
    assert_int_equal(run_fold_open(l.run_dir, &duty.fold, NULL), 0);
    assert_int_equal(run_fold_renew(duty.fold, NULL), 0);
    n_asked = n_requeued = n_forgotten = n_cancelled = 0;
    restarts = 1;
    state_told = SCHED_REQUEUED;
    wish_at_asking = NULL;
}

/* Returns what the log tells of the attempt now, and releases it. */
static struct run_attempt told(void)
{
    struct run_state s;
    run_state_init(&s);
    attempt_release(&attempt);
    assert_int_equal(run_state_load(l.run_dir, &s, NULL), 0);
    assert_int_equal(s.n_attempts, 1);
    struct run_attempt a = s.attempts[0];
    run_state_release(&s);
    return a;
}

enum { HOURS_S = 5 * 3600 };

static void a_requeue_is_tried_for_hours(void **state)
{
    (void)state;
    begin();
    answers_after_s = HOURS_S;
    n_logs_opened = 0;
    duty_requeue(&duty, &attempt);
    assert_int_equal(n_requeued, 1);
    assert_int_equal(n_logs_opened, 0);
    struct run_attempt a = told();
    assert_true(a.requeued_at > 0);
    assert_string_equal(a.vain.what, "to requeue the job");
    assert_string_equal(a.vain.why, "the controller does not answer");
    assert_in_range(a.vain.tries, n_asked / 2, n_asked);
    assert_false(a.vain.refused);
}

static void so_is_the_question_why_it_ends(void **state)
{
    struct sched_ending ending;
    (void)state;
    begin();
    answers_after_s = HOURS_S;
    assert_int_equal(duty_ending(&duty, true, &ending), 0);
    assert_int_equal(ending.why, SCHED_END_PREEMPTED);
    struct run_attempt a = told();
    assert_string_equal(a.vain.what, "why the job ends");
    begin();
    answers_after_s = HOURS_S;
    assert_int_equal(duty_ending(&duty, false, &ending), ERR_TEMP);
    assert_int_equal(n_asked, 1);
    assert_string_equal(told().vain.what, "");
}

static void not_for_a_run_that_nobody_wants(void **state)
{
    struct sched_ending ending;
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin();
        answers_after_s = INFINITY;
        wish_at_asking = l.run_dir;
        if (i == 0)
            duty_requeue(&duty, &attempt);
        else
            assert_int_equal(duty_ending(&duty, true, &ending), ERR_TEMP);
        assert_int_equal(n_asked, 1);
        assert_true(told().requeued_at == 0);
    }
}

/* After it has asked, the agent decides by how the attempt ended, for whose event the disk had no
 * room, and by what the owner has said meanwhile. */
static void asking_keeps_what_was_supposed(void **state)
{
    struct sched_ending ending;
    struct run_budget budget = {0};
    (void)state;
    begin();
    answers_after_s = INFINITY;
    wish_at_asking = l.run_dir;
    assert_int_equal(run_state_end(run_fold_suppose(duty.fold), 1, CAUSE_CRASH, "it died", NULL),
                     0);
    assert_int_equal(duty_ending(&duty, true, &ending), ERR_TEMP);
    const struct run_state *s = run_fold_state(duty.fold);
    assert_string_equal(s->attempts[0].detail, "it died");
    assert_int_equal(run_state_next(s, &budget, NULL), RUN_NEXT_CANCELLED);
    told();
}

/* A job that cannot record its attempt is given back by what the fold reads in addition. */
static void a_job_is_given_back(void **state)
{
    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        begin();
        int64_t events = run_fold_events(duty.fold);
        wish_at_asking = cancelled ? l.run_dir : NULL;
        wish_put();
        duty_give_back(&duty, &attempt, false);
        assert_int_equal(n_requeued, !cancelled);
        assert_int_equal(run_fold_events(duty.fold), events);
        told();
    }
}

static void a_forgotten_requeue_is_made_again(void **state)
{
    (void)state;
    begin();
    n_forgotten = 2;
    duty_requeue(&duty, &attempt);
    told();
    answers_after_s = slept_s + 600; /* it is away, and comes back without its memory */
    duty_requeue_settle(&duty);
    assert_int_equal(n_requeued, 3);
    assert_true(slept_s >= answers_after_s + 2 * sched.settle_s);
}

static void one_that_is_known_is_not(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        begin();
        if (i > 0)
            duty_requeue(&duty, &attempt);
        told();
        if (i == 2) /* its next execution runs, on other nodes */
            state_told = SCHED_RUNNING, restarts = 2;
        if (i == 3)
            state_told = SCHED_CANCELLED;
        duty_requeue_settle(&duty);
        assert_int_equal(n_requeued, i > 0);
        assert_true(slept_s < sched.settle_s + 1);
    }
}

/* A job that runs again has its id still: its next execution is not ended with this one. */
static void only_its_own_execution_is_ended(void **state)
{
    (void)state;
    begin();
    state_told = SCHED_RUNNING;
    restarts = 2;
    duty_end(&duty);
    assert_int_equal(n_cancelled, 0);
    restarts = 1;
    duty_end(&duty);
    assert_int_equal(n_cancelled, 1);
    told();
}

static int teardown(void **state)
{
    run_fold_close(duty.fold);
    duty.fold = NULL;
    return scratch_teardown(state);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_requeue_is_tried_for_hours),
        IN_SCRATCH(so_is_the_question_why_it_ends),
        IN_SCRATCH(not_for_a_run_that_nobody_wants),
        IN_SCRATCH(asking_keeps_what_was_supposed),
        IN_SCRATCH(a_job_is_given_back),
        IN_SCRATCH(a_forgotten_requeue_is_made_again),
        IN_SCRATCH(one_that_is_known_is_not), IN_SCRATCH(only_its_own_execution_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
