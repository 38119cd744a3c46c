/* train: runs one process's part of a run: it opens everything, does steps, saves when asked or
 * due, and reports.
 *
 * All memory, that of the process itself included, is planned and shown before step 0, and resident
 * memory stays within 5 % of that plan. A step allocates nothing, and a checkpoint is written from
 * the buffers themselves or, in the background, from a copy that is in the plan. Only the
 * checkpoint carries state from attempt to attempt: noise, levels, dropout and order are functions
 * of (seed, draw ordinal).
 *
 * An attempt ends when the run's last step is published and validated (TRAIN_DONE), when it was
 * asked to stop and has saved (TRAIN_STOPPED), after conf.max_steps steps (TRAIN_LIMIT), or with an
 * error. The ranks agree on the request to stop at the step boundary, in the same exchange that
 * sums the loss. During a validation they agree between passes of the pipeline, and then give the
 * validation up. An attempt that resumes where a validation is due begins with it, unless the
 * events contain it. After budget.nonfinite_steps steps in a row with a gradient that is not
 * finite, the state is saved and ERR_DIVERGED is returned.
 *
 * Consecutive stages under one layout are a leg. Between legs the state goes through a checkpoint,
 * which any layout can load, and everything is set up anew; the run is the same as under one layout
 * throughout. Each leg has a memory plan of its own. If there is a limit, or the device has memory
 * of its own, all of these plans are checked before the first step.
 */
#ifndef TRAINER_RUN_TRAIN_H
#define TRAINER_RUN_TRAIN_H

#include <signal.h>

#include "profiles/plan.h"
#include "profiles/run.h"
#include "trainer/watch/meter_class.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/compute.h"
#include "trainer/watch/activity.h"

/* Ends a sentence about a run without a usable checkpoint, for those who run it by hand and for
 * those who launched it. */
#define TRAIN_ANEW "begin at step 0 (reel-train: --no-resume, reel launch: another --name)"

struct train_conf {
    const struct run *run;
    const struct plan *plans; /* [run->n_stages] of each stage; all for the world's ranks */
    /* These indices were read when the run's data was bound. The loaders of the first leg take
     * theirs, and the others are dropped. NULL: none. */
    struct datasets *datasets;
    const char *run_dir;      /* the folder that contains events/ and ckpt/ */
    int64_t attempt;          /* from 1 */
    bool trial;               /* only measure: no checkpoint, no events */
    bool resume;              /* begin from a checkpoint, or fail */
    /* Begin at step 0 if no checkpoint can be used, even if the events say that one was saved. */
    bool anew;
    int64_t max_steps; /* stop this attempt after this many steps (trial, tests); 0: no limit */
    /* Replaces the run's choice of when shards are compared with checksums before training. */
    enum run_verify verify;
    struct compute_conf compute; /* the trainer sets poison and dtype itself */
    /* Ranks exchange device memory by this table of the backend; NULL: by MPI. */
    const struct coll_ops *coll;
    /* A larger plan ends with ERR_NO; 0: no limit. The first is for device memory, the second for
     * host memory. Where these are one memory, the whole plan is compared with both. */
    int64_t memory_limit_bytes, host_memory_limit_bytes;
    /* For cadence.h, from the run's record: the mean seconds between failures, and the seconds that
     * a save takes; 0: not known. */
    double mtbf_s, save_s;
    /* A trial ends when even the fastest of two counted steps took longer; 0: never. */
    double give_up_s;
    double *times_s; /* [TRAIN_TIMES_MAX] receives the time of each step; NULL: not stored */
    bool graphs;       /* use graphs if the device has them (trainer/ops/graphs.h) */
    bool profile;      /* measure time by kind: in the events of steps, and as a table at the end */
    const char *trace; /* file for the trace of the last steps; NULL: none; implies profile */
    struct comm *world;
    const volatile sig_atomic_t *stop; /* the signal that asks to save and stop; 0 until then */
    /* This is the CLOCK_REALTIME of the first request. It is set before *stop, and may be NULL. */
    const volatile struct timespec *stop_heard;
    /* Receives what this process does: "start" "load" "step" "validate" "validate average" "save".
     * May be NULL. */
    const char *volatile *phase;
    /* A line is printed for each step whose number is a multiple of this, and for the attempt's
     * first and last; 0: for none. */
    int64_t log_interval;
    /* Is called on rank 0 with lines about the memory plan, steps and checkpoints. May be NULL. */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};

