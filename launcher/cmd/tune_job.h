/* tune_job: runs `reel tune --nodes N`: the search inside an allocation of its own (tune_job.c). */
#ifndef LAUNCHER_CMD_TUNE_JOB_H
#define LAUNCHER_CMD_TUNE_JOB_H

#include "launcher/cmd/cmd.h"
#include "launcher/cmd/tune_other.h"
#include "launcher/sched/sched.h"
#include "profiles/run.h"

/* Submits the job that searches, or finds it, follows it and prints its result. `run` is what is
 * tuned, with its data bound, and `other` the trainer that is used instead of ours. Returns ERR_NO
 * if the search found no layout, and ERR_TEMP if the job ended without a result; the same command
 * then goes on. */
int tune_job_run(const struct opt_values *v, struct cmd_env *env, const struct run *run,
                 const struct tune_other *other, struct err *err);

#endif
