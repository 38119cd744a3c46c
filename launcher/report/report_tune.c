/* report_tune: writes the sections about the tuning's trials, predicted against measured, and about
 * the curation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "launcher/report/chart.h"
#include "launcher/report/queries.h"
#include "launcher/report/report_priv.h"

/* Names the columns of sql_trials. */
enum { T_K, T_PREDICTED, T_MEASURED, T_MFU, T_PEAK, T_STATE, T_CAUSE, T_TRIAL, T_LAYOUT, T_WINNER,
       T_LO, T_HI };

/* Tells whether a key of a layout has its default value. Tables hide such keys. */
static bool key_is_default(const char *item, size_t n)
{
    static const char *const idle[] = {"tp=1", "sp=0",  "cp=1",   "cp_kind=ring",
                                       "pp=1", "vpp=1", "fsdp=0", "recompute_layers=0"};
    for (size_t i = 0; i < ARRAY_LEN(idle); i++)
        if (strlen(idle[i]) == n && strncmp(item, idle[i], n) == 0)
            return true;
    return false;
}

static void layout_brief(struct str *out, const char *layout)
{
    struct str brief = STR_INIT;
    for (const char *p = layout; *p;) {
        size_t n = strcspn(p, ",");
        if (!key_is_default(p, n)) {
            str_add(&brief, brief.len ? ", " : "");
            str_addn(&brief, p, n);
        }
        p += n + (p[n] == ',');
    }
    html_escape(out, brief.len ? brief.p : layout);
    str_release(&brief);
}

/* ---- the chart ---- */

struct extent {
    double hi;  /* s; the longest step, predicted or measured */
    double far; /* s; where the longest interval ends */
    int64_t both, measured;
};

static void extent_row(struct store_query *q, void *ctx)
{
    struct extent *e = ctx;
    double p = store_num(q, T_PREDICTED), m = store_num(q, T_MEASURED);
    e->measured += isfinite(m);
    if (!isfinite(p) || !isfinite(m))
        return;
    e->both++;
    e->hi = fmax(e->hi, fmax(p, m));
    if (isfinite(store_num(q, T_HI)))
        e->far = fmax(e->far, store_num(q, T_HI));
}

static void mark_row(struct store_query *q, void *ctx)
{
    struct chart *c = ctx;
    double p = store_num(q, T_PREDICTED), m = store_num(q, T_MEASURED);
    bool winner = store_int(q, T_WINNER) != 0;
    if (!isfinite(p) || !isfinite(m))
        return;
    struct str data = STR_INIT, title = STR_INIT;
    str_add(&data, "data-trial=\"");
    html_escape(&data, store_text(q, T_TRIAL));
    str_add(&data, "\" data-rows=\"1\"");
    layout_brief(&title, store_text(q, T_LAYOUT));
    str_addf(&title, ": predicted %.4g s, measured %.4g s", p, m);
    chart_mark(c, winner ? CHART_DIAMOND : CHART_RING, p, m, winner ? "trial winner" : "trial",
               data.p, title.p);
    chart_keep_clear(c, p, m);
    str_release(&data);
    str_release(&title);
}

/* Draws the interval of a prediction. One that goes beyond the end of the axis ends there, in an
 * arrow. */
static void interval_row(struct store_query *q, void *ctx)
{
    struct chart *c = ctx;
    double lo = store_num(q, T_LO), end = store_num(q, T_HI), hi = fmin(end, c->x.hi),
           m = store_num(q, T_MEASURED), x = chart_x(c, hi), y = chart_y(c, m);
    if (!isfinite(lo) || !isfinite(end) || !isfinite(m) || lo >= hi)
        return;
    str_addf(c->out,
             "<line class=\"interval\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
             chart_x(c, lo), y, x, y);
    if (end > c->x.hi)
        str_addf(c->out, "<path class=\"cut\" d=\"M%.1f %.1fl9 4.5l-9 4.5z\"><title>to %.4g s"
                 "</title></path>\n", x, y - 4.5, end);
}

static void label_row(struct store_query *q, void *ctx)
{
    char text[48];
    if (!isfinite(store_num(q, T_PREDICTED)) || !isfinite(store_num(q, T_MEASURED)))
        return;
    snprintf(text, sizeof text, store_int(q, T_WINNER) ? "%lld winner" : "%lld",
             (long long)store_int(q, T_K));
    chart_label(ctx, store_num(q, T_PREDICTED), store_num(q, T_MEASURED), text);
}

/* The axis of predictions holds all intervals, as long as it is no more than LONGEST times as long
 * as that of measurements: an early interval may be many times as wide as all steps. */
#define LONGEST 2.0

