/* described: predicts the layouts of a search for a cluster that is described (`reel.cluster/1`)
 * instead of probed, in the search's terms.
 *
 * What is looked at are the layouts that the planner has for the fastest, of those that more likely
 * fit than not, and the caller's own; no array over the space exists. Trials may be smaller than
 * what is looked for: with scale_down they keep tp, cp and pp of a layout, have that many replicas
 * and as few samples, so that each rank has the same micro-batches. What the other replicas add is
 * the difference of two predictions.
 *
 *     struct described *d = described_new(&spec, err);
 *     described_space(d, always, n, &space, err);       // space_release() as any other
 *     described_predict(d, &space.items[i], &item, err);
 *     described_free(d);
 *
 * Errors: those of planner.h.
 */
#ifndef AUTOTUNE_DESCRIBED_H
#define AUTOTUNE_DESCRIBED_H

#include "autotune/planner.h"
#include "profiles/space.h"

struct described_spec {
    const char *cluster, *stack;
    const struct model *model; /* borrowed, as the ranks */
    struct seq seq;            /* tokens of a sample */
    int64_t gbs;
    enum dtype dtype;
    const int64_t *ranks;
    size_t n_ranks;
    int64_t scale_down;        /* replicas of a trial; 0: those of its layout */
    const struct adapter *adapter; /* of the trainer that must be able to run it; NULL: ours */
};
struct described;
struct described_item {
    double terms[PRICE_TERMS];
    double trial_terms[PRICE_TERMS]; /* of what a trial runs: the same without scale_down */
    double class_s[PRICE_TERMS];     /* price_classes() of what a trial runs */
    double bytes;                   /* of a rank of the trial, the fullest one */
};
/* Returns a new one, or NULL: checks the cluster, the stack and that nodes divide the ranks. */
struct described *described_new(const struct described_spec *spec, struct err *err);
void described_free(struct described *d); /* NULL is fine */
/* Lists the fastest layouts for each number of ranks, and before them those of `always` that are
 * legal. */
int described_space(const struct described *d, const struct layout *always, size_t n,
                    struct space *out, struct err *err);
int described_predict(const struct described *d, const struct layout *l, struct described_item *out,
                      struct err *err);
const struct cluster *described_cluster(const struct described *d); /* borrowed */
const char *described_constants(const struct described *d);            /* their name, borrowed */
/* Adds all that predictions rest on beside the model: cluster, stack and constants as they were
 * read, whatever the files are called. */
void described_key(const struct described *d, struct str *out);
double described_limit_bytes(const struct described *d);               /* of a rank */

/* Writes what a trial of the layout runs, and returns its samples of a step; 0: replicas or samples
 * cannot be divided so. scale_down 0: the layout itself. */
int64_t described_trial(const struct layout *l, int64_t gbs, int64_t scale_down,
                        struct layout *out);

#endif
