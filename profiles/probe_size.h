/* probe_size: lists the micro-batches by which a machine's rates are measured for a model, and how
 * much longer one takes than another. Pure.
 *
 * Sizes go from small to large: the extent is cut by four until a layer needs few FLOPs, or cutting
 * no longer helps, as captions are not cut. Then each part with four times as many tokens follows,
 * the extent itself, and two and four samples of it.
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
/* Lists them. ERR_INPUT: not an extent of the model. */
int probe_sizes(const struct model *m, struct seq seq, struct probe_size out[PROBE_SIZES], int *n,
                struct err *err);
/* Returns how many times as long a size takes as another, of whose time this share is attention:
 * that grows by the square of a sample's tokens, all else by the tokens. */
double probe_size_growth(const struct probe_size *from, const struct probe_size *to,
                         double attention_share);

#endif
