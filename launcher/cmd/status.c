/* reel status: shows every run and the tunings that have no end, or one run, from event logs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "launcher/cmd/cmd.h"
#include "launcher/cmd/tune_told.h"
#include "launcher/state/home.h"
#include "launcher/state/space.h"
#include "launcher/state/untold.h"
#include "launcher/submit/launch.h"
#include "launcher/submit/waits.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_status = {
    "status",
    "show the runs: state, step, MFU, attempts",
    "[RUN]", opts, ARRAY_LEN(opts), 0, 1,
    "Tunings that have not ended, or died, are listed after the runs. "
    "Read from the runs' own event logs; of a run that waits the scheduler is asked why. A run is "
    "'interrupted' when its job is over and nothing brings it back by itself: what does stands "
    "beside it."};

/* Tells whether an attempt ended for lack of disk space, waits for space now, or trains on without
 * being able to save. */
static bool lacks_room(const struct run_attempt *a)
{
    bool waits = a->held_until > 0 && a->trainer_started_at == 0 && a->cause == CAUSE_NONE;
    return waits || a->cause == CAUSE_DISK_FULL ||
           (a->space.any && !a->space.enough && a->saved_step <= a->space.step);
}

/* Tells whether the log may lack the run's latest events because the run's disk is full. Returns
 * false for a run that is known to be over. */
static bool is_mute(const char *home, const struct run_state *s, const struct run_budget *budget)
{
    char dir[LIMIT_PATH_BYTES];
    enum run_next next = run_state_next(s, budget, NULL);
    bool open = s->n_attempts && s->attempts[s->n_attempts - 1].cause == CAUSE_NONE;
    bool stopped = (next == RUN_NEXT_CANCELLED || next == RUN_NEXT_PAUSED) && !open;
    bool over = next == RUN_NEXT_DONE || next == RUN_NEXT_FAILED || next == RUN_NEXT_SUBMIT;
    return !over && !stopped && space_is_out(home_run_dir(home, s->run, dir));
}

/* Adds the number of steps done, the MFU of the last step, and the newest loss. For a wrapped
 * command they may be unknown. */
static void progress_text(const struct run_state *s, struct str *out)
{
    char steps[32] = "-", total[32] = "";
    if (s->total_steps > 0 || s->max_step >= 0)
        snprintf(steps, sizeof steps, "%lld", (long long)(s->max_step + 1));
    if (s->total_steps > 0)
        snprintf(total, sizeof total, "/%lld", (long long)s->total_steps);
    str_addf(out, " %6s%-7s", steps, total);
    if (s->last.step >= 0 && isfinite(s->last.mfu))
        str_addf(out, " %5.1f %%", 100 * s->last.mfu);
    else
        str_addf(out, "     - ");
    if (s->loss.step < 0)
        str_add(out, " loss -        ");
    else if (isfinite(s->loss.value))
        str_addf(out, " loss %-9.4g", s->loss.value);
    else
        str_add(out, " loss not finite");
}

/* Adds remarks: that the disk is full, that logs are missing or damaged, and why the run waits. */
static void remarks_text(const struct run_state *s, const char *why, bool mute, struct str *out)
{
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    int64_t known = last ? last->number : 0;
    if (mute)
        str_addf(out, "  (its disk has no room for a word: what happened since the last one is not "
                      "known here)");
    else if (last && lacks_room(last))
        str_addf(out, "  (no room on the disk: see reel explain)");
    if (last && last->cause == CAUSE_NONE && run_attempt_unheard(last))
        str_add(out, "  (told to stop, and no rank has a handler for that: see reel explain)");
    else if (last && last->cause == CAUSE_NONE && run_attempt_still(last))
        str_add(out, "  (told to stop, and no rank has answered: see reel explain)");
    else if (last && last->cause == CAUSE_NONE && run_attempt_silent(last))
        str_addf(out, "  (told to stop, and %lld rank%s not heard it: see reel explain)",
                 (long long)run_attempt_silent(last),
                 run_attempt_silent(last) == 1 ? " has" : "s have");
    if (last && last->went_back)
        str_addf(out, "  (its trainer went back by itself, %lld time%s: see reel explain)",
                 (long long)last->went_back, last->went_back == 1 ? "" : "s");
    if (s->claimed > known)
        str_addf(out, "  (attempt %lld has begun, and no log tells of it: this is what was before)",
                 (long long)s->claimed);
    if (s->damaged_records)
        str_addf(out, "  (%lld damaged place%s in its logs)", (long long)s->damaged_records,
                 s->damaged_records == 1 ? "" : "s");
    else if (untold_each(s, NULL, NULL))
        str_add(out, "  (its logs do not tell all: see reel explain)");
    if (*why)
        str_addf(out, "  (%s)", why);
}

static void row_text(const struct run_state *s, const char *word, const char *why, bool mute,
                     struct str *out)
{
    char ago[32];
    str_addf(out, "%-20.20s %.8s %-11s", s->name, s->run, word);
    progress_text(s, out);
    str_addf(out, " %2lld attempt%s", (long long)s->n_attempts, s->n_attempts == 1 ? " " : "s");
    if (s->last_event_at > 0)
        str_addf(out, "  last word %s ago",
                 num_format_seconds(fmax(0, clock_wall_s() - s->last_event_at), ago, sizeof ago));
    else
        str_add(out, "  no word");
    remarks_text(s, why, mute, out);
    str_addc(out, '\n');
}

