/* ranks: finds the processes of a trainer on this node, and signals them to save and stop.
 *
 * Whatever started them (srun, mpirun, torchrun, a script), the trainer's processes have
 * REEL_TRAINER=<trainer's id> in their environment. A process is a rank if its rank variables
 * (RANK, PMI_RANK, ...) differ from its parent's. A data-loading child has its parent's numbers and
 * is no rank; nor is a launcher that has ranks below it. A rank may number itself (RANK set from
 * SLURM_PROCID): what it starts is no rank though it shows more numbers, for the rank is no shell,
 * does not run a launcher's program, and its children's numbers agree. If no numbered rank handles
 * the signal, or is young enough to get a handler yet, the topmost other processes that do are
 * signalled, except srun, mpirun and similar programs: a step of the job that only measures is
 * numbered too. But if there were numbered ranks that did, half a minute ago or when they were
 * signalled, nobody else is: only their launcher may be left, which may have ranks on other nodes
 * that still save. Nor is a launcher below which a rank was signalled, though srun has numbered it.
 * A process without a handler for the signal would die of it, so it gets no signal. Where such a
 * rank is a shell, the topmost processes below it that handle the signal are signalled in its
 * place. Below another program (flock, a parent of spawned workers) they are too, but a rank that
 * starts up has its handler late, and signals meant for it may end its helpers. So such a rank must
 * have begun ten seconds ago, or be without a handler three seconds after the notice. Its age
 * decides because nothing else tells so well: a program that waits sleeps in wait4, poll or a
 * futex, and so does a rank that starts up; and what it sleeps in may be hidden (wchan and syscall,
 * proc(5)). A rank is signalled too if it gets a handler later. Whether a shell handles the signal,
 * and in time, its script says (script.h).
 *
 * A rank may lack the id, because srun --export, a container or env -i passes on another
 * environment. A process without an id is the trainer's if the process that started it is, or if a
 * step daemon (slurmstepd) started it beside one of the trainer's. A task that has no rank variable
 * either is a rank. Where there is no such numbered rank with the id, the ranks in the numbered
 * steps of this Slurm job that have none are signalled: those with SLURM_JOB_ID and SLURM_STEP_ID,
 * which slurmstepd sets itself, and those that the step's daemon started. But where the trainer has
 * processes on this node, only those that began after the first of them are, and only if one of
 * these is an srun or mpirun.
 *
 * What a trainer submits or starts may inherit its id: processes of another Slurm job, and of
 * another trainer's node agent, are not its own. The components of a heterogeneous job are one job.
 *
 * Where Slurm itself signals the steps too (a preemption with a grace, scancel --signal), a rank
 * receives Slurm's signal and then this one, which may be of the same kind.
 *
 * Where several nodes of a cluster share one machine, a rank belongs to the node that its
 * SLURMD_NODENAME names. Another node's ranks are left to that node's agent, if its process is
 * found (RANKS_AGENT_VARIABLE). The name alone does not suffice, because some launchers copy the
 * first node's environment to all the others.
 */
#ifndef LAUNCHER_RUN_RANKS_H
#define LAUNCHER_RUN_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/process.h"
#include "launcher/run/ranks_told.h"

#define RANKS_VARIABLE "REEL_TRAINER"
/* This variable, in a node agent's environment, is the id of the trainer whose ranks it signals. */
#define RANKS_AGENT_VARIABLE "REEL_NODE_AGENT"

/* Signals the ranks among this user's processes on this machine. trainer_id: RANKS_VARIABLE's value
 * (node_agent_trainer_id). Call it every second. For ten seconds each call looks for ranks, after
 * that fewer and fewer do: a later rank or handler is found within 5 s. */
int ranks_tell(const char *trainer_id, int signo, struct ranks_told *told, struct err *err);

/* Looks, before there is a notice, for numbered ranks that handle the signal. With calls every few
 * seconds it is still known, when the notice comes, that there were such ranks a moment ago. */
void ranks_look(const char *trainer_id, int signo, struct ranks_told *told);

/* Returns the number of numbered ranks that run here; -1 if it cannot be determined. */
int64_t ranks_count(const char *trainer_id);

/* Kills the trainer's processes on this machine, ranks or not: a newer attempt trains in its place.
 * Returns how many there were. */
int64_t ranks_kill(const char *trainer_id);

#endif
