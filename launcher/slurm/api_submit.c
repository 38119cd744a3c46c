/* This file describes a batch job as sbatch would with the options that slurm_commands.c gives it.
 * It fills in the fields that sbatch sets, and adds sbatch's variables to the job's environment.
 * Some variables are messages to slurmd, which removes them again. */
#include "launcher/slurm/api.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/str.h"

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define GRES_PREFIX "gres/"
#else
#define GRES_PREFIX "gres:"
#endif

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define ANSWERED_ID(answer) ((answer)->step_id.job_id)
#else
#define ANSWERED_ID(answer) ((answer)->job_id)
#endif

/* ---- the environment ---- */

enum { MAX_ADDED = 32 };
struct added {
    char *v[MAX_ADDED];
    int n;
    struct arena *arena;
};

static void add(struct added *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct added *a, const char *fmt, ...)
{
    char text[LIMIT_PATH_BYTES + 64];
    va_list ap;
    BUG_ON(a->n >= MAX_ADDED);
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    a->v[a->n++] = arena_strdup(a->arena, text);
}

/* Adds the resource limits to the environment. slurmd applies those that slurm.conf propagates
 * (PropagateResourceLimits), and removes all these variables. */
static void add_limits(struct added *a)
{
    static const struct {
        const char *name;
        int resource;
    } limits[] = {{"CPU", RLIMIT_CPU},     {"FSIZE", RLIMIT_FSIZE},   {"DATA", RLIMIT_DATA},
                  {"STACK", RLIMIT_STACK}, {"CORE", RLIMIT_CORE},     {"RSS", RLIMIT_RSS},
                  {"NPROC", RLIMIT_NPROC}, {"NOFILE", RLIMIT_NOFILE}, {"MEMLOCK", RLIMIT_MEMLOCK},
                  {"AS", RLIMIT_AS}};
    struct rlimit limit;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (getrlimit(limits[i].resource, &limit) == 0)
            add(a, "SLURM_RLIMIT_%s=%lu", limits[i].name, (unsigned long)limit.rlim_cur);
}

static void add_variables(const struct sched_spec *s, struct added *a)
{
    char dir[LIMIT_PATH_BYTES], host[256] = "";
    mode_t mask = umask(0);
    umask(mask);
    gethostname(host, sizeof host - 1);
    add(a, "SLURM_PRIO_PROCESS=%d", getpriority(PRIO_PROCESS, 0));
    add(a, "SLURM_SUBMIT_DIR=%s", getcwd(dir, sizeof dir) ? dir : s->cwd);
    add(a, "SLURM_SUBMIT_HOST=%s", host);
    add(a, "SLURM_UMASK=%04o", (unsigned)mask & 0777);
    add(a, "SLURM_OPEN_MODE=a");
    add(a, "SLURM_JOB_NAME=%s", s->name);
    add(a, "SLURM_NPROCS=%d", s->nodes);
    add(a, "SLURM_NTASKS=%d", s->nodes);
    add(a, "SLURM_NTASKS_PER_NODE=1");
    if (s->cores_per_node > 0)
        add(a, "SLURM_CPUS_PER_TASK=%d", s->cores_per_node);
}

