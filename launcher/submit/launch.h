/* launch: makes a run, hands it to the scheduler exactly once, follows it to its end.
 *
 * The follower is a convenience: kill it at any moment and the run goes on; start it again and it
 * takes up where it was. Before anything is submitted, the intent with its token is durable in the
 * run's log. A scheduler gives one job for one token, so submitting again after a crash between
 * the two doubles nothing.
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
    double save_s; /* 99th percentile of the saves of its model on record; 0: not known */
    /* the run is one of 'reel wrap': its trainer is not ours, and reel did not submit its job
     * (launcher/wrap/wrap.h) */
    bool wrapped;
};

/* Checks that the stages' own plans fit the run, and this many ranks. */
int launch_plans_check(const struct run *run, int64_t world, struct err *err);

/* Makes the run's folder (run.json, plan.json, settings.json, event run_created) and binds its
 * name. If a run has that name, takes that one: *existed is true, and nothing else of the arguments
 * counts (launcher/submit/change.h compares them). ERR_EXISTS: the name belongs to a wrapped
 * command. settings_json may be NULL. */
int launch_create(const char *home, const char *bin_dir, const struct run *run,
                  const struct plan *plan, const char *settings_json, struct launch *out,
                  bool *existed, struct err *err);
/* Was every submission of the run refused? Such a run never had a job, and launch_create puts
 * another in its place. */
bool launch_unborn(const struct run_state *s);
/* Asks whether the scheduler would take the run's job, and whether the home has its runs
 * (home_runs_check). Nothing is written; l (launch_init) need not exist. script takes what the job
 * will run, and may be NULL. */
int launch_check(const struct launch *l, struct sched *s, const struct run *run,
                 struct str *script, struct err *err);
/* Fills in the handle only, as launch_create and launch_open do. The run it names need not exist
 * yet. */
void launch_init(struct launch *l, const char *home, const char *bin_dir, const char *run_id,
                 const struct run_budget *budget);
/* Finds an existing run, by name or id. */
int launch_open(const char *home, const char *bin_dir, const char *name_or_id, struct launch *out,
                struct err *err);
/* Loads the state that the run's logs give. Fills in id and name even if the logs that have them
 * are lost. *state is initialised. */
int launch_state_load(const struct launch *l, struct run_state *state, struct err *err);

/* Submits if the folded state asks for it (nothing is submitted, an intent was left open, or the
 * run's job is gone and the run is not over); does nothing otherwise. Idempotent. lost_token: the
 * token of the submission (job_token) whose job the caller has seen end, or vanish, for good; NULL:
 * none. Of several callers who saw it one submits again. */
int launch_submit(const struct launch *l, struct sched *s, const char *lost_token, struct err *err);

/* Submits anew after a change (launcher/submit/change.h) where the newest submission's job cannot
 * carry the change out. The new job waits for the old one's end, and an old one that itself still
 * waits is cancelled. Of several callers one does it. *new: the job submitted, "" none; *old: the
 * one it replaces. */
int launch_renew(const struct launch *l, struct sched *s, char old[SCHED_ID_BYTES],
                 char new[SCHED_ID_BYTES], struct err *err);

/* Refuses with ERR_NO when root would submit another user's run. */
int launch_owner_check(const struct launch *l, struct err *err);

/* Takes the lock under which one submitter at a time decides, and loads the run's state
 * (initialised) as it is under the lock. The caller drops *lock after an error too; it stays NULL
 * if it was not taken. */
int launch_lock(const struct launch *l, struct lease **lock, struct run_state *state,
                struct err *err);

/* Opens a log for events of the run itself (attempt 0), of a writer of its own; *out is new. token
 * may be NULL. */
int launch_log_open(const struct launch *l, const char *token, struct evlog **out,
                    struct err *err);

/* Begins the event of a wish of the run's owner. The wish counts rather than all those that this
 * state knows. */
void launch_wish_begin(struct evlog *log, struct evlog_event *e, const struct run_state *state,
                       const char *kind);
/* Commits that event, and makes the run's agent look for it. */
int launch_wish_commit(const struct launch *l, struct evlog *log, struct evlog_event *e,
                       struct err *err);
/* Makes the run's agent look at the run's logs, by changing the time of their folder. */
void launch_wish_poke(const struct launch *l);

/* Gives the run's present job a successor, which is a job that starts when that one has ended: the
 * existing one if it may still start, else a new one. *id is its id. If the site lets no job run
 * again (PreemptMode=CANCEL), the run goes on by its successors, without a follower. ERR_BUSY:
 * another submission has taken the run over. `fold` is the run's, and is renewed. */
int launch_successor(const struct launch *l, struct sched *s, const struct sched_self *self,
                     struct run_fold *fold, char id[SCHED_ID_BYTES], struct err *err);

/* A job finds this in its environment: "successor", or anything else for "requeue". */
#define LAUNCH_AGAIN_ENV "REEL_JOB_AGAIN"

/* Says where a wish to cancel or to pause is on record: in the log; if there was no room for that,
 * in a file's name (launcher/state/wish_name.h); nowhere. */
enum launch_kept { LAUNCH_LOGGED, LAUNCH_NAMED, LAUNCH_UNSAID };
/* Returns why a wish could not be recorded, for people: "its disk is read-only", or has no room. */
const char *launch_unsaid_why(const struct launch *l);
/* Records the wish as well as there is room for it, and makes the run's agent look. If it cannot be
 * recorded at all, that is ERR_FULL only for a wrapped run. */
int launch_wish_keep(const struct launch *l, const struct run_state *s, enum run_wish wish,
                     enum launch_kept *kept, struct err *err);

/* Cancels the jobs of a run that may live, the successor first, because it could start in between
 * otherwise. */
int launch_jobs_cancel(struct sched *s, const struct run_state *state, struct err *err);

/* Records the wish and cancels the job that runs and its successor, wherever the wish is recorded.
 * For a wrapped run the agent sees the wish, the job is left to its owner, and s may be NULL. */
int launch_cancel(const struct launch *l, struct sched *s, enum launch_kept *kept, struct err *err);

/* Follows until the run is over or *stop becomes non-zero; resubmits a lost job. `show` is called
 * at each look. *next is how the run stands then (RUN_NEXT_WAIT: stopped following). s may be NULL:
 * then it only watches. */
typedef void launch_show_fn(void *ctx, const struct run_state *s, const struct run_budget *budget,
                            const char *job_state);
int launch_follow(const struct launch *l, struct sched *s, const volatile int *stop,
                  launch_show_fn *show, void *ctx, enum run_next *next, struct err *err);

/* Asks the scheduler about the run's job until the job is known to live, without following it. When
 * the job is over or gone and the run is not, submits another in its place, as launch_follow does.
 * *next is how the run stands then. ERR_TEMP: the scheduler does not say; ERR_CHILD: the job
 * submitted ended before it began an attempt. */
int launch_settle(const struct launch *l, struct sched *s, enum run_next *next, struct err *err);

#endif
