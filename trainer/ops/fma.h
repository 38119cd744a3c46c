/* fma: measures a core's rate of multiply-adds, the peak to which MFU relates on a CPU.
 *
 * Twelve independent chains of vector multiply-adds stay in registers, so that neither latency nor
 * memory limits the rate. A multiply-add counts as 2 FLOP per element. bf16 has the rate of f32,
 * because its arithmetic is done in f32. The vectors are as wide as in the arithmetic (simd.h), and
 * multiply-adds are fused where the processor can. Time is CPU time of the thread, which other
 * processes do not lengthen. The best of seven repetitions counts; together they take a few
 * milliseconds.
 */
#ifndef TRAINER_OPS_FMA_H
#define TRAINER_OPS_FMA_H

#include "base/dtype.h"

double fma_rate(enum dtype t); /* returns FLOP/s of the calling thread */

#endif
