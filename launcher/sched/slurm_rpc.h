/* slurm_rpc: declares the requests to a Slurm controller, which use Slurm's commands or libslurm.
 *
 * Two implementations give the same results: "commands" (sbatch, squeue, scontrol, scancel, sinfo,
 * sacct) and "helper" (the program reel-slurm, which links libslurm). The callers (slurm*.c) need
 * not know which one they use. Every call sends its requests with a deadline, and depends on no
 * earlier call.
 *
 * Errors are classed by what the caller may conclude:
 *   ERR_TEMP         there is no clear answer: a time-out, no connection, a command or helper that
 *                    died, a busy controller. After `submit` the job may exist
 *   ERR_INPUT        the controller refused, and says why: nothing was done
 *   ERR_LIMIT        the same, because more was requested than exists or is allowed
 *   ERR_NOT_FOUND    there is no such job (cancel may return 0)
 *   ERR_STATE        the job's state forbids it
 *   ERR_ENV          there is no Slurm here, or not one we can talk to
 */
#ifndef LAUNCHER_SCHED_SLURM_RPC_H
#define LAUNCHER_SCHED_SLURM_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"
#include "launcher/sched/sched.h"

/* Holds a job as the controller describes it; texts are never NULL. */
struct slurm_job {
    const char *id;       /* "123" */
    /* Names this job alone in a request: "123_4" for a task of an array, one of whose tasks has the
     * array's id; "123" for any other job. */
    const char *handle;
    const char *state; /* "RUNNING", "COMPLETING", ...: the base state, or a flag that says more */
    const char *base; /* the base state under flags (COMPLETING, ...): "CANCELLED"; "": unknown */
    const char *reason;   /* "" if Slurm says None */
    const char *comment, *name;
    int restarts, nodes, cores; /* cores: total of all nodes */
    int nice;
    int exit_status;      /* as of wait(2); -1: none */
    bool requeue;         /* it may be requeued */
    double submitted_at, started_at, ended_at; /* UTC Unix seconds, 0: not yet */
    /* When its present or last execution was preempted; within a grace time it still runs; 0: it
     * was not preempted. */
    double preempted_at;
    /* The partition in which it runs or ran, or several for which it waits: "low,high"; "":
     * unknown. */
    const char *partition;
    const char *cwd; /* working folder of its submission; "": unknown */
};
struct slurm_jobs {
    struct slurm_job *v;
    size_t n;
};

/* Holds the site's settings, and those that only check-site needs. */
struct slurm_site {
    struct sched_site site;   /* its texts and partitions are in the arena of the call */
    const char *version;      /* "22.05.8" */
    const char *preempt_type; /* "preempt/partition_prio" */
    const char *proctrack;    /* "proctrack/cgroup" */
    const char *task;         /* "task/affinity,task/cgroup" */
    const char *topology;     /* "topology/tree" */
    const char *accounting;   /* "accounting_storage/none" */
    bool job_requeue;         /* JobRequeue: jobs may be requeued unless they say otherwise */
    double min_job_age_s;     /* how long an ended job is listed */
};

/* Holds a node as the controller describes it. */
struct slurm_node {
    const char *name;
    const char *state;      /* as scontrol writes it: "IDLE", "ALLOCATED+DRAIN", "DOWN*" */
    const char *reason;     /* why it is drained or down; "" if it is not */
    double reason_at;       /* when the reason was set, UTC Unix seconds; 0: unknown */
    double boot_at;         /* when it was booted, UTC Unix seconds; 0: unknown */
    const char *gres;       /* "gpu:h100:8(S:0-1)"; "": none */
    const char *partitions; /* "low,high" */
    int cpus, sockets, cores_per_socket, threads_per_core, gpus;
    int64_t memory_bytes;
};
/* Holds a switch of the tree, or a block; an aggregated block is stored as the switch above its
 * blocks. */
