/* lead: compares the time that saves took with the time between a partition's preemption notice and
 * the kill, and with the job's time limit. */
#ifndef LAUNCHER_CMD_LEAD_H
#define LAUNCHER_CMD_LEAD_H

#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"

/* Reads new records of the event logs into the database, so that the newest saves count too. Where
 * that fails, it prints a line on stderr. Where there is no REEL_HOME yet it does nothing, and in a
 * dry run neither where there is no database, because a question makes none. */
void lead_ingest(const struct cmd_env *env, bool dry);

/* Returns the 99th percentile, in s, of the recorded saves of runs of this model (NULL: any model).
 * With fewer than a hundred saves that is the longest one. NaN if there is none. */
double lead_save_s(const struct cmd_env *env, const char *model);

/* Finds the partition by name, or the default one for NULL. ERR_INPUT if there is none. */
int lead_partition(const struct sched_site *site, const char *name,
                   const struct sched_partition **out, struct err *err);

enum lead_rule { LEAD_WARN, LEAD_REFUSE, LEAD_IGNORE }; /* the values of --lead */

/* Checks a submission to Slurm. A step and a save must not take longer than the time between notice
 * and kill at a preemption. Two saves and a step must not take longer than half of the time limit
 * (0: the partition's limit). Otherwise it prints a line on stderr, or returns ERR_NO, as `rule`
 * says. */
int lead_check(const struct cmd_env *env, struct sched *s, const char *partition,
               double time_limit_s, const char *model, enum lead_rule rule, struct err *err);

#endif
