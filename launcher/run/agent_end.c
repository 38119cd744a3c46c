/* This file ends an attempt of the agent: it finds out why the attempt ended, records that, and
 * brings the run back, by a requeue or a successor, unless it is over. */
#include "launcher/run/agent_priv.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/run/node_agent.h"
#include "launcher/run/ranks.h"
#include "launcher/run/successor.h"

/* The scheduler is asked again after this time whether it kills the job, if it did not answer or a
 * grace time runs. */
static const double KILL_LOOK_S = 2;
static const double ANSWER_LOOK_S = 0.05; /* between two looks for the answer */

/* ---- why it ended ---- */

static void event_exited(struct agent *a, const struct sched_step_status *exit)
{
    struct evlog_event e;
    event_begin(a->attempt.log, &e, trainer_exited);
    event_int(&e, trainer_exited, code, exit->exit_code);
    event_int(&e, trainer_exited, signal, exit->exit_signal);
    attempt_event(&a->attempt, &e);
}

/* Tells whether the stop notice announced the end of the time limit. Its time decides, whoever sent
 * it: the notice came near the end of the limit. Slurm may send it up to 60 s early, which under a
 * short limit may be soon after the start. So half of the limit must have passed too, unless the
 * signal is the one that reel asked for and preemption at this site does not send it. A job without
 * a limit may have a distant one: Slurm's backfill sets one year. */
static bool near_time_limit(const struct agent *a)
{
    double limit = a->duty.time_limit_s, early_s = 60 + a->limit.lead_s;
    struct sched_site site;
    if (a->limit_told)
        return true;
    if (limit <= 0 || a->notice_after_s < limit - fmax(early_s, limit * 0.1))
        return false;
    struct sched *asked = a->duty.sched ? a->duty.sched : a->duty.steps;
    if (a->notice_signo == SIGUSR1 && sched_describe(asked, &site, NULL) == 0 && !site.user_signal)
        return true;
    return a->notice_after_s >= limit * 0.5;
}

/* Asks the scheduler whether a node was lost. The other nodes only get a stop notice or lose their
 * connections, and srun may be killed before it has reported the node. */
static void node_lost_look(struct agent *a)
{
    static const struct sched_loss till_now = {.booted_after = INFINITY, .down_by = INFINITY};
    char node[SCHED_ID_BYTES];
    struct err err = {0};
    if (a->node_lost[0] || !a->duty.sched)
        return;
    if (sched_lost_node(a->duty.sched, NULL, &till_now, node, &err) < 0)
        log_msg(LOG_WARN, "whether a node was lost is not known: %s", err.text);
    else if (node[0])
        agent_node_lost_note(a, node);
}

/* Tells whether the scheduler ended the job without a reason that it gives or that we can infer.
 * Then somebody may be cancelling the job. */
static bool is_unexplained(const struct agent *a)
{
    bool ended = a->term || (a->learned && a->unreadable);
    return ended && a->ending.why == SCHED_END_UNKNOWN && !a->node_lost[0] && !near_time_limit(a);
}

static void requeue_withhold(struct agent *a)
{
    struct evlog_event e;
    log_msg(LOG_WARN,
            "job %s is not requeued: it was being ended, and the scheduler does not say who by",
            a->duty.self.id);
    event_begin(a->attempt.log, &e, requeue_withheld);
    event_text(&e, requeue_withheld, job_id, a->duty.self.id);
    attempt_event(&a->attempt, &e);
}

/* Tells whether the run would go on if its attempt ended now with this cause. */
static bool goes_on_after(struct agent *a, enum attempt_cause cause)
{
    struct err err = {0};
    if (run_fold_renew(a->fold, &err) < 0 ||
        run_state_end(run_fold_suppose(a->fold), a->attempt.number, cause, "", &err) < 0)
        return false;
    return run_state_next(a->state, &a->duty.budget, NULL) == RUN_NEXT_REQUEUE;
}

