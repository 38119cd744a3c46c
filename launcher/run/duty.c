#include "launcher/run/duty.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/run/limit.h"
#include "launcher/run/trainer.h"
#include "launcher/state/next.h"
#include "launcher/state/wish_name.h"

static const double PAUSE_MOST_S = 30;

/* Holds a request that is repeated until the scheduler answers or ends the job. The controller may
 * be down for long, and the program that asks it (scontrol, squeue) may die of the signal that ends
 * all processes of a job. If nobody follows the run, no other process would bring it back. */
struct quest {
    const char *what; /* completes a sentence: "to requeue the job" */
    double begun_s, pause_s;
    int64_t tries;
};

static struct quest quest_begin(const char *what)
{
    return (struct quest){.what = what, .begun_s = clock_mono_s(), .pause_s = 1};
}

/* Tells whether the owner has paused or cancelled the run; false if the run cannot be read. Another
 * process may write that meanwhile, in a log or a file name of its own, and the fold reads it in
 * addition. Renewing the fold would drop what run_fold_suppose added to it, on which a decision may
 * rest, and would lose the run while its file system is away. */
static bool is_unwanted(const struct duty *d)
{
    return run_fold_update(d->fold, NULL) == 0 && run_fold_state(d->fold)->wish != WISH_RUN;
}

/* Writes the event of a request that failed: how often and for how long it was repeated, and why it
 * failed. */
static void event_vain(const struct duty *d, const struct quest *q, bool refused,
                       const struct err *why)
{
    struct evlog_event e;
    if (!d->teller || !d->teller->log)
        return;
    event_begin(d->teller->log, &e, asked_in_vain);
    event_text(&e, asked_in_vain, what, q->what);
    event_text(&e, asked_in_vain, job_id, d->self.id);
    event_int(&e, asked_in_vain, tries, q->tries);
    event_num(&e, asked_in_vain, for_s, clock_mono_s() - q->begun_s);
    event_bool(&e, asked_in_vain, refused, refused);
    event_text(&e, asked_in_vain, why, why->text);
    attempt_event(d->teller, &e);
}

/* Decides whether a failed request is to be repeated, and sleeps before that; the pause doubles
 * each time, up to PAUSE_MOST_S. Failures 1, 2, 4, 8 … are written as events. */
static bool again_later(const struct duty *d, struct quest *q, int rc, const struct err *why)
{
    if (rc != ERR_FULL && rc != ERR_TEMP && rc != ERR_BUSY)
        return false;
    q->tries++;
    if ((q->tries & (q->tries - 1)) == 0)
        event_vain(d, q, false, why);
    clock_sleep_s(q->pause_s);
    q->pause_s = fmin(2 * q->pause_s, PAUSE_MOST_S);
    return true;
}

int duty_ending(struct duty *d, bool patient, struct sched_ending *out)
{
    struct err err = {0};
    struct quest q = quest_begin("why the job ends");
    int rc;
    *out = (struct sched_ending){0};
    if (!d->sched)
        return 0;
    do
        rc = sched_ending(d->sched, d->self.id, out, &err);
    while (patient && !(rc < 0 && is_unwanted(d)) && again_later(d, &q, rc, &err));
    if (rc < 0) {
        out->why = SCHED_END_UNKNOWN;
        log_msg(LOG_WARN, "why job %s ends, or when, is not known: %s", d->self.id, err.text);
    }
    return rc;
}

/* Asks the scheduler for the job's time limit. This may differ from the limit of the submission: it
 * may be the partition's, or changed since. */
static void limit_find(struct duty *d)
{
    struct sched_ending ending;
    d->limit_known = duty_ending(d, false, &ending) == 0;
    if (ending.limit_at > 0)
        d->time_limit_s = limit_left_s(&ending, 0);
}

bool duty_outdated(const struct duty *d, const char *run_dir)
{
    return d->sched && d->kind->changes && next_needs_job(run_dir, next_revision_here());
}

int duty_changes_take(struct duty *d, struct attempt *attempt, const struct run_state *state,
                      struct err *err)
{
    int64_t revision = 0, steps = num_max_i64(state->max_step + 1, state->saved_step);
    struct evlog_event e;
    struct err why = {0};
    if (!d->kind->changes || duty_outdated(d, attempt->run_dir))
        return 0;
    if (next_take(attempt->run_dir, steps, &revision, &why) < 0)
        log_msg(LOG_WARN, "what was changed does not hold yet: %s", why.text);
    if (revision == 0)
        return 0;
    event_begin(attempt->log, &e, change_taken);
    event_int(&e, change_taken, revision, revision);
    event_int(&e, change_taken, from_step, steps);
    attempt_event(attempt, &e);
    run_release(&d->run);
    return d->kind->load(d, attempt->run_dir, err);
}

const struct trainer_kind *duty_kind(const char *run_dir)
{
    return wrap_is(run_dir) ? &trainer_foreign : &trainer_ours;
}

int duty_job(struct duty *d, const struct trainer_kind *kind, const char *home, struct err *err)
{
    d->kind = kind;
    return d->steps ? 0 : kind->job(d, home, err);
}

int duty_load(struct duty *d, const char *run_dir, const char *home, struct err *err)
{
    const struct trainer_kind *kind = duty_kind(run_dir);
    int rc;
    if ((rc = kind->load(d, run_dir, err)) < 0)
        return rc;
    if ((rc = duty_job(d, kind, home, err)) < 0)
        return rc;
    limit_find(d);
    return 0;
}

