/* probe_size: lists the micro-batches with which a machine's rates are measured for a model, and
 * estimates how much longer one takes than another. Its functions are pure.
 *
 * Sizes go from small to large. The smallest extent is found by quartering the given one until a
 * layer needs few FLOPs, or until quartering hardly helps, because captions are not cut. Then each
 * extent with four times as many tokens follows, up to the given one, and two and four samples of
 * it.
 *
 *     probe_sizes(&model, seq, sizes, &n, err);
 *     s = last_s * probe_size_growth(&sizes[i - 1], &sizes[i], share);
 */
#ifndef PROFILES_PROBE_SIZE_H
#define PROFILES_PROBE_SIZE_H

#include "profiles/model.h"

struct probe_size {
    struct seq seq; /* tokens of a sample */
    int64_t samples;
};
enum { PROBE_SIZES = 12 };
/* Lists the sizes. ERR_INPUT: the model cannot have this extent. */
int probe_sizes(const struct model *m, struct seq seq, struct probe_size out[PROBE_SIZES], int *n,
                struct err *err);
/* Returns the ratio of the times of two sizes. `attention_share` is attention's share of the time
 * of `from`: it grows with the square of a sample's tokens, all else with the tokens. */
double probe_size_growth(const struct probe_size *from, const struct probe_size *to,
                         double attention_share);

#endif
