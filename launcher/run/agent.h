/* agent: runs as the batch process of a job and keeps the run alive; no `reel` needs to run on a
 * login node.
 *
 * One execution of the agent is one attempt:
 *   1. It folds the run's events. If the run is done, cancelled or paused already it exits at once,
 *      because a scheduler may start a finished job again.
 *   2. It takes the run's lease, and claims the next attempt by exclusive creation of
 *      claims/attempt-<n>. It steps aside if another agent holds the run.
 *   3. If the previous attempt's agent was killed before it could record that attempt's end, this
 *      agent records it. If jobs may not be requeued, it submits the next job, which starts when
 *      this job has ended (launcher/run/successor.h).
 *   4. A wrapped trainer of an attempt that was taken for lost may still write checkpoints, so the
 *      agent waits until that trainer must have ended. It starts a node agent on every node, which
 *      signals the ranks there and receives notices that the batch process may not receive
 *      (launcher/run/node_agent.h).
 *   5. It starts the trainer, which is reel-train or the wrapped command (launcher/run/trainer.h).
 *      It passes every stop notice on as the signal that the trainer understands, and raises one
 *      itself before the job's time limit ends (launcher/run/limit.h). It ends a trainer that
 *      hangs.
 *   6. When the trainer has ended, the agent asks the scheduler why the job is to end: the
 *      scheduler may have signalled the steps alone, and cancelling a job ends its run. It records
 *      why the attempt ended. Unless the run is over or a successor job goes on with it, the agent
 *      requeues its own job (sched_requeue) before it exits, since an exit code alone requeues
 *      nothing.
 * The agent's parent is the guard (launcher/run/guard.h), which does step 6 if the agent is killed.
 * What these steps do is recorded as events in the run's log; launcher/state/state.h says which
 * state of the run follows from the events.
 */
#ifndef LAUNCHER_RUN_AGENT_H
#define LAUNCHER_RUN_AGENT_H

#include "base/err.h"
#include "launcher/state/state.h"

struct agent_conf {
    const char *run_dir; /* absolute; run.json, plan.json, events/, claims/, logs/ */
    const char *home;    /* REEL_HOME, for the scheduler */
    const char *bin_dir; /* the folder of reel-train */
    /* A wrapped command with its secrets, which the run's folder does not have; NULL: it has
     * none. */
    const char *const *argv;
};

/* Runs one attempt to its end. *exit_code is 0 if the run is done (or was before), or if this job
 * left the run to another job; 1 if the run failed or was cancelled or paused; 75 if the attempt
 * was interrupted and the run will go on. Errors are those of the agent itself. */
int agent_run(const struct agent_conf *conf, int *exit_code, struct err *err);

#endif
