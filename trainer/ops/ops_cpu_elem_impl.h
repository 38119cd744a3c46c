/* Computes elementwise operations and column sums for REAL: copies, sinusoid, rotary angles,
 * optimizer. */
#ifndef TRAINER_OPS_OPS_CPU_ELEM_IMPL_H
#define TRAINER_OPS_OPS_CPU_ELEM_IMPL_H

#include "trainer/ops/math_impl.h"
#include "trainer/ops/rows_impl.h"

/* Sums each column of x into `total`. `part` holds partial sums of 64 rows at a time, so that long
 * sums have a smaller rounding error. */
static void column_sums(const struct ops_cpu *c, const struct tensor *x, REAL *restrict total,
                        REAL *restrict part)
{
    int64_t n = x->cols;
    memset(total, 0, (size_t)n * sizeof *total);
    for (int64_t i0 = 0; i0 < x->rows; i0 += 64) {
        memset(part, 0, (size_t)n * sizeof *part);
        for (int64_t i = i0; i < x->rows && i < i0 + 64; i++) {
            const REAL *restrict r = row_load(c, x, i, SLOT_X);
            for (int64_t j = 0; j < n; j++)
                part[j] += r[j];
        }
        for (int64_t j = 0; j < n; j++)
            total[j] += part[j];
    }
}

static void op_colsum(struct ops *o, struct dev_stream *s, const struct ops_colsum *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    REAL *total = c->rows;
    (void)s;
    BUG_ON(a->out.cols != a->x.cols);
    for (int64_t col = 0; col < a->x.cols; col += ROW_PIECE) {
        struct tensor x = tensor_cols(a->x, col, piece_of(a->x.cols, col));
        REAL *out = row_of(&a->out, 0) + col;
        column_sums(c, &x, total, total + ROW_PIECE);
        for (int64_t j = 0; j < x.cols; j++)
            out[j] = total[j] + (a->beta == 0 ? 0 : (REAL)a->beta * out[j]);
    }
}

static void op_sinusoid(struct ops *o, struct dev_stream *s, const struct ops_sinusoid *a)
{
    (void)s;
    int64_t half = a->out.cols / 2;
    for (int64_t i = 0; i < a->out.rows; i++) {
        REAL *r = row_open((struct ops_cpu *)o, &a->out, i, SLOT_Y);
        for (int64_t j = 0; j < half; j++) {
            double angle = a->values[i] * exp(-log(10000.0) * (double)j / (double)half);
            r[j] = (REAL)cos(angle);
            r[half + j] = (REAL)sin(angle);
        }
        if (a->out.cols % 2)
            r[2 * half] = 0;
        row_store(&a->out, i, r);
    }
}

static void rope_axis(double place, int64_t pairs, double theta, REAL *cosines, REAL *sines)
{
    for (int64_t j = 0; j < pairs; j++) {
        double angle = place * exp(-log(theta) * (double)j / (double)pairs);
        cosines[j] = (REAL)cos(angle);
        sines[j] = (REAL)sin(angle);
    }
}

static void op_rope(struct ops *o, struct dev_stream *s, const struct ops_rope *a)
{
    (void)o, (void)s;
    BUG_ON(a->cos.cols != a->pairs_t + a->pairs_h + a->pairs_w);
    for (int64_t i = 0; i < a->cos.rows; i++) {
        REAL *c = row_of(&a->cos, i), *sn = row_of(&a->sin, i);
        int64_t h = a->pairs_t, w = h + a->pairs_h;
        rope_axis(a->pos[3 * i] * 24.0 / a->fps[a->sample[i]], a->pairs_t, a->theta, c, sn);
        rope_axis(a->pos[3 * i + 1], a->pairs_h, a->theta, c + h, sn + h);
        rope_axis(a->pos[3 * i + 2], a->pairs_w, a->theta, c + w, sn + w);
    }
}

