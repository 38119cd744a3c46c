/* Which traps a shell's script has, and the shells whose script is read. Whom a node agent tells by
 * that is t4301's. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "launcher/run/script.h"
#include "tests/lib/scratch.h"

static void traps_are_found(void **state)
{
    static const struct {
        const char *text;
        enum script_trap trap;
    } rows[] = {
        {"", SCRIPT_NONE},
        {"python train.py\nexit $?\n", SCRIPT_NONE},
        {"trap 'rm -rf \"$dir\"' EXIT\npython train.py\n", SCRIPT_NONE},
        {"trap cleanup EXIT TERM\nfind . -name x; cd ./y\n", SCRIPT_NONE},
        {"# trap save USR1\n# source it\npython train.py", SCRIPT_NONE},
        {"trap 'kill -TERM $child\nwait' TERM INT\n", SCRIPT_NONE},
        {"trapped=1; resource=2; echo 10 USR10\n", SCRIPT_NONE},
        {"trap save USR1", SCRIPT_TRAPS},
        {"  trap save SIGUSR1 EXIT", SCRIPT_TRAPS},
        {"trap 'touch stop' usr1;python train.py", SCRIPT_TRAPS},
        {"trap : 10\n", SCRIPT_TRAPS},
        {"[ \"$A\" ] || trap 'save' TERM USR1\n", SCRIPT_TRAPS},
        {"trap '\n  kill -USR1 $child\n  wait\n' USR1 EXIT\n", SCRIPT_TRAPS},
        {"trap \"\n  wait\n\" EXIT USR1\n", SCRIPT_TRAPS},
        {"trap save $signals\n", SCRIPT_UNSURE},
        {"trap save `signals`\n", SCRIPT_UNSURE},
        {"trap '\n  save\n' $signals\n", SCRIPT_UNSURE},
        {"source traps.sh\n", SCRIPT_UNSURE},
        {"cd /x && . ./traps.sh\n", SCRIPT_UNSURE},
        {"eval \"$setup\"\n", SCRIPT_UNSURE},
        {"for s in USR1 TERM; do on $s; done\n", SCRIPT_UNSURE},
        {"source traps.sh\ntrap save USR1\n", SCRIPT_TRAPS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (script_trap_find(rows[i].text, SIGUSR1) != rows[i].trap)
            fail_msg("'%s' is taken for %d", rows[i].text,
                     script_trap_find(rows[i].text, SIGUSR1));
}

/* Starts a program that is a shell or becomes one, waits until it prints something, and looks at
 * its script. */
static enum script_trap shell_trap(const char *const *argv)
{
    int fds[2], status;
    char up;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], 1);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &up, 1), 1);
    enum script_trap trap = script_trap_of(pid, SIGUSR1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(fds[0]);
    return trap;
}

#define STAYS "; echo; while :; do sleep 0.1; done"

static void scripts_are_read(void **state)
{
    static const char script[] = "#!/bin/bash -e\ntrap : USR1" STAYS "\n";
    const char *path = in_scratch("s");
    (void)state;
    assert_int_equal(file_publish(path, script, strlen(script), NULL), 0);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(chdir(scratch), 0);
    const char *const rows[][6] = {
        {"bash", "-c", "trap : USR1" STAYS, NULL},
        {"bash", "-e", "-o", "pipefail", "-c", "trap : USR1" STAYS},
        {path, "a", "b", NULL},
        {"bash", "+e", "s", NULL},
        {"./s", NULL},
        {"bash", "--norc", "-eo", "pipefail", path, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[7] = {NULL};
        memcpy(argv, rows[i], sizeof rows[i]);
        if (shell_trap(argv) != SCRIPT_TRAPS)
            fail_msg("the script of row %zu is not read", i);
    }
    const char *none[] = {"bash", "-c", "trap : EXIT" STAYS, NULL};
    assert_int_equal(shell_trap(none), SCRIPT_NONE);
    const char *input[] = {"bash", "-c", "exec bash -s <<< 'trap : USR1" STAYS "'", NULL};
    assert_int_equal(shell_trap(input), SCRIPT_UNSURE);
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traps_are_found),
        cmocka_unit_test_setup_teardown(scripts_are_read, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
