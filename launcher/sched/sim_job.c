/* This file moves a simulated job through these states.
 *
 *     from                to                     by
 *     pending, requeued   running                a pass
 *     pending, requeued   cancelled              cancel
 *     running             stopping               cancel, requeue, preemption, its time limit
 *     running             suspended, and back    preemption in a partition of that mode; a pass
 *     running             done, failed           its end: done for exit code 0, else failed
 *     stopping            depends on the cause   its end, or SIGKILL kill_wait_s after SIGTERM:
 *                                                cancelled, requeued, time_limit. Preempted:
 *                                                requeued if the job and the partition allow it,
 *                                                else cancelled
 *     running, stopping,  requeued or node_fail  a node of it was declared lost; if it was stopping
 *     suspended                                  the cause decides
 */
#include "launcher/sched/sim_priv.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

static struct sim_exec exec_of(const struct sim *s, const struct sim_job *j, char id[24])
{
    snprintf(id, 24, "%lld", (long long)j->id);
    return (struct sim_exec){.job = id,
                             .token = j->spec.token, .name = j->spec.name,
                             .argv = j->spec.argv, .env = j->spec.env,
                             .cwd = j->spec.cwd, .log_path = j->spec.log_path,
                             .restarts = j->restarts,
                             .where = j->where, .nodes = j->spec.nodes,
                             .cores = sim_cores_of(s, j),
                             .now_s = s->now_s};
}

/* ---- times of an execution ---- */

static void end_plan(struct sim *s, struct sim_job *j)
{
    j->end_s = s->now_s + j->outcome.ends_in_s;
    sim_plan(s, j->end_s, TICK_END, j->id, j->run);
}

static void limit_plan(struct sim *s, struct sim_job *j, double limit_s)
{
    j->limit_s = limit_s;
    sim_plan(s, limit_s, TICK_LIMIT, j->id, j->run);
    if (j->spec.signal && j->spec.signal_lead_s > 0 && !j->noticed)
        sim_plan(s, limit_s - j->spec.signal_lead_s, TICK_NOTICE, j->id, j->run);
}

void sim_job_start(struct sim *s, struct sim_job *j)
{
    char id[24];
    j->state = SCHED_RUNNING;
    j->stop = SIM_STOP_NONE;
    j->reason = "";
    j->run = s->runs + 1;
    j->started_s = s->now_s;
    j->ended_s = 0;
    j->exit_code = -1;
    j->exit_signal = 0;
    j->stuck = j->termed = j->noticed = false;
    s->active[s->n_active++] = j;
    for (int i = 0; i < j->spec.nodes; i++)
        j->stuck |= s->nodes[j->where[i]].silent;
    struct sim_exec exec = exec_of(s, j, id);
    sim_tell(s, SIM_STARTED, j->id, j->restarts);
    j->outcome = sim_ask_run(s, &exec);
    end_plan(s, j);
    limit_plan(s, j, j->spec.time_limit_s > 0 ? s->now_s + j->spec.time_limit_s : INFINITY);
}

/* Sends a signal to the execution. The test may change how it ends. */
void sim_job_hear(struct sim *s, struct sim_job *j, int signo, bool to_all)
{
    char id[24];
    struct sim_exec exec = exec_of(s, j, id);
    struct sim_outcome now = j->outcome;
    exec.to_all = to_all;
    now.ends_in_s = j->end_s - s->now_s;
    sim_tell(s, SIM_SIGNALLED, j->id, signo);
    if (j->stuck && signo != SIGKILL)
        return;
    struct sim_outcome then = sim_ask_hear(s, &exec, signo, &now);
    if (then.ends_in_s != now.ends_in_s || then.exit_code != now.exit_code ||
        then.exit_signal != now.exit_signal) {
        j->outcome = then;
        end_plan(s, j);
    }
}

/* ---- stopping ---- */

static void term(struct sim *s, struct sim_job *j)
{
    sim_job_hear(s, j, SIGTERM, false);
    if (!j->termed)
        sim_plan(s, s->now_s + s->conf.kill_wait_s, TICK_KILL, j->id, j->run);
    j->termed = true;
}

void sim_job_ask(struct sim *s, struct sim_job *j, enum sim_stop stop, const char *reason)
{
    double grace_s = stop == SIM_STOP_PREEMPT ? j->partition->grace_s : 0;
    if (stop <= j->stop)
        return;
    if (j->state == SCHED_SUSPENDED) {
        sim_dequeue(s, j);
        sim_job_resume(s, j);
    }
    j->stop = stop;
    j->reason = reason;
    j->state = SCHED_STOPPING;
    if (stop == SIM_STOP_PREEMPT && (j->spec.signal || grace_s > 0))
        sim_job_hear(s, j, j->spec.signal ? j->spec.signal : SIGTERM, false);
    if (grace_s > 0)
        sim_plan(s, s->now_s + grace_s, TICK_TERM, j->id, j->run);
    else
        term(s, j);
}

