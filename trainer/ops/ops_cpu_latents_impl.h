/* Computes the operations between latents [C, t, h, w] and tokens for REAL: patchify with input
 * scaling, its inverse, loss and noise. */
#ifndef TRAINER_OPS_OPS_CPU_LATENTS_IMPL_H
#define TRAINER_OPS_OPS_CPU_LATENTS_IMPL_H

#include "trainer/ops/math_impl.h"
#include "trainer/ops/rows_impl.h"

/* Holds the sizes that give the first cell of each token's patch in one channel [t, h, w] of a
 * sample. */
struct patch_walk {
    int64_t nt, nh, nw;       /* patches */
    int64_t row, plane, cells; /* cells of one row, frame and channel of the latent */
};

static struct patch_walk patch_walk_of(const struct ops_latents *a, const struct ops_sample *m)
{
    struct patch_walk p = {
        .nt = m->t / a->patch_t, .nh = m->h / a->patch_h, .nw = m->w / a->patch_w,
        .row = m->w, .plane = (int64_t)m->h * m->w, .cells = (int64_t)m->t * m->h * m->w};
    BUG_ON(m->first + m->n_tokens > p.nt * p.nh * p.nw);
    return p;
}

/* Returns the first cell of the patch of token m->first + row, in one channel. */
static int64_t patch_start(const struct ops_latents *a, const struct ops_sample *m,
                           const struct patch_walk *p, int64_t row)
{
    int64_t token = m->first + row;
    int64_t w = token % p->nw, h = token / p->nw % p->nh, t = token / p->nw / p->nh;
    return t * a->patch_t * p->plane + h * a->patch_h * p->row + w * a->patch_w;
}

/* Read one channel of a token's patch from the latent's cells (gather_patch), or write it there
 * (scatter_patch). gather_patch multiplies by `scale`, and adds to `out` if `add`. */
static void gather_patch(const struct ops_latents *a, const struct patch_walk *p, const REAL *cells,
                         REAL scale, bool add, REAL *out)
{
    for (int64_t t = 0; t < a->patch_t; t++)
        for (int64_t h = 0; h < a->patch_h; h++)
            for (int64_t w = 0; w < a->patch_w; w++, out++)
                *out = scale * cells[t * p->plane + h * p->row + w] + (add ? *out : 0);
}

static void scatter_patch(const struct ops_latents *a, const struct patch_walk *p, const REAL *in,
                          REAL *cells)
{
    for (int64_t t = 0; t < a->patch_t; t++)
        for (int64_t h = 0; h < a->patch_h; h++)
            for (int64_t w = 0; w < a->patch_w; w++)
                cells[t * p->plane + h * p->row + w] = *in++;
}

static void patchify_token(const struct ops_cpu *o, const struct ops_latents *a,
                           const struct ops_sample *m, const struct patch_walk *p, int64_t token)
{
    int64_t patch = a->patch_t * a->patch_h * a->patch_w, at = patch_start(a, m, p, token);
    const REAL *latent = row_of(&a->latent, 0) + m->cell * a->channels;
    const REAL *noise = row_of(&a->noise, 0) + m->cell * a->channels;
    const REAL *cond = a->cond.ptr ? row_of(&a->cond, 0) + m->cell * a->cond_channels : NULL;
    REAL *row = row_open(o, &a->tokens, m->token + token, SLOT_Y), *out = row;
    for (int64_t c = 0; c < a->channels; c++, out += patch) {
        gather_patch(a, p, latent + c * p->cells + at, (REAL)m->in_data, false, out);
        if (m->in_noise != 0)
            gather_patch(a, p, noise + c * p->cells + at, (REAL)m->in_noise, true, out);
    }
    for (int64_t c = 0; c < a->cond_channels; c++, out += patch) {
        if (cond)
            gather_patch(a, p, cond + c * p->cells + at, 1, false, out);
        else
            memset(out, 0, (size_t)patch * sizeof *out);
    }
    row_store(&a->tokens, m->token + token, row);
}

static void op_patchify(struct ops *o, struct dev_stream *s, const struct ops_latents *a)
{
    (void)s;
    BUG_ON(a->tokens.cols !=
           (a->channels + a->cond_channels) * a->patch_t * a->patch_h * a->patch_w);
    for (int64_t i = 0; i < a->n; i++) {
        struct patch_walk p = patch_walk_of(a, &a->samples[i]);
        for (int64_t k = 0; k < a->samples[i].n_tokens; k++)
            patchify_token((struct ops_cpu *)o, a, &a->samples[i], &p, k);
    }
}

