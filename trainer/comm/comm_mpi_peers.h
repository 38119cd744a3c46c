/* comm_mpi_peers: finds which ranks of this host still live, and gives access to their bells.
 *
 * MPI does not say that a peer was killed: through shared memory it only sends no more. Each rank
 * therefore holds a descriptor (pidfd) of every other rank's process that it can see, that is, of
 * its own boot and process namespace. The descriptors are opened while all ranks live, so a process
 * number that the system uses again is not mistaken for a rank. What happened on other hosts the
 * ranks there tell (comm_mpi_news.c), unless none is left. On systems without pidfd_open only the
 * deadline helps.
 */
#ifndef TRAINER_COMM_COMM_MPI_PEERS_H
#define TRAINER_COMM_COMM_MPI_PEERS_H

#include <poll.h>

#include "trainer/comm/comm.h"
#include "trainer/comm/comm_mpi_bells.h"

/* Names a rank whose process, a number on its own host, has ended. spoke: it ended for an error of
 * its own, and has said which (comm_peers_leave). */
struct comm_gone { int rank, pid; bool spoke; };
/* Begin the sentence by which one rank reports that another has ended. What the reporting rank was
 * doing follows. */
#define COMM_GONE "rank %d of the world %s: its process %d has ended%s; "
#define COMM_GONE_ARGS(g) \
    (g).rank, (g).spoke ? "has failed" : "is gone", (g).pid, \
    (g).spoke ? " and said why" : " (killed, or crashed) without a word"

struct comm_peers;
/* Opens the descriptors; all ranks of the world call it. *out is new. It is empty where no rank can
 * be watched. */
int comm_peers_open(struct comm *world, struct comm_peers **out, struct err *err);
/* Says whether this host has more ranks than processors. Returns false if p is NULL: then it is not
 * known. */
bool comm_peers_crowded(const struct comm_peers *p);
/* Says whether other processes compete with this host's ranks for the processors: a rank that
 * polled would lose a time slice to them at each poll. The load is read now and then; `now` is
 * clock_mono_s. */
bool comm_peers_disturbed(struct comm_peers *p, double now);
/* Returns the bells of this host's ranks, by rank of the world; NULL: there are none. */
struct comm_bells *comm_peers_bells(const struct comm_peers *p);
/* Finds a rank of this host whose process has ended, or does so within wait_ms milliseconds, as
 * comm_peers_ended does. Where none of this host did, one that another host has told of. Returns
 * whether there is one. */
bool comm_peers_gone(const struct comm_peers *p, int wait_ms, struct comm_gone *out);
/* Notes that this rank ends for an error that it has said. Returns whether it must end the other
 * ranks too. It need not where a rank of this host has ended without a word, but for the last one
 * that leaves: the others see that themselves, and shall say it before they are ended. Nor need it
 * where another host has told that, whose last rank ends all. */
bool comm_peers_leave(const struct comm_peers *p, int rank);
/* Returns a new array of the descriptors of p, *n of them, by which another thread can poll while
 * this one uses p, with room for one descriptor more. NULL: there are none, or no memory. */
struct pollfd *comm_peers_fds(const struct comm_peers *p, int *n);
/* Finds, after a poll of those descriptors, a rank of this host whose process has ended; first one
 * that ended without a word, since others that have ended may only have missed that one. */
bool comm_peers_ended(const struct comm_peers *p, const struct pollfd *fds, struct comm_gone *out);
/* Says whether rank r of the world is not on the host of `rank`, the caller's own. */
bool comm_peers_elsewhere(const struct comm_peers *p, int rank, int r);
/* Says whether a rank of this host has ended without a word, and this rank is the one that tells
 * other hosts: no lower one of its host lives, or has lived to tell it. */
bool comm_peers_tells(const struct comm_peers *p, int rank, struct comm_gone *out);
/* Notes what another host has told. The first news stays. */
void comm_peers_told(struct comm_peers *p, const struct comm_gone *gone);
void comm_peers_close(struct comm_peers *p); /* NULL is fine. */

#endif
