/* fit: learns from trials by what each term of a price is off. Pure.
 *
 * *Scales* multiply the terms of price.h (prior 1); the last one, "all", multiplies their sum. A
 * step takes all · sum over terms of scale[t] · term[t]. Scales are learnt by Gauss-Newton on
 * ln(step), with the priors as ridge and Huber weights, and class by class where a trial measured
 * what its steps are made of.
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
    double log_scale[FIT_SCALES];            /* 0: as the prior; the last is "all" */
    double cov[FIT_SCALES][FIT_SCALES];      /* covariance of log_scale */
    /* what it begins from: log_scale, and the inverse of its covariance */
    double begin[FIT_SCALES], begin_info[FIT_SCALES][FIT_SCALES];
    int64_t n;
    double terms[FIT_MAX][PRICE_TERMS], log_measured[FIT_MAX];
    /* of each class: sums of ln(measured / priced), and how many */
    double class_log[PRICE_TERMS], class_n[PRICE_TERMS];
    double noise;                            /* sd of ln(measured) around the truth */
};
void fit_init(struct fit *f);
/* Begins from what was learnt of other models on the same machine: each scale may be off that by a
 * part of what it may be off before anything is known. An earlier fit of no measurements changes
 * nothing. */
void fit_begin(struct fit *f, const struct fit *earlier);
/* Learns from a measurement. It never forgets one. It ignores what is not positive and finite, and
 * whatever comes after FIT_MAX measurements. */
void fit_add(struct fit *f, const double terms[PRICE_TERMS], double measured_s);
/* Fits anew without the measurement of this number. What classes took stays: each was measured by
 * itself. */
void fit_without(const struct fit *f, int64_t left_out, struct fit *out);
/* Learns what classes took, each of its own: 0 is not known. fit_add comes next, and solves. */
void fit_classes(struct fit *f, const double priced_s[PRICE_TERMS],
                 const double measured_s[PRICE_TERMS]);
/* Returns the predicted seconds; *log_sd (may be NULL) is the sd of their logarithm. scaled (may be
 * NULL) takes the terms as they add up. */
double fit_step(const struct fit *f, const double terms[PRICE_TERMS], double scaled[PRICE_TERMS],
                double *log_sd);

#endif
