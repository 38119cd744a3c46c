/* planner: plans the training of a model on a cluster without running anything: which layouts fit
 * a number of GPUs, how long their steps take, how many bytes they hold.
 *
 *     struct plan_ask ask = {"dit-7b", "dgx-h100", "reel", NULL, NULL, seq, gbs, DTYPE_BF16, 0.9};
 *     struct planner *p = planner_new(&ask, err);
 *     planner_least(p, err);                        // sets p->gpus; or planner_gpus(p, 64, err)
 *     planner_search(p, 10, &found, err);           // found.items: the best that fit
 *     planner_predict(p, &found.items[0].layout, &planned, err);
 *     planner_free(p);
 *
 * Errors: ERR_INPUT and ERR_NOT_FOUND for a name that is not known, for a number of GPUs that is
 * neither a divisor nor a multiple of a node's, for a layout that breaks a rule; ERR_NO where no
 * layout is legal or none fits; ERR_NOMEM.
 */
#ifndef AUTOTUNE_PLANNER_H
#define AUTOTUNE_PLANNER_H

#include "autotune/price_work.h"
#include "autotune/stream.h"
#include "profiles/plan.h"

struct plan_ask {
    const char *model, *cluster, *stack, *constants; /* names or paths; constants may be NULL */
    const struct model *loaded; /* the model, instead of its name; borrowed; NULL: none */
    struct seq seq;    /* tokens of a sample */
    int64_t gbs;       /* samples of a step */
    enum dtype dtype;  /* DTYPE_FP8: products in fp8, all else in bf16 */
    int64_t encoder_bytes; /* bytes of frozen encoders beside the model on each GPU */
    /* an average of the weights is kept; reel's own trainer: the residual stream is f32, the
     * optimizer's moments are bf16 */
    bool ema, residual_wide, moments_bf16;
    int64_t memory_bytes; /* what all GPUs together may hold; 0: each what its device has */
    double fits;       /* the least probability of fitting that a search accepts, 0 to 1 */
    /* adapter of a trainer: layouts that it cannot run are left out; borrowed, may be NULL */
    const struct adapter *adapter;
};
struct planner {
    struct plan_ask ask;        /* its texts are borrowed */
    struct model model;
    struct cluster cluster;     /* with the nodes of planner_gpus() */
    int64_t most_nodes;         /* nodes that the cluster may have; 0: any number */
    struct stack stack;
    struct constants constants;
    double v[CONSTANTS];        /* of this device and stack */
    struct work_weights weights;
    struct work_spec work;
    struct price_machine machine;
    int64_t gpus;               /* set by planner_gpus() */
    double sample_flops;        /* of the model, by flops_reel_sample */
};
struct planned {
    struct layout layout;
    struct price_step step;     /* by the schedule's replay */
    double lo_s, hi_s;          /* nine of ten steps lie between; NAN: not computed */
    double tokens_per_s_gpu, mfu;
    struct footprint footprint;
    double p_fits;
};

/* Returns a new planner, or NULL. */
struct planner *planner_new(const struct plan_ask *ask, struct err *err);
void planner_free(struct planner *p); /* NULL is fine */
/* Sets the number of GPUs, and with it the number of nodes. */
int planner_gpus(struct planner *p, int64_t gpus, struct err *err);
/* Sets the samples of a step. */
void planner_gbs(struct planner *p, int64_t gbs);
/* Sets p->gpus to the smallest number on which a layout fits. */
int planner_least(struct planner *p, struct err *err);
/* Returns what one GPU may hold: its share of ask.memory_bytes, which needs the number of GPUs, or
 * what its device has. */
double planner_limit_bytes(const struct planner *p);
int planner_search(const struct planner *p, size_t most, struct stream_found *found,
                   struct err *err);
/* Finds the best places of a ranking (stream.h), at most STREAM_PLACES, in as long as
 * planner_search() takes. */
int planner_rank(const struct planner *p, size_t most, struct stream_found *found,
                 struct err *err);
/* Writes the time of the best layout, if it takes less than beat_s seconds; else INFINITY. It is
 * much faster than planner_search(). ERR_NO: no layout fits. */
int planner_faster(const struct planner *p, double beat_s, double *best_s, struct err *err);
/* Predicts a layout, without its interval. */
int planner_predict(const struct planner *p, const struct layout *l, struct planned *out,
                    struct err *err);
/* Sets the interval of a predicted layout, which takes about 20 times as long. */
int planner_interval(const struct planner *p, struct planned *io, struct err *err);
/* Holds, for each term of a layout's predicted step time, the work and the constant from which it
 * is computed. */
struct explained {
    struct planned planned;
    double work[PRICE_TERMS];   /* of the busiest rank in a step, in price_work_units */
    int constant[PRICE_TERMS];  /* enum constant_id of the one whose change by a hundredth changes
                                 * the term's time most, besides CONSTANT_COMPUTE; -1: none */
    const struct curve *attention; /* the device's, from which that term is priced; borrowed from
                                    * the planner; NULL: it is priced by constants alone */
};
int planner_explain(const struct planner *p, const struct layout *l, struct explained *out,
                    struct err *err);
/* Fills a plan for `reel launch` and `reel explain plan`. ERR_INPUT: the name of an input is longer
 * than a plan holds. */
int planner_plan(const struct planner *p, const struct planned *planned, struct plan *out,
                 struct err *err);

#endif
