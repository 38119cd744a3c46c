/* This file implements the scheduler of one machine.
 *
 * There is no daemon. All state is in a folder (the spool), <home>/sched/local/<host>/. Every
 * process that uses the folder also schedules jobs: submitters, pollers, and the keepers of running
 * jobs. <host> is in the path because process numbers mean nothing on another machine that shares
 * the home.
 *
 *     lock            lease (base/lease.h) of every writer; the file exists while it is held
 *     machine.json    cores, grace, kill wait (reel.sched-local/1). Written when REEL_LOCAL_CORES,
 *                     REEL_LOCAL_GRACE or REEL_LOCAL_KILL_WAIT were set for a submission; the last
 *                     submission that set one counts, for all jobs
 *     N.job           the record of job N (reel.sched-job/1), fields as in rec_fields,
 *                     local_spool.c. Every change replaces the file by rename, under the lock;
 *                     readers need no lock
 *     N.program       the job's folder, log, arguments and environment, NUL-separated after a magic
 *                     word; written once
 *     keeper.log      error messages of keepers
 *
 * A job exists as soon as N.job exists, which holds its token; N.program is written before.
 * Submission looks for the token under the lock, so a token gets one job, even if processes die at
 * any moment. N is one more than the highest number so far; records are not deleted.
 *
 * Every execution has a keeper process (local_keeper.c), which is started by the process whose pass
 * (local_pass.c) decided on the execution. A keeper is this program executed again, in its own
 * session and detached from its starter. It adopts orphans of the job and kills them at the end.
 *
 * These are the states of a record. "starting" means pending or requeued with starting_at > 0: the
 * job's cores are taken.
 *
 *     from                to                       by, and when
 *     -                   pending                  submit
 *     pending, requeued   starting                 a pass: the job is next and fits
 *     starting            starting, with keeper    the keeper's claim, before anything is executed
 *     starting            starting again           a pass: no claim for CLAIM_S; failed after
 *                                                  STARTS_MAX
 *     starting            running                  the keeper, when the batch process has been
 *                                                  started
 *     starting            failed                   the keeper: the program, folder or log cannot
 *                                                  be opened
 *     pending, requeued,  cancelled                cancel
 *     starting unclaimed
 *     running             stopping + stop cause    cancel, requeue: the process that calls it;
 *                                                  preempt: a pass; time limit, shutdown: the
 *                                                  keeper. The record is changed before the first
 *                                                  signal is sent
 *     stopping            stopping, stronger cause time limit < preempt < shutdown < requeue <
 *                                                  cancel; a planned SIGKILL is not delayed
 *     running             done, failed             the keeper, when no process of the job is left:
 *                                                  done for exit code 0, else failed
 *     stopping            cancelled                the same, cause cancel; preempt without
 *                                                  permission to requeue
 *     stopping            requeued, restarts + 1   the same, cause requeue, preempt, shutdown
 *     stopping            node_fail                the same, cause shutdown without permission to
 *                                                  requeue
 *     stopping            time_limit               the same, cause time limit
 *     claimed, running,   requeued or node_fail    lost: the keeper was killed (its guard records
 *     stopping                                     it), or keeper and guard were, or the machine
 *                                                  was restarted
 *                                                  (a pass records it). An earlier stop cause
 *                                                  decides as above
 *
 * A requeued job keeps its first place in the queue. Waiting jobs start strictly by priority, then
 * age. A job that does not fit yet blocks all jobs after it. It preempts running jobs of lower
 * priority, the least urgent and youngest first, if that frees enough cores. A job with spec.after
 * enters the queue when that job has ended. local_decide() in local_pass.c makes all these
 * decisions, and has no side effects. */
#include "launcher/sched/local.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/str.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/local_priv.h"

#define LOCK_WAIT_S 30.0
#define PARTITION "local"

struct local {
    struct sched base;
    struct local_spool spool;
    struct sched_partition partition; /* as the last describe returned it */
    struct local_steps steps;
};

static struct local *local_of(struct sched *s)
{
    return (struct local *)s;
}

/* ---- the site ---- */

