/* report: writes a run, its tuning and its data from the database as one HTML file: headline
 * numbers, MFU and loss over steps with every interruption and its cause, layouts planned,
 * trials predicted against measured, and where the time went. The file is self-contained: no
 * script, no outside asset. If the database has no data for the charts of steps, time or trials, a
 * sentence takes their place. The same numbers are available as one JSON object.
 *
 *     struct report_scope scope;
 *     struct report_numbers n;
 *     report_scope_find(db, "demo", NULL, NULL, &scope, err);
 *     report_numbers_read(db, &scope, &n, err);
 *     report_html(db, &scope, &n, &page, err);
 *
 * Elements have classes and data attributes, so that a test can compare them with the database. In
 * the charts of MFU and training loss, each path.step and path.replay has data-rows, the number of
 * database rows that it shows. In one chart these numbers add up to the rows of v_step in which the
 * charted column is not NULL. The data-rows of all rect.span add up to the rows of v_time. Each
 * tr.trial-row is one row of v_trial, each tr.attempt-row one row of v_attempt, and each
 * tr.plan-row one planned layout.
 */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "base/json.h"
#include "base/limits.h"
#include "db/store.h"

struct report_plans; /* report_plan.h */

/* Names the run, the tuning and the curation that a report is about; "": none. */
struct report_scope {
    char run[LIMIT_NAME_BYTES], tune[LIMIT_NAME_BYTES], curation[LIMIT_NAME_BYTES];
    /* Number of the newest attempt that is claimed in the run's folder, which the caller fills in;
     * 0: not looked up. */
    int64_t claimed;
    const struct report_plans *plans; /* borrowed; the caller fills it in; NULL: none */
};

/* Finds the subject of a report. Each name may be NULL. `run` is an id, its unique beginning, or a
 * name; `tune` and `curation` are ids or their unique beginnings. Without `tune`, takes the newest
 * tuning of the run's model, preferably one that measured the run's layout. Without `curation`,
 * takes the one that made the dataset of the run's first stage, by the fingerprint. Names that are
 * not in the database stay "". ERR_NOT_FOUND: a given name does not exist; ERR_INPUT: a beginning
 * fits several. */
int report_scope_find(struct store *db, const char *run, const char *tune, const char *curation,
                      struct report_scope *out, struct err *err);

/* Holds the numbers of a run. They are zero or NaN if there is no run, or if they are not known
 * yet. */
struct report_numbers {
    char name[LIMIT_NAME_BYTES], model[LIMIT_NAME_BYTES], layout[256], device[LIMIT_NAME_BYTES];
    char peak_source[LIMIT_NAME_BYTES], formula[32];
    char no_mfu[128];   /* why a wrapped run has no MFU; "": not recorded */
    char restarts[256]; /* "1 preempt, 1 crash": counts of attempts that another attempt followed,
                         * by cause */
    int64_t steps, executions, replayed, attempts, trials;
    /* goodput is the time in first executions of steps, divided by the wall time */
    double wall_s, train_s, goodput;
    /* mfu is that of first executions: sum of model FLOPs / sum of (time x peak); NaN if no peak is
     * known */
    double mfu, model_flops, mfu_time_s, peak_flops;
    double first_loss, last_loss;
};
int report_numbers_read(struct store *db, const struct report_scope *scope,
                        struct report_numbers *out, struct err *err);

/* Writes the page. The database may be NULL where only plans are reported. */
int report_html(struct store *db, const struct report_scope *scope, const struct report_numbers *n,
                struct str *out, struct err *err);
/* Writes the object "reel.report/1": the numbers, and the rows behind the charts. The database may
 * be NULL where only plans are reported. */
int report_json(struct store *db, const struct report_scope *scope, const struct report_numbers *n,
                struct str *out, struct err *err);

#endif
