/* sched: one interface to whatever runs jobs: this machine ("local"), Slurm ("slurm"), and for
 * tests a simulated cluster (sim.h).
 *
 * The idea: a job is known by a token that the submitter chose before it submitted. Submitting a
 * token twice gives the same job, so a launcher that was killed at any moment submits again and
 * loses or doubles nothing. A job outlives its submitter; every process of the user can poll,
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
 * How a job is asked to stop (preemption, cancel, requeue, time limit): the *batch process* alone
 * gets SIGCONT and then a signal, and passes on what it wants passed on; later every process of the
 * job gets SIGKILL. Signals may come more than once: handlers are idempotent.
 *     preemption              spec.signal if given (else SIGTERM); SIGTERM after the partition's
 *                             grace; SIGKILL kill_wait_s later
 *     cancel, requeue,        SIGTERM at once; SIGKILL kill_wait_s later
 *     time limit
 *     signal_lead_s before    spec.signal; the job goes on running. A scheduler may be early
 *     the time limit          (Slurm: 60 s)
 * A preempted job that may be requeued comes back, whatever its exit code; a job that has nothing
 * left to do finds that out first thing when it starts. sched_requeue() called by the job itself on
 * its own id works the same way: the job is asked to stop (it may get SIGTERM at once), and is
 * pending again when it has ended, whatever its exit code.
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
 * Inside an allocation (the tuner): sched_step_start, sched_step_poll until it has ended,
 * sched_step_free.
 *
 * Errors: ERR_INPUT for a specification that cannot be, ERR_LIMIT for one that asks more than there
 * is, ERR_NOT_FOUND for an unknown job (spec.after too), ERR_STATE for what the job's state
 * forbids, ERR_TEMP/ERR_BUSY when asking again is safe and may help.
 *
 * A handle belongs to one thread. Nothing is kept of a spec after the call.
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

/* enum, text, terminal */
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
    X(SCHED_NODE_FAIL, "node_fail", true)    /* what ran it was lost, and it may not be requeued */

enum sched_state {
#define SCHED_STATE_ENUM(name, text, terminal) name,
    SCHED_STATE_LIST(SCHED_STATE_ENUM)
#undef SCHED_STATE_ENUM
};
const char *sched_state_name(enum sched_state state);
bool sched_state_ended(enum sched_state state);                  /* terminal */

/* ---- what there is ---- */

/* Says what a partition does with a job when something more urgent needs its place. */
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
    double grace_s;             /* between the notice and SIGTERM at preemption */
    double max_time_s;          /* longest time limit; 0: none */
    int nodes;
    int cores_per_node;
    int gpus_per_node;
};
struct sched_site {
    const char *kind; /* "local" */
    const char *name; /* host or cluster */
    double kill_wait_s;
    bool user_signal;        /* spec.signal is sent at preemption */
    double requeue_delay_s;  /* least time from the end of an execution to the next, 0 if none */
    double node_timeout_s;   /* a node that is silent for so long is given up; 0: it never is */
    size_t n_partitions;
    const struct sched_partition *partitions;
};

/* Returns the partition of this name, NULL: the default one; NULL when there is none. */
const struct sched_partition *sched_site_partition(const struct sched_site *site,
                                                   const char *name);

/* ---- jobs ---- */

enum { SCHED_ID_BYTES = 64 };

struct sched_spec {
    const char *token;       /* 32 hex digits (base/id.h), the submission's identity */
    const char *name;        /* for people (id_name_check of base/id.h); need not be unique */
    const char *const *argv; /* NULL-ended; argv[0] an absolute path */
    const char *const *env;  /* NULL-ended "K=V"; the job gets just this and the variables below */
    const char *cwd;         /* absolute */
    const char *log_path;    /* absolute; stdout and stderr are appended; its folder is made */
    const char *partition;   /* NULL: the default one */
    const char *account, *qos, *exclude; /* Slurm's; NULL: none. exclude: nodes, "n[1-2],n7" */
    int priority;            /* a higher one goes first; on "local" it preempts; -1000..1000 */
    int nodes;               /* 1 or more */
    int ranks_per_node;      /* 1 or more; information for the job */
    int cores_per_node;      /* 0: all cores of a node */
    int gpus_per_node;
    double time_limit_s;     /* of one execution; 0: none */
    bool requeue;            /* the scheduler may run it again */
    /* It goes on when it loses a node that is not its batch process's; else it is ended then. */
    bool outlives_nodes;
    int signal;              /* early notice, 0: none */
    double signal_lead_s;    /* `signal` is sent so long before the time limit; 0: not sent there */
    /* A job of ours: this one starts only when that has ended, however it ends (a requeue is no
     * end); NULL: none. */
    const char *after;
};
#define SCHED_SPEC_INIT {.nodes = 1, .ranks_per_node = 1}

