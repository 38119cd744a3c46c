/* rates: returns the share of a device's peaks that work of a given size reaches: from the device's
 * curves where it has them, else from its three shares, which hold at any size. Its functions are
 * pure; further losses in a framework or a cluster are not counted here. No prediction is made from
 * them: price_part.c has a share and a half size of each device, which are fitted.
 *
 * All shares are in (0, 1]. Sizes are above 0.
 */
#ifndef PROFILES_RATES_H
#define PROFILES_RATES_H

#include "profiles/hw.h"

/* Returns the share of peak_flops[dtype] that a product of m x k by k x n reaches, from a curve
 * over its smallest side if the device has one, else over its FLOPs. */
double device_gemm_share(const struct device *d, enum dtype dtype, double m, double n, double k);

/* Describes fused attention on one rank. */
struct attn_shape {
    enum dtype dtype;
    double tokens; /* of a sample: the keys of a query without a mask */
    double heads;  /* samples times heads on this rank */
    int64_t head_dim;
    bool causal;
};
/* Return the share of peak_flops[dtype], counting the FLOPs that the mask needs (causal: half),
 * forward and backward (2.5 times the forward's). */
double device_attn_fwd_share(const struct device *d, const struct attn_shape *a);
double device_attn_bwd_share(const struct device *d, const struct attn_shape *a);

/* Return the share of memory_bytes_per_s that a memory-bound operation like a norm reaches on a
 * tensor of this many bytes; 0 if nothing is known. Forward moves twice these bytes (it reads x and
 * writes y), backward three times (it reads x and dy and writes dx). */
double device_norm_fwd_share(const struct device *d, bool fused, double bytes);
double device_norm_bwd_share(const struct device *d, bool fused, double bytes);

/* Returns the bus bandwidth in B/s of an all-reduce of this many bytes inside a node or NVLink
 * domain, latency included; 0 if nothing is known. */
double device_all_reduce_bytes_per_s(const struct device *d, double bytes);

#endif
