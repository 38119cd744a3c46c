#include "trainer/ckpt/ckpt_diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt_priv.h"

const char *const ckpt_diff_kind_names[] = {"value", "not finite", "other shape", "missing", NULL};

struct side {
    const char *dir;
    struct ckpt_manifest m;
    struct ckpt_source *source;
    void *raw; /* room for the largest tensor */
};

double ckpt_diff_floor(enum ckpt_buffer buffer, double floor)
{
    return buffer == CKPT_V ? floor * floor : floor;
}

static int side_open(struct side *s, struct err *err)
{
    int64_t most = 1;
    int rc;
    if ((rc = ckpt_manifest_load(s->dir, &s->m, err)) < 0)
        return rc;
    if ((rc = ckpt_verify(s->dir, &s->m, 0, 1, err)) < 0)
        return rc;
    if ((rc = ckpt_source_open(s->dir, &s->m, &s->source, err)) < 0)
        return rc;
    for (int64_t i = 0; i < s->m.n_tensors; i++)
        most = num_max_i64(most, s->m.tensors[i].count);
    s->raw = malloc((size_t)(most * dtype_bytes(s->m.dtype)));
    return s->raw ? 0 : err_set(err, ERR_NOMEM, "out of memory comparing '%s'", s->dir);
}

static void side_close(struct side *s)
{
    free(s->raw);
    ckpt_source_close(s->source);
    ckpt_manifest_release(&s->m);
}

static double value_at(const struct side *s, enum ckpt_buffer buffer, int64_t i)
{
    enum dtype t = ckpt_buffer_dtype(s->m.dtype, s->m.moments, buffer);
    return t == DTYPE_F64    ? ((double *)s->raw)[i]
           : t == DTYPE_BF16 ? (double)bf16_value(((uint16_t *)s->raw)[i])
                             : (double)((float *)s->raw)[i];
}

static void values_compare(const struct side *a, const struct side *b, enum ckpt_buffer buffer,
                           int64_t n, double floor, struct ckpt_diff_row *row)
{
    double most = 0, scale = floor;
    for (int64_t i = 0; i < n; i++) {
        double x = value_at(a, buffer, i), y = value_at(b, buffer, i);
        if (!isfinite(x) || !isfinite(y)) {
            row->kind = CKPT_DIFF_NOT_FINITE;
            return;
        }
        most = fmax(most, fabs(x - y));
        scale = fmax(scale, fabs(x));
    }
    row->difference = most / scale;
}

static bool same_shape(const struct ckpt_tensor *a, const struct ckpt_tensor *b)
{
    return a->nd == b->nd && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->nd) == 0;
}

static bool side_has(const struct side *s, enum ckpt_buffer buffer, int64_t t)
{
    return t >= 0 && ckpt_source_has(s->source, buffer, t);
}

/* Compares tensor ta of a with tensor tb of b; -1: there is no such tensor. */
static int row_make(struct side *a, struct side *b, enum ckpt_buffer buffer, int64_t ta, int64_t tb,
                    double floor, struct ckpt_diff_row *row, struct err *err)
{
    bool there = side_has(a, buffer, ta) && side_has(b, buffer, tb) &&
                 (buffer != CKPT_EMA || (a->m.ema && b->m.ema));
    *row = (struct ckpt_diff_row){.buffer = buffer, .difference = INFINITY};
    snprintf(row->name, sizeof row->name, "%s",
             ta >= 0 ? a->m.tensors[ta].name : b->m.tensors[tb].name);
    row->kind = !there                                             ? CKPT_DIFF_MISSING
                : same_shape(&a->m.tensors[ta], &b->m.tensors[tb]) ? CKPT_DIFF_VALUE
                                                                   : CKPT_DIFF_SHAPE;
    if (row->kind != CKPT_DIFF_VALUE)
        return 0;
    int rc;
    if ((rc = ckpt_source_read(a->source, buffer, ta, a->raw, err)) < 0)
        return rc;
    if ((rc = ckpt_source_read(b->source, buffer, tb, b->raw, err)) < 0)
        return rc;
    values_compare(a, b, buffer, a->m.tensors[ta].count, ckpt_diff_floor(buffer, floor), row);
    return 0;
}

static void row_judge(struct ckpt_diff *d, double tol)
{
    struct ckpt_diff_row *row = &d->rows[d->n++];
    row->beyond = !(row->difference <= tol);
    d->n_beyond += row->beyond;
    if (!row->beyond)
        d->largest = fmax(d->largest, row->difference);
}

static int buffer_compare(struct side *a, struct side *b, enum ckpt_buffer buffer, double tol,
                          double floor, struct ckpt_diff *d, struct err *err)
{
    int rc;
    for (int64_t i = 0; i < a->m.n_tensors; i++) {
        int64_t other = ckpt_tensor_find(&b->m, a->m.tensors[i].name);
        if (!side_has(a, buffer, i) && !side_has(b, buffer, other)) /* frozen: no moments */
            continue;
        if ((rc = row_make(a, b, buffer, i, other, floor, &d->rows[d->n], err)) < 0)
            return rc;
        row_judge(d, tol);
    }
    for (int64_t i = 0; i < b->m.n_tensors; i++) {
        if (ckpt_tensor_find(&a->m, b->m.tensors[i].name) >= 0 || !side_has(b, buffer, i))
            continue;
        if ((rc = row_make(a, b, buffer, -1, i, floor, &d->rows[d->n], err)) < 0)
            return rc;
        row_judge(d, tol);
    }
    return 0;
}

static int worst_first(const void *a, const void *b)
{
    double x = ((const struct ckpt_diff_row *)a)->difference,
           y = ((const struct ckpt_diff_row *)b)->difference;
    return (x < y) - (x > y);
}

static int sides_compare(struct side *a, struct side *b, double tol, double floor,
                         struct ckpt_diff *d, struct err *err)
{
    int rc;
    d->n_tensors = a->m.n_tensors;
    d->rows = calloc((size_t)(a->m.n_tensors + b->m.n_tensors) * CKPT_BUFFERS, sizeof *d->rows);
    if (!d->rows)
        return err_set(err, ERR_NOMEM, "out of memory comparing '%s'", a->dir);
    for (int buffer = 0; buffer < CKPT_BUFFERS; buffer++) {
        if (buffer == CKPT_EMA && !a->m.ema && !b->m.ema)
            continue;
        if ((rc = buffer_compare(a, b, (enum ckpt_buffer)buffer, tol, floor, d, err)) < 0)
            return rc;
    }
    if (d->n > 1)
        qsort(d->rows, (size_t)d->n, sizeof *d->rows, worst_first);
    return 0;
}

int ckpt_diff(const char *dir_a, const char *dir_b, double tol, double floor, struct ckpt_diff *out,
              struct err *err)
{
    struct side a = {.dir = dir_a}, b = {.dir = dir_b};
    struct ckpt_diff d = {0};
    int rc;
    if ((rc = side_open(&a, err)) < 0)
        goto out;
    if ((rc = side_open(&b, err)) < 0)
        goto out;
    if ((rc = sides_compare(&a, &b, tol, floor, &d, err)) < 0)
        goto out;
    *out = d;
    d = (struct ckpt_diff){0}; /* the caller owns it now */
out:
    side_close(&a);
    side_close(&b);
    ckpt_diff_release(&d);
    return rc;
}

void ckpt_diff_release(struct ckpt_diff *d)
{
    free(d->rows);
    *d = (struct ckpt_diff){0};
}
