#include "trainer/watch/meter.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NAME(name, args) #name,
const char *const meter_kind_names[] = {
    OPS_LIST(NAME)
    "dev copy", "dev fill", "data", "stage", "progress",
    "wait all-gather", "wait reduce-scatter", "wait all-reduce", "wait all-to-all",
    "wait send-recv", "wait broadcast", "wait barrier", NULL
};

int64_t meter_bytes(int64_t spans)
{
    return spans * (int64_t)sizeof(struct meter_span);
}

int meter_open(struct meter *m, int64_t spans, struct err *err)
{
    *m = (struct meter){.room = spans};
    m->spans = spans ? calloc((size_t)spans, sizeof *m->spans) : NULL;
    return spans && !m->spans
               ? err_set(err, ERR_NOMEM, "no memory for a trace of %lld spans", (long long)spans)
               : 0;
}

void meter_close(struct meter *m)
{
    meter_detach(m);
    free(m->spans);
    *m = (struct meter){0};
}

/* ---- marks ---- */

struct meter_mark meter_begin(struct meter *m)
{
    struct meter_mark at = {0};
    if (m) {
        at = (struct meter_mark){clock_mono_s(), m->inner_s};
        m->inner_s = 0;
    }
    return at;
}

static void span_add(struct meter *m, struct meter_span s)
{
    if (m->room)
        m->spans[m->n++ % m->room] = s;
}

void meter_end(struct meter *m, struct meter_mark at, enum meter_kind kind, int64_t arg)
{
    if (!m)
        return;
    double now = clock_mono_s(), took = now - at.start_s;
    m->seconds[kind] += took - m->inner_s;
    m->calls[kind]++;
    m->inner_s = at.inner_s + took;
    span_add(m, (struct meter_span){
        .name = meter_kind_names[kind], .start_s = at.start_s, .end_s = now,
        .arg = arg, .kind = kind
    });
}

void meter_span(struct meter *m, struct meter_mark at, const char *name, int64_t arg)
{
    if (!m)
        return;
    m->inner_s += at.inner_s;
    span_add(m, (struct meter_span){
        .name = name, .start_s = at.start_s, .end_s = clock_mono_s(),
        .arg = arg, .kind = -1
    });
}

double meter_step(struct meter *m, double step_s, double seconds[METER_KINDS])
{
    double sum = 0;
    for (int k = 0; k < METER_KINDS; k++) {
        seconds[k] = m->seconds[k] - m->last[k];
        m->last[k] = m->seconds[k];
        sum += seconds[k];
    }
    return sum / step_s;
}

/* ---- measured calls ---- */

#define MEASURED(op, args)                                                                 \
    static void measured_##op(struct ops *o, struct dev_stream *s, const struct args *a)   \
    {                                                                                      \
        struct meter *m = o->dev->meter;                                                   \
        struct meter_mark at = meter_begin(m);                                             \
        m->plain.op(o, s, a);                                                              \
        queue_wait(m, o->dev, s);                                                          \
        meter_end(m, at, METER_OP_##op, -1);                                               \
    }

/* Waits until the device has done the call. An error of the device is kept by it, and the caller's
 * next sync gives it. */
static void queue_wait(const struct meter *m, struct dev *d, struct dev_stream *s)
{
    struct err none;
    if (!d->host_memory)
        m->plain_dev.stream_sync(d, s, &none);
}

OPS_LIST(MEASURED)

static void measured_dev_copy(struct dev *d, void *dst, const void *src, int64_t bytes,
                              enum dev_copy kind, struct dev_stream *s)
{
    struct meter *m = d->meter;
    struct meter_mark at = meter_begin(m);
    m->plain_dev.copy(d, dst, src, bytes, kind, s);
    queue_wait(m, d, s);
    meter_end(m, at, METER_DEV_COPY, -1);
}

static void measured_dev_copy_2d(struct dev *d, void *dst, int64_t dst_pitch, const void *src,
                                 int64_t src_pitch, int64_t width, int64_t rows, enum dev_copy kind,
                                 struct dev_stream *s)
{
    struct meter *m = d->meter;
    struct meter_mark at = meter_begin(m);
    m->plain_dev.copy_2d(d, dst, dst_pitch, src, src_pitch, width, rows, kind, s);
    queue_wait(m, d, s);
    meter_end(m, at, METER_DEV_COPY, -1);
}

static void measured_dev_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes,
                              struct dev_stream *s)
{
    struct meter *m = d->meter;
    struct meter_mark at = meter_begin(m);
    m->plain_dev.fill(d, dst, byte, bytes, s);
    queue_wait(m, d, s);
    meter_end(m, at, METER_DEV_FILL, -1);
}

/* ---- communication ---- */

void meter_progress(struct meter *m, struct comm *c)
{
    if (!m || !comm_busy(c)) {
        comm_progress(c);
        return;
    }
    struct meter_mark at = meter_begin(m);
    comm_progress(c);
    meter_end(m, at, METER_PROGRESS, -1);
}

/* Adds an operation whose wait is over just now. Its start was in some earlier place, inside no
 * measured call. */
static void comm_traced(void *ctx, const struct comm *c, const struct comm_op *op,
                        const struct comm_times *t)
{
    struct meter *m = ctx;
    int kind = METER_COMM + op->kind;
    m->seconds[kind] += t->started_s - t->start_s + t->end_s - t->wait_s;
    m->calls[kind]++;
    m->inner_s += t->started_s - t->start_s + t->end_s - t->wait_s;
    span_add(m, (struct meter_span){
        .name = op->what, .group = c->axis,
        .start_s = t->start_s, .wait_s = t->wait_s, .end_s = t->end_s, .late_s = t->late_s,
        .arg = -1, .bytes = t->sent_bytes, .kind = kind
    });
}

/* ---- attaching ---- */

void meter_attach(struct meter *m, struct ops *o, struct comm *world)
{
    struct dev *d = o->dev;
    BUG_ON(d->meter || m->ops);
    m->plain = *o;
    m->plain_dev = *d;
    m->ops = o;
    m->conf = world->conf;
#define REPLACE(op, args) o->op = measured_##op;
    OPS_LIST(REPLACE)
    d->copy = measured_dev_copy;
    d->copy_2d = measured_dev_copy_2d;
    d->fill = measured_dev_fill;
    d->meter = m;
    world->conf->trace = comm_traced;
    world->conf->trace_ctx = m;
}

void meter_detach(struct meter *m)
{
    if (!m->ops)
        return;
    struct ops *o = m->ops;
#define RESTORE(op, args) o->op = m->plain.op;
    OPS_LIST(RESTORE)
    o->dev->copy = m->plain_dev.copy;
    o->dev->copy_2d = m->plain_dev.copy_2d;
    o->dev->fill = m->plain_dev.fill;
    o->dev->meter = NULL;
    m->conf->trace = NULL;
    m->ops = NULL;
}
