#include "launcher/run/hearing.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "launcher/run/script.h"
#include "launcher/sched/proc.h"

enum { HELD_BACK_LOOKS = 4, LOOKS_AT_MOST = 100 };
static const double LOOK_EVERY_S = 0.003;

/* Tells whether the signal is in a mask ("SigBlk", "SigCgt") of the text of /proc/PID/status,
 * proc(5). */
static bool is_in_mask(const char *status, const char *mask, int signo)
{
    const char *at = strstr(status, mask);
    return at && strtoull(at + strlen(mask), NULL, 16) >> (signo - 1) & 1;
}

/* Returns the processor time, in ticks, of the process's main thread, whose state /proc/PID/status
 * shows: utime and stime, fields 14 and 15 of stat, proc(5). */
static int64_t ticks_of(pid_t pid)
{
    char name[64];
    struct str text = STR_INIT;
    long long user = 0, system = 0;
    snprintf(name, sizeof name, "task/%ld/stat", (long)pid);
    const char *p = proc_read(pid, name, &text) ? strrchr(text.p, ')') : NULL;
    if (p && sscanf(p, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &user,
                    &system) != 2)
        user = system = 0;
    str_release(&text);
    return user + system;
}

/* Tells what a process that catches the signal does with it. */
static enum hearing caught(pid_t pid, const char *status, int signo)
{
    bool all = is_in_mask(status, "\nSigCgt:", SIGSYS) &&
               is_in_mask(status, "\nSigCgt:", SIGVTALRM);
    if (!is_shell(pid))
        return HANDLES;
    if (script_is_part(pid))
        return all ? DEAF : HANDLES;
    struct script_says s = script_says_of(pid, signo);
    if (all && !s.traps && (!s.read || s.may_trap || s.sources))
        return s.may_trap ? UNSURE : OPAQUE;
    if (all && !s.traps)
        return DEAF;
    if (all && s.may_trap)
        return UNSURE;
    return !s.read ? HANDLES : s.waits ? FORWARDS : DEFERS;
}

/* Looks once whether the process would handle the signal. *ticks is its processor time at the last
 * look, and is updated. Returns GONE if the process has ended since it was listed. */
static enum hearing look(pid_t pid, int signo, int64_t *ticks)
{
    struct str status = STR_INIT;
    enum hearing found = DEAF;
    int64_t before = *ticks;
    if (!proc_read(pid, "status", &status) || strstr(status.p, "\nState:\tZ")) {
        found = GONE;
    } else if (is_in_mask(status.p, "\nSigCgt:", signo)) {
        found = caught(pid, status.p, signo);
    } else if (is_in_mask(status.p, "\nSigBlk:", signo)) {
        *ticks = ticks_of(pid);
        found = strstr(status.p, "\nState:\tS") || *ticks > before ? HOLDS_BACK : STANDS_STILL;
    }
    str_release(&status);
    return found;
}

/* Looks several times at a process that blocks the signal. A shell blocks signals for a moment
 * whenever it forks, so the block must last over several looks. But it also lasts if the shell gets
 * no processor in that moment. So a look counts only if the process sleeps, which no shell does
 * within fork, or has computed since the last look. */
enum hearing hearing_of(pid_t pid, int signo)
{
    int64_t ticks = INT64_MAX;
    int counted = 0;
    for (int i = 0; i < LOOKS_AT_MOST && counted < HELD_BACK_LOOKS; i++) {
        if (i > 0)
            clock_sleep_s(LOOK_EVERY_S);
        enum hearing now = look(pid, signo, &ticks);
        if (now != HOLDS_BACK && now != STANDS_STILL)
            return now;
        counted += now == HOLDS_BACK;
    }
    return counted == HELD_BACK_LOOKS ? HANDLES : STANDS_STILL;
}

bool is_program(pid_t pid, const char *const *names)
{
    struct str text = STR_INIT;
    bool is = false;
    if (proc_read(pid, "comm", &text))
        for (const char *const *name = names; *name; name++)
            is |= strcmp(text.p, *name) == 0;
    str_release(&text);
    return is;
}

bool is_starter(pid_t pid)
{
    static const char *const names[] = {"srun\n",    "mpirun\n", "mpiexec\n",
                                        "prterun\n", "xargs\n",  "parallel\n", NULL};
    return is_program(pid, names);
}

bool is_launcher(pid_t pid)
{
    static const char *const names[] = {
        "srun", "mpirun", "mpiexec", "prterun", "torchrun", "torch.distributed.run",
        "torch.distributed.launch", "deepspeed", "deepspeed.launcher.launch",
        "deepspeed.launcher.runner", "accelerate", "accelerate.commands.launch", "horovodrun",
        NULL};
    struct str text = STR_INIT;
    bool is = is_starter(pid), first = true;
    const char *end = proc_read(pid, "cmdline", &text) ? text.p + text.len : text.p;
    for (const char *p = text.p; p < end && !is; p += strlen(p) + 1) {
        const char *slash = strrchr(p, '/');
        for (const char *const *name = names; *name; name++)
            is |= strcmp(slash ? slash + 1 : p, *name) == 0;
        if (!first && *p != '-')
            break;
        first = false;
    }
    str_release(&text);
    return is;
}

bool is_tracker(pid_t pid)
{
    static const char begin[] = "from multiprocessing.resource_tracker import";
    struct str text = STR_INIT;
    bool is = false;
    const char *end = proc_read(pid, "cmdline", &text) ? text.p + text.len : text.p;
    for (const char *p = text.p; p < end && !is; p += strlen(p) + 1)
        is = str_starts(p, begin);
    str_release(&text);
    return is;
}

bool is_shell(pid_t pid)
{
    static const char *const names[] = {"sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", NULL};
    char link[64], exe[LIMIT_PATH_BYTES];
    snprintf(link, sizeof link, "/proc/%ld/exe", (long)pid);
    ssize_t n = readlink(link, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(exe, '/');
    for (const char *const *name = names; slash && *name; name++)
        if (strcmp(slash + 1, *name) == 0)
            return true;
    return false;
}

static bool ignores(pid_t pid, int signo)
{
    struct str status = STR_INIT;
    bool is = !proc_read(pid, "status", &status) || is_in_mask(status.p, "\nSigIgn:", signo);
    str_release(&status);
    return is;
}

bool is_in_front(pid_t shell, pid_t child)
{
    return !ignores(shell, SIGINT) && !ignores(child, SIGINT) && getpgid(shell) == getpgid(child);
}
