/* wds: writes and reads WebDataset shards: samples in a tar, an index `.tar.idx` beside it, and
 * Megatron-Energon's sidecar files in `.nv-meta/`.
 *
 * A sample is a sequence of adjacent files that share a key. The key is the path up to the first
 * dot of its last component; the text after that dot is the name of the part. Keys are ASCII
 * without dots or spaces, unique over the dataset; names of parts are lower case, and parts are
 * written in sorted order. `.tar.idx` is N+1 little-endian uint64: the offset of each sample's
 * first header and the offset of the first zero block. A shard is never empty.
 */
#ifndef BASE_WDS_H
#define BASE_WDS_H

#include <stdint.h>

#include "base/err.h"
#include "base/tar.h"

struct wds_part {
    const char *name; /* "latent.npy", "json", "txt" */
    const void *bytes;
    int64_t n;
    int64_t data_offset; /* offset of the bytes in the shard, set by wds_writer_add */
};

struct wds_writer; /* one shard */
int wds_writer_open(const char *tar_path, struct wds_writer **out, struct err *err);
/* Adds a sample. Sorts the parts by name, in place. Refuses bad keys and part names, and a key that
 * the shard has already. */
int wds_writer_add(struct wds_writer *w, const char *key, struct wds_part *parts, size_t n_parts,
                   struct err *err);
/* Returns the number of bytes written so far, which is the offset of the next sample. */
int64_t wds_writer_bytes(const struct wds_writer *w);
struct wds_written { int64_t samples; struct tar_written tar; };
/* Removes an old index, publishes the tar, then the new index. ERR_STATE for a shard without
 * samples or with a sample that was not written whole. Frees the writer in any case. *out may be
 * NULL. */
int wds_writer_close(struct wds_writer *w, struct wds_written *out, struct err *err);
void wds_writer_abort(struct wds_writer *w);

struct wds_sample {
    char *key;
    int64_t offset, bytes; /* range in the tar with headers: idx[i], idx[i+1]-idx[i] */
    size_t n_parts;
    struct wds_sample_part { char *name; int64_t data_offset, bytes; } *parts;
};
struct wds_reader; /* one shard, read by its index or scanned */
/* Opens a shard. If it has an index, that is used; else the shard is scanned. */
int wds_reader_open(const char *tar_path, struct wds_reader **out, struct err *err);
int64_t wds_reader_count(const struct wds_reader *r);
/* Fills *out (borrowed until the next call). ERR_CORRUPT if the headers at that offset do not agree
 * with the index. */
int wds_reader_sample(struct wds_reader *r, int64_t i, struct wds_sample *out, struct err *err);
int wds_reader_part(struct wds_reader *r, const struct wds_sample *s, const char *part,
                    struct str *out, struct err *err);
void wds_reader_close(struct wds_reader *r);

/* Writes Energon's `.nv-meta`: .info.json (ordered shard_counts), split.yaml, dataset.yaml,
 * index.uuid; index.sqlite is left to `energon prepare`. The files are published one by one. The
 * uuid is derived from the paths, the counts and the `.tar.idx` files (which must exist), so equal
 * data gives equal bytes. */
struct wds_shard { const char *path; int64_t samples; }; /* path relative to the root */
int wds_meta_save(const char *root, const struct wds_shard *shards, size_t n, struct err *err);

#endif
