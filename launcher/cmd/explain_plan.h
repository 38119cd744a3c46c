/* explain_plan: says what a plan's step time and memory are made of, which resource limits the
 * step, and where another layout is slower: `reel explain plan FILE`. */
#ifndef LAUNCHER_CMD_EXPLAIN_PLAN_H
#define LAUNCHER_CMD_EXPLAIN_PLAN_H

#include <stdbool.h>

#include "launcher/cmd/cmd.h"

/* Prints the explanation of the plan in the file `path`, beside what its trial measured if the
 * database of `env` has that. `against` is a layout or another plan's file to compare it with;
 * NULL: none. */
int explain_plan(const struct cmd_env *env, const char *path, const char *against, bool json,
                 struct err *err);

#endif