/* A job finds these variables in its environment beside spec.env (which they override):
 * REEL_JOB_ID, REEL_JOB_RESTART (0 on the first execution), REEL_JOB_NODES (absent: 1),
 * REEL_JOB_CORES (per node), REEL_RUN_TOKEN (the token), REEL_JOB_SCHED (the kind, for
 * sched_open). */

struct sched_job {
    const char *id;
    const char *token; /* "" when the job was not submitted by us */
    const char *name;
    enum sched_state state;
    int priority;
    int restarts;
    int nodes, cores_per_node;
    /* UTC Unix seconds; 0: it did not happen yet. started_at and ended_at are the last
     * execution's. */
    double submitted_at;
    double started_at, ended_at;
    int exit_code;      /* of the last execution; -1: none, killed by a signal, or never started */
    int exit_signal;    /* signal that killed the batch process, or 0 */
    const char *reason; /* why it waits, stops, or ended as it did; "" for nothing to say */
    const char *run;    /* what sched_note left in it; "": nothing */
};
struct sched_jobs {
    struct sched_job *jobs; /* by order of submission */
    size_t n;
    struct arena arena; /* owns jobs and their texts */
};
void sched_jobs_release(struct sched_jobs *jobs); /* safe on a zeroed struct */
/* Returns the job of this id; NULL if it is absent. */
const struct sched_job *sched_jobs_find(const struct sched_jobs *jobs, const char *id);

/* Says which jobs to list. NULL lists mean all; with both lists, a job in either is listed. */
struct sched_filter {
    const char *const *ids;    /* NULL-ended */
    const char *const *tokens; /* NULL-ended */
};

/* Says why a job is to end, or has ended, as the scheduler itself has it. */
enum sched_end {
    SCHED_END_NONE,       /* it waits, or runs with nobody ending it; or it ended by itself */
    SCHED_END_UNKNOWN,    /* it ends, and why cannot be read */
    SCHED_END_REQUEUED,   /* it will run again: preempted with a requeue, or asked to */
    SCHED_END_PREEMPTED,  /* it is preempted: its grace time runs, or it ended by that */
    SCHED_END_CANCELLED,  /* by its user or by whoever may */
    SCHED_END_TIME_LIMIT,
    SCHED_END_NODE_FAIL,  /* a node of it failed */
};
/* Returns "", "for a reason it does not tell", "requeued", "preempted", "cancelled", "time limit"
 * or "a node failed". */
const char *sched_end_name(enum sched_end end);
struct sched_ending {
    enum sched_end why;
    /* The time limit ends the execution that runs at this time, UTC Unix seconds; 0: there is none,
     * or none runs. */
    double limit_at;
    double limit_s; /* how long that execution may last in all, where limit_at is known */
    /* It is told to end, with no grace: what is left of it is killed when the kill wait is over. */
    bool is_killed;
    double ended_at; /* when it ended, UTC Unix seconds; 0: it has not, or that is not known */
    char who[SCHED_ID_BYTES]; /* who cancelled it, where that is known: "root"; else "" */
};

/* Says who gets a signal. */
enum sched_to { SCHED_TO_BATCH, SCHED_TO_ALL };

/* Says what counts as a node that was lost with a job: the scheduler has given it up by down_by, or
 * it is back and was booted after booted_after, the job's beginning, and at most half an hour after
 * down_by. UTC Unix seconds. */
struct sched_loss {
    double booted_after; /* INFINITY: nobody asks when nodes were booted */
    double down_by;
};

/* Describes the job that this process runs in. */
struct sched_self {
    char id[SCHED_ID_BYTES];
    char token[SCHED_ID_BYTES];
    int restarts;
    int nodes, cores_per_node;
};