void sim_job_suspend(struct sim *s, struct sim_job *j)
{
    sim_job_hear(s, j, SIGSTOP, true);
    j->state = SCHED_SUSPENDED;
    j->reason = "suspended for a more urgent job";
    j->end_left_s = j->end_s - s->now_s;
    j->limit_left_s = j->limit_s - s->now_s;
    j->end_s = j->limit_s = INFINITY;
    sim_hold(s, j, false);
    sim_enqueue(s, j);
    sim_tell(s, SIM_SUSPENDED, j->id, 0);
}

void sim_job_resume(struct sim *s, struct sim_job *j)
{
    j->state = SCHED_RUNNING;
    j->reason = "";
    j->outcome.ends_in_s = j->end_left_s;
    end_plan(s, j);
    limit_plan(s, j, s->now_s + j->limit_left_s);
    sim_job_hear(s, j, SIGCONT, true);
    sim_tell(s, SIM_RESUMED, j->id, 0);
}

/* ---- the end of an execution ---- */

static const char *end_reason(struct sim *s, const struct sim_job *j)
{
    const char *text = j->exit_signal
                           ? arena_printf(&s->arena, "killed by signal %d", j->exit_signal)
                           : arena_printf(&s->arena, "exit code %d", j->exit_code);
    return text ? text : "";
}

/* Returns the state of a job after an execution. */
static enum sched_state settled(const struct sim_job *j, bool lost)
{
    switch (j->stop) {
    case SIM_STOP_CANCEL: return SCHED_CANCELLED;
    case SIM_STOP_REQUEUE: return SCHED_REQUEUED;
    case SIM_STOP_PREEMPT:
        return j->spec.requeue && j->partition->preempt != SCHED_PREEMPT_CANCEL ? SCHED_REQUEUED
                                                                                : SCHED_CANCELLED;
    case SIM_STOP_LIMIT: return SCHED_TIME_LIMIT;
    case SIM_STOP_NONE: break;
    }
    if (lost)
        return j->spec.requeue ? SCHED_REQUEUED : SCHED_NODE_FAIL;
    return j->exit_code == 0 ? SCHED_DONE : SCHED_FAILED;
}

static void requeue(struct sim *s, struct sim_job *j)
{
    j->restarts++;
    j->stop = SIM_STOP_NONE;
    j->ready_s = s->now_s + s->conf.requeue_delay_s;
    sim_plan(s, j->ready_s, TICK_READY, j->id, j->run);
    sim_enqueue(s, j);
    sim_tell(s, SIM_REQUEUED, j->id, j->restarts);
}

static void no_longer_active(struct sim *s, const struct sim_job *j)
{
    for (size_t i = 0; i < s->n_active; i++)
        if (s->active[i] == j) {
            s->active[i] = s->active[--s->n_active];
            return;
        }
}

void sim_job_end(struct sim *s, struct sim_job *j, int node)
{
    bool lost = node >= 0;
    if (j->state == SCHED_SUSPENDED)
        sim_dequeue(s, j);
    j->exit_code = lost || j->outcome.exit_signal ? -1 : j->outcome.exit_code;
    j->exit_signal = lost ? 0 : j->outcome.exit_signal;
    j->ended_s = s->now_s;
    j->end_s = j->limit_s = INFINITY;
    j->state = settled(j, lost);
    if (lost && j->stop == SIM_STOP_NONE)
        j->reason = arena_printf(&s->arena, "node n%d failed", node);
    else if (j->state == SCHED_FAILED)
        j->reason = end_reason(s, j);
    sim_steps_lose(s, j->id, -1);
    sim_hold(s, j, false);
    no_longer_active(s, j);
    s->dirty = true; /* jobs that wait for this one's end may start */
    sim_tell(s, SIM_ENDED, j->id, (int)j->state);
    if (j->state == SCHED_REQUEUED)
        requeue(s, j);
}

/* ---- events ---- */

static bool is_due(const struct sim_job *j, const struct sim_event *e)
{
    bool runs = j->run == e->run && j->ended_s == 0;
    switch (e->tick) {
    case TICK_END: return runs && e->at_s == j->end_s && !j->stuck;
    case TICK_LIMIT: return runs && e->at_s == j->limit_s;
    case TICK_NOTICE:
        return runs && j->state == SCHED_RUNNING && !j->noticed && isfinite(j->limit_s);
    case TICK_TERM: return runs && !j->termed;
    case TICK_KILL: return runs;
    default: return j->run == e->run;
    }
}

void sim_job_event(struct sim *s, const struct sim_event *e)
{
    struct sim_job *j = s->jobs[e->id - 1];
    if (!is_due(j, e))
        return;
    if (e->tick == TICK_READY) {
        s->dirty = true;
    } else if (e->tick == TICK_END) {
        sim_job_end(s, j, -1);
    } else if (e->tick == TICK_NOTICE) {
        j->noticed = true;
        sim_job_hear(s, j, j->spec.signal, false);
    } else if (e->tick == TICK_LIMIT) {
        sim_job_ask(s, j, SIM_STOP_LIMIT, "its time limit");
    } else if (e->tick == TICK_TERM) {
        term(s, j);
    } else {
        sim_job_hear(s, j, SIGKILL, true);
        sim_tell(s, SIM_KILLED, j->id, 0);
        j->stuck = false; /* the controller ends it even if a node does not answer */
    }
}
