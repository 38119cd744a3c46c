/* search: decides which layout to measure next, and when to stop. It never runs anything itself.
 *
 * The idea: every layout has a prediction, and each measurement improves the predictions. A first
 * batch is measured: the baseline (the caller's, or dp = all ranks, zero 0, mbs 1, no recompute) if
 * it may fit, so that the answer is never worse than the obvious choice; the layout that shards
 * everything over dp; and the most promising layouts whose degrees of parallelism differ from all
 * before. After that, the next layout is always the one with the greatest expected improvement on
 * the best measured time less the margin (Jones, Schonlau, Welch 1998, eq. 15, for a lognormal
 * prediction), times the probability that it fits.
 *
 * Candidates are predicted relative to the best. An error that both share, such as a machine that
 * is slower than its rates say, does not change which of them is faster. That depends only on the
 * scales on which the two steps depend differently, and on the part that no scale explains.
 *
 * The search stops when no untried layout has an *optimistic* end (prediction minus SEARCH_SIGMAS
 * standard deviations of its logarithm) that beats the best by the margin. But SEARCH_LEAST layouts
 * are measured, if there are so many whose optimistic end is within half as much again: predictions
 * may be wrong for all that divide the work in another way than the first. A layout that ran out of
 * memory rules out, on as many ranks or more, those that need as much on the same grid, and on
 * other grids those that need SEARCH_OOM times as much.
 *
 * Trials may be smaller than the layouts in question (item.trial_bill): then the fit learns from
 * what ran, and layouts are compared by search_time().
 *
 * Machines are noisy. The noise is learnt from how much repeated measurements of a layout differ,
 * and the steps of a trial. A trial is *disturbed* if it is slower than noise and prediction can
 * explain, or if its steps differ too much: nothing is learnt from it, and it is repeated at once.
 * Before the search ends, the best and all layouts whose interval overlaps its (the contenders) are
 * measured `repeats` times, those measured least often first, and among them the nearest to the
 * best; then the baseline, so that a change of the machine during the search favours no layout.
 * Contenders get no more than max_trials x (repeats - 1) of these measurements, which is too few
 * only where an earlier search left many; repeats of disturbed trials do not count there. A
 * disturbance only ever makes a step longer, so the time of a layout is its shortest measurement.
 *
 *     search_init(&s, items, n, &conf);
 *     while ((i = search_next(&s)) >= 0) { measure; search_tell(&s, i, ...); }
 *     s.best, s.stop_reason
 */
#ifndef AUTOTUNE_SEARCH_H
#define AUTOTUNE_SEARCH_H

#include "autotune/fit.h"
#include "autotune/memory.h"

/* These states say how a trial of a layout ended. Only short memory and the trainer's refusal are
 * verdicts about a layout. A lost node or a request to stop does not count as a trial, and the
 * layout is tried again. */
#define TRIAL_STATE_LIST(X)                                                                        \
    X(UNTRIED, "untried")                                                                          \
    X(OK, "ok")                                                                                    \
    X(OOM_DEVICE, "oom_device") /* an accelerator's memory was short */                            \
    X(OOM_HOST, "oom_host")     /* the host's was: trainer, kernel or cgroup said so */  \
    X(ILLEGAL, "illegal")       /* the trainer refused the layout */                               \
    X(HANG, "hang") /* the trial gave no sign of life */                                      \
    X(NODE, "node") /* one of its nodes was lost */                                        \
    X(PREEMPTED, "preempted") /* it was asked to stop */                                           \
    X(NONFINITE, "nonfinite")   /* its loss or gradients were not finite */                    \
    X(FAILED, "failed")                                                                            \
    X(SKIPPED, "skipped")
enum trial_state {
#define TRIAL_STATE_ENUM(id, name) TRIAL_##id,
    TRIAL_STATE_LIST(TRIAL_STATE_ENUM)
#undef TRIAL_STATE_ENUM
};
extern const char *const trial_state_names[]; /* NULL-ended */
static inline bool trial_is_oom(enum trial_state s)
{
    return s == TRIAL_OOM_DEVICE || s == TRIAL_OOM_HOST;
}

