/* ckpt_priv: what ckpt.c (saving, loading into a run), ckpt_read.c (one folder) and the commands share. */
#ifndef TRAINER_CKPT_PRIV_H
#define TRAINER_CKPT_PRIV_H

#include "trainer/ckpt.h"

struct ckpt_list { int64_t *steps; int64_t n; }; /* newest first; steps from malloc */
int ckpt_list_load(const char *ckpt_dir, struct ckpt_list *out, struct err *err); /* a missing folder is an empty list */
void ckpt_dir_format(const char *ckpt_dir, int64_t step, char out[LIMIT_PATH_BYTES]);
int64_t ckpt_tensor_find(const struct ckpt_manifest *m, const char *name); /* -1 if absent */

#endif
