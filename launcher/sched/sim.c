/* This file implements the calls of the simulated cluster. Its behaviour is in sim_time.c (the
 * clock), sim_pass.c (which job starts where), sim_job.c, sim_node.c and sim_step.c. */
#include "launcher/sched/sim.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/num.h"
#include "base/str.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/sim_priv.h"

/* ---- faults of the controller ---- */

/* Begins a call: lets the controller's answering time pass, and fails if the drawn fault says
 * so. */
static int call(struct sim *s, struct err *err)
{
    const struct sim_faults *f = &s->conf.faults;
    int64_t i = ++s->calls;
    s->answer_lost = sim_draw(s, SIM_DRAW_LOST, i) < f->lost;
    sim_run_until(s, s->now_s - f->slow_s * log(sim_draw(s, SIM_DRAW_SLOW, i)));
    if (sim_draw(s, SIM_DRAW_SILENT, i) >= f->silent)
        return 0;
    sim_run_until(s, s->now_s + f->silent_s);
    return err_set(err, ERR_TEMP, "the simulated controller did not answer for %g s: ask again",
                   f->silent_s);
}

/* Returns the result of a call that was carried out: rc, or an error if its answer is lost. */
static int answer(const struct sim *s, int rc, struct err *err)
{
    return rc == 0 && s->answer_lost
               ? err_set(err, ERR_TEMP,
                         "the answer of the simulated controller was lost: ask again")
               : rc;
}

/* ---- the site ---- */

static int describe(struct sched *sched, struct sched_site *out, struct err *err)
{
    struct sim *s = sim_of(sched);
    int rc;
    if ((rc = call(s, err)) < 0)
        return rc;
    if ((rc = answer(s, 0, err)) < 0)
        return rc;
    *out = s->site;
    return 0;
}

static const struct sim_partition *partition_of(const struct sim *s, const char *name)
{
    for (size_t i = 0; i < s->conf.n_partitions; i++)
        if (!name || strcmp(s->conf.partitions[i].name, name) == 0)
            return &s->conf.partitions[i];
    return NULL;
}

static int check_limits(const struct sim *s, const struct sched_spec *spec, struct err *err)
{
    const struct {
        const char *what;
        int asked, there;
    } limits[] = {{"nodes", spec->nodes, s->conf.nodes},
                  {"cores per node", spec->cores_per_node, s->conf.cores_per_node},
                  {"GPUs per node", spec->gpus_per_node, s->conf.gpus_per_node}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].asked > limits[i].there)
            return err_set(err, ERR_LIMIT, "job '%s' asks for %d %s, and the cluster has %d",
                           spec->name, limits[i].asked, limits[i].what, limits[i].there);
    return 0;
}

static int check_fits(const struct sim *s, const struct sched_spec *spec, struct err *err)
{
    const struct sim_partition *p = partition_of(s, spec->partition);
    if (!p)
        return err_set(err, ERR_INPUT, "job '%s': there is no partition '%s' on this cluster",
                       spec->name, spec->partition);
    if (p->max_time_s > 0 && spec->time_limit_s > p->max_time_s)
        return err_set(err, ERR_LIMIT,
                       "job '%s': its time limit is %g s, and partition '%s' allows %g s",
                       spec->name, spec->time_limit_s, p->name, p->max_time_s);
    return check_limits(s, spec, err);
}

static int check(struct sched *sched, const struct sched_spec *spec, struct err *err)
{
    struct sim *s = sim_of(sched);
    int rc = call(s, err);
    return rc < 0 || (rc = check_fits(s, spec, err)) < 0 ? rc : answer(s, 0, err);
}

static void script(const struct sched_spec *spec, struct str *out)
{
    for (const char *const *a = spec->argv; *a; a++)
        str_addf(out, "%s%s", a == spec->argv ? "" : " ", *a);
    str_addc(out, '\n');
}

/* ---- finding jobs ---- */

int sim_find(const struct sim *s, const char *id, struct sim_job **out, struct err *err)
{
    int64_t job;
    if (num_parse_i64(id, "job id", &job, NULL) < 0 || job < 1 || job > (int64_t)s->n_jobs)
        return err_set(err, ERR_NOT_FOUND, "there is no job '%s' on this cluster", id);
    *out = s->jobs[job - 1];
    return 0;
}

