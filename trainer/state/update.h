/* update: what the optimizer of a rank updates, as a table of spans (ops.h: ops_adamw_span), so
 * that one launch updates a unit. The table follows from the shards and the run alone. It is made
 * once, in the device's memory and in the host's.
 *
 *     update_open(&u, &conf, err);
 *     n = update_spans(&u, unit, &device, &host); // spans of this unit, in the parameters' order
 */
#ifndef TRAINER_STATE_UPDATE_H
#define TRAINER_STATE_UPDATE_H

#include "trainer/ops/ops.h"

struct optim_conf;

struct update {
    struct dev *dev; /* borrowed */
    struct ops_adamw_span *host, *device; /* of all units, one after another */
    int64_t *first; /* [n_trained + 1] where the spans of each unit begin */
};

/* Makes the table; its copy to the device is queued on c->stream. */
int update_open(struct update *u, const struct optim_conf *c, struct err *err);
void update_close(struct update *u); /* safe on a zeroed struct */
/* Returns how many spans there are of trained unit k; they are lent, in both memories. */
int64_t update_spans(const struct update *u, int64_t k, const struct ops_adamw_span **device,
                     const struct ops_adamw_span **host);

#endif
