/* This file stands in for CUPTI's activity API, and for NVTX. The shim's runtime reports the work
 * that it queues; the times of an activity are those at which the far device runs it. Records go
 * into buffers of the subscriber, as with CUPTI. Ranges are recorded only if NVTX_INJECTION64_PATH
 * was set when the first range began.
 *
 * Environment: REEL_SHIM_PROFILER=NAME makes a tool of this name hold CUPTI. REEL_SHIM_FAIL (see
 * shim.h) supports cuptiSubscribe_v2, cuptiActivityEnable and record: the Nth record is dropped. */
#include "cupti.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "nvtx3/nvToolsExt.h"
#include "shim.h"
#include "trainer/dev/dev_far.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the buffer */
static struct {
    bool subscribed, on[CUPTI_ACTIVITY_KIND_COUNT];
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    uint8_t *buffer;
    size_t size, used, dropped;
    uint32_t calls, ranges;
} cupti;

static uint64_t now(void) { return (uint64_t)clock_mono_ns(); }
static uint32_t thread(void) { return (uint32_t)(uintptr_t)pthread_self(); }

/* ---- buffers ---- */

static void buffer_complete(void)
{
    if (cupti.buffer)
        cupti.complete(NULL, 0, cupti.buffer, cupti.size, cupti.used);
    cupti.buffer = NULL;
}

/* All records have the size of the largest one. */
union record {
    CUpti_Activity any;
    CUpti_ActivityMarker2 marker;
    CUpti_ActivityAPI api;
    CUpti_ActivityKernel10 work;
};

static void record_add(const union record *r)
{
    size_t most;
    if (cupti.buffer && cupti.used + sizeof *r > cupti.size)
        buffer_complete();
    if (!cupti.buffer) {
        cupti.used = 0;
        cupti.request(&cupti.buffer, &cupti.size, &most);
    }
    if (!cupti.buffer || cupti.size < sizeof *r || shim_failure("record")) {
        cupti.dropped++;
        return;
    }
    memcpy(cupti.buffer + cupti.used, r, sizeof *r);
    cupti.used += sizeof *r;
}

