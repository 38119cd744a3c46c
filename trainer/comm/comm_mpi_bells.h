/* comm_mpi_bells: lets a rank that waits sleep until another rank of its host has something for it.
 *
 * MPI is polled. Where ranks share processors, or others use them too, each empty poll takes the
 * processor from whoever the rank waits for; and a rank that gives way between polls gives a whole
 * slice of time to a process that always computes. So the ranks of one host share a page in which
 * each has a bell: a count, and whether its rank sleeps. A rank rings for another when it sends to
 * it, or asks it for a long message. A bell is a hint alone: MPI may have work without one, so
 * sleeps are bounded.
 */
#ifndef TRAINER_COMM_COMM_MPI_BELLS_H
#define TRAINER_COMM_COMM_MPI_BELLS_H

#include <stdint.h>

struct comm_bells;
/* Makes the shared memory of a world of `size` ranks. Returns a descriptor for the ranks of this
 * host to open, which the caller closes; -1: there are no bells. */
int comm_bells_make(int size);
/* Opens what process `pid`, which lives, has made as descriptor fd. NULL: there are no bells, and
 * all below does nothing or sleeps its time. The caller closes it. */
struct comm_bells *comm_bells_open(int64_t pid, int64_t fd, int size);
void comm_bells_close(struct comm_bells *b);

void comm_bells_ring(struct comm_bells *b, int rank);
/* Returns how often the bell of `rank`, the caller's own, was rung. */
uint32_t comm_bells_heard(const struct comm_bells *b, int rank);
/* Returns how many ranks sleep. */
int comm_bells_asleep(const struct comm_bells *b);
/* Sleeps until it was rung more often than `heard`, at most so long. */
void comm_bells_sleep(struct comm_bells *b, int rank, uint32_t heard, double seconds);

#endif