void duty_release(struct duty *d)
{
    if (d->sched != d->steps)
        sched_close(d->sched);
    sched_close(d->steps);
    run_release(&d->run);
    wrap_release(&d->wrap);
    *d = (struct duty){0};
}

/* Cancels this process's own job, unless its next execution already runs under the same id. */
static int own_cancel(struct duty *d, struct err *err)
{
    struct sched_jobs jobs = {0};
    int rc;
    if ((rc = sched_look(d->sched, d->self.id, &jobs, err)) < 0)
        goto out;
    const struct sched_job *job = sched_jobs_find(&jobs, d->self.id);
    if (job && job->restarts == d->self.restarts)
        rc = sched_cancel(d->sched, d->self.id, err);
out:
    sched_jobs_release(&jobs);
    return rc;
}

void duty_end(struct duty *d)
{
    struct err err = {0};
    struct quest q = quest_begin("to end the job");
    int rc;
    if (!d->sched)
        return;
    do
        rc = own_cancel(d, &err);
    while (again_later(d, &q, rc, &err));
    if (rc < 0)
        log_msg(LOG_WARN, "job %s is left in the queue until its time limit ends it: %s",
                d->self.id, err.text);
}

/* Requeues this process's own job. Returns whether the scheduler accepted that. */
static bool requeue(struct duty *d)
{
    char job[SCHED_ID_BYTES + 8];
    struct err err = {0};
    struct quest q = quest_begin("to requeue the job");
    int rc;
    do
        if ((rc = sched_requeue(d->sched, d->self.id, &err)) == ERR_FULL || rc == ERR_TEMP ||
            rc == ERR_BUSY)
            log_msg(LOG_WARN, "cannot requeue job %s yet: %s", d->self.id, err.text);
    while (again_later(d, &q, rc, &err) && !is_unwanted(d));
    if (rc == 0) {
        d->requeued_mono = clock_mono_s();
        return true;
    }
    snprintf(job, sizeof job, "job %s ", d->self.id);
    /* Most refusals name the job and say what it may not. */
    bool named = str_starts(err.text, job);
    log_msg(LOG_WARN, "%s%s%s", named ? "" : "cannot requeue ", named ? "" : job, err.text);
    event_vain(d, &q, rc != ERR_FULL && rc != ERR_TEMP && rc != ERR_BUSY, &err);
    return false;
}

void duty_requeue(struct duty *d, struct attempt *attempt)
{
    if (d->sched && requeue(d) && attempt->log)
        attempt_requeued(attempt, d->self.id);
}

/* Finds out whether the scheduler has forgotten the requeue. If so, it still shows the execution
 * that asked for the requeue as running. */
static int requeue_look(struct duty *d, bool *forgotten, struct err *err)
{
    struct sched_jobs jobs = {0};
    int rc = sched_look(d->sched, d->self.id, &jobs, err);
    const struct sched_job *job = rc < 0 ? NULL : sched_jobs_find(&jobs, d->self.id);
    *forgotten = job && job->state == SCHED_RUNNING && job->restarts == d->self.restarts;
    sched_jobs_release(&jobs);
    return rc;
}

/* Tells whether the requeue must be requested once more because the scheduler has forgotten it. */
static bool is_forgotten(struct duty *d)
{
    struct err err = {0};
    struct quest q = quest_begin("whether the job runs again");
    bool forgotten = false;
    int rc;
    clock_sleep_s(fmax(0, d->requeued_mono + d->sched->settle_s - q.begun_s));
    do
        rc = requeue_look(d, &forgotten, &err);
    while (again_later(d, &q, rc, &err));
    if (rc < 0)
        log_msg(LOG_WARN, "whether job %s runs again is not known: %s", d->self.id, err.text);
    return forgotten;
}

void duty_requeue_settle(struct duty *d)
{
    if (!d->sched || d->sched->settle_s <= 0)
        return;
    while (d->requeued_mono > 0 && is_forgotten(d) && !is_unwanted(d)) {
        log_msg(LOG_WARN, "the scheduler does not know any more that job %s is to run again: "
                          "it is requeued once more", d->self.id);
        d->requeued_mono = 0;
        requeue(d);
    }
}

bool duty_cancelled(struct duty *d, const char *run_dir, struct run_state *s,
                    struct sched_ending *ending)
{
    struct err err = {0};
    if (duty_ending(d, true, ending) < 0 || ending->why != SCHED_END_CANCELLED)
        return false;
    if (s->wish != WISH_RUN) /* whoever paused or cancelled the run has cancelled its job too */
        return true;
    struct wish_name m = wish_name_make(s, WISH_CANCEL, true);
    if (wish_name_put(run_dir, &m, &err) < 0)
        log_msg(LOG_WARN, "that job %s was cancelled is not on record: %s", d->self.id, err.text);
    wish_name_apply(&m, s);
    return true;
}

void duty_give_back(struct duty *d, struct attempt *attempt, bool term)
{
    struct sched_ending ending;
    int rc = run_fold_renew(d->fold, NULL);
    struct run_state *state = run_fold_suppose(d->fold);
    if (rc == 0 && state->wish != WISH_RUN)
        log_msg(LOG_INFO, "run %s is %s: job %s is not requeued", state->run,
                run_state_word(state, &d->budget), d->self.id);
    else if (duty_cancelled(d, attempt->run_dir, state, &ending))
        log_msg(LOG_INFO, "job %s is not requeued: it was cancelled at the scheduler", d->self.id);
    else if (term && ending.why == SCHED_END_UNKNOWN)
        log_msg(LOG_WARN, "job %s is not requeued: it was being ended, and the scheduler does not "
                          "say who by", d->self.id);
    else
        duty_requeue(d, attempt);
}
