/* Spawn: results, descriptors, signals, groups, deadlines, capture without deadlock, no zombies. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/spawn.h"
#include "tests/lib/scratch.h"

enum { PATIENCE_S = 60 }; /* a deadline that only a hang meets */

struct ran {
    struct str out, errs;
    struct spawn_exit exit;
    struct err err;
    int rc;
};

/* sh -c script */
static void run_sh(struct ran *r, const char *script, const char *input, double deadline_s)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct spawn s = SPAWN_INIT;

    *r = (struct ran){.out = STR_INIT, .errs = STR_INIT};
    s.argv = argv;
    r->rc = spawn_run(&s, input, deadline_s, &r->out, &r->errs, &r->exit, &r->err);
}

static void ran_release(struct ran *r)
{
    str_release(&r->out);
    str_release(&r->errs);
}

/* After each test: no child of ours is left, dead or alive. */
static int no_children(void **state)
{
    bool none = waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;

    scratch_teardown(state);
    return none ? 0 : -1;
}

static void results(void **state)
{
    static const struct {
        const char *script, *input, *out, *errs;
        int code, signal, status;
    } rows[] = {
        {"exit 0", NULL, "", "", 0, 0, 0},
        {"exit 3", NULL, "", "", 3, 0, 3},
        {"exit 255", NULL, "", "", 255, 0, 255},
        {"kill -9 $$", NULL, "", "", -1, SIGKILL, 137},
        {"kill -TERM $$", NULL, "", "", -1, SIGTERM, 143},
        {"echo a; echo b >&2", NULL, "a\n", "b\n", 0, 0, 0},
        {"cat", "fed", "fed", "", 0, 0, 0},
        {"cat", "", "", "", 0, 0, 0},
        {"cat", NULL, "", "", 0, 0, 0}, /* /dev/null */
        {"exit 4", "input that nobody reads", "", "", 4, 0, 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ran r;
        run_sh(&r, rows[i].script, rows[i].input, PATIENCE_S);
        assert_int_equal(r.rc, 0);
        assert_string_equal(r.out.p, rows[i].out);
        assert_string_equal(r.errs.p, rows[i].errs);
        assert_int_equal(r.exit.code, rows[i].code);
        assert_int_equal(r.exit.signal, rows[i].signal);
        assert_int_equal(spawn_status(&r.exit), rows[i].status);
        assert_false(r.exit.timed_out);
        ran_release(&r);
    }
}

static void start_failures(void **state)
{
    const char *absent[] = {"no-such-program-here", NULL}, *path[] = {in_scratch("f"), NULL},
               *dir[] = {scratch, NULL};
    const char *sh[] = {"sh", "-c", "exit 0", NULL};
    struct { const char **argv; const char *cwd; int rc; const char *says; } rows[] = {
        {absent, NULL, ERR_ENV, "'no-such-program-here' is not on PATH"},
        {path, NULL, ERR_ENV, "No such file"},
        {dir, NULL, ERR_ENV, "Permission denied"},
        {sh, "/no/such/folder", ERR_ENV, "cannot change to folder '/no/such/folder'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct spawn s = SPAWN_INIT;
        struct err err;
        pid_t pid = -5;
        s.argv = rows[i].argv;
        s.cwd = rows[i].cwd;
        assert_int_equal(spawn_start(&s, &pid, &err), rows[i].rc);
        assert_int_equal(pid, -5);
        assert_non_null(strstr(err.text, rows[i].says));
    }
    assert_int_equal(file_publish(in_scratch("f"), "#!/no/such/interpreter\n", 23, NULL), 0);
    assert_int_equal(chmod(in_scratch("f"), 0755), 0);
    struct spawn s = SPAWN_INIT;
    struct err err;
    pid_t pid;
    s.argv = path;
    assert_int_equal(spawn_start(&s, &pid, &err), ERR_ENV);
}

static void environment_and_folder(void **state)
{
    const char *argv[] = {
        "/bin/sh", "-c",
        "env | grep -v ^PWD= | grep -v ^_= | grep -v ^SHLVL= | grep -v ^OLDPWD=; pwd", NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", "REEL_X=a b", NULL};
    struct spawn s = SPAWN_INIT;
    struct str out = STR_INIT, expect = STR_INIT;
    struct err err;
    char *here = realpath(scratch, NULL);

    (void)state;
    s.argv = argv;
    s.env = env;
    s.cwd = scratch;
    assert_int_equal(spawn_run(&s, NULL, PATIENCE_S, &out, NULL, NULL, &err), 0);
    str_addf(&expect, "PATH=/usr/bin:/bin\nREEL_X=a b\n%s\n", here);
    assert_string_equal(out.p, expect.p);
    str_release(&out);
    str_release(&expect);
    free(here);
}

/* No descriptor above 2, and 0 is readable, whatever the parent has open. */
static void descriptors(void **state)
{
    struct ran r;
    int low = open("/dev/null", O_RDONLY), high = fcntl(low, F_DUPFD, 200);

    (void)state;
    run_sh(&r,
           "for fd in /proc/self/fd/*; do [ -e $fd ] && [ $fd != /proc/self/fd/255 ] && echo "
           "${fd##*/}; done",
           NULL, PATIENCE_S);
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.out.p, "0\n1\n2\n");
    ran_release(&r);
    close(low);
    close(high);
}

/* The parent's own files as out and err, crossed: out takes the descriptor 2 was and the other way
 * round. */
static void crossed_descriptors(void **state)
{
    const char *argv[] = {"sh", "-c", "echo out; echo err >&2", NULL};
    struct spawn s = SPAWN_INIT;
    struct spawn_exit e;
    struct err err;
    struct str a = STR_INIT, b = STR_INIT;
    int saved1 = dup(1), saved2 = dup(2);
    pid_t pid;

    (void)state;
    s.argv = argv;
    dup2(open(in_scratch("one"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666), 1);
    dup2(open(in_scratch("two"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666), 2);
    s.fd_out = 2;
    s.fd_err = 1;
    int rc = spawn_start(&s, &pid, &err);
    dup2(saved1, 1);
    dup2(saved2, 2);
    close(saved1);
    close(saved2);
    assert_int_equal(rc, 0);
    assert_int_equal(spawn_wait(pid, PATIENCE_S, &e, &err), 0);
    assert_int_equal(file_read(in_scratch("one"), 100, &a, &err), 0);
    assert_int_equal(file_read(in_scratch("two"), 100, &b, &err), 0);
    assert_string_equal(a.p, "err\n");
    assert_string_equal(b.p, "out\n");
    str_release(&a);
    str_release(&b);
}

/* Ignored and blocked in us, default and open in the child. */
static void signals_are_default(void **state)
{
    sigset_t block, before;
    struct ran r;

    (void)state;
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigprocmask(SIG_BLOCK, &block, &before);
    run_sh(&r, "grep -E '^Sig(Blk|Ign)' /proc/self/status; kill -TERM $$", NULL, PATIENCE_S);
    assert_true(sigismember(&before, SIGUSR1) == 0);
    sigprocmask(SIG_SETMASK, NULL, &block);
    assert_true(sigismember(&block, SIGUSR1) == 1); /* ours is as it was */
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    assert_string_equal(r.out.p, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_int_equal(r.exit.signal, SIGTERM);
    ran_release(&r);
}

/* More than two pipes hold, on both at once, and more input than a pipe holds. */
static void capture_both(void **state)
{
    enum { N = 300000 };
    struct ran r;
    char *input = malloc(N + 1);

    (void)state;
    memset(input, 'i', N);
    input[N] = '\0';
    run_sh(&r, "head -c 300000 /dev/zero | tr '\\0' e >&2 & cat; wait", input, PATIENCE_S);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.out.len, N);
    assert_int_equal(r.errs.len, N);
    assert_memory_equal(r.out.p, input, N);
    free(input);
    ran_release(&r);
}

static void too_much_output(void **state)
{
    struct ran r;

    (void)state;
    run_sh(&r, "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done | cat", NULL,
           PATIENCE_S);
    assert_int_equal(r.rc, ERR_LIMIT);
    assert_true(r.out.len <= LIMIT_CAPTURE_BYTES);
    ran_release(&r);
}

static bool alive(pid_t pid)
{
    char path[64], stat[256] = "", *state;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    state = fgets(stat, sizeof stat, f) ? strrchr(stat, ')') : NULL;
    fclose(f);
    return state && state[2] != 'Z'; /* init reaps orphans in its own time */
}

static void expect_dead(long pid)
{
    for (int i = 0; i < 12000 && alive((pid_t)pid); i++)
        clock_sleep_s(0.005);
    assert_false(alive((pid_t)pid));
}

/* At the deadline the grandchild dies too, even where both ignore SIGTERM, and what was said before
 * is kept. */
static void deadline_kills_the_group(void **state)
{
    struct ran r;

    (void)state;
    /* it must have come to its echo */
    run_sh(&r, "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 60; done' & wait",
           NULL, 5);
    assert_int_equal(r.rc, 0);
    assert_true(r.exit.timed_out);
    assert_int_equal(r.exit.signal, SIGKILL);
    assert_true(atol(r.out.p) > 1);
    expect_dead(atol(r.out.p));
    ran_release(&r);
}

/* A leader that leaves a child behind with the pipe in its hands: no waiting for it, and it
 * goes. */
static void stray_child_of_an_ended_leader(void **state)
{
    struct ran r;

    (void)state;
    run_sh(&r, "sleep 1000 & echo $!", NULL, PATIENCE_S);
    assert_int_equal(r.rc, 0);
    assert_false(r.exit.timed_out);
    assert_int_equal(r.exit.code, 0);
    expect_dead(atol(r.out.p));
    ran_release(&r);
}

static pid_t start_sh(const char *script, bool new_session)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct spawn s = SPAWN_INIT;
    struct err err;
    pid_t pid = -1;

    s.argv = argv;
    s.new_session = new_session;
    assert_int_equal(spawn_start(&s, &pid, &err), 0);
    return pid;
}

static void groups_and_sessions(void **state)
{
    struct spawn_exit e;
    pid_t pid;

    (void)state;
    for (int session = 0; session < 2; session++) {
        pid = start_sh("sleep 1000", session);
        assert_int_equal(getpgid(pid), pid);
        assert_int_equal(getsid(pid), session ? pid : getsid(0));
        assert_int_equal(spawn_stop_group(pid, PATIENCE_S, &e, NULL), 0);
        assert_int_equal(e.signal, SIGTERM);
    }
}

static void waiting(void **state)
{
    struct spawn_exit e = {.code = 77};
    struct err err;
    pid_t pid = start_sh("read x < /dev/null; sleep 1000", false);

    (void)state;
    assert_int_equal(spawn_wait(pid, 0, &e, &err), ERR_TIMEOUT);
    assert_int_equal(spawn_wait(pid, 0.05, &e, &err), ERR_TIMEOUT);
    assert_int_equal(e.code, 77);
    kill(-pid, SIGKILL);
    assert_int_equal(spawn_wait(pid, -1, &e, &err), 0);
    assert_int_equal(spawn_status(&e), 137);
    assert_int_equal(spawn_wait(pid, 0, &e, &err), ERR_STATE); /* reaped already */
    assert_int_equal(spawn_stop_group(pid, 0, &e, &err), ERR_STATE);
}

/* Who saves on SIGTERM gets its grace; who ignores it is killed; a stopped one is woken. */
static void stopping(void **state)
{
    static const struct {
        const char *script;
        double grace_s;
        int code, signal;
    } rows[] = {
        {"trap 'exit 9' TERM; touch ready; while :; do sleep 0.01; done", PATIENCE_S, 9, 0},
        {"trap '' TERM; touch ready; while :; do sleep 0.01; done", 0.1, -1, SIGKILL},
        {"trap 'exit 8' TERM; touch ready; kill -STOP $$; while :; do sleep 0.01; done", PATIENCE_S,
         8, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {"sh", "-c", rows[i].script, NULL};
        struct spawn s = SPAWN_INIT;
        struct spawn_exit e;
        struct err err;
        pid_t pid;
        s.argv = argv;
        s.cwd = scratch;
        assert_int_equal(spawn_start(&s, &pid, &err), 0);
        for (int k = 0; k < 24000 && !file_exists(in_scratch("ready")); k++)
            clock_sleep_s(0.005);
        assert_int_equal(unlink(in_scratch("ready")), 0);
        assert_int_equal(spawn_stop_group(pid, rows[i].grace_s, &e, &err), 0);
        assert_int_equal(e.code, rows[i].code);
        assert_int_equal(e.signal, rows[i].signal);
    }
}

/* A parent that is killed takes the child along. */
static void dies_with_parent(void **state)
{
    const char *argv[] = {"sleep", "1000", NULL};
    int p[2];
    pid_t middle, child = 0;

    (void)state;
    assert_int_equal(pipe(p), 0);
    middle = fork();
    if (middle == 0) {
        struct spawn s = SPAWN_INIT;
        s.argv = argv;
        s.die_with_parent = true;
        if (spawn_start(&s, &child, NULL) < 0 || write(p[1], &child, sizeof child) < 0)
            _exit(1);
        raise(SIGKILL);
    }
    assert_int_equal(read(p[0], &child, sizeof child), sizeof child);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    expect_dead(child);
    close(p[0]);
    close(p[1]);
}

static void descriptors_do_not_leak(void **state)
{
    int before = count_entries("/proc/self/fd");
    struct ran r;
    const char *argv[] = {"no-such-program-here", NULL};
    struct spawn s = SPAWN_INIT;

    (void)state;
    for (int i = 0; i < 5; i++) {
        run_sh(&r, "cat", "x", i % 2 ? -1 : PATIENCE_S);
        assert_int_equal(r.rc, 0);
        ran_release(&r);
        s.argv = argv;
        assert_int_equal(spawn_run(&s, "x", 1, NULL, NULL, NULL, NULL), ERR_ENV);
    }
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

static int slow_calls;

static void slow_lets_go(void)
{
    slow_calls++;
    close(open("go", O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
}

/* A child that waits for what is done when it is slow ends; one that is not slow is not told of. */
static void slow_is_told_once(void **state)
{
    const char *const waits[] = {"/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done; sleep 0.1",
                                 NULL},
                      *const quick[] = {"/bin/true", NULL};
    struct spawn s = SPAWN_INIT;
    struct spawn_exit end;
    (void)state;
    assert_int_equal(chdir(scratch), 0);
    s.slow = slow_lets_go;
    s.slow_s = 0.05;
    s.argv = waits;
    assert_int_equal(spawn_run(&s, NULL, PATIENCE_S, NULL, NULL, &end, NULL), 0);
    assert_int_equal(end.code, 0);
    assert_int_equal(slow_calls, 1);
    s.slow_s = PATIENCE_S;
    s.argv = quick;
    assert_int_equal(spawn_run(&s, NULL, -1, NULL, NULL, &end, NULL), 0);
    assert_int_equal(slow_calls, 1);
}

int main(void)
{
#define CHILDREN(test) cmocka_unit_test_setup_teardown(test, scratch_setup, no_children)
    const struct CMUnitTest tests[] = {
        CHILDREN(results),
        CHILDREN(start_failures),
        CHILDREN(environment_and_folder),
        CHILDREN(descriptors),
        CHILDREN(crossed_descriptors),
        CHILDREN(signals_are_default),
        CHILDREN(capture_both),
        CHILDREN(too_much_output),
        CHILDREN(deadline_kills_the_group),
        CHILDREN(stray_child_of_an_ended_leader),
        CHILDREN(groups_and_sessions),
        CHILDREN(waiting),
        CHILDREN(stopping),
        CHILDREN(dies_with_parent),
        CHILDREN(slow_is_told_once),
        CHILDREN(descriptors_do_not_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
