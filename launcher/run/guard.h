/* guard: runs the agent in a child process, so that the agent's death does not end the run.
 *
 * The guard forwards every signal to the child and waits for its end. If the agent died of a signal
 * (a kill, the out-of-memory killer), the guard records that in the run's log, and requeues the job
 * or submits its successor (launcher/run/successor.h) if the run's budget allows another attempt.
 * If the guard itself is killed, the agent is killed too; then the next attempt records the end.
 *
 * Slurm learns of a batch process's end from the daemon that started it (slurmstepd). If that
 * daemon was killed and the run is over, the guard ends the job at the scheduler; otherwise the job
 * would hold its nodes until its time limit. */
#ifndef LAUNCHER_RUN_GUARD_H
#define LAUNCHER_RUN_GUARD_H

#include "launcher/run/agent.h"

/* Runs agent_run in a child process, and handles the child's death by a signal. */
int guard_run(const struct agent_conf *conf, int *exit_code, struct err *err);

#endif
