/* npy: parses and formats one array of the .npy format (NumPy Enhancement Proposal 1), in C order.
 *
 * Versions 1.0 to 3.0 of float32 and float16 are read; version 1.0 of float32 is written.
 */
#ifndef BASE_NPY_H
#define BASE_NPY_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Parses a whole file. Its array must have exactly the given shape, and every value must be finite.
 * `what` names the file in errors. */
int npy_parse(const void *bytes, int64_t n, const int64_t *shape, int nd, const char *what,
              float *out, struct err *err);
/* Appends a whole .npy file with these values to *out. */
void npy_format(const float *values, const int64_t *shape, int nd, struct str *out);

#endif
