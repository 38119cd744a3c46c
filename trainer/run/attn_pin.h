/* attn_pin: which of cuDNN's engines computes the attention of a run on GPUs (REEL_ATTN).
 *
 * As with products (gemm_pin.h), another engine gives other last bits, so the choice is the run's:
 * the first attempt on GPUs leaves its word in the run's folder, as attn.engine, and later ones use
 * that. An empty file says that none was named. Which engine a word stands for is up to the
 * library and its version, which a run does not keep.
 *
 *     attn_pin_find(world, run_dir, &pin, err);
 *     ... operations are opened with pin.word, and refuse one that means nothing
 *     attn_pin_keep(&pin, err);
 */
#ifndef TRAINER_RUN_ATTN_PIN_H
#define TRAINER_RUN_ATTN_PIN_H

#include <stdbool.h>

#include "base/limits.h"
#include "trainer/comm/comm.h"

enum { ATTN_WORD_BYTES = 32 };

struct attn_pin {
    char word[ATTN_WORD_BYTES];  /* as REEL_ATTN has it; "": none */
    char kept[LIMIT_PATH_BYTES]; /* the file in the run's folder; "": nothing was found yet */
    bool missing;                /* on rank 0: the run has none yet */
};

/* Finds the word on rank 0 and tells all ranks; collective. It warns of one that is given and not
 * used. ERR_LIMIT: it is too long; ERR_CORRUPT: the file is none of ours. */
int attn_pin_find(struct comm *world, const char *run_dir, struct attn_pin *out, struct err *err);
/* Leaves the word in the run's folder, on rank 0 where it is missing. */
int attn_pin_keep(struct attn_pin *pin, struct err *err);

#endif
