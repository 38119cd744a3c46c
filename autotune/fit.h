/* fit: learns from trials by which factor each term of a price is wrong. Its functions are pure.
 *
 * *Scales* multiply the terms of a bill (price.h) before messages are hidden under compute, so that
 * hidden messages become exposed when they are slower, or compute faster, than priced. Before any
 * trial each scale is 1, or comes from an earlier fit (fit_begin()). A term that waits for other
 * work, such as the bubble, grows with that work; fit.c has the formulas. Scales are learnt by
 * Gauss-Newton on ln(step), with the priors as ridge and Huber weights. Where a trial also measured
 * the CPU time of each class of work (class_s of struct price_step), each class corrects its own
 * scale.
 *
 *     struct fit fit;
 *     fit_init(&fit);
 *     double s = fit_step(&fit, &bill, NULL, &log_sd);   // prediction, its spread
 *     fit_add(&fit, &bill, measured_s);                  // learn
 */
#ifndef AUTOTUNE_FIT_H
#define AUTOTUNE_FIT_H

#include "autotune/price.h"

/* Besides those of the terms, there are scales of the sum, of messages inside nodes and of those
 * that leave them, of the fixed cost of a message, and of the compute under which messages hide. */
enum { FIT_ALL = PRICE_TERMS, FIT_LINK, FIT_NET, FIT_FIXED, FIT_HIDE, FIT_SCALES, FIT_MAX = 160 };
struct fit {
    double log_scale[FIT_SCALES];            /* 0: the price is right */
    double scale[FIT_SCALES];                /* e to the power of these */
    double cov[FIT_SCALES][FIT_SCALES];      /* covariance of log_scale */
    /* These are the prior: the mean of log_scale, and the inverse of its covariance. */
    double begin[FIT_SCALES], begin_info[FIT_SCALES][FIT_SCALES];
    int64_t earlier;                         /* measurements from which the prior was learnt */
    int64_t n;
    struct price_bill bills[FIT_MAX];
    double log_measured[FIT_MAX];
    /* These have for each class the sum of ln(measured / priced) and the number of measurements. */
    double class_log[PRICE_TERMS], class_n[PRICE_TERMS];
    double noise;                            /* sd of ln(measured) around the truth */
};
void fit_init(struct fit *f);
/* Begins with what was learnt from other models on the same machine. Each scale may differ from
 * that by a share (OTHER_MODEL) of its standard deviation before any trial. An earlier fit without
 * measurements changes nothing. */
void fit_begin(struct fit *f, const struct fit *earlier);
/* Learns from a measurement. A measurement that is not positive and finite, or whose bill is not,
 * is ignored, and so is everything after FIT_MAX measurements. */
void fit_add(struct fit *f, const struct price_bill *bill, double measured_s);
/* Writes the fit without one of its measurements. */
void fit_without(const struct fit *f, int64_t left_out, struct fit *out);
/* Returns by how many standard deviations a measurement is above what a fit without it predicts. */
double fit_surprise(const struct fit *without, const struct price_bill *bill, double log_measured);
/* Learns the scale of each class from its measured seconds (0: not measured). The scales change
 * only in the next fit_add(), which solves for them. */
void fit_classes(struct fit *f, const double priced_s[PRICE_TERMS],
                 const double measured_s[PRICE_TERMS]);
/* Returns the predicted seconds. Writes the seconds of each term, which add up to them, to
 * `scaled`, and the sd of their logarithm to *log_sd; both may be NULL. */
double fit_step(const struct fit *f, const struct price_bill *bill, double scaled[PRICE_TERMS],
                double *log_sd);
/* Returns the predicted seconds, as fit_step() does, and writes the derivatives of their logarithm
 * by the logarithms of the scales to J. */
double fit_slopes(const struct fit *f, const struct price_bill *bill, double J[FIT_SCALES]);

#endif
