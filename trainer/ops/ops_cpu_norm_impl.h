/* Computes norms for REAL: AdaLN (gate, residual, LayerNorm or RMSNorm, modulate) and per-head RMS
 * norm with rotary positions. */
#ifndef TRAINER_OPS_OPS_CPU_NORM_IMPL_H
#define TRAINER_OPS_OPS_CPU_NORM_IMPL_H

#include "trainer/ops/math_impl.h"
#include "trainer/ops/rows_impl.h"

/* ---- AdaLN ---- */

static void residual_row(int64_t n, const REAL *restrict x, const REAL *restrict branch,
                         const REAL *restrict gate, REAL *restrict out)
{
    if (gate)
        for (int64_t j = 0; j < n; j++)
            out[j] = x[j] + gate[j] * branch[j];
    else
        for (int64_t j = 0; j < n; j++)
            out[j] = x[j] + branch[j];
}

static void modulate_row(int64_t n, const REAL *restrict x, REAL mean, REAL rstd,
                         const REAL *restrict shift, const REAL *restrict scale, REAL *restrict y)
{
    if (scale)
        for (int64_t j = 0; j < n; j++)
            y[j] = (x[j] - mean) * rstd * (1 + scale[j]) + shift[j];
    else
        for (int64_t j = 0; j < n; j++)
            y[j] = (x[j] - mean) * rstd;
}

/* These are the slots of AdaLN's rows. The rows of a sample stay loaded while the sample's tokens
 * are computed. */
enum {
    ADALN_GATE,
    ADALN_SHIFT,
    ADALN_SCALE,
    ADALN_X,
    ADALN_X_OUT,
    ADALN_Y,
    ADALN_BRANCH,
    ADALN_DBRANCH,
    ADALN_DX = ADALN_X,
    ADALN_DY = ADALN_Y,
};

/* Holds the loaded modulation rows of a sample; all tokens of the sample use them. sample is -1
 * before the first token. */
struct modulation {
    int64_t sample;
    const REAL *gate, *shift, *scale;
};

static void modulation_load(const struct ops_cpu *c, const struct ops_adaln *a, int64_t row,
                            struct modulation *m)
{
    int64_t sample = a->sample ? a->sample[row] : 0;
    if (sample == m->sample)
        return;
    *m = (struct modulation){
        .sample = sample,
        .gate = row_load(c, &a->gate, sample, ADALN_GATE),
        .shift = row_load(c, &a->shift, sample, ADALN_SHIFT),
        .scale = row_load(c, &a->scale, sample, ADALN_SCALE),
    };
}

static void rows_check(const struct ops_adaln *a)
{
    BUG_ON(a->n > 0 && (!a->sample || !a->row_start || !a->host_row_start));
}

/* Computes the norm of x_out as stored: recomputation and the next pipeline stage have only the
 * stored values. */
static void op_adaln_fwd(struct ops *o, struct dev_stream *s, const struct ops_adaln *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    struct modulation m = {.sample = -1};
    int64_t n = a->x.cols;
    (void)s;
    BUG_ON(a->branch.ptr && !a->x_out.ptr);
    rows_check(a);
    for (int64_t i = 0; i < a->x.rows; i++) {
        const REAL *x = row_load(c, &a->x, i, ADALN_X);
        REAL *x_out = row_open(c, &a->x_out, i, ADALN_X_OUT), *y = row_open(c, &a->y, i, ADALN_Y);
        REAL *stats = row_of(&a->stats, i);
        modulation_load(c, a, i, &m);
        if (a->branch.ptr) {
            residual_row(n, x, row_load(c, &a->branch, i, ADALN_BRANCH), m.gate, x_out);
            row_keep(&a->x_out, i, x_out);
            x = x_out;
        } else if (x_out && x_out != x) {
            row_store(&a->x_out, i, x);
            x = row_load(c, &a->x_out, i, ADALN_X_OUT);
        }
        if (!y)
            continue;
        stats[0] = a->rms ? 0 : row_sum(x, n) / (REAL)n;
        stats[1] = 1 / real_sqrt(row_sumsq(x, stats[0], n) / (REAL)n + (REAL)a->eps);
        modulate_row(n, x, stats[0], stats[1], m.shift, m.scale, y);
        row_store(&a->y, i, y);
    }
}

/* Adds the gradient of norm and modulation of one row to dx, and to the partial sums of the sample.
 * With rms the mean was not subtracted. */
