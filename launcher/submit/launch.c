#include "launcher/submit/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/events.h"
#include "base/file.h"
#include "base/lease.h"
#include "base/log.h"
#include "launcher/start/command.h"
#include "launcher/state/home.h"
#include "launcher/state/next.h"
#include "launcher/state/pace.h"
#include "launcher/state/wish_name.h"

extern char **environ;

/* ---- events of the submitting side: each process is a writer of its own ---- */

int launch_log_open(const struct launch *l, const char *token, struct evlog **out, struct err *err)
{
    char *dir = file_join(l->run_dir, "events"), writer[64], text[ID_TEXT_BYTES];
    struct id unique;
    int rc;
    if (!dir)
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = id_random(&unique, err)) < 0)
        goto out;
    if ((rc = file_mkdirs(dir, err)) < 0)
        goto out;
    snprintf(writer, sizeof writer, "submit-%.8s", id_format(unique, text));
    struct evlog_ids ids = {l->run_id, 0, writer, token};
    if ((rc = evlog_open(dir, &ids, out, err)) < 0)
        goto out;
    wish_name_reserve(dir);
out:
    free(dir);
    return rc;
}

/* ---- submitting ---- */

struct intent {
    char token[ID_TEXT_BYTES], after[ID_TEXT_BYTES], after_job[STATE_JOB_BYTES];
    int64_t order;
    int64_t revision; /* of the run and plan with which the job is submitted
                       * (launcher/state/next.h) */
};

/* Tells whether there is an intent whose outcome is unknown. */
static bool intent_open(const struct run_state *s)
{
    return s->token[0] && strcmp(s->token, s->job_token) != 0 && s->intent_order > s->refused_order;
}

static int event_intent(struct evlog *log, const struct intent *i, const char *kind,
                        struct err *err)
{
    struct evlog_event e;
    event_begin(log, &e, submit_intent); /* the token is in every event of this log */
    event_text(&e, submit_intent, sched, kind);
    event_int(&e, submit_intent, order, i->order);
    event_int(&e, submit_intent, revision, i->revision);
    if (i->after[0]) {
        event_text(&e, submit_intent, after, i->after);
        event_text(&e, submit_intent, after_job, i->after_job);
    }
    return evlog_commit(log, &e, true, err);
}

static int event_submitted(struct evlog *log, const struct intent *i, const char *kind,
                           const char *job, struct err *err)
{
    struct evlog_event e;
    event_begin(log, &e, submitted);
    event_text(&e, submitted, sched, kind);
    event_int(&e, submitted, order, i->order);
    event_text(&e, submitted, job_id, job);
    return evlog_commit(log, &e, true, err);
}

/* Records that the scheduler refused the job: no job exists or will exist for this token. */
static void event_refused(struct evlog *log, const struct intent *i, const struct err *why)
{
    struct evlog_event e;
    struct err err = {0};
    event_begin(log, &e, submit_refused);
    event_int(&e, submit_refused, order, i->order);
    event_text(&e, submit_refused, why, why ? why->text : "");
    if (evlog_commit(log, &e, true, &err) < 0)
        log_msg(LOG_WARN, "event lost: %s", err.text);
}

/* Takes the intent with an unknown outcome, or else makes a new one and writes it into the log.
 * self: the job after whose end a new one starts; NULL: none, or that of the open intent. */
static int intent_make(const struct launch *l, const struct run_state *state,
                       const struct sched_self *self, const char *kind, struct intent *i,
                       struct evlog **log, struct err *err)
{
    struct id unique;
    bool open = intent_open(state) && (!self || strcmp(state->after, self->token) == 0);
    int rc;
    *i = (struct intent){.order = open ? state->intent_order : state->intent_order + 1,
                         .revision = open ? state->job_revision : state->revision};
    snprintf(i->after, sizeof i->after, "%s", open ? state->after : self ? self->token : "");
    snprintf(i->after_job, sizeof i->after_job, "%s",
             open ? state->after_job : self ? self->id : "");
    if (!open && (rc = id_random(&unique, err)) < 0)
        return rc;
    if (open)
        snprintf(i->token, sizeof i->token, "%s", state->token);
    else
        id_format(unique, i->token);
    if ((rc = launch_log_open(l, i->token, log, err)) < 0)
        return rc;
    return open ? 0 : event_intent(*log, i, kind, err);
}

