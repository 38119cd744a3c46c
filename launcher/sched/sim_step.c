/* This file implements steps of the simulated cluster, which are programs inside a job, or outside
 * any job on the whole cluster. */
#include "launcher/sched/sim_priv.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the allocation ---- */

static int alloc_nodes(const struct sim *s)
{
    return s->self ? s->jobs[s->self - 1]->spec.nodes : s->conf.nodes;
}

static int alloc_cores(const struct sim *s)
{
    int cores = s->self ? s->jobs[s->self - 1]->spec.cores_per_node : 0;
    return cores ? cores : s->conf.cores_per_node;
}

int sched_sim_enter(struct sched *sched, const char *id, struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sim_job *j = NULL;
    int rc;
    if (id && (rc = sim_find(s, id, &j, err)) < 0)
        return rc;
    if (j && j->state != SCHED_RUNNING)
        return err_set(err, ERR_STATE, "job '%s' does not run: nobody can be inside it", id);
    s->self = j ? j->id : 0;
    return 0;
}

/* Takes this many cores of every node of the allocation; 0: all. */
static int cores_take(struct sim *s, int wanted, int *cores, struct err *err)
{
    int n = wanted ? wanted : alloc_cores(s);
    if (s->steps_cores + n > alloc_cores(s))
        return err_set(err, ERR_LIMIT,
                       "a step asks for %d cores and %d of %d are free: ask for fewer, or wait for "
                       "a running step to end",
                       n, alloc_cores(s) - s->steps_cores, alloc_cores(s));
    *cores = n;
    return 0;
}

static int nodes_of(const struct sim *s, const struct sched_step_spec *spec, int *out,
                    struct err *err)
{
    int all = alloc_nodes(s), most = spec->per_node || spec->ranks > all ? all : spec->ranks;
    int n = spec->nodes && !spec->per_node ? spec->nodes : most;
    if (n > all)
        return err_set(err, ERR_LIMIT, "a step asks for %d nodes, and the allocation has %d", n,
                       all);
    *out = n;
    return 0;
}

/* ---- one step ---- */

static struct sim_exec exec_of(const struct sim_step *st, char id[24])
{
    const struct sim *s = st->sim;
    const struct sim_job *j = st->job ? s->jobs[st->job - 1] : NULL;
    id[0] = '\0';
    if (st->job)
        snprintf(id, 24, "%lld", (long long)st->job);
    return (struct sim_exec){.job = id,
                             .token = j ? j->spec.token : "", .name = j ? j->spec.name : "",
                             .argv = st->spec.argv, .env = st->spec.env,
                             .cwd = st->spec.cwd, .log_path = st->spec.log_path,
                             .is_step = true,
                             .ranks = st->spec.ranks,
                             .restarts = j ? j->restarts : 0,
                             .where = st->where, .nodes = st->nodes, .cores = st->cores,
                             .now_s = s->now_s};
}

static void end_plan(struct sim_step *st)
{
    st->end_s = st->sim->now_s + st->outcome.ends_in_s;
    sim_plan(st->sim, st->end_s, TICK_STEP_END, st->id, 0);
}

static void hear(struct sim_step *st, int signo)
{
    char id[24];
    struct sim_exec exec = exec_of(st, id);
    struct sim_outcome now = st->outcome;
    now.ends_in_s = st->end_s - st->sim->now_s;
    if (st->stuck && signo != SIGKILL)
        return;
    exec.to_all = signo == SIGKILL;
    st->outcome = sim_ask_hear(st->sim, &exec, signo, &now);
    end_plan(st);
}

static void end(struct sim_step *st, bool lost)
{
    struct sim *s = st->sim;
    st->status.ended = true;
    st->status.lost = lost;
    st->status.exit_signal = lost ? 0 : st->outcome.exit_signal;
    st->status.exit_code = lost || st->outcome.exit_signal ? -1 : st->outcome.exit_code;
    st->status.ended_at = s->now_s;
    s->steps_cores -= st->cores;
    for (struct sim_step **p = &s->steps; *p; p = &(*p)->next)
        if (*p == st) {
            *p = st->next;
            return;
        }
}