struct search_item {
    struct layout layout;
    struct price_bill bill;       /* of its step, before scales */
    /* The bill of what a trial runs, if it is smaller than the layout; NULL: the same.
     * Borrowed. */
    const struct price_bill *trial_bill;
    double class_s[PRICE_TERMS];  /* predicted CPU seconds of a trial, by class; 0: none */
    double planned_bytes;         /* bytes of a rank in a trial, by its memory plan */
    enum trial_state state;
    double measured_s;            /* TRIAL_OK: the least of its measurements */
    int64_t measures;
    int64_t interrupted;          /* trials that a lost node or a preemption ended */
    bool disturbed;               /* its only measurement was disturbed, and is repeated */
};
struct search_outcome {
    enum trial_state state;
    double measured_s;     /* TRIAL_OK: the median step */
    double fastest_s;      /* the fastest step; 0: not known */
    double peak_bytes;     /* 0: not known */
    const double *class_s; /* CPU seconds of each class, by term; borrowed, NULL: not known */
    bool reused;           /* from an earlier search: does not count as a trial */
    bool disturbed;        /* reused: that search held it for disturbed */
};
struct search_conf {
    double margin;         /* share that a better layout must gain to be worth a trial: 0.02 */
    int64_t max_trials;
    double limit_bytes;    /* memory of the machine, shared by all ranks; 0: unknown */
    double min_fit;        /* layouts that fit with less than this probability are not tried */
    /* Each contender gets this many measurements before the search ends. With 0 or 1 each layout,
     * disturbed ones too, is measured once. */
    int64_t repeats;
    const struct layout *baseline; /* borrowed; NULL: plain data parallelism on the most ranks */
    double rank_bytes;     /* memory of each rank; 0: ranks share limit_bytes */
    bool gpu_hours;        /* minimise step time x ranks, not step time */
};
enum { SEARCH_BATCH = 5, SEARCH_LEAST = 3 };
struct search {
    struct search_item *items; /* borrowed */
    size_t n;
    struct search_conf conf;
    struct fit fit;
    struct memory_learned memory;
    int64_t trials;            /* layouts measured, without repeats */
    int64_t repeated;          /* trials of layouts that were measured before */
    int64_t contended;         /* those among them that contenders needed */
    int64_t best;              /* index; -1: none */
    int64_t baseline, corner;  /* indices; -1: none */
    bool baseline_early;       /* a further layout was tried after the baseline's last trial */
    struct layout batch[SEARCH_BATCH]; /* the layouts tried first */
    int64_t n_batch;
    int64_t again;             /* the disturbed layout to repeat next; -1: none */
    /* These are the noise: the sum of squared differences of logarithms, and their number. */
    double squares, n_squares;
    /* By how many sds the logarithms of this search's measurements were off their predictions: the
     * sum of squares, and their number. */
    double off_squares, n_off;
    const char *stop_reason;   /* static; set by search_next when it returns -1 */
};
#define SEARCH_SIGMAS 1.5
#define SEARCH_Z90 1.645       /* 90 % of a normal lie within this many sds of its mean */
#define SEARCH_ODD_SIGMAS 3.0  /* a trial slower than expected by more sds is disturbed */
#define SEARCH_OFF_SIGMAS 4.0  /* a prediction that is off by more sds counts as off by so many */
#define SEARCH_OOM 1.1 /* a layout with this times the bytes of one that ran out is ruled out */
#define SEARCH_INTERRUPTIONS 2 /* this many interrupted trials of a layout do not count */
/* Begins a search over items (borrowed). Their layouts must be set; their bills may be set
 * later. */
void search_init(struct search *s, struct search_item *items, size_t n,
                 const struct search_conf *conf);
/* Returns the index of the layout to measure next, or -1 to stop. It may be one that was measured
 * before: then it is measured once more. */
int64_t search_next(struct search *s);
/* Records the outcome of a trial. After an interrupted trial (TRIAL_NODE, TRIAL_PREEMPTED) the
 * layout is untried as before, up to SEARCH_INTERRUPTIONS times. */
void search_tell(struct search *s, int64_t i, const struct search_outcome *o);
/* Says whether a first measurement is disturbed: slower than noise and prediction explain, or with
 * steps that differ too much; of a reused one, whether the search that made it said so. Call it
 * before search_tell. */
bool search_is_disturbed(const struct search *s, int64_t i, const struct search_outcome *o);
double search_predict(const struct search *s, int64_t i, double scaled[PRICE_TERMS],
                      double *log_sd);
/* Predicts the step time of a trial of item i. */
double search_predict_trial(const struct search *s, int64_t i, double scaled[PRICE_TERMS],
                            double *log_sd);
/* Returns by what factor intervals of predictions are to be wider than their sds say, because those
 * of this search were further off than that: on a machine whose load changes between trials, noise
 * that is learnt from repeated ones says too little. At least 1. */
double search_width(const struct search *s);
/* Returns the step time of item i from its measurement. If the trial was smaller than the layout,
 * the predicted difference is added. */
double search_time(const struct search *s, int64_t i);
/* Returns the objective for item i if its step takes this long: the seconds, or with gpu_hours the
 * seconds of all ranks together. */
double search_weighted(const struct search *s, int64_t i, double seconds);
/* Returns the bytes that a rank of item i may take: rank_bytes, or the machine's memory divided by
 * the item's ranks. */
double search_limit(const struct search *s, int64_t i);
/* Holds how many layouts are the best or overlap its interval (0 where the best is alone), how many
 * of them were measured less than `repeats` times, and which of those comes next; -1: none. */
struct search_contenders { int64_t n, left, next; };
struct search_contenders search_contenders_find(const struct search *s);
/* Says whether layout i may fit, given the peaks measured so far. */
bool search_fits(const struct search *s, int64_t i);

#endif
