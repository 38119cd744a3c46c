/* trial: measures one layout for a few steps of training, which run as one job step of the
 * allocation.
 *
 * A trial has its own folder with run.json, plan.json, log and (written by the trainer) trial.json.
 * It stops early when each of its steps was slower than give_up_s; that is a measurement too, of
 * fewer steps. The trainer gives a sign of life when it is ready and after each step: it appends a
 * byte to the folder's file `pulse`. A trial without one for too long counts as hanging, and is
 * ended. The end of a trial is one of the states of search.h. A killed process counts as out of
 * memory only if the kernel says so, or a line of the log does (the scheduler's, our trainer's, a
 * library's).
 *
 *     struct trial_conf conf = {.sched = sched, .bin_dir = bin_dir, .dir = dir, .steps = 6,
 *                               .start_s = 120, .quiet_s = 30, .blas = "own"};
 *     trial_run(&conf, &run, &plan, &result, err);    // <0: it could not run, or *stop was set
 */
#ifndef AUTOTUNE_TRIAL_H
#define AUTOTUNE_TRIAL_H

#include <signal.h>

#include "autotune/oom.h"
#include "autotune/search.h"
#include "launcher/sched/sched.h"
#include "profiles/kernels.h"
#include "profiles/plan.h"
#include "profiles/run.h"

struct trial_other;
struct trial_conf {
    struct sched *sched;
    const char *bin_dir, *dir; /* the trial makes dir */
    int64_t steps;             /* 2 or more: the first is not counted */
    double give_up_s;          /* 0: measure all steps */
    /* A silence of this many seconds counts as a hang: before the first sign of life, and after
     * it. */
    double start_s, quiet_s;
    const char *kernel_root;   /* put before paths of the kernel's files (oom.h); NULL: "" */
    int64_t limit_bytes;       /* of a rank; 0: none */
    int64_t cores;             /* of the allocation, 0: all */
    const char *exclude;       /* nodes to avoid, "n1,n3"; NULL: none */
    const char *blas;          /* "own", "openblas" */
    const volatile sig_atomic_t *stop; /* not 0: end the trial, ERR_TEMP; may be NULL */
    /* Another trainer (trial_other.h); NULL: ours. `run` may be NULL only with another trainer. */
    const struct trial_other *other;
};
struct trial_result {
    enum trial_state state;
    /* One line; "" when ok, all steps measured, and nothing in the log left out. */
    char cause[256];
    char evidence[OOM_EVIDENCE_BYTES]; /* the line that says that memory was short; "" */
    char node[SCHED_ID_BYTES]; /* the node that was lost; "": none */
    /* Seconds of the median step and of the fastest; tokens and FLOPs of one step. mfu is NaN when
     * the peak is unknown. */
    double step_s, min_step_s, tokens, model_flops, mfu;
    int64_t peak_bytes, planned_bytes, steps;
    /* The parts of a step, from two further steps recorded on GPUs: seconds, means over ranks
     * (profiles/timeline.h). recorded_step_s is the time of a recorded step; 0: none was
     * recorded. */
    double recorded_step_s, class_s[KERNEL_CLASSES], idle_s, exposed_s, hidden_s, hfu;
    int64_t dropped;
    /* CPU seconds of each class in a step, by price's terms; 0: not measured. */
    double class_cpu_s[PRICE_TERMS];
};
int trial_run(const struct trial_conf *conf, const struct run *run, const struct plan *plan,
              struct trial_result *out, struct err *err);
/* Holds how a trial's job step ended. */
struct trial_end {
    struct sched_step_status step;
    bool slow;       /* it was ended because its steps were too slow */
    double silent_s; /* it was ended after this long without a sign of life; else 0 */
    /* The line that says that the kernel killed processes for memory meanwhile, "" if it did not;
     * and whether that counts our cgroup alone. */
    char oom_evidence[OOM_EVIDENCE_BYTES];
    bool oom_own;
};
/* Says whether a line of a log reports a problem after which the program continues: a warning, a
 * retry, a fallback. */
bool trial_goes_on(const char *line);
/* Classifies a trial by how it ended and the end of its log. Writes the cause, and the line that
 * says that memory was short. The function is pure. */
enum trial_state trial_classify(const struct trial_end *end, const char *log_tail, char cause[256],
                                char evidence[OOM_EVIDENCE_BYTES]);

#endif
