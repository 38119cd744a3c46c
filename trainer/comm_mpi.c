/* The MPI backend: blocking calls, counts past INT_MAX refused, errors as sentences. */
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "trainer/comm.h"

struct mpi_group {
    MPI_Comm comm;
    bool world;
};

static MPI_Comm group_of(const struct comm *c)
{
    return ((struct mpi_group *)c->self)->comm;
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
    MPI_Error_string(status, text, &n);
    return err_set(err, ERR_TEMP, "MPI %s failed on rank %d of %d: %s", what, c->rank, c->size, text);
}

static int count_check(int64_t n, const char *what, struct err *err)
{
    return n <= INT_MAX ? 0 : err_set(err, ERR_LIMIT, "%s of %lld elements a rank: MPI counts end at %d", what, (long long)n, INT_MAX);
}

static int mpi_all_gather(struct comm *c, const void *send, void *recv, int64_t n, enum dtype t, struct err *err)
{
    double started = clock_mono_s();
    char *own = (char *)recv + (int64_t)c->rank * n * dtype_bytes(t);
    int rc = count_check(n, "an all-gather", err);
    if (rc < 0)
        return rc;
    c->sent_bytes += (c->size - 1) * n * dtype_bytes(t);
    int status = send == own ? MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, recv, (int)n, type_of(t), group_of(c))
                             : MPI_Allgather(send, (int)n, type_of(t), recv, (int)n, type_of(t), group_of(c));
    return checked(c, status, "all-gather", started, err);
}

static int mpi_reduce_scatter(struct comm *c, void *buf, int64_t n, enum dtype t, struct err *err)
{
    double started = clock_mono_s();
    int rc = count_check(n, "a reduce-scatter", err);
    if (rc < 0 || c->size == 1)
        return rc;
    BUG_ON(c->scratch_bytes < n * c->size * dtype_bytes(t));
    c->sent_bytes += (c->size - 1) * n * dtype_bytes(t);
    int status = MPI_Alltoall(buf, (int)n, type_of(t), c->scratch, (int)n, type_of(t), group_of(c));
    if (status == MPI_SUCCESS)
        comm_sum_pieces(c, buf, n, t);
    return checked(c, status, "reduce-scatter", started, err);
}

static int mpi_all_to_all(struct comm *c, const void *send, const int *send_n, const int *send_at, void *recv,
                          const int *recv_n, const int *recv_at, enum dtype t, struct err *err)
{
    double started = clock_mono_s();
    for (int r = 0; r < c->size; r++)
        c->sent_bytes += r == c->rank ? 0 : send_n[r] * dtype_bytes(t);
    return checked(c, MPI_Alltoallv(send, send_n, send_at, type_of(t), recv, recv_n, recv_at, type_of(t), group_of(c)),
                   "all-to-all", started, err);
}

static int mpi_send_recv(struct comm *c, const void *send, int64_t send_n, int to, void *recv, int64_t recv_n, int from,
                         enum dtype t, struct err *err)
{
    double started = clock_mono_s();
    int rc = count_check(send_n > recv_n ? send_n : recv_n, "a send and receive", err);
    if (rc < 0)
        return rc;
    c->sent_bytes += to < 0 ? 0 : send_n * dtype_bytes(t);
    int status = MPI_Sendrecv(send, to < 0 ? 0 : (int)send_n, type_of(t), to < 0 ? MPI_PROC_NULL : to, 0, recv,
                              from < 0 ? 0 : (int)recv_n, type_of(t), from < 0 ? MPI_PROC_NULL : from, 0, group_of(c),
                              MPI_STATUS_IGNORE);
    return checked(c, status, "send and receive", started, err);
}

static int mpi_broadcast(struct comm *c, void *buf, int64_t bytes, int root, struct err *err)
{
    double started = clock_mono_s();
    int rc = count_check(bytes, "a broadcast", err);
    if (rc < 0)
        return rc;
    c->sent_bytes += c->rank == root ? (c->size - 1) * bytes : 0;
    return checked(c, MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, group_of(c)), "broadcast", started, err);
}

static int mpi_barrier(struct comm *c, struct err *err)
{
    double started = clock_mono_s();
    return checked(c, MPI_Barrier(group_of(c)), "barrier", started, err);
}

static int mpi_wrap(MPI_Comm group, bool world, struct comm **out, struct err *err);

static int mpi_split(struct comm *c, int color, int key, struct comm **out, struct err *err)
{
    double started = clock_mono_s();
    MPI_Comm part;
    int rc = checked(c, MPI_Comm_split(group_of(c), color, key, &part), "split", started, err);
    return rc < 0 ? rc : mpi_wrap(part, false, out, err);
}

static void mpi_abort(struct comm *c, int exit_code)
{
    MPI_Abort(group_of(c), exit_code);
}

static void mpi_close(struct comm *c)
{
    struct mpi_group *g = c->self;
    if (g->world)
        MPI_Finalize();
    else
        MPI_Comm_free(&g->comm);
    free(g);
    free(c->scratch);
    free(c);
}

static int mpi_wrap(MPI_Comm group, bool world, struct comm **out, struct err *err)
{
    struct comm *c = calloc(1, sizeof *c);
    struct mpi_group *g = calloc(1, sizeof *g);
    if (!c || !g) {
        free(c);
        free(g);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *g = (struct mpi_group){group, world};
    *c = (struct comm){.name = "mpi", .self = g, .all_gather = mpi_all_gather, .reduce_scatter = mpi_reduce_scatter,
                       .all_to_all = mpi_all_to_all, .send_recv = mpi_send_recv, .broadcast = mpi_broadcast,
                       .barrier = mpi_barrier, .split = mpi_split, .abort = mpi_abort, .close = mpi_close};
    MPI_Comm_rank(group, &c->rank);
    MPI_Comm_size(group, &c->size);
    MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
    *out = c;
    return 0;
}

int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        return err_set(err, ERR_ENV, "MPI cannot start: is Open MPI installed, and was this started by its mpirun?");
    return mpi_wrap(MPI_COMM_WORLD, true, out, err);
}