static void norm_row_bwd(int64_t n, bool rms, const REAL *restrict x, const REAL *restrict stats,
                         const REAL *restrict scale, const REAL *restrict dy, REAL *restrict dx,
                         REAL *restrict dshift, REAL *restrict dscale)
{
    REAL mean = stats[0], rstd = stats[1];
    REAL sum[SUM_LANES] = {0}, dot[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= n; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++) {
            REAL g = dy[j + l] * (scale ? 1 + scale[j + l] : 1);
            sum[l] += g;
            dot[l] += g * (x[j + l] - mean);
        }
    for (int l = 0; j < n; j++, l++) {
        REAL g = dy[j] * (scale ? 1 + scale[j] : 1);
        sum[l] += g;
        dot[l] += g * (x[j] - mean);
    }
    REAL c0 = rms ? 0 : lanes_total(sum) / (REAL)n, c1 = lanes_total(dot) * rstd * rstd / (REAL)n;
    if (!scale) {
        for (j = 0; j < n; j++)
            dx[j] += rstd * (dy[j] - c0 - (x[j] - mean) * c1);
        return;
    }
    for (j = 0; j < n; j++) {
        dx[j] += rstd * (dy[j] * (1 + scale[j]) - c0 - (x[j] - mean) * c1);
        dshift[j] += dy[j];
        dscale[j] += dy[j] * (x[j] - mean) * rstd;
    }
}

static void gate_row_bwd(int64_t n, const REAL *restrict dx, const REAL *restrict branch,
                         const REAL *restrict gate, REAL *restrict dbranch, REAL *restrict dgate)
{
    if (!gate) {
        memcpy(dbranch, dx, (size_t)n * sizeof *dx);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        dgate[j] += dx[j] * branch[j];
        dbranch[j] = dx[j] * gate[j];
    }
}

static void add_row(int64_t n, REAL *restrict part, REAL *restrict total)
{
    for (int64_t j = 0; j < n; j++) {
        total[j] += part[j];
        part[j] = 0;
    }
}

static void zero_rows(const struct tensor *t, int64_t rows)
{
    for (int64_t i = 0; t->ptr && i < rows; i++)
        memset(row_of(t, i), 0, (size_t)t->cols * sizeof(REAL));
}

/* Holds partial sums over rows of one sample, in scratch memory. */
struct adaln_sums {
    REAL *dshift, *dscale, *dgate;
};

static void adaln_row_bwd(const struct ops_cpu *c, const struct ops_adaln *a, int64_t i,
                          const struct modulation *m, const struct adaln_sums *sum)
{
    int64_t n = a->dx.cols;
    REAL *dx = row_load(c, &a->dx, i, ADALN_DX);
    if (a->dy.ptr)
        norm_row_bwd(n, a->rms, row_load(c, &a->x_out, i, ADALN_X_OUT), row_of(&a->stats, i),
                     m->scale, row_load(c, &a->dy, i, ADALN_DY), dx, sum->dshift, sum->dscale);
    if (a->branch.ptr) {
        REAL *dbranch = row_open(c, &a->dbranch, i, ADALN_DBRANCH);
        gate_row_bwd(n, dx, row_load(c, &a->branch, i, ADALN_BRANCH), m->gate, dbranch, sum->dgate);
        row_store(&a->dbranch, i, dbranch);
    }
    row_store(&a->dx, i, dx);
}

/* Sums up to 64 rows of one sample in scratch, then adds the sums to the sample's row. */
static void op_adaln_bwd(struct ops *o, struct dev_stream *s, const struct ops_adaln *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    int64_t n = a->dx.cols, rows = a->dx.rows;
    struct adaln_sums sum = {c->rows, (REAL *)c->rows + n, (REAL *)c->rows + 2 * n};
    struct modulation m = {.sample = -1};
    (void)s;
    BUG_ON(3 * n > OPS_ROW_MAX);
    rows_check(a);
    memset(c->rows, 0, (size_t)(3 * n) * sizeof(REAL));
    zero_rows(&a->dshift, a->n);
    zero_rows(&a->dscale, a->n);
    zero_rows(&a->dgate, a->n);
    for (int64_t i = 0, run = 0; i < rows; i++) {
        modulation_load(c, a, i, &m);
        adaln_row_bwd(c, a, i, &m, &sum);
        if (++run < 64 && i + 1 < rows && (!a->sample || a->sample[i + 1] == m.sample))
            continue;
        run = 0;
        if (a->dy.ptr && a->scale.ptr) {
            add_row(n, sum.dshift, row_of(&a->dshift, m.sample));
            add_row(n, sum.dscale, row_of(&a->dscale, m.sample));
        }
        if (a->branch.ptr && a->gate.ptr)
            add_row(n, sum.dgate, row_of(&a->dgate, m.sample));
    }
}

