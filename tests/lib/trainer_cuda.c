#include "tests/lib/trainer_cuda.h"

void cuda_library(const char *self)
{
    char path[4096];
    const char *slash = strrchr(self, '/');
    snprintf(path, sizeof path, "%.*s/../shim/libreel-cuda.so", slash ? (int)(slash - self) : 1,
             slash ? self : ".");
    setenv("REEL_CUDA_LIBRARY", path, false);
}

struct bench cuda_bench(enum dtype dtype)
{
    setenv("REEL_DEVICE", "cuda:0", true);
    struct bench b = bench_open(dtype);
    unsetenv("REEL_DEVICE");
    return b;
}

double pair_at(const void *host, const struct tensor *t, int64_t i, int64_t j)
{
    int64_t at = i * t->ld + j;
    switch (t->dtype) {
    case DTYPE_F64: return ((const double *)host)[at];
    case DTYPE_F32: return ((const float *)host)[at];
    default: return bf16_value(((const uint16_t *)host)[at]);
    }
}

void pair_set(void *host, enum dtype dtype, int64_t at, double x)
{
    switch (dtype) {
    case DTYPE_F64: ((double *)host)[at] = x; break;
    case DTYPE_F32: ((float *)host)[at] = (float)x; break;
    default: ((uint16_t *)host)[at] = bf16_round_double(x);
    }
}

struct pair pair_new(const struct bench *b, enum dtype dtype, int64_t rows,
                     int64_t cols, int64_t ld, int64_t before, uint64_t id)
{
    struct pair p = {.bytes = rows * ld * dtype_bytes(dtype)};
    struct err err = {0};
    double *x = new_normal(rows * ld, id);
    p.host = malloc((size_t)p.bytes + 1);
    assert_non_null(p.host);
    for (int64_t i = 0; i < rows * ld; i++)
        pair_set(p.host, dtype, i, i % ld < cols ? x[i] : NAN);
    free(x);
    assert_int_equal(b->dev->alloc(b->dev, "x", p.bytes + before, &p.block, &err), 0);
    p.on = (struct tensor){(char *)p.block + before, dtype, rows, cols, ld};
    bench_put(b, p.on.ptr, p.host, p.bytes);
    return p;
}

void pair_free(const struct bench *b, struct pair *p)
{
    b->dev->free(b->dev, p->block);
    free(p->host);
}
