/* reel pause: a run saves, gives its machine back, and waits for 'reel resume'. */
#include <stdio.h>

#include "launcher/cmd/wish.h"
#include "launcher/run/wrap.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_pause = {
    "pause", "have a run save and give its machine back; nothing but 'reel resume' brings it back", "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "Returns when the wish is recorded: 'reel watch' waits for the end. A job that waits is cancelled, one that runs is told to save and has "
    "all the time it needs. The agent of a wrapped run hears of it within seconds and tells its trainer, whose job then ends."};

static bool is_deaf(const struct launch *l)
{
    struct wrap wrap;
    if (!l->wrapped || wrap_load(l->run_dir, &wrap, NULL) < 0)
        return false;
    bool deaf = wrap.notice == 0;
    wrap_release(&wrap);
    return deaf;
}

int cmd_pause_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct wish w;
    char line[512];
    int rc = wish_open(&w, v, env, err);
    if (rc == 0 && w.dry_run)
        rc = control_may(&w.l, w.s, &w.state, CONTROL_PAUSE, err);
    if (rc == 0 && !w.dry_run && (rc = control_pause(&w.l, w.s, err)) == 0)
        rc = run_state_load(w.l.run_dir, &w.state, err);
    snprintf(line, sizeof line, "%s run '%s': 'reel resume' brings it back%s", w.dry_run ? "would pause" : "pausing", w.state.name,
             rc == 0 && is_deaf(&w.l) ? "; it is wrapped with --notice none, so its trainer is not told: end its job" : "");
    if (rc == 0)
        rc = wish_print(&w, "reel.pause/1", line, err);
    wish_close(&w);
    return rc;
}
