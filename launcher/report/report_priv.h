/* report_priv: declares what the parts of the report share. */
#ifndef LAUNCHER_REPORT_REPORT_PRIV_H
#define LAUNCHER_REPORT_REPORT_PRIV_H

#include "launcher/report/report.h"

struct report {
    struct store *db;
    const struct report_scope *scope;
    const struct report_numbers *n;
    struct str *out;
};

void report_copy(char *to, size_t size, struct store_query *q, int column);

/* Write cells of a table. A number that is not finite becomes a dash. */
void report_cell_num(struct str *out, double value, const char *format);
void report_cell_text(struct str *out, const char *text);

enum { REPORT_TERMS = 32, REPORT_BARS = 12, REPORT_ROOMS = 200 };
struct report_term { char name[32]; double seconds, recorded_s, priced_s; };
/* Holds a bar of a chart, which shows the predicted terms of a step. NaN: unknown. */
struct report_bar {
    int64_t k; /* its number in the table */
    double predicted_s, measured_s, lo_s, hi_s;
    int n_terms;
    struct report_term terms[REPORT_TERMS];
};
/* Draws n bars, which are at most REPORT_BARS. label: the words between "What steps" and "predicted
 * to be made of" in the heading, such as "are". */
void report_bars(struct str *out, const char *label, const struct report_bar *bars, int n);

/* Holds the speed of a layout, and the share of its memory that is free. */
struct report_room { int64_t k; double free, speed; char id[40]; };
/* Draws a mark for each of n layouts, if n is 2 or more. `speed`: title of the axis of speeds. */
void report_rooms(struct str *out, const char *speed, const struct report_room *rooms, int n);

/* Write the sections, each with its heading. */
int report_steps(struct report *r, struct err *err);
int report_validation(struct report *r, struct err *err); /* writes nothing if there is none */
int report_time(struct report *r, struct err *err);
int report_attempts(struct report *r, struct err *err);
int report_trials(struct report *r, struct err *err);
int report_terms(struct report *r, struct err *err);    /* a part of the trials' section */
int report_headroom(struct report *r, struct err *err); /* also a part of that section */
int report_planned(struct report *r, struct err *err);  /* writes nothing if there is none */
void report_planned_json(const struct report_plans *plans, struct json_out *o);
int report_curation(struct report *r, struct err *err);

#endif
