/* shots: finds where one shot ends and the next begins, from small planes of every frame.
 *
 * A frame is a *break* when it shows something else than the frame before, after camera motion,
 * exposure and titles are removed (curator/pair.h): the rest differs by `threshold` (8-bit units)
 * or more, and it is not the same picture in another light. A hard cut is a break that stands out
 * and is no flash. It stands out when its difference is at least `ratio` times the median of its
 * four neighbours, so that motion which the search cannot follow is no cut. It is a flash when the
 * picture from before it comes back within four frames; the break at which that picture comes back
 * is no cut either. A sequence of black frames is one boundary, in its middle (fades, and cuts
 * through black). Dissolves between two pictures are not detected. Rate conversion repeats frames.
 * A repeated frame, and what a coder changes in it, is ignored: it is neither a neighbour nor part
 * of a flash. The reach of neighbours and flashes grows with the number of times that each frame is
 * shown, up to six, or for up to a quarter of a second. The idea of a content difference with an
 * adaptive ratio is that of PySceneDetect's AdaptiveDetector.
 *
 *     struct shots *s; shots_new(&conf, &s, err);
 *     for every frame: shots_push(s, planes, time_s, err);
 *     n = shots_end(s, &bounds, err);   // first frames of all shots, bounds[0] == 0
 */
#ifndef CURATOR_SHOTS_H
#define CURATOR_SHOTS_H

#include <stdint.h>

#include "base/err.h"

enum { SHOTS_W = 64, SHOTS_H = 36, SHOTS_PLANE = SHOTS_W * SHOTS_H,
      SHOTS_BYTES = 3 * SHOTS_PLANE }; /* Y, U, V planes */

#define SHOTS_NAME "shots-moved-pairs/7" /* changes when the same frames may give other bounds */

struct shots_conf {
    double threshold;   /* least difference of a cut, 8-bit units */
    double ratio;       /* least ratio of a cut to its neighbours' median */
    int64_t min_frames; /* a boundary closer to the one before is dropped */
};
#define SHOTS_CONF_DEFAULT {.threshold = 2.5, .ratio = 2.5, .min_frames = 6}

struct shots;
int shots_new(const struct shots_conf *conf, struct shots **out, struct err *err);
void shots_free(struct shots *s);
/* Takes the next frame, which is shown from time_s on. */
int shots_push(struct shots *s, const uint8_t planes[SHOTS_BYTES], double time_s, struct err *err);
/* Sets *bounds to the first frames of the shots, borrowed. Returns their number (0: no frame was
 * pushed). */
int64_t shots_end(struct shots *s, const int64_t **bounds, struct err *err);
/* Returns how much a pushed frame differs from the one before it; 0 for frame 0. Motion scores are
 * computed from it. */
double shots_difference(const struct shots *s, int64_t frame);

#endif
