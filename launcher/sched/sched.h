/* sched: declares one interface to the schedulers of jobs: this machine ("local"), Slurm ("slurm"),
 * and for tests a simulated cluster (sim.h).
 *
 * A job is identified by a token that the submitter chose before it submitted. Submitting a token
 * twice gives the same job, so a launcher that was killed at any moment can submit again without
 * losing or doubling a job. A job outlives its submitter; every process of the user can poll,
 * signal, requeue and cancel it.
 *
 * These invariants hold whatever the implementation:
 *   - at most one execution of a job lives at any time; a job in a terminal state stays there;
 *   - `restarts` counts executions after the first; the environment and arguments of every
 *     execution are those of the submission, the log is appended to;
 *   - SCHED_UNKNOWN means "no verdict": keep watching. Never treat it as ended;
 *   - when a job has ended, no process of it is left (on Slurm: as far as the site's ProctrackType
 *     reaches).
 *
 * To stop a job (preemption, cancel, requeue, time limit), the scheduler first sends SIGCONT and
 * then a signal to the *batch process* only, which signals its children if it wants; later every
 * process of the job gets SIGKILL. Signals may come more than once, so handlers must be idempotent.
 *     preemption              spec.signal if given (else SIGTERM); SIGTERM after the partition's
 *                             grace; SIGKILL kill_wait_s later
 *     cancel, requeue,        SIGTERM at once; SIGKILL kill_wait_s later
 *     time limit
 *     signal_lead_s before    spec.signal; the job goes on running. A scheduler may be early
 *     the time limit          (Slurm: 60 s)
 * A preempted job that may be requeued runs again, whatever its exit code; a job with nothing left
 * to do must find that out when it starts. A job may call sched_requeue() with its own id: it is
 * asked to stop (it may get SIGTERM at once), and is pending again when it has ended, whatever its
 * exit code.
 *
 * Calling sequence:
 *     struct sched *s;
 *     sched_open("local", home, &s, err);
 *     struct sched_spec spec = SCHED_SPEC_INIT;
 *     spec.token = token; spec.name = "demo"; spec.argv = argv; spec.env = env; ...
 *     char job[SCHED_ID_BYTES];
 *     sched_submit(s, &spec, job, err);
 *     struct sched_jobs jobs = {0};
 *     sched_poll(s, NULL, &jobs, err);      // every job of this user in one query
 *     ... sched_jobs_find(&jobs, job)->state ...
 *     sched_jobs_release(&jobs);
 *     sched_close(s);
 *
 * Inside an allocation (the tuner), call sched_step_start, then sched_step_poll until the step has
 * ended, then sched_step_free.
 *
 * Errors are ERR_INPUT for an invalid specification, ERR_LIMIT for one that asks for more than
 * exists, ERR_NOT_FOUND for an unknown job (also in spec.after), ERR_STATE if the job's state
 * forbids the call, and ERR_TEMP or ERR_BUSY if repeating the call is safe and may help.
 *
 * A handle belongs to one thread. A spec is copied, so it may be released after the call.
 */
#ifndef LAUNCHER_SCHED_SCHED_H
#define LAUNCHER_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "launcher/sched/place.h"

/* ---- states ---- */

/* Lists the states: enum, text, whether the state is terminal. */
#define SCHED_STATE_LIST(X)                                                                      \
    X(SCHED_UNKNOWN, "unknown", false)       /* not seen, not readable: keep watching */         \
    X(SCHED_PENDING, "pending", false)       /* waits for its first execution */                 \
    X(SCHED_RUNNING, "running", false)                                                           \
    X(SCHED_SUSPENDED, "suspended", false)   /* its processes are stopped until it is resumed */ \
    X(SCHED_STOPPING, "stopping", false)     /* was asked to stop, or its last processes end */  \
    X(SCHED_REQUEUED, "requeued", false)     /* waits for its next execution */                  \
    X(SCHED_DONE, "done", true)              /* exit code 0 */                                   \
    X(SCHED_FAILED, "failed", true)          /* another exit code, a signal, or not startable */ \
    X(SCHED_CANCELLED, "cancelled", true)    /* by somebody, or preempted without requeue */     \
    X(SCHED_TIME_LIMIT, "time_limit", true)                                                      \
    X(SCHED_NODE_FAIL, "node_fail", true)    /* its node was lost, and it may not be requeued */

