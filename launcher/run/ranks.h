/* ranks: finds the processes of a trainer on this node, and tells them to save and stop.
 *
 * Whatever started them (srun, mpirun, torchrun, a script), the trainer's processes carry
 * REEL_TRAINER=<trainer's id> in their environment. A process is a rank if the variables by which
 * launchers number ranks differ from its parent's (srun's task, torchrun's worker, mpirun's
 * process). A data-loading child has its parent's numbers and is no rank; nor is a launcher that
 * has ranks below it. If no process is numbered, the topmost processes that handle the signal are
 * told, except srun and its like. But if there were numbered ranks and they are gone, nobody is
 * told: only their launcher is left, which may have ranks on other nodes that still save. A process
 * without a handler for the signal would die of it, so it is not sent the signal.
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

/* Remembers from call to call which ranks were told; zeroed before the first. A rank is told once,
 * because its handler may do more than set a flag. One that has no handler yet, because it is
 * starting, is told when it has one. */
struct ranks_told {
    /* Borrowed: a folder where those who tell the same ranks note whom they told, so that each is
     * told by one; NULL: nobody else tells them. */
    const char *shared;
    double begun_mono, looked_mono; /* when ranks_tell looked first and last */
    bool numbered;  /* ranks with a number have been seen here, by us or by one who shares */
    int64_t deaf;   /* ranks without a handler, at the last call */
    pid_t deaf_pid; /* one of them */
    struct proc_id *pids; /* the processes told so far */
    size_t n_pids;
    /* Processes that another one has claimed to tell and not told yet, and when that was first
     * seen. */
    struct ranks_claim {
        struct proc_id pid;
        double seen_mono;
    } *claims;
    size_t n_claims;
};
/* Tells the ranks among this user's processes on this machine. trainer_id: RANKS_VARIABLE's value
 * (node_agent_trainer_id). It is to be called every second. For ten seconds each call looks for
 * ranks, and then fewer and fewer do: a rank that starts, or gets its handler, after that is told
 * at most 5 s later. */
int ranks_tell(const char *trainer_id, int signo, struct ranks_told *told, struct err *err);
void ranks_release(struct ranks_told *told);

/* Looks, before there is a notice, whether the ranks are numbered, and notes it. If it is called
 * now and then, that is still known after the ranks are gone. */
void ranks_look(const char *trainer_id, struct ranks_told *told);

/* Returns how many ranks live here; -1 when that cannot be told. */
int64_t ranks_count(const char *trainer_id);

#endif
