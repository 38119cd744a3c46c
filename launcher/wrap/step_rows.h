/* step_rows: turns a trainer's printed steps into rows for step events. A row has a number of steps
 * and their time, and says whether an earlier attempt had done them.
 *
 * A trainer that prints every tenth step gives rows of ten steps. The agent looks at the log now
 * and then and finds some new lines. If a row's line has the time of a step, the row took that
 * time; the other rows of one look share the time since the row before. The first row of an attempt
 * covers as many steps as the second, and is held back until that comes. Its time is unknown,
 * unless its line has the time or other lines were printed since the previous look. A row with
 * steps of an earlier attempt and new ones is split in two. The caller passes all times in.
 *
 * Where a bar is drawn again and again, the last row waits for the next step: its time ends with
 * the first drawing of its step, and its loss is that of the last one. A loss on a line of its own
 * belongs to the step that is drawn next. It is left out if another loss comes first.
 */
#ifndef LAUNCHER_WRAP_STEP_ROWS_H
#define LAUNCHER_WRAP_STEP_ROWS_H

#include "profiles/step_lines.h"

struct step_row {
    /* number of the run's steps done before this row, and after it; from -1: not known yet */
    int64_t from, done;
    struct step_line line;    /* the line that was printed */
    double read_at, step_s;   /* step_s: of all its steps together, NaN: unknown */
    double ended_at;          /* on the caller's clock, like read_at */
    bool replayed;
};

enum { STEP_ROWS_WAITING = 64 }; /* further lines of a look join the last row */
struct step_rows {
    enum step_loss loss;
    struct step_line logged;  /* with a loss that waits for the bar; loss is NaN: none */
    bool logged_twice;        /* other losses came since the bar was drawn */
    int64_t before;           /* number of steps that earlier attempts printed */
    int64_t done;             /* highest number of steps that this attempt printed; -1: none */
    double ended_at;          /* of the last row that was passed on; NaN: none */
    double looked_at;         /* when the previous look ended */
    struct step_row waiting[STEP_ROWS_WAITING];
    int n;
};

void step_rows_init(struct step_rows *r, enum step_loss loss, int64_t before, double now);
/* Adds a line that was read at this look. */
void step_rows_add(struct step_rows *r, const struct step_line *line, double now);
/* Ends the look: passes the complete rows to fn; with `last` all rows. */
typedef void step_row_fn(void *context, const struct step_row *row);
void step_rows_tell(struct step_rows *r, double now, bool last, step_row_fn *fn, void *context);

#endif
