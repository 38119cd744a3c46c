/* search: decides which layout to measure next, and when to stop. Pure: it never runs anything.
 *
 * The idea: it predicts all layouts. It has a first batch measured: the baseline (the caller's, or
 * dp = all ranks, zero 0, mbs 1, no recompute) if it may fit, so that the answer is never worse
 * than what one would have run without thinking; the corner where all is sharded over dp; and the
 * most promising whose degrees of parallelism differ from all before. From then on it is always the
 * layout of the greatest expected improvement on the best, less the margin (Jones, Schonlau, Welch
 * 1998, eq. 15, of a lognormal prediction), times the probability that it fits. Candidates are
 * predicted by their difference to the best: an error that both share, such as a machine that is
 * slower than its rates say, changes nothing of which is faster, and what is left is the spread of
 * the terms in whose shares they differ, and of what no term explains. Every measurement is learnt
 * from. The search stops when the *optimistic* end (prediction minus SEARCH_SIGMAS standard
 * deviations of its logarithm) of no untried layout is below the best by the margin, whichever one
 * of its measurements is left out: a single slow layout does not condemn its class. A layout that
 * ran out of memory rules out what needs as much on the same grid, and on other grids what needs
 * SEARCH_OOM times as much.
 * Trials may be smaller than the layouts that are looked for (item.trial_terms): then predictions
 * are learnt from what ran, and layouts are compared by search_time().
 * Machines are noisy, and how much is learnt: from how far a layout's measurements lie apart, and a
 * trial's steps. A trial that is slower than noise and prediction explain, or whose steps are not
 * alike, is disturbed: it teaches nothing, and is made again at once. Before the search ends it has
 * all layouts whose interval meets the best's measured again, and then the baseline, so that a
 * machine that has changed meanwhile flatters nobody. A disturbance only ever makes a step longer,
 * so a layout's time is the least of its measurements.
 *
 *     search_init(&s, items, n, &conf);
 *     while ((i = search_next(&s)) >= 0) { measure; search_tell(&s, i, ...); }
 *     s.best, s.stop_reason
 */
#ifndef AUTOTUNE_SEARCH_H
#define AUTOTUNE_SEARCH_H

#include "autotune/fit.h"
#include "autotune/memory.h"

/* These states say how a layout fared. Only memory that was short and a layout that the trainer
 * refused say something about layouts; a node that was lost and a step that was told to go are no
 * end of a trial, and it is tried again. */
#define TRIAL_STATE_LIST(X)                                                                        \
    X(UNTRIED, "untried")                                                                          \
    X(OK, "ok")                                                                                    \
    X(OOM_DEVICE, "oom_device") /* an accelerator's memory was short */                            \
    X(OOM_HOST, "oom_host")     /* the host's was, by the trainer's, kernel's or cgroup's word */  \
    X(ILLEGAL, "illegal")       /* the trainer refused the layout */                               \
    X(HANG, "hang")             /* it gave no sign of life */                                      \
    X(NODE, "node")             /* a node of it was lost */                                        \
    X(PREEMPTED, "preempted")   /* it was told to go */                                            \
    X(NONFINITE, "nonfinite")   /* its numbers were not finite */                                  \
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
    double terms[PRICE_TERMS];    /* before scales, seconds */
    /* They are the terms of what a trial runs, where that is smaller; NULL: the same. Borrowed. */
    const double *trial_terms;
    double class_s[PRICE_TERMS];  /* CPU time of what a trial measures by class; 0: none */
    double planned_bytes;         /* bytes that the memory plan of a rank has, in a trial */
    enum trial_state state;
    double measured_s;            /* TRIAL_OK: the least of its measurements */
    int64_t measures;
    int64_t interrupted;          /* trials that a lost node or a preemption ended */
    bool disturbed;               /* its only measurement was; it is made again */
};
struct search_outcome {
    enum trial_state state;
    double measured_s;     /* TRIAL_OK: the median step */
    double fastest_s;      /* and the fastest one; 0: not known */
    double peak_bytes;     /* 0: not known */
    const double *class_s; /* CPU time of each class, by price's terms; borrowed, NULL: not known */
    bool reused;           /* it is of an earlier search, and does not count as a trial */
};
struct search_conf {
    double margin;         /* share that a better layout must gain to be worth a trial: 0.02 */
    int64_t max_trials;
    double limit_bytes;    /* memory of the machine, shared by all ranks; 0: unknown */
    double min_fit;        /* layouts that fit with less than this probability are not tried */
    /* measurements of each contender before the search ends; 0, 1: no more than one, and of
     * disturbed layouts, too */
    int64_t repeats;
    const struct layout *baseline; /* borrowed; NULL: plain data parallelism on the most ranks */
    double rank_bytes;     /* of each rank, however many there are; 0: limit_bytes is shared */
    bool gpu_hours;        /* the least time of all ranks together counts, not that of a step */
};
enum { SEARCH_BATCH = 5 };
struct search {
    struct search_item *items; /* borrowed */
    size_t n;
    struct search_conf conf;
    struct fit fit;
    struct memory_learned memory;
    int64_t trials;            /* layouts measured, without repeats */
    int64_t repeated;
    int64_t best;              /* index, -1 */
    int64_t baseline, corner;  /* indices, -1: there is none such */
    struct layout batch[SEARCH_BATCH]; /* the first that were tried */
    int64_t n_batch;
    int64_t again;             /* a disturbed layout that comes next, -1 */
    /* what is known of the noise: squares of logarithms' differences, and how many */
    double squares, n_squares;
    const char *stop_reason;   /* static; set by search_next when it returns -1 */
};
#define SEARCH_SIGMAS 1.5
#define SEARCH_Z90 1.645       /* nine of ten lie within so many standard deviations */
#define SEARCH_ODD_SIGMAS 3.0  /* what lies farther off is disturbed */
#define SEARCH_OOM 1.1         /* what needs more by this than what ran out of memory would too */
#define SEARCH_CONTENDERS 4    /* how many layouts are measured again at most */
#define SEARCH_INTERRUPTIONS 2 /* so many interrupted trials of a layout count as none */
/* Takes items whose layouts are known; their terms may come later. */
void search_init(struct search *s, struct search_item *items, size_t n,
                 const struct search_conf *conf);
/* Returns the index of the layout to measure, or -1 to stop. A layout that was measured already is
 * measured once more. */
int64_t search_next(struct search *s);
/* Tells the outcome of a trial. A layout whose trial was interrupted (TRIAL_NODE, TRIAL_PREEMPTED)
 * is as untried as before, SEARCH_INTERRUPTIONS times. */
void search_tell(struct search *s, int64_t i, const struct search_outcome *o);
/* Says, before it is told, whether a first measurement of a layout is slower than is explained. */
bool search_is_disturbed(const struct search *s, int64_t i, const struct search_outcome *o);
double search_predict(const struct search *s, int64_t i, double scaled[PRICE_TERMS],
                      double *log_sd);
/* Predicts what a trial of item i takes. */
double search_predict_trial(const struct search *s, int64_t i, double scaled[PRICE_TERMS],
                            double *log_sd);
/* Returns the step time of item i that was measured: where its trial was smaller, with what the
 * model adds for the whole layout. */
double search_time(const struct search *s, int64_t i);
/* Returns what a step of so long counts for item i: itself, or the time of all ranks together. */
double search_weighted(const struct search *s, int64_t i, double seconds);
/* Returns the bytes that a rank of item i may take: the machine's, shared by the item's ranks. */
double search_limit(const struct search *s, int64_t i);
/* Says whether layout i may fit, by what is known of memory. */
bool search_fits(const struct search *s, int64_t i);

#endif
