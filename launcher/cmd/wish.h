/* wish: declares what the commands pause, resume and retry share. Each records a request (wish) of
 * the run's owner. */
#ifndef LAUNCHER_CMD_WISH_H
#define LAUNCHER_CMD_WISH_H

#include "launcher/cmd/cmd.h"
#include "launcher/submit/control.h"

struct wish {
    struct launch l;
    struct sched *s;        /* scheduler of the run's newest submission; NULL: there was none */
    struct run_state state; /* as it was before the request */
    bool json, dry_run;
};

/* Opens the run that the first operand names. The caller calls wish_close after a failure too. */
int wish_open(struct wish *w, const struct opt_values *v, const struct cmd_env *env,
              struct err *err);
void wish_close(struct wish *w);

/* Describes a command that brings a run back. */
struct wish_back {
    enum control_wish wish;
    const char *would;               /* text of a dry run, before the run's name and after it */
    const char *would_end;
    const char *schema;              /* of the JSON that a dry run prints */
    const struct control_retry *how; /* of a retry; NULL: the command is resume */
};
/* Runs the command: waits up to a minute for a job that is still ending, submits the run and
 * follows it, or with --detach says how to follow it. For a wrapped run it says what the user must
 * do next. */
int wish_bring_back(const struct wish_back *b, const struct opt_values *v, struct cmd_env *env,
                    struct err *err);

/* Prints one line, or with json the object {"schema", "run", "name", "dry_run", "state",
 * "saved_step"}. */
int wish_print(const struct wish *w, const char *schema, const char *line, struct err *err);

#endif
