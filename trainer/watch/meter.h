/* meter: measures where a rank's time goes: seconds and calls by kind and, on demand, the spans of
 * a trace (trace.h).
 *
 * The time of a kind is exclusive: time in another measured call inside it belongs to that call. So
 * the kinds of a step add up to what was measured, and the rest of the step belongs to no kind
 * ("other"). CPU time is measured too, because it does not grow on a busy machine, but without what
 * reading its clock takes, and not of messages, in which ranks wait for each other. meter_attach
 * replaces the calls in the tables of device and operations by measured ones. With a device that
 * queues, a call's time is its time on the device, and the host's activities count only while the
 * device is idle; no call is waited for
 * (meter_timed.h). Spans go into a ring that is allocated at set-up; when it is full, the newest
 * replace the oldest. A meter that is NULL measures nothing, so callers need not check.
 *
 *     meter_open(&m, spans, err);                   // spans 0: no trace
 *     meter_attach(&m, ops, stream, world, err);    // from here on ops->dev->meter is m
 *     struct meter_start at = meter_begin(m);
 *     ...
 *     meter_end(m, at, METER_DATA, -1);
 *     meter_step(&m, step_s, per_step);             // the seconds of each kind since the last call
 *     meter_detach(&m); meter_close(&m);
 */
#ifndef TRAINER_WATCH_METER_H
#define TRAINER_WATCH_METER_H

#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"
#include "trainer/watch/meter_timed.h"

#define METER_KIND(name, args) METER_OP_##name,
enum meter_kind {
    OPS_LIST(METER_KIND)
    METER_DEV_COPY, METER_DEV_FILL,
    METER_DEV_WAIT, /* a stream waits for an event that belongs to no message */
    METER_DATA,     /* reading samples */
    METER_STAGE,    /* laying a micro-batch out, without the operations that this uses */
    METER_PROGRESS, /* advancing messages between computations */
    METER_COMM,     /* + enum comm_kind: starting and waiting, scalars included */
    METER_KINDS = METER_COMM + COMM_BARRIER + 1,
};
extern const char *const meter_kind_names[]; /* "gemm", …, "wait all-gather" */

struct meter_span {
    const char *name;   /* a literal; for communication the operation's `what` */
    const char *group;  /* for communication the axis of the operation's group; else NULL */
    /* wait_s: when an operation's wait was entered; late_s: comm.h explains it; queued_s: when the
     * host queued what a device did */
    double start_s, end_s, wait_s, late_s, queued_s;
    int64_t arg, bytes; /* arg: layer, chunk or step; -1: none. bytes: sent in an operation */
    int kind;           /* enum meter_kind; -1: a span that encloses others */
    bool device;        /* it ran on a device that queues, so it is not in the host's order */
};

struct meter_start { double start_s, inner_s, start_cpu_s, inner_cpu_s; };

struct meter {
    double seconds[METER_KINDS], last[METER_KINDS]; /* since meter_open; at the last meter_step */
    double cpu_s[METER_KINDS], last_cpu_s[METER_KINDS]; /* this thread's CPU time; 0 on a device */
    int64_t calls[METER_KINDS];
    double reading_s;            /* CPU time of reading the CPU clock */
    double inner_s, inner_cpu_s; /* time of measured calls, and of messages, within the open one */
    struct meter_span *spans;  /* [room] ring */
    int64_t room, n;           /* n: how many were ever recorded */
    struct ops plain;          /* the calls that the measured ones make */
    struct dev plain_dev;
    struct ops *ops;           /* the table it is attached to; NULL: none */
    struct comm_conf *conf;
    struct meter_timed timed;
    bool queues; /* it has measured a device that queues */
    struct meter_start host; /* when the host entered comm_start or comm_wait */
};

/* A trace keeps this many spans, 5 MiB: some hundred steps of a small model, a few of a large. */
enum { METER_SPANS = 1 << 16 };
int64_t meter_bytes(int64_t spans);
int meter_open(struct meter *m, int64_t spans, struct err *err);
void meter_close(struct meter *m); /* Is safe on a zeroed struct. */
/* Replaces the calls of the tables by measured ones; operations are queued on stream `s`. */
int meter_attach(struct meter *m, struct ops *o, struct dev_stream *s, struct comm *world,
                 struct err *err);
void meter_detach(struct meter *m);

struct meter_start meter_begin(struct meter *m);
void meter_end(struct meter *m, struct meter_start at, enum meter_kind kind, int64_t arg);
/* Puts a span into the ring. */
void meter_span_add(struct meter *m, struct meter_span s);
/* Records a span that encloses others and has no time of its own. */
void meter_span(struct meter *m, struct meter_start at, const char *name, int64_t arg);
/* Calls comm_progress, and measures it when there is something to move. */
void meter_progress(struct meter *m, struct comm *c);
/* Writes the seconds of each kind in the step that ends here, which took step_s. Returns the share
 * of the step that belongs to some kind. */
double meter_step(struct meter *m, double step_s, double seconds[METER_KINDS]);
/* Writes the CPU time of each kind since the last call. */
void meter_cpu_step(struct meter *m, double cpu_s[METER_KINDS]);

#endif
