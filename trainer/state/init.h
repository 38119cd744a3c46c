/* init: the first value of every parameter. It is a function of (seed, name, global element) alone,
 * so that a rank makes its part without the others, the same under any layout.
 */
#ifndef TRAINER_STATE_INIT_H
#define TRAINER_STATE_INIT_H

#include <stdint.h>

#include "base/dtype.h"
#include "profiles/params.h"

/* Computes elements first .. first+n-1 of parameter p by its `init` (stream PHILOX_INIT, ordinal =
 * 64-bit hash of the name). */
void init_values(const struct param *p, uint64_t seed, int64_t first, int64_t n, double *out);
/* Stores elements at .. at+n-1 in a host buffer of f64, f32 or bf16; bf16 by way of f32, so that
 * weights are what their masters round to. */
void init_store(void *buffer, enum dtype dtype, int64_t at, const double *values, int64_t n);

#endif
