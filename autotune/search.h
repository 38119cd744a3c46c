/* search: which layout to measure next, and when to stop. Pure: it never runs anything.
 *
 * The idea: predict all; measure the baseline first (dp = all ranks, zero 0, mbs 1, no recompute), so that the answer is never
 * worse than what one would have done unthinkingly; then the most promising layout of each other number of ranks, as what ranks
 * do to each other on one machine is the least known of all; then always the layout whose *optimistic* end (prediction minus
 * SEARCH_SIGMAS standard deviations of its logarithm) is least; learn from every measurement; stop when no untried layout's
 * optimistic end is below the best by the margin. A layout that ran out of memory rules out all that need as much. Machines are
 * noisy: before it ends the search measures the best and all that came close to it once more; what disturbs a step only ever
 * makes it longer, so a layout's time is the least of its measurements.
 *
 *     search_init(&s, items, n, &conf); while ((i = search_next(&s)) >= 0) { measure; search_tell(&s, i, ...); }
 *     s.best, s.stop_reason
 */
#ifndef AUTOTUNE_SEARCH_H
#define AUTOTUNE_SEARCH_H

#include "autotune/cost.h"
#include "autotune/memory.h"

enum trial_state { TRIAL_UNTRIED, TRIAL_OK, TRIAL_OOM, TRIAL_FAILED, TRIAL_TIMEOUT, TRIAL_SKIPPED };
extern const char *const trial_state_names[]; /* "untried", "ok", "oom", "failed", "timeout", "skipped" */

struct search_item {
    struct layout layout;
    double terms[COST_TERMS];     /* before scales, seconds */
    double planned_bytes;         /* of a rank */
    double bound_s;
    enum trial_state state;
    double measured_s;            /* TRIAL_OK: the least of its measurements */
    int64_t measures;
};
struct search_conf {
    double margin;         /* 0.02: what a better layout must gain to be worth a trial */
    int64_t max_trials;
    double limit_bytes;    /* memory of the machine, shared by all ranks; 0: unknown */
    double min_fit;        /* least probability of fitting that is tried */
    int64_t repeats;       /* measurements of each contender before the search ends; 0, 1: no more than one */
};
struct search {
    struct search_item *items; /* borrowed */
    size_t n;
    struct search_conf conf;
    struct cost_fit fit;
    struct memory_learned memory;
    int64_t trials;            /* layouts measured, repeats apart */
    int64_t repeated;
    int64_t best;              /* index, -1 */
    const char *stop_reason;   /* static; set by search_next when it returns -1 */
};
#define SEARCH_SIGMAS 1.5
#define SEARCH_CONTEST 0.1     /* a contender is slower than the best by no more than this share */
#define SEARCH_CONTENDERS 4    /* most layouts that are measured again */
void search_init(struct search *s, struct search_item *items, size_t n, const struct search_conf *conf);
/* Index of the layout to measure (one already measured: once more), -1 to stop. */
int64_t search_next(struct search *s);
/* peak_bytes 0: not known. reused: from an earlier search, does not count as a trial. */
void search_tell(struct search *s, int64_t i, enum trial_state state, double measured_s, double peak_bytes, bool reused);
double search_predict(const struct search *s, int64_t i, double scaled[COST_TERMS], double *log_sd);
int64_t search_baseline(const struct search *s);
double search_limit(const struct search *s, int64_t i); /* bytes of a rank of item i: the machine's, shared by its ranks */
/* May it fit, by what is known of memory? */
bool search_fits(const struct search *s, int64_t i);

#endif
