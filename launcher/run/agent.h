/* agent: the batch process of a run. It keeps the run alive; no live `reel` on a login node is
 * needed.
 *
 * One execution of the agent is one attempt:
 *   1. It folds the run's events. If the run is done, cancelled or paused already it exits at once,
 *      for a scheduler may run finished work again.
 *   2. It claims the next attempt by exclusive create of claims/attempt-<n>, and steps aside when
 *      another agent holds the run.
 *   3. It says how the attempt before ended if that one's agent was killed before it could. Where
 *      jobs may not run again, it submits the job that goes on when this one has ended
 *      (launcher/run/successor.h).
 *   4. It starts a node agent on every node, which tells the ranks there and hears what the batch
 *      process may not (launcher/run/node_agent.h). It waits for the checkpoint's lock, because
 *      what a lost attempt left behind may still be writing.
 *   5. It starts the trainer, ours or the wrapped command (launcher/run/trainer.h). It passes on
 *      every notice to stop as the signal that the trainer understands, as often as it comes, and
 *      gives a notice of its own before the end of the job's time limit (launcher/run/limit.h). It
 *      ends the trainer when that hangs.
 *   6. When the trainer has ended it asks the scheduler why the job is to end: the scheduler may
 *      have told the steps alone, and whoever cancels a job ends its run. It says why the attempt
 *      ended. Unless the run is over, it gives its own job back to the scheduler (sched_requeue)
 *      before it exits, since an exit code alone requeues nothing, or leaves the run to the
 *      successor.
 * Its parent is the guard (launcher/run/guard.h), which does 6 should the agent be killed. Every
 * step is an event in the run's log; launcher/state/state.h says what follows from them.
 */
#ifndef LAUNCHER_RUN_AGENT_H
#define LAUNCHER_RUN_AGENT_H

#include "base/err.h"
#include "launcher/state/state.h"

struct agent_conf {
    const char *run_dir; /* absolute; run.json, plan.json, events/, claims/, logs/ */
    const char *home;    /* REEL_HOME, for the scheduler */
    const char *bin_dir; /* where reel-train lies */
};

/* Runs one attempt to its end. *exit_code is 0 when the run is done (or was when the agent came), 1
 * when it failed, was cancelled or paused, 75 when it was interrupted and given back. Errors are
 * those of the agent itself. */
int agent_run(const struct agent_conf *conf, int *exit_code, struct err *err);

#endif
