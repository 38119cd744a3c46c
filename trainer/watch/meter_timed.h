/* meter_timed: what a device that queues did when, by events before and behind each call.
 *
 * Such a device computes while the host does something else, so a call's time is the device's, and
 * what the host did is time of the step only where the device idled meanwhile: reading samples,
 * laying a micro-batch out, waiting for messages. Nothing waits for a call. The events are read
 * once a step, or when there are no more of them; then both clocks are aligned.
 *
 * A meter times the calls of one stream; calls on other streams are not measured.
 */
#ifndef TRAINER_WATCH_METER_TIMED_H
#define TRAINER_WATCH_METER_TIMED_H

#include "trainer/dev/dev.h"

struct meter;

/* A call on the stream, and when the host queued it; what the host did from when to when. */
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
    struct dev *dev; /* its unmeasured calls are in `plain`; NULL: it runs every call at once */
    const struct dev *plain;
    struct dev_stream *stream;
    struct dev_event *base, *end; /* at base the device had nothing to do */
    double base_s;                /* the host's clock at base */
    struct meter_call *calls;
    struct meter_host *host;
    int64_t n_calls, n_host;
    int64_t wait; /* the last call that was a wait for an event, when it was queued; or -1 */
    double wait_s;
};

int64_t meter_timed_bytes(void);
/* Takes the events of a device, whose plain calls are `plain`. It borrows all three. */
int meter_timed_open(struct meter_timed *k, struct dev *dev, const struct dev *plain,
               struct dev_stream *stream, struct err *err);
void meter_timed_close(struct meter_timed *k); /* safe on a zeroed struct */

/* Note where a call begins and ends; -1 is a call on another stream. */
int64_t meter_timed_begin(struct meter *m, const struct dev_stream *s);
void meter_timed_end(struct meter_timed *k, int64_t call, int kind);
/* Notes what the host did. */
void meter_timed_host(struct meter *m, int kind, double start_s, double end_s);
/* Waits for the device and adds up what was noted since the last time. An error of the device is
 * kept by it. */
void meter_timed_read(struct meter *m);

#endif
