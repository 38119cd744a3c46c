#include "profiles/rates.h"

#include <math.h>

static double share_of_kind(const struct device *d, int kind, enum dtype dtype, double size,
                            double otherwise)
{
    const struct curve *c =
        curves_find(&d->curves, &(struct curve_case){.kind = kind, .dtype = dtype});
    return c ? curve_at(c, size) : otherwise;
}

double device_gemm_share(const struct device *d, enum dtype dtype, double m, double n, double k)
{
    double by_flops = share_of_kind(d, CURVE_GEMM_FLOPS, dtype, 2 * m * n * k, d->gemm_efficiency);
    return share_of_kind(d, CURVE_GEMM_SIDE, dtype, fmin(m, fmin(n, k)), by_flops);
}

/* Returns the share of the peak that attention reaches: the curve's value at these tokens, times
 * the factor for how well the heads fill the device. */
static double attn_share(const struct device *d, const struct attn_shape *a, int kind, int fill,
                         double otherwise)
{
    const struct curve *c = curves_find(
        &d->curves, &(struct curve_case){.kind = kind, .dtype = a->dtype, .causal = a->causal,
                                         .head_dim = a->head_dim});
    return (c ? curve_at(c, a->tokens) : otherwise) *
           share_of_kind(d, fill, a->dtype, a->tokens * a->heads, 1);
}

double device_attn_fwd_share(const struct device *d, const struct attn_shape *a)
{
    return attn_share(d, a, CURVE_ATTN_FWD, CURVE_ATTN_FWD_FILL, d->attn_fwd_efficiency);
}

double device_attn_bwd_share(const struct device *d, const struct attn_shape *a)
{
    return attn_share(d, a, CURVE_ATTN_BWD, CURVE_ATTN_BWD_FILL, d->attn_bwd_efficiency);
}

double device_norm_fwd_share(const struct device *d, bool fused, double bytes)
{
    return share_of_kind(d, fused ? CURVE_NORM_FWD : CURVE_UNFUSED_FWD, DTYPE_BF16, bytes, 0);
}

double device_norm_bwd_share(const struct device *d, bool fused, double bytes)
{
    return share_of_kind(d, fused ? CURVE_NORM_BWD : CURVE_UNFUSED_BWD, DTYPE_BF16, bytes, 0);
}

double device_all_reduce_bytes_per_s(const struct device *d, double bytes)
{
    return share_of_kind(d, CURVE_ALL_REDUCE, DTYPE_BF16, bytes, 0);
}
