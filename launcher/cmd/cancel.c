/* reel cancel: ends a run. Its jobs do not bring it back, but 'reel retry' does. */
#include <string.h>

#include "launcher/cmd/cmd.h"
#include "launcher/submit/control.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_cancel = {
    "cancel",
    "end a run: it saves a last checkpoint and is not brought back (but by 'reel retry')",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    NULL};

/* Tells the user what follows if the request to cancel could not be written to the run's log. */
static void kept_say(const struct launch *l, enum launch_kept kept, struct str *out)
{
    if (kept == LAUNCH_NAMED)
        str_add(out, ": its disk has no room for a word, so that is kept in the name of a file, "
                     "and how its attempt ends may not be on record");
    else if (kept == LAUNCH_UNSAID)
        str_addf(out, " at the scheduler alone: %s, so nothing says that it is to stay so, and "
                      "'reel launch' may bring it back", launch_unsaid_why(l));
}

static void json_begin(struct json_out *o, const struct launch *l, bool dry)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", "reel.cancel/1");
    json_put_text(o, "run", l->run_id);
    json_put_bool(o, "dry_run", dry);
}

static const char *const kept_names[] = {
    [LAUNCH_LOGGED] = "log", [LAUNCH_NAMED] = "name", [LAUNCH_UNSAID] = "nowhere"};

static void json_end(struct json_out *o, struct str *text)
{
    json_obj_end(o);
    str_addc(text, '\n');
}

/* Returns by which name the scheduler's commands end the run's newest job; "": unknown. */
static const char *job_handle(const struct run_state *state)
{
    const struct run_attempt *last =
        state->n_attempts ? &state->attempts[state->n_attempts - 1] : NULL;
    return !last ? "" : last->job_handle[0] ? last->job_handle : last->job_id;
}

static int cancelled_print(const struct launch *l, const struct run_state *state, bool json,
                           bool dry, enum launch_kept kept, struct err *err)
{
    const char *job = job_handle(state);
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    if (json) {
        json_begin(&o, l, dry);
        json_put_text(&o, "kept_in", kept_names[kept]);
        json_end(&o, &text);
    } else {
        str_addf(&text, "%s run %s", dry ? "would cancel" : "cancelled", l->run_id);
        kept_say(l, kept, &text);
        str_addc(&text, '\n');
        if (l->wrapped) /* reel did not submit the job, so it does not cancel it */
            str_addf(&text, "its job was not submitted by reel: its agent has the trainer save and "
                            "stop; end it (scancel%s%s) if it does not; it will not come back\n",
                     *job ? " " : "", job);
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

static int ended_print(const struct launch *l, const struct run_state *state, const char *job,
                       bool json, bool dry, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    if (json) {
        json_begin(&o, l, dry);
        json_put_text(&o, "job_ended", job);
        json_end(&o, &text);
    } else {
        str_addf(&text, "%s job %s of run %s, which is done\n", dry ? "would end" : "ended", job,
                 state->name);
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

/* Cancels a job of a run that is done, if the scheduler still has one. Returns ERR_NO if there is
 * none. */
static int done_cancel(const struct launch *l, struct sched *s, const struct run_state *state,
                       bool json, bool dry, struct err *err)
{
    struct control_left left;
    int rc = control_left_over(l, s, state, &left, err);
    if (rc < 0)
        return err_context(err, "run %s is done, and whether a job of it is left cannot be asked",
                           state->name);
    if (!left.id[0])
        return err_set(err, ERR_NO, "run %s is done: there is nothing to cancel", state->name);
    if (l->wrapped)
        return err_set(
            err, ERR_NO,
            "run %s is done, but its job %s is %s at the scheduler: end it by 'scancel %s'",
            state->name, left.id, sched_state_name(left.state), left.handle);
    if (!dry && (rc = sched_cancel(s, left.id, err)) < 0)
        return rc;
    return ended_print(l, state, left.id, json, dry, err);
}

int cmd_cancel_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct launch l;
    struct sched *s = NULL;
    struct run_state state;
    enum launch_kept kept = LAUNCH_LOGGED;
    bool json = opt_bool(v, "json"), dry = opt_bool(v, "dry-run");
    int rc;
    opt_operands(v, &operands);
    run_state_init(&state);
    if ((rc = launch_open(env->home, env->bin_dir, operands[0], &l, err)) < 0)
        goto out;
    if ((rc = run_state_load(l.run_dir, &state, err)) < 0)
        goto out;
    const char *kind = state.sched[0] ? state.sched : l.wrapped ? "none" : "local";
    bool asks = (state.done || (!dry && !l.wrapped)) && strcmp(kind, "none") != 0;
    if (asks && (rc = sched_open(kind, env->home, &s, err)) < 0)
        goto out;
    if (state.done) {
        rc = done_cancel(&l, s, &state, json, dry, err);
        goto out;
    }
    if (!dry && (rc = launch_cancel(&l, s, &kept, err)) < 0)
        goto out;
    rc = cancelled_print(&l, &state, json, dry, kept, err);
out:
    sched_close(s);
    run_state_release(&state);
    return rc;
}
