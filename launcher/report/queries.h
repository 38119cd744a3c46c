/* queries: declares the statements of launcher/report/queries.sql. That file says what each asks,
 * its parameters, and the columns that it returns. */
#ifndef LAUNCHER_REPORT_QUERIES_H
#define LAUNCHER_REPORT_QUERIES_H

extern const char sql_run_tune[];
extern const char sql_run_curation[];
extern const char sql_step_sums[];
extern const char sql_restarts[];
extern const char sql_attempt_ends[];
extern const char sql_trials[];
extern const char sql_trial_terms[];
extern const char sql_trial_rooms[];
extern const char sql_tune_end[];
extern const char sql_trial_classes[];
extern const char sql_sources[];

#endif
