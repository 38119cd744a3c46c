#include "launcher/sched/sched.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/num.h"
#include "launcher/sched/local.h"
#include "launcher/sched/sim.h"
#include "launcher/sched/slurm.h"

static const struct {
    const char *text;
    bool ended;
} states[] = {
#define STATE_ROW(name, text, terminal) [name] = {text, terminal},
    SCHED_STATE_LIST(STATE_ROW)
#undef STATE_ROW
};
enum { N_STATES = sizeof states / sizeof states[0], MAX_PRIORITY = 1000 };

const char *sched_state_name(enum sched_state state)
{
    return (unsigned)state < N_STATES ? states[state].text : "unknown";
}

bool sched_state_ended(enum sched_state state)
{
    return (unsigned)state < N_STATES && states[state].ended;
}

const struct sched_partition *sched_site_partition(const struct sched_site *site,
                                                   const char *name)
{
    for (size_t i = 0; i < site->n_partitions; i++)
        if (name ? strcmp(site->partitions[i].name, name) == 0 : site->partitions[i].is_default)
            return &site->partitions[i];
    return NULL;
}

/* ---- lists of jobs ---- */

void sched_jobs_release(struct sched_jobs *jobs)
{
    arena_release(&jobs->arena);
    *jobs = (struct sched_jobs){0};
}

const struct sched_job *sched_jobs_find(const struct sched_jobs *jobs, const char *id)
{
    for (size_t i = 0; i < jobs->n; i++)
        if (strcmp(jobs->jobs[i].id, id) == 0)
            return &jobs->jobs[i];
    return NULL;
}

/* ---- checks common to all implementations ---- */

static int check_argv(const char *const *argv, struct err *err)
{
    if (!argv || !argv[0])
        return err_set(err, ERR_INPUT, "there is no program to run: give its path and arguments");
    if (argv[0][0] != '/')
        return err_set(err, ERR_INPUT,
                       "program '%s' is not an absolute path: a job does not search PATH", argv[0]);
    return 0;
}

static int check_env(const char *const *env, struct err *err)
{
    if (!env)
        return err_set(err, ERR_INPUT, "there is no environment list: give the job's variables "
                                       "(an empty list is fine)");
    for (size_t i = 0; env[i]; i++)
        if (!strchr(env[i], '=') || env[i][0] == '=') /* the entry may be a secret, so the error
                                                       * does not show it */
            return err_set(err, ERR_INPUT, "environment entry %zu is not NAME=VALUE", i);
    return 0;
}

static int check_absolute(const char *what, const char *path, struct err *err)
{
    if (!path || path[0] != '/')
        return err_set(err, ERR_INPUT, "the job's %s '%s' is not an absolute path", what,
                       path ? path : "");
    return 0;
}

static int check_counts(const struct sched_spec *s, struct err *err)
{
    const struct {
        const char *what;
        int value, min, max;
    } counts[] = {
        {"nodes", s->nodes, 1, LIMIT_RANKS},
        {"ranks per node", s->ranks_per_node, 1, LIMIT_RANKS},
        {"cores per node", s->cores_per_node, 0, LIMIT_RANKS},
        {"priority", s->priority, -MAX_PRIORITY, MAX_PRIORITY},
        {"signal", s->signal, 0, SIGRTMAX},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].min || counts[i].value > counts[i].max)
            return err_set(err, ERR_INPUT, "job '%s': %s is %d: give %d to %d", s->name,
                           counts[i].what, counts[i].value, counts[i].min, counts[i].max);
    return 0;
}

static int check_times(const struct sched_spec *s, struct err *err)
{
    if (!isfinite(s->time_limit_s) || s->time_limit_s < 0)
        return err_set(err, ERR_INPUT, "job '%s': time limit is %g s: give 0 (none) or more",
                       s->name, s->time_limit_s);
    if (!isfinite(s->signal_lead_s) || s->signal_lead_s < 0)
        return err_set(err, ERR_INPUT, "job '%s': signal lead is %g s: give 0 or more", s->name,
                       s->signal_lead_s);
    if (s->signal_lead_s > 0 && s->signal == 0)
        return err_set(err, ERR_INPUT,
                       "job '%s': a lead of %g s is asked for and no signal: give the signal too",
                       s->name, s->signal_lead_s);
    return 0;
}

