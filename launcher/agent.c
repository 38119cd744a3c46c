#include "launcher/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autotune/command.h"
#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "launcher/sched/sched.h"
#include "profiles/plan.h"
#include "profiles/run.h"

enum {
    NOTICE_REPEAT_MS = 1000, /* a trainer that starts up may not hear yet: say it again until it has ended */
    LINGER_MS = 2000,        /* between the end of a step and the notice that explains it */
    AWAY_S = 3,              /* longer between two looks, and it was not the trainer that stood still */
};

extern char **environ;

struct agent {
    const struct agent_conf *conf;
    struct run run;
    struct plan plan;
    struct run_state state;
    struct sched *steps; /* what starts the trainer */
    struct sched *sched; /* the same when we are a job of it; NULL: started by hand */
    struct sched_self self;
    struct evlog *log;
    int64_t attempt;
    int lock_fd, signal_fd;
    bool stop_requested, time_limit_near, hung;
    double started_mono, moved_mono, looked_mono; /* of the attempt; when rank 0's log grew last, and was looked at */
    int64_t log_bytes;
    struct arena arena;
};

/* Causes in order of certainty: what was published, what was asked, what the exit tells. */
enum attempt_cause agent_cause(const struct agent_evidence *e)
{
    if (e->done)
        return CAUSE_DONE;
    if (e->cancel_requested)
        return CAUSE_CANCEL;
    if (e->hung)
        return CAUSE_HANG;
    if (e->stop_requested)
        return e->time_limit_near ? CAUSE_TIME_LIMIT : CAUSE_PREEMPT;
    return CAUSE_CRASH;
}

/* ---- events ---- */

static void event_log(struct agent *a, struct evlog_event *e)
{
    struct err err = {0};
    if (evlog_commit(a->log, e, true, &err) < 0) /* a full disk must not end the training it reports on */
        log_msg(LOG_WARN, "event lost: %s", err.text);
}

static void event_started(struct agent *a)
{
    struct evlog_event e;
    evlog_begin(a->log, &e, "attempt_started");
    json_put_text(&e.out, "sched", a->sched ? a->sched->ops->kind : "none");
    json_put_text(&e.out, "job_id", a->self.id);
    json_put_int(&e.out, "restart", a->self.restarts);
    event_log(a, &e);
}

static void event_signal(struct agent *a, int signo)
{
    struct evlog_event e;
    evlog_begin(a->log, &e, "signal");
    json_put_text(&e.out, "signal", signo == SIGTERM ? "SIGTERM" : signo == SIGUSR1 ? "SIGUSR1" : "other");
    json_put_int(&e.out, "number", signo);
    json_put_text(&e.out, "from", "scheduler");
    event_log(a, &e);
}

static void event_ended(struct evlog *log, enum attempt_cause cause, const struct sched_step_status *end,
                        const char *detail)
{
    struct evlog_event e;
    struct err err = {0};
    evlog_begin(log, &e, "attempt_ended");
    json_put_text(&e.out, "cause", attempt_cause_names[cause]);
    json_put_int(&e.out, "exit_code", end ? end->exit_code : -1);
    json_put_int(&e.out, "signal", end ? end->exit_signal : 0);
    json_put_text(&e.out, "detail", detail);
    if (evlog_commit(log, &e, true, &err) < 0)
        log_msg(LOG_WARN, "event lost: %s", err.text);
}

/* ---- claiming the attempt ---- */

static int events_open(struct agent *a, int64_t attempt, struct evlog **out, struct err *err)
{
    char *dir = file_join(a->conf->run_dir, "events");
    struct evlog_ids ids = {a->state.run, attempt, "agent", a->self.token};
    int rc = dir ? evlog_open(dir, &ids, out, err) : err_set(err, ERR_NOMEM, "out of memory");
    free(dir);
    return rc;
}

/* The attempt before us was cut off with its agent: say so in its name, once. */
static int close_predecessor(struct agent *a, struct err *err)
{
    struct run_attempt *last = a->state.n_attempts ? &a->state.attempts[a->state.n_attempts - 1] : NULL;
    struct evlog *log = NULL;
    if (!last || last->cause != CAUSE_NONE)
        return 0;
    int rc = events_open(a, last->number, &log, err);
    if (rc < 0)
        return rc;
    bool warned = last->signal_at > 0;
    event_ended(log, warned ? CAUSE_PREEMPT : CAUSE_NODE_FAIL, NULL,
                warned ? "killed before it had finished stopping" : "its agent was killed, or its node was lost");
    evlog_close(log);
    return 0;
}

