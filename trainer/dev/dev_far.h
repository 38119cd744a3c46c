/* dev_far: a device of the CPU whose memory the host cannot touch, for tests of what a GPU asks of
 * its users.
 *
 * Work waits in the queues of streams until a stream_sync. That runs the stream's own queue, and
 * of the others what events demand and what a seed draws: each seed is one order of those which the
 * events allow. An event_sync runs no more than what is drawn until its record has run. Device
 * memory can be addressed only while queued work runs: a touch by the host ends the process with
 * SIGSEGV. A source on the host is read when the copy runs. A destination on the host holds NaN
 * (0xff bytes) from when the copy is queued until it runs. Fresh memory holds NaN too.
 *
 * A call that waits for what is not this device's (a message of another process) is polled: it
 * holds its stream until it is over, and the other streams go on meanwhile. How often it is polled
 * depends on time, so that a seed does not fix the order of a run with such calls.
 *
 * Only the thread that opened the device calls it. Another one's call is a broken invariant, and so
 * is a copy whose kind does not say where its ends are.
 *
 *     struct dev *d;
 *     dev_far_open(seed, &d, err);
 *     dev_far_queue(stream, call, &args, sizeof args); // call(copy of args) runs in its turn
 */
#ifndef TRAINER_DEV_DEV_FAR_H
#define TRAINER_DEV_DEV_FAR_H

#include "trainer/dev/dev.h"

int dev_far_open(uint64_t seed, struct dev **out, struct err *err);

typedef void dev_far_fn(void *args);
/* Queues a call on a stream of this device, with its own copy of the arguments. */
void dev_far_queue(struct dev_stream *s, dev_far_fn *run, const void *args, int64_t bytes);

/* Tells whether the call is over. It may write its arguments, and must not queue. */
typedef bool dev_far_poll_fn(void *args);
/* Queues a call that holds the stream until it returns true. */
void dev_far_queue_poll(struct dev_stream *s, dev_far_poll_fn *poll, const void *args,
                        int64_t bytes);
/* Run queues as stream_sync and event_sync do, but return where only polled calls could go on.
 * Return whether the stream is empty, or the event's last record has run. */
bool dev_far_try(struct dev_stream *s);
bool dev_far_event_try(struct dev *d, struct dev_event *e);

#endif
