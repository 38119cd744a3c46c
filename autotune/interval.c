#include "autotune/interval.h"

#include <math.h>
#include <string.h>

/* A change by this share tells how much a step depends on a constant. */
#define LITTLE 1e-4

/* A stack on a device that no row was of takes longer or shorter than all constants say, by this
 * standard deviation of a logarithm: the spread between such pairs. Each of eight tables of
 * published runs was left out of the fit in turn, and with this 98 % of their times lie within the
 * intervals of 90 % (docs/predictions.md). */
#define PAIR_SD 0.13

static double seconds_of(const struct interval_of *in, const double v[CONSTANTS],
                         const struct work *w, const struct layout *l)
{
    struct price_machine machine;
    struct price price;
    struct price_step step;
    price_machine(in->cluster, v, in->act, in->fp8, &machine);
    price_parts(&machine, w, &price);
    price_step(&price, l, &step);
    return step.seconds;
}

/* Tells whether the prior of a constant of time holds. */
static bool is_untold(const struct interval_of *in, enum constant_id id)
{
    return !constant_is_memory(id) && id != CONSTANT_TIME_SD &&
           !constants_best(in->constants, id, &in->cluster->device, in->stack);
}

double interval_sd(const struct interval_of *in, const struct work *w, const struct layout *l)
{
    double v[CONSTANTS], sd = in->v[CONSTANT_TIME_SD], var = sd * sd;
    double s = seconds_of(in, in->v, w, l);
    if (is_untold(in, CONSTANT_COMPUTE)) /* each row tells that of its stack and device */
        var += PAIR_SD * PAIR_SD;
    memcpy(v, in->v, sizeof v);
    for (int id = 0; id < CONSTANTS; id++) {
        if (!is_untold(in, (enum constant_id)id))
            continue;
        v[id] = in->v[id] * (1 - LITTLE);
        double by = log(seconds_of(in, v, w, l) / s) / log(1 - LITTLE) * constant_table[id].sd;
        v[id] = in->v[id];
        var += by * by;
    }
    return sqrt(var);
}
