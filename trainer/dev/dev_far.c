#include "trainer/dev/dev_far.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/philox.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* Addresses are reserved once, so that one call can open or close all memory that is in use. */
static const int64_t reserved_bytes = INT64_C(1) << 36;
static const int64_t mapped_bytes = (INT64_C(1) << 36) + (2 << 20); /* with room for alignment */
enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20, ENTRY_ALIGN = 8, QUEUE_LEAST = 64 << 10 };
enum { IDLE_POLLS = 32 }; /* fruitless polls in a row before the processor is left to others */
/* A wait for another process naps for this part of the time in which nothing moved, up to a limit.
 * So it ends only a little late, and ranks that wait leave the processor to ranks that compute. */
static const double nap_part = 0.125, nap_least_s = 20e-6, nap_most_s = 1e-3;

/* Describes an entry of a queue; the arguments of its call follow it. An entry without a call
 * records an event or waits for one. */
struct entry {
    int64_t bytes; /* of the entry with its arguments */
    dev_far_fn *run;
    dev_far_poll_fn *poll;
    struct dev_event *event;
    int64_t serial; /* number of the event's record */
    bool wait;
};
_Static_assert(sizeof(struct entry) % ENTRY_ALIGN == 0, "arguments are aligned behind it");

struct dev_stream {
    struct far *far;
    struct dev_stream *next;
    char *queue;
    int64_t first, end, room; /* bytes */
    bool records;             /* what is queued is recorded for a graph, and does not run */
    int64_t graph_first;      /* where the graph's entries begin */
};

struct dev_graph { int64_t bytes; char entries[]; };

struct dev_event {
    int64_t queued, done; /* how many records were queued; the last that has run */
    int64_t entries;      /* queued entries that refer to it */
    int64_t at_ns;
    bool freed;           /* by its owner; the memory is freed after the last entry */
};

struct block {
    struct block *next; /* in the order of addresses */
    int64_t first, end, bytes;
};

struct far {
    struct dev dev; /* first member */
    uint64_t seed, draws;
    pthread_t owner;
    void *mapped;
    char *base; /* where the reserved addresses begin, at a huge page */
    int key;    /* the processor's protection key of all of them; -1: there is none */
    struct block *blocks;
    int64_t highest; /* end of all blocks that ever were */
    struct dev_stream *streams;
    int64_t entries_run, entries_seen; /* entries run so far; as counted at the last give_way */
    double still_since_s;              /* since when the two are equal */
    struct err failure;  /* the first error of the device; every later stream_sync returns it */
    struct err given_up; /* why `watch` ended a wait; the next stream_sync returns it */
};

static struct far *far_of(struct dev *d)
{
    struct far *f = (struct far *)d;
    BUG_ON(!pthread_equal(f->owner, pthread_self()));
    return f;
}

static uint64_t draw(struct far *f, uint64_t below)
{
    return philox_at(f->seed, PHILOX_TEST, 0, f->draws++).w[0] % below;
}

/* ---- memory ---- */

/* Opens or closes all memory that is in use. Where the processor has protection keys, that is one
 * instruction, and closes the memory for this thread; threads that it starts inherit that.
 * Elsewhere it is a system call for whole huge pages: with small pages, these calls took half of
 * the time that the tests of the trainer spent on this device. */
