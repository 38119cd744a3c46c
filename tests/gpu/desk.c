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

/* Writes the starts of n segments and their end, and their lengths. */
static void starts_write(int32_t *starts, int32_t *lengths, int64_t n, int64_t most, bool uneven)
{
    starts[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = (int32_t)(most - (uneven ? i % 8 * most / 35 : 0));
        starts[i + 1] = starts[i] + lengths[i];
    }
}

int64_t desk_segments(struct desk *d, struct ops_attn *a, struct desk_samples s)
{
    int64_t bytes = (4 * s.n + 2) * (int64_t)sizeof *d->host, pairs = 0;
    int32_t *x = malloc((size_t)bytes), *at;
    BUG_ON(!x || d->host);
    int32_t *q_start = x, *k_start = q_start + s.n + 1, *q_len = k_start + s.n + 1,
            *k_len = q_len + s.n;
    starts_write(q_start, q_len, s.n, s.tokens, s.uneven);
    starts_write(k_start, k_len, s.n, s.keys, s.uneven);
    for (int64_t i = 0; i < s.n; i++)
        pairs += (int64_t)q_len[i] * k_len[i];
    at = desk_block(d, "segments", bytes);
    d->c.dev->copy(d->c.dev, at, x, bytes, DEV_H2D, d->c.stream);
    desk_sync(d);
    d->host = x;
    a->n = s.n, a->max_q = s.tokens, a->max_k = s.keys;
    a->q_start = at, a->k_start = at + (k_start - x), a->k_len = at + (k_len - x);
    a->host = (struct ops_segments){.q_start = q_start, .k_start = k_start, .k_len = k_len};
    return pairs;
}