static const struct sim_job *with_token(const struct sim *s, const char *token)
{
    for (size_t i = 0; i < s->n_jobs; i++)
        if (strcmp(s->jobs[i]->spec.token, token) == 0)
            return s->jobs[i];
    return NULL;
}

/* ---- submission ---- */

static const char *const *list_copy(struct arena *a, const char *const *list)
{
    size_t n = 0;
    while (list[n])
        n++;
    const char **copy = arena_array(a, n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = arena_strdup(a, list[i])))
            return NULL;
    return copy;
}

/* Marks the nodes that the job excludes. */
static int ban(struct sim *s, struct sim_job *j, const char *exclude, struct err *err)
{
    const char **names;
    size_t n;
    int rc;
    if (!exclude)
        return 0;
    if ((rc = hosts_expand(exclude, &s->arena, &names, &n, err)) < 0)
        return rc;
    j->banned = arena_array(&s->arena, (size_t)s->conf.nodes, sizeof *j->banned);
    if (!j->banned)
        return err_set(err, ERR_NOMEM, "out of memory for a list of nodes");
    for (size_t i = 0; i < n; i++)
        if (sim_node_of(s, names[i]) >= 0)
            j->banned[sim_node_of(s, names[i])] = true;
    return 0;
}

/* Copies those parts of its specification that the job needs later. */
static int spec_copy(struct sim *s, const struct sched_spec *spec, struct sim_job *j,
                     struct err *err)
{
    struct arena *a = &s->arena;
    j->spec = *spec;
    j->spec.token = arena_strdup(a, spec->token);
    j->spec.name = arena_strdup(a, spec->name);
    j->spec.argv = list_copy(a, spec->argv);
    j->spec.env = list_copy(a, spec->env);
    j->spec.cwd = arena_strdup(a, spec->cwd);
    j->spec.log_path = arena_strdup(a, spec->log_path);
    j->spec.partition = j->spec.account = j->spec.qos = j->spec.exclude = j->spec.after = NULL;
    j->where = arena_array(a, (size_t)spec->nodes, sizeof *j->where);
    if (!j->spec.token || !j->spec.name || !j->spec.argv || !j->spec.env || !j->spec.cwd ||
        !j->spec.log_path || !j->where)
        return err_set(err, ERR_NOMEM, "out of memory for a simulated job");
    return ban(s, j, spec->exclude, err);
}

static int room_for_jobs(struct sim *s, struct err *err)
{
    struct sim_job ***lists[] = {&s->jobs, &s->queue, &s->active};
    size_t cap = s->cap ? 2 * s->cap : 64;
    if (s->n_jobs + 1 < s->cap)
        return 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct sim_job **p = realloc(*lists[i], cap * sizeof *p);
        if (!p)
            return err_set(err, ERR_NOMEM, "out of memory for %zu simulated jobs", cap);
        *lists[i] = p;
    }
    s->cap = cap;
    return 0;
}

static int after_find(const struct sim *s, const struct sched_spec *spec, int64_t *out,
                      struct err *err)
{
    struct sim_job *after;
    int rc;
    if (!spec->after)
        return 0;
    if ((rc = sim_find(s, spec->after, &after, err)) < 0) {
        err_context(err, "job '%s' is to come after another", spec->name);
        return rc;
    }
    *out = after->id;
    return 0;
}

static int submit_new(struct sim *s, const struct sched_spec *spec, const struct sim_job **out,
                      struct err *err)
{
    struct sim_job *j;
    int64_t after = 0;
    int rc;
    if ((rc = check_fits(s, spec, err)) < 0 || (rc = after_find(s, spec, &after, err)) < 0 ||
        (rc = room_for_jobs(s, err)) < 0)
        return rc;
    if (!(j = arena_alloc(&s->arena, sizeof *j, 0)))
        return err_set(err, ERR_NOMEM, "out of memory for a simulated job");
    if ((rc = spec_copy(s, spec, j, err)) < 0)
        return rc;
    j->id = (int64_t)s->n_jobs + 1;
    j->partition = partition_of(s, spec->partition);
    j->state = SCHED_PENDING;
    j->reason = "";
    j->exit_code = -1;
    j->after = after;
    j->submitted_s = s->now_s;
    s->jobs[s->n_jobs++] = j;
    sim_tell(s, SIM_SUBMITTED, j->id, 0);
    sim_enqueue(s, j);
    *out = j;
    return 0;
}

