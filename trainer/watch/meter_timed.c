#include "trainer/watch/meter_timed.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "trainer/watch/meter.h"

enum { TIMED_MOST = 1 << 13 }; /* the most calls, and the most host activities, between two reads */

int64_t meter_timed_bytes(void)
{
    return TIMED_MOST * (int64_t)(sizeof(struct meter_call) + sizeof(struct meter_host));
}

static int events_take(struct meter_timed *k, struct err *err)
{
    int rc;
    if ((rc = k->dev->event_new(k->dev, &k->base, err)) < 0)
        return rc;
    if ((rc = k->dev->event_new(k->dev, &k->end, err)) < 0)
        return rc;
    for (int64_t i = 0; i < TIMED_MOST; i++) {
        if ((rc = k->dev->event_new(k->dev, &k->calls[i].from, err)) < 0)
            return rc;
        if ((rc = k->dev->event_new(k->dev, &k->calls[i].to, err)) < 0)
            return rc;
    }
    return 0;
}

/* Makes the present moment the new base. The device is idle after the sync. */
static void base_set(struct meter_timed *k)
{
    k->plain->event_record(k->dev, k->base, k->stream);
    k->plain->event_sync(k->dev, k->base);
    k->base_s = clock_mono_s();
    k->n_calls = k->n_host = 0;
    k->wait = -1;
}

int meter_timed_open(struct meter_timed *k, struct dev *dev, const struct dev *plain,
               struct dev_stream *stream, struct err *err)
{
    int rc;
    *k = (struct meter_timed){.dev = dev, .plain = plain, .stream = stream, .wait = -1};
    k->calls = calloc(TIMED_MOST, sizeof *k->calls);
    k->host = calloc(TIMED_MOST, sizeof *k->host);
    if (!k->calls || !k->host) {
        rc = err_set(err, ERR_NOMEM, "no memory to measure a device with");
        goto out;
    }
    if ((rc = events_take(k, err)) < 0)
        goto out;
    base_set(k);
    return 0;
out:
    meter_timed_close(k);
    return rc;
}

static void event_drop(struct dev *d, struct dev_event *e)
{
    if (e)
        d->event_free(d, e);
}

void meter_timed_close(struct meter_timed *k)
{
    if (!k->dev)
        return;
    event_drop(k->dev, k->base);
    event_drop(k->dev, k->end);
    for (int64_t i = 0; k->calls && i < TIMED_MOST; i++) {
        event_drop(k->dev, k->calls[i].from);
        event_drop(k->dev, k->calls[i].to);
    }
    free(k->calls);
    free(k->host);
    *k = (struct meter_timed){0};
}

int64_t meter_timed_begin(struct meter *m, const struct dev_stream *s)
{
    struct meter_timed *k = &m->timed;
    if (s != k->stream)
        return -1;
    if (k->n_calls == TIMED_MOST)
        meter_timed_read(m);
    k->calls[k->n_calls].queued_s = clock_mono_s();
    k->plain->event_record(k->dev, k->calls[k->n_calls].from, k->stream);
    return k->n_calls++;
}

void meter_timed_end(struct meter_timed *k, int64_t call, int kind)
{
    if (call < 0)
        return;
    k->calls[call].kind = kind;
    k->plain->event_record(k->dev, k->calls[call].to, k->stream);
}

void meter_timed_host(struct meter *m, int kind, double start_s, double end_s)
{
    struct meter_timed *k = &m->timed;
    if (k->n_host == TIMED_MOST)
        meter_timed_read(m);
    k->host[k->n_host++] = (struct meter_host){fmax(start_s, k->base_s), end_s, kind};
}

/* ---- reading ---- */

static int by_start(const void *a, const void *b)
{
    const struct meter_host *x = a, *y = b;
    return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

/* Adds the time from..to, in which the device was idle, to the kinds of what the host did in it.
 * *next is the first host activity that may end after `from`. Time before *done has been added
 * already. */
static void idle_give(struct meter *m, double from, double to, int64_t *next, double *done)
{
    const struct meter_timed *k = &m->timed;
    while (*next < k->n_host && k->host[*next].end_s <= from)
        ++*next;
    for (int64_t i = *next; i < k->n_host && k->host[i].start_s < to; i++) {
        double begin = fmax(fmax(k->host[i].start_s, from), *done);
        double end = fmin(k->host[i].end_s, to);
        if (end <= begin)
            continue;
        m->seconds[k->host[i].kind] += end - begin;
        *done = end;
    }
}

/* Adds a call that ran from..to. */
static void call_add(struct meter *m, const struct meter_call *c, double from, double to)
{
    m->seconds[c->kind] += to - from;
    m->calls[c->kind]++;
    meter_span_add(m, (struct meter_span){
        .name = meter_kind_names[c->kind], .start_s = from, .end_s = to, .queued_s = c->queued_s,
        .arg = -1, .kind = c->kind, .device = true
    });
}

void meter_timed_read(struct meter *m)
{
    struct meter_timed *k = &m->timed;
    double busy = k->base_s, done = k->base_s;
    int64_t next = 0;
    k->plain->event_record(k->dev, k->end, k->stream);
    k->plain->event_sync(k->dev, k->end);
    double now = clock_mono_s();
    qsort(k->host, (size_t)k->n_host, sizeof *k->host, by_start);
    for (int64_t i = 0; i < k->n_calls; i++) {
        const struct meter_call *c = &k->calls[i];
        double from = k->base_s + k->plain->event_elapsed_s(k->dev, k->base, c->from),
               to = k->base_s + k->plain->event_elapsed_s(k->dev, k->base, c->to);
        idle_give(m, busy, from, &next, &done);
        call_add(m, c, from, to);
        busy = to;
    }
    idle_give(m, busy, now, &next, &done);
    base_set(k);
}