static int chart_draw(struct report *r, const struct extent *e, struct err *err)
{
    double x_hi = fmin(fmax(e->hi, e->far), LONGEST * e->hi);
    struct chart c = {.out = r->out,
                      .x_title = "predicted step, s",
                      .y_title = "measured step, s",
                      .label = "measured against predicted step time of the trials",
                      .y_scale = 1,
                      .width = 480,
                      .height = 440,
                      .x = chart_axis_round(0, x_hi, 6),
                      .y = chart_axis_round(0, e->hi, 6)};
    double equal = fmin(c.x.hi, c.y.hi);
    chart_begin(&c);
    str_addf(r->out, "<line class=\"ideal\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
             chart_x(&c, 0), chart_y(&c, 0), chart_x(&c, equal), chart_y(&c, equal));
    int rc;
    if ((rc = store_each(r->db, sql_trials, r->scope->tune, interval_row, &c, err)) < 0)
        return rc;
    if ((rc = store_each(r->db, sql_trials, r->scope->tune, mark_row, &c, err)) < 0)
        return rc;
    if ((rc = store_each(r->db, sql_trials, r->scope->tune, label_row, &c, err)) < 0)
        return rc;
    chart_label(&c, 0.35 * equal, 0.35 * equal, "as predicted");
    chart_end(&c);
    return 0;
}

/* ---- the table ---- */

static void table_row(struct store_query *q, void *ctx)
{
    struct str *out = ctx;
    double p = store_num(q, T_PREDICTED), m = store_num(q, T_MEASURED);
    bool winner = store_int(q, T_WINNER) != 0;
    str_addf(out, "<tr class=\"trial-row%s\"><td class=\"n\">%lld</td><td>", winner ? " best" : "",
             (long long)store_int(q, T_K));
    layout_brief(out, store_text(q, T_LAYOUT));
    str_add(out, winner ? " &#9670; winner</td>" : "</td>");
    report_cell_num(out, p, "%.4g");
    report_cell_num(out, m, "%.4g");
    report_cell_num(out, 100 * (p / m - 1), "%+.1f");
    report_cell_num(out, 100 * store_num(q, T_MFU), "%.1f");
    report_cell_num(out, store_num(q, T_PEAK) / 1048576, "%.0f");
    str_add(out, "<td>");
    html_escape(out, store_text(q, T_STATE));
    if (*store_text(q, T_CAUSE)) {
        str_add(out, ": ");
        html_escape(out, store_text(q, T_CAUSE));
    }
    str_add(out, "</td></tr>\n");
}

/* ---- what ran on the GPUs ---- */

/* Names the columns of sql_trial_classes. */
enum { R_K, R_STEP, R_HFU, R_HIDDEN, R_DROPPED, R_CLASS, R_SECONDS };
struct recorded { struct str *out; int64_t k, dropped; };

/* Writes the row of one class of a trial's steps. A trial's first row has the trial's own numbers
 * too. */
static void recorded_row(struct store_query *q, void *ctx)
{
    struct recorded *r = ctx;
    bool first = store_int(q, R_K) != r->k;
    double step_s = store_num(q, R_STEP), seconds = store_num(q, R_SECONDS);
    if (r->k == 0)
        str_add(r->out, "<h3>What ran on the GPUs</h3>\n<table class=\"recorded\"><tr>"
                        "<th class=\"n\">#</th><th class=\"n\">recorded s</th>"
                        "<th class=\"n\">HFU %</th><th class=\"n\">hidden comm s</th>"
                        "<th>class</th><th class=\"n\">s</th><th class=\"n\">%</th></tr>\n");
    r->k = store_int(q, R_K);
    r->dropped += first ? store_int(q, R_DROPPED) : 0;
    str_add(r->out, "<tr class=\"recorded-row\">");
    report_cell_num(r->out, first ? (double)r->k : NAN, "%.0f");
    report_cell_num(r->out, first ? step_s : NAN, "%.4g");
    report_cell_num(r->out, first ? 100 * store_num(q, R_HFU) : NAN, "%.1f");
    report_cell_num(r->out, first ? store_num(q, R_HIDDEN) : NAN, "%.4g");
    report_cell_text(r->out, store_text(q, R_CLASS));
    report_cell_num(r->out, seconds, "%.4g");
    report_cell_num(r->out, 100 * seconds / step_s, "%.1f");
    str_add(r->out, "</tr>\n");
}

/* Writes a table of where the time of steps went, for the trials whose steps were recorded. */
static int recorded_table(struct report *report, struct err *err)
{
    struct recorded r = {.out = report->out};
    int rc;
    if ((rc = store_each(report->db, sql_trial_classes, report->scope->tune, recorded_row, &r,
                         err)) < 0)
        return rc;
    if (r.k > 0)
        str_add(report->out,
                "</table>\n<p class=\"why\">Means over ranks of two steps after the measured ones. "
                "Communication is the time in which nothing is computed beside it; hidden "
                "communication has a column of its own. HFU counts recomputation too.</p>\n");
    if (r.dropped > 0)
        str_addf(report->out, "<p class=\"why\">%lld records found no room: the shares are too "
                 "small.</p>\n", (long long)r.dropped);
    return 0;
}

