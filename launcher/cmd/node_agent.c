#include "base/json.h"
#include "launcher/cmd/cmd.h"
#include "launcher/run/node_agent.h"

static const struct opt opts[] = {
    {"run-dir", 0, OPT_TEXT, "DIR", "the run's folder", .flags = OPT_REQUIRED},
    {"attempt", 0, OPT_INT, "N", "the attempt whose ranks are told", .min = 1, .max = 1e15,
     .flags = OPT_REQUIRED},
    {"signal", 0, OPT_INT, "NUMBER", "what the ranks take for a notice; 0: they are not told",
     .min = 0, .max = 64, .flags = OPT_REQUIRED},
    {"stand-in", 0, OPT_BOOL, NULL, "end if an older node agent of the run lives on this node"},
};
const struct opt_cmd cmd_node_agent = {
    "node-agent",
    "hear notices to stop on one node of a job (started by agent)",
    "", opts, ARRAY_LEN(opts), 0, 0,
    NULL};

int cmd_node_agent_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    (void)env;
    struct node_agent_conf conf = {opt_text(v, "run-dir"), opt_int(v, "attempt"),
                                   (int)opt_int(v, "signal"), opt_bool(v, "stand-in")};
    return node_agent_run(&conf, err);
}
