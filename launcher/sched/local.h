/* local: declares the scheduler of this one machine. There is no daemon: every running job has a
 * keeper process, and each process that uses the spool schedules jobs. The top of local.c describes
 * how this works, and has the table of a job's transitions. */
#ifndef LAUNCHER_SCHED_LOCAL_H
#define LAUNCHER_SCHED_LOCAL_H

#include "base/err.h"
#include "launcher/sched/sched.h"

int sched_local_open(const char *home, struct sched **out, struct err *err);

/* Runs a keeper, for `reel keeper SPOOL JOB`. Starts the job if this keeper can claim it, and stays
 * until the end of the job is recorded. It forks: call it before the process has done anything
 * else. A program that submits local jobs must call this when its own arguments are `keeper SPOOL
 * JOB`, because the keeper is the submitting program, executed again. */
int sched_local_keeper(const char *spool, const char *job, struct err *err);

#endif
