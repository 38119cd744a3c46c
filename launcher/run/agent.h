/* agent: the batch process of a run. It keeps the run alive; no live `reel` on a login node is needed.
 *
 * One execution of the agent is one attempt:
 *   1. fold the run's events. Done already, cancelled or paused: exit at once (a scheduler may run finished work again).
 *   2. claim the next attempt by exclusive create of claims/attempt-<n>; step aside when another agent holds the run.
 *   3. say how the attempt before ended if its agent was killed before it could.
 *      Where jobs may not run again, submit the job that goes on when this one has ended (launcher/run/successor.h).
 *   4. start a node agent on every node, who tells the ranks there and hears what the batch process may not (launcher/run/node_agent.h);
 *      wait for the checkpoint's lock: what a lost attempt left may still be writing.
 *   5. start the trainer, ours or the wrapped command (launcher/run/trainer.h); pass on every notice to stop as the signal it understands,
 *      as often as it comes, and a notice of its own before the end of the job's time limit (launcher/run/limit.h); end it when it hangs.
 *   6. when the trainer has ended: ask the scheduler why the job is to end, for it may have told the steps alone, and who cancels a job ends
 *      its run; say why the attempt ended; and unless the run is over, give the own job back to the scheduler (sched_requeue) before exiting,
 *      an exit code alone requeues nothing (DESIGN section 4); or leave it to the successor.
 * Its parent is the guard (launcher/run/guard.h), which does 6 should the agent be killed. Every step is an event in the run's log; see launcher/run/state.h for what follows from them.
 */
#ifndef LAUNCHER_RUN_AGENT_H
#define LAUNCHER_RUN_AGENT_H

#include "base/err.h"
#include "launcher/run/state.h"

struct agent_conf {
    const char *run_dir; /* absolute; run.json, plan.json, events/, claims/, logs/ */
    const char *home;    /* REEL_HOME, for the scheduler */
    const char *bin_dir; /* where reel-train lies */
};

/* Runs one attempt to its end. *exit_code: 0 the run is done (or was when we came), 1 it failed, was cancelled or paused,
 * 75 it was interrupted and given back. Errors are those of the agent itself. */
int agent_run(const struct agent_conf *conf, int *exit_code, struct err *err);

#endif
