#include "launcher/run/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/run/node_agent.h"
#include "launcher/run/ranks.h"
#include "launcher/run/trainer.h"

static const double SAVES_EVERY_S = 30;

extern char **environ;

static const char **environment(const char *run_dir, int64_t attempt, struct arena *arena)
{
    size_t n = 0, k = 0;
    char trainer_id[LIMIT_NAME_BYTES];
    const char *slash = strrchr(run_dir, '/');
    while (environ[n])
        n++;
    const char **env = arena_array(arena, n + 5, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], RANKS_VARIABLE "=", strlen(RANKS_VARIABLE "=")) != 0)
            env[k++] = environ[i];
    node_agent_trainer_id(run_dir, attempt, trainer_id);
    const char *const added[] = {arena_printf(arena, RANKS_VARIABLE "=%s", trainer_id),
                                 arena_printf(arena, "REEL_RUN_DIR=%s", run_dir),
                                 arena_printf(arena, "REEL_RUN_ID=%s", slash ? slash + 1 : run_dir),
                                 arena_printf(arena, "REEL_ATTEMPT=%lld", (long long)attempt)};
    for (size_t i = 0; i < sizeof added / sizeof added[0]; i++) {
        if (!env || !added[i])
            return NULL;
        env[k++] = added[i];
    }
    return env;
}

static int load(struct duty *d, const char *run_dir, struct err *err)
{
    int rc = wrap_load(run_dir, &d->wrap, err);
    if (rc < 0)
        return rc;
    d->budget = d->wrap.budget;
    d->node_agents = d->wrap.node_agents;
    d->notice = (int)d->wrap.notice;
    return 0;
}

/* Names a task of an array, whose id may be the whole array's. */
static void handle_find(struct sched_self *self)
{
    const char *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");
    if (array && *array && task && *task)
        snprintf(self->handle, sizeof self->handle, "%s_%s", array, task);
}

/* Finds the job of a user's script, whose command starts its ranks itself. Only a Slurm job is
 * known; outside one there is no job. */
static int job(struct duty *d, const char *home, struct err *err)
{
    const char *id = getenv("SLURM_JOB_ID"), *restarts = getenv("SLURM_RESTART_COUNT");
    struct err why = {0};
    int64_t n = 0;
    int rc = sched_open("local", home, &d->steps, err);
    if (rc < 0 || !id || !*id)
        return rc;
    rc = sched_open("slurm", home, &d->sched, &why);
    if (rc == ERR_INPUT) { /* a setting of the user's */
        *err = why;
        return rc;
    }
    if (rc < 0) {
        log_msg(LOG_WARN, "job %s is not brought back when it ends early: %s", id, why.text);
        return 0;
    }
    if (restarts && *restarts && (rc = num_parse_i64(restarts, "SLURM_RESTART_COUNT", &n, err)) < 0)
        return rc;
    d->self.restarts = (int)n;
    snprintf(d->self.id, sizeof d->self.id, "%s", id);
    handle_find(&d->self);
    return 0;
}

static int command(struct trainer *t, struct sched_step_spec *spec, struct err *err)
{
    const struct wrap *w = &t->duty->wrap;
    spec->argv = (const char **)w->argv;
    spec->cwd = w->cwd;
    spec->ranks = 1; /* the command starts its ranks itself */
    spec->env = environment(t->attempt->run_dir, t->attempt->number, t->arena);
    return spec->env ? 0 : err_set(err, ERR_NOMEM, "out of memory for the command's environment");
}

static int place(struct trainer *t, struct sched_step_spec *spec, struct err *err)
{
    const struct wrap *w = &t->duty->wrap;
    struct foreign *f = &t->foreign;
    *f = (struct foreign){
        .wrap = w,
        .attempt = t->attempt,
        .steps_before = t->state->max_step + 1,
        .save_told = wrap_newest_save(w),
        .looked_mono = clock_mono_s(),
    };
    space_foreign_begin(&f->space, t->attempt->run_dir, w, t->state);
    int rc = foreign_steps_open(&f->steps, w, t->state, t->attempt, err);
    if (rc < 0)
        return rc;
    return tail_open(spec->log_path, STDOUT_FILENO, f->steps.reader ? foreign_steps_line : NULL,
                     &f->steps, &f->tail, err);
}

static void event_progress(struct foreign *f)
{
    struct evlog_event e;
    event_begin(f->attempt->log, &e, progress);
    attempt_event(f->attempt, &e);
}

static void follow(struct trainer *t, bool last)
{
    struct foreign *f = &t->foreign;
    foreign_steps_begin(&f->steps);
    tail_pump(&f->tail, last);
    foreign_steps_end(&f->steps, last);
    if (!f->wrap->saves || (!last && clock_mono_s() - f->looked_mono < SAVES_EVERY_S))
        return;
    f->looked_mono = clock_mono_s();
    double newest = wrap_newest_save(f->wrap);
    if (newest > f->save_told)
        event_progress(f);
    f->save_told = newest > f->save_told ? newest : f->save_told;
}

void foreign_close(struct foreign *f)
{
    tail_close(&f->tail);
    foreign_steps_close(&f->steps);
    ranks_release(&f->told);
}

