/* Every operation but attention and the matrix product, in f64, against central differences (1e-7,
 * one random direction a tensor), and against its definition where it has no gradient; f32's own
 * functions against libm. */
#include "tests/lib/trainer_fixture.h"

static const double TOL = 1e-7;

/* ---- AdaLN ---- */

struct adaln_case {
    const char *name;
    int64_t s, d, n;
    int32_t first[4]; /* first token of each sample */
    bool branch, gate, mod, y, rms;
};
static const struct adaln_case adaln_cases[] = {
    {"all, three samples", 150, 37, 3, {0, 70, 71}, true, true, true, true},
    {"no branch", 9, 16, 2, {0, 4}, false, false, true, true},
    {"no modulation", 9, 33, 1, {0}, true, false, false, true},
    {"gate alone", 70, 20, 2, {0, 66}, true, true, false, false},
    {"norm alone", 5, 48, 1, {0}, false, false, false, true},
    {"rms, all, three samples", 150, 37, 3, {0, 70, 71}, true, true, true, true, true},
    {"rms alone", 5, 48, 1, {0}, false, false, false, true, true},
};

struct adaln_run {
    struct bench *b;
    struct ops_adaln a;
    int32_t sample[256], start[5]; /* where each sample's tokens start, and where the last ends */
    double *cot_x, *cot_y;
};

static double adaln_value(void *ctx)
{
    struct adaln_run *r = ctx;
    r->b->ops->adaln_fwd(r->b->ops, r->b->stream, &r->a);
    int64_t count = r->a.x.rows * r->a.x.cols;
    double v = dot(r->a.x_out.ptr, r->cot_x, count);
    return r->a.y.ptr ? v + dot(r->a.y.ptr, r->cot_y, count) : v;
}

static void adaln_setup(struct adaln_run *r, struct bench *b, const struct adaln_case *c)
{
    int64_t sd = c->s * c->d, nd = c->n * c->d;
    *r = (struct adaln_run){.b = b, .cot_x = new_normal(sd, 1), .cot_y = new_normal(sd, 2)};
    struct ops_adaln *a = &r->a;
    for (int64_t i = 0, m = 0; i < c->s; i++) {
        m += m + 1 < c->n && i == c->first[m + 1];
        r->sample[i] = (int32_t)m;
    }
    memcpy(r->start, c->first, sizeof c->first);
    r->start[c->n] = (int32_t)c->s;
    *a = (struct ops_adaln){.sample = r->sample, .row_start = r->start, .host_row_start = r->start,
                            .n = c->n, .x = f64(new_normal(sd, 3), c->s, c->d),
                            .x_out = f64(new_nan(sd), c->s, c->d),
                            .stats = f64(new_nan(2 * c->s), c->s, 2), .eps = 1e-6, .rms = c->rms,
                            .dx = f64(new_normal(sd, 1), c->s, c->d)};
    if (c->branch) {
        a->branch = f64(new_normal(sd, 4), c->s, c->d);
        a->dbranch = f64(new_nan(sd), c->s, c->d);
    }
    if (c->gate) {
        a->gate = f64(new_normal(nd, 5), c->n, c->d);
        a->dgate = f64(new_nan(nd), c->n, c->d);
    }
    if (c->mod) {
        a->shift = f64(new_normal(nd, 6), c->n, c->d);
        a->scale = f64(new_normal(nd, 7), c->n, c->d);
        a->dshift = f64(new_nan(nd), c->n, c->d);
        a->dscale = f64(new_nan(nd), c->n, c->d);
    }
    if (c->y) {
        a->y = f64(new_nan(sd), c->s, c->d);
        a->dy = f64(r->cot_y, c->s, c->d);
    }
}

