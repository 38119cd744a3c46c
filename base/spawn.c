/* How a child is started
 *
 * The parent makes a close-on-exec pipe, blocks all signals (a handler of ours must not run in the
 * child) and forks. The child joins its own group or session, takes its three descriptors, restores
 * default handlers and an empty mask, and execs; if any of that fails it writes {stage, errno} into
 * the pipe. End of file on the pipe therefore means "the program runs", and the group exists before
 * spawn_start returns. Between fork and exec only async-signal-safe calls are made, so threads in
 * the parent do no harm.
 *
 * How a child is waited for
 *
 * pidfd_open(2) gives a descriptor on which poll(2) can wait for the child's end, with a deadline.
 * Kernels before 5.3 lack it: there we look every 20 ms. We first look for the leader's end with
 * WNOWAIT, so that no other process can get its group id while we signal the rest of the group, and
 * reap it only then.
 */
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"

extern char **environ;

enum { POLL_FALLBACK_MS = 20 };

enum stage { STAGE_GROUP, STAGE_PARENT, STAGE_FDS, STAGE_CWD, STAGE_EXEC };
static const char *const stage_names[] = {"make its process group", "tie it to its parent",
                                          "set up its descriptors", "change to its folder",
                                          "execute it"};
struct start_failure {
    enum stage stage;
    int error;
};

/* ---- in the child: async-signal-safe calls only ---- */

static int put_fd(int from, int to)
{
    if (from < 0)
        from = open("/dev/null", to == 0 ? O_RDONLY : O_WRONLY);
    return from < 0 ? -1 : dup2(from, to);
}

/* Sets up descriptors 0, 1 and 2. The sources are moved above 2 first, so that no dup2 overwrites
 * one that is still needed. */
static int child_fds(const struct spawn *s)
{
    int from[3] = {s->fd_in, s->fd_out < 0 ? 1 : s->fd_out, s->fd_err < 0 ? 2 : s->fd_err};

    for (int i = 0; i < 3; i++)
        if (from[i] >= 0)
            /* This gives -1 if the descriptor is closed in the parent; put_fd then opens
             * /dev/null. */
            from[i] = fcntl(from[i], F_DUPFD, 3);
    for (int i = 0; i < 3; i++)
        if (put_fd(from[i], i) < 0)
            return -1;
    return 0;
}

