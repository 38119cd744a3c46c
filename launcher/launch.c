#include "launcher/launch.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/command.h"
#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "launcher/home.h"

extern char **environ;

enum { ENDED_POLLS = 3 };             /* polls in a row that show a job ended before it counts as lost: its log may lag */
static const double FOLLOW_EVERY_S = 0.5;

/* ---- events of the submitting side: one writer a process ---- */

static int log_open(const struct launch *l, const char *token, struct evlog **out, struct err *err)
{
    char *dir = file_join(l->run_dir, "events"), writer[64], text[ID_TEXT_BYTES];
    struct id unique;
    int rc = id_random(&unique, err);
    if (rc == 0)
        rc = dir ? file_mkdirs(dir, err) : err_set(err, ERR_NOMEM, "out of memory");
    if (rc == 0) {
        snprintf(writer, sizeof writer, "submit-%.8s", id_format(unique, text));
        struct evlog_ids ids = {l->run_id, 0, writer, token};
        rc = evlog_open(dir, &ids, out, err);
    }
    free(dir);
    return rc;
}

static int event_put(struct evlog *log, const char *kind, const char *key1, const char *value1, const char *key2,
                     const char *value2, struct err *err)
{
    struct evlog_event e;
    evlog_begin(log, &e, kind);
    if (key1)
        json_put_text(&e.out, key1, value1);
    if (key2)
        json_put_text(&e.out, key2, value2);
    return evlog_commit(log, &e, true, err);
}

static int event_created(const struct launch *l, const struct run *run, struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    char hash[HASH_TEXT_BYTES];
    int rc = log_open(l, NULL, &log, err);
    if (rc < 0)
        return rc;
    evlog_begin(log, &e, "run_created");
    json_put_text(&e.out, "name", run->name);
    json_put_text(&e.out, "config_hash", hash_format(run_config_hash(run), hash));
    json_put_text(&e.out, "model", run->model.name);
    json_put_int(&e.out, "total_steps", run_total_steps(run));
    rc = evlog_commit(log, &e, true, err);
    evlog_close(log);
    return rc;
}

/* ---- making and finding runs ---- */

static void launch_init(struct launch *l, const char *home, const char *bin_dir, const char *run_id, const struct run *run)
{
    *l = (struct launch){.home = home, .bin_dir = bin_dir};
    snprintf(l->run_id, sizeof l->run_id, "%s", run_id);
    home_run_dir(home, run_id, l->run_dir);
    l->budget = run->budget;
}

int launch_open(const char *home, const char *bin_dir, const char *name_or_id, struct launch *out, struct err *err)
{
    char id[ID_TEXT_BYTES], path[LIMIT_PATH_BYTES];
    struct run run = {0};
    int rc = home_run_find(home, name_or_id, id, err);
    if (rc < 0)
        return rc;
    home_run_dir(home, id, path);
    strncat(path, "/run.json", sizeof path - strlen(path) - 1);
    if ((rc = run_load(path, &run, err)) < 0)
        return rc;
    launch_init(out, home, bin_dir, id, &run);
    run_release(&run);
    return 0;
}

static int folder_write(const struct launch *l, const struct run *run, const struct plan *plan, const char *settings_json,
                        struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    int rc = file_mkdirs(l->run_dir, err);
    snprintf(path, sizeof path, "%s/run.json", l->run_dir);
    if (rc == 0)
        rc = run_save(run, path, err);
    snprintf(path, sizeof path, "%s/plan.json", l->run_dir);
    if (rc == 0)
        rc = plan_save(plan, path, err);
    snprintf(path, sizeof path, "%s/settings.json", l->run_dir);
    if (rc == 0 && settings_json)
        rc = file_publish(path, settings_json, strlen(settings_json), err);
    return rc == 0 ? event_created(l, run, err) : rc;
}

