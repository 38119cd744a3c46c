/* host: makes what a probe measured of the machine here a machine of price.h, and prices layouts of
 * reel's own trainer on it.
 *
 * A CPU with MPI differs from a cluster of GPUs in numbers alone: measured rates stand for peaks,
 * ranks may share cores, and messages, which go round rings, move only inside MPI's calls, so that
 * nothing hides them. Ranks that share cores have other links than those with a core each.
 *
 *     struct host host;                          // large: it belongs into static or heap memory
 *     host_open(&host, &spec, err);              // once for a model; spec.stack, .weights are its
 *     host_set(&host, &speed, cores, err);       // when the probe's rates are known
 *     host_price(&host, &layout, &step, err);
 */
#ifndef AUTOTUNE_HOST_H
#define AUTOTUNE_HOST_H

#include "autotune/price.h"

struct host {
    struct work_spec spec; /* borrows its model */
    struct stack stack;
    struct work_weights weights;
    struct speed speed;
    double cores;                      /* which all ranks share */
    struct cluster cluster[2];         /* links of ranks with a core each, and of others */
    struct price_machine machine[2];
    struct work work;                  /* of the layout that was priced last */
    struct price price;
};
/* Takes the spec but for stack and weights, which it fills. The host must not move afterwards.
 * ERR_NOMEM. */
int host_open(struct host *h, const struct work_spec *spec, struct err *err);
/* Takes the probe's rates. ERR_INPUT when one is not positive and finite. */
int host_set(struct host *h, const struct speed *speed, int64_t cores, struct err *err);
/* Builds a layout's account and prices its parts, which all layouts of its grid and micro-batch
 * size share. They stay where they are, as the host does. */
void host_parts(const struct host *h, const struct layout *l, struct work *work,
                struct price *price);
/* Prices a layout by its schedule's replay. ERR_NOMEM. */
int host_price(struct host *h, const struct layout *l, struct price_step *out, struct err *err);
/* Writes the CPU time of each class that a trial measures, of the busiest rank of a step that was
 * priced; 0: none. It has what is recomputed, and what ranks with a core each lose to one another.
 */
void host_classes(const struct host *h, const struct layout *l, const struct price_step *step,
                  double class_s[PRICE_TERMS]);

#endif
