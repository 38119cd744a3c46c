/* The index of a dataset, `<root>/.reel/index`: one file, little-endian, no padding, read and
 * written as a whole.
 *
 *     at  bytes
 *      0      8  magic "REELIDX1"
 *      8      8  u64 bytes of the whole file
 *     16      8  i64 n_shards        24  8  i64 n_samples
 *     32      8  i64 channels        40  8  i64 text_width (0: no text embeddings)
 *     48      8  f64 latent_mean     56  8  f64 latent_std
 *     64    128  tokenizer          192 128 text_encoder     NUL-padded
 *    320         n_shards  x 32: i64 samples, u64 bytes_hash, i64 bytes, u32 path length, u32 zero
 *                n_samples x 112: u32 shard, u32 index_in_shard, i64 offset, i64 bytes,
 *                    i64 latent_offset, i64 latent_bytes, i64 text_offset, i64 text_bytes,
 *                    i32 t, h, w, i32 frames, height, width, i32 text_len, f32 fps, f32 motion,
 *                    f32 sharpness, u64 key_hash, u64 zero
 *                the shards' paths, one after the other, not terminated
 *    end-16  16  XXH3-128 of all before it: high half, low half
 *
 * The checksum is the dataset's fingerprint: equal content has equal bytes and an equal fingerprint
 * on any machine. Each byte of the file is covered by the checksum or part of it, so any truncation
 * or flipped bit is found before a field is believed. After that the rules of dataset_check hold
 * the fields against each other: samples stand in shard order, payloads inside their samples,
 * samples inside their shards. The file is published by rename, so a reader meets the old index or
 * the new one. A reader of another version sees another magic. The index can be rebuilt from the
 * shards.
 */
#include "profiles/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"

enum {
    HEADER_BYTES = 320,
    SHARD_BYTES = 32,
    SAMPLE_BYTES = 112,
    SUM_BYTES = 16,
    RESERVED_BYTES = 8
};
static const char magic[8] = "REELIDX1";
/* This is room for 500 million samples. A larger file is no index. */
static const int64_t max_index_bytes = (int64_t)64 << 30;

/* ---- one cursor for both directions: the order of fields is written down once ---- */

struct cursor {
    unsigned char *p;
    bool writing;
};

static void move_bytes(struct cursor *c, void *field, size_t n)
{
    if (c->writing)
        memcpy(c->p, field, n);
    else
        memcpy(field, c->p, n);
    c->p += n;
}

static void move_u64(struct cursor *c, uint64_t *v)
{
    uint64_t got = 0;
    for (int i = 0; i < 8; i++) {
        if (c->writing)
            c->p[i] = (unsigned char)(*v >> (8 * i));
        else
            got |= (uint64_t)c->p[i] << (8 * i);
    }
    if (!c->writing)
        *v = got;
    c->p += 8;
}

static void move_u32(struct cursor *c, uint32_t *v)
{
    uint32_t got = 0;
    for (int i = 0; i < 4; i++) {
        if (c->writing)
            c->p[i] = (unsigned char)(*v >> (8 * i));
        else
            got |= (uint32_t)c->p[i] << (8 * i);
    }
    if (!c->writing)
        *v = got;
    c->p += 4;
}

static void move_i64(struct cursor *c, int64_t *v)
{
    uint64_t bits = (uint64_t)*v;
    move_u64(c, &bits);
    *v = (int64_t)bits;
}

static void move_i32(struct cursor *c, int32_t *v)
{
    uint32_t bits = (uint32_t)*v;
    move_u32(c, &bits);
    *v = (int32_t)bits;
}

static void move_f64(struct cursor *c, double *v)
{
    uint64_t bits;
    memcpy(&bits, v, sizeof bits);
    move_u64(c, &bits);
    memcpy(v, &bits, sizeof bits);
}

static void move_f32(struct cursor *c, float *v)
{
    uint32_t bits;
    memcpy(&bits, v, sizeof bits);
    move_u32(c, &bits);
    memcpy(v, &bits, sizeof bits);
}

