/* shard: joins the work shards of all sources, in the order of the sources, into shards of a given
 * size, and makes the index of the dataset to which they are added. Here each clip receives the
 * name of its source, the caption and its embedding, on which no work depends.
 *
 * The existing shards of the dataset never change: they keep their names, their bytes and their
 * places in the index.
 */
#ifndef CURATOR_SHARD_H
#define CURATOR_SHARD_H

#include "curator/source.h"
#include "profiles/dataset.h"

/* Writes <root>/shard-<6 digits>.tar with .idx, numbered from base->n_shards on. *out receives the
 * index of `base` and of the new shards; dataset_release frees it. `base`, whose shards need not be
 * below root, is NULL for a new dataset. A shard is closed once it has shard_bytes. */
int shards_write(const char *root, const struct source_conf *c, const struct source *sources,
                 const struct source_result *results, int64_t n, int64_t shard_bytes,
                 const struct dataset *base, struct dataset *out, struct err *err);
/* Writes Megatron-Energon's sidecars (base/wds.h) for all shards of d below root. */
int shards_meta_save(const char *root, const struct dataset *d, struct err *err);
enum { SHARD_NAME_BYTES = 32 };
void shard_name(int64_t i, char out[SHARD_NAME_BYTES]);

#endif
