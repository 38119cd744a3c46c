/* npy: read one array of the .npy format (NumPy Enhancement Proposal 1), versions 1.0 to 3.0, C order, float32 or float16. */
#ifndef TRAINER_NPY_H
#define TRAINER_NPY_H

#include <stdint.h>

#include "base/err.h"

/* bytes: the whole file. It must hold exactly the given shape; every value must be finite. `what` names it in errors. */
int npy_parse(const void *bytes, int64_t n, const int64_t *shape, int nd, const char *what, float *out, struct err *err);

#endif
