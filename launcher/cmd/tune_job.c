/* reel tune --nodes N: runs the search as a job. The job's question (job.h) is its argument vector,
 * the number of nodes, the run, and another trainer's adapter and command. If a job ends without a
 * result, the next one reuses the trials that it measured. */
#include "launcher/cmd/tune_job.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "autotune/trial_other.h"
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "launcher/cmd/job.h"
#include "profiles/hw.h"

static const double TIME_BEYOND_S = 900;

struct tune_job {
    const struct opt_values *v;
    const struct tune_other *other; /* the trainer of the trials; reel-train if its adapter is
                                     * NULL */
    const char *home;
    struct arena arena;
    const char **argv;
    int argc, room;
    char dir[LIMIT_PATH_BYTES];
};

static void word(struct tune_job *j, const char *text)
{
    BUG_ON(j->argc >= j->room - 1);
    j->argv[j->argc++] = text;
}

/* Adds the options of a described cluster. Relative paths become absolute, because the job runs in
 * another folder. */
static void words_described(struct tune_job *j, const char *cwd)
{
    static const char *const names[] = {"cluster", "stack"};
    for (size_t i = 0; i < (j->other->adapter ? 1 : ARRAY_LEN(names)); i++) {
        const char *text = opt_text(j->v, names[i]);
        bool below = text[0] != '/' && (strchr(text, '/') || strstr(text, ".json"));
        word(j, arena_printf(&j->arena, "--%s=%s%s%s", names[i], below ? cwd : "",
                             below ? "/" : "", text));
    }
    if (opt_given(j->v, "scale-down"))
        word(j, arena_printf(&j->arena, "--scale-down=%lld",
                             (long long)opt_int(j->v, "scale-down")));
}

/* Adds the options for another trainer. Its command runs in the present folder (--chdir), so that
 * relative paths in it stay valid. */
static void words_other(struct tune_job *j, const char *cwd)
{
    static const char *const texts[] = {"adapter", "export", "seq"};
    word(j, arena_printf(&j->arena, "--chdir=%s", cwd));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (opt_given(j->v, texts[i]))
            word(j, arena_printf(&j->arena, "--%s=%s", texts[i], opt_text(j->v, texts[i])));
    word(j, arena_printf(&j->arena, "--gbs=%lld", (long long)opt_int(j->v, "gbs")));
    word(j, opt_enum(j->v, "dtype") == 1 ? "--dtype=f32" : "--dtype=bf16");
}

/* Adds another trainer's model and command, which come last. */
static void words_command(struct tune_job *j)
{
    const char *const *operands;
    opt_operands(j->v, &operands);
    word(j, operands[0]);
    word(j, "--");
    for (const char *const *w = j->other->argv; *w; w++)
        word(j, *w);
}

/* Makes the job's command from the options of this command. */
static void words_make(struct tune_job *j, const char *cwd)
{
    static const char *const numbers[] = {"max-trials", "trial-steps", "repeats"};
    const struct opt_values *v = j->v;
    const char *spread = opt_given(v, "layout") ? "layout" : "ranks",
               *output = opt_text(v, "output");
    word(j, "tune");
    word(j, arena_printf(&j->arena, "--%s=%s", spread, opt_text(v, spread)));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        word(j,
             arena_printf(&j->arena, "--%s=%lld", numbers[i], (long long)opt_int(v, numbers[i])));
    word(j, arena_printf(&j->arena, "--margin=%.17g", opt_num(v, "margin")));
    word(j, arena_printf(&j->arena, "--blas=%s", opt_enum(v, "blas") == 1 ? "openblas" : "own"));
    if (opt_given(v, "cluster"))
        words_described(j, cwd);
    if (j->other->adapter)
        words_other(j, cwd);
    if (opt_enum(v, "objective") > 0)
        word(j, "--objective=gpu-hours");
    if (opt_given(v, "default"))
        word(j, arena_printf(&j->arena, "--default=%s", opt_text(v, "default")));
    if (opt_given(v, "time"))
        word(j, arena_printf(&j->arena, "--time=%.17gs", opt_num(v, "time")));
    if (opt_given(v, "memory"))
        word(j, arena_printf(&j->arena, "--memory=%lld", (long long)opt_int(v, "memory")));
    if (opt_bool(v, "fresh"))
        word(j, "--fresh");
    if (opt_bool(v, "json"))
        word(j, "--json");
    word(j, output[0] == '/' ? arena_printf(&j->arena, "--output=%s", output)
                             : arena_printf(&j->arena, "--output=%s/%s", cwd, output));
}

/* Adds the hash of adapter and command to a question, so that each trainer has its own job. */
static int other_add(const struct tune_other *o, struct str *key, struct err *err)
{
    char hex[HASH_TEXT_BYTES];
    struct hash128 hash;
    int rc = other_hash(o->adapter, o->argv, &hash, err);
    if (rc == 0)
        str_addf(key, "%s\n", hash_format(hash, hex));
    return rc;
}

