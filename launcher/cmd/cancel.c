/* reel cancel: end a run for good. */
#include "launcher/cmd/cmd.h"
#include "launcher/launch.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_cancel = {
    "cancel", "end a run: it saves a last checkpoint and is not brought back (but by 'reel retry')", "RUN", opts, ARRAY_LEN(opts), 1, 1,
    NULL};

static int cancelled_print(const struct launch *l, bool json, bool dry, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.cancel/1");
        json_put_text(&o, "run", l->run_id);
        json_put_bool(&o, "dry_run", dry);
        json_obj_end(&o);
        str_addc(&text, '\n');
    } else {
        str_addf(&text, "%s run %s\n", dry ? "would cancel" : "cancelled", l->run_id);
        if (l->wrapped) /* we cannot prove whose job it is */
            str_addf(&text, "its job was not submitted by reel: its agent has the trainer save and stop; end it (scancel) if it does not; it will not come back\n");
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

int cmd_cancel_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct launch l;
    struct sched *s = NULL;
    struct run_state state;
    opt_operands(v, &operands);
    run_state_init(&state);
    int rc = launch_open(env->home, env->bin_dir, operands[0], &l, err);
    if (rc == 0)
        rc = run_state_load(l.run_dir, &state, err);
    if (rc == 0 && state.done)
        rc = err_set(err, ERR_NO, "run %s is done: there is nothing to cancel", state.name);
    if (rc == 0 && !opt_bool(v, "dry-run") && !l.wrapped)
        rc = sched_open(state.sched[0] ? state.sched : "local", env->home, &s, err);
    if (rc == 0 && !opt_bool(v, "dry-run"))
        rc = launch_cancel(&l, s, err);
    if (rc == 0)
        rc = cancelled_print(&l, opt_bool(v, "json"), opt_bool(v, "dry-run"), err);
    sched_close(s);
    run_state_release(&state);
    return rc;
}
