/* This file runs a step on Slurm as an srun in the job's allocation, watched like a step of the
 * local scheduler.
 *
 * The step's first process is srun. It forwards signals to the tasks, and ends with the highest of
 * their exit codes (128 + n for a task that died of signal n, which a program's own code may
 * equal). At SIGTERM it ends the step: tasks that do not end are killed by their node KillWait
 * later. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/num.h"
#include "base/spawn.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/local_priv.h"
#include "launcher/sched/slurm_priv.h"

enum { MAX_OPTIONS = 16, SIGNAL_CODES = 128, SIGNALS = 64 };
static const double KILL_WAIT_S = 10;

struct slurm_step {
    struct sched_step base;
    struct local_steps steps; /* has this step only */
    struct sched_step *inner;
    char *log_path; /* NULL: none */
    char *host_file; /* NULL: srun chooses where ranks run */
    int64_t read_to;
    pid_t scancel; /* 0: none was started, or it was reaped */
    char node_lost[SCHED_ID_BYTES];
    bool per_node;
};

static int64_t log_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static int from_env(const char *name, int64_t fallback, int64_t *out, struct err *err)
{
    const char *text = getenv(name);
    *out = fallback;
    return text && *text ? num_parse_i64(text, name, out, err) : 0;
}

/* Counts the nodes of this process's allocation that the step does not exclude. When a job goes on
 * without a lost node, Slurm does not update its number of nodes. */
static int nodes_left(const char *exclude, int64_t *nodes, struct err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), **names;
    struct arena arena;
    size_t n;
    int rc;
    if (!exclude || !list)
        return 0;
    arena_init(&arena, 0);
    if ((rc = hosts_expand(list, &arena, &names, &n, err)) < 0)
        goto out;
    if ((rc = hosts_remove(names, &n, exclude, &arena, err)) < 0)
        goto out;
    *nodes = (int64_t)n;
    if (n < 1)
        rc = err_set(err, ERR_LIMIT, "all nodes of the job, %s, are excluded from its steps", list);
out:
    arena_release(&arena);
    return rc;
}

/* Counts the nodes of this process's allocation that a step may use, and their cores. */
static int allocation(const char *exclude, int64_t *nodes, int64_t *cores, struct err *err)
{
    int rc;
    if (!getenv("SLURM_JOB_ID"))
        return err_set(err, ERR_ENV,
                       "this process runs in no Slurm job: steps need an allocation ('reel tune "
                       "--nodes N' asks for one)");
    if ((rc = from_env("SLURM_JOB_NUM_NODES", 1, nodes, err)) < 0)
        return rc;
    if ((rc = nodes_left(exclude, nodes, err)) < 0)
        return rc;
    if ((rc = from_env("SLURM_CPUS_ON_NODE", 1, cores, err)) < 0)
        return rc;
    *cores *= *nodes;
    return 0;
}

/* Formats the CPUs of a node's ranks as an option of srun. */
static const char *cpu_bind(const char *const *cpus, struct arena *arena)
{
    struct str text = STR_INIT;
    const char *word = NULL;
    str_add(&text, "--cpu-bind=mask_cpu:");
    for (const char *const *c = cpus; *c; c++) {
        str_add(&text, c == cpus ? "" : ",");
        if (place_mask(*c, &text, NULL) < 0)
            goto out;
    }
    if (!text.failed)
        word = arena_strdup(arena, text.p);
out:
    str_release(&text);
    return word;
}

/* Adds srun's options. per_node: number of cores on each node. Without --wait=0 a site may have the
 * ranks of a step ended soon after the first of them has ended. */
static size_t options_add(const struct sched_step_spec *spec, int64_t nodes, int64_t per_node,
                          bool placed, struct arena *arena, const char **v)
{
    size_t k = 0;
    int64_t ranks = spec->per_node ? nodes : spec->ranks;
    int64_t ranks_per_node = num_ceil_div(ranks, nodes),
            cores = spec->cores ? spec->cores / ranks : per_node;
    cores = spec->per_node ? 1 : num_max_i64(1, num_min_i64(cores, per_node / ranks_per_node));
    v[k++] = spec->per_node ? "--overlap" : "--exact";
    v[k++] = "--export=ALL";
    v[k++] = "--input=none";
    v[k++] = spec->per_node ? "--kill-on-bad-exit=0" : "--kill-on-bad-exit=1";
    v[k++] = !spec->per_node && ranks > 1 ? "--mpi=pmix" : "--mpi=none";
    if (spec->per_node) {
        v[k++] = "--gres=none";
        v[k++] = "--wait=0";
    }
    if (spec->only)
        v[k++] = arena_printf(arena, "--nodelist=%s", spec->only);
    if (spec->exclude)
        v[k++] = arena_printf(arena, "--exclude=%s", spec->exclude);
    if (placed)
        v[k++] = "--distribution=arbitrary";
    if (spec->cpus)
        v[k++] = cpu_bind(spec->cpus, arena);
    v[k++] = arena_printf(arena, "--nodes=%lld", (long long)nodes);
    v[k++] = arena_printf(arena, "--ntasks=%lld", (long long)ranks);
    v[k++] = arena_printf(arena, "--cpus-per-task=%lld", (long long)cores);
    return k;
}

