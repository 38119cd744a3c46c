#include "trainer/data/loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/philox.h"
#include "profiles/flops.h"
#include "profiles/pack.h"
#include "trainer/data/loader_source.h"
#include "trainer/data/objective.h"

_Static_assert(RUN_DRAWS_MAX == INT64_C(1) << LOADER_MEMBER_SHIFT,
               "a draw's ordinal is below a member's number");

/* Holds the FLOPs of a sample without its caption, and of one token of a caption. */
struct cost { double flops, per_text; };

struct loader {
    struct loader_source source;
    const struct run *run;
    struct packs packs;      /* n 0: `together` consecutive samples are a pack */
    int64_t together;
    struct cost *costs;      /* one entry for each sample; a single one for synthetic data */
    int64_t mbs;
    /* the most that a pack holds, padding included */
    struct { int64_t samples, elements, tokens, text; } most;
    int64_t segment;
    float *latents, *conds, *texts; /* payloads of mbs packs, sample after sample */
    struct batch_sample *samples;
    /* the micro-batch that loader_ahead has read; n 0: none */
    struct loader_ahead { int64_t first, n, samples; uint64_t ordinal_base; } ahead;
    int64_t bytes;
};

/* Holds a sample's shape in the model: its latent cells with padding (cells) and without
 * (valid). */
struct shape { int64_t cells[3], valid[3], text_len; struct seq seq; double fps; };

static int64_t volume(const int64_t thw[3]) { return thw[0] * thw[1] * thw[2]; }

static struct shape shape_of(const struct loader *l, int64_t sample)
{
    const struct model *m = &l->run->model;
    struct loader_item item = loader_source_item(&l->source, sample);
    struct shape s = {.text_len = item.text_len, .fps = item.fps};
    memcpy(s.valid, item.thw, sizeof s.valid);
    model_pad_latent(m, s.valid, s.cells);
    s.seq = (struct seq){s.cells[0] / m->patch_t, s.cells[1] / m->patch_h, s.cells[2] / m->patch_w};
    return s;
}

/* ---- packs ---- */

int64_t loader_packs(const struct loader *l)
{
    return l->packs.n ? l->packs.n : loader_source_count(&l->source) / l->together;
}

static int64_t pack_samples(const struct loader *l, int64_t pack)
{
    return l->packs.n ? l->packs.first[pack + 1] - l->packs.first[pack] : l->together;
}

int64_t loader_sample(const struct loader *l, int64_t pack, int64_t member)
{
    return l->packs.n ? l->packs.members[l->packs.first[pack] + member]
                      : pack * l->together + member;
}

struct loader_draw loader_draw(const struct loader *l, int64_t draw)
{
    uint64_t n = (uint64_t)loader_packs(l);
    struct loader_draw d = {
        .pack = (int64_t)philox_permute(l->run->seed, (uint64_t)draw / n, n, (uint64_t)draw % n)};
    d.samples = pack_samples(l, d.pack);
    for (int64_t j = 0; j < d.samples; j++) {
        int64_t sample = loader_sample(l, d.pack, j);
        struct shape s = shape_of(l, sample);
        d.tokens += seq_tokens(s.seq);
        d.elements += l->run->model.latent_channels * volume(s.valid);
    }
    return d;
}

static uint64_t ordinal_of(uint64_t base, int64_t draw, int64_t member)
{
    return (base + (uint64_t)draw) | (uint64_t)member << LOADER_MEMBER_SHIFT;
}

double loader_flops(const struct loader *l, int64_t draw, uint64_t ordinal_base)
{
    struct loader_draw d = loader_draw(l, draw);
    double flops = 0;
    for (int64_t j = 0; j < d.samples; j++) {
        int64_t sample = loader_sample(l, d.pack, j),
                text = loader_source_item(&l->source, sample).text_len;
        const struct cost *w = &l->costs[l->source.is_synthetic ? 0 : sample];
        bool null_token =
            text == 0 || objective_text_dropped(l->run->seed, ordinal_of(ordinal_base, draw, j),
                                                l->run->text_dropout);
        flops += w->flops + w->per_text * (null_token ? 1 : (double)text);
    }
    return flops;
}

