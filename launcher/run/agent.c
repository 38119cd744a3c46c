#include "launcher/run/agent_priv.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "launcher/run/successor.h"
#include "launcher/state/space.h"
#include "launcher/submit/job_note.h"

enum {
    LOOK_EVERY_MS = 250,  /* between two looks for notices and for the trainer's end */
    HELD_LOOK_MS = 100,   /* between two looks for the end of ranks that outlive their step */
    TELL_EVERY_S = 1, /* between two signals to a trainer that may have no handler yet while it
                       * starts */
    SPACE_LOOK_MS = 1000, /* between two looks whether the disk has room again */
};
/* An agent whose lease another agent has taken notices that within one heartbeat of the lease
 * (LEASE_BEAT_S), and has killed its trainer this many seconds later. */
static const double EVICTED_KILL_S = 1;
static const double SUSPENDED_LEAST_S = 2; /* a shorter gap between two looks comes from a busy
                                            * machine and not from a suspension */

/* ---- events ---- */

static void event_started(struct agent *a)
{
    struct evlog_event e;
    event_begin(a->attempt.log, &e, attempt_started);
    event_text(&e, attempt_started, sched, a->duty.sched ? a->duty.sched->ops->kind : "none");
    event_text(&e, attempt_started, job_id, a->duty.self.id);
    if (a->duty.self.handle[0])
        event_text(&e, attempt_started, job_handle, a->duty.self.handle);
    event_int(&e, attempt_started, restart, a->duty.self.restarts);
    attempt_event(&a->attempt, &e);
}

/* Writes the event of a stop notice. It has the time at which the notice came, because the ranks
 * may have got the notice before the event is written. */
static void event_signal(struct agent *a, int signo, double heard_at)
{
    struct evlog_event e;
    char name[SIGNAL_NAME_BYTES];
    event_begin(a->attempt.log, &e, signal);
    event_text(&e, signal, signal, signal_name(signo, name));
    event_int(&e, signal, number, signo);
    event_text(&e, signal, from, "scheduler");
    event_num(&e, signal, heard_at, heard_at);
    attempt_notice(&a->attempt, &e, signo, heard_at);
}

static void event_limit(struct agent *a)
{
    struct evlog_event e;
    event_begin(a->attempt.log, &e, signal);
    event_text(&e, signal, signal, "time limit");
    event_int(&e, signal, number, 0);
    event_text(&e, signal, from, "agent");
    event_num(&e, signal, lead_s, a->limit.ends_mono - clock_mono_s());
    attempt_event(&a->attempt, &e);
}

/* Writes the event that the whole job was suspended for this many seconds, until now. */
static void event_suspended(struct agent *a, double seconds)
{
    struct evlog_event e;
    log_msg(LOG_INFO, "the job was suspended for %.0f s", seconds);
    event_begin(a->attempt.log, &e, suspended);
    event_num(&e, suspended, started_at, clock_wall_s() - seconds);
    event_num(&e, suspended, seconds, seconds);
    attempt_event(&a->attempt, &e);
}

/* Records that these nodes have not reported that their ranks were signalled, so that srun signals
 * them too. */
static void event_by_srun(struct agent *a, const char *nodes)
{
    struct evlog_event e;
    log_msg(LOG_WARN, "node %s has not said that its ranks were told to save: srun is used too",
            nodes);
    event_begin(a->attempt.log, &e, told_by_srun);
    event_text(&e, told_by_srun, node, nodes);
    attempt_event(&a->attempt, &e);
}

static void nodes_mend(struct agent *a)
{
    struct node_agents_mended mended;
    struct evlog_event e;
    while (node_agents_mend(a->nodes, &mended)) {
        event_begin(a->attempt.log, &e, node_agents_mended);
        event_text(&e, node_agents_mended, node, mended.nodes);
        event_text(&e, node_agents_mended, how, mended.how);
        attempt_event(&a->attempt, &e);
    }
}

/* ---- the trainer ---- */

static void nodes_start(struct agent *a)
{
    struct node_agent_conf conf = {.run_dir = a->conf->run_dir,
                                   .attempt = a->attempt.number,
                                   .signo = a->duty.notice};
    struct err err = {0};
    if (!a->duty.sched || !a->duty.sched->ops->starts_ranks || !a->duty.node_agents)
        return;
    if (node_agents_start(a->duty.sched, &conf, a->conf->bin_dir, &a->nodes, &err) < 0)
        log_msg(LOG_WARN,
                "no node agents, ranks on other nodes are told by the scheduler alone: %s",
                err.text);
}

