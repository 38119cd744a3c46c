#include "launcher/run/foreign.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/run/node_agent.h"
#include "launcher/run/ranks.h"

static const double SAVES_EVERY_S = 30;

extern char **environ;

static const char **environment(const char *run_dir, int64_t attempt, struct arena *arena)
{
    size_t n = 0, k = 0;
    char mark[LIMIT_NAME_BYTES];
    const char *slash = strrchr(run_dir, '/');
    while (environ[n])
        n++;
    const char **env = arena_array(arena, n + 5, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], RANKS_VARIABLE "=", strlen(RANKS_VARIABLE "=")) != 0)
            env[k++] = environ[i];
    node_agent_mark(run_dir, attempt, mark);
    const char *const added[] = {arena_printf(arena, RANKS_VARIABLE "=%s", mark), arena_printf(arena, "REEL_RUN_DIR=%s", run_dir),
                                 arena_printf(arena, "REEL_RUN_ID=%s", slash ? slash + 1 : run_dir),
                                 arena_printf(arena, "REEL_ATTEMPT=%lld", (long long)attempt)};
    for (size_t i = 0; i < sizeof added / sizeof added[0]; i++) {
        if (!env || !added[i])
            return NULL;
        env[k++] = added[i];
    }
    return env;
}

int foreign_command(const struct wrap *w, const char *run_dir, int64_t attempt, struct arena *arena, struct command *out, struct err *err)
{
    out->argv = (const char **)w->argv;
    out->env = environment(run_dir, attempt, arena);
    return out->env ? 0 : err_set(err, ERR_NOMEM, "out of memory for the command's environment");
}

int foreign_open(struct foreign *f, const struct wrap *w, const struct run_state *state, struct attempt *attempt, const char *log,
                 struct err *err)
{
    *f = (struct foreign){.wrap = w, .attempt = attempt, .steps_before = state->max_step + 1, .save_told = wrap_newest_save(w),
                          .looked_mono = clock_mono_s()};
    space_foreign_begin(&f->space, attempt->run_dir, w, state);
    int rc = foreign_steps_open(&f->steps, w, state, attempt, err);
    return rc < 0 ? rc : tail_open(log, STDOUT_FILENO, f->steps.reader ? foreign_steps_line : NULL, &f->steps, &f->tail, err);
}

static void event_progress(struct foreign *f)
{
    struct evlog_event e;
    event_begin(f->attempt->log, &e, progress);
    attempt_event(f->attempt, &e);
}

void foreign_follow(struct foreign *f, bool last)
{
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

void foreign_tell(struct foreign *f, const char *run_dir, const char *shared)
{
    char mark[LIMIT_NAME_BYTES];
    struct err err = {0};
    if (!f->wrap->notice)
        return;
    node_agent_mark(run_dir, f->attempt->number, mark);
    f->told.shared = shared;
    if (ranks_tell(mark, (int)f->wrap->notice, &f->told, &err) < 0)
        log_msg(LOG_WARN, "%s", err.text);
    else if (f->told.deaf && !f->deaf_told)
        log_msg(LOG_WARN, "process %ld of the trainer has no handler for signal %lld: it is not told to save; see --notice",
                (long)f->told.deaf_pid, (long long)f->wrap->notice);
    f->deaf_told |= f->told.deaf > 0;
}

bool foreign_lives(const struct foreign *f, const char *run_dir)
{
    char mark[LIMIT_NAME_BYTES];
    node_agent_mark(run_dir, f->attempt->number, mark);
    return ranks_count(mark) > 0;
}

bool foreign_is_done(const struct wrap *w)
{
    return w->done_file && file_exists(w->done_file);
}

bool foreign_is_full(struct foreign *f, const char *run_dir, const struct sched_step_status *end)
{
    char log[LIMIT_PATH_BYTES];
    if (!f->wrap || !space_foreign_missed(&f->space, run_dir, f->wrap, end, attempt_output_log(f->attempt, log)))
        return false;
    space_event_low(f->attempt, &f->space, foreign_steps(f));
    return true;
}

int64_t foreign_steps(const struct foreign *f)
{
    return num_max_i64(foreign_steps_done(&f->steps), wrap_saved_steps(f->wrap));
}

/* Is it clearly short of its steps? One that prints every tenth step, or counts from 0, ends within one line of the last; what an attempt
 * before printed counts too, for one that starts at its end prints nothing. Nothing to tell steps by: nobody can say so. */
static bool is_short(const struct foreign *f, int64_t total)
{
    int64_t steps = num_max_i64(foreign_steps(f), f->steps_before);
    return (f->steps.reader || steps > 0) && steps + num_max_i64(f->steps.stride, 1) < total;
}

enum foreign_end foreign_end_of(const struct foreign *f, const struct wrap *w, const struct sched_step_status *end, bool stop_requested)
{
    if (w->done_file)
        return foreign_is_done(w) ? FOREIGN_DONE : FOREIGN_ENDED;
    if (!f->wrap || end->exit_code != 0)
        return FOREIGN_ENDED;
    if (w->total_steps > 0 && foreign_steps(f) >= w->total_steps)
        return FOREIGN_DONE;
    if (stop_requested)
        return FOREIGN_ENDED;
    return w->total_steps > 0 && is_short(f, w->total_steps) ? FOREIGN_SHORT : FOREIGN_DONE;
}
