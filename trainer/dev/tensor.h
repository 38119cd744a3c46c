/* tensor: declares a view of a row-major matrix in device memory. Every tensor of the model is one.
 *
 * Rows are tokens, samples or output features; columns are features. A view of some columns (the k
 * part of a packed qkv) keeps the parent's row stride `ld`. A vector is one row. Views own nothing.
 * `ptr` NULL means "not given" where an operation takes optional tensors. Offsets and strides count
 * elements, never bytes.
 */
#ifndef TRAINER_DEV_TENSOR_H
#define TRAINER_DEV_TENSOR_H

#include <stdint.h>

#include "base/dtype.h"


#ifdef __cplusplus
extern "C" {
#endif

struct tensor {
    void *ptr;
    enum dtype dtype;
    int64_t rows, cols, ld; /* ld: elements from one row to the next, at least cols */
};

/* Returns a dense matrix over `ptr`. */
static inline struct tensor tensor_of(void *ptr, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct tensor t = {ptr, dtype, rows, cols, cols};
    return t;
}

static inline void *tensor_at(const struct tensor *t, int64_t row, int64_t col)
{
    return (char *)t->ptr + (row * t->ld + col) * dtype_bytes(t->dtype);
}

/* Return rows, or columns, first .. first+n-1. */
static inline struct tensor tensor_rows(struct tensor t, int64_t first, int64_t n)
{
    t.ptr = tensor_at(&t, first, 0);
    t.rows = n;
    return t;
}

static inline struct tensor tensor_cols(struct tensor t, int64_t first, int64_t n)
{
    t.ptr = tensor_at(&t, 0, first);
    t.cols = n;
    return t;
}

static inline struct tensor tensor_none(void)
{
    struct tensor t = {0, DTYPE_F64, 0, 0, 0};
    return t;
}

#ifdef __cplusplus
}
#endif
#endif
