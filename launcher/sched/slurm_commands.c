/* slurm_commands: asks the controller through sbatch, squeue, scontrol, scancel and sinfo.
 *
 * Commands are found on PATH, run without the environment variables that change what they do
 * (SBATCH_*, SQUEUE_*, ...), and killed at the deadline. From Slurm 23.02 on squeue is asked for
 * JSON; before that its --json ignores every filter, so its text output is used. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/spawn.h"
#include "base/str.h"
#include "launcher/sched/slurm_text.h"

enum { JSON_FROM = 2302 };

extern char **environ;

struct commands {
    struct slurm_rpc rpc;
    int version; /* 2205; 0: not asked yet */
};

/* ---- running a command ---- */

static bool changes_meaning(const char *entry)
{
    static const char *const prefixes[] = {
        "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_", "SCONTROL_", "SLURM_TIME_FORMAT=",
        "SLURM_CLUSTERS=", "SLURM_JSON=", "SLURM_TOPO_LEN="};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (str_starts(entry, prefixes[i]))
            return true;
    return false;
}

static const char **environment(struct arena *arena, const char *const *from)
{
    size_t n = 0, k = 0;
    while (from[n])
        n++;
    const char **env = arena_array(arena, n + 2, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (!changes_meaning(from[i]))
            env[k++] = from[i];
    if (env)
        env[k++] = "SLURM_TIME_FORMAT=%s";
    return env;
}

/* Runs a command. out may be NULL. An exit code other than 0 is an error; the message on stderr
 * decides its code. */
static int ask_with(const char *const *argv, const char *const *env, const char *input,
                    struct str *out, struct err *err)
{
    struct spawn s = SPAWN_INIT;
    struct spawn_exit end;
    struct str said = STR_INIT;
    s.argv = argv;
    s.env = env;
    s.die_with_parent = true;
    s.slow_s = SLURM_SLOW_S;
    s.slow = slurm_slow_tell;
    int rc;
    if ((rc = spawn_run(&s, input, slurm_wait_s(), out, &said, &end, err)) < 0)
        goto out;
    if (end.timed_out)
        rc = err_set(err, ERR_TEMP, "%s did not answer within %d s", argv[0], slurm_wait_s());
    else if (end.signal)
        rc = err_set(err, ERR_TEMP, "%s died of signal %d", argv[0], end.signal);
    else if (end.code != 0)
        rc = slurm_text_error(argv[0], said.len ? said.p : "", err);
out:
    slurm_slow_settle(rc);
    str_release(&said);
    return rc;
}

static int ask(const char *const *argv, struct str *out, struct err *err)
{
    struct arena arena;
    arena_init(&arena, 0);
    const char **env = environment(&arena, (const char *const *)environ);
    int rc = env ? ask_with(argv, env, NULL, out, err)
                 : err_set(err, ERR_NOMEM, "out of memory");
    arena_release(&arena);
    return rc;
}

/* ---- the calls ---- */

static int site(struct slurm_rpc *r, struct arena *arena, struct slurm_site *out,
                struct err *err)
{
    static const char *const config_argv[] = {"scontrol", "show", "config", NULL},
                      *const partition_argv[] = {"scontrol", "show", "partition", "-a", "-o", NULL},
                      *const node_argv[] = {"sinfo", "-a", "-h", "-o", "%R|%c|%G", NULL};
    struct str config = STR_INIT, partitions = STR_INIT, nodes = STR_INIT;
    int rc;
    (void)r;
    if ((rc = ask(config_argv, &config, err)) == 0 &&
        (rc = ask(partition_argv, &partitions, err)) == 0 &&
        (rc = ask(node_argv, &nodes, err)) == 0 && (rc = str_check(&config, err)) == 0)
        rc = slurm_text_site(config.p, partitions.len ? partitions.p : "",
                             nodes.len ? nodes.p : "", arena, out, err);
    str_release(&config);
    str_release(&partitions);
    str_release(&nodes);
    return rc;
}

static int net(struct slurm_rpc *r, bool with_nodes, struct arena *arena, struct slurm_net *out,
               struct err *err)
{
    static const char *const node_argv[] = {"scontrol", "show", "node", "-a", "-o", NULL},
                             *const topology_argv[] = {"scontrol", "show", "topology", "-o", NULL};
    struct str nodes = STR_INIT, topology = STR_INIT;
    int rc;
    (void)r;
    if ((rc = with_nodes ? ask(node_argv, &nodes, err) : 0) == 0 &&
        (rc = ask(topology_argv, &topology, err)) == 0)
        rc = slurm_text_net(nodes.p, topology.p, arena, out, err);
    str_release(&nodes);
    str_release(&topology);
    return rc;
}

/* Finds Slurm's version: 2205 from "slurm-wlm 22.05.8" or "slurm 22.05.8". */
static int version_of(struct commands *c, int *version, struct err *err)
{
    static const char *const argv[] = {"sinfo", "--version", NULL};
    struct str text = STR_INIT;
    int major, minor, rc = 0;
    if (!c->version && (rc = ask(argv, &text, err)) == 0) {
        if (text.len && sscanf(text.p, "%*s %d.%d", &major, &minor) == 2)
            c->version = major * 100 + minor;
        else
            rc = err_set(err, ERR_ENV, "sinfo --version printed no version: '%.60s'",
                         text.len ? text.p : "");
    }
    str_release(&text);
    *version = c->version;
    return rc;
}

static int jobs(struct slurm_rpc *r, const char *id, struct arena *arena, struct slurm_jobs *out,
                struct err *err)
{
    char user[32];
    struct str text = STR_INIT;
    int version, n = 7, rc;
    if ((rc = version_of((struct commands *)r, &version, err)) < 0)
        return rc;
    snprintf(user, sizeof user, "%u", (unsigned)getuid());
    const char *argv[12] = {"squeue", "-a", "-h", "-t", "all", id ? "-j" : "-u", id ? id : user};
    if (version >= JSON_FROM)
        argv[n++] = "--json";
    else
        argv[n++] = "-O", argv[n++] = slurm_text_squeue_format();
    if ((rc = ask(argv, &text, err)) == ERR_NOT_FOUND) {
        *out = (struct slurm_jobs){0};
        rc = 0;
        goto out;
    }
    if (rc < 0)
        goto out;
    const char *p = text.len ? text.p : "";
    rc = version >= JSON_FROM ? slurm_text_jobs_json(p, arena, out, err)
                              : slurm_text_jobs(p, arena, out, err);
    if (rc == 0 && id)
        slurm_jobs_keep(out, id);
out:
    str_release(&text);
    return rc;
}

static int signal_(struct slurm_rpc *r, const char *handle, int signo, bool all, struct err *err)
{
    char number[32];
    const char *argv[] = {"scancel", all ? "--full" : "--batch", number, handle, NULL};
    (void)r;
    snprintf(number, sizeof number, "--signal=%d", signo);
    return ask(argv, NULL, err);
}

static int requeue(struct slurm_rpc *r, const char *handle, struct err *err)
{
    const char *argv[] = {"scontrol", "requeue", handle, NULL};
    (void)r;
    return ask(argv, NULL, err);
}

static int cancel(struct slurm_rpc *r, const char *handle, struct err *err)
{
    const char *argv[] = {"scancel", handle, NULL};
    (void)r;
    return ask(argv, NULL, err);
}

static int comment(struct slurm_rpc *r, const char *handle, const char *text, struct err *err)
{
    struct str job = STR_INIT, value = STR_INIT;
    int rc;
    (void)r;
    str_addf(&job, "jobid=%s", handle);
    str_addf(&value, "comment=%s", text);
    if ((rc = str_check(&job, err)) < 0 || (rc = str_check(&value, err)) < 0)
        goto out;
    rc = ask((const char *[]){"scontrol", "update", job.p, value.p, NULL}, NULL, err);
out:
    str_release(&job);
    str_release(&value);
    return rc;
}

int slurm_command_start(const char *const *argv, pid_t *pid, struct err *err)
{
    struct arena arena;
    struct spawn s = SPAWN_INIT;
    arena_init(&arena, 0);
    s.argv = argv;
    s.env = environment(&arena, (const char *const *)environ);
    s.die_with_parent = true;
    int rc = s.env ? spawn_start(&s, pid, err) : err_set(err, ERR_NOMEM, "out of memory");
    arena_release(&arena);
    return rc;
}

int slurm_history(const char *const *ids, struct arena *arena, struct slurm_jobs *out,
                  struct err *err)
{
    struct str list = STR_INIT, text = STR_INIT;
    int rc;
    for (const char *const *id = ids; *id; id++)
        str_addf(&list, "%s%s", list.len ? "," : "", *id);
    const char *argv[] = {"sacct", "-n", "-P", "-X", "-j", list.p, "-o", SLURM_SACCT_FIELDS,
                          NULL};
    if ((rc = str_check(&list, err)) < 0)
        goto out;
    if ((rc = ask(argv, &text, err)) < 0)
        goto out;
    rc = slurm_text_history(text.len ? text.p : "", arena, out, err);
out:
    str_release(&list);
    str_release(&text);
    return rc;
}

/* ---- submitting ---- */

enum { MAX_ARGS = 40 };
struct args {
    const char *v[MAX_ARGS];
    int n;
    struct arena *arena;
    bool failed;
};

static void arg(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void arg(struct args *a, const char *fmt, ...)
{
    char text[LIMIT_PATH_BYTES + 64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    BUG_ON(a->n >= MAX_ARGS - 1);
    const char *copy = arena_strdup(a->arena, text);
    a->failed |= !copy;
    a->v[a->n++] = copy;
}

/* Adds --output, with each `%` doubled, because `%` begins a pattern (sbatch(1) "filename
 * pattern"). */
static void arg_output(struct args *a, const char *path)
{
    struct str s = STR_INIT;
    for (; *path; path++)
        str_addn(&s, "%%", *path == '%' ? 2 : 0), str_addn(&s, path, *path != '%');
    arg(a, "--output=%s", s.len ? s.p : "");
    str_release(&s);
}

static void args_fill(struct args *a, const struct slurm_submit *w)
{
    const struct sched_spec *s = w->spec;
    arg(a, "sbatch");
    arg(a, w->test_only ? "--test-only" : "--parsable");
    arg(a, "--job-name=%s", s->name);
    arg(a, "--comment=%s", w->comment);
    arg(a, "--chdir=%s", s->cwd);
    arg_output(a, s->log_path);
    arg(a, "--open-mode=append");
    arg(a, "--export=ALL");
    arg(a, "--nice=%d", w->nice);
    arg(a, s->requeue ? "--requeue" : "--no-requeue");
    if (s->outlives_nodes)
        arg(a, "--no-kill");
    arg(a, "--nodes=%d", s->nodes);
    arg(a, "--ntasks-per-node=1");
    if (s->cores_per_node > 0)
        arg(a, "--cpus-per-task=%d", s->cores_per_node);
    else
        arg(a, "--exclusive");
    if (s->gpus_per_node > 0)
        arg(a, "--gres=gpu:%d", s->gpus_per_node);
    if (s->partition)
        arg(a, "--partition=%s", s->partition);
    if (s->account)
        arg(a, "--account=%s", s->account);
    if (s->qos)
        arg(a, "--qos=%s", s->qos);
    if (s->exclude)
        arg(a, "--exclude=%s", s->exclude);
    if (s->after)
        arg(a, "--dependency=afterany:%s", s->after);
    if (s->time_limit_s > 0)
        arg(a, "--time=%lld", (long long)((s->time_limit_s + 59) / 60));
    if (s->signal)
        arg(a, "--signal=B:%d@%lld", s->signal, (long long)(s->signal_lead_s + 0.5));
}

/* Reads the id that sbatch printed: "123" or "123;cluster". */
static int id_read(const struct str *text, char id[SCHED_ID_BYTES], struct err *err)
{
    const char *p = text->len ? text->p : "";
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits >= SCHED_ID_BYTES)
        return err_set(err, ERR_TEMP, "sbatch printed no job id: '%.60s'", p);
    snprintf(id, SCHED_ID_BYTES, "%.*s", (int)digits, p);
    return 0;
}

static int submit(struct slurm_rpc *r, const struct slurm_submit *w, char id[SCHED_ID_BYTES],
                  struct err *err)
{
    struct arena arena;
    struct str text = STR_INIT;
    int rc;
    (void)r;
    arena_init(&arena, 0);
    struct args a = {.arena = &arena};
    args_fill(&a, w);
    if (a.failed) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    rc = ask_with(a.v, w->env, w->script, &text, err);
    if (rc == ERR_CHILD) { /* the message is unknown, so the job may exist */
        if (err)
            err->code = ERR_TEMP;
        rc = ERR_TEMP;
    }
    if (rc < 0)
        goto out;
    rc = w->test_only ? 0 : id_read(&text, id, err);
out:
    str_release(&text);
    arena_release(&arena);
    return rc;
}

static void close_(struct slurm_rpc *r)
{
    free(r);
}

static const struct slurm_rpc_ops ops = {"commands", site, net, submit, jobs, signal_, requeue,
                                         cancel, comment, close_};

int slurm_commands_open(struct slurm_rpc **out, struct err *err)
{
    const char *path = getenv("PATH");
    char file[LIMIT_PATH_BYTES];
    for (const char *p = path; p && *p; p += strspn(p, ":")) {
        int n = (int)strcspn(p, ":");
        snprintf(file, sizeof file, "%.*s/sbatch", n, p);
        p += n;
        if (access(file, X_OK) != 0)
            continue;
        struct commands *c = calloc(1, sizeof *c);
        if (!c)
            return err_set(err, ERR_NOMEM, "out of memory");
        c->rpc.ops = &ops;
        *out = &c->rpc;
        return 0;
    }
    return err_set(err, ERR_ENV,
                   "no sbatch on PATH: Slurm's commands are needed on this machine");
}
