/* dataset: our own index over WebDataset shards (`<root>/.reel/index`): what is in each sample, known before any payload
 * is read. Order, packs and balance are computed from it alone. Written by the curator, read by loader and tuner.
 * The byte format's essay is at the top of dataset.c.
 *
 * Invariants (dataset_check): at least one shard, none empty; samples shard by shard, numbered from 0, at rising offsets
 * without overlap, inside their shard; payloads inside their sample; the latent holds at least 2·channels·t·h·w bytes; a
 * caption (text_len > 0) has an embedding; shard paths stay below the root; scores are finite, latent_std above 0.
 */
#ifndef PROFILES_DATASET_H
#define PROFILES_DATASET_H

#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/limits.h"

/* Parts of one sample in a shard: "latent.npy" float16 or float32 [C,T,H,W]; "text.npy" float32 [tokens, width] of the
 * caption's true length (0 rows allowed); "txt" caption; "json" metadata. */
struct dataset_sample {
    uint32_t shard;          /* index into shards */
    uint32_t index_in_shard;
    int64_t offset, bytes;   /* in the tar, headers included */
    int64_t latent_offset, latent_bytes; /* payload of latent.npy */
    int64_t text_offset, text_bytes;     /* payload of text.npy; bytes 0 = none */
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
    char tokenizer[LIMIT_NAME_BYTES], text_encoder[LIMIT_NAME_BYTES]; /* what made the latents, the embeddings */
    double latent_mean, latent_std; /* of the written latents (they are normalised by these at load) */
    struct hash128 fingerprint;     /* of the index's content */
};
int dataset_load(const char *root, struct dataset *out, struct err *err); /* damaged index: ERR_CORRUPT with what to do */
/* The same, of a dataset that may have grown: the generation with this fingerprint (`<root>/.reel/generations/<fingerprint>.index`), which the curator
 * keeps when it adds to one, if the newest is another. The newest if `wanted` is zero or not there: who needs that one compares. */
int dataset_load_generation(const char *root, struct hash128 wanted, struct dataset *out, struct err *err);
int dataset_save(const char *root, struct dataset *d, struct err *err);   /* atomic; fills fingerprint */
void dataset_release(struct dataset *d); /* frees what load made (malloc); safe on a zeroed struct */
/* The rules an index keeps (order, ranges, sums), as ERR_INPUT with `where` in front; load and save apply them. */
int dataset_check(const struct dataset *d, const char *where, struct err *err);

#endif
