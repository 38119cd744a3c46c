/* curve: holds the published performance of a device at each size, as a few points, and
 * interpolates between them.
 *
 * A curve is of one kind, say attention's forward, and of one case of it (dtype, mask, head size).
 * Its points are medians of published measurements by size; `source` says whose measurements.
 * Between two points the value is linear in the logarithm of the size. Below the first point and
 * above the last it is the value of that point: nothing is extrapolated. Points have rising sizes.
 * Values need not rise: large matrix products may run into the device's power limit and be slower.
 *
 * Kinds, their sizes and values:
 *     gemm_flops     2·m·n·k of the product             share of the peak in its dtype
 *     gemm_side      the least of m, n and k            likewise; a device has one of these two
 *     attn_fwd       tokens of a sample                 share of the peak, FLOPs as the mask needs
 *     attn_bwd       likewise                           likewise, 2.5 times the forward's FLOPs
 *     attn_fwd_fill  samples · heads · tokens           share of the speed with enough rows: with
 *     attn_bwd_fill                                     few heads on a rank, processors are idle
 *     norm_fwd, norm_bwd             bytes of the tensor    share of the memory's bandwidth, fused
 *     unfused_fwd, unfused_bwd       likewise               the same, as the framework's own ops
 *     all_reduce     bytes of the message               bus bandwidth in B/s over the links inside
 *                                                       a node: 2(n-1)/n · bytes / seconds
 *
 *     const struct curve *c = curves_find(&device.curves, &(struct curve_case){...});
 *     double share = c ? curve_at(c, size) : prior;
 */
#ifndef PROFILES_CURVE_H
#define PROFILES_CURVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/limits.h"

enum curve_kind {
    CURVE_GEMM_FLOPS,
    CURVE_GEMM_SIDE,
    CURVE_ATTN_FWD,
    CURVE_ATTN_BWD,
    CURVE_ATTN_FWD_FILL,
    CURVE_ATTN_BWD_FILL,
    CURVE_NORM_FWD,
    CURVE_NORM_BWD,
    CURVE_UNFUSED_FWD,
    CURVE_UNFUSED_BWD,
    CURVE_ALL_REDUCE,
};
extern const char *const curve_kind_names[];

enum { CURVE_POINTS = 12, CURVES = 20, CURVE_SOURCE_BYTES = 64 };

/* Says what a curve describes. dtype, causal and head_dim distinguish curves of one kind. */
struct curve_case {
    int kind;  /* enum curve_kind */
    int dtype; /* enum dtype */
    bool causal;
    int64_t head_dim; /* 0: any head size */
};
struct curve {
    struct curve_case of;
    char source[CURVE_SOURCE_BYTES];
    int n; /* points, 1 or more */
    double size[CURVE_POINTS], value[CURVE_POINTS];
};
struct curves {
    int n;
    struct curve items[CURVES];
};

/* Returns the value at a size above 0, in the unit of the kind. */
double curve_at(const struct curve *c, double size);
/* Returns the curve of this kind that is nearest to the case; NULL: there is none of the kind. It
 * prefers a curve of the same dtype, then one of bf16, then any other dtype; among these one with
 * the same mask; among these the one with the nearest head size, by ratio. */
const struct curve *curves_find(const struct curves *all, const struct curve_case *of);

/* Reads the array "curves" of obj at `path`; a missing array means no curves. ERR_INPUT names the
 * curve and its point. */
int curves_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct curves *out,
                struct err *err);
/* Writes the array "curves", or nothing if there are no curves. */
void curves_write(const struct curves *all, struct json_out *o);

#endif
