/* This file makes the cases of norms and positions. Backward reads results of the forward. They are
 * computed here, in f64, from numbers that are already rounded. */
#include "tests/gpu/cases_lab.h"

#include <math.h>
#include <stdlib.h>

/* ---- AdaLN ---- */

enum { SAMPLES_MAX = 4 };
struct adaln_case {
    const char *name;
    int64_t s, d, n;
    int32_t first[SAMPLES_MAX]; /* first row of each sample; one may have none */
    bool branch, gate, mod, y, rms;
    bool wide;   /* the residual stream (x, x_out, dx) is LAB_WIDE */
    bool narrow; /* x_out alone is LAB_ACT */
    bool x_out;  /* x_out is written even without a branch */
    double mean; /* added to x */
    double eps;
};
static const struct adaln_case adaln_cases[] = {
    {.name = "all, three samples", .s = 150, .d = 37, .n = 3, .first = {0, 70, 71},
     .branch = true, .gate = true, .mod = true, .y = true, .eps = 1e-6},
    {.name = "all, even", .s = 66, .d = 64, .n = 2, .first = {0, 2},
     .branch = true, .gate = true, .mod = true, .y = true, .eps = 1e-6},
    {.name = "all, rms", .s = 150, .d = 101, .n = 3, .first = {0, 70, 71},
     .branch = true, .gate = true, .mod = true, .y = true, .rms = true, .eps = 1e-6},
    {.name = "all, wide", .s = 35, .d = 67, .n = 2, .first = {0, 9},
     .branch = true, .gate = true, .mod = true, .y = true, .wide = true, .eps = 1e-6},
    {.name = "all, wide, rms", .s = 35, .d = 128, .n = 2, .first = {0, 33},
     .branch = true, .gate = true, .mod = true, .y = true, .rms = true, .wide = true, .eps = 1e-5},
    {.name = "samples without rows", .s = 20, .d = 33, .n = 4, .first = {0, 0, 20, 20},
     .branch = true, .gate = true, .mod = true, .y = true, .eps = 1e-6},
    {.name = "one row a sample", .s = 4, .d = 1030, .n = 4, .first = {0, 1, 2, 3},
     .branch = true, .gate = true, .mod = true, .y = true, .eps = 1e-6},
    {.name = "no gate", .s = 9, .d = 33, .n = 2, .first = {0, 5},
     .branch = true, .mod = true, .y = true, .eps = 1e-6},
    {.name = "no branch", .s = 9, .d = 16, .n = 2, .first = {0, 4},
     .mod = true, .y = true, .x_out = true, .eps = 1e-6},
    {.name = "no branch, x_out of another type", .s = 9, .d = 48, .n = 2, .first = {0, 4},
     .mod = true, .y = true, .wide = true, .narrow = true, .x_out = true, .eps = 1e-6},
    {.name = "no branch, in no other memory", .s = 70, .d = 18, .n = 2, .first = {0, 4},
     .mod = true, .y = true, .eps = 1e-6},
    {.name = "no modulation", .s = 9, .d = 33, .n = 1,
     .branch = true, .y = true, .eps = 1e-6},
    {.name = "gate alone", .s = 70, .d = 20, .n = 2, .first = {0, 66},
     .branch = true, .gate = true, .eps = 1e-6},
    {.name = "residual alone", .s = 7, .d = 21, .n = 1, .branch = true, .eps = 1e-6},
    {.name = "norm alone, of no sample", .s = 5, .d = 48, .y = true, .eps = 1e-6},
    {.name = "rms alone, of no sample", .s = 65, .d = 9, .y = true, .rms = true, .eps = 1e-6},
    {.name = "far from 0", .s = 13, .d = 70, .n = 1, .mod = true, .y = true, .mean = 5,
     .eps = 1e-6},
    {.name = "rms far from 0", .s = 13, .d = 70, .n = 1, .mod = true, .y = true, .mean = 5,
     .rms = true, .eps = 1e-6},
    {.name = "eps as large as the variance", .s = 13, .d = 40, .n = 1, .mod = true, .y = true,
     .eps = 0.5},
    {.name = "one column, rms", .s = 5, .d = 1, .n = 1, .mod = true, .y = true, .rms = true,
     .eps = 1e-6},
    {.name = "no rows", .s = 0, .d = 33, .n = 2, .first = {0, 0},
     .branch = true, .gate = true, .mod = true, .y = true, .eps = 1e-6},
};

