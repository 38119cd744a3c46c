/* This file converts what the controller says of a job: its state, why it ends, its token. */
#include <math.h>
#include <string.h>

#include "launcher/sched/slurm_priv.h"

static const struct {
    const char *word;
    enum sched_state state;
} states[] = {
    /* squeue(1) JOB STATE CODES, up to 25.11 */
    {"PENDING", SCHED_PENDING},        {"CONFIGURING", SCHED_PENDING},
    {"RUNNING", SCHED_RUNNING},        {"SIGNALING", SCHED_RUNNING},
    {"RESIZING", SCHED_RUNNING},       {"SUSPENDED", SCHED_SUSPENDED},
    {"STOPPED", SCHED_SUSPENDED},      {"POWER_UP_NODE", SCHED_PENDING},
    {"COMPLETING", SCHED_STOPPING},    {"STAGE_OUT", SCHED_STOPPING},
    {"PREEMPTED", SCHED_STOPPING},     {"REQUEUED", SCHED_REQUEUED},
    {"REQUEUE_FED", SCHED_REQUEUED},   {"REQUEUE_HOLD", SCHED_REQUEUED},
    {"SPECIAL_EXIT", SCHED_REQUEUED},  {"EXPEDITING", SCHED_REQUEUED},
    {"COMPLETED", SCHED_DONE},         {"CANCELLED", SCHED_CANCELLED},
    {"REVOKED", SCHED_CANCELLED},      {"FAILED", SCHED_FAILED},
    {"OUT_OF_MEMORY", SCHED_FAILED},   {"LAUNCH_FAILED", SCHED_STOPPING},
    {"TIMEOUT", SCHED_TIME_LIMIT},     {"DEADLINE", SCHED_TIME_LIMIT},
    {"NODE_FAIL", SCHED_NODE_FAIL},    {"BOOT_FAIL", SCHED_NODE_FAIL},
};
static const double FLICKER_S = 60; /* a requeued job shows as PREEMPTED or NODE_FAIL for a short
                                     * time */

enum sched_state slurm_state(const struct slurm_job *j, double now)
{
    enum sched_state state = SCHED_UNKNOWN;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(j->state, states[i].word) == 0)
            state = states[i].state;
    bool settled = j->ended_at > 0 &&
                   (!j->requeue ? now >= j->ended_at : now > j->ended_at + FLICKER_S);
    if (strcmp(j->state, "PREEMPTED") == 0 && settled)
        return SCHED_CANCELLED;
    if (state == SCHED_NODE_FAIL && !settled)
        return SCHED_STOPPING;
    return state == SCHED_PENDING && j->restarts > 0 ? SCHED_REQUEUED : state;
}

bool slurm_ended_as_preempted(const struct slurm_job *j)
{
    return j->preempted_at > 0 && fabs(j->ended_at - j->preempted_at) <= 1;
}

/* Tells whether a preemption may end the job without a requeue. It does not if the partition
 * requeues the job. If modes are not set by partition (preempt/qos) it may. */
static bool may_end_for_good(const struct slurm_job *j, const struct slurm_site *site)
{
    if (!site || strcmp(site->preempt_type, "preempt/partition_prio") != 0)
        return true;
    for (size_t i = 0; i < site->site.n_partitions; i++) {
        const struct sched_partition *p = &site->site.partitions[i];
        if (strcmp(p->name, j->partition) == 0)
            return p->preempt != SCHED_PREEMPT_REQUEUE || !j->requeue;
    }
    return true;
}

/* Returns the base state. A job shown only as COMPLETING has none, so it is inferred from what the
 * controller sets when it begins to end a job (seen in 22.05.8). A requeue clears ended_at, or sets
 * it to the expected end of the next execution. A time limit sets the reason. A preemption without
 * requeue sets ended_at to the second of preempted_at, which is set anew after a grace time. A
 * cancellation sets ended_at and no reason, also within a grace time or before a requeued execution
 * has begun. A cancellation in the second in which a grace time begins looks like a preemption. */
