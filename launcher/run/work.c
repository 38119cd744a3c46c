#include "launcher/run/work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/run/limit.h"
#include "launcher/run/mark.h"
#include "launcher/run/next.h"
#include "launcher/run/trainer.h"

static const double PAUSE_MOST_S = 30;

/* A question to the scheduler that is put until it answers, or until it ends the job. The
 * controller may be away for long, and what asks it may die of the signal that ends all processes
 * of a job; a run without a follower has nobody else to bring it back. */
struct quest {
    const char *what; /* "to requeue the job" */
    double begun_s, pause_s;
    int64_t tries;
};

static struct quest quest_begin(const char *what)
{
    return (struct quest){.what = what, .begun_s = clock_mono_s(), .pause_s = 1};
}

/* Has its owner paused or cancelled the run? If that cannot be read, it counts as wanted. */
static bool is_unwanted(const char *run_dir)
{
    struct run_state now;
    run_state_init(&now);
    bool unwanted = run_state_load(run_dir, &now, NULL) == 0 && now.wish != WISH_RUN;
    run_state_release(&now);
    return unwanted;
}

/* Writes down that it was asked so often, and what came of it. */
static void event_vain(const struct work *w, const struct quest *q, bool refused,
                       const struct err *why)
{
    struct evlog_event e;
    if (!w->teller || !w->teller->log)
        return;
    event_begin(w->teller->log, &e, asked_in_vain);
    event_text(&e, asked_in_vain, what, q->what);
    event_text(&e, asked_in_vain, job_id, w->self.id);
    event_int(&e, asked_in_vain, tries, q->tries);
    event_num(&e, asked_in_vain, for_s, clock_mono_s() - q->begun_s);
    event_bool(&e, asked_in_vain, refused, refused);
    event_text(&e, asked_in_vain, why, why->text);
    attempt_event(w->teller, &e);
}

/* Should the question be put again, after a pause that doubles each time? Every second try is told,
 * then every fourth, and so on. */
static bool again_later(const struct work *w, struct quest *q, int rc, const struct err *why)
{
    if (rc != ERR_FULL && rc != ERR_TEMP && rc != ERR_BUSY)
        return false;
    q->tries++;
    if ((q->tries & (q->tries - 1)) == 0)
        event_vain(w, q, false, why);
    clock_sleep_s(q->pause_s);
    q->pause_s = fmin(2 * q->pause_s, PAUSE_MOST_S);
    return true;
}

int work_ending(struct work *w, bool patient, struct sched_ending *out)
{
    struct err err = {0};
    struct quest q = quest_begin("why the job ends");
    const char *run_dir = w->teller ? w->teller->run_dir : NULL;
    int rc;
    *out = (struct sched_ending){0};
    if (!w->sched)
        return 0;
    do
        rc = sched_ending(w->sched, w->self.id, out, &err);
    while (patient && !(rc < 0 && run_dir && is_unwanted(run_dir)) &&
           again_later(w, &q, rc, &err));
    if (rc < 0) {
        out->why = SCHED_END_UNKNOWN;
        log_msg(LOG_WARN, "why job %s ends, or when, is not known: %s", w->self.id, err.text);
    }
    return rc;
}

/* Finds the job's time limit. What was asked for is one thing, the job's own end another: it may be
 * the partition's limit, or a limit that somebody changed. */
static void limit_find(struct work *w)
{
    struct sched_ending ending;
    w->limit_known = work_ending(w, false, &ending) == 0;
    if (ending.limit_at > 0)
        w->time_limit_s = limit_left_s(&ending, 0);
}

bool work_outdated(const struct work *w, const char *run_dir)
{
    return w->sched && w->kind->changes && next_needs_job(run_dir, next_revision_here());
}

int work_changes_take(struct work *w, struct attempt *attempt, const struct run_state *state,
                      struct err *err)
{
    int64_t revision = 0, steps = num_max_i64(state->max_step + 1, state->saved_step);
    struct evlog_event e;
    struct err why = {0};
    if (!w->kind->changes || work_outdated(w, attempt->run_dir))
        return 0;
    if (next_take(attempt->run_dir, steps, &revision, &why) < 0)
        log_msg(LOG_WARN, "what was changed does not hold yet: %s", why.text);
    if (revision == 0)
        return 0;
    event_begin(attempt->log, &e, change_taken);
    event_int(&e, change_taken, revision, revision);
    event_int(&e, change_taken, from_step, steps);
    attempt_event(attempt, &e);
    run_release(&w->run);
    return w->kind->load(w, attempt->run_dir, err);
}

const struct trainer_kind *work_kind(const char *run_dir)
{
    return wrap_is(run_dir) ? &trainer_foreign : &trainer_ours;
}

int work_job(struct work *w, const struct trainer_kind *kind, const char *home, struct err *err)
{
    w->kind = kind;
    return w->steps ? 0 : kind->job(w, home, err);
}

int work_load(struct work *w, const char *run_dir, const char *home, struct err *err)
{
    const struct trainer_kind *kind = work_kind(run_dir);
    int rc;
    if ((rc = kind->load(w, run_dir, err)) < 0)
        return rc;
    if ((rc = work_job(w, kind, home, err)) < 0)
        return rc;
    limit_find(w);
    return 0;
}

