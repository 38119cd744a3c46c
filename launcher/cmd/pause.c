/* reel pause: has a run save and give its machine back. The run then waits for 'reel resume'. */
#include <stdio.h>

#include "launcher/cmd/wish.h"
#include "launcher/run/wrap.h"

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

/* Says what follows from where the wish is kept. */
static const char *consequence(const struct wish *w, enum launch_kept kept)
{
    if (kept == LAUNCH_UNSAID)
        return "; its disk has no room for a word, so its job is cancelled at the scheduler, and "
               "'reel launch', or 'reel retry', brings it back";
    if (kept == LAUNCH_MARKED)
        return "; its disk has no room for a word, so that is kept in the name of a file, and how "
               "its attempt ends may not be on record";
    if (!w->dry_run && is_deaf(&w->l))
        return "; it is wrapped with --notice none, so its trainer is not told: end its job";
    return "";
}

int cmd_pause_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct wish w;
    char line[512];
    enum launch_kept kept = LAUNCH_LOGGED;
    int rc;
    if ((rc = wish_open(&w, v, env, err)) < 0)
        goto out;
    if (w.dry_run && (rc = control_may(&w.l, w.s, &w.state, CONTROL_PAUSE, err)) < 0)
        goto out;
    if (!w.dry_run && (rc = control_pause(&w.l, w.s, &kept, err)) < 0)
        goto out;
    if (!w.dry_run && (rc = run_state_load(w.l.run_dir, &w.state, err)) < 0)
        goto out;
    snprintf(line, sizeof line, "%s run '%s': 'reel resume' brings it back%s",
             w.dry_run ? "would pause" : "pausing", w.state.name, consequence(&w, kept));
    rc = wish_print(&w, "reel.pause/1", line, err);
out:
    wish_close(&w);
    return rc;
}
