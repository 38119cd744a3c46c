#include "launcher/submit/control.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/lease.h"
#include "base/log.h"
#include "launcher/state/next.h"
#include "launcher/submit/waits.h"

/* If an agent has just recorded the run's end, its job's end is waited for this long. */
static const double LEFT_WAIT_S = 10, LEFT_LOOK_S = 0.25;
static const double SKEW_S = 30; /* between the scheduler's clock and a node's */

/* ---- live jobs of the run ---- */

static const struct run_attempt *newest(const struct run_state *s)
{
    return s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
}

/* A lease whose holder is on this host is tried for this long. A holder on another host shows by
 * renewing the lease that it lives. */
static const double LOOK_S = 0.05;

static void look_say(const char *lock)
{
    struct lease_holder h;
    if (lease_look(lock, &h) && strcmp(h.boot, clock_boot_id()) != 0)
        log_msg(LOG_INFO,
                "process %lld on host %s has this run: whether it lives shows within %.0f s",
                (long long)h.pid, h.host, LEASE_SILENT_S);
}

/* Asks whether a run without a scheduler lives: a process that holds the lease in claims/ runs
 * it. */
static int lives_by_hand(const struct launch *l, const struct run_state *state,
                         enum control_life *life, char what[STATE_TEXT_BYTES], struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct lease *lock = NULL;
    int rc = 0;
    snprintf(path, sizeof path, "%s/claims/lock", l->run_dir);
    look_say(path);
    if (file_exists(path) && (rc = lease_take(path, LOOK_S, &lock, err)) == 0)
        lease_drop(lock);
    *life = rc == ERR_BUSY ? CONTROL_LIVES : CONTROL_DEAD;
    if (*life == CONTROL_LIVES)
        snprintf(what, STATE_TEXT_BYTES, "attempt %lld runs, outside of a job",
                 (long long)(newest(state) ? newest(state)->number : 0));
    return rc == ERR_BUSY ? 0 : rc;
}

static bool job_is_ours(const struct sched_job *job, const struct run_state *state)
{
    const struct run_attempt *last = newest(state);
    const char *tokens[] = {state->token, state->job_token, state->after, last ? last->token : ""};
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        if (tokens[i][0] && strcmp(tokens[i], job->token) == 0)
            return true;
    return !job->token[0]; /* the job of a wrapped run has no token */
}

/* Tells whether the run is over and the log has the end of the newest submission's attempt. Then
 * the scheduler need not be asked. */
static bool ended_by_log(const struct run_state *s, const struct run_budget *budget)
{
    const struct run_attempt *last = newest(s);
    enum run_next next = run_state_next(s, budget, NULL);
    if (!last || last->cause == CAUSE_NONE || last->requeued_at > 0 || s->after[0] ||
        strcmp(s->token, s->job_token) != 0)
        return false;
    bool of_newest = last->token[0] ? strcmp(last->token, s->job_token) == 0
                                    : last->ended_at >= s->submitted_at;
    return of_newest && next != RUN_NEXT_WAIT && next != RUN_NEXT_REQUEUE;
}

int control_lives(const struct launch *l, struct sched *s, const struct run_state *state,
                  enum control_life *life, char what[STATE_TEXT_BYTES], struct err *err)
{
    const struct run_attempt *last = newest(state);
    const char *ids[] = {state->job_id, state->after_job, last ? last->job_id : "", NULL},
               *tokens[] = {state->token, NULL};
    struct sched_filter filter = {ids, state->token[0] ? tokens : NULL};
    struct sched_jobs jobs = {0};
    int rc;
    *life = CONTROL_DEAD;
    if (ended_by_log(state, &l->budget) || (!state->submitted_at && !state->token[0] && !last))
        return 0;
    if (!s)
        return lives_by_hand(l, state, life, what, err);
    if ((rc = sched_poll(s, &filter, &jobs, err)) < 0)
        goto out;
    for (size_t i = 0; i < jobs.n && *life != CONTROL_LIVES; i++)
        if (job_is_ours(&jobs.jobs[i], state) && !sched_state_ended(jobs.jobs[i].state)) {
            *life = jobs.jobs[i].state == SCHED_STOPPING ? CONTROL_UNSURE : CONTROL_LIVES;
            snprintf(what, STATE_TEXT_BYTES, "job %s of it is %s", jobs.jobs[i].id,
                     sched_state_name(jobs.jobs[i].state));
        }
    if (*life == CONTROL_DEAD && state->job_id[0] && !sched_jobs_find(&jobs, state->job_id) &&
        fabs(clock_wall_s() - state->last_event_at) < s->absence_s) {
        *life = CONTROL_UNSURE; /* the job is newer than the scheduler's last answer */
        snprintf(what, STATE_TEXT_BYTES, "job %s of it is not listed yet", state->job_id);
    }
out:
    sched_jobs_release(&jobs);
    return rc;
}

