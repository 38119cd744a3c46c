/* dev: declares a device as a table of functions for its memory, copies, streams and events. There
 * is one table per kind of device.
 *
 * Work is stream-ordered: a call queues work on a stream and returns; calls on one stream run in
 * order; two streams are ordered only by event_record on one and event_wait on the other. The CPU
 * device runs every call at once, but demands the same discipline of the caller: a wait for an
 * event that was never recorded is a broken invariant. Calls that only queue return nothing: the
 * first error of the device is kept, and every later stream_sync returns it.
 *
 * A copy reads a source on the host when it runs, not when it is queued, and a destination on the
 * host is valid only after a stream_sync that follows the copy. So both must be left untouched
 * until then, or until the event_sync of an event that was recorded after the copy.
 *
 * Memory is allocated at set-up and never in a step. The content of fresh memory is undefined. With
 * `poison` it is filled with NaN (0xff bytes), so that a read before the first write shows in the
 * loss instead of passing as zero. Where device memory is not host memory, frequent or large copies
 * go between it and pinned host memory (alloc_host).
 *
 *     struct dev *d;
 *     dev_cpu_open(poison, &d, err);
 *     d->stream_new(d, "compute", DEV_PRIORITY_NORMAL, &s, err);
 *     d->alloc(d, "activations", bytes, &ptr, err);
 *     d->copy(d, ptr, host, bytes, DEV_H2D, s);
 *     d->stream_sync(d, s, err);
 *     d->close(d);
 */
#ifndef TRAINER_DEV_DEV_H
#define TRAINER_DEV_DEV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every allocation has this alignment. It suits a cache line, a vector register, a CUDA sector. */
enum { DEV_ALIGN_BYTES = 256 };
enum dev_copy { DEV_H2D, DEV_D2H, DEV_D2D };
/* If the device cannot run all work that is ready, work of high priority goes first. It is for
 * messages, which other ranks wait for. No code may rely on it: only events order streams. */
enum dev_priority { DEV_PRIORITY_NORMAL, DEV_PRIORITY_HIGH };

struct dev_stream;
struct dev_event;
struct dev_graph;
struct meter;
struct graphs;

struct dev {
    const char *name;    /* "cpu" */
    /* True: calls run at once, and the host may access device memory after a stream_sync. */
    bool host_memory;
    /* These are the bytes that alloc, and alloc_host, have allocated now, and the most at one time.
     * Each allocation counts rounded up to DEV_ALIGN_BYTES. */
    int64_t alloc_bytes, peak_bytes, host_bytes, host_peak_bytes;
    int64_t syncs;       /* calls of stream_sync */
    /* A stream_sync has returned an error, the device's or that of `watch`. This stays true: the
     * contents of the device's memory can no longer be trusted, and other ranks do not know of the
     * error. */
    bool failed;
    struct meter *meter; /* meter.h; NULL: nothing is measured */
    /* Is called repeatedly while stream_sync or event_sync waits for the device, to find what the
     * device does not report: that a peer is gone. It may call event_done. An error ends the wait,
     * although the work may still run, and is returned by this stream_sync or the next one. NULL:
     * nothing is called. */
    int (*watch)(void *ctx, struct err *err);
    void *watch_ctx;
    struct graphs *graphs; /* graphs.h; NULL: every call is queued at once */

    /* Allocates memory, which `free` frees; free(NULL) is fine. */
    int (*alloc)(struct dev *d, const char *what, int64_t bytes, void **out, struct err *err);
    void (*free)(struct dev *d, void *ptr);
    /* Allocates pinned host memory, which the device copies from and to directly, and which
     * free_host frees; free_host(NULL) is fine. */
    int (*alloc_host)(struct dev *d, const char *what, int64_t bytes, void **out, struct err *err);
    void (*free_host)(struct dev *d, void *ptr);

    /* Writes how many bytes of the device's memory alloc could still allocate, and how many it has.
     * Where that is host memory, it is what this process may take (host_memory.h). ERR_ENV: it is
     * not known. */
    int (*memory)(struct dev *d, int64_t *free_bytes, int64_t *total_bytes, struct err *err);

    int (*stream_new)(struct dev *d, const char *name, enum dev_priority priority,
                      struct dev_stream **out, struct err *err);
    void (*stream_free)(struct dev *d, struct dev_stream *s);
    /* Waits for the stream's work. Returns the device's first error, if there was one. */
    int (*stream_sync)(struct dev *d, struct dev_stream *s, struct err *err);

    int (*event_new)(struct dev *d, struct dev_event **out, struct err *err);
    void (*event_free)(struct dev *d, struct dev_event *e);
    void (*event_record)(struct dev *d, struct dev_event *e, struct dev_stream *s);
    void (*event_wait)(struct dev *d, struct dev_stream *s, struct dev_event *e);
    /* Waits on the host until the event's last record has run: what was queued before it is over.
     * It must have been recorded. A device error is returned by the next stream_sync. */
    void (*event_sync)(struct dev *d, struct dev_event *e);
    /* Tells whether the event's last record has run; it must have been recorded. Does not wait.
     * After a device error, which the next stream_sync returns, the event counts as over. */
    bool (*event_done)(struct dev *d, struct dev_event *e);
    /* Returns the seconds between two events. Is valid after a sync that both events precede. */
    double (*event_elapsed_s)(struct dev *d, const struct dev_event *from,
                              const struct dev_event *to);

    void (*copy)(struct dev *d, void *dst, const void *src, int64_t bytes, enum dev_copy kind,
                 struct dev_stream *s);
    /* Copies `rows` pieces of `width` bytes, one every `dst_pitch` and `src_pitch` bytes. */
    void (*copy_2d)(struct dev *d, void *dst, int64_t dst_pitch, const void *src, int64_t src_pitch,
                    int64_t width, int64_t rows, enum dev_copy kind, struct dev_stream *s);
    void (*fill)(struct dev *d, void *dst, uint8_t byte, int64_t bytes, struct dev_stream *s);

    /* Between begin and end, what is queued on the stream is recorded and does not run. It must be
     * work of this device alone, without events and without copies from or to the host. Each launch
     * queues all of it again, with the arguments that it had. ERR_STATE, from begin or end: it
     * cannot be recorded, and nothing was queued. The caller frees the graph when no launch runs.
     * NULL: the device has no graphs. */
    int (*graph_begin)(struct dev *d, struct dev_stream *s, struct err *err);
    int (*graph_end)(struct dev *d, struct dev_stream *s, struct dev_graph **out, struct err *err);
    void (*graph_launch)(struct dev *d, struct dev_graph *g, struct dev_stream *s);
    void (*graph_free)(struct dev *d, struct dev_graph *g);

    /* Ends the range of the last step, by which profilers name queued work, and begins that of
     * `step`, which contains what is queued from here on. With step -1 none begins. Operations and
     * layers mark their ranges themselves. NULL: no profiler knows this device. */
    void (*range_step)(struct dev *d, int64_t step);

    void (*close)(struct dev *d);
};

/* Counts an allocation, or a free if bytes is negative, for implementations of the table. */
static inline void dev_count(int64_t *now, int64_t *peak, int64_t bytes)
{
    int64_t whole = ((bytes < 0 ? -bytes : bytes) + DEV_ALIGN_BYTES - 1) / DEV_ALIGN_BYTES;
    *now += (bytes < 0 ? -whole : whole) * DEV_ALIGN_BYTES;
    *peak = *now > *peak ? *now : *peak;
}

int dev_cpu_open(bool poison, struct dev **out, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
