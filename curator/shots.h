/* shots: finds where one shot ends and the next begins, from small planes of every frame.
 *
 * A frame is a break when it shows something else than the frame before, once camera motion,
 * exposure and titles are taken out (curator/pair.h): what is left differs by `threshold` (8-bit
 * units) or more, and it is not the same picture in another light. A hard cut is a break that
 * stands out and is no flash. It stands out when it has at least `ratio` times the median of its
 * four neighbours, so that motion which the search cannot follow is no cut. It is no flash when the
 * picture from before it does not come back within four frames. A run of black frames is one
 * boundary, in its middle (fades, and cuts through black). Dissolves between two pictures are not
 * detected. A frame that repeats the one before it, as rate conversion makes them, is passed over:
 * it is neither a neighbour nor part of a flash. How far neighbours and flashes reach grows with
 * how often each frame is shown, up to six times. The idea of a content difference with an adaptive
 * ratio is that of PySceneDetect's AdaptiveDetector.
 *
 *     struct shots *s; shots_new(&conf, &s, err);
 *     for every frame: shots_push(s, planes);
 *     n = shots_end(s, &bounds);        // first frames of all shots, bounds[0] == 0
 */
#ifndef CURATOR_SHOTS_H
#define CURATOR_SHOTS_H

#include <stdint.h>

#include "base/err.h"

enum { SHOTS_W = 64, SHOTS_H = 36, SHOTS_PLANE = SHOTS_W * SHOTS_H,
      SHOTS_BYTES = 3 * SHOTS_PLANE }; /* Y, U, V planes */

#define SHOTS_NAME "shots-moved-pairs/4" /* changes when the same frames may give other bounds */

struct shots_conf {
    double threshold;   /* least difference of a cut, 8-bit units */
    double ratio;       /* least multiple of the neighbours' median */
    int64_t min_frames; /* a boundary sooner after the one before is dropped */
};
#define SHOTS_CONF_DEFAULT {.threshold = 2.5, .ratio = 2.5, .min_frames = 6}

struct shots;
int shots_new(const struct shots_conf *conf, struct shots **out, struct err *err);
void shots_free(struct shots *s);
int shots_push(struct shots *s, const uint8_t planes[SHOTS_BYTES], struct err *err);
/* Finds the first frames of the shots, which are borrowed. Returns how many there are (0 when no
 * frame was pushed). */
int64_t shots_end(struct shots *s, const int64_t **bounds, struct err *err);
/* Returns how much a pushed frame differs from the one before it, from which the motion score is
 * made. It is 0 for frame 0. */
double shots_difference(const struct shots *s, int64_t frame);

#endif
