/* Implements dev.h with the CUDA runtime.
 *
 * Queued calls return nothing. The first error of such a call is kept together with the name of the
 * operation, and stream_sync returns it. An error of a kernel that runs later is seen by that sync
 * itself. Both messages name the device. Errors from which a GPU may recover after a restart (an
 * uncorrectable memory error, a device that fell off the bus) are ERR_TEMP: the run continues from
 * its newest checkpoint, perhaps on another node. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "trainer/cuda/cuda_priv.h"
#include "trainer/cuda/ranges.h"

/* A watched wait polls after naps of this length: a small part of the time waited so far, within
 * these limits, so that its end is noticed soon. */
static const double nap_part = 1. / 64, nap_least_s = 10e-6, nap_most_s = 200e-6;

/* Records the size of an allocation, because the CUDA runtime does not return it. */
struct block {
    struct block *next;
    void *ptr;
    int64_t bytes;
};

struct cuda {
    struct dev dev; /* first member */
    bool poison;
    int index;
    char gpu[sizeof((struct cudaDeviceProp *)0)->name];
    struct block *blocks;
    cudaError_t kept; /* the first error of a queued call; it is never cleared */
    const char *kept_what;
    struct err given_up; /* why `watch` ended a wait; code 0: it did not */
    struct ranges ranges;
    cudaError_t before_graph; /* the value of `kept` when the recording of a graph began */
};

struct dev_event { cudaEvent_t cuda; };
struct dev_graph { cudaGraphExec_t cuda; };

static struct cuda *cuda_of(struct dev *d) { return (struct cuda *)d; }

const char *dev_cuda_name(const struct dev *d) { return ((const struct cuda *)d)->gpu; }

void dev_cuda_fail(struct dev *d, cudaError_t e, const char *what)
{
    struct cuda *c = cuda_of(d);
    if (e == cudaSuccess || c->kept != cudaSuccess)
        return;
    c->kept = e;
    c->kept_what = what;
}

/* ---- the meaning of errors ---- */

static int code_of(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation: return ERR_NOMEM;
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorSystemNotReady:
    case cudaErrorUnknown: return ERR_TEMP;
    default: return ERR_STATE;
    }
}

static const char *advice_of(cudaError_t e)
{
    switch (e) {
    case cudaErrorInsufficientDriver:
        return "; there is no NVIDIA driver, or one older than this build's CUDA: load or update "
               "it, or compute on the CPU (--device cpu)";
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary: return "; ask for a GPU, or compute on the CPU (--device cpu)";
    default: return code_of(e) == ERR_TEMP ? "; checkpoints are good: run it again" : "";
    }
}

static int fail(const struct cuda *c, cudaError_t e, const char *what, struct err *err)
{
    return err_set(err, code_of(e), "GPU %d (%s): %s: %s%s", c->index, c->gpu, what,
                   cudaGetErrorString(e), advice_of(e));
}

/* ---- memory ---- */

/* Adds an allocation to the counts; negative bytes subtract it. */
static void count(struct dev *d, bool host, int64_t bytes)
{
    if (host)
        dev_count(&d->host_bytes, &d->host_peak_bytes, bytes);
    else
        dev_count(&d->alloc_bytes, &d->peak_bytes, bytes);
}

/* Sets an error that says how much was requested and how much the device has. */
static int no_memory(struct cuda *c, const char *what, int64_t bytes, struct err *err)
{
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    return err_set(err, ERR_NOMEM,
                   "GPU %d (%s): %s: no memory for %lld bytes: %lld of %lld are free and %lld "
                   "ours; give a smaller micro-batch or recompute=full",
                   c->index, c->gpu, what, (long long)bytes, (long long)free_bytes,
                   (long long)total, (long long)c->dev.alloc_bytes);
}