void sim_steps_lose(struct sim *s, int64_t job, int node)
{
    for (struct sim_step *st = s->steps, *next; st; st = next) {
        bool there = node < 0 && st->job == job;
        next = st->next;
        for (int i = 0; node >= 0 && i < st->nodes; i++)
            there |= st->where[i] == node;
        if (there && node >= 0)
            snprintf(st->status.node_lost, sizeof st->status.node_lost, "n%d", node);
        if (there)
            end(st, true);
    }
}

void sim_step_event(struct sim *s, const struct sim_event *e)
{
    struct sim_step *st = s->steps;
    while (st && st->id != e->id)
        st = st->next;
    if (!st)
        return;
    if (e->tick == TICK_STEP_END) {
        if (e->at_s == st->end_s && !st->stuck)
            end(st, false);
    } else if (e->tick == TICK_STEP_TERM) {
        st->status.timed_out = true;
        hear(st, SIGTERM);
        sim_plan(s, s->now_s + s->conf.kill_wait_s, TICK_STEP_KILL, st->id, 0);
    } else {
        st->stuck = false;
        hear(st, SIGKILL);
    }
}

/* ---- the calls ---- */

static int step_make(struct sim *s, const struct sched_step_spec *spec, int nodes, int cores,
                     struct sim_step **out, struct err *err)
{
    struct sim_step *st = calloc(1, sizeof *st + (size_t)nodes * sizeof *st->where);
    if (!st)
        return err_set(err, ERR_NOMEM, "out of memory for a step");
    *st = (struct sim_step){.base = {s->base.ops},
                            .sim = s,
                            .next = s->steps,
                            .id = ++s->steps_made, .job = s->self,
                            .spec = *spec,
                            .cores = cores, .nodes = nodes,
                            .where = (int *)(st + 1),
                            .status = {.exit_code = -1, .started_at = s->now_s}};
    for (int i = 0; i < nodes; i++) {
        st->where[i] = s->self ? s->jobs[s->self - 1]->where[i] : i;
        st->stuck |= s->nodes[st->where[i]].silent;
    }
    s->steps = st;
    s->steps_cores += cores;
    *out = st;
    return 0;
}

int sim_step_start(struct sched *sched, const struct sched_step_spec *spec,
                   struct sched_step **out, struct err *err)
{
    struct sim *s = sim_of(sched);
    struct sim_step *st = NULL;
    char id[24];
    int nodes = 0, cores = 0, rc;
    if (s->self && s->jobs[s->self - 1]->ended_s > 0)
        return err_set(err, ERR_STATE, "the job that the step is for has ended");
    if ((rc = nodes_of(s, spec, &nodes, err)) < 0 ||
        (!spec->per_node && (rc = cores_take(s, spec->cores, &cores, err)) < 0) ||
        (rc = step_make(s, spec, nodes, cores, &st, err)) < 0)
        return rc;
    struct sim_exec exec = exec_of(st, id);
    st->outcome = sim_ask_run(s, &exec);
    end_plan(st);
    if (spec->deadline_s > 0)
        sim_plan(s, s->now_s + spec->deadline_s, TICK_STEP_TERM, st->id, 0);
    st->spec = (struct sched_step_spec){.ranks = spec->ranks}; /* the caller may release the rest */
    *out = &st->base;
    return 0;
}

/* Lets time pass until the step has ended, or for wait_s seconds. */
int sim_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                  struct err *err)
{
    struct sim_step *st = (struct sim_step *)step;
    struct sim *s = st->sim;
    double until_s = wait_s < 0 ? INFINITY : s->now_s + wait_s;
    sim_run_until(s, s->now_s);
    while (!st->status.ended && s->heap.n > 0 && s->heap.v[0].at_s <= until_s)
        sched_sim_step(&s->base);
    if (!st->status.ended && wait_s < 0)
        return err_set(err, ERR_STATE,
                       "a simulated step hangs and nothing is to come: it never ends");
    if (!st->status.ended)
        sim_run_until(s, until_s);
    *out = st->status;
    return 0;
}

int sim_step_signal(struct sched_step *step, int signo, struct err *err)
{
    struct sim_step *st = (struct sim_step *)step;
    (void)err;
    if (!st->status.ended)
        hear(st, signo);
    return 0;
}

void sim_step_free(struct sched_step *step)
{
    struct sim_step *st = (struct sim_step *)step;
    if (!st->status.ended) {
        hear(st, SIGKILL);
        end(st, false);
    }
    free(st);
}
