/* init: computes the first value of every parameter. It is a function of (seed, name, global
 * element) alone, so a rank makes its part without the others, the same under any layout.
 */
#ifndef TRAINER_STATE_INIT_H
#define TRAINER_STATE_INIT_H

#include "profiles/params.h"
#include "trainer/ops/ops.h"

/* Returns the arguments of an operation that draws elements of parameter p, from `first` on, into
 * `out`, as its `init` says (the ordinal is the 64-bit hash of the name). */
struct ops_draw init_draw(const struct param *p, uint64_t seed, int64_t first, struct tensor out);
/* Stores elements at .. at+n-1 in a host buffer of f64, f32 or bf16. bf16 is rounded from f32, so
 * that weights are what their masters round to. */
void init_store(void *buffer, enum dtype dtype, int64_t at, const double *values, int64_t n);

#endif
