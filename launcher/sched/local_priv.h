/* local_priv: declares what the files of the local scheduler share: the spool, its records, the
 * pass, and steps. The formats and the table of transitions are at the top of local.c. */
#ifndef LAUNCHER_SCHED_LOCAL_PRIV_H
#define LAUNCHER_SCHED_LOCAL_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/lease.h"
#include "launcher/sched/local.h"
#include "launcher/sched/proc.h"
#include "launcher/sched/sched.h"

/* ---- the machine's settings: <spool>/machine.json ---- */

struct local_machine {
    int64_t cores;
    double grace_s, kill_wait_s;
};

/* ---- records ---- */

/* Says why a job was asked to stop. A later request replaces an earlier one only if its value is
 * higher. */
enum local_stop {
    STOP_NONE,
    STOP_TIME_LIMIT,
    STOP_PREEMPT,
    STOP_SHUTDOWN,
    STOP_REQUEUE,
    STOP_CANCEL
};

struct local_rec {
    int64_t id;
    const char *token, *name, *reason;
    int state; /* enum sched_state; SCHED_UNKNOWN: the file cannot be read, and is not changed */
    int stop;  /* enum local_stop */
    int64_t priority, cores, restarts;
    bool requeue;
    int64_t after;       /* id of the job whose end it waits for; 0: none */
    int64_t signal;
    double time_limit_s, signal_lead_s;
    double submitted_at, started_at, ended_at; /* UTC Unix seconds; 0: not yet */
    double starting_at;  /* > 0: a keeper was or is being started, and the cores are taken */
    int64_t starts;      /* number of keepers that were started for this execution and did not claim
                          * it */
    const char *boot;    /* boot id of the machine when the processes below ran */
    struct proc_id guard, keeper, batch;
    int64_t exit_code, exit_signal;
};

struct local_recs {
    struct local_rec *v; /* sorted by id */
    size_t n;
    struct arena arena;
};

/* ---- the spool ---- */

struct local_spool {
    char dir[LIMIT_PATH_BYTES];
    struct arena texts; /* for records that are read singly */
};

int local_spool_init(struct local_spool *sp, const char *dir, struct err *err);
void local_spool_release(struct local_spool *sp);
int local_spool_path(const struct local_spool *sp, const char *name, char out[LIMIT_PATH_BYTES],
                     struct err *err);
int local_lock(const struct local_spool *sp, double wait_s, struct lease **lock, struct err *err);

/* Loads all records. `locked`: the caller holds the lock, so temporary files are left over from
 * dead writers, and are removed. */
int local_recs_load(const struct local_spool *sp, bool locked, struct local_recs *out,
                    struct err *err);
void local_recs_release(struct local_recs *recs);
int local_rec_load(const struct local_spool *sp, int64_t id, struct arena *arena,
                   struct local_rec *out, struct err *err);
int local_rec_save(const struct local_spool *sp, const struct local_rec *rec, struct err *err);

/* Holds the arguments, environment, folder and log of a job. They are written once and may contain
 * any bytes. */
struct local_program {
    const char **argv, **env; /* NULL-terminated */
    const char *cwd, *log_path;
    struct str text;          /* owns the strings */
};
int local_program_save(const struct local_spool *sp, int64_t id, const struct sched_spec *spec,
                       struct err *err);
int local_program_load(const struct local_spool *sp, int64_t id, struct local_program *out,
                       struct err *err);
void local_program_release(struct local_program *p);

/* Loads the settings, or the defaults if there are none. */
int local_machine_load(const struct local_spool *sp, struct local_machine *out, struct err *err);
int local_machine_save(const struct local_spool *sp, const struct local_machine *m,
                       struct err *err);
/* Loads the settings and overrides them from the environment. *changed: the environment differs
 * from the file. */
int local_machine_now(const struct local_spool *sp, struct local_machine *out, bool *changed,
                      struct err *err);

/* ---- decisions: these functions change nothing but their arguments ---- */

/* Sets state, reason and restarts of a job after the end of an execution (lost: the end was not
 * seen). */
void local_rec_settle(struct local_rec *r, bool lost, double now, struct arena *texts);

enum local_act { ACT_NONE, ACT_START, ACT_PREEMPT };
struct local_decision {
    enum local_act act;
    int64_t by;         /* ACT_PREEMPT: id of the job that gets the cores */
    /* The next three describe a waiting job. */
    int64_t free_cores; /* free cores when its turn came; -1: its turn did not come */
    int64_t behind;     /* id of the job that blocks the queue before it; 0: none */
    bool depends;       /* the job that it waits for has not ended, so it is not in the queue */
};
/* Decides about each of these records; out has room for recs->n decisions. */
void local_decide(const struct local_recs *recs, int64_t cores, struct local_decision *out);

/* ---- the pass: recover, decide, record, act ---- */

/* Makes a pass. wait_s: how long to wait for the lock. ERR_BUSY: another process holds the lock and
 * makes the pass. */
int local_pass(const struct local_spool *sp, double wait_s, struct err *err);

/* Records a request to stop a live job, under the lock; the job's keeper sees it. A request that is
 * not stronger than the recorded one changes nothing. */
int local_rec_ask(const struct local_spool *sp, struct local_rec *r, enum local_stop stop,
                  const char *reason, struct err *err);

/* Tells whether this process is a keeper of any job of this spool, because keepers are never killed
 * as orphans of another job. ctx: struct local_spool. */
bool local_is_keeper(pid_t pid, void *ctx);

/* ---- steps (local_step.c) ---- */
struct local_steps {
    const struct local_spool *spool;
    const struct sched_ops *ops;
    struct local_machine machine;
    int64_t cores, used; /* cores of the allocation; cores taken by this handle's running steps */
};
int local_step_start(struct local_steps *steps, const struct sched_step_spec *spec,
                     const char *const *env, struct sched_step **out, struct err *err);
int local_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err);
int local_step_signal(struct sched_step *step, int signo, struct err *err);
void local_step_signal_all(struct sched_step *step, int signo); /* every process of the step */
void local_step_free(struct sched_step *step);

/* Makes a step's environment; *out is new (free the array only). It includes the job's own
 * variables, so that a step finds its job, and its processes can be found by the token. */
int local_step_env(const char *kind, const struct sched_self *self, const char *const *base,
                   struct arena *texts, const char ***out, struct err *err);

/* Joins a base environment and "K=V" entries, which take precedence; *out is new (free the array
 * only). */
int local_env_merge(const char *const *base, const char *const *own, const char ***out,
                    struct err *err);

#endif
