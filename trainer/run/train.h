/* train: one process's part of a run: open everything, step, save when asked or due, report.
 *
 * All memory is planned and shown before step 0, the process itself included, and resident memory is within 5 % of that plan;
 * a step allocates nothing, a checkpoint is written from the buffers themselves. Nothing but the checkpoint carries state from
 * attempt to attempt: noise, levels, dropout and order are functions of (seed, draw ordinal).
 *
 * How it ends: the run's last step published and validated (TRAIN_DONE), asked to stop and saved (TRAIN_STOPPED), or an error. The request
 * to stop is agreed between ranks at the step boundary, in the same exchange that sums the loss; in a validation between passes of the
 * pipeline: it is given up then. An attempt that resumes where a validation is due begins with it, unless the events have it. After
 * budget.nonfinite_steps steps in a row with a gradient that is not finite the state is saved and ERR_DIVERGED returned.
 *
 * Stages that follow one another under one layout are a leg. Between legs the state goes through a checkpoint, which any layout
 * loads, and everything is set up anew; the run is the same as under one layout throughout.
 */
#ifndef TRAINER_RUN_TRAIN_H
#define TRAINER_RUN_TRAIN_H

#include <signal.h>

#include "profiles/plan.h"
#include "profiles/run.h"
#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"

enum train_lines {
    TRAIN_LINES_NONE,
    TRAIN_LINES_SECOND, /* at most one a second, for who watches */
    TRAIN_LINES_TEN,    /* of every tenth step, for a file */
}; /* of the attempt's first and last step in any case */
struct train_conf {
    const struct run *run;
    const struct plan *plans; /* [run->n_stages] of each stage; all for the world's ranks */
    const char *run_dir;     /* events/ and ckpt/ lie below */
    int64_t attempt;         /* from 1 */
    bool trial;              /* measure only: no checkpoint, no events */
    bool resume;             /* begin with a checkpoint, or not at all */
    bool anew;               /* begin at step 0 where no checkpoint can be used, though the events know that one was saved */
    int64_t max_steps;       /* stop after so many steps of this attempt (trial, tests); 0: the run's end */
    enum run_verify verify;  /* in the run's place: when shards are compared with their checksums before training */
    enum ops_blas blas;
    int64_t memory_limit_bytes; /* ERR_NO when the plan is larger; 0: none */
    double mtbf_s, save_s;   /* between failures of the run, and of its saves, as its record has them; 0: none is known. For cadence.h */
    double give_up_s;        /* trial: end when even the fastest of two counted steps took longer; 0: never */
    bool profile;            /* time by kind: in the events of steps, told at the end */
    const char *trace;       /* where the picture of the run's last steps goes; NULL: none; implies profile */
    struct comm *world;
    const volatile sig_atomic_t *stop;         /* the signal that asks to save and stop; 0 until then */
    const volatile struct timespec *stop_heard; /* CLOCK_REALTIME of the first; set before *stop; may be NULL */
    const char *volatile *phase;                /* set to what this process does: "start" "load" "step" "validate" "validate average" "save"; may be NULL */
    enum train_lines lines;  /* said of steps */
    void (*say)(void *ctx, const char *line); /* rank 0: the memory plan, checkpoints; may be NULL */
    void *say_ctx;
};

enum train_end { TRAIN_DONE, TRAIN_STOPPED, TRAIN_LIMIT };
enum { TRAIN_TIMES_MAX = 4096, TRAIN_GIVE_UP_STEPS = 2 /* counted ones, before a trial gives up */ };
/* Rank 0's. They add up to the step: comm_s is what communication and waiting for others kept the rank from computing, wherever in the
 * step that was; the other ones do not contain it. */
struct train_phases { double data_s, forward_s, backward_s, comm_s, optim_s, other_s; };
struct train_report {
    enum train_end end;
    int64_t steps;              /* of this attempt */
    int64_t next_step;
    double loss, grad_norm;     /* of the last step; NaN when there was none */
    double median_step_s, min_step_s, max_step_s; /* without the first step when there are more */
    struct train_phases phases;                   /* means over the same steps */
    double tokens, model_flops; /* of the whole batch: likewise; NaN when there was no step */
    double mfu;                 /* model_flops in the median step's time; NaN when no peak is known */
    double named_share;         /* with profile: of a step's time what the kinds of meter.h name; median over the same steps */
    int64_t planned_bytes;  /* of this rank; filled in on ERR_NO by the memory limit, too */
    int64_t process_bytes;  /* of them: program, libraries, MPI, measured when the groups were open */
    int64_t taken_bytes;    /* of them from the device, at most at one time */
    int64_t peak_bytes;     /* resident, most over ranks */
    int64_t segments_bytes; /* of them: growth of MPI's segments of messages since the process was measured, which no plan bounds;
                             * peak_bytes less these: most over ranks of what is resident beside it */
};

/* Collective over conf->world. Failures are the same on all ranks, and *err holds the same sentence, unless world->broken: then
 * only comm_abort ends the others. */
int train_run(const struct train_conf *conf, struct train_report *out, struct err *err);

#endif