static void place_fill(const struct run *run, double save_s, struct sched_spec *spec)
{
    spec->name = run->name;
    spec->priority = (int)run->resources.priority;
    spec->nodes = (int)run->resources.nodes;
    spec->ranks_per_node = (int)run->resources.ranks_per_node;
    spec->cores_per_node = (int)(run->resources.cores_per_rank * run->resources.ranks_per_node);
    spec->gpus_per_node = (int)run->resources.gpus_per_node;
    spec->partition = run->resources.partition;
    spec->account = run->resources.account;
    spec->qos = run->resources.qos;
    spec->exclude = run->resources.exclude;
    spec->time_limit_s = run->resources.time_limit_s;
    spec->requeue = true;
    spec->signal = SIGUSR1;
    /* The agent's own notice is based on measured saves, and normally comes first. */
    spec->signal_lead_s = pace_lead_s(run->resources.time_limit_s, save_s, 0);
}

/* Decides whether the run comes back by a requeue or a successor. A partition that does not exist
 * is refused later, at submission. */
static int again_decide(const struct run *run, struct sched *s, const char **how, struct err *err)
{
    struct sched_site site;
    enum run_again again = run->resources.again;
    int rc;
    if (again == AGAIN_AUTO) {
        if ((rc = sched_describe(s, &site, err)) < 0)
            return rc;
        const struct sched_partition *p = sched_site_partition(&site, run->resources.partition);
        again = p && p->preempt == SCHED_PREEMPT_CANCEL ? AGAIN_SUCCESSOR : AGAIN_REQUEUE;
    }
    *how = again_names[again];
    return 0;
}

/* Describes the run's job in the arena. It borrows from l, run and i. */
static int spec_make(const struct launch *l, struct sched *s, const struct intent *i,
                     const struct run *run, struct arena *arena, struct sched_spec *spec,
                     struct err *err)
{
    const char **env = NULL, *how, **argv = arena_array(arena, 5, sizeof *argv);
    int rc = again_decide(run, s, &how, err);
    if (rc < 0)
        return rc;
    const char *extra[] = {arena_printf(arena, "REEL_HOME=%s", l->home),
                           arena_printf(arena, LAUNCH_AGAIN_ENV "=%s", how),
                           arena_printf(arena, NEXT_REVISION_ENV "=%lld", (long long)i->revision),
                           l->save_s > 0 ? arena_printf(arena, PACE_SAVE_ENV "=%g", l->save_s)
                                         : NULL,
                           NULL};
    const char *program = arena_printf(arena, "%s/reel", l->bin_dir);
    *spec = (struct sched_spec)SCHED_SPEC_INIT;
    spec->log_path = arena_printf(arena, "%s/logs/agent.log", l->run_dir);
    if (!extra[0] || !extra[1] || !extra[2] || !argv || !program || !spec->log_path)
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = command_environment((const char *const *)environ, extra, arena, &env, err)) < 0)
        return rc;
    memcpy(argv, (const char *[]){program, "agent", "--run-dir", l->run_dir, NULL},
           5 * sizeof *argv);
    place_fill(run, l->save_s, spec);
    spec->token = i->token;
    spec->argv = argv;
    spec->env = (const char *const *)env;
    spec->cwd = l->run_dir;
    spec->has_job = l->has_job;
    spec->after = i->after_job[0] ? i->after_job : NULL;
    return 0;
}

static int submit_now(const struct launch *l, struct sched *s, const struct intent *i,
                      const struct run *run, char id[SCHED_ID_BYTES], struct err *err)
{
    struct arena arena;
    struct sched_spec spec;
    int rc;
    arena_init(&arena, 0);
    if ((rc = spec_make(l, s, i, run, &arena, &spec, err)) < 0)
        goto out;
    rc = sched_submit(s, &spec, id, err);
out:
    arena_release(&arena);
    return rc;
}