/* claims/attempt-<n> by exclusive create: of two agents that fold the same state only one gets the number. */
static int claim_create(struct agent *a, int64_t number, struct err *err)
{
    char name[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct json_out o;
    snprintf(name, sizeof name, "%s/claims/attempt-%lld", a->conf->run_dir, (long long)number);
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "job_id", a->self.id);
    json_put_text(&o, "token", a->self.token);
    json_put_text(&o, "host", clock_host());
    json_put_int(&o, "pid", getpid());
    json_obj_end(&o);
    int rc = str_check(&text, err);
    if (rc == 0)
        rc = file_create_exclusive(name, text.p, text.len, err);
    str_release(&text);
    return rc;
}

/* Highest attempt anyone has claimed, 0 if none. */
static int64_t claim_highest(const struct agent *a)
{
    char path[LIMIT_PATH_BYTES];
    int64_t highest = 0;
    snprintf(path, sizeof path, "%s/claims", a->conf->run_dir);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        long long n;
        if (sscanf(d->d_name, "attempt-%lld", &n) == 1 && n > highest)
            highest = n;
    }
    if (dir)
        closedir(dir);
    return highest;
}

/* Takes the run: the lock says no other agent of this run lives on this host (its processes hold it to their end), the token
 * that we are the submission that counts, the claim which attempt we are. ERR_BUSY: step aside. */
static int claim(struct agent *a, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/claims", a->conf->run_dir);
    int rc = file_mkdirs(path, err);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/claims/lock", a->conf->run_dir);
    if ((rc = file_lock(path, 0, &a->lock_fd, err)) < 0)
        return rc;
    if (a->self.token[0] && a->state.token[0] && strcmp(a->self.token, a->state.token) != 0)
        return err_set(err, ERR_BUSY, "this job (token %s) was replaced by a newer submission (token %s)", a->self.token,
                       a->state.token);
    if ((rc = close_predecessor(a, err)) < 0)
        return rc;
    a->attempt = claim_highest(a) + 1;
    return claim_create(a, a->attempt, err);
}

/* ---- the trainer ---- */

static int trainer_command(struct agent *a, struct command *out, struct err *err)
{
    char *run_json = arena_printf(&a->arena, "%s/run.json", a->conf->run_dir);
    char *plan_json = arena_printf(&a->arena, "%s/plan.json", a->conf->run_dir);
    char *attempt = arena_printf(&a->arena, "%lld", (long long)a->attempt);
    if (!run_json || !plan_json || !attempt)
        return err_set(err, ERR_NOMEM, "out of memory");
    /* the run's events say how it ended; mpirun would hold a status other than 0 back for two seconds */
    const char *args[] = {"train",     "--run", run_json,    "--plan", plan_json, "--run-dir", a->conf->run_dir,
                          "--attempt", attempt, "--stop-ok", NULL};
    return command_trainer(a->conf->bin_dir, layout_world(&a->plan.layout), a->steps->ops->starts_ranks, args, (const char *const *)environ, &a->arena,
                           out, err);
}

static int trainer_start(struct agent *a, struct sched_step **step, struct err *err)
{
    char log[LIMIT_PATH_BYTES];
    struct command command;
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    snprintf(log, sizeof log, "%s/logs", a->conf->run_dir);
    int rc = file_mkdirs(log, err);
    if (rc == 0)
        rc = trainer_command(a, &command, err);
    if (rc < 0)
        return rc;
    snprintf(log, sizeof log, "%s/logs/attempt-%lld.log", a->conf->run_dir, (long long)a->attempt);
    spec.argv = command.argv;
    spec.env = command.env;
    spec.cwd = a->conf->run_dir;
    spec.log_path = log;
    spec.ranks = (int)layout_world(&a->plan.layout);
    if ((rc = sched_step_start(a->steps, &spec, step, err)) < 0)
        return rc;
    struct evlog_event e;
    evlog_begin(a->log, &e, "trainer_started");
    json_put_int(&e.out, "ranks", spec.ranks);
    event_log(a, &e);
    return 0;
}

/* Was the notice the one before the time limit? A scheduler may send it early (Slurm: up to 60 s). */
static bool near_time_limit(const struct agent *a)
{
    double limit = a->run.resources.time_limit_s, early_s = 60;
    double elapsed = clock_mono_s() - a->started_mono;
    return limit > 0 && elapsed >= limit - fmax(early_s, limit * 0.1) && elapsed >= limit * 0.5;
}

static void notice_take(struct agent *a, int signo)
{
    if (!a->stop_requested) {
        a->time_limit_near = near_time_limit(a);
        log_msg(LOG_INFO, "notice to stop (signal %d): asking the trainer to save", signo);
    }
    a->stop_requested = true;
    event_signal(a, signo);
}

