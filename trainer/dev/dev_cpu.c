#include "trainer/dev/dev.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "trainer/dev/host_memory.h"

/* Work runs inside the call that queues it, so a stream only knows its device, to detect a stream
 * that is used with another one. */
struct dev_stream {
    struct dev *dev;
};
struct dev_event {
    bool recorded;
    int64_t at_ns;
};

/* Stands in front of every allocation, so that free knows its size. */
struct block {
    int64_t bytes;
    void *base;
};
_Static_assert(sizeof(struct block) <= DEV_ALIGN_BYTES, "the header fits in front of the data");

struct cpu {
    struct dev dev; /* first member */
    bool poison;
};

/* Allocates memory without counting it. */
static int block_take(struct dev *d, const char *what, int64_t bytes, void **out, struct err *err)
{
    size_t size = (size_t)bytes;
    if (bytes < 0 || bytes > INT64_MAX - 2 * DEV_ALIGN_BYTES)
        return err_set(err, ERR_LIMIT,
                       "%s: %lld bytes cannot be taken: give a smaller model or micro-batch", what,
                       (long long)bytes);
    size = (size + DEV_ALIGN_BYTES - 1) / DEV_ALIGN_BYTES * DEV_ALIGN_BYTES;
    char *base = aligned_alloc(DEV_ALIGN_BYTES, size + DEV_ALIGN_BYTES);
    if (!base)
        return err_set(err, ERR_NOMEM,
                       "%s: no memory for %lld bytes: give a smaller model or micro-batch, or "
                       "recompute=full",
                       what, (long long)bytes);
    struct block b = {bytes, base};
    memcpy(base, &b, sizeof b);
    memset(base + DEV_ALIGN_BYTES, ((struct cpu *)d)->poison ? 0xff : 0, size);
    *out = base + DEV_ALIGN_BYTES;
    return 0;
}

/* Frees memory of block_take, and returns its bytes. */
static int64_t block_free(void *ptr)
{
    struct block b = {0};
    if (ptr)
        memcpy(&b, (char *)ptr - DEV_ALIGN_BYTES, sizeof b);
    free(b.base);
    return b.bytes;
}

static int cpu_alloc(struct dev *d, const char *what, int64_t bytes, void **out, struct err *err)
{
    int rc;
    if ((rc = block_take(d, what, bytes, out, err)) < 0)
        return rc;
    dev_count(&d->alloc_bytes, &d->peak_bytes, bytes);
    return 0;
}

static void cpu_free(struct dev *d, void *ptr)
{
    dev_count(&d->alloc_bytes, &d->peak_bytes, -block_free(ptr));
}

static int cpu_alloc_host(struct dev *d, const char *what, int64_t bytes, void **out,
                          struct err *err)
{
    int rc;
    if ((rc = block_take(d, what, bytes, out, err)) < 0)
        return rc;
    dev_count(&d->host_bytes, &d->host_peak_bytes, bytes);
    return 0;
}

static void cpu_free_host(struct dev *d, void *ptr)
{
    dev_count(&d->host_bytes, &d->host_peak_bytes, -block_free(ptr));
}

static int cpu_memory(struct dev *d, int64_t *free_bytes, int64_t *total_bytes, struct err *err)
{
    struct host_memory m;
    int rc;
    (void)d;
    if ((rc = host_memory_read("", &m, err)) < 0)
        return rc;
    *free_bytes = m.free_bytes;
    *total_bytes = m.total_bytes;
    return 0;
}

static int cpu_stream_new(struct dev *d, const char *name, enum dev_priority priority,
                          struct dev_stream **out, struct err *err)
{
    (void)priority;
    struct dev_stream *s = malloc(sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "stream '%s': no memory", name);
    s->dev = d;
    *out = s;
    return 0;
}

static void cpu_stream_free(struct dev *d, struct dev_stream *s)
{
    (void)d;
    free(s);
}

static int cpu_stream_sync(struct dev *d, struct dev_stream *s, struct err *err)
{
    (void)err;
    BUG_ON(s->dev != d);
    d->syncs++;
    return 0;
}

static int cpu_event_new(struct dev *d, struct dev_event **out, struct err *err)
{
    (void)d;
    struct dev_event *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, ERR_NOMEM, "event: no memory");
    *out = e;
    return 0;
}

static void cpu_event_free(struct dev *d, struct dev_event *e)
{
    (void)d;
    free(e);
}

static void cpu_event_record(struct dev *d, struct dev_event *e, struct dev_stream *s)
{
    BUG_ON(s->dev != d);
    e->recorded = true;
    e->at_ns = clock_mono_ns();
}

static void cpu_event_wait(struct dev *d, struct dev_stream *s, struct dev_event *e)
{
    BUG_ON(s->dev != d);
    BUG_ON(!e->recorded); /* a GPU would silently ignore such a wait */
}

static void cpu_event_sync(struct dev *d, struct dev_event *e)
{
    (void)d;
    BUG_ON(!e->recorded);
}

static bool cpu_event_done(struct dev *d, struct dev_event *e)
{
    (void)d;
    BUG_ON(!e->recorded);
    return true;
}

static double cpu_event_elapsed_s(struct dev *d, const struct dev_event *from,
                                  const struct dev_event *to)
{
    (void)d;
    BUG_ON(!from->recorded || !to->recorded);
    return (double)(to->at_ns - from->at_ns) * 1e-9;
}

static void cpu_copy(struct dev *d, void *dst, const void *src, int64_t bytes, enum dev_copy kind,
                     struct dev_stream *s)
{
    (void)kind;
    BUG_ON(s->dev != d);
    if (bytes > 0)
        memmove(dst, src, (size_t)bytes);
}

static void cpu_copy_2d(struct dev *d, void *dst, int64_t dst_pitch, const void *src,
                        int64_t src_pitch, int64_t width, int64_t rows, enum dev_copy kind,
                        struct dev_stream *s)
{
    BUG_ON(width > dst_pitch || width > src_pitch);
    for (int64_t i = 0; i < rows; i++)
        cpu_copy(d, (char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width, kind, s);
}

static void cpu_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes, struct dev_stream *s)
{
    BUG_ON(s->dev != d);
    if (bytes > 0)
        memset(dst, byte, (size_t)bytes);
}

static void cpu_close(struct dev *d)
{
    free(d);
}

int dev_cpu_open(bool poison, struct dev **out, struct err *err)
{
    static const struct dev table = {
        .name = "cpu", .host_memory = true,
        .alloc = cpu_alloc, .free = cpu_free,
        .alloc_host = cpu_alloc_host, .free_host = cpu_free_host, .memory = cpu_memory,
        .stream_new = cpu_stream_new, .stream_free = cpu_stream_free,
        .stream_sync = cpu_stream_sync,
        .event_new = cpu_event_new, .event_free = cpu_event_free,
        .event_record = cpu_event_record, .event_wait = cpu_event_wait,
        .event_sync = cpu_event_sync, .event_done = cpu_event_done,
        .event_elapsed_s = cpu_event_elapsed_s,
        .copy = cpu_copy, .copy_2d = cpu_copy_2d, .fill = cpu_fill, .close = cpu_close,
    };
    struct cpu *c = malloc(sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "CPU device: no memory");
    c->dev = table;
    c->poison = poison;
    *out = &c->dev;
    return 0;
}
