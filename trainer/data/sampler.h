/* sampler: goes from noise to a sample along the probability-flow ODE, with a denoiser given as a
 * function.
 *
 * One form serves all objectives: x is the noised sample over its data amplitude, x_t / alpha; s =
 * sigma / alpha is the noise over data amplitude; D(x, s) is the clean estimate. Then (Karras et
 * al., equation 1 and algorithm 1, with s for sigma)
 *
 *     dx/ds = (x - D) / s,        and in l = -ln s:   dx/dl = -x + D
 *
 *     euler   x' = x + (s' - s) d,  d = (x - D(x, s)) / s
 *             order 1, one evaluation a step
 *     heun    an Euler step to x', then d' at (x', s'), and x' = x + (s' - s) (d + d') / 2; the
 *             step to s' = 0 is the Euler step alone
 *             order 2, two evaluations
 *     res     the refined exponential solver, as a two-step method (Zhang, "Improved order analysis
 *             and design of exponential integrator for diffusion models sampling", with
 *             Adams-Bashforth weights): with h = l' - l, D the last estimate, D_ the estimate
 *             before it and h_ the h between the two,
 *             x' = e^-h x + h ((phi1 + phi2 h / h_) D - phi2 h / h_ D_),
 *             phi1 = (1 - e^-h) / h,  phi2 = (e^-h - 1 + h) / h²; the first step, and the step to
 *             s' = 0, which gives D, do not use D_
 *             order 2, one evaluation
 *
 * The levels are s_i = (max^(1/rho) + i/(n-1) (min^(1/rho) - max^(1/rho)))^rho for i < n, and then
 * 0 (Karras et al., equation 5, rho = 7).
 */
#ifndef TRAINER_DATA_SAMPLER_H
#define TRAINER_DATA_SAMPLER_H

#include <stdint.h>

#include "base/err.h"

enum sampler_kind { SAMPLER_EULER, SAMPLER_HEUN, SAMPLER_RES };
extern const char *const sampler_names[];

enum { SAMPLER_STEPS_MAX = 1 << 16 };
struct sampler {
    enum sampler_kind kind;
    int64_t steps;
    double level_max, level_min, rho; /* of the levels s; Karras et al.: 80, 0.002, 7 */
    /* Computes clean[n] = D(x[n], s). A failure ends sampling and is returned. */
    int (*denoise)(void *ctx, const double *x, double s, double *clean, struct err *err);
    void *ctx;
};

/* Returns the level s of step i, 0 .. steps; the last is 0. */
double sampler_level(const struct sampler *p, int64_t i);
/* Draws a sample. x[n] is a standard normal times sampler_level(p, 0) before, and the sample after.
 * `scratch` has room for 2n numbers. */
int sampler_run(const struct sampler *p, double *x, int64_t n, double *scratch, struct err *err);
/* Runs from step `first` to step `end` only, for tests of convergence. */
int sampler_run_part(const struct sampler *p, int64_t first, int64_t end, double *x, int64_t n,
                     double *scratch, struct err *err);

#endif
