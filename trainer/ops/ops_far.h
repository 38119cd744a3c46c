/* ops_far: the CPU's operations on the far device (dev_far.h). Each call waits in the stream's
 * queue with its own copy of the arguments, and the CPU table's call runs when its turn comes. So
 * the results are the CPU's to the last bit. Where the arguments say on the host what an array on
 * the device holds, both are compared when the call runs: another array is a broken invariant. */
#ifndef TRAINER_OPS_OPS_FAR_H
#define TRAINER_OPS_OPS_FAR_H

#include "trainer/ops/ops.h"

/* Opens the table as ops_cpu_open does, on a device of dev_far_open. */
int ops_far_open(struct dev *dev, enum dtype dtype, enum ops_blas blas, struct ops **out,
                 struct err *err);

#endif
