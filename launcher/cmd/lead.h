/* lead: the time a partition leaves between notice and kill, beside how long saves took. */
#ifndef LAUNCHER_CMD_LEAD_H
#define LAUNCHER_CMD_LEAD_H

#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"

/* The 99th percentile of the saves on record of runs of this model (NULL: any), s: below a hundred the longest; NaN when none is known. */
double lead_save_s(const struct cmd_env *env, const char *model);

/* The partition by name, the default one for NULL; ERR_INPUT when there is none. */
int lead_partition(const struct sched_site *site, const char *name, const struct sched_partition **out, struct err *err);

enum lead_rule { LEAD_WARN, LEAD_REFUSE, LEAD_IGNORE }; /* of --lead */

/* Before a submission to Slurm: when a step and a save take longer than the partition leaves at a preemption, or two saves and a step longer than
 * half of the time limit (0: the partition's), a line on stderr, or ERR_NO. */
int lead_check(const struct cmd_env *env, struct sched *s, const char *partition, double time_limit_s, const char *model, enum lead_rule rule,
               struct err *err);

#endif