/* ---- left-over jobs of the run ---- */

/* Tells whether this job of a finished run is left over; one that is ending is not. A job without a
 * token that was submitted after the newest attempt began is not the run's: the scheduler has
 * reused the id. */
static bool is_left(const struct sched_job *job, const struct run_state *state)
{
    const struct run_attempt *last = newest(state);
    bool over = sched_state_ended(job->state) || job->state == SCHED_STOPPING;
    bool same = job->token[0] || (last && job->submitted_at <= last->started_at + SKEW_S);
    return !over && same && job_is_ours(job, state);
}

/* Looks for a left-over job among those that the log names. */
static int left_look(struct sched *s, const struct run_state *state, struct control_left *left,
                     struct err *err)
{
    const struct run_attempt *last = newest(state);
    const char *ids[] = {last ? last->job_id : "", state->job_id, state->after_job};
    struct sched_jobs jobs = {0};
    int rc = 0;
    left->id[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(ids) && !left->id[0]; i++) {
        if (!ids[i][0] || (i > 0 && strcmp(ids[i], ids[0]) == 0))
            continue;
        if ((rc = sched_look(s, ids[i], &jobs, err)) < 0)
            break;
        const struct sched_job *job = sched_jobs_find(&jobs, ids[i]);
        if (job && is_left(job, state)) {
            snprintf(left->id, sizeof left->id, "%s", ids[i]);
            snprintf(left->handle, sizeof left->handle, "%s", job->handle ? job->handle : ids[i]);
            left->state = job->state;
        }
    }
    sched_jobs_release(&jobs);
    return rc;
}

int control_left_over(const struct launch *l, struct sched *s, const struct run_state *state,
                      struct control_left *left, struct err *err)
{
    enum run_next next = run_state_next(state, &l->budget, NULL);
    bool over = next == RUN_NEXT_DONE || next == RUN_NEXT_FAILED || next == RUN_NEXT_CANCELLED ||
                next == RUN_NEXT_PAUSED;
    double begun_s = clock_mono_s(),
           left_s = LEFT_WAIT_S - fabs(clock_wall_s() - state->last_event_at);
    int rc = 0;
    left->id[0] = '\0';
    while (over && s && (rc = left_look(s, state, left, err)) == 0 && left->id[0] &&
           clock_mono_s() - begun_s < left_s)
        clock_sleep_s(LEFT_LOOK_S);
    return rc;
}

int control_left_over_check(const struct launch *l, struct sched *s, const struct run_state *state,
                            struct err *err)
{
    const char *name = state->name[0] ? state->name : l->run_id;
    char how[LIMIT_NAME_BYTES + 32];
    struct control_left left;
    int rc = control_left_over(l, s, state, &left, err);
    if (rc < 0)
        return err_context(err, "whether a job of run '%s' lives cannot be asked", name);
    if (!left.id[0])
        return 0;
    snprintf(how, sizeof how, l->wrapped ? "scancel %s" : "reel cancel %s",
             l->wrapped ? left.handle : name);
    return err_set(err, ERR_NO,
                   "run '%s' is %s, but its job %s is %s at the scheduler: end it by '%s'", name,
                   run_state_word(state, &l->budget), left.id, sched_state_name(left.state), how);
}

/* ---- the owner's requests ---- */

/* Writes an owner's request into the run's log, and what the scheduler says of the attempt before;
 * retry is NULL unless it is a retry. */
static int wish_put(const struct launch *l, struct sched *sched, const struct run_state *s,
                    const char *kind, const struct control_retry *retry, struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    int rc = launch_log_open(l, NULL, &log, err);
    if (rc < 0)
        return rc;
    launch_job_over_put(sched, s, log);
    launch_wish_begin(log, &e, s, kind);
    if (retry) {
        event_int(&e, retry_requested, after_attempt, newest(s) ? newest(s)->number : 0);
        event_bool(&e, retry_requested, reset_budget, retry->reset_budget);
        if (retry->exclude)
            event_text(&e, retry_requested, exclude, retry->exclude);
    }
    rc = launch_wish_commit(l, log, &e, err);
    evlog_close(log);
    return rc;
}

