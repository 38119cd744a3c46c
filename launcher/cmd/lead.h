/* lead: the time a partition leaves between notice and kill, beside how long saves took. */
#ifndef LAUNCHER_CMD_LEAD_H
#define LAUNCHER_CMD_LEAD_H

#include "launcher/cmd/cmd.h"
#include "launcher/sched/sched.h"

/* Longest save on record of runs of this model (NULL: any), s; NaN when none is known. */
double lead_longest_save(const struct cmd_env *env, const char *model);

/* The partition by name, the default one for NULL; ERR_INPUT when there is none. */
int lead_partition(const struct sched_site *site, const char *name, const struct sched_partition **out, struct err *err);

enum lead_rule { LEAD_WARN, LEAD_REFUSE, LEAD_IGNORE }; /* of --lead */

/* Before a submission to Slurm: when saves took longer than the partition leaves, a line on stderr, or ERR_NO. */
int lead_check(const struct cmd_env *env, struct sched *s, const char *partition, const char *model, enum lead_rule rule,
               struct err *err);

#endif
