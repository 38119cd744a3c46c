/* ranks_list: lists a trainer's processes on this node and finds the ranks among them (ranks.h says
 * which those are).
 */
#ifndef LAUNCHER_RUN_RANKS_LIST_H
#define LAUNCHER_RUN_RANKS_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/str.h"
#include "launcher/run/ranks_told.h"

struct rank_process {
    pid_t pid, parent;
    int64_t start;      /* start time; with pid it identifies the process, see base/process.h */
    struct str numbers; /* "RANK=3\n...", "" for a process that is no rank */
    char node[LIMIT_NAME_BYTES]; /* Slurm's name of its node, "" where it has none */
    enum { STRANGER, NAMELESS, OURS, AGENT } kind; /* NAMELESS: see is_nameless */
    bool left_out, first, launcher;
    bool elastic; /* torchrun or a launcher of its kind is above it */
};

/* RANKS_TRAINER: the trainer's processes. RANKS_BARE: those in the steps of this job that have no
 * id, but for the step of this process. */
enum ranks_which { RANKS_TRAINER, RANKS_BARE };

/* Lists the processes: *out is new, of *n processes, to be freed by ranks_list_free. `told` keeps
 * which have started several ranks; NULL: nothing is kept. */
int ranks_list_read(enum ranks_which which, const char *trainer_id, struct ranks_told *told,
                    struct rank_process **out, size_t *n, struct err *err);
void ranks_list_free(struct rank_process *list, size_t n);

/* Returns the listed process of this number, NULL if there is none. */
const struct rank_process *ranks_find(const struct rank_process *list, size_t n, pid_t pid);
/* Tells whether this is the first process of a rank, and no launcher that has ranks below it. */
bool ranks_is_rank(const struct rank_process *p);

/* Finds the node agent of this trainer that has run longest on this node, if it has run longer than
 * this process. Returns false if there is none. */
bool ranks_agent_find(const char *trainer_id, struct proc_id *agent);

#endif
