/* build: checks whether the programs beside this one can do what a run asks for. */
#ifndef LAUNCHER_CMD_BUILD_H
#define LAUNCHER_CMD_BUILD_H

#include "profiles/run.h"

/* Checks that `reel` and `reel-train` in bin_dir can be run, because a job starts both. ERR_ENV
 * names the one that cannot. */
int build_programs_check(const char *bin_dir, struct err *err);
/* Refuses, with ERR_INPUT, a run that asks for GPUs which reel-train could not use: this build has
 * no CUDA backend, or gpus_per_node is not ranks_per_node although each rank uses one GPU. */
int build_gpus_check(const char *bin_dir, const struct run *run, const char *run_path,
                     struct err *err);
/* Refuses, with ERR_INPUT, a run that asks for more GPUs than this machine has. Only a job of the
 * local scheduler needs this. */
int build_here_check(const struct run *run, const char *run_path, struct err *err);

#endif