int launch_check(const struct launch *l, struct sched *s, const struct run *run,
                 struct str *script, struct err *err)
{
    struct arena arena;
    struct sched_spec spec;
    struct intent none = {.token = "00000000000000000000000000000000"}; /* a real submission draws a
                                                                         * random token */
    int rc;
    if ((rc = home_runs_check(l->home, err)) < 0)
        return rc;
    arena_init(&arena, 0);
    if ((rc = spec_make(l, s, &none, run, &arena, &spec, err)) < 0)
        goto out;
    if ((rc = sched_check(s, &spec, err)) < 0)
        goto out;
    if (script)
        sched_script(s, &spec, script);
out:
    arena_release(&arena);
    return rc;
}

int launch_state_load(const struct launch *l, struct run_state *state, struct err *err)
{
    int rc;
    if ((rc = run_state_load(l->run_dir, state, err)) < 0)
        return rc;
    if (!state->run[0])
        snprintf(state->run, sizeof state->run, "%s", l->run_id);
    if (!state->name[0] && home_name_of(l->home, l->run_id, state->name, NULL) < 0)
        state->name[0] = '\0';
    return 0;
}

/* Returns the error for a run whose folder vanished after its name had been found. */
static int gone(const struct launch *l, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND,
                   "the folder '%s' of run %.8s is gone: somebody has just removed or moved it; "
                   "'reel status' lists the runs",
                   l->run_dir, l->run_id);
}

/* Returns the user who owns files that this process makes in the run's folder: some file systems
 * give root's files to another user. */
static uid_t made_by_us(const struct launch *l)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct stat st = {.st_uid = geteuid()};
    snprintf(path, sizeof path, "%s/.owner.%ld", l->run_dir, (long)getpid());
    if (mkdir(path, 0700) == 0 && (stat(path, &st) < 0 || rmdir(path) < 0))
        log_msg(LOG_WARN, "cannot remove '%s': %s", path, strerror(errno));
    return st.st_uid;
}

int launch_owner_check(const struct launch *l, struct err *err)
{
    struct stat st;
    if (l->wrapped || geteuid() != 0 || stat(l->run_dir, &st) < 0 || st.st_uid == 0 ||
        st.st_uid == made_by_us(l))
        return 0;
    const struct passwd *owner = getpwuid(st.st_uid);
    char name[64];
    snprintf(name, sizeof name, "%ld", (long)st.st_uid);
    return err_set(err, ERR_NO,
                   "run %.8s belongs to user %s, and a job of root's would leave files in it that "
                   "its user cannot touch: give the command as that user",
                   l->run_id, owner ? owner->pw_name : name);
}

static int lock_take(const struct launch *l, struct lease **lock, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/claims", l->run_dir);
    /* The run's folder itself is not created, so that a removed run does not come back. */
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return errno == ENOENT ? gone(l, err)
                               : err_set_errno(err, ERR_IO, "cannot make '%s'", path);
    snprintf(path, sizeof path, "%s/claims/submit.lock", l->run_dir);
    int rc = lease_take(path, 30, lock, err);
    if (rc < 0)
        return file_exists(l->run_dir) ? rc : gone(l, err);
    return 0;
}

int launch_lock(const struct launch *l, struct lease **lock, struct run_state *state,
                struct err *err)
{
    int rc;
    if ((rc = lock_take(l, lock, err)) < 0)
        return rc;
    return run_state_load(l->run_dir, state, err);
}

void launch_job_over_put(struct sched *s, const struct run_state *state, struct evlog *log)
{
    const struct run_attempt *last = state->n_attempts ? &state->attempts[state->n_attempts - 1]
                                                       : NULL;
    struct sched_ending ending;
    struct evlog_event e;
    struct err err = {0};
    if (!s || !last || last->cause != CAUSE_NONE || !last->job_id[0] || last->job_over.at > 0)
        return;
    if (sched_ending_of(s, last->job_id, state->run, &ending, NULL) < 0 ||
        ending.why == SCHED_END_UNKNOWN || ending.ended_at <= 0)
        return;
    event_begin(log, &e, job_over);
    event_int(&e, job_over, met_attempt, last->number);
    event_text(&e, job_over, job_id, last->job_id);
    event_text(&e, job_over, why, sched_end_name(ending.why));
    event_num(&e, job_over, ended_at, ending.ended_at);
    if (evlog_commit(log, &e, true, &err) < 0)
        log_msg(LOG_WARN, "how job %s ended is not on record: %s", last->job_id, err.text);
}

