#include "curator/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/wds.h"

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

static const struct wds_part *part_find(const struct wds_part *parts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(parts[i].name, name) == 0)
            return &parts[i];
    return NULL;
}

/* Adds the sample that was written last to the index. `offset` is where it begins in its shard. */
static int sample_index(struct merge *m, const char *key, const struct wds_part *parts, size_t n,
                        int64_t offset, struct err *err)
{
    const struct source_conf *c = m->c;
    const struct wds_part *json = part_find(parts, n, "json");
    const struct wds_part *latent = part_find(parts, n, "latent.npy");
    const struct wds_part *text = part_find(parts, n, "text.npy");
    struct dataset_shard *shard = &m->d.shards[m->d.n_shards - 1];
    struct json_doc doc = {0};
    if (!json || !latent || !text)
        return err_set(err, ERR_CORRUPT,
                       "sample '%s' has no json, no latent.npy or no text.npy: remove '%s'", key,
                       c->work_dir);
    int rc = json_parse(json->bytes, (size_t)json->n, key, &doc, err);
    if (rc < 0)
        return rc;
    m->d.samples[m->d.n_samples++] = (struct dataset_sample){
        .shard = (uint32_t)(m->d.n_shards - 1), .index_in_shard = (uint32_t)shard->samples++,
        .offset = offset, .bytes = wds_writer_bytes(m->writer) - offset,
        .latent_offset = latent->data_offset, .latent_bytes = latent->n,
        .text_offset = text->data_offset, .text_bytes = text->n,
        .t = (int32_t)tokenizer_latent_frames(c->frames), .h = c->height / 8, .w = c->width / 8,
        .frames = (int32_t)c->frames, .height = c->height, .width = c->width,
        .text_len = (int32_t)json_int(doc.root, "text_len", 0),
        .fps = (float)json_num(doc.root, "fps", 24),
        .motion = (float)json_num(doc.root, "motion", 0),
        .sharpness = (float)json_num(doc.root, "sharpness", 0),
        .key_hash = hash_64(key, strlen(key))};
    latent_tally(m, latent);
    json_release(&doc);
    return 0;
}

static int sample_write(struct merge *m, const char *key, struct wds_part *parts, size_t n,
                        struct err *err)
{
    int rc;
    if (m->writer && wds_writer_bytes(m->writer) >= m->shard_bytes && (rc = shard_end(m, err)) < 0)
        return rc;
    if (!m->writer && (rc = shard_begin(m, err)) < 0)
        return rc;
    int64_t offset = wds_writer_bytes(m->writer);
    if ((rc = wds_writer_add(m->writer, key, parts, n, err)) < 0)
        return rc;
    return sample_index(m, key, parts, n, offset, err);
}

enum { PARTS_MAX = 8 };

static int sample_copy(struct merge *m, struct wds_reader *r, int64_t i, struct err *err)
{
    struct wds_sample s;
    struct str bytes[PARTS_MAX];
    struct wds_part parts[PARTS_MAX];
    size_t n = 0;
    int rc;
    if ((rc = wds_reader_sample(r, i, &s, err)) < 0)
        return rc;
    if (s.n_parts > PARTS_MAX)
        return err_set(err, ERR_CORRUPT, "sample '%s' has %zu parts: remove '%s'", s.key,
                       s.n_parts, m->c->work_dir);
    while (n < s.n_parts) {
        const char *name = s.parts[n].name;
        struct str *to = &bytes[n++];
        *to = (struct str)STR_INIT;
        if ((rc = wds_reader_part(r, &s, name, to, err)) < 0)
            goto out;
        parts[n - 1] = (struct wds_part){name, to->p, (int64_t)to->len, 0};
    }
    rc = sample_write(m, s.key, parts, n, err);
out:
    while (n > 0)
        str_release(&bytes[--n]);
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
    int rc;
    source_shard_path(m->c, s, path);
    if ((rc = wds_reader_open(path, &r, err)) < 0)
        return rc;
    int64_t n = wds_reader_count(r);
    if ((rc = samples_room(&m->d, n, err)) < 0)
        goto out;
    for (int64_t i = 0; i < n; i++)
        if ((rc = sample_copy(m, r, i, err)) < 0)
            goto out;
out:
    wds_reader_close(r);
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
