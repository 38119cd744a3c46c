/* comm_priv: what the front (comm.c, comm_work.c, comm_order.c) and the backends share.
 *
 * The front reduces every operation to *ranges*, one per rank of the group, so that a backend knows
 * only three movements:
 *   exchange  send_n[r] elements at send_at[r] of src go to rank r, recv_n[r] at recv_at[r] of dst
 *             come from it (all-gather, all-to-all, broadcast; a barrier is messages of nothing)
 *   reduce    rank r gets send_n[r] at send_at[r] of src; the sum of what comes is recv_n[own] at
 *             recv_at[own] of dst; an all-reduce is followed by an exchange of the sums
 *   messages  a list
 * The front copies what a rank gives itself in an exchange. In check mode, and where a buffer is in
 * device memory that the host cannot touch, it puts copies in the place of src and dst.
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
    /* A work that is covered has src and dst in these copies, in which what goes to each rank and
     * comes from it lies without gaps. */
    char *src_copy, *dst_copy, *real;
    struct dev_stream *staged; /* the buffers are in its device's memory, out of the host's reach */
    struct comm_stage *stage;  /* pinned memory that the copies are in then */
    int64_t *real_at;          /* [size] elements: where in `real` what comes from each rank goes */
    void *real_bufs[COMM_MESSAGES];
    struct plane_link *link; /* by which the work goes; NULL: by the backend */
    int64_t place;           /* among what the link's stream has queued */
    void *self;              /* the backend's own */
};

/* Pinned memory for the messages of one work. The last result has left it when `given` is
 * synced. */
struct comm_stage {
    void *ptr;
    int64_t bytes;
    struct dev_stream *given;
    bool taken;
};

/* A question to other ranks of the world: how many operations they have queued in the plane's
 * communicator of this id. */
enum { COMM_NO_ANSWER = -2 };
struct comm_ask {
    uint64_t id;
    const int *ranks;  /* [n] of the world */
    int n;
    int64_t *answers;  /* [n], as comm_plane_queued has it; COMM_NO_ANSWER: none came in time */
    double seconds;
};

/* Lists the calls of a backend. start posts what it can; wait returns with w->done. After an error
 * of either the work is never used again. */
struct comm_backend {
    const char *name;
    int64_t count_max; /* the most elements of a range */
    int (*start)(struct comm *c, struct comm_work *w, struct err *err);
    int (*wait)(struct comm *c, struct comm_work *w, struct err *err);
    void (*progress)(struct comm *c);
    int (*reserve)(struct comm *c, int works, int64_t bytes, struct err *err);
    /* Makes the group of these ranks of the world, of which this is `rank`. `number` is no other's
     * between any two of them. */
    int (*split)(struct comm *c, const char *axis, int rank, int size, const int *world_ranks,
                 int64_t number, struct comm **out, struct err *err);
    void (*abort)(struct comm *c, int exit_code);
    void (*close)(struct comm *c); /* closes only the backend's own */
    /* Asks, and waits for answers. Returns 0, or -1 when it could not ask. */
    int (*ask)(struct comm *world, const struct comm_ask *ask);
    /* Answers what others have asked. Returns whether any has. */
    bool (*answer)(struct comm *world);
};

/* Holds what a world and all that is split from it have in common. */
struct comm_world {
    struct comm_conf conf;
    struct comm_order *order; /* comm_order.c; NULL until the first operation in check mode */
    int rank, size;
    int64_t groups; /* above the number of every group that this rank has met; the world's is 0 */
    struct comm_work *flight; /* the backend's works in flight, of all groups */
    int64_t completed;        /* messages that are over: tells whether anything moves */
    double wait_s;            /* of all groups */
    /* the failure of an operation for which nobody waited then: the next call tells it; code 0:
     * none */
    struct err failure;
    struct comm_plane *plane; /* comm_plane.h; NULL: all goes by the backend */
    struct comm_peers *peers; /* the backend's: which ranks of this host live; NULL: not known */
};

/* Makes a group of `size` ranks; with parent NULL it is a world. world_ranks is copied; NULL means
 * 0 .. size-1. */
int comm_new(struct comm *parent, const struct comm_backend *backend, const char *axis, int rank,
             int size, const int *world_ranks, struct comm **out, struct err *err);
void comm_free(struct comm *c);
/* Makes a group of this rank alone; with parent NULL it is a world. */
int comm_self_new(struct comm *parent, const char *axis, struct comm **out, struct err *err);
void comm_break(struct comm *c); /* Marks c, and what it was split from, as broken. */
static inline bool comm_reduces(enum comm_kind k)
{
    return k == COMM_REDUCE_SCATTER || k == COMM_ALL_REDUCE;
}

/* comm_work.c: the ranges of an operation, the copies of check mode, and the bytes to others. */
void comm_work_plan(struct comm_work *w, const struct comm_op *op);
/* Copies the sources; in check mode it writes NaN into the destinations. */
int comm_work_cover(struct comm_work *w, struct err *err);
/* Frees the copies. give: the result goes to the caller's destinations first; on the stream s where
 * the work was staged. */
void comm_work_uncover(struct comm_work *w, bool give, struct dev_stream *s);
/* Copies what a rank gives itself; on the stream s where that is device memory still. */
void comm_work_own(struct comm_work *w, struct dev_stream *s);
void comm_stages_free(struct comm *c); /* Frees the pinned memory of a group's works. */
int64_t comm_work_sent_bytes(const struct comm_work *w);

/* comm_order.c */
/* Records an operation; called before comm_work_cover. */
int comm_order_add(struct comm *c, const struct comm_work *w, const struct comm_op *op,
                   struct err *err);
void comm_order_free(struct comm_order *o);
/* Does an operation in the work for scalars, to which no latency applies. Only with `ordered` it is
 * recorded by comm_order_add. */
int comm_do_quietly(struct comm *c, const struct comm_op *op, bool ordered, struct err *err);

#endif