static int env_fill(const struct slurm_submit *w, struct arena *arena, job_desc_msg_t *d,
                    struct err *err)
{
    struct added a = {.arena = arena};
    uint32_t n = 0;
    add_limits(&a);
    add_variables(w->spec, &a);
    while (w->env[n])
        n++;
    d->environment = arena_array(arena, n + (size_t)a.n + 1, sizeof *d->environment);
    bool failed = !d->environment;
    for (uint32_t i = 0; !failed && i < n; i++)
        d->environment[i] = (char *)w->env[i];
    for (int i = 0; !failed && i < a.n; i++) {
        d->environment[n++] = a.v[i];
        failed = !a.v[i];
    }
    d->env_size = n;
    return failed ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

/* ---- the description ---- */

/* Doubles each `%` of a path, because `%` begins a pattern in names of output files. */
static char *output_pattern(const char *path, struct arena *arena)
{
    struct str s = STR_INIT;
    for (; *path; path++)
        str_addn(&s, "%%", *path == '%' ? 2 : 0), str_addn(&s, path, *path != '%');
    char *copy = s.failed ? NULL : arena_strdup(arena, s.p);
    str_release(&s);
    return copy;
}

/* Fills in nodes, tasks and cores: each node has one task, which gets the node's share of cores. */
static void shape_fill(const struct sched_spec *s, job_desc_msg_t *d)
{
    uint32_t nodes = (uint32_t)s->nodes, cores = (uint32_t)s->cores_per_node;
    d->min_nodes = d->max_nodes = d->num_tasks = nodes;
    d->ntasks_per_node = 1;
    d->bitflags |= JOB_NTASKS_SET;
    d->min_cpus = cores ? nodes * cores : nodes;
    if (cores) {
        d->bitflags |= JOB_CPUS_SET;
        d->cpus_per_task = d->pn_min_cpus = (uint16_t)cores;
    } else {
        d->shared = JOB_SHARED_NONE;
    }
}

static void desc_fill(const struct slurm_submit *w, job_desc_msg_t *d)
{
    const struct sched_spec *s = w->spec;
    slurm_init_job_desc_msg(d);
    d->user_id = getuid();
    d->group_id = getgid();
    d->name = (char *)s->name;
    d->comment = (char *)w->comment;
    d->work_dir = (char *)s->cwd;
    d->script = (char *)w->script;
    d->partition = (char *)s->partition;
    d->account = (char *)s->account;
    d->qos = (char *)s->qos;
    d->exc_nodes = (char *)s->exclude;
    d->std_in = (char *)"/dev/null";
    d->open_mode = OPEN_MODE_APPEND;
    d->nice = (uint32_t)(NICE_OFFSET + w->nice);
    d->requeue = s->requeue;
    d->kill_on_node_fail = !s->outlives_nodes;
    d->contiguous = 0;
    d->mail_type = 0;
    d->mem_bind_type = 0;
    d->task_dist = SLURM_DIST_UNKNOWN;
    if (s->time_limit_s > 0)
        d->time_limit = (uint32_t)((s->time_limit_s + 59) / 60);
    if (s->signal) {
        d->warn_signal = (uint16_t)s->signal;
        d->warn_time = (uint16_t)(s->signal_lead_s + 0.5);
        d->warn_flags = KILL_JOB_BATCH;
    }
}

/* Asks the controller whether it would take the job. slurm.h declares nothing that frees the
 * answer, of which a launch causes one. */
static int would_run(job_desc_msg_t *d, struct err *err)
{
    will_run_response_msg_t *answer = NULL;
    return slurm_job_will_run2(d, &answer) == SLURM_SUCCESS ? 0 : api_error("submit", err);
}

int api_submit(const struct slurm_submit *what, char id[SCHED_ID_BYTES], struct err *err)
{
    const struct sched_spec *s = what->spec;
    struct arena arena;
    job_desc_msg_t d;
    submit_response_msg_t *answer = NULL;
    arena_init(&arena, 0);
    desc_fill(what, &d);
    shape_fill(s, &d);
    d.std_out = output_pattern(s->log_path, &arena);
    if (s->gpus_per_node > 0)
        d.tres_per_node = arena_printf(&arena, GRES_PREFIX "gpu:%d", s->gpus_per_node);
    if (s->after)
        d.dependency = arena_printf(&arena, "afterany:%s", s->after);
    int rc;
    if ((rc = env_fill(what, &arena, &d, err)) < 0)
        goto out;
    if (!d.std_out || (s->after && !d.dependency) || (s->gpus_per_node > 0 && !d.tres_per_node))
        rc = err_set(err, ERR_NOMEM, "out of memory");
    else if (what->test_only)
        rc = would_run(&d, err);
    else if (slurm_submit_batch_job(&d, &answer) != SLURM_SUCCESS)
        rc = api_error("submit", err);
    else if (!answer)
        rc = err_set(err, ERR_TEMP, "submit: the controller answered without a job id");
    else
        snprintf(id, SCHED_ID_BYTES, "%u", (unsigned)ANSWERED_ID(answer));
out:
    slurm_free_submit_response_response_msg(answer);
    arena_release(&arena);
    return rc;
}

int api_comment(const char *handle, const char *text, struct err *err)
{
    job_desc_msg_t d;
    slurm_init_job_desc_msg(&d);
    d.job_id_str = (char *)handle;
    d.comment = (char *)text;
    return slurm_update_job(&d) == SLURM_SUCCESS ? 0 : api_error("comment", err);
}
