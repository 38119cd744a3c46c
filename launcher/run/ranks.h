/* ranks: the processes of a trainer on this node, and how they are told to save and stop.
 *
 * Whatever started them (srun, mpirun, torchrun, a script), the trainer's processes carry REEL_TRAINER=<mark> in their environment. A rank
 * is the first process of each rank's own: where the variables by which launchers number ranks differ from the parent's (srun's
 * task, torchrun's worker, mpirun's process); a data-loading child has its parent's numbers and is not one, a launcher that has
 * ranks of its own below it is not one either. Where nothing is numbered it is the topmost process that handles the signal, srun and its
 * like apart; but where ranks have been numbered once and are gone, nobody is told: what is left is their launcher, which may have
 * others on other nodes that still save. A process that would die of the signal, having no handler for it, is not sent it.
 *
 * Where several nodes of a cluster live on one machine a rank belongs to the node whose name Slurm gave it (SLURMD_NODENAME); another
 * node's ranks are left to the node agent there, if one is seen (RANKS_AGENT_VARIABLE). A name alone is not believed: there are launchers
 * that carry the first node's environment to all the others. */
#ifndef LAUNCHER_RUN_RANKS_H
#define LAUNCHER_RUN_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define RANKS_VARIABLE "REEL_TRAINER"
#define RANKS_AGENT_VARIABLE "REEL_NODE_AGENT" /* in a node agent's environment: the mark of the ranks it tells */

/* Kept from call to call, zeroed before the first: a rank is told once, for its handler may do more than set a flag; one that has no handler
 * yet, because it is starting, is told when it has. */
struct ranks_told {
    const char *shared; /* borrowed folder where those who tell the same ranks note whom they told, so that each is told by one; NULL: nobody else */
    bool numbered;  /* ranks with a number have been seen here, by us or by one who shares */
    int64_t deaf;   /* ranks without a handler, at the last call */
    pid_t deaf_pid; /* one of those */
    pid_t *pids;    /* those told so far */
    size_t n_pids;
    struct ranks_claim {
        pid_t pid;
        double seen_mono;
    } *claims; /* those that somebody else took on to tell, when that was seen, and has not told yet */
    size_t n_claims;
};
/* mark: the value of RANKS_VARIABLE. This user's processes on this machine. */
int ranks_tell(const char *mark, int signo, struct ranks_told *told, struct err *err);
void ranks_release(struct ranks_told *told);

/* Before anybody is to be told: are the ranks numbered? Whoever calls this now and then knows it when they are gone. */
void ranks_look(const char *mark, struct ranks_told *told);

/* How many ranks live here; -1 when that cannot be told. */
int64_t ranks_count(const char *mark);

#endif
