/* pair: measures how much two frames differ after camera motion, exposure and small overlays are
 * removed. Shot detection is built on it.
 *
 * A frame is stored at half and at quarter size. pair_compare() searches the shift under which two
 * frames match best: first at quarter size, then refined, on luma minus its mean. `rest` is the
 * remaining difference under this shift: the mean absolute difference (8-bit units, luma counted
 * twice) over the calmer half of a grid of blocks, so that a title or a passing object does not
 * count. `tint` is the same for chroma only. `likeness` is the correlation of luma over the
 * overlap. Exposure does not change it: it is 1 for the same picture brighter or darker, and about
 * 0 for unrelated ones. It is 0 if a picture is too flat to be compared. If the frames match better
 * without a shift, all three are computed without one.
 */
#ifndef CURATOR_PAIR_H
#define CURATOR_PAIR_H

#include <stdint.h>

#include "curator/shots.h"

enum {
    PAIR_W = SHOTS_W / 2, PAIR_H = SHOTS_H / 2,
    PAIR_N = PAIR_W * PAIR_H, PAIR_QUARTER_N = PAIR_N / 4
};

struct pair_frame {
    int16_t half[3][PAIR_N];       /* sums of 2x2 pixels, 4 times their mean */
    int16_t quarter[PAIR_QUARTER_N]; /* luma minus its mean, in the same units */
    int16_t mean;                  /* of luma, in the same units */
};
struct pair_facts { float rest, tint, likeness; };

void pair_shrink(const uint8_t planes[SHOTS_BYTES], struct pair_frame *out);
struct pair_facts pair_compare(const struct pair_frame *a, const struct pair_frame *b);

#endif
