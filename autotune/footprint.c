#include "autotune/footprint.h"

#include <math.h>

double footprint_lost(const struct work *w, const double v[CONSTANTS])
{ return w->own ? 0 : v[CONSTANT_FRAGMENTATION]; }

static void stage_footprint(const struct work *w, const struct layout *l,
                            const double v[CONSTANTS], int64_t stage, struct footprint *out)
{
    const struct work_scales scales = {v[CONSTANT_KEPT_STREAM], v[CONSTANT_KEPT_INNER],
                                       v[CONSTANT_LOGITS]};
    struct work_stage s;
    work_stage(w, l, stage, &s);
    work_held(w, l, &s, &scales, out->bytes);
    double *b = out->bytes;
    out->stage = stage;
    b[HELD_FRAGMENTATION] = footprint_lost(w, v) *
                            (b[HELD_ACTIVATIONS] + b[HELD_LOGITS] + b[HELD_WORKSPACE] +
                             b[HELD_GATHERED] + b[HELD_BUFFERS]);
    b[HELD_PROCESS] = v[CONSTANT_PROCESS_BYTES];
    out->total = 0;
    for (int i = 0; i < WORK_HELD; i++)
        out->total += b[i];
}

void footprint_of(const struct work *w, const struct layout *l, const double v[CONSTANTS],
                  struct footprint *out)
{
    struct footprint last;
    stage_footprint(w, l, v, 0, out);
    if (l->pp == 1)
        return;
    /* The stages in between hold no more than the first: fewer micro-batches, and no embedding. */
    stage_footprint(w, l, v, l->pp - 1, &last);
    if (last.total > out->total)
        *out = last;
}

double footprint_fits(const struct footprint *f, const double v[CONSTANTS], double limit_bytes)
{
    return 0.5 * erfc(log(f->total / limit_bytes) / (v[CONSTANT_MEMORY_SD] * sqrt(2)));
}

double footprint_room(const double v[CONSTANTS], double limit_bytes, double p)
{
    double low = -8, high = 8; /* standard deviations; at `low` the chance to fit is p or more */
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(0.5 * erfc(middle / sqrt(2)) >= p ? &low : &high) = middle;
    }
    return limit_bytes * exp(low * v[CONSTANT_MEMORY_SD]);
}
