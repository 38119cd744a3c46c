/* This header declares the part of CUPTI that libreel-cupti.so uses (CUPTI documentation, 13.0,
 * "Activity API"), for tests without a GPU: see cupti.c. Numbers are CUPTI's; records have the
 * members that are read. */
#ifndef TESTS_SHIM_CUPTI_H
#define TESTS_SHIM_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#define CUPTIAPI

typedef enum {
    CUPTI_SUCCESS = 0, CUPTI_ERROR_INVALID_PARAMETER = 1, CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_NOT_INITIALIZED = 15, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39, CUPTI_ERROR_UNKNOWN = 999
} CUptiResult;
typedef enum {
    CUPTI_ACTIVITY_KIND_MEMCPY = 1, CUPTI_ACTIVITY_KIND_MEMSET = 2, CUPTI_ACTIVITY_KIND_KERNEL = 3,
    CUPTI_ACTIVITY_KIND_DRIVER = 4, CUPTI_ACTIVITY_KIND_RUNTIME = 5,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10, CUPTI_ACTIVITY_KIND_MARKER = 12,
    CUPTI_ACTIVITY_KIND_OVERHEAD = 17, CUPTI_ACTIVITY_KIND_MEMCPY2 = 22,
    CUPTI_ACTIVITY_KIND_COUNT = 64
} CUpti_ActivityKind;
enum {
    CUPTI_ACTIVITY_FLAG_MARKER_START = 1 << 1, CUPTI_ACTIVITY_FLAG_MARKER_END = 1 << 2,
    CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1 << 0
};

typedef struct CUctx_st *CUcontext;
typedef struct CUpti_Subscriber_st *CUpti_SubscriberHandle;
typedef int CUpti_CallbackDomain;
typedef uint32_t CUpti_CallbackId;
typedef void (*CUpti_CallbackFunc)(void *ctx, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void *data);
typedef struct {
    size_t structSize;
    const char *subscriberName;
    char *oldSubscriberName;
    size_t oldSubscriberSize;
} CUpti_SubscriberParams;
#define CUpti_SubscriberParams_STRUCT_SIZE sizeof(CUpti_SubscriberParams)

typedef struct { CUpti_ActivityKind kind; } CUpti_Activity;
typedef union { struct { uint32_t processId, threadId; } pt; } CUpti_ActivityObjectKindId;
typedef struct {
    CUpti_ActivityKind kind;
    uint32_t flags;
    uint64_t timestamp;
    uint32_t id;
    CUpti_ActivityObjectKindId objectId;
    const char *name;
} CUpti_ActivityMarker2;
typedef struct {
    CUpti_ActivityKind kind;
    uint64_t start, end;
    uint32_t threadId, correlationId;
} CUpti_ActivityAPI;
typedef struct { CUpti_ActivityKind kind; uint64_t start, end; } CUpti_ActivityOverhead3;
/* Each is the record of a kernel, copy or fill that ran on a stream. */
typedef struct {
    CUpti_ActivityKind kind;
    uint64_t start, end;
    uint32_t correlationId;
    const char *name;
} CUpti_ActivityKernel10, CUpti_ActivityMemcpy6, CUpti_ActivityMemcpyPtoP4, CUpti_ActivityMemset4;

typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t stream,
                                                  uint8_t *buffer, size_t size, size_t valid);

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *ctx,
                              CUpti_SubscriberParams *params);
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete);
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n);
CUptiResult cuptiGetTimestamp(uint64_t *ns);
CUptiResult cuptiGetResultString(CUptiResult e, const char **text);

#endif
