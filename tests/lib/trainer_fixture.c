#include "tests/lib/trainer_fixture.h"

struct bench bench_open(enum dtype dtype)
{
    struct compute d = {0};
    struct err err = {0};
    if (compute_open(&d, &(struct compute_conf){.poison = true, .dtype = dtype}, &err) < 0)
        fail_msg("%s", err.text);
    return (struct bench){d.dev, d.stream, d.ops};
}

void bench_is_idle(const struct bench *b)
{
    assert_int_equal(b->dev->alloc_bytes, b->ops->workspace_bytes);
    assert_int_equal(b->dev->host_bytes, 0);
}

void bench_close(struct bench *b)
{
    b->ops->close(b->ops);
    b->dev->stream_free(b->dev, b->stream);
    assert_int_equal(b->dev->alloc_bytes, 0); /* all memory was freed */
    assert_int_equal(b->dev->host_bytes, 0);
    b->dev->close(b->dev);
}

void bench_put(const struct bench *b, void *to, const void *from, int64_t bytes)
{
    struct err err = {0};
    b->dev->copy(b->dev, to, from, bytes, DEV_H2D, b->stream);
    assert_int_equal(b->dev->stream_sync(b->dev, b->stream, &err), 0);
}

void bench_get_to(const struct bench *b, void *to, const void *from, int64_t bytes)
{
    struct err err = {0};
    b->dev->copy(b->dev, to, from, bytes, DEV_D2H, b->stream);
    assert_int_equal(b->dev->stream_sync(b->dev, b->stream, &err), 0);
}

void *bench_get(const struct bench *b, const void *from, int64_t bytes)
{
    void *to = malloc((size_t)bytes + 1);
    assert_non_null(to);
    bench_get_to(b, to, from, bytes);
    return to;
}

void first_values(const struct param *p, uint64_t seed, int64_t first, int64_t n,
                  double *out)
{
    static struct compute c; /* one for the whole process */
    struct err err = {0};
    void *x;
    if (!c.ops && compute_open(&c, &(struct compute_conf){.poison = true, .dtype = DTYPE_F64}, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.dev->alloc(c.dev, "first values", n * 8, &x, &err), 0);
    struct ops_draw args = init_draw(p, seed, first, tensor_of(x, DTYPE_F64, 1, n));
    c.ops->draw(c.ops, c.stream, &args);
    c.dev->copy(c.dev, out, x, n * 8, DEV_D2H, c.stream);
    assert_int_equal(c.dev->stream_sync(c.dev, c.stream, &err), 0);
    c.dev->free(c.dev, x);
}

void fill_normal(double *x, int64_t n, uint64_t id)
{
    philox_normal_fill(7, PHILOX_TEST, id, 0, (size_t)n, x);
}

double *new_normal(int64_t n, uint64_t id)
{
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    fill_normal(x, n, id);
    return x;
}

double *new_nan(int64_t n)
{
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

struct tensor f64(double *p, int64_t rows, int64_t cols)
{
    return tensor_of(p, DTYPE_F64, rows, cols);
}

void fd_check(const char *what, const struct fd_slot *s, uint64_t id,
              double (*f)(void *), void *ctx, double tol)
{
    static const double step[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    const double h = 5e-4;
    double *v = new_normal(s->n, id), *keep = malloc((size_t)s->n * sizeof *keep), numeric = 0;
    double norm = sqrt(dot(v, v, s->n)), analytic = dot(s->grad, v, s->n) / norm;
    memcpy(keep, s->x, (size_t)s->n * sizeof *keep);
    for (int k = 0; k < 4; k++) {
        for (int64_t i = 0; i < s->n; i++)
            s->x[i] = keep[i] + step[k] * h * v[i] / norm;
        numeric += weight[k] * f(ctx) / (12 * h);
    }
    memcpy(s->x, keep, (size_t)s->n * sizeof *keep);
    double scale = fmax(fabs(numeric), fabs(analytic));
    if (!(dot(s->grad, s->grad, s->n) > 0))
        fail_msg("%s: gradient of %s is zero or not a number", what, s->name);
    if (!(fabs(numeric - analytic) <= tol * scale))
        fail_msg("%s, %s: numeric %.15g, analytic %.15g, relative difference %.3g > %.1g", what,
                 s->name, numeric, analytic, fabs(numeric - analytic) / scale, tol);
    free(v);
    free(keep);
}
