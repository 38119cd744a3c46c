#include "launcher/submit/wrapped.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "launcher/state/home.h"
#include "launcher/state/state.h"
#include "launcher/submit/job_note.h"

enum { MOST_SAME_NAMES = 10000 };
enum { FOLDER_LOOK_S = 1 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool is_starter(const char *word)
{
    static const char *const words[] = {"bash", "sh", "env", "exec", "srun", "mpirun", "mpiexec",
                                        "torchrun", "accelerate", "launch", "python", "python3"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(base_name(word), words[i]) == 0)
            return true;
    return word[0] == '-' || strpbrk(word, "= \n;");
}

/* Tells whether this word may be the value of the option before it. It could be the key of a
 * tracking service, which must not be recorded. A program's file is no such value. */
static bool may_be_value(const char *const *argv, const char *const *word)
{
    return word > argv && word[-1][0] == '-' && !strchr(word[-1], '=') && access(*word, X_OK) != 0;
}

/* Returns the name by which people know the trainer: the module or script in its command, else the
 * first word that does not start other programs. */
static const char *program_word(const char *const *argv)
{
    for (const char *const *a = argv; *a; a++)
        if (strcmp(*a, "-m") == 0 && a[1])
            return a[1];
        else if (str_ends(*a, ".py") || str_ends(*a, ".sh"))
            return base_name(*a);
    for (const char *const *a = argv; *a; a++)
        if (!is_starter(*a) && !may_be_value(argv, a))
            return base_name(*a);
    return base_name(argv[0]);
}

static int event_created(const struct launch *l, const struct wrap *w, struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    int rc = launch_log_open(l, NULL, &log, err);
    if (rc < 0)
        return rc;
    event_begin(log, &e, run_created);
    event_text(&e, run_created, name, w->name);
    event_text(&e, run_created, model, w->model ? w->model : program_word(w->argv));
    event_int(&e, run_created, total_steps, w->total_steps);
    rc = evlog_commit(log, &e, true, err);
    evlog_close(log);
    return rc;
}

static int event_job(const struct launch *l, const char *job_id, struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    int rc = launch_log_open(l, NULL, &log, err);
    if (rc < 0)
        return rc;
    event_begin(log, &e, submitted);
    event_text(&e, submitted, sched, *job_id ? "slurm" : "none");
    event_text(&e, submitted, job_id, job_id);
    rc = evlog_commit(log, &e, true, err);
    evlog_close(log);
    return rc;
}

static void launch_of(const char *home, const char *bin_dir, const char *id, const struct wrap *w,
                      struct launch *out)
{
    launch_init(out, home, bin_dir, id, &w->budget);
    out->wrapped = true;
}

/* Creates a new run, and binds its name last, so that a found name always leads to a complete
 * run. */
static int make(const char *home, const char *bin_dir, const struct wrap *w, struct launch *out,
                struct err *err)
{
    char id[ID_TEXT_BYTES], taken[ID_TEXT_BYTES];
    struct id unique;
    int rc;
    if ((rc = home_name_check(home, w->name, err)) < 0)
        return rc;
    if ((rc = id_random(&unique, err)) < 0)
        return rc;
    launch_of(home, bin_dir, id_format(unique, id), w, out);
    if ((rc = file_mkdirs(out->run_dir, err)) == 0 && (rc = wrap_save(w, out->run_dir, err)) == 0 &&
        (rc = event_created(out, w, err)) == 0)
        rc = home_name_claim(home, w->name, id, taken, err);
    if (rc < 0)
        file_remove_tree(out->run_dir, NULL);
    return rc;
}

/* Opens the run of this name, unless 'reel launch' made it. */
static int take(const char *home, const char *bin_dir, const struct wrap *w, const char *id,
                struct launch *out, struct err *err)
{
    launch_of(home, bin_dir, id, w, out);
    if (!wrap_is(out->run_dir))
        return err_set(err, ERR_EXISTS,
                       "run '%s' is one of 'reel launch': give this one another --name", w->name);
    return wrap_save(w, out->run_dir, err);
}

/* Finds the run of a name, as home_name_find does, but gives no error text with ERR_NOT_FOUND. */
static int name_look(const char *home, const char *name, char id[ID_TEXT_BYTES], struct err *err)
{
    struct err why = {0};
    int rc = home_name_find(home, name, id, &why);
    return rc < 0 && rc != ERR_NOT_FOUND ? err_set(err, rc, "%s", why.text) : rc;
}

/* Checks that the folder of this name's run exists; without a name, checks the home's folder of
 * runs. */
static int folder_check(const char *home, const char *name, struct err *err)
{
    char id[ID_TEXT_BYTES], dir[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = home_runs_check(home, err)) < 0)
        return rc;
    if (!name || name_look(home, name, id, NULL) != 0 || file_exists(home_run_dir(home, id, dir)))
        return 0;
    return err_set(err, ERR_NOT_FOUND,
                   "the folder '%s' of run '%s' is gone: bring it back and submit the job again, "
                   "or give this run another --name", dir, name);
}

/* Finds the name of a requeued job's run: of the names <stem>, <stem>-2, <stem>-3, ... the last one
 * that exists is the job's. */
static void name_last(const char *home, const char *stem, struct wrap *w)
{
    char id[ID_TEXT_BYTES], name[LIMIT_NAME_BYTES];
    for (int i = 2; i < MOST_SAME_NAMES; i++) {
        snprintf(name, sizeof name, "%s-%d", stem, i);
        if (name_look(home, name, id, NULL) != 0)
            return;
        memcpy(w->name, name, sizeof name);
    }
}

