/* A run that is removed while another process waits to submit it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lease.h"
#include "launcher/state/home.h"
#include "launcher/state/state.h"
#include "launcher/submit/launch.h"
#include "profiles/plan.h"
#include "tests/lib/scratch.h"

static const char run_text[] =
    "{\"schema\": \"reel.run/1\", \"name\": \"one\", \"model\": \"dit-tiny\", "
    "\"stages\": [{\"data\": \"synthetic:1x8x8\", \"gbs\": 2, \"steps\": 40}]}";

static void make(struct launch *l)
{
    struct run run;
    struct err err = {0};
    bool existed = false;
    assert_int_equal(run_parse(run_text, sizeof run_text - 1, "run.json", &run, &err), 0);
    struct plan plan = {.layout = layout_default(), .seq = {1, 4, 4}, .gbs = 2, .dtype = run.dtype,
                        .device = "cpu",
                        .model = "dit-tiny"};
    assert_int_equal(
        launch_create(in_scratch("home"), "/bin", &run, &plan, "{}\n", l, &existed, &err), 0);
    run_release(&run);
}

/* What the lock says in another process, as an exit status. */
static pid_t waiter(const struct launch *l)
{
    pid_t child = fork();
    if (child == 0) {
        struct run_state state;
        struct lease *lock = NULL;
        run_state_init(&state);
        _exit(-launch_lock(l, &lock, &state, NULL));
    }
    return child;
}

static int status_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
}

static void a_waiter_finds_no_run(void **state)
{
    struct launch l;
    struct run_state now;
    struct lease *lock = NULL;
    char id[ID_TEXT_BYTES];
    (void)state;
    make(&l);
    run_state_init(&now);
    assert_int_equal(launch_lock(&l, &lock, &now, NULL), 0);
    pid_t child = waiter(&l);
    clock_sleep_s(0.1); /* it waits, or comes later: either way it may not get a run's lock */
    assert_int_equal(home_run_remove(in_scratch("home"), l.run_id, NULL), 0);
    lease_drop(lock);
    assert_int_equal(status_of(child), -ERR_NOT_FOUND);
    assert_int_equal(access(l.run_dir, F_OK), -1);
    assert_int_equal(home_run_find(in_scratch("home"), "one", id, NULL), ERR_NOT_FOUND);
    struct err err = {0};
    enum launch_kept kept;
    /* nor does it make one anew */
    assert_int_equal(launch_lock(&l, &lock, &now, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(
        err.text, " is gone: somebody has just removed or moved it; 'reel status' lists the runs"));
    /* nor who cancels it then */
    assert_int_equal(launch_cancel(&l, NULL, &kept, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, " is gone: somebody"));
    assert_int_equal(access(l.run_dir, F_OK), -1);
    run_state_release(&now);
}

/* Whoever was killed while it removed a folder's content leaves it to the next. */
static void what_was_left_goes(void **state)
{
    struct launch l;
    char left[LIMIT_PATH_BYTES];
    (void)state;
    make(&l);
    snprintf(left, sizeof left, "%s/home/runs/.removed-00000000000000000000000000000000", scratch);
    assert_int_equal(mkdir(left, 0777), 0);
    assert_int_equal(home_run_remove(in_scratch("home"), l.run_id, NULL), 0);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(count_entries(in_scratch("home/runs")), 0);
    assert_int_equal(home_run_remove(in_scratch("home"), l.run_id, NULL), 0);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_waiter_finds_no_run),
        IN_SCRATCH(what_was_left_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