/* Submits the run's job; the caller holds the lock. self: the job after whose end it starts; own:
 * this process runs in that job. */
static int submit_locked(const struct launch *l, struct sched *s, const struct run_state *state,
                         const struct sched_self *self, bool own, char id[SCHED_ID_BYTES],
                         struct err *err)
{
    struct next next = {0};
    struct intent intent = {.order = 0};
    struct evlog *log = NULL;
    int rc;
    if ((rc = next_load(l->run_dir, &next, err)) < 0)
        goto out;
    if ((rc = intent_make(l, state, self, s->ops->kind, &intent, &log, err)) < 0)
        goto out;
    if (!own)
        launch_job_over_put(s, state, log);
    rc = submit_now(l, s, &intent, &next.run, id, err);
    /* If the scheduler does not know the earlier job any more, it has ended. */
    if (rc == ERR_NOT_FOUND && !own && intent.after_job[0]) {
        intent.after_job[0] = '\0';
        rc = submit_now(l, s, &intent, &next.run, id, err);
    }
    if (rc == ERR_INPUT || rc == ERR_LIMIT)
        event_refused(log, &intent, err);
    if (rc < 0)
        goto out;
    rc = event_submitted(log, &intent, s->ops->kind, id, err);
out:
    evlog_close(log);
    next_release(&next);
    return rc;
}

int launch_submit(const struct launch *l, struct sched *s, const char *lost_token, struct err *err)
{
    char job[SCHED_ID_BYTES];
    struct run_state state;
    struct lease *lock = NULL;
    int rc;
    run_state_init(&state);
    if ((rc = launch_owner_check(l, err)) < 0)
        return rc;
    if ((rc = launch_lock(l, &lock, &state, err)) < 0)
        goto out;
    enum run_next next = run_state_next(&state, &l->budget, NULL);
    /* If another intent was made and answered since, job_token is not the lost job's any more. */
    bool job_lost = lost_token && strcmp(lost_token, state.job_token) == 0;
    /* The job of an unanswered intent may have begun already: the scheduler returns that job. */
    bool unanswered = state.submitted_at == 0;
    if (next == RUN_NEXT_SUBMIT ||
        ((job_lost || unanswered) && (next == RUN_NEXT_WAIT || next == RUN_NEXT_REQUEUE)))
        rc = submit_locked(l, s, &state, NULL, false, job, err);
out:
    run_state_release(&state);
    lease_drop(lock);
    return rc;
}

/* Tells whether the newest submission waits for this job's end and may still start. It may unless
 * the scheduler says that it has ended. */
static bool successor_waits(struct sched *s, const struct run_state *state, const char *token)
{
    const char *ids[] = {state->job_id, NULL};
    struct sched_filter filter = {.ids = ids};
    struct sched_jobs jobs = {0};
    bool waits = strcmp(state->after, token) == 0 && !intent_open(state);
    const struct sched_job *job = waits && sched_poll(s, &filter, &jobs, NULL) == 0
                                      ? sched_jobs_find(&jobs, state->job_id)
                                      : NULL;
    if (job && strcmp(job->token, state->token) == 0 && sched_state_ended(job->state))
        waits = false;
    sched_jobs_release(&jobs);
    return waits;
}