/* Draws elements first .. first + n - 1 of a tensor. */
static void draw_piece(const struct ops_draw *a, uint64_t first, int64_t n, double *out)
{
    switch (a->kind) {
    case OPS_DRAW_NORMAL:
        philox_normal_fill(a->seed, PHILOX_INIT, a->ordinal, first, (size_t)n, out);
        break;
    case OPS_DRAW_UNIFORM:
        philox_uniform_fill(a->seed, PHILOX_INIT, a->ordinal, first, (size_t)n, out);
        for (int64_t j = 0; j < n; j++)
            out[j] = 2 * out[j] - 1;
        break;
    case OPS_DRAW_ONE:
        for (int64_t j = 0; j < n; j++)
            out[j] = 1;
        break;
    }
    for (int64_t j = 0; j < n; j++)
        out[j] *= a->scale;
}

static void op_draw(struct ops *o, struct dev_stream *s, const struct ops_draw *a)
{
    double values[ROW_PIECE];
    float narrow_values[ROW_PIECE];
    (void)o, (void)s;
    BUG_ON(a->out.rows != 1);
    for (int64_t at = 0; at < a->out.cols; at += ROW_PIECE) {
        int64_t n = piece_of(a->out.cols, at);
        void *to = tensor_at(&a->out, 0, at);
        draw_piece(a, a->first + (uint64_t)at, n, values);
        convert(values, DTYPE_F64, narrow_values, DTYPE_F32, n);
        if (a->out.dtype == DTYPE_F64)
            convert(values, DTYPE_F64, to, DTYPE_F64, n);
        else
            convert(narrow_values, DTYPE_F32, to, a->out.dtype, n);
    }
}

static void op_copy(struct ops *o, struct dev_stream *s, const struct ops_copy *a)
{
    (void)o, (void)s;
    BUG_ON(a->src.cols != a->dst.cols || (a->src.rows != a->dst.rows && a->src.rows != 1));
    for (int64_t i = 0; i < a->dst.rows; i++)
        convert(tensor_at(&a->src, a->src.rows == 1 ? 0 : i, 0), a->src.dtype,
                tensor_at(&a->dst, i, 0), a->dst.dtype, a->dst.cols);
}

static void axpy_real(struct ops_cpu *c, const struct ops_axpy *a)
{
    REAL alpha = (REAL)a->alpha;
    for (int64_t i = 0; i < a->y.rows; i++) {
        const REAL *restrict x = row_load(c, &a->x, i, SLOT_X);
        REAL *restrict y = row_load(c, &a->y, i, SLOT_Y);
        for (int64_t j = 0; j < a->y.cols; j++)
            y[j] += alpha * x[j];
        row_store(&a->y, i, y);
    }
}

/* Computes axpy in f64, for types that the table does not use. */
static void axpy_mixed(const struct ops_axpy *a)
{
    enum { PIECE = ROW_PIECE / 4 };
    double x[PIECE], y[PIECE];
    for (int64_t i = 0; i < a->y.rows; i++)
        for (int64_t col = 0; col < a->y.cols; col += PIECE) {
            int64_t n = a->y.cols - col < PIECE ? a->y.cols - col : PIECE;
            convert(tensor_at(&a->x, i, col), a->x.dtype, x, DTYPE_F64, n);
            convert(tensor_at(&a->y, i, col), a->y.dtype, y, DTYPE_F64, n);
            for (int64_t j = 0; j < n; j++)
                y[j] += a->alpha * x[j];
            convert(y, DTYPE_F64, tensor_at(&a->y, i, col), a->y.dtype, n);
        }
}

static bool is_ours(const struct tensor *t)
{
#ifdef ACT_IS_BF16
    if (t->dtype == DTYPE_BF16)
        return true;
#endif
    return is_real(t);
}

static void op_axpy(struct ops *o, struct dev_stream *s, const struct ops_axpy *a)
{
    (void)s;
    BUG_ON(a->x.cols != a->y.cols || a->x.rows != a->y.rows);
    for (int64_t col = 0; col < a->y.cols; col += ROW_PIECE) {
        int64_t n = piece_of(a->y.cols, col);
        struct ops_axpy p = {tensor_cols(a->x, col, n), tensor_cols(a->y, col, n), a->alpha};
        if (is_ours(&p.x) && is_ours(&p.y))
            axpy_real((struct ops_cpu *)o, &p);
        else
            axpy_mixed(&p);
    }
}

