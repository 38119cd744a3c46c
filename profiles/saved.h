/* saved: computes how many bytes a checkpoint of a run takes on disk, and how much room it needs.
 * It is pure arithmetic over shard.h: the files hold what the ranks of the first replica hold, and
 * a tensor that several of them hold is in the file of each (trainer/ckpt/ckpt.c). */
#ifndef PROFILES_SAVED_H
#define PROFILES_SAVED_H

#include "profiles/layout.h"
#include "profiles/run.h"

/* Gives the room for everything besides the files of tensors: the manifest, the folders, and logs
 * that grow while a checkpoint is written. */
enum { SAVED_BESIDE_BYTES = 1 << 20 };

/* Computes the bytes of the files that hold the tensors. The layout must have passed layout_check()
 * for the model. */
int saved_bytes(const struct run *run, const struct layout *l, int64_t *out, struct err *err);

#endif
