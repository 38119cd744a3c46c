#include "trainer/cupti/recorder.h"

#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>

#include "trainer/cupti/records.h"
#include "trainer/cupti/report.h"

enum { BUFFER_BYTES = 1 << 20, BUFFERS = 64, ALIGN_BYTES = 64, TOOL_BYTES = 128 };

/* Holds the only recording of this process. */
static struct {
    pthread_mutex_t mutex; /* protects the other members: CUPTI calls from its own threads */
    bool on;
    struct records records;
    uint8_t *pool;
    bool taken[BUFFERS];
    int64_t lost;          /* buffers that CUPTI asked for when none was free */
    CUpti_SubscriberHandle subscriber;
    uint64_t from_ns;
} rec = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- CUPTI's buffers ---- */

static void CUPTIAPI buffer_give(uint8_t **buffer, size_t *bytes, size_t *most)
{
    *buffer = NULL;
    *bytes = *most = 0;
    pthread_mutex_lock(&rec.mutex);
    int i = 0;
    while (i < BUFFERS && rec.taken[i])
        i++;
    if (i < BUFFERS && rec.pool) {
        rec.taken[i] = true;
        *buffer = rec.pool + (size_t)i * BUFFER_BYTES;
        *bytes = BUFFER_BYTES;
    } else {
        rec.lost++;
    }
    pthread_mutex_unlock(&rec.mutex);
}

static void marker_take(struct records *r, const CUpti_ActivityMarker2 *m)
{
    if (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_START)
        records_range_begin(r, m->id, m->objectId.pt.threadId, m->name, m->timestamp);
    else if (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_END)
        records_range_end(r, m->id, m->timestamp);
}

static void call_take(struct records *r, const CUpti_ActivityAPI *a)
{
    records_call(r, a->correlationId, a->threadId, a->start);
}

static void kernel_take(struct records *r, const CUpti_ActivityKernel10 *k)
{
    records_activity(r, RECORD_KERNEL, k->name, k->start, k->end, k->correlationId);
}

static void copy_take(struct records *r, const CUpti_ActivityMemcpy6 *c)
{
    records_activity(r, RECORD_COPY, "copy", c->start, c->end, c->correlationId);
}

static void peer_copy_take(struct records *r, const CUpti_ActivityMemcpyPtoP4 *c)
{
    records_activity(r, RECORD_PEER_COPY, "copy between GPUs", c->start, c->end, c->correlationId);
}

static void fill_take(struct records *r, const CUpti_ActivityMemset4 *f)
{
    records_activity(r, RECORD_COPY, "fill", f->start, f->end, f->correlationId);
}

static void overhead_take(struct records *r, const CUpti_ActivityOverhead3 *o)
{
    r->overhead_ns += (int64_t)(o->end - o->start);
}

/* Stores one of CUPTI's records; its kind says of which type it is. */
static void record_take(struct records *r, const CUpti_Activity *record)
{
    const void *p = record;
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: kernel_take(r, p); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: copy_take(r, p); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: peer_copy_take(r, p); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: fill_take(r, p); break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: call_take(r, p); break;
    case CUPTI_ACTIVITY_KIND_MARKER: marker_take(r, p); break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: overhead_take(r, p); break;
    default: break;
    }
}

static void CUPTIAPI buffer_take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)bytes;
    pthread_mutex_lock(&rec.mutex);
    while (rec.on && buffer && valid > 0 &&
           cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        record_take(&rec.records, record);
    if (buffer && rec.pool)
        rec.taken[(buffer - rec.pool) / BUFFER_BYTES] = false;
    pthread_mutex_unlock(&rec.mutex);
}

/* ---- beginning ---- */

static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_MARKER, CUPTI_ACTIVITY_KIND_OVERHEAD};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int fail(CUptiResult e, const char *what, struct err *err)
{
    const char *text = NULL;
    if (cuptiGetResultString(e, &text) != CUPTI_SUCCESS || !text)
        text = "an error that it does not name";
    return err_set(err, ERR_ENV, "CUPTI: %s: %s (%d)", what, text, (int)e);
}

/* Does nothing: a subscriber must have a callback, but the activity API needs none. */
static void CUPTIAPI callback(void *ctx, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                              const void *data)
{
    (void)ctx, (void)domain, (void)id, (void)data;
}

