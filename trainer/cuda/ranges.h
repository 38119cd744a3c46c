/* ranges: names queued work for profilers, by NVTX ranges of steps, of layers within steps, and of
 * operations within layers.
 *
 * Ranges are set only while NVTX_INJECTION64_PATH is set, that is, while a profiler is attached.
 * NVTX itself reads this variable at the first range and never again, so no range may be set before
 * the variable is. */
#ifndef TRAINER_CUDA_RANGES_H
#define TRAINER_CUDA_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct ranges {
    /* A step's range is open; a layer's range is open; the layer is in backward. */
    bool step, in_layer, backward;
    int64_t layer;
};

/* Ends the open ranges of step and layer, and begins the range of a step; step -1: begins none. */
void ranges_step(struct ranges *r, int64_t step);
/* Begin and end the range of an operation. layer is 0.., or less than 0 for no layer. */
void ranges_op_begin(struct ranges *r, int64_t layer, bool backward, const char *name);
void ranges_op_end(const struct ranges *r);

#endif