/* Brings the run back, by a requeue or a successor, while the trainer still runs. */
static void give_back_early(struct agent *a, enum attempt_cause cause)
{
    log_msg(LOG_WARN, "%s and the trainer has not ended: "
                      "the job is given back before all of it is killed",
            cause == CAUSE_TIME_LIMIT ? "the time limit is over" : "the job is preempted");
    a->attempt.given_back = cause;
    successor_settle(a->conf, &a->duty, &a->attempt, a->fold, RUN_NEXT_REQUEUE);
}

/* Remembers that somebody cancels the job, while the scheduler still reports that: after the
 * trainer has requeued the job by itself (scontrol requeue), the scheduler reports the requeue
 * instead. */
static void cancelled_note(struct agent *a, const struct sched_ending *ending)
{
    a->cancelled = *ending;
    log_msg(LOG_INFO, "job %s is cancelled at the scheduler: it is not given back",
            a->duty.self.id);
}

/* Asks the scheduler why the job ends, when the next request is due. Returns whether an answer has
 * come. */
static bool kill_answered(struct agent *a, int *rc, struct sched_ending *out)
{
    double now_s = clock_mono_s();
    if (!a->kill_asked && now_s >= a->kill_look_mono)
        a->kill_asked = asker_put(a->kill_asker);
    if (!a->kill_asked || !asker_take(a->kill_asker, rc, out))
        return false;
    a->kill_asked = false;
    a->kill_look_mono = now_s + KILL_LOOK_S;
    return true;
}

void agent_kill_look(struct agent *a)
{
    struct sched_ending ending;
    int rc;
    if (!a->term || a->attempt.given_back != CAUSE_NONE || !a->kill_asker ||
        !kill_answered(a, &rc, &ending) || rc < 0 || !attempt_is_newest(&a->attempt))
        return;
    if (ending.why == SCHED_END_CANCELLED)
        cancelled_note(a, &ending);
    bool limit = ending.why == SCHED_END_TIME_LIMIT, gives_way = ending.why == SCHED_END_PREEMPTED;
    enum attempt_cause cause = limit ? CAUSE_TIME_LIMIT : CAUSE_PREEMPT;
    if (gives_way && !ending.is_killed)
        return; /* the grace time runs, and a requeue now would cut it short */
    a->kill_look_mono = a->kill_again ? 0 : INFINITY;
    a->kill_again = false;
    if ((limit || gives_way) && goes_on_after(a, cause))
        give_back_early(a, cause);
}

void agent_zombies_end(const struct agent *a)
{
    char id[LIMIT_NAME_BYTES];
    if (a->trainer.kind->yields)
        return;
    node_agent_trainer_id(a->conf->run_dir, a->attempt.number, id);
    int64_t killed = ranks_kill(id);
    if (killed > 0)
        log_msg(LOG_WARN, "%lld process%s of its trainer %s still there: killed", (long long)killed,
                killed == 1 ? "" : "es", killed == 1 ? "was" : "were");
}

void agent_step_aside(const struct agent *a, int *exit_code)
{
    log_msg(LOG_WARN, "attempt %lld was taken for lost, and a newer one runs: this job steps aside",
            (long long)a->attempt.number);
    *exit_code = 75;
}

/* Cancels the job once more, after its trainer has requeued it in spite of a cancellation. If that
 * fails, the job starts again and finds that its run is cancelled. */
static void revival_end(struct agent *a)
{
    struct err err = {0};
    const char *job = a->duty.self.id;
    log_msg(LOG_WARN, "job %s was given back after it had been cancelled: it is cancelled again",
            job);
    if (sched_cancel(a->duty.sched, job, &err) < 0)
        log_msg(LOG_WARN, "job %s will start and find nothing to do: %s", job, err.text);
}