/* ---- opening ---- */

static int measure_sample(struct loader *l, int64_t i, int64_t *tokens, struct err *err)
{
    struct shape s = shape_of(l, i);
    struct seq seq;
    struct flops none, one;
    int rc = seq_from_latent(&l->run->model, s.cells[0], s.cells[1], s.cells[2], &seq, err);
    if (rc < 0)
        return err_context(err, "%s: sample %lld", l->source.root, (long long)i);
    if ((rc = flops_reel_sample(&l->run->model, seq, 0, &none, err)) < 0 ||
        (rc = flops_reel_sample(&l->run->model, seq, 1, &one, err)) < 0)
        return rc;
    l->costs[i] = (struct cost){none.total, one.total - none.total};
    l->segment = num_max_i64(l->segment, seq_longest_segment(seq));
    *tokens = seq_tokens(seq);
    return 0;
}

/* Sets how many synthetic samples, which all have the same shape, make a pack: as many as fit. */
static int pack_made(struct loader *l, int64_t tokens, int64_t pack_tokens, struct err *err)
{
    l->together = pack_tokens ? num_min_i64(pack_tokens / tokens, PACK_SAMPLES_MAX) : 1;
    return l->together > 0
               ? 0
               : err_set(err, ERR_INPUT,
                         "a sample has %lld tokens, a pack takes %lld: give a larger pack_tokens",
                         (long long)tokens, (long long)pack_tokens);
}

/* Builds the packs that draws come from, given how many tokens each sample has. */
static int packs_make(struct loader *l, const struct run_stage *stage, const int64_t *tokens,
                      int64_t n, struct err *err)
{
    int rc;
    if (l->source.is_synthetic)
        return pack_made(l, tokens[0], stage->pack_tokens, err);
    if (!stage->pack_tokens)
        return 0;
    if ((rc = packs_build(tokens, n, stage->pack_tokens, l->run->seed, &l->packs, err)) < 0)
        err_context(err, "%s", l->source.root);
    return rc;
}

static int measure(struct loader *l, const struct run_stage *stage, struct err *err)
{
    int64_t n = l->source.is_synthetic ? 1 : loader_source_count(&l->source),
            *tokens = calloc((size_t)n, sizeof *tokens);
    int rc;
    l->costs = calloc((size_t)n, sizeof *l->costs);
    if (!l->costs || !tokens) {
        rc = err_set(err, ERR_NOMEM, "out of memory for %lld samples", (long long)n);
        goto out;
    }
    for (int64_t i = 0; i < n; i++)
        if ((rc = measure_sample(l, i, &tokens[i], err)) < 0)
            goto out;
    rc = packs_make(l, stage, tokens, n, err);
out:
    free(tokens);
    return rc;
}

static void measure_packs(struct loader *l)
{
    for (int64_t k = 0; k < (l->source.is_synthetic ? 1 : loader_packs(l)); k++) {
        int64_t n = pack_samples(l, k), tokens = 0, elements = 0, text = 0;
        for (int64_t j = 0; j < n; j++) {
            struct shape s = shape_of(l, loader_sample(l, k, j));
            tokens += seq_tokens(s.seq);
            elements += l->run->model.latent_channels * volume(s.cells);
            text += s.text_len;
        }
        l->most.samples = num_max_i64(l->most.samples, n);
        l->most.tokens = num_max_i64(l->most.tokens, tokens);
        l->most.elements = num_max_i64(l->most.elements, elements);
        l->most.text = num_max_i64(l->most.text, text);
    }
}