/* Tells whether the job is suspended. Its agent sees the owner's request when it is continued. */
static bool is_suspended(struct sched *s, const char *id)
{
    struct sched_jobs jobs = {0};
    const struct sched_job *job = sched_look(s, id, &jobs, NULL) < 0 ? NULL
                                                                     : sched_jobs_find(&jobs, id);
    bool suspended = job && job->state == SCHED_SUSPENDED;
    sched_jobs_release(&jobs);
    return suspended;
}

/* Cancels the waiting jobs, and signals the running job to save, which may take any time. The
 * waiting ones are cancelled first, because otherwise one could start in between. */
static int jobs_stop(struct sched *s, const struct run_state *state, struct err *err)
{
    const struct run_attempt *last = newest(state);
    const char *running = last && last->cause == CAUSE_NONE ? last->job_id : "";
    const char *waiting[] = {state->job_id, state->after_job};
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(waiting); i++) {
        if (!waiting[i][0] || strcmp(waiting[i], running) == 0)
            continue;
        /* A job that is not found has ended. */
        if ((rc = sched_cancel(s, waiting[i], err)) < 0 && rc != ERR_NOT_FOUND)
            return rc;
    }
    if (!running[0])
        return 0;
    rc = sched_signal(s, running, SIGUSR1, SCHED_TO_BATCH, err);
    if (rc == ERR_STATE && is_suspended(s, running))
        return 0;
    if (rc == ERR_STATE) /* it was requeued, and waits */
        rc = sched_cancel(s, running, err);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

static int pause_may(const struct run_state *state, const struct run_budget *budget,
                     enum run_next next, struct err *err)
{
    if (next == RUN_NEXT_DONE || next == RUN_NEXT_FAILED || next == RUN_NEXT_CANCELLED)
        return err_set(err, ERR_NO, "run '%s' is %s: there is nothing to pause", state->name,
                       run_state_word(state, budget));
    return 0;
}

/* Names what must happen for a run to go on. */
enum way { WAY_ITSELF, WAY_RETRY, WAY_RESUME, WAY_SCRIPT, WAY_LONGER };

/* Returns what must happen for the run to go on. In the state RUN_NEXT_REQUEUE a retry was killed
 * before it could submit, or the job was not requeued. */
static enum way way_of(const struct launch *l, const struct run_state *state,
                       enum control_life life)
{
    switch (run_state_next(state, &l->budget, NULL)) {
    case RUN_NEXT_DONE: return WAY_LONGER;
    case RUN_NEXT_PAUSED: return WAY_RESUME;
    case RUN_NEXT_WAIT: return life == CONTROL_DEAD ? WAY_RETRY : WAY_ITSELF;
    case RUN_NEXT_REQUEUE: return waits_for_owner(state, &l->budget) ? WAY_SCRIPT : WAY_RETRY;
    case RUN_NEXT_SUBMIT:
    case RUN_NEXT_FAILED:
    case RUN_NEXT_CANCELLED: break;
    }
    return WAY_RETRY;
}

/* Adds the command that lets the run go on. why: what 'reel status' says of its job. */
static void way_say(const struct launch *l, const struct run_state *state, enum way way,
                    const char *why, struct str *out)
{
    const char *name = state->name;
    if (way == WAY_ITSELF)
        str_addf(out, "%s%s'reel watch %s' follows it", why, *why ? "; " : "", name);
    else if (way == WAY_SCRIPT)
        str_addf(out, "give its 'reel wrap' command again, with --name %s", name);
    else if (way == WAY_LONGER && l->wrapped)
        str_add(out, "its 'reel wrap' command with another --name begins another");
    else if (way == WAY_LONGER)
        str_add(out, "'reel launch' with a longer run file and --extend lets it go on");
    else
        str_addf(out, "'reel %s %s' lets it go on", way == WAY_RETRY ? "retry" : "resume", name);
}

static int way_refuse(const struct launch *l, const struct run_state *state, enum way way,
                      struct err *err)
{
    char why[STATE_TEXT_BYTES];
    struct str how = STR_INIT;
    const char *word = waits_why(l->home, state, &l->budget, NULL, why);
    int rc;
    way_say(l, state, way, why, &how);
    if ((rc = str_check(&how, err)) == 0)
        rc = err_set(err, ERR_NO, "run '%s' is %s: %s", state->name, word, how.p);
    str_release(&how);
    return rc;
}

