#include "trainer/watch/meter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { READINGS = 100 };

#define NAME(name, args) #name,
const char *const meter_kind_names[] = {
    OPS_LIST(NAME)
    "dev copy", "dev fill", "dev wait", "data", "stage", "progress",
    "wait all-gather", "wait reduce-scatter", "wait all-reduce", "wait all-to-all",
    "wait send-recv", "wait broadcast", "wait barrier", NULL
};

int64_t meter_bytes(int64_t spans)
{
    return spans * (int64_t)sizeof(struct meter_span);
}

/* Returns the CPU time of reading the CPU clock: the least of several, because the first readings
 * find their code in no cache. */
static double reading_cpu_s(void)
{
    double least = INFINITY;
    for (int i = 0; i < READINGS; i++) {
        double before = clock_cpu_s();
        least = fmin(least, clock_cpu_s() - before);
    }
    return least;
}

int meter_open(struct meter *m, int64_t spans, struct err *err)
{
    *m = (struct meter){.room = spans, .reading_s = reading_cpu_s()};
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

/* ---- beginnings and ends ---- */

struct meter_start meter_begin(struct meter *m)
{
    struct meter_start at = {0};
    if (m) {
        at = (struct meter_start){clock_mono_s(), m->inner_s, 0, m->inner_cpu_s};
        if (!m->timed.dev)
            at.start_cpu_s = clock_cpu_s();
        m->inner_s = m->inner_cpu_s = 0;
    }
    return at;
}

void meter_span_add(struct meter *m, struct meter_span s)
{
    if (m->room)
        m->spans[m->n++ % m->room] = s;
}

/* Adds the CPU time of a call that ends. That clock is read within the call's wall time:
 * otherwise the time that reading it takes would belong to no call. Of the two readings of a call
 * one passes between them, and both within the call around it; the CPU time of neither call has
 * them, because an exchange of heads makes hundreds of calls that are as short as they. */
static void cpu_end(struct meter *m, const struct meter_start *at, enum meter_kind kind)
{
    double took = clock_cpu_s() - at->start_cpu_s;
    m->cpu_s[kind] += fmax(0, took - m->reading_s - m->inner_cpu_s);
    m->inner_cpu_s = at->inner_cpu_s + took + m->reading_s;
}

void meter_end(struct meter *m, struct meter_start at, enum meter_kind kind, int64_t arg)
{
    if (!m)
        return;
    if (!m->timed.dev)
        cpu_end(m, &at, kind);
    double now = clock_mono_s(), took = now - at.start_s;
    if (m->timed.dev)
        meter_timed_host(m, kind, at.start_s, now);
    else
        m->seconds[kind] += took - m->inner_s;
    m->calls[kind]++;
    m->inner_s = at.inner_s + took;
    meter_span_add(m, (struct meter_span){
        .name = meter_kind_names[kind], .start_s = at.start_s, .end_s = now,
        .arg = arg, .kind = kind
    });
}

void meter_span(struct meter *m, struct meter_start at, const char *name, int64_t arg)
{
    if (!m)
        return;
    m->inner_s += at.inner_s;
    m->inner_cpu_s += at.inner_cpu_s + m->reading_s;
    meter_span_add(m, (struct meter_span){
        .name = name, .start_s = at.start_s, .end_s = clock_mono_s(),
        .arg = arg, .kind = -1
    });
}

double meter_step(struct meter *m, double step_s, double seconds[METER_KINDS])
{
    double sum = 0;
    if (m->timed.dev)
        meter_timed_read(m);
    for (int k = 0; k < METER_KINDS; k++) {
        seconds[k] = m->seconds[k] - m->last[k];
        m->last[k] = m->seconds[k];
        sum += seconds[k];
    }
    return sum / step_s;
}

void meter_cpu_step(struct meter *m, double cpu_s[METER_KINDS])
{
    for (int k = 0; k < METER_KINDS; k++) {
        cpu_s[k] = m->cpu_s[k] - m->last_cpu_s[k];
        m->last_cpu_s[k] = m->cpu_s[k];
    }
}

/* ---- measured calls ---- */

/* Holds a call under way: its number on a device that queues, else its start. */
struct measured { int64_t call; struct meter_start at; };

static struct measured call_begin(struct meter *m, const struct dev_stream *s)
{
    return m->timed.dev ? (struct measured){.call = meter_timed_begin(m, s)}
                        : (struct measured){.at = meter_begin(m)};
}

static void call_end(struct meter *m, struct measured c, enum meter_kind kind)
{
    if (m->timed.dev)
        meter_timed_end(&m->timed, c.call, kind);
    else
        meter_end(m, c.at, kind, -1);
}

#define MEASURED(op, args)                                                                 \
    static void measured_##op(struct ops *o, struct dev_stream *s, const struct args *a)   \
    {                                                                                      \
        struct meter *m = o->dev->meter;                                                   \
        struct measured c = call_begin(m, s);                                              \
        m->plain.op(o, s, a);                                                              \
        call_end(m, c, METER_OP_##op);                                                     \
    }
OPS_LIST(MEASURED)

static void measured_dev_copy(struct dev *d, void *dst, const void *src, int64_t bytes,
                              enum dev_copy kind, struct dev_stream *s)
{
    struct measured c = call_begin(d->meter, s);
    d->meter->plain_dev.copy(d, dst, src, bytes, kind, s);
    call_end(d->meter, c, METER_DEV_COPY);
}

static void measured_dev_copy_2d(struct dev *d, void *dst, int64_t dst_pitch, const void *src,
                                 int64_t src_pitch, int64_t width, int64_t rows, enum dev_copy kind,
                                 struct dev_stream *s)
{
    struct measured c = call_begin(d->meter, s);
    d->meter->plain_dev.copy_2d(d, dst, dst_pitch, src, src_pitch, width, rows, kind, s);
    call_end(d->meter, c, METER_DEV_COPY);
}

static void measured_dev_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes,
                              struct dev_stream *s)
{
    struct measured c = call_begin(d->meter, s);
    d->meter->plain_dev.fill(d, dst, byte, bytes, s);
    call_end(d->meter, c, METER_DEV_FILL);
}

/* Measures a wait for an event. The stream is idle until another stream, which may be one of
 * messages, has reached the event. */
static void measured_event_wait(struct dev *d, struct dev_stream *s, struct dev_event *e)
{
    struct meter *m = d->meter;
    int64_t call = meter_timed_begin(m, s);
    m->plain_dev.event_wait(d, s, e);
    meter_timed_end(&m->timed, call, METER_DEV_WAIT);
    m->timed.wait = call;
    m->timed.wait_s = clock_mono_s();
}

/* ---- communication ---- */

void meter_progress(struct meter *m, struct comm *c)
{
    if (!m || !comm_busy(c)) {
        comm_progress(c);
        return;
    }
    struct meter_start at = meter_begin(m);
    comm_progress(c);
    meter_end(m, at, METER_PROGRESS, -1);
}

/* Notes how long a message made the host wait, on a device that queues. If the stream's last wait
 * for an event was part of the message, it is counted as the message's. */
static void comm_call(struct meter *m, int kind, const struct comm_times *t)
{
    struct meter_timed *k = &m->timed;
    if (k->wait >= 0 && k->wait_s >= t->wait_s)
        k->calls[k->wait].kind = kind;
    meter_timed_host(m, kind, t->start_s, t->started_s);
    meter_timed_host(m, kind, t->wait_s, t->end_s);
}

/* Subtracts from the open call the time in which the host starts a message or waits for one. */
static void comm_host(void *ctx, bool enters)
{
    struct meter *m = ctx;
    if (m->timed.dev)
        return;
    if (enters) {
        m->host = meter_begin(m);
        return;
    }
    m->inner_cpu_s = m->host.inner_cpu_s + clock_cpu_s() - m->host.start_cpu_s + m->reading_s;
    m->inner_s = m->host.inner_s + clock_mono_s() - m->host.start_s;
}

/* Adds an operation whose wait has just ended. */
static void comm_traced(void *ctx, const struct comm *c, const struct comm_op *op,
                        const struct comm_times *t)
{
    struct meter *m = ctx;
    int kind = METER_COMM + op->kind;
    if (m->timed.dev)
        comm_call(m, kind, t);
    else
        m->seconds[kind] += t->started_s - t->start_s + t->end_s - t->wait_s;
    m->calls[kind]++;
    meter_span_add(m, (struct meter_span){
        .name = op->what, .group = c->axis,
        .start_s = t->start_s, .wait_s = t->wait_s, .end_s = t->end_s, .late_s = t->late_s,
        .arg = -1, .bytes = t->sent_bytes, .kind = kind
    });
}

/* ---- attaching ---- */

int meter_attach(struct meter *m, struct ops *o, struct dev_stream *s, struct comm *world,
                 struct err *err)
{
    struct dev *d = o->dev;
    int rc;
    BUG_ON(d->meter || m->ops);
    m->plain = *o;
    m->plain_dev = *d;
    if (!d->host_memory && (rc = meter_timed_open(&m->timed, d, &m->plain_dev, s, err)) < 0)
        return rc;
    m->queues = m->queues || !d->host_memory;
    m->ops = o;
    m->conf = world->conf;
#define REPLACE(op, args) o->op = measured_##op;
    OPS_LIST(REPLACE)
    d->copy = measured_dev_copy;
    d->copy_2d = measured_dev_copy_2d;
    d->fill = measured_dev_fill;
    if (m->timed.dev)
        d->event_wait = measured_event_wait;
    d->meter = m;
    world->conf->trace = comm_traced;
    world->conf->trace_host = comm_host;
    world->conf->trace_ctx = m;
    return 0;
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
    o->dev->event_wait = m->plain_dev.event_wait;
    o->dev->meter = NULL;
    meter_timed_close(&m->timed);
    m->conf->trace = NULL;
    m->conf->trace_host = NULL;
    m->ops = NULL;
}