void work_release(struct work *w)
{
    if (w->sched != w->steps)
        sched_close(w->sched);
    sched_close(w->steps);
    run_release(&w->run);
    wrap_release(&w->wrap);
    *w = (struct work){0};
}

/* Cancels the own job. Its next execution may already run under its id: that is not ours to end. */
static int own_cancel(struct work *w, struct err *err)
{
    struct sched_jobs jobs = {0};
    int rc;
    if ((rc = sched_look(w->sched, w->self.id, &jobs, err)) < 0)
        goto out;
    const struct sched_job *job = sched_jobs_find(&jobs, w->self.id);
    if (job && job->restarts == w->self.restarts)
        rc = sched_cancel(w->sched, w->self.id, err);
out:
    sched_jobs_release(&jobs);
    return rc;
}

void work_end(struct work *w)
{
    struct err err = {0};
    struct quest q = quest_begin("to end the job");
    int rc;
    if (!w->sched)
        return;
    do
        rc = own_cancel(w, &err);
    while (again_later(w, &q, rc, &err));
    if (rc < 0)
        log_msg(LOG_WARN, "job %s is left in the queue until its time limit ends it: %s",
                w->self.id, err.text);
}

/* Returns whether the scheduler took it. */
static bool requeue(struct work *w, const char *run_dir)
{
    struct err err = {0};
    struct quest q = quest_begin("to requeue the job");
    int rc;
    do
        if ((rc = sched_requeue(w->sched, w->self.id, &err)) == ERR_FULL || rc == ERR_TEMP ||
            rc == ERR_BUSY)
            log_msg(LOG_WARN, "cannot requeue job %s yet: %s", w->self.id, err.text);
    while (again_later(w, &q, rc, &err) && !is_unwanted(run_dir));
    if (rc == 0) {
        w->requeued_mono = clock_mono_s();
        return true;
    }
    log_msg(LOG_WARN, "cannot requeue job %s: %s", w->self.id, err.text);
    event_vain(w, &q, rc != ERR_FULL && rc != ERR_TEMP && rc != ERR_BUSY, &err);
    return false;
}

void work_requeue(struct work *w, struct attempt *attempt)
{
    if (w->sched && requeue(w, attempt->run_dir) && attempt->log)
        attempt_requeued(attempt, w->self.id);
}

/* Does the scheduler have the job in the execution that asked to run again, as if it had not? */
static int requeue_look(struct work *w, bool *forgotten, struct err *err)
{
    struct sched_jobs jobs = {0};
    int rc = sched_look(w->sched, w->self.id, &jobs, err);
    const struct sched_job *job = rc < 0 ? NULL : sched_jobs_find(&jobs, w->self.id);
    *forgotten = job && job->state == SCHED_RUNNING && job->restarts == w->self.restarts;
    sched_jobs_release(&jobs);
    return rc;
}

/* Returns whether it is to be asked once more. */
static bool is_forgotten(struct work *w)
{
    struct err err = {0};
    struct quest q = quest_begin("whether the job runs again");
    bool forgotten = false;
    int rc;
    clock_sleep_s(fmax(0, w->requeued_mono + w->sched->settle_s - q.begun_s));
    do
        rc = requeue_look(w, &forgotten, &err);
    while (again_later(w, &q, rc, &err));
    if (rc < 0)
        log_msg(LOG_WARN, "whether job %s runs again is not known: %s", w->self.id, err.text);
    return forgotten;
}

void work_requeue_settle(struct work *w, const char *run_dir)
{
    if (!w->sched || w->sched->settle_s <= 0)
        return;
    while (w->requeued_mono > 0 && is_forgotten(w) && !is_unwanted(run_dir)) {
        log_msg(LOG_WARN, "the scheduler does not know any more that job %s is to run again: "
                          "it is requeued once more", w->self.id);
        w->requeued_mono = 0;
        requeue(w, run_dir);
    }
}

bool work_cancelled(struct work *w, const char *run_dir, struct run_state *s,
                    struct sched_ending *ending)
{
    struct err err = {0};
    if (work_ending(w, true, ending) < 0 || ending->why != SCHED_END_CANCELLED)
        return false;
    struct mark m = mark_make(s, WISH_CANCEL, true);
    if (s->wish != WISH_CANCEL && mark_put(run_dir, &m, &err) < 0)
        log_msg(LOG_WARN, "that job %s was cancelled is not on record: %s", w->self.id, err.text);
    mark_apply(&m, s);
    return true;
}

void work_give_back(struct work *w, struct attempt *attempt, bool term)
{
    struct run_state state;
    struct sched_ending ending;
    run_state_init(&state);
    int rc = run_state_load(attempt->run_dir, &state, NULL);
    if (rc == 0 && state.wish != WISH_RUN)
        log_msg(LOG_INFO, "run %s is %s: job %s is not requeued", state.run,
                run_state_word(&state, &w->budget), w->self.id);
    else if (work_cancelled(w, attempt->run_dir, &state, &ending))
        log_msg(LOG_INFO, "job %s is not requeued: it was cancelled at the scheduler", w->self.id);
    else if (term && ending.why == SCHED_END_UNKNOWN)
        log_msg(LOG_WARN, "job %s is not requeued: it was being ended, and the scheduler does not "
                          "say who by", w->self.id);
    else
        work_requeue(w, attempt);
    run_state_release(&state);
}
