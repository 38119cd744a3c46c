/* scan: finds the operation that first made a number that is not finite.
 *
 * While it is attached, it looks at the matrices that every operation of the table, except AdamW
 * and sumsq, reads and writes. It does not look at statistics of rows: a log-sum-exp is -inf where
 * there are no keys. It keeps the first operation whose result is not finite. `made`: all that this
 * operation read was finite, so it is the cause; else the number came from what no operation wrote:
 * data, weights, a message. The device counts, and each operation is waited for. So a step is
 * scanned when it is computed again because a gradient was not finite (train.c), not before.
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
    bool any, made, backward; /* backward: in the backward, with what that computes again */
    int64_t layer;            /* 0.. or PARAM_LAYER_* */
    enum meter_kind op;       /* meter_kind_names has its name */
    int64_t call;             /* calls before it since scan_attach */
};

struct scan {
    struct ops *ops;  /* what it is attached to, between attach and detach */
    struct ops plain; /* the calls that the scanned ones make */
    struct scan_found found;
    int64_t calls;
    /* Of what the current operation has read, and of what it has written, these count the numbers
     * that are not finite: in device memory, and in a pinned copy. */
    int64_t *bad, *told;
};

/* Adds to the memory plan what scan_open takes. */
int scan_memory(struct buffer_list *memory, struct err *err);
/* Takes memory for looking at a table's calls. After a failure scan_close frees what there is. */
int scan_open(struct scan *s, struct ops *o, struct err *err);
void scan_close(struct scan *s); /* Is safe on a zeroed struct. */
/* Attaches *s, which stays until scan_detach. */
void scan_attach(struct scan *s, struct dev_stream *stream);
void scan_detach(struct scan *s);

#endif
