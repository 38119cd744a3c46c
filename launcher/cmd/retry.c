/* reel retry: continues a run that failed or that was cancelled or interrupted. */
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
    "let a failed, cancelled or interrupted run go on from its newest checkpoint, and follow it",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "The run keeps its name, its checkpoints and its record. A wrapped run is allowed to go on: "
    "its owner submits its job script again."};

int cmd_retry_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct control_retry how = {opt_bool(v, "reset-budget"), opt_text(v, "exclude")};
    struct wish_back back = {
        .wish = CONTROL_RETRY, .how = &how, .schema = "reel.retry/1",
        .would = "would retry", .would_end = ""};
    return wish_bring_back(&back, v, env, err);
}
