/* comm: collective communication as one table, independent of what computes. Backends: self (one rank), MPI; later NCCL.
 *
 * Buffers are host-addressable here. Every call is collective over the group and must be issued in the same order by all its ranks.
 * Sums are done by ourselves in rank order (ranks exchange pieces, each adds its piece from rank 0 up), so that a result
 * depends on the numbers and the group only, never on arrival; all-reduce = reduce-scatter + all-gather of the same
 * pieces, and gives bitwise what those give.
 *
 *     struct comm *world;
 *     comm_mpi_open(&argc, &argv, &world, err);          // or comm_self_open
 *     world->split(world, color, key, &dp, err);
 *     comm_reserve(dp, bytes, err);                      // working memory, planned before the first step
 *     dp->reduce_scatter(dp, grads, n_each, DTYPE_F32, err);
 */
#ifndef TRAINER_COMM_H
#define TRAINER_COMM_H

#include <stdint.h>

#include "profiles/hw.h"

struct comm {
    const char *name; /* "self", "mpi" */
    int rank, size;
    void *self;       /* the backend's own */
    void *scratch;    /* see comm_reserve */
    int64_t scratch_bytes;
    int64_t sent_bytes; /* by this rank, since opening: compared with the cost formulas */
    double wait_s;      /* spent in calls, since opening */

    /* recv of rank r = concatenation of every rank's send; send may be recv's own piece. n elements a rank. */
    int (*all_gather)(struct comm *c, const void *send, void *recv, int64_t n, enum dtype t, struct err *err);
    /* buf holds size pieces of n elements; afterwards piece `rank` is the sum over ranks of that piece; others unchanged. */
    int (*reduce_scatter)(struct comm *c, void *buf, int64_t n, enum dtype t, struct err *err);
    /* n[i] elements to rank i from send + offset; received likewise. Counts may differ and may be 0. */
    int (*all_to_all)(struct comm *c, const void *send, const int *send_n, const int *send_at, void *recv, const int *recv_n,
                      const int *recv_at, enum dtype t, struct err *err);
    /* Both or either of to, from may be -1: nothing in that direction. */
    int (*send_recv)(struct comm *c, const void *send, int64_t send_n, int to, void *recv, int64_t recv_n, int from,
                     enum dtype t, struct err *err);
    int (*broadcast)(struct comm *c, void *buf, int64_t bytes, int root, struct err *err);
    int (*barrier)(struct comm *c, struct err *err);
    int (*split)(struct comm *c, int color, int key, struct comm **out, struct err *err);
    void (*abort)(struct comm *c, int exit_code); /* ends every rank of the world */
    void (*close)(struct comm *c);
};

int comm_self_open(struct comm **out, struct err *err);
/* Initialises MPI. One process without mpirun is a world of one. ERR_ENV if MPI cannot start. */
int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err);

/* Working memory for reduce_scatter of pieces of up to `bytes` (per piece); called before the first step. */
int comm_reserve(struct comm *c, int64_t piece_bytes, struct err *err);

/* In place: buf of size·n_each elements becomes its sum over ranks. */
int comm_all_reduce(struct comm *c, void *buf, int64_t n_each, enum dtype t, struct err *err);
/* n doubles (up to COMM_SCALARS), summed in rank order. */
enum { COMM_SCALARS = 32 };
int comm_sum(struct comm *c, double *values, int n, struct err *err);
int comm_max(struct comm *c, double *values, int n, struct err *err);
/* The least (most negative) status over ranks: agreement on failure. err of a rank that had none names the first failing one. */
int comm_agree(struct comm *c, int status, struct err *err);

/* buf piece `rank` += the other pieces in scratch, rank order; shared by backends. */
void comm_sum_pieces(struct comm *c, void *buf, int64_t n, enum dtype t);

#endif
