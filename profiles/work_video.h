/* work_video: counts what a layer of a video model reads and writes, besides its products and
 * attention, under trainers that do more than the formulas of work.h say. work_video.c has the
 * numbers, and where they are from.
 */
#ifndef PROFILES_WORK_VIDEO_H
#define PROFILES_WORK_VIDEO_H

#include "profiles/work.h"

/* Holds the sizes that count: tokens of a rank, of them those of the residual stream, ranks over
 * which tensor parallelism divides, ranks of the ring, and bytes of an activation. */
struct work_video {
    const struct model *model;
    const struct stack *stack;
    double tokens, stream_tokens, tp, ring, act_bytes;
};
/* Sets or adds to the bytes of a layer's forward and backward. */
void work_video_bytes(const struct work_video *v, struct work_part *forward,
                      struct work_part *backward);
/* Says whether the layer's queries and keys are gathered for their norms. */
bool work_video_gathers(const struct work_video *v);
/* Returns the width of those that have norms and belong to tokens of the video. */
double work_video_normed(const struct model *m);

#endif
