/* sums: sums the gradients of units over the data-parallel ranks while others are being computed.
 *
 * A unit's gradients, complete on this rank, are summed over the shard group into this rank's piece
 * (zero 0 and 1; with 2 and 3 units.c has done this micro-batch by micro-batch). Then the piece is
 * summed over the replicas of the shard group. sums_start starts the first sum. When SUMS_AHEAD
 * more units have been started, it is awaited and the second sum is started; this happens in
 * backward, while gradients of other units are computed. sums_finish starts what was not started
 * and waits for everything. The order of operations depends only on the order of the calls of
 * sums_start, which is the same on all ranks of the groups, and the order in which a sum is formed
 * does not depend on timing (comm.h). So the bits do not depend on when sums_start is called.
 *
 *     sums_open(&s, &sh, zero, shard, replica, dtype, stream, grads, err);
 *     sums_start(&s, unit);   // in backward, once a step for a unit, or not at all
 *     sums_finish(&s, err);   // all units' own pieces are sums now; the next step begins
 */
#ifndef TRAINER_STATE_SUMS_H
#define TRAINER_STATE_SUMS_H

#include "profiles/shard.h"
#include "trainer/comm/comm.h"

enum { SUMS_FLIGHT = BUFFER_SUMS_FLIGHT, SUMS_AHEAD = SUMS_FLIGHT - 1 };

/* A queue holds one operation per unit, the oldest first. */
struct sums_queue {
    int64_t unit[SUMS_FLIGHT];
    struct comm_work *work[SUMS_FLIGHT];
    int n;
};

struct sums {
    const struct shards *sh; /* borrowed, like the groups, stream, grads */
    int zero;
    struct comm *shard, *replica;
    struct dev_stream *stream;
    enum dtype dtype;
    void *grads;   /* zero below 2: whole; else own pieces */
    bool *started; /* [n_trained] in this step */
    struct sums_queue scatter, reduce;
    int failed;
    struct err err;
};

int sums_open(struct sums *s, const struct shards *sh, int zero, struct comm *shard,
              struct comm *replica, enum dtype dtype, struct dev_stream *stream, void *grads,
              struct err *err);
void sums_close(struct sums *s); /* safe on a zeroed struct */
/* Starts the sums of a unit. A failure is returned by sums_finish. */
void sums_start(struct sums *s, int64_t unit);
int sums_finish(struct sums *s, struct err *err);

#endif
