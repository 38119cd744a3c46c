/* pair: how far two frames differ once camera motion, exposure and small overlays are taken out.
 * Shot detection is built on it.
 *
 * A frame is kept at half and at quarter size. The shift is looked for under which two frames fit
 * best: at quarter size first, then refined, on luma minus its mean. `rest` is what still differs
 * under it: the mean absolute difference (8-bit units, luma counted twice) over the calmer half of
 * a grid of blocks, so that a title or a passing object does not count. `tint` is the same for
 * chroma alone. `likeness` is the correlation of luma over the overlap. Exposure does not change
 * it: it is 1 for the same picture brighter or darker, and about 0 for unrelated ones. Where the
 * frames fit better without a shift, all three are taken without one.
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
    int16_t half[3][PAIR_N];       /* 4 times the mean of 2x2: a little precision is kept */
    int16_t quarter[PAIR_QUARTER_N]; /* luma less its mean, same units */
    int16_t mean;                  /* of luma */
};
struct pair_facts { float rest, tint, likeness; };

void pair_shrink(const uint8_t planes[SHOTS_BYTES], struct pair_frame *out);
struct pair_facts pair_compare(const struct pair_frame *a, const struct pair_frame *b);

#endif