/* Asks the trainer to stop, through the node agents and by the signal of its kind
 * (trainer_kind.tell). Each rank acts on the notice that reaches it first. */
static void trainer_tell(struct agent *a)
{
    a->told_mono = clock_mono_s();
    const char *silent = node_agents_tell(a->nodes);
    a->trainer.kind->tell(&a->trainer, node_agents_shared(a->nodes));
    if (*silent && !a->srun_said)
        event_by_srun(a, silent);
    a->srun_said |= *silent != '\0';
}

void agent_stop_request(struct agent *a, int signo, const char *where)
{
    if (a->stop_requested)
        return;
    a->stop_requested = true;
    a->notice_signo = signo;
    a->notice_after_s = clock_mono_s() - a->started_mono;
    if (a->trainer.step)
        trainer_tell(a);
    log_msg(LOG_INFO, "notice to stop %s: %s", where,
            a->duty.notice ? "asking the trainer to save" : "the trainer is not told");
}

static void limit_tell(struct agent *a)
{
    event_limit(a);
    a->limit_told = true;
    agent_stop_request(a, SIGUSR1, "before the end of the time limit");
}

/* Tells whether the trainer has given no sign of progress for longer than the budget's hang_s.
 * Silence does not count while the disk has no room for the trainer's log to grow. */
static bool hangs(struct agent *a)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    double limit_s = a->duty.budget.hang_s;
    int64_t bytes = stat(a->trainer.kind->pulse(&a->trainer, path), &st) == 0 ? st.st_size : 0;
    if (pulse_look(&a->pulse, clock_mono_s(), bytes) <= limit_s || limit_s <= 0)
        return false;
    bool heard = space_for_words(&a->attempt);
    if (!heard)
        pulse_forgive(&a->pulse);
    return heard;
}

/* Takes the stop notices that have come already or come within wait_ms. */
static int notices_take(struct agent *a, int wait_ms, struct err *err)
{
    struct pollfd p = {.fd = a->signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&p, 1, wait_ms) < 0 && errno != EINTR)
        return err_set_errno(err, ERR_IO, "cannot wait for signals");
    while (read(a->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGCONT) {
            a->continued = true;
        } else if (info.ssi_signo != SIGCHLD) {
            double heard_at = clock_wall_s();
            agent_stop_request(a, (int)info.ssi_signo, "here");
            if (a->attempt.log) /* else the attempt still waits for room to begin */
                event_signal(a, (int)info.ssi_signo, heard_at);
            if (info.ssi_signo == SIGTERM) { /* the first notice may have been another signal */
                a->term = true;
                a->kill_look_mono = 0;
                a->kill_again = a->kill_asked; /* the request in flight was sent before this
                                                * signal */
            }
        }
    if (node_agents_heard(a->nodes)) { /* the node agent wrote the event */
        attempt_notice_at_node(&a->attempt, SIGTERM);
        agent_stop_request(a, SIGTERM, "at a node agent");
        a->term = true;
    }
    return 0;
}

/* Finds out, after the trainer has ended without a stop notice at the batch process, whether its
 * steps got one or the job is being ended. Node agents report the notices they got before they end,
 * and the scheduler sets the job's state before it signals anybody. If neither answers, a notice is
 * assumed. */
static int stop_learn(struct agent *a, struct err *err)
{
    bool known = a->nodes && node_agents_end(a->nodes);
    int rc = notices_take(a, 0, err);
    if (rc < 0 || a->stop_requested)
        return rc;
    bool answered = duty_ending(&a->duty, false, &a->ending) == 0;
    a->learned = a->ending.why != SCHED_END_NONE && (answered || !known);
    if (a->learned)
        agent_stop_request(a, SIGTERM, "at the job");
    return 0;
}

/* Waits for the ranks that outlive the trainer's step, until they have ended or hang. */
static int rest_wait(struct agent *a, struct err *err)
{
    int rc;
    while (a->trainer.kind->lives(&a->trainer, a->stop_requested) && !hangs(a))
        if ((rc = notices_take(a, HELD_LOOK_MS, err)) < 0)
            return rc;
    return 0;
}

