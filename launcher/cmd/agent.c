/* reel agent: the batch process of a run, started by the scheduler. Not for people: see `reel launch`. */
#include <stdlib.h>

#include "launcher/agent.h"
#include "launcher/cmd/cmd.h"

static const struct opt opts[] = {
    {"run-dir", 0, OPT_TEXT, "DIR", "the run's folder", .flags = OPT_REQUIRED},
};
const struct opt_cmd cmd_agent = {"agent", "keep a run alive inside its job (started by launch)", "", opts,
                                  ARRAY_LEN(opts), 0, 0, NULL};

int cmd_agent_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct agent_conf conf = {opt_text(v, "run-dir"), env->home, env->bin_dir};
    int exit_code = 5;
    int rc = agent_run(&conf, &exit_code, err);
    if (rc == ERR_BUSY) /* another agent holds the run: not an error of this job */
        return rc;
    if (rc < 0)
        return rc;
    return exit_code == 0 ? 0 : exit_code == 75 ? ERR_TEMP : ERR_NO;
}
