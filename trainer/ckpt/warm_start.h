/* warm_start: takes first weights from a safetensors file or a checkpoint, as a run's "init" says
 * (profiles/warm.c).
 *
 * Every rank takes only the elements that it holds, tensor by tensor, so any layout starts with the
 * same bits. From a file it reads only these; from a checkpoint it reads whole tensors, one at a
 * time. Tensors that the source lacks and is allowed to lack get the random values that they would
 * have without a source.
 *
 * Errors, the same on all ranks: ERR_INPUT naming file, tensor and shapes; ERR_CORRUPT;
 * ERR_NOT_FOUND; ERR_IO.
 */
#ifndef TRAINER_CKPT_WARM_START_H
#define TRAINER_CKPT_WARM_START_H

#include "trainer/state/optim.h"

typedef void warm_say_fn(void *ctx, const char *line);
/* Counts the tensors of the model; those of them that the source has (taken) and lacks (missing);
 * and the tensors of the source for which the model has no place (unused). */
struct warm_count { int64_t tensors, taken, missing, unused; };
/* Fills the weights instead of optim_init; all ranks of the world call it. `say` is called on every
 * rank with lines that say which tensors were taken, are missing, are not used or are interpolated,
 * with as many names of each as there is room for; it may be NULL. *count, unless NULL, is the same
 * on all ranks. Also returns ERR_INPUT if tensors are missing or not used and the run does not
 * allow it ("partial"). */
int warm_start(struct optim *o, warm_say_fn *say, void *ctx, struct warm_count *count,
               struct err *err);
/* Checks whether the source has the hash that the run names, and tensors with the names and shapes
 * that the run needs. One process does it, and loads no weights. It refuses these faults in the
 * same words as warm_start, but does not verify the files of a checkpoint. `say` is called with a
 * line for each tensor that is not used, missing or interpolated, and also if that is refused. */
int warm_fits(const struct run *run, warm_say_fn *say, void *ctx, struct warm_count *count,
              struct err *err);

#endif
