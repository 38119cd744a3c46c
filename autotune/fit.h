/* fit: learns from trials by which factor each term of a price is wrong. Pure.
 *
 * *Scales* multiply the terms of price.h (prior 1); the last one, "all", multiplies their sum. A
 * step takes all · sum over terms of scale[t] · term[t]. Scales are learnt by Gauss-Newton on
 * ln(step), with the priors as ridge and Huber weights. Where a trial measured the time of each
 * class of operations in its steps, these times also teach the scales of their terms one by one.
 *
 *     struct fit fit;
 *     fit_init(&fit);
 *     double s = fit_step(&fit, terms, NULL, &log_sd);   // prediction, its spread
 *     fit_add(&fit, terms, measured_s);                  // learn
 */
#ifndef AUTOTUNE_FIT_H
#define AUTOTUNE_FIT_H

#include "autotune/price.h"

enum { FIT_SCALES = PRICE_TERMS + 1, FIT_MAX = 160 };
struct fit {
    double log_scale[FIT_SCALES];            /* 0: the price is right; the last is "all" */
    double cov[FIT_SCALES][FIT_SCALES];      /* covariance of log_scale */
    /* The prior: the mean of log_scale, and the inverse of its covariance. */
    double begin[FIT_SCALES], begin_info[FIT_SCALES][FIT_SCALES];
    int64_t n;
    double terms[FIT_MAX][PRICE_TERMS], log_measured[FIT_MAX];
    /* For each class: the sum of ln(measured / priced), and the number of measurements. */
    double class_log[PRICE_TERMS], class_n[PRICE_TERMS];
    double noise;                            /* sd of ln(measured) around the truth */
};
void fit_init(struct fit *f);
/* Takes as its prior what was learnt from other models on the same machine. Each scale may differ
 * from that by a share (OTHER_MODEL) of the spread that it has before anything is known. An earlier
 * fit without measurements changes nothing. */
void fit_begin(struct fit *f, const struct fit *earlier);
/* Learns from a measurement. None is forgotten. Values that are not positive and finite are
 * ignored, and so is everything after FIT_MAX measurements. */
void fit_add(struct fit *f, const double terms[PRICE_TERMS], double measured_s);
/* Fits anew without measurement number left_out. The measured times of classes stay, because each
 * was measured by itself. */
void fit_without(const struct fit *f, int64_t left_out, struct fit *out);
/* Learns from the measured time of each class, for its own scale; 0: not known. It does not solve:
 * the caller calls fit_add next, which does. */
void fit_classes(struct fit *f, const double priced_s[PRICE_TERMS],
                 const double measured_s[PRICE_TERMS]);
/* Returns the predicted seconds; *log_sd (may be NULL) is the sd of their logarithm. scaled (may be
 * NULL) takes the terms as they add up. */
double fit_step(const struct fit *f, const double terms[PRICE_TERMS], double scaled[PRICE_TERMS],
                double *log_sd);

#endif
