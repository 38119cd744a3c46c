/* ranges: names of what is queued, for profilers: NVTX ranges of steps, of layers within them and
 * of operations within these.
 *
 * They are set where a profiler listens, which NVTX_INJECTION64_PATH tells; NVTX itself looks there
 * at the first range and never again, so none is set before. */
#ifndef TRAINER_CUDA_RANGES_H
#define TRAINER_CUDA_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct ranges {
    bool step, in_layer, backward; /* is a range of this open */
    int64_t layer;
};

/* Ends the step that is open, and its layer, and begins another one; step -1: none. */
void ranges_step(struct ranges *r, int64_t step);
/* Begin and end an operation of a layer, 0.., or less than 0: of none. */
void ranges_op_begin(struct ranges *r, int64_t layer, bool backward, const char *name);
void ranges_op_end(const struct ranges *r);

#endif
