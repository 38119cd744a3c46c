/* successor: a run goes on by another job where its own may not run again (run.json
 * resources.again, launch.h LAUNCH_AGAIN_ENV).
 *
 * A job that was submitted in this mode submits the next one as soon as it has its attempt. That
 * one waits at the scheduler until this one has ended, in whatever way, so that a kill of
 * everything loses nothing. At the end the next one is cancelled if the run is over. A successor is
 * an ordinary submission: exactly one for its intent, and an attempt of the same run.
 *
 *     killed                          then
 *     before the intent               this job's next execution, or a follower, submits
 *     between intent and submission   the same, with the intent's token; a guard that outlived its
 *                                     agent does it at the end
 *     after the submission            the successor starts; whoever takes up the intent gets the
 *                                     same job
 */
#ifndef LAUNCHER_RUN_SUCCESSOR_H
#define LAUNCHER_RUN_SUCCESSOR_H

#include "launcher/run/agent.h"
#include "launcher/run/duty.h"

/* In all of these, `fold` is the run's fold and may be renewed. */

/* Submits the successor at the start of an attempt, if the run goes on by one. A failure is a
 * warning: it is tried again at the end. */
void successor_prepare(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold);

/* Decides before an attempt whether this job leaves the run to one that was submitted with what the
 * run asks for now (launcher/state/next.h). If so, that one is submitted if it is not there yet,
 * and starts when this job has ended. */
bool successor_aside(const struct agent_conf *conf, const struct duty *d, struct run_fold *fold);

/* Brings the run back at the end of an attempt, if `next` says so, by the successor or by a
 * requeue, with an event. Cancels the successor if the run is over. */
void successor_settle(const struct agent_conf *conf, struct duty *d, struct attempt *attempt,
                      struct run_fold *fold, enum run_next next);

#endif
