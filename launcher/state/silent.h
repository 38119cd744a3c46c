/* silent: decides why an attempt ended whose agent did not say so. */
#ifndef LAUNCHER_STATE_SILENT_H
#define LAUNCHER_STATE_SILENT_H

#include "launcher/state/attempt.h"

/* Returns why an attempt ended whose end is not recorded. If it got a stop notice, it was stopped;
 * otherwise it ended with its agent. But when a node is lost, Slurm sends notices to the job's
 * other nodes, and for a requeued job it does not remember why. So a lost node takes precedence
 * over notices. If only the trainer's step got a notice, and the scheduler says that it neither
 * preempted nor cancelled the job, the notice came from the clean-up after the job's batch process.
 * If the scheduler has forgotten the job, and did not requeue it, a notice proves a preemption only
 * if the agent heard it, for then its batch process lived.
 * agent_signal: the signal that killed the agent; 0: unknown. */
enum attempt_cause silent_cause(const struct run_attempt *last, int agent_signal,
                                const struct attempt_ending *ending,
                                char detail[STATE_TEXT_BYTES]);

#endif