/* ---- RMS norm of heads, rotary positions ---- */

enum { HEADNORM_GAIN, HEADNORM_SRC, HEADNORM_DST, HEADNORM_DSRC, HEADNORM_DDST = HEADNORM_DST };

/* Rotates pairs (j, j + half) by their angles: forward with sign 1, back with sign -1. */
static void rotate_row(int64_t half, const REAL *restrict c, const REAL *restrict sn, REAL sign,
                       REAL *restrict x)
{
    for (int64_t j = 0; j < half; j++) {
        REAL a = x[j], b = x[half + j], t = sign * sn[j];
        x[j] = a * c[j] - b * t;
        x[half + j] = a * t + b * c[j];
    }
}

static void op_headnorm_fwd(struct ops *o, struct dev_stream *s, const struct ops_headnorm *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    int64_t d = a->head_dim;
    const REAL *gain = row_load(c, &a->gain, 0, HEADNORM_GAIN);
    (void)s;
    BUG_ON(a->src.cols != a->heads * d || a->dst.cols != a->heads * d || a->gain.cols != d);
    for (int64_t i = 0; i < a->src.rows; i++) {
        const REAL *src = row_load(c, &a->src, i, HEADNORM_SRC);
        REAL *dst = row_open(c, &a->dst, i, HEADNORM_DST);
        for (int64_t h = 0; h < a->heads; h++) {
            const REAL *restrict x = src + h * d;
            REAL *restrict y = dst + h * d;
            REAL rstd = 1 / real_sqrt(row_sumsq(x, 0, d) / (REAL)d + (REAL)a->eps);
            row_of(&a->rstd, i)[h] = rstd;
            for (int64_t j = 0; j < d; j++)
                y[j] = x[j] * rstd * gain[j];
            if (a->cos.ptr)
                rotate_row(d / 2, row_of(&a->cos, i), row_of(&a->sin, i), 1, y);
        }
        row_store(&a->dst, i, dst);
    }
}

/* Computes backward of y = x rstd gain: dx = rstd (g - x rstd² mean(g x)) with g = dy gain. The
 * caller has already rotated dy back. */
static void head_bwd(int64_t d, const REAL *restrict x, REAL rstd, const REAL *restrict gain,
                     const REAL *restrict dy, REAL *restrict dx, REAL *restrict dgain)
{
    REAL dot[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= d; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            dot[l] += dy[j + l] * gain[j + l] * x[j + l];
    for (int l = 0; j < d; j++, l++)
        dot[l] += dy[j] * gain[j] * x[j];
    REAL c = lanes_total(dot) * rstd * rstd / (REAL)d;
    for (j = 0; j < d; j++) {
        dgain[j] += dy[j] * x[j] * rstd;
        dx[j] = rstd * (dy[j] * gain[j] - x[j] * c);
    }
}

static void op_headnorm_bwd(struct ops *o, struct dev_stream *s, const struct ops_headnorm *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    int64_t d = a->head_dim;
    REAL *total = c->rows, *part = total + d, *dy = part + d, *out = row_of(&a->dgain, 0);
    const REAL *gain = row_load(c, &a->gain, 0, HEADNORM_GAIN);
    (void)s;
    BUG_ON(3 * d > OPS_ROW_MAX || (out && a->dgain.cols != d));
    memset(total, 0, (size_t)(2 * d) * sizeof *total);
    for (int64_t i = 0; i < a->src.rows; i++) {
        const REAL *src = row_load(c, &a->src, i, HEADNORM_SRC);
        const REAL *ddst = row_load(c, &a->ddst, i, HEADNORM_DDST);
        REAL *dsrc = row_open(c, &a->dsrc, i, HEADNORM_DSRC);
        for (int64_t h = 0; h < a->heads; h++) {
            memcpy(dy, ddst + h * d, (size_t)d * sizeof *dy);
            if (a->cos.ptr)
                rotate_row(d / 2, row_of(&a->cos, i), row_of(&a->sin, i), -1, dy);
            head_bwd(d, src + h * d, row_of(&a->rstd, i)[h], gain, dy, dsrc + h * d, part);
        }
        row_store(&a->dsrc, i, dsrc);
        if (i % 64 == 63)
            add_row(d, part, total);
    }
    add_row(d, part, total);
    for (int64_t j = 0; out && j < d; j++)
        out[j] = total[j] + (a->beta == 0 ? 0 : (REAL)a->beta * out[j]);
}

#endif