enum sched_state {
#define SCHED_STATE_ENUM(name, text, terminal) name,
    SCHED_STATE_LIST(SCHED_STATE_ENUM)
#undef SCHED_STATE_ENUM
};
const char *sched_state_name(enum sched_state state);
bool sched_state_ended(enum sched_state state);                  /* terminal */

/* ---- the site and its partitions ---- */

/* Says what a partition does with its jobs when a job of higher priority needs their nodes. */
enum sched_preempt {
    SCHED_PREEMPT_OFF,
    SCHED_PREEMPT_CANCEL,
    SCHED_PREEMPT_REQUEUE,
    SCHED_PREEMPT_SUSPEND
};

struct sched_partition {
    const char *name;
    bool is_default;
    enum sched_preempt preempt;
    double grace_s;             /* between the early signal and SIGTERM at a preemption */
    double max_time_s;          /* longest time limit allowed; 0: no bound */
    int nodes;
    int cores_per_node;
    int gpus_per_node;
};
struct sched_site {
    const char *kind; /* "local" */
    const char *name; /* host or cluster */
    double kill_wait_s;
    bool user_signal;        /* spec.signal is sent at preemption */
    double requeue_delay_s;  /* shortest time from the end of an execution to the next; 0: none */
    double node_timeout_s; /* a node that does not answer for this long counts as lost; 0: never */
    size_t n_partitions;
    const struct sched_partition *partitions;
};

/* Returns the partition of this name, or the default one for NULL; NULL if there is none. */
const struct sched_partition *sched_site_partition(const struct sched_site *site,
                                                   const char *name);

/* ---- jobs ---- */

enum { SCHED_ID_BYTES = 64, SCHED_NODES_BYTES = 512 };

struct sched_spec {
    const char *token;       /* 32 hex digits (base/id.h); identifies the submission */
    const char *name;        /* for people (id_name_check of base/id.h); need not be unique */
    const char *const *argv; /* NULL-terminated; argv[0] is an absolute path */
    const char *const *env;  /* NULL-terminated "K=V"; the job gets these, the variables below,
                              * and those that Slurm sets */
    const char *cwd;         /* absolute */
    const char *log_path;    /* absolute; stdout and stderr are appended; made with its folder */
    const char *partition;   /* NULL: the default one */
    const char *account, *qos, *exclude; /* for Slurm; NULL: none. exclude: nodes, "n[1-2],n7" */
    int priority;            /* higher priorities start first; on "local" they preempt lower ones;
                              * -1000..1000 */
    int nodes;               /* 1 or more */
    int ranks_per_node;      /* 1 or more; only passed to the job */
    int cores_per_node;      /* 0: all cores of a node */
    int gpus_per_node;
    double time_limit_s;     /* of one execution; 0: none */
    bool requeue;            /* the scheduler may run it again */
    bool has_job;            /* the run may have a job, which counts in limits on numbers of jobs:
                              * a check does not refuse another for them */
    /* true: the job goes on when it loses a node other than its batch process's; false: it is ended
     * then. */
    bool outlives_nodes;
    int signal;              /* signal of the early stop notice; 0: none */
    double signal_lead_s; /* `signal` is sent this long before the time limit; 0: not sent then */
    /* Id of an earlier job: this one starts only when that one has ended, in any way (a requeue
     * does not count); NULL: none. */
    const char *after;
};
#define SCHED_SPEC_INIT {.nodes = 1, .ranks_per_node = 1}

/* A job finds these variables in its environment beside spec.env (which they override):
 * REEL_JOB_ID, REEL_JOB_RESTART (0 in the first execution), REEL_JOB_NODES (absent: 1),
 * REEL_JOB_CORES (per node), REEL_RUN_TOKEN (the token), REEL_JOB_SCHED (the kind, for
 * sched_open). */