/* Counts the nodes of the list that a step is to use: all, or those that are in `only` too, which
 * then names these alone. */
static int nodes_choose(const char *list, const char **only, int64_t *nodes, struct arena *arena,
                        struct err *err)
{
    const char **names, **wanted = NULL;
    struct str chosen = STR_INIT;
    size_t n, n_wanted = 0, k = 0;
    int rc;
    if ((rc = hosts_expand(list, arena, &names, &n, err)) < 0)
        return rc;
    *nodes = (int64_t)n;
    if (!*only)
        return 0;
    if ((rc = hosts_expand(*only, arena, &wanted, &n_wanted, err)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_wanted; j++)
            if (strcmp(names[i], wanted[j]) == 0) {
                names[k++] = names[i];
                break;
            }
    hosts_fold(names, k, &chosen);
    *nodes = (int64_t)k;
    *only = arena_strdup(arena, chosen.p ? chosen.p : "");
    str_release(&chosen);
    return *only ? 0 : err_set(err, ERR_NOMEM, "out of memory for a step");
}

/* Adds the program for each component of a heterogeneous job, on all its nodes or on those of
 * spec->only. */
static int components_add(const struct sched_step_spec *spec, size_t n, struct arena *arena,
                          const char **v, size_t *k, struct err *err)
{
    const char *list;
    size_t first = *k;
    int64_t nodes;
    int rc;
    for (int i = 0; (list = hosts_of_job(i)); i++) {
        struct sched_step_spec own = *spec;
        if ((rc = nodes_choose(list, &own.only, &nodes, arena, err)) < 0)
            return rc;
        if (nodes == 0)
            continue;
        if (*k > first)
            v[(*k)++] = ":";
        v[(*k)++] = arena_printf(arena, "--het-group=%d", i);
        *k += options_add(&own, nodes, 1, false, arena, v + *k);
        memcpy(v + *k, spec->argv, n * sizeof *v);
        *k += n;
    }
    return 0;
}

/* Makes srun's arguments. */
static int srun_argv(const struct sched_step_spec *spec, int64_t nodes, int64_t per_node,
                     bool placed, struct arena *arena, const char ***out, struct err *err)
{
    size_t n = 0, k = 0, parts = 1;
    int rc;
    while (spec->argv[n])
        n++;
    while (spec->per_node && hosts_of_job((int)parts))
        parts++;
    const char **v = arena_array(arena, parts * (n + MAX_OPTIONS) + 1, sizeof *v);
    if (!v)
        return err_set(err, ERR_NOMEM, "out of memory for a step");
    v[k++] = "srun";
    if (parts > 1 && (rc = components_add(spec, n, arena, v, &k, err)) < 0)
        return rc;
    if (parts == 1) {
        k += options_add(spec, nodes, per_node, placed, arena, v + k);
        memcpy(v + k, spec->argv, n * sizeof *v);
        k += n;
    }
    for (size_t i = 0; i < k; i++)
        if (!v[i])
            return err_set(err, ERR_NOMEM, "out of memory for a step");
    *out = v;
    return 0;
}

/* Tells whether the entry sets one of these variables. */
static bool sets_any(const char *entry, const char *const *names)
{
    size_t n = strcspn(entry, "=");
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(entry, *names, n) == 0)
            return true;
    return false;
}

/* Adds the variables that list the nodes, leaving out those that were lost. */
static int nodes_env(const char *lost, struct arena *arena, const char **out, struct err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), **names;
    struct str left = STR_INIT;
    size_t n;
    int rc;
    if ((rc = hosts_expand(list ? list : "", arena, &names, &n, err)) < 0)
        return rc;
    if ((rc = hosts_remove(names, &n, lost, arena, err)) < 0)
        return rc;
    hosts_fold(names, n, &left);
    if ((rc = str_check(&left, err)) < 0)
        goto out;
    out[0] = arena_printf(arena, "SLURM_JOB_NODELIST=%s", left.p ? left.p : "");
    out[1] = arena_printf(arena, "SLURM_NODELIST=%s", left.p ? left.p : "");
    out[2] = arena_printf(arena, "SLURM_JOB_NUM_NODES=%zu", n);
    out[3] = arena_printf(arena, "SLURM_NNODES=%zu", n);
    for (int i = 0; i < 4 && rc == 0; i++)
        if (!out[i])
            rc = err_set(err, ERR_NOMEM, "out of memory");
