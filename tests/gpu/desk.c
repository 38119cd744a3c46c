#include "tests/gpu/desk.h"

#include <stdio.h>
#include <stdlib.h>

void desk_open(struct desk *d, enum dtype dtype)
{
    struct compute_conf conf = {.device = COMPUTE_CUDA, .dtype = dtype};
    if (compute_open(&d->c, &conf, &d->err) == 0)
        return;
    fprintf(stderr, "no device: %s\n", d->err.text);
    exit(4);
}

void desk_close(struct desk *d)
{
    for (int i = 0; i < d->blocks; i++)
        d->c.dev->free(d->c.dev, d->block[i]);
    free(d->host);
    compute_close(&d->c);
}

void desk_must(struct desk *d, int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "failed: %s\n", d->err.text);
    exit(5);
}

void desk_sync(struct desk *d)
{
    desk_must(d, d->c.dev->stream_sync(d->c.dev, d->c.stream, &d->err));
}

void *desk_block(struct desk *d, const char *what, int64_t bytes)
{
    void *at;
    BUG_ON(d->blocks == DESK_BLOCKS_MAX);
    desk_must(d, d->c.dev->alloc(d->c.dev, what, bytes, &at, &d->err));
    return d->block[d->blocks++] = at;
}

struct tensor desk_draw(struct desk *d, enum dtype dtype, int64_t rows, int64_t cols)
{
    void *at = desk_block(d, "an operand", rows * cols * dtype_bytes(dtype));
    struct ops_draw a = {.out = tensor_of(at, dtype, 1, rows * cols), .kind = OPS_DRAW_UNIFORM,
                         .scale = 1, .seed = 7, .ordinal = (uint64_t)d->blocks};
    d->c.ops->draw(d->c.ops, d->c.stream, &a);
    return tensor_of(at, dtype, rows, cols);
}

struct tensor desk_new(struct desk *d, enum dtype dtype, int64_t rows, int64_t cols)
{
    int64_t bytes = rows * cols * dtype_bytes(dtype);
    void *at = desk_block(d, "a result", bytes);
    d->c.dev->fill(d->c.dev, at, 0xff, bytes, d->c.stream);
    return tensor_of(at, dtype, rows, cols);
}

void *desk_get(struct desk *d, const struct tensor *t)
{
    int64_t bytes = t->rows * t->cols * dtype_bytes(t->dtype);
    void *x = malloc((size_t)bytes + 1);
    BUG_ON(!x);
    d->c.dev->copy(d->c.dev, x, t->ptr, bytes, DEV_D2H, d->c.stream);
    desk_sync(d);
    return x;
}

void desk_segments(struct desk *d, struct ops_attn *a, int64_t samples, int64_t tokens)
{
    int64_t bytes = (2 * samples + 1) * (int64_t)sizeof *d->host;
    int32_t *x = malloc((size_t)bytes), *at;
    BUG_ON(!x || d->host);
    for (int64_t i = 0; i <= samples; i++)
        x[i] = (int32_t)(i * tokens);
    for (int64_t i = 0; i < samples; i++)
        x[samples + 1 + i] = (int32_t)tokens;
    at = desk_block(d, "segments", bytes);
    d->c.dev->copy(d->c.dev, at, x, bytes, DEV_H2D, d->c.stream);
    desk_sync(d);
    d->host = x;
    a->n = samples, a->max_q = a->max_k = tokens;
    a->q_start = a->k_start = at, a->k_len = at + samples + 1;
    a->host = (struct ops_segments){.q_start = x, .k_start = x, .k_len = x + samples + 1};
}
