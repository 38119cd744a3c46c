/* sim: a cluster that is simulated, behind the interface of launcher/sched: thousands of nodes, a
 * clock that jumps from event to event, and troubles that are drawn by a seed. It is for tests: no
 * command offers it.
 *
 * The idea: nothing runs. When an execution of a job or a step starts, the test is asked how long
 * it will last and how it will end; when it gets a signal, the test may change its mind. The same
 * conf and the same calls give the same events, bit for bit: nothing depends on the machine's clock
 * or on addresses. Time passes in sched_sim_advance, in sched_step_poll (which waits) and while the
 * controller is slow, nowhere else; between two events it jumps.
 *
 * Jobs wait in one queue: by the partition's priority, then the job's, then age. One that does not
 * fit yet lets nobody pass, unless too few nodes are up for it at all. A job of a partition of
 * higher priority takes the place of jobs of lower ones, as their partition's mode says. All
 * partitions have all nodes; a node is shared by as many jobs as its cores allow.
 *
 * A node fails silently: what runs there stops, and nobody is told until node_timeout_s later,
 * when the controller gives it up, and its jobs are requeued or end as lost. It comes back empty.
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

/* ---- what the test says ---- */

/* Describes an execution of a job, or a step. The callbacks borrow it. Of a step, argv, env, cwd
 * and log_path are there when it starts, and NULL later. */
struct sim_exec {
    const char *job; /* id; "" for a step outside a job */
    const char *token, *name;
    const char *const *argv, *const *env;
    const char *cwd, *log_path; /* NULL: a step without one */
    bool is_step;
    bool to_all;          /* in `hear`: the signal is for all its processes, not for the first */
    int ranks;            /* of a step; 0 for a job */
    int restarts;
    const int *where;     /* numbers of its nodes, ascending */
    int nodes, cores;     /* cores of each */
    double now_s;         /* UTC Unix seconds of the simulation */
};
struct sim_outcome {
    double ends_in_s;     /* from now; INFINITY: it hangs */
    int exit_code;        /* -1: killed by exit_signal */
    int exit_signal;
};

struct sim_partition {
    const char *name;
    int tier;             /* a higher one takes the place of lower ones */
    enum sched_preempt preempt; /* what happens to its jobs then */
    double grace_s, max_time_s;
};

/* Says how often the controller fails, and how; each call draws for itself. */
struct sim_faults {
    double silent;        /* share of calls that do nothing: ERR_TEMP after silent_s */
    double silent_s;
    double lost;          /* share of calls that are done, and the answer is lost: ERR_TEMP */
    double slow_s;        /* mean time of an answer; 0: at once */
};

/* Lists the happenings that are reported to the test. Their texts are for people. */
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
    int64_t job;          /* number of the job; of the node where one fails, is lost, is back */
    int detail;           /* SIM_SIGNALLED: the signal; SIM_ENDED: the state */
};

struct sim_conf {
    uint64_t seed;
    int nodes, cores_per_node, gpus_per_node; /* nodes are called n0, n1, ... */
    const struct sim_partition *partitions;   /* borrowed; the first is the default one */
    size_t n_partitions;                      /* 0: one that is called "sim" */
    double kill_wait_s, requeue_delay_s, node_timeout_s;
    double noise;         /* sd of the logarithm of every duration */
    double node_mean_s;   /* mean time to the failure of a node; 0: none fails by itself */
    double repair_s;      /* from the failure of a node until it is back */
    struct sim_faults faults;
    double start_s;       /* UTC Unix seconds of the beginning */
    /* Decides how long an execution that starts will last and how it ends; *out comes as one that
     * ends at once with 0. It may not call the scheduler, nor may the two below. NULL: all end at
     * once. */
    void (*run)(void *ctx, const struct sim_exec *exec, struct sim_outcome *out);
    /* Changes how an execution that got this signal will end; *out comes as planned so far. For
     * SIGKILL, SIGSTOP and SIGCONT a change does not count. NULL: SIGTERM ends all, other signals
     * nothing. */
    void (*hear)(void *ctx, const struct sim_exec *exec, int signo, struct sim_outcome *out);
    void (*tell)(void *ctx, const struct sim_told *told); /* NULL: nobody listens */
    void *ctx;
};
#define SIM_CONF_INIT                                                                            \
    {                                                                                            \
        .nodes = 1, .cores_per_node = 1, .kill_wait_s = 30, .node_timeout_s = 300,               \
        .repair_s = 3600, .start_s = 1.8e9                                                       \
    }

/* Opens a simulated cluster, which ends with its handle. ERR_INPUT for a conf that cannot be. */
int sched_sim_open(const struct sim_conf *conf, struct sched **out, struct err *err);

/* ---- the clock ---- */

double sched_sim_now(const struct sched *s); /* UTC Unix seconds */
/* Lets this much time pass, with all events in it. */
void sched_sim_advance(struct sched *s, double seconds);
/* Jumps to the next event. Returns false when nothing is to come; where nodes fail by themselves
 * something always is. */
bool sched_sim_step(struct sched *s);

/* ---- what the test does to the cluster ---- */

void sched_sim_node_fail(struct sched *s, int node);
void sched_sim_node_back(struct sched *s, int node);
/* Ends the execution of a job now, with this exit. No effect if it does not run. */
void sched_sim_end(struct sched *s, const char *id, int exit_code, int exit_signal);
/* Puts the caller inside this job, for steps; NULL: outside again, where steps have the whole
 * cluster. ERR_STATE when the job does not run. */
int sched_sim_enter(struct sched *s, const char *id, struct err *err);

/* ---- a cluster with real programs, for tests that need processes ---- */

/* Makes the state folder and listens in it; *fd is the caller's to close. */
int sched_sim_listen(const char *home, int *fd, struct err *err);
/* Serves a cluster whose jobs are processes of this machine and whose clock is the machine's, until
 * *stop is not 0; run, hear and ctx of the conf do not count. Whoever calls sched_open("sim", home)
 * meanwhile, in any process, asks this server. It forks: call it from a process of its own. */
int sched_sim_serve(const struct sim_conf *conf, const char *home, int fd,
                    const volatile sig_atomic_t *stop, struct err *err);
/* Opens the cluster that is served at this state folder: sched_open("sim", ...). */
int sched_sim_attach(const char *home, struct sched **out, struct err *err);

#endif