out:
    str_release(&left);
    return rc;
}

int slurm_allocation_env(const char *const *env, const char *lost, struct arena *arena,
                         const char ***out, struct err *err)
{
    static const char *const nodes[] = {"SLURM_JOB_NODELIST", "SLURM_NODELIST",
                                        "SLURM_JOB_NUM_NODES", "SLURM_NNODES",
                                        "SLURM_JOB_CPUS_PER_NODE", NULL},
                      *const tasks[] = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE",
                                        "SLURM_NTASKS_PER_NODE", NULL};
    size_t n = 0, k = 0;
    while (env[n])
        n++;
    const char **v = arena_array(arena, n + 5, sizeof *v);
    if (!v)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (!(*lost && sets_any(env[i], nodes)) &&
            !((*lost || getenv("REEL_JOB_ID")) && sets_any(env[i], tasks)))
            v[k++] = env[i];
    *out = v;
    return *lost && getenv("SLURM_JOB_ID") ? nodes_env(lost, arena, v + k, err) : 0;
}

/* Joins the step's own environment with the variables by which srun finds its job and its host
 * file. */
static const char **srun_env(const struct sched_step_spec *spec, const char *host_file,
                             struct arena *arena)
{
    extern char **environ;
    size_t n = 0, m = 0, k = 0;
    while (spec->env[n])
        n++;
    while (environ[m])
        m++;
    const char **v = arena_array(arena, n + m + 2, sizeof *v);
    for (size_t i = 0; v && i < n; i++)
        if (strncmp(spec->env[i], "SLURM_", 6) != 0)
            v[k++] = spec->env[i];
    for (size_t i = 0; v && i < m; i++)
        if (strncmp(environ[i], "SLURM_", 6) == 0 || strncmp(environ[i], "REEL_JOB_", 9) == 0)
            v[k++] = environ[i];
    if (v && host_file)
        v[k++] = arena_printf(arena, "SLURM_HOSTFILE=%s", host_file);
    return v;
}

/* Orders the ranks of several nodes by the network, if that is known; otherwise srun's order
 * applies. */
