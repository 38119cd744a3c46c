/* scan: finds the operation that first made a number that is not finite.
 *
 * While it is attached, it checks the matrices that an operation of the table reads and writes. It
 * leaves out draw, AdamW, sumsq and finite, and statistics of rows: a log-sum-exp is -inf where
 * there are no keys. It records the first operation whose result is not finite. If `made`, all that
 * this operation read was finite, so it is the cause. Otherwise the number came from something that
 * no operation wrote: data, weights, a message. The device counts, and until such a result is found
 * the host waits for every operation. So a step is scanned only when it is computed again because a
 * gradient was not finite (train_step.c).
 *
 *     struct scan s;
 *     scan_open(&s, ops, err);
 *     scan_attach(&s, stream);
 *     ... compute ...
 *     scan_detach(&s);
 *     s.found
 *     scan_close(&s);
 */
#ifndef TRAINER_WATCH_SCAN_H
#define TRAINER_WATCH_SCAN_H

#include "profiles/buffers.h"
#include "trainer/watch/meter.h"

struct scan_found {
    bool any, made, backward; /* backward: in the backward pass, with its recomputation */
    int64_t layer;            /* 0.. or PARAM_LAYER_* */
    enum meter_kind op;       /* meter_kind_names has its name */
    int64_t call;             /* calls before it since scan_attach */
};

struct scan {
    struct ops *ops;  /* the table that is scanned, between attach and detach */
    struct ops plain; /* the calls that the scanned ones make */
    struct scan_found found;
    int64_t calls;
    /* how many numbers were not finite in what the current operation read, and in what it wrote: in
     * device memory, and in a pinned copy */
    int64_t *bad, *told;
};

/* Adds to the memory plan what scan_open allocates. */
int scan_memory(struct buffer_list *memory, struct err *err);
/* Allocates the counts for scanning a table. After a failure scan_close frees what there is. */
int scan_open(struct scan *s, struct ops *o, struct err *err);
void scan_close(struct scan *s); /* Is safe on a zeroed struct. */
/* Attaches *s, which must stay in place until scan_detach. */
void scan_attach(struct scan *s, struct dev_stream *stream);
void scan_detach(struct scan *s);

#endif
