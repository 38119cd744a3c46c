/* step_rows: printed steps as rows of the record: how many each covers, how long it took, and
 * whether they were done before.
 *
 * A trainer that prints every tenth step gives a row of ten. The agent looks at the log now and
 * then and finds some lines. A row whose line tells the time of a step took that time; the others
 * of one look share the time since the row before. The first row of an attempt covers as many steps
 * as the second, and waits for it. How long it took is not known, unless its line tells or others
 * were printed since the look before. Rows that reach from steps that an earlier attempt printed
 * into new ones are split there. Pure: the times are given.
 */
#ifndef LAUNCHER_WRAP_STEP_ROWS_H
#define LAUNCHER_WRAP_STEP_ROWS_H

#include "profiles/step_lines.h"

struct step_row {
    /* It covers the steps behind `from` up to `done` steps. from -1: not yet known. */
    int64_t from, done;
    struct step_line line;    /* what was printed */
    double read_at, step_s;   /* step_s: of all its steps, NaN unknown */
    double ended_at;          /* on the caller's clock, like read_at */
    bool replayed;
};

enum { STEP_ROWS_WAITING = 64 }; /* what one look finds beyond so many joins the last */
struct step_rows {
    bool loss_follows;
    int64_t before;           /* steps that earlier attempts printed */
    int64_t done;             /* most that this one printed, -1 none */
    double ended_at;          /* of the row told last; NaN none */
    double looked_at;         /* when the look before was over */
    struct step_row waiting[STEP_ROWS_WAITING];
    int n;
};

void step_rows_init(struct step_rows *r, bool loss_follows, int64_t before, double now);
/* Adds a line that was read at this look. */
void step_rows_add(struct step_rows *r, const struct step_line *line, double now);
/* Ends the look: rows that are complete go to fn; with `last` all do. */
typedef void step_row_fn(void *context, const struct step_row *row);
void step_rows_tell(struct step_rows *r, double now, bool last, step_row_fn *fn, void *context);

#endif
