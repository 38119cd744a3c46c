/* cost: predicts the time of one training step on CPUs as named terms that add up. Pure.
 *
 * What is done comes from the account of a rank's work (profiles/work.h), how fast from two sets of
 * numbers, each with name, unit, prior and source. *Rates* are physical (FLOP/s, bytes/s, seconds)
 * and come from the probe, which measures the model's own operations. *Scales* multiply the terms
 * (prior 1) and are learnt from trials; the last one, "all", multiplies their sum. A step takes
 * all · sum over terms of scale[t] · term[t](layout, rates). The essay with the formulas is at the
 * top of cost.c.
 *
 *     struct cost_rates rates = cost_rates_prior(&device, dtype);       // then the probe's
 *     cost_spec_open(&spec, err);                                       // once for a model
 *     cost_terms(&spec, &rates, &layout, terms, err);                   // seconds, before scales
 *     struct cost_fit fit; cost_fit_init(&fit);
 *     double s = cost_step(&fit, terms, &log_sd);                       // prediction, its spread
 *     cost_fit_add(&fit, terms, measured_s);                            // learn
 *
 * Invariant: terms are >= 0.
 */
#ifndef AUTOTUNE_COST_H
#define AUTOTUNE_COST_H

#include "profiles/hw.h"
#include "profiles/layout.h"
#include "profiles/work.h"

/* name, sd of ln(scale) before any trial, what it is */
#define COST_TERM_LIST(X)                                                                          \
    X(GEMM, "gemm", 0.15, "matrix products, forward and backward")                                 \
    X(ATTENTION, "attention", 0.20, "self- and cross-attention, forward and backward")             \
    X(ELEMENTWISE, "elementwise", 0.20, "norms, modulation, activations, copies")                  \
    X(INPUTS, "inputs", 0.30, "samples, noise, positions and loss")                                \
    X(RECOMPUTE, "recompute", 0.20, "forward of blocks a second time, with their messages")        \
    X(CONTENTION, "contention", 0.70,                                                              \
      "ranks of a machine slowing each other: shared cores, memory, clocks")                       \
    X(TP, "tp", 0.70, "sums and gathers of tensor-parallel ranks")                                 \
    X(CP, "cp", 0.70, "heads, keys, values and segments between context-parallel ranks")           \
    X(PP, "pp", 0.70, "messages between stages")                                                   \
    X(BUBBLE, "bubble", 0.40, "the busiest stage waits for the others")                            \
    X(GATHER, "gather", 0.70, "weights gathered for each micro-batch")                             \
    X(DP_REDUCE, "dp_reduce", 0.70, "gradients summed, parameters gathered after the update")      \
    X(OPTIMIZER, "optimizer", 0.30, "norm, clip and AdamW: bytes moved")                           \
    X(OVERHEAD, "overhead", 0.70, "agreement on stop, record: once a step")
enum cost_term {
#define COST_TERM_ENUM(id, name, sd, what) COST_##id,
    COST_TERM_LIST(COST_TERM_ENUM)
#undef COST_TERM_ENUM
    COST_TERMS
};
extern const char *const cost_term_names[COST_TERMS];

/* A class of operations takes flops / FLOP/s + bytes / B/s. */
struct cost_pair { double flops_s, bytes_s; };
/* Seconds of one message, and bytes/s that leave a rank while all send. */
struct cost_comm { double latency_s, bytes_s; };
/* The share of that which micro-batches of so many tokens take: their working set lies in one cache
 * or another. */
struct cost_curve_point { double tokens, gemm, attention, elementwise; };
enum { COST_CURVE = 4 };

/* The rates of one rank, in CPU time, alone on its machine unless said otherwise. */
struct cost_rates {
    struct cost_pair gemm;              /* bytes: of both operands, and the result twice */
    struct cost_pair attention;         /* bytes: of queries, keys, values and results */
    double attention_backward;          /* seconds of a backward pass, those of a forward being 1 */
    double copy_bytes;                  /* bytes/s of elementwise operations */
    double input_s;                     /* seconds of one number of a latent */
    double update_bytes, norm_bytes;    /* bytes/s of AdamW, and of the norm of gradients */
    int n_curve;                        /* 0: the share is 1 */
    struct cost_curve_point curve[COST_CURVE]; /* by rising tokens */
    /* share by which a step's compute time grows for each further core of the machine in use */
    double rank_loss;
    /* of messages among ranks that have a core each, and among ranks that share cores */
    struct cost_comm comm, comm_shared;
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
    /* filled by cost_spec_open */
    struct stack stack;
    struct work_weights weights;
};
/* Fills what follows from the model and the trainer. ERR_NOMEM. */
int cost_spec_open(struct cost_spec *spec, struct err *err);
/* Accounts for the work of a layout. */
void cost_work(const struct cost_spec *spec, const struct layout *l, struct work *out);
/* Operations of a part do this much: FLOPs and bytes, as cost_pair counts them. */
struct cost_sums { double gemm_flops, gemm_bytes, attn_flops[2], attn_bytes[2], bytes; };
struct cost_sums cost_part_sums(const struct work *w, enum work_part_id part);

/* Returns rates that follow from a device's published or measured peak and its priors. */
struct cost_rates cost_rates_prior(const struct device *d, enum dtype dtype);
/* Computes the terms in seconds. ERR_INPUT when a rate is not positive and finite. */
int cost_terms(const struct cost_spec *spec, const struct cost_rates *r, const struct layout *l,
               double terms[COST_TERMS], struct err *err);
/* ---- learning the scales: Gauss-Newton on ln(step) with the priors as ridge, Huber weights ----
 */
enum { COST_SCALES = COST_TERMS + 1, COST_FIT_MAX = 192 };
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
