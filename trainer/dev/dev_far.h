/* dev_far: declares a device that computes on the CPU, but whose memory the host cannot access. It
 * tests whether code meets the demands of a GPU.
 *
 * Work waits in the queues of streams until a stream_sync. That runs the stream's own queue, and as
 * much of the other queues as events demand and the seed draws: each seed is one of the orders that
 * the events allow. event_sync and event_done run randomly drawn entries of any stream, and stop as
 * soon as the event's last record has run. Freeing memory runs all queues first. Device memory can
 * be accessed only while queued work runs: an access by the host ends the process with SIGSEGV. A
 * source on the host is read when the copy runs. A destination on the host holds NaN (0xff bytes)
 * from when the copy is queued until it runs. Fresh memory holds NaN too.
 *
 * A call that waits for something outside this device (a message of another process) is polled: it
 * holds its stream until it is over, while the other streams go on. event_done returns false if
 * only such calls could go on and the record has not run. How often a call is polled depends on
 * time, so a seed does not fix the order of a run with such calls.
 *
 * Only the thread that opened the device may call it. A call of another thread is a broken
 * invariant, and so is a copy whose kind does not fit its source and destination.
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

/* Tells whether the call is over. It may write to its arguments, and must not queue work. */
typedef bool dev_far_poll_fn(void *args);
/* Queues a call that holds the stream until it returns true. */
void dev_far_queue_poll(struct dev_stream *s, dev_far_poll_fn *poll, const void *args,
                        int64_t bytes);
/* Run queues as stream_sync and event_sync do, but return when only polled calls could go on.
 * Return whether the stream is empty, or whether the event's last record has run. */
bool dev_far_try(struct dev_stream *s);
bool dev_far_event_try(struct dev *d, struct dev_event *e);

#endif