static void move_header(struct cursor *c, struct dataset *d, int64_t *file_bytes)
{
    char mark[sizeof magic];
    memcpy(mark, magic, sizeof mark);
    move_bytes(c, mark, sizeof mark);
    move_i64(c, file_bytes);
    move_i64(c, &d->n_shards);
    move_i64(c, &d->n_samples);
    move_i64(c, &d->channels);
    move_i64(c, &d->text_width);
    move_f64(c, &d->latent_mean);
    move_f64(c, &d->latent_std);
    move_bytes(c, d->tokenizer, LIMIT_NAME_BYTES);
    move_bytes(c, d->text_encoder, LIMIT_NAME_BYTES);
}

static void move_shard(struct cursor *c, struct dataset_shard *s, uint32_t *path_bytes)
{
    uint32_t zero = 0;
    move_i64(c, &s->samples);
    move_u64(c, &s->bytes_hash);
    move_i64(c, &s->bytes);
    move_u32(c, path_bytes);
    move_u32(c, &zero);
}

static void move_sample(struct cursor *c, struct dataset_sample *s)
{
    unsigned char zero[RESERVED_BYTES] = {0};
    move_u32(c, &s->shard);
    move_u32(c, &s->index_in_shard);
    move_i64(c, &s->offset);
    move_i64(c, &s->bytes);
    move_i64(c, &s->latent_offset);
    move_i64(c, &s->latent_bytes);
    move_i64(c, &s->text_offset);
    move_i64(c, &s->text_bytes);
    move_i32(c, &s->t);
    move_i32(c, &s->h);
    move_i32(c, &s->w);
    move_i32(c, &s->frames);
    move_i32(c, &s->height);
    move_i32(c, &s->width);
    move_i32(c, &s->text_len);
    move_f32(c, &s->fps);
    move_f32(c, &s->motion);
    move_f32(c, &s->sharpness);
    move_u64(c, &s->key_hash);
    move_bytes(c, zero, sizeof zero);
}

/* ---- rules ---- */

static bool inside(int64_t offset, int64_t bytes, int64_t from, int64_t n)
{
    return offset >= from && bytes >= 0 && offset <= from + n - bytes;
}

/* Returns the first broken rule of a sample, NULL if none. `at` is the end of the sample before it
 * in its shard. */
static const char *sample_fault(const struct dataset *d, const struct dataset_sample *s, int64_t at)
{
    int64_t cells, plane, least;
    if (s->offset < at || s->bytes < 1 ||
        !inside(s->offset, s->bytes, 0, d->shards[s->shard].bytes))
        return "lies outside its shard or over the sample before it";
    if (s->t < 1 || s->h < 1 || s->w < 1 || s->frames < 1 || s->height < 1 || s->width < 1)
        return "has an extent below 1";
    if (!inside(s->latent_offset, s->latent_bytes, s->offset, s->bytes))
        return "has its latent outside its bytes";
    if (s->text_bytes && !inside(s->text_offset, s->text_bytes, s->offset, s->bytes))
        return "has its text outside its bytes";
    if (s->text_len < 0 || (s->text_len > 0 && (s->text_bytes == 0 || d->text_width == 0)))
        return "has a caption but no text embedding";
    if (!num_mul_i64(s->h, s->w, &plane) || !num_mul_i64(s->t, plane, &cells) ||
        !num_mul_i64(cells, 2 * d->channels, &least) || s->latent_bytes < least)
        return "has a latent smaller than its extent";
    if (!isfinite(s->fps) || s->fps < 0 || !isfinite(s->motion) || !isfinite(s->sharpness))
        return "has a frame rate or score that is no number";
    return NULL;
}

static int header_check(const struct dataset *d, const char *where, struct err *err)
{
    if (d->n_shards < 1 || d->n_samples < 1)
        return err_set(err, ERR_INPUT,
                       "%s: %lld shards and %lld samples: an index needs at least one of each",
                       where, (long long)d->n_shards, (long long)d->n_samples);
    if (d->channels < 1 || d->channels > 4096 || d->text_width < 0 || d->text_width > 1 << 20)
        return err_set(err, ERR_INPUT,
                       "%s: %lld channels and text width %lld: give 1 to 4096 and 0 to 1048576",
                       where, (long long)d->channels, (long long)d->text_width);
    if (!isfinite(d->latent_mean) || !isfinite(d->latent_std) || d->latent_std <= 0)
        return err_set(err, ERR_INPUT,
                       "%s: latent mean %g, standard deviation %g: give finite ones, the second "
                       "above 0",
                       where, d->latent_mean, d->latent_std);
    if (!memchr(d->tokenizer, 0, sizeof d->tokenizer) ||
        !memchr(d->text_encoder, 0, sizeof d->text_encoder))
        return err_set(err, ERR_INPUT, "%s: tokenizer and text_encoder must be terminated texts",
                       where);
    return 0;
}

