/* This file decides from a run's folded state what is to be done next, and names the state. */
#include "launcher/state/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double FULL_PAUSE_S = 60, FULL_PAUSE_MOST_S = 1800;

static enum attempt_cause budget_of(enum attempt_cause cause)
{
    return cause == CAUSE_HANG || cause == CAUSE_EARLY_EXIT ? CAUSE_CRASH : cause;
}

/* Names what the budget for this cause counts; NULL for causes without a budget. */
static const char *budget_name(enum attempt_cause cause)
{
    switch (budget_of(cause)) {
    case CAUSE_CRASH: return "crashes";
    case CAUSE_NODE_FAIL: return "lost nodes";
    case CAUSE_PREEMPT: return "preemptions";
    case CAUSE_TIME_LIMIT: return "time limits";
    case CAUSE_DONE: return "ends before the last step of a run that was made longer";
    default: return NULL;
    }
}

int64_t run_state_without_progress(const struct run_state *s)
{
    int64_t count = 0, reach_before = 0;
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    if (!last || !budget_name(last->cause))
        return 0;
    for (int64_t i = 0; i < s->n_attempts; i++) {
        const struct run_attempt *a = &s->attempts[i];
        bool further = run_attempt_reach(a) > reach_before || a->progressed;
        reach_before = run_attempt_reach(a) > reach_before ? run_attempt_reach(a) : reach_before;
        count = further ? 0 : count;
        if (a->number > s->budget_from && budget_of(a->cause) == budget_of(last->cause) &&
            (!further || budget_of(a->cause) == CAUSE_CRASH))
            count++;
    }
    return count;
}

static int64_t budget_for(const struct run_budget *b, enum attempt_cause cause)
{
    switch (budget_of(cause)) {
    case CAUSE_CRASH: case CAUSE_DONE: return b->crash;
    case CAUSE_NODE_FAIL: return b->node_fail;
    case CAUSE_PREEMPT: return b->preempt;
    case CAUSE_TIME_LIMIT: return b->time_limit;
    default: return 0;
    }
}

/* Tells whether another job than this attempt's own and its waiting successor was submitted since
 * the attempt ended. Tokens decide, since hosts' clocks differ; without tokens the times decide. */
static bool is_submitted_since(const struct run_state *s, const struct run_attempt *a)
{
    if (a->token[0] && s->job_token[0])
        return strcmp(a->token, s->job_token) != 0 && strcmp(a->token, s->after) != 0;
    return s->submitted_at > a->ended_at;
}

/* Returns the seconds from the start of the first attempt that counts to the end of the last. Only
 * clocks of nodes that ran attempts are used: a submitting host's clock may differ. */
static double lasted_s(const struct run_state *s, const struct run_attempt *last)
{
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (s->attempts[i].number > s->budget_from && s->attempts[i].started_at > 0)
            return last->ended_at - s->attempts[i].started_at;
    return 0;
}

/* Tells whether the end of the newest attempt ends the run. It does not after `reel retry`. */
static bool is_failed(const struct run_state *s, const struct run_attempt *last,
                      const struct run_budget *budget, char *text)
{
    int64_t bound = budget_for(budget, last->cause), count = run_state_without_progress(s);
    if (last->number <= s->retried_after)
        return false;
    if (last->cause == CAUSE_DIVERGED) /* another attempt would diverge again */
        snprintf(text, STATE_TEXT_BYTES, "training diverged: %.450s", last->detail);
    else if (last->cause == CAUSE_CRASH && last->refused_input) /* another attempt would be refused
                                                                 * again */
        snprintf(text, STATE_TEXT_BYTES, "%s", last->failed);
    else if (bound > 0 && count >= bound)
        snprintf(text, STATE_TEXT_BYTES, "%lld %s in a row without progress: %.450s",
                 (long long)count, budget_name(last->cause), last->detail);
    else if (budget->wall_s > 0 && lasted_s(s, last) > budget->wall_s)
        snprintf(text, STATE_TEXT_BYTES, "the wall-clock budget of %.0f s is spent",
                 budget->wall_s);
    return text[0] != 0;
}