struct sched_job {
    const char *id;
    /* Names this job alone for the scheduler's own commands: "12_3" for a task of an array, one of
     * whose tasks has the array's id; NULL: the id does. */
    const char *handle;
    const char *token; /* "" if the job was not submitted through this interface */
    const char *name;
    enum sched_state state;
    int priority;
    int restarts;
    int nodes, cores_per_node;
    /* UTC Unix seconds; 0: not yet. started_at and ended_at are of the last execution. */
    double submitted_at;
    double started_at, ended_at;
    int exit_code;      /* of the last execution; -1: none, killed by a signal, or never started */
    int exit_signal;    /* signal that killed the batch process, or 0 */
    const char *reason; /* why it waits, stops, or ended as it did; "": no reason is known */
    const char *run;    /* run id that sched_note stored in it; "": none */
    bool once;          /* it may not be requeued */
};
struct sched_jobs {
    struct sched_job *jobs; /* in order of submission */
    size_t n;
    struct arena arena; /* owns jobs and their texts */
};
void sched_jobs_release(struct sched_jobs *jobs); /* safe on a zeroed struct */
/* Returns the job with this id; NULL if it is absent. */
const struct sched_job *sched_jobs_find(const struct sched_jobs *jobs, const char *id);

/* Says which jobs to list. A NULL list means all jobs; with both lists, a job in either is
 * listed. */
struct sched_filter {
    const char *const *ids;    /* NULL-terminated */
    const char *const *tokens; /* NULL-terminated */
};

/* Says why a job is to end or has ended, from the scheduler's own data. */
enum sched_end {
    SCHED_END_NONE,       /* it waits, or nobody ends it, or it ended by itself */
    SCHED_END_UNKNOWN,    /* it ends, and the reason cannot be read */
    SCHED_END_REQUEUED,   /* it will run again: it was preempted with a requeue, or requeued on
                           * request */
    SCHED_END_PREEMPTED,  /* it is preempted: its grace time runs, or it ended by the preemption */
    SCHED_END_CANCELLED,  /* by its user or an operator */
    SCHED_END_TIME_LIMIT,
    SCHED_END_NODE_FAIL,  /* a node of it failed */
};
/* Returns "", "for a reason it does not tell", "requeued", "preempted", "cancelled", "time limit"
 * or "a node failed". */
const char *sched_end_name(enum sched_end end);
struct sched_ending {
    enum sched_end why;
    /* When the time limit ends the present execution, UTC Unix seconds; 0: there is no limit, or
     * nothing runs. */
    double limit_at;
    double limit_s; /* longest duration of that execution; valid if limit_at is known */
    /* The job is ending without a grace time: after the kill wait its processes are killed. */
    bool is_killed;
    double ended_at; /* when it ended, UTC Unix seconds; 0: not yet, or unknown */
    char who[SCHED_ID_BYTES]; /* who cancelled it: "root"; "": unknown */
};

/* Says who gets a signal. */
enum sched_to { SCHED_TO_BATCH, SCHED_TO_ALL };

/* Says which nodes count as lost with a job: those that the scheduler declared lost by down_by, and
 * those that are back and were booted after booted_after, which is the job's start, and at most
 * half an hour after down_by. UTC Unix seconds. */
struct sched_loss {
    double booted_after; /* INFINITY: boot times do not count */
    double down_by;
};

/* Describes the job that this process runs in. */
struct sched_self {
    char id[SCHED_ID_BYTES];
    char handle[SCHED_ID_BYTES]; /* see sched_job; "": the id */
    char token[SCHED_ID_BYTES];
    int restarts;
    int nodes, cores_per_node;
};

/* ---- steps: programs inside an allocation ---- */

struct sched_step_spec {
    const char *const *argv; /* NULL-terminated; argv[0] is an absolute path */
    const char *const *env;  /* NULL-terminated; the step gets only these and the job's own
                              * variables */
    const char *cwd;         /* NULL: the caller's folder */
    const char *log_path;    /* stdout and stderr, appended; NULL: /dev/null */
    int ranks;               /* 1 or more; see sched_ops.starts_ranks */
    /* One rank runs on every node of the allocation, in all components of a heterogeneous job,
     * beside other steps; `ranks` and `cores` are ignored. */
    bool per_node;
    const char *only;        /* Slurm: the nodes of a step per_node, "n1,n3"; NULL: all */
    int nodes; /* number of nodes to use; 0: all of the allocation, if there are that many ranks */
    const char *exclude;     /* nodes of the allocation not to use, "n1,n3"; NULL: none */
    int cores;               /* number of cores to use; 0: all of the allocation */
    /* Sizes of the layout's nested groups of ranks, the innermost first; 0: none. See
     * sched_place. */
    int64_t groups[PLACE_GROUPS];
    /* CPUs to which each rank of a node is bound, in order, NULL-terminated: "0-3,8"; NULL: the
     * scheduler's default. */
    const char *const *cpus;
    /* After this many seconds the step's first process gets SIGTERM, and kill_wait_s later all its
     * processes get SIGKILL; 0: no deadline. */
    double deadline_s;
};
#define SCHED_STEP_SPEC_INIT {.ranks = 1}