static void adaln_release(struct adaln_run *r)
{
    struct ops_adaln *a = &r->a;
    void *all[] = {a->x.ptr,       a->x_out.ptr,  a->stats.ptr, a->dx.ptr,    a->branch.ptr,
                   a->dbranch.ptr, a->gate.ptr,   a->dgate.ptr, a->shift.ptr, a->scale.ptr,
                   a->dshift.ptr,  a->dscale.ptr, a->y.ptr,     r->cot_x,     r->cot_y};
    for (int i = 0; i < LEN(all); i++)
        free(all[i]);
}

static void test_adaln(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    for (int i = 0; i < LEN(adaln_cases); i++) {
        const struct adaln_case *c = &adaln_cases[i];
        struct adaln_run r;
        adaln_setup(&r, &b, c);
        adaln_value(&r);
        b.ops->adaln_bwd(b.ops, b.stream, &r.a);
        int64_t sd = c->s * c->d, nd = c->n * c->d;
        const struct fd_slot slots[] = {{"x", r.a.x.ptr, r.a.dx.ptr, sd},
                                        {"branch", r.a.branch.ptr, r.a.dbranch.ptr, sd},
                                        {"gate", r.a.gate.ptr, r.a.dgate.ptr, nd},
                                        {"shift", r.a.shift.ptr, r.a.dshift.ptr, nd},
                                        {"scale", r.a.scale.ptr, r.a.dscale.ptr, nd}};
        for (int s = 0; s < LEN(slots); s++)
            if (slots[s].x)
                fd_check(c->name, &slots[s], 20 + (uint64_t)s, adaln_value, &r, TOL);
        adaln_release(&r);
    }
    bench_close(&b);
}

/* RMSNorm by its definition: y = x · rstd · (1 + scale) + shift, rstd over the mean square,
 * whatever the mean is. */
static void test_adaln_rms_values(void **state)
{
    (void)state;
    enum { D = 21 };
    static const int32_t start[2] = {0, 1};
    struct bench b = bench_open(DTYPE_F64);
    double *x = new_normal(D, 1), *shift = new_normal(D, 2), *scale = new_normal(D, 3), y[D],
           stats[2], square = 0;
    for (int j = 0; j < D; j++) {
        x[j] += 5;
        square += x[j] * x[j] / D;
    }
    b.ops->adaln_fwd(b.ops, b.stream,
                     &(struct ops_adaln){.sample = start, .row_start = start, .host_row_start = start,
                                         .n = 1, .x = f64(x, 1, D), .y = f64(y, 1, D),
                                         .shift = f64(shift, 1, D), .scale = f64(scale, 1, D),
                                         .stats = f64(stats, 1, 2), .eps = 1e-6, .rms = true});
    for (int j = 0; j < D; j++)
        assert_true(fabs(y[j] - (x[j] / sqrt(square + 1e-6) * (1 + scale[j]) + shift[j])) < 1e-14);
    free(x), free(shift), free(scale);
    bench_close(&b);
}

/* Every row takes the gate, shift and scale of its own sample: by the definition, which gradients
 * alone would not notice. */
static void test_adaln_samples(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    struct adaln_run r;
    adaln_setup(&r, &b, &adaln_cases[0]);
    adaln_value(&r);
    int64_t d = r.a.x.cols;
    const double *x = r.a.x.ptr, *branch = r.a.branch.ptr, *gate = r.a.gate.ptr,
                 *shift = r.a.shift.ptr, *scale = r.a.scale.ptr;
    for (int64_t i = 0; i < r.a.x.rows; i++) {
        const double *out = (double *)r.a.x_out.ptr + i * d, *y = (double *)r.a.y.ptr + i * d;
        int64_t m = r.sample[i] * d;
        double mean = 0, square = 0;
        for (int64_t j = 0; j < d; j++)
            mean += out[j] / (double)d;
        for (int64_t j = 0; j < d; j++)
            square += (out[j] - mean) * (out[j] - mean) / (double)d;
        for (int64_t j = 0; j < d; j++) {
            assert_true(fabs(out[j] - (x[i * d + j] + gate[m + j] * branch[i * d + j])) < 1e-14);
            assert_true(fabs(y[j] - ((out[j] - mean) / sqrt(square + 1e-6) * (1 + scale[m + j]) +
                                     shift[m + j])) < 1e-13);
        }
    }
    adaln_release(&r);
    bench_close(&b);
}