/* Waits for the trainer's ranks after its step has ended. srun may end before its tasks: when its
 * step is cancelled it exits at once, while rank 0 still saves. If it turns out that the ranks got
 * a notice, they are waited for once more. */
static int trainer_linger(struct agent *a, struct err *err)
{
    int rc;
    if ((rc = rest_wait(a, err)) < 0)
        return rc;
    if ((rc = run_fold_renew(a->fold, err)) < 0)
        return rc;
    const struct run_attempt *told = attempt_told(a->state, a->attempt.number);
    bool explained = told && (told->done || told->stopped);
    if (!explained && !a->stop_requested && (rc = stop_learn(a, err)) < 0)
        return rc;
    return rest_wait(a, err);
}

void agent_node_lost_note(struct agent *a, const char *node)
{
    struct evlog_event e;
    if (a->node_lost[0])
        return;
    snprintf(a->node_lost, sizeof a->node_lost, "%s", node);
    log_msg(LOG_WARN, "node %s was lost", node);
    event_begin(a->attempt.log, &e, node_lost);
    event_text(&e, node_lost, node, node);
    attempt_event(&a->attempt, &e);
}

static void owner_heed(struct agent *a)
{
    enum run_wish wish = WISH_RUN;
    if (!a->stop_requested)
        wish = owner_look(&a->owner, a->conf->run_dir, a->fold);
    if (wish != WISH_RUN)
        agent_stop_request(a, SIGTERM, wish == WISH_PAUSE ? "by 'reel pause'" : "by 'reel cancel'");
}

/* Looks once for stop notices, for a pause or cancel by the run's owner, and at the state of the
 * trainer's step. */
static int trainer_look(struct agent *a, struct sched_step_status *end, struct err *err)
{
    int rc;
    if ((rc = notices_take(a, LOOK_EVERY_MS, err)) < 0)
        return rc;
    owner_heed(a);
    if ((rc = sched_step_poll(a->trainer.step, 0, end, err)) < 0)
        return rc;
    const char *lost = node_agents_lost(a->nodes);
    if (end->node_lost[0] || lost[0])
        agent_node_lost_note(a, end->node_lost[0] ? end->node_lost : lost);
    if (end->ended && a->duty.sched && a->duty.sched->ops->starts_ranks)
        return trainer_linger(a, err);
    return 0;
}

/* Writes an event if the job was suspended. Slurm stops and continues all processes of a job, this
 * one included: there is a gap between two looks, and then a SIGCONT. A scheduler also sends
 * SIGCONT before it ends a job, but then there is no gap. */
static void suspension_look(struct agent *a)
{
    double now_s = clock_mono_s(), before_s = a->gap_s;
    a->gap_s = a->looked_mono > 0 ? now_s - a->looked_mono : 0;
    a->looked_mono = now_s;
    if (a->continued && fmax(a->gap_s, before_s) >= SUSPENDED_LEAST_S)
        event_suspended(a, fmax(a->gap_s, before_s));
    a->continued = false;
}

/* Watches the trainer until it has ended, or must be ended because it hangs or because a newer
 * attempt has begun. reel's own trainer notices a newer attempt by itself; a wrapped one would
 * write into the newer attempt's checkpoints. Signals arrive on the descriptor, never in a
 * handler. */
static int trainer_watch(struct agent *a, struct sched_step_status *end, struct err *err)
{
    for (;;) {
        int rc = trainer_look(a, end, err);
        suspension_look(a);
        bool followed = !a->trainer.kind->yields && attempt_is_followed(&a->attempt);
        if (followed)
            return 0;
        a->trainer.kind->follow(&a->trainer, end->ended);
        if (rc < 0 || end->ended)
            return rc;
        if (a->limit_asker && !a->stop_requested && limit_is_due(&a->limit) &&
            limit_look(&a->limit, a->limit_asker, a->fold))
            limit_tell(a);
        if (a->stop_requested && clock_mono_s() - a->told_mono >= TELL_EVERY_S)
            trainer_tell(a);
        nodes_mend(a);
        agent_kill_look(a);
        if (hangs(a)) {
            log_msg(LOG_WARN, "no sign of the trainer for %g s: it hangs, and is ended",
                    a->duty.budget.hang_s);
            a->hung = true;
            *end = (struct sched_step_status){.ended = true,
                                              .exit_code = -1,
                                              .exit_signal = SIGKILL};
            a->trainer.kind->follow(&a->trainer, true); /* reads what the trainer has printed until
                                                         * now */
            return 0; /* freeing the step kills the processes that are left of it */
        }
    }
}

