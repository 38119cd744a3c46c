/* saved: tells how many bytes a checkpoint of a run has on disk, and how much room is wanted for
 * it. Pure arithmetic over shard.h: the files hold what the ranks of the first replica own, and a
 * tensor that several places hold stands in the file of each (trainer/ckpt/ckpt.c). */
#ifndef PROFILES_SAVED_H
#define PROFILES_SAVED_H

#include "profiles/layout.h"
#include "profiles/run.h"

/* Room for what is written beside the files: the manifest, the folders, and the logs that grow
 * meanwhile. */
enum { SAVED_BESIDE_BYTES = 1 << 20 };

/* Computes the bytes of the files with the numbers. The layout must have passed layout_check() for
 * the model. */
int saved_bytes(const struct run *run, const struct layout *l, int64_t *out, struct err *err);

#endif
