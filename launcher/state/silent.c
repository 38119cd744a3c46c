#include "launcher/state/silent.h"

#include <stdio.h>

static const char forgotten[] = "its job ended, and the scheduler does not say any more why: "
                                "counted as a crash";

/* Returns why an attempt ended of which nobody heard a notice. A job that ended by itself, and lost
 * no node, lost its batch process. Of one that lost no node and is forgotten no more is known. */
static enum attempt_cause cause_unnoticed(int agent_signal, const struct attempt_ending *ending,
                                          char detail[STATE_TEXT_BYTES])
{
    if (agent_signal) {
        snprintf(detail, STATE_TEXT_BYTES, "its agent died of signal %d", agent_signal);
        return CAUSE_CRASH;
    }
    if (ending->why == SCHED_END_NONE && ending->nodes_told) {
        snprintf(detail, STATE_TEXT_BYTES, "its job's batch process was killed");
        return CAUSE_CRASH;
    }
    if (ending->why == SCHED_END_UNKNOWN && ending->other_job && ending->nodes_told) {
        snprintf(detail, STATE_TEXT_BYTES, "%s", forgotten);
        return CAUSE_CRASH;
    }
    if (ending->host_is_up) {
        snprintf(detail, STATE_TEXT_BYTES, "its agent was killed, and what watches over it too");
        return CAUSE_CRASH;
    }
    snprintf(detail, STATE_TEXT_BYTES, "its agent was killed, or its node was lost");
    return CAUSE_NODE_FAIL;
}

enum attempt_cause silent_cause(const struct run_attempt *last, int agent_signal,
                                const struct attempt_ending *ending,
                                char detail[STATE_TEXT_BYTES])
{
    const char *lost = last->node_lost[0] ? last->node_lost : ending->node_lost;
    if (ending->why == SCHED_END_CANCELLED) {
        snprintf(detail, STATE_TEXT_BYTES, "job %s was cancelled at the scheduler", last->job_id);
        return CAUSE_CANCEL;
    }
    if (*lost || ending->why == SCHED_END_NODE_FAIL) {
        snprintf(detail, STATE_TEXT_BYTES, "node %s was lost", *lost ? lost : "of its job");
        return CAUSE_NODE_FAIL;
    }
    if (last->requeued_for != CAUSE_NONE) {
        snprintf(detail, STATE_TEXT_BYTES, "killed %s, before it had finished stopping",
                 last->requeued_for == CAUSE_TIME_LIMIT ? "at the end of its time limit"
                                                        : "by a preemption");
        return last->requeued_for;
    }
    if (last->signal_at > 0 && last->signal_at_step && ending->why == SCHED_END_NONE &&
        !agent_signal) {
        snprintf(detail, STATE_TEXT_BYTES, "its job's batch process was killed, and the scheduler "
                                           "ended what was left of it");
        return CAUSE_CRASH;
    }
    if (last->signal_at > 0 && last->signal_at_step && ending->why == SCHED_END_UNKNOWN &&
        ending->other_job && !last->agent_told && !agent_signal) {
        snprintf(detail, STATE_TEXT_BYTES, "%s", forgotten);
        return CAUSE_CRASH;
    }
    if (last->signal_at > 0) {
        bool open = ending->why == SCHED_END_UNKNOWN && !ending->nodes_told && !agent_signal;
        snprintf(detail, STATE_TEXT_BYTES, "killed before it had finished stopping%s",
                 open ? "; the scheduler does not say whether a node was lost" : "");
        return ending->why == SCHED_END_TIME_LIMIT ? CAUSE_TIME_LIMIT : CAUSE_PREEMPT;
    }
    return cause_unnoticed(agent_signal, ending, detail);
}
