/* This file follows a run: it watches the run's jobs at the scheduler, and submits another when
 * they are lost. */
#include "launcher/submit/launch.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/log.h"

/* This many polls in a row must show that a job has ended before it counts as lost, because its log
 * may lag behind. */
enum { ENDED_POLLS = 3 };
static const double FOLLOW_EVERY_S = 0.5;
static const double SETTLE_S = 60; /* how long launch_settle waits for a scheduler to answer */
static const double UNLISTED_S = 15; /* a job is missing from the list for this long before the user
                                      * is told */

/* Holds the state of one of the run's jobs at the scheduler. */
struct watched {
    char id[STATE_JOB_BYTES];
    int ended;           /* number of polls in a row that showed the job as ended */
    double absent_since; /* since when the job is not listed, monotonic s; -1: the last answer
                          * listed it */
    /* over: the job has ended or is gone for good. vanished: it is not listed, perhaps because the
     * controller lost its state. */
    bool over, vanished;
    const char *word;
};

struct follow {
    const struct launch *l;
    struct sched *s;
    struct sched_jobs jobs;
    struct run_fold *fold;
    struct watched newest, before; /* the newest submission's job, and the job whose end it waits
                                    * for */
    bool lost;                     /* no job of the run is left at the scheduler */
    bool silent;                   /* the scheduler did not answer the last request */
    const char *job_state;
};

static void watched_reset(struct watched *w, const char *id)
{
    *w = (struct watched){.absent_since = -1, .word = ""};
    snprintf(w->id, sizeof w->id, "%s", id);
}

/* Updates *w from the scheduler's answer. A job with our id and another token belongs to another
 * submission. */
static void watched_look(struct watched *w, const struct follow *f, const char *id,
                         const char *token)
{
    if (strcmp(w->id, id) != 0)
        watched_reset(w, id);
    const struct sched_job *job = id[0] ? sched_jobs_find(&f->jobs, id) : NULL;
    if (job && token[0] && strcmp(job->token, token) != 0)
        job = NULL;
    w->word = job ? sched_state_name(job->state) : "not listed";
    w->ended = job && sched_state_ended(job->state) ? w->ended + 1 : 0;
    if (job || w->absent_since < 0)
        w->absent_since = job ? -1 : clock_mono_s();
    w->vanished = !job;
    w->over = !id[0] || w->ended >= ENDED_POLLS ||
              (!job && clock_mono_s() - w->absent_since >= f->s->absence_s);
}

static bool watched_lives(const struct watched *w)
{
    return w->id[0] && !w->vanished && w->ended == 0;
}

static bool may_help_later(int rc)
{
    return rc == ERR_TEMP || rc == ERR_BUSY || rc == ERR_TIMEOUT;
}

/* Asks the scheduler about the run's jobs. f->lost: neither the newest job nor the one before it
 * can run the run any more. */
static int job_look(struct follow *f, const struct run_state *state, struct err *err)
{
    const char *ids[] = {state->job_id, state->after_job[0] ? state->after_job : NULL, NULL};
    struct sched_filter filter = {ids, NULL};
    f->job_state = "";
    if (!f->s || !state->job_id[0])
        return 0;
    int rc = sched_poll(f->s, &filter, &f->jobs, err);
    f->silent = may_help_later(rc);
    if (rc < 0)
        return rc;
    watched_look(&f->newest, f, state->job_id, state->job_token);
    watched_look(&f->before, f, state->after_job, state->after);
    f->job_state = watched_lives(&f->before) ? f->before.word : f->newest.word;
    f->lost = f->newest.over && f->before.over;
    return 0;
}

/* Returns the error for a job that ended before its agent could claim an attempt. The error names
 * the log to read, because such a job is not requeued. */
static int no_attempt(const struct launch *l, const struct run_state *state, struct err *err)
{
    return err_set(err, ERR_CHILD, "job %s ended before it began an attempt: see %s/logs/agent.log",
                   state->job_id, l->run_dir);
}

static bool is_over(enum run_next next)
{
    return next == RUN_NEXT_DONE || next == RUN_NEXT_FAILED || next == RUN_NEXT_CANCELLED ||
           next == RUN_NEXT_PAUSED;
}

/* Tells whether the agent has recorded how the newest attempt ended. The trainer's event that the
 * run is done comes a moment earlier. */
static bool end_told(const struct run_state *s)
{
    return s->n_attempts == 0 || s->attempts[s->n_attempts - 1].cause != CAUSE_NONE;
}

/* Checks whether somebody cancelled this job at the scheduler, and records that, unless the owner
 * has made a request since the submission. */
static int cancelled_note(struct follow *f, const struct run_state *state, const char *job,
                          bool *noted, struct err *err)
{
    struct sched_ending ending;
    struct evlog *log = NULL;
    struct evlog_event e;
    char by[STATE_TEXT_BYTES];
    int rc;
    *noted = false;
    if (state->wish_turn > 0 && state->wish_at >= state->submitted_wall)
        return 0; /* the owner has paused or resumed the run since */
    if ((rc = sched_ending(f->s, job, &ending, err)) < 0)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    if (ending.why != SCHED_END_CANCELLED)
        return 0;
    snprintf(by, sizeof by, "job %s was cancelled at the scheduler%s%s", job,
             ending.who[0] ? " by " : "", ending.who);
    if ((rc = launch_log_open(f->l, NULL, &log, err)) < 0)
        return rc;
    launch_wish_begin(log, &e, state, EVENT_NAME(cancel_requested));
    event_text(&e, cancel_requested, by, by);
    rc = launch_wish_commit(f->l, log, &e, err);
    *noted = rc == 0;
    evlog_close(log);
    return rc;
}

