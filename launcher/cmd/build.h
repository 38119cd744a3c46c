/* build: whether the programs beside this one can do what a run asks for. */
#ifndef LAUNCHER_CMD_BUILD_H
#define LAUNCHER_CMD_BUILD_H

#include "profiles/run.h"

/* Checks that the programs exist which a job will start. ERR_ENV names one that does not. */
int build_programs_check(const char *bin_dir, struct err *err);
/* Refuses GPUs that would be paid for and stand idle: where the trainer of this build has no CUDA
 * backend beside it, and those that no rank would take. ERR_INPUT. */
int build_gpus_check(const char *bin_dir, const struct run *run, const char *run_path,
                     struct err *err);
/* Refuses GPUs that this machine does not have, for jobs that run on it. ERR_INPUT. */
int build_here_check(const struct run *run, const char *run_path, struct err *err);

#endif
