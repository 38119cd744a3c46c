/* scan: finds the operation that first made a number that is not finite.
 *
 * While it is attached, it looks at the matrices that every operation of the table, except AdamW
 * and sumsq, reads and writes. It does not look at statistics of rows: a log-sum-exp is -inf where
 * there are no keys. It keeps the first operation whose result is not finite. `made`: all that this
 * operation read was finite, so it is the cause; else the number came from what no operation wrote:
 * data, weights, a message. An operation then costs several reads of its tensors. So a step is
 * scanned when it is computed again because a gradient was not finite (train.c), not before.
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
    bool any, made, backward; /* backward: in the backward, with what that computes again */
    int64_t layer;            /* 0.. or PARAM_LAYER_* */
    enum meter_kind op;       /* meter_kind_names has its name */
    int64_t call;             /* calls before it since scan_attach */
};

struct scan {
    struct ops *ops;  /* what it is attached to */
    struct ops plain; /* the calls that the scanned ones make */
    struct scan_found found;
    int64_t calls;
};

/* Attaches *s, which stays until scan_detach. The table's memory must be the host's. */
void scan_attach(struct scan *s, struct ops *o);
void scan_detach(struct scan *s);

#endif
