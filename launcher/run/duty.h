/* duty: holds what an agent needs to keep a run alive: the run's settings, the scheduler, and the
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
    const struct trainer_kind *kind; /* of the run's trainer (launcher/run/trainer.h) */
    struct run run;         /* settings of a run of reel's own trainer, with its plan … */
    struct plan plan;
    struct wrap wrap;       /* … or of a wrapped command */
    struct run_budget budget;
    double time_limit_s; /* after which the scheduler ends this attempt; 0: no limit, or unknown */
    bool limit_known;       /* the scheduler has answered whether there is a limit */
    bool node_agents;
    int notice;             /* signal that asks the trainer to save and stop; 0: there is none */
    struct sched *steps;    /* starts the trainer's step */
    struct sched *sched; /* the scheduler of this process's job; NULL: started by hand, for one
                          * attempt */
    struct sched_self self; /* zeroed when started by hand */
    struct run_fold *fold;  /* borrowed: the one fold of this process's attempt, into which a pause
                             * or cancel is read while a request to the scheduler is repeated */
    struct attempt *teller; /* its log gets the events of requests that failed; NULL: they get no
                             * event */
    double requeued_mono;   /* when the scheduler accepted the job's requeue; 0: it has accepted
                             * none */
};

/* Returns the kind of trainer of the run in this folder. */
const struct trainer_kind *duty_kind(const char *run_dir);
/* Finds this process's own job without the run's folder. *d is zeroed before, or has its job
 * already. */
int duty_job(struct duty *d, const struct trainer_kind *kind, const char *home, struct err *err);
/* Loads the settings from the run's folder and finds this process's job: at the scheduler that
 * REEL_JOB_SCHED names, or, for a wrapped command, at Slurm if it runs in a Slurm job. *d is zeroed
 * before, or has its job already; the caller releases it after failure too. */
int duty_load(struct duty *d, const char *run_dir, const char *home, struct err *err);
/* Tells whether this job was submitted with other resources than the run asks for now. */
bool duty_outdated(const struct duty *d, const char *run_dir);
/* Applies the changes that wait for the run's next attempt (launcher/state/next.h), with an event.
 * `attempt` is claimed and runs with them. If they cannot be applied, the run goes on unchanged. */
int duty_changes_take(struct duty *d, struct attempt *attempt, const struct run_state *state,
                      struct err *err);
void duty_release(struct duty *d); /* the fold stays open */

/* Asks why this process's job is to end: once, or, if `patient`, until the scheduler answers or the
 * owner has paused or cancelled the run. out->why is SCHED_END_NONE if there is no job. Without an
 * answer it is SCHED_END_UNKNOWN, and the error is returned. */
int duty_ending(struct duty *d, bool patient, struct sched_ending *out);

/* Requeues this process's job, with an event if the attempt has a log. If the scheduler does not
 * answer, or has no disk space to record the requeue, the request is repeated while the job lasts
 * and the run is neither paused nor cancelled. Any other failure is a warning; then a follower of
 * the run brings it back (`reel launch` with its name; a wrapped run has none, and its owner
 * submits its script again). */
void duty_requeue(struct duty *d, struct attempt *attempt);
/* Waits, as the last action in the job, until the scheduler must have saved the requeue, and
 * repeats it if the scheduler has forgotten it: a scheduler that was killed and restarted may see
 * only a running job, and would not requeue it at its end. Does nothing if the job was not requeued
 * or runs again already, or if the run's owner has paused or cancelled the run. */
void duty_requeue_settle(struct duty *d);
/* Requeues a job that got a stop notice while it waited for disk space to record its attempt or the
 * attempt's end. It renews the fold first. The job is not requeued if the owner has paused or
 * cancelled the run, if it was cancelled at the scheduler, which is then recorded
 * (launcher/state/wish_name.h), or if SIGTERM came (`term`) and the scheduler does not say why. */
void duty_give_back(struct duty *d, struct attempt *attempt, bool term);
/* Asks, until the scheduler answers, whether this process's job was cancelled there. If so, records
 * that and applies it to *s. *ending is the scheduler's answer. */
bool duty_cancelled(struct duty *d, const char *run_dir, struct run_state *s,
                    struct sched_ending *ending);
/* Ends this process's job at the scheduler, unless it already runs again. The request is repeated
 * like a requeue's; any other failure is a warning. */
void duty_end(struct duty *d);

#endif
