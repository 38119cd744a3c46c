#include "launcher/wrap/step_rows.h"

#include <math.h>
#include <string.h>

static const double LATE_S = 1.5; /* a line is read at most this long after it was printed */
/* Steps that are done again take at least this share of the time that those before took. */
static const double LEAST_PACE = 0.25;

void step_rows_init(struct step_rows *r, enum step_loss loss, int64_t before, double now)
{
    *r = (struct step_rows){.loss = loss,
                            .logged.loss = NAN,
                            .before = before,
                            .done = -1,
                            .highest = -1,
                            .ended_at = NAN,
                            .looked_at = now};
}

static void loss_copy(struct step_line *to, const struct step_line *from)
{
    to->loss = from->loss;
    to->loss_nonfinite = from->loss_nonfinite;
    to->grad_norm = from->grad_norm;
    to->lr = from->lr;
}

/* Returns the row of the newest line that is no late one; NULL: it was passed on. */
static struct step_row *row_last(struct step_rows *r)
{
    if (r->n_sure)
        return &r->older[r->n_older - 1];
    return r->n ? &r->waiting[r->n - 1] : NULL;
}

/* Adds to a row a loss that is printed on its own line, by another rank, or by a later drawing of
 * its step, which counts more than an earlier one. */
static void loss_add(const struct step_rows *r, struct step_row *row, const struct step_line *line)
{
    bool redrawn = r->loss == STEP_LOSS_REDRAWN && line->done >= 0 &&
                   (!isnan(line->loss) || line->loss_nonfinite);
    bool none = row && isnan(row->line.loss) && !row->line.loss_nonfinite;
    if (row && (none || redrawn))
        loss_copy(&row->line, line);
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
    struct step_row *last = row_last(r);
    if (last && !isnan(r->logged.loss) && !r->logged_twice)
        loss_copy(&last->line, &r->logged);
    r->logged.loss = NAN;
    r->logged_twice = false;
}

/* Appends a row, or joins it to the last one where there is no room. */
static void row_append(struct step_row *list, int *n, int room, const struct step_row *row)
{
    struct step_row *last = &list[room - 1];
    if (*n < room) {
        list[(*n)++] = *row;
        return;
    }
    last->done = row->done;
    last->line = row->line;
    last->read_at = row->read_at;
}

/* Adds a row for a line with a new step. Where the line is far ahead of those that are done again,
 * the steps between were not done again: some other count was read. */
static void row_add(struct step_rows *r, struct step_row row)
{
    bool ahead = r->done < r->highest && row.done > r->highest &&
                 row.done - r->done > 2 * r->stride;
    row.from = r->done >= 0 && ahead ? r->highest : r->done;
    row_append(r->waiting, &r->n, STEP_ROWS_WAITING, &row);
    if (r->done < 0) {
        r->first = row.done;
        r->first_at = row.read_at;
    } else {
        r->stride = row.done - row.from;
    }
    r->done = row.done;
    r->highest = row.done > r->highest ? row.done : r->highest;
    r->newest_at = row.read_at;
}

static void older_drop(struct step_rows *r) { r->n_older = r->n_sure = r->sure_looks = 0; }

/* Turns the older steps into rows: the trainer went back to them. */
static void back_go(struct step_rows *r)
{
    r->older[0].back_from = r->done;
    r->done = -1;
    for (int i = 0; i < r->n_older; i++)
        row_add(r, r->older[i]);
    older_drop(r);
}

/* Says whether the older steps came no faster than steps are done. The first of them may have been
 * printed right after the look before. */
static bool older_took_time(const struct step_rows *r)
{
    const struct step_row *first = &r->older[0], *last = &r->older[r->n_older - 1];
    double pace = r->done > r->first ? (r->newest_at - r->first_at) / (double)(r->done - r->first)
                                     : 0;
    return last->read_at - first->since >= LEAST_PACE * pace * (double)(last->done - first->done);
}

/* Says whether the older steps were done again. Lines that came in one look do not tell, since a
 * rank that is late prints what it has at once. */
static bool is_back(const struct step_rows *r)
{
    return r->sure_looks > 1 && older_took_time(r);
}

/* Counts an older line that is no late one by its time. */
static void sure_count(struct step_rows *r, const struct step_row *row)
{
    r->sure_looks += !r->n_sure || row->read_at > r->sure_at;
    r->sure_at = row->read_at;
    r->n_sure++;
}

