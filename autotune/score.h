/* score: says how well predictions agree with tables of measurements (`reel score`).
 *
 *     struct score s;
 *     score_table(&table, &constants, NULL, rows, &s, err);   // rows: room for table.n
 *
 * Time is scored by the absolute percentage error of the rows with a measured time: its mean and
 * its 90th percentile, and its mean again after all predictions of the file are divided by one
 * factor (the median of predicted / measured; of the two in the middle the larger). A sweep is all
 * rows with one sweep_group. Ranking is scored by Spearman's correlation within each sweep that has
 * SCORE_SWEEP measured rows or more. Regret is by how many percent the measured time of the first
 * choice, or of the best of the first three, exceeds that of the sweep's best. For memory, a row is
 * predicted to fit if that is more likely than not. Trials count how many rows of a sweep are
 * tried, in the order of score.c, until one within 1 % of the best is found. A row that fits with a
 * probability below 0.02 is not tried, nor is one that an earlier failure rules out.
 */
#ifndef AUTOTUNE_SCORE_H
#define AUTOTUNE_SCORE_H

#include "autotune/predict.h"

enum { SCORE_SWEEP = 8, SCORE_REASONS = 8 };
struct score_row {
    struct predicted p;  /* set for rows that are not skipped */
    double sd;           /* of ln(measured / predicted), by interval.h; 0: not asked for */
};
struct score_skipped { const char *because; int64_t count; };
/* A number is NAN where no row contributes to it. */
struct score {
    const char *file; /* borrowed from the table */
    int64_t used, skipped, assumed, oom_rows, sweeps;
    int64_t ranked; /* sweeps whose measured times differ, so that they have a rank correlation */
    struct score_skipped reasons[SCORE_REASONS];
    int n_reasons;
    double mape_pct, p90_pct, mape_scaled_pct;
    double interval_held_pct; /* of measured times, those within their intervals of nine of ten */
    double spearman_mean, spearman_worst, regret1_mean_pct, regret3_mean_pct;
    double oom_caught_pct, good_rejected_pct;
    double trials_mean, trials_worst;
    int64_t winner_pruned; /* sweeps whose best rows are never tried, because they seem too large */
};
/* Predicts the rows of a table that are not skipped. `told` is called for each row; NULL: no
 * progress is reported. */
int score_predict(const struct table *t, const struct constants *c, const struct told_rows *told,
                  struct score_row *rows, struct err *err);
/* Scores a table whose rows were predicted. */
int score_rows(const struct table *t, struct score_row *rows, struct score *out, struct err *err);
/* Predicts a table and scores it, with the intervals of its times. */
int score_table(const struct table *t, const struct constants *c, const struct told_rows *told,
                struct score_row *rows, struct score *out, struct err *err);

#endif
