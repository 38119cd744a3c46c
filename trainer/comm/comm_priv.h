/* comm_priv: declares what the front (comm.c, comm_work.c, comm_order.c) and the backends share.
 *
 * The front reduces every operation to *ranges*, one per rank of the group, so that a backend needs
 * to know only three movements:
 *   exchange  send_n[r] elements at send_at[r] of src go to rank r, recv_n[r] at recv_at[r] of dst
 *             come from it (all-gather, all-to-all, broadcast; a barrier sends empty messages)
 *   reduce    rank r gets send_n[r] at send_at[r] of src; the sum of what this rank receives is
 *             recv_n[rank] at recv_at[rank] of dst; an all-reduce then exchanges the sums
 *   messages  the sends and receives of a list run at the same time
 * In an exchange the front copies the part that a rank gives itself. In check mode, and for device
 * memory that the host cannot access, the front replaces src and dst by copies.
 */
#ifndef TRAINER_COMM_COMM_PRIV_H
#define TRAINER_COMM_COMM_PRIV_H

#include "trainer/comm/comm.h"

struct comm_work {
    struct comm *c;
    struct comm_op op; /* without the caller's arrays */
    bool taken, done;
    double start_s, started_s;
    int64_t sent_bytes;
    int64_t *send_n, *send_at, *recv_n, *recv_at; /* [size] elements */
    const char *src;
    char *dst;
    struct comm_message messages[COMM_MESSAGES];
    /* src_copy and dst_copy replace src and dst (comm_work_cover). In them the data to and from
     * each rank lies without gaps. `real` is the caller's destination. */
    char *src_copy, *dst_copy, *real;
    struct dev_stream *staged; /* stream of device memory that the host cannot access; else NULL */
    struct comm_stage *stage;  /* pinned memory in which the copies then are */
    int64_t *real_at;          /* [size] element of `real` to which each rank's data belongs */
    void *real_bufs[COMM_MESSAGES];
    struct plane_link *link; /* communicator that carries it; NULL: the backend does */
    int64_t place;           /* number of the operation in the link's stream */
    void *self;              /* the backend's data of it */
};

/* Holds pinned memory for the messages of one comm_work. After a sync of the stream `given`, the
 * memory's last result has been copied out. */
struct comm_stage {
    void *ptr;
    int64_t bytes;
    struct dev_stream *given;
    bool taken;
};

/* Holds a question to other ranks of the world: how many operations have they queued in the plane's
 * communicator with this id? */
enum { COMM_NO_ANSWER = -2 };
struct comm_ask {
    uint64_t id;
    const int *ranks;  /* [n] of the world */
    int n;
    int64_t *answers;  /* [n] as comm_plane_queued returns it; COMM_NO_ANSWER: none came in time */
    double seconds;
};

/* Lists the calls of a backend. start posts what it can; wait returns when w->done. After an error
 * of either, the comm_work is never used again. */
struct comm_backend {
    const char *name;
    int64_t count_max; /* the most elements of a range */
    int (*start)(struct comm *c, struct comm_work *w, struct err *err);
    int (*wait)(struct comm *c, struct comm_work *w, struct err *err);
    void (*progress)(struct comm *c);
    int (*reserve)(struct comm *c, int works, int64_t bytes, struct err *err);
    /* Makes the group of these ranks of the world, in which this rank has number `rank`. No other
     * group that contains two of these ranks has the same `number`. */
    int (*split)(struct comm *c, const char *axis, int rank, int size, const int *world_ranks,
                 int64_t number, struct comm **out, struct err *err);
    void (*abort)(struct comm *c, int exit_code);
    void (*close)(struct comm *c); /* releases only what the backend holds */
    /* Asks the question, and waits for the answers. Returns 0, or -1 if it could not ask. */
    int (*ask)(struct comm *world, const struct comm_ask *ask);
    /* Answers the questions of other ranks. Returns whether there were any. */
    bool (*answer)(struct comm *world);
};

/* Holds what a world and all groups that are split from it share. */
struct comm_world {
    struct comm_conf conf;
    struct comm_order *order; /* comm_order.c; NULL until the first operation in check mode */
    int rank, size;
    int64_t groups; /* greater than the number of every group this rank has met; the world's is 0 */
    struct comm_work *flight; /* what the backend has in flight, of all groups */
    int64_t completed;        /* messages that are over: it grows while anything moves */
    double wait_s;            /* sum over all groups */
    /* a failure that occurred while nobody waited: the next call returns it; code 0: none */
    struct err failure;
    struct comm_plane *plane; /* comm_plane.h; NULL: the backend carries everything */
    struct comm_peers *peers; /* the backend's: which ranks of this host live; NULL: not known */
    struct comm_watch *watch; /* the backend's: comm_mpi_watch.h; NULL: none */
};

/* Makes a group of `size` ranks; with parent NULL it is a world. world_ranks is copied; NULL means
 * 0 .. size-1. */
int comm_new(struct comm *parent, const struct comm_backend *backend, const char *axis, int rank,
             int size, const int *world_ranks, struct comm **out, struct err *err);
void comm_free(struct comm *c);
/* Makes a group of this rank alone; with parent NULL it is a world. */
int comm_self_new(struct comm *parent, const char *axis, struct comm **out, struct err *err);
void comm_break(struct comm *c); /* Marks c, and the groups it was split from, as broken. */
static inline bool comm_reduces(enum comm_kind k)
{
    return k == COMM_REDUCE_SCATTER || k == COMM_ALL_REDUCE;
}

/* Fills the ranges of a comm_work from an operation. comm_work.c defines the functions from here to
 * the heading comm_order.c. */
void comm_work_plan(struct comm_work *w, const struct comm_op *op);
/* Makes src_copy and dst_copy, and copies the sources; in check mode it writes NaN into the
 * caller's destinations. */
int comm_work_cover(struct comm_work *w, struct err *err);
/* Frees the copies. With `give` the result is first copied to the caller's destinations; if the
 * comm_work was staged, on the stream s. */
void comm_work_uncover(struct comm_work *w, bool give, struct dev_stream *s);
/* Copies the part that a rank gives itself. If it is device memory that was not staged, the copy is
 * queued on the stream s. */
void comm_work_own(struct comm_work *w, struct dev_stream *s);
void comm_stages_free(struct comm *c); /* Frees the pinned memory of a group. */
int64_t comm_work_sent_bytes(const struct comm_work *w);

/* ---- comm_order.c ---- */
/* Records an operation; called before comm_work_cover. */
int comm_order_add(struct comm *c, const struct comm_work *w, const struct comm_op *op,
                   struct err *err);
void comm_order_free(struct comm_order *o);
/* Does an operation in the comm_work reserved for scalars, to which the test latency
 * (conf.latency_s) does not apply. comm_order_add records it only with `ordered`. comm.c defines
 * this function. */
int comm_do_quietly(struct comm *c, const struct comm_op *op, bool ordered, struct err *err);

#endif