enum train_end { TRAIN_DONE, TRAIN_STOPPED, TRAIN_LIMIT };
enum {
    TRAIN_TIMES_MAX = 4096, /* steps whose times are kept, from the first on */
    TRAIN_GIVE_UP_STEPS = 2 /* counted steps before a trial gives up */
};
/* Holds the seconds of a step's phases on rank 0, which add up to the step. comm_s is the time in
 * which communication and waiting for others kept the rank from computing, in any part of the step;
 * the other phases do not contain it. Where devices exchange data among themselves, comm_s is not
 * known (NaN), and its time is in the other phases. */
struct train_phases { double data_s, forward_s, backward_s, comm_s, optim_s, other_s; };
struct train_report {
    enum train_end end;
    int64_t steps;              /* of this attempt */
    int64_t next_step;
    double loss, grad_norm; /* of the last step; NaN if there was none */
    int64_t n_times; /* how many times are in conf's times_s */
    double median_step_s, min_step_s, max_step_s; /* without the first step, if there are more */
    struct train_phases phases;                   /* means over the same steps */
    double tokens, model_flops; /* of the global batch, means over these steps; NaN if no step */
    double mfu; /* model_flops in the median step's time; NaN when no peak is known */
    /* With profile, this is the share of a step's time that the kinds of meter.h cover, as the
     * median over the same steps. */
    double named_share;
    int64_t planned_bytes; /* of this rank; also set on ERR_NO by the memory limit */
    /* This part of planned_bytes is program, libraries and MPI, measured with the groups open. */
    int64_t process_bytes;
    /* This is the greatest number of stream syncs in a step. A device that queues is idle after
     * each. Without messages over MPI there are two: for losses and norm, and for the update. */
    int64_t step_syncs;
    /* device_bytes and pinned_bytes are those of the last leg's plan; they are also set on ERR_NO
     * and ERR_NOMEM. The taken_ ones are the most that was allocated at one time, on the device and
     * pinned on the host. */
    int64_t device_bytes, pinned_bytes, taken_bytes, taken_pinned_bytes;
    /* These bytes of the device's memory were in use after the last step, by any process: allocated
     * ones, and those that the device itself and its libraries hold. 0: the memory is the host's,
     * or it is not known. */
    int64_t used_bytes;
    int64_t peak_bytes;    /* resident; the greatest of all ranks */
    /* This part of peak_bytes is the growth of MPI's shared memory after process_bytes was
     * measured, which no plan bounds. peak_bytes - mpi_bytes is the most over ranks of the rest. */
    int64_t mpi_bytes;
    /* A trial on GPUs sets these, as means over ranks: how the device spent two steps after the
     * timed ones, and how long the host took for one of them while they were recorded. If
     * activity.steps is 0, nothing was recorded, and activity_refused says why, or is "" if it was
     * not tried. */
    struct activity_result activity;
    double activity_step_s;
    /* A trial on CPUs sets the CPU time of each class in a step after the timed ones, on the rank
     * where it is longest; 0: not measured. */
    double class_cpu_s[METER_CLASSES];
    char activity_refused[256];
    int64_t graphs, graph_launches; /* number of graphs made in the last leg, and of launches */
};

/* Runs an attempt; all ranks of conf->world call it. A failure is the same on all ranks, with the
 * same sentence in *err, unless world->broken: then only comm_abort ends the other ranks. */
int train_run(const struct train_conf *conf, struct train_report *out, struct err *err);

#endif