/* Checks whether this request, a resume or a retry, lets the run go on. If not, the error names the
 * command that does. ERR_BUSY: that is unknown until a job has ended or is listed. */
static int go_on_may(const struct launch *l, struct sched *s, const struct run_state *state,
                     enum control_wish wish, struct err *err)
{
    enum run_next next = run_state_next(state, &l->budget, NULL);
    enum control_life life = CONTROL_DEAD;
    char what[STATE_TEXT_BYTES];
    int rc;
    if (next == RUN_NEXT_WAIT && (rc = control_lives(l, s, state, &life, what, err)) < 0)
        return rc;
    enum way way = way_of(l, state, life);
    if (wish == CONTROL_RESUME ? way == WAY_RESUME : way == WAY_RETRY || way == WAY_SCRIPT)
        return 0;
    return life == CONTROL_UNSURE
               ? err_set(err, ERR_BUSY, "run '%s' has not ended yet: %s", state->name, what)
               : way_refuse(l, state, way, err);
}

static int wish_may(const struct launch *l, struct sched *s, const struct run_state *state,
                    enum control_wish wish, struct err *err)
{
    return wish == CONTROL_PAUSE
               ? pause_may(state, &l->budget, run_state_next(state, &l->budget, NULL), err)
               : go_on_may(l, s, state, wish, err);
}

static int pause_locked(const struct launch *l, struct sched *s, const struct run_state *state,
                        enum launch_kept *kept, struct err *err)
{
    enum run_next next = run_state_next(state, &l->budget, NULL);
    int rc = pause_may(state, &l->budget, next, err);
    if (rc < 0)
        return rc;
    if (next == RUN_NEXT_PAUSED) /* an earlier command may have been killed before the agent saw its
                                  * event */
        launch_wish_poke(l);
    else
        rc = launch_wish_keep(l, state, WISH_PAUSE, kept, err);
    if (rc < 0 || !s || l->wrapped) /* a wrapped run's job cannot be proved to be reel's */
        return rc;
    if (*kept == LAUNCH_UNSAID) /* a job that was only signalled to save would be requeued */
        return launch_jobs_cancel(s, state, err);
    rc = jobs_stop(s, state, err);
    if (rc == ERR_FULL)
        return 0; /* a job that stays in the queue will find nothing to do */
    if (rc < 0)
        err_context(err, "run '%s' is to pause, which is on record and holds; its job was not "
                         "reached", state->name);
    return rc;
}

/* Pauses a run. If the disk has no room for the lock, no other process can take it or submit, so
 * the pause goes on without it. */
int control_pause(const struct launch *l, struct sched *s, enum launch_kept *kept, struct err *err)
{
    struct run_state state;
    struct lease *lock = NULL;
    *kept = LAUNCH_LOGGED;
    run_state_init(&state);
    int rc = launch_lock(l, &lock, &state, err);
    if (rc == ERR_FULL)
        rc = run_state_load(l->run_dir, &state, err);
    if (rc < 0)
        goto out;
    rc = pause_locked(l, s, &state, kept, err);
out:
    run_state_release(&state);
    lease_drop(lock);
    return rc;
}

/* Fails while a job of the run lives or is left over. */
static int still_check(const struct launch *l, struct sched *s, const struct run_state *state,
                       struct err *err)
{
    char what[STATE_TEXT_BYTES];
    enum control_life life;
    int rc;
    if ((rc = launch_owner_check(l, err)) < 0)
        return rc;
    if ((rc = control_lives(l, s, state, &life, what, err)) < 0)
        return rc;
    if (life != CONTROL_DEAD)
        return err_set(err, ERR_BUSY, "run '%s' has not ended yet: %s", state->name, what);
    return control_left_over_check(l, s, state, err);
}

