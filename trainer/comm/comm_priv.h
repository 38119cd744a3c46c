/* comm_priv: what the front (comm.c, comm_work.c, comm_order.c) and the backends share.
 *
 * The front reduces every operation to *ranges*, one per rank of the group, so that a backend knows three movements only:
 *   exchange  send_n[r] elements at send_at[r] of src go to rank r, recv_n[r] at recv_at[r] of dst come from it
 *             (all-gather, all-to-all, broadcast, barrier: messages of nothing)
 *   reduce    rank r gets send_n[r] at send_at[r] of src; the sum of what comes is recv_n[own] at recv_at[own] of dst;
 *             an all-reduce is followed by an exchange of the sums
 *   messages  a list
 * The front copies what a rank gives itself in an exchange, and in check mode puts copies in the place of src and dst.
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
    /* check mode: src and dst are in these; the caller's destination begins dst_first elements after `real` */
    char *src_copy, *dst_copy, *real;
    int64_t dst_first;
    void *real_bufs[COMM_MESSAGES];
    void *self; /* the backend's own */
};

/* start posts what it can; wait returns with w->done. After an error of either the work is never used again. */
struct comm_backend {
    const char *name;
    int64_t count_max; /* most elements of a range */
    int (*start)(struct comm *c, struct comm_work *w, struct err *err);
    int (*wait)(struct comm *c, struct comm_work *w, struct err *err);
    void (*progress)(struct comm *c);
    int (*reserve)(struct comm *c, int works, int64_t bytes, struct err *err);
    int (*split)(struct comm *c, const char *axis, int color, int key, struct comm **out, struct err *err);
    void (*abort)(struct comm *c, int exit_code);
    void (*close)(struct comm *c); /* the backend's own only */
};

/* One for a world and all that is split from it. */
struct comm_world {
    struct comm_conf conf;
    struct comm_order *order;  /* comm_order.c; NULL until the first operation in check mode */
    int rank, size;
    struct comm_work *flight;  /* the backend's works in flight, of all groups */
    int64_t completed;         /* messages: is anything moving? */
    double wait_s;             /* of all groups */
    struct err failure;        /* of an operation that nobody waited for then: what the next call says; code 0: none */
    struct comm_peers *peers;  /* the backend's: which ranks of this host live; NULL: not known */
};

/* A group of `size`; parent NULL: a world. world_ranks is copied, NULL: 0 .. size-1. */
int comm_new(struct comm *parent, const struct comm_backend *backend, const char *axis, int rank, int size, const int *world_ranks,
             struct comm **out, struct err *err);
void comm_free(struct comm *c);
int comm_self_new(struct comm *parent, const char *axis, struct comm **out, struct err *err); /* parent NULL: a world */
void comm_break(struct comm *c); /* and what it was split from */
static inline bool comm_reduces(enum comm_kind k) { return k == COMM_REDUCE_SCATTER || k == COMM_ALL_REDUCE; }

/* comm_work.c: the ranges of an operation; copies in check mode; bytes to others. */
void comm_work_plan(struct comm_work *w, const struct comm_op *op);
int comm_work_cover(struct comm_work *w, struct err *err);   /* check mode: copies of the sources, NaN in the destinations */
void comm_work_uncover(struct comm_work *w, bool give);      /* result to the caller, copies freed */
void comm_work_own(struct comm_work *w);                     /* what a rank gives itself */
int64_t comm_work_sent_bytes(const struct comm_work *w);

/* comm_order.c */
int comm_order_add(struct comm *c, const struct comm_work *w, const struct comm_op *op, struct err *err); /* before comm_work_cover */
void comm_order_free(struct comm_order *o);
/* comm_do outside the rules of latency and order. */
int comm_do_quietly(struct comm *c, const struct comm_op *op, bool ordered, struct err *err);

#endif
