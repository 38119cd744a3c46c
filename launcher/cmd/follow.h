/* follow: shows the progress of a run, for launch and watch. */
#ifndef LAUNCHER_CMD_FOLLOW_H
#define LAUNCHER_CMD_FOLLOW_H

#include "launcher/cmd/cmd.h"
#include "launcher/submit/launch.h"

/* Follows a run on stderr until it is over or the user interrupts. Returns 0 if the run is done,
 * and ERR_NO with the reason if it failed, was cancelled or is paused. After an interrupt it prints
 * that the run goes on and returns 0. With json it prints one object on stdout at the end. If s is
 * NULL, it never submits a lost job again. Call cmd_follow_leave when all else is done. */
int cmd_follow(const struct launch *l, struct sched *s, bool json, bool quiet, struct err *err);

/* Ends the program by SIGINT if the user interrupted and the run goes on. The exit status is then
 * 130 and not that of a run that is done, and a script that called the program ends too. */
void cmd_follow_leave(void);
/* Ends the program by SIGINT in any case. */
void cmd_interrupt_end(void);

/* Returns the result of a command for a run whose next step is `next`: 0 for a run that is done or
 * goes on, else ERR_NO with the reason and what to do. */
int cmd_follow_verdict(const struct launch *l, enum run_next next, struct err *err);

#endif