static int signals_take(struct agent *a, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP, SIGCHLD, SIGCONT,
                                      0};
         *s; s++)
        sigaddset(&set, *s);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_set_errno(err, ERR_IO, "cannot block signals");
    a->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return a->signal_fd >= 0 ? 0 : err_set_errno(err, ERR_IO, "cannot open a signalfd");
}

/* ---- a full disk ---- */

/* Waits before the trainer's start if earlier attempts ended for lack of disk space. The wait is
 * inside the job, where a stop notice arrives; the log records until when, so a requeue does not
 * start it anew. There is no wait, or it ends early, if free space was below one checkpoint, now or
 * when the last attempt could not save, and is enough now. If a quota refused the write, free space
 * says nothing. A wrapped command that somebody starts by hand does not wait. */
static int space_wait(struct agent *a, struct err *err)
{
    double now = clock_wall_s(), from_s = clock_mono_s();
    double until = run_state_not_before(a->state, now), left_s = until - now;
    const char *saves = a->duty.wrap.saves;
    int64_t least = space_least(a->state), room = space_left(a->conf->run_dir, saves);
    bool low = room < least || space_was_low(a->state);
    int rc;
    if (left_s <= 0 || (!a->trainer.kind->waits_by_hand && !a->duty.sched) ||
        (low && room >= least))
        return 0;
    log_msg(LOG_WARN, "the disk was full: the attempt starts in %.0f s%s", left_s,
            low ? ", or when there is room for a checkpoint" : "");
    space_event_held(&a->attempt, until, space_needed(a->state), room);
    while (!a->stop_requested && clock_mono_s() - from_s < left_s &&
           !(low && space_left(a->conf->run_dir, saves) >= least))
        if ((rc = notices_take(a, SPACE_LOOK_MS, err)) < 0)
            return rc;
    return 0;
}

bool agent_word_wait(struct agent *a, int rc)
{
    if (rc != ERR_FULL || !a->duty.sched || a->stop_requested ||
        notices_take(a, SPACE_LOOK_MS, NULL) < 0)
        return false;
    owner_heed(a); /* a pause or cancel may be in a file's name, which needs no room */
    return true;
}

/* Calls `begin` until the disk has room to record what `begin` does. A read-only file system counts
 * as full. No event of the attempt is written yet, so an agent that gets a stop notice while it
 * waits requeues the job, with the exceptions of duty_give_back. */
static int begin_wait(struct agent *a, int (*begin)(struct agent *, struct err *), struct err *err)
{
    int rc = begin(a, err);
    if (rc == ERR_FULL)
        log_msg(LOG_WARN, "no attempt can be begun yet: %s", err->text);
    while (agent_word_wait(a, rc))
        rc = begin(a, err);
    if (rc == ERR_FULL && a->stop_requested)
        duty_give_back(&a->duty, &a->attempt, a->term);
    return rc;
}

/* Tells whether the run is over, so that nothing needs to be written. */
static bool is_over(const struct agent *a)
{
    return a->state->done || a->state->wish != WISH_RUN ||
           run_state_next(a->state, &a->duty.budget, NULL) == RUN_NEXT_FAILED;
}

/* Takes the run's lock. If the disk has no room for the lock and the run is over, the agent goes on
 * without it. */
static int lock_take(struct agent *a, struct err *err)
{
    int rc = attempt_lock(&a->attempt, err);
    return rc == ERR_FULL && is_over(a) ? 0 : rc;
}

static int claim(struct agent *a, struct err *err)
{
    return attempt_claim(&a->attempt, a->state, &a->before, err);
}

/* ---- one attempt ---- */

/* Waits until the agent that lost the lease, and may still live, has ended its trainer, because
 * otherwise two trainers would save. reel's own trainer needs no wait: it checks before each save
 * that it still owns the run's folder. */
