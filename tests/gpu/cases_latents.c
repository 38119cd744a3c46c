/* This file makes the cases of operations on samples (patches, loss, noise) and of draws of the
 * initial weights. */
#include "tests/gpu/cases_lab.h"

#include <math.h>

enum { SAMPLES_MAX = 3 };

/* Describes a sample in patches. Its tokens are `rows` from `first` on; rows 0: all of them.
 * less_t, less_h and less_w are the cells of padding. */
struct clip { int32_t t, h, w, first, rows, less_t, less_h, less_w; };

struct latents_case {
    const char *name;
    int64_t channels, cond;
    int64_t pt, ph, pw;
    int64_t n;
    struct clip clip[SAMPLES_MAX];
    bool cond_absent, no_noise;
    int64_t gap; /* rows and cells of no sample, before, between and after the samples */
};
static const struct latents_case latents_cases[] = {
    {"two samples, padding", 3, 2, 1, 2, 2, 2, {{2, 1, 3}, {1, 2, 1, .less_h = 1, .less_w = 1}},
     false, false, 0},
    {"one token", 16, 0, 1, 2, 2, 1, {{1, 1, 1}}, false, false, 0},
    {"patches in time", 4, 3, 2, 2, 2, 2,
     {{2, 2, 3, .less_t = 1, .less_w = 3}, {1, 3, 1, .less_h = 2}}, false, false, 0},
    {"cells one by one", 5, 0, 1, 1, 1, 2, {{3, 3, 5, .less_t = 1}, {1, 1, 1}}, false, false, 0},
    {"odd patches", 2, 1, 1, 3, 1, 1, {{2, 2, 5, .less_h = 4}}, false, false, 0},
    {"no condition is given", 3, 4, 1, 2, 2, 1, {{2, 2, 2}}, true, false, 0},
    {"parts of samples", 3, 2, 1, 2, 2, 3,
     {{2, 2, 3, 5, 4}, {1, 3, 3, 0, 7, .less_h = 2, .less_w = 1}, {4, 2, 2, 15, 1, .less_t = 2}},
     false, false, 0},
    {"gaps between samples", 3, 1, 1, 2, 2, 2, {{1, 2, 2}, {2, 1, 3, .less_w = 2}},
     false, false, 3},
    {"no noise in the input", 4, 0, 1, 2, 2, 2, {{1, 2, 2}, {1, 1, 3}}, false, true, 0},
    {"all is padding but one cell", 2, 0, 2, 2, 2, 1, {{1, 2, 2, .less_t = 1, .less_h = 3,
                                                          .less_w = 3}}, false, false, 0},
    {"many tokens and few", 3, 1, 1, 2, 2, 2, {{3, 16, 18, .less_w = 1}, {1, 5, 7}},
     false, false, 0},
    {"nobody", 3, 0, 1, 2, 2, 0, {{0}}, false, false, 0},
};

/* Holds the samples of a micro-batch, and the rows and cells of its buffers. */
struct clips {
    struct ops_sample sample[SAMPLES_MAX];
    int64_t rows, cells;
};

static int64_t cells_of(const struct ops_sample *m) { return (int64_t)m->t * m->h * m->w; }

static struct ops_sample sample_of(const struct lab *l, const struct latents_case *c, int64_t i)
{
    const struct clip *p = &c->clip[i];
    double u[6];
    for (uint64_t k = 0; k < 6; k++)
        u[k] = 2 * lab_uniform(l, 6 * (uint64_t)i + k) - 1;
    struct ops_sample m = {
        .n_tokens = p->rows ? p->rows : (int64_t)p->t * p->h * p->w, .first = p->first,
        .t = (int32_t)(p->t * c->pt), .h = (int32_t)(p->h * c->ph), .w = (int32_t)(p->w * c->pw),
        .ordinal = (uint64_t)(11 + 7 * i) << (i == 1 ? 40 : 0),
        .in_data = 1 + u[0], .in_noise = c->no_noise ? 0 : u[1], .out_data = u[2],
        .out_noise = u[3], .weight = 1.5 + u[4], .inv_norm = 0.01,
    };
    m.valid_t = m.t - p->less_t, m.valid_h = m.h - p->less_h, m.valid_w = m.w - p->less_w;
    return m;
}

static struct clips clips_of(const struct lab *l, const struct latents_case *c)
{
    struct clips b = {0};
    for (int64_t i = 0; i < c->n; i++) {
        struct ops_sample *m = &b.sample[i];
        *m = sample_of(l, c, i);
        m->token = b.rows += c->gap;
        m->cell = b.cells += c->gap;
        b.rows += m->n_tokens;
        b.cells += cells_of(m);
    }
    b.rows += c->gap, b.cells += c->gap;
    return b;
}