/* Records why the attempt ended, and brings the run back unless it is over. */
static int attempt_settle(struct agent *a, enum attempt_cause cause,
                          const struct sched_step_status *end, const char *detail, int *exit_code,
                          struct err *err)
{
    char why[STATE_TEXT_BYTES];
    if (!attempt_is_newest(&a->attempt)) { /* the newer attempt has recorded how this one ended */
        agent_step_aside(a, exit_code);
        return 0;
    }
    int told = attempt_end(&a->attempt, cause, end->exit_code, end->exit_signal, detail);
    while (agent_word_wait(a, told))
        told = attempt_flush(&a->attempt);
    int rc = run_fold_renew(a->fold, err);
    if (rc < 0 || (rc = run_state_end(run_fold_suppose(a->fold), a->attempt.number, cause, detail,
                                      err)) < 0)
        return rc;
    /* A stop notice came while the agent waited for disk space; somebody may be cancelling the
     * job. */
    if (a->stop_requested && a->ending.why == SCHED_END_NONE)
        duty_cancelled(&a->duty, a->conf->run_dir, run_fold_suppose(a->fold), &a->ending);
    enum run_next next = run_state_next(a->state, &a->duty.budget, why);
    if (next == RUN_NEXT_REQUEUE && is_unexplained(a))
        requeue_withhold(a);
    else if (next != RUN_NEXT_REQUEUE || a->attempt.given_back == CAUSE_NONE)
        successor_settle(a->conf, &a->duty, &a->attempt, a->fold, next);
    if (next == RUN_NEXT_CANCELLED && a->revived)
        revival_end(a);
    log_msg(LOG_INFO, "attempt %lld ended: %s%s%s", (long long)a->attempt.number,
            attempt_cause_names[cause],
            *why ? ": " : "", next == RUN_NEXT_REQUEUE ? detail : why);
    *exit_code = next == RUN_NEXT_DONE ? 0 : next == RUN_NEXT_REQUEUE ? 75 : 1;
    return 0;
}

/* Waits for the answer to a request that was sent while the trainer ran. A new request may get
 * another answer now, see cancelled_note. */
static void kill_answer_await(struct agent *a)
{
    struct sched_ending ending;
    int rc;
    if (!a->kill_asked)
        return;
    while (!asker_take(a->kill_asker, &rc, &ending))
        clock_sleep_s(ANSWER_LOOK_S);
    a->kill_asked = false;
    if (rc == 0 && ending.why == SCHED_END_CANCELLED)
        cancelled_note(a, &ending);
}

/* Asks the scheduler why the job ends. The scheduler may be ending the job although no notice came
 * here; if a notice came, the scheduler knows who caused it. */
static void ending_ask(struct agent *a)
{
    kill_answer_await(a);
    int rc = duty_ending(&a->duty, a->stop_requested, &a->ending);
    a->revived = a->cancelled.why == SCHED_END_CANCELLED && a->ending.why == SCHED_END_REQUEUED;
    if (a->cancelled.why == SCHED_END_CANCELLED)
        a->ending = a->cancelled;
    enum sched_end why = a->ending.why;
    a->unreadable = rc == 0 && why == SCHED_END_UNKNOWN;
    if (why == SCHED_END_PREEMPTED || why == SCHED_END_REQUEUED || why == SCHED_END_CANCELLED)
        agent_stop_request(a, SIGTERM, "at the scheduler");
}

/* Tells whether a wrapped trainer exited with 0, without a stop notice, and without the done file
 * that it should write. */
static bool is_unfinished(const struct agent *a, const struct sched_step_status *exit,
                          const struct trainer_end *end)
{
    return a->duty.wrap.done_file && !end->done && !a->stop_requested && exit->exit_code == 0 &&
           exit->exit_signal == 0;
}

