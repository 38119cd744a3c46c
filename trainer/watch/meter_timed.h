/* meter_timed: measures what a device that queues did and when, by events before and after each
 * call.
 *
 * Such a device computes while the host does something else. So a call's time is its time on the
 * device, and what the host did (reading samples, laying a micro-batch out, waiting for messages)
 * is time of the step only while the device was idle. No call is waited for. The events are read
 * once a step, or when all are in use: then the host waits for the device, and the two clocks are
 * aligned anew.
 *
 * A meter times the calls of one stream; calls on other streams are not measured.
 */
#ifndef TRAINER_WATCH_METER_TIMED_H
#define TRAINER_WATCH_METER_TIMED_H

#include "trainer/dev/dev.h"

struct meter;

/* Holds a call on the stream (meter_call), with the time when the host queued it, or an activity of
 * the host (meter_host). */
struct meter_call {
    struct dev_event *from, *to;
    double queued_s;
    int kind;
};
struct meter_host {
    double start_s, end_s;
    int kind;
};

struct meter_timed {
    struct dev *dev; /* its unmeasured calls are in `plain`; NULL: a device that queues nothing */
    const struct dev *plain;
    struct dev_stream *stream;
    struct dev_event *base, *end; /* at base the device was idle */
    double base_s;                /* the host's clock at base */
    struct meter_call *calls;
    struct meter_host *host;
    int64_t n_calls, n_host;
    int64_t wait;  /* the last call that was a wait for an event; -1: none */
    double wait_s; /* when it was queued */
};

int64_t meter_timed_bytes(void);
/* Allocates the events. `plain` holds the device's unmeasured calls. All pointers are borrowed. */
int meter_timed_open(struct meter_timed *k, struct dev *dev, const struct dev *plain,
               struct dev_stream *stream, struct err *err);
void meter_timed_close(struct meter_timed *k); /* safe on a zeroed struct */

/* Note where a call begins and ends; the call's number is -1 if it is on another stream. */
int64_t meter_timed_begin(struct meter *m, const struct dev_stream *s);
void meter_timed_end(struct meter_timed *k, int64_t call, int kind);
/* Notes an activity of the host. */
void meter_timed_host(struct meter *m, int kind, double start_s, double end_s);
/* Waits for the device and adds up what was noted since the last call. A device error is returned
 * by the caller's next stream_sync. */
void meter_timed_read(struct meter *m);

#endif