/* ---- steps: programs inside an allocation ---- */

struct sched_step_spec {
    const char *const *argv; /* NULL-ended; argv[0] an absolute path */
    const char *const *env;  /* NULL-ended, exact; the job's own variables are added */
    const char *cwd;         /* NULL: the caller's */
    const char *log_path;    /* stdout and stderr, appended; NULL: /dev/null */
    int ranks;               /* 1 or more; see sched_ops.starts_ranks */
    /* One rank runs on every node of the allocation, beside other steps: `ranks` and `cores` do not
     * count. */
    bool per_node;
    int nodes;               /* of the allocation; 0: all of them when there are that many ranks */
    const char *exclude;     /* nodes of the allocation that are not used, "n1,n3"; NULL: none */
    int cores;               /* of the allocation, 0: all */
    /* The sizes of the layout's nested groups of ranks, the innermost first, 0: none; see
     * sched_place. */
    int64_t groups[PLACE_GROUPS];
    /* The CPUs that each rank of a node is bound to, in order, NULL-ended: "0-3,8"; NULL: as the
     * scheduler does. */
    const char *const *cpus;
    /* After this many seconds the step's first process gets SIGTERM, and all get SIGKILL
     * kill_wait_s later; 0: no deadline. */
    double deadline_s;
};
#define SCHED_STEP_SPEC_INIT {.ranks = 1}

struct sched_step_status {
    bool ended;
    bool timed_out;  /* the deadline stopped it */
    bool lost;       /* what watched it was killed: no exit code */
    int exit_code;   /* -1: killed by a signal, or lost */
    int exit_signal;
    char node_lost[SCHED_ID_BYTES]; /* a node of it failed; "" none. May be told before the end */
    double started_at, ended_at; /* UTC Unix seconds */
};
/* Says where the ranks of a step go. */
struct sched_placement {
    /* In the order of their ranks, which are place_first_rank(ranks, n, i) and on. */
    const struct place_node *nodes;
    size_t n;
    int ranks;
    const char *network; /* "tree", "block", "none", "unknown" */
};
/* A step is owned by the process that started it; it dies with that process and with the job. */
struct sched_step;

/* ---- the table ---- */

struct sched;
struct sched_ops {
    const char *kind;
    /* A step of n ranks is n processes of its argv that find each other; else it is one: mpirun. */
    bool starts_ranks;
    int (*describe)(struct sched *s, struct sched_site *out, struct err *err);
    int (*submit)(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                  struct err *err);
    int (*check)(struct sched *s, const struct sched_spec *spec, struct err *err);
    void (*script)(const struct sched_spec *spec, struct str *out);
    int (*poll)(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
                struct err *err);
    /* NULL: poll shares no answers. */
    int (*look)(struct sched *s, const char *id, struct sched_jobs *out, struct err *err);
    int (*signal)(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err);
    int (*requeue)(struct sched *s, const char *id, struct err *err);
    int (*ending)(struct sched *s, const char *id, struct sched_ending *out, struct err *err);
    int (*cancel)(struct sched *s, const char *id, struct err *err);
    /* NULL: jobs keep no note. */
    int (*note)(struct sched *s, const char *id, const char *run, struct err *err);
    int (*step_start)(struct sched *s, const struct sched_step_spec *spec,
                      struct sched_step **out, struct err *err);
    int (*place)(struct sched *s, const struct sched_step_spec *spec, struct arena *arena,
                 struct sched_placement *out, struct err *err);
    int (*step_poll)(struct sched_step *step, double wait_s, struct sched_step_status *out,
                     struct err *err);
    int (*step_signal)(struct sched_step *step, int signo, struct err *err);
    void (*step_free)(struct sched_step *step);
    /* NULL: no node is ever lost. */
    int (*lost_node)(struct sched *s, const char *nodes, const struct sched_loss *loss,
                     char node[SCHED_ID_BYTES], struct err *err);
    void (*close)(struct sched *s);
};
/* Implementations put these first in their own structs. */
struct sched {
    const struct sched_ops *ops;
    double absence_s; /* a job absent from clean answers for so long counts as gone */
    double settle_s;  /* how many seconds after an answer it has saved what it accepted; 0: it saves
                       * before it answers */
};
struct sched_step {
    const struct sched_ops *ops;
};

