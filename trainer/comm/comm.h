/* comm: collective communication. An operation is started and awaited in two calls, whatever
 * computes meanwhile. Backends: self (one rank) and MPI.
 *
 * comm_start begins an operation on data that `stream` has written, and gives a work. comm_wait
 * completes it, and what is queued on the stream afterwards sees the result. Until the wait the
 * source must not be written and the destination not be read: with conf.check, destinations hold
 * NaN until then (a missing wait shows in the loss) and sources are copied first. The blocking
 * calls are a start and a wait.
 *
 * With a stream the buffers are memory of the device that comm_bind named, with NULL memory of the
 * host. Device memory that is the host's, too, is sent and received as it is. Other device memory
 * is staged: the start copies what is sent to pinned host memory and waits for that, and behind the
 * wait the result is copied back on the wait's stream. A group keeps the pinned memory that its
 * works needed until it is closed, which is before the device is; comm_reserve_stages takes it
 * before the first step. Or devices exchange their memory among themselves, by the library that
 * comm_bind named (comm_plane.h): then neither call waits on the host, and comm_wait lets the
 * stream wait. What has no stream goes by MPI in any case.
 *
 * Order. All ranks of a group start the same operations in the same order, and two ranks that share
 * several groups start those of all shared groups in one order. They may wait in any order. In a
 * send_recv only the ranks between which messages go take part. With conf.check each rank keeps,
 * for every other rank, a hash of what it started in groups that they share (group, kind, counts,
 * type, what); comm_order_check compares these and names the first operation that differs.
 *
 * Sums. They are formed here and not by MPI, in rank order, so a result depends on the numbers and
 * the group only, never on arrival. An all-reduce is a reduce-scatter and an all-gather of
 * near-equal parts. Sums are of f64, f32 or bf16. Each rank's bf16 numbers are widened, added up in
 * f32 and rounded once, to nearest even, by the owner of the part, so their error does not grow
 * with the ranks. Devices keep that for bf16 and for parts of several sizes. Sums of f64 and f32 in
 * even parts, and all-reduces of these, are the library's: its order of adding is the same from run
 * to run on the same ranks, network and library, and is not that of the ranks. With conf.ordered
 * the devices form all sums in rank order, and their bits are those of the host's.
 *
 * Deadlines. A wait that lasts longer than conf.deadline_s ends with ERR_TEMP and a sentence that
 * names the operation and the ranks of the world whose data did not come. If the process of one of
 * them, on this host, has ended, it is named as soon as nothing moves for a fifth of a second,
 * deadline or not. `broken` is then set on the group and on all it was split from: only `abort`
 * ends the others. A failed MPI call does the same. Any other error is this rank's own: share it by
 * comm_agree before going on. With conf.latency_s no operation completes sooner than that long
 * after its start (tests of overlap); scalars are exempt.
 * Where devices exchange data, the wait is that of whoever syncs a stream (dev.h), or waits for a
 * message: past the deadline the oldest operation that is not over is named, and the ranks that
 * have not queued it, which are asked. An error of the library ends the wait, too. No latency
 * applies, conf.trace is told the host's times, and check mode looks at the order alone.
 *
 * Memory. Works and their requests are taken when a group is opened. comm_reserve takes the scratch
 * of reductions and makes it resident, as much as buffer_scratch_bytes tells the memory plan, or
 * buffer_ordered_bytes of device memory, which the groups of one stream of messages share. A step
 * allocates nothing.
 *
 *     struct comm *world;
 *     comm_mpi_open(&argc, &argv, &world, err);            // or comm_self_open
 *     comm_grid_open(world, &layout, &model, &grid, err);  // grid.dp, grid.tp, ...
 *     comm_reserve(grid.dp, 2, bytes, err);                // before the first step
 *     struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "gradients", .recv = g, .n = n,
 *                          .dtype = t};
 *     comm_start(grid.dp, &op, s, &w, err);
 *     ...                         // compute something else; comm_progress(grid.dp) now and then
 *     comm_wait(grid.dp, w, s, err);
 */
#ifndef TRAINER_COMM_COMM_H
#define TRAINER_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "profiles/buffers.h"
#include "profiles/layout.h"
#include "trainer/dev/coll.h"

enum {
    COMM_MESSAGE_BYTES = BUFFER_EXCHANGE_BYTES, /* of one message of a reduction */
    COMM_SCALARS = 32,                          /* the most numbers of comm_sum and comm_max */
    COMM_MESSAGES = 64,                         /* the most messages of one send_recv */
    COMM_WORKS = 8,                             /* in flight in one group at a time */
};