static void op_permute(struct ops *o, struct dev_stream *s, const struct ops_permute *a)
{
    (void)o, (void)s;
    BUG_ON(a->src.cols != a->dst.cols || a->src.rows != a->dst.rows ||
           a->src.dtype != a->dst.dtype);
    size_t bytes = (size_t)(a->dst.cols * dtype_bytes(a->dst.dtype));
    for (int64_t i = 0; i < a->dst.rows; i++) {
        int64_t from = a->back ? i : a->index[i], to = a->back ? a->index[i] : i;
        memcpy(tensor_at(&a->dst, to, 0), tensor_at(&a->src, from, 0), bytes);
    }
}

static void op_table_fwd(struct ops *o, struct dev_stream *s, const struct ops_table *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    (void)s;
    BUG_ON(a->x.cols != a->table.cols);
    for (int64_t i = 0; i < a->x.rows; i++) {
        const REAL *restrict row = row_load(c, &a->table, a->index[i * a->stride], SLOT_X);
        REAL *restrict x = row_load(c, &a->x, i, SLOT_Y);
        for (int64_t j = 0; j < a->x.cols; j++)
            x[j] += row[j];
        row_store(&a->x, i, x);
    }
}

static void op_table_bwd(struct ops *o, struct dev_stream *s, const struct ops_table *a)
{
    (void)s;
    BUG_ON(a->dx.cols != a->dtable.cols);
    for (int64_t k = 0; k < a->dtable.rows; k++) {
        REAL *row = row_of(&a->dtable, k);
        for (int64_t j = 0; j < a->dtable.cols; j++)
            row[j] = a->beta == 0 ? 0 : (REAL)a->beta * row[j];
    }
    for (int64_t i = 0; i < a->dx.rows; i++) {
        const REAL *restrict dx = row_load((struct ops_cpu *)o, &a->dx, i, SLOT_X);
        REAL *restrict row = row_of(&a->dtable, a->index[i * a->stride]);
        for (int64_t j = 0; j < a->dx.cols; j++)
            row[j] += dx[j];
    }
}

/* Holds sixteen partial sums of squares and counts: element j of a row is added to lane j mod 16.
 * The vectors have 32 bytes, one AVX2 register. On processors without wider registers, GCC compiles
 * wider vectors to code through memory, which is nine times slower. */
typedef double four_f64 __attribute__((vector_size(32)));
typedef int64_t four_i64 __attribute__((vector_size(32)));
struct squares {
    four_f64 sum[SUM_LANES / 4];
    four_i64 bad[SUM_LANES / 4];
};

/* Adds the squares of 16 numbers. A number that is not finite is only counted. */
static inline void add_squares(struct squares *q, const REAL *restrict x)
{
    typedef REAL four __attribute__((vector_size(4 * sizeof(REAL))));
    for (int k = 0; k < SUM_LANES / 4; k++) {
        four part;
        memcpy(&part, x + 4 * k, sizeof part);
        four_f64 v = __builtin_convertvector(part, four_f64);
        four_i64 finite = v - v == 0; /* all ones, or 0 for inf and NaN */
        q->sum[k] += (four_f64)((four_i64)(v * v) & finite);
        q->bad[k] += finite + 1;
    }
}

static void squares_of(const REAL *restrict x, int64_t n, struct squares *q)
{
    int64_t j = 0;
    for (; j + SUM_LANES <= n; j += SUM_LANES)
        add_squares(q, x + j);
    REAL rest[SUM_LANES] = {0};
    memcpy(rest, x + j, (size_t)(n - j) * sizeof *x);
    add_squares(q, rest);
}