/* Sets what forward and backward share: samples, gate, shift and scale, branch. */
static struct ops_adaln adaln_common(struct lab *l, const struct adaln_case *c)
{
    struct ops_adaln a = {.n = c->n, .eps = c->eps, .rms = c->rms};
    int32_t start[SAMPLES_MAX + 1];
    int32_t *sample = calloc((size_t)c->s + 1, sizeof *sample);
    for (int64_t m = 0; m <= c->n && c->n; m++)
        start[m] = m < c->n ? c->first[m] : (int32_t)c->s;
    for (int64_t m = 0; m < c->n; m++)
        for (int64_t i = start[m]; sample && i < start[m + 1]; i++)
            sample[i] = (int32_t)m;
    if (c->n) {
        a.sample = lab_bytes(l, "sample", sample, c->s * (int64_t)sizeof *sample);
        a.row_start = lab_bytes(l, "row_start", start, (c->n + 1) * (int64_t)sizeof *start);
        a.host_row_start = lab_host(l, a.row_start);
    }
    free(sample);
    if (c->branch)
        a.branch = lab_in(l, "branch", LAB_ACT, c->s, c->d);
    if (c->gate)
        a.gate = lab_in(l, "gate", LAB_ACT, c->n, c->d);
    if (c->mod) {
        a.shift = lab_in(l, "shift", LAB_ACT, c->n, c->d);
        a.scale = lab_in(l, "scale", LAB_ACT, c->n, c->d);
    }
    return a;
}

static void adaln_fwd_make(struct lab *l, const void *data)
{
    const struct adaln_case *c = data;
    enum lab_class residual = c->wide ? LAB_WIDE : LAB_ACT;
    struct ops_adaln a = adaln_common(l, c);
    a.x = lab_in(l, "x", residual, c->s, c->d);
    lab_scale(l, a.x, 1, c->mean);
    if (c->branch || c->x_out) {
        a.x_out = lab_new(l, "x_out", c->narrow ? LAB_ACT : residual, c->s, c->d);
        lab_out(l, "x_out", 0, a.x_out);
    }
    bool rounds = c->branch || c->narrow;
    a.stats = lab_new(l, "stats", LAB_STAT, c->s, 2);
    if (!c->y) {
        lab_working(l, a.stats);
        LAB_CALL(l, adaln_fwd, a);
        return;
    }
    a.y = lab_new(l, "y", LAB_ACT, c->s, c->d);
    struct case_output *stats = lab_out(l, "stats", 0, a.stats), *y = lab_out(l, "y", 0, a.y);
    stats->rounds_itself = y->rounds_itself = rounds;
    stats->judged = rounds ? a.x_out.dtype : stats->stored;
    struct ops_adaln again = a; /* a second call, as in recomputation, from the stored x_out */
    again.x = a.x_out.ptr ? a.x_out : a.x;
    again.x_out = again.branch = again.gate = tensor_none();
    again.y = lab_new(l, "y again", LAB_ACT, c->s, c->d);
    again.stats = lab_new(l, "stats again", LAB_STAT, c->s, 2);
    lab_working(l, again.stats);
    lab_out(l, "y again", 0, again.y)->rounds_itself = rounds;
    lab_twin(l, "y");
    LAB_CALL(l, adaln_fwd, a);
    LAB_CALL(l, adaln_fwd, again);
}
LAB_CASES(adaln_fwd, adaln_cases, adaln_fwd_make)

/* Sets mean and rstd of the rows of x. */
static void stats_put(struct lab *l, struct tensor stats, struct tensor x, bool rms, double eps)
{
    double *v = lab_values(l, x), d = (double)x.cols;
    for (int64_t i = 0; i < x.rows; i++) {
        double mean = 0, square = 0;
        for (int64_t j = 0; j < x.cols && !rms; j++)
            mean += v[i * x.cols + j] / d;
        for (int64_t j = 0; j < x.cols; j++)
            square += (v[i * x.cols + j] - mean) * (v[i * x.cols + j] - mean) / d;
        lab_put(l, stats, i, 0, mean);
        lab_put(l, stats, i, 1, 1 / sqrt(square + eps));
    }
    free(v);
}