/* Holds what is known about a requeued job, and the run in its note (job_note.h). The note is read
 * if no run here has the job, until the scheduler answers. */
struct before {
    const char *job_id;
    bool known, had_none; /* known: the note was read; had_none: the job never had a run */
    char run[ID_TEXT_BYTES]; /* "": none */
};

/* Tells whether this job was ever one of the run's. */
static bool has_job(const char *home, const char *id, const char *job_id)
{
    char dir[LIMIT_PATH_BYTES];
    struct run_state s;
    run_state_init(&s);
    bool has = run_state_load(home_run_dir(home, id, dir), &s, NULL) == 0 &&
               strcmp(s.job_id, job_id) == 0;
    for (int64_t i = 0; i < s.n_attempts; i++)
        has = has || strcmp(s.attempts[i].job_id, job_id) == 0;
    run_state_release(&s);
    return has;
}

/* Uses the run in the job's note. A job without a note ended before it had a run. */
static int noted_find(const char *home, struct before *b, struct wrap *w, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    int rc = b->known ? 0 : job_note_read("slurm", home, b->job_id, b->run, err);
    if (rc < 0)
        return rc;
    b->known = true;
    if (!b->run[0] || (file_exists(home_run_dir(home, b->run, dir)) &&
                       home_name_of(home, b->run, w->name, NULL) == 0))
        return 0;
    return err_set(err, ERR_NOT_FOUND,
                   "job %s has run before, and its run, %s, is not in %s, where others are: mount "
                   "its disk, set REEL_HOME to the one where the run lies, or submit the job's "
                   "script to begin another", b->job_id, b->run, home);
}

/* Checks that the home was used before, as a requeued job's run must have done. It need not be if
 * the job ended before it had a run: then it has no note, though the scheduler accepts notes. */
static int used_check(const char *home, struct before *b, struct err *err)
{
    char run[ID_TEXT_BYTES];
    int rc = home_used_check(home, err);
    if (rc == 0 || b->had_none)
        return 0;
    b->had_none = job_note_read("slurm", home, b->job_id, run, NULL) == 0 && !run[0] &&
                  job_note_try("slurm", home, b->job_id, NULL) == 0;
    return b->had_none ? 0 : rc;
}

/* Finds the name of a requeued job's run. made_up: the user gave no name, so the run's name is
 * `stem`, perhaps with a number. */
static int again_check(const char *home, const char *stem, struct wrap *w, bool made_up,
                       struct before *b, struct err *err)
{
    char id[ID_TEXT_BYTES];
    int rc;
    if ((rc = used_check(home, b, err)) < 0)
        return rc;
    if ((rc = folder_check(home, made_up ? NULL : w->name, err)) < 0)
        return rc;
    if (made_up) {
        snprintf(w->name, sizeof w->name, "%s", stem);
        name_last(home, stem, w);
        if ((rc = folder_check(home, w->name, err)) < 0)
            return rc;
    }
    if (name_look(home, w->name, id, NULL) == 0 && has_job(home, id, b->job_id))
        return 0;
    return noted_find(home, b, w, err);
}

/* Waits for a requeued job's run: the run existed before, and nobody would bring it back if the job
 * failed. A stop notice ends this process. */
static int again_wait(const char *home, const char *stem, struct wrap *w, bool made_up,
                      const char *job_id, struct err *err)
{
    double until_s = clock_mono_s() + HOME_WAIT_S;
    struct before b = {.job_id = job_id};
    char said[sizeof err->text] = "";
    int rc = again_check(home, stem, w, made_up, &b, err);
    while (rc < 0 && clock_mono_s() < until_s) {
        if (strcmp(said, err->text) != 0)
            log_msg(LOG_WARN, "waiting for the run's folder, %d minutes at most: %s",
                    HOME_WAIT_S / 60, err->text);
        snprintf(said, sizeof said, "%s", err->text);
        clock_sleep_s(FOLDER_LOOK_S);
        rc = again_check(home, stem, w, made_up, &b, err);
    }
    return rc;
}

/* Finds the run's name, and checks that the run's folder exists if the run does. */
static int place_find(const char *home, const char *stem, struct wrap *w, const char *job_id,
                      bool again, bool made_up, struct err *err)
{
    if (again)
        return again_wait(home, stem, w, made_up, job_id, err);
    return folder_check(home, made_up ? NULL : w->name, err);
}

int wrapped_open(const char *home, const char *bin_dir, struct wrap *w, const char *job_id,
                 bool again, bool made_up, struct launch *out, struct err *err)
{
    char id[ID_TEXT_BYTES], stem[LIMIT_NAME_BYTES - 8];
    bool made = false;
    int rc;
    snprintf(stem, sizeof stem, "%s", w->name);
    if ((rc = place_find(home, stem, w, job_id, again, made_up, err)) < 0)
        return rc;
    rc = ERR_EXISTS;
    for (int i = 2; rc == ERR_EXISTS && i < MOST_SAME_NAMES; i++) {
        int found = name_look(home, w->name, id, err);
        if (found < 0 && found != ERR_NOT_FOUND)
            return found;
        if (found == 0 && (again || !made_up)) {
            rc = take(home, bin_dir, w, id, out, err);
            break;
        }
        if (found < 0) /* make returns ERR_EXISTS if another process made the run first */
            made = (rc = make(home, bin_dir, w, out, err)) == 0;
        if (rc == ERR_EXISTS && made_up && !again)
            snprintf(w->name, sizeof w->name, "%s-%d", stem, i);
    }
    return rc < 0 || (again && !made) ? rc : event_job(out, job_id, err);
}
