/* tune_job: `reel tune --nodes N`: the search inside an allocation of its own; see tune_job.c. */
#ifndef LAUNCHER_CMD_TUNE_JOB_H
#define LAUNCHER_CMD_TUNE_JOB_H

#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"
#include "profiles/run.h"

/* Submit (or find) the job that searches, follow it, print its result. run: what is tuned, its data bound. ERR_NO: it found none;
 * ERR_TEMP: it ended without a result, and the same command goes on. */
int tune_job_run(const struct opt_values *v, struct cmd_env *env, const struct run *run, struct err *err);

#endif