struct slurm_switch {
    const char *name;
    const char *nodes;    /* the nodes below it, at any depth: "n[0-3]" */
    const char *children; /* the switches directly below it: "leaf[0-1]"; "" for a leaf */
};
struct slurm_net {
    struct slurm_node *nodes;
    size_t n_nodes;
    struct slurm_switch *switches;
    size_t n_switches;
    /* "tree", "block", "none"; "unknown": the site has another kind of network, which is not
     * read. */
    const char *kind;
};

/* Holds a submission, that is, sbatch's options in one struct. */
struct slurm_submit {
    const struct sched_spec *spec;
    const char *comment; /* "reel:<token>" */
    const char *script;
    const char *const *env; /* the job's environment, complete */
    int nice;
    /* The controller is only asked whether it would take the job, in place of submitting it: the id
     * stays as it is. */
    bool test_only;
};

enum { SLURM_SLOW_S = 3 }; /* after this many seconds a warning says that the controller has not
                            * answered yet */
/* This variable sets how long a request waits for its answer, in seconds; 60 if it is not set. */
#define SLURM_WAIT_ENV "REEL_SLURM_WAIT_S"
int slurm_wait_s(void);
int slurm_wait_check(struct err *err); /* ERR_INPUT: the variable is not 1 to 3600 */
/* Logs that the controller does not answer, once until it has answered again. */
void slurm_slow_tell(void);
/* Records how a request ended: any result but ERR_TEMP is an answer. */
void slurm_slow_settle(int rc);

struct slurm_rpc;
struct slurm_rpc_ops {
    const char *name; /* "commands", "helper" */
    int (*site)(struct slurm_rpc *r, struct arena *arena, struct slurm_site *out, struct err *err);
    /* Reads the switches, and if with_nodes also the nodes, which are many more. */
    int (*net)(struct slurm_rpc *r, bool with_nodes, struct arena *arena, struct slurm_net *out,
               struct err *err);
    int (*submit)(struct slurm_rpc *r, const struct slurm_submit *what, char id[SCHED_ID_BYTES],
                  struct err *err);
    /* Lists all jobs of this user that the controller remembers, or with an id only that job,
     * whoever owns it (n is 0 or 1). */
    int (*jobs)(struct slurm_rpc *r, const char *id, struct arena *arena, struct slurm_jobs *out,
                struct err *err);
    /* These take a job's handle. An id acts on all tasks of an array that has it. */
    int (*signal)(struct slurm_rpc *r, const char *handle, int signo, bool all, struct err *err);
    int (*requeue)(struct slurm_rpc *r, const char *handle, struct err *err);
    int (*cancel)(struct slurm_rpc *r, const char *handle, struct err *err);
    int (*comment)(struct slurm_rpc *r, const char *handle, const char *text, struct err *err);
    void (*close)(struct slurm_rpc *r);
};
struct slurm_rpc {
    const struct slurm_rpc_ops *ops;
};

/* Leaves this job alone in the list. Slurm lists all tasks of an array when it is asked for the
 * task that has the array's id. */
void slurm_jobs_keep(struct slurm_jobs *jobs, const char *id);

/* Starts one of Slurm's commands, of which nobody awaits an answer, in both implementations. The
 * caller reaps *pid (spawn_wait). */
int slurm_command_start(const char *const *argv, pid_t *pid, struct err *err);

/* Asks accounting about these jobs (NULL-terminated), through sacct in both implementations. */
int slurm_history(const char *const *ids, struct arena *arena, struct slurm_jobs *out,
                  struct err *err);

/* Opens the implementation with Slurm's commands. ERR_ENV: sbatch is not on PATH. */
int slurm_commands_open(struct slurm_rpc **out, struct err *err);
/* Opens the implementation with libslurm. helper: path of reel-slurm. ERR_ENV: it cannot be run, or
 * refuses its libslurm. */
int slurm_helper_open(const char *helper, struct slurm_rpc **out, struct err *err);

#endif
