/* This file stands in for NCCL between ranks on the shim's GPUs. It sends the data by MPI.
 *
 * It reproduces the behaviour that programs can get wrong. The operations of a communicator run in
 * the order in which they were queued. A message blocks its stream until the peer has reached it
 * (MPI_Issend), so a wrong order of operations hangs as on a GPU. These errors end the program with
 * a message, where NCCL may give wrong numbers or hang: a communicator that is used on two streams,
 * operations that differ between ranks, messages whose sizes differ, use of a communicator before
 * it is ready, and ending it before all its operations are over. Two ranks with one GPU are
 * refused. Sums begin with the next rank and are rounded at each step, so that they differ from a
 * sum in rank order.
 *
 * The stream polls an operation. The operation copies its data out of device memory when it begins
 * and into it when it ends, because MPI runs while the host may not touch that memory.
 *
 * With REEL_SHIM_FAIL (shim.h), ncclHang:N:1 makes the Nth operation of a process hang,
 * ncclOpen:N:1 its Nth opening, and ncclCommGetAsyncError:N:E returns the error E. REEL_SHIM_NCCL
 * is the version that it reports.
 */
#include "nccl.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"
#include "shim.h"

/* Messages use tags of MPI_COMM_WORLD above those of comm's groups. */
enum { FIRST_TAG = 1 << 30, TAGS_OF_A_RANK = 1 << 14, PARTS = 256 };
enum kind { MESSAGES, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE };
static const char *const kind_names[] = {"send/recv", "all-gather", "reduce-scatter",
                                         "all-reduce"};

/* Holds the entry that a rank sends to the creator of the id, which sends the entries of all ranks
 * back. */
struct member { int world, rank, size; char uuid[16]; };
enum opening { CALLS, GATHERS, HEARS, IS_OPEN, NEVER_OPENS };

struct ncclComm {
    int size, rank, tag, root; /* root: world rank of the id's creator */
    struct member *members;    /* [size] */
    MPI_Request *requests;     /* [size] requests of the opening */
    enum opening opening;
    cudaStream_t stream; /* the stream of all its operations */
    int64_t queued, over, collectives;
    ncclResult_t failure;
    bool aborted;
    char text[200];
};

/* Precedes each message, so that the receiver can check that it is the expected one. */
struct header { int32_t kind, type; int64_t n, number; };
struct part {
    bool send;
    int peer;
    char *at;          /* address in device memory */
    int64_t n;
    char *block;       /* the message: header and numbers */
    MPI_Request request;
};
struct job {
    ncclComm_t c;
    enum kind kind;
    ncclDataType_t type;
    const char *send;
    char *recv;
    int64_t n, number;
    int n_parts;
    bool begun, hangs;
    struct part parts[PARTS];
};

static struct { int depth; struct job *job; cudaStream_t stream; } group;

_Noreturn static void wrong(const struct ncclComm *c, const char *text, ...)
    __attribute__((format(printf, 2, 3)));
static void wrong(const struct ncclComm *c, const char *text, ...)
{
    char what[512];
    va_list args;
    va_start(args, text);
    vsnprintf(what, sizeof what, text, args);
    va_end(args);
    fprintf(stderr, "NCCL's stand-in, rank %d of %d of communicator %d: %s\n", c->rank, c->size,
            c->tag - FIRST_TAG, what);
    abort();
}

/* ---- the library ---- */

ncclResult_t ncclGetVersion(int *version)
{
    const char *text = getenv("REEL_SHIM_NCCL");
    *version = text ? atoi(text) : 22809;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t e)
{
    switch (e) {
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "an error of NCCL's stand-in";
    }
}

const char *ncclGetLastError(ncclComm_t c) { return c ? c->text : ""; }

/* ---- opening ---- */

