/* comm: collective communication as one table, independent of what computes. Backends: self (one rank) and MPI.
 *
 * Calls are stream-ordered like those of dev.h: a call takes the stream that wrote its buffers, and what is queued on that
 * stream afterwards sees the result. Both backends work inline: they wait for the stream (when comm_bind gave them a device
 * and the stream is not NULL), communicate, and return when all is done. Buffers are host-addressable.
 *
 * Every call but send_recv is collective: all ranks of the group issue the same calls in the same order, and over several
 * groups in one global order. Builds without optimisation compare kind, count and type of every call between the ranks
 * and abort on the first that differs.
 *
 * Sums are formed by ourselves in rank order (ranks exchange pieces, each adds up its own from rank 0 on), so a result depends
 * on the numbers and the group only, never on arrival; all-reduce is reduce-scatter and all-gather of the same pieces and
 * gives bitwise what those give.
 *
 *     struct comm *world;
 *     comm_mpi_open(&argc, &argv, &world, err);            // or comm_self_open
 *     comm_grid_open(world, &layout, &grid, err);          // grid.dp, grid.tp, ...
 *     comm_reserve(grid.dp, piece_bytes, err);             // working memory, planned before the first step
 *     grid.dp->reduce_scatter(grid.dp, grads, n_each, DTYPE_F32, stream, err);
 *
 * Errors: a failed MPI call gives ERR_TEMP and sets `broken` on the group and all it was split from: the ranks no longer agree,
 * and only `abort` ends them. Any other error is this rank's own: share it by comm_agree before going on.
 */
#ifndef TRAINER_COMM_H
#define TRAINER_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/buffers.h"
#include "trainer/dev.h"

enum {
    COMM_CHUNK_BYTES = BUFFER_EXCHANGE_BYTES, /* of every piece of a reduce-scatter that are on the way at a time */
    COMM_SCALARS = 32,          /* most numbers of comm_sum and comm_max */
    COMM_MESSAGES = 64,         /* most of one send_recv */
};

/* One direction of a send_recv: n elements to or from `peer`. Messages between two ranks meet in the order of their lists. */
struct comm_message {
    void *buf;
    int64_t n;
    int peer;
    bool send;
};

struct comm {
    const char *name; /* "self", "mpi" */
    int rank, size;
    bool broken;         /* a call failed: see above */
    int64_t sent_bytes;  /* by this rank, since opening: compared with the cost formulas */
    double wait_s;       /* spent in calls, since opening */
    struct comm *parent; /* what it was split from */
    struct dev *dev;     /* of the streams, NULL: data is ready; borrowed */
    void *self;          /* the backend's own */
    void *scratch;       /* see comm_reserve */
    int64_t scratch_bytes;
    double *scalars;     /* [size · COMM_SCALARS], for comm_sum and comm_max; NULL in a group of one */

    /* recv = concatenation of every rank's send, in rank order; send may be recv's own piece. n elements a rank. */
    int (*all_gather)(struct comm *c, const void *send, void *recv, int64_t n, enum dtype t, struct dev_stream *s, struct err *err);
    /* buf holds size pieces of n elements; piece `rank` becomes the sum over ranks of that piece; the others are as before.
     * f32, f64. */
    int (*reduce_scatter)(struct comm *c, void *buf, int64_t n, enum dtype t, struct dev_stream *s, struct err *err);
    /* All pieces of buf become their sums. */
    int (*all_reduce)(struct comm *c, void *buf, int64_t n, enum dtype t, struct dev_stream *s, struct err *err);
    /* send_n[i] elements to rank i from send + send_at[i] elements; received likewise. Counts may differ and be 0. */
    int (*all_to_all)(struct comm *c, const void *send, const int *send_n, const int *send_at, void *recv, const int *recv_n,
                      const int *recv_at, enum dtype t, struct dev_stream *s, struct err *err);
    /* All messages of the list at once, so that no order of sends and receives can lock up. */
    int (*send_recv)(struct comm *c, const struct comm_message *list, int n, enum dtype t, struct dev_stream *s, struct err *err);
    int (*broadcast)(struct comm *c, void *buf, int64_t bytes, int root, struct dev_stream *s, struct err *err);
    int (*barrier)(struct comm *c, struct err *err);
    /* Ranks of one color form a group, ordered by key, then by rank here. */
    int (*split)(struct comm *c, int color, int key, struct comm **out, struct err *err);
    void (*abort)(struct comm *c, int exit_code); /* ends every rank of the world */
    void (*close)(struct comm *c);                /* parts before the whole */
};

int comm_self_open(struct comm **out, struct err *err);
/* Initialises MPI. One process without mpirun is a world of one. ERR_ENV if MPI cannot start. */
int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err);

/* Streams given to c, and to what is split from it later, are this device's. */
void comm_bind(struct comm *c, struct dev *dev);

/* Working memory for reduce_scatter and all_reduce of pieces of `piece_bytes` (buffers_exchange_bytes); before the first of them. */
int comm_reserve(struct comm *c, int64_t piece_bytes, struct err *err);

/* Up to COMM_SCALARS numbers of the host, folded in rank order. */
int comm_sum(struct comm *c, double *values, int n, struct err *err);
int comm_max(struct comm *c, double *values, int n, struct err *err);

/* Agreement on failure: 0 when every rank gives 0; else, on all ranks, the status of the lowest failing rank, and its sentence
 * in *err ("rank 2: ..." when it was not rank 0). err is not NULL. */
int comm_agree(struct comm *c, int status, struct err *err);

/* The groups of one layout: ranks run tp fastest, then cp, dp, pp. A group of one is a self. */
struct comm_grid {
    struct comm *tp, *cp, *dp, *pp;
};
/* Place of a world rank along the four axes. */
struct comm_place {
    int64_t tp, cp, dp, pp;
};
struct comm_place comm_grid_place(const struct layout *l, int64_t rank);
/* ERR_USAGE when the world has another size than the layout. */
int comm_size_error(const struct comm *world, const struct layout *l, struct err *err); /* that error */
int comm_grid_open(struct comm *world, const struct layout *l, struct comm_grid *out, struct err *err);
void comm_grid_close(struct comm_grid *g); /* safe on a zeroed struct */

/* ---- for backends ---- */
int comm_wait_stream(struct comm *c, struct dev_stream *s, struct err *err);
/* out[0..n-1] = sum over ranks r, in order, of scratch[r · n ..]. */
void comm_sum_pieces(const struct comm *c, void *out, int64_t n, enum dtype t);

#endif
