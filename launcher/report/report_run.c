/* report_run: writes the sections about the run: MFU and loss over steps, where the time went,
 * attempts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "launcher/report/chart.h"
#include "launcher/report/queries.h"
#include "launcher/report/report_priv.h"

enum { MARKS = 1500 }; /* if there are more rows than this, a mark stands for several */

/* ---- charts over steps ---- */

/* Draws the event of all attempts that ended at one step with one cause. */
static void event_row(struct store_query *q, void *ctx)
{
    char label[128], data[64];
    long long first = store_int(q, 0), last = store_int(q, 1), n = store_int(q, 2);
    const char *cause = *store_text(q, 3) ? store_text(q, 3) : "lost";
    if (n == 1)
        snprintf(label, sizeof label, "attempt %lld: %.40s", first, cause);
    else if (n == last - first + 1)
        snprintf(label, sizeof label, "attempts %lld to %lld: %.40s", first, last, cause);
    else
        snprintf(label, sizeof label, "%lld of attempts %lld to %lld: %.40s", n, first, last,
                 cause);
    snprintf(data, sizeof data, "data-attempt=\"%lld\" data-rows=\"%lld\"", first, n);
    chart_event(ctx, (double)store_int(q, 4) + 0.5, label, data);
}

/* Draws a line with the cause where attempts ended, except at an attempt that completed the run. */
static int events_draw(struct report *r, struct chart *c, struct err *err)
{
    return store_each(r->db, sql_attempt_ends, r->scope->run, event_row, c, err);
}

struct value_range {
    double first, last, lo, hi;
    int64_t rows, values;
};

static void range_row(struct store_query *q, void *ctx)
{
    *(struct value_range *)ctx = (struct value_range){store_num(q, 0), store_num(q, 1),
                                                      store_num(q, 2), store_num(q, 3),
                                                      store_int(q, 4), store_int(q, 5)};
}

static void line_row(struct store_query *q, void *ctx)
{
    struct chart *c = ctx;
    str_addf(c->out, "%.1f,%.1f ", chart_x(c, store_num(q, 0)), chart_y(c, store_num(q, 1)));
}

static void mark_row(struct store_query *q, void *ctx)
{
    char data[128], title[160];
    long long step = store_int(q, 0), last = store_int(q, 5), attempt = store_int(q, 3),
              rows = store_int(q, 4);
    bool again = store_int(q, 2) != 0;
    snprintf(data, sizeof data, "data-step=\"%lld\" data-attempt=\"%lld\" data-rows=\"%lld\"", step,
             attempt, rows);
    if (rows == 1)
        snprintf(title, sizeof title, "step %lld, attempt %lld: %.6g%s", step, attempt,
                 store_num(q, 1), again ? " (executed again)" : "");
    else
        snprintf(title, sizeof title, "steps %lld to %lld, attempt %lld: mean %.6g%s", step, last,
                 attempt, store_num(q, 1), again ? " (executed again)" : "");
    chart_mark(ctx, again ? CHART_RING : CHART_DOT, ((double)step + (double)last) / 2,
               store_num(q, 1), again ? "replay" : "step", data, title);
}

/* Draws a mark for each `bin` neighbouring steps of one attempt, at their mean value. The line
 * connects the first executions. */
static int marks_draw(struct report *r, const char *column, int64_t bin, struct chart *c,
                      struct err *err)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "SELECT (min(step) + max(step)) / 2.0, avg(%s) FROM v_step WHERE run = ?1"
             " AND %s IS NOT NULL AND NOT replayed GROUP BY step / %lld ORDER BY 1",
             column, column, (long long)bin);
    str_add(c->out, "<polyline class=\"line\" points=\"");
    int rc = store_each(r->db, sql, r->scope->run, line_row, c, err);
    str_add(c->out, "\"/>\n");
    snprintf(sql, sizeof sql,
             "SELECT min(step), avg(%s), replayed, attempt, count(*), max(step) FROM v_step"
             " WHERE run = ?1 AND %s IS NOT NULL GROUP BY replayed, attempt, step / %lld"
             " ORDER BY replayed, 1, attempt",
             column, column, (long long)bin);
    if (rc < 0)
        return rc;
    return store_each(r->db, sql, r->scope->run, mark_row, c, err);
}

