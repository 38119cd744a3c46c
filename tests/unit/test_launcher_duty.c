/* A scheduler that does not answer is asked again, each time after a pause that is waited. */
// LINK: -Wl,--wrap=clock_sleep_s,--wrap=clock_mono_s
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "launcher/run/duty.h"
#include "tests/lib/scratch.h"

/* ---- time ---- */

enum { MOST = 400 };
static double now_s, slept_s[MOST];
static int n_slept;

double __wrap_clock_mono_s(void);
double __wrap_clock_mono_s(void) { return now_s; }

void __wrap_clock_sleep_s(double seconds);
void __wrap_clock_sleep_s(double seconds)
{
    assert_true(n_slept < MOST);
    slept_s[n_slept++] = seconds;
    now_s += seconds;
}

/* ---- the scheduler ---- */

static int answer, n_failing, n_asked; /* the first so many questions are answered by this error */
static enum sched_end job_ending;

static int ask(struct err *err)
{
    return n_asked++ < n_failing ? err_set(err, (enum err_code)answer, "not now") : 0;
}

static int fake_requeue(struct sched *s, const char *id, struct err *err)
{
    (void)s;
    assert_string_equal(id, "7");
    return ask(err);
}

static int fake_ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err)
{
    int rc = ask(err);
    (void)s, (void)id;
    if (rc == 0)
        out->why = job_ending;
    return rc;
}

static int fake_look(struct sched *s, const char *id, struct sched_jobs *out, struct err *err)
{
    (void)s, (void)id, (void)out;
    return ask(err);
}

static const struct sched_ops ops = {
    .kind = "fake", .requeue = fake_requeue, .ending = fake_ending, .look = fake_look};
static struct sched sched = {.ops = &ops};
static struct duty duty = {.sched = &sched, .self = {.id = "7"}};

/* ---- what asks it ---- */

static void requeue(void)
{
    struct sched_self self = {.id = "7"};
    struct attempt a;
    attempt_init(&a, scratch, &self);
    assert_int_equal(run_fold_open(scratch, &duty.fold, NULL), 0);
    duty_requeue(&duty, &a);
    run_fold_close(duty.fold);
}

static void end_asked(void)
{
    struct sched_ending out;
    assert_int_equal(run_fold_open(scratch, &duty.fold, NULL), 0);
    duty_ending(&duty, true, &out);
    run_fold_close(duty.fold);
}

static void job_end(void) { duty_end(&duty); }

static void (*const askers[])(void) = {requeue, end_asked, job_end};

static void ask_with(void (*asker)(void), int error, int failing)
{
    answer = error;
    n_failing = failing;
    n_asked = n_slept = 0;
    now_s = 5000;
    asker();
}

/* Checks that these pauses were made, doubled each time up to half a minute. */
static void pauses_double(int n)
{
    double pause_s = 1;
    assert_int_equal(n_slept, n);
    for (int i = 0; i < n; i++) {
        if (slept_s[i] != pause_s)
            fail_msg("pause %d was %g s, not %g", i + 1, slept_s[i], pause_s);
        pause_s = 2 * pause_s < 30 ? 2 * pause_s : 30;
    }
}

static void it_answers_late(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(askers); i++)
        for (int n = 0; n < 9; n++) {
            ask_with(askers[i], n % 2 ? ERR_TEMP : ERR_BUSY, n);
            pauses_double(n);
            assert_int_equal(n_asked, n + 1);
        }
}

/* It is asked for as long as the job lasts: nobody else brings the run back. */
static void it_answers_after_hours(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        ask_with(askers[i], ERR_TEMP, MOST - 1);
        assert_true(now_s - 5000 >= 3 * 3600);
        pauses_double(MOST - 1);
        assert_int_equal(n_asked, MOST);
    }
}

/* Nobody else brings the run back when its disk has room again. */
static void a_full_disk_is_waited_for(void **state)
{
    (void)state;
    ask_with(requeue, ERR_FULL, 300);
    assert_int_equal(n_asked, 301);
    pauses_double(300);
}

/* What became of the job is the owner's doing where the owner has paused or cancelled the run: a
 * pause cancels the job of an attempt that has ended. */
static void a_pause_is_no_cancel(void **state)
{
    static const enum run_wish wishes[] = {WISH_RUN, WISH_PAUSE, WISH_CANCEL},
                               after[] = {WISH_CANCEL, WISH_PAUSE, WISH_CANCEL};
    (void)state;
    job_ending = SCHED_END_CANCELLED, n_failing = 0;
    assert_int_equal(run_fold_open(scratch, &duty.fold, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
        struct sched_ending out;
        struct run_state s;
        run_state_init(&s);
        s.wish = wishes[i], s.wish_turn = 3;
        assert_true(duty_cancelled(&duty, scratch, &s, &out));
        assert_int_equal(s.wish, after[i]);
        assert_int_equal(s.wish_turn, wishes[i] == WISH_RUN ? 4 : 3);
        run_state_release(&s);
    }
    run_fold_close(duty.fold);
    job_ending = SCHED_END_NONE;
}

static void a_refusal_is_an_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        ask_with(askers[i], ERR_STATE, MOST);
        assert_true(n_asked == 1 && n_slept == 0);
    }
}

int main(void)
{
#define IN_SCRATCH(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {IN_SCRATCH(it_answers_late), IN_SCRATCH(it_answers_after_hours),
                                       IN_SCRATCH(a_full_disk_is_waited_for),
                                       IN_SCRATCH(a_refusal_is_an_answer),
                                       IN_SCRATCH(a_pause_is_no_cancel)};
    return cmocka_run_group_tests_name("duty", tests, NULL, NULL);
}
