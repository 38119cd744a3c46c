/* The ranks of a node are told: how often they are looked for, and that whoever has the number of
 * one that is gone is not told in its place. What a node agent tells them is t4300's. */
// LINK: -Wl,--wrap=clock_mono_s,--wrap=proc_list
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "launcher/run/ranks.h"
#include "launcher/sched/proc.h"

static char trainer[64]; /* of this process alone: others of this machine have ranks, too */

/* ---- time, and looks at the machine's processes ---- */

static double now_s;
static int n_looks;
static pid_t reused; /* the number of a process that is gone once it was listed; 0: none */

double __wrap_clock_mono_s(void);
double __wrap_clock_mono_s(void) { return now_s; }

size_t __real_proc_list(struct proc_row **out);
size_t __wrap_proc_list(struct proc_row **out);
size_t __wrap_proc_list(struct proc_row **out)
{
    size_t n = __real_proc_list(out);
    n_looks++;
    for (size_t i = 0; i < n; i++)
        if ((*out)[i].pid == reused)
            (*out)[i].start--; /* who has it now began later than the one that is listed */
    return n;
}

/* ---- a rank ---- */

#define HEARS "trap 'exit 0' USR1; echo; exec 1> /dev/null; while :; do sleep 0.02; done"

/* Starts a numbered rank that runs a script of sh with a socket as standard input and output, and
 * waits until it writes something. Returns the socket's other end. */
static int script_start(const char *script, pid_t *pid)
{
    int fds[2];
    char up;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *pid = fork();
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 0);
        dup2(fds[1], 1);
        setenv(RANKS_VARIABLE, trainer, 1);
        setenv("RANK", "0", 1);
        execlp("sh", "sh", "-c", script, NULL);
        _exit(127);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &up, 1), 1);
    return fds[0];
}

/* Starts a rank that ends with 0 when it is told. */
static pid_t rank_start(void)
{
    pid_t pid;
    close(script_start(HEARS, &pid));
    return pid;
}

static bool has_ended(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) != pid)
        return false;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

/* Returns how many calls it takes, one a second, until a rank is told; 99: it is not. */
static int calls_until(struct ranks_told *told, size_t n)
{
    int calls = 0;
    for (; told->n_pids < n && calls < 99; calls++, now_s++)
        assert_int_equal(ranks_tell(trainer, SIGUSR1, told, NULL), 0);
    return calls;
}

static void end(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- tests ---- */

/* Each call looks for ten seconds. Then looks come more and more seldom, and never with more than
 * five seconds between two. */
static void they_are_looked_for_more_and_more_seldom(void **state)
{
    struct ranks_told told = {0};
    int pause = 0, before = 0;
    (void)state;
    n_looks = 0;
    for (now_s = 1000; now_s <= 1200; now_s++) {
        int looks = n_looks;
        pause++;
        assert_int_equal(ranks_tell(trainer, SIGUSR1, &told, NULL), 0);
        if (n_looks == looks)
            continue;
        assert_true(pause >= before && pause <= 5);
        if (now_s <= 1010)
            assert_int_equal(pause, 1);
        before = pause;
        pause = 0;
    }
    assert_int_equal(before, 5);
    assert_true(n_looks < 201 / 3);
    ranks_release(&told);
}

/* One that is there from the start is told by the first call, and one that comes after two minutes
 * by a later one. */
static void one_that_comes_late_is_told(void **state)
{
    struct ranks_told told = {0};
    pid_t first = rank_start();
    (void)state;
    now_s = 1000;
    assert_int_equal(calls_until(&told, 1), 1);
    end(first);
    for (; now_s < 1100; now_s++)
        assert_int_equal(ranks_tell(trainer, SIGUSR1, &told, NULL), 0);
    pid_t late = rank_start();
    assert_in_range(calls_until(&told, 2), 1, 5);
    end(late);
    ranks_release(&told);
}

/* A rank that was listed may be gone, and its number another process's, when it is its turn. That
 * process is told when it is listed itself. */
static void who_has_the_number_of_one_that_is_gone_is_not_told(void **state)
{
    struct ranks_told told = {0};
    pid_t rank = rank_start();
    (void)state;
    now_s = 1000;
    reused = rank;
    assert_int_equal(ranks_tell(trainer, SIGUSR1, &told, NULL), 0);
    reused = 0;
    assert_int_equal(told.n_pids, 0);
    assert_false(has_ended(rank));
    assert_int_equal(calls_until(&told, 1), 1);
    end(rank);
    ranks_release(&told);
}

/* Among those told is a process of this number that began earlier: this one is another. */
static void one_with_the_number_of_one_that_was_told_is_told(void **state)
{
    struct ranks_told told = {0};
    pid_t rank = rank_start();
    (void)state;
    now_s = 1000;
    told.pids = malloc(sizeof *told.pids);
    assert_non_null(told.pids);
    told.pids[told.n_pids++] = (struct proc_id){rank, proc_identify(rank).start - 1};
    assert_int_equal(calls_until(&told, 2), 1);
    end(rank);
    ranks_release(&told);
}

/* Numbers alone decide nothing: a step that has no handler, or one that has ended, has them too,
 * and so has a rank that env -i starts, until it executes env. Without the id it is told as the
 * process of a step. */
static void one_that_loses_its_number_is_told(void **state)
{
    struct ranks_told told = {0};
    pid_t rank;
    char up;
    (void)state;
    now_s = 1000;
    setenv("SLURM_JOB_ID", trainer, 1);
    int fd = script_start("echo; read x; exec env -i PATH=\"$PATH\" SLURM_JOB_ID=\"$SLURM_JOB_ID\" "
                          "SLURM_STEP_ID=1 SLURM_PROCID=0 sh -c \"" HEARS "\"",
                          &rank);
    ranks_look(trainer, SIGUSR1, &told);
    assert_false(told.numbered);
    assert_int_equal(write(fd, "\n", 1), 1);
    assert_int_equal(read(fd, &up, 1), 1);
    assert_int_equal(calls_until(&told, 1), 1);
    assert_false(told.numbered);
    end(rank);
    unsetenv("SLURM_JOB_ID");
    close(fd);
    ranks_release(&told);
}

/* It stays known for half a minute of ranks that have ended that they would have heard, and for
 * ever that one was told. */
static void those_that_have_ended_count_for_a_while(void **state)
{
    struct ranks_told told = {0};
    pid_t rank = rank_start();
    (void)state;
    now_s = 1000;
    ranks_look(trainer, SIGUSR1, &told);
    assert_true(told.numbered);
    assert_int_equal(kill(rank, SIGUSR1), 0);
    end(rank);
    now_s += 29;
    ranks_look(trainer, SIGUSR1, &told);
    assert_true(told.numbered);
    now_s += 2;
    ranks_look(trainer, SIGUSR1, &told);
    assert_false(told.numbered);
    rank = rank_start();
    assert_int_equal(calls_until(&told, 1), 1);
    end(rank);
    now_s += 1000;
    assert_int_equal(ranks_tell(trainer, SIGUSR1, &told, NULL), 0);
    assert_true(told.numbered);
    ranks_release(&told);
}

int main(void)
{
    snprintf(trainer, sizeof trainer, "test-ranks-%ld.1", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_looked_for_more_and_more_seldom),
        cmocka_unit_test(one_that_comes_late_is_told),
        cmocka_unit_test(who_has_the_number_of_one_that_is_gone_is_not_told),
        cmocka_unit_test(one_with_the_number_of_one_that_was_told_is_told),
        cmocka_unit_test(one_that_loses_its_number_is_told),
        cmocka_unit_test(those_that_have_ended_count_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
