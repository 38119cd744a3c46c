#include "launcher/cmd/job.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"
#include "base/lease.h"
#include "launcher/cmd/follow.h"
#include "launcher/start/command.h"

extern char **environ;
static const double FOLLOW_EVERY_S = 0.5;

struct job {
    const struct job_question *q;
    const struct cmd_env *env;
    struct sched *s;
    struct arena arena;
    char token[ID_TEXT_BYTES], id[SCHED_ID_BYTES];
    int64_t shown; /* bytes of the log that were shown */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

void job_dir(const char *home, const char *kind, const struct str *question,
             char buf[LIMIT_PATH_BYTES])
{
    char hex[HASH_TEXT_BYTES];
    snprintf(buf, LIMIT_PATH_BYTES, "%.3900s/%s/jobs/%s", home, kind,
             hash_format(hash_128(question->p, question->len), hex));
}

/* ---- the record ---- */

static const char *in_dir(const struct job *j, const char *name, char buf[LIMIT_PATH_BYTES + 32])
{
    snprintf(buf, LIMIT_PATH_BYTES + 32, "%s/%s", j->q->dir, name);
    return buf;
}

static void record_load(struct job *j)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct json_doc doc = {0};
    if (json_load(in_dir(j, "job.json", path), &doc, NULL) == 0) {
        snprintf(j->token, sizeof j->token, "%s", json_text(doc.root, "token", ""));
        snprintf(j->id, sizeof j->id, "%s", json_text(doc.root, "job_id", ""));
    }
    json_release(&doc);
}

static int record_save(const struct job *j, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "token", j->token);
    json_put_text(&o, "job_id", j->id);
    json_obj_end(&o);
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(in_dir(j, "job.json", path), text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* ---- the job ---- */

static int look(struct job *j, bool *live, struct sched_job *out, struct err *err)
{
    const char *ids[] = {j->id, NULL};
    struct sched_filter filter = {ids, NULL};
    struct sched_jobs jobs = {0};
    int rc = sched_poll(j->s, &filter, &jobs, err);
    const struct sched_job *job = rc == 0 ? sched_jobs_find(&jobs, j->id) : NULL;
    if (job && strcmp(job->token, j->token) != 0)
        job = NULL;
    *out = job ? *job : (struct sched_job){.state = SCHED_UNKNOWN, .exit_code = -1};
    out->id = out->token = out->name = out->reason = out->run = "";
    out->handle = NULL; /* these texts are freed with the list */
    *live = job && !sched_state_ended(job->state);
    sched_jobs_release(&jobs);
    return rc;
}

/* Copies this process's environment, with `more` ("NAME=value") in place of the entry of that
 * name. */
static int environment_whole(const char *more, struct arena *arena, const char ***out,
                             struct err *err)
{
    size_t n = 0, k = 0, name = strcspn(more, "=") + 1;
    while (environ[n])
        n++;
    const char **env = arena_array(arena, n + 2, sizeof *env);
    if (!env)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], more, name) != 0)
            env[k++] = environ[i];
    env[k] = more;
    *out = env;
    return 0;
}

static int submit(struct job *j, struct err *err)
{
    char log[LIMIT_PATH_BYTES + 32], result[LIMIT_PATH_BYTES + 32];
    const char **env = NULL,
               *extra[] = {arena_printf(&j->arena, "REEL_HOME=%s", j->env->home), NULL};
    struct sched_spec spec = j->q->spec;
    size_t n = 0, k = 0;
    while (j->q->argv[n])
        n++;
    const char **argv = arena_array(&j->arena, n + 3, sizeof *argv);
    if (!argv || !extra[0])
        return err_set(err, ERR_NOMEM, "out of memory");
    argv[k++] = arena_printf(&j->arena, "%s/reel", j->env->bin_dir);
    argv[k++] = j->q->argv[0];
    argv[k++] = arena_printf(&j->arena, "--result=%s", in_dir(j, "result", result));
    memcpy(argv + k, j->q->argv + 1, (n - 1) * sizeof *argv);
    if (!argv[0] || !argv[2])
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = j->q->whole_env
                 ? environment_whole(extra[0], &j->arena, &env, err)
                 : command_environment((const char *const *)environ, extra, &j->arena, &env, err);
    if (rc < 0)
        return rc;
    spec.token = j->token;
    spec.argv = argv;
    spec.env = (const char *const *)env;
    spec.cwd = j->q->dir;
    spec.log_path = in_dir(j, "log", log);
    return sched_submit(j->s, &spec, j->id, err);
}

