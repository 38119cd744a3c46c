/* report: a run, its tuning and its data as one HTML file from the database: headline numbers, MFU and loss over steps with
 * every interruption and its cause, trials predicted against measured, where the time went. Self-contained: no script, no
 * outside asset. What is not in the database is a sentence instead of a chart. The same numbers as one JSON object.
 *
 *     struct report_scope scope;
 *     struct report_numbers n;
 *     report_scope_find(db, "demo", NULL, NULL, &scope, err);
 *     report_numbers_read(db, &scope, &n, err);
 *     report_html(db, &scope, &n, &page, err);
 *
 * Marks carry class and data: in the charts of steps path.step and path.replay with data-rows, which add up to the rows of v_step
 * that have the value; rect.span with data-rows to the rows of v_time; tr.trial-row, tr.attempt-row one a row of their views.
 */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "base/json.h"
#include "base/limits.h"
#include "db/store.h"

struct report_scope { char run[LIMIT_NAME_BYTES], tune[LIMIT_NAME_BYTES], curation[LIMIT_NAME_BYTES]; }; /* "": none */

/* Each may be NULL. run: an id, its unique beginning, or a name; tune and curation: an id or its unique beginning. For a run, a
 * tuning not named is the newest of its model, preferably one that measured the run's layout; a curation not named the
 * one that made the dataset of the run's first stage, by the fingerprint; none where it is not on record. ERR_NOT_FOUND, ERR_INPUT when a beginning fits several. */
int report_scope_find(struct store *db, const char *run, const char *tune, const char *curation, struct report_scope *out,
                      struct err *err);

struct report_numbers { /* zeros and NaN where there is no run, or nothing is known yet */
    char name[LIMIT_NAME_BYTES], model[LIMIT_NAME_BYTES], layout[256], device[LIMIT_NAME_BYTES];
    char peak_source[LIMIT_NAME_BYTES], formula[32];
    char no_mfu[128];        /* why a wrapped run has none; "" not said */
    char restarts[256]; /* "1 preempt, 1 crash": attempts that another one followed, by cause */
    int64_t steps, executions, replayed, attempts, trials;
    double wall_s, train_s, goodput; /* goodput: time in first executions of steps over the wall time */
    /* MFU of first executions: sum of model FLOPs / sum of (time x peak); NaN if no peak is known */
    double mfu, model_flops, mfu_time_s, peak_flops;
    double first_loss, last_loss;
};
int report_numbers_read(struct store *db, const struct report_scope *scope, struct report_numbers *out, struct err *err);

int report_html(struct store *db, const struct report_scope *scope, const struct report_numbers *n, struct str *out,
                struct err *err);
/* "reel.report/1": the numbers, and the rows behind the charts' summaries. */
int report_json(struct store *db, const struct report_scope *scope, const struct report_numbers *n, struct str *out,
                struct err *err);

#endif
