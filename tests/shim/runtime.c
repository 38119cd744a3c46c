#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity.h"
#include "shim.h"
#include "trainer/dev/dev_far.h"

/* This is the one GPU that the process has chosen. */
static struct {
    struct dev *far;
    struct dev_stream *none; /* the stream of calls that name none */
    int index;
    cudaError_t last;
    struct { const void *kernel; int bytes; } shared[64]; /* kernels with more shared memory */
    const void *launching; /* the kernel that the next call of shim_queue queues */
} gpu;

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t shim_seed(void) { return number_of("REEL_SHIM_SEED", 0); }

int shim_failure(const char *call)
{
    static char of[128]; /* the value of REEL_SHIM_FAIL for which `calls` counts */
    static int64_t calls;
    const char *asked = getenv("REEL_SHIM_FAIL");
    size_t n = strlen(call);
    char *rest;
    if (!asked || strncmp(asked, call, n) != 0 || asked[n] != ':')
        return 0;
    if (strncmp(of, asked, sizeof of - 1) != 0)
        calls = 0;
    strncpy(of, asked, sizeof of - 1);
    if (++calls != strtol(asked + n + 1, &rest, 10))
        return 0;
    return (int)strtol(rest + 1, NULL, 10);
}

/* Tells whether the GPU is lost. It is lost for good once a file exists that matches the pattern in
 * the environment. */
static bool is_lost(void)
{
    static bool lost;
    const char *pattern = getenv("REEL_SHIM_LOST");
    if (!lost && pattern) {
        glob_t found = {0};
        lost = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
        globfree(&found);
    }
    return lost;
}

/* Returns the result of a call: the error that the environment requests, or `e`. An error is stored
 * for cudaGetLastError. */
