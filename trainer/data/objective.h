/* objective: what the network is asked to predict, as a table.
 *
 * With data x0 = data_scale · latent and noise eps of variance 1, and a noise level L = ln(sigma / alpha), the log of
 * noise amplitude over data amplitude, each row gives
 *     noised sample   x_t   = alpha · x0 + sigma · eps
 *     network input         = c_in · x_t
 *     target          T     = p · x0 + q · eps
 *     loss                  = w · (F - T)²
 *     time embedding of       c_noise
 *     clean estimate  x0^   = c_skip · x_t + c_out · F,  so x0^ - x0 = c_out · (F - T)
 *
 *                       data_scale  alpha     sigma    c_in           T                        c_skip         c_out           with
 *     edm               d = 0.5     1         s        1/sqrt(s²+d²)  (x0 - c_skip x_t)/c_out  d²/(s²+d²)     s d/sqrt(s²+d²) s = exp(L)
 *     rectified_flow    1           1 - t     t        1              eps - x0                 1              -t              t = 1/(1+exp(-L))
 *     v                 1           cos a     sin a    1              alpha eps - sigma x0     alpha          -sigma          tan a = exp(L)
 *
 * and c_noise = L / 4, w = 1 in all three.
 *
 * EDM (Karras et al., "Elucidating the design space of diffusion-based generative models", table 1, last column) is
 * taken in F-space: with its weight, w · c_out² = 1, the loss is the plain (F - T)² and no small sigma is divided by.
 * Rectified flow: alpha = 1 - t, sigma = t, T = eps - x0; L normal is t logit-normal (Esser et al., "Scaling rectified
 * flow transformers"). v-prediction (Salimans and Ho, "Progressive distillation"): alpha = cos, sigma = sin,
 * T = alpha eps - sigma x0.
 *
 * One noise-level variable serves all three. How it is drawn, from u uniform in (0, 1), as a rising function of it:
 *     normal     mean + std · (inverse normal distribution)(u)       EDM's ln sigma; rectified flow: t logit-normal
 *     logistic   mean + std · ln(u / (1 - u))                        mean 0, std 1: rectified flow's t uniform
 *     uniform    min + (max - min) · u                               ln sigma uniform
 *     mode       t = u - s (sin²(pi u / 2) - u), L = ln(t / (1 - t)) Esser et al., "mode sampling with heavy tails" (their u is 1 - u)
 *     cosine     ln tan(pi u / 2)                                    v: the angle uniform; rectified flow: their "CosMap"
 * and then ln(shift) is added, and with shift_tokens N, for a sample of n tokens, power · ln(n / N): larger samples need more noise to be
 * destroyed as much (Esser et al., section 5.3.2: t' = shift t / (1 + (shift - 1) t), shift = sqrt(n / N), is the same in L).
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

/* The level of which a share u of all draws lies below; `tokens` of the sample. */
double objective_level(const struct run_level *l, double u, int64_t tokens);
/* Drawn from (seed, draw ordinal) alone. */
double objective_level_draw(uint64_t seed, uint64_t ordinal, const struct run_level *l, int64_t tokens);
bool objective_text_dropped(uint64_t seed, uint64_t ordinal, double probability);
bool objective_conditioned(uint64_t seed, uint64_t ordinal, double probability); /* given its first frames? */

#endif
