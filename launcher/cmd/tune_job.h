/* tune_job: runs `reel tune --nodes N`, which searches inside an allocation of its own
 * (tune_job.c). */
#ifndef LAUNCHER_CMD_TUNE_JOB_H
#define LAUNCHER_CMD_TUNE_JOB_H

#include "launcher/cmd/cmd.h"
#include "launcher/cmd/tune_other.h"
#include "launcher/sched/sched.h"
#include "profiles/run.h"

/* Submits the job that searches, or finds it if it exists, follows it and prints its result. `run`:
 * the run to tune, with its data bound; `other`: the trainer to use instead of reel-train. Returns
 * ERR_NO if the search found no layout, and ERR_TEMP if the job ended without a result; then the
 * same command continues. */
int tune_job_run(const struct opt_values *v, struct cmd_env *env, const struct run *run,
                 const struct tune_other *other, struct err *err);

#endif
