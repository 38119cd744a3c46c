#include "curator/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/npy.h"
#include "base/wds.h"
#include "curator/clip.h"

/* Holds what is needed to join shards. The index grows as they are written: hash, offsets, mean and
 * deviation are computed from the bytes while they are written. */
struct merge {
    const char *root;
    const struct source_conf *c;
    int64_t shard_bytes;
    struct wds_writer *writer; /* writes the last shard of d; NULL between shards */
    struct dataset d;          /* the existing shards, and those written so far */
    struct { double sum, sum_sq, n; } latents;
};

void shard_name(int64_t i, char out[SHARD_NAME_BYTES])
{
    snprintf(out, SHARD_NAME_BYTES, "shard-%06lld.tar", (long long)i);
}

static int shard_begin(struct merge *m, struct err *err)
{
    char name[SHARD_NAME_BYTES], path[LIMIT_PATH_BYTES];
    struct dataset *d = &m->d;
    struct dataset_shard *grown = realloc(d->shards, (size_t)(d->n_shards + 1) * sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory for the index");
    d->shards = grown;
    shard_name(d->n_shards, name);
    d->shards[d->n_shards] = (struct dataset_shard){.path = strdup(name)};
    if (!d->shards[d->n_shards].path)
        return err_set(err, ERR_NOMEM, "out of memory for the index");
    d->n_shards++;
    snprintf(path, sizeof path, "%s/%s", m->root, name);
    return wds_writer_open(path, &m->writer, err);
}

static int shard_end(struct merge *m, struct err *err)
{
    struct wds_writer *w = m->writer;
    struct wds_written made;
    m->writer = NULL;
    int rc = w ? wds_writer_close(w, &made, err) : 0;
    if (!w || rc < 0)
        return rc;
    struct dataset_shard *s = &m->d.shards[m->d.n_shards - 1];
    *s = (struct dataset_shard){s->path, made.samples, made.tar.hash.lo, made.tar.bytes};
    return 0;
}

/* ---- a sample ---- */

static void latent_tally(struct merge *m, const struct wds_part *npy)
{
    const struct source_conf *c = m->c;
    int64_t n = tokenizer_elements(c->tokenizer, c->frames, c->height, c->width);
    const char *payload = (const char *)npy->bytes + npy->n - n * (int64_t)sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, payload + i * (int64_t)sizeof v, sizeof v);
        m->latents.sum += v;
        m->latents.sum_sq += (double)v * v;
    }
    m->latents.n += (double)n;
}

/* Holds what all clips of a source have in common: the source, and its embedded caption. */
struct caption { const struct source *s; struct str npy; int64_t tokens; };

static int caption_embed(const struct source_conf *c, const struct source *s, struct caption *out,
                         struct err *err)
{
    int64_t bytes = (int64_t)strlen(s->caption), words = (bytes + 1) / 2; /* a blank parts words */
    int64_t most = words < c->text_len ? words : c->text_len;
    float *rows = malloc((size_t)(most * c->text_width + 1) * sizeof *rows);
    if (!rows)
        return err_set(err, ERR_NOMEM, "out of memory for the caption of %s", s->name);
    out->s = s;
    out->tokens = c->encoder->encode(s->caption, c->text_width, most, rows);
    npy_format(rows, (const int64_t[]){out->tokens, c->text_width}, 2, &out->npy);
    free(rows);
    return str_check(&out->npy, err);
}

/* Holds the parts of a sample in the order in which they are written. */
enum { PART_JSON, PART_LATENT, PART_TEXT, PART_TXT, PARTS };

