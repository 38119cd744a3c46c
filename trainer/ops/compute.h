/* compute: opens the device that this process computes on, with a stream and a table of operations.
 *
 * That is the CPU. REEL_DEVICE in the environment names another one: cuda:INDEX is a GPU
 * (cuda_load.h), far:SEED the device of the tests (dev_far.h).
 *
 *     struct compute d = {0};
 *     compute_open(&d, poison, dtype, blas, err);
 *     compute_close(&d);
 */
#ifndef TRAINER_OPS_COMPUTE_H
#define TRAINER_OPS_COMPUTE_H

#include "trainer/ops/ops.h"

struct compute {
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
};

/* Opens what it can: after a failure the caller closes it, too. */
int compute_open(struct compute *d, bool poison, enum dtype dtype, enum ops_blas blas,
                struct err *err);
void compute_close(struct compute *d); /* is safe on a zeroed struct */

#endif
