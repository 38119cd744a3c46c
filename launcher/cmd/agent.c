/* reel agent: runs as the batch process of a run's job. The scheduler starts it; people use `reel
 * launch`. */
#include <stdlib.h>

#include "base/file.h"
#include "launcher/cmd/cmd.h"
#include "launcher/run/guard.h"

static const struct opt opts[] = {
    {"run-dir", 0, OPT_TEXT, "DIR", "the run's folder", .flags = OPT_REQUIRED},
};
const struct opt_cmd cmd_agent = {
    "agent", "keep a run alive inside its job (started by launch)", "", opts, ARRAY_LEN(opts), 0, 0,
    NULL};

int cmd_agent_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct agent_conf conf = {opt_text(v, "run-dir"), env->home, env->bin_dir, NULL};
    int exit_code = 5;
    if (!file_exists(conf.run_dir))
        return err_set(err, ERR_ENV,
                       "the run's folder '%s' is not there: mount its disk, then 'reel launch' "
                       "with the run's file, or 'reel retry', lets it go on", conf.run_dir);
    int rc = guard_run(&conf, &exit_code, err);
    if (rc < 0)
        return rc;
    return cmd_agent_status(exit_code);
}

int cmd_agent_status(int exit_code)
{
    switch (exit_code) {
    case 0: return 0;
    case 1: return ERR_NO;
    case 3: return ERR_INPUT;
    case 4: return ERR_ENV;
    case 75: return ERR_TEMP;
    default: return ERR_CHILD;
    }
}
