/* host: describes this machine to price.h by the rates that a probe measured, and prices layouts of
 * reel's own trainer on it.
 *
 * A CPU with MPI is described by the same struct as a cluster of GPUs. Measured rates take the
 * place of peaks, and ranks may share cores. Messages go round rings and move only inside MPI's
 * calls, so that no computation hides them. Ranks that share cores have other links than those with
 * a core each.
 *
 *     struct host host;                          // large: keep it in static or heap memory
 *     host_open(&host, &spec, err);              // once for a model; it sets stack and weights
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
    double cores;                      /* shared by all ranks */
    struct cluster cluster[2];         /* [0]: links of ranks with a core each; [1]: of others */
    struct price_machine machine[2];
    struct work work;                  /* that of the layout that was priced last */
    struct price price;
};
/* Copies the spec, and fills its stack and weights itself. The host must not move afterwards.
 * Returns ERR_NOMEM if memory runs out. */
int host_open(struct host *h, const struct work_spec *spec, struct err *err);
/* Copies the probe's rates. Returns ERR_INPUT if one is outside its limits (profiles/speed.c). */
int host_set(struct host *h, const struct speed *speed, int64_t cores, struct err *err);
/* Builds a layout's work and prices its parts; both are the same for all layouts with this grid and
 * micro-batch size. *price points to *work and to the host, so none of them may move. */
void host_parts(const struct host *h, const struct layout *l, struct work *work,
                struct price *price);
/* Prices a layout by its schedule's replay. Returns ERR_NOMEM if memory runs out. */
int host_price(struct host *h, const struct layout *l, struct price_step *out, struct err *err);
/* Holds what the terms of a layout's price follow from: the work of a rank of the busiest stage, in
 * price_work_units, and the rate of speed_table whose change by a hundredth changes the term most
 * (NULL: none; the bubble follows other terms). */
struct host_explained {
    int64_t stage;
    double work[PRICE_TERMS];
    const struct speed_info *rate[PRICE_TERMS];
};
/* Returns ERR_NOMEM if memory runs out. */
int host_explain(struct host *h, const struct layout *l, struct host_explained *out,
                 struct err *err);
/* Returns a rate of a table. */
double host_rate(const struct speed *s, const struct speed_info *info);
/* Writes, by term, the CPU seconds of gemm, attention, elementwise, inputs and optimizer in a
 * priced step, on the stage with the most work, and the optimizer's where the update takes longest;
 * 0 for other terms. They include recomputation, and what ranks lose because others compute at the
 * same time. */
void host_classes(const struct host *h, const struct layout *l, const struct price_step *step,
                  double class_s[PRICE_TERMS]);

#endif