/* Adds nodes to the run's resources.exclude. */
static int list_add(struct run *run, const char *nodes, struct err *err)
{
    const char *old = run->resources.exclude;
    run->resources.exclude = arena_printf(&run->arena, "%s%s%s", old ? old : "",
                                          old && *old ? "," : "", nodes);
    return run->resources.exclude ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* Stores the list of excluded nodes, in the change that waits for the next attempt if there is
 * one. */
static int exclude_save(const struct launch *l, struct next *next, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str changes = STR_INIT;
    snprintf(path, sizeof path, "%s/run.json", l->run_dir);
    if (!next->waits)
        return run_save(&next->run, path, err);
    char *text = cJSON_PrintUnformatted(json_member(next->doc.root, "changes"));
    int rc;
    str_add(&changes, text ? text : "[]");
    free(text);
    if ((rc = str_check(&changes, err)) < 0)
        goto out;
    rc = next_save(next, &changes, l->run_dir, err);
out:
    str_release(&changes);
    return rc;
}

static int exclude_check(const struct launch *l, const struct run_state *state, struct err *err)
{
    if (l->wrapped)
        return err_set(err, ERR_INPUT,
                       "run '%s' is wrapped: give --exclude to sbatch, or write it into its job "
                       "script", state->name);
    if (strcmp(state->sched, "slurm") != 0)
        return err_set(err, ERR_INPUT, "run '%s' is not Slurm's: there are no nodes to exclude",
                       state->name);
    return 0;
}

/* Checks whether the scheduler would take the run's next job, with these nodes excluded from it and
 * from every later one (NULL: none), and with `save` stores their list. No other process reads
 * run.json then: no job lives, and this process holds the submitters' lock. */
static int job_check(const struct launch *l, struct sched *s, const struct run_state *state,
                     const char *exclude, bool save, struct err *err)
{
    struct next next = {0};
    int rc;
    if (exclude && (rc = exclude_check(l, state, err)) < 0)
        return rc;
    if (l->wrapped || !s)
        return 0;
    if ((rc = next_load(l->run_dir, &next, err)) < 0)
        return rc;
    if (exclude && (rc = list_add(&next.run, exclude, err)) < 0)
        goto out;
    if ((rc = launch_check(l, s, &next.run, NULL, err)) < 0)
        goto out;
    rc = exclude && save ? exclude_save(l, &next, err) : 0;
out:
    next_release(&next);
    return rc;
}

int control_may(const struct launch *l, struct sched *s, const struct run_state *state,
                enum control_wish wish, const struct control_retry *how, struct err *err)
{
    char what[STATE_TEXT_BYTES];
    enum control_life life;
    int rc = wish_may(l, s, state, wish, err);
    if (rc < 0 || wish == CONTROL_PAUSE)
        return rc;
    if ((rc = launch_owner_check(l, err)) < 0)
        return rc;
    if ((rc = control_lives(l, s, state, &life, what, err)) < 0)
        return rc;
    /* The caller waits for the end of a job that lives. */
    if (life == CONTROL_DEAD && (rc = control_left_over_check(l, s, state, err)) < 0)
        return rc;
    return job_check(l, s, state, how ? how->exclude : NULL, false, err);
}

int control_resume(const struct launch *l, struct sched *s, struct err *err)
{
    struct run_state state;
    struct lease *lock = NULL;
    int rc;
    run_state_init(&state);
    if ((rc = launch_lock(l, &lock, &state, err)) < 0)
        goto out;
    if ((rc = wish_may(l, s, &state, CONTROL_RESUME, err)) < 0)
        goto out;
    if ((rc = still_check(l, s, &state, err)) < 0)
        goto out;
    if ((rc = job_check(l, s, &state, NULL, false, err)) < 0)
        goto out;
    rc = wish_put(l, s, &state, EVENT_NAME(resume_requested), NULL, err);
out:
    run_state_release(&state);
    lease_drop(lock);
    return rc;
}

static int retry_locked(const struct launch *l, struct sched *s, const struct run_state *state,
                        const struct control_retry *how, struct err *err)
{
    int rc;
    if ((rc = wish_may(l, s, state, CONTROL_RETRY, err)) < 0)
        return rc;
    if ((rc = still_check(l, s, state, err)) < 0)
        return rc;
    if ((rc = job_check(l, s, state, how->exclude, true, err)) < 0)
        return rc;
    return wish_put(l, s, state, EVENT_NAME(retry_requested), how, err);
}

int control_retry(const struct launch *l, struct sched *s, const struct control_retry *how,
                  struct err *err)
{
    struct run_state state;
    struct lease *lock = NULL;
    int rc;
    run_state_init(&state);
    if ((rc = launch_lock(l, &lock, &state, err)) < 0)
        goto out;
    rc = retry_locked(l, s, &state, how, err);
out:
    run_state_release(&state);
    lease_drop(lock);
    return rc;
}