static void protect(struct far *f, bool open)
{
    int64_t end = 0;
    if (f->key >= 0) {
        BUG_ON(pkey_set(f->key, open ? 0 : PKEY_DISABLE_ACCESS) < 0);
        return;
    }
    for (const struct block *b = f->blocks; b; b = b->next)
        end = b->end;
    BUG_ON(mprotect(f->base, (size_t)((end + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES),
                    open ? PROT_READ | PROT_WRITE : PROT_NONE) < 0);
}

/* Fills a block with NaN. The address sanitizer then reports any access beyond its first `bytes`:
 * after an allocation there is at least one such byte, and of a freed block all bytes are such. */
static void poison(struct far *f, const struct block *b, int64_t bytes)
{
    char *begin = f->base + b->first;
    ASAN_UNPOISON_MEMORY_REGION(begin, (size_t)(b->end - b->first));
    protect(f, true);
    memset(begin, 0xff, (size_t)(b->end - b->first));
    protect(f, false);
    ASAN_POISON_MEMORY_REGION(begin + bytes, (size_t)(b->end - b->first - bytes));
    f->highest = b->end > f->highest ? b->end : f->highest;
}

static bool is_far(const struct far *f, const void *p)
{
    return (const char *)p >= f->base && (const char *)p < f->base + reserved_bytes;
}

/* Finds the first gap of `size` bytes, and the link to the block that follows it. */
static struct block **gap_find(struct far *f, int64_t size, int64_t *at)
{
    struct block **link = &f->blocks;
    *at = 0;
    while (*link && (*link)->first - *at < size) {
        *at = (*link)->end;
        link = &(*link)->next;
    }
    return link;
}

static int far_alloc(struct dev *d, const char *what, int64_t bytes, void **out, struct err *err)
{
    struct far *f = far_of(d);
    int64_t at = 0, size = 0;
    struct block **link = NULL, *b = NULL;
    if (bytes >= 0 && bytes < reserved_bytes - PAGE_BYTES) {
        size = (bytes / PAGE_BYTES + 1) * PAGE_BYTES;
        link = gap_find(f, size, &at);
        b = at + size <= reserved_bytes ? malloc(sizeof *b) : NULL;
    }
    if (!b)
        return err_set(err, bytes < 0 || bytes > reserved_bytes ? ERR_LIMIT : ERR_NOMEM,
                       "%s: no memory for %lld bytes: give a smaller model or micro-batch", what,
                       (long long)bytes);
    *b = (struct block){*link, at, at + size, bytes};
    *link = b;
    poison(f, b, bytes);
    dev_count(&d->alloc_bytes, &d->peak_bytes, bytes);
    *out = f->base + at;
    return 0;
}

static void drain(struct far *f, struct dev_stream *s);

/* Frees memory after all queued work has run, because that may use it. */
static void far_free(struct dev *d, void *ptr)
{
    struct far *f = far_of(d);
    struct block **link = &f->blocks, *b;
    if (!ptr)
        return;
    for (struct dev_stream *s = f->streams; s; s = s->next)
        drain(f, s);
    while (*link && f->base + (*link)->first != (char *)ptr)
        link = &(*link)->next;
    BUG_ON(!*link);
    b = *link;
    poison(f, b, 0);
    *link = b->next;
    dev_count(&d->alloc_bytes, &d->peak_bytes, -b->bytes);
    free(b);
}

/* Stands in front of pinned memory, so that free knows its size. */
struct pinned { _Alignas(16) int64_t bytes; };

static int far_alloc_host(struct dev *d, const char *what, int64_t bytes, void **out,
                          struct err *err)
{
    far_of(d);
    struct pinned *p = bytes < 0 || bytes > reserved_bytes ? NULL
                                                           : malloc(sizeof *p + (size_t)bytes);
    if (!p)
        return err_set(err, ERR_NOMEM, "%s: no memory on the host for %lld bytes", what,
                       (long long)bytes);
    p->bytes = bytes;
    memset(p + 1, 0xff, (size_t)bytes);
    dev_count(&d->host_bytes, &d->host_peak_bytes, bytes);
    *out = p + 1;
    return 0;
}

static void far_free_host(struct dev *d, void *ptr)
{
    struct far *f = far_of(d);
    struct pinned *p = (struct pinned *)ptr - 1;
    if (!ptr)
        return;
    for (struct dev_stream *s = f->streams; s; s = s->next)
        drain(f, s);
    dev_count(&d->host_bytes, &d->host_peak_bytes, -p->bytes);
    free(p);
}

/* Writes how many addresses are reserved, and how many of them belong to no block. As on a GPU, a
 * single allocation may get less than that. */
static int far_memory(struct dev *d, int64_t *free_bytes, int64_t *total_bytes, struct err *err)
{
    struct far *f = far_of(d);
    int64_t taken = 0;
    (void)err;
    for (const struct block *b = f->blocks; b; b = b->next)
        taken += b->end - b->first;
    *free_bytes = reserved_bytes - taken;
    *total_bytes = reserved_bytes;
    return 0;
}

/* ---- queues ---- */

static bool is_empty(const struct dev_stream *s) { return s->first == s->end; }

static struct entry *head(const struct dev_stream *s)
{
    return (struct entry *)(void *)(s->queue + s->first);
}

static bool is_ready(const struct dev_stream *s)
{
    return !is_empty(s) && (!head(s)->wait || head(s)->event->done >= head(s)->serial);
}

/* Makes room for one more entry. */
static bool queue_grow(struct dev_stream *s, int64_t bytes)
{
    if (is_empty(s))
        s->first = s->end = 0;
    if (s->end + bytes <= s->room)
        return true;
    int64_t room = 2 * s->room + bytes + QUEUE_LEAST;
    char *queue = realloc(s->queue, (size_t)room);
    if (queue)
        s->queue = queue, s->room = room;
    return queue;
}

static void entry_add(struct dev_stream *s, struct entry e, const void *args, int64_t bytes)
{
    BUG_ON(s->records && e.event);
    e.bytes = ((int64_t)sizeof e + bytes + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
    if (!queue_grow(s, e.bytes)) {
        err_set(&s->far->failure, ERR_NOMEM, "no memory to queue work of a device");
        return;
    }
    memcpy(s->queue + s->end, &e, sizeof e);
    if (bytes)
        memcpy(s->queue + s->end + sizeof e, args, (size_t)bytes);
    s->end += e.bytes;
    if (e.event)
        e.event->entries++;
}

void dev_far_queue(struct dev_stream *s, dev_far_fn *run, const void *args, int64_t bytes)
{
    far_of(&s->far->dev);
    entry_add(s, (struct entry){.run = run}, args, bytes);
}

void dev_far_queue_poll(struct dev_stream *s, dev_far_poll_fn *poll, const void *args,
                        int64_t bytes)
{
    far_of(&s->far->dev);
    entry_add(s, (struct entry){.poll = poll}, args, bytes);
}

static void event_release(struct dev_event *e)
{
    if (e->freed && e->entries == 0)
        free(e);
}

static void event_pass(const struct entry *e)
{
    if (!e->wait)
        e->event->done = e->serial, e->event->at_ns = clock_mono_ns();
    e->event->entries--;
    event_release(e->event);
}

/* Runs a stream's next entry. Returns false if this is a polled call that is not over. */
static bool head_run(struct dev_stream *s)
{
    struct entry *e = head(s);
    if (e->poll && !e->poll(e + 1))
        return false;
    if (e->run)
        e->run(e + 1);
    else if (e->event)
        event_pass(e);
    s->first += e->bytes;
    s->far->entries_run++;
    return true;
}

/* Draws one of the streams, other than `but`, that could run an entry; NULL if there is none. */
static struct dev_stream *other_draw(struct far *f, const struct dev_stream *but)
{
    struct dev_stream *found = NULL;
    uint64_t n = 0;
    for (struct dev_stream *s = f->streams; s; s = s->next)
        if (s != but && is_ready(s) && draw(f, ++n) == 0)
            found = s;
    return found;
}

/* Runs a stream's queue. Before each of its entries, other streams run entries with a probability
 * of `eager` in four, and always where this stream waits for them. Returns false if only polled
 * calls are left to run, on any stream, and are not over. */
static bool queue_run(struct far *f, struct dev_stream *s)
{
    uint64_t eager = draw(f, 4);
    int idle = 0;
    for (const struct dev_stream *r = f->streams; r; r = r->next)
        BUG_ON(r->records);
    protect(f, true);
    while (!is_empty(s) && idle < IDLE_POLLS) {
        bool others = !is_ready(s) || draw(f, 4) < (idle ? 2 : eager);
        struct dev_stream *next = others ? other_draw(f, s) : NULL;
        BUG_ON(!next && !is_ready(s));
        idle = head_run(next ? next : s) ? 0 : idle + 1;
    }
    protect(f, false);
    return is_empty(s);
}

/* Leaves the processor to others until the queues are run again. */
static void give_way(struct far *f)
{
    double now = clock_mono_s(), nap_s;
    if (f->entries_run != f->entries_seen)
        f->entries_seen = f->entries_run, f->still_since_s = now;
    nap_s = nap_part * (now - f->still_since_s);
    if (nap_s < nap_least_s)
        sched_yield();
    else
        clock_sleep_s(nap_s < nap_most_s ? nap_s : nap_most_s);
}

static void drain(struct far *f, struct dev_stream *s)
{
    while (!is_empty(s) && !queue_run(f, s))
        give_way(f);
}

/* Leaves the processor to others while only polled calls could go on. Returns false if dev.watch
 * ends the wait; the next stream_sync returns its error. */
static bool wait_goes_on(struct far *f)
{
    struct err why = {0};
    give_way(f);
    if (!f->dev.watch || f->dev.watch(f->dev.watch_ctx, &why) >= 0)
        return true;
    if (f->given_up.code == 0)
        f->given_up = why;
    return false;
}

bool dev_far_try(struct dev_stream *s)
{
    return is_empty(s) || queue_run(far_of(&s->far->dev), s);
}

/* ---- streams and events ---- */

/* Makes a stream. The priority orders nothing, so the random order does not depend on it. */
static int far_stream_new(struct dev *d, const char *name, enum dev_priority priority,
                          struct dev_stream **out, struct err *err)
{
    (void)priority;
    struct far *f = far_of(d);
    struct dev_stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "stream '%s': no memory", name);
    s->far = f;
    s->next = f->streams;
    f->streams = s;
    *out = s;
    return 0;
}

static void far_stream_free(struct dev *d, struct dev_stream *s)
{
    struct far *f = far_of(d);
    struct dev_stream **link = &f->streams;
    drain(f, s);
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    free(s->queue);
    free(s);
}

static int far_stream_sync(struct dev *d, struct dev_stream *s, struct err *err)
{
    struct far *f = far_of(d);
    BUG_ON(s->far != f);
    d->syncs++;
    while (!is_empty(s) && !queue_run(f, s) && wait_goes_on(f))
        ;
    struct err failure = f->given_up.code ? f->given_up : f->failure;
    f->given_up = (struct err){0};
    d->failed = d->failed || failure.code;
    return failure.code ? err_set(err, failure.code, "%s", failure.text) : 0;
}

static int far_event_new(struct dev *d, struct dev_event **out, struct err *err)
{
    far_of(d);
    struct dev_event *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, ERR_NOMEM, "event: no memory");
    *out = e;
    return 0;
}

