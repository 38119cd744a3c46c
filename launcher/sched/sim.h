/* sim: simulates a cluster behind the interface of sched.h: thousands of nodes, a clock that jumps
 * from event to event, and faults that are drawn from a seed. It is for tests: no command offers
 * it.
 *
 * In a cluster of sched_sim_open no program runs (sched_sim_serve below runs programs, by the
 * machine's clock). When an execution of a job or a step starts, a callback of the test decides how
 * long it will last and how it will end; when it gets a signal, another callback may change that.
 * The same conf and the same calls give exactly the same events: nothing depends on the machine's
 * clock or on addresses. Time passes only in sched_sim_advance and sched_sim_step, in
 * sched_step_poll (which waits) and while the controller is slow; it jumps from event to event.
 *
 * Jobs wait in one queue, ordered by the partition's priority, then the job's, then age. A job that
 * does not fit yet blocks those behind it, unless too few nodes are up for it at all. A job in a
 * partition of higher priority preempts jobs of lower ones in their partition's mode. All
 * partitions have all nodes; as many jobs share a node as its cores and GPUs allow.
 *
 * A node fails silently: its processes stop, and nothing is reported until node_timeout_s later,
 * when the controller declares the node lost, and its jobs are requeued or end as lost. It comes
 * back empty.
 *
 *     struct sim_conf conf = SIM_CONF_INIT;
 *     conf.nodes = 4096; conf.run = run_of; conf.ctx = &mine;
 *     sched_sim_open(&conf, &s, err);
 *     sched_submit(s, &spec, id, err);
 *     while (sched_sim_step(s))
 *         ... sched_poll(s, NULL, &jobs, err) ...
 *     sched_close(s);
 */
#ifndef LAUNCHER_SCHED_SIM_H
#define LAUNCHER_SCHED_SIM_H

#include <signal.h>
#include <stdint.h>

#include "launcher/sched/sched.h"

/* ---- what the test decides ---- */

/* Describes an execution of a job, or a step. The callbacks borrow it. argv, env, cwd and log_path
 * of a step are valid at its start, and NULL later. */
struct sim_exec {
    const char *job; /* id; "" for a step outside a job */
    const char *token, *name;
    const char *const *argv, *const *env;
    const char *cwd, *log_path; /* NULL: a step without them */
    bool is_step;
    bool to_all; /* in `hear`: the signal goes to all its processes and not only to the first */
    int ranks;            /* of a step; 0 for a job */
    int restarts;
    const int *where;     /* its nodes' numbers, ascending */
    int nodes, cores;     /* cores: of each node */
    double now_s;         /* UTC Unix seconds of the simulation */
};
struct sim_outcome {
    double ends_in_s;     /* from now; INFINITY: never */
    int exit_code;        /* -1: killed by exit_signal */
    int exit_signal;
};

struct sim_partition {
    const char *name;
    int tier;             /* jobs of a higher tier preempt those of a lower one */
    enum sched_preempt preempt; /* what happens to this partition's jobs when they are preempted */
    double grace_s, max_time_s;
};

/* Says how often and how the controller fails; each call draws anew. */
struct sim_faults {
    double silent;        /* share of calls that have no effect: ERR_TEMP after silent_s */
    double silent_s;
    double lost; /* share of calls that are carried out and whose answer is lost: ERR_TEMP */
    double slow_s;        /* mean time until the answer; 0: at once */
};

/* Lists the kinds of events that are reported to the test, with texts for people. */
#define SIM_WHAT_LIST(X)                                                                         \
    X(SIM_SUBMITTED, "submitted") X(SIM_STARTED, "started") X(SIM_SIGNALLED, "signalled")        \
    X(SIM_KILLED, "killed") X(SIM_ENDED, "ended") X(SIM_REQUEUED, "requeued")                    \
    X(SIM_SUSPENDED, "suspended") X(SIM_RESUMED, "resumed") X(SIM_NODE_FAILED, "node failed")    \
    X(SIM_NODE_LOST, "node lost") X(SIM_NODE_BACK, "node back")
