/* report: what the trials' steps were predicted to be made of, and what memory each left. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "launcher/report/chart.h"
#include "launcher/report/report_priv.h"

/* Numbers the trials as the list of trials does. */
#define NUMBERED                                                                                  \
    "(SELECT *, row_number() OVER (ORDER BY measured_step_s IS NULL, measured_step_s,"             \
    " predicted_step_s, trial) AS k FROM v_trial WHERE tune = ?1) t"

/* ---- stacked terms ---- */

/* Lists the terms of the first trials: of all trials in one order, the largest in sum first. */
#define TERMS                                                                                      \
    "SELECT t.k, t.predicted_step_s, t.measured_step_s, x.term, x.predicted_s, x.measured_s,"      \
    " sum(x.predicted_s) OVER (PARTITION BY x.term) AS whole FROM " NUMBERED                       \
    " JOIN v_term x ON x.tune = t.tune AND x.trial = t.trial WHERE t.k <= 12"                      \
    " ORDER BY t.k, whole DESC, x.term"
enum { S_K, S_PREDICTED, S_MEASURED, S_TERM, S_SECONDS, S_RECORDED, S_WHOLE };
enum { WIDTH = 620, LEFT = 34, RIGHT = 16, ROW = 26, BAR = 18, AXIS = 26 };

/* Draws bars from row to row. */
struct stack {
    struct str *out;
    double hi;             /* seconds at the right end */
    int64_t k, rows;
    double at;             /* where the present bar ends so far, s */
    int term;              /* how many of the present bar's terms were met */
    struct str names;      /* of the terms, in their order */
};

static double stack_x(const struct stack *s, double seconds)
{ return LEFT + seconds / s->hi * (WIDTH - LEFT - RIGHT); }

static void extent_row(struct store_query *q, void *ctx)
{
    struct stack *s = ctx;
    double measured = store_num(q, S_MEASURED);
    s->rows += store_int(q, S_K) != s->k;
    s->k = store_int(q, S_K);
    s->hi = fmax(s->hi, store_num(q, S_PREDICTED));
    if (isfinite(measured))
        s->hi = fmax(s->hi, measured);
    if (s->rows == 1 && store_num(q, S_WHOLE) > 0) {
        str_add(&s->names, s->names.len ? ", " : "");
        str_add(&s->names, store_text(q, S_TERM));
    }
}

/* Begins a trial's bar with its number. */
static void bar_begin(struct stack *s, struct store_query *q)
{
    s->k = store_int(q, S_K), s->at = 0, s->term = 0;
    int64_t y = (s->rows++) * ROW;
    str_addf(s->out, "<text class=\"note\" x=\"%d\" y=\"%lld\" text-anchor=\"end\">%lld</text>\n",
             LEFT - 8, (long long)(y + 14), (long long)s->k);
}

/* Marks over a trial's bar what was measured. */
static void measured_row(struct store_query *q, void *ctx)
{
    struct stack *s = ctx;
    double measured = store_num(q, S_MEASURED);
    if (store_int(q, S_K) == s->k)
        return;
    s->k = store_int(q, S_K);
    int64_t y = (s->rows++) * ROW;
    if (isfinite(measured))
        str_addf(s->out,
                 "<line class=\"measured\" x1=\"%.1f\" y1=\"%lld\" x2=\"%.1f\" y2=\"%lld\"/>\n",
                 stack_x(s, measured), (long long)y - 2, stack_x(s, measured),
                 (long long)(y + BAR + 2));
}

static void term_row(struct store_query *q, void *ctx)
{
    static const double shade[] = {0.5, 0.26, 0.4, 0.16};
    struct stack *s = ctx;
    double seconds = store_num(q, S_SECONDS);
    const char *term = store_text(q, S_TERM);
    if (store_int(q, S_K) != s->k)
        bar_begin(s, q);
    int64_t y = (s->rows - 1) * ROW;
    double x = stack_x(s, s->at), w = stack_x(s, s->at + seconds) - x;
    double opacity = shade[s->term++ % 4];
    if (!(seconds > 0))
        return;
    s->at += seconds;
    str_addf(s->out,
             "<rect class=\"term\" data-k=\"%lld\" fill-opacity=\"%g\" x=\"%.1f\" y=\"%lld\""
             " width=\"%.1f\" height=\"%d\"><title>", (long long)s->k, opacity, x, (long long)y,
             w, BAR);
    html_escape(s->out, term);
    str_addf(s->out, ": predicted %.4g s", seconds);
    if (isfinite(store_num(q, S_RECORDED)))
        str_addf(s->out, ", recorded %.4g s", store_num(q, S_RECORDED));
    str_add(s->out, "</title></rect>\n");
    if (w < chart_text_width(term) + 4)
        return;
    str_addf(s->out, "<text class=\"within\" x=\"%.1f\" y=\"%lld\">", x + 5, (long long)(y + 13));
    html_escape(s->out, term);
    str_add(s->out, "</text>\n");
}

