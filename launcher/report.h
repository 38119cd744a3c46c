/* report: one run as one HTML file from the database: headline numbers, MFU and loss over steps with every interruption and
 * its cause, trials predicted against measured, where the time went. Self-contained; reads the public views only.
 */
#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

#include "base/json.h"
#include "db/store.h"

struct report_numbers {
    char run[64], name[128], model[128], layout[256], device[128], peak_source[128], formula[32];
    int64_t steps, executions, replayed, attempts, trials;
    double wall_s, train_s, goodput; /* goodput: time in first executions of steps over the wall time */
    double mfu;                      /* model FLOPs of all first executions over their time and peak; NaN if no peak is known */
    double peak_flops, first_loss, last_loss;
};

/* ERR_NOT_FOUND when the database holds nothing of the run. */
int report_numbers_read(struct store *db, const char *run, struct report_numbers *out, struct err *err);
int report_html(struct store *db, const struct report_numbers *n, struct str *out, struct err *err);
void report_numbers_write(const struct report_numbers *n, struct json_out *o); /* "reel.report/1" */

#endif