static cudaError_t result(const char *call, cudaError_t e)
{
    cudaError_t asked = (cudaError_t)shim_failure(call);
    if (asked != cudaSuccess)
        e = asked;
    if (is_lost())
        e = cudaErrorECCUncorrectable;
    if (e != cudaSuccess)
        gpu.last = e;
    return e;
}
#define RESULT(e) result(__func__, e)
/* Returns an error from a call if the GPU is lost. */
#define NOT_LOST                                         \
    do {                                                 \
        if (is_lost())                                   \
            return RESULT(cudaErrorECCUncorrectable);    \
    } while (0)

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = gpu.last;
    gpu.last = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorECCUncorrectable: return "uncorrectable ECC error encountered";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    default: return "an error of the shim";
    }
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *n)
{
    shim_inject();
    *n = (int)number_of("REEL_SHIM_GPUS", 8);
    return RESULT(*n > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int index)
{
    struct err err = {0};
    if (index >= (int)number_of("REEL_SHIM_GPUS", 8))
        return RESULT(cudaErrorInvalidDevice);
    if (!gpu.far && (dev_far_open(shim_seed(), &gpu.far, &err) < 0 ||
                     gpu.far->stream_new(gpu.far, "none", DEV_PRIORITY_NORMAL, &gpu.none,
                                         &err) < 0))
        return RESULT(cudaErrorMemoryAllocation);
    gpu.index = index;
    return RESULT(cudaSuccess);
}

cudaError_t cudaGetDevice(int *index)
{
    *index = gpu.index;
    return RESULT(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int index)
{
    int first = (int)number_of("REEL_SHIM_FIRST", 0);
    *p = (struct cudaDeviceProp){
        .name = "shim", .uuid = {{'s', 'h', 'i', 'm', (char)(first + index)}},
        .totalGlobalMem = number_of("REEL_SHIM_BYTES", UINT64_C(64) << 30),
        .major = (int)number_of("REEL_SHIM_MAJOR", 9), .multiProcessorCount = 132};
    return RESULT(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = number_of("REEL_SHIM_BYTES", UINT64_C(64) << 30);
    *free_bytes = *total - (size_t)gpu.far->alloc_bytes;
    return RESULT(cudaSuccess);
}

/* ---- memory ---- */

static cudaError_t taken(int rc) { return rc < 0 ? cudaErrorMemoryAllocation : cudaSuccess; }

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    NOT_LOST;
    size_t left, total;
    cudaMemGetInfo(&left, &total);
    cudaError_t e = RESULT(bytes > left ? cudaErrorMemoryAllocation : cudaSuccess);
    return e != cudaSuccess ? e
                            : RESULT(taken(gpu.far->alloc(gpu.far, "", (int64_t)bytes, out, NULL)));
}

cudaError_t cudaFree(void *ptr)
{
    NOT_LOST;
    gpu.far->free(gpu.far, ptr);
    return RESULT(cudaSuccess);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    NOT_LOST;
    return RESULT(taken(gpu.far->alloc_host(gpu.far, "", (int64_t)bytes, out, NULL)));
}

cudaError_t cudaFreeHost(void *ptr)
{
    NOT_LOST;
    gpu.far->free_host(gpu.far, ptr);
    return RESULT(cudaSuccess);
}

/* ---- streams and events: those of the far device ---- */

static struct dev_stream *stream_of(cudaStream_t s)
{
    return s ? (struct dev_stream *)s : gpu.none;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    *lowest = 0;
    *highest = -5;
    return RESULT(cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    NOT_LOST;
    enum dev_priority p = priority < 0 ? DEV_PRIORITY_HIGH : DEV_PRIORITY_NORMAL;
    if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5)
        return RESULT(cudaErrorInvalidValue);
    return RESULT(taken(gpu.far->stream_new(gpu.far, "", p, (struct dev_stream **)out, NULL)));
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    NOT_LOST;
    gpu.far->stream_free(gpu.far, stream_of(s));
    return RESULT(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    NOT_LOST;
    int rc = gpu.far->stream_sync(gpu.far, stream_of(s), NULL);
    return RESULT(rc < 0 ? cudaErrorUnknown : cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    NOT_LOST;
    return RESULT(dev_far_try(stream_of(s)) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    NOT_LOST;
    (void)flags;
    gpu.far->event_wait(gpu.far, stream_of(s), (struct dev_event *)e);
    return RESULT(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    NOT_LOST;
    return RESULT(taken(gpu.far->event_new(gpu.far, (struct dev_event **)out, NULL)));
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    NOT_LOST;
    gpu.far->event_free(gpu.far, (struct dev_event *)e);
    return RESULT(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    NOT_LOST;
    gpu.far->event_record(gpu.far, (struct dev_event *)e, stream_of(s));
    return RESULT(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    NOT_LOST;
    gpu.far->event_sync(gpu.far, (struct dev_event *)e);
    return RESULT(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    NOT_LOST;
    bool over = dev_far_event_try(gpu.far, (struct dev_event *)e);
    return RESULT(over ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    NOT_LOST;
    *ms = (float)(gpu.far->event_elapsed_s(gpu.far, (struct dev_event *)from,
                                           (struct dev_event *)to) * 1e3);
    return RESULT(cudaSuccess);
}

/* ---- graphs: those of the far device; a captured graph can be launched at once ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    NOT_LOST;
    cudaError_t e = RESULT(cudaSuccess);
    if (e == cudaSuccess)
        gpu.far->graph_begin(gpu.far, stream_of(s), NULL);
    shim_activity_graph(e == cudaSuccess);
    return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    struct dev_graph *graph = NULL;
    shim_activity_graph(false);
    NOT_LOST;
    if (gpu.far->graph_end(gpu.far, stream_of(s), &graph, NULL) < 0)
        return RESULT(cudaErrorMemoryAllocation);
    *out = (cudaGraph_t)graph;
    return RESULT(cudaSuccess);
}

/* Returns the graph itself, which can be launched. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    NOT_LOST;
    *out = (cudaGraphExec_t)(void *)graph;
    return RESULT(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    (void)graph; /* the executable graph is the same object and is still used */
    return RESULT(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    NOT_LOST;
    gpu.far->graph_launch(gpu.far, (struct dev_graph *)exec, stream_of(s));
    return RESULT(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    NOT_LOST;
    gpu.far->graph_free(gpu.far, (struct dev_graph *)exec);
    return RESULT(cudaSuccess);
}

/* ---- work ---- */

static enum dev_copy kind_of(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice ? DEV_H2D
         : kind == cudaMemcpyDeviceToHost ? DEV_D2H : DEV_D2D;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    NOT_LOST;
    struct shim_activity a = shim_activity_begin(stream_of(s), SHIM_ACTIVITY_COPY, NULL, "");
    gpu.far->copy(gpu.far, dst, src, (int64_t)bytes, kind_of(kind), stream_of(s));
    shim_activity_end(stream_of(s), a);
    return RESULT(cudaSuccess);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t rows, enum cudaMemcpyKind kind, cudaStream_t s)
{
    NOT_LOST;
    struct shim_activity a = shim_activity_begin(stream_of(s), SHIM_ACTIVITY_COPY, NULL, "");
    gpu.far->copy_2d(gpu.far, dst, (int64_t)dst_pitch, src, (int64_t)src_pitch, (int64_t)width,
                     (int64_t)rows, kind_of(kind), stream_of(s));
    shim_activity_end(stream_of(s), a);
    return RESULT(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t s)
{
    NOT_LOST;
    struct shim_activity a = shim_activity_begin(stream_of(s), SHIM_ACTIVITY_FILL, NULL, "");
    gpu.far->fill(gpu.far, dst, (uint8_t)byte, (int64_t)bytes, stream_of(s));
    shim_activity_end(stream_of(s), a);
    return RESULT(cudaSuccess);
}

cudaError_t cudaMemset(void *dst, int byte, size_t bytes)
{
    return cudaMemsetAsync(dst, byte, bytes, NULL);
}

cudaError_t shim_queue(cudaStream_t s, void (*run)(void *args), const void *args, size_t bytes)
{
    NOT_LOST;
    /* Work that is not a kernel of the trainer is a matrix product of a library. */
    struct shim_activity a = shim_activity_begin(stream_of(s), SHIM_ACTIVITY_KERNEL,
                                                  gpu.launching, "nvjet_shim");
    gpu.launching = NULL;
    dev_far_queue(stream_of(s), run, args, (int64_t)bytes);
    shim_activity_end(stream_of(s), a);
    return cudaSuccess;
}

cudaError_t shim_queue_poll(cudaStream_t s, bool (*poll)(void *args), const void *args,
                            size_t bytes)
{
    NOT_LOST;
    struct shim_activity a = shim_activity_begin(stream_of(s), SHIM_ACTIVITY_KERNEL, NULL,
                                                  "ncclDevKernel_shim");
    dev_far_queue_poll(stream_of(s), poll, args, (int64_t)bytes);
    shim_activity_end(stream_of(s), a);
    return cudaSuccess;
}

/* ---- launches ---- */

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int value)
{
    size_t n = sizeof gpu.shared / sizeof gpu.shared[0], i = 0;
    while (i < n && gpu.shared[i].kernel && gpu.shared[i].kernel != kernel)
        i++;
    BUG_ON(i == n);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value > SHIM_SHARED)
        return RESULT(cudaErrorInvalidValue);
    gpu.shared[i].kernel = kernel;
    gpu.shared[i].bytes = value;
    return RESULT(cudaSuccess);
}

static size_t shared_allowed(const void *kernel)
{
    for (size_t i = 0; i < sizeof gpu.shared / sizeof gpu.shared[0]; i++)
        if (gpu.shared[i].kernel == kernel && gpu.shared[i].bytes > SHIM_SHARED_PLAIN)
            return (size_t)gpu.shared[i].bytes;
    return SHIM_SHARED_PLAIN;
}

cudaError_t shim_check_launch(const void *kernel, int64_t blocks, int64_t threads, size_t shared)
{
    bool fits = blocks > 0 && blocks <= INT32_MAX && threads > 0 && threads <= SHIM_THREADS &&
                shared <= shared_allowed(kernel);
    gpu.launching = fits ? kernel : NULL;
    return result("launch", fits ? cudaSuccess : cudaErrorInvalidConfiguration);
}
