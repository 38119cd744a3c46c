/* comm_mpi_watch: ends a rank that MPI holds after another rank of its host has ended.
 *
 * A rank sees by itself that a peer has ended, as long as the calls of MPI return. After the end of
 * peers Open MPI 4.1's TCP was seen not to return from MPI_Testsome: it repeated that a connection
 * is in an invalid state. So each rank has a thread that sleeps until a peer's process ends. If the
 * rank is then inside one and the same call of this backend for five seconds, the thread says which
 * peer is gone and ends the process. In a run whose ranks all live the thread never runs.
 */
#ifndef TRAINER_COMM_COMM_MPI_WATCH_H
#define TRAINER_COMM_COMM_MPI_WATCH_H

#include "trainer/comm/comm_mpi_peers.h"

struct comm_watch;
/* Begins to watch for the world, whose peers are known. Returns NULL, and nothing is watched, where
 * no peer can be seen or the system gives no thread. */
struct comm_watch *comm_watch_open(struct comm *world);
/* Notes that the one thread that calls MPI begins a call of this backend. NULL is fine, here and
 * below. */
void comm_watch_enter(struct comm_watch *w);
/* Notes that the call ends. It does not return if the watch is ending the process. */
void comm_watch_leave(struct comm_watch *w);
/* Says that this rank ends with the status `exit_code` for an error that it has told. If MPI holds
 * it from here on, the watch ends the process without another word. */
void comm_watch_ending(struct comm_watch *w, int exit_code);
void comm_watch_close(struct comm_watch *w);

#endif