static const struct ops_sample *samples_put(struct lab *l, const struct clips *b, int64_t n)
{
    return lab_bytes(l, "samples", b->sample, n * (int64_t)sizeof *b->sample);
}

static struct ops_latents latents_common(struct lab *l, const struct latents_case *c,
                                         const struct clips *b)
{
    return (struct ops_latents){.samples = samples_put(l, b, c->n), .n = c->n,
                                .channels = c->channels, .cells = b->cells, .patch_t = c->pt,
                                .patch_h = c->ph, .patch_w = c->pw};
}

static void pictures_put(struct lab *l, const struct latents_case *c, struct ops_latents *a)
{
    /* The latent is longer than the samples need. */
    a->latent = lab_in(l, "latent", LAB_STAT, 1, a->cells * c->channels + 5);
    a->noise = lab_in(l, "noise", LAB_STAT, 1, a->cells * c->channels);
}

static struct tensor rows_of(struct tensor t, const struct ops_sample *m)
{
    return tensor_rows(t, m->token, m->n_tokens);
}

static struct tensor cells_in(struct tensor t, const struct ops_sample *m, int64_t channels)
{
    return tensor_cols(t, m->cell * channels, cells_of(m) * channels);
}

static void patchify_make(struct lab *l, const void *data)
{
    const struct latents_case *c = data;
    const struct clips b = clips_of(l, c);
    struct ops_latents a = latents_common(l, c, &b);
    pictures_put(l, c, &a);
    a.cond_channels = c->cond;
    if (c->cond && !c->cond_absent)
        a.cond = lab_in(l, "cond", LAB_STAT, 1, b.cells * c->cond);
    a.tokens = lab_new(l, "tokens", LAB_ACT, b.rows, (c->channels + c->cond) * c->pt * c->ph * c->pw);
    for (int i = 0; i < c->n; i++)
        lab_out(l, "tokens", i, rows_of(a.tokens, &b.sample[i]));
    LAB_CALL(l, patchify, a);
}
LAB_CASES(patchify, latents_cases, patchify_make)

static void unpatchify_make(struct lab *l, const void *data)
{
    const struct latents_case *c = data;
    const struct clips b = clips_of(l, c);
    struct ops_latents a = latents_common(l, c, &b);
    a.tokens = lab_in(l, "tokens", LAB_ACT, b.rows, c->channels * c->pt * c->ph * c->pw);
    a.out = lab_new(l, "out", LAB_STAT, 1, b.cells * c->channels);
    for (int i = 0; i < c->n; i++) /* cells of tokens outside of the part stay NaN */
        lab_exact(lab_out(l, "out", i, cells_in(a.out, &b.sample[i], c->channels)));
    LAB_CALL(l, unpatchify, a);
}
LAB_CASES(unpatchify, latents_cases, unpatchify_make)

/* Makes the padding of a sample's latent NaN, which may not reach the loss. */
static void padding_spoil(struct lab *l, struct tensor latent, const struct ops_sample *m,
                          int64_t channels)
{
    struct tensor own = cells_in(latent, m, channels);
    for (int64_t k = 0; k < own.cols; k++) {
        int64_t w = k % m->w, h = k / m->w % m->h, t = k / m->w / m->h % m->t;
        if (w >= m->valid_w || h >= m->valid_h || t >= m->valid_t)
            lab_put(l, own, 0, k, (double)NAN);
    }
}

/* Makes the predictions of padding NaN, too. */
static void prediction_spoil(struct lab *l, struct tensor tokens, const struct ops_sample *m,
                             const struct latents_case *c)
{
    int64_t nh = m->h / c->ph, nw = m->w / c->pw;
    for (int64_t i = 0; i < m->n_tokens; i++)
        for (int64_t k = 0; k < tokens.cols; k++) {
            int64_t token = m->first + i, w = token % nw * c->pw + k % c->pw,
                    h = token / nw % nh * c->ph + k / c->pw % c->ph,
                    t = token / nw / nh * c->pt + k / c->pw / c->ph % c->pt;
            if (w >= m->valid_w || h >= m->valid_h || t >= m->valid_t)
                lab_put(l, tokens, m->token + i, k, (double)NAN);
        }
}