static int local_describe(struct sched *s, struct sched_site *out, struct err *err)
{
    struct local *l = local_of(s);
    struct local_machine m;
    bool changed;
    int rc = local_machine_now(&l->spool, &m, &changed, err);
    if (rc < 0)
        return rc;
    l->partition = (struct sched_partition){.name = PARTITION,
                                            .is_default = true,
                                            .preempt = SCHED_PREEMPT_REQUEUE,
                                            .grace_s = m.grace_s,
                                            .nodes = 1,
                                            .cores_per_node = (int)m.cores};
    *out = (struct sched_site){.kind = "local",
                               .name = clock_host(),
                               .kill_wait_s = m.kill_wait_s,
                               .user_signal = true,
                               .n_partitions = 1,
                               .partitions = &l->partition};
    return 0;
}

/* ---- submit ---- */

static int id_of(const char *text, int64_t *out, struct err *err)
{
    if (num_parse_i64(text, "job id", out, NULL) < 0 || *out < 1)
        return err_set(err, ERR_NOT_FOUND, "there is no job '%s' on this machine", text);
    return 0;
}

/* Checks that the job leaves this machine, which is the only one, among its nodes. Names of other
 * machines are fine, since the same file may be run on a cluster. */
static int check_exclude(const struct sched_spec *spec, struct err *err)
{
    struct arena arena;
    const char **names;
    size_t n = 0;
    arena_init(&arena, 0);
    int rc = spec->exclude ? hosts_expand(spec->exclude, &arena, &names, &n, err) : 0;
    if (rc < 0)
        err_context(err, "job '%s': resources.exclude", spec->name);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (strcmp(names[i], clock_host()) == 0)
            rc = err_set(err, ERR_LIMIT,
                         "job '%s': resources.exclude has '%s', which is this machine, the only "
                         "one: leave it out", spec->name, names[i]);
    arena_release(&arena);
    return rc;
}

static int check_fits(const struct sched_spec *spec, const struct local_machine *m, struct err *err)
{
    if (spec->partition && strcmp(spec->partition, PARTITION) != 0)
        return err_set(err, ERR_INPUT,
                       "job '%s': there is no partition '%s' on this machine: leave it out, or "
                       "give '%s'",
                       spec->name, spec->partition, PARTITION);
    if (spec->nodes != 1)
        return err_set(err, ERR_LIMIT,
                       "job '%s' asks for %d nodes, and the local scheduler has this machine only: "
                       "ask for 1 node, or use a cluster",
                       spec->name, spec->nodes);
    if (spec->cores_per_node > m->cores)
        return err_set(err, ERR_LIMIT,
                       "job '%s' asks for %d cores, and this machine has %lld for jobs: ask for "
                       "fewer, or raise REEL_LOCAL_CORES",
                       spec->name, spec->cores_per_node, (long long)m->cores);
    return check_exclude(spec, err);
}

static int after_find(struct local *l, const char *after, int64_t *out, struct err *err)
{
    struct local_rec r;
    int rc;
    if ((rc = id_of(after, out, err)) < 0)
        return rc;
    rc = local_rec_load(&l->spool, *out, &l->spool.texts, &r, err);
    arena_reset(&l->spool.texts);
    return rc == ERR_NOT_FOUND ? rc : 0;
}

/* Finds the number of the job that spec.after names; 0: none. That job must have a record, which
 * need not be readable. */
static int after_of(struct local *l, const struct sched_spec *spec, int64_t *out,
                    struct err *err)
{
    int rc;
    *out = 0;
    if (!spec->after)
        return 0;
    if ((rc = after_find(l, spec->after, out, err)) < 0)
        err_context(err, "job '%s' is to come after another", spec->name);
    return rc;
}

static int submit_new(struct local *l, const struct sched_spec *spec, int64_t id, struct err *err)
{
    struct local_machine m;
    bool changed;
    int64_t after;
    int rc = local_machine_now(&l->spool, &m, &changed, err);
    if (rc < 0 || (rc = check_fits(spec, &m, err)) < 0 ||
        (rc = after_of(l, spec, &after, err)) < 0)
        return rc;
    if (changed && (rc = local_machine_save(&l->spool, &m, err)) < 0)
        return rc;
    const struct local_rec rec = {
        .id = id,
        .token = spec->token, .name = spec->name, .reason = "", .boot = "",
        .state = SCHED_PENDING,
        .priority = spec->priority,
        .cores = spec->cores_per_node ? spec->cores_per_node : m.cores,
        .requeue = spec->requeue,
        .after = after,
        .signal = spec->signal,
        .time_limit_s = spec->time_limit_s,
        .signal_lead_s = spec->signal_lead_s,
        .submitted_at = clock_wall_s(),
        .exit_code = -1};
    if ((rc = local_program_save(&l->spool, id, spec, err)) < 0)
        return rc;
    return local_rec_save(&l->spool, &rec, err);
}