static void reason_row(struct store_query *q, void *ctx)
{
    struct str *out = ctx;
    str_add(out, "<p class=\"why\">The search stopped: ");
    html_escape(out, store_text(q, 0));
    if (store_int(q, 1) > 0)
        str_addf(out, "; %lld of %lld layouts whose intervals meet the best's were measured less "
                 "often than was asked", (long long)store_int(q, 1), (long long)store_int(q, 2));
    str_add(out, "</p>\n");
}

/* Draws the trials that have a predicted and a measured time, and says how many lack one. */
static int trials_chart(struct report *r, struct err *err)
{
    struct extent e = {0};
    int rc;
    if ((rc = store_each(r->db, sql_trials, r->scope->tune, extent_row, &e, err)) < 0)
        return rc;
    if (e.both && (rc = chart_draw(r, &e, err)) < 0)
        return rc;
    if (!e.both)
        str_add(r->out, "<p>No trial has both a prediction and a measurement.</p>\n");
    if (e.measured < r->n->trials)
        str_addf(r->out,
                 "<p class=\"why\">%lld of %lld trials were not measured and stand only in the "
                 "table.</p>\n",
                 (long long)(r->n->trials - e.measured), (long long)r->n->trials);
    return 0;
}

int report_trials(struct report *r, struct err *err)
{
    const char *tune = r->scope->tune;
    int rc;
    str_add(r->out, "<section><h2>Layouts tried: predicted against measured</h2>\n");
    if (r->n->trials == 0) {
        str_add(r->out, "<p>No trial is recorded: 'reel tune' measures layouts.</p></section>\n");
        return 0;
    }
    str_add(r->out, "<p class=\"why\">Tuning ");
    html_escape(r->out, tune);
    str_add(r->out, ". Each prediction was stored before its measurement; error is predicted over "
                    "measured, less one. A line is where nine of ten measurements were expected; "
                    "an arrow at its end says that it goes on. Numbers are the table's.</p>\n");
    if ((rc = trials_chart(r, err)) < 0)
        return rc;
    str_add(
        r->out,
        "<table class=\"trials\"><tr><th class=\"n\">#</th><th>layout</th>"
        "<th class=\"n\">predicted s</th><th class=\"n\">measured s</th>"
        "<th class=\"n\">error %</th><th class=\"n\">MFU %</th><th class=\"n\">peak MiB</th>"
        "<th>state</th></tr>\n");
    if ((rc = store_each(r->db, sql_trials, tune, table_row, r->out, err)) < 0)
        return rc;
    str_add(r->out, "</table>\n");
    if ((rc = report_terms(r, err)) < 0)
        return rc;
    if ((rc = report_headroom(r, err)) < 0)
        return rc;
    if ((rc = recorded_table(r, err)) < 0)
        return rc;
    if ((rc = store_each(r->db, sql_tune_end, tune, reason_row, r->out, err)) < 0)
        return rc;
    str_add(r->out, "</section>\n");
    return 0;
}

/* ---- curation ---- */

static void total_row(struct store_query *q, void *ctx)
{
    struct str *out = ctx;
    char bytes[32], seconds[32];
    str_addf(out, "<p>%lld clip%s in %lld shard%s, %s, made in %s.</p>\n",
             (long long)store_int(q, 0), store_int(q, 0) == 1 ? "" : "s",
             (long long)store_int(q, 1), store_int(q, 1) == 1 ? "" : "s",
             num_format_bytes(store_int(q, 2), bytes, sizeof bytes),
             num_format_seconds(store_num(q, 3), seconds, sizeof seconds));
}

static void source_row(struct store_query *q, void *ctx)
{
    struct str *out = ctx;
    str_add(out, "<tr class=\"source-row\">");
    report_cell_text(out, store_text(q, 0));
    for (int i = 1; i <= 4; i++)
        report_cell_num(out, store_num(q, i), "%.0f");
    report_cell_text(out, store_text(q, 5));
    str_add(out, "</tr>\n");
}

int report_curation(struct report *r, struct err *err)
{
    static const char total[] =
        "SELECT json_extract(json, '$.clips'), json_extract(json, '$.shards'),"
        " json_extract(json, '$.bytes'), json_extract(json, '$.seconds') FROM event WHERE run = ?1"
        " AND kind = 'curate_ended' ORDER BY wall DESC, seq DESC LIMIT 1";
    const char *curation = r->scope->curation;
    int rc;
    if (!*curation)
        return 0;
    str_add(r->out, "<section><h2>Data</h2>\n<p class=\"why\">Made by curation ");
    html_escape(r->out, curation);
    str_add(r->out, ".</p>\n");
    if ((rc = store_each(r->db, total, curation, total_row, r->out, err)) < 0)
        return rc;
    str_add(r->out, "<table class=\"sources\"><tr><th>source</th><th class=\"n\">frames</th>"
                    "<th class=\"n\">shots</th><th class=\"n\">clips</th>"
                    "<th class=\"n\">rejected</th><th>reason</th></tr>\n");
    if ((rc = store_each(r->db, sql_sources, curation, source_row, r->out, err)) < 0)
        return rc;
    str_add(r->out, "</table></section>\n");
    return 0;
}