/* The name is taken: by this very configuration (then that run is meant), or by another. */
static int existing_take(const char *home, const char *bin_dir, const struct run *run, const char *id, struct launch *out,
                         struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct run old = {0};
    home_run_dir(home, id, path);
    strncat(path, "/run.json", sizeof path - strlen(path) - 1);
    int rc = run_load(path, &old, err);
    if (rc < 0)
        return rc;
    struct hash128 a = run_config_hash(run), b = run_config_hash(&old);
    if (a.hi != b.hi || a.lo != b.lo)
        rc = err_set(err, ERR_EXISTS, "run '%s' exists with another configuration (%s): give this one another name",
                     run->name, path);
    else
        launch_init(out, home, bin_dir, id, &old);
    run_release(&old);
    return rc;
}

int launch_create(const char *home, const char *bin_dir, const struct run *run, const struct plan *plan,
                  const char *settings_json, struct launch *out, bool *existed, struct err *err)
{
    char id[ID_TEXT_BYTES], taken[ID_TEXT_BYTES];
    struct id unique;
    struct launch l;
    int rc;
    *existed = false;
    rc = home_run_find(home, run->name, taken, err);
    if (rc == 0) {
        *existed = true;
        return existing_take(home, bin_dir, run, taken, out, err);
    }
    if (rc != ERR_NOT_FOUND && rc != ERR_INPUT) /* ids that begin like this name are no obstacle */
        return rc;
    if ((rc = id_random(&unique, err)) < 0)
        return rc;
    launch_init(&l, home, bin_dir, id_format(unique, id), run);
    /* the name last: whoever finds it finds a whole run. A folder without one (the race lost, the disk full) is removed. */
    rc = folder_write(&l, run, plan, settings_json, err);
    bool whole = rc == 0;
    if (whole)
        rc = home_name_claim(home, run->name, id, taken, err);
    if (rc < 0) {
        file_remove_tree(l.run_dir, NULL);
        if (!whole || rc != ERR_EXISTS)
            return rc;
        *existed = true;
        return existing_take(home, bin_dir, run, taken, out, err);
    }
    *out = l;
    return 0;
}

/* ---- submitting ---- */

/* The token to submit with: that of an intent whose outcome we do not know, else a new one with a new intent. */
static int intent_make(const struct launch *l, const struct run_state *state, const char *kind, char token[ID_TEXT_BYTES],
                       struct evlog **log, struct err *err)
{
    struct id unique;
    bool open_intent = state->intent_at > 0 && state->intent_at > state->submitted_at;
    int rc = 0;
    if (open_intent)
        snprintf(token, ID_TEXT_BYTES, "%s", state->token);
    else if ((rc = id_random(&unique, err)) == 0)
        id_format(unique, token);
    if (rc == 0)
        rc = log_open(l, token, log, err);
    if (rc == 0 && !open_intent)
        rc = event_put(*log, "submit_intent", "sched", kind, NULL, NULL, err); /* the token is in every event of this log */
    return rc;
}

double launch_lead_s(double time_limit_s)
{
    return fmin(60, time_limit_s / 4);
}

static int submit_now(const struct launch *l, struct sched *s, const char *token, const struct run *run,
                      char id[SCHED_ID_BYTES], struct err *err)
{
    struct arena arena;
    struct sched_spec spec = SCHED_SPEC_INIT;
    const char **env = NULL;
    arena_init(&arena, 0);
    const char *home = arena_printf(&arena, "REEL_HOME=%s", l->home);
    const char *extra[] = {home, NULL};
    const char *argv[] = {arena_printf(&arena, "%s/reel", l->bin_dir), "agent", "--run-dir", l->run_dir, NULL};
    int rc = home && argv[0] ? command_environment((const char *const *)environ, extra, &arena, &env, err)
                             : err_set(err, ERR_NOMEM, "out of memory");
    spec.token = token;
    spec.name = run->name;
    spec.argv = argv;
    spec.env = (const char *const *)env;
    spec.cwd = l->run_dir;
    spec.log_path = arena_printf(&arena, "%s/logs/agent.log", l->run_dir);
    spec.priority = (int)run->resources.priority;
    spec.nodes = (int)run->resources.nodes;
    spec.ranks_per_node = (int)run->resources.ranks_per_node;
    spec.cores_per_node = (int)(run->resources.cores_per_rank * run->resources.ranks_per_node);
    spec.gpus_per_node = (int)run->resources.gpus_per_node;
    spec.partition = run->resources.partition;
    spec.account = run->resources.account;
    spec.qos = run->resources.qos;
    spec.exclude = run->resources.exclude;
    spec.time_limit_s = run->resources.time_limit_s;
    spec.requeue = true;
    spec.signal = SIGUSR1;
    spec.signal_lead_s = launch_lead_s(run->resources.time_limit_s);
    if (rc == 0)
        rc = sched_submit(s, &spec, id, err);
    arena_release(&arena);
    return rc;
}

