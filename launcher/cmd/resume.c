/* reel resume: lets a paused run go on. */
#include <stdio.h>

#include "launcher/cmd/wish.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
    {"detach", 'd', OPT_BOOL, NULL, "return as soon as the job is submitted"},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress, only the end"},
};
const struct opt_cmd cmd_resume = {
    "resume",
    "let a paused run go on from its newest checkpoint, and follow it",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "Waits a minute for a job that still saves. A wrapped run is allowed to go on: its owner "
    "submits its job script again."};

int cmd_resume_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct wish w;
    char line[256];
    int rc;
    if ((rc = wish_open(&w, v, env, err)) < 0)
        goto out;
    if (w.dry_run) {
        if ((rc = control_may(&w.l, w.s, &w.state, CONTROL_RESUME, err)) < 0)
            goto out;
        snprintf(line, sizeof line, "would let run '%s' go on, which is %s", w.state.name,
                 run_state_word(&w.state, &w.l.budget));
        rc = wish_print(&w, "reel.resume/1", line, err);
        goto out;
    }
    if ((rc = wish_go_on(&w, NULL, err)) < 0)
        goto out;
    rc = wish_bring_back(&w, v, env, err);
out:
    wish_close(&w);
    return rc;
}
