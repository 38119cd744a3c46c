/* The index of a dataset, `<root>/.reel/index`, is one file, little-endian and without padding,
 * which is read and written as a whole.
 *
 *     header       320 bytes
 *     shards       32 bytes each
 *     samples      112 bytes each, in the shards' order
 *     paths        of the shards, one after the other, not terminated
 *     checksum     XXH3-128 of all before it: u64 high half, u64 low half
 *
 * The three tables below hold each record's fields in their order. Reading, writing and the page
 * reel-dataset(5) are made of them.
 *
 * The checksum is the dataset's fingerprint: equal content has equal bytes and an equal fingerprint
 * on any machine. Each byte of the file is covered by the checksum or part of it, so any truncation
 * or flipped bit is found before a field is used. Then dataset_check compares the fields with each
 * other: samples are in shard order, payloads inside their samples, samples inside their shards.
 * The file is published by rename, so a reader finds the old index or the new one. A reader of
 * another version sees another magic. The index can be rebuilt from the shards.
 */
#include "profiles/dataset.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"

enum {
    HEADER_BYTES = 320,
    SHARD_BYTES = 32,
    SAMPLE_BYTES = 112,
    SUM_BYTES = 16
};
static const char magic[8] = "REELIDX1";
/* 500 million samples fit into this. A larger file is no index. */
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

/* ---- the records ---- */

enum { BESIDE = -1 }; /* the value is not a member of the record's struct */

#define AT(type, member) (long)offsetof(struct type, member)
static const struct dataset_field header_fields[] = {
    {"magic", DATASET_MAGIC, BESIDE, "\"REELIDX1\""},
    {"bytes", DATASET_I64, BESIDE, "bytes of the whole file"},
    {"n_shards", DATASET_I64, AT(dataset, n_shards), "shards, 1 or more"},
    {"n_samples", DATASET_I64, AT(dataset, n_samples), "samples, 1 or more"},
    {"channels", DATASET_I64, AT(dataset, channels), "channels of a latent cell, 1 to 4096"},
    {"text_width", DATASET_I64, AT(dataset, text_width),
     "width of a text embedding; 0: there is none"},
    {"latent_mean", DATASET_F64, AT(dataset, latent_mean),
     "mean of the latents as written; the loader subtracts it"},
    {"latent_std", DATASET_F64, AT(dataset, latent_std),
     "their standard deviation, above 0; the loader divides by it"},
    {"tokenizer", DATASET_TEXT, AT(dataset, tokenizer), "what made the latents"},
    {"text_encoder", DATASET_TEXT, AT(dataset, text_encoder), "what made the embeddings"},
};
static const struct dataset_field shard_fields[] = {
    {"samples", DATASET_I64, AT(dataset_shard, samples), "samples in it, 1 or more"},
    {"bytes_hash", DATASET_U64, AT(dataset_shard, bytes_hash),
     "low half of the XXH3-128 of the tar"},
    {"bytes", DATASET_I64, AT(dataset_shard, bytes), "size of the tar"},
    {"path_bytes", DATASET_U32, BESIDE, "length of its path, which is relative to the folder"},
    {"zero", DATASET_ZERO4, BESIDE, "0"},
};
static const struct dataset_field sample_fields[] = {
    {"shard", DATASET_U32, AT(dataset_sample, shard), "number of its shard, from 0"},
    {"index_in_shard", DATASET_U32, AT(dataset_sample, index_in_shard),
     "its number there, from 0"},
    {"offset", DATASET_I64, AT(dataset_sample, offset),
     "byte of the tar where its first file begins, with that file's header"},
    {"bytes", DATASET_I64, AT(dataset_sample, bytes), "of all its files, with their headers"},
    {"latent_offset", DATASET_I64, AT(dataset_sample, latent_offset),
     "byte of the tar where the content of latent.npy begins"},
    {"latent_bytes", DATASET_I64, AT(dataset_sample, latent_bytes), "its length"},
    {"text_offset", DATASET_I64, AT(dataset_sample, text_offset), "the same of text.npy"},
    {"text_bytes", DATASET_I64, AT(dataset_sample, text_bytes), "its length; 0: there is none"},
    {"t", DATASET_I32, AT(dataset_sample, t), "latent cells: frames"},
    {"h", DATASET_I32, AT(dataset_sample, h), "latent cells: rows"},
    {"w", DATASET_I32, AT(dataset_sample, w), "latent cells: columns"},
    {"frames", DATASET_I32, AT(dataset_sample, frames), "frames of the clip"},
    {"height", DATASET_I32, AT(dataset_sample, height), "its height in pixels"},
    {"width", DATASET_I32, AT(dataset_sample, width), "its width in pixels"},
    {"text_len", DATASET_I32, AT(dataset_sample, text_len),
     "tokens of its caption; 0: it has no caption"},
    {"fps", DATASET_F32, AT(dataset_sample, fps), "frames a second; 0: not known"},
    {"motion", DATASET_F32, AT(dataset_sample, motion), "the curator's score of motion"},
    {"sharpness", DATASET_F32, AT(dataset_sample, sharpness), "the curator's score of sharpness"},
    {"key_hash", DATASET_U64, AT(dataset_sample, key_hash), "hash of the sample's key"},
    {"zero", DATASET_ZERO8, BESIDE, "0"},
};
#undef AT
const struct dataset_record dataset_records[DATASET_RECORDS] = {
    {"header", header_fields, ARRAY_LEN(header_fields)},
    {"shard", shard_fields, ARRAY_LEN(shard_fields)},
    {"sample", sample_fields, ARRAY_LEN(sample_fields)},
};

