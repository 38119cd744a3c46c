/* comm: declares collective communication. An operation is started by one call and awaited by
 * another, and the caller may compute in between. The backends are self (one rank) and MPI.
 *
 * comm_start begins an operation on data that `stream` has written, and returns a comm_work.
 * comm_wait completes it; what is queued on the stream afterwards sees the result. Before the wait,
 * the source must not be written and the destination must not be read. With conf.check,
 * destinations hold NaN until then, so that a missing wait shows in the loss, and sources are
 * copied first. The blocking calls are a start followed by a wait.
 *
 * If a stream is given, the buffers are memory of the device that comm_bind named; with NULL they
 * are host memory. Device memory that the host can access is sent and received directly. Other
 * device memory is staged: the start copies what is sent to pinned host memory and waits for the
 * copy; after the wait, the result is copied back on the stream that was given to the wait. A group
 * keeps the pinned memory that its operations needed until it is closed, which must be before the
 * device is. comm_reserve_stages allocates it before the first step. Instead of staging, devices
 * can exchange their memory by the library that comm_bind named (comm_plane.h): then neither call
 * waits on the host, and comm_wait makes the stream wait. Operations without a stream always go by
 * MPI.
 *
 * Order. All ranks of a group start the same operations in the same order, and two ranks that share
 * several groups start the operations of all shared groups in one order. They may wait in any
 * order. Only the ranks that send or receive take part in a send_recv. With conf.check each rank
 * keeps, for every other rank, a hash of the operations that it started in groups which both share
 * (group, kind, counts, type, what); comm_order_check compares the hashes and names the first
 * difference.
 *
 * Sums. They are formed here and not by MPI, in rank order, so a result depends only on the numbers
 * and the group, never on the order of arrival. An all-reduce is a reduce-scatter and an all-gather
 * of near-equal parts. Sums are of f64, f32 or bf16. The owner of a part widens each rank's bf16
 * numbers, adds them up in f32 and rounds once, to nearest even, so the error does not grow with
 * the number of ranks. Devices do the same for bf16 and for parts of unequal size. Sums of f64 and
 * f32 in equal parts, and all-reduces of these types, are left to the library. Its order of adding
 * stays the same for the same ranks, network and library, but is not the rank order. With
 * conf.ordered the devices form all sums in rank order, with the same bits as on the host.
 *
 * Deadlines. A wait that lasts longer than conf.deadline_s ends with ERR_TEMP and a sentence that
 * names the operation and the ranks of the world whose data did not come. If the process of a rank
 * on this host has ended, it is named within a tenth of a second after messages stop moving (where
 * devices exchange data: half a second), with any deadline. In both cases `broken` is set on the
 * group and on all groups it was split from, and only `abort` ends the other ranks. A failed MPI
 * call has the same effect. A rank that MPI holds in a call for five seconds after the end of a
 * rank of its host is ended (comm_mpi_watch.h). Any other error concerns this rank alone: share it
 * by comm_agree before going on. With conf.latency_s no operation completes sooner than that time
 * after its start (for tests of overlap), except on scalars. Where devices exchange data, the host
 * waits when it syncs a stream (dev.h) or waits for a message. After the deadline the error names
 * the oldest operation that is not over, and the ranks that have not queued it, because the other
 * ranks are asked. An error of the library ends the wait, too. No latency applies there, conf.trace
 * gets the times on the host, and check mode checks the order only.
 *
 * Memory. Each comm_work and its requests are allocated when a group is opened. comm_reserve
 * allocates the scratch of reductions and makes it resident: as much as buffer_scratch_bytes says
 * in the memory plan or, for a device, buffer_ordered_bytes of device memory, which the groups on
 * one stream of messages share. A step allocates nothing.
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
    COMM_WORKS = 8,                             /* the most operations in flight in a group */
};

enum comm_kind {
    COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_ALL_TO_ALL,
    COMM_SEND_RECV, COMM_BROADCAST, COMM_BARRIER
};
extern const char *const comm_kind_names[]; /* "all-gather", … */

