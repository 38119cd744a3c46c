/* This file runs the keeper of one execution of a job, which is two processes.
 *
 * The guard adopts orphans and waits for the keeper proper. If the keeper is killed before it has
 * recorded the job's end, the guard inherits every process of the job, kills them, and records the
 * job as lost. If the guard is killed, the keeper carries on alone. Only if both are killed does
 * another process's pass recover the job (recover() in local_pass.c).
 *
 * The keeper claims the job under the lock, starts the batch process, and records that it runs.
 * Then it waits for an exit (SIGCHLD through a signalfd), a changed record (inotify on the spool),
 * the next time of its timetable, or its next pass, which it makes every few seconds for all jobs.
 * It is single-threaded, blocks all signals, and tries to record the end until it succeeds: with a
 * full disk the job stays "running" until there is room. */
#include "launcher/sched/local_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/spawn.h"

#define PASS_EVERY_S 5.0  /* between passes, which recover jobs whose keeper and guard are gone */
#define LOCK_WAIT_S 30.0
#define AGAIN_S 1.0       /* pause before a failed write of a record is tried again */

/* Says when each signal is sent, on the monotonic clock; INFINITY: never. After a signal was sent
 * its time is set to INFINITY. */
struct timetable {
    double early_s, limit_s; /* for the time limit: of the early signal, of the stop */
    double notice_s, term_s, kill_s; /* while stopping: of the early signal, SIGTERM, SIGKILL */
    int stop; /* the enum local_stop for which the last three were set */
};

struct keeper {
    struct local_spool spool;
    struct local_machine machine;
    struct local_rec rec; /* as last read or written; its texts are in spool.texts */
    struct proc_id guard, self;
    struct timetable plan;
    int signal_fd, watch_fd;
    pid_t batch;
    bool ended; /* the batch process has ended, and its status is in rec */
    bool missed; /* the record did not exist at the last look */
    double pass_at_s;
};

/* ---- records ---- */

/* Changes the record that was just read, and returns whether to write it. It returns false if the
 * record no longer belongs to this keeper. change_record() calls it under the lock, and repeats
 * that until the record is written, because a full disk or a held lock is temporary. */
typedef bool change_fn(struct keeper *k, struct local_rec *r);

static int rec_change(struct keeper *k, change_fn *change, bool *done, struct err *err)
{
    struct local_rec r;
    int rc = local_rec_load(&k->spool, k->rec.id, &k->spool.texts, &r, err);
    if (rc == ERR_CORRUPT || rc == ERR_INPUT) /* it is damaged: the keeper's last copy replaces
                                               * it */
        r = k->rec;
    else if (rc < 0)
        return rc;
    if (!(*done = change(k, &r)))
        return 0;
    if ((rc = local_rec_save(&k->spool, &r, err)) < 0)
        return rc;
    k->rec = r;
    return 0;
}

static int change_once(struct keeper *k, change_fn *change, bool *done, struct err *err)
{
    struct lease *lock = NULL;
    int rc;
    if ((rc = local_lock(&k->spool, LOCK_WAIT_S, &lock, err)) < 0)
        return rc;
    rc = rec_change(k, change, done, err);
    lease_drop(lock);
    return rc;
}

static bool change_record(struct keeper *k, change_fn *change)
{
    struct err err = {0};
    bool done = false, told = false;
    int rc;
    while ((rc = change_once(k, change, &done, &err)) < 0) {
        if (rc == ERR_NOT_FOUND || !file_exists(k->spool.dir))
            return false;
        if (!told)
            log_msg(LOG_WARN, "job %lld: %s; trying again", (long long)k->rec.id, err.text);
        told = true;
        clock_sleep_s(AGAIN_S);
    }
    return done;
}

static bool is_ours(const struct keeper *k, const struct local_rec *r)
{
    return r->keeper.pid == k->self.pid && r->keeper.start == k->self.start &&
           strcmp(r->boot, clock_boot_id()) == 0;
}

/* ---- transitions ---- */

static bool claim(struct keeper *k, struct local_rec *r)
{
    if (r->starting_at == 0 || r->keeper.pid != 0)
        return false; /* another keeper has claimed it, or it was cancelled */
    r->boot = clock_boot_id();
    r->guard = k->guard;
    r->keeper = k->self;
    r->exit_code = -1;
    r->exit_signal = 0;
    return true;
}

