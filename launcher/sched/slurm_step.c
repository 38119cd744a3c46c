/* Steps on Slurm: srun in the job's allocation, watched like a step of this machine.
 *
 * The step's first process is srun: it passes signals on to the tasks, ends with the highest of their exit codes (128 + n for one that
 * died of signal n; a program's own codes above 128 read the same), and at SIGTERM ends the step: tasks that do not hear it are
 * killed by their node KillWait later. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/num.h"
#include "launcher/sched/local_priv.h"
#include "launcher/sched/slurm_priv.h"

enum { MAX_OPTIONS = 16, SIGNAL_CODES = 128, SIGNALS = 64 };
static const double KILL_WAIT_S = 10;

struct slurm_step {
    struct sched_step base;
    struct local_steps steps; /* of this one alone */
    struct sched_step *inner;
};

static int from_env(const char *name, int64_t fallback, int64_t *out, struct err *err)
{
    const char *text = getenv(name);
    *out = fallback;
    return text && *text ? num_parse_i64(text, name, out, err) : 0;
}

/* Cores of all nodes of the allocation we are in. */
static int allocation(int64_t *nodes, int64_t *cores, struct err *err)
{
    if (!getenv("SLURM_JOB_ID"))
        return err_set(err, ERR_ENV, "this process runs in no Slurm job: steps need an allocation ('reel tune --nodes N' asks for one)");
    int rc = from_env("SLURM_JOB_NUM_NODES", 1, nodes, err);
    if (rc == 0)
        rc = from_env("SLURM_CPUS_ON_NODE", 1, cores, err);
    *cores *= *nodes;
    return rc;
}

/* per_node: cores of one node. */
static const char **srun_argv(const struct sched_step_spec *spec, int64_t nodes, int64_t per_node, struct arena *arena)
{
    size_t n = 0, k = 0;
    int64_t ranks_per_node = num_ceil_div(spec->ranks, nodes), cores = spec->cores ? spec->cores / spec->ranks : per_node;
    cores = num_max_i64(1, num_min_i64(cores, per_node / ranks_per_node));
    while (spec->argv[n])
        n++;
    const char **v = arena_array(arena, n + MAX_OPTIONS, sizeof *v);
    if (!v)
        return NULL;
    v[k++] = "srun";
    v[k++] = "--exact";
    v[k++] = "--export=ALL";
    v[k++] = "--input=none";
    v[k++] = "--kill-on-bad-exit=1";
    v[k++] = spec->ranks > 1 ? "--mpi=pmix" : "--mpi=none";
    v[k++] = arena_printf(arena, "--nodes=%lld", (long long)nodes);
    v[k++] = arena_printf(arena, "--ntasks=%d", spec->ranks);
    v[k++] = arena_printf(arena, "--cpus-per-task=%lld", (long long)cores);
    for (size_t i = 1; i < k; i++)
        if (!v[i])
            return NULL;
    memcpy(v + k, spec->argv, n * sizeof *v);
    return v;
}

/* The step's own environment and what srun needs to find its job. */
static const char **srun_env(const struct sched_step_spec *spec, struct arena *arena)
{
    extern char **environ;
    size_t n = 0, m = 0, k = 0;
    while (spec->env[n])
        n++;
    while (environ[m])
        m++;
    const char **v = arena_array(arena, n + m + 1, sizeof *v);
    for (size_t i = 0; v && i < n; i++)
        if (strncmp(spec->env[i], "SLURM_", 6) != 0)
            v[k++] = spec->env[i];
    for (size_t i = 0; v && i < m; i++)
        if (strncmp(environ[i], "SLURM_", 6) == 0 || strncmp(environ[i], "REEL_JOB_", 9) == 0)
            v[k++] = environ[i];
    return v;
}

int slurm_step_start(struct sched_slurm *s, const struct sched_step_spec *spec, struct sched_step **out, struct err *err)
{
    struct arena arena;
    struct sched_step_spec watched = *spec;
    int64_t nodes, cores;
    int rc = allocation(&nodes, &cores, err);
    if (rc < 0)
        return rc;
    if (spec->cores <= cores && access(spec->argv[0], X_OK) != 0)
        return err_set_errno(err, ERR_ENV, "cannot run '%s'", spec->argv[0]);
    struct slurm_step *st = calloc(1, sizeof *st);
    if (!st)
        return err_set(err, ERR_NOMEM, "out of memory for a step");
    arena_init(&arena, 0);
    st->base.ops = s->base.ops;
    st->steps = (struct local_steps){.ops = s->base.ops, .machine = {.kill_wait_s = KILL_WAIT_S}, .cores = cores};
    int64_t per_node = cores / nodes;
    nodes = spec->nodes ? spec->nodes : num_min_i64(nodes, spec->ranks);
    watched.argv = srun_argv(spec, nodes, per_node, &arena);
    const char **env = srun_env(spec, &arena);
    rc = watched.argv && env ? local_step_start(&st->steps, &watched, env, &st->inner, err)
                             : err_set(err, ERR_NOMEM, "out of memory for a step");
    arena_release(&arena);
    if (rc < 0)
        free(st);
    else
        *out = &st->base;
    return rc;
}

int slurm_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out, struct err *err)
{
    int rc = local_step_poll(((struct slurm_step *)step)->inner, wait_s, out, err);
    if (rc == 0 && out->exit_code > SIGNAL_CODES && out->exit_code <= SIGNAL_CODES + SIGNALS) {
        out->exit_signal = out->exit_code - SIGNAL_CODES;
        out->exit_code = -1;
    }
    return rc;
}

int slurm_step_signal(struct sched_step *step, int signo, struct err *err)
{
    return local_step_signal(((struct slurm_step *)step)->inner, signo, err);
}

/* srun is asked first: killed at once it would leave its tasks running. */
void slurm_step_free(struct sched_step *step)
{
    struct slurm_step *st = (struct slurm_step *)step;
    struct sched_step_status status;
    if (local_step_poll(st->inner, 0, &status, NULL) == 0 && !status.ended) {
        local_step_signal(st->inner, SIGTERM, NULL);
        local_step_poll(st->inner, KILL_WAIT_S, &status, NULL);
    }
    local_step_free(st->inner);
    free(st);
}