struct step_chart {
    const char *column, *title, *label, *nothing, *missing;
    double scale;
    bool from_zero;
};

static int step_chart_draw(struct report *r, const struct step_chart *s, struct err *err)
{
    char sql[256];
    struct value_range v = {0};
    snprintf(sql, sizeof sql,
             "SELECT min(step), max(step), min(%s), max(%s), count(*), count(%s) FROM v_step"
             " WHERE run = ?1",
             s->column, s->column, s->column);
    int rc = store_each(r->db, sql, r->scope->run, range_row, &v, err);
    if (rc < 0)
        return rc;
    if (v.values == 0) {
        str_addf(r->out, "<p>%s</p>\n", v.rows ? s->nothing : "No step was recorded.");
        return 0;
    }
    int64_t bin = num_max_i64(1, num_ceil_div((int64_t)(v.last - v.first) + 1, MARKS));
    struct chart c = {.out = r->out,
                      .x_title = "optimizer step",
                      .y_title = s->title,
                      .label = s->label,
                      .y_scale = s->scale,
                      .x = chart_axis_count(v.first, v.last, 8),
                      .y = chart_axis_round(s->from_zero ? 0 : v.lo, v.hi, 5)};
    chart_begin(&c);
    if ((rc = events_draw(r, &c, err)) < 0)
        return rc;
    if ((rc = marks_draw(r, s->column, bin, &c, err)) < 0)
        return rc;
    chart_end(&c);
    if (bin > 1)
        str_addf(r->out,
                 "<p class=\"why\">Each mark is the mean of up to %lld neighbouring steps of one "
                 "attempt.</p>\n",
                 (long long)bin);
    if (v.rows > v.values)
        str_addf(r->out, "<p class=\"why\">%lld of %lld executions %s.</p>\n",
                 (long long)(v.rows - v.values), (long long)v.rows, s->missing);
    return 0;
}

int report_steps(struct report *r, struct err *err)
{
    char no_mfu[160];
    snprintf(no_mfu, sizeof no_mfu, "No MFU: %s.",
             *r->n->no_mfu ? r->n->no_mfu : "the peak of this device is not known");
    const struct step_chart charts[] = {
        {"mfu", "MFU, % of dense peak", "model FLOPs utilisation over optimizer steps", no_mfu,
         "have no MFU", 100, true},
        {"loss", "loss", "training loss over optimizer steps", "No step had a finite loss.",
         "had no finite loss", 1, false},
    };
    str_add(r->out, "<section><h2>Model-FLOPs utilisation over steps</h2>\n");
    if (r->n->executions)
        str_add(r->out,
                "<p class=\"why\">Dots: steps done for the first time. Rings: steps done again "
                "after a restart. Dashed lines: where an attempt ended, and why.</p>\n");
    int rc;
    if ((rc = step_chart_draw(r, &charts[0], err)) < 0)
        return rc;
    str_add(r->out, "</section>\n<section><h2>Loss over steps</h2>\n");
    if ((rc = step_chart_draw(r, &charts[1], err)) < 0)
        return rc;
    str_add(r->out, "</section>\n");
    return 0;
}

/* ---- time ---- */

enum {
    STRIP_WIDTH = 860,
    STRIP_TOP = 22,
    STRIP_HEIGHT = 34,
    BAR_LEFT = 128,
    BAR_WIDTH = 520,
    BAR_ROW = 26
};

static const char patterns[] =
    "<defs><pattern id=\"h-replay\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
    "<path class=\"hatch\" d=\"M-1 1l2-2M0 5l5-5M4 6l2-2\"/></pattern>"
    "<pattern id=\"h-save\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
    "<path class=\"hatch\" d=\"M2 0v4\"/></pattern>"
    "<pattern id=\"h-load\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
    "<path class=\"hatch\" d=\"M0 2h4\"/></pattern>"
    "<pattern id=\"h-start\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
    "<circle class=\"dots\" cx=\"2.5\" cy=\"2.5\" r=\"1.2\"/></pattern>"
    "<pattern id=\"h-down\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\">"
    "<path class=\"hatch\" style=\"stroke-width:.7\" d=\"M0 0l7 7M7 0l-7 7\"/></pattern></defs>\n";

