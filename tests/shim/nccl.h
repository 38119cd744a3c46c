/* This header declares the part of NCCL's interface that the trainer uses (NCCL 2.28), for tests
 * without GPUs: see nccl_mpi.c. Numbers are NCCL's. */
#ifndef TESTS_SHIM_NCCL_H
#define TESTS_SHIM_NCCL_H

#include <limits.h>

#include "cuda_runtime_api.h"

#define NCCL_MAJOR 2

typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef enum {
    ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclSystemError = 2, ncclInternalError = 3,
    ncclInvalidArgument = 4, ncclInvalidUsage = 5, ncclRemoteError = 6, ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclUint8 = 1, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct {
    int blocking;
    const char *commName;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER {INT_MIN, NULL}

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t e);
const char *ncclGetLastError(ncclComm_t c);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *conf);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e);
ncclResult_t ncclCommFinalize(ncclComm_t c);
ncclResult_t ncclCommDestroy(ncclComm_t c);
ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *buf, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s);
ncclResult_t ncclRecv(void *buf, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t t,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s);

#endif
