/* npy: one array of the .npy format (NumPy Enhancement Proposal 1), C order: reading versions 1.0 to 3.0 of float32 or float16, writing
 * version 1.0 of float32. */
#ifndef BASE_NPY_H
#define BASE_NPY_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* bytes: the whole file. It must hold exactly the given shape; every value must be finite. `what` names it in errors. */
int npy_parse(const void *bytes, int64_t n, const int64_t *shape, int nd, const char *what, float *out, struct err *err);
/* Appends the file. */
void npy_format(const float *values, const int64_t *shape, int nd, struct str *out);

#endif