static void op_sumsq(struct ops *o, struct dev_stream *s, const struct ops_sumsq *a)
{
    (void)s;
    struct ops_health h = a->accumulate ? *a->out : (struct ops_health){0, 0};
    struct squares q = {0};
    for (int64_t i = 0; i < a->x.rows; i++)
        for (int64_t col = 0; col < a->x.cols; col += ROW_PIECE) {
            struct tensor x = tensor_cols(a->x, col, piece_of(a->x.cols, col));
            squares_of(row_load((struct ops_cpu *)o, &x, i, SLOT_X), x.cols, &q);
        }
    for (int l = 0; l < SUM_LANES; l++) {
        h.sumsq += q.sum[l / 4][l % 4];
        h.nonfinite += q.bad[l / 4][l % 4];
    }
    *a->out = h;
}

static int64_t row_bad(const void *row, enum dtype dtype, int64_t n)
{
    int64_t bad = 0;
    for (int64_t j = 0; j < n; j++)
        bad += dtype == DTYPE_F64   ? !isfinite(((const double *)row)[j])
               : dtype == DTYPE_F32 ? !isfinite(((const float *)row)[j])
                                    : !isfinite(bf16_value(((const uint16_t *)row)[j]));
    return bad;
}

static void op_finite(struct ops *o, struct dev_stream *s, const struct ops_finite *a)
{
    (void)o, (void)s;
    for (int64_t i = 0; i < a->x.rows; i++)
        *a->bad += row_bad(tensor_at(&a->x, i, 0), a->x.dtype, a->x.cols);
}

/* Describes consecutive elements of a span that are updated together. */
struct adamw_part {
    const struct ops_adamw *all;
    int64_t n, counted;
    void *grad, *master, *m, *v, *ema, *weight;
    uint64_t first; /* number of the first element in the whole model */
    double weight_decay, lr_scale;
};

static void adamw_run(const struct adamw_part *a, const struct ops_step *t, int64_t n)
{
    const REAL *restrict grad = a->grad;
    REAL *restrict w = a->master, *restrict m = a->m, *restrict v = a->v;
    REAL beta1 = (REAL)a->all->beta1, beta2 = (REAL)a->all->beta2, eps = (REAL)a->all->eps,
         decay = (REAL)a->weight_decay;
    REAL lr = (REAL)(t->lr * a->lr_scale), scale = (REAL)t->grad_scale;
    REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    for (int64_t i = 0; i < n; i++) {
        REAL g = scale * grad[i];
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        w[i] -= lr * (m[i] * unbias1 / (real_sqrt(v[i] * unbias2) + eps) + decay * w[i]);
    }
}

static void adamw_run_bf16(const struct adamw_part *a, const struct ops_step *t, int64_t n)
{
    const REAL *restrict grad = a->grad;
    REAL *restrict w = a->master;
    uint16_t *restrict ms = a->m, *restrict vs = a->v;
    REAL beta1 = (REAL)a->all->beta1, beta2 = (REAL)a->all->beta2, eps = (REAL)a->all->eps,
         decay = (REAL)a->weight_decay;
    REAL lr = (REAL)(t->lr * a->lr_scale), scale = (REAL)t->grad_scale;
    REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    struct philox_block bits = {{0}};
    for (int64_t i = 0; i < n; i++) {
        uint64_t e = a->first + (uint64_t)i;
        if (i == 0 || e % 4 == 0)
            bits = philox_at(a->all->seed, PHILOX_ROUND, t->update, e / 4);
        REAL g = scale * grad[i], m = beta1 * (REAL)bf16_value(ms[i]) + (1 - beta1) * g,
             v = beta2 * (REAL)bf16_value(vs[i]) + (1 - beta2) * g * g;
        w[i] -= lr * (m * unbias1 / (real_sqrt(v * unbias2) + eps) + decay * w[i]);
        ms[i] = bf16_round_random((float)m, (uint16_t)bits.w[e % 4]);
        vs[i] = bf16_round_random((float)v, (uint16_t)(bits.w[e % 4] >> 16));
    }
}