int launch_submit(const struct launch *l, struct sched *s, const char *lost_token, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32], token[ID_TEXT_BYTES], job[SCHED_ID_BYTES];
    struct run_state state;
    struct run run = {0};
    struct evlog *log = NULL;
    int lock = -1, rc;
    run_state_init(&state);
    snprintf(path, sizeof path, "%s/claims", l->run_dir);
    if ((rc = file_mkdirs(path, err)) < 0)
        goto out;
    snprintf(path, sizeof path, "%s/claims/submit.lock", l->run_dir); /* one submitter at a time decides */
    if ((rc = file_lock(path, 30, &lock, err)) < 0 || (rc = run_state_load(l->run_dir, &state, err)) < 0)
        goto out;
    enum run_next next = run_state_next(&state, &l->budget, NULL);
    bool job_lost = lost_token && strcmp(lost_token, state.token) == 0;
    if (next != RUN_NEXT_SUBMIT && !(job_lost && (next == RUN_NEXT_WAIT || next == RUN_NEXT_REQUEUE)))
        goto out;
    snprintf(path, sizeof path, "%s/run.json", l->run_dir);
    if ((rc = run_load(path, &run, err)) < 0 || (rc = intent_make(l, &state, s->ops->kind, token, &log, err)) < 0 ||
        (rc = submit_now(l, s, token, &run, job, err)) < 0)
        goto out;
    rc = event_put(log, "submitted", "sched", s->ops->kind, "job_id", job, err);
out:
    evlog_close(log);
    run_release(&run);
    run_state_release(&state);
    if (lock >= 0)
        file_unlock(lock);
    return rc;
}

int launch_cancel(const struct launch *l, struct sched *s, struct err *err)
{
    struct run_state state;
    struct evlog *log = NULL;
    run_state_init(&state);
    int rc = run_state_load(l->run_dir, &state, err);
    if (rc == 0 && state.done)
        rc = err_set(err, ERR_NO, "run %s is done: there is nothing to cancel", state.name);
    if (rc == 0)
        rc = log_open(l, NULL, &log, err);
    if (rc == 0)
        rc = event_put(log, "cancel_requested", NULL, NULL, NULL, NULL, err);
    if (rc == 0 && state.job_id[0])
        rc = sched_cancel(s, state.job_id, err);
    evlog_close(log);
    run_state_release(&state);
    return rc;
}

/* ---- following ---- */

struct follow {
    const struct launch *l;
    struct sched *s;
    struct sched_jobs jobs;
    struct run_fold *fold;
    int ended;           /* polls in a row in which the job was over though the run is not */
    double absent_since; /* monotonic; -1: it was there in the last clean answer */
    bool lost, vanished; /* the job is over or gone for good; it went without a word: a controller that lost its state */
    const char *job_state;
};