static void attempt_json(const struct run_attempt *a, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_int(o, "attempt", a->number);
    json_put_text(o, "cause", attempt_cause_names[a->cause]);
    json_put_num(o, "started_at", a->started_at);
    json_put_num(o, "ended_at", a->ended_at);
    json_put_int(o, "first_step", a->first_step);
    json_put_int(o, "last_step", a->last_step);
    json_put_int(o, "went_back", a->went_back);
    json_put_int(o, "back_steps", a->back_steps);
    json_put_text(o, "detail", a->detail);
    json_obj_end(o);
}

static void row_json(const struct run_state *s, const char *word, const char *why, bool mute,
                     struct json_out *o)
{
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    json_obj_begin(o, NULL);
    json_put_text(o, "run", s->run);
    json_put_text(o, "name", s->name);
    json_put_text(o, "state", word);
    json_put_text(o, "waits", why);
    json_put_bool(o, "log_is_full", mute);
    json_put_text(o, "model", s->model);
    json_put_text(o, "layout", s->layout);
    json_put_int(o, "steps_done", s->max_step + 1);
    json_put_int(o, "total_steps", s->total_steps);
    json_put_int(o, "saved_step", s->saved_step);
    json_put_int(o, "ckpt_every_steps", s->every.steps);
    json_put_num(o, "mfu", s->last.step >= 0 ? s->last.mfu : NAN);
    json_put_num(o, "loss", s->loss.step >= 0 ? s->loss.value : NAN);
    json_put_bool(o, "loss_nonfinite", s->loss.step >= 0 && !isfinite(s->loss.value));
    json_put_num(o, "step_s", s->last.step >= 0 ? s->last.step_s : NAN);
    json_put_text(o, "sched", s->sched);
    /* While an attempt runs, its own job is shown and not its waiting successor. */
    json_put_text(o, "job_id",
                  last && last->cause == CAUSE_NONE && last->job_id[0] ? last->job_id : s->job_id);
    json_put_int(o, "damaged_records", s->damaged_records);
    json_put_int(o, "claimed_attempt", s->claimed);
    json_put_num(o, "last_event_at", s->last_event_at);
    json_arr_begin(o, "attempts");
    for (int64_t i = 0; i < s->n_attempts; i++)
        attempt_json(&s->attempts[i], o);
    json_arr_end(o);
    json_obj_end(o);
}

static int row_add(const struct cmd_env *env, const char *run, struct waits_silence *silence,
                   struct str *text, struct json_out *json, struct err *err)
{
    struct launch l;
    struct run_state state;
    char why[STATE_TEXT_BYTES];
    int rc;
    run_state_init(&state);
    if ((rc = launch_open(env->home, env->bin_dir, run, &l, err)) < 0)
        goto out;
    if ((rc = launch_state_load(&l, &state, err)) < 0)
        goto out;
    const char *word = waits_why(env->home, &state, &l.budget, silence, why);
    bool mute = is_mute(env->home, &state, &l.budget);
    if (json)
        row_json(&state, word, why, mute, json);
    else
        row_text(&state, word, why, mute, text);
out:
    run_state_release(&state);
    return rc;
}

/* Adds a row for a run whose folder cannot be read, so that the run is listed and does not hide the
 * others. */
static void row_unreadable(const char *id, const char *why, struct str *text,
                           struct json_out *json)
{
    if (!json) {
        str_addf(text, "%-20s %.8s unreadable: %s\n", "?", id, why);
        return;
    }
    json_obj_begin(json, NULL);
    json_put_text(json, "run", id);
    json_put_text(json, "state", "unreadable");
    json_put_text(json, "error", why);
    json_obj_end(json);
}

static void nothing_text(const char *home, struct str *text)
{
    str_addf(text, "no runs under %s%s\n", home,
             !file_exists(home)    ? ", which is not there"
             : home_is_there(home) ? ""
                                   : ", in which there is nothing");
}

int cmd_status_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    bool json = opt_bool(v, "json");
    size_t n = opt_operands(v, &operands), n_ids = 0;
    char **ids = NULL;
    struct str text = STR_INIT;
    struct json_out o;
    struct waits_silence silence = {.said = ""};
    int rc;

    json_out_init(&o, &text, 2);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.status/1");
        json_arr_begin(&o, "runs");
    }
    if (n && (rc = row_add(env, operands[0], NULL, &text, json ? &o : NULL, err)) < 0)
        goto out;
    if (!n && (rc = home_runs_check(env->home, err)) < 0)
        goto out;
    if (!n && (rc = home_runs_list(env->home, &ids, &n_ids, err)) < 0)
        goto out;
    for (size_t i = 0; i < n_ids; i++)
        if (row_add(env, ids[i], &silence, &text, json ? &o : NULL, err) < 0)
            row_unreadable(ids[i], err->text, &text, json ? &o : NULL);
    if (json)
        json_arr_end(&o);
    if (!n && (rc = tunes_list(env->home, &text, json ? &o : NULL, err)) < 0)
        goto out;
    if (json) {
        json_obj_end(&o);
        str_addc(&text, '\n');
    } else if (!n && !n_ids && !text.len) {
        nothing_text(env->home, &text);
    }
    rc = cmd_print(&text, err);
out:
    home_runs_free(ids, n_ids);
    str_release(&text);
    return rc;
}