enum { UPDATE_PIECE = 1024 };

/* Returns elements at .. at + n - 1 of a span; their numbers must be consecutive. */
static struct adamw_part part_of(const struct ops_adamw *a, const struct ops_adamw_span *s,
                                 int64_t at, int64_t n)
{
    int64_t rows = s->row ? (s->col + at) / s->row : 0, counted = s->counted - at;
    return (struct adamw_part){
        .all = a,
        .n = n,
        .counted = counted < 0 ? 0 : counted < n ? counted : n,
        .grad = columns(&a->grad, s->grad + at, n).ptr,
        .master = columns(&a->master, s->master + at, n).ptr,
        .m = columns(&a->m, s->state + at, n).ptr,
        .v = columns(&a->v, s->state + at, n).ptr,
        .ema = columns(&a->ema, s->state + at, n).ptr,
        .weight = columns(&a->weight, s->weight + at, n).ptr,
        .first = s->first + (uint64_t)(at + rows * s->skip),
        .weight_decay = s->weight_decay,
        .lr_scale = s->lr_scale,
    };
}

static void average_run(const struct adamw_part *a)
{
    REAL *restrict ema = a->ema;
    const REAL *restrict w = a->master;
    REAL d = (REAL)a->all->ema_decay;
    for (int64_t i = 0; i < a->n; i++)
        ema[i] = d * ema[i] + (1 - d) * w[i];
}

/* Updates the elements of a part, at most as many as `old` holds, so that they stay in the L1
 * cache. The squares of a part are summed in REAL. */
static void adamw_piece(const struct adamw_part *a, REAL *restrict old)
{
    const REAL *restrict w = a->master;
    struct ops_change *change = a->all->change;
    memcpy(old, w, (size_t)a->counted * sizeof *old);
    (a->all->m.dtype == DTYPE_BF16 ? adamw_run_bf16 : adamw_run)(a, a->all->step, a->n);
    if (a->ema)
        average_run(a);
    if (a->counted == 0)
        return;
    change->weight_sumsq += (double)row_dot(old, old, a->counted);
    for (int64_t i = 0; i < a->counted; i++)
        old[i] = w[i] - old[i];
    change->update_sumsq += (double)row_dot(old, old, a->counted);
}

/* Updates elements first .. first + n - 1 of a span; their numbers must be consecutive. */
static void span_update(const struct ops_adamw *a, const struct ops_adamw_span *s, int64_t first,
                        int64_t n)
{
    REAL old[UPDATE_PIECE];
    for (int64_t at = 0; at < n; at += UPDATE_PIECE) {
        struct adamw_part part =
            part_of(a, s, first + at, n - at < UPDATE_PIECE ? n - at : UPDATE_PIECE);
        if (!a->step->skip)
            adamw_piece(&part, old);
        if (part.weight && part.weight != part.master)
            convert(part.master, a->master.dtype, part.weight, a->weight.dtype, part.n);
    }
}

static void adamw_check(const struct ops_adamw *a)
{
    BUG_ON(a->master.rows != 1 || (a->n > 0 && !a->host_spans));
    BUG_ON(a->m.dtype != a->v.dtype || (a->m.dtype != DTYPE_BF16 && !is_real(&a->m)));
    BUG_ON(!is_real(&a->master) || !is_real(&a->grad) || (a->ema.ptr && !is_real(&a->ema)));
}

static void op_adamw(struct ops *o, struct dev_stream *stream, const struct ops_adamw *a)
{
    (void)o, (void)stream;
    adamw_check(a);
    for (int64_t k = 0; k < a->n; k++) {
        const struct ops_adamw_span *s = &a->spans[k];
        BUG_ON(s->counted > s->n || (s->counted && !a->change));
        for (int64_t at = 0, n; at < s->n; at += n) {
            n = s->n - at;
            if (s->row && s->row - (s->col + at) % s->row < n)
                n = s->row - (s->col + at) % s->row;
            span_update(a, s, at, n);
        }
    }
}

#endif