static void record_put(const union record *r)
{
    pthread_mutex_lock(&mutex);
    if (cupti.on[r->any.kind])
        record_add(r);
    pthread_mutex_unlock(&mutex);
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + sizeof(union record) : buffer;
    if (next + sizeof(union record) > buffer + valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

/* ---- names of kernels ---- */

/* Finds the function in an ELF file that begins at this offset from the load address. */
static const char *symbol_find(const char *elf, uint64_t offset)
{
    const Elf64_Ehdr *head = (const void *)elf;
    const Elf64_Shdr *sections = (const void *)(elf + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        const Elf64_Sym *symbols = (const void *)(elf + sections[i].sh_offset);
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (symbols[k].st_value == offset && ELF64_ST_TYPE(symbols[k].st_info) == STT_FUNC)
                return elf + sections[sections[i].sh_link].sh_offset + symbols[k].st_name;
    }
    return "unknown";
}

/* Returns the name of a kernel. Kernels are not exported symbols, so the library's file is read. */
static const char *kernel_name(const void *kernel)
{
    static struct { const void *kernel; const char *name; } known[256];
    static struct str file;
    Dl_info info;
    size_t i = 0;
    while (i < 255 && known[i].kernel && known[i].kernel != kernel)
        i++;
    if (known[i].kernel == kernel)
        return known[i].name;
    if (!dladdr(kernel, &info) ||
        (!file.len && file_read(info.dli_fname, INT64_C(1) << 30, &file, NULL) < 0))
        return "unknown";
    known[i].kernel = kernel;
    known[i].name =
        symbol_find(file.p, (uint64_t)((const char *)kernel - (const char *)info.dli_fbase));
    return known[i].name;
}

/* ---- activities ---- */

/* Returns a place for the start time of a stream's current work. The work of a stream runs in
 * order. */
static uint64_t *started_at(const struct dev_stream *s)
{
    static struct { const struct dev_stream *s; uint64_t at; } streams[64];
    size_t i = 0;
    while (i < 63 && streams[i].s && streams[i].s != s)
        i++;
    streams[i].s = s;
    return &streams[i].at;
}

/* Holds the arguments of the records that are queued around work; a graph may queue them many
 * times. */
struct stamp { struct dev_stream *s; struct shim_activity a; };

static void started(void *args) { *started_at(((struct stamp *)args)->s) = now(); }

static void done(void *args)
{
    static const CUpti_ActivityKind kinds[] = {
        [SHIM_ACTIVITY_KERNEL] = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        [SHIM_ACTIVITY_COPY] = CUPTI_ACTIVITY_KIND_MEMCPY,
        [SHIM_ACTIVITY_FILL] = CUPTI_ACTIVITY_KIND_MEMSET};
    const struct stamp *p = args;
    union record r = {.work = {.kind = kinds[p->a.kind], .start = *started_at(p->s), .end = now(),
                               .correlationId = p->a.call, .name = p->a.name}};
    record_put(&r);
}

/* Records the call. Returns its correlation id. */
static uint32_t call_put(void)
{
    union record r = {.api = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME, .start = now(),
                              .threadId = thread(), .correlationId = ++cupti.calls}};
    r.api.end = r.api.start;
    record_put(&r);
    return cupti.calls;
}

static bool graph_records;

void shim_activity_graph(bool records) { graph_records = records; }

struct shim_activity shim_activity_begin(struct dev_stream *s, enum shim_activity_kind kind,
                                         const void *kernel, const char *name)
{
    if (!graph_records && !cupti.on[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL])
        return (struct shim_activity){0};
    struct stamp p = {s, {true, kind, call_put(), kernel ? kernel_name(kernel) : name}};
    dev_far_queue(s, started, &p, sizeof p);
    return p.a;
}

void shim_activity_end(struct dev_stream *s, struct shim_activity a)
{
    struct stamp p = {s, a};
    if (a.on)
        dev_far_queue(s, done, &p, sizeof p);
}

/* ---- ranges ---- */

static bool ranges_lead(void)
{
    static int lead = -1;
    if (lead < 0)
        lead = getenv("NVTX_INJECTION64_PATH") != NULL;
    return lead;
}

static uint32_t open_ranges[64];
static int depth;

int nvtxRangePushA(const char *name)
{
    union record r = {.marker = {
        .kind = CUPTI_ACTIVITY_KIND_MARKER, .flags = CUPTI_ACTIVITY_FLAG_MARKER_START,
        .timestamp = now(), .id = ++cupti.ranges, .objectId.pt.threadId = thread()}};
    if (!ranges_lead())
        return -2;
    r.marker.name = strdup(name); /* never freed, as with CUPTI */
    open_ranges[depth % 64] = cupti.ranges;
    record_put(&r);
    return depth++;
}

int nvtxRangePop(void)
{
    if (!ranges_lead() || depth == 0)
        return -2;
    union record r = {.marker = {
        .kind = CUPTI_ACTIVITY_KIND_MARKER, .flags = CUPTI_ACTIVITY_FLAG_MARKER_END,
        .timestamp = now(), .id = open_ranges[--depth % 64], .objectId.pt.threadId = thread()}};
    record_put(&r);
    return depth;
}

/* ---- the interface ---- */

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *ctx,
                              CUpti_SubscriberParams *params)
{
    const char *other = getenv("REEL_SHIM_PROFILER");
    int failure = shim_failure("cuptiSubscribe_v2");
    (void)callback, (void)ctx;
    if (failure)
        return (CUptiResult)failure;
    if (other || cupti.subscribed) {
        snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s",
                 other ? other : "CUPTI for reel");
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    cupti.subscribed = true;
    *out = (CUpti_SubscriberHandle)(void *)&cupti;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    (void)subscriber;
    cupti.subscribed = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    cupti.request = request;
    cupti.complete = complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    int failure = shim_failure("cuptiActivityEnable");
    if (failure)
        return (CUptiResult)failure;
    if (!cupti.request)
        return CUPTI_ERROR_INVALID_PARAMETER;
    cupti.on[kind] = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    cupti.on[kind] = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    pthread_mutex_lock(&mutex);
    buffer_complete();
    pthread_mutex_unlock(&mutex);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n)
{
    (void)context, (void)stream;
    *n = cupti.dropped;
    cupti.dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *ns)
{
    *ns = now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult e, const char **text)
{
    *text = e == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                     : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

void shim_inject(void)
{
    static bool tried;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (tried || !path)
        return;
    tried = true;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    int (*entry)(void);
    if (!handle || !(symbol = dlsym(handle, "InitializeInjection"))) {
        fprintf(stderr, "shim: %s\n", dlerror());
        return;
    }
    memcpy(&entry, &symbol, sizeof entry);
    entry();
}
