/* update: holds a table of the spans that a rank's optimizer updates (ops.h: ops_adamw_span), so
 * that one launch can update a unit. The table depends only on the shards and the run. It is made
 * once, in device memory and in host memory.
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
/* Returns how many spans trained unit k has. They are borrowed: the copies in device and host
 * memory. */
int64_t update_spans(const struct update *u, int64_t k, const struct ops_adamw_span **device,
                     const struct ops_adamw_span **host);

#endif
