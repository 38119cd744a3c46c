/* comm_plane_priv: declares what the files of the plane share: communicators and streams
 * (comm_plane.c), operations (comm_plane_ops.c), deadlines (comm_plane_watch.c). */
#ifndef TRAINER_COMM_COMM_PLANE_PRIV_H
#define TRAINER_COMM_COMM_PLANE_PRIV_H

#include "trainer/comm/comm_plane.h"
#include "trainer/comm/comm_priv.h"
#include "trainer/dev/coll.h"

/* The host may be at most this many operations of a stream ahead of the device. */
enum { PLANE_DEPTH = 256 };

/* Remembers an operation that was queued. */
struct plane_issued {
    struct dev_event *over; /* recorded after it */
    const struct plane_link *link;
    enum comm_kind kind;
    const char *what;
    int64_t bytes, number; /* bytes sent by this rank; number in its communicator, from 1 */
    int64_t order;         /* among all operations of this rank */
    double at_s;
};

/* A queue is a stream of messages. Operation i is at i mod PLANE_DEPTH of `issued`. */
struct plane_queue {
    struct plane_queue *next;
    struct dev_stream *stream;
    struct dev_event *before;    /* recorded on the caller's stream */
    int64_t queued, over;        /* numbers of operations queued, and seen to be over */
    void *block;                 /* holds the parts of sums that other ranks sent */
    int64_t block_bytes;
    struct plane_issued issued[PLANE_DEPTH];
};

/* A link is a communicator: of all ranks of a group, or of the two ranks of an edge. */
struct plane_link {
    struct plane_link *next;
    struct comm *c;
    int from, to;       /* group ranks of an edge; -1: of all */
    int rank, size;     /* in the communicator */
    struct coll *coll;  /* NULL: it was aborted */
    struct plane_queue *queue;
    uint64_t id;        /* the same on all ranks of the link; other links have others */
    int64_t queued;     /* operations queued so far */
};

struct comm_plane {
    struct comm *world;
    struct dev *dev;
    const struct coll_ops *coll;
    struct plane_queue *queues, *of[PLANE_SUMS + 1]; /* all; by kind, NULL until a group joins */
    struct plane_link *links;
    int64_t queued;     /* operations queued so far in all links */
    double polled_s, looked_s, moved_s; /* the last poll; thorough look; end of an operation */
    double asked_s, gone_s; /* last question of another rank; when one was first seen to be gone */
    struct err failure; /* code 0: none */
};

/* ---- comm_plane_ops.c ---- */
/* Queues the calls that an operation consists of. An error other than ERR_NOMEM is the
 * communicator's. */
int plane_issue(struct comm_plane *p, struct plane_link *l, struct comm_work *w, struct err *err);
/* Makes sure that a stream has a block of at least `bytes` bytes. */
int plane_block_take(struct comm_plane *p, struct plane_queue *queue, int64_t bytes,
                     struct err *err);

/* ---- comm_plane_watch.c ---- */
/* Waits until the library has opened a communicator, or has passed what was queued on to the
 * device. `doing` is the verb for the error. */
int plane_settle(struct comm_plane *p, struct plane_link *l, const char *doing, struct err *err);
/* Waits until a stream has room for one more operation. */
int plane_room(struct comm_plane *p, struct plane_queue *queue, struct err *err);
/* Ends all communicators and breaks the world; *err is why, and its code is returned. */
int plane_break(struct comm_plane *p, struct err *err);
int plane_watch(void *plane, struct err *err); /* Calls comm_plane_poll; it is for dev.watch. */

#endif