/* ---- head norm and positions ---- */

struct head_run {
    struct bench *b;
    struct ops_headnorm a;
    double *cot;
};

static double head_value(void *ctx)
{
    struct head_run *r = ctx;
    r->b->ops->headnorm_fwd(r->b->ops, r->b->stream, &r->a);
    return dot(r->a.dst.ptr, r->cot, r->a.dst.rows * r->a.dst.cols);
}

static void check_headnorm(struct bench *b, int64_t s, int64_t heads, int64_t d, bool positions)
{
    int64_t n = s * heads * d;
    struct head_run r = {.b = b, .cot = new_normal(n, 1)};
    double *gain = new_normal(d, 2), *angle = new_normal(s * (d / 2), 3), *c = new_nan(s * (d / 2)),
           *sn = new_nan(s * (d / 2));
    double *dgain = new_nan(d), *dsrc = new_normal(n, 1), *grad = new_nan(d);
    for (int64_t i = 0; i < s * (d / 2); i++) {
        c[i] = cos(angle[i]);
        sn[i] = sin(angle[i]);
    }
    r.a = (struct ops_headnorm){.src = f64(new_normal(n, 4), s, heads * d),
                                .dst = f64(new_nan(n), s, heads * d), .heads = heads, .head_dim = d,
                                .gain = f64(gain, 1, d), .rstd = f64(new_nan(s * heads), s, heads),
                                .eps = 1e-6, .ddst = f64(dsrc, s, heads * d),
                                .dsrc = f64(dsrc, s, heads * d), .dgain = f64(dgain, 1, d)};
    if (positions) {
        r.a.cos = f64(c, s, d / 2);
        r.a.sin = f64(sn, s, d / 2);
    }
    head_value(&r);
    b->ops->headnorm_bwd(b->ops, b->stream, &r.a); /* in place */
    memcpy(grad, dgain, (size_t)d * sizeof *grad);
    const struct fd_slot slots[] = {{"src", r.a.src.ptr, dsrc, n}, {"gain", gain, grad, d}};
    for (int i = 0; i < 2; i++)
        fd_check("headnorm", &slots[i], 30 + (uint64_t)i, head_value, &r, TOL);
    memcpy(dsrc, r.cot, (size_t)n * sizeof *dsrc);
    r.a.beta = 1;
    b->ops->headnorm_bwd(b->ops, b->stream, &r.a); /* adds: twice the gradient */
    for (int64_t j = 0; j < d; j++)
        assert_true(fabs(dgain[j] - 2 * grad[j]) <= 1e-12 * (1 + fabs(grad[j])));
    void *all[] = {r.cot, gain, angle,       c,           sn,          dgain,
                   dsrc,  grad, r.a.src.ptr, r.a.dst.ptr, r.a.rstd.ptr};
    for (int i = 0; i < LEN(all); i++)
        free(all[i]);
}

static void test_headnorm(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    check_headnorm(&b, 130, 3, 10, true);
    check_headnorm(&b, 7, 2, 64, true);
    check_headnorm(&b, 5, 1, 37, false); /* a row norm */
    bench_close(&b);
}

/* Angles are places times frequencies; scores of rotated vectors hang on differences of places
 * alone. */
