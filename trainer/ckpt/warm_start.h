/* warm_start: takes first weights from a safetensors file or a checkpoint, as a run's "init" says
 * (profiles/warm.c).
 *
 * Every rank reads of the source what it holds, tensor by tensor in spans of its own elements, so
 * any layout starts with the same bits. Of a checkpoint it reads whole tensors, one at a time. What
 * the source lacks and may lack is drawn as it would be without a source.
 *
 * Errors, the same on all ranks: ERR_INPUT naming file, tensor and shapes; ERR_CORRUPT;
 * ERR_NOT_FOUND; ERR_IO.
 */
#ifndef TRAINER_CKPT_WARM_START_H
#define TRAINER_CKPT_WARM_START_H

#include "trainer/state/optim.h"

typedef void warm_say_fn(void *ctx, const char *line);
/* Counts tensors of the model, those of them that the source has and that it lacks, and tensors of
 * the source for which the model has no place. */
struct warm_count { int64_t tensors, taken, missing, unused; };
/* Fills the weights in place of optim_init; all ranks of the world call it. say (every rank calls
 * it alike; may be NULL) is told what was taken, what is missing and what is not used, with the
 * first names of each. *count, unless NULL, is the same on all ranks. ERR_INPUT, too, where
 * something is missing or not used and the run does not allow it ("partial"). */
int warm_start(struct optim *o, warm_say_fn *say, void *ctx, struct warm_count *count,
               struct err *err);
/* Checks whether warm_start would find names and shapes as the run wants them. One process does it,
 * without reading a number. What it refuses warm_start refuses in the same words. */
int warm_fits(const struct run *run, struct warm_count *count, struct err *err);

#endif