/* Says whether the path stays below the root: relative, without "..", without control bytes. */
static bool path_is_plain(const char *path)
{
    if (!*path || *path == '/' || strlen(path) >= LIMIT_PATH_BYTES)
        return false;
    for (const char *p = path; *p; p += strcspn(p, "/"), p += *p == '/')
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || !p[2]))
            return false;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20)
            return false;
    return true;
}

static int shard_check(const struct dataset *d, int64_t shard, int64_t first, const char *where,
                       struct err *err)
{
    const struct dataset_shard *sh = &d->shards[shard];
    if (!sh->path || !path_is_plain(sh->path))
        return err_set(err, ERR_INPUT,
                       "%s: path '%s' of shard %lld: give one below the dataset's folder", where,
                       sh->path ? sh->path : "", (long long)shard);
    if (sh->samples < 1 || sh->samples > d->n_samples - first)
        return err_set(err, ERR_INPUT,
                       "%s: shard %s claims %lld samples, %lld are left in the index", where,
                       sh->path, (long long)sh->samples, (long long)(d->n_samples - first));
    int64_t end = 0;
    for (int64_t i = 0; i < sh->samples; i++) {
        const struct dataset_sample *s = &d->samples[first + i];
        if (s->shard != shard || s->index_in_shard != i)
            return err_set(err, ERR_INPUT,
                           "%s: sample %lld is numbered %u of shard %u, its place is %lld of shard "
                           "%lld",
                           where, (long long)(first + i), s->index_in_shard, s->shard, (long long)i,
                           (long long)shard);
        const char *fault = sample_fault(d, s, end);
        if (fault)
            return err_set(err, ERR_INPUT, "%s: sample %lld (%lld of shard %s) %s", where,
                           (long long)(first + i), (long long)i, sh->path, fault);
        end = s->offset + s->bytes;
    }
    return 0;
}

int dataset_check(const struct dataset *d, const char *where, struct err *err)
{
    int64_t first = 0;
    int rc = header_check(d, where, err);
    for (int64_t i = 0; i < d->n_shards && rc == 0; i++) {
        rc = shard_check(d, i, first, where, err);
        first += d->shards[i].samples;
    }
    if (rc == 0 && first != d->n_samples)
        rc = err_set(err, ERR_INPUT, "%s: the shards hold %lld samples, the index lists %lld",
                     where, (long long)first, (long long)d->n_samples);
    return rc;
}

void dataset_release(struct dataset *d)
{
    for (int64_t i = 0; d->shards && i < d->n_shards; i++)
        free(d->shards[i].path);
    free(d->shards);
    free(d->samples);
    *d = (struct dataset){0};
}

/* ---- writing ---- */

static int index_bytes(const struct dataset *d, int64_t *out, struct err *err)
{
    int64_t shards, samples, n = HEADER_BYTES + SUM_BYTES;
    if (!num_mul_i64(d->n_shards, SHARD_BYTES, &shards) ||
        !num_mul_i64(d->n_samples, SAMPLE_BYTES, &samples) || !num_add_i64(n, shards, &n) ||
        !num_add_i64(n, samples, &n) || n > max_index_bytes)
        return err_set(err, ERR_LIMIT,
                       "dataset index of %lld samples is above %lld bytes: split the dataset",
                       (long long)d->n_samples, (long long)max_index_bytes);
    for (int64_t i = 0; d->shards && i < d->n_shards; i++)
        n += d->shards[i].path ? (int64_t)strlen(d->shards[i].path) : 0;
    *out = n;
    return 0;
}

