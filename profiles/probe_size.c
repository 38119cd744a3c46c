#include "profiles/probe_size.h"

#include <math.h>

#include "base/num.h"
#include "profiles/flops.h"

/* The extent is cut until a layer of a sample needs at most FIRST_FLOPS, or until a cut leaves more
 * than the share LITTLE of them. */
static const double FIRST_FLOPS = 2e10, LITTLE = 0.5;

/* Returns a quarter of the extent, cut along its longest axis and rounded up. */
static struct seq quarter(struct seq s)
{
    int64_t *longest = s.t >= s.h && s.t >= s.w ? &s.t : s.h >= s.w ? &s.h : &s.w;
    *longest = num_ceil_div(*longest, 4);
    return s;
}

/* Computes the FLOPs of a step of one sample through one layer. */
static int layer_flops(const struct model *m, struct seq seq, double *out, struct err *err)
{
    struct model layer = *m;
    struct flops flops;
    layer.layers = 1;
    int rc = flops_reel_sample(&layer, seq, layer.text_len, &flops, err);
    if (rc < 0)
        return rc;
    *out = flops.total;
    return 0;
}

int probe_sizes(const struct model *m, struct seq seq, struct probe_size out[PROBE_SIZES], int *n,
                struct err *err)
{
    enum { CUTS = PROBE_SIZES - 2 };
    struct seq cuts[CUTS] = {seq};
    double flops, before = 0;
    int k = 1, rc;
    for (; k < CUTS && (k == 1 || before > FIRST_FLOPS); k++) {
        cuts[k] = quarter(cuts[k - 1]);
        if ((rc = layer_flops(m, cuts[k], &flops, err)) < 0)
            return rc;
        if (k > 1 && flops > LITTLE * before)
            break;
        before = flops;
    }
    *n = 0;
    while (k > 0)
        out[(*n)++] = (struct probe_size){cuts[--k], 1};
    out[(*n)++] = (struct probe_size){seq, 2};
    out[(*n)++] = (struct probe_size){seq, 4};
    return 0;
}

double probe_size_growth(const struct probe_size *from, const struct probe_size *to,
                         double attention_share)
{
    double more = (double)seq_tokens(to->seq) / (double)seq_tokens(from->seq),
           samples = (double)to->samples / (double)from->samples;
    return samples * more * (attention_share * more + 1 - attention_share);
}