int launch_successor(const struct launch *l, struct sched *s, const struct sched_self *self,
                     struct run_fold *fold, char id[SCHED_ID_BYTES], struct err *err)
{
    const struct run_state *state = run_fold_state(fold);
    struct lease *lock = NULL;
    int rc;
    if ((rc = lock_take(l, &lock, err)) < 0)
        return rc;
    if ((rc = run_fold_renew(fold, err)) < 0)
        goto out;
    if (strcmp(state->token, self->token) != 0 && strcmp(state->after, self->token) != 0) {
        rc = err_set(err, ERR_BUSY, "job %s was replaced by a newer submission (token %s)",
                     self->id, state->token);
        goto out;
    }
    if (state->wish != WISH_RUN) {
        rc = err_set(err, ERR_BUSY, "the run is %s", run_state_word(state, &l->budget));
        goto out;
    }
    if (successor_waits(s, state, self->token))
        snprintf(id, SCHED_ID_BYTES, "%s", state->job_id);
    else
        rc = submit_locked(l, s, state, self, true, id, err);
out:
    lease_drop(lock);
    return rc;
}

/* Asks for the state of the newest submission's job; SCHED_UNKNOWN: the scheduler does not list
 * it. */
static int newest_job_look(struct sched *s, const struct run_state *state, enum sched_state *out,
                           struct err *err)
{
    const char *ids[] = {state->job_id, NULL};
    struct sched_filter filter = {.ids = ids};
    struct sched_jobs jobs = {0};
    int rc;
    if ((rc = sched_poll(s, &filter, &jobs, err)) < 0)
        goto out;
    const struct sched_job *job = sched_jobs_find(&jobs, state->job_id);
    *out = job && strcmp(job->token, state->job_token) == 0 ? job->state : SCHED_UNKNOWN;
out:
    sched_jobs_release(&jobs);
    return rc;
}

/* Tells whether another job must be submitted for the waiting change. It must if the last job will
 * not run the run again, or if the job is queued and has other resources. A running job, or one
 * that waits for another job's end, handles the change itself, after its attempt or before it
 * begins one. */
static bool renewal_wanted(const struct launch *l, const struct run_state *state,
                           enum sched_state job)
{
    const struct run_attempt *last = state->n_attempts ? &state->attempts[state->n_attempts - 1]
                                                       : NULL;
    enum run_next next = run_state_next(state, &l->budget, NULL);
    if (next == RUN_NEXT_REQUEUE)
        return sched_state_ended(job) || job == SCHED_UNKNOWN ||
               (last && last->cause == CAUSE_DONE);
    return next == RUN_NEXT_WAIT && !intent_open(state) &&
           (job == SCHED_PENDING || job == SCHED_REQUEUED) && !state->after_job[0] &&
           next_needs_job(l->run_dir, state->job_revision);
}

int launch_renew(const struct launch *l, struct sched *s, char old[SCHED_ID_BYTES],
                 char new[SCHED_ID_BYTES], struct err *err)
{
    struct run_state state;
    struct sched_self before = {0};
    struct lease *lock = NULL;
    enum sched_state job;
    int rc;
    run_state_init(&state);
    old[0] = new[0] = '\0';
    if ((rc = launch_lock(l, &lock, &state, err)) < 0 || !state.job_id[0])
        goto out;
    snprintf(before.id, sizeof before.id, "%s", state.job_id);
    snprintf(before.token, sizeof before.token, "%s", state.token);
    if ((rc = newest_job_look(s, &state, &job, err)) < 0 || !renewal_wanted(l, &state, job))
        goto out;
    if ((rc = submit_locked(l, s, &state, &before, false, new, err)) < 0)
        goto out;
    if (sched_state_ended(job) || job == SCHED_UNKNOWN)
        goto out;
    snprintf(old, SCHED_ID_BYTES, "%s", before.id);
    /* If the old job starts now, it finds that its revision is too old, and ends. */
    if (job == SCHED_PENDING || job == SCHED_REQUEUED)
        rc = sched_cancel(s, old, err);
out:
    run_state_release(&state);
    lease_drop(lock);
    return rc;
}

void launch_wish_begin(struct evlog *log, struct evlog_event *e, const struct run_state *state,
                       const char *kind)
{
    evlog_begin(log, e, kind);
    event_int(e, cancel_requested, turn, state->wish_turn + 1);
    event_int(e, cancel_requested, met_attempt,
              state->n_attempts ? state->attempts[state->n_attempts - 1].number : 0);
}