static int submit(struct sched *sched, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                  struct err *err)
{
    struct sim *s = sim_of(sched);
    int rc = call(s, err);
    if (rc < 0)
        return rc;
    const struct sim_job *j = with_token(s, spec->token);
    if ((!j && (rc = submit_new(s, spec, &j, err)) < 0) || (rc = answer(s, 0, err)) < 0)
        return rc;
    snprintf(id, SCHED_ID_BYTES, "%lld", (long long)j->id);
    return 0;
}

/* ---- looking ---- */

static bool listed(const char *const *list, const char *text)
{
    for (size_t i = 0; list && list[i]; i++)
        if (strcmp(list[i], text) == 0)
            return true;
    return false;
}

/* Returns why the job waits, or else the reason in its record. */
static const char *reason_of(const struct sim *s, const struct sim_job *j, struct arena *a)
{
    bool waits = j->state == SCHED_PENDING || j->state == SCHED_REQUEUED;
    if (!waits)
        return j->reason;
    if (j->after && !sched_state_ended(s->jobs[j->after - 1]->state))
        return arena_printf(a, "Dependency: job %lld has not ended", (long long)j->after);
    return j->reason[0] ? j->reason : s->queue[0] == j ? "Resources" : "Priority";
}

static int job_fill(const struct sim *s, const struct sim_job *j, const char *id,
                    struct sched_jobs *out, struct err *err)
{
    struct sched_job *job = &out->jobs[out->n];
    *job = (struct sched_job){
        .id = id, .token = arena_strdup(&out->arena, j->spec.token),
        .name = arena_strdup(&out->arena, j->spec.name),
        .state = j->state,
        .priority = j->spec.priority, .restarts = j->restarts,
        .nodes = j->spec.nodes,
        .cores_per_node = sim_cores_of(s, j),
        .submitted_at = j->submitted_s, .started_at = j->started_s, .ended_at = j->ended_s,
        .exit_code = j->exit_code, .exit_signal = j->exit_signal,
        .reason = reason_of(s, j, &out->arena), .run = ""};
    if (!job->token || !job->name || !job->reason)
        return err_set(err, ERR_NOMEM, "out of memory while listing %zu jobs", s->n_jobs);
    out->n++;
    return 0;
}

static int poll_(struct sched *sched, const struct sched_filter *f, struct sched_jobs *out,
                 struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sched_jobs jobs = {0};
    bool all = !f || (!f->ids && !f->tokens);
    int rc;
    if ((rc = call(s, err)) < 0)
        return rc;
    if (!(jobs.jobs = arena_array(&jobs.arena, s->n_jobs + 1, sizeof *jobs.jobs))) {
        rc = err_set(err, ERR_NOMEM, "out of memory while listing %zu jobs", s->n_jobs);
        goto out;
    }
    for (size_t i = 0; i < s->n_jobs; i++) {
        const struct sim_job *j = s->jobs[i];
        const char *id = arena_printf(&jobs.arena, "%lld", (long long)j->id);
        if (!id || !(all || listed(f->ids, id) || listed(f->tokens, j->spec.token)))
            continue;
        if ((rc = job_fill(s, j, id, &jobs, err)) < 0)
            goto out;
    }
    if ((rc = answer(s, 0, err)) < 0)
        goto out;
    *out = jobs;
    jobs = (struct sched_jobs){0};
out:
    sched_jobs_release(&jobs);
    return rc;
}