static bool runs(struct keeper *k, struct local_rec *r)
{
    if (!is_ours(k, r))
        return false;
    r->state = r->stop == STOP_NONE ? SCHED_RUNNING : SCHED_STOPPING;
    r->starting_at = 0;
    r->started_at = clock_wall_s();
    r->ended_at = 0;
    r->batch = proc_identify(k->batch);
    return true;
}

static bool asked(struct local_rec *r, enum local_stop stop, const char *reason)
{
    if (r->stop >= (int)stop)
        return false;
    r->stop = (int)stop;
    r->reason = reason;
    r->state = SCHED_STOPPING;
    return true;
}

static bool over_time(struct keeper *k, struct local_rec *r)
{
    return is_ours(k, r) && asked(r, STOP_TIME_LIMIT, "time limit");
}

static bool shut_down(struct keeper *k, struct local_rec *r)
{
    return is_ours(k, r) &&
           asked(r, STOP_SHUTDOWN, "its keeper was asked to end: the machine shuts down");
}

/* Records the end of the execution. k->rec has the outcome (exit status, or why it could not
 * start); requests to stop may have come since. */
static bool settle(struct keeper *k, struct local_rec *r)
{
    if (!is_ours(k, r))
        return false;
    r->exit_code = k->rec.exit_code;
    r->exit_signal = k->rec.exit_signal;
    if (r->stop == STOP_NONE)
        r->reason = k->rec.reason;
    local_rec_settle(r, false, clock_wall_s(), &k->spool.texts);
    return true;
}

static bool settle_lost(struct keeper *k, struct local_rec *r)
{
    if (r->guard.pid != k->guard.pid || r->guard.start != k->guard.start ||
        strcmp(r->boot, clock_boot_id()) != 0)
        return false;
    local_rec_settle(r, true, clock_wall_s(), &k->spool.texts);
    return true;
}

/* ---- the batch process ---- */

static int log_open(const char *path, int *fd, struct err *err)
{
    char *copy = strdup(path);
    int rc = copy ? file_mkdirs(dirname(copy), err) : err_set(err, ERR_NOMEM, "out of memory");
    free(copy);
    if (rc < 0)
        return rc;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    return *fd < 0 ? err_set_errno(err, ERR_IO, "cannot open the job's log '%s'", path) : 0;
}

static const char *variable(struct arena *texts, const char *name, const char *value)
{
    const char *s = arena_printf(texts, "%s=%s", name, value);
    return s ? s : "";
}

static int job_env(struct keeper *k, const char *const *base, const char ***out, struct err *err)
{
    struct arena *t = &k->spool.texts;
    char id[32], restart[32], cores[32];
    snprintf(id, sizeof id, "%lld", (long long)k->rec.id);
    snprintf(restart, sizeof restart, "%lld", (long long)k->rec.restarts);
    snprintf(cores, sizeof cores, "%lld", (long long)k->rec.cores);
    const char *own[] = {variable(t, "REEL_JOB_ID", id), variable(t, "REEL_JOB_RESTART", restart),
                         variable(t, "REEL_JOB_CORES", cores),
                         variable(t, "REEL_RUN_TOKEN", k->rec.token),
                         variable(t, "REEL_JOB_SCHED", "local"), NULL};
    return local_env_merge(base, own, out, err);
}

static int batch_start(struct keeper *k, struct err *err)
{
    struct local_program program = {.text = STR_INIT};
    const char **env = NULL;
    int log = -1, rc = local_program_load(&k->spool, k->rec.id, &program, err);
    if (rc < 0)
        return rc;
    if ((rc = log_open(program.log_path, &log, err)) == 0 &&
        (rc = job_env(k, program.env, &env, err)) == 0) {
        const struct spawn s = {.argv = program.argv,
                                .env = env,
                                .cwd = program.cwd,
                                .fd_in = -1, .fd_out = log, .fd_err = log,
                                .new_session = true,
                                .die_with_parent = true};
        rc = spawn_start(&s, &k->batch, err);
    }
    if (log >= 0)
        close(log);
    free(env);
    local_program_release(&program);
    return rc;
}