static void adaln_bwd_make(struct lab *l, const void *data)
{
    const struct adaln_case *c = data;
    enum lab_class residual = c->wide ? LAB_WIDE : LAB_ACT;
    struct ops_adaln a = adaln_common(l, c);
    a.x_out = lab_in(l, "x_out", residual, c->s, c->d);
    lab_scale(l, a.x_out, 1, c->mean);
    a.dx = lab_in(l, "dx", residual, c->s, c->d);
    lab_out(l, "dx", 0, a.dx);
    if (c->y) {
        a.dy = lab_in(l, "dy", LAB_ACT, c->s, c->d);
        a.stats = lab_new(l, "stats", LAB_STAT, c->s, 2);
        stats_put(l, a.stats, a.x_out, c->rms, c->eps);
    }
    if (c->branch) {
        a.dbranch = lab_new(l, "dbranch", LAB_ACT, c->s, c->d);
        lab_out(l, "dbranch", 0, a.dbranch);
    }
    if (c->gate) {
        a.dgate = lab_new(l, "dgate", LAB_STAT, c->n, c->d);
        lab_out(l, "dgate", 0, a.dgate);
    }
    if (c->mod) {
        a.dshift = lab_new(l, "dshift", LAB_STAT, c->n, c->d);
        a.dscale = lab_new(l, "dscale", LAB_STAT, c->n, c->d);
        lab_out(l, "dshift", 0, a.dshift);
        lab_out(l, "dscale", 0, a.dscale);
    }
    LAB_CALL(l, adaln_bwd, a);
}
LAB_CASES(adaln_bwd, adaln_cases, adaln_bwd_make)

/* ---- norms of heads ---- */

struct headnorm_case {
    const char *name;
    int64_t s, heads, d;
    bool positions, in_place, no_dgain;
    double beta, eps;
    enum lab_class class;
};
static const struct headnorm_case headnorm_cases[] = {
    {"odd", 130, 3, 10, true, false, false, 0, 1e-6, LAB_ACT},
    {"in place", 130, 3, 10, true, true, false, 0.5, 1e-6, LAB_ACT},
    {"even", 66, 2, 64, true, false, false, 1, 1e-6, LAB_ACT},
    {"wide", 9, 2, 22, true, true, false, 1, 1e-6, LAB_WIDE},
    {"largest", 3, 2, 256, true, true, false, 0, 1e-6, LAB_ACT},
    {"no gradient of the gain", 7, 2, 8, true, true, true, 0, 1e-6, LAB_ACT},
    {"a row norm", 65, 1, 37, false, false, false, 0, 1e-6, LAB_ACT},
    {"a row norm, in place", 5, 1, 1030, false, true, false, 0.5, 1e-6, LAB_ACT},
    {"no positions", 5, 4, 16, false, false, false, 0, 1e-6, LAB_ACT},
    {"eps as large as the squares", 7, 2, 34, true, false, false, 0, 0.5, LAB_ACT},
    {"no rows", 0, 2, 8, true, false, false, 0, 1e-6, LAB_ACT},
    {"no rows, added", 0, 2, 8, true, true, false, 0.5, 1e-6, LAB_ACT},
};

static struct ops_headnorm headnorm_common(struct lab *l, const struct headnorm_case *c)
{
    struct ops_headnorm a = {.heads = c->heads, .head_dim = c->d, .eps = c->eps, .beta = c->beta,
                             .src = lab_in(l, "src", c->class, c->s, c->heads * c->d),
                             .gain = lab_in(l, "gain", LAB_ACT, 1, c->d)};
    if (!c->positions)
        return a;
    a.cos = lab_in(l, "cos", LAB_STAT, c->s, c->d / 2);
    a.sin = lab_new(l, "sin", LAB_STAT, c->s, c->d / 2);
    for (int64_t i = 0; i < c->s; i++)
        for (int64_t j = 0; j < c->d / 2; j++) {
            double angle = 3 * lab_get(l, a.cos, i, j);
            lab_put(l, a.cos, i, j, cos(angle));
            lab_put(l, a.sin, i, j, sin(angle));
        }
    return a;
}

static void headnorm_fwd_make(struct lab *l, const void *data)
{
    const struct headnorm_case *c = data;
    struct ops_headnorm a = headnorm_common(l, c);
    a.dst = lab_new(l, "dst", c->class, c->s, c->heads * c->d);
    a.rstd = lab_new(l, "rstd", LAB_STAT, c->s, c->heads);
    lab_out(l, "dst", 0, a.dst);
    lab_out(l, "rstd", 0, a.rstd);
    LAB_CALL(l, headnorm_fwd, a);
}
LAB_CASES(headnorm_fwd, headnorm_cases, headnorm_fwd_make)

