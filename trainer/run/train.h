/* train: one process's part of a run: open everything, step, save when asked or due, report.
 *
 * All memory, the process itself included, is planned and shown before step 0, and resident memory
 * is within 5 % of that plan. A step allocates nothing, and a checkpoint is written from the
 * buffers themselves. Nothing but the checkpoint carries state from attempt to attempt: noise,
 * levels, dropout and order are functions of (seed, draw ordinal).
 *
 * It ends when the run's last step is published and validated (TRAIN_DONE), when it was asked to
 * stop and has saved (TRAIN_STOPPED), or with an error. The ranks agree on the request to stop at
 * the step boundary, in the same exchange that sums the loss; in a validation they do so between
 * passes of the pipeline, and give it up then. An attempt that resumes where a validation is due
 * begins with it, unless the events have it. After budget.nonfinite_steps steps in a row with a
 * gradient that is not finite the state is saved and ERR_DIVERGED returned.
 *
 * Stages that follow one another under one layout are a leg. Between legs the state goes through a
 * checkpoint, which any layout loads, and everything is set up anew; the run is the same as under
 * one layout throughout. Each leg has a memory plan of its own. Where there is a limit, or the
 * device has memory of its own, all of them are looked at before the first step.
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

/* Says which steps are told in lines. The attempt's first and last step are in any case. */
enum train_lines {
    TRAIN_LINES_NONE,
    TRAIN_LINES_SECOND, /* at most one a second, for who watches */
    TRAIN_LINES_TEN,    /* and every tenth step, for a file */
};
struct train_conf {
    const struct run *run;
    const struct plan *plans; /* [run->n_stages] of each stage; all for the world's ranks */
    /* The indices that binding the run's data has read. What the first stages take is theirs, and
     * the others are let go of. NULL: none. */
    struct datasets *datasets;
    const char *run_dir;      /* events/ and ckpt/ lie below */
    int64_t attempt;          /* from 1 */
    bool trial;               /* measures only: no checkpoint, no events */
    bool resume;              /* begins with a checkpoint, or not at all */
    /* It begins at step 0 where no checkpoint can be used, though the events know that one was
     * saved. */
    bool anew;
    int64_t max_steps; /* this attempt stops after so many (trial, tests); 0: at the run's end */
    /* Says, in the run's place, when shards are compared with their checksums before training. */
    enum run_verify verify;
    struct compute_conf compute; /* poison and dtype are the trainer's own */
    /* The backend's table by which ranks exchange device memory. NULL: they do so by MPI. */
    const struct coll_ops *coll;
    /* ERR_NO when the plan is larger; 0: none. The first is for the device's memory, the second for
     * the host's. Where they are one, both hold the whole plan. */
    int64_t memory_limit_bytes, host_memory_limit_bytes;
    /* cadence.h takes these from the run's record: the mean seconds between failures, and those
     * that a save takes; 0: not known. */
    double mtbf_s, save_s;
    /* A trial ends when even the fastest of two counted steps took longer; 0: never. */
    double give_up_s;
    double *times_s; /* [TRAIN_TIMES_MAX] gets the time of each step; NULL: nobody wants them */
    bool graphs;       /* where the device has them (trainer/ops/graphs.h) */
    bool profile;      /* time by kind: in the events of steps, told at the end */
    const char *trace; /* file for the picture of the last steps; NULL: none; implies profile */
    struct comm *world;
    const volatile sig_atomic_t *stop; /* the signal that asks to save and stop; 0 until then */
    /* CLOCK_REALTIME of the first; set before *stop; may be NULL. */
    const volatile struct timespec *stop_heard;
    /* Set to what this process does: "start" "load" "step" "validate" "validate average" "save".
     * May be NULL. */
    const char *volatile *phase;
    enum train_lines lines; /* said of steps */
    /* Rank 0 is told the memory plan and checkpoints by it. May be NULL. */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};

enum train_end { TRAIN_DONE, TRAIN_STOPPED, TRAIN_LIMIT };
enum {
    TRAIN_TIMES_MAX = 4096, /* of the first so many steps */
    TRAIN_GIVE_UP_STEPS = 2 /* counted ones, before a trial gives up */
};
/* These are rank 0's. They add up to the step: comm_s is for how long communication and waiting for
 * others kept the rank from computing, wherever in the step that was; the other ones do not contain
 * it. Where devices exchange data among themselves it is NaN, not known, and in the others. */
struct train_phases { double data_s, forward_s, backward_s, comm_s, optim_s, other_s; };
struct train_report {
    enum train_end end;
    int64_t steps;              /* of this attempt */
    int64_t next_step;
    double loss, grad_norm; /* of the last step; NaN when there was none */
    int64_t n_times; /* of conf's times_s, how many are there */
    double median_step_s, min_step_s, max_step_s; /* without the first step when there are more */
    struct train_phases phases;                   /* means over the same steps */
    double tokens, model_flops; /* of the whole batch: likewise; NaN when there was no step */
    double mfu; /* model_flops in the median step's time; NaN when no peak is known */
    /* With profile, the share of a step's time that the kinds of meter.h name; the median over the
     * same steps. */
    double named_share;
    int64_t planned_bytes; /* of this rank; filled in on ERR_NO by the memory limit, too */
    int64_t process_bytes; /* of them: program, libraries, MPI, measured as the groups were open */
    /* The most syncs of a stream in a step. A device that queues idles behind each of them: without
     * messages over MPI there are two, one for losses and norm, one for the update. */
    int64_t step_syncs;
    /* The plan of the last leg asks for device_bytes and pinned_bytes, which are filled in on
     * ERR_NO and ERR_NOMEM, too. The taken ones are the most that was taken at one time, on the
     * device and pinned on the host. */
    int64_t device_bytes, pinned_bytes, taken_bytes, taken_pinned_bytes;
    int64_t peak_bytes;    /* resident; the greatest of all ranks */
    /* Part of peak_bytes: by how much MPI's shared memory grew after process_bytes was measured,
     * which no plan bounds. peak_bytes - mpi_bytes is the most over ranks of everything else. */
    int64_t mpi_bytes;
    /* A trial on GPUs fills these in with means over ranks: what two steps behind the timed ones
     * were made of, and how long the host took for one of them while they were recorded.
     * activity.steps 0: nothing was recorded; activity_refused says why, "" where that was not
     * tried. */
    struct activity_result activity;
    double activity_step_s;
    /* Of a trial on CPUs: CPU time of each class in a step behind the timed ones, of the rank that
     * computes most; 0: not measured. */
    double class_cpu_s[METER_CLASSES];
    char activity_refused[256];
    int64_t graphs, graph_launches; /* of the last leg: made, and launched */
};

/* Runs an attempt; collective over conf->world. Failures are the same on all ranks, and *err holds
 * the same sentence, unless world->broken: then only comm_abort ends the others. */
int train_run(const struct train_conf *conf, struct train_report *out, struct err *err);

#endif