enum comm_kind {
    COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_ALL_TO_ALL,
    COMM_SEND_RECV, COMM_BROADCAST, COMM_BARRIER
};
extern const char *const comm_kind_names[]; /* "all-gather", … */

/* Describes one direction of a send_recv: n elements to or from `peer`. Messages between two ranks
 * meet in the order of their lists. */
struct comm_message {
    void *buf;
    int64_t n;
    int peer;
    bool send;
};

/* An operation. Part r is n elements at r·n, or with `counts` it is counts[r] elements at at[r];
 * the counts may differ and may be 0. The arrays are borrowed until comm_start returns; all ranks
 * of an all-gather or a reduce-scatter give the same ones.
 *   all-gather      recv's part r = rank r's `send`; send may be recv's own part
 *   reduce-scatter  recv (the own part's elements) = sum over ranks of part `rank` of their `send`;
 *                   recv may be send's own part
 *   all-reduce      recv, n elements in place = sum over ranks; any n
 *   all-to-all      counts[r] elements at at[r] of send go to rank r; recv_counts[r] at recv_at[r]
 *                   of recv come from it
 *   send-recv       messages, all at once
 *   broadcast       recv, n elements, from root
 *   barrier */
struct comm_op {
    enum comm_kind kind;
    const char *what; /* "gradients of a unit": for errors and traces; a literal */
    const void *send;
    void *recv;
    int64_t n;
    const int64_t *counts, *at, *recv_counts, *recv_at;
    const struct comm_message *messages;
    int n_messages, root;
    enum dtype dtype;
};

/* One operation in flight. It belongs to its group, and is over after comm_wait. */
struct comm_work;

struct comm;
/* Tells when an operation that is over was started and awaited, by clock_mono_s: comm_start was
 * entered and left, comm_wait was entered and left. late_s is the part of the wait in which all
 * data had arrived and only the test latency was left. Take the slowest rank of each operation and
 * add up: latencies make a step longer by at most that. */
struct comm_times {
    double start_s, started_s, wait_s, end_s, late_s;
    int64_t sent_bytes; /* by this rank, to others */
};

/* Holds the settings of the world, which what is split from it inherits. */
struct comm_conf {
    double deadline_s;        /* 0: none */
    double latency_s;         /* of each operation, or */
    const char *latency_what; /* only of those that are called so; borrowed; NULL: of each */
    /* All sums are formed in rank order, also where a library could be faster (see Sums). */
    bool ordered;
    bool check;               /* at first true in builds without optimisation */
    /* called on each rank by itself when a work is over; may be NULL */
    void (*trace)(void *ctx, const struct comm *c, const struct comm_op *op,
                  const struct comm_times *t);
    void *trace_ctx;
};

struct comm {
    const char *name;        /* of the backend: "self", "mpi" */
    const char *axis;        /* "world", "tp", …: for errors; borrowed */
    int rank, size;
    const int *world_ranks;  /* [size] */
    bool broken;             /* see above */
    int64_t sent_bytes, ops; /* by this rank, to others, since opening: see profiles/traffic.h */
    double wait_s;           /* that the host spent in comm_start and comm_wait */
    int64_t scratch_bytes;   /* reserved */
    struct comm *parent;     /* what it was split from */
    struct comm_conf *conf;  /* the world's */
    struct dev *dev;         /* of the streams; NULL: data is ready; borrowed */

    /* inside: comm_priv.h */
    const struct comm_backend *backend;
    struct comm_world *world;
    struct comm_work *works; /* [COMM_WORKS + 1]: the last is for scalars */
    struct comm_stage *stages; /* [COMM_WORKS + 1] pinned memory of staged works */
    double *scalars;         /* [size · COMM_SCALARS] */
    uint64_t id;             /* hash of axis and world ranks */
    struct arena arena;
    void *self;              /* the backend's own */
};

int comm_self_open(struct comm **out, struct err *err);
/* Initialises MPI. One process without mpirun is a world of one. ERR_ENV: MPI cannot start. */
int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err);
/* Says whether a launcher of this MPI (mpirun, srun) has started this process as one of its
 * ranks. */
