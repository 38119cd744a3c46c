/* local: the scheduler of this one machine. There is no daemon: every running job has a keeper
 * process, and whoever touches the spool moves things on. The essay and the table of transitions
 * are at the top of local.c. */
#ifndef LAUNCHER_SCHED_LOCAL_H
#define LAUNCHER_SCHED_LOCAL_H

#include "base/err.h"
#include "launcher/sched/sched.h"

int sched_local_open(const char *home, struct sched **out, struct err *err);

/* Runs as a keeper, for `reel keeper SPOOL JOB`. Starts the job if this keeper may, and stays until
 * the job has ended and that is recorded. Forks; call it from a process that has done nothing else.
 * A program that submits local jobs must call this when its own arguments are `keeper SPOOL JOB`:
 * the keeper is the submitting program, executed again. */
int sched_local_keeper(const char *spool, const char *job, struct err *err);

#endif