/* Writes the seconds under the bars. */
static void axis_draw(const struct stack *s, int64_t height)
{
    struct chart_axis a = chart_axis_round(0, s->hi, 5);
    for (int i = 0; i * a.step <= s->hi; i++)
        str_addf(s->out, "<line class=\"grid\" x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%lld\"/>"
                 "<text x=\"%.1f\" y=\"%lld\" text-anchor=\"%s\">%g%s</text>\n",
                 stack_x(s, i * a.step), stack_x(s, i * a.step), (long long)(height - AXIS + 4),
                 stack_x(s, i * a.step), (long long)height - 6, i ? "middle" : "start", i * a.step,
                 i ? "" : " s");
}

int report_terms(struct report *r, struct err *err)
{
    struct stack s = {.out = r->out, .names = STR_INIT};
    int rc;
    if ((rc = store_each(r->db, TERMS, r->scope->tune, extent_row, &s, err)) < 0 || s.rows == 0 ||
        !(s.hi > 0))
        goto out;
    int64_t height = s.rows * ROW + AXIS;
    str_addf(r->out, "<h3>What steps were predicted to be made of</h3>\n<svg class=\"terms\" "
             "style=\"max-width:%dpx\" viewBox=\"0 -4 %d %lld\" role=\"img\" "
             "aria-label=\"predicted terms of the trials' steps\">\n", WIDTH, WIDTH,
             (long long)height + 4);
    axis_draw(&s, height);
    s.k = s.rows = 0;
    if ((rc = store_each(r->db, TERMS, r->scope->tune, term_row, &s, err)) < 0)
        goto out;
    s.k = s.rows = 0;
    rc = store_each(r->db, TERMS, r->scope->tune, measured_row, &s, err);
    str_add(r->out, "</svg>\n<p class=\"why\">The fastest trials, by the table's numbers; the "
                    "upright line is what was measured. From the left: ");
    html_escape(r->out, s.names.p ? s.names.p : "");
    str_add(r->out, ".</p>\n");
out:
    str_release(&s.names);
    return rc;
}

/* ---- speed against memory headroom ---- */

#define HEADROOM                                                                                   \
    "SELECT t.k, 1 - t.peak_bytes / limit_bytes AS free, t.tokens / t.measured_step_s AS speed,"   \
    " t.trial FROM " NUMBERED " JOIN (SELECT json_extract(json, '$.trial') AS named,"              \
    " max(1.0 * json_extract(json, '$.limit_bytes')) AS limit_bytes FROM event WHERE run = ?1"     \
    " AND kind = 'trial_predicted' GROUP BY named) e ON e.named = t.trial"                         \
    " WHERE limit_bytes > 0 AND t.peak_bytes > 0 AND t.tokens > 0 AND t.measured_step_s > 0"       \
    " ORDER BY t.k"
enum { H_K, H_FREE, H_SPEED, H_TRIAL };
struct room { int64_t n; double least, most, speed; };

static void room_row(struct store_query *q, void *ctx)
{
    struct room *room = ctx;
    double free = store_num(q, H_FREE);
    room->least = room->n ? fmin(room->least, free) : free;
    room->most = room->n ? fmax(room->most, free) : free;
    room->speed = fmax(room->speed, store_num(q, H_SPEED));
    room->n++;
}

static void room_mark(struct store_query *q, void *ctx)
{
    struct chart *c = ctx;
    double free = store_num(q, H_FREE), speed = store_num(q, H_SPEED);
    struct str data = STR_INIT;
    char title[96];
    str_add(&data, "data-room=\"");
    html_escape(&data, store_text(q, H_TRIAL));
    str_add(&data, "\" data-rows=\"1\"");
    snprintf(title, sizeof title, "%lld: %.3g tokens/s, %.1f %% of the memory free",
             (long long)store_int(q, H_K), speed, 100 * free);
    chart_mark(c, CHART_RING, free, speed, "room", data.p, title);
    chart_keep_clear(c, free, speed);
    str_release(&data);
}

static void room_label(struct store_query *q, void *ctx)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)store_int(q, H_K));
    chart_label(ctx, store_num(q, H_FREE), store_num(q, H_SPEED), text);
}

int report_headroom(struct report *r, struct err *err)
{
    struct room room = {0};
    int rc = store_each(r->db, HEADROOM, r->scope->tune, room_row, &room, err);
    if (rc < 0 || room.n < 2)
        return rc;
    struct chart c = {.out = r->out,
                      .x_title = "share of its memory that the fullest rank left free",
                      .y_title = "tokens/s",
                      .label = "speed of the trials against the memory that they left free",
                      .y_scale = 1,
                      .width = 620,
                      .x = chart_axis_round(room.least, room.most, 6),
                      .y = chart_axis_round(0, room.speed, 5)};
    str_add(r->out, "<h3>Speed against memory headroom</h3>\n");
    chart_begin(&c);
    if ((rc = store_each(r->db, HEADROOM, r->scope->tune, room_mark, &c, err)) < 0)
        return rc;
    if ((rc = store_each(r->db, HEADROOM, r->scope->tune, room_label, &c, err)) < 0)
        return rc;
    chart_end(&c);
    return 0;
}