/* Begins a new submission: draws its token, and records the token before the job is submitted. */
static int intent_make(struct job *j, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct stat st;
    struct id id;
    int rc;
    if ((rc = id_random(&id, err)) < 0)
        return rc;
    id_format(id, j->token);
    j->id[0] = '\0';
    unlink(in_dir(j, "result", path));
    /* Output that earlier jobs wrote to the log has been shown already. */
    j->shown = stat(in_dir(j, "log", path), &st) == 0 ? (int64_t)st.st_size : 0;
    return record_save(j, err);
}

/* Finds the job for this question: the one that runs, or a new one. */
static int job_find(struct job *j, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct sched_job job;
    bool live = false;
    struct lease *lock = NULL;
    int rc;
    if ((rc = file_mkdirs(j->q->dir, err)) < 0)
        return rc;
    if ((rc = lease_take(in_dir(j, "lock", path), 30, &lock, err)) < 0)
        return rc;
    record_load(j);
    if (j->id[0] && (rc = look(j, &live, &job, err)) < 0)
        goto out;
    if (live)
        goto out;
    bool intended = !j->id[0] && j->token[0];
    if (!intended && (rc = intent_make(j, err)) < 0)
        goto out;
    if ((rc = submit(j, err)) < 0)
        goto out;
    rc = record_save(j, err);
out:
    lease_drop(lock);
    return rc;
}

/* ---- following ---- */

static void log_show(struct job *j)
{
    char path[LIMIT_PATH_BYTES + 32], buf[4096];
    FILE *f = j->q->quiet ? NULL : fopen(in_dir(j, "log", path), "re");
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

/* Prints the job's result. A job that failed may have written one too; is_due: a missing result is
 * an error. */
static int result_print(const struct job *j, bool is_due, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str text = STR_INIT;
    int rc;
    if ((rc = file_read(in_dir(j, "result", path), 1 << 26, &text, is_due ? err : NULL)) < 0) {
        rc = !is_due && rc == ERR_NOT_FOUND ? 0 : rc;
        goto out;
    }
    rc = cmd_print(&text, err);
out:
    str_release(&text);
    return rc;
}

static int ended(const struct job *j, const struct sched_job *job, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    int rc;
    if ((rc = result_print(j, job->state == SCHED_DONE, err)) < 0)
        return rc;
    if (job->state == SCHED_DONE)
        return 0;
    if (job->state == SCHED_FAILED && job->exit_code > 0)
        return err_set(err,
                       job->exit_code == 1   ? ERR_NO
                       : job->exit_code == 3 ? ERR_INPUT
                                             : ERR_CHILD,
                       "job %s ended with exit status %d: see %s", j->id, job->exit_code,
                       in_dir(j, "log", path));
    return err_set(err, ERR_TEMP,
                   "job %s is %s: the same command goes on where it stopped (log: %s)", j->id,
                   sched_state_name(job->state), in_dir(j, "log", path));
}

static int follow(struct job *j, struct err *err)
{
    struct sched_job job;
    enum sched_state said = SCHED_UNKNOWN;
    bool live, seen = false;
    double absent_since = -1;
    for (;; clock_sleep_s(FOLLOW_EVERY_S)) {
        if (interrupted) {
            fprintf(stderr, "job %s goes on by itself: the same command follows it again\n", j->id);
            cmd_interrupt_end();
            return 0;
        }
        log_show(j);
        int rc = look(j, &live, &job, err);
        if (rc == ERR_TEMP || rc == ERR_BUSY)
            continue;
        if (rc < 0)
            return rc;
        if (job.state != said && !j->q->quiet)
            fprintf(stderr, "job %s: %s\n", j->id, sched_state_name(job.state));
        said = job.state;
        seen |= job.state != SCHED_UNKNOWN;
        absent_since = job.state != SCHED_UNKNOWN ? -1
                       : absent_since < 0         ? clock_mono_s()
                                                  : absent_since;
        bool gone = absent_since >= 0 && clock_mono_s() - absent_since >= j->s->absence_s;
        if ((seen && !live && job.state != SCHED_UNKNOWN) || gone) {
            log_show(j);
            return ended(j, &job, err);
        }
    }
}

int job_run(const struct job_question *q, const struct cmd_env *env, struct err *err)
{
    struct job j = {.q = q, .env = env};
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    int rc;
    if ((rc = sched_open("slurm", env->home, &j.s, err)) < 0)
        goto out;
    if ((rc = job_find(&j, err)) < 0)
        goto out;
    sigaction(SIGINT, &action, &before);
    rc = follow(&j, err);
    sigaction(SIGINT, &before, NULL);
out:
    sched_close(j.s);
    arena_release(&j.arena);
    return rc;
}
