/* target: stands for the machine that a search predicts for. It lists the candidate layouts and
 * predicts each. There are two kinds: a cluster that is described (described.h), and this machine,
 * which is probed (host_space.h). Neither holds the whole space of layouts in memory.
 */
#ifndef AUTOTUNE_TARGET_H
#define AUTOTUNE_TARGET_H

#include "autotune/price.h"
#include "profiles/space.h"

struct target_item {
    struct price_bill bill;
    struct price_bill trial_bill;    /* of what a trial runs, which may be smaller */
    double class_s[PRICE_TERMS];     /* of what a trial runs, as in struct price_step */
    double bytes;                    /* of the trial's fullest rank */
};
struct target_ops {
    /* Lists the candidates: the fastest layouts for each number of ranks, and those of `always`
     * that are legal on the target. */
    int (*list)(const void *target, const struct layout *always, size_t n, struct space *out,
                struct err *err);
    int (*predict)(void *target, const struct layout *l, struct target_item *out, struct err *err);
};
struct target { const struct target_ops *ops; void *of; /* borrowed */ };

static inline int target_list(const struct target *t, const struct layout *always, size_t n,
                              struct space *out, struct err *err)
{ return t->ops->list(t->of, always, n, out, err); }
static inline int target_predict(const struct target *t, const struct layout *l,
                                 struct target_item *out, struct err *err)
{ return t->ops->predict(t->of, l, out, err); }

#endif
