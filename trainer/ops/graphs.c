#include "trainer/ops/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    LEAST_CALLS = 8, /* a bundle of fewer calls does not become a graph */
    BUNDLE_BYTES = 512 << 10,
    REMEMBERED = 32, /* number of bundles that are remembered */
    ALIGN = 8,
};

#define CALL_ENUM(op, args) CALL_##op,
enum call { OPS_LIST(CALL_ENUM) CALL_COPY, CALL_COPY_2D, CALL_FILL, CALLS };

/* Heads a call in a bundle. The arguments follow it, and after them copies of the host arrays to
 * which they point. The pointers to host arrays are cleared in the arguments. */
struct entry {
    int64_t args_bytes, host_bytes, layer;
    int32_t call, backward;
};
_Static_assert(sizeof(struct entry) % ALIGN == 0, "arguments are aligned behind it");

struct copy_args {
    void *dst;
    const void *src;
    int64_t dst_pitch, src_pitch, width, rows;
};
struct fill_args { void *dst; int64_t byte, bytes; };

struct bundle {
    char *bytes; /* [BUNDLE_BYTES] */
    int64_t n;   /* bytes used; 0: no bundle */
    struct hash128 hash;
    struct dev_graph *graph; /* NULL: seen only once so far */
    int64_t met;             /* graphs_counts.bundles when this one was last seen */
};

struct graphs {
    struct ops *ops;
    struct dev *dev;
    struct dev_stream *stream;
    struct ops plain; /* the table before it was replaced: its calls queue work */
    struct dev plain_dev;
    char *bytes;      /* [BUNDLE_BYTES] of the current bundle */
    int64_t used, calls;
    bool running;     /* the bundle's calls are being queued */
    struct bundle bundles[REMEMBERED];
    /* These are graphs of forgotten bundles. They may still be running until the next sync. */
    struct dev_graph *forgotten[REMEMBERED];
    int n_forgotten;
    struct graphs_counts counts;
    struct err refused;
};

