/* work: what an agent keeps alive and where: the run's settings, the scheduler and the job it is. */
#ifndef LAUNCHER_WORK_H
#define LAUNCHER_WORK_H

#include "base/err.h"
#include "launcher/attempt.h"
#include "launcher/sched/sched.h"
#include "profiles/plan.h"
#include "profiles/run.h"

struct work {
    struct run run;
    struct plan plan;
    struct sched *steps;    /* what starts the trainer */
    struct sched *sched;    /* the same when we are a job of it; NULL: started by hand, one attempt on this machine */
    struct sched_self self; /* zeroed when started by hand */
};

/* Reads <run_dir>/run.json and plan.json, opens the scheduler that REEL_JOB_SCHED names. *w is zeroed before, released after failure too. */
int work_load(struct work *w, const char *run_dir, const char *home, struct err *err);
void work_release(struct work *w);

/* Gives the own job back to the scheduler, with an event. A failure is a warning: a follower brings the run back. */
void work_requeue(struct work *w, struct attempt *attempt);

#endif
