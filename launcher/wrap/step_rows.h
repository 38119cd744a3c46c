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
 *
 * A trainer may go back within an attempt: torchrun starts its ranks again, or the trainer itself
 * loads an older checkpoint. Its rows then begin anew, as those of an attempt do. But the lines of
 * all ranks come through one log, so an older step may also be that of another rank whose lines
 * come late. It is taken for late if it is read at most LATE_S after the newest step, unless others
 * that lead on from it come later; or if it comes with others in one look, or faster than steps are
 * done, as from a buffer that was emptied. A trainer that goes back and prints no step below the
 * newest one is not noticed.
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
    double since;             /* when the look before that of its line had ended */
    int64_t back_from; /* of the first row after the trainer went back: the steps done until then;
                        * 0: of the others */
    bool replayed;
};

enum { STEP_ROWS_WAITING = 64, STEP_ROWS_OLDER = 32 }; /* further lines join the last row */
struct step_rows {
    enum step_loss loss;
    struct step_line logged;  /* with a loss that waits for the bar; loss is NaN: none */
    bool logged_twice;        /* other losses came since the bar was drawn */
    int64_t before; /* number of steps printed by earlier attempts, and before it went back */
    int64_t done;             /* number of steps in the newest line; -1: there is none */
    int64_t highest;          /* highest number of steps that this attempt printed; -1: none */
    int64_t stride; /* steps between the last two lines; 0: fewer than two lines came */
    /* the first line of the attempt, or since the trainer went back; when the newest was read */
    int64_t first;
    double first_at, newest_at;
    double ended_at;          /* of the last row that was passed on; NaN: none */
    double looked_at;         /* when the previous look ended */
    struct step_row waiting[STEP_ROWS_WAITING];
    struct step_row older[STEP_ROWS_OLDER]; /* steps that are done again, or late */
    int n, n_older;
    /* number of older lines that are no late ones by their time, and of looks in which they came;
     * when the last of them was read */
    int n_sure, sure_looks;
    double sure_at;
};

void step_rows_init(struct step_rows *r, enum step_loss loss, int64_t before, double now);
/* Adds a line that was read at this look. */
void step_rows_add(struct step_rows *r, const struct step_line *line, double now);
/* Ends the look: passes the complete rows to fn; with `last` all rows. */
typedef void step_row_fn(void *context, const struct step_row *row);
void step_rows_tell(struct step_rows *r, double now, bool last, step_row_fn *fn, void *context);

#endif