static int step_place(struct sched_slurm *s, const struct sched_step_spec *spec,
                      struct slurm_step *st, struct arena *arena, struct err *err)
{
    struct sched_placement p;
    const char *path;
    int rc;
    if ((rc = slurm_place(s, spec, arena, &p, err)) < 0)
        return rc == ERR_NOMEM ? rc : 0;
    if (p.n == 1)
        return 0;
    if ((rc = slurm_host_file_write(s, &p, arena, &path, err)) < 0)
        return rc;
    st->host_file = strdup(path);
    return st->host_file ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static void step_release(struct slurm_step *st)
{
    struct spawn_exit end;
    if (st->scancel)
        spawn_stop_group(st->scancel, 0, &end, NULL);
    if (st->host_file)
        unlink(st->host_file);
    free(st->host_file);
    free(st->log_path);
    free(st);
}

static int srun_start(struct sched_slurm *s, const struct sched_step_spec *spec, int64_t nodes,
                      struct slurm_step *st, struct arena *arena, struct err *err)
{
    struct sched_step_spec watched = *spec;
    int64_t per_node = st->steps.cores / nodes;
    int rc;
    if (!spec->per_node)
        nodes = spec->nodes ? spec->nodes : num_min_i64(nodes, spec->ranks);
    if (spec->only && (rc = nodes_choose(spec->only, &watched.only, &nodes, arena, err)) < 0)
        return rc;
    if ((rc = step_place(s, spec, st, arena, err)) < 0)
        return rc;
    const char **argv = NULL, **env = srun_env(spec, st->host_file, arena);
    if ((rc = srun_argv(spec, nodes, per_node, st->host_file != NULL, arena, &argv, err)) < 0)
        return rc;
    watched.argv = argv;
    if (!env)
        return err_set(err, ERR_NOMEM, "out of memory for a step");
    return local_step_start(&st->steps, &watched, env, &st->inner, err);
}

int slurm_step_start(struct sched_slurm *s, const struct sched_step_spec *spec,
                     struct sched_step **out, struct err *err)
{
    struct arena arena;
    int64_t nodes, cores;
    int rc;
    if ((rc = allocation(spec->exclude, &nodes, &cores, err)) < 0)
        return rc;
    if (spec->cores <= cores && access(spec->argv[0], X_OK) != 0)
        return err_set_errno(err, ERR_ENV, "cannot run '%s'", spec->argv[0]);
    struct slurm_step *st = calloc(1, sizeof *st);
    if (!st)
        return err_set(err, ERR_NOMEM, "out of memory for a step");
    st->base.ops = s->base.ops;
    st->steps = (struct local_steps){.ops = s->base.ops,
                                     .machine = {.kill_wait_s = KILL_WAIT_S},
                                     .cores = cores};
    st->per_node = spec->per_node;
    st->log_path = spec->log_path ? strdup(spec->log_path) : NULL;
    st->read_to = spec->log_path ? log_size(spec->log_path) : 0;
    arena_init(&arena, 0);
    rc = srun_start(s, spec, nodes, st, &arena, err);
    arena_release(&arena);
    if (rc < 0)
        step_release(st);
    else
        *out = &st->base;
    return rc;
}

/* Adds the nodes of a line that says where ranks have ended: "srun: error: n[1-2]: tasks 1-2:
 * Killed" or "...: Exited with exit code 1" (srun's
 * launch_slurm.c, all releases). Returns
 * false if there is no room for them until the next poll. */
static bool failed_add(const char *line, char *nodes)
{
    static const char said[] = "srun: error: ";
    const char *host = line + strlen(said), *end = strstr(line, ": task");
    size_t used = strlen(nodes);
    if (strncmp(line, said, strlen(said)) != 0 || !end || end < host ||
        memchr(host, ' ', (size_t)(end - host)))
        return true;
    if (used && used + (size_t)(end - host) + 2 > SCHED_NODES_BYTES)
        return false;
    snprintf(nodes + used, SCHED_NODES_BYTES - used, "%s%.*s", used ? "," : "", (int)(end - host),
             host);
    return true;
}

/* Looks for a lost node in a line of the step's log. The controller informs srun, which prints
 * "srun: error: Node failure on n2" (srun's step_launch.c, all releases). No other source names the
 * node before the job's processes are killed. */
static void lost_find(struct slurm_step *st, const char *line)
{
    static const char said[] = "srun: error: Node failure on ";
    if (!st->node_lost[0] && strncmp(line, said, strlen(said)) == 0)
        snprintf(st->node_lost, sizeof st->node_lost, "%.*s",
                 (int)strcspn(line + strlen(said), " ,\n"), line + strlen(said));
}

/* Reads what was added to the step's log. A line that is not complete yet is read again at the next
 * look. */
static void log_look(struct slurm_step *st, char *failed_on)
{
    bool wanted = st->log_path && (st->per_node || !st->node_lost[0]);
    FILE *f = wanted ? fopen(st->log_path, "re") : NULL;
    char line[1024];
    if (!f)
        return;
    if (fseeko(f, (off_t)st->read_to, SEEK_SET) == 0)
        while (fgets(line, sizeof line, f) &&
               (strchr(line, '\n') || strlen(line) == sizeof line - 1)) {
            if (st->per_node && !failed_add(line, failed_on))
                break;
            st->read_to = (int64_t)ftello(f);
            lost_find(st, line);
        }
    fclose(f);
}

int slurm_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err)
{
    struct slurm_step *st = (struct slurm_step *)step;
    int rc = local_step_poll(st->inner, wait_s, out, err);
    out->failed_on[0] = '\0';
    log_look(st, out->failed_on);
    snprintf(out->node_lost, sizeof out->node_lost, "%s", st->node_lost);
    if (rc < 0)
        return rc;
    if (out->exit_code > SIGNAL_CODES && out->exit_code <= SIGNAL_CODES + SIGNALS) {
        out->exit_signal = out->exit_code - SIGNAL_CODES;
        out->exit_code = -1;
    }
    return 0;
}

int slurm_step_signal(struct sched_step *step, int signo, struct err *err)
{
    return local_step_signal(((struct slurm_step *)step)->inner, signo, err);
}

int slurm_step_reach(struct sched_step *step, const char *const *ids, int signo, struct err *err)
{
    struct slurm_step *st = (struct slurm_step *)step;
    const char *argv[MAX_OPTIONS] = {"scancel"};
    struct spawn_exit end;
    char number[32];
    size_t n = 1;
    if (st->scancel && spawn_wait(st->scancel, 0, &end, NULL) == ERR_TIMEOUT)
        return err_set(err, ERR_BUSY, "scancel has not ended yet");
    st->scancel = 0;
    snprintf(number, sizeof number, "--signal=%d", signo);
    argv[n++] = number;
    for (; *ids && n < MAX_OPTIONS - 1; ids++)
        argv[n++] = *ids;
    return slurm_command_start(argv, &st->scancel, err);
}

/* Ends the step. srun gets SIGTERM first, because it would leave its tasks running if it were
 * killed at once. */
void slurm_step_free(struct sched_step *step)
{
    struct slurm_step *st = (struct slurm_step *)step;
    struct sched_step_status status;
    if (local_step_poll(st->inner, 0, &status, NULL) == 0 && !status.ended) {
        local_step_signal(st->inner, SIGTERM, NULL);
        local_step_poll(st->inner, KILL_WAIT_S, &status, NULL);
    }
    local_step_free(st->inner);
    step_release(st);
}
