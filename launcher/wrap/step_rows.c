#include "launcher/wrap/step_rows.h"

#include <math.h>
#include <string.h>

static const double LATE_S = 1.5; /* a line is read at most this long after it was printed */

void step_rows_init(struct step_rows *r, enum step_loss loss, int64_t before, double now)
{
    *r = (struct step_rows){.loss = loss,
                            .logged.loss = NAN,
                            .before = before,
                            .done = -1,
                            .ended_at = NAN,
                            .looked_at = now};
}

static void loss_copy(struct step_line *to, const struct step_line *from)
{
    to->loss = from->loss;
    to->grad_norm = from->grad_norm;
    to->lr = from->lr;
}

/* Adds to the last row a loss that is printed on its own line, by another rank, or by a later
 * drawing of its step, which counts more than an earlier one. */
static void loss_add(struct step_rows *r, const struct step_line *line)
{
    struct step_line *last = r->n ? &r->waiting[r->n - 1].line : NULL;
    bool redrawn = r->loss == STEP_LOSS_REDRAWN && line->done >= 0 &&
                   (!isnan(line->loss) || line->loss_nonfinite);
    if (last && (isnan(last->loss) || redrawn))
        loss_copy(last, line);
}

/* Keeps a loss until the bar is drawn. Two nodes may print the same one. */
static void logged_keep(struct step_rows *r, const struct step_line *line)
{
    if (!isnan(r->logged.loss) &&
        (r->logged.loss != line->loss || (!isnan(line->lr) && r->logged.lr != line->lr)))
        r->logged_twice = true;
    r->logged = *line;
}

/* Gives the loss that was logged to the last row, whose step was drawn just now. */
static void logged_give(struct step_rows *r)
{
    if (r->n && !isnan(r->logged.loss) && !r->logged_twice)
        loss_copy(&r->waiting[r->n - 1].line, &r->logged);
    r->logged.loss = NAN;
    r->logged_twice = false;
}

/* Adds a row for a line with a new step. */
static void row_add(struct step_rows *r, const struct step_line *line, double now)
{
    if (r->n == STEP_ROWS_WAITING) {
        struct step_row *last = &r->waiting[r->n - 1];
        last->done = line->done;
        last->line = *line;
        last->read_at = now;
    } else {
        r->waiting[r->n++] = (struct step_row){.from = r->done,
                                               .done = line->done,
                                               .line = *line,
                                               .read_at = now,
                                               .step_s = NAN};
    }
    r->done = line->done;
}

void step_rows_add(struct step_rows *r, const struct step_line *line, double now)
{
    bool bar = r->loss == STEP_LOSS_BEFORE_BAR;
    if (bar && line->done < 0) {
        logged_keep(r, line);
        return;
    }
    if (line->done > r->done && line->done != 0)
        row_add(r, line, now);
    else if (line->done < 0 || line->done == r->done)
        loss_add(r, line);
    if (bar && line->done == r->done)
        logged_give(r);
}

static int64_t row_steps(const struct step_row *row) { return row->done - row->from; }

/* Sums, over rows read in one look, the times that their lines give, and the number of steps of the
 * rows whose lines give none. */
static void look_sum(const struct step_rows *r, int first, int end, double *told_s,
                     int64_t *untold)
{
    *told_s = 0;
    *untold = 0;
    for (int i = first; i < end; i++)
        if (isnan(r->waiting[i].line.time_s))
            *untold += row_steps(&r->waiting[i]);
        else
            *told_s += r->waiting[i].line.time_s * (double)row_steps(&r->waiting[i]);
}

/* Computes how long a row took, and when it ended: right after the row before it if possible, but
 * no later than its line was read. */
static void row_time(struct step_rows *r, int i, int end)
{
    struct step_row *row = &r->waiting[i];
    double behind_s, now = row->read_at;
    int64_t untold_behind;
    look_sum(r, i + 1, end, &behind_s, &untold_behind);
    if (!isnan(row->line.time_s)) {
        row->step_s = row->line.time_s * (double)row_steps(row);
        double latest = now - behind_s, next = r->ended_at + row->step_s;
        row->ended_at = !isnan(next) && next <= latest && latest - next < LATE_S ? next : latest;
    } else {
        double left = now - r->ended_at - behind_s;
        row->step_s = isnan(r->ended_at)
                          ? NAN
                          : fmax(0, left * (double)row_steps(row) /
                                        (double)(row_steps(row) + untold_behind));
        row->ended_at = isnan(row->step_s) ? now : r->ended_at + row->step_s;
    }
    r->ended_at = row->ended_at;
}

/* Passes a row on, as two rows if an earlier attempt had done some of its steps. */
static void row_tell(const struct step_rows *r, const struct step_row *row, step_row_fn *fn,
                     void *context)
{
    struct step_row part = *row;
    part.replayed = row->done <= r->before;
    if (part.replayed || row->from >= r->before) {
        fn(context, &part);
        return;
    }
    double new_s = row->step_s * (double)(row->done - r->before) / (double)row_steps(row);
    part.done = r->before;
    part.replayed = true;
    part.step_s = row->step_s - new_s;
    part.ended_at = row->ended_at - (isnan(new_s) ? 0 : new_s);
    fn(context, &part);
    part = *row;
    part.from = r->before;
    part.step_s = new_s;
    fn(context, &part);
}

/* Sets how many steps the first row covers: as many as the second, at least one, and no more than
 * were done. */
static void first_settle(struct step_rows *r)
{
    struct step_row *row = &r->waiting[0];
    int64_t steps = r->n > 1 ? r->waiting[1].done - row->done : 1;
    row->from = row->done > steps ? row->done - steps : 0;
}

static void rows_tell(struct step_rows *r, int n, step_row_fn *fn, void *context)
{
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < r->n && r->waiting[end].read_at == r->waiting[first].read_at;
             end++)
            ;
        if (isnan(r->ended_at) && end - first > 1 && isnan(r->waiting[first].line.time_s))
            r->ended_at = r->looked_at;
        for (int i = first; i < end && i < n; i++) {
            row_time(r, i, end);
            row_tell(r, &r->waiting[i], fn, context);
        }
    }
    memmove(r->waiting, r->waiting + n, (size_t)(r->n - n) * sizeof *r->waiting);
    r->n -= n;
}

void step_rows_tell(struct step_rows *r, double now, bool last, step_row_fn *fn, void *context)
{
    int n = last || r->loss == STEP_LOSS_IN_LINE ? r->n : r->n - 1;
    bool first = r->n > 0 && r->waiting[0].from < 0;
    if (n > 0 && (!first || last || r->n > 1)) {
        if (first)
            first_settle(r);
        rows_tell(r, n, fn, context);
    }
    r->looked_at = now;
}