static const struct run_attempt *state_attempt(const struct run_state *s, int64_t number)
{
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (s->attempts[i].number == number)
            return &s->attempts[i];
    return NULL;
}

static char *rank0_log(const struct agent *a, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/events/rank0.a%lld.evlog", a->conf->run_dir, (long long)a->attempt);
    return buf;
}

/* Rank 0 writes an event for every step, save and load: when its log has not grown for so long nothing moves any more. The log's
 * size on our own clock, for its times may be another host's. */
static bool hangs(struct agent *a)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    double limit_s = a->run.budget.hang_s, now_s = clock_mono_s();
    int64_t bytes = stat(rank0_log(a, path), &st) == 0 ? (int64_t)st.st_size : 0;
    double away_s = now_s - a->looked_mono;
    a->looked_mono = now_s;
    if (away_s > AWAY_S) /* we were suspended, and the trainer with us */
        a->moved_mono += away_s;
    if (bytes != a->log_bytes || a->log_bytes < 0) {
        a->log_bytes = bytes;
        a->moved_mono = now_s;
    }
    return limit_s > 0 && now_s - a->moved_mono > limit_s;
}

/* Take the notices that came, or come within this time. */
static int notices_take(struct agent *a, int wait_ms, struct err *err)
{
    struct pollfd p = {.fd = a->signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&p, 1, wait_ms) < 0 && errno != EINTR)
        return err_set_errno(err, ERR_IO, "cannot wait for signals");
    while (read(a->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            notice_take(a, (int)info.ssi_signo);
    return 0;
}

/* srun may end before its tasks: told that the step is cancelled it leaves at once, while rank 0 still saves. As long as rank 0 lives it
 * holds its log; and the notice that ended the step comes to this level a moment later. */
static int trainer_linger(struct agent *a, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct run_state now;
    int rc = 0;
    while (rc == 0 && evlog_held(rank0_log(a, path)) && !hangs(a))
        rc = notices_take(a, LINGER_MS / 20, err);
    run_state_init(&now);
    if (rc == 0)
        rc = run_state_load(a->conf->run_dir, &now, err);
    const struct run_attempt *told = state_attempt(&now, a->attempt);
    bool explained = now.done || (told && told->stopped);
    for (int ms = 0; rc == 0 && !explained && !a->stop_requested && ms < LINGER_MS; ms += LINGER_MS / 20)
        rc = notices_take(a, LINGER_MS / 20, err);
    run_state_release(&now);
    return rc;
}

/* Watch until the trainer has ended. Signals arrive on the descriptor, never in a handler. */
static int trainer_watch(struct agent *a, struct sched_step *step, struct sched_step_status *end, struct err *err)
{
    for (;;) {
        int rc = notices_take(a, NOTICE_REPEAT_MS, err);
        if (rc == 0)
            rc = sched_step_poll(step, 0, end, err);
        if (rc == 0 && end->ended && a->steps->ops->starts_ranks)
            rc = trainer_linger(a, err);
        if (rc < 0 || end->ended)
            return rc;
        if (a->stop_requested)
            sched_step_signal(step, SIGUSR1, NULL);
        if (hangs(a)) {
            log_msg(LOG_WARN, "no event of the trainer for %g s: it hangs, and is ended", a->run.budget.hang_s);
            a->hung = true;
            *end = (struct sched_step_status){.ended = true, .exit_code = -1, .exit_signal = SIGKILL};
            return 0; /* freeing the step kills what is left of it */
        }
    }
}

static int signals_take(struct agent *a, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGCHLD, 0}; *s; s++)
        sigaddset(&set, *s);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_set_errno(err, ERR_IO, "cannot block signals");
    a->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return a->signal_fd >= 0 ? 0 : err_set_errno(err, ERR_IO, "cannot open a signalfd");
}

/* ---- one attempt ---- */