/* ---- calls; they check what is common to all implementations ---- */

/* Opens a scheduler. kind: "local" or "slurm"; for tests "sim" (sim.h). home: REEL_HOME, absolute.
 * Touches nothing on disk until something is submitted. */
int sched_open(const char *kind, const char *home, struct sched **out, struct err *err);
void sched_close(struct sched *s); /* NULL is fine; jobs go on */

/* Describes partitions and limits; *out borrows from the handle until the next describe or
 * close. */
int sched_describe(struct sched *s, struct sched_site *out, struct err *err);

/* Submits a job. Gives the id of the job with this token: a new one, or the one an earlier call
 * made, in any state. */
int sched_submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                 struct err *err);

/* Asks whether the job would be taken, as far as can be told without submitting: ERR_INPUT or
 * ERR_LIMIT as sched_submit would have it. Writes nothing. */
int sched_check(struct sched *s, const struct sched_spec *spec, struct err *err);
/* Appends what the job will run, for people: the batch script, or where there is none the
 * command. */
void sched_script(struct sched *s, const struct sched_spec *spec, struct str *out);

/* Lists jobs; filter NULL: all. *out is released first, so one variable can be used over and over.
 * Jobs that the filter names and the scheduler does not know are absent: the caller decides what
 * that means, for a job may be listed late (absence_s). */
int sched_poll(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
               struct err *err);

/* Looks at one job as it stands now: asks the scheduler itself, never a shared answer. *out is as
 * sched_poll has it, and empty when there is no such job (any more); the job may be somebody
 * else's. */
int sched_look(struct sched *s, const char *id, struct sched_jobs *out, struct err *err);

/* Sends a signal; ERR_STATE when the job does not run. */
int sched_signal(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err);

/* Has the job run again. No effect on a job that waits already; ERR_STATE when it has ended, is
 * being cancelled, or may not be requeued. */
int sched_requeue(struct sched *s, const char *id, struct err *err);

/* Asks how this job is to end, whoever was told of it: asks the scheduler itself, never a shared
 * answer. The answer is newer than any signal that the scheduler has sent. ERR_NOT_FOUND: it knows
 * no such job (any more). */
int sched_ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err);

/* Cancels a job; no effect on one that has ended. Returns when the wish is recorded: poll for the
 * end. */
int sched_cancel(struct sched *s, const char *id, struct err *err);

/* Notes in a job which run it has: the run's id, for sched_look in its next executions. ERR_STATE
 * if jobs keep no note. */
int sched_note(struct sched *s, const char *id, const char *run, struct err *err);

/* Finds the job that this process runs in; ERR_NOT_FOUND outside a job. */
int sched_self(struct sched *s, struct sched_self *out, struct err *err);

/* Starts a step. Outside a job, "local" takes the whole machine for the allocation. ERR_LIMIT when
 * the caller's running steps and this one need more cores than the allocation has. */
int sched_step_start(struct sched *s, const struct sched_step_spec *spec, struct sched_step **out,
                     struct err *err);
/* Says where sched_step_start will put the ranks of a step of several nodes: consecutive ranks
 * under the same switch (place.h). The network is asked for once a handle. ERR_NOT_FOUND: there is
 * nothing to choose, or the network is not known; then the order is the scheduler's own. */
int sched_place(struct sched *s, const struct sched_step_spec *spec, struct arena *arena,
                struct sched_placement *out, struct err *err);
/* Waits up to wait_s (0: not at all, negative: for ever) for the end; fills *out either way. */
int sched_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                    struct err *err);
/* Signals the step's first process. No effect once it has ended. */
int sched_step_signal(struct sched_step *step, int signo, struct err *err);
/* Kills what still runs of the step; NULL is fine. Call it before sched_close. */
void sched_step_free(struct sched_step *step);

/* Names one of these nodes that was lost, as `loss` defines it; "": none. nodes: a list as the
 * scheduler writes it; NULL: the nodes of the allocation that this process runs in. */
int sched_lost_node(struct sched *s, const char *nodes, const struct sched_loss *loss,
                    char node[SCHED_ID_BYTES], struct err *err);

#endif
