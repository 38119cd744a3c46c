/* command: makes the argument vector and environment that start our trainer, for a run (agent) and
 * for a trial (tuner).
 *
 * One rank is started directly. Several are started under mpirun on this machine's cores, unless
 * the scheduler starts ranks itself (srun). The environment is an explicit list (command.c): what
 * programs need to run (PATH, HOME, locale, library paths), what belongs to the field's libraries
 * and to reel (OMPI_, UCX_, FI_, NCCL_, CUDA_, SLURM_, PMIX_, OMP_, HWLOC_, REEL_) and to
 * sanitizers, and nothing else.
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
    const char **argv; /* NULL-ended */
    const char **env;  /* NULL-ended */
};

/* Makes the command that starts the trainer. bin_dir is where reel-train lies. starts_ranks is that
 * of sched_ops: if true, the command starts one rank, and the scheduler as many as are needed. args
 * are the arguments behind "reel-train" ("train", "--run", …), NULL-ended and borrowed.
 * environ_list is normally environ. Everything is copied into the arena. */
int command_trainer(const char *bin_dir, int64_t ranks, bool starts_ranks, const char *const *args,
                    const char *const *environ_list, struct arena *arena, struct command *out,
                    struct err *err);

/* Checks that a program is there that starts so many ranks. ERR_ENV: there is no mpirun. */
int command_ranks_check(int64_t ranks, bool starts_ranks, struct err *err);

/* Finds a program as the shell would, as a path. ERR_ENV: there is none on PATH. */
int command_find(const char *name, struct arena *arena, const char **out, struct err *err);

/* Computes the sizes of a layout's groups of ranks. The innermost group comes first: its ranks talk
 * most with each other (sched_step_spec.groups). */
void command_groups(const struct layout *l, int64_t groups[PLACE_GROUPS]);

/* Makes only the environment. `extra` ("K=V", NULL-ended, may be NULL) replaces what is
 * inherited. */
int command_environment(const char *const *environ_list, const char *const *extra,
                        struct arena *arena, const char ***out, struct err *err);

#endif
