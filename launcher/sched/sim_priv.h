/* sim_priv: declares what the files of the simulated cluster share: its state, its events and its
 * transitions. */
#ifndef LAUNCHER_SCHED_SIM_PRIV_H
#define LAUNCHER_SCHED_SIM_PRIV_H

#include <stdint.h>

#include "launcher/sched/sim.h"

/* ---- planned events ---- */

enum sim_tick {
    TICK_READY,     /* a requeued job may start again */
    TICK_END,       /* an execution ends by itself */
    TICK_NOTICE,    /* the signal before the time limit is due */
    TICK_LIMIT,
    TICK_TERM,      /* the grace time of a preemption is over */
    TICK_KILL,
    TICK_STEP_END,
    TICK_STEP_TERM,
    TICK_STEP_KILL,
    TICK_NODE_FAIL,
    TICK_NODE_LOST, /* the controller declares lost a node that does not answer */
    TICK_NODE_BACK
};
/* Holds a planned event. Events are not removed from the heap early: one that is not due any more
 * is skipped, because its job has another execution or another time. */
struct sim_event {
    double at_s;
    int64_t order;   /* orders events of the same time */
    enum sim_tick tick;
    int64_t id, run; /* number of the job, step or node, and of its execution or failure */
};
struct sim_heap {
    struct sim_event *v;
    size_t n, cap;
};

/* ---- nodes, jobs, steps ---- */

struct sim_node {
    int cores_free, gpus_free;
    bool silent;         /* it has failed, and the controller does not know yet */
    bool down;           /* it was declared lost */
    int64_t failures;
    double down_s, booted_s; /* when it was last declared lost, and last came back; 0: never */
};

/* Says why a job was asked to stop. A later request replaces an earlier one only if its value is
 * higher. */
enum sim_stop {
    SIM_STOP_NONE,
    SIM_STOP_LIMIT,
    SIM_STOP_PREEMPT,
    SIM_STOP_REQUEUE,
    SIM_STOP_CANCEL
};

struct sim_job {
    int64_t id;
    struct sched_spec spec; /* its texts are in the cluster's arena */
    const struct sim_partition *partition;
    enum sched_state state;
    enum sim_stop stop;
    const char *reason;
    int restarts, exit_code, exit_signal;
    int64_t run;            /* number of the present execution, counted over all jobs; 0: none */
    int64_t after;          /* 0: none */
    double submitted_s, started_s, ended_s; /* 0: not yet */
    double ready_s;         /* it does not start before this time */
    double end_s, limit_s;  /* when it ends by itself; when its time limit ends it; INFINITY:
                             * never */
    double end_left_s, limit_left_s; /* remaining times while it is suspended */
    struct sim_outcome outcome;
    int *where;             /* numbers of its nodes; room for spec.nodes */
    bool *banned;           /* for each node, whether the job excludes it; NULL: it excludes none */
    bool holds;             /* it occupies cores of its nodes */
    bool stuck;             /* one of its nodes does not answer */
    bool termed;            /* it got SIGTERM, and gets SIGKILL after the kill wait */
    bool noticed;
};

struct sim;
struct sim_step {
    struct sched_step base;
    struct sim *sim;
    struct sim_step *next;
    int64_t id, job;        /* job 0: none */
    struct sched_step_spec spec; /* complete while the step starts; then only ranks */
    int cores, nodes;
    int *where;
    double end_s;
    bool stuck;
    struct sim_outcome outcome;
    struct sched_step_status status;
};

struct sim {
    struct sched base;
    struct sim_conf conf;
    struct arena arena;     /* owns texts and partitions */
    struct sched_partition *partitions;
    double now_s;
    int64_t orders, runs, calls, steps_made;
    struct sim_heap heap;
    struct sim_node *nodes;
    int nodes_up;
    struct sim_job **jobs, **queue, **active; /* all, by number; the waiting ones, in queue order;
                                               * those with an execution, including suspended
                                               * ones */
    size_t n_jobs, n_queue, n_active, cap;
    bool dirty;             /* a change may let a job start */
    bool answer_lost;       /* the answer of the present call will be lost */
    struct sim_step *steps; /* steps that have not ended */
    int64_t self;           /* the job in which the caller is; 0: none */
    int steps_cores;        /* cores of each node that steps use */
    int *room;              /* scratch: free cores and GPUs of each node during a preemption */
    struct sched_site site;
};

