/* comm_plane: carries operations on device memory by a library of stream-ordered collectives, such
 * as NCCL, without the host. trainer/dev/coll.h is the table through which the library is called.
 *
 * A plane belongs to a world, whose backend still carries ids, questions, and operations without a
 * stream. When a group has joined, each of its operations on a stream goes as follows: an event is
 * recorded on the caller's stream; a stream of messages waits for it; the operation is queued
 * there, and an event is recorded after it; comm_wait makes the caller's stream wait for that
 * event.
 *
 * Streams of messages. The exchanges of tensor and context parallelism have one stream of high
 * priority, and sums of gradients have another stream. Each directed edge of a pipeline has a
 * communicator and a stream of its own: with fewer of them, most schedules would deadlock
 * (profiles/schedule.h). A communicator is used on one stream only.
 *
 * A rank that waits on the host, for the device or for a message of the backend, polls the plane. A
 * poll checks all communicators, the ranks of this host, and the oldest operation that is not over,
 * and answers the questions of other ranks. A failure aborts all communicators at once and breaks
 * the world, and every later call returns it.
 */
#ifndef TRAINER_COMM_COMM_PLANE_H
#define TRAINER_COMM_COMM_PLANE_H

#include "trainer/comm/comm.h"

struct comm_plane;
struct comm_world;
struct plane_link;

/* Makes a plane, which groups may join; *out is new. From now on the device polls the plane while
 * the host waits for it (watch in dev.h). ERR_ENV: the library cannot be used; all ranks get this
 * error. */
int comm_plane_new(struct comm *world, struct dev *dev, const struct coll_ops *coll,
                   struct comm_plane **out, struct err *err);
/* Frees a plane that all groups have left. NULL is fine. */
void comm_plane_free(struct comm_plane *p);

/* The kind of data that a group exchanges decides which stream it uses. */
enum plane_kind { PLANE_MESSAGES, PLANE_SUMS };
/* Opens the communicator of a group and connects its ranks; all of them call it. Does nothing
 * without a plane, or in a group of one rank. */
int comm_plane_join(struct comm *c, enum plane_kind kind, struct err *err);
/* Opens the edges between each rank of a group and the next one, in both directions; `around`: also
 * between the last rank and the first. A send_recv of one message then uses its edge. */
int comm_plane_edges(struct comm *c, bool around, struct err *err);
/* Closes a group's communicators. Those of a broken world are aborted, without a wait. */
void comm_plane_leave(struct comm *c);

/* Returns the communicator for an operation; NULL: the group's backend carries it. */
struct plane_link *comm_plane_link(const struct comm *c, const struct comm_op *op,
                                   const struct dev_stream *s);
bool comm_plane_has(const struct comm *c); /* Returns whether the group has joined. */
/* Queues an operation that comm_work_plan has planned and that has a link. */
int comm_plane_start(struct comm_work *w, struct dev_stream *s, struct err *err);
/* Makes everything that is queued on the stream afterwards wait for the operation. Returns 0. */
int comm_plane_wait(const struct comm_work *w, struct dev_stream *s);
/* Allocates memory for the parts of sums of `bytes` bytes (buffer_ordered_bytes). */
int comm_plane_reserve(struct comm *c, int64_t bytes, struct err *err);

/* Polls, as the top of this file says. Returns 0 without a plane; the code of the failure if
 * something has failed. */
int comm_plane_poll(struct comm_plane *p, struct err *err);
/* Aborts all communicators; every later call returns `why`. NULL is fine. */
void comm_plane_fail(struct comm_plane *p, const struct err *why);
/* Returns how many operations this rank has queued in the communicator with this id; -1: there is
 * none. This is the answer to other ranks' questions. */
int64_t comm_plane_queued(const struct comm_plane *p, uint64_t id);

#endif
