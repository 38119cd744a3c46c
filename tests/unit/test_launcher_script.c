/* Traps are found in a shell's script, and the script of a shell is found. t4302 shows whom a node
 * agent tells by that. */
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

/* Formats what a script says: "traps", "may" (set a trap), "sources", "waits". */
static const char *words(struct script_says s)
{
    static char out[64];
    snprintf(out, sizeof out, "%s%s%s%s%s", s.read ? "" : "unread ", s.traps ? "traps " : "",
             s.may_trap ? "may " : "", s.sources ? "sources " : "", s.waits ? "waits " : "");
    return out;
}

static void traps_are_found(void **state)
{
    static const struct { const char *text, *says; } rows[] = {
        {"", ""},
        {"python train.py\nexit $?\n", ""},
        {"trap 'rm -rf \"$dir\"' EXIT\npython train.py\n", ""},
        {"trap cleanup EXIT TERM\nfind . -name x; cd ./y\n", ""},
        {"# trap save USR1\n# source it\npython train.py # wait", ""},
        {"trap \"echo cleaned\" EXIT # USR1 goes to python itself\n", ""},
        {"trap 'kill -s USR1 $MON' EXIT\n", ""},
        {"trap 'rm -rf X; exit 10' EXIT\n", ""},
        {"trap 'kill -TERM $child\nwait' TERM INT\n", ""},
        {"trapped=1; resource=2; echo trap x USR1; echo wait; echo 10 USR10\n", ""},
        {"cat > conf << END\ntrap save USR1\nit's\nEND\npython x <<< 'trap x USR1'\n", ""},
        {"cat <<-'E' | python\n\ttrap save USR1\n\tE\ntrap save TERM\n", ""},
        {"trap '' USR1\n", ""},
        {"echo \"it's\"; trap save USR1", "traps "},
        {"  trap save SIGUSR1 EXIT", "traps "},
        {"trap 'touch stop' usr1;python train.py & wait", "traps waits "},
        {"trap : 10\n", "traps "},
        {"trap -- save \\\n  TERM \\\n USR1\n", "traps "},
        {"[ \"$A\" ] || trap 'save' TERM USR1\n", "traps "},
        {"if [ x ]; then trap 'save' \"USR1\"; fi; wait $!\n", "traps waits "},
        {"on() { builtin trap save USR1; }\n", "traps "},
        {"trap '\n  kill -USR1 $child\n  wait\n' USR1 EXIT\n", "traps "},
        {"trap \"\n  wait\n\" EXIT USR1\n", "traps "},
        {"trap save USR1; x; trap - USR1; trap clean EXIT\n", "traps may "},
        {"trap save $signals\n", "may "},
        {"trap save `signals`\n", "may "},
        {"trap '\n  save\n' $signals\n", "may "},
        {"source traps.sh\n", "sources "},
        {"cd /x && . ./traps.sh\n", "sources "},
        {"eval \"$setup\"\n", "sources "},
        {"source traps.sh\ntrap save USR1\n", "traps sources "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(words(script_says_find(rows[i].text, SIGUSR1)), rows[i].says) != 0)
            fail_msg("'%s' is taken for '%s'", rows[i].text,
                     words(script_says_find(rows[i].text, SIGUSR1)));
}

/* Starts a program that is a shell or becomes one, waits until it prints something, and looks at
 * its script. */
static struct script_says shell_says(const char *const *argv)
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
    struct script_says says = script_says_of(pid, SIGUSR1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(fds[0]);
    return says;
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
        if (!shell_says(argv).traps)
            fail_msg("the script of row %zu is not read", i);
    }
    const char *none[] = {"bash", "-c", "trap : EXIT" STAYS, NULL};
    assert_string_equal(words(shell_says(none)), "");
    const char *input[] = {"bash", "-c", "exec bash -s <<< 'trap : USR1" STAYS "'", NULL};
    assert_string_equal(words(shell_says(input)), "unread ");
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
