/* shard: the work shards of all sources, in source order, become shards of a stated size; and the index of a dataset that they are added to.
 *
 * What a dataset holds already is never touched: its shards keep their names, their bytes and their places in the index.
 */
#ifndef CURATOR_SHARD_H
#define CURATOR_SHARD_H

#include "curator/source.h"
#include "profiles/dataset.h"

/* Writes <root>/shard-<6 digits>.tar with .idx, numbered from base->n_shards on; the index of base and of them goes to *out, which
 * dataset_release frees. base: NULL for a new dataset; its shards need not lie below root. shard_bytes: a shard is closed once it is that large. */
int shards_write(const char *root, const struct source_conf *c, const struct source *sources, const struct source_result *results,
                 int64_t n, int64_t shard_bytes, const struct dataset *base, struct dataset *out, struct err *err);
/* Energon's sidecars for all shards of d, below root. */
int shards_meta_save(const char *root, const struct dataset *d, struct err *err);
enum { SHARD_NAME_BYTES = 32 };
void shard_name(int64_t i, char out[SHARD_NAME_BYTES]);

#endif