static void test_rope(void **state)
{
    (void)state;
    enum { S = 3, HALF = 6 };
    struct bench b = bench_open(DTYPE_F64);
    const int32_t pos[3 * S] = {0, 0, 0, 2, 1, 3, 5, 4, 7}, sample[S] = {0, 0, 1};
    const double fps[2] = {24, 12};
    double c[S * HALF], s[S * HALF];
    b.ops->rope(
        b.ops, b.stream,
        &(struct ops_rope){pos, sample, fps, 2, 2, 2, 10000, f64(c, S, HALF), f64(s, S, HALF)});
    /* 12 fps: time doubled */
    const double want[S][HALF] = {{0}, {2, 2e-2, 1, 1e-2, 3, 3e-2}, {10, 10e-2, 4, 4e-2, 7, 7e-2}};
    for (int i = 0; i < S; i++)
        for (int j = 0; j < HALF; j++) {
            assert_true(fabs(c[i * HALF + j] - cos(want[i][j])) < 1e-13);
            assert_true(fabs(s[i * HALF + j] - sin(want[i][j])) < 1e-13);
        }
    bench_close(&b);
}

static void test_sinusoid(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    const double v[2] = {-1.5, 0.25};
    double out[2 * 5];
    b.ops->sinusoid(b.ops, b.stream, &(struct ops_sinusoid){v, f64(out, 2, 5)});
    for (int i = 0; i < 2; i++) {
        const double want[5] = {cos(v[i]), cos(v[i] / 100), sin(v[i]), sin(v[i] / 100), 0};
        for (int j = 0; j < 5; j++)
            assert_true(fabs(out[5 * i + j] - want[j]) < 1e-14);
    }
    bench_close(&b);
}

/* ---- activations ---- */

struct act_run {
    struct bench *b;
    struct ops_act a;
    double *cot;
};

static double act_value(void *ctx)
{
    struct act_run *r = ctx;
    r->b->ops->act_fwd(r->b->ops, r->b->stream, &r->a);
    return dot(r->a.y.ptr, r->cot, r->a.y.rows * r->a.y.cols);
}

static double act_plain(enum ops_act_kind kind, double x, double up)
{
    switch (kind) {
    case OPS_ACT_NONE: return x;
    case OPS_ACT_SILU: return x / (1 + exp(-x));
    case OPS_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case OPS_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case OPS_ACT_SWIGLU: return x / (1 + exp(-x)) * up;
    }
    return NAN;
}

static void test_activations(void **state)
{
    (void)state;
    enum { ROWS = 5, F = 40 };
    struct bench b = bench_open(DTYPE_F64);
    for (enum ops_act_kind kind = OPS_ACT_NONE; kind <= OPS_ACT_SWIGLU; kind++) {
        int64_t wide = kind == OPS_ACT_SWIGLU ? 2 * F : F;
        struct act_run r = {.b = &b, .cot = new_normal(ROWS * F, 1)};
        double *x = new_normal(ROWS * wide, 2), *y = new_nan(ROWS * F), *dx = new_nan(ROWS * wide),
               *again = new_nan(ROWS * F);
        for (int64_t i = 0; i < ROWS * wide; i++)
            x[i] *= 2;
        r.a = (struct ops_act){.kind = kind, .x = f64(x, ROWS, wide), .y = f64(y, ROWS, F),
                               .dy = f64(r.cot, ROWS, F),
                               .dx = f64(dx, ROWS, wide)};
        act_value(&r);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < F; j++) {
                double want = act_plain(kind, x[i * wide + j],
                                        kind == OPS_ACT_SWIGLU ? x[i * wide + F + j] : 0);
                assert_true(fabs(y[i * F + j] - want) <= 1e-14 * (1 + fabs(want)));
            }
        struct ops_act back = r.a;
        back.y = f64(again, ROWS, F);
        b.ops->act_bwd(b.ops, b.stream, &back);
        assert_memory_equal(again, y, ROWS * F * sizeof *y); /* made again with the same bits */
        const struct fd_slot slot = {"x", x, dx, ROWS * wide};
        fd_check("activation", &slot, 40 + (uint64_t)kind, act_value, &r, TOL);
        free(r.cot), free(x), free(y), free(dx), free(again);
    }
    bench_close(&b);
}

/* ---- latents, loss, noise ---- */

struct latent_run {
    struct bench *b;
    struct ops_latents a;
    struct ops_sample samples[2];
    double loss[2];
};