/* Adds the sample that was written last to the index. `offset` is where it begins in its shard. */
static void sample_index(struct merge *m, const char *key, const struct wds_part *parts,
                         const struct clip *k, int64_t text_len, int64_t offset)
{
    const struct source_conf *c = m->c;
    const struct wds_part *latent = &parts[PART_LATENT], *text = &parts[PART_TEXT];
    struct dataset_shard *shard = &m->d.shards[m->d.n_shards - 1];
    m->d.samples[m->d.n_samples++] = (struct dataset_sample){
        .shard = (uint32_t)(m->d.n_shards - 1), .index_in_shard = (uint32_t)shard->samples++,
        .offset = offset, .bytes = wds_writer_bytes(m->writer) - offset,
        .latent_offset = latent->data_offset, .latent_bytes = latent->n,
        .text_offset = text->data_offset, .text_bytes = text->n,
        .t = (int32_t)tokenizer_latent_frames(c->frames), .h = c->height / 8, .w = c->width / 8,
        .frames = (int32_t)c->frames, .height = c->height, .width = c->width,
        .text_len = (int32_t)text_len,
        .fps = (float)k->fps, .motion = (float)k->motion, .sharpness = (float)k->sharpness,
        .key_hash = hash_64(key, strlen(key))};
    latent_tally(m, latent);
}

/* Writes a clip as a sample of the dataset: what its work has, and name and caption of its
 * source. */
static int sample_write(struct merge *m, const char *key, const struct clip *k,
                        const struct str *latent, const struct caption *about, struct err *err)
{
    const char *txt = about->s->caption;
    struct str json = STR_INIT;
    int rc;
    clip_format(m->c, about->s, k, about->tokens, &json);
    struct wds_part parts[PARTS] = {
        [PART_JSON] = {"json", json.p, (int64_t)json.len},
        [PART_LATENT] = {"latent.npy", latent->p, (int64_t)latent->len},
        [PART_TEXT] = {"text.npy", about->npy.p, (int64_t)about->npy.len},
        [PART_TXT] = {"txt", txt, (int64_t)strlen(txt)}};
    int64_t offset = wds_writer_bytes(m->writer);
    if ((rc = str_check(&json, err)) < 0)
        goto out;
    if ((rc = wds_writer_add(m->writer, key, parts, *txt ? PARTS : PARTS - 1, err)) < 0)
        goto out;
    sample_index(m, key, parts, k, about->tokens, offset);
out:
    str_release(&json);
    return rc;
}

static int sample_copy(struct merge *m, struct wds_reader *r, int64_t i,
                       const struct caption *about, struct err *err)
{
    struct wds_sample s;
    struct str latent = STR_INIT, facts = STR_INIT;
    struct clip k;
    int rc;
    if (m->writer && wds_writer_bytes(m->writer) >= m->shard_bytes && (rc = shard_end(m, err)) < 0)
        return rc;
    if (!m->writer && (rc = shard_begin(m, err)) < 0)
        return rc;
    if ((rc = wds_reader_sample(r, i, &s, err)) < 0)
        return rc;
    if ((rc = wds_reader_part(r, &s, "latent.npy", &latent, err)) < 0)
        goto out;
    if ((rc = wds_reader_part(r, &s, "json", &facts, err)) < 0)
        goto out;
    if ((rc = clip_facts_parse(facts.p, facts.len, s.key, &k, err)) < 0)
        goto out;
    rc = sample_write(m, s.key, &k, &latent, about, err);
out:
    str_release(&latent);
    str_release(&facts);
    return rc;
}