bool comm_mpi_started(void);
/* Returns the name and version of the MPI library as it tells them, in one line. */
const char *comm_mpi_library(void);
/* Sets the device of the streams that are given to c, and to what is split from it later. With
 * `coll`, which is of that device, the groups that comm_grid_open makes exchange device memory by
 * it; all ranks call it then. NULL, NULL is set before the device is closed. ERR_ENV: the library
 * cannot be used. */
int comm_bind(struct comm *c, struct dev *dev, const struct coll_ops *coll, struct err *err);
/* Forms a group of the ranks of each color, ordered by key, then by rank in c. axis is a literal.
 * The deadline holds for ranks that do not come. */
int comm_split(struct comm *c, const char *axis, int color, int key, struct comm **out,
               struct err *err);
/* Marks the world as broken by a failure of this rank's own of which the others cannot hear, and
 * ends at once what its device exchanges. */
void comm_give_up(struct comm *world, const struct err *why);
void comm_abort(struct comm *c, int exit_code); /* Ends every rank of the world. */
/* Closes a group; parts are closed before the whole. NULL is fine. */
void comm_close(struct comm *c);

/* Reserves scratch, so that `works` reductions of up to `bytes` each (all ranks' parts for one
 * rank: size · part) can be in flight whole. Larger or further reductions still work, portion by
 * portion, in waits and comm_progress. works 0 reserves room for one such. A group that never calls
 * this works too, but its reductions make memory resident that the plan does not show. Call it
 * while nothing is in flight. */
int comm_reserve(struct comm *c, int works, int64_t bytes, struct err *err);

/* Takes pinned memory so that n works whose messages take up to `bytes` each (buffer_stage_bytes of
 * what is sent and of what comes) can be staged at a time; more for what is larger, or beyond. It
 * does nothing where no messages are staged. */
int comm_reserve_stages(struct comm *c, int n, int64_t bytes, struct err *err);

int comm_start(struct comm *c, const struct comm_op *op, struct dev_stream *s,
               struct comm_work **out, struct err *err);
/* Waits for a work. With w NULL there is nothing to do. */
int comm_wait(struct comm *c, struct comm_work *w, struct dev_stream *s, struct err *err);
/* Starts an operation and waits for it. */
int comm_do(struct comm *c, const struct comm_op *op, struct dev_stream *s, struct err *err);
/* Returns the sum of wait_s over all groups of c's world, closed ones included: the time that the
 * host spent on messages, without what a device computed before one could be staged. */
double comm_waited_s(const struct comm *c);
/* Says whether something is in flight in any group of c's world. */
bool comm_busy(const struct comm *c);
/* Lets the works of all groups move. It is cheap, and meant for between compute calls. */
void comm_progress(struct comm *c);
/* Compares what the ranks have started; all ranks call it. ERR_STATE names what differs. Returns 0
 * without conf.check. */
int comm_order_check(struct comm *world, struct err *err);

/* These are the commonest blocking calls. */
int comm_barrier(struct comm *c, struct err *err);
int comm_broadcast_bytes(struct comm *c, void *buf, int64_t bytes, int root, struct err *err);

/* Fold up to COMM_SCALARS numbers of the host in rank order. */
int comm_sum(struct comm *c, double *values, int n, struct err *err);
int comm_max(struct comm *c, double *values, int n, struct err *err);
/* Agrees on failure. Returns 0 when every rank gives 0. Otherwise it returns, on all ranks, the
 * status of the lowest failing rank, and sets *err to its sentence ("rank 2: ..." when it was not
 * rank 0). err is not NULL. */
int comm_agree(struct comm *c, int status, struct err *err);

/* Holds the groups of one layout. A group of one rank is a self. */
struct comm_grid {
    struct comm *tp, *cp, *dp, *pp;
    struct comm *kv;      /* consecutive tp ranks that hold copies of the same k/v heads */
    /* cp = a2a · ring: an a2a group is layout_a2a_group consecutive cp ranks; a ring is the ranks
     * with the same place in every a2a group */
    struct comm *a2a, *ring;
    struct comm *shard;   /* layout_shard_group() consecutive ranks of the data group (dp·cp) */
    struct comm *replica; /* ranks of the data group with the same place in their shard group */
};
/* Returns ERR_USAGE, with the sentence that the world's size does not fit the layout. */
int comm_size_error(const struct comm *world, const struct layout *l, struct err *err);
int comm_grid_open(struct comm *world, const struct layout *l, const struct model *m,
                   struct comm_grid *out, struct err *err);
void comm_grid_close(struct comm_grid *g); /* Closes all groups; is safe on a zeroed struct. */

#endif