static void op_unpatchify(struct ops *o, struct dev_stream *s, const struct ops_latents *a)
{
    (void)s;
    int64_t patch = a->patch_t * a->patch_h * a->patch_w;
    for (int64_t i = 0; i < a->n; i++) {
        const struct ops_sample *m = &a->samples[i];
        struct patch_walk p = patch_walk_of(a, m);
        REAL *out = row_of(&a->out, 0) + m->cell * a->channels;
        for (int64_t k = 0; k < m->n_tokens; k++) {
            const REAL *row = row_load((struct ops_cpu *)o, &a->tokens, m->token + k, SLOT_X);
            for (int64_t c = 0; c < a->channels; c++)
                scatter_patch(a, &p, row + c * patch, out + c * p.cells + patch_start(a, m, &p, k));
        }
    }
}

/* Returns how many of the patch_w cells at (t, h, w) .. (t, h, w + patch_w - 1) are not padding. */
static int64_t valid_cells(const struct ops_latents *a, const struct ops_sample *m, int64_t t,
                           int64_t h, int64_t w)
{
    int64_t left = t < m->valid_t && h < m->valid_h ? m->valid_w - w : 0;
    return left < 0 ? 0 : left < a->patch_w ? left : a->patch_w;
}

/* Sets a token's error to 0 in padding, whatever was predicted there. */
static void forgive_padding(const struct ops_latents *a, const struct ops_sample *m,
                            const struct patch_walk *p, int64_t token, REAL *error)
{
    int64_t place = m->first + token, w0 = place % p->nw * a->patch_w,
            h0 = place / p->nw % p->nh * a->patch_h, t0 = place / p->nw / p->nh * a->patch_t;
    if (t0 + a->patch_t <= m->valid_t && h0 + a->patch_h <= m->valid_h &&
        w0 + a->patch_w <= m->valid_w)
        return;
    for (int64_t c = 0, at = 0; c < a->channels; c++)
        for (int64_t t = t0; t < t0 + a->patch_t; t++)
            for (int64_t h = h0; h < h0 + a->patch_h; h++, at += a->patch_w)
                for (int64_t w = valid_cells(a, m, t, h, w0); w < a->patch_w; w++)
                    error[at + w] = 0;
}

/* Computes error and gradient of one token and returns the sum of squared errors. The row of
 * dtokens holds the target first, then the error, then the gradient. */
static double loss_token(const struct ops_cpu *o, const struct ops_latents *a,
                         const struct ops_sample *m, const struct patch_walk *p, int64_t token)
{
    int64_t patch = a->patch_t * a->patch_h * a->patch_w, at = patch_start(a, m, p, token),
            n = a->channels * patch;
    const REAL *latent = row_of(&a->latent, 0) + m->cell * a->channels;
    const REAL *noise = row_of(&a->noise, 0) + m->cell * a->channels;
    const REAL *restrict pred = row_load(o, &a->tokens, m->token + token, SLOT_X);
    REAL *restrict out = row_open(o, &a->dtokens, m->token + token, SLOT_Y);
    REAL slope = (REAL)(2 * m->weight * m->inv_norm);
    double sum = 0;
    for (int64_t c = 0; c < a->channels; c++) {
        gather_patch(a, p, latent + c * p->cells + at, (REAL)m->out_data, false, out + c * patch);
        gather_patch(a, p, noise + c * p->cells + at, (REAL)m->out_noise, true, out + c * patch);
    }
    for (int64_t j = 0; j < n; j++)
        out[j] = pred[j] - out[j];
    forgive_padding(a, m, p, token, out);
    for (int64_t j = 0; j < n; j++) {
        sum += (double)out[j] * (double)out[j];
        out[j] *= slope;
    }
    row_store(&a->dtokens, m->token + token, out);
    return sum;
}

static void op_loss(struct ops *o, struct dev_stream *s, const struct ops_latents *a)
{
    (void)s;
    for (int64_t i = 0; i < a->n; i++) {
        struct patch_walk p = patch_walk_of(a, &a->samples[i]);
        double sum = 0;
        for (int64_t k = 0; k < a->samples[i].n_tokens; k++)
            sum += loss_token((struct ops_cpu *)o, a, &a->samples[i], &p, k);
        a->loss[i] = sum;
    }
}

static void op_normal(struct ops *o, struct dev_stream *s, const struct ops_normal *a)
{
    (void)o, (void)s;
    enum { PIECE = 256 };
    double buf[PIECE];
    for (int64_t i = 0; i < a->n; i++) {
        const struct ops_sample *m = &a->samples[i];
        int64_t n = (int64_t)m->t * m->h * m->w * a->channels;
        REAL *out = row_of(&a->out, 0) + m->cell * a->channels;
        for (int64_t j = 0; j < n; j += PIECE) {
            int64_t k = n - j < PIECE ? n - j : PIECE;
            philox_normal_fill(a->seed, a->stream, m->ordinal, (uint64_t)j, (size_t)k, buf);
            for (int64_t e = 0; e < k; e++)
                out[j + e] = (REAL)buf[e];
        }
    }
}

#endif