static void latent_setup(struct latent_run *r, struct bench *b)
{
    *r = (struct latent_run){.b = b};
    r->samples[0] = (struct ops_sample){.token = 0, .n_tokens = 6, .cell = 0, .t = 2, .h = 2,
                                        .w = 6, .valid_t = 2, .valid_h = 2, .valid_w = 6,
                                        .ordinal = 11, .in_data = 0.5, .in_noise = 1.25,
                                        .out_data = -0.3, .out_noise = 0.8, .weight = 1.5,
                                        .inv_norm = 0.01};
    r->samples[1] = (struct ops_sample){.token = 6, .n_tokens = 2, .cell = 24, .t = 1, .h = 4,
                                        .w = 2, .valid_t = 1, .valid_h = 3, .valid_w = 1,
                                        .ordinal = 12, .in_data = 2, .in_noise = 0.1, .out_data = 1,
                                        .out_noise = -1, .weight = 0.25, .inv_norm = 0.01};
    r->a = (struct ops_latents){.samples = r->samples, .n = 2, .channels = 3, .cells = 32, .patch_t = 1,
                                .patch_h = 2, .patch_w = 2, .latent = f64(new_normal(96, 1), 1, 96),
                                .noise = f64(new_nan(96), 1, 96),
                                .loss = r->loss};
}

static double loss_value(void *ctx)
{
    struct latent_run *r = ctx;
    r->b->ops->loss(r->b->ops, r->b->stream, &r->a);
    return 0.01 * (r->samples[0].weight * r->loss[0] + r->samples[1].weight * r->loss[1]);
}

/* The cell of a token's column, by the layout's definition. */
static int64_t cell_of(const struct ops_sample *s, int64_t token, int64_t column, int64_t *channel)
{
    int64_t nw = s->w / 2, nh = s->h / 2, ph = column / 2 % 2, pw = column % 2;
    int64_t w = token % nw * 2 + pw, h = token / nw % nh * 2 + ph, t = token / nw / nh;
    *channel = column / 4;
    return (t * s->h + h) * s->w + w;
}

static void test_latents(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    struct latent_run r;
    latent_setup(&r, &b);
    const double *latent = r.a.latent.ptr, *noise = r.a.noise.ptr;
    double *cond = new_normal(64, 3), *tokens = new_nan(8 * 20), *back = new_nan(96),
           *pred = new_normal(8 * 12, 4), *dpred = new_nan(8 * 12);
    b.ops->normal(b.ops, b.stream,
                  &(struct ops_normal){r.samples, 2, 3, 32, 99, PHILOX_NOISE, r.a.noise});
    struct ops_latents in = r.a;
    in.cond_channels = 2;
    in.cond = f64(cond, 1, 64);
    in.tokens = f64(tokens, 8, 20);
    b.ops->patchify(b.ops, b.stream, &in);
    for (int i = 0; i < 2; i++) {
        const struct ops_sample *s = &r.samples[i];
        int64_t cells = (int64_t)s->t * s->h * s->w;
        for (int64_t k = 0; k < s->n_tokens; k++)
            for (int64_t j = 0; j < 20; j++) {
                int64_t c, at = cell_of(s, k, j, &c);
                double want = c < 3 ? s->in_data * latent[s->cell * 3 + c * cells + at] +
                                          s->in_noise * noise[s->cell * 3 + c * cells + at]
                                    : cond[s->cell * 2 + (c - 3) * cells + at];
                assert_true(fabs(tokens[(s->token + k) * 20 + j] - want) < 1e-14);
            }
        /* noise is a function of seed, ordinal and element alone */
        for (int64_t e = 0; e < cells * 3; e++)
            assert_true(noise[s->cell * 3 + e] ==
                        philox_normal_at(99, PHILOX_NOISE, s->ordinal, (uint64_t)e));
    }
    r.a.tokens = f64(pred, 8, 12);
    r.a.out = f64(back, 1, 96);
    b.ops->unpatchify(b.ops, b.stream, &r.a);
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < r.samples[i].n_tokens; k++)
            for (int64_t j = 0; j < 12; j++) {
                const struct ops_sample *s = &r.samples[i];
                int64_t c, at = cell_of(s, k, j, &c);
                assert_true(back[s->cell * 3 + c * s->t * s->h * s->w + at] ==
                            pred[(s->token + k) * 12 + j]);
            }
    r.a.dtokens = f64(dpred, 8, 12);
    loss_value(&r);
    double sum[2] = {0};
    for (int i = 0; i < 2; i++)
        for (int64_t e = 0; e < r.samples[i].n_tokens * 12; e++) {
            const struct ops_sample *s = &r.samples[i];
            if (e % s->w >= s->valid_w || e / s->w % s->h >= s->valid_h)
                continue;
            double d = back[s->cell * 3 + e] - s->out_data * latent[s->cell * 3 + e] -
                       s->out_noise * noise[s->cell * 3 + e];
            sum[i] += d * d;
        }
    assert_true(fabs(sum[0] - r.loss[0]) < 1e-12 * sum[0] &&
                fabs(sum[1] - r.loss[1]) < 1e-12 * sum[1]);
    double *keep = new_nan(8 * 12);
    memcpy(keep, dpred, 8 * 12 * sizeof *keep);
    const struct fd_slot slot = {"prediction", pred, keep, 8 * 12};
    fd_check("loss", &slot, 50, loss_value, &r, TOL);
    free(cond), free(tokens), free(back), free(pred), free(dpred), free(keep), free(r.a.latent.ptr),
        free(r.a.noise.ptr);
    bench_close(&b);
}

