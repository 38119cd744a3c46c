/* warm_start: first weights from a safetensors file or a checkpoint, as a run's "init" says (profiles/warm.c).
 *
 * Every rank reads of the source what it holds, tensor by tensor in runs of its own elements, so any layout starts with the same bits; of
 * a checkpoint whole tensors, one at a time. What the source lacks and may lack is drawn as without it.
 *
 * Errors, all ranks alike: ERR_INPUT naming file, tensor and shapes; ERR_CORRUPT; ERR_NOT_FOUND; ERR_IO.
 */
#ifndef TRAINER_CKPT_WARM_START_H
#define TRAINER_CKPT_WARM_START_H

#include "trainer/state/optim.h"

typedef void warm_say_fn(void *ctx, const char *line);
/* Tensors of the model, those of them that the source has and has not, and tensors of the source that the model has no place for. */
struct warm_count { int64_t tensors, taken, missing, unused; };
/* In place of optim_init; collective over the world. say (every rank calls it alike; may be NULL): what was taken, what is missing, what is not
 * used, the first names of each. *count, unless NULL, is the same on all ranks. ERR_INPUT, too, where something is missing or not used and the run does
 * not allow it ("partial"). */
int warm_start(struct optim *o, warm_say_fn *say, void *ctx, struct warm_count *count, struct err *err);
/* Would warm_start find names and shapes as the run wants them? By one process and without reading a
 * number: what it refuses warm_start refuses in the same words. */
int warm_fits(const struct run *run, struct warm_count *count, struct err *err);

#endif