size_t dataset_field_bytes(enum dataset_number type)
{
    static const size_t bytes[] = {
        [DATASET_MAGIC] = sizeof magic, [DATASET_TEXT] = LIMIT_NAME_BYTES,
        [DATASET_U32] = 4, [DATASET_I32] = 4, [DATASET_F32] = 4, [DATASET_ZERO4] = 4,
        [DATASET_U64] = 8, [DATASET_I64] = 8, [DATASET_F64] = 8, [DATASET_ZERO8] = 8};
    return bytes[type];
}

static void move_field(struct cursor *c, enum dataset_number type, void *v)
{
    char fixed[8] = {0};
    switch (type) {
    case DATASET_U32: move_u32(c, v); return;
    case DATASET_U64: move_u64(c, v); return;
    case DATASET_I32: move_i32(c, v); return;
    case DATASET_I64: move_i64(c, v); return;
    case DATASET_F32: move_f32(c, v); return;
    case DATASET_F64: move_f64(c, v); return;
    case DATASET_TEXT: move_bytes(c, v, LIMIT_NAME_BYTES); return;
    case DATASET_MAGIC: memcpy(fixed, magic, sizeof magic); break;
    case DATASET_ZERO4:
    case DATASET_ZERO8: break;
    }
    move_bytes(c, fixed, dataset_field_bytes(type));
}

/* Reads or writes a record. `beside` is its one number that is not in its struct, and may be NULL
 * where there is none. */
static void move_record(struct cursor *c, int which, void *record, void *beside)
{
    const struct dataset_record *r = &dataset_records[which];
    for (size_t i = 0; i < r->n; i++) {
        const struct dataset_field *f = &r->fields[i];
        move_field(c, f->type, f->at == BESIDE ? beside : (char *)record + f->at);
    }
}

/* ---- rules ---- */

static bool inside(int64_t offset, int64_t bytes, int64_t from, int64_t n)
{
    return offset >= from && bytes >= 0 && bytes <= n && offset - from <= n - bytes;
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
    int rc;
    if ((rc = header_check(d, where, err)) < 0)
        return rc;
    for (int64_t i = 0; i < d->n_shards; i++) {
        if ((rc = shard_check(d, i, first, where, err)) < 0)
            return rc;
        first += d->shards[i].samples;
    }
    if (first != d->n_samples)
        return err_set(err, ERR_INPUT, "%s: the shards hold %lld samples, the index lists %lld",
                       where, (long long)first, (long long)d->n_samples);
    return 0;
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
    move_record(&c, 0, d, &n);
    for (int64_t i = 0; i < d->n_shards; i++) {
        uint32_t path_bytes = (uint32_t)strlen(d->shards[i].path);
        move_record(&c, 1, &d->shards[i], &path_bytes);
    }
    for (int64_t i = 0; i < d->n_samples; i++)
        move_record(&c, 2, &d->samples[i], NULL);
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

/* Writes the n bytes of an index that was checked. */
static int index_write(const char *path, struct dataset *d, int64_t n, struct err *err)
{
    unsigned char *buf = malloc((size_t)n);
    if (!buf)
        return err_set(err, ERR_NOMEM, "no memory for a dataset index of %lld bytes", (long long)n);
    text_clean(d->tokenizer);
    text_clean(d->text_encoder);
    index_encode(d, buf, n);
    int rc = file_publish(path, buf, (size_t)n, err);
    free(buf);
    return rc;
}

int dataset_save(const char *root, struct dataset *d, struct err *err)
{
    char path[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES];
    int64_t n = 0;
    int rc;
    if ((rc = index_path(root, path, err)) < 0)
        return rc;
    if ((rc = dataset_check(d, path, err)) < 0)
        return rc;
    if ((rc = index_bytes(d, &n, err)) < 0)
        return rc;
    snprintf(dir, sizeof dir, "%.*s", (int)(strlen(path) - strlen("/index")), path);
    if ((rc = file_mkdirs(dir, err)) < 0)
        return rc;
    return index_write(path, d, n, err);
}

/* ---- reading ---- */

static int damaged(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "%s: %s: the index is damaged: restore it from a copy, or curate the sources "
                   "again",
                   path, what);
}

