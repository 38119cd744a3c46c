/* comm_plane: operations on device memory that go through a table of stream-ordered collectives
 * (trainer/dev/coll.h), without the host.
 *
 * A plane belongs to a world, whose backend still carries ids, questions, and whatever has no
 * stream. A group joins it; its operations on a stream then go like this: an event is recorded on
 * the caller's stream, a stream of messages waits for it, the operation is queued there, an event
 * is recorded behind it, and comm_wait lets the caller's stream wait for that.
 *
 * Streams of messages. What tensor and context parallelism exchange has one of high priority, sums
 * of gradients another, and each directed edge of a pipeline a communicator and a stream of its
 * own: with fewer most schedules stand still (profiles/schedule.h). A communicator is used on one
 * stream only.
 *
 * Whoever waits on the host (for the device, or for a message of the backend) polls the plane. A
 * poll looks at all communicators, at the ranks of this host, and at the oldest operation that is
 * not over, and answers the questions of other ranks. A failure aborts all communicators at once,
 * breaks the world, and is what every later call gives.
 */
#ifndef TRAINER_COMM_COMM_PLANE_H
#define TRAINER_COMM_COMM_PLANE_H

#include "trainer/comm/comm.h"

struct comm_plane;
struct comm_world;
struct plane_link;

/* Makes a plane, which groups may join; *out is new. It watches the device (dev.h). ERR_ENV: the
 * library cannot be used; all ranks are told so. */
int comm_plane_new(struct comm *world, struct dev *dev, const struct coll_ops *coll,
                   struct comm_plane **out, struct err *err);
/* Frees a plane that all groups have left. NULL is fine. */
void comm_plane_free(struct comm_plane *p);

/* The kind of data that a group exchanges decides which stream it uses. */
enum plane_kind { PLANE_MESSAGES, PLANE_SUMS };
/* Opens the communicator of a group and connects its ranks; all of them call it. Does nothing
 * without a plane, or for a rank alone. */
int comm_plane_join(struct comm *c, enum plane_kind kind, struct err *err);
/* Opens the edges between each rank of a group and the next one, in both directions; `around`:
 * between the last one and the first one, too. Each of its send_recvs is then one message. */
int comm_plane_edges(struct comm *c, bool around, struct err *err);
/* Closes a group's communicators. Those of a broken world are aborted, without a wait. */
void comm_plane_leave(struct comm *c);

/* Returns by which communicator an operation goes; NULL: by the group's backend. */
struct plane_link *comm_plane_link(const struct comm *c, const struct comm_op *op,
                                   const struct dev_stream *s);
bool comm_plane_has(const struct comm *c); /* Has the group joined? */
/* Queues a work that is planned and has a link. */
int comm_plane_start(struct comm_work *w, struct dev_stream *s, struct err *err);
/* Lets what is queued on the stream afterwards wait for the work. Returns 0. */
int comm_plane_wait(const struct comm_work *w, struct dev_stream *s);
/* Takes memory for the parts of sums of so many bytes (buffer_ordered_bytes). */
int comm_plane_reserve(struct comm *c, int64_t bytes, struct err *err);

/* Looks whether all is well, as described above; without a plane it is. ERR_TEMP: it is not. */
int comm_plane_poll(struct comm_plane *p, struct err *err);
/* Ends all communicators, which every later call gives as the reason. NULL is fine. */
void comm_plane_fail(struct comm_plane *p, const struct err *why);
/* Returns how many operations this rank has queued in the communicator of an id; -1: there is none.
 * It is what other ranks ask. */
int64_t comm_plane_queued(const struct comm_plane *p, uint64_t id);

#endif
