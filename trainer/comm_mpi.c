/* The MPI backend: inline calls, counts past INT_MAX refused, errors as sentences.
 *
 * Reduce-scatter works chunk by chunk: each rank sends every other rank the present chunk of that one's piece, collects the
 * chunks of its own piece in scratch, one slot a rank, its own included, and adds the slots up in rank order.
 */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "trainer/comm.h"

#ifdef __OPTIMIZE__
enum { CHECK_CALLS = 0 };
#else
enum { CHECK_CALLS = 1 };
#endif

struct mpi_group {
    MPI_Comm comm;
    bool world;
    MPI_Request *requests; /* [2 size] */
};

static struct mpi_group *group_of(const struct comm *c)
{
    return c->self;
}

static MPI_Datatype type_of(enum dtype t)
{
    switch (t) {
    case DTYPE_F64: return MPI_DOUBLE;
    case DTYPE_F32: return MPI_FLOAT;
    case DTYPE_BF16: return MPI_UINT16_T;
    case DTYPE_FP8: return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}

/* The one checking point: an MPI status as our error, and the time spent. */
static int checked(struct comm *c, int status, const char *what, double started, struct err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    c->wait_s += clock_mono_s() - started;
    if (status == MPI_SUCCESS)
        return 0;
    for (struct comm *p = c; p; p = p->parent)
        p->broken = true;
    MPI_Error_string(status, text, &n);
    return err_set(err, ERR_TEMP, "MPI %s failed on rank %d of %d: %s", what, c->rank, c->size, text);
}

static int count_check(int64_t n, const char *what, struct err *err)
{
    return n <= INT_MAX ? 0 : err_set(err, ERR_LIMIT, "%s of %lld elements a rank: MPI counts end at %d", what, (long long)n, INT_MAX);
}

/* Before a call: the stream's work is done, the count fits; in unoptimised builds, all ranks make the same call. */
static int enter(struct comm *c, const char *what, int64_t n, int64_t detail, struct dev_stream *s, struct err *err)
{
    int rc = comm_wait_stream(c, s, err);
    if (rc == 0)
        rc = count_check(n, what, err);
    if (rc < 0 || !CHECK_CALLS)
        return rc;
    int64_t mine[4] = {what[0], what[4], n, detail}, roots[4];
    memcpy(roots, mine, sizeof mine);
    if (MPI_Bcast(roots, 4, MPI_INT64_T, 0, group_of(c)->comm) != MPI_SUCCESS)
        return 0; /* the call itself will tell */
    if (memcmp(roots, mine, sizeof mine) != 0)
        err_bug(__FILE__, __LINE__, "rank %d of %d calls %s of %lld (%lld) where rank 0 calls another (%lld, %lld)", c->rank, c->size,
                what, (long long)n, (long long)detail, (long long)roots[2], (long long)roots[3]);
    return 0;
}

static int mpi_all_gather(struct comm *c, const void *send, void *recv, int64_t n, enum dtype t, struct dev_stream *s,
                          struct err *err)
{
    double started = clock_mono_s();
    char *own = (char *)recv + (int64_t)c->rank * n * dtype_bytes(t);
    int rc = enter(c, "all-gather", n, t, s, err);
    if (rc < 0)
        return rc;
    c->sent_bytes += (c->size - 1) * n * dtype_bytes(t);
    MPI_Comm g = group_of(c)->comm;
    int status = send == own ? MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, recv, (int)n, type_of(t), g)
                             : MPI_Allgather(send, (int)n, type_of(t), recv, (int)n, type_of(t), g);
    return checked(c, status, "all-gather", started, err);
}

/* Elements at .. at+k-1 of every piece change places; those of our piece end in scratch, slot r from rank r. */
static int chunk_exchange(struct comm *c, char *buf, int64_t n, int64_t at, int64_t k, enum dtype t)
{
    struct mpi_group *g = group_of(c);
    int64_t e = dtype_bytes(t);
    int used = 0, status = MPI_SUCCESS;
    for (int r = 0; r < c->size && status == MPI_SUCCESS; r++) {
        char *slot = (char *)c->scratch + r * k * e;
        if (r == c->rank)
            memcpy(slot, buf + (r * n + at) * e, (size_t)(k * e));
        else
            status = MPI_Irecv(slot, (int)k, type_of(t), r, 0, g->comm, &g->requests[used++]);
    }
    for (int step = 1; step < c->size && status == MPI_SUCCESS; step++) {
        int r = (c->rank + step) % c->size;
        status = MPI_Isend(buf + (r * n + at) * e, (int)k, type_of(t), r, 0, g->comm, &g->requests[used++]);
    }
    return status == MPI_SUCCESS ? MPI_Waitall(used, g->requests, MPI_STATUSES_IGNORE) : status;
}

static int mpi_reduce_scatter(struct comm *c, void *buf, int64_t n, enum dtype t, struct dev_stream *s, struct err *err)
{
    double started = clock_mono_s();
    int64_t e = dtype_bytes(t), most = c->scratch_bytes / (c->size * e);
    int rc = enter(c, "reduce-scatter", n, t, s, err), status = MPI_SUCCESS;
    if (rc < 0 || c->size == 1)
        return rc;
    BUG_ON(most == 0 && n > 0);
    c->sent_bytes += (c->size - 1) * n * e;
    for (int64_t at = 0; at < n && status == MPI_SUCCESS; at += most) {
        int64_t k = num_min_i64(most, n - at);
        status = chunk_exchange(c, buf, n, at, k, t);
        if (status == MPI_SUCCESS)
            comm_sum_pieces(c, (char *)buf + (c->rank * n + at) * e, k, t);
    }
    return checked(c, status, "reduce-scatter", started, err);
}