static int evicted_wait(struct agent *a, struct err *err)
{
    double until_s = a->attempt.evicted_mono + LEASE_BEAT_S + EVICTED_KILL_S;
    int rc;
    if (a->attempt.evicted_mono <= 0 || a->trainer.kind->yields)
        return 0;
    log_msg(LOG_INFO,
            "the attempt before was lost and may still run: the trainer starts in %.0f s, "
            "when that one has ended", LEASE_BEAT_S + EVICTED_KILL_S);
    while (!a->stop_requested && clock_mono_s() < until_s)
        if ((rc = notices_take(a, LOOK_EVERY_MS, err)) < 0)
            return rc;
    return 0;
}

/* Starts the trainer, and watches it until it has ended. */
static int trainer_live(struct agent *a, struct sched_step_status *end, struct err *err)
{
    char logs[LIMIT_PATH_BYTES];
    int rc;
    snprintf(logs, sizeof logs, "%s/logs", a->conf->run_dir);
    if ((rc = file_mkdirs(logs, err)) < 0)
        return rc;
    nodes_start(a);
    if ((rc = trainer_start(&a->trainer, err)) < 0)
        return rc;
    return trainer_watch(a, end, err);
}

/* Makes the askers, which ask the scheduler in threads of their own while the trainer is watched
 * (asker.h). */
static int askers_open(struct agent *a, struct err *err)
{
    const char *kind = a->duty.sched->ops->kind, *job = a->duty.self.id;
    int rc;
    if ((rc = asker_new(kind, a->conf->home, job, &a->limit_asker, err)) < 0)
        return rc;
    return asker_new(kind, a->conf->home, job, &a->kill_asker, err);
}

static int attempt_run(struct agent *a, int *exit_code, struct err *err)
{
    struct sched_step_status end = {.ended = true};
    int rc;
    a->started_mono = clock_mono_s();
    limit_init(&a->limit, a->duty.sched ? a->duty.time_limit_s : 0, a->duty.limit_known);
    event_started(a);
    if (a->duty.sched && (rc = askers_open(a, err)) < 0)
        return agent_fail(a, rc, exit_code, err);
    if (a->trainer.kind->is_through(&a->trainer))
        return agent_finish(a, &end, exit_code, err);
    successor_prepare(a->conf, &a->duty, a->fold);
    if ((rc = space_wait(a, err)) < 0)
        return agent_fail(a, rc, exit_code, err);
    if ((rc = evicted_wait(a, err)) < 0)
        return agent_fail(a, rc, exit_code, err);
    if (a->stop_requested)
        return agent_finish(a, &end, exit_code, err);
    rc = trainer_live(a, &end, err);
    bool followed = attempt_is_followed(&a->attempt);
    if (followed) {
        agent_zombies_end(a);
        node_agents_leave(a->nodes);
    }
    trainer_end_step(&a->trainer);
    node_agents_free(a->nodes); /* freed before the requeue, which signals the steps like a
                                 * preemption */
    a->nodes = NULL;
    if (followed) {
        agent_step_aside(a, exit_code);
        return 0;
    }
    return rc < 0 ? agent_fail(a, rc, exit_code, err) : agent_finish(a, &end, exit_code, err);
}

/* Tells whether this job ran the attempt before too. If so, nobody has submitted the run since: the
 * job was requeued. */
static bool is_same_job(const struct agent *a)
{
    const struct run_state *s = a->state;
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    return last && a->duty.self.id[0] && strcmp(last->job_id, a->duty.self.id) == 0;
}

/* Checks whether the run is over because its budget is spent or it was cancelled; then *spent is
 * true. Nobody may have checked that when the attempt before ended. */
static int budget_look(struct agent *a, bool *spent, struct err *err)
{
    char why[STATE_TEXT_BYTES];
    int rc;
    if ((rc = run_fold_renew(a->fold, err)) < 0)
        return rc;
    enum run_next next = run_state_next(a->state, &a->duty.budget, why);
    *spent = next == RUN_NEXT_FAILED;
    /* A user who submits a cancelled run's script again wants the run to go on. */
    if (next == RUN_NEXT_CANCELLED && (a->trainer.kind->stays_cancelled || is_same_job(a)))
        *spent = true;
    if (*spent) {
        log_msg(LOG_WARN, "run %s is over: %s; 'reel retry %s' lets it go on", a->state->run, why,
                a->state->name);
        successor_settle(a->conf, &a->duty, &a->attempt, a->fold, next);
    }
    return 0;
}