/* Submits under the lock, unless there is a job with this token. An unreadable record may have this
 * token: then nothing is submitted. */
static int submit_once(struct local *l, const struct sched_spec *spec, int64_t *id,
                       struct err *err)
{
    struct local_recs recs;
    const struct local_rec *unreadable = NULL;
    int64_t last = 0;
    int rc = local_recs_load(&l->spool, true, &recs, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < recs.n && *id == 0; i++) {
        last = recs.v[i].id;
        if (recs.v[i].state == SCHED_UNKNOWN)
            unreadable = &recs.v[i];
        else if (strcmp(recs.v[i].token, spec->token) == 0)
            *id = recs.v[i].id;
    }
    if (*id == 0 && unreadable)
        rc = err_set(err, ERR_CORRUPT,
                     "job '%s' is not submitted: the record of job %lld cannot be read and may be "
                     "this one: %s (repair or remove that file)",
                     spec->name, (long long)unreadable->id, unreadable->reason);
    else if (*id == 0 && (rc = submit_new(l, spec, last + 1, err)) == 0)
        *id = last + 1;
    local_recs_release(&recs);
    return rc;
}

static int local_check(struct sched *s, const struct sched_spec *spec, struct err *err)
{
    struct local_machine m;
    bool changed;
    int rc;
    if ((rc = local_machine_now(&local_of(s)->spool, &m, &changed, err)) < 0)
        return rc;
    return check_fits(spec, &m, err);
}

static void local_script(const struct sched_spec *spec, struct str *out)
{
    for (const char *const *a = spec->argv; *a; a++)
        str_addf(out, "%s%s", a == spec->argv ? "" : " ", *a);
    str_addc(out, '\n');
}

/* Makes a pass. A failure is only logged: the job's record is in the queue, and the next pass does
 * what this one could not. */
static void pass_or_log(struct local *l, double wait_s)
{
    struct err err = {0};
    int rc = local_pass(&l->spool, wait_s, &err);
    if (rc < 0 && rc != ERR_BUSY)
        log_msg(LOG_WARN, "local scheduler: %s", err.text);
}

static int local_submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                        struct err *err)
{
    struct local *l = local_of(s);
    int64_t job = 0;
    struct lease *lock = NULL;
    int rc = file_mkdirs(l->spool.dir, err);
    if (rc < 0 || (rc = local_lock(&l->spool, LOCK_WAIT_S, &lock, err)) < 0)
        return rc;
    rc = submit_once(l, spec, &job, err);
    lease_drop(lock);
    if (rc < 0)
        return rc;
    pass_or_log(l, LOCK_WAIT_S);
    snprintf(id, SCHED_ID_BYTES, "%lld", (long long)job);
    return 0;
}

/* ---- poll ---- */

static bool listed(const char *const *list, const char *text)
{
    for (size_t i = 0; list && list[i]; i++)
        if (strcmp(list[i], text) == 0)
            return true;
    return false;
}

static bool wanted(const struct sched_filter *f, const char *id, const char *token)
{
    return !f || (!f->ids && !f->tokens) || listed(f->ids, id) || listed(f->tokens, token);
}

/* Formats the reason in the job's record ("preempted by job 4"), and why the job waits. */
static const char *reason_format(const struct local_rec *r, const struct local_decision *d,
                                 int64_t cores, struct arena *a)
{
    char why[128] = "";
    if (r->state == SCHED_PENDING || r->state == SCHED_REQUEUED) {
        if (d->depends)
            snprintf(why, sizeof why, "Dependency: job %lld has not ended", (long long)r->after);
        else if (r->cores > cores)
            snprintf(why, sizeof why, "asks for %lld cores, the machine has %lld",
                     (long long)r->cores, (long long)cores);
        else if (d->behind)
            snprintf(why, sizeof why, "waits behind job %lld", (long long)d->behind);
        else if (d->free_cores >= 0)
            snprintf(why, sizeof why, "waits for %lld cores, %lld are free", (long long)r->cores,
                     (long long)d->free_cores);
    }
    const char *text = arena_printf(a, "%s%s%s", r->reason, r->reason[0] && why[0] ? "; " : "",
                                    why);
    return text ? text : "";
}

