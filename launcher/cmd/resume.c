/* reel resume: lets a paused run go on. */
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
    struct wish_back back = {
        .wish = CONTROL_RESUME, .schema = "reel.resume/1",
        .would = "would let", .would_end = " go on"};
    return wish_bring_back(&back, v, env, err);
}
