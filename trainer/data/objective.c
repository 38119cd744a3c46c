#include "trainer/data/objective.h"

#include <math.h>

#include "base/philox.h"

static void edm_coef(double level, struct objective_coef *c)
{
    const double sd = OBJECTIVE_SIGMA_DATA;
    double sigma = exp(level), r = sqrt(sigma * sigma + sd * sd);
    *c = (struct objective_coef){.alpha = 1, .sigma = sigma, .c_in = 1 / r,
                                 .p = sigma / (sd * r), .q = -sd / r, .w = 1,
                                 .c_noise = level / 4,
                                 .c_skip = sd * sd / (r * r), .c_out = sigma * sd / r};
}

static void rectified_flow_coef(double level, struct objective_coef *c)
{
    double t = 1 / (1 + exp(-level));
    *c = (struct objective_coef){.alpha = 1 - t, .sigma = t, .c_in = 1, .p = -1, .q = 1, .w = 1,
                                 .c_noise = level / 4, .c_skip = 1, .c_out = -t};
}

static void v_coef(double level, struct objective_coef *c)
{
    double angle = atan(exp(level)), alpha = cos(angle), sigma = sin(angle);
    *c = (struct objective_coef){.alpha = alpha, .sigma = sigma, .c_in = 1, .p = -sigma, .q = alpha,
                                 .w = 1, .c_noise = level / 4, .c_skip = alpha, .c_out = -sigma};
}

const struct objective_row objective_rows[] = {
    [OBJECTIVE_EDM] = {OBJECTIVE_SIGMA_DATA, edm_coef},
    [OBJECTIVE_RECTIFIED_FLOW] = {1, rectified_flow_coef},
    [OBJECTIVE_V] = {1, v_coef},
};

static double mode_time(double u, double scale)
{
    double sine = sin(M_PI_2 * u);
    return u - scale * (sine * sine - u);
}

static double level_quantile(const struct run_level *l, double u)
{
    switch (l->dist) {
    case LEVEL_NORMAL:
        return l->mean + l->std * philox_normal_from_uniform(u);
    case LEVEL_LOGISTIC:
        return l->mean + l->std * log(u / (1 - u));
    case LEVEL_UNIFORM:
        return l->min + (l->max - l->min) * u;
    case LEVEL_MODE:
        /* 1 - t(u) = t(1 - u) */
        return log(mode_time(u, l->mode_scale) / mode_time(1 - u, l->mode_scale));
    case LEVEL_COSINE:
        return log(tan(M_PI_2 * u));
    }
    BUG_ON(true);
}

double objective_level(const struct run_level *l, double u, int64_t tokens)
{
    double larger =
        l->shift_tokens ? l->shift_power * log((double)tokens / (double)l->shift_tokens) : 0;
    return level_quantile(l, u) + log(l->shift) + larger;
}

double objective_level_draw(uint64_t seed, uint64_t ordinal, const struct run_level *l,
                            int64_t tokens)
{
    return objective_level(l, philox_uniform_at(seed, PHILOX_LEVEL, ordinal, 0), tokens);
}

/* Returns true with the given probability, by random number `number` of a draw. */
static bool coin(uint64_t seed, uint64_t ordinal, uint64_t number, double probability)
{
    return philox_uniform_at(seed, PHILOX_DROPOUT, ordinal, number) < probability;
}

bool objective_text_dropped(uint64_t seed, uint64_t ordinal, double probability)
{ return coin(seed, ordinal, 0, probability); }

bool objective_conditioned(uint64_t seed, uint64_t ordinal, double probability)
{ return coin(seed, ordinal, 1, probability); }