static void far_event_free(struct dev *d, struct dev_event *e)
{
    far_of(d);
    e->freed = true;
    event_release(e);
}

static void far_event_record(struct dev *d, struct dev_event *e, struct dev_stream *s)
{
    BUG_ON(s->far != far_of(d));
    entry_add(s, (struct entry){.event = e, .serial = ++e->queued}, NULL, 0);
}

static void far_event_wait(struct dev *d, struct dev_stream *s, struct dev_event *e)
{
    BUG_ON(s->far != far_of(d));
    BUG_ON(e->queued == 0);
    entry_add(s, (struct entry){.event = e, .serial = e->queued, .wait = true}, NULL, 0);
}

/* Runs entries of any streams in random order until the event's last record has run. Returns false
 * if only polled calls are left to run, and are not over. */
static bool event_run(struct far *f, const struct dev_event *e)
{
    int idle = 0;
    protect(f, true);
    while (e->done < e->queued && idle < IDLE_POLLS) {
        struct dev_stream *next = other_draw(f, NULL);
        BUG_ON(!next);
        idle = head_run(next) ? 0 : idle + 1;
    }
    protect(f, false);
    return e->done == e->queued;
}

static void far_event_sync(struct dev *d, struct dev_event *e)
{
    struct far *f = far_of(d);
    BUG_ON(e->queued == 0);
    while (e->done < e->queued && !event_run(f, e) && wait_goes_on(f))
        ;
}