/* Returns why a job ends. After its end the state shows why. */
static enum sched_end end_of(const struct sim_job *j)
{
    static const enum sched_end of_stop[] = {[SIM_STOP_NONE] = SCHED_END_NONE,
                                             [SIM_STOP_LIMIT] = SCHED_END_TIME_LIMIT,
                                             [SIM_STOP_PREEMPT] = SCHED_END_PREEMPTED,
                                             [SIM_STOP_REQUEUE] = SCHED_END_REQUEUED,
                                             [SIM_STOP_CANCEL] = SCHED_END_CANCELLED};
    if (j->state == SCHED_REQUEUED)
        return SCHED_END_REQUEUED;
    return j->state == SCHED_NODE_FAIL ? SCHED_END_NODE_FAIL : of_stop[j->stop];
}

static int ending(struct sched *sched, const char *id, struct sched_ending *out, struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sim_job *j;
    int rc;
    if ((rc = call(s, err)) < 0 || (rc = sim_find(s, id, &j, err)) < 0 ||
        (rc = answer(s, 0, err)) < 0)
        return rc;
    bool runs = j->started_s > 0 && j->ended_s == 0;
    *out = (struct sched_ending){
        .why = end_of(j),
        .limit_at = runs && isfinite(j->limit_s) ? j->limit_s : 0,
        .limit_s = j->spec.time_limit_s,
        .is_killed = runs && j->termed,
        .ended_at = j->ended_s};
    return 0;
}

/* ---- signals, requeue, cancel ---- */

static int wish_signal(struct sim *s, struct sim_job *j, int signo, enum sched_to to,
                       struct err *err)
{
    if (j->started_s == 0 || j->ended_s > 0)
        return err_set(err, ERR_STATE,
                       "job %lld does not run (it is %s): only running jobs get signals",
                       (long long)j->id, sched_state_name(j->state));
    sim_job_hear(s, j, signo, to == SCHED_TO_ALL);
    return 0;
}

static int wish_requeue(struct sim *s, struct sim_job *j, struct err *err)
{
    if (sched_state_ended(j->state))
        return err_set(err, ERR_STATE, "job %lld has ended (%s): submit it anew", (long long)j->id,
                       sched_state_name(j->state));
    if (j->stop == SIM_STOP_CANCEL)
        return err_set(err, ERR_STATE, "job %lld is being cancelled and cannot be requeued",
                       (long long)j->id);
    if (!j->spec.requeue)
        return err_set(err, ERR_STATE, "job %lld was submitted without permission to requeue",
                       (long long)j->id);
    if (j->state != SCHED_PENDING && j->state != SCHED_REQUEUED)
        sim_job_ask(s, j, SIM_STOP_REQUEUE, "requeued on request");
    return 0;
}

static void wish_cancel(struct sim *s, struct sim_job *j)
{
    if (j->state != SCHED_PENDING && j->state != SCHED_REQUEUED) {
        if (!sched_state_ended(j->state))
            sim_job_ask(s, j, SIM_STOP_CANCEL, "cancelled on request");
        return;
    }
    sim_dequeue(s, j);
    j->stop = SIM_STOP_CANCEL;
    j->state = SCHED_CANCELLED;
    j->reason = "cancelled on request";
    j->ended_s = s->now_s;
    sim_tell(s, SIM_ENDED, j->id, (int)j->state);
}

static int signal_(struct sched *sched, const char *id, int signo, enum sched_to to,
                   struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sim_job *j;
    int rc;
    if ((rc = call(s, err)) < 0 || (rc = sim_find(s, id, &j, err)) < 0 ||
        (rc = wish_signal(s, j, signo, to, err)) < 0)
        return rc;
    return answer(s, 0, err);
}

static int requeue(struct sched *sched, const char *id, struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sim_job *j;
    int rc;
    if ((rc = call(s, err)) < 0 || (rc = sim_find(s, id, &j, err)) < 0 ||
        (rc = wish_requeue(s, j, err)) < 0)
        return rc;
    return answer(s, 0, err);
}

static int cancel(struct sched *sched, const char *id, struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sim_job *j;
    int rc;
    if ((rc = call(s, err)) < 0 || (rc = sim_find(s, id, &j, err)) < 0)
        return rc;
    wish_cancel(s, j);
    return answer(s, 0, err);
}

/* ---- opening ---- */