/* ---- sums and copies ---- */

static void test_sums(void **state)
{
    (void)state;
    enum { R = 150, C = 9 };
    struct bench b = bench_open(DTYPE_F64);
    double *x = new_normal(R * C, 1), out[C], want[C] = {0};
    for (int i = 0; i < R * C; i++)
        want[i % C] += x[i];
    for (int j = 0; j < C; j++)
        out[j] = NAN; /* beta 0 does not read */
    b.ops->colsum(b.ops, b.stream, &(struct ops_colsum){f64(x, R, C), f64(out, 1, C), 0});
    b.ops->colsum(b.ops, b.stream, &(struct ops_colsum){f64(x, R, C), f64(out, 1, C), 0.5});
    for (int j = 0; j < C; j++)
        assert_true(fabs(out[j] - 1.5 * want[j]) < 1e-12);
    b.ops->colsum(b.ops, b.stream, &(struct ops_colsum){f64(x, 0, C), f64(out, 1, C), 0});
    for (int j = 0; j < C; j++)
        assert_true(out[j] == 0);
    struct ops_health h = {0, 0};
    double plain = dot(x, x, R * C) - x[3] * x[3] - x[77] * x[77];
    x[3] = INFINITY;
    x[77] = NAN;
    b.ops->sumsq(b.ops, b.stream, &(struct ops_sumsq){f64(x, 1, R * C), &h, false});
    assert_true(fabs(h.sumsq - plain) < 1e-11 && h.nonfinite == 2);
    b.ops->sumsq(b.ops, b.stream, &(struct ops_sumsq){f64(x, 1, R * C), &h, true});
    assert_true(fabs(h.sumsq - 2 * plain) < 1e-11 && h.nonfinite == 4);
    free(x);
    bench_close(&b);
}

