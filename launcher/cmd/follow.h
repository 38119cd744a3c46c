/* follow: what launch and watch show while a run goes on. */
#ifndef LAUNCHER_CMD_FOLLOW_H
#define LAUNCHER_CMD_FOLLOW_H

#include "launcher/cmd/cmd.h"
#include "launcher/launch.h"

/* Follow on stderr until the run is over (0 done, ERR_NO failed, cancelled or paused, with the reason) or the user interrupts (0,
 * and says that the run goes on). With json, one object on stdout at the end. s may be NULL. */
int cmd_follow(const struct launch *l, struct sched *s, bool json, bool quiet, struct err *err);

#endif