/* Marks all descriptors above 2, the failure pipe among them, to close at exec. */
static void close_rest_at_exec(void)
{
    struct rlimit lim;

#if defined SYS_close_range
    enum { CLOEXEC_FLAG = 4 }; /* CLOSE_RANGE_CLOEXEC, Linux 5.11 */
    if (syscall(SYS_close_range, 3u, ~0u, CLOEXEC_FLAG) == 0)
        return;
#endif
    getrlimit(RLIMIT_NOFILE, &lim);
    for (int fd = 3; fd < (int)lim.rlim_cur; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void default_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, &dfl, NULL); /* fails for SIGKILL and SIGSTOP, as it should */
    /* glibc reserves signals 32 and 33, and its sigaction refuses them; a parent without glibc may
     * have ignored them. The kernel's struct consists of handler, flags, restorer and mask; all
     * zero is SIG_DFL. */
    static const unsigned long kernel_default[4];
    for (int sig = 32; sig <= 33; sig++)
        syscall(SYS_rt_sigaction, sig, kernel_default, NULL, (size_t)8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_main(const struct spawn *s, const char *program, pid_t parent, int report_fd)
{
    struct start_failure f = {.stage = STAGE_GROUP};

    report_fd = fcntl(report_fd, F_DUPFD_CLOEXEC, 3); /* so that child_fds does not overwrite it */
    if ((s->new_session ? setsid() : setpgid(0, 0)) < 0)
        goto failed;
    f.stage = STAGE_PARENT;
    if (s->die_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        goto failed;
    /* The parent may have died before the prctl call. */
    if (s->die_with_parent && getppid() != parent)
        _exit(127);
    f.stage = STAGE_FDS;
    if (child_fds(s) < 0)
        goto failed;
    close_rest_at_exec();
    f.stage = STAGE_CWD;
    if (s->cwd && chdir(s->cwd) < 0)
        goto failed;
    f.stage = STAGE_EXEC;
    default_signals();
    execve(program, (char *const *)s->argv, s->env ? (char *const *)s->env : environ);
failed:
    f.error = errno;
    if (write(report_fd, &f, sizeof f) < 0)
        _exit(126);
    _exit(127);
}

/* ---- starting ---- */

/* Finds the first executable `name` in a folder of PATH; *out stays NULL if there is none. */
static int search_path(const char *name, char **out, struct err *err)
{
    const char *path = getenv("PATH"), *end;

    path = path ? path : "/usr/local/bin:/usr/bin:/bin";
    for (;; path = end + 1) {
        char *candidate;
        end = strchrnul(path, ':');
        if (asprintf(&candidate, "%.*s%s%s",
                     (int)(end - path), path, end > path ? "/" : "", name) < 0)
            return err_set(err, ERR_NOMEM, "out of memory while looking for '%s'", name);
        if (access(candidate, X_OK) == 0) {
            *out = candidate;
            return 0;
        }
        free(candidate);
        if (*end == '\0')
            return err_set(err, ERR_ENV,
                           "program '%s' is not on PATH: install it, or add its folder to PATH",
                           name);
    }
}

static int find_program(const char *name, char **out, struct err *err)
{
    if (!strchr(name, '/'))
        return search_path(name, out, err);
    *out = strdup(name);
    return *out ? 0 : err_set(err, ERR_NOMEM, "out of memory while starting '%s'", name);
}

/* Returns 0 if the program runs, else sets *err to the reason. A child that failed is reaped. */
static int read_report(int fd, const struct spawn *s, const char *program, pid_t pid,
                       struct err *err)
{
    struct start_failure f;
    ssize_t n;

    do
        n = read(fd, &f, sizeof f);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return 0;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (n != sizeof f)
        return err_set(err, ERR_CHILD,
                       "cannot start '%s': its process died before it could say why", program);
    errno = f.error;
    if (f.stage == STAGE_CWD)
        return err_set_errno(err, ERR_ENV, "cannot start '%s': cannot change to folder '%s'",
                             program, s->cwd);
    return err_set_errno(err, f.stage == STAGE_EXEC ? ERR_ENV : ERR_CHILD,
                         "cannot start '%s': cannot %s", program, stage_names[f.stage]);
}

int spawn_start(const struct spawn *s, pid_t *pid, struct err *err)
{
    sigset_t all, before;
    char *program = NULL;
    pid_t parent = getpid(), child;
    int report[] = {-1, -1}, rc;

    BUG_ON(!s->argv || !s->argv[0]);
    if ((rc = find_program(s->argv[0], &program, err)) < 0)
        return rc;
    if (pipe2(report, O_CLOEXEC) < 0) {
        rc = err_set_errno(err, ERR_IO, "cannot start '%s': no pipe", program);
        goto out;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    child = fork();
    if (child == 0)
        child_main(s, program, parent, report[1]);
    rc = child < 0 ? err_set_errno(err, ERR_TEMP, "cannot start '%s': no new process", program) : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(report[1]);
    if (rc < 0)
        goto out;
    if ((rc = read_report(report[0], s, program, child, err)) < 0)
        goto out;
    *pid = child;
out:
    if (report[0] >= 0)
        close(report[0]);
    free(program);
    return rc;
}

/* ---- waiting ---- */

static int open_pidfd(pid_t pid)
{
#if defined SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    errno = ENOSYS;
    return -1;
#endif
}

/* Returns the timeout for poll until end_s (negative: for ever), in ms, rounded up so that we do
 * not busy-wait at the end. */
static int poll_ms(double end_s, int pidfd)
{
    double left = end_s < 0 ? 1e6 : (end_s - clock_mono_s()) * 1e3;

    if (pidfd < 0 && left > POLL_FALLBACK_MS)
        return POLL_FALLBACK_MS;
    if (end_s < 0)
        return -1;
    return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

/* Tells whether the leader has ended (1; it is not reaped) or lives (0); <0 is an error. */
static int is_dead(pid_t pid, struct err *err)
{
    siginfo_t info = {.si_pid = 0};

    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        if (errno != EINTR)
            return err_set_errno(err, ERR_STATE, "cannot wait for process %ld", (long)pid);
    return info.si_pid == pid;
}

static int reap(pid_t pid, struct spawn_exit *out, struct err *err)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set_errno(err, ERR_STATE, "cannot wait for process %ld", (long)pid);
    if (out) {
        out->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    return 0;
}

/* Waits until the leader has ended (returns 1; it is not reaped) or end_s is reached (returns
 * 0). */
static int wait_dead(pid_t pid, double end_s, struct err *err)
{
    int pidfd = open_pidfd(pid), rc;

    for (;;) {
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        rc = is_dead(pid, err);
        if (rc != 0 || (end_s >= 0 && clock_mono_s() >= end_s))
            break;
        poll(&p, 1, poll_ms(end_s, pidfd)); /* after EINTR the loop checks again */
    }
    if (pidfd >= 0)
        close(pidfd);
    return rc;
}

static double end_of(double deadline_s)
{
    return deadline_s < 0 ? -1 : clock_mono_s() + deadline_s;
}

int spawn_wait(pid_t pid, double deadline_s, struct spawn_exit *out, struct err *err)
{
    struct spawn_exit e = {0};
    int rc;

    if ((rc = wait_dead(pid, end_of(deadline_s), err)) < 0)
        return rc;
    if (rc == 0)
        return err_set(err, ERR_TIMEOUT, "process %ld still runs after %.3g s", (long)pid,
                       deadline_s);
    if ((rc = reap(pid, &e, err)) < 0)
        return rc;
    if (out)
        *out = e;
    return 0;
}

int spawn_stop_group(pid_t pid, double grace_s, struct spawn_exit *out, struct err *err)
{
    struct spawn_exit e = {0};
    int rc;

    kill(-pid, SIGTERM);
    kill(-pid, SIGCONT); /* a stopped process would not handle SIGTERM */
    if ((rc = wait_dead(pid, end_of(grace_s < 0 ? 0 : grace_s), err)) < 0)
        return rc;
    kill(-pid, SIGKILL); /* the leader is not reaped, so no other process has its id */
    if ((rc = reap(pid, &e, err)) < 0)
        return rc;
    if (out)
        *out = e;
    return 0;
}

/* ---- running to the end ---- */

/* Opens the child's input as an anonymous file. We need not feed the child while it runs, so
 * nothing can block or raise SIGPIPE. */
static int input_fd(const char *input, struct err *err)
{
    size_t left = strlen(input);
    int fd = memfd_create("input", MFD_CLOEXEC);

    if (fd < 0)
        return err_set_errno(err, ERR_IO, "cannot hold a child's input in memory");
    while (left > 0) {
        ssize_t n = write(fd, input, left);
        if (n < 0) {
            close(fd);
            return err_set_errno(err, ERR_IO, "cannot hold a child's input in memory");
        }
        input += n;
        left -= (size_t)n;
    }
    lseek(fd, 0, SEEK_SET);
    return fd;
}

struct capture {
    struct str *text; /* NULL: not captured */
    int read_fd, write_fd;
};

static int capture_open(struct capture *c, struct str *text, int *child_fd, struct err *err)
{
    int p[2];

    *c = (struct capture){.text = text, .read_fd = -1, .write_fd = -1};
    if (!text && *child_fd >= 0)
        return 0;
    if (!text) {
        c->write_fd = *child_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        return *child_fd < 0 ? err_set_errno(err, ERR_IO, "cannot open '/dev/null'") : 0;
    }
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_set_errno(err, ERR_IO, "cannot make a pipe");
    fcntl(p[0], F_SETFL, O_NONBLOCK); /* only the reading end; the child's end blocks as usual */
    c->read_fd = p[0];
    c->write_fd = *child_fd = p[1];
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Reads all output that is available. Closes the descriptor at end of file. */
static int capture_read(struct capture *c, struct err *err)
{
    char block[16 << 10];

    while (c->read_fd >= 0) {
        ssize_t n = read(c->read_fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0) {
            close_fd(&c->read_fd);
            return 0;
        }
        if (c->text->failed)
            return str_check(c->text, err);
        if (c->text->len + (size_t)n > LIMIT_CAPTURE_BYTES)
            return err_set(err, ERR_LIMIT,
                           "a child wrote more than %d bytes of output: it was killed",
                           LIMIT_CAPTURE_BYTES);
        str_addn(c->text, block, (size_t)n);
    }
    return 0;
}

/* Reads output until the leader has ended (returns 1), the deadline has passed (0) or reading fails
 * (<0). */
static int run_poll(pid_t pid, double end_s, struct capture cap[2], struct err *err)
{
    int pidfd = open_pidfd(pid), rc;

    for (;;) {
        struct pollfd p[3] = {{.fd = pidfd, .events = POLLIN},
                              {.fd = cap[0].read_fd, .events = POLLIN},
                              {.fd = cap[1].read_fd, .events = POLLIN}};
        poll(p, 3, poll_ms(end_s, pidfd));
        /* This precedes the reading, so that all output of a child that has ended is read. */
        rc = is_dead(pid, err);
        for (int i = 0; i < 2 && rc >= 0; i++) {
            int got = capture_read(&cap[i], err);
            rc = got < 0 ? got : rc;
        }
        if (rc != 0 || (end_s >= 0 && clock_mono_s() >= end_s))
            break;
    }
    if (pidfd >= 0)
        close(pidfd);
    return rc;
}

/* Does what run_poll does, and calls s->slow if the child runs for slow_s. */
static int run_wait(const struct spawn *s, pid_t pid, double end_s, struct capture cap[2],
                    struct err *err)
{
    double slow_at = clock_mono_s() + s->slow_s;
    int rc = 0;
    if (s->slow && (end_s < 0 || slow_at < end_s) && (rc = run_poll(pid, slow_at, cap, err)) == 0)
        s->slow();
    return rc != 0 ? rc : run_poll(pid, end_s, cap, err);
}

static int run_child(const struct spawn *s, double deadline_s, struct capture cap[2],
                     struct spawn_exit *out, struct err *err)
{
    struct spawn_exit e = {0};
    double end_s = end_of(deadline_s);
    pid_t pid;
    int rc = spawn_start(s, &pid, err), dead;

    if (rc < 0)
        return rc;
    close_fd(&cap[0].write_fd);
    close_fd(&cap[1].write_fd);
    dead = run_wait(s, pid, end_s, cap, err);
    /* kills the whole group at the deadline, else the processes that the leader left behind */
    kill(-pid, SIGKILL);
    rc = reap(pid, &e, dead < 0 ? NULL : err);
    if (dead < 0)
        return dead;
    if (dead == 0) /* reads the output that came just before the deadline */
        for (int i = 0; i < 2; i++)
            capture_read(&cap[i], NULL);
    e.timed_out = dead == 0;
    if (rc == 0 && out)
        *out = e;
    return rc;
}

/* Runs a child with its input and captures its output. */
static int run_captured(const struct spawn *s, const char *input, double deadline_s,
                        struct capture cap[2], struct str *out_text, struct str *err_text,
                        struct spawn_exit *out, struct err *err)
{
    struct spawn mine = *s;
    int in = -1, rc;

    if (input && (rc = in = mine.fd_in = input_fd(input, err)) < 0)
        return rc;
    if ((rc = capture_open(&cap[0], out_text, &mine.fd_out, err)) < 0)
        goto out;
    if ((rc = capture_open(&cap[1], err_text, &mine.fd_err, err)) < 0)
        goto out;
    rc = run_child(&mine, deadline_s, cap, out, err);
out:
    close_fd(&in);
    return rc;
}

int spawn_run(const struct spawn *s, const char *input, double deadline_s, struct str *out_text,
              struct str *err_text, struct spawn_exit *out, struct err *err)
{
    struct capture cap[2] = {{.read_fd = -1, .write_fd = -1}, {.read_fd = -1, .write_fd = -1}};
    int rc = run_captured(s, input, deadline_s, cap, out_text, err_text, out, err);

    for (int i = 0; i < 2; i++) {
        close_fd(&cap[i].read_fd);
        close_fd(&cap[i].write_fd);
    }
    if (rc < 0)
        return rc;
    if (out_text && (rc = str_check(out_text, err)) < 0)
        return rc;
    return err_text ? str_check(err_text, err) : 0;
}

int spawn_status(const struct spawn_exit *e)
{
    return e->signal ? 128 + e->signal : e->code;
}

const char *signal_name(int signo, char out[SIGNAL_NAME_BYTES])
{
    const char *abbrev = sigabbrev_np(signo);
    snprintf(out, SIGNAL_NAME_BYTES, abbrev ? "SIG%s" : "other", abbrev);
    return out;
}