/* Of any type, in a view of some columns, and added to what was counted. */
static void test_finite(void **state)
{
    (void)state;
    double d[6] = {1, NAN, -INFINITY, 4, 5, NAN};
    float f[6] = {1, INFINITY, 3, 4, NAN, 6};
    uint16_t h[6] = {0x3f80, 0x7f80, 0x7f7f, 0xffff, 0, 0xff80};
    const struct tensor all[] = {f64(d, 2, 3), tensor_of(f, DTYPE_F32, 2, 3),
                                 tensor_of(h, DTYPE_BF16, 2, 3)};
    static const int64_t want[3][2] = {{3, 1}, {2, 2}, {3, 1}};
    for (enum dtype table = DTYPE_F64; table <= DTYPE_BF16; table++) {
        struct bench b = bench_open(table);
        for (int i = 0; i < LEN(all); i++) {
            int64_t bad = 0, middle = 10;
            b.ops->finite(b.ops, b.stream, &(struct ops_finite){all[i], &bad});
            b.ops->finite(b.ops, b.stream, &(struct ops_finite){tensor_cols(all[i], 1, 1), &middle});
            assert_int_equal(bad, want[i][0]);
            assert_int_equal(middle, 10 + want[i][1]);
        }
        bench_close(&b);
    }
}

static void test_copies(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    float f[6] = {1.5f, -2, 3, 4, 5, 6};
    double d[12], y[6] = {1, 1, 1, 1, 1, 1};
    b.ops->copy(b.ops, b.stream, &(struct ops_copy){tensor_of(f, DTYPE_F32, 2, 3), f64(d, 2, 3)});
    for (int i = 0; i < 6; i++)
        assert_true(d[i] == f[i]);
    struct tensor column = tensor_cols(f64(d, 4, 3), 1, 2); /* one row into every row of a view */
    b.ops->copy(b.ops, b.stream, &(struct ops_copy){f64(y, 1, 2), column});
    for (int i = 0; i < 4; i++)
        assert_true(d[3 * i + 1] == 1 && d[3 * i + 2] == 1);
    assert_true(d[0] == 1.5 && d[3] == 4);
    b.ops->axpy(
        b.ops, b.stream,
        &(struct ops_axpy){tensor_cols(f64(d, 2, 3), 0, 2), tensor_cols(f64(y, 2, 3), 1, 2), -2});
    const double want[6] = {1, -2, -1, 1, -7, -1};
    for (int i = 0; i < 6; i++)
        assert_true(y[i] == want[i]);
    double back[2] = {0.1, 3};
    float g[2];
    b.ops->copy(b.ops, b.stream,
                &(struct ops_copy){f64(back, 1, 2), tensor_of(g, DTYPE_F32, 1, 2)});
    assert_true(g[0] == 0.1f && g[1] == 3);
    bench_close(&b);
}

/* Rows of a view by a shuffled index, against a row at a time; and back again. */
static void test_permute(void **state)
{
    (void)state;
    enum { R = 100, C = 5, W = 8 };
    static int32_t index[R];
    struct bench b = bench_open(DTYPE_F64);
    double *x = new_normal(R * W, 1), *moved = new_nan(R * W), *back = new_nan(R * C);
    for (int i = 0; i < R; i++)
        index[i] = (i * 37 + 11) % R; /* 37 and 100 share no divisor: every row once */
    struct tensor from = tensor_cols(f64(x, R, W), 2, C), to = tensor_cols(f64(moved, R, W), 1, C),
                  again = f64(back, R, C);
    b.ops->permute(b.ops, b.stream, &(struct ops_permute){from, to, index, false});
    b.ops->permute(b.ops, b.stream, &(struct ops_permute){to, again, index, true});
    for (int i = 0; i < R; i++)
        for (int j = 0; j < W; j++) {
            if (j >= 1 && j <= C)
                assert_true(moved[i * W + j] == x[index[i] * W + j + 1]);
            else
                assert_true(isnan(moved[i * W + j])); /* columns beside the view are not ours */
            if (j < C)
                assert_true(back[i * C + j] == x[i * W + j + 2]);
        }
    b.ops->permute(
        b.ops, b.stream,
        &(struct ops_permute){tensor_rows(from, 0, 0), tensor_rows(to, 0, 0), NULL, false});
    free(x), free(moved), free(back);
    bench_close(&b);
}

