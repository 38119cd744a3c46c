/* comm: collective communication, issued and awaited apart, independent of what computes. Backends: self (one rank) and MPI.
 *
 * comm_start begins an operation on data that `stream` has written and gives a work; comm_wait completes it, and what is
 * queued on the stream afterwards sees the result. Until the wait the source must not be written and the destination not be read:
 * with conf.check, destinations hold NaN until then (a missing wait shows in the loss) and sources are copied first. Buffers are
 * host-addressable. The blocking calls are start and wait.
 *
 * Order: all ranks of a group start the same operations in the same order, and two ranks that share several groups start those of
 * all shared groups in one order; they may wait in any. Of a send_recv only the ranks between which messages go take part. With
 * conf.check each rank keeps, for every other rank, a hash of what it started in groups they share (group, kind, counts, type,
 * what); comm_order_check compares them and names the first that differs.
 *
 * Sums are formed by ourselves in rank order, so a result depends on the numbers and the group only, never on arrival; an all-reduce is
 * reduce-scatter and all-gather of near-equal parts. Sums are of f64, f32 or bf16; each rank's numbers of bf16 are widened, added up in f32 and
 * rounded once, to nearest even, by the owner of the part, so that their error does not grow with the ranks.
 *
 * Deadlines: a wait that lasts longer than conf.deadline_s ends with ERR_TEMP and a sentence that names the operation and the ranks
 * of the world whose data did not come. One of them whose process on this host has ended is named as soon as nothing moves for a fifth of a
 * second, deadline or not. `broken` is set on the group and all it was split from: only `abort` ends the others then.
 * A failed MPI call does the same. Any other error is this rank's own: share it by comm_agree before going on.
 * conf.latency_s: no operation completes sooner than so long after its start (tests of overlap); scalars are exempt.
 *
 * Memory: works and their requests are taken when a group is opened; scratch of reductions by comm_reserve, which makes it resident (so much
 * as buffer_scratch_bytes tells the memory plan); a step allocates nothing.
 *
 *     struct comm *world;
 *     comm_mpi_open(&argc, &argv, &world, err);            // or comm_self_open
 *     comm_grid_open(world, &layout, &model, &grid, err);  // grid.dp, grid.tp, ...
 *     comm_reserve(grid.dp, 2, bytes, err);                // before the first step
 *     comm_start(grid.dp, &(struct comm_op){.kind = COMM_ALL_REDUCE, .what = "gradients", .recv = g, .n = n, .dtype = t}, s, &w, err);
 *     ...                                                  // compute something else; comm_progress(grid.dp) now and then
 *     comm_wait(grid.dp, w, s, err);
 */
#ifndef TRAINER_COMM_COMM_H
#define TRAINER_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "profiles/buffers.h"
#include "profiles/layout.h"
#include "trainer/dev/dev.h"

enum {
    COMM_CHUNK_BYTES = BUFFER_EXCHANGE_BYTES, /* of a message of a reduction */
    COMM_SCALARS = 32,                        /* most numbers of comm_sum and comm_max */
    COMM_MESSAGES = 64,                       /* most of one send_recv */
    COMM_WORKS = 8,                           /* in flight in one group at a time */
};

enum comm_kind { COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_ALL_TO_ALL, COMM_SEND_RECV, COMM_BROADCAST, COMM_BARRIER };
extern const char *const comm_kind_names[]; /* "all-gather", … */

/* One direction of a send_recv: n elements to or from `peer`. Messages between two ranks meet in the order of their lists. */
struct comm_message {
    void *buf;
    int64_t n;
    int peer;
    bool send;
};

/* Parts: part r is n elements at r·n, or with `counts` (may differ, may be 0) counts[r] elements at at[r]. The arrays are borrowed until
 * comm_start returns.
 *   all-gather      recv's part r = rank r's `send`; send may be recv's own part
 *   reduce-scatter  recv (own part's elements) = sum over ranks of their `send`'s part `rank`; recv may be send's own part. f32, f64
 *   all-reduce      recv, n elements in place: sum over ranks. f32, f64. Any n
 *   all-to-all      counts[r] elements at at[r] of send go to rank r; recv_counts[r] at recv_at[r] of recv come from it
 *   send-recv       messages, all at once
 *   broadcast       recv, n elements, from root
 *   barrier */
struct comm_op {
    enum comm_kind kind;
    const char *what; /* "gradients of a unit": in errors and traces; a literal */
    const void *send;
    void *recv;
    int64_t n;
    const int64_t *counts, *at, *recv_counts, *recv_at;
    const struct comm_message *messages;
    int n_messages, root;
    enum dtype dtype;
};

struct comm_work; /* one operation in flight; belongs to its group; over after comm_wait */

struct comm;
/* Of an operation that is over, by clock_mono_s: comm_start entered and left, comm_wait entered and left; late_s: how long of that wait
 * all was there but latency_s was not over. Latencies make a step longer by no more than the sum, over its operations, of the most late_s
 * of their ranks: what a rank does after a wait is as much later as the waits before it were late. */
struct comm_times {
    double start_s, started_s, wait_s, end_s, late_s;
    int64_t sent_bytes; /* by this rank, to others */
};