static void agent_release(struct agent *a)
{
    trainer_release(&a->trainer);
    asker_free(a->limit_asker);
    asker_free(a->kill_asker);
    node_agents_free(a->nodes);
    attempt_release(&a->attempt);
    duty_requeue_settle(&a->duty);
    duty_release(&a->duty);
    run_fold_close(a->fold);
    arena_release(&a->arena);
    if (a->signal_fd >= 0)
        close(a->signal_fd);
}

static int fold_open(struct agent *a, struct err *err)
{
    int rc = run_fold_open(a->conf->run_dir, &a->fold, err);
    if (rc < 0)
        return rc;
    a->state = run_fold_state(a->fold);
    a->duty.fold = a->fold;
    trainer_init(&a->trainer, &a->duty, &a->attempt, a->state, a->conf->home, a->conf->bin_dir,
                 &a->arena);
    return run_fold_renew(a->fold, err);
}

/* Leaves a note that says which run this job has, if the job is a user's script; a job that reel
 * submits has the run's folder in its command. The job may be requeued before its first attempt,
 * for example while it waits for room. If its home is not mounted then, it would begin another run
 * without the note. */
static void note_leave(const struct agent *a)
{
    if (a->duty.sched && a->trainer.kind->needs_note)
        job_note_leave(a->duty.sched->ops->kind, a->conf->home, a->duty.self.id, a->state->run);
}

/* Takes the command of a wrapped run as its owner gave it, rather than as it is stored. */
static int command_take(struct agent *a, struct err *err)
{
    if (!a->conf->argv)
        return wrap_command_check(&a->duty.wrap, err);
    a->duty.wrap.argv = a->conf->argv;
    return 0;
}

/* Opens the signals, settings and fold of the run, and takes the run's lock. */
static int agent_open(struct agent *a, struct err *err)
{
    int rc;
    if ((rc = signals_take(a, err)) < 0)
        return rc;
    if ((rc = duty_load(&a->duty, a->conf->run_dir, a->conf->home, err)) < 0)
        return rc;
    if ((rc = command_take(a, err)) < 0)
        return rc;
    a->attempt.sched = a->duty.sched;
    a->duty.teller = &a->attempt;
    if ((rc = fold_open(a, err)) < 0)
        return rc;
    note_leave(a);
    do { /* until the lock is held, or the renewed fold shows that the run is over */
        if ((rc = begin_wait(a, lock_take, err)) < 0)
            return rc;
        if ((rc = run_fold_renew(a->fold, err)) < 0)
            return rc;
    } while (!a->attempt.lock && !is_over(a));
    return 0;
}

/* Tells whether nothing is left for this job: the run is over, or another job goes on with it. */
static bool duty_is_over(const struct agent *a, int *exit_code)
{
    if (a->state->done || a->state->wish != WISH_RUN || !a->attempt.lock) {
        log_msg(LOG_INFO, "run %s is %s: nothing to do", a->state->run,
                run_state_word(a->state, &a->duty.budget));
        *exit_code = a->state->done ? 0 : 1;
        return true;
    }
    if (!successor_aside(a->conf, &a->duty, a->fold))
        return false;
    *exit_code = 0;
    return true;
}

int agent_run(const struct agent_conf *conf, int *exit_code, struct err *err)
{
    struct agent a = {.conf = conf, .signal_fd = -1};
    bool spent = false;
    int rc;
    attempt_init(&a.attempt, conf->run_dir, &a.duty.self);
    arena_init(&a.arena, 0);
    if ((rc = agent_open(&a, err)) < 0)
        goto out;
    if (duty_is_over(&a, exit_code))
        goto out;
    attempt_before(&a.attempt, a.state, a.duty.sched, &a.before);
    if ((rc = begin_wait(&a, claim, err)) < 0)
        goto out;
    if ((rc = duty_changes_take(&a.duty, &a.attempt, a.state, err)) < 0)
        goto out;
    if ((rc = budget_look(&a, &spent, err)) < 0)
        goto out;
    *exit_code = 1;
    if (!spent)
        rc = attempt_run(&a, exit_code, err);
out:
    agent_release(&a);
    return rc;
}
