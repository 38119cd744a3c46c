/* duty: holds what an agent keeps alive and where: the run's settings, the scheduler, and the
 * agent's own job. */
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
    struct run run;         /* a run of our own trainer, with its plan … */
    struct plan plan;
    struct wrap wrap;       /* … or a wrapped command */
    struct run_budget budget;
    double time_limit_s;    /* of this attempt, as the scheduler ends it; 0: none, or not known */
    bool limit_known;       /* the scheduler has said what the limit is */
    bool node_agents;
    int notice;             /* the signal that asks the trainer to save and stop; 0: none does */
    struct sched *steps;    /* what starts the trainer */
    struct sched *sched; /* the scheduler of the own job; NULL: started by hand, for one attempt */
    struct sched_self self; /* zeroed when started by hand */
    struct attempt *teller; /* whose log notes requests that the scheduler did not fulfil; NULL:
                             * none */
    double requeued_mono;   /* when the scheduler accepted the job's requeue; 0: it did not */
};

/* Returns what kind of trainer the run in this folder has. */
const struct trainer_kind *duty_kind(const char *run_dir);
/* Finds the own job without the run's folder. *d is zeroed before, or has its job already. */
int duty_job(struct duty *d, const struct trainer_kind *kind, const char *home, struct err *err);
/* Reads the run's folder and finds the job: at the scheduler that REEL_JOB_SCHED names; for a
 * wrapped command at Slurm, when it runs in a job of Slurm's. *d is zeroed before, or has its job
 * already, and is released after failure too. */
int duty_load(struct duty *d, const char *run_dir, const char *home, struct err *err);
/* Was this job submitted with other resources than the run asks for now? */
bool duty_outdated(const struct duty *d, const char *run_dir);
/* Makes the changes that wait for the run's next attempt (launcher/state/next.h), with an event.
 * This attempt, which is claimed, has them. If they cannot be made the run goes on as it was. */
int duty_changes_take(struct duty *d, struct attempt *attempt, const struct run_state *state,
                      struct err *err);
void duty_release(struct duty *d);

/* Asks why the own job is to end: once, or, if `patient`, until the scheduler answers or the owner
 * has paused or cancelled the run. out->why is SCHED_END_NONE if there is no job. Without an answer
 * it is SCHED_END_UNKNOWN, and the error is returned. */
int duty_ending(struct duty *d, bool patient, struct sched_ending *out);

/* Gives the own job back to the scheduler, with an event if the attempt has a log. If the scheduler
 * does not answer, or has no disk space to record that, it is asked until it does, as long as the
 * job lasts and the run is wanted: nobody else would do it. Any other failure is a warning; then a
 * follower of the run brings it back (`reel launch` with its name; a wrapped run has none, and its
 * owner submits its script again). */
void duty_requeue(struct duty *d, struct attempt *attempt);
/* Waits, as the job's last act, until the scheduler must have saved the requeue, and asks for it
 * once more if the scheduler has forgotten it: a scheduler that was killed sees a job that runs,
 * and would take the job's end for the run's. Does nothing if the job was not given back, already
 * runs again, or if its owner has paused or cancelled the run. */
void duty_requeue_settle(struct duty *d, const char *run_dir);
/* Gives back a job that was told to stop while it waited for room to record its attempt, or its
 * attempt's end. It is not given back if the owner has paused or cancelled the run, if it was
 * cancelled at the scheduler, which is recorded (launcher/state/wish_name.h), or if SIGTERM came
 * (`term`) and the scheduler does not say why. */
void duty_give_back(struct duty *d, struct attempt *attempt, bool term);
/* Asks, patiently, whether the own job is cancelled at the scheduler. If so it records that and
 * applies it to *s. *ending is the scheduler's answer. */
bool duty_cancelled(struct duty *d, const char *run_dir, struct run_state *s,
                    struct sched_ending *ending);
/* Ends the own job at the scheduler, unless it runs again by now. It asks as patiently as for a
 * requeue; any failure is a warning. */
void duty_end(struct duty *d);

#endif
