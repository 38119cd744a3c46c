#include "launcher/sched/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

/* At most this much of a /proc file is read; environ and cmdline may have some MB. */
enum { PROC_FILE_BYTES = 8 << 20 };

/* ---- one process ---- */

/* Signals through a pidfd, which refers to one process. The identity is checked after the pidfd was
 * opened, so the number cannot be reused in between. On kernels without pidfd (before 5.3) a small
 * window between check and kill remains. */
int proc_signal(struct proc_id id, int signo, struct err *err)
{
    if (id.pid <= 0)
        return err_set(err, ERR_NOT_FOUND, "there is no process to signal");
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)id.pid, 0);
    int rc = 0;
    if (!proc_alive(id)) {
        rc = err_set(err, ERR_NOT_FOUND, "process %lld has ended", (long long)id.pid);
    } else {
        long sent = fd >= 0 ? syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0)
                            : kill((pid_t)id.pid, signo);
        if (sent < 0 && errno == ESRCH)
            rc = err_set(err, ERR_NOT_FOUND, "process %lld has ended", (long long)id.pid);
        else if (sent < 0)
            rc = err_set_errno(err, ERR_IO, "cannot send signal %d to process %lld", signo,
                               (long long)id.pid);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

bool proc_read(pid_t pid, const char *name, struct str *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char buf[4096];
    ssize_t n = -1;
    if (fd < 0)
        return false;
    while (out->len < PROC_FILE_BYTES && (n = read(fd, buf, sizeof buf)) > 0)
        str_addn(out, buf, (size_t)n);
    close(fd);
    return n >= 0 && !out->failed;
}

bool proc_argv_is(pid_t pid, const char *const *words, size_t n)
{
    struct str text = STR_INIT;
    bool same = proc_read(pid, "cmdline", &text);
    const char *p = text.p, *end = text.p + text.len;
    for (size_t i = 0; same && i < n; i++) {
        same = p < end && strcmp(p, words[i]) == 0;
        p += same ? strlen(p) + 1 : 0;
    }
    str_release(&text);
    return same;
}

/* ---- the tree ---- */

size_t proc_list(struct proc_row **out)
{
    DIR *d = opendir("/proc");
    struct proc_row *rows = NULL;
    size_t n = 0, cap = 0;
    struct proc_stat s;
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atol(e->d_name) : 0;
        if (pid <= 0 || !proc_stat_read(pid, &s))
            continue;
        if (n == cap) {
            struct proc_row *more = realloc(rows, (cap ? 2 * cap : 256) * sizeof *rows);
            if (!more)
                break;
            rows = more;
            cap = cap ? 2 * cap : 256;
        }
        rows[n++] = (struct proc_row){.pid = pid, .parent = s.parent, .start = s.start};
    }
    if (d)
        closedir(d);
    *out = rows;
    return n;
}

static bool row_is_below(const struct proc_row *rows, size_t n, pid_t root,
                         const struct proc_row *row)
{
    if (row->parent == root)
        return true;
    for (size_t i = 0; i < n; i++)
        if (rows[i].pid == row->parent)
            return rows[i].marked;
    return false;
}

size_t proc_signal_below(pid_t root, int signo, proc_spare_fn *spare, void *ctx)
{
    struct proc_row *rows;
    size_t n = proc_list(&rows), found = 0, before;
    do { /* repeated until nothing is added, because children may be listed before their parents */
        before = found;
        for (size_t i = 0; i < n; i++) {
            if (rows[i].marked || rows[i].pid == root || !row_is_below(rows, n, root, &rows[i]))
                continue;
            if (spare && spare(rows[i].pid, ctx))
                continue;
            rows[i].marked = true;
            found++;
        }
    } while (found > before);
    for (size_t i = 0; i < n; i++)
        if (rows[i].marked)
            kill(rows[i].pid, signo);
    free(rows);
    return found;
}

void proc_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void proc_kill_below(proc_spare_fn *spare, void *ctx)
{
    double pause_s = 0.001;
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (proc_signal_below(getpid(), SIGKILL, spare, ctx) == 0)
            return;
        clock_sleep_s(pause_s);
        pause_s = pause_s < 0.5 ? pause_s * 2 : 0.5;
    }
}

/* ---- processes by environment ---- */

static bool environ_has(pid_t pid, const char *entry)
{
    struct str text = STR_INIT;
    bool has = false;
    if (proc_read(pid, "environ", &text))
        for (const char *p = text.p, *end = text.p + text.len; p < end && !has; p += strlen(p) + 1)
            has = strcmp(p, entry) == 0;
    str_release(&text);
    return has;
}

static size_t kill_marked_once(const char *entry)
{
    struct proc_row *rows;
    size_t n = proc_list(&rows), found = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].pid != getpid() && environ_has(rows[i].pid, entry)) {
            kill(rows[i].pid, SIGKILL);
            found++;
        }
    free(rows);
    return found;
}

bool proc_kill_marked(const char *entry, double max_s)
{
    double end_s = clock_mono_s() + max_s;
    while (kill_marked_once(entry) > 0) {
        if (clock_mono_s() > end_s)
            return false;
        clock_sleep_s(0.01);
    }
    return true;
}

/* ---- starting a process that outlives this one ---- */

/* Executes the program. fail_fd is closed by exec; a byte in it says that exec failed. */
static void detach_exec(const char *const *argv, const char *const *env, const char *log_path,
                        int fail_fd)
{
    int null_fd = open("/dev/null", O_RDWR);
    int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    sigset_t none;
    fail_fd = fcntl(fail_fd, F_DUPFD, 3);
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 ||
        dup2(log_fd < 0 ? null_fd : log_fd, 2) < 0)
        goto failed;
    fail_fd = fail_fd == 3 ? 3 : dup2(fail_fd, 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    for (int fd = 4; fd < 1024; fd++) /* the spool's lock and databases do not belong to the
                                       * child */
        close(fd);
    syscall(SYS_close_range, 1024u, ~0u, 0u);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir("/") == 0)
        execve("/proc/self/exe", (char *const *)argv, (char *const *)env);
failed:
    _exit(write(fail_fd, "x", 1) != 1);
}

/* Starts the program, and returns when it is executed, not merely forked, because only then does
 * its argument vector show what it is. */
int proc_detach_self(const char *const *argv, const char *const *env, const char *log_path,
                     struct err *err)
{
    int fds[2];
    char byte;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_set_errno(err, ERR_TEMP, "cannot make a pipe to start '%s %s'", argv[0],
                             argv[1]);
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        pid_t pid = fork();
        if (pid == 0)
            detach_exec(argv, env, log_path, fds[1]);
        _exit(pid < 0);
    }
    int status = middle < 0;
    close(fds[1]);
    while (middle > 0 && waitpid(middle, &status, 0) < 0 && errno == EINTR)
        ;
    ssize_t n;
    while ((n = read(fds[0], &byte, 1)) < 0 && errno == EINTR)
        ;
    close(fds[0]);
    if (status != 0)
        return err_set(err, ERR_TEMP, "cannot start '%s %s': too many processes?", argv[0],
                       argv[1]);
    if (n != 0)
        return err_set(err, ERR_TEMP, "cannot execute '%s %s' (is this program's file readable?)",
                       argv[0], argv[1]);
    return 0;
}