static void close_(struct sched *sched)
{
    struct sim *s = sim_of(sched);
    arena_release(&s->arena);
    free(s->heap.v);
    free(s->nodes);
    free(s->room);
    free(s->jobs);
    free(s->queue);
    free(s->active);
    free(s);
}

static const struct sched_ops sim_ops = {
    .kind = "sim",
    .starts_ranks = true,
    .describe = describe,
    .submit = submit,
    .check = check,
    .script = script,
    .poll = poll_,
    .signal = signal_,
    .requeue = requeue,
    .ending = ending,
    .cancel = cancel,
    .step_start = sim_step_start,
    .step_poll = sim_step_poll,
    .step_signal = sim_step_signal,
    .step_free = sim_step_free,
    .lost_node = sim_lost_node,
    .close = close_,
};

static int site_make(struct sim *s, struct err *err)
{
    static const struct sim_partition only = {.name = "sim", .preempt = SCHED_PREEMPT_OFF};
    if (s->conf.n_partitions == 0) {
        s->conf.partitions = &only;
        s->conf.n_partitions = 1;
    }
    s->partitions = arena_array(&s->arena, s->conf.n_partitions, sizeof *s->partitions);
    if (!s->partitions)
        return err_set(err, ERR_NOMEM, "out of memory for partitions");
    for (size_t i = 0; i < s->conf.n_partitions; i++) {
        const struct sim_partition *p = &s->conf.partitions[i];
        s->partitions[i] = (struct sched_partition){
            .name = p->name, .is_default = i == 0,
            .preempt = p->preempt, .grace_s = p->grace_s, .max_time_s = p->max_time_s,
            .nodes = s->conf.nodes, .cores_per_node = s->conf.cores_per_node,
            .gpus_per_node = s->conf.gpus_per_node};
    }
    s->site = (struct sched_site){
        .kind = "sim", .name = "simulated",
        .kill_wait_s = s->conf.kill_wait_s, .user_signal = true,
        .requeue_delay_s = s->conf.requeue_delay_s, .node_timeout_s = s->conf.node_timeout_s,
        .n_partitions = s->conf.n_partitions, .partitions = s->partitions};
    return 0;
}

static int check_conf(const struct sim_conf *c, struct err *err)
{
    const double shares[] = {c->faults.silent, c->faults.lost};
    if (c->nodes < 1 || c->nodes > LIMIT_RANKS || c->cores_per_node < 1 || c->gpus_per_node < 0)
        return err_set(err, ERR_INPUT, "a simulated cluster of %d nodes of %d cores and %d GPUs: "
                                       "give 1 to %d nodes and 1 core or more",
                       c->nodes, c->cores_per_node, c->gpus_per_node, LIMIT_RANKS);
    if (!(c->start_s > 0))
        return err_set(err, ERR_INPUT, "a simulation that begins at %g s: give Unix seconds",
                       c->start_s);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        if (!(shares[i] >= 0 && shares[i] < 1))
            return err_set(err, ERR_INPUT, "a share of %g calls that fail: give 0 to less than 1",
                           shares[i]);
    return 0;
}

int sched_sim_open(const struct sim_conf *conf, struct sched **out, struct err *err)
{
    struct sim *s;
    int rc;
    if ((rc = check_conf(conf, err)) < 0)
        return rc;
    if (!(s = calloc(1, sizeof *s)))
        return err_set(err, ERR_NOMEM, "out of memory for a simulated cluster");
    s->base.ops = &sim_ops;
    s->conf = *conf;
    s->now_s = conf->start_s;
    if ((rc = site_make(s, err)) < 0 || (rc = sim_nodes_start(s, err)) < 0)
        close_(&s->base);
    else
        *out = &s->base;
    return rc;
}

void sched_sim_end(struct sched *sched, const char *id, int exit_code, int exit_signal)
{
    struct sim *s = sim_of(sched);
    struct sim_job *j;
    if (sim_find(s, id, &j, NULL) < 0 || j->started_s == 0 || j->ended_s > 0)
        return;
    j->outcome = (struct sim_outcome){0, exit_code, exit_signal};
    sim_job_end(s, j, -1);
}
