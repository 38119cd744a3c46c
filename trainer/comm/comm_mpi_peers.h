/* comm_mpi_peers: which ranks of this host still live.
 *
 * MPI does not say that a peer was killed: through shared memory it is merely silent. Each rank therefore holds a descriptor (pidfd) of every other
 * rank's process that it can see: those of its own boot and process namespace. They are opened while all live, so that a number used again by
 * the system is not mistaken for a rank. Ranks on other hosts, and systems without pidfd_open, are left to the deadline.
 */
#ifndef TRAINER_COMM_COMM_MPI_PEERS_H
#define TRAINER_COMM_COMM_MPI_PEERS_H

#include "trainer/comm/comm.h"

struct comm_peers;
/* Collective over the world. *out is new; where none can be watched it knows of none. */
int comm_peers_open(struct comm *world, struct comm_peers **out, struct err *err);
bool comm_peers_crowded(const struct comm_peers *p); /* more ranks on this host than it has processors; NULL: not known, false */
/* The first rank whose process has ended, or does within so many milliseconds, and its process number; -1: none that is known of. */
int comm_peers_gone(const struct comm_peers *p, int wait_ms, int *pid);
void comm_peers_close(struct comm_peers *p); /* NULL is fine */

#endif