struct sched_step_status {
    bool ended;
    bool timed_out;  /* the deadline stopped it */
    bool lost;       /* its watcher process was killed, so there is no exit code */
    int exit_code;   /* -1: killed by a signal, or lost */
    int exit_signal;
    char node_lost[SCHED_ID_BYTES]; /* a node that failed; "": none. It may be set before the end */
    /* Slurm: nodes, "n1,n[3-4]", where a rank of a step per_node has ended in error, as has been
     * learnt since the last poll; "": none. */
    char failed_on[SCHED_NODES_BYTES];
    double started_at, ended_at; /* UTC Unix seconds */
};
/* Says on which nodes the ranks of a step run. */
struct sched_placement {
    /* In the order of their ranks: node i has those from place_first_rank(ranks, n, i) on. */
    const struct place_node *nodes;
    size_t n;
    int ranks;
    const char *network; /* "tree", "block", "none", "unknown" */
};
/* Refers to a running program. A step belongs to the process that started it, and ends with that
 * process or with the job. */
struct sched_step;

/* ---- the table ---- */

struct sched;
struct sched_ops {
    const char *kind;
    /* true: the scheduler starts one process of argv for each rank; false: it starts one
     * (mpirun). */
    bool starts_ranks;
    int (*describe)(struct sched *s, struct sched_site *out, struct err *err);
    int (*submit)(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                  struct err *err);
    int (*check)(struct sched *s, const struct sched_spec *spec, struct err *err);
    void (*script)(const struct sched_spec *spec, struct str *out);
    int (*poll)(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
                struct err *err);
    /* NULL: poll always asks anew, so it is used instead. */
    int (*look)(struct sched *s, const char *id, struct sched_jobs *out, struct err *err);
    int (*signal)(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err);
    int (*requeue)(struct sched *s, const char *id, struct err *err);
    int (*ending)(struct sched *s, const char *id, struct sched_ending *out, struct err *err);
    /* NULL: jobs cannot store a note, so `ending` is used instead. */
    int (*ending_of)(struct sched *s, const char *id, const char *run, struct sched_ending *out,
                     struct err *err);
    int (*cancel)(struct sched *s, const char *id, struct err *err);
    /* NULL: jobs cannot store a note. */
    int (*note)(struct sched *s, const char *id, const char *run, struct err *err);
    int (*step_start)(struct sched *s, const struct sched_step_spec *spec,
                      struct sched_step **out, struct err *err);
    int (*place)(struct sched *s, const struct sched_step_spec *spec, struct arena *arena,
                 struct sched_placement *out, struct err *err);
    int (*step_poll)(struct sched_step *step, double wait_s, struct sched_step_status *out,
                     struct err *err);
    int (*step_signal)(struct sched_step *step, int signo, struct err *err);
    /* NULL: the scheduler does not reach a step's processes by itself. */
    int (*step_reach)(struct sched_step *step, const char *const *ids, int signo, struct err *err);
    void (*step_free)(struct sched_step *step);
    /* NULL: nodes are never lost. */
    int (*lost_node)(struct sched *s, const char *nodes, const struct sched_loss *loss,
                     char node[SCHED_ID_BYTES], struct err *err);
    void (*close)(struct sched *s);
};
/* Implementations put this struct first in their own structs. */
struct sched {
    const struct sched_ops *ops;
    double absence_s; /* a job that is missing from answers for this long counts as gone */
    double settle_s;  /* number of seconds after an answer until the scheduler has saved what it
                       * accepted; 0: it saves before it answers */
};
struct sched_step {
    const struct sched_ops *ops;
};

/* ---- calls; they make the checks that all implementations share ---- */

/* Opens a scheduler. kind: "local" or "slurm"; for tests "sim" (sim.h). home: REEL_HOME, absolute.
 * Writes nothing to disk. */
int sched_open(const char *kind, const char *home, struct sched **out, struct err *err);
void sched_close(struct sched *s); /* NULL is fine; jobs go on running */

/* Describes partitions and limits; *out borrows from the handle until the next describe or
 * close. */
int sched_describe(struct sched *s, struct sched_site *out, struct err *err);

