/* cost: predicts the time of one training step as named terms that add up. Pure.
 *
 * It uses two sets of numbers, each with name, unit, prior and source. *Rates* are physical
 * (FLOP/s, bytes/s, seconds) and come from the probe. *Scales* multiply the terms (prior 1) and are
 * learnt from trials; the last one, "all", multiplies their sum. A step takes all · sum over terms
 * of scale[t] · term[t](layout, rates). The essay with the formulas is at the top of cost.c.
 *
 *     struct cost_rates rates = cost_rates_prior(&device, dtype);       // then the probe's
 *     cost_terms(&spec, &rates, &layout, terms, err);                   // seconds, before scales
 *     struct cost_fit fit; cost_fit_init(&fit);
 *     double s = cost_step(&fit, terms, &log_sd);                       // prediction, its spread
 *     cost_fit_add(&fit, terms, measured_s);                            // learn
 *
 * Invariants: terms are >= 0; cost_bound() <= the terms' sum.
 */
#ifndef AUTOTUNE_COST_H
#define AUTOTUNE_COST_H

#include "profiles/hw.h"
#include "profiles/layout.h"
#include "profiles/space.h"

/* name, sd of ln(scale) before any trial, what it is */
#define COST_TERM_LIST(X)                                                                          \
    X(GEMM, "gemm", 0.20, "matrix products, forward and backward")                                 \
    X(ATTENTION, "attention", 0.40, "self- and cross-attention, forward and backward")             \
    X(ELEMENTWISE, "elementwise", 0.50, "norms, modulation, activations, copies: bytes moved")     \
    X(WEIGHT_IO, "weight_io", 0.50, "weights read and gradients added once a micro-batch")         \
    X(RECOMPUTE, "recompute", 0.30, "forward of the blocks a second time")                         \
    X(CONTENTION, "contention", 1.00,                                                              \
      "ranks of a machine slowing each other: shared memory, clocks")                              \
    X(DP_REDUCE, "dp_reduce", 1.00,                                                                \
      "gradients summed over data-parallel ranks, parameters gathered back")                       \
    X(OPTIMIZER, "optimizer", 0.50, "norm, clip and AdamW: bytes moved")                           \
    X(LAUNCH, "launch", 0.70, "cost of starting operations, times operations")                     \
    X(OVERHEAD, "overhead", 0.70, "loader, agreement on stop, record: once a step")
enum cost_term {
#define COST_TERM_ENUM(id, name, sd, what) COST_##id,
    COST_TERM_LIST(COST_TERM_ENUM)
#undef COST_TERM_ENUM
    COST_TERMS
};
extern const char *const cost_term_names[COST_TERMS];

/* The rates of one rank, alone on its machine unless said otherwise. */
struct cost_rates {
    double gemm_flops;      /* FLOP/s */
    double attn_flops;      /* FLOP/s */
    double copy_bytes;      /* bytes/s, read plus written */
    /* share by which a step's compute time grows for each further rank of the machine */
    double rank_loss;
    double comm_latency_s;  /* seconds of one message */
    double comm_bytes;      /* bytes/s of an all-reduce's bus bandwidth */
    double launch_s;        /* seconds to start one operation */
    double overhead_s;      /* seconds of one step */
};
/* Describes a rate, for tables. A NULL name ends the list. */
struct cost_rate_info { const char *name, *unit, *source; double lo, hi; size_t offset; };
extern const struct cost_rate_info cost_rate_table[];

struct cost_spec {
    const struct model *model;
    struct seq seq;
    int64_t gbs;
    enum dtype dtype;
    int64_t cores; /* cores of the machine; when there are more ranks, they share them */
    bool ema, residual_wide;
};
/* The limits that exclude layouts which cannot be priced, for space_build. */
enum { COST_LIMITS = 6 };
extern const struct space_limit cost_limits[COST_LIMITS];
/* Returns rates that follow from a device's published or measured peak and its priors. */
struct cost_rates cost_rates_prior(const struct device *d, enum dtype dtype);
/* Computes the terms in seconds. ERR_INPUT when a rate is not positive and finite, or the layout is
 * not data-parallel only (tp, cp, pp 1). */
int cost_terms(const struct cost_spec *spec, const struct cost_rates *r, const struct layout *l,
               double terms[COST_TERMS], struct err *err);
/* Computes a lower bound in closed form: the slowest replica's model FLOPs at the faster of the two
 * FLOP rates. */
int cost_bound(const struct cost_spec *spec, const struct cost_rates *r, const struct layout *l,
               double *out, struct err *err);

/* ---- learning the scales: Gauss-Newton on ln(step) with the priors as ridge, Huber weights ----
 */
enum { COST_SCALES = COST_TERMS + 1, COST_FIT_MAX = 256 };
struct cost_fit {
    double log_scale[COST_SCALES];               /* 0: as the prior; the last is "all" */
    double cov[COST_SCALES][COST_SCALES];        /* covariance of log_scale */
    int64_t n;
    double terms[COST_FIT_MAX][COST_TERMS], log_measured[COST_FIT_MAX];
    double noise;                                /* sd of ln(measured) around the truth */
};
void cost_fit_init(struct cost_fit *f);
/* Learns from a measurement. It never forgets one. It ignores what is not positive and finite, and
 * whatever comes after COST_FIT_MAX measurements. */
void cost_fit_add(struct cost_fit *f, const double terms[COST_TERMS], double measured_s);
/* Returns the predicted seconds; *log_sd (may be NULL) is the sd of their logarithm. scaled (may be
 * NULL) takes the terms as they add up. */
double cost_step(const struct cost_fit *f, const double terms[COST_TERMS],
                 double scaled[COST_TERMS], double *log_sd);

#endif