static int check_spec(const struct sched_spec *s, struct err *err)
{
    struct id token;
    int rc;
    if ((rc = id_name_check(s->name ? s->name : "", "job name", err)) < 0)
        return rc;
    if (!s->token || (rc = id_parse(s->token, &token, err)) < 0)
        return err_set(err, ERR_INPUT, "job '%s': token '%s' is not 32 hex digits", s->name,
                       s->token ? s->token : "");
    if ((rc = check_argv(s->argv, err)) < 0 || (rc = check_env(s->env, err)) < 0 ||
        (rc = check_absolute("working folder", s->cwd, err)) < 0 ||
        (rc = check_absolute("log", s->log_path, err)) < 0 ||
        (rc = check_counts(s, err)) < 0)
        return rc;
    return check_times(s, err);
}

static int check_signal(int signo, struct err *err)
{
    if (signo < 1 || signo > SIGRTMAX)
        return err_set(err, ERR_INPUT, "%d is not a signal: give 1 to %d", signo, SIGRTMAX);
    return 0;
}

/* ---- calls ---- */

int sched_open(const char *kind, const char *home, struct sched **out, struct err *err)
{
    if (!home || home[0] != '/')
        return err_set(err, ERR_INPUT,
                       "the state folder '%s' is not an absolute path: set REEL_HOME to one",
                       home ? home : "");
    if (strcmp(kind, "local") == 0)
        return sched_local_open(home, out, err);
    if (strcmp(kind, "slurm") == 0)
        return sched_slurm_open(home, out, err);
    if (strcmp(kind, "sim") == 0) /* for tests only: the error does not name it */
        return sched_sim_attach(home, out, err);
    return err_set(err, ERR_INPUT, "scheduler '%s' is not known: give local or slurm", kind);
}

void sched_close(struct sched *s)
{
    if (s)
        s->ops->close(s);
}

int sched_describe(struct sched *s, struct sched_site *out, struct err *err)
{
    return s->ops->describe(s, out, err);
}

int sched_submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                 struct err *err)
{
    int rc;
    if ((rc = check_spec(spec, err)) < 0)
        return rc;
    return s->ops->submit(s, spec, id, err);
}

int sched_check(struct sched *s, const struct sched_spec *spec, struct err *err)
{
    int rc;
    if ((rc = check_spec(spec, err)) < 0)
        return rc;
    return s->ops->check(s, spec, err);
}

void sched_script(struct sched *s, const struct sched_spec *spec, struct str *out)
{
    s->ops->script(spec, out);
}

int sched_poll(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
               struct err *err)
{
    sched_jobs_release(out);
    return s->ops->poll(s, filter, out, err);
}

int sched_look(struct sched *s, const char *id, struct sched_jobs *out, struct err *err)
{
    const char *ids[] = {id, NULL};
    struct sched_filter filter = {.ids = ids};
    if (!s->ops->look)
        return sched_poll(s, &filter, out, err);
    sched_jobs_release(out);
    return s->ops->look(s, id, out, err);
}

int sched_signal(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err)
{
    int rc;
    if ((rc = check_signal(signo, err)) < 0)
        return rc;
    return s->ops->signal(s, id, signo, to, err);
}

int sched_requeue(struct sched *s, const char *id, struct err *err)
{
    return s->ops->requeue(s, id, err);
}

const char *sched_end_name(enum sched_end end)
{
    static const char *const names[] = {
        [SCHED_END_NONE] = "",
        [SCHED_END_UNKNOWN] = "for a reason it does not tell",
        [SCHED_END_REQUEUED] = "requeued",
        [SCHED_END_PREEMPTED] = "preempted",
        [SCHED_END_CANCELLED] = "cancelled",
        [SCHED_END_TIME_LIMIT] = "time limit",
        [SCHED_END_NODE_FAIL] = "a node failed",
    };
    return names[end];
}

int sched_ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err)
{
    return s->ops->ending(s, id, out, err);
}

int sched_ending_of(struct sched *s, const char *id, const char *run, struct sched_ending *out,
                    struct err *err)
{
    return s->ops->ending_of ? s->ops->ending_of(s, id, run, out, err)
                             : s->ops->ending(s, id, out, err);
}

int sched_cancel(struct sched *s, const char *id, struct err *err)
{
    return s->ops->cancel(s, id, err);
}

