/* launch: creates a run, submits it exactly once, and follows it to its end.
 *
 * Following a run is a convenience: if the follower is killed at any moment the run goes on, and
 * `reel launch` can be given again. Before a job is submitted, an intent event with a token is
 * durable in the run's log. The scheduler interface makes one job for one token, so submitting
 * again after a crash does not make a second job.
 */
#ifndef LAUNCHER_SUBMIT_LAUNCH_H
#define LAUNCHER_SUBMIT_LAUNCH_H

#include <stdbool.h>

#include "base/err.h"
#include "base/evlog.h"
#include "base/lease.h"
#include "base/limits.h"
#include "launcher/sched/sched.h"
#include "launcher/state/state.h"
#include "profiles/plan.h"
#include "profiles/run.h"

struct launch {
    const char *home, *bin_dir; /* borrowed */
    char run_id[ID_TEXT_BYTES];
    char run_dir[LIMIT_PATH_BYTES];
    struct run_budget budget;
    double save_s; /* 99th percentile of the recorded saves of its model, s; 0: unknown */
    /* the run was made by 'reel wrap': its trainer is not reel's, and reel did not submit its job
     * (launcher/wrap/wrap.h) */
    bool wrapped;
    bool has_job; /* launch_check: the run exists, and may have a job */
};

/* Refuses a plan of another trainer's adapter, whose layout may mean other things. A plan of our
 * own trainer may carry another's flags too. `from` names the plan in the error. */
int launch_plan_ours(const struct plan *plan, const char *from, struct err *err);
/* Checks that the stages' own plans are for our trainer, and fit the run and this number of
 * ranks. */
int launch_plans_check(const struct run *run, int64_t world, struct err *err);

/* Creates the run's folder (run.json, plan.json, settings.json, event run_created) and binds its
 * name. If a run has that name, opens that run instead: *existed is true, and the other arguments
 * are ignored (launcher/submit/change.h compares them). ERR_EXISTS: the name belongs to a wrapped
 * command. settings_json may be NULL. */
int launch_create(const char *home, const char *bin_dir, const struct run *run,
                  const struct plan *plan, const char *settings_json, struct launch *out,
                  bool *existed, struct err *err);
/* Tells whether every submission of the run was refused. Such a run never had a job, and
 * launch_create replaces it. */
bool launch_unborn(const struct run_state *s);
/* Writes the id of the run of this name; "<id>" if there is none, or if launch_create would replace
 * it. Returns whether the name is bound. */
bool launch_id_find(const char *home, const char *name, char id[ID_TEXT_BYTES]);
/* Asks whether the scheduler would accept the run's job, and checks that the home has its runs
 * (home_runs_check). Writes nothing; the run of l (launch_init) need not exist. script gets the
 * job's script, and may be NULL. */
int launch_check(const struct launch *l, struct sched *s, const struct run *run,
                 struct str *script, struct err *err);
/* Fills in *l as launch_create and launch_open do, and nothing else. The run need not exist yet. */
void launch_init(struct launch *l, const char *home, const char *bin_dir, const char *run_id,
                 const struct run_budget *budget);
/* Finds an existing run, by name or id. */
int launch_open(const char *home, const char *bin_dir, const char *name_or_id, struct launch *out,
                struct err *err);
/* Loads the run's state from its logs. Fills in id and name even if the logs that have them are
 * lost. *state is initialised. */
int launch_state_load(const struct launch *l, struct run_state *state, struct err *err);

/* Submits the run's job if the folded state needs it (nothing was submitted, an intent is open, or
 * the run's job is gone though the run is not over); otherwise does nothing. lost_token: the token
 * of the submission (job_token) whose job the caller saw end or vanish for good; NULL: none. If
 * several callers saw that, one submits again. */
int launch_submit(const struct launch *l, struct sched *s, const char *lost_token, struct err *err);

/* Submits another job after a change (launcher/submit/change.h) that the newest submission's job
 * cannot carry out. The new job waits for the old one's end, and an old job that is still queued is
 * cancelled. Of several callers only one submits. *new: the submitted job, "": none; *old: the job
 * that it replaces. */
int launch_renew(const struct launch *l, struct sched *s, char old[SCHED_ID_BYTES],
                 char new[SCHED_ID_BYTES], struct err *err);

