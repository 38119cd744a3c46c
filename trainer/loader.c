#include "trainer/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/philox.h"
#include "profiles/dataset.h"
#include "profiles/flops.h"
#include "trainer/npy.h"
#include "trainer/objective.h"

struct loader {
    struct model model;
    char root[LIMIT_PATH_BYTES];
    struct dataset data;     /* n_samples 0 for synthetic data */
    int64_t synthetic[3];    /* latent cells t, h, w */
    bool is_synthetic;
    int fd;                  /* of the shard read last; -1: none. One, so that a dataset may have more shards than files may be open */
    uint32_t fd_shard;
    double *flops;           /* by sample; one entry for synthetic */
    struct loader_bounds bounds;
    int64_t mbs, max_elements, max_text, raw_bytes;
    uint64_t seed;
    struct run_level level;
    double text_dropout;
    enum loss_norm loss_norm;
    float *latents, *texts;  /* mbs samples each */
    char *raw;               /* one payload as it lies in the shard */
    struct batch_sample *samples;
    int64_t bytes;
};

static int64_t elements_of(const struct loader *l, const int64_t thw[3])
{
    return l->model.latent_channels * thw[0] * thw[1] * thw[2];
}

static void thw_of(const struct loader *l, int64_t sample, int64_t out[3])
{
    if (l->is_synthetic) {
        memcpy(out, l->synthetic, 3 * sizeof *out);
        return;
    }
    const struct dataset_sample *s = &l->data.samples[sample];
    out[0] = s->t, out[1] = s->h, out[2] = s->w;
}

static int64_t count_of(const struct loader *l)
{
    return l->is_synthetic ? 1 << 20 : l->data.n_samples; /* synthetic: an epoch of a million made samples */
}

/* ---- opening ---- */

static int shard_path(const struct loader *l, int64_t i, char path[LIMIT_PATH_BYTES + LIMIT_PATH_BYTES])
{
    return snprintf(path, 2 * LIMIT_PATH_BYTES, "%s/%s", l->root, l->data.shards[i].path);
}

static int shard_check(const struct loader *l, int64_t i, bool verify, struct err *err)
{
    char path[2 * LIMIT_PATH_BYTES];
    struct stat st;
    struct hash128 hash;
    const struct dataset_shard *shard = &l->data.shards[i];
    shard_path(l, i, path);
    if (access(path, R_OK) < 0 || stat(path, &st) < 0)
        return err_set_errno(err, ERR_INPUT, "cannot read shard '%s'", path);
    if (st.st_size != shard->bytes)
        return err_set(err, ERR_CORRUPT, "shard '%s' has %lld bytes, the index says %lld: curate again, or restore it", path,
                       (long long)st.st_size, (long long)shard->bytes);
    if (!verify)
        return 0;
    int rc = hash_file(path, &hash, err);
    if (rc == 0 && hash.lo != shard->bytes_hash)
        rc = err_set(err, ERR_CORRUPT, "shard '%s' is damaged: its checksum is not the index's: curate again, or restore it", path);
    return rc;
}

static int shards_check(const struct loader *l, bool verify, int rank, int world, struct err *err)
{
    int rc = 0;
    for (int64_t i = 0; i < l->data.n_shards && rc == 0; i++)
        rc = shard_check(l, i, verify && i % world == rank, err);
    return rc;
}

static int measure_sample(struct loader *l, int64_t i, struct err *err)
{
    int64_t thw[3], text = l->is_synthetic ? num_min_i64(l->model.text_len, 4) : l->data.samples[i].text_len;
    struct seq seq;
    struct flops flops;
    thw_of(l, i, thw);
    int rc = seq_from_latent(&l->model, thw[0], thw[1], thw[2], &seq, err);
    if (rc < 0)
        return err_context(err, "%s: sample %lld", l->root, (long long)i);
    if (l->model.text_width > 0 && text > l->model.text_len)
        return err_set(err, ERR_INPUT, "%s: sample %lld has a caption of %lld tokens, model '%s' takes %lld: curate with --text-len %lld",
                       l->root, (long long)i, (long long)text, l->model.name, (long long)l->model.text_len,
                       (long long)l->model.text_len);
    if ((rc = flops_reel_sample(&l->model, seq, &flops, err)) < 0)
        return rc;
    l->flops[i] = flops.total;
    l->bounds.tokens = num_max_i64(l->bounds.tokens, seq_tokens(seq));
    l->bounds.segment = num_max_i64(l->bounds.segment, seq_longest_segment(seq));
    l->max_elements = num_max_i64(l->max_elements, elements_of(l, thw));
    l->max_text = num_max_i64(l->max_text, text);
    if (!l->is_synthetic)
        l->raw_bytes = num_max_i64(l->raw_bytes, num_max_i64(l->data.samples[i].latent_bytes, l->data.samples[i].text_bytes));
    return 0;
}