/* Writes into detail, for people, why the attempt ended. */
static void detail_make(const struct agent *a, const struct sched_step_status *exit,
                        const struct trainer_end *end, const struct run_attempt *told,
                        char detail[STATE_TEXT_BYTES])
{
    char how[64], more[ATTEMPT_ENDING_BYTES] = "";
    const char *who = a->ending.who;
    if (a->state->wish == WISH_CANCEL) {
        snprintf(detail, STATE_TEXT_BYTES, "%s",
                 a->state->cancel_by[0] ? a->state->cancel_by : "cancelled by 'reel cancel'");
        return;
    }
    if (a->ending.why == SCHED_END_CANCELLED) {
        snprintf(detail, STATE_TEXT_BYTES, "job %s was cancelled at the scheduler%s%s",
                 a->duty.self.id, *who ? " by " : "", who);
        return;
    }
    last_words_exit(exit->exit_code, exit->exit_signal, how, sizeof how);
    if (end->is_short)
        snprintf(more, sizeof more, " at step %lld of %lld",
                 (long long)num_max_i64(0, end->steps), (long long)a->duty.wrap.total_steps);
    else if (is_unfinished(a, exit, end))
        snprintf(more, sizeof more, " without its done file '%.300s'", a->duty.wrap.done_file);
    else if (a->learned)
        attempt_ending_format(a->ending.why, more, sizeof more);
    else
        attempt_told_format(&a->attempt, told, exit->exit_code != 0 || exit->exit_signal,
                            !a->trainer.kind->foreign, more);
    const char *lost = a->node_lost;
    snprintf(detail, STATE_TEXT_BYTES, "%s%s%strainer %s%s%s; see logs/attempt-%lld.log",
             *lost ? "node " : "", lost, *lost ? " was lost; " : "", how, more,
             end->disbelieved ? " (for a full disk, it says, but those of the run have room)" : "",
             (long long)a->attempt.number);
}

int agent_finish(struct agent *a, const struct sched_step_status *exit, int *exit_code,
                 struct err *err)
{
    const struct trainer_kind *kind = a->trainer.kind;
    struct trainer_end end = {.steps = -1};
    char detail[STATE_TEXT_BYTES];
    event_exited(a, exit);
    if (kind->exited(&a->trainer, exit))
        agent_stop_request(a, SIGTERM, "at the trainer");
    int rc = run_fold_renew(a->fold, err);
    if (rc < 0)
        return rc;
    const struct run_attempt *told = attempt_told(a->state, a->attempt.number);
    if (told && told->stopped) /* srun's exit status does not show it: it is 0 for a cancelled
                                * step */
        agent_stop_request(a, SIGTERM, "at the trainer");
    bool done = told && told->done; /* a run that was extended meanwhile goes on */
    if (!done && !kind->is_through(&a->trainer))
        ending_ask(a);
    told = attempt_told(a->state, a->attempt.number); /* the fold may have been updated */
    kind->ended(&a->trainer, exit, a->stop_requested, &end);
    if (!done && !end.done)
        node_lost_look(a);
    struct attempt_evidence evidence = {
        .done = done || end.done,
        .stop_requested = a->stop_requested,
        .cancel_requested = a->state->wish == WISH_CANCEL,
        .pause_requested = a->state->wish == WISH_PAUSE,
        .ending = a->ending.why,
        .time_limit_near = a->stop_requested && near_time_limit(a),
        .hung = a->hung,
        .node_lost = a->node_lost[0] != 0,
        .ours = kind->tells_divergence,
        .disk_full = end.disk_full,
        .is_short = end.is_short,
        .exit_code = exit->exit_code,
        .exit_signal = exit->exit_signal,
    };
    detail_make(a, exit, &end, told, detail);
    return attempt_settle(a, attempt_cause_of(&evidence), exit, detail, exit_code, err);
}

int agent_fail(struct agent *a, int rc, int *exit_code, struct err *err)
{
    static const struct sched_step_status none = {.ended = true, .exit_code = -1};
    struct err more = {0};
    if (!a->duty.sched) {
        attempt_end(&a->attempt, CAUSE_CRASH, -1, 0, err->text);
        return rc;
    }
    log_msg(LOG_ERROR, "%s", err->text);
    enum attempt_cause cause = rc == ERR_FULL ? CAUSE_DISK_FULL : CAUSE_CRASH;
    return attempt_settle(a, cause, &none, err->text, exit_code, &more) < 0 ? rc : 0;
}
