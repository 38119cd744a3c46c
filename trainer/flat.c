#include "trainer/flat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "base/philox.h"

int flat_build(const struct param_list *list, struct flat *out, struct err *err)
{
    struct flat f = {.n = list->n};
    f.offset = malloc((size_t)(list->n ? list->n : 1) * sizeof *f.offset);
    if (!f.offset)
        return err_set(err, ERR_NOMEM, "flat buffer: no memory for the offsets of %lld tensors", (long long)list->n);
    for (int64_t i = 0; i < list->n; i++) {
        f.offset[i] = f.total;
        f.total += num_round_up(list->items[i].count, FLAT_ALIGN);
    }
    *out = f;
    return 0;
}

int flat_of_shards(const struct shards *sh, struct flat *out, struct err *err)
{
    struct flat f = {.n = sh->n_tensors, .total = sh->total};
    f.offset = malloc((size_t)(f.n ? f.n : 1) * sizeof *f.offset);
    if (!f.offset)
        return err_set(err, ERR_NOMEM, "flat buffer: no memory for the offsets of %lld tensors", (long long)f.n);
    for (int64_t i = 0; i < f.n; i++)
        f.offset[i] = sh->tensors[i].offset;
    *out = f;
    return 0;
}

void flat_release(struct flat *f)
{
    free(f->offset);
    *f = (struct flat){0};
}

struct tensor flat_tensor(const struct flat *f, const struct param_list *list, int64_t i, void *buffer, enum dtype dtype)
{
    const struct param *p = &list->items[i];
    int64_t rows = p->nd > 1 ? p->dim[0] : 1;
    return tensor_of((char *)buffer + f->offset[i] * dtype_bytes(dtype), dtype, rows, p->count / rows);
}

static double uniform_in(double limit, double u) { return limit * (2 * u - 1); }

void flat_init_values(const struct param *p, uint64_t seed, int64_t first, int64_t n, double *out)
{
    uint64_t ordinal = hash_64(p->name, strlen(p->name));
    double limit = p->init == PARAM_XAVIER ? sqrt(6.0 / (double)(p->dim[0] + p->dim[1])) : 0;
    for (int64_t j = 0; j < n; j++) {
        uint64_t at = (uint64_t)(first + j);
        switch (p->init) {
        case PARAM_ZERO: out[j] = 0; break;
        case PARAM_ONE: out[j] = 1; break;
        case PARAM_NORMAL: out[j] = p->init_std * philox_normal_at(seed, PHILOX_INIT, ordinal, at); break;
        case PARAM_XAVIER: out[j] = uniform_in(limit, philox_uniform_at(seed, PHILOX_INIT, ordinal, at)); break;
        }
    }
}

void flat_store(void *buffer, enum dtype dtype, int64_t at, const double *values, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        if (dtype == DTYPE_F64)
            ((double *)buffer)[at + j] = values[j];
        else
            ((float *)buffer)[at + j] = (float)values[j];
    }
}

void flat_init(const struct flat *f, const struct param_list *list, uint64_t seed, void *buffer, enum dtype dtype)
{
    enum { PIECE = 512 };
    double values[PIECE];
    BUG_ON(dtype != DTYPE_F64 && dtype != DTYPE_F32);
    memset(buffer, 0, (size_t)(f->total * dtype_bytes(dtype)));
    for (int64_t i = 0; i < list->n; i++)
        for (int64_t j = 0; j < list->items[i].count; j += PIECE) {
            int64_t n = num_min_i64(list->items[i].count - j, PIECE);
            flat_init_values(&list->items[i], seed, j, n, values);
            flat_store(buffer, dtype, f->offset[i] + j, values, n);
        }
}
