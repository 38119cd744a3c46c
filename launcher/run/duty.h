/* duty: what an agent keeps alive and where: the run's settings, the scheduler and the job it
 * is. */
#ifndef LAUNCHER_RUN_DUTY_H
#define LAUNCHER_RUN_DUTY_H

#include "base/err.h"
#include "launcher/sched/sched.h"
#include "launcher/state/attempt.h"
#include "launcher/wrap/wrap.h"
#include "profiles/plan.h"
#include "profiles/run.h"

struct trainer_kind;

struct duty {
    const struct trainer_kind *kind; /* of its trainer (launcher/run/trainer.h) */
    struct run run;         /* ours, with its plan … */
    struct plan plan;
    struct wrap wrap;       /* … or somebody else's trainer */
    struct run_budget budget;
    double time_limit_s;    /* of this attempt, as the scheduler ends it; 0: none, or not known */
    bool limit_known;       /* the scheduler has said so */
    bool node_agents;
    int notice;             /* the signal that asks the trainer to save and stop; 0: none does */
    struct sched *steps;    /* what starts the trainer */
    struct sched *sched;    /* whose job we are; NULL: started by hand, one attempt here */
    struct sched_self self; /* zeroed when started by hand */
    struct attempt *teller; /* writes down what the scheduler is asked in vain; NULL: nobody does */
    double requeued_mono;   /* the scheduler took the job back then; 0: it was not asked to */
};

/* Returns what kind of trainer the run in this folder has. */
const struct trainer_kind *duty_kind(const char *run_dir);
/* Finds the job alone, for which nothing of the run's folder is needed. *d is zeroed before, or has
 * its job already. */
int duty_job(struct duty *d, const struct trainer_kind *kind, const char *home, struct err *err);
/* Reads the run's folder and finds the job: at the scheduler that REEL_JOB_SCHED names; for a
 * wrapped command at Slurm, when it runs in a job of Slurm's. *d is zeroed before, or has its job
 * already, and is released after failure too. */
int duty_load(struct duty *d, const char *run_dir, const char *home, struct err *err);
/* Was this job submitted with other resources than the run asks for now? */
bool duty_outdated(const struct duty *d, const char *run_dir);
/* Takes what was changed of the run (launcher/state/next.h), with an event: it holds from this
 * attempt on, which is claimed. If that fails the run goes on as it was. */
int duty_changes_take(struct duty *d, struct attempt *attempt, const struct run_state *state,
                      struct err *err);
void duty_release(struct duty *d);

/* Asks why the own job is to end: until the scheduler answers or nobody wants the run any more when
 * `patient`, else once. SCHED_END_NONE without a job, SCHED_END_UNKNOWN and the error without an
 * answer. */
int duty_ending(struct duty *d, bool patient, struct sched_ending *out);

/* Gives the own job back to the scheduler, with an event if the attempt has a log. Where that
 * cannot be written down for want of disk space, or the scheduler does not answer, it is tried
 * until it can, for as long as the job lasts: nobody else would do it. Any other failure is a
 * warning: then a follower of the run brings it back (`reel launch` with its name; a wrapped run
 * has none, and its owner submits its script again). */
void duty_requeue(struct duty *d, struct attempt *attempt);
/* Stays, the last thing in its job, until the scheduler has written down that it took the job back,
 * and gives the job back once more if it has forgotten that: a scheduler that was killed knows the
 * job as one that runs, and would take its end for the run's. Nothing is done for a job that was
 * not given back, that runs elsewhere by now, or whose run nobody wants any more. */
void duty_requeue_settle(struct duty *d, const char *run_dir);
/* Gives back a job that was told to stop while it waited for room, with nothing on record of an
 * attempt or of its end. It is not given back against its owner's wish; nor when it was cancelled
 * at the scheduler, which is kept (launcher/state/wish_name.h); nor when SIGTERM came (term) and
 * the scheduler does not say why. */
void duty_give_back(struct duty *d, struct attempt *attempt, bool term);
/* Asks, patiently, whether the own job is cancelled at the scheduler: then that is kept, and
 * applied to this state. *ending is what the scheduler said. */
bool duty_cancelled(struct duty *d, const char *run_dir, struct run_state *s,
                    struct sched_ending *ending);
/* Ends the own job at the scheduler, unless it runs again elsewhere by now. Asks as patiently as
 * for a requeue; any failure is a warning. */
void duty_end(struct duty *d);

#endif
