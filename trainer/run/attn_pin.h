/* attn_pin: fixes what computes the attention of a run on GPUs: one of cuDNN's engines, or our own
 * kernels (REEL_ATTN, docs/formats.md).
 *
 * As with products (gemm_pin.h), another engine gives results with other last bits, so the choice
 * belongs to the run: the first attempt on GPUs writes the value of REEL_ATTN into the run's
 * folder, as attn.engine, and later attempts use that. An empty file says that no engine was named.
 * Which engine a value stands for depends on the library and its version, which a run does not
 * record.
 *
 *     attn_pin_find(world, run_dir, &pin, err);
 *     ... open the operations with pin.word; they refuse a value that names no engine
 *     attn_pin_keep(&pin, err);
 */
#ifndef TRAINER_RUN_ATTN_PIN_H
#define TRAINER_RUN_ATTN_PIN_H

#include <stdbool.h>

#include "base/limits.h"
#include "trainer/comm/comm.h"

enum { ATTN_WORD_BYTES = 32 };

struct attn_pin {
    char word[ATTN_WORD_BYTES];  /* the value of REEL_ATTN; "": none */
    char kept[LIMIT_PATH_BYTES]; /* the file in the run's folder; "": not looked for yet */
    bool missing;                /* on rank 0: the run has no such file yet */
};

/* Finds the value on rank 0 and sends it to all ranks, all of which call it. It warns if REEL_ATTN
 * is set and not used. ERR_LIMIT: the value, or the one in attn.engine, is too long. */
int attn_pin_find(struct comm *world, const char *run_dir, struct attn_pin *out, struct err *err);
/* Writes the value into the run's folder, on rank 0, if it is missing there. */
int attn_pin_keep(struct attn_pin *pin, struct err *err);

#endif