/* Writes the index field by field into buf[0..n): header, tables, paths, checksum. */
static void index_encode(struct dataset *d, unsigned char *buf, int64_t n)
{
    struct cursor c = {buf, true};
    move_header(&c, d, &n);
    for (int64_t i = 0; i < d->n_shards; i++) {
        uint32_t path_bytes = (uint32_t)strlen(d->shards[i].path);
        move_shard(&c, &d->shards[i], &path_bytes);
    }
    for (int64_t i = 0; i < d->n_samples; i++)
        move_sample(&c, &d->samples[i]);
    for (int64_t i = 0; i < d->n_shards; i++)
        move_bytes(&c, d->shards[i].path, strlen(d->shards[i].path));
    d->fingerprint = hash_128(buf, (size_t)(c.p - buf));
    move_u64(&c, &d->fingerprint.hi);
    move_u64(&c, &d->fingerprint.lo);
    BUG_ON(c.p != buf + n);
}

/* Zeroes the bytes after a text's end, which would make equal content unequal. */
static void text_clean(char text[LIMIT_NAME_BYTES])
{
    size_t n = strlen(text);
    memset(text + n, 0, LIMIT_NAME_BYTES - n);
}

static int index_path(const char *root, char out[LIMIT_PATH_BYTES], struct err *err)
{
    if (snprintf(out, LIMIT_PATH_BYTES, "%s/.reel/index", root) >= LIMIT_PATH_BYTES)
        return err_set(err, ERR_INPUT, "dataset folder '%.60s...' has a path longer than %d bytes",
                       root, LIMIT_PATH_BYTES);
    return 0;
}

int dataset_save(const char *root, struct dataset *d, struct err *err)
{
    char path[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES];
    int64_t n = 0;
    unsigned char *buf = NULL;
    int rc = index_path(root, path, err);
    if (rc == 0)
        rc = dataset_check(d, path, err);
    if (rc == 0)
        rc = index_bytes(d, &n, err);
    if (rc == 0) {
        snprintf(dir, sizeof dir, "%.*s", (int)(strlen(path) - strlen("/index")), path);
        rc = file_mkdirs(dir, err);
    }
    if (rc == 0 && !(buf = malloc((size_t)n)))
        rc = err_set(err, ERR_NOMEM, "no memory for a dataset index of %lld bytes", (long long)n);
    if (rc == 0) {
        text_clean(d->tokenizer);
        text_clean(d->text_encoder);
        index_encode(d, buf, n);
        rc = file_publish(path, buf, (size_t)n, err);
    }
    free(buf);
    return rc;
}

/* ---- reading ---- */

static int damaged(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "%s: %s: the index is damaged: restore it from a copy, or curate the sources "
                   "again",
                   path, what);
}

/* Checks magic, length and checksum. Nothing else is believed before they hold. */
static int envelope_check(const char *path, const struct str *bytes, struct hash128 *sum,
                          struct err *err)
{
    if (bytes->len >= sizeof magic && memcmp(bytes->p, magic, sizeof magic - 1) == 0 &&
        bytes->p[sizeof magic - 1] != magic[sizeof magic - 1])
        return damaged(path, "not version 1 of the format", err);
    if (bytes->len < HEADER_BYTES + SUM_BYTES || memcmp(bytes->p, magic, sizeof magic) != 0)
        return damaged(path, "no reel dataset index, or cut short", err);
    struct cursor at_length = {(unsigned char *)bytes->p + sizeof magic, false};
    struct cursor at_sum = {(unsigned char *)bytes->p + bytes->len - SUM_BYTES, false};
    uint64_t length;
    move_u64(&at_length, &length);
    if (length != bytes->len)
        return damaged(path, "the file is shorter or longer than it says", err);
    move_u64(&at_sum, &sum->hi);
    move_u64(&at_sum, &sum->lo);
    struct hash128 found = hash_128(bytes->p, bytes->len - SUM_BYTES);
    if (found.hi != sum->hi || found.lo != sum->lo)
        return damaged(path, "its checksum does not fit its content", err);
    return 0;
}

