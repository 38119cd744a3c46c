/* npy: write one float32 array in the .npy format, version 1.0 (NumPy Enhancement Proposal 1), C order. */
#ifndef CURATOR_NPY_H
#define CURATOR_NPY_H

#include <stdint.h>

#include "base/str.h"

void npy_format(const float *values, const int64_t *shape, int nd, struct str *out);

#endif