/* Looks once, and submits another job if the run's job is lost. over: the run needs no more
 * looks. */
static int follow_once(struct follow *f, int64_t *attempts_at_submit, enum run_next *next,
                       bool *over, struct err *err)
{
    int rc = run_fold_update(f->fold, err);
    const struct run_state *state = run_fold_state(f->fold);
    bool noted;
    if (rc < 0)
        return rc;
    *next = run_state_next(state, &f->l->budget, NULL);
    *over = is_over(*next) && (!f->s || !state->job_id[0] || end_told(state));
    if (*over)
        return 0;
    /* If the scheduler gives no answer, or one that is not understood, go on watching. */
    if ((rc = job_look(f, state, err)) < 0)
        return may_help_later(rc) || rc == ERR_CHILD ? 0 : rc;
    if (!f->s || !f->lost)
        return 0;
    *over = is_over(*next);
    if (*over)
        return 0;
    if ((rc = cancelled_note(f, state, state->job_id, &noted, err)) < 0 || noted)
        return may_help_later(rc) ? 0 : rc; /* the next look folds the event */
    if (state->n_attempts <= *attempts_at_submit && !f->newest.vanished)
        return no_attempt(f->l, state, err);
    *attempts_at_submit = state->n_attempts;
    watched_reset(&f->newest, "");
    watched_reset(&f->before, "");
    f->lost = false;
    /* The fold may change while we wait for the lock, because another process may submit the next
     * job; so the token of the job that was looked at is copied. */
    char token[ID_TEXT_BYTES];
    snprintf(token, sizeof token, "%s", state->job_token);
    /* If this fails the intent stays open, and is taken up when the job is found lost again. */
    rc = launch_submit(f->l, f->s, token, err);
    return may_help_later(rc) ? 0 : rc;
}

int launch_follow(const struct launch *l, struct sched *s, const volatile int *stop,
                  launch_show_fn *show, void *ctx, enum run_next *next, struct err *err)
{
    struct follow f = {.l = l, .s = s, .job_state = ""};
    int64_t attempts_at_submit = -1;
    bool over = false;
    int rc;
    watched_reset(&f.newest, "");
    watched_reset(&f.before, "");
    if ((rc = run_fold_open(l->run_dir, &f.fold, err)) < 0)
        goto out;
    for (;;) {
        if ((rc = follow_once(&f, &attempts_at_submit, next, &over, err)) < 0)
            goto out;
        if (attempts_at_submit < 0)
            attempts_at_submit = 0;
        if (show)
            show(ctx, run_fold_state(f.fold), &l->budget, f.job_state);
        if (over || *stop)
            break;
        clock_sleep_s(FOLLOW_EVERY_S);
    }
out:
    sched_jobs_release(&f.jobs);
    run_fold_close(f.fold);
    return rc;
}

/* Checks whether a job that is still listed is being cancelled, and records that: the newest job,
 * or the one whose attempt runs. Without an answer from the scheduler the job counts as alive. */
static bool dying_note(struct follow *f)
{
    const struct run_state *state = run_fold_state(f->fold);
    const char *running = end_told(state) ? "" : state->attempts[state->n_attempts - 1].job_id;
    bool noted = false;
    if (watched_lives(&f->newest))
        cancelled_note(f, state, f->newest.id, &noted, NULL);
    if (!noted && watched_lives(&f->before) && strcmp(f->before.id, running) == 0)
        cancelled_note(f, state, f->before.id, &noted, NULL);
    return noted;
}

struct warned { bool silent, unlisted; }; /* Says which warnings the user has got. */

/* Warns the user, once for each reason, why the start of the run is delayed. */
static void waiting_tell(const struct follow *f, double until_s, struct warned *warned)
{
    double now = clock_mono_s();
    bool unlisted = f->newest.vanished && now - f->newest.absent_since >= UNLISTED_S;
    if (f->silent && !warned->silent)
        log_msg(LOG_WARN,
                "the scheduler does not say how the run's job stands: it is asked again for "
                "%.0f s at most", until_s - now);
    if (unlisted && !warned->unlisted)
        log_msg(LOG_WARN,
                "the scheduler does not list job %s: if that stays so for %g s another is "
                "submitted", f->newest.id, f->s->absence_s);
    warned->silent = warned->silent || f->silent;
    warned->unlisted = warned->unlisted || unlisted;
}

int launch_settle(const struct launch *l, struct sched *s, enum run_next *next, struct err *err)
{
    struct follow f = {.l = l, .s = s, .job_state = ""};
    /* The user asks for this run now, so a job that began no attempt is replaced once, too. */
    int64_t attempts_at_submit = -1;
    double until_s = clock_mono_s() + s->absence_s + SETTLE_S;
    struct warned warned = {0};
    bool over = false;
    int rc;
    watched_reset(&f.newest, "");
    watched_reset(&f.before, "");
    if ((rc = run_fold_open(l->run_dir, &f.fold, err)) < 0)
        goto out;
    for (;;) {
        if ((rc = follow_once(&f, &attempts_at_submit, next, &over, err)) < 0)
            goto out;
        bool alive = watched_lives(&f.newest) || watched_lives(&f.before);
        if (over || is_over(*next) || (alive && !dying_note(&f)))
            break;
        waiting_tell(&f, until_s, &warned);
        if (clock_mono_s() >= until_s) {
            rc = err_set(err, ERR_TEMP,
                         "the scheduler does not say how job %s of run %s stands: give the same "
                         "command again",
                         run_fold_state(f.fold)->job_id, l->run_id);
            goto out;
        }
        clock_sleep_s(FOLLOW_EVERY_S);
    }
out:
    sched_jobs_release(&f.jobs);
    run_fold_close(f.fold);
    return rc;
}