static int block_take(struct cuda *c, const char *what, int64_t bytes, bool host, void **out,
                      struct err *err)
{
    struct block *b = malloc(sizeof *b);
    size_t size = bytes > 0 ? (size_t)bytes : 1;
    if (!b || bytes < 0) {
        free(b);
        return err_set(err, ERR_NOMEM, "%s: no memory for %lld bytes", what, (long long)bytes);
    }
    cudaError_t e = host ? cudaMallocHost(&b->ptr, size) : cudaMalloc(&b->ptr, size);
    if (e != cudaSuccess) {
        free(b);
        cudaGetLastError(); /* clears the error, so that the next call does not return it */
        return e == cudaErrorMemoryAllocation && !host ? no_memory(c, what, bytes, err)
                                                       : fail(c, e, what, err);
    }
    b->bytes = bytes;
    b->next = c->blocks;
    c->blocks = b;
    count(&c->dev, host, bytes);
    *out = b->ptr;
    return 0;
}

static void block_give(struct dev *d, void *ptr, bool host)
{
    struct cuda *c = cuda_of(d);
    struct block **link = &c->blocks, *b;
    if (!ptr)
        return;
    while (*link && (*link)->ptr != ptr)
        link = &(*link)->next;
    BUG_ON(!*link);
    b = *link;
    *link = b->next;
    count(d, host, -b->bytes);
    dev_cuda_fail(d, host ? cudaFreeHost(ptr) : cudaFree(ptr), "memory is given back");
    free(b);
}

static int cuda_alloc(struct dev *d, const char *what, int64_t bytes, void **out, struct err *err)
{
    struct cuda *c = cuda_of(d);
    int rc = block_take(c, what, bytes, false, out, err);
    if (rc < 0 || !c->poison || bytes == 0)
        return rc;
    dev_cuda_fail(d, cudaMemset(*out, 0xff, (size_t)bytes), "poison");
    /* Our streams do not wait for the default stream, which fills the memory. */
    dev_cuda_fail(d, cudaStreamSynchronize(NULL), "poison");
    return 0;
}

static int cuda_alloc_host(struct dev *d, const char *what, int64_t bytes, void **out,
                           struct err *err)
{
    return block_take(cuda_of(d), what, bytes, true, out, err);
}

static void cuda_free(struct dev *d, void *ptr) { block_give(d, ptr, false); }
static void cuda_free_host(struct dev *d, void *ptr) { block_give(d, ptr, true); }

static int cuda_memory(struct dev *d, int64_t *free_bytes, int64_t *total_bytes, struct err *err)
{
    size_t left, total;
    cudaError_t e = cudaMemGetInfo(&left, &total);
    if (e != cudaSuccess)
        return fail(cuda_of(d), e, "how much memory is free", err);
    *free_bytes = (int64_t)left;
    *total_bytes = (int64_t)total;
    return 0;
}

/* ---- streams and events ---- */

static cudaError_t stream_create(cudaStream_t *out, enum dev_priority priority)
{
    int lowest, highest; /* smaller numbers have priority */
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    if (e != cudaSuccess)
        return e;
    return cudaStreamCreateWithPriority(out, cudaStreamNonBlocking,
                                        priority == DEV_PRIORITY_HIGH ? highest : lowest);
}

static int cuda_stream_new(struct dev *d, const char *name, enum dev_priority priority,
                           struct dev_stream **out, struct err *err)
{
    struct dev_stream *s = malloc(sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "stream '%s': no memory", name);
    s->dev = d;
    cudaError_t e = stream_create(&s->cuda, priority);
    if (e != cudaSuccess) {
        free(s);
        return fail(cuda_of(d), e, name, err);
    }
    *out = s;
    return 0;
}

static void cuda_stream_free(struct dev *d, struct dev_stream *s)
{
    dev_cuda_fail(d, cudaStreamSynchronize(s->cuda), "the end of a stream");
    dev_cuda_fail(d, cudaStreamDestroy(s->cuda), "the end of a stream");
    free(s);
}

/* Returns the state of an event, or of the stream if the event is NULL. "Not ready" is no error, so
 * it is cleared; else the next call would return it. */
