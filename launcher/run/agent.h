/* agent: the batch process of a run. It keeps the run alive; no live `reel` on a login node is
 * needed.
 *
 * One execution of the agent is one attempt:
 *   1. It folds the run's events. If the run is done, cancelled or paused already it exits at once,
 *      because a scheduler may run finished work again.
 *   2. It takes the run's lease, and claims the next attempt by exclusive creation of
 *      claims/attempt-<n>. It steps aside if another agent holds the run.
 *   3. If the agent of the attempt before was killed before it could record that attempt's end, it
 *      records it now. If jobs may not run again, it submits the job that goes on when this one
 *      has ended (launcher/run/successor.h).
 *   4. A wrapped trainer of an attempt that was taken for lost may still write checkpoints, so it
 *      waits until that one must have ended. It starts a node agent on every node, which signals
 *      the ranks there, and gets notices that the batch process may not get
 *      (launcher/run/node_agent.h).
 *   5. It starts the trainer, ours or the wrapped command (launcher/run/trainer.h). It passes on
 *      every notice to stop as the signal that the trainer understands, as often as one comes, and
 *      gives a notice of its own before the end of the job's time limit (launcher/run/limit.h). It
 *      ends the trainer if that hangs.
 *   6. When the trainer has ended it asks the scheduler why the job is to end: the scheduler may
 *      have signalled the steps alone, and cancelling a job ends its run. It records why the
 *      attempt ended. Unless the run is over, it gives its own job back to the scheduler
 *      (sched_requeue) before it exits, since an exit code alone requeues nothing, or leaves the
 *      run to the successor.
 * Its parent is the guard (launcher/run/guard.h), which does step 6 if the agent is killed. Each of
 * these steps is an event in the run's log; launcher/state/state.h says what follows from them.
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

/* Runs one attempt to its end. *exit_code is 0 if the run is done (or was before), 1 if it failed,
 * was cancelled or paused, 75 if it was interrupted and its job given back. Errors are those of the
 * agent itself. */
int agent_run(const struct agent_conf *conf, int *exit_code, struct err *err);

#endif
