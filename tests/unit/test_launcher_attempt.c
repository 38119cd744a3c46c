/* Attempts: whose lease an agent waits for, and whose it need not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "base/lease.h"
#include "launcher/state/attempt.h"
#include "launcher/submit/control.h"
#include "tests/lib/scratch.h"

/* What the agent of job 7 left on another host, of which nothing is known. */
static void left_behind(int64_t restart)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"job_id\": \"7\", \"token\": \"t\", \"restart\": %lld, \"host\": \"elsewhere\", "
             "\"pid\": 99}",
             (long long)restart);
    assert_int_equal(file_mkdirs(in_scratch("claims/lock"), NULL), 0);
    assert_int_equal(file_publish(in_scratch("claims/attempt-1"), text, strlen(text), NULL), 0);
    assert_int_equal(
        file_publish(
            in_scratch(
                "claims/lock/0123456789abcdef0123456789abcdef.another-boot.1.99.1.0.elsewhere"),
            "1", 1, NULL),
        0);
}

/* Seconds that the lease of what was left behind was waited for. */
static double waited_s(const char *job, int restarts)
{
    struct sched_self self = {.restarts = restarts};
    struct attempt a;
    struct err err = {0};
    snprintf(self.id, sizeof self.id, "%s", job);
    attempt_init(&a, scratch, &self);
    double begun = clock_mono_s();
    int rc = attempt_lock(&a, &err);
    if (rc < 0)
        print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    double s = clock_mono_s() - begun;
    attempt_release(&a);
    return s;
}

/* A job that runs again has ended where it ran before, says the scheduler; of another job nobody
 * says so. */
static void a_former_life_is_not_waited_for(void **state)
{
    (void)state;
    lease_silent_s = 1e9; /* whoever waits does not come back */
    left_behind(0);
    waited_s("7", 1);
    lease_silent_s = 0.5;
    left_behind(0);
    assert_true(waited_s("8", 1) >= 0.5);
    left_behind(1);
    assert_true(waited_s("7", 1) >= 0.5); /* this very life: two agents of one job */
    lease_silent_s = LEASE_SILENT_S;
}

static void the_newest_claim_counts(void **state)
{
    struct sched_self self = {.restarts = 0};
    struct attempt a;
    (void)state;
    attempt_init(&a, scratch, &self);
    left_behind(0);
    a.number = 1;
    assert_true(attempt_is_newest(&a));
    assert_int_equal(file_publish(in_scratch("claims/attempt-2"), "{}", 2, NULL), 0);
    assert_false(attempt_is_newest(&a));
    attempt_release(&a);
}

static void how_a_job_was_ended(void **state)
{
    static const struct {
        enum sched_end why;
        const char *text;
    } cases[] = {
        /* when it was asked again the scheduler knew of nothing */
        {SCHED_END_NONE, ", the job was being ended"},
        {SCHED_END_PREEMPTED, ", the job was being ended (preempted)"},
        {SCHED_END_UNKNOWN, ", the job was being ended (for a reason it does not tell)"},
    };
    char text[128];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        attempt_ending_format(cases[i].why, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

/* A run by hand whose agent was lost with its host goes on: nobody but its silence tells of the
 * end. */
static void one_by_hand_is_over_when_it_is_silent(void **state)
{
    struct launch l = {.run_dir = ""};
    struct run_attempt attempt = {.number = 1};
    struct run_state run = {.attempts = &attempt, .n_attempts = 1};
    char what[STATE_TEXT_BYTES] = "";
    struct err err = {0};
    enum control_life life = CONTROL_LIVES;
    (void)state;
    snprintf(l.run_dir, sizeof l.run_dir, "%s", scratch);
    left_behind(0);
    lease_silent_s = 0.3;
    assert_int_equal(control_lives(&l, NULL, &run, &life, what, &err), 0);
    assert_int_equal(life, CONTROL_DEAD);
    struct lease *own = NULL;
    assert_int_equal(lease_take(in_scratch("claims/lock"), 0, &own, &err), 0);
    assert_int_equal(control_lives(&l, NULL, &run, &life, what, &err), 0);
    assert_true(life == CONTROL_LIVES && strstr(what, "attempt 1 runs, outside of a job"));
    lease_drop(own);
    lease_silent_s = LEASE_SILENT_S;
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_former_life_is_not_waited_for),
        IN_SCRATCH(the_newest_claim_counts),
        cmocka_unit_test(how_a_job_was_ended),
        IN_SCRATCH(one_by_hand_is_over_when_it_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