static void headnorm_bwd_make(struct lab *l, const void *data)
{
    const struct headnorm_case *c = data;
    struct ops_headnorm a = headnorm_common(l, c);
    a.rstd = lab_new(l, "rstd", LAB_STAT, c->s, c->heads);
    for (int64_t i = 0; i < c->s; i++)
        for (int64_t h = 0; h < c->heads; h++) {
            double square = 0;
            for (int64_t j = 0; j < c->d; j++)
                square += pow(lab_get(l, a.src, i, h * c->d + j), 2) / (double)c->d;
            lab_put(l, a.rstd, i, h, 1 / sqrt(square + c->eps));
        }
    a.ddst = lab_in(l, "ddst", c->class, c->s, c->heads * c->d);
    a.dsrc = c->in_place ? a.ddst : lab_new(l, "dsrc", c->class, c->s, c->heads * c->d);
    lab_out(l, "dsrc", 0, a.dsrc);
    if (!c->no_dgain) {
        a.dgain = (c->beta == 0 ? lab_new : lab_in)(l, "dgain", LAB_STAT, 1, c->d);
        lab_out(l, "dgain", 0, a.dgain);
    }
    LAB_CALL(l, headnorm_bwd, a);
}
LAB_CASES(headnorm_bwd, headnorm_cases, headnorm_bwd_make)

/* ---- positions ---- */

struct rope_case {
    const char *name;
    int64_t s, n, pairs_t, pairs_h, pairs_w;
    double theta, fps[3];
    int32_t most; /* positions are below this */
};
static const struct rope_case rope_cases[] = {
    {"three axes", 65, 2, 2, 3, 4, 10000, {24, 12}, 9},
    {"time alone", 33, 1, 4, 0, 0, 10000, {16}, 40},
    {"a plane", 33, 3, 0, 16, 16, 256, {24, 24, 30}, 64},
    {"one pair", 5, 3, 0, 0, 1, 10000, {24, 24, 24}, 5},
    {"far", 9, 1, 22, 21, 21, 10000, {23.976}, 1000},
    {"no tokens", 0, 1, 1, 1, 1, 10000, {24}, 1},
};

static void rope_make(struct lab *l, const void *data)
{
    const struct rope_case *c = data;
    int64_t pairs = c->pairs_t + c->pairs_h + c->pairs_w;
    int32_t *pos = calloc((size_t)(3 * c->s + 1), sizeof *pos);
    int32_t *sample = calloc((size_t)(c->s + 1), sizeof *sample);
    for (int64_t i = 0; pos && sample && i < c->s; i++) {
        sample[i] = (int32_t)(i * c->n / c->s);
        for (int64_t k = 3 * i; k < 3 * i + 3; k++)
            pos[k] = (int32_t)(lab_uniform(l, (uint64_t)k) * c->most);
    }
    struct ops_rope a = {.pos = lab_bytes(l, "pos", pos, 3 * c->s * (int64_t)sizeof *pos),
                         .sample = lab_bytes(l, "sample", sample, c->s * (int64_t)sizeof *sample),
                         .fps = lab_bytes(l, "fps", c->fps, c->n * (int64_t)sizeof *c->fps),
                         .pairs_t = c->pairs_t, .pairs_h = c->pairs_h, .pairs_w = c->pairs_w,
                         .theta = c->theta, .cos = lab_new(l, "cos", LAB_STAT, c->s, pairs),
                         .sin = lab_new(l, "sin", LAB_STAT, c->s, pairs)};
    free(pos);
    free(sample);
    lab_out(l, "cos", 0, a.cos);
    lab_out(l, "sin", 0, a.sin);
    LAB_CALL(l, rope, a);
}
LAB_CASES(rope, rope_cases, rope_make)

struct sinusoid_case {
    const char *name;
    int64_t n, width;
    double scale;
};
static const struct sinusoid_case sinusoid_cases[] = {
    {"odd", 2, 5, 1},
    {"even", 7, 64, 1000},
    {"noise levels", 3, 257, 1},
    {"one column", 3, 1, 1},
    {"nobody", 0, 8, 1},
};

static void sinusoid_make(struct lab *l, const void *data)
{
    const struct sinusoid_case *c = data;
    double values[8];
    for (int64_t i = 0; i < c->n; i++)
        values[i] = c->scale * (lab_uniform(l, (uint64_t)i) - 0.3);
    struct ops_sinusoid a = {lab_bytes(l, "values", values, c->n * (int64_t)sizeof *values),
                             lab_new(l, "out", LAB_ACT, c->n, c->width)};
    lab_out(l, "out", 0, a.out);
    LAB_CALL(l, sinusoid, a);
}
LAB_CASES(sinusoid, sinusoid_cases, sinusoid_make)