/* Cuts the shards' paths out of the tail, which has `room` bytes left for them. */
static int paths_decode(struct cursor *c, struct dataset *d, const uint32_t *lengths, int64_t room,
                        const char *path, struct err *err)
{
    for (int64_t i = 0; i < d->n_shards; i++) {
        if (lengths[i] > room || lengths[i] >= LIMIT_PATH_BYTES)
            return damaged(path, "a shard's path is longer than the file", err);
        char *text = calloc(1, lengths[i] + 1u);
        if (!text)
            return err_set(err, ERR_NOMEM, "%s: no memory for the shards' paths", path);
        d->shards[i].path = text;
        move_bytes(c, text, lengths[i]);
        room -= lengths[i];
        if (strlen(text) != lengths[i])
            return damaged(path, "a shard's path holds a zero byte", err);
    }
    return room == 0 ? 0 : damaged(path, "bytes are left over behind the shards' paths", err);
}

static int tables_decode(struct cursor *c, struct dataset *d, int64_t room, const char *path,
                         struct err *err)
{
    uint32_t *lengths = calloc((size_t)d->n_shards, sizeof *lengths);
    int rc = 0;
    d->shards = calloc((size_t)d->n_shards, sizeof *d->shards);
    d->samples = calloc((size_t)d->n_samples, sizeof *d->samples);
    if (!lengths || !d->shards || !d->samples)
        rc = err_set(err, ERR_NOMEM, "%s: no memory for an index of %lld samples", path,
                     (long long)d->n_samples);
    if (rc == 0) {
        for (int64_t i = 0; i < d->n_shards; i++)
            move_shard(c, &d->shards[i], &lengths[i]);
        for (int64_t i = 0; i < d->n_samples; i++)
            move_sample(c, &d->samples[i]);
        rc = paths_decode(c, d, lengths, room, path, err);
    }
    free(lengths);
    return rc;
}

static int index_decode(const char *path, const struct str *bytes, struct dataset *d,
                        struct err *err)
{
    struct cursor c = {(unsigned char *)bytes->p, false};
    int64_t length, least;
    int rc = envelope_check(path, bytes, &d->fingerprint, err);
    if (rc < 0)
        return rc;
    move_header(&c, d, &length);
    struct dataset counts = {.n_shards = d->n_shards, .n_samples = d->n_samples};
    if (d->n_shards < 1 || d->n_samples < 1 || index_bytes(&counts, &least, NULL) < 0 ||
        least > length) {
        d->n_shards = 0;
        return damaged(path, "its tables are larger than the file", err);
    }
    rc = tables_decode(&c, d, length - least, path, err);
    struct err why;
    if (rc == 0 && dataset_check(d, path, &why) < 0)
        rc =
            err_set(err, ERR_CORRUPT,
                    "%s: the index is damaged: restore it from a copy, or curate the sources again",
                    why.text);
    return rc;
}

static int file_load(const char *path, struct dataset *out, struct err *err)
{
    struct str bytes = STR_INIT;
    struct dataset d = {0};
    int rc = file_read(path, max_index_bytes, &bytes, err);
    if (rc == 0)
        rc = index_decode(path, &bytes, &d, err);
    str_release(&bytes);
    if (rc < 0)
        dataset_release(&d);
    else
        *out = d;
    return rc;
}

int dataset_load(const char *root, struct dataset *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc = index_path(root, path, err);
    if (rc == 0 && !file_exists(path))
        rc = err_set(err, ERR_NOT_FOUND,
                     "'%s' is no dataset: there is no file %s; make one with 'reel curate -o %s'",
                     root, path, root);
    return rc < 0 ? rc : file_load(path, out, err);
}

int dataset_load_generation(const char *root, struct hash128 wanted, struct dataset *out,
                            struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64], hash[HASH_TEXT_BYTES];
    struct dataset newest, older;
    int rc = dataset_load(root, &newest, err);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/.reel/generations/%s.index", root, hash_format(wanted, hash));
    bool other = (wanted.hi || wanted.lo) &&
                 (wanted.hi != newest.fingerprint.hi || wanted.lo != newest.fingerprint.lo) &&
                 file_exists(path);
    if (other && (rc = file_load(path, &older, err)) == 0) {
        dataset_release(&newest);
        newest = older;
    }
    if (rc < 0)
        dataset_release(&newest);
    else
        *out = newest;
    return rc;
}
