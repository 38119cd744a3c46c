/* scan: which operation first made a number that is not finite.
 *
 * Attached, it looks at the matrices that every operation of the table but AdamW and sumsq reads and writes (not at statistics of rows:
 * a log-sum-exp is -inf where there are no keys) and keeps the first whose result is not finite. `made`: all it read was finite, so it is the cause; else that came from
 * what no operation wrote: data, weights, a message. An operation costs several reads of its tensors then, so a step is scanned when it is
 * computed again after a gradient was not finite (train.c), not before.
 *
 *     struct scan s;
 *     scan_attach(&s, ops);
 *     ... compute ...
 *     scan_detach(&s);
 *     s.found
 */
#ifndef TRAINER_WATCH_SCAN_H
#define TRAINER_WATCH_SCAN_H

#include "trainer/watch/meter.h"

struct scan_found {
    bool any, made, backward; /* backward: with what it computes again */
    int64_t layer;            /* 0.. or PARAM_LAYER_* */
    enum meter_kind op;       /* its name: meter_kind_names */
    int64_t call;             /* calls before it since scan_attach */
};

struct scan {
    struct ops *ops;  /* attached to */
    struct ops plain; /* the calls that the scanned ones make */
    struct scan_found found;
    int64_t calls;
};

void scan_attach(struct scan *s, struct ops *o); /* s stays until scan_detach. The table's memory must be the host's */
void scan_detach(struct scan *s);

#endif