/* Rows of a table by every third index; the gradient is a sum by index, and rows that nobody names
 * have none. */
static void test_table(void **state)
{
    (void)state;
    enum { S = 40, R = 6, D = 5 };
    static int32_t index[3 * S];
    struct bench b = bench_open(DTYPE_F64);
    double *x = new_normal(S * D, 1), *table = new_normal(R * D, 2), *dx = new_normal(S * D, 3),
           y[S * D], dtable[R * D], want[R * D] = {0};
    memcpy(y, x, sizeof y);
    for (int i = 0; i < S; i++) {
        index[3 * i + 1] = (i * 7 + i / 5) % (R - 1); /* never the last row */
        for (int j = 0; j < D; j++)
            want[index[3 * i + 1] * D + j] += dx[i * D + j];
    }
    struct ops_table a = {.index = index + 1, .stride = 3, .x = f64(y, S, D),
                          .table = f64(table, R, D), .dx = f64(dx, S, D),
                          .dtable = f64(dtable, R, D)};
    b.ops->table_fwd(b.ops, b.stream, &a);
    for (int j = 0; j < S * D; j++)
        assert_true(y[j] == x[j] + table[index[3 * (j / D) + 1] * D + j % D]);
    for (int j = 0; j < R * D; j++)
        dtable[j] = NAN; /* beta 0 does not read */
    b.ops->table_bwd(b.ops, b.stream, &a);
    a.beta = 0.5;
    b.ops->table_bwd(b.ops, b.stream, &a);
    for (int j = 0; j < R * D; j++)
        assert_true(fabs(dtable[j] - 1.5 * want[j]) < 1e-13);
    free(x), free(table), free(dx);
    bench_close(&b);
}

/* ---- f32 beside f64 ---- */

/* GELU, SiLU and their slopes to where exp(-x) no longer is a float: f32 approximates erf and exp
 * by its own polynomials. */
static void test_f32_functions(void **state)
{
    (void)state;
    enum { N = 40001 };
    struct bench b = bench_open(DTYPE_F32);
    float *x = malloc(N * 4), *y = malloc(N * 4), *dx = malloc(N * 4), *one = malloc(N * 4);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(-120 + 240.0 * i / (N - 1));
        one[i] = 1;
    }
    struct tensor tx = tensor_of(x, DTYPE_F32, 1, N);
    for (enum ops_act_kind kind = OPS_ACT_SILU; kind <= OPS_ACT_GELU_TANH; kind++) {
        struct ops_act a = {.kind = kind, .x = tx, .y = tensor_of(y, DTYPE_F32, 1, N),
                            .dy = tensor_of(one, DTYPE_F32, 1, N),
                            .dx = tensor_of(dx, DTYPE_F32, 1, N)};
        b.ops->act_bwd(b.ops, b.stream, &a);
        for (int i = 0; i < N; i++) {
            double h = 1e-5, at = x[i], want = act_plain(kind, at, 0);
            double slope = (act_plain(kind, at + h, 0) - act_plain(kind, at - h, 0)) / (2 * h);
            if (!(fabs(y[i] - want) <= 4e-7 * (1 + fabs(at))) || !(fabs(dx[i] - slope) <= 1.5e-6))
                fail_msg("kind %d at %g: %.9g want %.9g, slope %.9g want %.9g", (int)kind, at,
                         (double)y[i], want, (double)dx[i], slope);
        }
    }
    free(x), free(y), free(dx), free(one);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adaln), cmocka_unit_test(test_adaln_rms_values),
        cmocka_unit_test(test_adaln_samples), cmocka_unit_test(test_headnorm),
        cmocka_unit_test(test_rope), cmocka_unit_test(test_sinusoid),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_latents),
        cmocka_unit_test(test_sums), cmocka_unit_test(test_finite),
        cmocka_unit_test(test_copies), cmocka_unit_test(test_permute),
        cmocka_unit_test(test_table), cmocka_unit_test(test_f32_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