/* Makes the job's command, and the name of its folder, which depends on the whole question. */
static int question_make(struct tune_job *j, const char *run_text, struct err *err)
{
    char cwd[LIMIT_PATH_BYTES] = "";
    struct str key = STR_INIT;
    int rc;
    if (!getcwd(cwd, sizeof cwd))
        return err_set_errno(err, ERR_ENV, "cannot find the working folder");
    words_make(j, cwd);
    for (int i = 0; i < j->argc; i++)
        if (j->argv[i])
            str_addf(&key, "%s\n", j->argv[i]);
        else
            key.failed = true;
    if (j->other->adapter && (rc = other_add(j->other, &key, err)) < 0)
        goto out;
    str_addf(&key, "%lld nodes\n%s", (long long)opt_int(j->v, "nodes"), run_text);
    if ((rc = str_check(&key, err)) < 0)
        goto out;
    job_dir(j->home, "tunes", &key, j->dir);
out:
    str_release(&key);
    return rc;
}

/* Asks for the GPUs that the described cluster's nodes have, but for no more than a node of the
 * partition has. */
static int gpus_ask(const struct tune_job *j, struct sched_spec *spec, struct err *err)
{
    const char *name = opt_text(j->v, "cluster");
    char sized[LIMIT_PATH_BYTES];
    struct sched *s;
    struct sched_site site;
    struct cluster c;
    struct err why;
    int rc;
    if (!name)
        return 0;
    /* a file may leave the number of nodes open */
    snprintf(sized, sizeof sized, "%s:%d", name, spec->nodes);
    if (cluster_load(name, &c, &why) < 0 && (rc = cluster_load(sized, &c, err)) < 0)
        return rc;
    if ((rc = sched_open("slurm", j->home, &s, err)) < 0)
        return rc;
    if ((rc = sched_describe(s, &site, err)) == 0) {
        const struct sched_partition *p = sched_site_partition(&site, spec->partition);
        spec->gpus_per_node = p ? (int)num_min_i64(p->gpus_per_node, c.node.devices) : 0;
    }
    sched_close(s);
    return rc;
}

/* Describes the job. The loss of a node does not end it, because its trials are tried again on the
 * others. */
static int spec_make(const struct tune_job *j, struct sched_spec *out, struct err *err)
{
    const struct opt_values *v = j->v;
    struct sched_spec spec = SCHED_SPEC_INIT;
    spec.name = "reel-tune";
    spec.nodes = (int)opt_int(v, "nodes");
    spec.partition = opt_text(v, "partition");
    spec.account = opt_text(v, "account");
    spec.qos = opt_text(v, "qos");
    spec.time_limit_s = opt_given(v, "time") ? opt_num(v, "time") + TIME_BEYOND_S : 0;
    spec.requeue = true;
    spec.outlives_nodes = true;
    spec.signal = SIGUSR1;
    *out = spec;
    return gpus_ask(j, out, err);
}

/* Adds the last arguments of the job's command. For reel-train, also saves the run into the job's
 * folder. */
static int words_end(struct tune_job *j, const struct str *run, struct err *err)
{
    int rc;
    word(j, "--force"); /* output_check has looked at the output file; a requeued job may find its
                         * own plan there */
    const char *path = arena_printf(&j->arena, "%s/run.json", j->dir);
    if (!path)
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = file_mkdirs(j->dir, err)) < 0)
        return rc;
    if (j->other->adapter)
        words_command(j);
    else
        word(j, arena_printf(&j->arena, "--run=%s", path));
    if (!j->argv[j->argc - 1])
        return err_set(err, ERR_NOMEM, "out of memory");
    return j->other->adapter ? 0 : file_publish(path, run->p, run->len, err);
}

static int words_room(struct tune_job *j, struct err *err)
{
    enum { OPTIONS = 48 };
    j->room = OPTIONS;
    for (size_t i = 0; j->other->argv && j->other->argv[i]; i++)
        j->room++;
    j->argv = arena_array(&j->arena, (size_t)j->room, sizeof *j->argv);
    return j->argv ? 0 : err_set(err, ERR_NOMEM, "out of memory for a job's command");
}

int tune_job_run(const struct opt_values *v, struct cmd_env *env, const struct run *run,
                 const struct tune_other *other, struct err *err)
{
    struct tune_job j = {.v = v, .other = other, .home = env->home};
    struct job_question q = {.dir = j.dir, .quiet = opt_bool(v, "quiet"),
                             .whole_env = other->adapter != NULL};
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    run_write(run, &o);
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = words_room(&j, err)) < 0)
        goto out;
    if ((rc = question_make(&j, text.p, err)) < 0)
        goto out;
    if ((rc = words_end(&j, &text, err)) < 0)
        goto out;
    if ((rc = spec_make(&j, &q.spec, err)) < 0)
        goto out;
    q.argv = (const char *const *)j.argv;
    rc = job_run(&q, env, err);
out:
    arena_release(&j.arena);
    str_release(&text);
    return rc;
}
