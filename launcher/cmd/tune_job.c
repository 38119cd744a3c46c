/* reel tune --nodes N: runs the search as a job. The question is the argument vector that the job
 * gets, and the run. If a job ends without a result, the next one finds the trials that it
 * measured. */
#include "launcher/cmd/tune_job.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "launcher/cmd/job.h"

static const double TIME_BEYOND_S = 900;

struct tune_job {
    const struct opt_values *v;
    const char *home;
    struct arena arena;
    const char *argv[40];
    int argc;
    char dir[LIMIT_PATH_BYTES];
};

static void word(struct tune_job *j, const char *text)
{
    BUG_ON(j->argc >= (int)ARRAY_LEN(j->argv) - 1);
    j->argv[j->argc++] = text;
}

/* Adds what the options say of a described cluster. Files are found from the job's folder too. */
static void words_described(struct tune_job *j, const char *cwd)
{
    static const char *const names[] = {"cluster", "stack"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *text = opt_text(j->v, names[i]);
        bool below = text[0] != '/' && (strchr(text, '/') || strstr(text, ".json"));
        word(j, arena_printf(&j->arena, "--%s=%s%s%s", names[i], below ? cwd : "",
                             below ? "/" : "", text));
    }
    if (opt_given(j->v, "scale-down"))
        word(j, arena_printf(&j->arena, "--scale-down=%lld",
                             (long long)opt_int(j->v, "scale-down")));
}

/* Makes the job's command of the options that were given here. */
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

/* Makes the job's command, and its folder's name, which follows from the whole question. */
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
    str_addf(&key, "%lld nodes\n%s", (long long)opt_int(j->v, "nodes"), run_text);
    if ((rc = str_check(&key, err)) < 0)
        goto out;
    job_dir(j->home, "tunes", &key, j->dir);
out:
    str_release(&key);
    return rc;
}

int tune_job_run(const struct opt_values *v, struct cmd_env *env, const struct run *run,
                 struct err *err)
{
    struct tune_job j = {.v = v, .home = env->home};
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    run_write(run, &o);
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = question_make(&j, text.p, err)) < 0)
        goto out;
    word(&j, "--force"); /* the place was free; a job that runs again may find its own plan there */
    const char *path = arena_printf(&j.arena, "%s/run.json", j.dir);
    word(&j, path ? arena_printf(&j.arena, "--run=%s", path) : NULL);
    if (!path || !j.argv[j.argc - 1]) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    if ((rc = file_mkdirs(j.dir, err)) < 0)
        goto out;
    if ((rc = file_publish(path, text.p, text.len, err)) < 0)
        goto out;
    struct job_question q = {
        .dir = j.dir, .argv = j.argv, .spec = SCHED_SPEC_INIT, .quiet = opt_bool(v, "quiet")};
    q.spec.name = "reel-tune";
    q.spec.nodes = (int)opt_int(v, "nodes");
    q.spec.partition = opt_text(v, "partition");
    q.spec.account = opt_text(v, "account");
    q.spec.qos = opt_text(v, "qos");
    q.spec.time_limit_s = opt_given(v, "time") ? opt_num(v, "time") + TIME_BEYOND_S : 0;
    q.spec.requeue = true;
    q.spec.signal = SIGUSR1;
    rc = job_run(&q, env, err);
out:
    arena_release(&j.arena);
    str_release(&text);
    return rc;
}
