/* This is the MPI backend. A group is a range of tags in MPI's world, so opening and closing a
 * group needs no collective call of MPI, which would wait without a deadline. comm_mpi_engine.c
 * runs the operations. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "trainer/comm/comm_mpi_peers.h"
#include "trainer/comm/comm_mpi_priv.h"
#include "trainer/comm/comm_mpi_watch.h"

/* On a busy machine a process's connections may end this long before the process does. */
enum { GONE_WAIT_MS = 1000 };

/* Turns the MPI status of an operation into our error, which breaks the group. When a peer has
 * ended, MPI reports its connections as failed, but does not say that the peer has ended. */
int comm_mpi_checked(struct comm *c, int status, const char *what, struct err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    struct comm_gone gone;
    if (status == MPI_SUCCESS)
        return 0;
    comm_break(c);
    MPI_Error_string(status, text, &n);
    bool is_gone = comm_peers_gone(c->world->peers, GONE_WAIT_MS, &gone);
    comm_mpi_news_hear(c->world);
    if (is_gone || comm_peers_gone(c->world->peers, 0, &gone))
        return err_set(err, ERR_TEMP, COMM_GONE "MPI %s failed on rank %d of %d: %s",
                       COMM_GONE_ARGS(gone), what, c->rank, c->size, text);
    return err_set(err, ERR_TEMP, "MPI %s failed on rank %d of %d: %s", what, c->rank, c->size,
                   text);
}

/* Looks for the variables by which launchers tell a process that it is a rank: Open MPI's, PMIx's,
 * and those of PMI (MPICH and its relatives). */
bool comm_mpi_started(void)
{
#ifdef OPEN_MPI
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK");
#else
    return getenv("PMI_RANK") || getenv("PMIX_RANK");
#endif
}

const char *comm_mpi_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab; (tab = strchr(text, '\t')) != NULL;)
        *tab = ' ';
    return text;
}

/* ---- scratch and requests ---- */

static int batch_grow(struct mpi_batch *b, int requests)
{
    MPI_Request *r = realloc(b->requests, (size_t)requests * sizeof *r);
    b->requests = r ? r : b->requests;
    int *p = r ? realloc(b->peers, (size_t)requests * sizeof *p) : NULL;
    b->peers = p ? p : b->peers;
    return r && p ? 0 : -1;
}

/* Allocates the requests of every comm_work, for `depth` portions to and from every other rank. */
static int requests_take(struct comm *c, int depth)
{
    struct mpi_group *g = c->self;
    int n = (int)num_max_i64(COMM_MESSAGES, (int64_t)(c->size - 1) * depth);
    int *indices = realloc(g->indices, (size_t)n * sizeof *indices);
    g->indices = indices ? indices : g->indices;
    MPI_Status *statuses = indices ? realloc(g->statuses, (size_t)n * sizeof *statuses) : NULL;
    g->statuses = statuses ? statuses : g->statuses;
    bool ok = statuses;
    for (int i = 0; i <= COMM_WORKS && ok; i++)
        ok = batch_grow(&g->works[i].sends, n) == 0 && batch_grow(&g->works[i].recvs, n) == 0;
    return ok ? 0 : -1;
}

/* Makes sure that the scratch has at least `slots` slots, with room for `depth` portions of each
 * part. */
static int scratch_take(struct comm *c, int slots, int depth, struct err *err)
{
    struct mpi_group *g = c->self;
    slots = (int)num_max_i64(slots, g->slots), depth = (int)num_max_i64(depth, g->depth);
    int64_t bytes = slots * comm_mpi_slot_bytes(c, depth);
    if (slots == g->slots && depth == g->depth)
        return 0;
    free(g->scratch);
    g->scratch = aligned_alloc(DEV_ALIGN_BYTES, (size_t)bytes);
    g->slots = 0;
    if (!g->scratch || requests_take(c, depth) < 0)
        return err_set(err, ERR_NOMEM, "cannot take %lld bytes for communication in group %s",
                       (long long)bytes, c->axis);
    g->depth = depth;
    g->slots = slots;
    return 0;
}

/* Touches the reserved scratch, so that it is resident from the start, because which slots a step
 * fills, and how far, depends on timing. The rest of the last portion, and the scratch of a group
 * that reserved none, stay untouched address space. */
static int mpi_reserve(struct comm *c, int works, int64_t bytes, struct err *err)
{
    struct mpi_group *g = c->self;
    int64_t part = buffer_scratch_part_bytes(&(struct buffer_scratch){c->size, works, bytes});
    int64_t depth = num_max_i64(1, num_ceil_div(part, COMM_MESSAGE_BYTES));
    if (depth > INT_MAX / c->size)
        return err_set(err, ERR_LIMIT, "a reduction of %lld bytes is too large for %d ranks",
                       (long long)bytes, c->size);
    for (int i = 0; i <= COMM_WORKS; i++)
        BUG_ON(c->works[i].taken);
    int rc = c->size == 1 ? 0 : scratch_take(c, works > 0 ? works : 1, (int)depth, err);
    if (rc < 0 || c->size == 1)
        return rc;
    g->part_bytes = num_max_i64(g->part_bytes, part);
    int64_t slot = g->part_bytes * (c->size - 1);
    for (int i = 0; i < g->slots; i++)
        memset(g->scratch + i * comm_mpi_slot_bytes(c, g->depth), 0, (size_t)slot);
    c->scratch_bytes = slot * g->slots;
    return 0;
}