bool dev_far_event_try(struct dev *d, struct dev_event *e)
{
    BUG_ON(e->queued == 0);
    return e->done == e->queued || event_run(far_of(d), e);
}

static bool far_event_done(struct dev *d, struct dev_event *e)
{
    return dev_far_event_try(d, e);
}

static double far_event_elapsed_s(struct dev *d, const struct dev_event *from,
                                  const struct dev_event *to)
{
    far_of(d);
    BUG_ON(from->queued == 0 || from->done != from->queued);
    BUG_ON(to->queued == 0 || to->done != to->queued);
    return (double)(to->at_ns - from->at_ns) * 1e-9;
}

/* ---- copies ---- */

struct copy { char *dst; const char *src; int64_t dst_pitch, src_pitch, width, rows; };

static void copy_run(void *args)
{
    const struct copy *c = args;
    for (int64_t i = 0; i < c->rows; i++)
        memmove(c->dst + i * c->dst_pitch, c->src + i * c->src_pitch, (size_t)c->width);
}

static void far_copy_2d(struct dev *d, void *dst, int64_t dst_pitch, const void *src,
                        int64_t src_pitch, int64_t width, int64_t rows, enum dev_copy kind,
                        struct dev_stream *s)
{
    struct far *f = far_of(d);
    struct copy c = {dst, src, dst_pitch, src_pitch, width, rows};
    if (width <= 0 || rows <= 0)
        return;
    BUG_ON(s->far != f || width > dst_pitch || width > src_pitch);
    BUG_ON(is_far(f, dst) != (kind != DEV_D2H) || is_far(f, src) != (kind != DEV_H2D));
    for (int64_t i = 0; i < rows && kind == DEV_D2H; i++)
        memset(c.dst + i * dst_pitch, 0xff, (size_t)width);
    dev_far_queue(s, copy_run, &c, sizeof c);
}

static void far_copy(struct dev *d, void *dst, const void *src, int64_t bytes, enum dev_copy kind,
                     struct dev_stream *s)
{
    far_copy_2d(d, dst, bytes, src, bytes, bytes, 1, kind, s);
}