static void job_fill(struct sched_job *job, const struct local_rec *r, const char *id,
                     const char *reason, struct arena *a)
{
    const char *token = arena_strdup(a, r->token), *name = arena_strdup(a, r->name);
    *job = (struct sched_job){
        .id = id, .token = token ? token : "", .name = name ? name : "",
        .state = (enum sched_state)r->state,
        .priority = (int)r->priority,
        .restarts = (int)r->restarts,
        .nodes = 1, .cores_per_node = (int)r->cores,
        .submitted_at = r->submitted_at, .started_at = r->started_at, .ended_at = r->ended_at,
        .exit_code = (int)r->exit_code, .exit_signal = (int)r->exit_signal,
        .reason = reason, .run = ""};
}

static int jobs_fill(const struct local_recs *recs, const struct sched_filter *filter,
                     int64_t cores, struct sched_jobs *out, struct err *err)
{
    struct local_decision *d = calloc(recs->n + 1, sizeof *d);
    out->jobs = arena_array(&out->arena, recs->n + 1, sizeof *out->jobs);
    if (!d || !out->jobs) {
        free(d);
        return err_set(err, ERR_NOMEM, "out of memory while listing %zu jobs", recs->n);
    }
    local_decide(recs, cores, d);
    for (size_t i = 0; i < recs->n; i++) {
        const struct local_rec *r = &recs->v[i];
        const char *id = arena_printf(&out->arena, "%lld", (long long)r->id);
        if (id && wanted(filter, id, r->token))
            job_fill(&out->jobs[out->n++], r, id, reason_format(r, &d[i], cores, &out->arena),
                     &out->arena);
    }
    free(d);
    return 0;
}

/* Lists jobs, after a pass, which restarts the queue after a reboot. A user who may not write to
 * the spool gets what is recorded, without a pass. */
static int local_poll(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
                      struct err *err)
{
    struct local *l = local_of(s);
    struct local_machine m;
    struct local_recs recs;
    struct sched_jobs jobs = {0};
    if (file_exists(l->spool.dir))
        pass_or_log(l, 0);
    int rc = local_machine_load(&l->spool, &m, err);
    if (rc < 0 || (rc = local_recs_load(&l->spool, false, &recs, err)) < 0)
        return rc;
    rc = jobs_fill(&recs, filter, m.cores, &jobs, err);
    local_recs_release(&recs);
    if (rc < 0)
        sched_jobs_release(&jobs);
    else
        *out = jobs;
    return rc;
}

/* ---- signals, requeue, cancel ---- */

static int signal_rec(struct local *l, const struct local_rec *r, int signo, enum sched_to to,
                      struct err *err)
{
    if ((r->state != SCHED_RUNNING && r->state != SCHED_STOPPING) ||
        strcmp(r->boot, clock_boot_id()) != 0)
        return err_set(err, ERR_STATE,
                       "job %lld does not run (it is %s): only running jobs get signals",
                       (long long)r->id, sched_state_name((enum sched_state)r->state));
    if (to == SCHED_TO_BATCH || !proc_alive(r->keeper)) {
        int rc = proc_signal(r->batch, signo, err);
        return rc != ERR_NOT_FOUND ? rc
                                   : err_set(err, ERR_STATE,
                                             "job %lld is ending: its batch process is gone",
                                             (long long)r->id);
    }
    proc_signal_below((pid_t)r->keeper.pid, signo, local_is_keeper, &l->spool);
    return 0;
}

/* Tells whether the job's keeper has claimed it but not yet recorded its batch process. */
static bool comes_up(const struct local_rec *r)
{
    return r->keeper.pid != 0 && r->batch.pid == 0 && strcmp(r->boot, clock_boot_id()) == 0 &&
           proc_alive(r->keeper);
}

/* Waits, at most LOCK_WAIT_S, until a job that is being started takes signals, and loads its
 * record. */
static int rec_await(struct local *l, int64_t job, struct local_rec *r, struct err *err)
{
    double end_s = clock_mono_s() + LOCK_WAIT_S;
    int rc;
    for (;;) {
        if ((rc = local_rec_load(&l->spool, job, &l->spool.texts, r, err)) < 0)
            return rc;
        if (!comes_up(r) || clock_mono_s() > end_s)
            return 0;
        arena_reset(&l->spool.texts);
        clock_sleep_s(0.01);
    }
}

