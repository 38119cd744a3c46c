/* report, inside: what its parts share. */
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

/* Write cells of a table. A number that is not finite is a dash. */
void report_cell_num(struct str *out, double value, const char *format);
void report_cell_text(struct str *out, const char *text);

/* Write the sections, each with its heading. */
int report_steps(struct report *r, struct err *err);
int report_validation(struct report *r, struct err *err); /* writes nothing if there is none */
int report_time(struct report *r, struct err *err);
int report_attempts(struct report *r, struct err *err);
int report_trials(struct report *r, struct err *err);
int report_terms(struct report *r, struct err *err);    /* a part of the trials' section */
int report_headroom(struct report *r, struct err *err); /* so is this */
int report_curation(struct report *r, struct err *err);

#endif
