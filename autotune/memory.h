/* memory: bytes of one rank, by category, and the probability that they fit. Pure.
 *
 * Activations, inputs and working memory come from the buffer list that the trainer itself allocates by (profiles/buffers);
 * weights, gradients, moments and average from the parameter list. `overhead` is what a process holds beside (program, MPI,
 * libraries): a prior, replaced by the mean of measured minus planned once trials have told (memory_learn).
 */
#ifndef AUTOTUNE_MEMORY_H
#define AUTOTUNE_MEMORY_H

#include "profiles/buffers.h"
#include "profiles/layout.h"

struct memory_bytes { /* of the fullest rank */
    double weights, gradients, optimizer, ema, activations, work, comm;
    double total; /* the sum of the seven */
};
struct memory_spec {
    const struct model *model;
    struct seq seq;
    enum dtype dtype;
    bool ema;
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
