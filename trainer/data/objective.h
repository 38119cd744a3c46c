/* objective: holds the table of training objectives, which say what the network predicts.
 *
 * With data x0 = data_scale · latent, noise eps of variance 1, and a noise level L = ln(sigma /
 * alpha), the log of noise amplitude over data amplitude, each row gives
 *
 *     noised sample   x_t   = alpha · x0 + sigma · eps
 *     network input         = c_in · x_t
 *     target          T     = p · x0 + q · eps
 *     loss                  = w · (F - T)²
 *     time embedding of       c_noise
 *     clean estimate  x0^   = c_skip · x_t + c_out · F,  so x0^ - x0 = c_out · (F - T)
 *
 *               data_scale  alpha  sigma  c_in          T                        with
 *   edm         d = 0.5     1      s      1/sqrt(s²+d²) (x0 - c_skip x_t)/c_out  s = exp(L)
 *   rectified_  1           1 - t  t      1             eps - x0                 t = 1/(1+exp(-L))
 *   flow
 *   v           1           cos a  sin a  1             alpha eps - sigma x0     tan a = exp(L)
 *
 *               c_skip       c_out
 *   edm         d²/(s²+d²)   s d/sqrt(s²+d²)
 *   rectified_  1            -t
 *   flow
 *   v           alpha        -sigma
 *
 * In all three c_noise = L / 4 and w = 1.
 *
 * EDM (Karras et al., "Elucidating the design space of diffusion-based generative models", table 1,
 * last column) is taken in F-space: EDM's own weight is 1 / c_out²; it cancels the c_out² of the
 * error in x0^, so w = 1 here, and nothing is divided by a small sigma. Rectified flow has alpha =
 * 1 - t, sigma = t, T = eps - x0; with L normal, t is logit-normal (Esser et al., "Scaling
 * rectified flow transformers"). v-prediction (Salimans and Ho, "Progressive distillation") has
 * alpha = cos, sigma = sin, T = alpha eps - sigma x0.
 *
 * One noise-level variable, L, serves all three. It is a rising function of u, which is drawn
 * uniformly from (0, 1):
 *
 *     normal     mean + std · (inverse normal distribution)(u)
 *                EDM's ln sigma; rectified flow: t is logit-normal
 *     logistic   mean + std · ln(u / (1 - u))
 *                with mean 0 and std 1, rectified flow's t is uniform
 *     uniform    min + (max - min) · u
 *                ln sigma is uniform
 *     mode       t = u - s (sin²(pi u / 2) - u), L = ln(t / (1 - t))
 *                Esser et al., "mode sampling with heavy tails" (their u is 1 - u)
 *     cosine     ln tan(pi u / 2)
 *                v: the angle is uniform; rectified flow: their "CosMap"
 *
 * Then ln(shift) is added, and with shift_tokens N also power · ln(n / N) for a sample of n tokens,
 * because larger samples need more noise to be destroyed as much. (Esser et al., section 5.3.2: t'
 * = shift t / (1 + (shift - 1) t) with shift = sqrt(n / N) is the same in L.)
 */
#ifndef TRAINER_DATA_OBJECTIVE_H
#define TRAINER_DATA_OBJECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/run.h"

#define OBJECTIVE_SIGMA_DATA 0.5

struct objective_coef {
    double alpha, sigma, c_in;
    double p, q, w;
    double c_noise;
    double c_skip, c_out;
};

struct objective_row {
    double data_scale; /* x0 = data_scale · latent: 0.5 for EDM, whose sigma_data is 0.5 */
    void (*coef)(double level, struct objective_coef *out);
};

extern const struct objective_row objective_rows[]; /* by enum objective */

/* Returns the level below which a share u of all draws lies, for a sample of `tokens` tokens: the
 * inverse CDF. */
double objective_level(const struct run_level *l, double u, int64_t tokens);
/* Draw from (seed, draw ordinal) alone: the level, whether the caption is dropped, and whether a
 * video is given its first frames. */
double objective_level_draw(uint64_t seed, uint64_t ordinal, const struct run_level *l,
                            int64_t tokens);
bool objective_text_dropped(uint64_t seed, uint64_t ordinal, double probability);
bool objective_conditioned(uint64_t seed, uint64_t ordinal, double probability);

#endif