static void tell(struct trainer *t, const char *shared)
{
    char trainer_id[LIMIT_NAME_BYTES];
    struct err err = {0};
    struct foreign *f = &t->foreign;
    if (!f->wrap->notice)
        return;
    node_agent_trainer_id(t->attempt->run_dir, t->attempt->number, trainer_id);
    f->told.shared = shared;
    if (ranks_tell(trainer_id, (int)f->wrap->notice, &f->told, &err) < 0)
        log_msg(LOG_WARN, "%s", err.text);
    else if (f->told.deaf && !f->deaf_told)
        log_msg(LOG_WARN,
                "process %ld of the trainer has no handler for signal %lld yet: it is told to save "
                "as soon as it has; see --notice",
                (long)f->told.deaf_pid, (long long)f->wrap->notice);
    f->deaf_told |= f->told.deaf > 0;
}

/* Tells whether ranks of the trainer still live after it was signalled to stop; the program that
 * started them may end before them. */
static bool lives(struct trainer *t, bool told)
{
    char trainer_id[LIMIT_NAME_BYTES];
    node_agent_trainer_id(t->attempt->run_dir, t->attempt->number, trainer_id);
    return told && ranks_count(trainer_id) > 0;
}

/* Returns the path of the file that has the trainer's output. */
static char *pulse(const struct trainer *t, char buf[LIMIT_PATH_BYTES])
{
    return attempt_output_log(t->attempt, buf);
}

/* Tells whether the trainer's done file exists. */
static bool is_through(const struct trainer *t)
{
    const char *file = t->duty->wrap.done_file;
    return file && file_exists(file);
}

static bool exited(struct trainer *t, const struct sched_step_status *exit)
{
    (void)t;
    return exit->exit_code == WRAP_AGAIN;
}

/* ---- how it ended ---- */

/* Tells whether the trainer ended for lack of disk space (space.h). If so it writes an event,
 * whatever the cause of the attempt's end will be. */
static bool is_full(struct trainer *t, const struct sched_step_status *exit, int64_t steps)
{
    char log[LIMIT_PATH_BYTES];
    struct foreign *f = &t->foreign;
    attempt_output_log(t->attempt, log);
    if (!f->wrap || !space_foreign_missed(&f->space, t->attempt->run_dir, f->wrap, exit, log))
        return false;
    space_event_low(t->attempt, f->space.needed_bytes, f->space.free_bytes, f->space.free_files,
                    steps);
    return true;
}

/* Tells whether the trainer is clearly short of its steps. One that prints every tenth step, or
 * counts from 0, may end one line short of them. The steps of an earlier attempt count too, since a
 * trainer that starts at its last step prints nothing. Returns false if steps cannot be read. */
static bool is_short(const struct foreign *f, int64_t steps, int64_t total)
{
    steps = num_max_i64(steps, f->steps_before);
    return (f->steps.reader || steps > 0) && steps + num_max_i64(f->steps.rows.stride, 1) < total;
}

/* Determines whether the trainer is done or ended early, as far as that can be seen (wrap.h). If it
 * has a done file, was not started, or exited with an error, only the done file counts. */
static void judge(const struct trainer *t, const struct sched_step_status *exit, bool stopped,
                  struct trainer_end *end)
{
    const struct wrap *w = &t->duty->wrap;
    if (w->done_file || !t->foreign.wrap || exit->exit_code != 0) {
        end->done = is_through(t);
        return;
    }
    end->done = w->total_steps > 0 && end->steps >= w->total_steps;
    if (end->done || stopped)
        return;
    end->is_short = w->total_steps > 0 && is_short(&t->foreign, end->steps, w->total_steps);
    end->done = !end->is_short;
}

/* Writes the event that the training is done, as reel's own trainer does by itself. */
static void event_done(struct trainer *t)
{
    struct evlog_event e;
    event_begin(t->attempt->log, &e, train_ended);
    event_text(&e, train_ended, reason, "done");
    attempt_event(t->attempt, &e);
}

/* Warns if something is wrong with the trainer's checkpoint folder. */
static void saves_tell(const struct wrap *w, bool in_order)
{
    enum wrap_saves saves = wrap_saves_look(w, in_order);
    if (saves != WRAP_SAVES_GOOD)
        log_msg(LOG_WARN, "%s '%s' (--saves): what the trainer saves is not seen",
                wrap_saves_say(saves), w->saves);
}

static void ended(struct trainer *t, const struct sched_step_status *exit, bool stopped,
                  struct trainer_end *end)
{
    if (t->foreign.wrap) /* from what it printed and from its newest checkpoint */
        end->steps = num_max_i64(foreign_steps_done(&t->foreign.steps),
                                 wrap_saved_steps(t->foreign.wrap));
    judge(t, exit, stopped, end);
    if (t->foreign.wrap)
        saves_tell(t->foreign.wrap, exit->exit_code == 0 || stopped);
    if (end->done)
        event_done(t);
    end->disk_full = is_full(t, exit, end->steps);
    end->disbelieved = t->foreign.space.disbelieved;
}

const struct trainer_kind trainer_foreign = {
    .foreign = true,
    .needs_note = true,
    .load = load,
    .job = job,
    .command = command,
    .place = place,
    .tell = tell,
    .lives = lives,
    .follow = follow,
    .pulse = pulse,
    .is_through = is_through,
    .exited = exited,
    .ended = ended,
};
