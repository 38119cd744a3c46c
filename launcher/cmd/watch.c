/* reel watch: follows a run that somebody launched. */
#include "launcher/cmd/follow.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"quiet", 'q', OPT_BOOL, NULL, "no progress, only the end"},
};
const struct opt_cmd cmd_watch = {
    "watch",
    "follow a run to its end; interrupting changes nothing (exit status 130)",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    NULL};

int cmd_watch_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct launch l;
    opt_operands(v, &operands);
    int rc = launch_open(env->home, env->bin_dir, operands[0], &l, err);
    if (rc < 0 || (rc = cmd_follow(&l, NULL, opt_bool(v, "json"), opt_bool(v, "quiet"), err)) < 0)
        return rc;
    cmd_follow_leave();
    return 0;
}