static int buffers_take(struct loader *l, struct err *err)
{
    const struct model *m = &l->run->model;
    int64_t latent = l->mbs * l->most.elements, text = l->mbs * l->most.text * m->text_width,
            samples = l->mbs * l->most.samples;
    int64_t cond = latent / m->latent_channels * m->cond_channels,
            stored = l->source.is_synthetic ? 0 : loader_source_count(&l->source);
    l->latents = calloc((size_t)latent, sizeof *l->latents);
    l->conds = calloc((size_t)cond + 1, sizeof *l->conds);
    l->texts = calloc((size_t)text + 1, sizeof *l->texts);
    l->samples = calloc((size_t)samples, sizeof *l->samples);
    l->bytes = (latent + cond + text) * (int64_t)sizeof(float) + l->source.raw_bytes +
               samples * (int64_t)sizeof *l->samples +
               stored * (int64_t)(sizeof *l->costs + sizeof *l->source.data->samples) +
               packs_bytes(&l->packs);
    return l->latents && l->conds && l->texts && l->samples
               ? 0
               : err_set(err, ERR_NOMEM, "out of memory for the loader's buffers");
}

int loader_open(const struct run *run, const struct run_stage *stage, struct datasets *set,
                int64_t mbs, bool verify, int rank, int world, struct loader **out,
                struct err *err)
{
    struct loader *l = calloc(1, sizeof *l);
    int rc;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory");
    *l = (struct loader){.run = run, .mbs = mbs, .together = 1, .source.fd = -1};
    if ((rc = loader_source_open(&l->source, run, stage->data, set, stage->data_fingerprint,
                                 verify, rank, world, err)) < 0)
        goto out;
    if ((rc = measure(l, stage, err)) < 0)
        goto out;
    measure_packs(l);
    if ((rc = buffers_take(l, err)) < 0)
        goto out;
    *out = l;
    l = NULL; /* the caller owns it now */
out:
    loader_close(l);
    return rc;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    loader_source_close(&l->source);
    packs_release(&l->packs);
    free(l->costs);
    free(l->latents);
    free(l->conds);
    free(l->texts);
    free(l->samples);
    free(l);
}

struct loader_bounds loader_bounds(const struct loader *l)
{
    return (struct loader_bounds){l->mbs * l->most.tokens, l->mbs * l->most.samples,
                                  l->mbs * l->most.text, l->mbs * l->most.elements, l->segment};
}

int64_t loader_bytes(const struct loader *l)
{
    return l->bytes;
}

/* ---- reading ---- */

/* Pads a latent in place, from [C, valid] as stored to [C, cells]. It moves the rows, the last one
 * first, and writes zeros after each. */
static void pad(const struct shape *s, int64_t channels, float *x)
{
    const int64_t *c = s->cells, *v = s->valid;
    int64_t end = channels * volume(c);
    for (int64_t row = channels * v[0] * v[1] - 1; row >= 0; row--) {
        int64_t h = row % v[1], t = row / v[1] % v[0], ch = row / v[1] / v[0],
                to = ((ch * c[0] + t) * c[1] + h) * c[2];
        memmove(x + to, x + row * v[2], (size_t)v[2] * sizeof *x);
        memset(x + to + v[2], 0, (size_t)(end - to - v[2]) * sizeof *x);
        end = to;
    }
}

/* Marks cells [0, frames) x [0, h) x [0, w) of one channel. */
static void mask_box(const struct shape *s, int64_t frames, int64_t h, int64_t w, float *x)
{
    for (int64_t t = 0; t < frames; t++)
        for (int64_t r = 0; r < h; r++)
            for (int64_t k = 0; k < w; k++)
                x[(t * s->cells[1] + r) * s->cells[2] + k] = 1;
}

/* Fills the conditioning channels of a sample whose latent is in place: its first frames and their
 * mask, and the padding mask. */
static void condition(const struct loader *l, const struct shape *s, uint64_t ordinal,
                      const float *latent, float *cond)
{
    const struct run *r = l->run;
    int64_t cells = volume(s->cells), frames = r->condition_frames, C = r->model.latent_channels;
    memset(cond, 0, (size_t)(r->model.cond_channels * cells) * sizeof *cond);
    if (model_cond_frames(&r->model)) {
        if (s->valid[0] > frames &&
            objective_conditioned(r->seed, ordinal, r->condition_probability)) {
            for (int64_t c = 0; c < C; c++)
                memcpy(cond + c * cells, latent + c * cells,
                       (size_t)(frames * s->cells[1] * s->cells[2]) * sizeof *cond);
            mask_box(s, frames, s->valid[1], s->valid[2], cond + C * cells);
        }
        cond += (C + 1) * cells;
    }
    if (model_cond_padding(&r->model))
        mask_box(s, s->valid[0], s->valid[1], s->valid[2], cond);
}