static cudaError_t state_of(cudaStream_t s, cudaEvent_t e)
{
    cudaError_t state = e ? cudaEventQuery(e) : cudaStreamQuery(s);
    if (state == cudaErrorNotReady)
        cudaGetLastError();
    return state;
}

/* Calls `watch`. Returns false if it ends the wait, and keeps the reason. */
static bool wait_goes_on(struct cuda *c)
{
    struct err why = {0};
    if (c->dev.watch(c->dev.watch_ctx, &why) >= 0)
        return true;
    if (c->given_up.code == 0)
        c->given_up = why;
    return false;
}

/* Waits on the host for an event, or for the stream if the event is NULL. */
static void wait_for(struct cuda *c, cudaStream_t s, cudaEvent_t event, const char *what)
{
    double since = c->dev.watch ? clock_mono_s() : 0;
    cudaError_t e = cudaErrorNotReady;
    if (!c->dev.watch)
        e = event ? cudaEventSynchronize(event) : cudaStreamSynchronize(s);
    while (e == cudaErrorNotReady && (e = state_of(s, event)) == cudaErrorNotReady) {
        if (!wait_goes_on(c))
            return;
        double nap_s = nap_part * (clock_mono_s() - since);
        clock_sleep_s(nap_s < nap_least_s ? nap_least_s : nap_s > nap_most_s ? nap_most_s : nap_s);
    }
    dev_cuda_fail(&c->dev, e, what);
}

static int cuda_stream_sync(struct dev *d, struct dev_stream *s, struct err *err)
{
    struct cuda *c = cuda_of(d);
    BUG_ON(s->dev != d);
    d->syncs++;
    wait_for(c, s->cuda, NULL, "work on the device");
    struct err given_up = c->given_up;
    cudaError_t e = c->kept; /* it stays set, so that a caller who ignores it hides no error */
    c->given_up = (struct err){0};
    d->failed = d->failed || given_up.code || e != cudaSuccess;
    if (given_up.code)
        return err_set(err, given_up.code, "%s", given_up.text);
    return e == cudaSuccess ? 0 : fail(c, e, c->kept_what, err);
}

static int cuda_event_new(struct dev *d, struct dev_event **out, struct err *err)
{
    struct dev_event *e = malloc(sizeof *e);
    if (!e)
        return err_set(err, ERR_NOMEM, "event: no memory");
    cudaError_t failure = cudaEventCreate(&e->cuda);
    if (failure != cudaSuccess) {
        free(e);
        return fail(cuda_of(d), failure, "event", err);
    }
    *out = e;
    return 0;
}

static void cuda_event_free(struct dev *d, struct dev_event *e)
{
    dev_cuda_fail(d, cudaEventDestroy(e->cuda), "the end of an event");
    free(e);
}

static void cuda_event_record(struct dev *d, struct dev_event *e, struct dev_stream *s)
{
    BUG_ON(s->dev != d);
    dev_cuda_fail(d, cudaEventRecord(e->cuda, s->cuda), "an event is recorded");
}

static void cuda_event_wait(struct dev *d, struct dev_stream *s, struct dev_event *e)
{
    BUG_ON(s->dev != d);
    dev_cuda_fail(d, cudaStreamWaitEvent(s->cuda, e->cuda, 0), "a stream waits for an event");
}

static void cuda_event_sync(struct dev *d, struct dev_event *e)
{
    wait_for(cuda_of(d), NULL, e->cuda, "the host waits for an event");
}

static bool cuda_event_done(struct dev *d, struct dev_event *e)
{
    cudaError_t state = state_of(NULL, e->cuda);
    if (state != cudaErrorNotReady)
        dev_cuda_fail(d, state, "an event");
    return state != cudaErrorNotReady;
}

static double cuda_event_elapsed_s(struct dev *d, const struct dev_event *from,
                                   const struct dev_event *to)
{
    float ms = 0;
    dev_cuda_fail(d, cudaEventElapsedTime(&ms, from->cuda, to->cuda), "the time between events");
    return (double)ms * 1e-3;
}

