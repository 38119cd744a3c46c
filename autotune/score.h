/* score: says how well predictions agree with tables of measurements (`reel score`). Pure.
 *
 *     struct score s;
 *     score_table(&table, &constants, NULL, rows, &s, err);   // rows: table.n, the caller's
 *
 * Time is scored by the absolute percentage error of the rows that have one: its mean and its 90th
 * percentile, and both again after one factor for the whole file (the median of measured by
 * predicted). Rank is Spearman's within each sweep of SCORE_SWEEP measured rows or more. Regret is
 * the measured time of the first choice, or of the best of the first three, over the sweep's best.
 * For memory, a row is taken to fit where that is more likely than not. Trials are how many of a
 * sweep's rows are tried, in the order of score.c, until one within 1 % of the best is found. One
 * that fits with a probability of less than 0.02 is not tried, nor one that an earlier failure
 * rules out.
 */
#ifndef AUTOTUNE_SCORE_H
#define AUTOTUNE_SCORE_H

#include "autotune/predict.h"

enum { SCORE_SWEEP = 8, SCORE_REASONS = 8 };
struct score_row {
    struct predicted p;  /* of a row that is not skipped */
};
struct score_skipped { const char *because; int64_t count; };
/* A number is NAN where no row tells of it. */
struct score {
    const char *file; /* borrowed from the table */
    int64_t used, skipped, assumed, oom_rows, sweeps;
    struct score_skipped reasons[SCORE_REASONS];
    int n_reasons;
    double mape_pct, p90_pct, mape_scaled_pct;
    double spearman_mean, spearman_worst, regret1_mean_pct, regret3_mean_pct;
    double oom_caught_pct, good_rejected_pct;
    double trials_mean, trials_worst;
    int64_t winner_pruned; /* sweeps whose best row is not tried, as too large for the memory */
};
/* Scores a table. `told` hears of each row; NULL: nobody does. */
int score_table(const struct table *t, const struct constants *c, const struct told_rows *told,
                struct score_row *rows, struct score *out, struct err *err);

#endif
