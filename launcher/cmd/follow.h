/* follow: shows how a run goes on, for launch and watch. */
#ifndef LAUNCHER_CMD_FOLLOW_H
#define LAUNCHER_CMD_FOLLOW_H

#include "launcher/cmd/cmd.h"
#include "launcher/submit/launch.h"

/* Follows a run on stderr until it is over or the user interrupts. Returns 0 if the run is done,
 * ERR_NO with the reason if it failed or was cancelled or paused, and 0 after an interrupt, when it
 * says that the run goes on. With json it prints one object on stdout at the end. s may be NULL.
 * Call cmd_follow_leave when all else is done. */
int cmd_follow(const struct launch *l, struct sched *s, bool json, bool quiet, struct err *err);

/* Ends the program by SIGINT if the user interrupted and the run goes on: status 130, which is not
 * that of a run that is done; and a script of which this is a line ends too. */
void cmd_follow_leave(void);
/* Ends the program by SIGINT in any case. */
void cmd_interrupt_end(void);

/* Returns how a command answers for a run whose next step is `next`: 0 for a run that is done or
 * goes on, else ERR_NO with the reason and what to do. */
int cmd_follow_verdict(const struct launch *l, enum run_next next, struct err *err);

#endif
