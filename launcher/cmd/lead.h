/* lead: compares the time that saves took with the time between a partition's preemption notice and
 * the kill, and with the job's time limit. */
#ifndef LAUNCHER_CMD_LEAD_H
#define LAUNCHER_CMD_LEAD_H

#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"
#include "launcher/state/pace.h"

/* Finds the partition by name, or the default one for NULL. ERR_INPUT if there is none. */
int lead_partition(const struct sched_site *site, const char *name,
                   const struct sched_partition **out, struct err *err);

enum lead_rule { LEAD_WARN, LEAD_REFUSE, LEAD_IGNORE }; /* the values of --lead */

/* Checks a submission to Slurm by what is known of the run's model. A step and a save must not take
 * longer than the time between notice and kill at a preemption. Two saves and a step must not take
 * longer than half of the time limit (0: the partition's limit). Otherwise it prints a line on
 * stderr, or returns ERR_NO, as `rule` says. */
int lead_check(struct sched *s, const char *partition, double time_limit_s,
               const struct pace_model *pace, enum lead_rule rule, struct err *err);

#endif
