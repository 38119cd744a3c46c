/* comm_mpi_bells: lets a rank that waits sleep until another rank of its host wakes it.
 *
 * MPI is polled. Where ranks share processors, or other processes use them too, each empty poll
 * takes the processor from the rank that is waited for; and a rank that yields between polls gives
 * a whole time slice to a process that always computes. So the ranks of one host share memory in
 * which each has a bell: a count, and whether its rank sleeps. A rank rings another's bell when it
 * sends to it, or when it is ready to receive a long message from it. A bell is only a hint: MPI
 * may have something to do without one, so sleeps are bounded.
 *
 * The same memory says which ranks have left, that is, have said an error of their own and end.
 */
#ifndef TRAINER_COMM_COMM_MPI_BELLS_H
#define TRAINER_COMM_COMM_MPI_BELLS_H

#include <stdbool.h>
#include <stdint.h>

struct comm_bells;
/* Makes the shared memory of a world of `size` ranks. Returns a descriptor for the ranks of this
 * host to open, which the caller closes; -1: there are no bells. */
int comm_bells_make(int size);
/* Opens the memory that process `pid`, which must live, made as descriptor fd. The caller closes
 * it. Returns NULL if there are no bells; with NULL the calls below do nothing, or sleep the full
 * time. */
struct comm_bells *comm_bells_open(int64_t pid, int64_t fd, int size);
void comm_bells_close(struct comm_bells *b);

void comm_bells_ring(struct comm_bells *b, int rank);
/* Returns how often the bell of `rank`, the caller's own, has been rung. */
uint32_t comm_bells_heard(const struct comm_bells *b, int rank);
/* Returns how many ranks sleep. */
int comm_bells_asleep(const struct comm_bells *b);
/* Sleeps until the bell has been rung more often than `heard`, at most `seconds`. */
void comm_bells_sleep(struct comm_bells *b, int rank, uint32_t heard, double seconds);

/* Notes that this rank leaves. Returns how many ranks had left before. */
uint32_t comm_bells_leave(struct comm_bells *b, int rank);
bool comm_bells_left(const struct comm_bells *b, int rank);

#endif
