/* dataset: reads and writes our own index over WebDataset shards (`<root>/.reel/index`). The index
 * describes each sample, so that order, packs and balance are computed before any payload is read.
 * The curator writes it; loader and tuner read it. The essay on its byte format is at the top of
 * dataset.c, and its fields are in dataset_records.
 *
 * Invariants (dataset_check): there is at least one shard, and none is empty. Samples are listed
 * shard by shard, numbered from 0, at rising offsets without overlap, inside their shard; payloads
 * lie inside their sample. The latent holds at least 2·channels·t·h·w bytes. A caption (text_len >
 * 0) has an embedding. Shard paths stay below the root. Scores are finite, latent_std is above 0.
 */
#ifndef PROFILES_DATASET_H
#define PROFILES_DATASET_H

#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/limits.h"

/* Describes one sample. Its parts in the shard are "latent.npy", float16 or float32 [C,T,H,W];
 * "text.npy", float32 [tokens, width] with the caption's true length (0 rows allowed); "txt", the
 * caption; and "json", metadata. */
struct dataset_sample {
    uint32_t shard;          /* index into shards */
    uint32_t index_in_shard;
    int64_t offset, bytes;   /* place in the tar, headers included */
    int64_t latent_offset, latent_bytes; /* payload of latent.npy */
    int64_t text_offset, text_bytes;     /* payload of text.npy; 0 bytes: none */
    int32_t t, h, w;         /* latent cells */
    int32_t frames, height, width; /* pixels */
    int32_t text_len;        /* true caption length in tokens */
    float fps;
    float motion, sharpness; /* scores of the curator */
    uint64_t key_hash;
};
struct dataset_shard {
    char *path;          /* relative to root */
    int64_t samples;
    uint64_t bytes_hash; /* .lo of hash_file() of the tar */
    int64_t bytes;       /* size of the tar */
};
struct dataset {
    int64_t n_shards, n_samples;
    struct dataset_shard *shards;
    struct dataset_sample *samples; /* in dataset order: shard by shard */
    int64_t channels, text_width;
    /* names of what made the latents and the embeddings */
    char tokenizer[LIMIT_NAME_BYTES], text_encoder[LIMIT_NAME_BYTES];
    double latent_mean, latent_std; /* of the latents as written; the loader normalises by these */
    struct hash128 fingerprint;     /* of the index's content */
};
/* Loads the newest index. ERR_CORRUPT: it is damaged; the error says what to do. */
int dataset_load(const char *root, struct dataset *out, struct err *err);
/* Loads the generation of the index with the fingerprint `wanted`. The curator keeps a copy of each
 * generation as `<root>/.reel/generations/<fingerprint>.index`, so that a run that began with one
 * continues with it after newer ones were published. Loads the newest one if `wanted` is zero or is
 * not there: callers that need exactly that generation compare fingerprints. */
int dataset_load_generation(const char *root, struct hash128 wanted, struct dataset *out,
                            struct err *err);
/* Saves the index by rename, and fills in the fingerprint. */
int dataset_save(const char *root, struct dataset *d, struct err *err);
void dataset_release(struct dataset *d); /* Frees what load allocated. Safe on a zeroed struct. */
/* Checks the rules of an index (order, ranges, sums); a broken one is ERR_INPUT with `where` in
 * front. load and save call it. */
int dataset_check(const struct dataset *d, const char *where, struct err *err);

/* Names the types of the index's fields; numbers are little-endian, without padding. */
enum dataset_number {
    DATASET_MAGIC, DATASET_TEXT, /* LIMIT_NAME_BYTES, padded with NUL */
    DATASET_U32, DATASET_I32, DATASET_F32, DATASET_U64, DATASET_I64, DATASET_F64,
    DATASET_ZERO4, DATASET_ZERO8
};
struct dataset_field {
    const char *name;
    enum dataset_number type;
    long at; /* offset in its struct; below 0: it is not a member */
    const char *help;
};
struct dataset_record { const char *name; const struct dataset_field *fields; size_t n; };
/* Describes the index's records in their order: one header, a record a shard, a record a sample.
 * The index is read and written by these tables, and its page (reel-dataset(5)) is made from
 * them. */
enum { DATASET_RECORDS = 3 };
extern const struct dataset_record dataset_records[DATASET_RECORDS];
size_t dataset_field_bytes(enum dataset_number type);

#endif
