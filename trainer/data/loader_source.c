#include "trainer/data/loader_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/npy.h"
#include "base/num.h"
#include "base/philox.h"

enum { SYNTHETIC_SAMPLES = 1 << 20, PATH_BYTES = 2 * LIMIT_PATH_BYTES };

int64_t loader_source_count(const struct loader_source *s)
{
    return s->is_synthetic ? SYNTHETIC_SAMPLES : s->data->n_samples;
}

struct loader_item loader_source_item(const struct loader_source *s, int64_t sample)
{
    const int64_t *made = s->synthetic;
    /* synthetic captions are as long as the model takes, so that a trial costs no less than
     * training will */
    if (s->is_synthetic)
        return (struct loader_item){{made[0], made[1], made[2]}, s->model->text_len, 24};
    const struct dataset_sample *d = &s->data->samples[sample];
    return (struct loader_item){{d->t, d->h, d->w},
                                s->model->text_width ? d->text_len : 0,
                                d->fps > 0 ? d->fps : 24};
}

/* ---- opening ---- */

static void shard_path(const struct loader_source *s, int64_t i, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", s->root, s->data->shards[i].path);
}

static int size_check(const struct loader_source *s, int64_t i, const char *path,
                      const struct stat *st, struct err *err)
{
    int64_t bytes = s->data->shards[i].bytes;
    return st->st_size == bytes
               ? 0
               : err_set(err, ERR_CORRUPT,
                         "shard '%s' has %lld bytes, the index says %lld: restore it, or remove "
                         "'%s' and curate again",
                         path, (long long)st->st_size, (long long)bytes, s->root);
}

static int shard_check(const struct loader_source *s, int64_t i, bool verify, struct err *err)
{
    char path[PATH_BYTES];
    struct stat st;
    struct hash128 hash;
    const struct dataset_shard *shard = &s->data->shards[i];
    int rc;
    shard_path(s, i, path);
    if (access(path, R_OK) < 0 || stat(path, &st) < 0)
        return err_set_errno(err, ERR_INPUT, "cannot read shard '%s'", path);
    if ((rc = size_check(s, i, path, &st, err)) < 0)
        return rc;
    if (!verify)
        return 0;
    if ((rc = hash_file(path, &hash, err)) < 0)
        return rc;
    if (hash.lo != shard->bytes_hash)
        return err_set(err, ERR_CORRUPT,
                       "shard '%s' is damaged: its checksum is not the index's: restore it, or "
                       "remove '%s' and curate again",
                       path, s->root);
    return 0;
}

static int model_fits(const struct loader_source *s, struct err *err)
{
    const struct model *m = s->model;
    bool captions = false;
    if (s->data->channels != m->latent_channels)
        return err_set(err, ERR_INPUT, "%s: latents have %lld channels, model '%s' takes %lld",
                       s->root, (long long)s->data->channels, m->name,
                       (long long)m->latent_channels);
    for (int64_t i = 0; i < s->data->n_samples; i++) {
        long long text = s->data->samples[i].text_len;
        captions = captions || text > 0;
        if (m->text_width > 0 && text > m->text_len)
            return err_set(err, ERR_INPUT,
                           "%s: sample %lld has a caption of %lld tokens, model '%s' takes %lld: "
                           "curate with --text-len %lld",
                           s->root, (long long)i, text, m->name, (long long)m->text_len,
                           (long long)m->text_len);
    }
    if (captions && m->text_width > 0 && s->data->text_width != m->text_width)
        return err_set(err, ERR_INPUT,
                       "%s: text embeddings are %lld wide, model '%s' takes %lld: curate with "
                       "--text-width %lld",
                       s->root, (long long)s->data->text_width, m->name, (long long)m->text_width,
                       (long long)m->text_width);
    return 0;
}

/* Checks that the index is of the generation that the run was bound to; zero: it is bound to
 * none. */
static int generation_check(const struct loader_source *s, struct hash128 bound, struct err *err)
{
    char hash[HASH_TEXT_BYTES];
    struct hash128 own = s->data->fingerprint;
    if ((!bound.hi && !bound.lo) || (own.hi == bound.hi && own.lo == bound.lo))
        return 0;
    return err_set(err, ERR_INPUT,
                   "dataset '%s' is no longer the one that the run was bound to, of fingerprint "
                   "%s: put that one back, or begin a new run", s->root, hash_format(bound, hash));
}

static int stored_open(struct loader_source *s, struct datasets *set, struct hash128 generation,
                       bool verify, int rank, int world, struct err *err)
{
    int rc;
    if ((rc = datasets_open(set, s->root, generation, &s->data, err)) < 0)
        return rc;
    if ((rc = generation_check(s, generation, err)) < 0)
        return rc;
    for (int64_t i = 0; i < s->data->n_shards; i++)
        if ((rc = shard_check(s, i, verify && i % world == rank, err)) < 0)
            return rc;
    if ((rc = model_fits(s, err)) < 0)
        return rc;
    for (int64_t i = 0; i < s->data->n_samples; i++)
        s->raw_bytes = num_max_i64(s->raw_bytes, num_max_i64(s->data->samples[i].latent_bytes,
                                                             s->data->samples[i].text_bytes));
    return 0;
}

/* Writes n normal numbers of a synthetic tensor. */
static void made_normals(uint64_t seed, uint64_t ordinal, int64_t n, float *out)
{
    double wide[256];
    for (int64_t at = 0; at < n; at += 256) {
        int64_t part = num_min_i64(256, n - at);
        philox_normal_fill(seed, PHILOX_SYNTH, ordinal, (uint64_t)at, (size_t)part, wide);
        for (int64_t i = 0; i < part; i++)
            out[at + i] = (float)wide[i];
    }
}