/* Describes one direction of a send_recv: n elements to or from `peer`. Between two ranks, the k-th
 * send in one list is matched with the k-th receive in the other. */
struct comm_message {
    void *buf;
    int64_t n;
    int peer;
    bool send;
};

/* Describes an operation. Part r is the n elements from r·n on or, with `counts`, the counts[r]
 * elements from at[r] on; counts may differ and may be 0. The arrays are borrowed until comm_start
 * returns. All ranks of an all-gather or a reduce-scatter give the same counts.
 *   all-gather      recv's part r = rank r's `send`; send may be part `rank` of recv
 *   reduce-scatter  recv (as long as part `rank`) = sum over ranks of part `rank` of their `send`;
 *                   recv may be part `rank` of send
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

/* Stands for one operation in flight. It belongs to its group, and is over after comm_wait. */
struct comm_work;

struct comm;
/* Holds the times of an operation that is over, by clock_mono_s: when comm_start was entered and
 * left, and when comm_wait was entered and left. late_s is the part of the wait in which all data
 * had arrived and only the latency for tests was left. For each operation take the largest late_s
 * of all ranks: latencies make a step longer by at most the sum of these. */
struct comm_times {
    double start_s, started_s, wait_s, end_s, late_s;
    int64_t sent_bytes; /* by this rank, to others */
};

/* Holds the settings of the world, which all groups split from it share. */
struct comm_conf {
    double deadline_s;        /* 0: none */
    double latency_s;         /* least time from start to completion, for tests; 0: none */
    const char *latency_what; /* the only `what` with a latency; NULL: all have; borrowed */
    /* All sums are formed in rank order, even where a library could be faster (see Sums). */
    bool ordered;
    bool check;               /* default: true in builds without optimisation */
    /* This is called on each rank when an operation is over. It may be NULL. */
    void (*trace)(void *ctx, const struct comm *c, const struct comm_op *op,
                  const struct comm_times *t);
    /* This is called when the host enters comm_start or comm_wait, and when it leaves it. It may be
     * NULL. */
    void (*trace_host)(void *ctx, bool enters);
    void *trace_ctx; /* of both */
    /* This is called on another thread, while the one that uses the communication is held inside
     * MPI and does not return, before the process ends with the error *why (see Deadlines). It may
     * be NULL. */
    void (*lost)(void *ctx, const struct err *why);
    void *lost_ctx;
};

struct comm {
    const char *name;        /* of the backend: "self", "mpi" */
    const char *axis;        /* "world", "tp", …: for errors; borrowed */
    int rank, size;
    const int *world_ranks;  /* [size] */
    bool broken;             /* see Deadlines */
    int64_t sent_bytes, ops; /* by this rank, to others, since opening: see profiles/traffic.h */
    double wait_s;           /* time the host spent in comm_start and comm_wait */
    int64_t scratch_bytes;   /* scratch that comm_reserve has reserved */
    struct comm *parent;     /* the group it was split from; NULL: a world */
    struct comm_conf *conf;  /* settings of the world */
    struct dev *dev;         /* of the streams; NULL: the data is ready at once; borrowed */

    /* private: see comm_priv.h */
    const struct comm_backend *backend;
    struct comm_world *world;
    struct comm_work *works; /* [COMM_WORKS + 1]: the last is for scalars */
    struct comm_stage *stages; /* [COMM_WORKS + 1] pinned memory of staged operations */
    double *scalars;         /* [size · COMM_SCALARS] */
    uint64_t id;             /* hash of axis and world ranks */
    struct arena arena;
    void *self;              /* the backend's data of the group */
};

int comm_self_open(struct comm **out, struct err *err);
/* Initialises MPI. One process without mpirun is a world of one. ERR_ENV: MPI cannot start. */
int comm_mpi_open(int *argc, char ***argv, struct comm **out, struct err *err);
/* Says whether a launcher of this MPI (mpirun, srun) has started this process as one of its
 * ranks. */