/* Checks magic, length and checksum. Nothing else is read before they are right. */
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
    return room == 0 ? 0 : damaged(path, "bytes are left over after the shards' paths", err);
}

static int tables_decode(struct cursor *c, struct dataset *d, int64_t room, const char *path,
                         struct err *err)
{
    uint32_t *lengths = calloc((size_t)d->n_shards, sizeof *lengths);
    int rc;
    d->shards = calloc((size_t)d->n_shards, sizeof *d->shards);
    d->samples = calloc((size_t)d->n_samples, sizeof *d->samples);
    if (!lengths || !d->shards || !d->samples) {
        rc = err_set(err, ERR_NOMEM, "%s: no memory for an index of %lld samples", path,
                     (long long)d->n_samples);
        goto out;
    }
    for (int64_t i = 0; i < d->n_shards; i++)
        move_record(c, 1, &d->shards[i], &lengths[i]);
    for (int64_t i = 0; i < d->n_samples; i++)
        move_record(c, 2, &d->samples[i], NULL);
    rc = paths_decode(c, d, lengths, room, path, err);
out:
    free(lengths);
    return rc;
}

static int index_decode(const char *path, const struct str *bytes, struct dataset *d,
                        struct err *err)
{
    struct cursor c = {(unsigned char *)bytes->p, false};
    int64_t length, least;
    struct err why;
    int rc;
    if ((rc = envelope_check(path, bytes, &d->fingerprint, err)) < 0)
        return rc;
    move_record(&c, 0, d, &length);
    struct dataset counts = {.n_shards = d->n_shards, .n_samples = d->n_samples};
    if (d->n_shards < 1 || d->n_samples < 1 || index_bytes(&counts, &least, NULL) < 0 ||
        least > length) {
        d->n_shards = 0;
        return damaged(path, "its tables are larger than the file", err);
    }
    if ((rc = tables_decode(&c, d, length - least, path, err)) < 0)
        return rc;
    if (dataset_check(d, path, &why) < 0)
        return err_set(err, ERR_CORRUPT,
                       "%s: the index is damaged: restore it from a copy, or curate the sources "
                       "again",
                       why.text);
    return 0;
}

static int file_load(const char *path, struct dataset *out, struct err *err)
{
    struct str bytes = STR_INIT;
    struct dataset d = {0};
    int rc;
    if ((rc = file_read(path, max_index_bytes, &bytes, err)) < 0)
        goto out;
    if ((rc = index_decode(path, &bytes, &d, err)) < 0)
        goto out;
    *out = d;
    d = (struct dataset){0}; /* the caller owns it now */
out:
    str_release(&bytes);
    dataset_release(&d);
    return rc;
}

int dataset_load(const char *root, struct dataset *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = index_path(root, path, err)) < 0)
        return rc;
    if (!file_exists(path))
        return err_set(err, ERR_NOT_FOUND,
                       "'%s' is no dataset: there is no file %s: make one with: reel curate SRC -o "
                       "'%s'",
                       root, path, root);
    return file_load(path, out, err);
}

static bool is_of(const struct dataset *d, struct hash128 fingerprint)
{
    return d->fingerprint.hi == fingerprint.hi && d->fingerprint.lo == fingerprint.lo;
}

/* Loads the kept copy of a generation. ERR_NOT_FOUND: there is none. */
static int kept_load(const char *root, struct hash128 wanted, struct dataset *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64], hash[HASH_TEXT_BYTES];
    int rc;
    snprintf(path, sizeof path, "%s/.reel/generations/%s.index", root, hash_format(wanted, hash));
    if ((!wanted.hi && !wanted.lo) || !file_exists(path))
        return ERR_NOT_FOUND;
    if ((rc = file_load(path, out, err)) < 0 || is_of(out, wanted))
        return rc;
    dataset_release(out);
    return ERR_NOT_FOUND;
}

int dataset_load_generation(const char *root, struct hash128 wanted, struct dataset *out,
                            struct err *err)
{
    struct dataset newest;
    struct err why = {0};
    int kept = kept_load(root, wanted, out, &why), rc;
    if (kept == 0)
        return 0;
    if ((rc = dataset_load(root, &newest, err)) < 0)
        return rc;
    if (kept != ERR_NOT_FOUND && !is_of(&newest, wanted)) {
        dataset_release(&newest);
        return err_set(err, kept, "%s", why.text);
    }
    *out = newest;
    return 0;
}