static const char *base_of(const struct slurm_job *j, const struct slurm_site *site, double now)
{
    const double skew_s = 30; /* between clocks; the shortest time limit is a minute */
    if (j->base[0] || strcmp(j->state, "COMPLETING") != 0)
        return j->base;
    if (j->ended_at <= 0 || j->ended_at > now + skew_s)
        return "PENDING";
    if (strcmp(j->reason, "TimeLimit") == 0)
        return "TIMEOUT";
    if (j->reason[0])
        return "";
    if (slurm_ended_as_preempted(j) && j->started_at > 0 && may_end_for_good(j, site))
        return "PREEMPTED";
    return "CANCELLED";
}

enum sched_end slurm_end(const struct slurm_job *j, const struct slurm_site *site, double now)
{
    const char *base = base_of(j, site, now);
    enum sched_state state = slurm_state(j, now);
    if (strcmp(base, "CANCELLED") == 0)
        return SCHED_END_CANCELLED;
    if (strcmp(base, "PREEMPTED") == 0)
        return SCHED_END_PREEMPTED;
    if (strcmp(base, "TIMEOUT") == 0 || strcmp(base, "DEADLINE") == 0)
        return SCHED_END_TIME_LIMIT;
    if (state == SCHED_NODE_FAIL || strcmp(base, "NODE_FAIL") == 0)
        return SCHED_END_NODE_FAIL;
    if (strcmp(base, "PENDING") == 0 || state == SCHED_REQUEUED)
        return j->restarts > 0 ? SCHED_END_REQUEUED : SCHED_END_NONE;
    if (state == SCHED_RUNNING || state == SCHED_SUSPENDED)
        return j->preempted_at > 0 && j->preempted_at >= j->started_at ? SCHED_END_PREEMPTED
                                                                       : SCHED_END_NONE;
    return base[0] || sched_state_ended(state) ? SCHED_END_NONE : SCHED_END_UNKNOWN;
}

const char *slurm_token(const char *comment)
{
    struct id id;
    const char *token = comment + strlen(SLURM_COMMENT);
    return strncmp(comment, SLURM_COMMENT, strlen(SLURM_COMMENT)) == 0 &&
                   id_parse(token, &id, NULL) == 0
               ? token
               : "";
}

static const char *reason_of(const struct slurm_job *j, enum sched_state state)
{
    if (j->reason[0] || state == SCHED_RUNNING || state == SCHED_DONE)
        return j->reason;
    return j->state; /* for "PREEMPTED" and "CANCELLED", Slurm's state is the reason */
}

static int job_convert(const struct slurm_job *j, double now, struct arena *arena,
                       struct sched_job *out, struct err *err)
{
    enum sched_state state = slurm_state(j, now);
    bool ended = sched_state_ended(state), ran = j->started_at > 0 && j->started_at <= now;
    int status = ended && ran ? j->exit_status : -1;
    char run[ID_TEXT_BYTES];
    *out = (struct sched_job){
        .id = arena_strdup(arena, j->id),
        .handle = arena_strdup(arena, j->handle),
        .token = arena_strdup(arena, slurm_token(j->comment)),
        .name = arena_strdup(arena, j->name),
        .reason = arena_strdup(arena, reason_of(j, state)),
        .run = arena_strdup(arena, slurm_noted(j->comment, run)),
        .state = state,
        .priority = -j->nice / SLURM_NICE,
        .restarts = j->restarts,
        .nodes = j->nodes,
        .cores_per_node = j->nodes > 0 ? j->cores / j->nodes : 0,
        .submitted_at = j->submitted_at,
        .started_at = ran ? j->started_at : 0,
        .ended_at = ended ? j->ended_at : 0,
        .exit_code = status < 0 || status & 0x7f ? -1 : status >> 8 & 0xff,
        .exit_signal = status < 0 ? 0 : status & 0x7f,
        .once = !j->requeue};
    bool all = out->id && out->handle && out->token && out->name && out->reason && out->run;
    return all ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int slurm_to_sched(const struct slurm_jobs *in, double now, struct sched_jobs *out, struct err *err)
{
    int rc;
    out->jobs = arena_array(&out->arena, in->n + 1, sizeof *out->jobs);
    if (!out->jobs)
        return err_set(err, ERR_NOMEM, "out of memory for %zu jobs", in->n);
    for (size_t i = 0; i < in->n; i++)
        if ((rc = job_convert(&in->v[i], now, &out->arena, &out->jobs[out->n++], err)) < 0)
            return rc;
    return 0;
}
