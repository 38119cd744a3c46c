/* guard: the parent of an agent, so that the agent's own death does not end the run.
 *
 * The agent runs in a child. The parent passes every signal on to it and waits. When the agent died
 * of a signal (a kill, the kernel out of memory) the guard says so in the run's log and gives the
 * job back to the scheduler, or not, as the run's budget has it. A guard that is killed itself
 * takes the agent along: then the next attempt, or a follower, tells the end.
 *
 * Slurm hears of a batch process's end by the daemon that started it (slurmstepd). Where that
 * daemon was killed, the guard of a run that is over ends the job at the scheduler, which would
 * otherwise hold its nodes until its time limit. */
#ifndef LAUNCHER_RUN_GUARD_H
#define LAUNCHER_RUN_GUARD_H

#include "launcher/run/agent.h"

/* Does what agent_run does, which it calls in the child. */
int guard_run(const struct agent_conf *conf, int *exit_code, struct err *err);

#endif