static void loss_make(struct lab *l, const void *data)
{
    const struct latents_case *c = data;
    const struct clips b = clips_of(l, c);
    struct ops_latents a = latents_common(l, c, &b);
    int64_t width = c->channels * c->pt * c->ph * c->pw;
    pictures_put(l, c, &a);
    a.tokens = lab_in(l, "tokens", LAB_ACT, b.rows, width);
    a.dtokens = lab_new(l, "dtokens", LAB_ACT, b.rows, width);
    struct tensor loss = lab_new(l, "loss", LAB_F64, 1, c->n);
    a.loss = loss.ptr;
    for (int i = 0; i < c->n; i++) {
        padding_spoil(l, a.latent, &b.sample[i], c->channels);
        prediction_spoil(l, a.tokens, &b.sample[i], c);
        lab_out(l, "dtokens", i, rows_of(a.dtokens, &b.sample[i]));
        lab_out(l, "loss", i, tensor_cols(loss, i, 1))->judged = l->o->stat;
    }
    LAB_CALL(l, loss, a);
}
LAB_CASES(loss, latents_cases, loss_make)

/* ---- random numbers ---- */

static void normal_make(struct lab *l, const void *data)
{
    const struct latents_case *c = data;
    const struct clips b = clips_of(l, c);
    struct ops_normal a = {.samples = samples_put(l, &b, c->n), .n = c->n, .channels = c->channels,
                           .cells = b.cells, .seed = l->c->seed << 33 | 99,
                           .stream = c->no_noise ? PHILOX_SAMPLE : PHILOX_NOISE,
                           .out = lab_new(l, "out", LAB_STAT, 1, b.cells * c->channels + 3)};
    for (int i = 0; i < c->n; i++)
        lab_exact(lab_out(l, "out", i, cells_in(a.out, &b.sample[i], c->channels)));
    LAB_CALL(l, normal, a);
}
LAB_CASES(normal, latents_cases, normal_make)

struct draw_case {
    const char *name;
    enum ops_draw_kind kind;
    enum lab_class class;
    int64_t n;
    double scale;
    uint64_t seed, ordinal, first;
};
static const struct draw_case draw_cases[] = {
    {"ones", OPS_DRAW_ONE, LAB_ACT, 37, 0.3, 1, 2, 0},
    {"ones, a half step after f32", OPS_DRAW_ONE, LAB_BF16, 3, 1 + 0x1p-8 + 0x1p-40, 1, 2, 0},
    {"normal", OPS_DRAW_NORMAL, LAB_ACT, 1001, 0.02, 1, 2, 0},
    {"normal, stat", OPS_DRAW_NORMAL, LAB_STAT, 1001, 0.02, 1, 2, 0},
    {"normal, f64", OPS_DRAW_NORMAL, LAB_F64, 65, 0.02, UINT64_C(1) << 63, 2, 1},
    {"normal, f32", OPS_DRAW_NORMAL, LAB_F32, 65, 0.02, 5, UINT64_C(3) << 33, 7},
    {"normal, bf16", OPS_DRAW_NORMAL, LAB_BF16, 8193, 0.02, 5, UINT64_C(3) << 33, 7},
    {"normal, far into it", OPS_DRAW_NORMAL, LAB_STAT, 130, 1, 5, 6, (UINT64_C(1) << 34) + 3},
    /* Rounded to f32 first, element 114681 of normal and 9748 of uniform become another bf16. */
    {"normal, bf16 twice rounded", OPS_DRAW_NORMAL, LAB_BF16, 67, 0.02, 5, UINT64_C(3) << 33,
     114650},
    {"uniform, bf16 twice rounded", OPS_DRAW_UNIFORM, LAB_BF16, 67, 0.1, 3, 2, 9700},
    {"uniform", OPS_DRAW_UNIFORM, LAB_ACT, 130, 1.5, 3, 2, 0},
    {"uniform, bf16", OPS_DRAW_UNIFORM, LAB_BF16, 8193, 0.1, 3, 2, 5},
    {"uniform, stat", OPS_DRAW_UNIFORM, LAB_STAT, 4099, 0.1, 3, 2, 9},
    {"one element", OPS_DRAW_NORMAL, LAB_STAT, 1, 1, 3, 2, 10},
    {"none", OPS_DRAW_NORMAL, LAB_STAT, 0, 1, 3, 2, 10},
};

static void draw_make(struct lab *l, const void *data)
{
    const struct draw_case *c = data;
    struct ops_draw a = {.out = lab_new(l, "out", c->class, 1, c->n), .kind = c->kind,
                         .scale = c->scale, .seed = c->seed, .ordinal = c->ordinal,
                         .first = c->first};
    struct case_output *x = lab_out(l, "out", 0, a.out);
    lab_exact(x);
    x->by_f32 = true;
    LAB_CALL(l, draw, a);
}
LAB_CASES(draw, draw_cases, draw_make)
