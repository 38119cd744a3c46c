/* follow: what launch and watch show while a run goes on. */
#ifndef LAUNCHER_CMD_FOLLOW_H
#define LAUNCHER_CMD_FOLLOW_H

#include "launcher/cmd/cmd.h"
#include "launcher/run/launch.h"

/* Follow on stderr until the run is over (0 done, ERR_NO failed, cancelled or paused, with the reason) or the user interrupts (0,
 * and says that the run goes on). With json, one object on stdout at the end. s may be NULL. */
int cmd_follow(const struct launch *l, struct sched *s, bool json, bool quiet, struct err *err);

/* How a run that stands so is answered: 0 for one that is done or goes on, else ERR_NO, with the reason and what to do. */
int cmd_follow_verdict(const struct launch *l, enum run_next next, struct err *err);

#endif
