/* reel keeper SPOOL JOB: runs the keeper of one execution of a job (local_keeper.c). The local
 * scheduler starts it; it is not for people. */
#include <stddef.h>

#include "launcher/cmd/cmd.h"
#include "launcher/sched/local.h"

const struct opt_cmd cmd_keeper = {
    .name = "keeper",
    .summary = "watch over one job of the local scheduler (started by it)",
    .operands = "SPOOL JOB",
    .opts = NULL,
    .n_opts = 0,
    .min_operands = 2,
    .max_operands = 2,
    .description =
        "Started by the local scheduler for each execution of a job; there is no use in typing it.",
};

int cmd_keeper_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    (void)env;
    opt_operands(v, &operands);
    return sched_local_keeper(operands[0], operands[1], err);
}
