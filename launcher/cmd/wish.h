/* wish: what the commands share that tell a run what its owner wants of it: pause, resume, retry. */
#ifndef LAUNCHER_CMD_WISH_H
#define LAUNCHER_CMD_WISH_H

#include "launcher/cmd/cmd.h"
#include "launcher/run/control.h"

struct wish {
    struct launch l;
    struct sched *s;        /* of its newest submission; NULL: none */
    struct run_state state; /* as it was before */
    bool json, dry_run;
};

/* The run that the first operand names. wish_close after failure too. */
int wish_open(struct wish *w, const struct opt_values *v, const struct cmd_env *env, struct err *err);
void wish_close(struct wish *w);

/* As control_retry, which is a resume where `how` is NULL; waits a minute for a job that still ends. */
int wish_go_on(struct wish *w, const struct control_retry *how, struct err *err);

/* A run that may go on: submits it and follows it, or (detach) says how to; of a wrapped run it says what is left to do. */
int wish_bring_back(struct wish *w, const struct opt_values *v, struct cmd_env *env, struct err *err);

/* One line, or (json) the object {"schema", "run", "name", "dry_run", "state", "saved_step"}. */
int wish_print(const struct wish *w, const char *schema, const char *line, struct err *err);

#endif
