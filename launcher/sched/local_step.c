/* This file runs steps of the local scheduler, with a watcher process for each step.
 *
 * The watcher is a child of the caller. It adopts orphans, starts the step's program, sends the
 * program's identity to the caller, waits for the program's end or the deadline, kills all
 * processes left below it, and sends the outcome. It ends early and kills everything when the
 * caller frees the step or dies. The signal for that is SIGRTMAX, also as parent-death signal;
 * SIGTERM would not do, because a scheduler sends it to every process of a job that it ends, and
 * the step may still have to save. If the watcher itself is killed, its child dies by parent-death
 * signal, and inside a job the job's keeper ends the rest. */
#include "launcher/sched/local_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/spawn.h"

/* The watcher first sends this to the caller, and later the status. Each fits into PIPE_BUF, so it
 * arrives in one piece. */
struct hello {
    int rc;
    struct proc_id first; /* the step's first process, if rc is 0 */
    char text[ERR_TEXT_BYTES];
};

struct local_step {
    struct sched_step base;
    struct local_steps *owner; /* borrowed; it outlives its steps */
    pid_t watcher;
    int fd;
    int64_t cores;
    struct proc_id first;
    struct sched_step_status status;
};

/* ---- the watcher ---- */

#define LEAVE SIGRTMAX /* glibc has no constant for it */

struct watcher {
    const struct local_steps *steps;
    const struct sched_step_spec *spec;
    const char *const *env;
    pid_t first;
    int out_fd, signal_fd;
    double term_s, kill_s; /* monotonic */
    struct sched_step_status status;
};

static void tell(int fd, const void *message, size_t n)
{
    while (write(fd, message, n) < 0 && errno == EINTR)
        ;
}

/* Closes all descriptors but the pipe and 0, 1, 2, because the others (database, lock files) belong
 * to the caller only. */
static int keep_only(int fd)
{
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (kept > 3)
        kept = dup3(kept, 3, O_CLOEXEC);
    syscall(SYS_close_range, 4u, ~0u, 0u);
    return kept;
}

static int step_spawn(struct watcher *w, struct err *err)
{
    int log = -1;
    if (w->spec->log_path) {
        log = open(w->spec->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
        if (log < 0)
            return err_set_errno(err, ERR_IO, "cannot open the step's log '%s'", w->spec->log_path);
    } else {
        log = open("/dev/null", O_WRONLY | O_CLOEXEC);
    }
    const struct spawn s = {.argv = w->spec->argv,
                            .env = w->env,
                            .cwd = w->spec->cwd,
                            .fd_in = -1, .fd_out = log, .fd_err = log,
                            .new_session = true,
                            .die_with_parent = true};
    int rc = spawn_start(&s, &w->first, err);
    close(log);
    return rc;
}

static void reap_first(struct watcher *w)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != w->first)
            continue;
        w->status.ended = true;
        w->status.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        w->status.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
}

static void keep_deadline(struct watcher *w, double now_s)
{
    if (now_s >= w->term_s) {
        w->term_s = INFINITY;
        w->status.timed_out = true;
        kill(w->first, SIGCONT);
        kill(w->first, SIGTERM);
    }
    if (now_s >= w->kill_s) {
        w->kill_s = INFINITY;
        proc_signal_below(getpid(), SIGKILL, local_is_keeper, (void *)w->steps->spool);
    }
}

/* Waits until the first process has ended or the caller frees the step. */
static void watch(struct watcher *w)
{
    struct signalfd_siginfo info;
    for (;;) {
        double now_s = clock_mono_s();
        reap_first(w);
        if (w->status.ended)
            return;
        keep_deadline(w, now_s);
        double first_s = fmin(w->term_s, w->kill_s);
        struct pollfd fd = {.fd = w->signal_fd, .events = POLLIN};
        poll(&fd, 1, isinf(first_s) ? -1 : (int)ceil(1000 * fmin(first_s - now_s, 60)));
        while (read(w->signal_fd, &info, sizeof info) == sizeof info)
            if (info.ssi_signo == (uint32_t)LEAVE)
                return;
    }
}

static void watcher_main(struct watcher *w, pid_t caller)
{
    struct hello hello = {0};
    struct err err = {0};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, LEAVE);
    if (getppid() != caller)
        _exit(1);
    w->out_fd = keep_only(w->out_fd);
    w->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    setsid();
    proc_adopt();
    hello.rc = w->signal_fd < 0 ? err_set_errno(&err, ERR_IO, "cannot watch the step")
                                : step_spawn(w, &err);
    if (hello.rc == 0)
        hello.first = proc_identify(w->first);
    memcpy(hello.text, err.text, sizeof hello.text);
    tell(w->out_fd, &hello, sizeof hello);
    if (hello.rc < 0)
        _exit(1);
    w->status.started_at = clock_wall_s();
    if (w->spec->deadline_s > 0) {
        w->term_s = clock_mono_s() + w->spec->deadline_s;
        w->kill_s = w->term_s + w->steps->machine.kill_wait_s;
    }
    watch(w);
    bool seen = w->status.ended;
    proc_kill_below(local_is_keeper, (void *)w->steps->spool);
    w->status.ended = true;
    w->status.lost = !seen;
    w->status.ended_at = clock_wall_s();
    tell(w->out_fd, &w->status, sizeof w->status);
    _exit(0);
}

/* ---- the caller's side ---- */