/* ---- ending ---- */

/* Ends the other ranks, or this one alone where they end by themselves: after one call of MPI_Abort
 * mpirun and srun kill whoever has not ended yet, and answer no second call. */
static void mpi_abort(struct comm *c, int exit_code)
{
    comm_watch_ending(c->world->watch, exit_code);
    comm_mpi_news_tell(c->world);
    if (!comm_peers_leave(c->world->peers, c->world_ranks[c->rank])) {
        fflush(NULL);
        _exit(exit_code);
    }
    MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static void group_free(struct mpi_group *g)
{
    for (int i = 0; g && i <= COMM_WORKS; i++) {
        free(g->works[i].sends.requests);
        free(g->works[i].sends.peers);
        free(g->works[i].recvs.requests);
        free(g->works[i].recvs.peers);
    }
    if (g) {
        free(g->indices);
        free(g->statuses);
        free(g->scratch);
    }
    free(g);
}

/* Closes a group. A broken world is not finalised, because that would wait for ranks that no longer
 * come. */
static void mpi_close(struct comm *c)
{
    if (!c->parent) {
        comm_watch_close(c->world->watch);
        comm_peers_close(c->world->peers);
    }
    if (!c->parent && !c->broken)
        MPI_Finalize();
    group_free(c->self);
}

/* Returns the first of a group's tags; -1: this MPI has too few tags. */
static int64_t first_tag(int64_t number)
{
    int *bound, found;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    int64_t first = number * COMM_MPI_TAGS;
    return !found || first + COMM_MPI_TAGS - 1 > *bound ? -1 : first;
}

/* ---- calls that are watched ---- */

static int mpi_start(struct comm *c, struct comm_work *w, struct err *err)
{
    comm_watch_enter(c->world->watch);
    int rc = comm_mpi_start(c, w, err);
    comm_watch_leave(c->world->watch);
    return rc;
}

static int mpi_wait(struct comm *c, struct comm_work *w, struct err *err)
{
    comm_watch_enter(c->world->watch);
    int rc = comm_mpi_wait(c, w, err);
    comm_watch_leave(c->world->watch);
    return rc;
}

static void mpi_progress(struct comm *c)
{
    comm_watch_enter(c->world->watch);
    comm_mpi_progress(c);
    comm_watch_leave(c->world->watch);
}

/* ---- groups ---- */

static int mpi_split(struct comm *c, const char *axis, int rank, int size, const int *world_ranks,
                     int64_t number, struct comm **out, struct err *err);

static const struct comm_backend mpi_backend = {
    "mpi", INT_MAX,
    mpi_start, mpi_wait, mpi_progress, mpi_reserve,
    mpi_split, mpi_abort, mpi_close, comm_mpi_ask, comm_mpi_answer
};

/* Allocates the backend's part of a group. */
static int group_take(struct comm *c, int64_t tag, struct err *err)
{
    struct mpi_group *g = c->self = calloc(1, sizeof *g);
    if (!g)
        return err_set(err, ERR_NOMEM, "out of memory opening group %s", c->axis);
    g->first_tag = (int)tag;
    for (int i = 0; i <= COMM_WORKS; i++)
        c->works[i].self = &g->works[i];
    if (requests_take(c, 1) < 0)
        return err_set(err, ERR_NOMEM, "out of memory opening group %s", c->axis);
    return mpi_reserve(c, 1, 0, err);
}

/* Opens the group with this number; with parent NULL it is the world. */
static int group_open(struct comm *parent, const char *axis, int rank, int size,
                      const int *world_ranks, int64_t number, struct comm **out, struct err *err)
{
    struct comm *c = NULL;
    int64_t tag = first_tag(number);
    int rc;
    if (tag < 0)
        return err_set(err, ERR_LIMIT, "group %s is the %lldth, and this MPI's tags do for fewer",
                       axis, (long long)number + 1);
    if ((rc = comm_new(parent, &mpi_backend, axis, rank, size, world_ranks, &c, err)) < 0)
        return rc;
    if ((rc = group_take(c, tag, err)) == 0) {
        *out = c;
        return 0;
    }
    group_free(c->self);
    comm_free(c);
    return rc;
}

static int mpi_split(struct comm *c, const char *axis, int rank, int size, const int *world_ranks,
                     int64_t number, struct comm **out, struct err *err)
{
    return group_open(c, axis, rank, size, world_ranks, number, out, err);
}

int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err)
{
    /* Nothing here waits inside MPI, so MPI need not yield the processor after each test of an open
     * request (Open MPI does where a host has more ranks than slots). comm_mpi_wait yields. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        return err_set(err, ERR_ENV,
                       "MPI cannot start: is Open MPI installed, and was this started by its "
                       "mpirun?");
    struct comm *world = NULL;
    int size, rank, rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if ((rc = group_open(NULL, "world", rank, size, NULL, 0, &world, err)) < 0) {
        MPI_Finalize();
        return rc;
    }
    if ((rc = comm_peers_open(world, &world->world->peers, err)) < 0)
        goto out;
    world->world->watch = comm_watch_open(world);
    *out = world;
    world = NULL; /* the caller owns it now */
out:
    comm_close(world);
    return rc;
}
