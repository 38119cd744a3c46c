/* memory: predicts the bytes of one rank, by category, and the probability that they fit.
 *
 * The buffers are those of profiles/held. Under pipelines the stages differ: the first holds the
 * most micro-batches and the embedding, the last one the head. All stages are planned, and the
 * result is that of the fullest. On GPUs some buffers are the device's, and the others the host's,
 * pinned or not. The process itself (program, libraries, MPI) is estimated here; the trainer
 * measures it. A prior stands for everything that this account misses. Once trials have measured
 * peaks, the mean of measured minus planned bytes replaces it (memory_learn).
 */
#ifndef AUTOTUNE_MEMORY_H
#define AUTOTUNE_MEMORY_H

#include "profiles/held.h"

struct memory_bytes { /* bytes of the fullest rank */
    double weights, gradients, optimizer, ema, activations, work, comm, process;
    double total; /* the sum of these categories */
    double device, host; /* shares of the total on GPUs; on CPUs all is the host's */
};
/* Caches what the stages of a layout keep from step to step. It serves all layouts that differ only
 * in mbs and recomputation. A zeroed struct is an empty cache. */
struct memory_kept {
    struct layout of;
    struct buffer_state *stages;
};
void memory_kept_release(struct memory_kept *kept);
/* Predicts as memory_predict() does, with the cache `kept`, and with spec->params, which must be
 * set. */
int memory_predict_next(const struct held_spec *spec, const struct layout *l,
                        struct memory_kept *kept, struct memory_bytes *out, struct err *err);
/* Predicts the bytes of the fullest rank. ERR_INPUT for a model whose buffers are not known (a
 * language model). */
int memory_predict(const struct held_spec *spec, const struct layout *l, struct memory_bytes *out,
                   struct err *err);

struct memory_learned { /* A zeroed struct means that nothing was measured. */
    int64_t n;
    double overhead_sum;
    /* Sums over all measurements of 1, of the overhead and of its square, each divided by the
     * squared peak. */
    double weights, weighted, squares;
};
void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes);
double memory_peak(const struct memory_learned *m, double planned_bytes);
/* Returns the probability that a rank with this memory plan fits limit_bytes. The logarithm of its
 * bytes is taken to be normally distributed. The standard deviation is 0.1 before any trial; after
 * that it is learnt from how much the overheads of the measured trials differ. */
double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes);

#endif