int local_step_env(const char *kind, const struct sched_self *self, const char *const *base,
                   struct arena *texts, const char ***out, struct err *err)
{
    const char *own[7] = {NULL};
    if (self->id[0]) {
        own[0] = arena_printf(texts, "REEL_JOB_ID=%s", self->id);
        own[1] = arena_printf(texts, "REEL_RUN_TOKEN=%s", self->token);
        own[2] = arena_printf(texts, "REEL_JOB_RESTART=%d", self->restarts);
        own[3] = arena_printf(texts, "REEL_JOB_CORES=%d", self->cores_per_node);
        own[4] = arena_printf(texts, "REEL_JOB_NODES=%d", self->nodes);
        own[5] = arena_printf(texts, "REEL_JOB_SCHED=%s", kind);
    }
    return local_env_merge(base, own, out, err);
}

/* Reads one complete message; returns 0 at end of file. */
static ssize_t hear(int fd, void *message, size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t k = read(fd, (char *)message + got, n - got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return 0;
        got += (size_t)k;
    }
    return (ssize_t)n;
}

static void step_end(struct local_step *st)
{
    while (waitpid(st->watcher, NULL, 0) < 0 && errno == EINTR)
        ;
    st->owner->used -= st->cores;
    st->watcher = 0;
}

static int take_cores(struct local_steps *steps, int wanted, int64_t *cores, struct err *err)
{
    int64_t n = wanted ? wanted : steps->cores;
    if (steps->used + n > steps->cores)
        return err_set(err, ERR_LIMIT,
                       "a step asks for %lld cores and %lld of %lld are free: ask for fewer, or "
                       "wait for a running step to end",
                       (long long)n, (long long)(steps->cores - steps->used),
                       (long long)steps->cores);
    *cores = n;
    return 0;
}

static int greet(struct local_step *st, struct err *err)
{
    struct hello hello;
    if (hear(st->fd, &hello, sizeof hello) == 0)
        return err_set(err, ERR_CHILD, "a step's watcher ended before it started the step");
    st->first = hello.first;
    return hello.rc < 0 ? err_set(err, hello.rc, "%s", hello.text) : 0;
}

/* Starts the step's watcher, which writes to fds[1], and reads whether the watcher could start the
 * step. */
static int watcher_start(struct local_step *st, const struct sched_step_spec *spec,
                         const char *const *env, const int fds[2], struct err *err)
{
    struct watcher w = {.steps = st->owner,
                        .spec = spec,
                        .env = env,
                        .out_fd = fds[1],
                        .term_s = INFINITY, .kill_s = INFINITY,
                        .status = {.exit_code = -1}};
    pid_t caller = getpid();
    int rc;
    st->watcher = fork();
    if (st->watcher == 0)
        watcher_main(&w, caller);
    close(fds[1]);
    if (st->watcher < 0)
        return err_set_errno(err, ERR_TEMP, "cannot start a step: too many processes?");
    st->owner->used += st->cores;
    if ((rc = greet(st, err)) < 0)
        step_end(st);
    return rc;
}

int local_step_start(struct local_steps *steps, const struct sched_step_spec *spec,
                     const char *const *env, struct sched_step **out, struct err *err)
{
    int64_t cores = 0;
    int fds[2], rc;
    if ((rc = take_cores(steps, spec->cores, &cores, err)) < 0)
        return rc;
    struct local_step *st = calloc(1, sizeof *st);
    if (!st)
        return err_set(err, ERR_NOMEM, "out of memory for a step");
    if (pipe2(fds, O_CLOEXEC) < 0) {
        free(st);
        return err_set_errno(err, ERR_TEMP, "cannot make a pipe for a step");
    }
    *st = (struct local_step){.base = {steps->ops},
                              .owner = steps,
                              .fd = fds[0],
                              .cores = cores,
                              .status = {.exit_code = -1, .started_at = clock_wall_s()}};
    if ((rc = watcher_start(st, spec, env, fds, err)) < 0) {
        close(fds[0]);
        free(st);
        return rc;
    }
    *out = &st->base;
    return 0;
}

int local_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err)
{
    struct local_step *st = (struct local_step *)step;
    double end_s = clock_mono_s() + wait_s;
    while (!st->status.ended) {
        double left_s = wait_s < 0 ? 60 : fmin(60, fmax(0, end_s - clock_mono_s()));
        struct pollfd fd = {.fd = st->fd, .events = POLLIN};
        int n = poll(&fd, 1, (int)ceil(1000 * left_s));
        if (n < 0 && errno != EINTR)
            return err_set_errno(err, ERR_IO, "cannot wait for a step");
        if (n > 0) {
            double started_at = st->status.started_at;
            if (hear(st->fd, &st->status, sizeof st->status) == 0)
                st->status = (struct sched_step_status){.ended = true,
                                                        .lost = true,
                                                        .exit_code = -1,
                                                        .started_at = started_at,
                                                        .ended_at = clock_wall_s()};
            step_end(st);
        } else if (wait_s >= 0 && clock_mono_s() >= end_s) {
            break;
        }
    }
    *out = st->status;
    return 0;
}

int local_step_signal(struct sched_step *step, int signo, struct err *err)
{
    struct local_step *st = (struct local_step *)step;
    int rc = st->status.ended ? 0 : proc_signal(st->first, signo, err);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

void local_step_signal_all(struct sched_step *step, int signo)
{
    struct local_step *st = (struct local_step *)step;
    if (!st->status.ended)
        proc_signal_below(st->watcher, signo, local_is_keeper, (void *)st->owner->spool);
}

void local_step_free(struct sched_step *step)
{
    struct local_step *st = (struct local_step *)step;
    struct sched_step_status status;
    if (!st->status.ended) {
        kill(st->watcher, LEAVE);
        local_step_poll(step, -1, &status, NULL);
    }
    close(st->fd);
    free(st);
}
