/* loader_source: reads samples from the shards of a dataset, or generates synthetic ones. It knows
 * nothing of order and of batches.
 *
 * Extents, counts and captions' lengths are known from the index. Payloads are read by offset from
 * the shard and checked (npy header, shape, finite values); latents are also normalised, by the
 * dataset's mean and deviation. Nothing is allocated after opening.
 */
#ifndef TRAINER_DATA_LOADER_SOURCE_H
#define TRAINER_DATA_LOADER_SOURCE_H

#include "profiles/datasets.h"
#include "profiles/run.h"

struct loader_source {
    const struct model *model; /* borrowed */
    char root[LIMIT_PATH_BYTES];
    const struct dataset *data; /* NULL for synthetic data */
    int64_t synthetic[3];      /* latent cells t, h, w */
    bool is_synthetic;
    uint64_t seed;
    /* the file of the shard read last; -1: none. Only one is open, so that a dataset may have more
     * shards than there may be open files */
    int fd;
    uint32_t fd_shard;
    /* one payload as stored in the shard; for synthetic data the caption, which all samples
     * share */
    char *raw;
    int64_t raw_bytes;
};
struct loader_item { int64_t thw[3], text_len; double fps; }; /* latent cells as stored */

/* Opens data: a folder, or "synthetic:TxHxW". generation is the fingerprint of the index to use, if
 * the dataset has grown (zero: the newest). Shards are compared with the index: the size always,
 * the content hash if `verify` (each rank checks the shards i with i mod world = rank). ERR_CORRUPT
 * names shard and remedy. If `set` holds the index, it is taken from there, else it is read; set
 * may be NULL. */
int loader_source_open(struct loader_source *s, const struct run *run, const char *data,
                       struct datasets *set, struct hash128 generation, bool verify, int rank,
                       int world, struct err *err);
void loader_source_close(struct loader_source *s);
/* Returns the number of samples; synthetic data has 2^20. */
int64_t loader_source_count(const struct loader_source *s);
struct loader_item loader_source_item(const struct loader_source *s, int64_t sample);
/* Reads a sample's latent [C, t, h, w], normalised, and its text [text_len, width]. The error names
 * shard, sample and offset. */
int loader_source_read(struct loader_source *s, int64_t sample, float *latent, float *text,
                       struct err *err);

#endif
