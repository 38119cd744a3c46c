/* ckpt_priv: what ckpt.c (saving, loading into a run) and ckpt_read.c (one folder) share. */
#ifndef TRAINER_CKPT_PRIV_H
#define TRAINER_CKPT_PRIV_H

#include "trainer/ckpt.h"

struct ckpt_names { char **names; int64_t n; }; /* "step-00000120", newest first */
int ckpt_names_list(const char *ckpt_dir, struct ckpt_names *out, struct err *err); /* a missing folder is an empty list */
void ckpt_names_release(struct ckpt_names *names);
int64_t ckpt_tensor_find(const struct ckpt_manifest *m, const char *name); /* -1 if absent */

#endif