struct fill { void *dst; int64_t bytes; uint8_t byte; };

static void fill_run(void *args)
{
    const struct fill *z = args;
    memset(z->dst, z->byte, (size_t)z->bytes);
}

static void far_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes, struct dev_stream *s)
{
    struct far *f = far_of(d);
    struct fill z = {dst, bytes, byte};
    if (bytes <= 0)
        return;
    BUG_ON(s->far != f || !is_far(f, dst));
    dev_far_queue(s, fill_run, &z, sizeof z);
}

/* ---- graphs: entries of a queue that are queued again ---- */

static int far_graph_begin(struct dev *d, struct dev_stream *s, struct err *err)
{
    (void)err;
    BUG_ON(s->far != far_of(d) || s->records);
    s->records = true;
    s->graph_first = s->end - s->first;
    return 0;
}

static int far_graph_end(struct dev *d, struct dev_stream *s, struct dev_graph **out,
                         struct err *err)
{
    BUG_ON(s->far != far_of(d) || !s->records);
    int64_t bytes = s->end - s->first - s->graph_first;
    struct dev_graph *g = malloc(sizeof *g + (size_t)bytes);
    s->records = false;
    s->end = s->first + s->graph_first;
    if (!g)
        return err_set(err, ERR_STATE, "a graph: no memory for %lld bytes", (long long)bytes);
    g->bytes = bytes;
    if (bytes)
        memcpy(g->entries, s->queue + s->end, (size_t)bytes);
    *out = g;
    return 0;
}

static void far_graph_launch(struct dev *d, struct dev_graph *g, struct dev_stream *s)
{
    struct far *f = far_of(d);
    BUG_ON(s->far != f || s->records);
    if (!queue_grow(s, g->bytes)) {
        err_set(&f->failure, ERR_NOMEM, "no memory to queue work of a device");
        return;
    }
    memcpy(s->queue + s->end, g->entries, (size_t)g->bytes);
    s->end += g->bytes;
}

static void far_graph_free(struct dev *d, struct dev_graph *g)
{
    far_of(d);
    free(g);
}

/* ---- opening and closing ---- */

static void far_close(struct dev *d)
{
    struct far *f = far_of(d);
    BUG_ON(f->streams || f->blocks);
    ASAN_UNPOISON_MEMORY_REGION(f->base, (size_t)f->highest);
    munmap(f->mapped, (size_t)mapped_bytes);
    if (f->key >= 0)
        pkey_free(f->key);
    free(f);
}

/* Gives the reserved addresses a protection key of the processor, and makes them writable. Returns
 * -1 where the processor has no keys, all are in use, or the system grants so much writable memory
 * to nobody (strict overcommit). */
static int key_take(const struct far *f)
{
    int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    int both = PROT_READ | PROT_WRITE;
    if (key < 0 || pkey_mprotect(f->base, (size_t)reserved_bytes, both, key) == 0)
        return key;
    pkey_free(key);
    return -1;
}

int dev_far_open(uint64_t seed, struct dev **out, struct err *err)
{
    static const struct dev table = {
        .name = "far", .host_memory = false,
        .alloc = far_alloc, .free = far_free,
        .alloc_host = far_alloc_host, .free_host = far_free_host, .memory = far_memory,
        .stream_new = far_stream_new, .stream_free = far_stream_free,
        .stream_sync = far_stream_sync,
        .event_new = far_event_new, .event_free = far_event_free,
        .event_record = far_event_record, .event_wait = far_event_wait,
        .event_sync = far_event_sync, .event_done = far_event_done,
        .event_elapsed_s = far_event_elapsed_s,
        .copy = far_copy, .copy_2d = far_copy_2d, .fill = far_fill,
        .graph_begin = far_graph_begin, .graph_end = far_graph_end,
        .graph_launch = far_graph_launch, .graph_free = far_graph_free, .close = far_close,
    };
    struct far *f = malloc(sizeof *f);
    void *mapped = mmap(NULL, (size_t)mapped_bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!f || mapped == MAP_FAILED) {
        if (mapped != MAP_FAILED)
            munmap(mapped, (size_t)mapped_bytes);
        free(f);
        return err_set(err, ERR_NOMEM, "far device: no memory, or no addresses");
    }
    *f = (struct far){.dev = table, .seed = seed, .owner = pthread_self(), .mapped = mapped,
                      .base = (char *)mapped + HUGE_BYTES - (uintptr_t)mapped % HUGE_BYTES};
    madvise(f->base, (size_t)reserved_bytes, MADV_HUGEPAGE);
    f->key = key_take(f);
    *out = &f->dev;
    return 0;
}