static int local_signal(struct sched *s, const char *id, int signo, enum sched_to to,
                        struct err *err)
{
    struct local *l = local_of(s);
    struct local_rec r;
    int64_t job;
    int rc;
    if ((rc = id_of(id, &job, err)) < 0)
        return rc;
    if ((rc = rec_await(l, job, &r, err)) < 0)
        goto out;
    rc = signal_rec(l, &r, signo, to, err);
out:
    arena_reset(&l->spool.texts);
    return rc;
}

static int ask_requeue(struct local *l, struct local_rec *r, struct err *err)
{
    if (sched_state_ended((enum sched_state)r->state))
        return err_set(err, ERR_STATE, "job %lld has ended (%s): submit it anew", (long long)r->id,
                       sched_state_name((enum sched_state)r->state));
    if (r->stop == STOP_CANCEL)
        return err_set(err, ERR_STATE, "job %lld is being cancelled and cannot be requeued",
                       (long long)r->id);
    if (!r->requeue)
        return err_set(err, ERR_STATE, "job %lld was submitted without permission to requeue",
                       (long long)r->id);
    /* A job without a keeper is waiting already. A claimed one counts as running: it may call this
     * before its keeper has recorded that it runs. */
    if (r->keeper.pid == 0)
        return 0;
    return local_rec_ask(&l->spool, r, STOP_REQUEUE, "requeued on request", err);
}

static int ask_cancel(struct local *l, struct local_rec *r, struct err *err)
{
    if (sched_state_ended((enum sched_state)r->state))
        return 0;
    if (r->keeper.pid != 0)
        return local_rec_ask(&l->spool, r, STOP_CANCEL, "cancelled on request", err);
    r->state = SCHED_CANCELLED;
    r->reason = "cancelled on request";
    r->starting_at = 0;
    r->ended_at = clock_wall_s();
    return local_rec_save(&l->spool, r, err);
}

typedef int ask_fn(struct local *l, struct local_rec *r, struct err *err);

static int ask_locked(struct local *l, int64_t job, ask_fn *fn, struct err *err)
{
    struct local_rec r;
    struct lease *lock = NULL;
    int rc;
    if ((rc = local_lock(&l->spool, LOCK_WAIT_S, &lock, err)) < 0)
        return rc;
    if ((rc = local_rec_load(&l->spool, job, &l->spool.texts, &r, err)) < 0)
        goto out;
    rc = fn(l, &r, err);
out:
    lease_drop(lock);
    arena_reset(&l->spool.texts);
    return rc;
}

static int ask(struct sched *s, const char *id, ask_fn *fn, struct err *err)
{
    struct local *l = local_of(s);
    int64_t job;
    int rc;
    if ((rc = id_of(id, &job, err)) < 0)
        return rc;
    if (!file_exists(l->spool.dir))
        return err_set(err, ERR_NOT_FOUND, "there is no job '%s' on this machine", id);
    if ((rc = ask_locked(l, job, fn, err)) < 0)
        return rc;
    /* A cancelled job may have blocked the queue, and a pass finds lost jobs. */
    pass_or_log(l, LOCK_WAIT_S);
    return 0;
}

static int local_requeue(struct sched *s, const char *id, struct err *err)
{
    return ask(s, id, ask_requeue, err);
}

/* Sends SIGTERM to the batch process if the spool has no room for the request: that ends a job
 * which does not ask for another execution. */
static int cancel_unrecorded(struct local *l, const char *id, struct err *err)
{
    struct local_rec r;
    struct err why = {0};
    int64_t job;
    int rc;
    if ((rc = id_of(id, &job, err)) < 0)
        return rc;
    if ((rc = local_rec_load(&l->spool, job, &l->spool.texts, &r, err)) < 0)
        goto out;
    if (!sched_state_ended((enum sched_state)r.state))
        rc = signal_rec(l, &r, SIGTERM, SCHED_TO_BATCH, &why);
out:
    arena_reset(&l->spool.texts);
    if (rc == ERR_STATE)
        rc = err_set(err, ERR_FULL,
                     "job %s waits, and the disk of '%s' %s to take it from the queue", id,
                     l->spool.dir,
                     file_is_read_only(l->spool.dir) ? "is read-only: it must be mended"
                                                     : "has no room");
    return rc;
}

static int local_cancel(struct sched *s, const char *id, struct err *err)
{
    int rc = ask(s, id, ask_cancel, err);
    return rc == ERR_FULL ? cancel_unrecorded(local_of(s), id, err) : rc;
}