enum sim_what {
#define SIM_WHAT_ENUM(id, text) id,
    SIM_WHAT_LIST(SIM_WHAT_ENUM)
#undef SIM_WHAT_ENUM
};
struct sim_told {
    double at_s;          /* UTC Unix seconds */
    enum sim_what what;
    int64_t job;          /* number of the job, or of the node for the SIM_NODE_* events */
    int detail;           /* SIM_SIGNALLED: the signal; SIM_ENDED: the state */
};

struct sim_conf {
    uint64_t seed;
    int nodes, cores_per_node, gpus_per_node; /* nodes are called n0, n1, ... */
    const struct sim_partition *partitions;   /* borrowed; the first is the default partition */
    size_t n_partitions;                      /* 0: one partition that is called "sim" */
    double kill_wait_s, requeue_delay_s, node_timeout_s;
    double noise;         /* standard deviation of the logarithm of every duration */
    double node_mean_s;   /* mean time to failure of a node; 0: nodes fail only on request */
    double repair_s;      /* from a node's failure until it is back */
    struct sim_faults faults;
    double start_s;       /* start of the simulation, UTC Unix seconds */
    /* Decides how long an execution that starts will last and how it ends; *out is set to an end at
     * once with exit code 0. It may not call the scheduler, nor may the two below. NULL: all end at
     * once. */
    void (*run)(void *ctx, const struct sim_exec *exec, struct sim_outcome *out);
    /* Changes how an execution that got this signal will end; *out has the present plan. Changes
     * for SIGKILL, SIGSTOP and SIGCONT are ignored. NULL: SIGTERM ends the execution, other signals
     * have no effect. */
    void (*hear)(void *ctx, const struct sim_exec *exec, int signo, struct sim_outcome *out);
    void (*tell)(void *ctx, const struct sim_told *told); /* NULL: events are not reported */
    void *ctx;
};
#define SIM_CONF_INIT                                                                            \
    {                                                                                            \
        .nodes = 1, .cores_per_node = 1, .kill_wait_s = 30, .node_timeout_s = 300,               \
        .repair_s = 3600, .start_s = 1.8e9                                                       \
    }

/* Opens a simulated cluster, which ends when the handle is closed. ERR_INPUT: an invalid conf. */
int sched_sim_open(const struct sim_conf *conf, struct sched **out, struct err *err);

/* ---- the clock ---- */

double sched_sim_now(const struct sched *s); /* UTC Unix seconds */
/* Lets this much time pass, and handles all events in it. */
void sched_sim_advance(struct sched *s, double seconds);
/* Jumps to the next event. Returns false if no event is planned; if nodes fail by themselves one
 * always is. */
bool sched_sim_step(struct sched *s);

/* ---- what the test does to the cluster ---- */

void sched_sim_node_fail(struct sched *s, int node);
void sched_sim_node_back(struct sched *s, int node);
/* Ends the present execution of a job now, with this exit status. Has no effect if the job does not
 * run. */
void sched_sim_end(struct sched *s, const char *id, int exit_code, int exit_signal);
/* Makes the caller a process of this job, for steps; NULL: of no job, so that steps have the whole
 * cluster. ERR_STATE: the job does not run. */
int sched_sim_enter(struct sched *s, const char *id, struct err *err);

/* ---- a cluster with real programs, for tests that need processes ---- */

/* Creates the state folder and listens on a socket in it; the caller closes *fd. */
int sched_sim_listen(const char *home, int *fd, struct err *err);
/* Serves a cluster whose jobs are processes of this machine and whose clock is the machine's, until
 * *stop is not 0; run, hear and ctx of the conf are ignored. A sched_open("sim", home) in any
 * process then uses this server. It forks: call it in a process of its own. */
int sched_sim_serve(const struct sim_conf *conf, const char *home, int fd,
                    const volatile sig_atomic_t *stop, struct err *err);
/* Opens the cluster that is served for this state folder, for sched_open("sim", ...). */
int sched_sim_attach(const char *home, struct sched **out, struct err *err);

#endif
