/* reel tune --nodes N: the search as a job. Outside: submit it, once for one question, show what it says, hand on its result.
 *
 *     <home>/tunes/jobs/<question>/run.json, search.log, result, job.json    job.json: {"token", "job_id"} of the newest submission
 *
 * The question is the argument vector that the job gets. Killing the outer command changes nothing: asked again, it finds the job that
 * runs; when that has ended without a result a new one goes on, and finds the trials that were measured. */
#include "launcher/cmd/tune_job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autotune/command.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"

extern char **environ;
static const double FOLLOW_EVERY_S = 0.5, TIME_BEYOND_S = 900;

struct tune_job {
    const struct opt_values *v;
    struct cmd_env *env;
    struct sched *s;
    struct arena arena;
    const char *argv[40];
    int argc;
    char dir[LIMIT_PATH_BYTES];
    char token[ID_TEXT_BYTES], id[SCHED_ID_BYTES];
    int64_t shown; /* bytes of search.log */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

/* ---- the question ---- */

static void word(struct tune_job *j, const char *text)
{
    BUG_ON(j->argc >= (int)ARRAY_LEN(j->argv) - 1);
    j->argv[j->argc++] = text;
}

static int question_make(struct tune_job *j, const char *run_text, struct err *err)
{
    const struct opt_values *v = j->v;
    static const char *const numbers[] = {"max-trials", "trial-steps", "repeats"};
    char hex[HASH_TEXT_BYTES], cwd[LIMIT_PATH_BYTES];
    struct str key = STR_INIT;
    const char *output = opt_text(v, "output");
    if (output[0] != '/' && !getcwd(cwd, sizeof cwd))
        return err_set_errno(err, ERR_ENV, "cannot find the working folder");
    word(j, "tune");
    word(j, arena_printf(&j->arena, "--ranks=%s", opt_text(v, "ranks")));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        word(j, arena_printf(&j->arena, "--%s=%lld", numbers[i], (long long)opt_int(v, numbers[i])));
    word(j, arena_printf(&j->arena, "--margin=%.17g", opt_num(v, "margin")));
    word(j, arena_printf(&j->arena, "--blas=%s", opt_enum(v, "blas") == 1 ? "openblas" : "own"));
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
    for (int i = 0; i < j->argc; i++)
        if (j->argv[i])
            str_addf(&key, "%s\n", j->argv[i]);
        else
            key.failed = true;
    str_addf(&key, "%lld nodes\n%s", (long long)opt_int(v, "nodes"), run_text);
    int rc = str_check(&key, err);
    if (rc == 0)
        snprintf(j->dir, sizeof j->dir, "%.3900s/tunes/jobs/%s", j->env->home, hash_format(hash_128(key.p, key.len), hex));
    str_release(&key);
    return rc;
}

/* ---- the record ---- */

static const char *in_dir(const struct tune_job *j, const char *name, char buf[LIMIT_PATH_BYTES + 32])
{
    snprintf(buf, LIMIT_PATH_BYTES + 32, "%s/%s", j->dir, name);
    return buf;
}

static void record_load(struct tune_job *j)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct json_doc doc = {0};
    if (json_load(in_dir(j, "job.json", path), &doc, NULL) == 0) {
        snprintf(j->token, sizeof j->token, "%s", json_text(doc.root, "token", ""));
        snprintf(j->id, sizeof j->id, "%s", json_text(doc.root, "job_id", ""));
    }
    json_release(&doc);
}

static int record_save(const struct tune_job *j, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "token", j->token);
    json_put_text(&o, "job_id", j->id);
    json_obj_end(&o);
    int rc = str_check(&text, err);
    if (rc == 0)
        rc = file_publish(in_dir(j, "job.json", path), text.p, text.len, err);
    str_release(&text);
    return rc;
}

/* ---- the job ---- */

static int look(struct tune_job *j, bool *live, struct sched_job *out, struct err *err)
{
    const char *ids[] = {j->id, NULL};
    struct sched_filter filter = {ids, NULL};
    struct sched_jobs jobs = {0};
    int rc = sched_poll(j->s, &filter, &jobs, err);
    const struct sched_job *job = rc == 0 ? sched_jobs_find(&jobs, j->id) : NULL;
    if (job && strcmp(job->token, j->token) != 0)
        job = NULL;
    *out = job ? *job : (struct sched_job){.state = SCHED_UNKNOWN, .exit_code = -1};
    out->id = out->token = out->name = out->reason = ""; /* their texts go with the list */
    *live = job && !sched_state_ended(job->state);
    sched_jobs_release(&jobs);
    return rc;
}

static int submit(struct tune_job *j, struct err *err)
{
    char log[LIMIT_PATH_BYTES + 32], run[LIMIT_PATH_BYTES + 32], result[LIMIT_PATH_BYTES + 32];
    const char **env = NULL, *argv[48], *extra[] = {arena_printf(&j->arena, "REEL_HOME=%s", j->env->home), NULL};
    struct sched_spec spec = SCHED_SPEC_INIT;
    int n = 0;
    argv[n++] = arena_printf(&j->arena, "%s/reel", j->env->bin_dir);
    for (int i = 0; i < j->argc; i++)
        argv[n++] = j->argv[i];
    argv[n++] = arena_printf(&j->arena, "--run=%s", in_dir(j, "run.json", run));
    argv[n++] = arena_printf(&j->arena, "--result=%s", in_dir(j, "result", result));
    argv[n] = NULL;
    if (!argv[0] || !argv[n - 1] || !argv[n - 2] || !extra[0])
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = command_environment((const char *const *)environ, extra, &j->arena, &env, err);
    if (rc < 0)
        return rc;
    spec.token = j->token;
    spec.name = "reel-tune";
    spec.argv = argv;
    spec.env = (const char *const *)env;
    spec.cwd = j->dir;
    spec.log_path = in_dir(j, "search.log", log);
    spec.nodes = (int)opt_int(j->v, "nodes");
    spec.partition = opt_text(j->v, "partition");
    spec.account = opt_text(j->v, "account");
    spec.qos = opt_text(j->v, "qos");
    spec.time_limit_s = opt_given(j->v, "time") ? opt_num(j->v, "time") + TIME_BEYOND_S : 0;
    spec.requeue = true;
    spec.signal = SIGUSR1;
    return sched_submit(j->s, &spec, j->id, err);
}