/* ---- copies ---- */

static enum cudaMemcpyKind kind_of(enum dev_copy kind)
{
    switch (kind) {
    case DEV_H2D: return cudaMemcpyHostToDevice;
    case DEV_D2H: return cudaMemcpyDeviceToHost;
    case DEV_D2D: break;
    }
    return cudaMemcpyDeviceToDevice;
}

static void cuda_copy(struct dev *d, void *dst, const void *src, int64_t bytes, enum dev_copy kind,
                      struct dev_stream *s)
{
    BUG_ON(s->dev != d);
    if (bytes > 0)
        dev_cuda_fail(d, cudaMemcpyAsync(dst, src, (size_t)bytes, kind_of(kind), s->cuda),
                      "a copy");
}

static void cuda_copy_2d(struct dev *d, void *dst, int64_t dst_pitch, const void *src,
                         int64_t src_pitch, int64_t width, int64_t rows, enum dev_copy kind,
                         struct dev_stream *s)
{
    BUG_ON(s->dev != d || width > dst_pitch || width > src_pitch);
    if (width > 0 && rows > 0)
        dev_cuda_fail(d, cudaMemcpy2DAsync(dst, (size_t)dst_pitch, src, (size_t)src_pitch,
                                           (size_t)width, (size_t)rows, kind_of(kind), s->cuda),
                      "a copy of rows");
}

static void cuda_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes, struct dev_stream *s)
{
    BUG_ON(s->dev != d);
    if (bytes > 0)
        dev_cuda_fail(d, cudaMemsetAsync(dst, byte, (size_t)bytes, s->cuda), "a fill");
}

/* ---- graphs ---- */

/* Returns why there is no graph. Clears the runtime's error, so that no later call returns it.
 * Errors of calls that were being recorded are reported here only. */
static int no_graph(struct cuda *c, cudaError_t e, struct err *err)
{
    cudaGetLastError();
    return err_set(err, ERR_STATE, "GPU %d (%s): a graph: %s", c->index, c->gpu,
                   cudaGetErrorString(e));
}

static int cuda_graph_begin(struct dev *d, struct dev_stream *s, struct err *err)
{
    struct cuda *c = cuda_of(d);
    cudaError_t e = cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeThreadLocal);
    c->before_graph = c->kept;
    return e == cudaSuccess ? 0 : no_graph(c, e, err);
}

static int cuda_graph_end(struct dev *d, struct dev_stream *s, struct dev_graph **out,
                          struct err *err)
{
    struct cuda *c = cuda_of(d);
    struct dev_graph *g = malloc(sizeof *g);
    cudaGraph_t graph = NULL;
    cudaError_t e = cudaStreamEndCapture(s->cuda, &graph), failed = c->kept;
    c->kept = c->before_graph;
    if (e == cudaSuccess && failed != c->kept)
        e = failed;
    if (e == cudaSuccess && !g)
        e = cudaErrorMemoryAllocation;
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&g->cuda, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (e != cudaSuccess) {
        free(g);
        return no_graph(c, e, err);
    }
    *out = g;
    return 0;
}

static void cuda_graph_launch(struct dev *d, struct dev_graph *g, struct dev_stream *s)
{
    BUG_ON(s->dev != d);
    dev_cuda_fail(d, cudaGraphLaunch(g->cuda, s->cuda), "the launch of a graph");
}

static void cuda_graph_free(struct dev *d, struct dev_graph *g)
{
    dev_cuda_fail(d, cudaGraphExecDestroy(g->cuda), "the end of a graph");
    free(g);
}

/* ---- for profilers ---- */

struct ranges *dev_cuda_ranges(struct dev *d) { return &cuda_of(d)->ranges; }

static void cuda_range_step(struct dev *d, int64_t step) { ranges_step(&cuda_of(d)->ranges, step); }