/* Returns the class that fills a rectangle. Each of the known causes has its own class; all causes
 * that begin with "down:" share one, and all others share one. */
static const char *cause_class(const char *cause)
{
    static const char *const known[] = {"train", "replay", "save",  "load",
                                        "start", "queue",  "suspended"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(cause, known[i]) == 0)
            return known[i];
    return str_starts(cause, "down:") ? "down" : "other";
}

struct strip {
    struct str *out;
    double from, to;
    double at, longest; /* where the present rectangle begins; duration of its longest row, s */
    double held;        /* px at which the next label of an attempt may begin */
    int64_t rows;
    char cause[64];
    /* There are many rows, so a rectangle is at least a pixel wide and shows the cause of its
     * longest row. */
    bool merge;
};

static double strip_x(const struct strip *s, double t)
{
    return (t - s->from) / (s->to - s->from) * (STRIP_WIDTH - 2) + 1;
}

static void strip_flush(struct strip *s, double to)
{
    if (!s->rows)
        return;
    str_addf(s->out,
             "<rect class=\"span c-%s\" data-rows=\"%lld\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
             "height=\"%d\"><title>",
             cause_class(s->cause), (long long)s->rows, strip_x(s, s->at), STRIP_TOP,
             strip_x(s, to) - strip_x(s, s->at), STRIP_HEIGHT);
    html_escape(s->out, s->cause);
    str_addf(s->out, ", %.3f s</title></rect>\n", to - s->at);
    s->rows = 0;
}

static void strip_row(struct store_query *q, void *ctx)
{
    struct strip *s = ctx;
    double from = store_num(q, 1), to = store_num(q, 2);
    if (!s->rows) {
        s->at = from;
        s->longest = -1;
    }
    if (to - from > s->longest) {
        s->longest = to - from;
        report_copy(s->cause, sizeof s->cause, q, 0);
    }
    s->rows++;
    if (!s->merge || strip_x(s, to) - strip_x(s, s->at) >= 1)
        strip_flush(s, to);
}

static void strip_range_row(struct store_query *q, void *ctx)
{
    struct strip *s = ctx;
    s->from = store_num(q, 0);
    s->to = store_num(q, 1);
    s->merge = store_int(q, 2) > MARKS;
}

static void strip_attempt_row(struct store_query *q, void *ctx)
{
    struct strip *s = ctx;
    double x = strip_x(s, store_num(q, 1));
    char text[32];
    snprintf(text, sizeof text, "attempt %lld", (long long)store_int(q, 0));
    double end = x + chart_text_width(text);
    if (!(x >= s->held) || end > STRIP_WIDTH)
        return;
    s->held = end + 4;
    str_addf(s->out,
             "<path class=\"axis\" d=\"M%.1f %dv-6\"/>"
             "<text class=\"note\" x=\"%.1f\" y=\"12\">%s</text>\n",
             x, STRIP_TOP, x, text);
}

/* Draws the axis of the time since the first submission, in seconds, minutes or hours. */
static void strip_axis(struct strip *s)
{
    double wall = s->to - s->from, unit = wall < 180 ? 1 : wall < 3 * 3600 ? 60 : 3600;
    struct chart_axis a = chart_axis_round(0, wall / unit, 8);
    int y = STRIP_TOP + STRIP_HEIGHT;
    for (int i = 0; i * a.step <= wall / unit * (1 + 1e-9); i++) {
        double x = strip_x(s, s->from + i * a.step * unit);
        str_addf(s->out,
                 "<line class=\"axis\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                 "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.6g</text>\n",
                 x, y, x, y + 5, x, y + 18,
                 i == 0                 ? "start"
                 : x > STRIP_WIDTH - 16 ? "end"
                                        : "middle",
                 i * a.step);
    }
    str_addf(s->out,
             "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s since the first "
             "submission</text>\n",
             STRIP_WIDTH - 1, y + 34,
             unit == 1    ? "seconds"
             : unit == 60 ? "minutes"
                          : "hours");
}