/* Makes the synthetic caption. It is half a million numbers in a large model, so it is made only
 * once, and a trial's steps are not slowed by it. */
static void made_text(struct loader_source *s)
{
    float *text = (float *)s->raw;
    made_normals(s->seed, SYNTHETIC_SAMPLES, s->raw_bytes / (int64_t)sizeof *text, text);
}

static int parts_open(struct loader_source *s, struct datasets *set, struct hash128 generation,
                      bool verify, int rank, int world, struct err *err)
{
    int rc;
    if (s->is_synthetic)
        s->raw_bytes = s->model->text_len * s->model->text_width * (int64_t)sizeof(float);
    else if ((rc = stored_open(s, set, generation, verify, rank, world, err)) < 0)
        return rc;
    if (!(s->raw = malloc((size_t)s->raw_bytes + 1)))
        return err_set(err, ERR_NOMEM, "out of memory for the loader's buffers");
    if (s->is_synthetic)
        made_text(s);
    return 0;
}

int loader_source_open(struct loader_source *s, const struct run *run, const char *data,
                       struct datasets *set, struct hash128 generation, bool verify, int rank,
                       int world, struct err *err)
{
    *s = (struct loader_source){.model = &run->model, .seed = run->seed, .fd = -1};
    int rc;
    if ((rc = run_synthetic(data, "data", s->synthetic, err)) < 0)
        return rc;
    s->is_synthetic = rc == 1;
    snprintf(s->root, sizeof s->root, "%s", data);
    if ((rc = parts_open(s, set, generation, verify, rank, world, err)) < 0)
        loader_source_close(s);
    return rc;
}

void loader_source_close(struct loader_source *s)
{
    if (s->model && s->fd >= 0)
        close(s->fd);
    datasets_close(s->data);
    free(s->raw);
    *s = (struct loader_source){.fd = -1};
}

/* ---- reading ---- */

static int shard_use(struct loader_source *s, uint32_t shard, struct err *err)
{
    char path[PATH_BYTES];
    struct stat st;
    int rc;
    if (s->fd >= 0 && s->fd_shard == shard)
        return 0;
    if (s->fd >= 0)
        close(s->fd);
    shard_path(s, shard, path);
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    s->fd_shard = shard;
    if (s->fd < 0 || fstat(s->fd, &st) < 0)
        return err_set_errno(err, ERR_IO, "cannot open it");
    /* The shard was checked when training began, but may have been replaced since. */
    if ((rc = size_check(s, shard, path, &st, err)) == 0)
        return 0;
    close(s->fd);
    s->fd = -1;
    return rc;
}

static int payload_read(struct loader_source *s, const struct dataset_sample *d, int64_t offset,
                        int64_t bytes, struct err *err)
{
    int rc = shard_use(s, d->shard, err);
    if (rc < 0)
        return rc;
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(s->fd, s->raw + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0
                       ? err_set_errno(err, ERR_IO, "cannot read at offset %lld", (long long)offset)
                       : err_set(err, ERR_CORRUPT, "ends before offset %lld",
                                 (long long)(offset + bytes));
        done += n;
    }
    return 0;
}

static int latent_read(struct loader_source *s, const struct dataset_sample *d, float *out,
                       struct err *err)
{
    const int64_t shape[] = {s->model->latent_channels, d->t, d->h, d->w};
    int rc = payload_read(s, d, d->latent_offset, d->latent_bytes, err);
    if (rc < 0 || (rc = npy_parse(s->raw, d->latent_bytes, shape, 4, "latent.npy", out, err)) < 0)
        return rc;
    int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    float mean = (float)s->data->latent_mean, scale = (float)(1 / s->data->latent_std);
    for (int64_t i = 0; i < n; i++)
        out[i] = (out[i] - mean) * scale;
    return 0;
}

static int text_read(struct loader_source *s, const struct dataset_sample *d, float *out,
                     struct err *err)
{
    const int64_t shape[] = {d->text_len, s->model->text_width};
    if (d->text_len == 0 || s->model->text_width == 0)
        return 0;
    int rc;
    if ((rc = payload_read(s, d, d->text_offset, d->text_bytes, err)) < 0)
        return rc;
    return npy_parse(s->raw, d->text_bytes, shape, 2, "text.npy", out, err);
}

static void made_read(const struct loader_source *s, uint64_t sample, float *latent, float *text)
{
    int64_t n = s->model->latent_channels * s->synthetic[0] * s->synthetic[1] * s->synthetic[2];
    made_normals(s->seed, sample, n, latent);
    memcpy(text, s->raw, (size_t)s->raw_bytes);
}

static int sample_read(struct loader_source *s, const struct dataset_sample *d, float *latent,
                       float *text, struct err *err)
{
    int rc;
    if ((rc = latent_read(s, d, latent, err)) < 0)
        return rc;
    return text_read(s, d, text, err);
}

int loader_source_read(struct loader_source *s, int64_t sample, float *latent, float *text,
                       struct err *err)
{
    if (s->is_synthetic) {
        made_read(s, (uint64_t)sample, latent, text);
        return 0;
    }
    const struct dataset_sample *d = &s->data->samples[sample];
    int rc;
    if ((rc = sample_read(s, d, latent, text, err)) < 0)
        return err_context(err, "shard '%s/%s', sample %u at offset %lld", s->root,
                           s->data->shards[d->shard].path, d->index_in_shard, (long long)d->offset);
    return 0;
}