int sched_note(struct sched *s, const char *id, const char *run, struct err *err)
{
    if (!s->ops->note)
        return err_set(err, ERR_STATE, "a job of '%s' keeps no note", s->ops->kind);
    return s->ops->note(s, id, run, err);
}

int sched_self(struct sched *s, struct sched_self *out, struct err *err)
{
    const char *id = getenv("REEL_JOB_ID"), *token = getenv("REEL_RUN_TOKEN"),
               *restart = getenv("REEL_JOB_RESTART"), *cores = getenv("REEL_JOB_CORES"),
               *nodes = getenv("REEL_JOB_NODES"), *kind = getenv("REEL_JOB_SCHED");
    int64_t n_restarts, n_cores, n_nodes = 1;
    int rc;
    if (!id || !token || !restart || !cores || !kind || strcmp(kind, s->ops->kind) != 0)
        return err_set(err, ERR_NOT_FOUND,
                       "this process does not run in a job of the scheduler '%s'", s->ops->kind);
    if ((rc = num_parse_i64(restart, "REEL_JOB_RESTART", &n_restarts, err)) < 0 ||
        (rc = num_parse_i64(cores, "REEL_JOB_CORES", &n_cores, err)) < 0 ||
        (nodes && (rc = num_parse_i64(nodes, "REEL_JOB_NODES", &n_nodes, err)) < 0))
        return rc;
    struct sched_self self = {.restarts = (int)n_restarts,
                              .nodes = (int)n_nodes,
                              .cores_per_node = (int)n_cores};
    snprintf(self.id, sizeof self.id, "%s", id);
    snprintf(self.token, sizeof self.token, "%s", token);
    *out = self;
    return 0;
}

static int check_step(const struct sched_step_spec *spec, struct err *err)
{
    int rc;
    if ((rc = check_argv(spec->argv, err)) < 0 || (rc = check_env(spec->env, err)) < 0)
        return rc;
    if (spec->ranks < 1 || spec->cores < 0)
        return err_set(err, ERR_INPUT,
                       "a step of %d ranks on %d cores: give 1 rank or more, and 0 cores (all) or "
                       "more",
                       spec->ranks, spec->cores);
    if (!isfinite(spec->deadline_s) || spec->deadline_s < 0)
        return err_set(err, ERR_INPUT, "a step's deadline is %g s: give 0 (none) or more",
                       spec->deadline_s);
    return 0;
}

int sched_step_start(struct sched *s, const struct sched_step_spec *spec, struct sched_step **out,
                     struct err *err)
{
    int rc;
    if ((rc = check_step(spec, err)) < 0)
        return rc;
    return s->ops->step_start(s, spec, out, err);
}

int sched_place(struct sched *s, const struct sched_step_spec *spec, struct arena *arena,
                struct sched_placement *out, struct err *err)
{
    int rc;
    if ((rc = check_step(spec, err)) < 0)
        return rc;
    if (!s->ops->place)
        return err_set(err, ERR_NOT_FOUND, "'%s' has one machine: there is nothing to place",
                       s->ops->kind);
    return s->ops->place(s, spec, arena, out, err);
}

int sched_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err)
{
    return step->ops->step_poll(step, wait_s, out, err);
}

int sched_step_signal(struct sched_step *step, int signo, struct err *err)
{
    int rc;
    if ((rc = check_signal(signo, err)) < 0)
        return rc;
    return step->ops->step_signal(step, signo, err);
}

int sched_step_reach(struct sched_step *step, const char *const *ids, int signo, struct err *err)
{
    int rc;
    if ((rc = check_signal(signo, err)) < 0)
        return rc;
    if (!step->ops->step_reach)
        return err_set(err, ERR_STATE, "'%s' signals a step's first process only",
                       step->ops->kind);
    return step->ops->step_reach(step, ids, signo, err);
}

void sched_step_free(struct sched_step *step)
{
    if (step)
        step->ops->step_free(step);
}

int sched_lost_node(struct sched *s, const char *nodes, const struct sched_loss *loss,
                    char node[SCHED_ID_BYTES], struct err *err)
{
    node[0] = 0;
    return s->ops->lost_node ? s->ops->lost_node(s, nodes, loss, node, err) : 0;
}
