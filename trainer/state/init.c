#include "trainer/state/init.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/hash.h"

struct ops_draw init_draw(const struct param *p, uint64_t seed, int64_t first, struct tensor out)
{
    struct ops_draw a = {
        .out = out, .seed = seed, .ordinal = hash_64(p->name, strlen(p->name)),
        .first = (uint64_t)first};
    switch (p->init) {
    case PARAM_ZERO: break;
    case PARAM_ONE: a.scale = 1; break;
    case PARAM_NORMAL: a.kind = OPS_DRAW_NORMAL, a.scale = p->init_std; break;
    case PARAM_XAVIER:
        a.kind = OPS_DRAW_UNIFORM, a.scale = sqrt(6.0 / (double)(p->dim[0] + p->dim[1]));
        break;
    }
    return a;
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
