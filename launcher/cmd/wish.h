/* wish: what pause, resume and retry share, the commands that tell a run what its owner wants of
 * it. */
#ifndef LAUNCHER_CMD_WISH_H
#define LAUNCHER_CMD_WISH_H

#include "launcher/cmd/cmd.h"
#include "launcher/run/control.h"

struct wish {
    struct launch l;
    struct sched *s;        /* scheduler of the run's newest submission; NULL: there was none */
    struct run_state state; /* as it was before the wish */
    bool json, dry_run;
};

/* Opens the run that the first operand names. The caller calls wish_close after a failure too. */
int wish_open(struct wish *w, const struct opt_values *v, const struct cmd_env *env,
              struct err *err);
void wish_close(struct wish *w);

/* Lets the run go on as control_retry does; with a `how` of NULL it resumes the run. Waits up to a
 * minute for a job that still ends. */
int wish_go_on(struct wish *w, const struct control_retry *how, struct err *err);

/* Submits a run that may go on and follows it, or with --detach says how to follow it. For a
 * wrapped run it says what is left to do. */
int wish_bring_back(struct wish *w, const struct opt_values *v, struct cmd_env *env,
                    struct err *err);

/* Prints one line, or with json the object {"schema", "run", "name", "dry_run", "state",
 * "saved_step"}. */
int wish_print(const struct wish *w, const char *schema, const char *line, struct err *err);

#endif
