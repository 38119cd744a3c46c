/* reel pause: makes a run save and end its job. The run then waits for 'reel resume'. */
#include <stdio.h>

#include "launcher/cmd/wish.h"
#include "launcher/wrap/wrap.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_pause = {
    "pause",
    "have a run save and give its machine back; nothing but 'reel resume' brings it back",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "Returns when the wish is recorded: 'reel watch' waits for the end. A job that waits is "
    "cancelled, one that runs is told to save and has all the time it needs. The agent of a "
    "wrapped run hears of it within seconds and tells its trainer, whose job then ends."};

static bool is_deaf(const struct launch *l)
{
    struct wrap wrap;
    if (!l->wrapped || wrap_load(l->run_dir, &wrap, NULL) < 0)
        return false;
    bool deaf = wrap.notice == 0;
    wrap_release(&wrap);
    return deaf;
}

/* Tells the user what follows if the request to pause could not be written to the log, or reaches
 * no trainer. */
static void consequence(const struct wish *w, enum launch_kept kept, struct str *out)
{
    if (kept == LAUNCH_UNSAID)
        str_addf(out, "; %s, so its job is cancelled at the scheduler, and 'reel launch', or 'reel "
                      "retry', brings it back", launch_unsaid_why(&w->l));
    else if (kept == LAUNCH_NAMED)
        str_add(out, "; its disk has no room for a word, so that is kept in the name of a file, "
                     "and how its attempt ends may not be on record");
    else if (!w->dry_run && is_deaf(&w->l))
        str_add(out, "; it is wrapped with --notice none, so its trainer is not told: end its job");
}

int cmd_pause_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct wish w;
    struct str line = STR_INIT;
    enum launch_kept kept = LAUNCH_LOGGED;
    int rc;
    if ((rc = wish_open(&w, v, env, err)) < 0)
        goto out;
    if (w.dry_run && (rc = control_may(&w.l, w.s, &w.state, CONTROL_PAUSE, NULL, err)) < 0)
        goto out;
    if (!w.dry_run && (rc = control_pause(&w.l, w.s, &kept, err)) < 0)
        goto out;
    if (!w.dry_run && (rc = run_state_load(w.l.run_dir, &w.state, err)) < 0)
        goto out;
    str_addf(&line, "%s run '%s': 'reel resume' brings it back",
             w.dry_run ? "would pause" : "pausing", w.state.name);
    consequence(&w, kept, &line);
    if ((rc = str_check(&line, err)) < 0)
        goto out;
    rc = wish_print(&w, "reel.pause/1", line.p, err);
out:
    str_release(&line);
    wish_close(&w);
    return rc;
}