static int agent_load(struct agent *a, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    const char *kind = getenv("REEL_JOB_SCHED");
    int rc;
    snprintf(path, sizeof path, "%s/run.json", a->conf->run_dir);
    if ((rc = run_load(path, &a->run, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/plan.json", a->conf->run_dir);
    if ((rc = plan_load(path, &a->plan, err)) < 0 || (rc = run_state_load(a->conf->run_dir, &a->state, err)) < 0)
        return rc;
    bool by_hand = !kind || !*kind; /* one attempt on this machine, no requeue */
    if ((rc = sched_open(by_hand ? "local" : kind, a->conf->home, &a->steps, err)) < 0 || by_hand)
        return rc;
    a->sched = a->steps;
    return sched_self(a->sched, &a->self, err);
}

static void requeue(struct agent *a)
{
    struct err err = {0};
    struct evlog_event e;
    if (!a->sched)
        return;
    if (sched_requeue(a->sched, a->self.id, &err) < 0) {
        log_msg(LOG_WARN, "cannot requeue job %s: %s", a->self.id, err.text);
        return;
    }
    evlog_begin(a->log, &e, "requeue");
    json_put_text(&e.out, "job_id", a->self.id);
    event_log(a, &e);
}

/* The trainer is gone: fold again (it wrote events), name the cause, decide. */
static int attempt_finish(struct agent *a, const struct sched_step_status *end, int *exit_code, struct err *err)
{
    struct evlog_event e;
    char detail[STATE_TEXT_BYTES], why[STATE_TEXT_BYTES];
    evlog_begin(a->log, &e, "trainer_exited");
    json_put_int(&e.out, "code", end->exit_code);
    json_put_int(&e.out, "signal", end->exit_signal);
    event_log(a, &e);

    run_state_release(&a->state);
    int rc = run_state_load(a->conf->run_dir, &a->state, err);
    if (rc < 0)
        return rc;
    const struct run_attempt *told = state_attempt(&a->state, a->attempt);
    if (told && told->stopped && !a->stop_requested) { /* the exit status of srun does not tell: 0 for a step that was cancelled */
        a->stop_requested = true;
        a->time_limit_near = near_time_limit(a);
    }
    struct agent_evidence evidence = {a->state.done, a->stop_requested, a->state.cancel_at > 0, a->time_limit_near, a->hung,
                                      end->exit_code, end->exit_signal};
    enum attempt_cause cause = agent_cause(&evidence);
    snprintf(detail, sizeof detail, "trainer %s %d; see logs/attempt-%lld.log", end->exit_signal ? "died of signal" : "exited with",
             end->exit_signal ? end->exit_signal : end->exit_code, (long long)a->attempt);
    event_ended(a->log, cause, end, detail);

    run_state_release(&a->state);
    if ((rc = run_state_load(a->conf->run_dir, &a->state, err)) < 0)
        return rc;
    enum run_next next = run_state_next(&a->state, &a->run.budget, why);
    if (next == RUN_NEXT_REQUEUE)
        requeue(a);
    log_msg(LOG_INFO, "attempt %lld ended: %s%s%s", (long long)a->attempt, attempt_cause_names[cause], *why ? ": " : "", why);
    *exit_code = next == RUN_NEXT_DONE ? 0 : next == RUN_NEXT_REQUEUE ? 75 : 1;
    return 0;
}

static int attempt_run(struct agent *a, int *exit_code, struct err *err)
{
    struct sched_step_status end;
    struct sched_step *step = NULL;
    int rc;
    if ((rc = events_open(a, a->attempt, &a->log, err)) < 0)
        return rc;
    a->started_mono = clock_mono_s();
    event_started(a);
    rc = trainer_start(a, &step, err);
    if (rc < 0) {
        event_ended(a->log, CAUSE_CRASH, NULL, err ? err->text : "the trainer could not be started");
        return rc;
    }
    rc = trainer_watch(a, step, &end, err);
    sched_step_free(step);
    return rc < 0 ? rc : attempt_finish(a, &end, exit_code, err);
}

static void agent_release(struct agent *a)
{
    evlog_close(a->log);
    sched_close(a->steps);
    run_state_release(&a->state);
    run_release(&a->run);
    arena_release(&a->arena);
    if (a->signal_fd >= 0)
        close(a->signal_fd);
    if (a->lock_fd >= 0)
        file_unlock(a->lock_fd);
}

int agent_run(const struct agent_conf *conf, int *exit_code, struct err *err)
{
    struct agent a = {.conf = conf, .lock_fd = -1, .signal_fd = -1, .log_bytes = -1};
    run_state_init(&a.state);
    arena_init(&a.arena, 0);
    int rc = signals_take(&a, err);
    if (rc == 0)
        rc = agent_load(&a, err);
    if (rc < 0)
        goto out;
    if (a.state.done || a.state.cancel_at > 0) {
        log_msg(LOG_INFO, "run %s is %s: nothing to do", a.state.run, a.state.done ? "done" : "cancelled");
        *exit_code = a.state.done ? 0 : 1;
        goto out;
    }
    if ((rc = claim(&a, err)) == 0)
        rc = attempt_run(&a, exit_code, err);
out:
    agent_release(&a);
    return rc;
}