/* Of the world; inherited by what is split from it. */
struct comm_conf {
    double deadline_s; /* 0: none */
    double latency_s;  /* of each operation, */
    const char *latency_what; /* or of those alone that are called so; borrowed */
    bool check;        /* at first: true in builds without optimisation */
    /* rank-local; called when a work is over; may be NULL. */
    void (*trace)(void *ctx, const struct comm *c, const struct comm_op *op, const struct comm_times *t);
    void *trace_ctx;
};

struct comm {
    const char *name;        /* backend: "self", "mpi" */
    const char *axis;        /* "world", "tp", …: in errors; borrowed */
    int rank, size;
    const int *world_ranks;  /* [size] */
    bool broken;             /* see above */
    int64_t sent_bytes, ops; /* by this rank, to others, since opening: as profiles/traffic.h says */
    double wait_s;           /* spent in comm_start and comm_wait */
    int64_t scratch_bytes;   /* reserved */
    struct comm *parent;     /* what it was split from */
    struct comm_conf *conf;  /* the world's */
    struct dev *dev;         /* of the streams, NULL: data is ready; borrowed */

    /* inside: comm_priv.h */
    const struct comm_backend *backend;
    struct comm_world *world;
    struct comm_work *works; /* [COMM_WORKS + 1]: the last for scalars */
    double *scalars;         /* [size · COMM_SCALARS] */
    uint64_t id;             /* hash of axis and world ranks */
    struct arena arena;
    void *self;              /* the backend's own */
};

int comm_self_open(struct comm **out, struct err *err);
/* Initialises MPI. One process without mpirun is a world of one. ERR_ENV if MPI cannot start. */
int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err);
/* Says whether a launcher of this MPI (mpirun, srun) has started this process as one of its
 * ranks. */
bool comm_mpi_started(void);
/* Returns the name and version of the MPI library as it tells them, in one line. */
const char *comm_mpi_library(void);
/* Streams given to c, and to what is split from it later, are this device's. */
void comm_bind(struct comm *c, struct dev *dev);
/* Ranks of one color form a group, ordered by key, then by rank here. axis: a literal. The deadline holds for ranks that do not come. */
int comm_split(struct comm *c, const char *axis, int color, int key, struct comm **out, struct err *err);
void comm_abort(struct comm *c, int exit_code); /* ends every rank of the world */
void comm_close(struct comm *c);                /* NULL is fine; parts before the whole */

/* Scratch so that `works` reductions of up to `bytes` each (all ranks' parts for one rank: size · part) can be in flight whole; larger or
 * further ones are done chunk by chunk in waits and comm_progress, in what there is. works 0: for one, chunk by chunk; without it a
 * group has the addresses for that, and reductions make them resident beside the plan. While no work is in flight. */
int comm_reserve(struct comm *c, int works, int64_t bytes, struct err *err);

int comm_start(struct comm *c, const struct comm_op *op, struct dev_stream *s, struct comm_work **out, struct err *err);
int comm_wait(struct comm *c, struct comm_work *w, struct dev_stream *s, struct err *err); /* w NULL: nothing to do */
int comm_do(struct comm *c, const struct comm_op *op, struct dev_stream *s, struct err *err); /* both */
double comm_waited_s(const struct comm *c); /* wait_s of all groups of its world, those closed included */
bool comm_busy(const struct comm *c);      /* something is in flight in any group of its world */
void comm_progress(struct comm *c); /* lets the works of all groups move; cheap; between compute calls */
int comm_order_check(struct comm *world, struct err *err); /* collective; ERR_STATE names what differs; 0 without conf.check */

/* The commonest blocking calls. */
int comm_barrier(struct comm *c, struct err *err);
int comm_broadcast_bytes(struct comm *c, void *buf, int64_t bytes, int root, struct err *err);

/* Up to COMM_SCALARS numbers of the host, folded in rank order. */
int comm_sum(struct comm *c, double *values, int n, struct err *err);
int comm_max(struct comm *c, double *values, int n, struct err *err);
/* Agreement on failure: 0 when every rank gives 0; else, on all ranks, the status of the lowest failing rank, and its sentence
 * in *err ("rank 2: ..." when it was not rank 0). err is not NULL. */
int comm_agree(struct comm *c, int status, struct err *err);

/* The groups of one layout. A group of one is a self. */
struct comm_grid {
    struct comm *tp, *cp, *dp, *pp;
    struct comm *kv;         /* tp ranks that hold copies of the same k/v heads: consecutive ones */
    struct comm *a2a, *ring; /* cp = a2a · ring: layout_a2a_group consecutive cp ranks; same place in every a2a group */
    struct comm *shard;      /* layout_shard_group() consecutive ranks of the data group (dp·cp) */
    struct comm *replica;    /* ranks of the data group with the same place in their shard group */
};
int comm_size_error(const struct comm *world, const struct layout *l, struct err *err); /* ERR_USAGE: the world's size is another */
int comm_grid_open(struct comm *world, const struct layout *l, const struct model *m, struct comm_grid *out, struct err *err);
void comm_grid_close(struct comm_grid *g); /* safe on a zeroed struct */

#endif
