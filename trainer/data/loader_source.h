/* loader_source: where samples come from: the shards of a dataset, or made ones. Knows nothing of order and of batches.
 *
 * Extents, counts and captions' lengths are known from the index; payloads are read by offset from the shard, checked (npy header,
 * shape, finite values) and normalised by the dataset's mean and deviation. Nothing is allocated after opening.
 */
#ifndef TRAINER_DATA_LOADER_SOURCE_H
#define TRAINER_DATA_LOADER_SOURCE_H

#include "profiles/dataset.h"
#include "profiles/run.h"

struct loader_source {
    const struct model *model; /* borrowed */
    char root[LIMIT_PATH_BYTES];
    struct dataset data;       /* n_samples 0 for synthetic data */
    int64_t synthetic[3];      /* latent cells t, h, w */
    bool is_synthetic;
    uint64_t seed;
    int fd;                    /* of the shard read last; -1: none. One, so that a dataset may have more shards than files may be open */
    uint32_t fd_shard;
    char *raw;                 /* one payload as it lies in the shard; of made data the caption, the same for all samples */
    int64_t raw_bytes;
};
struct loader_item { int64_t thw[3], text_len; double fps; }; /* latent cells as stored */

/* `data`: a folder, or "synthetic:TxHxW"; generation: which, of one that has grown, by the fingerprint (zero: the newest). Shards are compared with the index: size always, content hash when `verify` (each rank checks
 * the shards i with i mod world = rank). ERR_CORRUPT names shard and remedy. */
int loader_source_open(struct loader_source *s, const struct run *run, const char *data, struct hash128 generation, bool verify, int rank, int world,
                       struct err *err);
void loader_source_close(struct loader_source *s);
int64_t loader_source_count(const struct loader_source *s); /* synthetic: an epoch of a million made samples */
struct loader_item loader_source_item(const struct loader_source *s, int64_t sample);
/* The sample's latent [C, t, h, w] and text [text_len, width] as stored. The error names shard, sample and offset. */
int loader_source_read(struct loader_source *s, int64_t sample, float *latent, float *text, struct err *err);

#endif
