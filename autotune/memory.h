/* memory: bytes of one rank, by category, and the probability that they fit. Pure.
 *
 * The buffers are the list that the trainer itself allocates by (profiles/buffers), so the two agree. What is estimated: the
 * process (program, libraries, MPI), which the trainer measures, and its tiles and loader. A prior for all that is missed is replaced
 * by the mean of measured minus planned once trials have told (memory_learn).
 */
#ifndef AUTOTUNE_MEMORY_H
#define AUTOTUNE_MEMORY_H

#include "profiles/buffers.h"
#include "profiles/layout.h"
#include "profiles/tuning.h"

struct memory_bytes { /* of the fullest rank */
    double weights, gradients, optimizer, ema, activations, work, comm, process;
    double total; /* the sum of the eight */
};
struct memory_spec {
    const struct model *model;
    struct seq seq;
    enum dtype dtype;
    bool ema;
    const struct tuning *tuning; /* NULL: everything is trained */
    bool moments_bf16, residual_wide;
};
/* ERR_INPUT for a model whose buffers are not known (families other than dit). */
int memory_predict(const struct memory_spec *spec, const struct layout *l, struct memory_bytes *out, struct err *err);

struct memory_learned { /* zeroed: nothing measured */
    int64_t n;
    double overhead_sum;
};
void memory_learn(struct memory_learned *m, double planned_bytes, double peak_bytes);
double memory_peak(const struct memory_learned *m, double planned_bytes);
/* Probability that a rank with this plan fits limit_bytes: normal in log bytes, 10 % wide before a trial, 4 % after. */
double memory_fits(const struct memory_learned *m, double planned_bytes, double limit_bytes);

#endif