/* Submits a job. Returns the id of the job with this token: a new one, or the one that an earlier
 * call submitted, in any state. */
int sched_submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                 struct err *err);

/* Checks whether the job would be accepted, as far as that is known without submitting: ERR_INPUT
 * or ERR_LIMIT as from sched_submit. Writes nothing. */
int sched_check(struct sched *s, const struct sched_spec *spec, struct err *err);
/* Appends what the job will run, for people: the batch script, or the command if there is none. */
void sched_script(struct sched *s, const struct sched_spec *spec, struct str *out);

/* Lists jobs; filter NULL: all. *out is released first, so a variable can be reused. Jobs that the
 * filter names and the scheduler does not know are absent; the caller decides what that means,
 * because a job may be listed late (absence_s). On Slurm all processes of the user share one
 * answer, which may be some seconds old (slurm.h). */
int sched_poll(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
               struct err *err);

/* Looks at one job now: asks the scheduler itself and does not use a shared answer. *out is as from
 * sched_poll, and empty if there is no such job any more; the job may belong to another user. */
int sched_look(struct sched *s, const char *id, struct sched_jobs *out, struct err *err);

/* Sends a signal; ERR_STATE if the job does not run. */
int sched_signal(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err);

/* Requeues a job. Has no effect on a job that waits already; ERR_STATE if it has ended, is being
 * cancelled, or may not be requeued. */
int sched_requeue(struct sched *s, const char *id, struct err *err);

/* Asks why and when this job is to end, even if no process of it was signalled: asks the scheduler
 * itself and does not use a shared answer. The answer is newer than any signal that the scheduler
 * has sent. ERR_NOT_FOUND: it does not know such a job (any more). */
int sched_ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err);
/* Asks the same about a job of this run. It may be a user's script that reel did not submit, if
 * sched_note stored the run's id in it. */
int sched_ending_of(struct sched *s, const char *id, const char *run, struct sched_ending *out,
                    struct err *err);

/* Cancels a job; has no effect on one that has ended. Returns when the request is recorded: poll
 * for the end. */
int sched_cancel(struct sched *s, const char *id, struct err *err);

/* Stores the run's id in the job, for sched_look in its next executions. ERR_STATE: this scheduler
 * cannot store it. */
int sched_note(struct sched *s, const char *id, const char *run, struct err *err);

/* Finds the job that this process runs in; ERR_NOT_FOUND outside a job. */
int sched_self(struct sched *s, struct sched_self *out, struct err *err);

/* Starts a step. Outside a job, "local" uses the whole machine as the allocation. ERR_LIMIT: the
 * caller's running steps and this one (on Slurm: this one alone) need more cores than the
 * allocation has. */
int sched_step_start(struct sched *s, const struct sched_step_spec *spec, struct sched_step **out,
                     struct err *err);
/* Computes on which nodes sched_step_start will put the ranks of a step of several nodes:
 * consecutive ranks under the same switch (place.h). The scheduler is asked for the network once
 * per handle. ERR_NOT_FOUND: there is nothing to choose, or the network is not known; then the
 * scheduler's own order applies. */
int sched_place(struct sched *s, const struct sched_step_spec *spec, struct arena *arena,
                struct sched_placement *out, struct err *err);
/* Waits up to wait_s (0: not at all, negative: forever) for the end of the step, and fills in *out
 * in any case. */
int sched_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err);
/* Signals the step's first process. Has no effect after it has ended. */
int sched_step_signal(struct sched_step *step, int signo, struct err *err);
/* Requests that the scheduler itself signal all processes of a step, which arrives even if the
 * step's first process is stopped or has ended. ids: the step's names at the scheduler ("83.1"; a
 * heterogeneous job has several), NULL-terminated. Does not wait for the scheduler. ERR_STATE: this
 * scheduler cannot; ERR_BUSY: an earlier request is not answered yet. */
int sched_step_reach(struct sched_step *step, const char *const *ids, int signo, struct err *err);
/* Kills the processes left of the step, and frees it; NULL is fine. Call it before sched_close. */
void sched_step_free(struct sched_step *step);

/* Finds one of these nodes that was lost, as `loss` defines it; "": none. nodes: a list as the
 * scheduler writes it; NULL: the nodes of the allocation in which this process runs. */
int sched_lost_node(struct sched *s, const char *nodes, const struct sched_loss *loss,
                    char node[SCHED_ID_BYTES], struct err *err);

#endif
