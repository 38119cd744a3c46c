/* reel retry: lets a run go on that failed or was cancelled. */
#include <stdio.h>

#include "launcher/cmd/wish.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
    {"reset-budget", 0, OPT_BOOL, NULL,
     "count crashes and lost time anew (default: one attempt, and it is over again unless that "
     "came further)"},
    {"exclude", 0, OPT_TEXT, "LIST",
     "nodes not to be used from now on, beside those of resources.exclude: \"n[1-2],n7\""},
    {"detach", 'd', OPT_BOOL, NULL, "return as soon as the job is submitted"},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress, only the end"},
};
const struct opt_cmd cmd_retry = {
    "retry",
    "let a failed or cancelled run go on from its newest checkpoint, and follow it",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "The run keeps its name, its checkpoints and its record. A wrapped run is allowed to go on: "
    "its owner submits its job script again."};

int cmd_retry_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct wish w;
    char line[256];
    struct control_retry how = {opt_bool(v, "reset-budget"), opt_text(v, "exclude")};
    int rc;
    if ((rc = wish_open(&w, v, env, err)) < 0)
        goto out;
    if (w.dry_run) {
        if ((rc = control_may(&w.l, w.s, &w.state, CONTROL_RETRY, err)) < 0)
            goto out;
        snprintf(line, sizeof line, "would retry run '%s', which is %s", w.state.name,
                 run_state_word(&w.state, &w.l.budget));
        rc = wish_print(&w, "reel.retry/1", line, err);
        goto out;
    }
    if ((rc = wish_go_on(&w, &how, err)) < 0)
        goto out;
    rc = wish_bring_back(&w, v, env, err);
out:
    wish_close(&w);
    return rc;
}