void launch_wish_poke(const struct launch *l)
{
    char path[LIMIT_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/events", l->run_dir);
    if (utimensat(AT_FDCWD, path, NULL, 0) < 0)
        log_msg(LOG_WARN, "the run's agent may hear of it late: cannot touch '%s': %s", path,
                strerror(errno));
}

int launch_wish_commit(const struct launch *l, struct evlog *log, struct evlog_event *e,
                       struct err *err)
{
    int rc;
    if ((rc = evlog_commit(log, e, true, err)) < 0)
        return rc;
    launch_wish_poke(l); /* creating the log changed the folder's time before the log had this
                          * event */
    return 0;
}

/* Writes the request as an event, in a log of its own. */
static int wish_log(const struct launch *l, const struct run_state *s, enum run_wish wish,
                    struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    int rc = launch_log_open(l, NULL, &log, err);
    if (rc < 0)
        return rc;
    launch_wish_begin(log, &e, s, wish == WISH_CANCEL ? EVENT_NAME(cancel_requested)
                                                      : EVENT_NAME(pause_requested));
    rc = launch_wish_commit(l, log, &e, err);
    evlog_close(log);
    return rc;
}

const char *launch_unsaid_why(const struct launch *l)
{
    return file_is_read_only(l->run_dir) ? "its disk is read-only"
                                         : "its disk has no room for a word";
}

int launch_wish_keep(const struct launch *l, const struct run_state *s, enum run_wish wish,
                     enum launch_kept *kept, struct err *err)
{
    struct wish_name m = wish_name_make(s, wish, false);
    int rc = wish_log(l, s, wish, err);
    *kept = LAUNCH_LOGGED;
    if (rc != ERR_FULL || s->wish == wish) {
        launch_wish_poke(l); /* an earlier command may have been killed before the agent could see
                              * its event */
        return rc == ERR_FULL ? 0 : rc;
    }
    rc = wish_name_put(l->run_dir, &m, err);
    *kept = rc == 0 ? LAUNCH_NAMED : LAUNCH_UNSAID;
    if (rc == 0)
        launch_wish_poke(l);
    if (rc == ERR_FULL && l->wrapped) /* the agent gets the request in no other way */
        return err_context(err, "the wish cannot be kept where the run's agent would find it: end "
                                "its job yourself (scancel)");
    return rc == ERR_FULL ? 0 : rc;
}

int launch_jobs_cancel(struct sched *s, const struct run_state *state, struct err *err)
{
    const char *running = state->n_attempts ? state->attempts[state->n_attempts - 1].job_id : "";
    const char *ids[] = {state->job_id, state->after_job, running};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct err why = {0};
        bool another = ids[i][0] && (i == 0 || strcmp(ids[i], ids[0]) != 0);
        int got = another ? sched_cancel(s, ids[i], &why) : 0;
        if (got < 0 && (i == 0 || got != ERR_NOT_FOUND)) /* a job that is not found has ended */
            rc = err_set(err, got, "%s", why.text);
    }
    return rc;
}

int launch_cancel(const struct launch *l, struct sched *s, enum launch_kept *kept, struct err *err)
{
    struct run_state state;
    int rc;
    run_state_init(&state);
    if ((rc = file_exists(l->run_dir) ? run_state_load(l->run_dir, &state, err)
                                      : gone(l, err)) < 0) /* opening the run's log would create the
                                                            * folder again */
        goto out;
    if (state.done) {
        rc = err_set(err, ERR_NO, "run %s is done: there is nothing to cancel", state.name);
        goto out;
    }
    if ((rc = launch_wish_keep(l, &state, WISH_CANCEL, kept, err)) < 0)
        goto out;
    if (l->wrapped) /* the job cannot be proved to be reel's: the user ends it */
        goto out;
    rc = launch_jobs_cancel(s, &state, err);
    if (rc == ERR_FULL && *kept != LAUNCH_UNSAID)
        rc = 0; /* a job that stays in the queue will find nothing to do */
    else if (rc < 0 && *kept != LAUNCH_UNSAID)
        err_context(err, "run '%s' is cancelled, which is on record and holds; its job was not "
                         "reached", state.name);
out:
    run_state_release(&state);
    return rc;
}