static int64_t whole(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- queueing kept calls ---- */

/* Returns the next `bytes` of a call's host arrays and advances *host past them. */
static const void *host_take(const char **host, int64_t bytes)
{
    const void *at = *host;
    *host += bytes;
    return at;
}

static void attn_complete(struct ops_attn *a, const char *host)
{
    int64_t bytes = a->n * (int64_t)sizeof(int32_t);
    a->host = (struct ops_segments){0};
    if (a->n == 0)
        return;
    a->host.q_start = host_take(&host, bytes + (int64_t)sizeof(int32_t));
    a->host.k_start = host_take(&host, bytes);
    a->host.k_len = host_take(&host, bytes);
    a->host.k_all = a->k_all ? host_take(&host, bytes) : NULL;
}

static void adaln_complete(struct ops_adaln *a, const char *host)
{
    a->host_row_start = a->n ? (const int32_t *)(const void *)host : NULL;
}

static void adamw_complete(struct ops_adamw *a, const char *host)
{
    a->host_spans = a->n ? (const struct ops_adamw_span *)(const void *)host : NULL;
}

/* Points the arguments at the copies of their host arrays. Most operations have no host array. An
 * operation that gets one needs a line here and a KEEP_ARRAYS line below; nothing else copies
 * it. */
#define COMPLETE(a, host)                                                        \
    _Generic((a), struct ops_attn *: attn_complete, struct ops_adaln *: adaln_complete, \
             struct ops_adamw *: adamw_complete, default: nothing_complete)(a, host)
static void nothing_complete(void *a, const char *host) { (void)a, (void)host; }

#define RUN(op, args)                                                               \
    static void run_##op(struct graphs *g, const char *at, const char *host)        \
    {                                                                               \
        struct args a;                                                              \
        memcpy(&a, at, sizeof a);                                                   \
        COMPLETE(&a, host);                                                         \
        g->plain.op(g->ops, g->stream, &a);                                         \
    }
OPS_LIST(RUN)

static void run_dev_copy(struct graphs *g, const char *at, const char *host)
{
    struct copy_args a;
    (void)host;
    memcpy(&a, at, sizeof a);
    g->plain_dev.copy(g->dev, a.dst, a.src, a.width, DEV_D2D, g->stream);
}

static void run_dev_copy_2d(struct graphs *g, const char *at, const char *host)
{
    struct copy_args a;
    (void)host;
    memcpy(&a, at, sizeof a);
    g->plain_dev.copy_2d(g->dev, a.dst, a.dst_pitch, a.src, a.src_pitch, a.width, a.rows, DEV_D2D,
                         g->stream);
}

static void run_dev_fill(struct graphs *g, const char *at, const char *host)
{
    struct fill_args a;
    (void)host;
    memcpy(&a, at, sizeof a);
    g->plain_dev.fill(g->dev, a.dst, (uint8_t)a.byte, a.bytes, g->stream);
}

#define RUN_NAME(op, args) run_##op,
static void (*const runs[CALLS])(struct graphs *, const char *, const char *) = {
    OPS_LIST(RUN_NAME) run_dev_copy, run_dev_copy_2d, run_dev_fill};

/* Queues the calls of the current bundle, each with the layer that was set when it was made. */
static void calls_queue(struct graphs *g)
{
    int64_t layer = g->ops->layer;
    bool backward = g->ops->backward;
    for (int64_t at = 0; at < g->used;) {
        struct entry e;
        memcpy(&e, g->bytes + at, sizeof e);
        const char *args = g->bytes + at + sizeof e;
        g->ops->layer = e.layer, g->ops->backward = e.backward;
        runs[e.call](g, args, args + whole(e.args_bytes));
        at += (int64_t)sizeof e + whole(e.args_bytes) + whole(e.host_bytes);
    }
    g->ops->layer = layer, g->ops->backward = backward;
}

/* ---- bundles ---- */

static struct bundle *bundle_find(struct graphs *g, struct hash128 hash)
{
    for (int i = 0; i < REMEMBERED; i++) {
        struct bundle *s = &g->bundles[i];
        if (s->n == g->used && s->hash.hi == hash.hi && s->hash.lo == hash.lo &&
            memcmp(s->bytes, g->bytes, (size_t)g->used) == 0)
            return s;
    }
    return NULL;
}

static void bundle_forget(struct graphs *g, struct bundle *s)
{
    if (s->graph)
        g->forgotten[g->n_forgotten++] = s->graph;
    s->graph = NULL;
    s->n = 0;
}

/* Frees the graphs of forgotten bundles. None of them may still be running. */
static void forgotten_free(struct graphs *g)
{
    while (g->n_forgotten > 0)
        g->plain_dev.graph_free(g->dev, g->forgotten[--g->n_forgotten]);
}

/* Remembers the current bundle in place of the one not seen for the longest time. */
static void bundle_remember(struct graphs *g, struct hash128 hash)
{
    struct bundle *s = &g->bundles[0];
    for (int i = 1; i < REMEMBERED; i++)
        if (g->bundles[i].met < s->met)
            s = &g->bundles[i];
    if (g->n_forgotten == REMEMBERED)
        return;
    bundle_forget(g, s);
    memcpy(s->bytes, g->bytes, (size_t)g->used);
    s->n = g->used;
    s->hash = hash;
    s->met = g->counts.bundles;
}

/* Captures the current bundle as a graph. Returns false if the device refuses. */
static bool bundle_capture(struct graphs *g, struct bundle *s)
{
    if (g->plain_dev.graph_begin(g->dev, g->stream, &g->refused) < 0)
        return false;
    calls_queue(g);
    if (g->plain_dev.graph_end(g->dev, g->stream, &s->graph, &g->refused) < 0)
        return false;
    g->counts.captures++;
    return true;
}

/* Queues the current bundle: as a graph if it was seen before, else call by call. */
static void bundle_queue(struct graphs *g)
{
    struct hash128 hash = hash_128(g->bytes, (size_t)g->used);
    struct bundle *s = bundle_find(g, hash);
    g->counts.bundles++;
    if (s)
        s->met = g->counts.bundles;
    else
        bundle_remember(g, hash);
    if (s && (s->graph || bundle_capture(g, s))) {
        g->plain_dev.graph_launch(g->dev, s->graph, g->stream);
        g->counts.launches++;
    } else {
        calls_queue(g);
    }
}

static void flush(struct graphs *g)
{
    if (g->running || g->calls == 0)
        return;
    g->running = true;
    if (g->calls < LEAST_CALLS || g->refused.code)
        calls_queue(g);
    else
        bundle_queue(g);
    g->running = false;
    g->used = g->calls = 0;
}

/* ---- calls that are kept ---- */

/* Appends a call to the current bundle. Returns where its host arrays must be copied. */
static char *entry_add(struct graphs *g, enum call call, const void *args, int64_t args_bytes,
                       int64_t host_bytes)
{
    struct entry e = {args_bytes, host_bytes, g->ops->layer, (int32_t)call, g->ops->backward};
    int64_t bytes = (int64_t)sizeof e + whole(args_bytes) + whole(host_bytes);
    if (g->used + bytes > BUNDLE_BYTES)
        flush(g);
    char *at = g->bytes + g->used;
    memset(at, 0, (size_t)bytes);
    memcpy(at, &e, sizeof e);
    memcpy(at + sizeof e, args, (size_t)args_bytes);
    g->used += bytes;
    g->calls++;
    return at + sizeof e + whole(args_bytes);
}

/* Returns whether a call is kept: it is on this stream and its host arrays are small enough. */
static bool is_kept(const struct graphs *g, const struct dev_stream *s, int64_t host_bytes)
{
    return s == g->stream && !g->running && host_bytes < BUNDLE_BYTES / 4;
}

/* Clears the padding between the members of copied arguments, so that equal arguments have equal
 * bytes. With a compiler that cannot do this, fewer bundles are recognised as equal. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(p) __builtin_clear_padding(p)
#endif
#endif
#ifndef CLEAR_PADDING
#define CLEAR_PADDING(p) (void)(p)
#endif

#define KEEP(op, args)                                                                    \
    static void keep_##op(struct ops *o, struct dev_stream *s, const struct args *a)      \
    {                                                                                     \
        struct graphs *g = o->dev->graphs;                                                \
        struct args bare = *a;                                                            \
        CLEAR_PADDING(&bare);                                                             \
        if (is_kept(g, s, 0))                                                             \
            entry_add(g, CALL_##op, &bare, sizeof bare, 0);                               \
        else                                                                              \
            g->plain.op(o, s, a);                                                         \
    }
OPS_LIST(KEEP)

/* Appends a host array to the arrays of a call. */
static void host_add(char **at, const void *array, int64_t bytes)
{
    if (bytes > 0)
        memcpy(*at, array, (size_t)bytes);
    *at += bytes;
}

static void attn_add(struct graphs *g, enum call call, const struct ops_attn *a)
{
    struct ops_attn bare = *a;
    int64_t n = a->n * (int64_t)sizeof(int32_t), one = a->n ? (int64_t)sizeof(int32_t) : 0;
    bare.host = (struct ops_segments){0};
    CLEAR_PADDING(&bare);
    char *host = entry_add(g, call, &bare, sizeof bare, (a->k_all ? 4 : 3) * n + one);
    host_add(&host, a->host.q_start, n + one);
    host_add(&host, a->host.k_start, n);
    host_add(&host, a->host.k_len, n);
    if (a->k_all)
        host_add(&host, a->host.k_all, n);
}

static void adaln_add(struct graphs *g, enum call call, const struct ops_adaln *a)
{
    struct ops_adaln bare = *a;
    int64_t n = a->n ? (a->n + 1) * (int64_t)sizeof(int32_t) : 0;
    bare.host_row_start = NULL;
    CLEAR_PADDING(&bare);
    char *host = entry_add(g, call, &bare, sizeof bare, n);
    host_add(&host, a->host_row_start, n);
}

static void adamw_add(struct graphs *g, enum call call, const struct ops_adamw *a)
{
    struct ops_adamw bare = *a;
    int64_t n = a->n * (int64_t)sizeof *a->host_spans;
    bare.host_spans = NULL;
    CLEAR_PADDING(&bare);
    char *host = entry_add(g, call, &bare, sizeof bare, n);
    host_add(&host, a->host_spans, n);
}

/* Keeps a call that has host arrays, or queues it at once if it is too long for a bundle. */
#define KEEP_ARRAYS(op, args, add, each)                                                      \
    static void arrays_##op(struct ops *o, struct dev_stream *s, const struct args *a)        \
    {                                                                                         \
        struct graphs *g = o->dev->graphs;                                                    \
        if (is_kept(g, s, (a->n + 1) * (int64_t)(each))) {                                    \
            add(g, CALL_##op, a);                                                             \
            return;                                                                           \
        }                                                                                     \
        if (s == g->stream)                                                                   \
            flush(g);                                                                         \
        g->plain.op(o, s, a);                                                                 \
    }
KEEP_ARRAYS(attn_fwd, ops_attn, attn_add, 4 * sizeof(int32_t))
KEEP_ARRAYS(attn_bwd, ops_attn, attn_add, 4 * sizeof(int32_t))
KEEP_ARRAYS(adaln_fwd, ops_adaln, adaln_add, sizeof(int32_t))
KEEP_ARRAYS(adaln_bwd, ops_adaln, adaln_add, sizeof(int32_t))
KEEP_ARRAYS(adamw, ops_adamw, adamw_add, sizeof(struct ops_adamw_span))

/* ---- calls of the device ---- */

static void keep_dev_copy_2d(struct dev *d, void *dst, int64_t dst_pitch, const void *src,
                             int64_t src_pitch, int64_t width, int64_t rows, enum dev_copy kind,
                             struct dev_stream *s)
{
    struct graphs *g = d->graphs;
    struct copy_args a = {dst, src, dst_pitch, src_pitch, width, rows};
    if (kind == DEV_D2D && is_kept(g, s, 0)) {
        entry_add(g, CALL_COPY_2D, &a, sizeof a, 0);
        return;
    }
    if (s == g->stream)
        flush(g);
    g->plain_dev.copy_2d(d, dst, dst_pitch, src, src_pitch, width, rows, kind, s);
}

static void keep_dev_copy(struct dev *d, void *dst, const void *src, int64_t bytes,
                          enum dev_copy kind, struct dev_stream *s)
{
    struct graphs *g = d->graphs;
    struct copy_args a = {.dst = dst, .src = src, .width = bytes};
    if (kind == DEV_D2D && is_kept(g, s, 0)) {
        entry_add(g, CALL_COPY, &a, sizeof a, 0);
        return;
    }
    if (s == g->stream)
        flush(g);
    g->plain_dev.copy(d, dst, src, bytes, kind, s);
}

static void keep_dev_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes,
                          struct dev_stream *s)
{
    struct graphs *g = d->graphs;
    struct fill_args a = {dst, byte, bytes};
    if (is_kept(g, s, 0))
        entry_add(g, CALL_FILL, &a, sizeof a, 0);
    else
        g->plain_dev.fill(d, dst, byte, bytes, s);
}

static int keep_stream_sync(struct dev *d, struct dev_stream *s, struct err *err)
{
    struct graphs *g = d->graphs;
    if (s != g->stream)
        return g->plain_dev.stream_sync(d, s, err);
    flush(g);
    int rc = g->plain_dev.stream_sync(d, s, err);
    forgotten_free(g);
    return rc;
}

static void keep_event_record(struct dev *d, struct dev_event *e, struct dev_stream *s)
{
    if (s == d->graphs->stream)
        flush(d->graphs);
    d->graphs->plain_dev.event_record(d, e, s);
}

static void keep_event_wait(struct dev *d, struct dev_stream *s, struct dev_event *e)
{
    if (s == d->graphs->stream)
        flush(d->graphs);
    d->graphs->plain_dev.event_wait(d, s, e);
}

/* Forgets all bundles, because their graphs may use memory that is about to be freed. */
static void all_forget(struct graphs *g)
{
    for (int i = 0; i < REMEMBERED; i++) {
        struct err err = {0};
        if (g->n_forgotten == REMEMBERED) { /* an error here comes again at the next sync */
            g->plain_dev.stream_sync(g->dev, g->stream, &err);
            forgotten_free(g);
        }
        bundle_forget(g, &g->bundles[i]);
    }
}

/* Frees memory after queueing the calls that may use it. All graphs are forgotten, because an
 * operation may have used memory of its own that its arguments do not show. */
static void keep_free(struct dev *d, void *ptr)
{
    flush(d->graphs);
    if (ptr)
        all_forget(d->graphs);
    d->graphs->plain_dev.free(d, ptr);
}

static void keep_range_step(struct dev *d, int64_t step)
{
    flush(d->graphs);
    if (d->graphs->plain_dev.range_step)
        d->graphs->plain_dev.range_step(d, step);
}

/* ---- opening and closing ---- */

int64_t graphs_bytes(const struct dev *dev)
{
    return dev->graph_begin
               ? (int64_t)sizeof(struct graphs) + (int64_t)(REMEMBERED + 1) * BUNDLE_BYTES
               : 0;
}

static void tables_replace(struct graphs *g)
{
    struct ops *o = g->ops;
    struct dev *d = g->dev;
#define REPLACE(op, args) o->op = keep_##op;
    OPS_LIST(REPLACE)
    o->attn_fwd = arrays_attn_fwd, o->attn_bwd = arrays_attn_bwd;
    o->adaln_fwd = arrays_adaln_fwd, o->adaln_bwd = arrays_adaln_bwd;
    o->adamw = arrays_adamw;
    d->copy = keep_dev_copy, d->copy_2d = keep_dev_copy_2d, d->fill = keep_dev_fill;
    d->stream_sync = keep_stream_sync;
    d->event_record = keep_event_record, d->event_wait = keep_event_wait;
    d->free = keep_free;
    if (d->range_step)
        d->range_step = keep_range_step;
    d->graphs = g;
}

int graphs_open(struct ops *o, struct dev_stream *s, struct graphs **out, struct err *err)
{
    struct graphs *g = calloc(1, sizeof *g);
    char *bytes = calloc(REMEMBERED + 1, BUNDLE_BYTES);
    BUG_ON(!o->dev->graph_begin || o->dev->graphs);
    if (!g || !bytes) {
        free(g);
        free(bytes);
        return err_set(err, ERR_NOMEM, "no memory to remember what steps queue");
    }
    *g = (struct graphs){.ops = o, .dev = o->dev, .stream = s, .plain = *o, .plain_dev = *o->dev,
                         .bytes = bytes};
    for (int i = 0; i < REMEMBERED; i++)
        g->bundles[i].bytes = bytes + (int64_t)(i + 1) * BUNDLE_BYTES;
    tables_replace(g);
    *out = g;
    return 0;
}

void graphs_close(struct graphs *g)
{
    if (!g)
        return;
    struct ops *o = g->ops;
    struct dev *d = g->dev;
    struct err none;
    flush(g);
    g->plain_dev.stream_sync(d, g->stream, &none); /* at closing an error changes nothing */
#define RESTORE(op, args) o->op = g->plain.op;
    OPS_LIST(RESTORE)
    d->copy = g->plain_dev.copy, d->copy_2d = g->plain_dev.copy_2d, d->fill = g->plain_dev.fill;
    d->stream_sync = g->plain_dev.stream_sync;
    d->event_record = g->plain_dev.event_record, d->event_wait = g->plain_dev.event_wait;
    d->free = g->plain_dev.free;
    d->range_step = g->plain_dev.range_step;
    d->graphs = NULL;
    forgotten_free(g);
    for (int i = 0; i < REMEMBERED; i++)
        bundle_forget(g, &g->bundles[i]);
    forgotten_free(g);
    free(g->bytes);
    free(g);
}

struct graphs_counts graphs_counts(const struct graphs *g) { return g->counts; }

const char *graphs_refused(const struct graphs *g)
{
    return g->refused.code ? g->refused.text : NULL;
}
