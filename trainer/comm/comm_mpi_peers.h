/* comm_mpi_peers: finds which ranks of this host still live, and gives access to their bells.
 *
 * MPI does not say that a peer was killed: through shared memory it only sends no more. Each rank
 * therefore holds a descriptor (pidfd) of every other rank's process that it can see, that is, of
 * its own boot and process namespace. The descriptors are opened while all ranks live, so a process
 * number that the system uses again is not mistaken for a rank. For ranks on other hosts, and on
 * systems without pidfd_open, only the deadline helps.
 */
#ifndef TRAINER_COMM_COMM_MPI_PEERS_H
#define TRAINER_COMM_COMM_MPI_PEERS_H

#include "trainer/comm/comm.h"
#include "trainer/comm/comm_mpi_bells.h"

/* Begins the sentence by which one rank reports that another has gone: the other's number and its
 * process. What the reporting rank was doing follows. */
#define COMM_GONE \
    "rank %d of the world is gone: its process %d has ended (killed, or crashed) without a word; "

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
/* Returns the first rank whose process has ended, or does so within wait_ms milliseconds, and its
 * process number in *pid; -1: no such rank is known. */
int comm_peers_gone(const struct comm_peers *p, int wait_ms, int *pid);
void comm_peers_close(struct comm_peers *p); /* NULL is fine. */

#endif