static int samples_room(struct dataset *d, int64_t more, struct err *err)
{
    struct dataset_sample *grown =
        realloc(d->samples, (size_t)(d->n_samples + more) * sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory for the index");
    d->samples = grown;
    return 0;
}

static int source_copy(struct merge *m, const struct source *s, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct wds_reader *r = NULL;
    struct caption about = {.npy = STR_INIT};
    int rc;
    source_shard_path(m->c, s, path);
    if ((rc = caption_embed(m->c, s, &about, err)) < 0)
        goto out;
    if ((rc = wds_reader_open(path, &r, err)) < 0)
        goto out;
    int64_t n = wds_reader_count(r);
    if ((rc = samples_room(&m->d, n, err)) < 0)
        goto out;
    for (int64_t i = 0; i < n; i++)
        if ((rc = sample_copy(m, r, i, &about, err)) < 0)
            goto out;
out:
    wds_reader_close(r);
    str_release(&about.npy);
    return rc;
}

/* ---- the index ---- */

/* Copies the index of the existing dataset. Sums of its latents are recomputed from its mean and
 * deviation, which, up to rounding, gives the same as reading the latents again. */
static int base_take(struct merge *m, const struct dataset *base, struct err *err)
{
    struct dataset *d = &m->d;
    d->fingerprint = base->fingerprint; /* until its new index is written */
    d->shards = calloc((size_t)base->n_shards + 1, sizeof *d->shards);
    d->samples = calloc((size_t)base->n_samples + 1, sizeof *d->samples);
    if (!d->shards || !d->samples)
        return err_set(err, ERR_NOMEM, "out of memory for the index");
    for (int64_t i = 0; i < base->n_samples; i++) {
        const struct dataset_sample *s = &base->samples[i];
        d->samples[d->n_samples++] = *s;
        m->latents.n += (double)(base->channels * s->t * s->h * s->w);
    }
    m->latents.sum = m->latents.n * base->latent_mean;
    m->latents.sum_sq = m->latents.n * (base->latent_std * base->latent_std +
                                        base->latent_mean * base->latent_mean);
    for (; d->n_shards < base->n_shards; d->n_shards++) {
        d->shards[d->n_shards] = base->shards[d->n_shards];
        if (!(d->shards[d->n_shards].path = strdup(base->shards[d->n_shards].path)))
            return err_set(err, ERR_NOMEM, "out of memory for the index");
    }
    return 0;
}

static void index_begin(struct merge *m)
{
    m->d.channels = m->c->tokenizer->channels;
    m->d.text_width = m->c->text_width;
    snprintf(m->d.tokenizer, sizeof m->d.tokenizer, "%s", m->c->tokenizer->name);
    snprintf(m->d.text_encoder, sizeof m->d.text_encoder, "%s", m->c->encoder->name);
}

static void index_end(struct merge *m)
{
    double mean = m->latents.sum / m->latents.n;
    m->d.latent_mean = mean;
    m->d.latent_std = sqrt(fmax(m->latents.sum_sq / m->latents.n - mean * mean, 1e-12));
}

int shards_meta_save(const char *root, const struct dataset *d, struct err *err)
{
    struct wds_shard *shards = calloc((size_t)d->n_shards, sizeof *shards);
    if (!shards)
        return err_set(err, ERR_NOMEM, "out of memory for %lld shards", (long long)d->n_shards);
    for (int64_t i = 0; i < d->n_shards; i++)
        shards[i] = (struct wds_shard){d->shards[i].path, d->shards[i].samples};
    int rc = wds_meta_save(root, shards, (size_t)d->n_shards, err);
    free(shards);
    return rc;
}

int shards_write(const char *root, const struct source_conf *c, const struct source *sources,
                 const struct source_result *results, int64_t n, int64_t shard_bytes,
                 const struct dataset *base, struct dataset *out, struct err *err)
{
    static const struct dataset none;
    struct merge m = {.root = root, .c = c, .shard_bytes = shard_bytes};
    int rc;
    index_begin(&m);
    if ((rc = base_take(&m, base ? base : &none, err)) < 0)
        goto out;
    for (int64_t i = 0; i < n; i++)
        if (results[i].clips > 0 && (rc = source_copy(&m, &sources[i], err)) < 0)
            goto out;
    if ((rc = shard_end(&m, err)) < 0)
        goto out;
    index_end(&m);
    *out = m.d;
    m.d = (struct dataset){0};
out:
    wds_writer_abort(m.writer);
    dataset_release(&m.d);
    return rc;
}
