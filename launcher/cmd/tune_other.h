/* tune_other: handles the options of `reel tune` for trials of another trainer (--adapter, and the
 * command after --), and for printing the winner as a trainer's flags (--export). */
#ifndef LAUNCHER_CMD_TUNE_OTHER_H
#define LAUNCHER_CMD_TUNE_OTHER_H

#include "base/opt.h"
#include "launcher/sched/sched.h"
#include "profiles/adapter.h"

struct tune_other {
    struct adapter *adapter; /* NULL: trials run reel-train */
    struct adapter *told; /* writes the winner's flags for --export; NULL: `adapter` writes them */
    const char **argv;       /* the user's command; its first word is a path */
    /* Starts the command on this machine. The command starts its ranks itself, inside a job by
     * srun. */
    struct sched *sched;
    struct arena arena;
};
/* Checks the options, loads the adapters and finds the command. */
int tune_other_open(const struct opt_values *v, const char *home, struct tune_other *o,
                    struct err *err);
void tune_other_release(struct tune_other *o); /* safe on a zeroed struct */
/* Adds the winner's flags to its plan. Without any adapter it adds nothing. */
int tune_other_flags(const struct tune_other *o, const struct model *m, struct plan *winner,
                     struct err *err);

#endif
