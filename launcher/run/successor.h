/* successor: lets a run go on in another job where its own job may not be requeued (run.json
 * resources.again, launch.h LAUNCH_AGAIN_ENV).
 *
 * A job that was submitted in this mode submits the next one as soon as it has claimed its attempt.
 * The next job, its successor, waits at the scheduler until this job has ended in any way, so the
 * run goes on even if every process of this job is killed. The successor is cancelled if the run is
 * over at the job's end. It is an ordinary submission, with an intent event before it, and runs an
 * attempt of the same run. A kill at any time leaves one successor:
 *
 *     killed                          then
 *     before the intent               this job's next execution or `reel launch` submits a job
 *     between intent and submission   the same, with the token of the intent event; if only the
 *                                     agent was killed, its parent (guard.h) submits the job at the
 *                                     end
 *     after the submission            the successor starts; whoever submits again with the token of
 *                                     the intent event gets the same job
 */
#ifndef LAUNCHER_RUN_SUCCESSOR_H
#define LAUNCHER_RUN_SUCCESSOR_H

#include "launcher/run/agent.h"
#include "launcher/run/duty.h"

/* Each of these functions may renew `fold`, which is the run's. */

/* Submits the successor at the start of an attempt, if the run uses one. A failure is a warning:
 * successor_settle tries again at the end. */
void successor_prepare(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold);

/* Decides before an attempt whether this job leaves the run to another job, because it was
 * submitted with other resources than the run asks for now (launcher/state/next.h). If so, the
 * other job is submitted if that is not done yet, and starts when this one has ended. */
bool successor_aside(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold);

/* Brings the run back at the end of an attempt, if `next` is RUN_NEXT_REQUEUE, by the successor or
 * by a requeue, with an event. Cancels the successor if the run is over. */
void successor_settle(const struct agent_conf *conf, struct duty *d, struct attempt *attempt,
                      struct run_fold *fold, enum run_next next);

#endif