/* Fails with ERR_NO if root would submit another user's run. */
int launch_owner_check(const struct launch *l, struct err *err);

/* Takes the lock that one submitter at a time holds while it decides, and loads the run's state
 * (initialised) under the lock. The caller drops *lock after an error too; it stays NULL if it was
 * not taken. */
int launch_lock(const struct launch *l, struct lease **lock, struct run_state *state,
                struct err *err);

/* Opens a log with its own writer for events of the run itself (attempt 0); *out is new. token may
 * be NULL. */
int launch_log_open(const struct launch *l, const char *token, struct evlog **out,
                    struct err *err);

/* Writes what the scheduler says of the newest attempt's job, if the job is over and no log tells
 * the attempt's end: it may have forgotten the job when the next attempt begins. */
void launch_job_over_put(struct sched *s, const struct run_state *state, struct evlog *log);

/* Begins the event of an owner's request, with a higher turn than all requests that this state
 * knows, so that it takes precedence. */
void launch_wish_begin(struct evlog *log, struct evlog_event *e, const struct run_state *state,
                       const char *kind);
/* Commits the event that launch_wish_begin began, and makes the run's agent look for it. */
int launch_wish_commit(const struct launch *l, struct evlog *log, struct evlog_event *e,
                       struct err *err);
/* Makes the run's agent look at the run's logs, by changing the modification time of their
 * folder. */
void launch_wish_poke(const struct launch *l);

/* Makes sure that the run's present job has a successor, a job that starts when the present one has
 * ended: the existing one if it may still start, else a new one. *id is its id. At a site that
 * requeues no job (PreemptMode=CANCEL), the run goes on by successors, without a follower.
 * ERR_BUSY: a newer submission has replaced this job, or the run is paused or cancelled. `fold` is
 * the run's, and is renewed. */
int launch_successor(const struct launch *l, struct sched *s, const struct sched_self *self,
                     struct run_fold *fold, char id[SCHED_ID_BYTES], struct err *err);

/* This variable tells a job how its run comes back: "successor", or anything else for "requeue". */
#define LAUNCH_AGAIN_ENV "REEL_JOB_AGAIN"

/* Says where a request to cancel or pause is recorded: in the log; in a file's name, if the disk
 * had no room for that (launcher/state/wish_name.h); or nowhere. */
enum launch_kept { LAUNCH_LOGGED, LAUNCH_NAMED, LAUNCH_UNSAID };
/* Returns why a request could not be recorded, for people: "its disk is read-only", or has no
 * room. */
const char *launch_unsaid_why(const struct launch *l);
/* Records the request in the log, or else in a file's name, and makes the run's agent look. If
 * neither is possible, it returns ERR_FULL for a wrapped run only. */
int launch_wish_keep(const struct launch *l, const struct run_state *s, enum run_wish wish,
                     enum launch_kept *kept, struct err *err);

/* Cancels the jobs of a run that may live, the newest submission first, because otherwise a
 * successor could start in between. */
int launch_jobs_cancel(struct sched *s, const struct run_state *state, struct err *err);

/* Records the request, and cancels the running job and its successor even if the request could not
 * be recorded. For a wrapped run its agent sees the request, the job is left to its owner, and s
 * may be NULL. */
int launch_cancel(const struct launch *l, struct sched *s, enum launch_kept *kept, struct err *err);

/* Follows the run until it is over or *stop becomes non-zero; submits a lost job again. Calls
 * `show` at each look. *next is the run's state at the end (RUN_NEXT_WAIT: following was stopped).
 * If s is NULL, it only watches. */
typedef void launch_show_fn(void *ctx, const struct run_state *s, const struct run_budget *budget,
                            const char *job_state);
int launch_follow(const struct launch *l, struct sched *s, const volatile int *stop,
                  launch_show_fn *show, void *ctx, enum run_next *next, struct err *err);

/* Asks the scheduler until the run's job is known to live, without following the run. If the job is
 * over or gone and the run is not, submits another job, as launch_follow does. *next is the run's
 * state at the end. ERR_TEMP: the scheduler does not answer; ERR_CHILD: the submitted job ended
 * before it began an attempt. */
int launch_settle(const struct launch *l, struct sched *s, enum run_next *next, struct err *err);

#endif
