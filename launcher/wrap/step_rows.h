/* step_rows: turns printed steps into rows of the record: how many steps a row covers, how long it
 * took, and whether an earlier attempt had done them.
 *
 * A trainer that prints every tenth step gives a row of ten. The agent looks at the log now and
 * then and finds some lines. A row whose line has the time of a step took that time; the other rows
 * of one look share the time since the row before. The first row of an attempt covers as many steps
 * as the second, and waits for it. How long it took is not known, unless its line has the time or
 * other lines were printed since the previous look. A row that has steps of an earlier attempt and
 * new ones is split in two. Pure: the times are given.
 */
#ifndef LAUNCHER_WRAP_STEP_ROWS_H
#define LAUNCHER_WRAP_STEP_ROWS_H

#include "profiles/step_lines.h"

struct step_row {
    /* steps of the run that were done before this row, and after it; from -1: not yet known */
    int64_t from, done;
    struct step_line line;    /* what was printed */
    double read_at, step_s;   /* step_s: of all its steps, NaN unknown */
    double ended_at;          /* on the caller's clock, like read_at */
    bool replayed;
};

enum { STEP_ROWS_WAITING = 64 }; /* lines of a look after this many join the last row */
struct step_rows {
    bool loss_follows;
    int64_t before;           /* steps that earlier attempts printed */
    int64_t done;             /* highest number of steps that this one printed; -1: none */
    double ended_at;          /* of the row that was passed on last; NaN: none */
    double looked_at;         /* when the previous look was over */
    struct step_row waiting[STEP_ROWS_WAITING];
    int n;
};

void step_rows_init(struct step_rows *r, bool loss_follows, int64_t before, double now);
/* Adds a line that was read at this look. */
void step_rows_add(struct step_rows *r, const struct step_line *line, double now);
/* Ends the look: passes the rows that are complete to fn; with `last` all rows. */
typedef void step_row_fn(void *context, const struct step_row *row);
void step_rows_tell(struct step_rows *r, double now, bool last, step_row_fn *fn, void *context);

#endif