static int strip_draw(struct report *r, struct err *err)
{
    static const char range[] =
        "SELECT min(\"from\"), max(\"to\"), count(*) FROM v_time WHERE run = ?1";
    static const char spans[] =
        "SELECT cause, \"from\", \"to\" FROM v_time WHERE run = ?1 ORDER BY \"from\"";
    static const char attempts[] =
        "SELECT attempt, started_at FROM v_attempt WHERE run = ?1 ORDER BY attempt";
    const char *run = r->scope->run;
    struct strip s = {.out = r->out};
    int rc;
    if ((rc = store_each(r->db, range, run, strip_range_row, &s, err)) < 0 || !(s.to > s.from))
        return rc;
    str_addf(r->out,
             "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
             "aria-label=\"the run's time from left to right, by cause\">\n"
             "%s",
             STRIP_WIDTH, STRIP_TOP + STRIP_HEIGHT + 44, patterns);
    if ((rc = store_each(r->db, spans, run, strip_row, &s, err)) < 0)
        return rc;
    strip_flush(&s, s.to);
    str_addf(r->out, "<rect class=\"frame\" x=\"1\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
             STRIP_TOP, STRIP_WIDTH - 2, STRIP_HEIGHT);
    if ((rc = store_each(r->db, attempts, run, strip_attempt_row, &s, err)) < 0)
        return rc;
    strip_axis(&s);
    str_add(r->out, "</svg></div>\n");
    return 0;
}

struct bars {
    struct str *out;
    double wall_s, longest;
    int row;
};

static void bar_row(struct store_query *q, void *ctx)
{
    struct bars *b = ctx;
    double s = store_num(q, 1);
    char text[32];
    if (b->row == 0)
        b->longest = s;
    double width = fmax(1, BAR_WIDTH * s / b->longest);
    str_addf(b->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" class=\"title\">", BAR_LEFT - 10,
             20 + BAR_ROW * b->row);
    html_escape(b->out, store_text(q, 0));
    str_addf(b->out,
             "</text><rect class=\"bar c-%s\" data-seconds=\"%.6f\" x=\"%d\" y=\"%d\" "
             "width=\"%.1f\" height=\"18\"/><text x=\"%.1f\" y=\"%d\">%s · %.1f %%</text>\n",
             cause_class(store_text(q, 0)), s, BAR_LEFT, 6 + BAR_ROW * b->row, width,
             BAR_LEFT + width + 8, 20 + BAR_ROW * b->row, num_format_seconds(s, text, sizeof text),
             100 * s / b->wall_s);
    b->row++;
}

int report_time(struct report *r, struct err *err)
{
    static const char sql[] = "SELECT cause, sum(seconds) s FROM v_time WHERE run = ?1"
                              " GROUP BY cause ORDER BY s DESC, cause";
    struct str bars = STR_INIT;
    struct bars b = {&bars, r->n->wall_s, 0, 0};
    int rc;
    str_add(r->out, "<section><h2>Where the time went</h2>\n");
    if ((rc = store_each(r->db, sql, r->scope->run, bar_row, &b, err)) < 0)
        goto out;
    if (b.row == 0) {
        str_add(r->out, "<p>No time was recorded.</p>\n</section>\n");
        goto out;
    }
    if ((rc = strip_draw(r, err)) < 0)
        goto out;
    str_addf(r->out,
             "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
             "aria-label=\"seconds by cause\">\n%s</svg></div>\n",
             STRIP_WIDTH, 10 + BAR_ROW * b.row, bars.p);
    str_add(r->out, "<p class=\"why\">train: first executions of steps. replay: steps done again. "
                    "start: from an attempt's start to its first step. suspended: by the "
                    "scheduler, whatever that interrupted. down: no attempt ran, after "
                    "one ended so. other: within an attempt, none of these.</p>\n</section>\n");
out:
    str_release(&bars);
    return rc;
}

/* ---- attempts ---- */