/* ---- opening and closing ---- */

static void cuda_close(struct dev *d)
{
    struct cuda *c = cuda_of(d);
    BUG_ON(c->blocks);
    free(c);
}

int dev_cuda_count(int *gpus, struct err *err)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n == 0)
        e = cudaErrorNoDevice;
    if (e != cudaSuccess)
        return err_set(err, ERR_ENV, "CUDA: %s%s", cudaGetErrorString(e), advice_of(e));
    *gpus = n;
    return 0;
}

/* Checks that this build's kernels run on a GPU: capability 9.0, 10.0, or later by PTX. */
static int check_kind(const struct cudaDeviceProp *p, int index, struct err *err)
{
    if (p->major >= 9)
        return 0;
    return err_set(err, ERR_ENV,
                   "GPU %d (%s) is of compute capability %d.%d, and this build computes on 9.0 "
                   "(H100, H200) and later: choose another GPU or --device cpu",
                   index, p->name, p->major, p->minor);
}

static const struct dev table = {
    .name = "cuda", .host_memory = false,
    .alloc = cuda_alloc, .free = cuda_free,
    .alloc_host = cuda_alloc_host, .free_host = cuda_free_host, .memory = cuda_memory,
    .stream_new = cuda_stream_new, .stream_free = cuda_stream_free,
    .stream_sync = cuda_stream_sync,
    .event_new = cuda_event_new, .event_free = cuda_event_free,
    .event_record = cuda_event_record, .event_wait = cuda_event_wait,
    .event_sync = cuda_event_sync, .event_done = cuda_event_done,
    .event_elapsed_s = cuda_event_elapsed_s,
    .copy = cuda_copy, .copy_2d = cuda_copy_2d, .fill = cuda_fill,
    .graph_begin = cuda_graph_begin, .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch, .graph_free = cuda_graph_free,
    .range_step = cuda_range_step, .close = cuda_close,
};

/* Reads the runtime's description of a GPU that this process may use. */
static int prop_read(int index, struct cudaDeviceProp *prop, struct err *err)
{
    int gpus, rc;
    if ((rc = dev_cuda_count(&gpus, err)) < 0)
        return rc;
    if (index < 0 || index >= gpus)
        return err_set(err, ERR_ENV,
                       "GPU %d is asked for and this process may use %d: start as many ranks on a "
                       "node as it has GPUs, or look at CUDA_VISIBLE_DEVICES", index, gpus);
    cudaError_t e = cudaGetDeviceProperties(prop, index);
    if (e != cudaSuccess)
        return err_set(err, ERR_ENV, "GPU %d: %s%s", index, cudaGetErrorString(e), advice_of(e));
    return 0;
}

int dev_cuda_describe(int index, struct cuda_gpu *out, struct err *err)
{
    struct cudaDeviceProp prop;
    int rc;
    if ((rc = prop_read(index, &prop, err)) < 0)
        return rc;
    out->total_bytes = (int64_t)prop.totalGlobalMem;
    memcpy(out->name, prop.name, sizeof out->name);
    memcpy(out->uuid, &prop.uuid, sizeof out->uuid);
    return 0;
}

int dev_cuda_open(int index, bool poison, struct dev **out, struct err *err)
{
    struct cudaDeviceProp prop;
    int rc;
    if ((rc = prop_read(index, &prop, err)) < 0)
        return rc;
    if ((rc = check_kind(&prop, index, err)) < 0)
        return rc;
    cudaError_t e = cudaSetDevice(index);
    if (e != cudaSuccess)
        return err_set(err, ERR_ENV, "GPU %d (%s): %s%s", index, prop.name, cudaGetErrorString(e),
                       advice_of(e));
    struct cuda *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "GPU %d: no memory on the host", index);
    c->dev = table;
    c->poison = poison;
    c->index = index;
    memcpy(c->gpu, prop.name, sizeof c->gpu);
    *out = &c->dev;
    return 0;
}