static int mpi_all_reduce(struct comm *c, void *buf, int64_t n, enum dtype t, struct dev_stream *s, struct err *err)
{
    int rc = mpi_reduce_scatter(c, buf, n, t, s, err);
    return rc < 0 ? rc : mpi_all_gather(c, (char *)buf + c->rank * n * dtype_bytes(t), buf, n, t, NULL, err);
}

static int mpi_all_to_all(struct comm *c, const void *send, const int *send_n, const int *send_at, void *recv,
                          const int *recv_n, const int *recv_at, enum dtype t, struct dev_stream *s, struct err *err)
{
    double started = clock_mono_s();
    int rc = enter(c, "all-to-all", 0, t, s, err);
    if (rc < 0)
        return rc;
    for (int r = 0; r < c->size; r++)
        c->sent_bytes += r == c->rank ? 0 : send_n[r] * dtype_bytes(t);
    return checked(c, MPI_Alltoallv(send, send_n, send_at, type_of(t), recv, recv_n, recv_at, type_of(t), group_of(c)->comm),
                   "all-to-all", started, err);
}

static int mpi_send_recv(struct comm *c, const struct comm_message *list, int n, enum dtype t, struct dev_stream *s,
                         struct err *err)
{
    double started = clock_mono_s();
    MPI_Request requests[COMM_MESSAGES];
    int rc = comm_wait_stream(c, s, err), status = MPI_SUCCESS, used = 0;
    BUG_ON(n > COMM_MESSAGES);
    for (int i = 0; i < n && rc == 0; i++)
        rc = count_check(list[i].n, "a message", err);
    for (int i = 0; i < n && rc == 0 && status == MPI_SUCCESS; i++) {
        const struct comm_message *m = &list[i];
        c->sent_bytes += m->send ? m->n * dtype_bytes(t) : 0;
        status = m->send ? MPI_Isend(m->buf, (int)m->n, type_of(t), m->peer, 1, group_of(c)->comm, &requests[used++])
                         : MPI_Irecv(m->buf, (int)m->n, type_of(t), m->peer, 1, group_of(c)->comm, &requests[used++]);
    }
    if (rc == 0 && status == MPI_SUCCESS)
        status = MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
    return rc < 0 ? rc : checked(c, status, "send and receive", started, err);
}

static int mpi_broadcast(struct comm *c, void *buf, int64_t bytes, int root, struct dev_stream *s, struct err *err)
{
    double started = clock_mono_s();
    int rc = enter(c, "broadcast", bytes, root, s, err);
    if (rc < 0)
        return rc;
    c->sent_bytes += c->rank == root ? (c->size - 1) * bytes : 0;
    return checked(c, MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, group_of(c)->comm), "broadcast", started, err);
}

static int mpi_barrier(struct comm *c, struct err *err)
{
    double started = clock_mono_s();
    int rc = enter(c, "barrier", 0, 0, NULL, err);
    return rc < 0 ? rc : checked(c, MPI_Barrier(group_of(c)->comm), "barrier", started, err);
}

static int mpi_wrap(MPI_Comm group, struct comm *parent, struct comm **out, struct err *err);

static int mpi_split(struct comm *c, int color, int key, struct comm **out, struct err *err)
{
    double started = clock_mono_s();
    MPI_Comm part;
    int rc = checked(c, MPI_Comm_split(group_of(c)->comm, color, key, &part), "split", started, err);
    return rc < 0 ? rc : mpi_wrap(part, c, out, err);
}

static void mpi_abort(struct comm *c, int exit_code)
{
    MPI_Abort(group_of(c)->comm, exit_code);
}

static void mpi_close(struct comm *c)
{
    struct mpi_group *g = group_of(c);
    if (g->world)
        MPI_Finalize();
    else
        MPI_Comm_free(&g->comm);
    free(g->requests);
    free(g);
    free(c->scratch);
    free(c->scalars);
    free(c);
}

static int mpi_wrap(MPI_Comm group, struct comm *parent, struct comm **out, struct err *err)
{
    int size, rank;
    MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
    MPI_Comm_size(group, &size);
    MPI_Comm_rank(group, &rank);
    struct comm *c = calloc(1, sizeof *c);
    struct mpi_group *g = calloc(1, sizeof *g);
    MPI_Request *requests = calloc(2 * (size_t)size, sizeof *requests);
    double *scalars = calloc((size_t)size * COMM_SCALARS, sizeof *scalars);
    if (!c || !g || !requests || !scalars) {
        free(c);
        free(g);
        free(requests);
        free(scalars);
        return err_set(err, ERR_NOMEM, "out of memory opening a group of %d ranks", size);
    }
    *g = (struct mpi_group){group, parent == NULL, requests};
    *c = (struct comm){.name = "mpi", .rank = rank, .size = size, .self = g, .scalars = scalars, .parent = parent,
                       .dev = parent ? parent->dev : NULL,
                       .all_gather = mpi_all_gather, .reduce_scatter = mpi_reduce_scatter, .all_reduce = mpi_all_reduce,
                       .all_to_all = mpi_all_to_all, .send_recv = mpi_send_recv, .broadcast = mpi_broadcast,
                       .barrier = mpi_barrier, .split = mpi_split, .abort = mpi_abort, .close = mpi_close};
    *out = c;
    return 0;
}

int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        return err_set(err, ERR_ENV, "MPI cannot start: is Open MPI installed, and was this started by its mpirun?");
    return mpi_wrap(MPI_COMM_WORLD, NULL, out, err);
}
