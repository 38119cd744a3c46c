#include "launcher/cmd/tune_told.h"

#include <math.h>
#include <string.h>

#include "autotune/tune_story.h"
#include "base/clock.h"
#include "base/num.h"

/* ---- status ---- */

struct list { struct str *text; struct json_out *json; };

static void row_text(const struct tune_story *s, struct str *out)
{
    char ago[32];
    str_addf(out, "%-20.20s %.8s %-11s %2lld trial%s measured  last word %s ago", s->model, s->id,
             tune_state_names[s->state], (long long)s->measured, s->measured == 1 ? " " : "s",
             num_format_seconds(fmax(0, clock_wall_s() - s->last_at), ago, sizeof ago));
    if (s->state != TUNE_RUNS)
        str_addf(out, "  (a tuning that %s%s: the same 'reel tune' goes on)",
                 tune_state_names[s->state], s->in_trial ? " in a trial" : "");
    else
        str_add(out, "  (a tuning)");
    str_addc(out, '\n');
}

static void row_json(const struct tune_story *s, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "tune", s->id);
    json_put_text(o, "model", s->model);
    json_put_text(o, "state", tune_state_names[s->state]);
    json_put_bool(o, "in_trial", s->in_trial);
    json_put_text(o, "layout", s->layout[0] ? s->layout : NULL);
    json_put_int(o, "trials", s->trials);
    json_put_int(o, "measured", s->measured);
    json_put_num(o, "last_event_at", s->last_at);
    json_obj_end(o);
}

static int row_add(void *ctx, const struct tune_story *s, struct err *err)
{
    struct list *list = ctx;
    (void)err;
    if (s->state == TUNE_ENDED)
        return 0;
    if (list->json)
        row_json(s, list->json);
    else
        row_text(s, list->text);
    return 0;
}

int tunes_list(const char *home, struct str *text, struct json_out *json, struct err *err)
{
    struct list list = {text, json};
    if (json)
        json_arr_begin(json, "tunes");
    int rc = tunes_each(home, row_add, &list, err);
    if (json)
        json_arr_end(json);
    return rc;
}

/* ---- explain ---- */

struct search_for { const char *id; struct tune_story found; };

static int id_compare(void *ctx, const struct tune_story *s, struct err *err)
{
    struct search_for *wanted = ctx;
    (void)err;
    if (strncmp(s->id, wanted->id, strlen(wanted->id)) != 0)
        return 0;
    wanted->found = *s;
    return 1;
}

static void trial_text(void *ctx, const char *layout, const cJSON *ended)
{
    char measured[32];
    double step_s = json_num(ended, "measured_step_s", NAN);
    const char *cause = json_text(ended, "cause", ""), *evidence = json_text(ended, "evidence", "");
    str_addf(ctx, "  %s: %s", layout, json_text(ended, "state", "?"));
    if (isfinite(step_s))
        str_addf(ctx, ", %s a step", num_format_seconds(step_s, measured, sizeof measured));
    str_addf(ctx, "%s%s", cause[0] ? ": " : "", cause);
    if (evidence[0] && strcmp(evidence, cause) != 0)
        str_addf(ctx, "; %s", evidence);
    str_addc(ctx, '\n');
}

static void trial_json(void *ctx, const char *layout, const cJSON *ended)
{
    json_obj_begin(ctx, NULL);
    json_put_text(ctx, "trial", json_text(ended, "trial", ""));
    json_put_text(ctx, "layout", layout);
    json_put_text(ctx, "state", json_text(ended, "state", ""));
    json_put_num(ctx, "measured_step_s", json_num(ended, "measured_step_s", NAN));
    json_put_text(ctx, "cause", json_text(ended, "cause", ""));
    json_put_text(ctx, "evidence", json_text(ended, "evidence", NULL));
    json_put_text(ctx, "node", json_text(ended, "node", NULL));
    json_obj_end(ctx);
}

static int story_text(const struct tune_story *s, struct str *out, struct err *err)
{
    str_addf(out, "tuning %.8s of %s: %s%s%s, %lld trial%s, %lld measured\n", s->id, s->model,
             tune_state_names[s->state], s->reason[0] ? ": " : "", s->reason, (long long)s->trials,
             s->trials == 1 ? "" : "s", (long long)s->measured);
    int rc = tune_story_trials(s->dir, trial_text, out, err);
    if (s->in_trial)
        str_addf(out, "  %s: %s\n", s->layout,
                 s->state == TUNE_RUNS ? "is measured now" : "the tuning died in its trial");
    if (s->state == TUNE_DIED || s->state == TUNE_STOPPED)
        str_add(out, "  the same 'reel tune' goes on with what was measured\n");
    return rc;
}

static int story_json(const struct tune_story *s, struct str *out, struct err *err)
{
    struct json_out o;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.explain-tune/1");
    json_put_text(&o, "tune", s->id);
    json_put_text(&o, "model", s->model);
    json_put_text(&o, "state", tune_state_names[s->state]);
    json_put_text(&o, "reason", s->reason[0] ? s->reason : NULL);
    json_put_text(&o, "in_trial_of", s->in_trial ? s->layout : NULL);
    json_arr_begin(&o, "trials");
    int rc = tune_story_trials(s->dir, trial_json, &o, err);
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(out, '\n');
    return rc;
}

int explain_tune(const char *home, const char *id, bool json, struct err *err)
{
    struct search_for wanted = {.id = id};
    struct str out = STR_INIT;
    int rc = tunes_each(home, id_compare, &wanted, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND,
                       "no tuning '%s' under %s: 'reel status' lists those that have not ended, "
                       "'reel db query \"select distinct tune from v_trial\"' all", id, home);
    rc = json ? story_json(&wanted.found, &out, err) : story_text(&wanted.found, &out, err);
    if (rc < 0)
        goto out;
    rc = cmd_print(&out, err);
out:
    str_release(&out);
    return rc;
}
