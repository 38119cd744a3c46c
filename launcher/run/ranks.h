/* ranks: the processes of a trainer on this node, and how they are told to save and stop.
 *
 * Whatever started them (srun, mpirun, torchrun, a script), the trainer's processes carry
 * REEL_TRAINER=<trainer's id> in their environment. A rank is the first process of each rank's own:
 * there the variables by which launchers number ranks differ from the parent's (srun's task,
 * torchrun's worker, mpirun's process). A data-loading child has its parent's numbers and is not
 * one; a launcher that has ranks of its own below it is not one either. Where nothing is numbered,
 * the rank is the topmost process that handles the signal, srun and its like apart. But where ranks
 * have been numbered once and are gone, nobody is told: what is left is their launcher, which may
 * have others on other nodes that still save. A process that would die of the signal, having no
 * handler for it, is not sent it.
 *
 * Where several nodes of a cluster live on one machine, a rank belongs to the node whose name Slurm
 * gave it (SLURMD_NODENAME). Another node's ranks are left to the node agent there, if one is seen
 * (RANKS_AGENT_VARIABLE). A name alone is not believed: there are launchers that carry the first
 * node's environment to all the others.
 */
#ifndef LAUNCHER_RUN_RANKS_H
#define LAUNCHER_RUN_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/process.h"

#define RANKS_VARIABLE "REEL_TRAINER"
/* In a node agent's environment this is the id of the trainer whose ranks it tells. */
#define RANKS_AGENT_VARIABLE "REEL_NODE_AGENT"

/* This is kept from call to call, and zeroed before the first. A rank is told once, for its handler
 * may do more than set a flag. One that has no handler yet, because it is starting, is told when it
 * has. */
struct ranks_told {
    /* Borrowed: a folder where those who tell the same ranks note whom they told, so that each is
     * told by one; NULL: nobody else tells them. */
    const char *shared;
    double begun_mono, looked_mono; /* when the first and the last look of ranks_tell were */
    bool numbered;  /* ranks with a number have been seen here, by us or by one who shares */
    int64_t deaf;   /* ranks without a handler, at the last call */
    pid_t deaf_pid; /* one of those */
    struct proc_id *pids; /* those told so far */
    size_t n_pids;
    /* Those that somebody else took on to tell and has not told yet, and when that was seen. */
    struct ranks_claim {
        struct proc_id pid;
        double seen_mono;
    } *claims;
    size_t n_claims;
};
/* Tells the ranks among this user's processes on this machine. trainer_id: RANKS_VARIABLE's
 * value (node_agent_trainer_id). Called every second it looks at each call for ten seconds, and
 * then more and more seldom: a rank that is there or has a handler only later than that hears of it
 * 5 s later at most. */
int ranks_tell(const char *trainer_id, int signo, struct ranks_told *told, struct err *err);
void ranks_release(struct ranks_told *told);

/* Looks, before anybody is to be told, whether the ranks are numbered. Whoever calls this now and
 * then knows it when they are gone. */
void ranks_look(const char *trainer_id, struct ranks_told *told);

/* Returns how many ranks live here; -1 when that cannot be told. */
int64_t ranks_count(const char *trainer_id);

#endif