static void attempt_row(struct store_query *q, void *ctx)
{
    struct str *out = ctx;
    char when[32] = "–", lasted[32] = "–";
    if (isfinite(store_num(q, 3)))
        clock_format_utc(store_num(q, 3), when, sizeof when);
    if (isfinite(store_num(q, 4) - store_num(q, 3)))
        num_format_seconds(store_num(q, 4) - store_num(q, 3), lasted, sizeof lasted);
    str_addf(out, "<tr class=\"attempt-row\"><td>%lld</td>", (long long)store_int(q, 0));
    report_cell_text(out, *store_text(q, 1) ? store_text(q, 1) : "by hand");
    report_cell_text(out, *store_text(q, 2) ? store_text(q, 2) : "–");
    report_cell_text(out, when);
    str_addf(out, "<td class=\"n\">%s</td>", lasted);
    report_cell_text(out, *store_text(q, 5) ? store_text(q, 5) : "–");
    report_cell_num(out, store_num(q, 6), "%.0f");
    report_cell_num(out, store_num(q, 7), "%.0f");
    str_add(out, "</tr>\n");
}

static void damage_row(struct store_query *q, void *ctx)
{
    long long places = store_int(q, 0);
    if (places)
        str_addf(ctx,
                 "<p class=\"damage\">%lld damaged place%s in the run's logs, %lld bytes: what "
                 "stood there is not told here.</p>\n",
                 places, places == 1 ? "" : "s", (long long)store_int(q, 1));
}

static void missing_row(struct store_query *q, void *ctx)
{
    str_addf(ctx,
             "<p class=\"missing\">The logs of the run tell of %lld of its %lld attempts.</p>\n",
             (long long)store_int(q, 0), (long long)store_int(q, 1));
}

static void newest_row(struct store_query *q, void *ctx)
{
    struct report *r = ctx;
    if (store_int(q, 0) < r->scope->claimed)
        str_addf(r->out,
                 "<p class=\"missing\">Attempt %lld has begun, and no log tells of it.</p>\n",
                 (long long)r->scope->claimed);
}

/* Writes a sentence if the newest attempt is not in the logs. */
static int newest_untold(struct report *r, struct err *err)
{
    return store_each(r->db, "SELECT coalesce(max(attempt), 0) FROM v_attempt WHERE run = ?1",
                      r->scope->run, newest_row, r, err);
}

/* Writes sentences about missing or damaged logs. */
static int untold(struct report *r, struct err *err)
{
    static const char damaged[] = "SELECT count(*), coalesce(sum(bytes), 0) FROM damage"
                                  " WHERE instr(file, '/' || ?1 || '/events/') > 0",
                      missing[] = "SELECT count(*), max(attempt) FROM v_attempt WHERE run = ?1"
                                  " HAVING count(*) < max(attempt)";
    int rc;
    if ((rc = newest_untold(r, err)) < 0)
        return rc;
    if ((rc = store_each(r->db, damaged, r->scope->run, damage_row, r->out, err)) < 0)
        return rc;
    return store_each(r->db, missing, r->scope->run, missing_row, r->out, err);
}

int report_attempts(struct report *r, struct err *err)
{
    static const char sql[] =
        "SELECT attempt, scheduler, job_id, started_at, ended_at, cause, first_step, last_step"
        " FROM v_attempt WHERE run = ?1 ORDER BY attempt";
    int rc;
    str_add(r->out, "<section><h2>Attempts</h2>\n");
    if (r->n->attempts == 0) {
        if (!r->scope->claimed)
            str_add(r->out, "<p>No attempt has started.</p>\n");
        if ((rc = newest_untold(r, err)) < 0)
            return rc;
        str_add(r->out, "</section>\n");
        return 0;
    }
    str_add(
        r->out,
        "<table class=\"attempts\"><tr><th>attempt</th><th>scheduler</th><th>job</th>"
        "<th>started (UTC)</th><th class=\"n\">lasted</th><th>ended by</th>"
        "<th class=\"n\">first step</th><th class=\"n\">last step</th></tr>\n");
    if ((rc = store_each(r->db, sql, r->scope->run, attempt_row, r->out, err)) < 0)
        return rc;
    str_add(r->out, "</table>\n");
    if ((rc = untold(r, err)) < 0)
        return rc;
    str_add(r->out, "</section>\n");
    return 0;
}
