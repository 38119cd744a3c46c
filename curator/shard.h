/* shard: the work shards of all sources, in source order, become the dataset: shards of a stated size, Energon's sidecars and our index. */
#ifndef CURATOR_SHARD_H
#define CURATOR_SHARD_H

#include "curator/source.h"

struct shard_summary { int64_t shards, clips, bytes; double latent_mean, latent_std; };

/* Writes <root>/shard-<6 digits>.tar with .idx, .nv-meta and .reel/index. shard_bytes: a shard is closed once it is that large. */
int shards_write(const char *root, const struct source_conf *c, const struct source *sources, const struct source_result *results,
                 int64_t n, int64_t shard_bytes, struct shard_summary *out, struct err *err);

#endif
