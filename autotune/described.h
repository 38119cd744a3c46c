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
 *     struct target t = described_target(d);     // target.h lists and predicts
 *     described_free(d);
 *
 * Errors: those of planner.h.
 */
#ifndef AUTOTUNE_DESCRIBED_H
#define AUTOTUNE_DESCRIBED_H

#include "autotune/planner.h"
#include "autotune/target.h"

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
/* Returns a new one, or NULL: checks the cluster, the stack and that nodes divide the ranks. */
struct described *described_new(const struct described_spec *spec, struct err *err);
void described_free(struct described *d); /* NULL is fine */
struct target described_target(struct described *d);
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
