/* This file makes a scheduling pass: it recovers jobs that lost their keeper, decides which jobs
 * start and which are preempted, records that, and starts keepers. */
#include "launcher/sched/local_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

/* A keeper that has not claimed its job in this time (doubled each time) is started again; after
 * STARTS_MAX starts the job fails. Two keepers that come up late do no harm: one claims the job,
 * the other ends. */
#define CLAIM_S 2.0
enum { STARTS_MAX = 5 };
#define SWEEP_S 2.0

/* ---- decisions ---- */

static bool is_waiting(const struct local_rec *r)
{
    return (r->state == SCHED_PENDING || r->state == SCHED_REQUEUED) && r->starting_at == 0;
}

static bool holds_cores(const struct local_rec *r)
{
    return r->state == SCHED_RUNNING || r->state == SCHED_STOPPING || r->starting_at > 0;
}

static bool goes_before(const struct local_rec *a, const struct local_rec *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

/* Tells whether a waiting job still depends on another. A predecessor whose record is unreadable
 * may still run, so only a recorded end releases the job. */
static bool depends(const struct local_recs *recs, const struct local_rec *r)
{
    for (size_t i = 0; r->after && is_waiting(r) && i < recs->n; i++)
        if (recs->v[i].id == r->after)
            return !sched_state_ended((enum sched_state)recs->v[i].state);
    return false;
}

/* Returns the next waiting job after `last` (NULL: the first); NULL if there is none. */
static const struct local_rec *queue_next(const struct local_recs *recs, int64_t cores,
                                          const struct local_decision *d,
                                          const struct local_rec *last)
{
    const struct local_rec *best = NULL;
    for (size_t i = 0; i < recs->n; i++) {
        const struct local_rec *r = &recs->v[i];
        if (!is_waiting(r) || d[i].depends || r->cores > cores || (last && !goes_before(last, r)))
            continue;
        if (!best || goes_before(r, best))
            best = r;
    }
    return best;
}

static bool can_make_room(const struct local_rec *r, const struct local_rec *for_whom,
                          const struct local_decision *d)
{
    return r->state == SCHED_RUNNING && r->stop == STOP_NONE && d->act == ACT_NONE &&
           r->priority < for_whom->priority;
}

/* Returns the next job to preempt: the least urgent, and among equals the one that started last.
 * NULL if none may be preempted. */
static const struct local_rec *victim_next(const struct local_recs *recs,
                                           const struct local_rec *for_whom,
                                           const struct local_decision *d)
{
    const struct local_rec *best = NULL;
    for (size_t i = 0; i < recs->n; i++) {
        const struct local_rec *r = &recs->v[i];
        if (!can_make_room(r, for_whom, &d[i]))
            continue;
        if (!best || r->priority < best->priority ||
            (r->priority == best->priority && r->started_at > best->started_at))
            best = r;
    }
    return best;
}

/* Preempts jobs until enough cores are freed, or none if all of them together would not free
 * enough. */
static void make_room(const struct local_recs *recs, const struct local_rec *job, int64_t needed,
                      struct local_decision *d)
{
    int64_t possible = 0;
    for (size_t i = 0; i < recs->n; i++)
        possible += can_make_room(&recs->v[i], job, &d[i]) ? recs->v[i].cores : 0;
    while (needed > 0 && possible >= needed) {
        const struct local_rec *victim = victim_next(recs, job, d);
        d[victim - recs->v] = (struct local_decision){.act = ACT_PREEMPT,
                                                      .by = job->id,
                                                      .free_cores = -1};
        needed -= victim->cores;
        possible -= victim->cores;
    }
}

/* Decides in queue order, without overtaking, so that small jobs that fit cannot starve a large
 * one. A job that asks for more cores than the machine has (REEL_LOCAL_CORES was lowered) does not
 * block others. */
void local_decide(const struct local_recs *recs, int64_t cores, struct local_decision *out)
{
    int64_t free_cores = cores, coming = 0, blocked_by = 0;
    for (size_t i = 0; i < recs->n; i++) {
        const struct local_rec *r = &recs->v[i];
        out[i] = (struct local_decision){.act = ACT_NONE,
                                         .free_cores = -1,
                                         .depends = depends(recs, r)};
        if (!holds_cores(r))
            continue;
        free_cores -= r->cores;
        coming += r->stop != STOP_NONE ? r->cores : 0;
    }
    for (const struct local_rec *job = NULL; (job = queue_next(recs, cores, out, job));) {
        struct local_decision *d = &out[job - recs->v];
        if (blocked_by) {
            d->behind = blocked_by;
        } else if (job->cores <= free_cores) {
            d->act = ACT_START;
            free_cores -= job->cores;
        } else {
            d->free_cores = free_cores;
            make_room(recs, job, job->cores - free_cores - coming, out);
            blocked_by = job->id;
        }
    }
}

/* ---- transitions ---- */

static const char *text_copy(struct arena *texts, const char *text)
{
    const char *s = arena_strdup(texts, text);
    return s ? s : "";
}

static const char *exit_text(const struct local_rec *r, bool lost, char *buf, size_t size)
{
    if (lost)
        snprintf(buf, size, "its keeper was killed, or the machine restarted");
    else if (r->exit_signal)
        snprintf(buf, size, "killed by signal %d (%s)", (int)r->exit_signal,
                 strsignal((int)r->exit_signal));
    else
        snprintf(buf, size, "exit code %d", (int)r->exit_code);
    return buf;
}

static enum sched_state verdict(const struct local_rec *r, bool lost)
{
    enum sched_state again = SCHED_REQUEUED;
    switch ((enum local_stop)r->stop) {
    case STOP_CANCEL: return SCHED_CANCELLED;
    case STOP_REQUEUE: return again;
    case STOP_PREEMPT: return r->requeue ? again : SCHED_CANCELLED;
    case STOP_SHUTDOWN: return r->requeue ? again : SCHED_NODE_FAIL;
    case STOP_TIME_LIMIT: return SCHED_TIME_LIMIT;
    case STOP_NONE: break;
    }
    if (lost)
        return r->requeue ? again : SCHED_NODE_FAIL;
    return r->exit_code == 0 ? SCHED_DONE : SCHED_FAILED;
}

void local_rec_settle(struct local_rec *r, bool lost, double now, struct arena *texts)
{
    char buf[160];
    if (lost)
        r->exit_code = -1, r->exit_signal = 0;
    r->state = (int)verdict(r, lost);
    if (r->state == SCHED_DONE)
        r->reason = "";
    else if (r->stop == STOP_NONE && !r->reason[0])
        r->reason = text_copy(texts, exit_text(r, lost, buf, sizeof buf));
    r->restarts += r->state == SCHED_REQUEUED;
    r->ended_at = now;
    r->stop = STOP_NONE;
    r->starting_at = 0;
    r->starts = 0;
    r->boot = "";
    r->guard = r->keeper = r->batch = (struct proc_id){0};
}

int local_rec_ask(const struct local_spool *sp, struct local_rec *r, enum local_stop stop,
                  const char *reason, struct err *err)
{
    struct local_rec next = *r;
    int rc;
    if (r->stop >= (int)stop)
        return 0;
    next.stop = (int)stop;
    next.reason = reason;
    if (next.state == SCHED_RUNNING)
        next.state = SCHED_STOPPING;
    if ((rc = local_rec_save(sp, &next, err)) < 0)
        return rc;
    *r = next;
    return 0;
}

/* ---- keepers ---- */

bool local_is_keeper(pid_t pid, void *ctx)
{
    const struct local_spool *sp = ctx;
    const char *words[] = {"reel", "keeper", sp ? sp->dir : ""};
    return sp && proc_argv_is(pid, words, 3);
}

/* Starts a keeper, which inherits only the variables that a program needs to be loaded and run. It
 * does not inherit the submitter's settings, which are in the spool, nor the REEL_RUN_TOKEN of a
 * job that submits, by which that job's processes are found. */
static int keeper_start(const struct local_spool *sp, int64_t id, struct err *err)
{
    static const char *const kept[] = {"PATH", "HOME", "USER", "TMPDIR", "LD_LIBRARY_PATH",
                                       "ASAN_OPTIONS", "UBSAN_OPTIONS", "GCOV_PREFIX", NULL};
    const char *env[16];
    char log[LIMIT_PATH_BYTES], job[32];
    struct arena texts = {0};
    size_t n = 0;
    int rc;
    if ((rc = local_spool_path(sp, "keeper.log", log, err)) < 0)
        return rc;
    for (size_t i = 0; kept[i]; i++) {
        const char *value = getenv(kept[i]);
        char *entry = value ? arena_printf(&texts, "%s=%s", kept[i], value) : NULL;
        if (entry)
            env[n++] = entry;
    }
    env[n++] = "REEL_SITE_CONFIG=/dev/null"; /* a broken settings file must not keep jobs from
                                              * starting */
    env[n++] = "XDG_CONFIG_HOME=/nonexistent";
    env[n++] = "REEL_HOME=/dev/null"; /* a keeper gets its spool as an argument */
    env[n] = NULL;
    snprintf(job, sizeof job, "%lld", (long long)id);
    const char *argv[] = {"reel", "keeper", sp->dir, job, NULL};
    rc = proc_detach_self(argv, env, log, err);
    arena_release(&texts);
    return rc;
}

/* ---- recovery ---- */

static bool keepers_lost(const struct local_rec *r)
{
    return strcmp(r->boot, clock_boot_id()) != 0 ||
           (!proc_alive(r->guard) && !proc_alive(r->keeper));
}

/* Tells whether this process runs in this job, because a job cannot declare its own execution
 * lost. */
static bool is_own_job(const struct local_rec *r)
{
    const char *token = getenv("REEL_RUN_TOKEN");
    return token && strcmp(token, r->token) == 0;
}

static bool sweep(const struct local_rec *r)
{
    char entry[128];
    if (strcmp(r->boot, clock_boot_id()) != 0)
        return true;
    snprintf(entry, sizeof entry, "REEL_RUN_TOKEN=%s", r->token);
    return proc_kill_marked(entry, SWEEP_S);
}

/* Handles a job whose keeper was started and did not claim it. Returns true if a keeper is to be
 * started again. */
static bool restart_claim(struct local_rec *r, double now)
{
    if (fabs(now - r->starting_at) < ldexp(CLAIM_S, (int)r->starts))
        return false;
    r->starting_at = now;
    if (++r->starts < STARTS_MAX)
        return true;
    r->state = SCHED_FAILED;
    r->reason = "its keeper could not be started: see keeper.log in the spool";
    r->ended_at = now;
    r->starting_at = 0;
    return false;
}

/* Recovers a lost job or a missing keeper. Returns true if r changed; *start: a keeper is to be
 * started for it. */
static bool recover(struct local_rec *r, double now, struct arena *texts, bool *start)
{
    if (!holds_cores(r))
        return false;
    if (r->keeper.pid == 0) {
        double before = r->starting_at;
        *start = restart_claim(r, now);
        return r->starting_at != before;
    }
    if (!keepers_lost(r) || is_own_job(r) || !sweep(r))
        return false;
    local_rec_settle(r, true, now, texts);
    return true;
}

/* ---- the pass ---- */

static int apply(const struct local_spool *sp, struct local_recs *recs, size_t i,
                 const struct local_decision *d, struct err *err)
{
    struct local_rec *r = &recs->v[i];
    char reason[64];
    int rc;
    if (d->act == ACT_PREEMPT) {
        snprintf(reason, sizeof reason, "preempted by job %lld", (long long)d->by);
        return local_rec_ask(sp, r, STOP_PREEMPT, text_copy(&recs->arena, reason), err);
    }
    struct local_rec next = *r;
    next.starting_at = clock_wall_s();
    next.starts = 0;
    next.reason = "";
    if ((rc = local_rec_save(sp, &next, err)) < 0)
        return rc;
    *r = next;
    return 0;
}

/* Recovers and decides under the lock, and saves the records. start[i]: a keeper is to be started
 * for job i afterwards. */
static int pass_records(const struct local_spool *sp, struct local_recs *recs, bool *start,
                        struct err *err)
{
    struct local_machine machine;
    struct local_decision *d = arena_array(&recs->arena, recs->n + 1, sizeof *d);
    int rc;
    if (!d)
        return err_set(err, ERR_NOMEM, "out of memory in the scheduling pass");
    if ((rc = local_machine_load(sp, &machine, err)) < 0)
        return rc;
    double now = clock_wall_s();
    for (size_t i = 0; i < recs->n; i++)
        if (recover(&recs->v[i], now, &recs->arena, &start[i]) &&
            (rc = local_rec_save(sp, &recs->v[i], err)) < 0)
            return rc;
    local_decide(recs, machine.cores, d);
    for (size_t i = 0; i < recs->n; i++) {
        if (d[i].act == ACT_NONE)
            continue;
        if ((rc = apply(sp, recs, i, &d[i], err)) < 0)
            return rc;
        start[i] = start[i] || d[i].act == ACT_START;
    }
    return 0;
}

int local_pass(const struct local_spool *sp, double wait_s, struct err *err)
{
    struct local_recs recs = {0};
    bool *start = NULL;
    struct lease *lock = NULL;
    int rc = local_lock(sp, wait_s, &lock, err);
    if (rc < 0)
        return rc;
    if ((rc = local_recs_load(sp, true, &recs, err)) == 0) {
        start = arena_array(&recs.arena, recs.n + 1, sizeof *start);
        rc = start ? pass_records(sp, &recs, start, err)
                   : err_set(err, ERR_NOMEM, "out of memory in the scheduling pass");
    }
    lease_drop(lock);
    /* Recorded starts are carried out even if the pass failed later; a keeper that cannot be
     * started now is started by a later pass. */
    for (size_t i = 0; start && i < recs.n; i++) {
        struct err why = {0};
        if (start[i] && keeper_start(sp, recs.v[i].id, &why) < 0)
            log_msg(LOG_WARN, "%s", why.text);
    }
    local_recs_release(&recs);
    return rc;
}
