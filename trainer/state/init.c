#include "trainer/state/init.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/hash.h"
#include "base/philox.h"

static double uniform_in(double limit, double u) { return limit * (2 * u - 1); }

void init_values(const struct param *p, uint64_t seed, int64_t first, int64_t n, double *out)
{
    uint64_t ordinal = hash_64(p->name, strlen(p->name));
    double limit = p->init == PARAM_XAVIER ? sqrt(6.0 / (double)(p->dim[0] + p->dim[1])) : 0;
    for (int64_t j = 0; j < n; j++) {
        uint64_t at = (uint64_t)(first + j);
        switch (p->init) {
        case PARAM_ZERO: out[j] = 0; break;
        case PARAM_ONE: out[j] = 1; break;
        case PARAM_NORMAL:
            out[j] = p->init_std * philox_normal_at(seed, PHILOX_INIT, ordinal, at);
            break;
        case PARAM_XAVIER:
            out[j] = uniform_in(limit, philox_uniform_at(seed, PHILOX_INIT, ordinal, at));
            break;
        }
    }
}

void init_store(void *buffer, enum dtype dtype, int64_t at, const double *values, int64_t n)
{
    BUG_ON(dtype == DTYPE_FP8);
    for (int64_t j = 0; j < n; j++) {
        if (dtype == DTYPE_F64)
            ((double *)buffer)[at + j] = values[j];
        else if (dtype == DTYPE_F32)
            ((float *)buffer)[at + j] = (float)values[j];
        else
            ((uint16_t *)buffer)[at + j] = bf16_round((float)values[j]);
    }
}
