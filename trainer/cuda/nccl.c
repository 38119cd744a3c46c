/* Implements coll.h with NCCL (NCCL 2.28 User Guide, "API").
 *
 * Communicators are non-blocking: a call returns at once, and ncclCommGetAsyncError says when it
 * has queued its work on the device or has failed. So nothing here waits for a peer, except the
 * closing of a communicator after its last operation. */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/cuda_priv.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(struct coll_id), "an id is passed on as bytes");

struct coll {
    ncclComm_t nccl;
    const char *what;
};

/* ---- errors ---- */

/* Sets an error. Its code depends on the remedy: another build or placement, or another attempt. */
static int fail(ncclResult_t e, const char *what, const char *call, ncclComm_t c, struct err *err)
{
    const char *more = ncclGetLastError(c);
    int code = e == ncclInvalidArgument || e == ncclInvalidUsage ? ERR_ENV : ERR_TEMP;
    return err_set(err, code, "NCCL, group %s: %s: %s%s%s%s", what, call, ncclGetErrorString(e),
                   more && *more ? ": " : "", more && *more ? more : "",
                   code == ERR_TEMP ? "; checkpoints are good: run it again" : "");
}

static int checked(const struct coll *c, ncclResult_t e, const char *call, struct err *err)
{
    return e == ncclSuccess || e == ncclInProgress ? 0 : fail(e, c->what, call, c->nccl, err);
}
#define CHECKED(call, ...) checked(c, call(__VA_ARGS__), #call, err)

/* Refuses a library of another major version, in which the calls may have another meaning. */
static int nccl_check(struct err *err)
{
    int version = 0;
    ncclResult_t e = ncclGetVersion(&version);
    if (e == ncclSuccess && version / 10000 == NCCL_MAJOR)
        return 0;
    return err_set(err, ERR_ENV,
                   "NCCL: the library is of version %d.%d.%d, and this build is for version %d: "
                   "put libnccl.so.%d first in LD_LIBRARY_PATH",
                   version / 10000, version % 10000 / 100, version % 100, NCCL_MAJOR, NCCL_MAJOR);
}

/* ---- communicators ---- */

static int nccl_id(struct coll_id *out, struct err *err)
{
    ncclResult_t e = ncclGetUniqueId((ncclUniqueId *)(void *)out);
    return e == ncclSuccess ? 0 : fail(e, "of all", "ncclGetUniqueId", NULL, err);
}

static int nccl_open(struct dev *dev, const struct coll_id *id, int size, int rank,
                     const char *what, struct coll **out, struct err *err)
{
    ncclConfig_t conf = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId of_all;
    struct coll *c = NULL;
    int rc;
    (void)dev;
    conf.blocking = 0;
    conf.commName = what;
    c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "NCCL, group %s: no memory", what);
    c->what = what;
    memcpy(&of_all, id, sizeof of_all);
    if ((rc = CHECKED(ncclCommInitRankConfig, &c->nccl, size, of_all, rank, &conf)) < 0) {
        free(c);
        return rc;
    }
    *out = c;
    return 0;
}

static int nccl_ready(struct coll *c, bool *ready, struct err *err)
{
    ncclResult_t state = ncclSuccess, e = ncclCommGetAsyncError(c->nccl, &state);
    int rc;
    if ((rc = checked(c, e, "ncclCommGetAsyncError", err)) < 0)
        return rc;
    *ready = state != ncclInProgress;
    return checked(c, state, "an operation", err);
}

static void nccl_abort(struct coll *c)
{
    ncclCommAbort(c->nccl);
    free(c);
}

/* Closes a communicator after polling until it has ended. An error here cannot be reported. */
static void nccl_close(struct coll *c)
{
    ncclResult_t state = ncclCommFinalize(c->nccl);
    while (state == ncclInProgress && ncclCommGetAsyncError(c->nccl, &state) == ncclSuccess)
        continue;
    ncclCommDestroy(c->nccl);
    free(c);
}

/* ---- operations ---- */

static ncclDataType_t type_of(enum dtype t)
{
    switch (t) {
    case DTYPE_F64: return ncclFloat64;
    case DTYPE_F32: return ncclFloat32;
    case DTYPE_BF16: return ncclBfloat16;
    default: break;
    }
    BUG_ON(dtype_bytes(t) != 1);
    return ncclUint8;
}

static int nccl_group_begin(struct coll *c, struct err *err)
{
    return checked(c, ncclGroupStart(), "ncclGroupStart", err);
}

static int nccl_group_end(struct coll *c, struct err *err)
{
    return checked(c, ncclGroupEnd(), "ncclGroupEnd", err);
}

static int nccl_send(struct coll *c, const void *buf, int64_t n, enum dtype dtype, int peer,
                     struct dev_stream *s, struct err *err)
{
    return CHECKED(ncclSend, buf, (size_t)n, type_of(dtype), peer, c->nccl, s->cuda);
}

static int nccl_recv(struct coll *c, void *buf, int64_t n, enum dtype dtype, int peer,
                     struct dev_stream *s, struct err *err)
{
    return CHECKED(ncclRecv, buf, (size_t)n, type_of(dtype), peer, c->nccl, s->cuda);
}

static int nccl_all_gather(struct coll *c, const void *send, void *recv, int64_t n,
                           enum dtype dtype, struct dev_stream *s, struct err *err)
{
    return CHECKED(ncclAllGather, send, recv, (size_t)n, type_of(dtype), c->nccl, s->cuda);
}

static int nccl_reduce_scatter(struct coll *c, const void *send, void *recv, int64_t n,
                               enum dtype dtype, struct dev_stream *s, struct err *err)
{
    return CHECKED(ncclReduceScatter, send, recv, (size_t)n, type_of(dtype), ncclSum, c->nccl,
                   s->cuda);
}

static int nccl_all_reduce(struct coll *c, const void *send, void *recv, int64_t n,
                           enum dtype dtype, struct dev_stream *s, struct err *err)
{
    return CHECKED(ncclAllReduce, send, recv, (size_t)n, type_of(dtype), ncclSum, c->nccl, s->cuda);
}

static void nccl_sum_parts(struct dev *dev, const void *parts, int64_t stride, int n_parts,
                           const void *mine, int own, void *out, int64_t n, enum dtype dtype,
                           struct dev_stream *s)
{
    struct sum_parts a = {parts, mine, out, dtype, stride, n, n_parts, own};
    kernel_sum_parts(s->cuda, &a);
    dev_cuda_fail(dev, cudaGetLastError(), "a sum of parts");
}

const struct coll_ops coll_nccl = {
    .name = "NCCL", .check = nccl_check, .id = nccl_id, .open = nccl_open, .ready = nccl_ready,
    .group_begin = nccl_group_begin, .group_end = nccl_group_end,
    .send = nccl_send, .recv = nccl_recv, .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter, .all_reduce = nccl_all_reduce,
    .sum_parts = nccl_sum_parts, .abort = nccl_abort, .close = nccl_close,
};
