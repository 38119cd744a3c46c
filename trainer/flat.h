/* flat: where each parameter tensor stands in a flat buffer of weights, gradients or moments, and its first value.
 *
 * Tensors follow the parameter list; each starts at a multiple of 16 elements (a vector register, a cache line), the
 * gaps hold zeros. One layout serves every buffer, whatever its dtype.
 */
#ifndef TRAINER_FLAT_H
#define TRAINER_FLAT_H

#include <stdint.h>

#include "profiles/buffers.h"
#include "profiles/shard.h"
#include "trainer/tensor.h"

enum { FLAT_ALIGN = BUFFER_FLAT_ALIGN }; /* elements */

struct flat {
    int64_t n;       /* tensors */
    int64_t *offset; /* [n] elements */
    int64_t total;   /* elements, gaps included; a multiple of FLAT_ALIGN */
};

int flat_build(const struct param_list *list, struct flat *out, struct err *err);
int flat_of_shards(const struct shards *sh, struct flat *out, struct err *err); /* the whole buffer of a rank (shard.h) */
void flat_release(struct flat *f);
/* Tensor i as a matrix [dim 0, rest] (vectors: one row) inside a flat buffer of `dtype`. */
struct tensor flat_tensor(const struct flat *f, const struct param_list *list, int64_t i, void *buffer, enum dtype dtype);

/* First values of parameter p, by its `init`: element j is a function of (seed, name, j) only (stream PHILOX_INIT, ordinal =
 * 64-bit hash of the name). `first`, `n`: which elements. */
void flat_init_values(const struct param *p, uint64_t seed, int64_t first, int64_t n, double *out);
/* Elements at .. at+n-1 of a host buffer of f64 or f32. */
void flat_store(void *buffer, enum dtype dtype, int64_t at, const double *values, int64_t n);
/* All tensors, gaps zeroed, into host memory of f64 or f32. */
void flat_init(const struct flat *f, const struct param_list *list, uint64_t seed, void *buffer, enum dtype dtype);

#endif