enum run_next run_state_next(const struct run_state *s, const struct run_budget *budget,
                             char why[STATE_TEXT_BYTES])
{
    char scratch[STATE_TEXT_BYTES];
    char *text = why ? why : scratch;
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    text[0] = 0;
    if (s->done)
        return RUN_NEXT_DONE;
    if (s->wish != WISH_RUN) {
        snprintf(text, STATE_TEXT_BYTES, "%s", s->wish == WISH_CANCEL ? s->cancel_by : "");
        return s->wish == WISH_CANCEL ? RUN_NEXT_CANCELLED : RUN_NEXT_PAUSED;
    }
    /* A run without a `submitted` event is submitted again: the submitter may have died before it
     * wrote the event. */
    if (s->submitted_at == 0 && !last)
        return RUN_NEXT_SUBMIT;
    if (!last || last->cause == CAUSE_NONE || is_submitted_since(s, last))
        return RUN_NEXT_WAIT;
    /* Somebody cancelled the job at the scheduler, not by reel. */
    if (last->cause == CAUSE_CANCEL && last->number > s->retried_after) {
        snprintf(text, STATE_TEXT_BYTES, "%s", last->detail);
        return RUN_NEXT_CANCELLED;
    }
    if (is_failed(s, last, budget, text))
        return RUN_NEXT_FAILED;
    snprintf(text, STATE_TEXT_BYTES, "attempt %lld ended by %s", (long long)last->number,
             attempt_cause_names[last->cause]);
    return last->requeued_at > 0 ? RUN_NEXT_WAIT : RUN_NEXT_REQUEUE;
}

int64_t run_attempt_silent(const struct run_attempt *a)
{
    int64_t ranks = 0;
    for (int i = 0; i < a->n_silent; i++)
        ranks += a->silent[i].ranks;
    return a->signal_at > 0 && !a->signal_at_step && a->ranks_heard ? ranks : 0;
}

int64_t run_state_full_with_room(const struct run_state *s)
{
    int64_t count = 0, reach = 0;
    for (int64_t i = 0; i < s->n_attempts; i++) {
        const struct run_attempt *a = &s->attempts[i];
        if (run_attempt_reach(a) > reach || a->progressed)
            count = 0;
        reach = run_attempt_reach(a) > reach ? run_attempt_reach(a) : reach;
        if (a->cause == CAUSE_DISK_FULL && a->space.any && !run_attempt_low_bytes(a) &&
            !run_attempt_low_files(a))
            count++;
    }
    return count;
}

double run_state_not_before(const struct run_state *s, double now)
{
    double pause_s = 0, last = 0;
    int64_t reach = 0;
    for (int64_t i = 0; i < s->n_attempts; i++) {
        const struct run_attempt *a = &s->attempts[i];
        if (run_attempt_reach(a) > reach)
            pause_s = last = 0;
        reach = run_attempt_reach(a) > reach ? run_attempt_reach(a) : reach;
        if (a->cause == CAUSE_DISK_FULL) {
            pause_s = pause_s > 0 ? fmin(2 * pause_s, FULL_PAUSE_MOST_S) : FULL_PAUSE_S;
            last = a->ended_at;
        }
    }
    return last > 0 ? fmin(last, now) + pause_s : 0;
}

const char *run_state_word(const struct run_state *s, const struct run_budget *budget)
{
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    switch (run_state_next(s, budget, NULL)) {
    case RUN_NEXT_DONE: return "done";
    case RUN_NEXT_FAILED: return "failed";
    case RUN_NEXT_CANCELLED: return "cancelled";
    case RUN_NEXT_PAUSED: return last && last->cause == CAUSE_NONE ? "stopping" : "paused";
    case RUN_NEXT_SUBMIT: return "created";
    case RUN_NEXT_REQUEUE: return "waiting";
    case RUN_NEXT_WAIT: break;
    }
    if (!last)
        return "queued";
    if (last->requeued_at > 0) /* the agent requeued it before it was killed, if no end is
                                * recorded */
        return "waiting";
    if (last->cause != CAUSE_NONE || (last->held_until > 0 && last->trainer_started_at == 0))
        return "waiting";
    if (last->signal_at > 0)
        return "stopping";
    return last->first_step_at > 0 ? "training" : "starting";
}