/* Returns why a job ends. After the end of an execution r->stop is STOP_NONE, and the state shows
 * why, also while the next execution begins: its keeper has claimed the job then, and records only
 * after the start of the batch process that it runs. */
static enum sched_end end_of(const struct local_rec *r)
{
    switch ((enum local_stop)r->stop) {
    case STOP_CANCEL: return SCHED_END_CANCELLED;
    case STOP_PREEMPT: return SCHED_END_PREEMPTED;
    case STOP_TIME_LIMIT: return SCHED_END_TIME_LIMIT;
    case STOP_REQUEUE:
    case STOP_SHUTDOWN: return SCHED_END_REQUEUED;
    case STOP_NONE: break;
    }
    if (r->keeper.pid != 0)
        return SCHED_END_NONE;
    if (r->state == SCHED_CANCELLED)
        return str_starts(r->reason, "preempted") ? SCHED_END_PREEMPTED : SCHED_END_CANCELLED;
    return r->state == SCHED_TIME_LIMIT ? SCHED_END_TIME_LIMIT
           : r->state == SCHED_REQUEUED ? SCHED_END_REQUEUED
                                        : SCHED_END_NONE;
}

static int local_ending(struct sched *s, const char *id, struct sched_ending *out,
                        struct err *err)
{
    struct local *l = local_of(s);
    struct local_rec r;
    int64_t job;
    int rc;
    if ((rc = id_of(id, &job, err)) < 0)
        return rc;
    if ((rc = local_rec_load(&l->spool, job, &l->spool.texts, &r, err)) < 0)
        goto out;
    if (r.state == SCHED_UNKNOWN)
        *out = (struct sched_ending){.why = SCHED_END_UNKNOWN};
    else
        *out = (struct sched_ending){
            .why = end_of(&r),
            .limit_at = r.state == SCHED_RUNNING && r.time_limit_s > 0
                            ? r.started_at + r.time_limit_s
                            : 0,
            .limit_s = r.time_limit_s};
out:
    arena_reset(&l->spool.texts);
    return rc;
}

/* ---- inside a job ---- */

static int local_step_start_op(struct sched *s, const struct sched_step_spec *spec,
                               struct sched_step **out, struct err *err)
{
    struct local *l = local_of(s);
    struct sched_self self = {0};
    struct arena texts = {0};
    const char **env = NULL;
    bool changed;
    int rc = local_machine_now(&l->spool, &l->steps.machine, &changed, err);
    if (rc < 0)
        return rc;
    l->steps.cores = sched_self(s, &self, NULL) == 0 ? self.cores_per_node : l->steps.machine.cores;
    if ((rc = local_step_env("local", &self, spec->env, &texts, &env, err)) == 0)
        rc = local_step_start(&l->steps, spec, env, out, err);
    free(env);
    arena_release(&texts);
    return rc;
}

/* ---- the table of calls ---- */

static void local_close(struct sched *s)
{
    local_spool_release(&local_of(s)->spool);
    free(s);
}

static const struct sched_ops local_ops = {
    .kind = "local",
    .describe = local_describe,
    .submit = local_submit,
    .check = local_check,
    .script = local_script,
    .poll = local_poll,
    .signal = local_signal,
    .requeue = local_requeue,
    .ending = local_ending,
    .cancel = local_cancel,
    .step_start = local_step_start_op,
    .step_poll = local_step_poll,
    .step_signal = local_step_signal,
    .step_free = local_step_free,
    .close = local_close,
};

static int spool_open(struct local *l, const char *home, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    struct local_machine m;
    bool changed;
    int rc;
    if ((size_t)snprintf(dir, sizeof dir, "%s/sched/local/%s", home, clock_host()) >= sizeof dir)
        return err_set(err, ERR_LIMIT,
                       "the state folder's path is too long: choose a shorter REEL_HOME");
    if ((rc = local_spool_init(&l->spool, dir, err)) < 0)
        return rc;
    /* Bad settings are reported now and not with the first job. */
    return local_machine_now(&l->spool, &m, &changed, err);
}

int sched_local_open(const char *home, struct sched **out, struct err *err)
{
    struct local *l = calloc(1, sizeof *l);
    int rc;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory for the local scheduler");
    l->base.ops = &local_ops;
    l->base.absence_s = 1.5;
    l->steps.spool = &l->spool;
    l->steps.ops = &local_ops;
    if ((rc = spool_open(l, home, err)) < 0)
        local_close(&l->base);
    else
        *out = &l->base;
    return rc;
}