/* Says whether a line leads on from the older lines, so that they are kept. If they may be late,
 * the first line that is not has to be the next one. */
static bool leads_on(const struct step_rows *r, const struct step_row *row, bool sure)
{
    int64_t last = r->older[r->n_older - 1].done;
    if (sure && !r->n_sure)
        return row->done >= last && row->done - last <= r->stride;
    return row->done >= r->older[0].done;
}

/* Keeps a line whose step is no newer than the newest one, until more is known; or adds its loss
 * to the row that it belongs to. */
static void older_add(struct step_rows *r, const struct step_row *row)
{
    bool sure = row->read_at - r->newest_at > LATE_S;
    if (r->n_older && !leads_on(r, row, sure))
        older_drop(r);
    struct step_row *last = r->n_older ? &r->older[r->n_older - 1] : NULL;
    if (last && row->done <= last->done) {
        if (row->done == last->done)
            loss_add(r, last, &row->line);
        return;
    }
    row_append(r->older, &r->n_older, STEP_ROWS_OLDER, row);
    if (sure)
        sure_count(r, row);
}

/* Adds a row for a line whose step is newer than all others. One older step before it was done
 * again, if it leads here. */
static void newer_add(struct step_rows *r, const struct step_row *row)
{
    if (is_back(r) || (r->n_sure == 1 && row->done - row_last(r)->done <= r->stride))
        back_go(r);
    older_drop(r);
    row_add(r, *row);
}

void step_rows_add(struct step_rows *r, const struct step_line *line, double now)
{
    struct step_row row = {.done = line->done, .line = *line, .read_at = now, .step_s = NAN,
                           .since = r->looked_at};
    bool bar = r->loss == STEP_LOSS_BEFORE_BAR;
    if (bar && line->done < 0) {
        logged_keep(r, line);
        return;
    }
    if (line->done < 0)
        loss_add(r, row_last(r), line);
    else if (line->done > r->done && line->done != 0)
        newer_add(r, &row);
    else if (line->done != 0 && (r->n_sure || line->done < r->done))
        older_add(r, &row);
    else if (line->done == r->done)
        loss_add(r, row_last(r), line);
    if (bar && row_last(r) && line->done == row_last(r)->done)
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
    part.back_from = 0;
    part.from = r->before;
    part.step_s = new_s;
    fn(context, &part);
}

/* Sets how many steps the first row of the attempt, or after the trainer went back, covers: as many
 * as the next one, at least one, and no more than were done. */
static void first_settle(struct step_rows *r, int i)
{
    struct step_row *row = &r->waiting[i];
    int64_t steps = i + 1 < r->n ? r->waiting[i + 1].done - row->done : 1;
    steps = steps > 0 ? steps : 1;
    row->from = row->done > steps ? row->done - steps : 0;
}

/* Begins anew where the trainer went back. Of the first rows the time is known only if several were
 * read in a look. */
static void row_begin(struct step_rows *r, int i, int end)
{
    const struct step_row *row = &r->waiting[i];
    if (row->back_from) {
        r->ended_at = NAN;
        r->before = row->back_from > r->before ? row->back_from : r->before;
    }
    if (isnan(r->ended_at) && end - i > 1 && isnan(row->line.time_s))
        r->ended_at = row->since;
}

static void rows_tell(struct step_rows *r, int n, step_row_fn *fn, void *context)
{
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < r->n && r->waiting[end].read_at == r->waiting[first].read_at;
             end++)
            ;
        for (int i = first; i < end && i < n; i++) {
            row_begin(r, i, end);
            row_time(r, i, end);
            row_tell(r, &r->waiting[i], fn, context);
        }
    }
    memmove(r->waiting, r->waiting + n, (size_t)(r->n - n) * sizeof *r->waiting);
    r->n -= n;
}

void step_rows_tell(struct step_rows *r, double now, bool last, step_row_fn *fn, void *context)
{
    if (is_back(r))
        back_go(r);
    int n = last || r->loss == STEP_LOSS_IN_LINE ? r->n : r->n - 1;
    if (!last && n > 0 && n == r->n && r->waiting[n - 1].from < 0)
        n--; /* a first row waits for the next one */
    for (int i = 0; i < n; i++)
        if (r->waiting[i].from < 0)
            first_settle(r, i);
    if (n > 0)
        rows_tell(r, n, fn, context);
    r->looked_at = now;
}