static inline struct sim *sim_of(struct sched *s)
{
    return (struct sim *)s;
}

/* Names what is drawn. Each kind has its own sequence of random numbers. */
enum sim_draw { SIM_DRAW_NOISE, SIM_DRAW_SILENT, SIM_DRAW_LOST, SIM_DRAW_SLOW, SIM_DRAW_NODE };
/* Returns a number in (0,1). */
double sim_draw(const struct sim *s, enum sim_draw what, int64_t i);

/* ---- time (sim_time.c) ---- */

/* Plans an event; INFINITY as at_s plans none. */
void sim_plan(struct sim *s, double at_s, enum sim_tick tick, int64_t id, int64_t run);
/* Handles all events up to this time, and sets the clock to it. */
void sim_run_until(struct sim *s, double until_s);
void sim_tell(struct sim *s, enum sim_what what, int64_t id, int detail);

/* ---- jobs (sim_job.c) ---- */

int sim_find(const struct sim *s, const char *id, struct sim_job **out, struct err *err);

void sim_job_start(struct sim *s, struct sim_job *j); /* on the nodes in j->where */
void sim_job_ask(struct sim *s, struct sim_job *j, enum sim_stop stop, const char *reason);
/* Ends an execution; node: the one that was lost with it; -1: none. */
void sim_job_end(struct sim *s, struct sim_job *j, int node);
/* Sends a signal to the execution. The test may change how it ends. */
void sim_job_hear(struct sim *s, struct sim_job *j, int signo, bool to_all);
void sim_job_suspend(struct sim *s, struct sim_job *j);
void sim_job_resume(struct sim *s, struct sim_job *j);
void sim_job_event(struct sim *s, const struct sim_event *e);

/* ---- nodes with room (sim_pass.c) ---- */

void sim_enqueue(struct sim *s, struct sim_job *j);
void sim_dequeue(struct sim *s, struct sim_job *j);
void sim_pass(struct sim *s); /* starts the jobs that fit, and preempts for the first that does
                               * not */
void sim_hold(struct sim *s, struct sim_job *j, bool takes);
int sim_cores_of(const struct sim *s, const struct sim_job *j); /* of each of its nodes */

/* ---- nodes (sim_node.c) ---- */

/* Returns the number of the node with this name; -1: there is none. */
int sim_node_of(const struct sim *s, const char *name);
int sim_nodes_start(struct sim *s, struct err *err);
void sim_node_event(struct sim *s, const struct sim_event *e);
int sim_lost_node(struct sched *s, const char *nodes, const struct sched_loss *loss,
                  char node[SCHED_ID_BYTES], struct err *err);

/* ---- steps (sim_step.c) ---- */

int sim_step_start(struct sched *s, const struct sched_step_spec *spec, struct sched_step **out,
                   struct err *err);
int sim_step_poll(struct sched_step *step, double wait_s, struct sched_step_status *out,
                  struct err *err);
int sim_step_signal(struct sched_step *step, int signo, struct err *err);
void sim_step_free(struct sched_step *step);
void sim_step_event(struct sim *s, const struct sim_event *e);
/* Ends as lost all steps on this node; or, for node -1, all steps of a job (0: those outside
 * jobs). */
void sim_steps_lose(struct sim *s, int64_t job, int node);

/* Returns the outcome that the test's callback gives, with noise on the duration. */
struct sim_outcome sim_ask_run(struct sim *s, const struct sim_exec *exec);
struct sim_outcome sim_ask_hear(struct sim *s, const struct sim_exec *exec, int signo,
                                const struct sim_outcome *now);

#endif