static int buffers_take(struct loader *l, struct err *err)
{
    int64_t latent = l->mbs * l->max_elements, text = l->mbs * l->max_text * l->model.text_width;
    l->latents = calloc((size_t)latent, sizeof *l->latents);
    l->texts = calloc((size_t)text + 1, sizeof *l->texts);
    l->raw = malloc((size_t)l->raw_bytes + 1);
    l->samples = calloc((size_t)l->mbs, sizeof *l->samples);
    l->bytes = (latent + text) * (int64_t)sizeof(float) + l->raw_bytes + l->mbs * (int64_t)sizeof *l->samples +
               count_of(l) * (int64_t)(l->is_synthetic ? 0 : sizeof *l->flops + sizeof *l->data.samples);
    l->bounds = (struct loader_bounds){l->bounds.tokens * l->mbs, l->mbs, l->max_text * l->mbs, latent, l->bounds.segment};
    return l->latents && l->texts && l->raw && l->samples ? 0 : err_set(err, ERR_NOMEM, "out of memory for the loader's buffers");
}

static int loader_fill(struct loader *l, const struct run *run, const struct run_stage *stage, bool verify, int rank, int world,
                       struct err *err)
{
    int rc = run_synthetic(stage->data, "data", l->synthetic, err);
    if (rc < 0)
        return rc;
    l->is_synthetic = rc == 1;
    snprintf(l->root, sizeof l->root, "%s", stage->data);
    if (!l->is_synthetic && ((rc = dataset_load(stage->data, &l->data, err)) < 0 ||
                             (rc = shards_check(l, verify, rank, world, err)) < 0))
        return rc;
    if (!l->is_synthetic && l->data.channels != run->model.latent_channels)
        return err_set(err, ERR_INPUT, "%s: latents have %lld channels, model '%s' takes %lld", l->root,
                       (long long)l->data.channels, run->model.name, (long long)run->model.latent_channels);
    int64_t n = l->is_synthetic ? 1 : l->data.n_samples;
    l->flops = calloc((size_t)n, sizeof *l->flops);
    if (!l->flops)
        return err_set(err, ERR_NOMEM, "out of memory for %lld samples", (long long)n);
    rc = 0;
    for (int64_t i = 0; i < n && rc == 0; i++)
        rc = measure_sample(l, i, err);
    if (rc == 0 && !l->is_synthetic && l->max_text > 0 && l->model.text_width > 0 && l->data.text_width != l->model.text_width)
        rc = err_set(err, ERR_INPUT, "%s: text embeddings are %lld wide, model '%s' takes %lld: curate with --text-width %lld", l->root,
                     (long long)l->data.text_width, run->model.name, (long long)run->model.text_width,
                     (long long)run->model.text_width);
    return rc < 0 ? rc : buffers_take(l, err);
}

int loader_open(const struct run *run, int64_t stage, int64_t mbs, bool verify, int rank, int world, struct loader **out,
                struct err *err)
{
    struct loader *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory");
    l->fd = -1;
    l->model = run->model;
    l->mbs = mbs;
    l->seed = run->seed;
    l->level = run->level;
    l->text_dropout = run->text_dropout;
    l->loss_norm = run->loss_norm;
    int rc = loader_fill(l, run, &run->stages[stage], verify, rank, world, err);
    if (rc < 0)
        loader_close(l);
    else
        *out = l;
    return rc;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    if (l->fd >= 0)
        close(l->fd);
    dataset_release(&l->data);
    free(l->flops);
    free(l->latents);
    free(l->texts);
    free(l->raw);
    free(l->samples);
    free(l);
}

struct loader_bounds loader_bounds(const struct loader *l)
{
    return l->bounds;
}

int64_t loader_bytes(const struct loader *l)
{
    return l->bytes;
}

/* ---- drawing ---- */

struct loader_draw loader_draw(const struct loader *l, int64_t draw)
{
    uint64_t n = (uint64_t)count_of(l);
    struct loader_draw d = {.sample = (int64_t)philox_permute(l->seed, (uint64_t)draw / n, n, (uint64_t)draw % n)};
    int64_t thw[3];
    thw_of(l, d.sample, thw);
    d.seq = (struct seq){thw[0] / l->model.patch_t, thw[1] / l->model.patch_h, thw[2] / l->model.patch_w};
    d.tokens = seq_tokens(d.seq);
    d.elements = elements_of(l, thw);
    d.flops = l->flops[l->is_synthetic ? 0 : d.sample];
    return d;
}

static int shard_use(struct loader *l, uint32_t shard, struct err *err)
{
    char path[2 * LIMIT_PATH_BYTES];
    if (l->fd >= 0 && l->fd_shard == shard)
        return 0;
    if (l->fd >= 0)
        close(l->fd);
    shard_path(l, shard, path);
    l->fd = open(path, O_RDONLY | O_CLOEXEC);
    l->fd_shard = shard;
    return l->fd >= 0 ? 0 : err_set_errno(err, ERR_IO, "cannot open it");
}

