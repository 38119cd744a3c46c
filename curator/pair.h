/* pair: how far two frames differ once camera motion, exposure and small overlays are taken out; the raw material of shot detection.
 *
 * A frame is kept at half and quarter size. Of two frames the best common shift is looked for (quarter size, then refined), on luma less
 * its mean. `rest` is what still differs: the mean absolute difference (8-bit units, luma counted twice) over the calmer half of a
 * grid of blocks, so that a title or a thing passing does not count; `tint` is the same of chroma alone. `likeness` is the
 * correlation of luma over the overlap: it does not change with exposure, 1 for the same picture brighter or darker, about 0 for
 * unrelated ones. Should the frames fit better unshifted, the facts are those of no shift.
 */
#ifndef CURATOR_PAIR_H
#define CURATOR_PAIR_H

#include <stdint.h>

#include "curator/shots.h"

enum { PAIR_W = SHOTS_W / 2, PAIR_H = SHOTS_H / 2, PAIR_N = PAIR_W * PAIR_H, PAIR_QUARTER_N = PAIR_N / 4 };

struct pair_frame {
    int16_t half[3][PAIR_N];       /* 4 times the mean of 2x2: a little precision is kept */
    int16_t quarter[PAIR_QUARTER_N]; /* luma less its mean, same units */
    int16_t mean;                  /* of luma */
};
struct pair_facts { float rest, tint, likeness; };

void pair_shrink(const uint8_t planes[SHOTS_BYTES], struct pair_frame *out);
struct pair_facts pair_compare(const struct pair_frame *a, const struct pair_frame *b);

#endif
