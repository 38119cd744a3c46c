#include "curator/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/wds.h"

struct merge {
    const char *root;
    const struct source_conf *c;
    int64_t shard_bytes, first; /* first: number of the first shard */
    struct wds_writer *writer;
    struct wds_shard *shards;
    int64_t n_shards, n_samples;
};

void shard_name(int64_t i, char out[SHARD_NAME_BYTES])
{
    snprintf(out, SHARD_NAME_BYTES, "shard-%06lld.tar", (long long)i);
}

static int shard_begin(struct merge *m, struct err *err)
{
    char name[SHARD_NAME_BYTES], path[LIMIT_PATH_BYTES];
    struct wds_shard *grown = realloc(m->shards, (size_t)(m->n_shards + 1) * sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory");
    m->shards = grown;
    shard_name(m->first + m->n_shards, name);
    m->shards[m->n_shards] = (struct wds_shard){strdup(name), 0};
    if (!m->shards[m->n_shards].path)
        return err_set(err, ERR_NOMEM, "out of memory");
    m->n_shards++;
    snprintf(path, sizeof path, "%s/%s", m->root, name);
    return wds_writer_open(path, &m->writer, err);
}

static int shard_end(struct merge *m, struct err *err)
{
    struct wds_writer *w = m->writer;
    if (!w)
        return 0;
    m->writer = NULL;
    m->shards[m->n_shards - 1].samples = wds_writer_samples(w);
    return wds_writer_close(w, err);
}

enum { PARTS_MAX = 8 };

static int sample_copy(struct merge *m, struct wds_reader *r, int64_t i, struct err *err)
{
    struct wds_sample s;
    struct str parts[PARTS_MAX];
    struct wds_part out[PARTS_MAX];
    size_t n = 0;
    int rc = wds_reader_sample(r, i, &s, err);
    if (rc == 0 && s.n_parts > PARTS_MAX)
        rc = err_set(err, ERR_CORRUPT, "sample '%s' has %zu parts", s.key, s.n_parts);
    for (; rc == 0 && n < s.n_parts; n++) {
        parts[n] = (struct str)STR_INIT;
        rc = wds_reader_part(r, &s, s.parts[n].name, &parts[n], err);
        out[n] = (struct wds_part){s.parts[n].name, parts[n].p, (int64_t)parts[n].len};
    }
    if (rc == 0 && m->writer && wds_writer_bytes(m->writer) >= m->shard_bytes)
        rc = shard_end(m, err);
    if (rc == 0 && !m->writer)
        rc = shard_begin(m, err);
    if (rc == 0)
        rc = wds_writer_add(m->writer, s.key, out, n, err);
    while (n > 0)
        str_release(&parts[--n]);
    m->n_samples += rc == 0;
    return rc;
}

static int source_copy(struct merge *m, const struct source *s, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct wds_reader *r = NULL;
    source_shard_path(m->c, s, path);
    int rc = wds_reader_open(path, &r, err);
    for (int64_t i = 0; rc == 0 && i < wds_reader_count(r); i++)
        rc = sample_copy(m, r, i, err);
    wds_reader_close(r);
    return rc;
}

/* ---- the index, from the finished shards ---- */

struct tally { double sum, sum_sq, n; };

static void latent_tally(const struct str *npy, int64_t elements, struct tally *t)
{
    const char *payload = npy->p + npy->len - (size_t)elements * sizeof(float);
    for (int64_t i = 0; i < elements; i++) {
        float v;
        memcpy(&v, payload + (size_t)i * sizeof v, sizeof v);
        t->sum += v;
        t->sum_sq += (double)v * v;
    }
    t->n += (double)elements;
}

static void part_place(const struct wds_sample *s, const char *name, int64_t *offset, int64_t *bytes)
{
    for (size_t i = 0; i < s->n_parts; i++)
        if (strcmp(s->parts[i].name, name) == 0)
            *offset = s->parts[i].data_offset, *bytes = s->parts[i].bytes;
}

static int sample_index(struct wds_reader *r, int64_t shard, int64_t i, const struct source_conf *c, struct dataset_sample *out,
                        struct tally *tally, struct err *err)
{
    struct wds_sample s;
    struct str json = STR_INIT, latent = STR_INIT;
    struct json_doc doc = {0};
    int rc = wds_reader_sample(r, i, &s, err);
    if (rc == 0)
        rc = wds_reader_part(r, &s, "json", &json, err);
    if (rc == 0)
        rc = wds_reader_part(r, &s, "latent.npy", &latent, err);
    if (rc == 0)
        rc = json_parse(json.p, json.len, s.key, &doc, err);
    if (rc == 0) {
        *out = (struct dataset_sample){
            .shard = (uint32_t)shard, .index_in_shard = (uint32_t)i, .offset = s.offset, .bytes = s.bytes,
            .t = (int32_t)tokenizer_latent_frames(c->frames), .h = c->height / 8, .w = c->width / 8,
            .frames = (int32_t)c->frames, .height = c->height, .width = c->width,
            .text_len = (int32_t)json_int(doc.root, "text_len", 0), .fps = (float)json_num(doc.root, "fps", 24),
            .motion = (float)json_num(doc.root, "motion", 0), .sharpness = (float)json_num(doc.root, "sharpness", 0),
            .key_hash = hash_64(s.key, strlen(s.key))};
        part_place(&s, "latent.npy", &out->latent_offset, &out->latent_bytes);
        part_place(&s, "text.npy", &out->text_offset, &out->text_bytes);
        latent_tally(&latent, tokenizer_elements(c->tokenizer, c->frames, c->height, c->width), tally);
    }
    json_release(&doc);
    str_release(&json);
    str_release(&latent);
    return rc;
}

/* at: number of the shard's first sample in the whole index. */
static int shard_index(struct merge *m, int64_t i, struct dataset *d, int64_t *at, struct tally *tally, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct wds_reader *r = NULL;
    struct hash128 hash;
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", m->root, m->shards[i].path);
    int rc = hash_file(path, &hash, err);
    if (rc == 0 && stat(path, &st) < 0)
        rc = err_set_errno(err, ERR_IO, "cannot read '%s'", path);
    if (rc == 0)
        d->shards[m->first + i] = (struct dataset_shard){strdup(m->shards[i].path), m->shards[i].samples, hash.lo, (int64_t)st.st_size};
    if (rc == 0)
        rc = wds_reader_open(path, &r, err);
    for (int64_t k = 0; rc == 0 && k < m->shards[i].samples; k++)
        rc = sample_index(r, m->first + i, k, m->c, &d->samples[(*at)++], tally, err);
    wds_reader_close(r);
    return rc;
}

/* What the index of a dataset says of its latents is what reading them again would say. */
static int base_take(const struct dataset *base, struct dataset *d, struct tally *tally, struct err *err)
{
    for (int64_t i = 0; i < base->n_samples; i++) {
        const struct dataset_sample *s = &base->samples[i];
        d->samples[i] = *s;
        tally->n += (double)(base->channels * s->t * s->h * s->w);
    }
    tally->sum = tally->n * base->latent_mean;
    tally->sum_sq = tally->n * (base->latent_std * base->latent_std + base->latent_mean * base->latent_mean);
    for (int64_t i = 0; i < base->n_shards; i++) {
        d->shards[i] = base->shards[i];
        if (!(d->shards[i].path = strdup(base->shards[i].path)))
            return err_set(err, ERR_NOMEM, "out of memory for the index");
    }
    return 0;
}

static int index_make(struct merge *m, const struct dataset *base, struct dataset *out, struct err *err)
{
    struct dataset d = {.n_shards = m->first + m->n_shards, .n_samples = base->n_samples + m->n_samples, .channels = m->c->tokenizer->channels,
                        .text_width = m->c->text_width};
    struct tally tally = {0};
    int64_t at = base->n_samples;
    d.shards = calloc((size_t)d.n_shards, sizeof *d.shards);
    d.samples = calloc((size_t)d.n_samples, sizeof *d.samples);
    int rc = d.shards && d.samples ? base_take(base, &d, &tally, err) : err_set(err, ERR_NOMEM, "out of memory for the index");
    snprintf(d.tokenizer, sizeof d.tokenizer, "%s", m->c->tokenizer->name);
    snprintf(d.text_encoder, sizeof d.text_encoder, "%s", m->c->encoder->name);
    for (int64_t i = 0; rc == 0 && i < m->n_shards; i++)
        rc = shard_index(m, i, &d, &at, &tally, err);
    if (rc < 0) {
        dataset_release(&d);
        return rc;
    }
    d.latent_mean = tally.sum / tally.n;
    d.latent_std = sqrt(fmax(tally.sum_sq / tally.n - d.latent_mean * d.latent_mean, 1e-12));
    *out = d;
    return 0;
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

int shards_write(const char *root, const struct source_conf *c, const struct source *sources, const struct source_result *results,
                 int64_t n, int64_t shard_bytes, const struct dataset *base, struct dataset *out, struct err *err)
{
    static const struct dataset none;
    base = base ? base : &none;
    struct merge m = {.root = root, .c = c, .shard_bytes = shard_bytes, .first = base->n_shards};
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < n; i++)
        if (results[i].clips > 0)
            rc = source_copy(&m, &sources[i], err);
    if (rc == 0)
        rc = shard_end(&m, err);
    if (m.writer)
        wds_writer_abort(m.writer);
    if (rc == 0)
        rc = index_make(&m, base, out, err);
    for (int64_t i = 0; i < m.n_shards; i++)
        free((char *)(uintptr_t)m.shards[i].path);
    free(m.shards);
    return rc;
}