/* What the scheduler says of the run's job. A job under our id that carries another token is somebody else's. */
static int job_look(struct follow *f, const struct run_state *state, struct err *err)
{
    const char *ids[] = {state->job_id, NULL};
    struct sched_filter filter = {ids, NULL};
    f->job_state = "";
    if (!f->s || !state->job_id[0])
        return 0;
    int rc = sched_poll(f->s, &filter, &f->jobs, err);
    if (rc < 0)
        return rc;
    const struct sched_job *job = sched_jobs_find(&f->jobs, state->job_id);
    if (job && strcmp(job->token, state->token) != 0)
        job = NULL;
    f->job_state = job ? sched_state_name(job->state) : "not listed";
    f->ended = job && sched_state_ended(job->state) ? f->ended + 1 : 0;
    if (job || f->absent_since < 0)
        f->absent_since = job ? -1 : clock_mono_s();
    f->vanished = !job;
    f->lost = f->ended >= ENDED_POLLS || (!job && clock_mono_s() - f->absent_since >= f->s->absence_s);
    return 0;
}

/* A job that ended before its agent could claim an attempt brings nothing back by itself: give up and say where to look. */
static int no_attempt(const struct launch *l, const struct run_state *state, struct err *err)
{
    return err_set(err, ERR_CHILD, "job %s ended before it began an attempt: see %s/logs/agent.log", state->job_id,
                   l->run_dir);
}

static bool is_over(enum run_next next)
{
    return next == RUN_NEXT_DONE || next == RUN_NEXT_FAILED || next == RUN_NEXT_CANCELLED;
}

/* The trainer says done a moment before its agent tells how the attempt ended. */
static bool end_told(const struct run_state *s)
{
    return s->n_attempts == 0 || s->attempts[s->n_attempts - 1].cause != CAUSE_NONE;
}

static bool may_help_later(int rc)
{
    return rc == ERR_TEMP || rc == ERR_BUSY || rc == ERR_TIMEOUT;
}

/* over: nothing more is to come. */
static int follow_once(struct follow *f, int64_t *attempts_at_submit, enum run_next *next, bool *over, struct err *err)
{
    int rc = run_fold_update(f->fold, err);
    const struct run_state *state = run_fold_state(f->fold);
    if (rc < 0)
        return rc;
    *next = run_state_next(state, &f->l->budget, NULL);
    *over = is_over(*next) && (!f->s || !state->job_id[0] || end_told(state));
    if (*over)
        return 0;
    if ((rc = job_look(f, state, err)) < 0)
        return may_help_later(rc) || rc == ERR_CHILD ? 0 : rc; /* no answer, or one in words we do not know: keep watching */
    if (!f->s || !f->lost)
        return 0;
    *over = is_over(*next);
    if (*over)
        return 0;
    if (state->n_attempts <= *attempts_at_submit && !f->vanished)
        return no_attempt(f->l, state, err);
    *attempts_at_submit = state->n_attempts;
    f->ended = 0;
    f->absent_since = -1;
    f->lost = false;
    char token[ID_TEXT_BYTES]; /* the fold goes on while we wait for the lock */
    snprintf(token, sizeof token, "%s", state->token);
    rc = launch_submit(f->l, f->s, token, err); /* its intent stands: the next time it is gone for good takes it up */
    return may_help_later(rc) ? 0 : rc;
}

int launch_follow(const struct launch *l, struct sched *s, const volatile int *stop, launch_show_fn *show, void *ctx,
                  enum run_next *next, struct err *err)
{
    struct follow f = {.l = l, .s = s, .absent_since = -1, .job_state = ""};
    int64_t attempts_at_submit = -1;
    bool over = false;
    int rc = run_fold_open(l->run_dir, &f.fold, err);
    while (rc == 0 && (rc = follow_once(&f, &attempts_at_submit, next, &over, err)) == 0) {
        if (attempts_at_submit < 0)
            attempts_at_submit = 0;
        if (show)
            show(ctx, run_fold_state(f.fold), &l->budget, f.job_state);
        if (over || *stop)
            break;
        clock_sleep_s(FOLLOW_EVERY_S);
    }
    sched_jobs_release(&f.jobs);
    run_fold_close(f.fold);
    return rc;
}
