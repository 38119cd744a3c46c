#include "launcher/cmd/wish.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launcher/cmd/follow.h"
#include "launcher/state/pace.h"
#include "launcher/submit/waits.h"

static const double PATIENCE_S = 60, LOOK_EVERY_S = 0.5;

int wish_open(struct wish *w, const struct opt_values *v, const struct cmd_env *env,
              struct err *err)
{
    const char *const *operands;
    opt_operands(v, &operands);
    *w = (struct wish){.json = opt_bool(v, "json"), .dry_run = opt_bool(v, "dry-run")};
    int rc;
    run_state_init(&w->state);
    if ((rc = launch_open(env->home, env->bin_dir, operands[0], &w->l, err)) < 0)
        return rc;
    if ((rc = run_state_load(w->l.run_dir, &w->state, err)) < 0)
        return rc;
    const char *kind = w->state.sched;
    if (kind[0] && strcmp(kind, "none") != 0)
        return sched_open(kind, env->home, &w->s, err);
    /* A run of 'reel launch' without a scheduler was created and never submitted. */
    return w->l.wrapped ? 0 : sched_open("local", env->home, &w->s, err);
}

void wish_close(struct wish *w)
{
    sched_close(w->s);
    run_state_release(&w->state);
}

/* Lets the run go on. Waits up to PATIENCE_S for a job that is still ending. */
static int go_on(struct wish *w, const struct control_retry *how, struct err *err)
{
    double begun_s = clock_mono_s();
    for (bool said = false;; said = true) {
        struct err why = {0};
        int rc = how ? control_retry(&w->l, w->s, how, &why) : control_resume(&w->l, w->s, &why);
        bool spent = rc == ERR_BUSY && clock_mono_s() - begun_s > PATIENCE_S;
        if (rc != ERR_BUSY || spent)
            return rc < 0 ? err_set(err, rc, "%s%s", why.text,
                                    spent ? "; give the same command again" : "")
                          : 0;
        if (!said)
            fprintf(stderr, "%s; waiting for that, %.0f s at most\n", why.text, PATIENCE_S);
        clock_sleep_s(LOOK_EVERY_S);
    }
}

int wish_print(const struct wish *w, const char *schema, const char *line, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    if (w->json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", schema);
        json_put_text(&o, "run", w->l.run_id);
        json_put_text(&o, "name", w->state.name);
        json_put_bool(&o, "dry_run", w->dry_run);
        json_put_text(&o, "state", run_state_word(&w->state, &w->l.budget));
        json_put_int(&o, "saved_step", w->state.saved_step);
        json_obj_end(&o);
        str_addc(&text, '\n');
    } else {
        str_addf(&text, "%s\n", line);
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

/* Submits a run that may go on and follows it. */
static int submit(struct wish *w, const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    char line[512], from[64] = "its beginning: nothing was saved";
    /* The run's job may have saved while this process waited for the job's end. */
    int rc = run_state_load(w->l.run_dir, &w->state, err);
    if (rc < 0)
        return rc;
    if (w->state.saved_step > 0)
        snprintf(from, sizeof from, "step %lld", (long long)w->state.saved_step);
    if (w->l.wrapped && strcmp(w->state.sched, "none") == 0)
        snprintf(line, sizeof line,
                 "run '%s' may go on: give its 'reel wrap' command again, with --name %s, its "
                 "trainer loads its newest checkpoint",
                 w->state.name, w->state.name);
    else if (w->l.wrapped)
        snprintf(line, sizeof line,
                 "run '%s' may go on: submit its job script again, its trainer loads its newest "
                 "checkpoint",
                 w->state.name);
    else
        snprintf(line, sizeof line, "run '%s' goes on from %s: 'reel watch %s' follows it",
                 w->state.name, from, w->state.name);
    if (w->l.wrapped)
        return wish_print(w, "reel.launch/1", line, err);
    char token[ID_TEXT_BYTES]; /* of the run's job, which has ended */
    snprintf(token, sizeof token, "%s", w->state.job_token);
    if ((rc = launch_submit(&w->l, w->s, token, err)) < 0)
        return rc;
    if ((rc = run_state_load(w->l.run_dir, &w->state, err)) < 0)
        return rc;
    if (opt_bool(v, "detach"))
        return wish_print(w, "reel.launch/1", line, err);
    if (!opt_bool(v, "quiet"))
        fprintf(stderr, "%s\n", line);
    rc = cmd_follow(&w->l, w->s, w->json, opt_bool(v, "quiet"), err);
    cmd_ingest(env);
    cmd_follow_leave();
    return rc;
}

static int would_print(const struct wish *w, const struct wish_back *b, struct err *err)
{
    char line[256], why[STATE_TEXT_BYTES];
    int rc;
    if ((rc = control_may(&w->l, w->s, &w->state, b->wish, b->how, err)) < 0)
        return rc;
    const char *word = waits_why(w->l.home, &w->state, &w->l.budget, NULL, why);
    snprintf(line, sizeof line, "%s run '%s'%s, which is %s", b->would, w->state.name, b->would_end,
             word);
    return wish_print(w, b->schema, line, err);
}

int wish_bring_back(const struct wish_back *b, const struct opt_values *v, struct cmd_env *env,
                    struct err *err)
{
    struct wish w;
    struct pace_model pace;
    int rc;
    if ((rc = wish_open(&w, v, env, err)) < 0)
        goto out;
    pace_model_find(env->home, w.state.model, &pace); /* for the notice of its next job */
    w.l.save_s = pace.save_s;
    if (w.dry_run) {
        rc = would_print(&w, b, err);
        goto out;
    }
    if ((rc = go_on(&w, b->how, err)) < 0)
        goto out;
    rc = submit(&w, v, env, err);
out:
    wish_close(&w);
    return rc;
}