/* Describes a sample from the index alone. Its latent begins at cell `cell` of the buffers, its
 * caption at token `text`. */
static struct batch_sample describe(const struct loader *l, const struct shape *s, uint64_t ordinal,
                                    int64_t cell, int64_t text)
{
    const struct run *r = l->run;
    double elements = (double)(r->model.latent_channels * volume(s->valid));
    return (
        struct batch_sample){.ordinal = ordinal,
                             .latent = l->latents + cell * r->model.latent_channels,
                             .cond = r->model.cond_channels
                                         ? l->conds + cell * r->model.cond_channels
                                         : NULL,
                             .t = (int32_t)s->cells[0],
                             .h = (int32_t)s->cells[1],
                             .w = (int32_t)s->cells[2],
                             .valid_t = (int32_t)s->valid[0],
                             .valid_h = (int32_t)s->valid[1],
                             .valid_w = (int32_t)s->valid[2],
                             .text = l->texts + text * r->model.text_width,
                             .text_len = (int32_t)s->text_len,
                             .fps = s->fps,
                             .level = objective_level_draw(r->seed, ordinal, &r->level,
                                                           seq_tokens(s->seq)),
                             .drop_text = objective_text_dropped(r->seed, ordinal, r->text_dropout),
                             .loss_weight = r->loss_norm == LOSS_NORM_SAMPLE ? 1 / elements : 1};
}

/* Describes all samples of the draws, without payloads. Returns how many there are. */
static int64_t describe_all(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base)
{
    int64_t at = 0, cell = 0, text = 0;
    for (int64_t i = first; i < first + n; i++) {
        struct loader_draw d = loader_draw(l, i);
        for (int64_t j = 0; j < d.samples; j++) {
            struct shape s = shape_of(l, loader_sample(l, d.pack, j));
            l->samples[at++] = describe(l, &s, ordinal_of(ordinal_base, i, j), cell, text);
            cell += volume(s.cells);
            text += s.text_len;
        }
    }
    return at;
}

static int fill(struct loader *l, int64_t sample, const struct batch_sample *b, struct err *err)
{
    struct shape s = shape_of(l, sample);
    float *latent = l->latents + (b->latent - l->latents), *text = l->texts + (b->text - l->texts);
    int rc = loader_source_read(&l->source, sample, latent, text, err);
    if (rc < 0)
        return rc;
    if (memcmp(s.cells, s.valid, sizeof s.cells) != 0)
        pad(&s, l->run->model.latent_channels, latent);
    if (b->cond)
        condition(l, &s, b->ordinal, latent, l->conds + (b->cond - l->conds));
    return 0;
}

void loader_describe(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base,
                     struct batch *out)
{
    BUG_ON(n > l->mbs);
    l->ahead.n = 0;
    *out = (struct batch){l->samples, describe_all(l, first, n, ordinal_base)};
}

void loader_ahead(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base)
{
    struct batch b;
    struct err none;
    if (loader_read(l, first, n, ordinal_base, &b, &none) == 0)
        l->ahead = (struct loader_ahead){first, n, b.n, ordinal_base};
}

int loader_read(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base,
                struct batch *out, struct err *err)
{
    struct loader_ahead ahead = l->ahead;
    int rc;
    BUG_ON(n > l->mbs);
    l->ahead.n = 0;
    if (ahead.n > 0 && ahead.n == n && ahead.first == first && ahead.ordinal_base == ordinal_base) {
        *out = (struct batch){l->samples, ahead.samples};
        return 0;
    }
    *out = (struct batch){l->samples, describe_all(l, first, n, ordinal_base)};
    for (int64_t i = first, at = 0; i < first + n; i++) {
        struct loader_draw d = loader_draw(l, i);
        for (int64_t j = 0; j < d.samples; j++, at++)
            if ((rc = fill(l, loader_sample(l, d.pack, j), &l->samples[at], err)) < 0)
                return rc;
    }
    return 0;
}
