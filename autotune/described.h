/* described: predicts the layouts of a search for a cluster that is described (`reel.cluster/1`)
 * instead of probed. It implements target.h.
 *
 * The candidates are the layouts that the planner predicts to be the fastest, among those that are
 * more likely to fit than not in what a rank may hold, and the caller's own. The space is never
 * held in memory as a whole. A trial may be smaller than its layout: it keeps tp, cp and pp, and
 * has scale_down replicas with proportionally fewer samples, so that each rank has the same
 * micro-batches. The time that the other replicas would add is the difference of two predictions.
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
    const struct model *model; /* borrowed, like all pointers here */
    struct seq seq;            /* tokens of a sample */
    int64_t gbs;
    enum dtype dtype;
    bool ema, residual_wide, moments_bf16; /* as in struct plan_ask */
    const int64_t *ranks;
    size_t n_ranks;
    int64_t memory_bytes;      /* what all ranks together may hold; 0: each what its device has */
    int64_t scale_down;        /* replicas of a trial; 0: those of its layout */
    /* the adapter of the trainer that must be able to run the layouts; NULL: reel's own trainer */
    const struct adapter *adapter;
};
/* Writes what names the same cluster from any folder: a name or a path, with its ":NODES" where it
 * has them. A path becomes absolute. ERR_INPUT: there is no such file, or no room for its path. */
int described_place(const char *cluster, char *out, size_t size, struct err *err);
struct described;
/* Returns a new struct described, or NULL. It checks the cluster, the stack, and that each number
 * of ranks divides a node or is a multiple of it. */
struct described *described_new(const struct described_spec *spec, struct err *err);
void described_free(struct described *d); /* NULL is fine */
struct target described_target(struct described *d);
const struct cluster *described_cluster(const struct described *d); /* borrowed */
const char *described_constants(const struct described *d); /* name of the set, borrowed */
/* Appends the content of everything besides the model on which predictions depend: cluster, stack
 * and constants. File names do not matter. */
void described_key(const struct described *d, struct str *out);
double described_device_bytes(const struct described *d); /* what a rank's device can hold */

/* Writes the layout that a trial of *l runs, and returns the samples of its step; 0: replicas,
 * samples or shard groups cannot be reduced to scale_down replicas. A trial runs *l itself if
 * scale_down is 0 or *l has no more replicas than that. */
int64_t described_trial(const struct layout *l, int64_t gbs, int64_t scale_down,
                        struct layout *out);

#endif
