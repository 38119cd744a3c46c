/* ckpt_priv: what ckpt.c (saving), ckpt_load.c (loading into a run), ckpt_read.c (manifest), ckpt_reshard.c and the commands share. */
#ifndef TRAINER_CKPT_PRIV_H
#define TRAINER_CKPT_PRIV_H

#include "trainer/ckpt.h"

struct ckpt_list { int64_t *steps; int64_t n; }; /* newest first; steps from malloc */
int ckpt_list_load(const char *ckpt_dir, struct ckpt_list *out, struct err *err); /* a missing folder is an empty list */
void ckpt_dir_format(const char *ckpt_dir, int64_t step, char out[LIMIT_PATH_BYTES]);
int64_t ckpt_tensor_find(const struct ckpt_manifest *m, const char *name); /* -1 if absent */

/* Whole by manifest and file sizes; with `hashes`, by content too. */
int ckpt_folder_check(const char *dir, bool hashes, struct err *err);
/* Of a look at a checkpoint: it is not whole. Anything else (no memory, a failing file system) says nothing about it. */
bool ckpt_is_damage(int rc);
int ckpt_set_aside(const char *dir, struct err *err);

struct ckpt_state ckpt_state_of(const struct optim *o);
/* Elements of a whole buffer. */
int64_t ckpt_elements(const struct shards *sh, enum ckpt_buffer buffer);
/* Where a buffer begins in a file, in bytes; CKPT_BUFFERS: the file's size. */
int64_t ckpt_buffer_first(const struct ckpt_manifest *m, const struct ckpt_file *f, enum ckpt_buffer buffer);
/* Does this buffer hold whole units, or own pieces? */
bool ckpt_whole(int64_t zero, enum ckpt_buffer buffer);

#endif