static int payload_read(struct loader *l, const struct dataset_sample *s, int64_t offset, int64_t bytes, struct err *err)
{
    int rc = shard_use(l, s->shard, err);
    if (rc < 0)
        return rc;
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(l->fd, l->raw + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_set_errno(err, ERR_IO, "cannot read at offset %lld", (long long)offset)
                         : err_set(err, ERR_CORRUPT, "ends before offset %lld", (long long)(offset + bytes));
        done += n;
    }
    return 0;
}

static int latent_read(struct loader *l, const struct dataset_sample *s, float *out, struct err *err)
{
    const int64_t shape[] = {l->model.latent_channels, s->t, s->h, s->w};
    int rc = payload_read(l, s, s->latent_offset, s->latent_bytes, err);
    if (rc < 0 || (rc = npy_parse(l->raw, s->latent_bytes, shape, 4, "latent.npy", out, err)) < 0)
        return rc;
    int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    float mean = (float)l->data.latent_mean, scale = (float)(1 / l->data.latent_std);
    for (int64_t i = 0; i < n; i++)
        out[i] = (out[i] - mean) * scale;
    return 0;
}

static int text_read(struct loader *l, const struct dataset_sample *s, float *out, struct err *err)
{
    const int64_t shape[] = {s->text_len, l->model.text_width};
    if (s->text_len == 0 || l->model.text_width == 0)
        return 0;
    int rc = payload_read(l, s, s->text_offset, s->text_bytes, err);
    return rc < 0 ? rc : npy_parse(l->raw, s->text_bytes, shape, 2, "text.npy", out, err);
}

static void synthetic_fill(struct loader *l, uint64_t sample, float *latent, float *text)
{
    int64_t n = elements_of(l, l->synthetic), text_n = l->max_text * l->model.text_width;
    for (int64_t i = 0; i < n; i++)
        latent[i] = (float)philox_normal_at(l->seed, PHILOX_SYNTH, sample, (uint64_t)i);
    for (int64_t i = 0; i < text_n; i++)
        text[i] = (float)philox_normal_at(l->seed, PHILOX_SYNTH, sample, (uint64_t)(n + i));
}

static int stored_fill(struct loader *l, int64_t sample, float *latent, float *text, struct err *err)
{
    const struct dataset_sample *s = &l->data.samples[sample];
    int rc = latent_read(l, s, latent, err);
    if (rc == 0)
        rc = text_read(l, s, text, err);
    if (rc < 0)
        return err_context(err, "shard '%s/%s', sample %u at offset %lld", l->root, l->data.shards[s->shard].path,
                           s->index_in_shard, (long long)s->offset);
    return 0;
}

/* What the index says of draw `draw`; its payload's place is number i of the micro-batch. */
static void describe(struct loader *l, int64_t draw, uint64_t ordinal_base, int64_t i)
{
    struct loader_draw d = loader_draw(l, draw);
    const struct dataset_sample *at = l->is_synthetic ? NULL : &l->data.samples[d.sample];
    int64_t thw[3];
    uint64_t ordinal = ordinal_base + (uint64_t)draw;
    thw_of(l, d.sample, thw);
    l->samples[i] = (struct batch_sample){.ordinal = ordinal, .latent = l->latents + i * l->max_elements,
                                          .text = l->texts + i * l->max_text * l->model.text_width, .t = (int32_t)thw[0],
                                          .h = (int32_t)thw[1], .w = (int32_t)thw[2], .fps = at && at->fps > 0 ? at->fps : 24,
                                          .text_len = at ? (l->model.text_width ? at->text_len : 0) : (int32_t)l->max_text,
                                          .level = objective_level_draw(l->seed, ordinal, &l->level, d.tokens),
                                          .drop_text = objective_text_dropped(l->seed, ordinal, l->text_dropout),
                                          .loss_weight = l->loss_norm == LOSS_NORM_SAMPLE ? 1.0 / (double)d.elements : 1};
}

int loader_read(struct loader *l, int64_t first, int64_t n, uint64_t ordinal_base, struct batch *out, struct err *err)
{
    int rc = 0;
    BUG_ON(n > l->mbs);
    for (int64_t i = 0; i < n; i++)
        describe(l, first + i, ordinal_base, i);
    *out = (struct batch){l->samples, n};
    for (int64_t i = 0; i < n && rc == 0; i++) {
        int64_t sample = loader_draw(l, first + i).sample;
        float *latent = l->latents + i * l->max_elements, *text = l->texts + i * l->max_text * l->model.text_width;
        if (l->is_synthetic)
            synthetic_fill(l, (uint64_t)sample, latent, text);
        else
            rc = stored_fill(l, sample, latent, text, err);
    }
    return rc;
}
