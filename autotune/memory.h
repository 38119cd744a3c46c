/* memory: predicts the bytes of one rank, by category, and the probability that they fit. Pure.
 *
 * The buffers are the list by which the trainer itself allocates (profiles/buffers), so the two
 * agree. On GPUs some of them are the device's, and the others the host's, pinned or not: there
 * messages and micro-batches wait, and the copy that is written as a checkpoint. The process
 * (program, libraries, MPI), which the trainer measures, and the trainer's tiles and loader are
 * estimated. A prior stands for all that is missed; once trials have told, the mean of measured
 * minus planned replaces it (memory_learn).
 */
#ifndef AUTOTUNE_MEMORY_H
#define AUTOTUNE_MEMORY_H

#include "profiles/buffers.h"
#include "profiles/layout.h"
#include "profiles/finetune.h"

struct memory_bytes { /* bytes of the fullest rank */
    double weights, gradients, optimizer, ema, activations, work, comm, process;
    double total; /* the sum of the eight */
    double device, host; /* of it, on GPUs; else all is the host's */
};
struct memory_spec {
    const struct model *model;
    struct seq seq;
    enum dtype dtype;
    bool ema;
    const struct finetune *finetune; /* NULL: everything is trained */
    bool moments_bf16, residual_wide;
    bool gpus;       /* ranks compute on them */
    bool ckpt_async; /* checkpoints are written in the background, on GPUs from a copy */
};
/* Predicts the bytes of the fullest rank. ERR_INPUT for a model whose buffers are not known (a
 * language model). */
int memory_predict(const struct memory_spec *spec, const struct layout *l, struct memory_bytes *out,
                   struct err *err);

struct memory_learned { /* A zeroed struct means that nothing was measured. */
    int64_t n;
    double overhead_sum;
};
void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes);
double memory_peak(const struct memory_learned *m, double planned_bytes);
/* Returns the probability that a rank with this memory plan fits limit_bytes: normal in log bytes,
 * 10 % wide before a trial, 4 % after. */
double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes);

#endif