bool comm_mpi_started(void);
/* Returns the name and version of the MPI library in one line. */
const char *comm_mpi_library(void);
/* Sets the device of the streams that are given to c, and to groups that are split from it later.
 * With `coll`, which must be of that device, the groups that comm_grid_open makes exchange device
 * memory by it; then all ranks must call this. NULL, NULL must be set before the device is closed.
 * ERR_ENV: the library cannot be used. */
int comm_bind(struct comm *c, struct dev *dev, const struct coll_ops *coll, struct err *err);
/* Forms a group of the ranks of each color, ordered by key, then by rank in c. axis is a literal.
 * If ranks do not come, the deadline ends the call. */
int comm_split(struct comm *c, const char *axis, int color, int key, struct comm **out,
               struct err *err);
/* Marks the world as broken after a failure that this rank cannot report to the others. Exchanges
 * of the device end at once. */
void comm_give_up(struct comm *world, const struct err *why);
/* Ends this rank and, where they do not find out by themselves that they must, every other rank of
 * the world. */
void comm_abort(struct comm *c, int exit_code);
/* Closes a group; groups that were split from it must be closed first. NULL is fine. */
void comm_close(struct comm *c);

/* Reserves scratch, so that `works` reductions of up to `bytes` each can be in flight as a whole
 * (bytes: all ranks' parts for one rank, size · part). Larger or further reductions are done
 * portion by portion, in waits and in comm_progress. works 0 reserves room for one portion only.
 * Without this call reductions are possible too, but make memory resident that the plan does not
 * show. Call it while nothing is in flight. */
int comm_reserve(struct comm *c, int works, int64_t bytes, struct err *err);

/* Allocates pinned memory so that n operations can be staged at a time, with messages of up to
 * `bytes` each (buffer_stage_bytes of what is sent and received). Larger or further operations
 * allocate more when they start. It does nothing where messages are not staged. */
int comm_reserve_stages(struct comm *c, int n, int64_t bytes, struct err *err);

int comm_start(struct comm *c, const struct comm_op *op, struct dev_stream *s,
               struct comm_work **out, struct err *err);
/* Waits until an operation is over. Does nothing if w is NULL. */
int comm_wait(struct comm *c, struct comm_work *w, struct dev_stream *s, struct err *err);
/* Starts an operation and waits for it. */
int comm_do(struct comm *c, const struct comm_op *op, struct dev_stream *s, struct err *err);
/* Returns the sum of wait_s over all groups of c's world, closed ones included: the time that the
 * host spent on messages. The time in which a device finished computing before its data could be
 * staged is not in it. */
double comm_waited_s(const struct comm *c);
/* Says whether an operation is in flight in any group of c's world. */
bool comm_busy(const struct comm *c);
/* Advances the operations of all groups. It is cheap, and is called between computations. */
void comm_progress(struct comm *c);
/* Compares which operations the ranks have started; all ranks call it. ERR_STATE names the first
 * difference. Returns 0 without conf.check. */
int comm_order_check(struct comm *world, struct err *err);

/* These blocking calls are the most common ones. */
int comm_barrier(struct comm *c, struct err *err);
int comm_broadcast_bytes(struct comm *c, void *buf, int64_t bytes, int root, struct err *err);

/* Combine up to COMM_SCALARS host numbers of each rank, in rank order, by sum or maximum. */
int comm_sum(struct comm *c, double *values, int n, struct err *err);
int comm_max(struct comm *c, double *values, int n, struct err *err);
/* Agrees on failure. Returns 0 when every rank gives 0. Otherwise it returns, on all ranks, the
 * status of the lowest failing rank, and sets *err to its sentence ("rank 2: ...", by its number in
 * the world, when it was not rank 0 there). err is not NULL. */
int comm_agree(struct comm *c, int status, struct err *err);

/* Holds the groups of one layout. A group of one rank has the self backend. */
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