static void batch_signal(struct keeper *k, int signo)
{
    if (!k->ended)
        kill(k->batch, signo); /* the child is not reaped yet, so its pid cannot have been reused */
}

static void notice(struct keeper *k, int signo)
{
    batch_signal(k, SIGCONT);
    batch_signal(k, signo);
}

/* ---- the timetable ---- */

static void plan_limit(struct keeper *k, double now_s)
{
    const struct local_rec *r = &k->rec;
    k->plan = (struct timetable){INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, STOP_NONE};
    if (r->time_limit_s > 0)
        k->plan.limit_s = now_s + r->time_limit_s;
    if (r->time_limit_s > 0 && r->signal && r->signal_lead_s > 0)
        k->plan.early_s = now_s + fmax(0, r->time_limit_s - r->signal_lead_s);
}

/* Plans the signals that follow from a new or stronger request to stop. A planned SIGKILL is never
 * delayed. */
static void plan_stop(struct keeper *k, double now_s)
{
    struct timetable *p = &k->plan;
    bool with_notice = k->rec.stop == STOP_PREEMPT || k->rec.stop == STOP_SHUTDOWN;
    if (k->rec.stop <= p->stop)
        return;
    p->stop = k->rec.stop;
    p->early_s = p->limit_s = INFINITY;
    p->notice_s = with_notice ? now_s : INFINITY;
    p->term_s = with_notice ? now_s + k->machine.grace_s : now_s;
    p->kill_s = fmin(p->kill_s, p->term_s + k->machine.kill_wait_s);
}

static bool due(double *at_s, double now_s)
{
    if (now_s < *at_s)
        return false;
    *at_s = INFINITY;
    return true;
}

static void follow_plan(struct keeper *k, double now_s)
{
    struct timetable *p = &k->plan;
    int early = k->rec.signal ? (int)k->rec.signal : SIGTERM;
    if (due(&p->early_s, now_s))
        notice(k, early);
    if (due(&p->limit_s, now_s) && change_record(k, over_time))
        plan_stop(k, now_s);
    if (due(&p->notice_s, now_s))
        notice(k, early);
    if (due(&p->term_s, now_s))
        notice(k, SIGTERM);
    if (due(&p->kill_s, now_s))
        proc_signal_below(getpid(), SIGKILL, local_is_keeper, &k->spool);
}

static double next_moment(const struct keeper *k)
{
    const struct timetable *p = &k->plan;
    double first = fmin(fmin(p->early_s, p->limit_s),
                        fmin(p->notice_s, fmin(p->term_s, p->kill_s)));
    return fmin(first, k->pass_at_s);
}

/* ---- waiting ---- */

static void reap(struct keeper *k)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != k->batch)
            continue;
        k->ended = true;
        k->rec.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        k->rec.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
}