/* Returns the rank in MPI_COMM_WORLD, 0 in a program without MPI. */
static int world_rank(void)
{
    int there = 0, rank = 0;
    MPI_Initialized(&there);
    if (there)
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static void mpi_end(void) { MPI_Finalize(); }

/* Initializes MPI if the program, which then has one rank, has not done so. */
static void mpi_begin(void)
{
    int begun = 0;
    MPI_Initialized(&begun);
    if (!begun && MPI_Init(NULL, NULL) == MPI_SUCCESS)
        atexit(mpi_end);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int made;
    mpi_begin();
    int rank = world_rank();
    if (made == TAGS_OF_A_RANK)
        return ncclSystemError;
    int own[2] = {rank, FIRST_TAG + rank * TAGS_OF_A_RANK + made++};
    memset(id, 0, sizeof *id);
    memcpy(id, own, sizeof own);
    return ncclSuccess;
}

/* Sends this rank's entry to the creator of the id, which gathers the entries of all ranks and
 * sends them to all. */
static void opening_begin(ncclComm_t c)
{
    struct member *own = &c->members[c->rank];
    for (int r = 0; r < c->size; r++)
        c->requests[r] = MPI_REQUEST_NULL;
    if (c->opening == CALLS)
        MPI_Isend(own, sizeof *own, MPI_BYTE, c->root, c->tag, MPI_COMM_WORLD, &c->requests[0]);
    for (int r = 1; r < c->size && c->opening == GATHERS; r++)
        MPI_Irecv(&c->members[r], sizeof *own, MPI_BYTE, MPI_ANY_SOURCE, c->tag, MPI_COMM_WORLD,
                  &c->requests[r]);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *conf)
{
    struct cudaDeviceProp prop;
    int own[2], device = 0;
    ncclComm_t c = calloc(1, sizeof *c);
    BUG_ON(!c || conf->blocking != 0);
    memcpy(own, &id, sizeof own);
    *c = (struct ncclComm){.size = size, .rank = rank, .root = own[0], .tag = own[1]};
    c->members = calloc((size_t)size, sizeof *c->members);
    c->requests = calloc((size_t)size, sizeof(MPI_Request));
    BUG_ON(!c->members || !c->requests);
    cudaGetDevice(&device);
    cudaGetDeviceProperties(&prop, device);
    c->members[rank] = (struct member){.world = world_rank(), .rank = rank, .size = size};
    memcpy(c->members[rank].uuid, &prop.uuid, sizeof prop.uuid);
    if ((world_rank() == c->root) != (rank == 0))
        wrong(c, "rank 0 makes the id");
    c->opening = shim_failure("ncclOpen") ? NEVER_OPENS : rank > 0 ? CALLS : GATHERS;
    if (size == 1 && c->opening == GATHERS)
        c->opening = IS_OPEN;
    else
        opening_begin(c);
    *out = c;
    return ncclInProgress;
}

/* Sorts the entries, which arrive in any order, by rank, and sends them to all ranks. */
static void members_answer(ncclComm_t c)
{
    struct member *sorted = calloc((size_t)c->size, sizeof *sorted);
    BUG_ON(!sorted);
    for (int r = 0; r < c->size; r++) {
        struct member *m = &c->members[r];
        if (m->size != c->size || m->rank < 0 || m->rank >= c->size || sorted[m->rank].size)
            wrong(c, "a rank opens it as %d of %d", m->rank, m->size);
        sorted[m->rank] = *m;
    }
    free(c->members);
    c->members = sorted;
    for (int r = 1; r < c->size; r++)
        MPI_Isend(sorted, c->size * (int)sizeof *sorted, MPI_BYTE, sorted[r].world, c->tag,
                  MPI_COMM_WORLD, &c->requests[r]);
}

static void devices_check(ncclComm_t c)
{
    const struct member *m = c->members;
    for (int a = 0; a < c->size; a++)
        for (int b = 0; b < a; b++)
            if (memcmp(m[a].uuid, m[b].uuid, sizeof m->uuid) == 0) {
                c->failure = ncclInvalidUsage;
                snprintf(c->text, sizeof c->text,
                         "Duplicate GPU detected : rank %d and rank %d both on one device", b, a);
            }
}

static void opening_advance(ncclComm_t c)
{
    int over = 0;
    if (c->opening == IS_OPEN || c->opening == NEVER_OPENS)
        return;
    MPI_Testall(c->size, c->requests, &over, MPI_STATUSES_IGNORE);
    if (!over)
        return;
    if (c->opening == CALLS)
        MPI_Irecv(c->members, c->size * (int)sizeof *c->members, MPI_BYTE, c->root, c->tag,
                  MPI_COMM_WORLD, &c->requests[0]);
    else if (c->opening == GATHERS)
        members_answer(c);
    else
        devices_check(c);
    c->opening = c->opening == HEARS ? IS_OPEN : HEARS;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e)
{
    int asked = shim_failure(__func__);
    opening_advance(c);
    if (asked)
        c->failure = (ncclResult_t)asked;
    *e = c->failure ? c->failure : c->opening == IS_OPEN ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

/* ---- the end ---- */

static void comm_free(ncclComm_t c)
{
    free(c->members);
    free(c->requests);
    free(c);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    if (c->over != c->queued)
        wrong(c, "it ends while %lld of its operations are not over",
              (long long)(c->queued - c->over));
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    comm_free(c);
    return ncclSuccess;
}

/* Ends the communicator's operations. Queued operations still refer to the communicator, so it is
 * never freed. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    c->aborted = true;
    return ncclSuccess;
}

/* ---- operations ---- */

static int64_t size_of(ncclDataType_t t)
{
    return t == ncclFloat64 ? 8 : t == ncclFloat32 ? 4 : t == ncclBfloat16 ? 2 : 1;
}

static struct header header_of(const struct job *j, const struct part *p)
{
    return (struct header){j->kind, j->type, p->n, j->number};
}

static void part_begin(const struct job *j, struct part *p)
{
    int64_t bytes = p->n * size_of(j->type), whole = bytes + (int64_t)sizeof(struct header);
    struct header h = header_of(j, p);
    int world = j->c->members[p->peer].world;
    BUG_ON(whole > INT_MAX || !(p->block = malloc((size_t)whole)));
    if (!p->send) {
        MPI_Irecv(p->block, (int)whole, MPI_BYTE, world, j->c->tag, MPI_COMM_WORLD, &p->request);
        return;
    }
    memcpy(p->block, &h, sizeof h);
    memcpy(p->block + sizeof h, p->at, (size_t)bytes);
    MPI_Issend(p->block, (int)whole, MPI_BYTE, world, j->c->tag, MPI_COMM_WORLD, &p->request);
}

/* Tells whether a part is over, and checks the header of a received message. */
static bool part_over(const struct job *j, struct part *p)
{
    struct header want = header_of(j, p), h = want;
    int over = 1;
    if (p->request == MPI_REQUEST_NULL)
        return true;
    if (MPI_Test(&p->request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        wrong(j->c, "%s: rank %d sends another size than the %lld elements that are meant",
              kind_names[j->kind], p->peer, (long long)p->n);
    if (over && !p->send)
        memcpy(&h, p->block, sizeof h);
    if (memcmp(&h, &want, sizeof h) != 0)
        wrong(j->c, "rank %d does %s %lld of %lld elements, and this one %s %lld of %lld", p->peer,
              kind_names[h.kind], (long long)h.number, (long long)h.n, kind_names[j->kind],
              (long long)j->number, (long long)p->n);
    return over;
}

static double number_at(const char *at, ncclDataType_t t, int64_t i)
{
    return t == ncclFloat64   ? ((const double *)(const void *)at)[i]
           : t == ncclFloat32 ? (double)((const float *)(const void *)at)[i]
                              : (double)bf16_value(((const uint16_t *)(const void *)at)[i]);
}

static void number_put(char *at, ncclDataType_t t, int64_t i, double x)
{
    if (t == ncclFloat64)
        ((double *)(void *)at)[i] = x;
    else if (t == ncclFloat32)
        ((float *)(void *)at)[i] = (float)x;
    else
        ((uint16_t *)(void *)at)[i] = bf16_round_double(x);
}

/* Returns the n numbers that rank r contributes to a sum: its part in a reduce-scatter, or all in
 * an all-reduce. */
static const char *given_by(const struct job *j, int r)
{
    for (int i = 0; i < j->n_parts; i++)
        if (!j->parts[i].send && j->parts[i].peer == r)
            return j->parts[i].block + sizeof(struct header);
    return j->send + (j->kind == REDUCE_SCATTER ? r * j->n * size_of(j->type) : 0);
}

static void sum_finish(const struct job *j)
{
    int size = j->c->size, first = j->kind == REDUCE_SCATTER ? j->c->rank + 1 : 1;
    char *sum = malloc((size_t)(j->n * size_of(j->type)) + 1);
    BUG_ON(!sum);
    memcpy(sum, given_by(j, first % size), (size_t)(j->n * size_of(j->type)));
    for (int k = 1; k < size; k++) {
        const char *more = given_by(j, (first + k) % size);
        for (int64_t i = 0; i < j->n; i++)
            number_put(sum, j->type, i, number_at(sum, j->type, i) + number_at(more, j->type, i));
    }
    memcpy(j->recv, sum, (size_t)(j->n * size_of(j->type)));
    free(sum);
}

static void job_finish(struct job *j)
{
    int64_t bytes = j->n * size_of(j->type);
    for (int i = 0; i < j->n_parts; i++) {
        const struct part *p = &j->parts[i];
        if (!p->send && (j->kind == MESSAGES || j->kind == ALL_GATHER))
            memcpy(p->at, p->block + sizeof(struct header), (size_t)(p->n * size_of(j->type)));
    }
    if (j->kind == ALL_GATHER)
        memmove(j->recv + j->c->rank * bytes, j->send, (size_t)bytes);
    if (j->kind == REDUCE_SCATTER || j->kind == ALL_REDUCE)
        sum_finish(j);
    for (int i = 0; i < j->n_parts; i++)
        free(j->parts[i].block);
}

/* Begins an operation when the stream reaches it. Tells whether it is over. */
static bool job_poll(void *args)
{
    struct job *j = *(struct job **)args;
    bool over = true;
    if (j->c->aborted)
        return true; /* nothing is freed, since MPI may still use it */
    for (int i = 0; i < j->n_parts && !j->begun; i++)
        part_begin(j, &j->parts[i]);
    j->begun = true;
    for (int i = 0; i < j->n_parts; i++)
        over &= part_over(j, &j->parts[i]);
    if (!over || j->hangs)
        return false;
    job_finish(j);
    j->c->over++;
    free(j);
    return true;
}

static struct job *job_new(ncclComm_t c, enum kind kind, int64_t n, ncclDataType_t t)
{
    struct job *j = calloc(1, sizeof *j);
    BUG_ON(!j || c->aborted || c->failure);
    if (c->opening != IS_OPEN)
        wrong(c, "%s before it is open", kind_names[kind]);
    *j = (struct job){.c = c, .kind = kind, .type = t, .n = n};
    j->number = kind == MESSAGES ? 0 : ++c->collectives;
    return j;
}

static ncclResult_t job_queue(struct job *j, cudaStream_t s)
{
    ncclComm_t c = j->c;
    if (c->queued++ > 0 && c->stream != s)
        wrong(c, "%s is on another stream than what was queued before", kind_names[j->kind]);
    c->stream = s;
    j->hangs = shim_failure("ncclHang");
    shim_queue_poll(s, job_poll, &j, sizeof j);
    return ncclSuccess;
}

static void part_add(struct job *j, bool send, int peer, const void *at, int64_t n)
{
    BUG_ON(j->n_parts == PARTS);
    if (peer < 0 || peer >= j->c->size)
        wrong(j->c, "a message between it and rank %d", peer);
    j->parts[j->n_parts++] = (struct part){send, peer, (char *)(uintptr_t)at, n, NULL,
                                           MPI_REQUEST_NULL};
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    struct job *j = group.job;
    BUG_ON(group.depth == 0);
    if (--group.depth > 0 || !j)
        return ncclSuccess;
    group.job = NULL;
    return job_queue(j, group.stream);
}

static ncclResult_t message(bool send, const void *buf, size_t n, ncclDataType_t t, int peer,
                            ncclComm_t c, cudaStream_t s)
{
    ncclGroupStart();
    if (!group.job) {
        group.job = job_new(c, MESSAGES, 0, t);
        group.stream = s;
    }
    if (group.job->c != c || group.stream != s || group.job->type != t)
        wrong(c, "a group of several communicators, streams or types");
    part_add(group.job, send, peer, buf, (int64_t)n);
    return ncclGroupEnd();
}

ncclResult_t ncclSend(const void *buf, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    return message(true, buf, n, t, peer, c, s);
}

ncclResult_t ncclRecv(void *buf, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    return message(false, buf, n, t, peer, c, s);
}

/* Queues a collective, in which each rank sends n elements to each other rank. `gap` is the
 * distance in bytes between the elements for two ranks, and `place` the distance between those from
 * two ranks. */
static ncclResult_t collective(enum kind kind, const void *send, int64_t gap, void *recv,
                               int64_t place, int64_t n, ncclDataType_t t, ncclComm_t c,
                               cudaStream_t s)
{
    struct job *j = job_new(c, kind, n, t);
    j->send = send, j->recv = recv;
    if (group.depth > 0)
        wrong(c, "%s in a group", kind_names[kind]);
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            continue;
        part_add(j, true, r, (const char *)send + r * gap, n);
        part_add(j, false, r, (char *)recv + r * place, n);
    }
    return job_queue(j, s);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s)
{
    return collective(ALL_GATHER, send, 0, recv, (int64_t)n * size_of(t), (int64_t)n, t, c, s);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    (void)op;
    return collective(REDUCE_SCATTER, send, (int64_t)n * size_of(t), recv, 0, (int64_t)n, t, c, s);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t t,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    (void)op;
    return collective(ALL_REDUCE, send, 0, recv, 0, (int64_t)n, t, c, s);
}
