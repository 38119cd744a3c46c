/* ops_far: runs the CPU's operations on the far device (dev_far.h). Each call is put into the
 * stream's queue with a copy of its arguments. The CPU table computes it when the queue reaches it,
 * so the results equal the CPU's in every bit. Where the arguments have a host copy of a device
 * array, the queue compares the two just before the call; a difference is a broken invariant. */
#ifndef TRAINER_OPS_OPS_FAR_H
#define TRAINER_OPS_OPS_FAR_H

#include "trainer/ops/ops.h"

/* Opens the table as ops_cpu_open does, on a device of dev_far_open. */
int ops_far_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out,
                 struct err *err);

#endif