static int subscribe(struct err *err)
{
    char tool[TOOL_BYTES] = "";
    CUpti_SubscriberParams params = {
        .structSize = CUpti_SubscriberParams_STRUCT_SIZE, .subscriberName = "reel",
        .oldSubscriberName = tool, .oldSubscriberSize = sizeof tool};
    CUptiResult e = cuptiSubscribe_v2(&rec.subscriber, callback, NULL, &params);
    tool[sizeof tool - 1] = '\0';
    if (e == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return err_set(err, ERR_BUSY,
                       "the GPU's activity is not recorded: the profiler '%s' holds CUPTI, which "
                       "serves one at a time: run without it", tool[0] ? tool : "unknown");
    return e == CUPTI_SUCCESS ? 0 : fail(e, "subscribing", err);
}

static int kinds_enable(struct err *err)
{
    CUptiResult e = cuptiActivityRegisterCallbacks(buffer_give, buffer_take);
    if (e != CUPTI_SUCCESS)
        return fail(e, "registering buffers", err);
    for (int i = 0; i < KINDS; i++)
        if ((e = cuptiActivityEnable(kinds[i])) != CUPTI_SUCCESS)
            return fail(e, "enabling a kind of activity", err);
    e = cuptiGetTimestamp(&rec.from_ns);
    return e == CUPTI_SUCCESS ? 0 : fail(e, "reading its clock", err);
}

static void give_up(void)
{
    for (int i = 0; i < KINDS; i++)
        cuptiActivityDisable(kinds[i]);
    if (rec.subscriber)
        cuptiUnsubscribe(rec.subscriber);
    pthread_mutex_lock(&rec.mutex);
    rec.on = false;
    rec.subscriber = NULL;
    records_close(&rec.records);
    pthread_mutex_unlock(&rec.mutex);
}

static int memory_take(struct err *err)
{
    int rc;
    if (!rec.pool && !(rec.pool = aligned_alloc(ALIGN_BYTES, (size_t)BUFFERS * BUFFER_BYTES)))
        return err_set(err, ERR_NOMEM, "no memory to record a GPU's activity");
    if ((rc = records_open(&rec.records, err)) < 0)
        return rc;
    rec.on = true;
    rec.lost = 0;
    return 0;
}

int recorder_begin(struct err *err)
{
    int rc;
    if (rec.on)
        return err_set(err, ERR_BUSY, "the GPU's activity is recorded already, since this process "
                       "began: leave LD_PRELOAD or CUDA_INJECTION64_PATH out");
    if ((rc = memory_take(err)) < 0)
        return rc;
    if ((rc = subscribe(err)) < 0)
        goto out;
    if ((rc = kinds_enable(err)) < 0)
        goto out;
    return 0;
out:
    give_up();
    return rc;
}

/* ---- ending ---- */

/* Returns how many records were lost. Unless CUPTI counts those that it dropped, each buffer that
 * could not be given counts as one. */
static int64_t dropped(void)
{
    size_t n = 0;
    if (cuptiActivityGetNumDroppedRecords(NULL, 0, &n) != CUPTI_SUCCESS || n == 0)
        n = (size_t)rec.lost;
    return rec.records.dropped + (int64_t)n;
}

static int sums_make(const struct activity_facts *f, uint64_t to_ns, struct activity_result *out,
                     struct err *err)
{
    struct records *r = &rec.records;
    records_join(r);
    struct records_steps s = records_steps(r);
    if (f->steps > 0 && !s.named)
        s = (struct records_steps){(int64_t)rec.from_ns, (int64_t)to_ns, f->steps, false};
    if (s.n == 0)
        return err_set(err, ERR_STATE, "nothing ran on a GPU while it was recorded");
    *out = (struct activity_result){
        .steps = s.n, .activities = r->n_activities, .dropped = dropped(),
        .overhead_s = (double)r->overhead_ns * 1e-9 / (double)s.n};
    struct timeline t = {
        .n = r->n_activities, .from_ns = s.from_ns, .to_ns = s.to_ns, .steps = s.n,
        .model_flops = f->model_flops, .hardware_flops = f->hardware_flops,
        .peak_flops = f->peak_flops};
    struct timeline_item *items = malloc((size_t)(t.n + 1) * sizeof *items);
    if (!items)
        return err_set(err, ERR_NOMEM, "no memory to sum a GPU's activity");
    for (int64_t i = 0; i < t.n; i++)
        items[i] = (struct timeline_item){r->activities[i].start_ns, r->activities[i].end_ns,
                                          r->activities[i].class};
    t.items = items;
    int rc = timeline_sums(&t, &out->sums, err);
    free(items);
    return rc;
}

int recorder_end(const struct activity_facts *facts, const char *path, struct activity_result *out,
                 struct err *err)
{
    uint64_t to_ns = 0;
    CUptiResult e;
    int rc;
    if (!rec.on)
        return err_set(err, ERR_STATE, "no recording of a GPU's activity was begun");
    if ((e = cuptiGetTimestamp(&to_ns)) != CUPTI_SUCCESS) {
        rc = fail(e, "reading its clock", err);
        goto out;
    }
    if ((e = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)) != CUPTI_SUCCESS) {
        rc = fail(e, "taking the last records", err);
        goto out;
    }
    if ((rc = sums_make(facts, to_ns, out, err)) < 0)
        goto out;
    rc = path ? report_write(&rec.records, facts, out, path, err) : 0;
out:
    give_up();
    return rc;
}
