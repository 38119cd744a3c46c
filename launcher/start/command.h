/* command: builds the argument vector and the environment that start reel-train, for a run (agent)
 * and for a trial (tuner).
 *
 * One rank is started directly. Several ranks are started under mpirun on this machine's cores,
 * unless the scheduler starts ranks itself (srun). The environment has only the variables of an
 * explicit list (command.c): those that programs need to run (PATH, HOME, locale, library paths),
 * those of communication libraries and of reel (OMPI_, UCX_, FI_, NCCL_, CUDA_, SLURM_, PMIX_,
 * OMP_, HWLOC_, REEL_), and those of sanitizers. The trainer gets one thread for OpenMP and one for
 * OpenBLAS, whatever these variables were.
 */
#ifndef LAUNCHER_START_COMMAND_H
#define LAUNCHER_START_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "launcher/sched/place.h"
#include "profiles/layout.h"

struct command {
    const char **argv; /* NULL-terminated */
    const char **env;  /* NULL-terminated */
};

/* Builds the command that starts the trainer. bin_dir: the folder of reel-train. starts_ranks: as
 * in sched_ops; if true, the command starts one rank, and the scheduler runs it as often as there
 * are ranks. args: the arguments after "reel-train" ("train", "--run", …), NULL-terminated and
 * borrowed. environ_list is normally environ. Everything is copied into the arena. */
int command_trainer(const char *bin_dir, int64_t ranks, bool starts_ranks, const char *const *args,
                    const char *const *environ_list, struct arena *arena, struct command *out,
                    struct err *err);

/* Checks that this number of ranks can be started. ERR_ENV: mpirun is needed and not found. */
int command_ranks_check(int64_t ranks, bool starts_ranks, struct err *err);

/* Finds a program as the shell would, and writes its path to *out. ERR_ENV: it is not on PATH. */
int command_find(const char *name, struct arena *arena, const char **out, struct err *err);

/* Computes the sizes of a layout's nested groups of ranks. The innermost group, whose ranks
 * communicate most, comes first (sched_step_spec.groups). */
void command_groups(const struct layout *l, int64_t groups[PLACE_GROUPS]);

/* Builds only the environment. `extra` ("K=V", NULL-terminated, may be NULL) replaces inherited
 * variables of the same name. */
int command_environment(const char *const *environ_list, const char *const *extra,
                        struct arena *arena, const char ***out, struct err *err);

#endif