/* The job that answers this question: the one that runs, or a new one. */
static int job_find(struct tune_job *j, const char *run_text, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct sched_job job;
    struct id id;
    bool live = false;
    int lock = -1, rc = file_mkdirs(j->dir, err);
    if (rc == 0)
        rc = file_lock(in_dir(j, "lock", path), 30, &lock, err);
    if (rc < 0)
        return rc;
    record_load(j);
    if (j->id[0])
        rc = look(j, &live, &job, err);
    if (rc == 0 && !live && (j->id[0] || !j->token[0]) && (rc = id_random(&id, err)) == 0) { /* no intent is open */
        id_format(id, j->token);
        j->id[0] = '\0';
        unlink(in_dir(j, "result", path));
        struct stat st; /* what earlier jobs said was shown then */
        j->shown = stat(in_dir(j, "search.log", path), &st) == 0 ? (int64_t)st.st_size : 0;
        if ((rc = file_publish(in_dir(j, "run.json", path), run_text, strlen(run_text), err)) == 0)
            rc = record_save(j, err);
    }
    if (rc == 0 && !live && (rc = submit(j, err)) == 0)
        rc = record_save(j, err);
    file_unlock(lock);
    return rc;
}

/* ---- following ---- */

static void log_show(struct tune_job *j)
{
    char path[LIMIT_PATH_BYTES + 32], buf[4096];
    FILE *f = opt_bool(j->v, "quiet") ? NULL : fopen(in_dir(j, "search.log", path), "re");
    size_t n;
    if (!f)
        return;
    if (fseek(f, j->shown, SEEK_SET) == 0)
        while ((n = fread(buf, 1, sizeof buf, f)) > 0) {
            fwrite(buf, 1, n, stderr);
            j->shown += (int64_t)n;
        }
    fclose(f);
}

static int ended(const struct tune_job *j, const struct sched_job *job, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str text = STR_INIT;
    int rc = 0;
    if (job->state == SCHED_DONE && (rc = file_read(in_dir(j, "result", path), 1 << 26, &text, err)) == 0)
        rc = cmd_print(&text, err);
    else if (job->state == SCHED_FAILED && job->exit_code > 0)
        rc = err_set(err, job->exit_code == 1 ? ERR_NO : job->exit_code == 3 ? ERR_INPUT : ERR_CHILD,
                     "job %s ended with exit status %d: see %s", j->id, job->exit_code, in_dir(j, "search.log", path));
    else if (rc == 0)
        rc = err_set(err, ERR_TEMP, "job %s is %s: the same command goes on where it stopped (log: %s)", j->id,
                     sched_state_name(job->state), in_dir(j, "search.log", path));
    str_release(&text);
    return rc;
}

static int follow(struct tune_job *j, struct err *err)
{
    struct sched_job job;
    enum sched_state said = SCHED_UNKNOWN;
    bool live, seen = false;
    double absent_since = -1;
    for (;; clock_sleep_s(FOLLOW_EVERY_S)) {
        if (interrupted) {
            fprintf(stderr, "job %s goes on by itself: the same command follows it again\n", j->id);
            return 0;
        }
        log_show(j);
        int rc = look(j, &live, &job, err);
        if (rc == ERR_TEMP || rc == ERR_BUSY)
            continue;
        if (rc < 0)
            return rc;
        if (job.state != said && !opt_bool(j->v, "quiet"))
            fprintf(stderr, "job %s: %s\n", j->id, sched_state_name(job.state));
        said = job.state;
        seen |= job.state != SCHED_UNKNOWN;
        absent_since = job.state != SCHED_UNKNOWN ? -1 : absent_since < 0 ? clock_mono_s() : absent_since;
        bool gone = absent_since >= 0 && clock_mono_s() - absent_since >= j->s->absence_s;
        if ((seen && !live && job.state != SCHED_UNKNOWN) || gone) {
            log_show(j);
            return ended(j, &job, err);
        }
    }
}

int tune_job_run(const struct opt_values *v, struct cmd_env *env, const struct run *run, struct err *err)
{
    struct tune_job j = {.v = v, .env = env};
    struct str text = STR_INIT;
    struct json_out o;
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    json_out_init(&o, &text, 2);
    run_write(run, &o);
    int rc = str_check(&text, err);
    if (rc == 0)
        rc = question_make(&j, text.p, err);
    if (rc == 0)
        rc = sched_open("slurm", env->home, &j.s, err);
    if (rc == 0)
        rc = job_find(&j, text.p, err);
    sigaction(SIGINT, &action, &before);
    if (rc == 0)
        rc = follow(&j, err);
    sigaction(SIGINT, &before, NULL);
    sched_close(j.s);
    arena_release(&j.arena);
    str_release(&text);
    return rc;
}
