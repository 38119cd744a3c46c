/* fma: a core's rate of multiply-adds, the peak that MFU is measured by on a CPU.
 *
 * Twelve independent chains of vector multiply-adds are held in registers, so that neither latency
 * nor memory counts. A multiply-add is 2 FLOP an element; bf16, whose arithmetic is f32's, has the
 * rate of f32. The vectors are those that the arithmetic uses (simd.h), with fused multiply-add
 * where they have it. Time is the thread's own, which neighbours do not make longer. The best of
 * seven repetitions counts; together they take some milliseconds.
 */
#ifndef TRAINER_OPS_FMA_H
#define TRAINER_OPS_FMA_H

#include "base/dtype.h"

double fma_rate(enum dtype t); /* returns FLOP/s of the calling thread */

#endif