static void hear_signals(struct keeper *k)
{
    struct signalfd_siginfo info;
    while (read(k->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGTERM)
            change_record(k, shut_down);
    reap(k);
}

/* Checks that the record exists. If it or the whole spool was removed, nobody can see or cancel
 * this job any more, so the job is ended. Two looks in a row, PASS_EVERY_S apart, must miss the
 * record. */
static void look_for_record(struct keeper *k)
{
    char path[LIMIT_PATH_BYTES], name[64];
    snprintf(name, sizeof name, "%lld.job", (long long)k->rec.id);
    bool missing = local_spool_path(&k->spool, name, path, NULL) == 0 && !file_exists(path);
    if (missing && k->missed && k->rec.stop < STOP_CANCEL)
        k->rec.stop = STOP_CANCEL;
    k->missed = missing;
}

/* Reads the record after a change in the spool, and takes over a new request to stop. */
static void hear_wishes(struct keeper *k)
{
    char events[4096];
    struct arena texts = {0};
    struct local_rec r;
    while (read(k->watch_fd, events, sizeof events) > 0)
        ;
    if (local_rec_load(&k->spool, k->rec.id, &texts, &r, NULL) == 0 && is_ours(k, &r) &&
        r.stop > k->rec.stop) {
        const char *reason = arena_strdup(&k->spool.texts, r.reason);
        k->rec.stop = r.stop;
        k->rec.reason = reason ? reason : "";
        k->rec.state = r.state;
    }
    arena_release(&texts);
}

static void watch(struct keeper *k)
{
    while (!k->ended) {
        double now_s = clock_mono_s();
        plan_stop(k, now_s);
        follow_plan(k, now_s);
        if (due(&k->pass_at_s, now_s)) {
            look_for_record(k);
            local_pass(&k->spool, 0, NULL);
            k->pass_at_s = now_s + PASS_EVERY_S;
        }
        double wait_s = fmax(0, next_moment(k) - clock_mono_s());
        struct pollfd fds[] = {{.fd = k->signal_fd, .events = POLLIN},
                               {.fd = k->watch_fd, .events = POLLIN}};
        if (poll(fds, 2, (int)ceil(1000 * fmin(wait_s, PASS_EVERY_S))) < 0 && errno != EINTR)
            clock_sleep_s(AGAIN_S);
        if (fds[0].revents)
            hear_signals(k);
        hear_wishes(k);
    }
}

/* ---- the life of a keeper ---- */

/* Opens the descriptors for signals and for changes of the spool. The watch begins before the
 * claim, so that no request is missed. */
static int ears_open(struct keeper *k, struct err *err)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    k->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    k->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (k->signal_fd < 0 || k->watch_fd < 0 ||
        inotify_add_watch(k->watch_fd, k->spool.dir, IN_MOVED_TO) < 0)
        return err_set_errno(err, ERR_IO, "cannot watch the spool '%s' (fs.inotify limits?)",
                             k->spool.dir);
    return 0;
}

static void execute(struct keeper *k)
{
    struct err err = {0};
    if (k->rec.stop == STOP_CANCEL)
        return; /* the job was cancelled between the decision and the claim */
    if (batch_start(k, &err) < 0) {
        const char *why = arena_printf(&k->spool.texts, "cannot start: %s", err.text);
        k->rec.reason = why ? why : "cannot start";
        return;
    }
    change_record(k, runs);
    plan_limit(k, clock_mono_s());
    k->pass_at_s = clock_mono_s(); /* a more urgent job may have waited until this one runs and can
                                    * be preempted */
    watch(k);
}

static int keeper_main(struct keeper *k, struct err *err)
{
    int rc = ears_open(k, err);
    if (rc < 0)
        return rc;
    proc_adopt();
    k->self = proc_identify(getpid());
    k->guard = proc_identify(getppid());
    if ((rc = local_machine_load(&k->spool, &k->machine, err)) < 0)
        return rc;
    if (!change_record(k, claim))
        return 0;
    execute(k);
    proc_kill_below(local_is_keeper, &k->spool);
    change_record(k, settle);
    if (k->plan.stop == STOP_SHUTDOWN)
        return 0; /* nothing is started on a machine that shuts down */
    return local_pass(&k->spool, LOCK_WAIT_S, err);
}

static int guard_main(struct keeper *k, pid_t keeper, struct err *err)
{
    int status = 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) != keeper;)
        if (pid < 0 && errno != EINTR)
            return err_set_errno(err, ERR_IO, "cannot wait for the keeper");
    if (status == 0)
        return 0;
    k->guard = proc_identify(getpid());
    proc_kill_below(local_is_keeper, &k->spool);
    change_record(k, settle_lost);
    return local_pass(&k->spool, LOCK_WAIT_S, err);
}

int sched_local_keeper(const char *spool, const char *job, struct err *err)
{
    struct keeper k = {.signal_fd = -1, .watch_fd = -1, .plan = {0}};
    int rc = local_spool_init(&k.spool, spool, err);
    if (rc < 0 || (rc = num_parse_i64(job, "job id", &k.rec.id, err)) < 0)
        return rc;
    if (!file_exists(spool))
        return err_set(err, ERR_NOT_FOUND,
                       "there is no spool '%s': keepers are started by the local scheduler", spool);
    proc_adopt();
    pid_t child = fork();
    if (child < 0)
        rc = err_set_errno(err, ERR_TEMP, "cannot start the keeper of job %s", job);
    else
        rc = child == 0 ? keeper_main(&k, err) : guard_main(&k, child, err);
    local_spool_release(&k.spool);
    return rc;
}
