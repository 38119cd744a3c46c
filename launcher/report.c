#include "launcher/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "launcher/chart.h"

static const char style[] =
    "<style>\n:root{color-scheme:light dark}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2.5em auto;padding:0 20px;color:#1c1c1e;background:#fff}\n"
    "h1{font-size:1.6em;margin:0}h2{font-size:1.1em;margin:2.2em 0 .3em}p.sub{color:#666;margin:.2em 0 1.6em}\n"
    "svg{width:100%;height:auto;display:block}text{font:12px system-ui,sans-serif;fill:#555}.title{font-weight:600;fill:#333}\n"
    ".grid{stroke:#e6e6e8}.axis{stroke:#999}.event{stroke:#333;stroke-dasharray:4 3}.note{font-weight:600;fill:#222}\n"
    ".step{fill:#2458a6}.replay{fill:none;stroke:#b3501a;stroke-width:1.6}.trial{fill:#fff;stroke:#2458a6;stroke-width:1.6}\n"
    ".winner{fill:#2458a6}.ideal{stroke:#888;stroke-dasharray:2 4}.line{fill:none;stroke:#2458a6;stroke-opacity:.35}\n"
    ".facts{display:grid;grid-template-columns:repeat(4,1fr);gap:10px;margin:1em 0}\n"
    ".facts div{border:1px solid #ddd;border-radius:6px;padding:8px 12px}.facts b{display:block;font-size:1.35em;font-weight:600}\n"
    ".facts span{color:#666;font-size:.85em}\n"
    "table{border-collapse:collapse;width:100%;font-size:.87em;font-variant-numeric:tabular-nums}th{text-align:left;color:#666;font-weight:600}\n"
    "td,th{padding:3px 8px 3px 0;border-bottom:1px solid #e6e6e8;vertical-align:top}td.n,th.n{text-align:right}\n"
    ".bar{fill:#2458a6}.bar.lost{fill:none;stroke:#2458a6;stroke-width:1.4}\n"
    "@media(prefers-color-scheme:dark){body{background:#161618;color:#eee}text{fill:#bbb}.title,.note{fill:#eee}.grid{stroke:#333}.event{stroke:#ddd}"
    ".facts div,td,th{border-color:#333}.trial{fill:#161618}p.sub,.facts span,th{color:#aaa}}\n"
    "@media print{body{margin:0}}\n</style>\n";

/* ---- numbers ---- */

static int ask_run(struct store *db, const char *sql, const char *run, struct store_query **q, struct err *err)
{
    int rc = store_ask(db, sql, q, err);
    if (rc == 0)
        store_bind_text(*q, 1, run);
    return rc;
}

static void copy_text(char *to, size_t size, struct store_query *q, int i)
{
    snprintf(to, size, "%s", store_text(q, i));
}

static int start_facts(struct store *db, struct report_numbers *n, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db, "SELECT model, layout, device, peak_source, flops_formula, peak_flops FROM train_start WHERE run = ?1 AND NOT trial"
                         " ORDER BY attempt DESC, seq DESC LIMIT 1", n->run, &q, err);
    if (rc == 0 && (rc = store_next(q, err)) > 0) {
        copy_text(n->model, sizeof n->model, q, 0);
        copy_text(n->layout, sizeof n->layout, q, 1);
        copy_text(n->device, sizeof n->device, q, 2);
        copy_text(n->peak_source, sizeof n->peak_source, q, 3);
        copy_text(n->formula, sizeof n->formula, q, 4);
        n->peak_flops = store_num(q, 5);
        rc = 0;
    }
    store_end(q);
    return rc;
}

static int step_facts(struct store *db, struct report_numbers *n, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db,
                     "SELECT count(DISTINCT step), count(*), sum(replayed), (SELECT count(*) FROM v_attempt a WHERE a.run = ?1),"
                     " sum(CASE WHEN replayed = 0 THEN step_s END),"
                     " sum(CASE WHEN replayed = 0 THEN mfu * step_s END) / sum(CASE WHEN replayed = 0 AND mfu IS NOT NULL THEN step_s END),"
                     " (SELECT sum(seconds) FROM v_time t WHERE t.run = ?1),"
                     " (SELECT loss FROM v_step x WHERE x.run = ?1 ORDER BY step, attempt LIMIT 1),"
                     " (SELECT loss FROM v_step x WHERE x.run = ?1 ORDER BY step DESC, attempt DESC LIMIT 1),"
                     " (SELECT count(*) FROM v_trial) FROM v_step WHERE run = ?1", n->run, &q, err);
    if (rc == 0 && (rc = store_next(q, err)) > 0) {
        n->steps = store_int(q, 0), n->executions = store_int(q, 1), n->replayed = store_int(q, 2), n->attempts = store_int(q, 3);
        n->train_s = store_num(q, 4), n->mfu = store_num(q, 5), n->wall_s = store_num(q, 6);
        n->first_loss = store_num(q, 7), n->last_loss = store_num(q, 8), n->trials = store_int(q, 9);
        n->goodput = n->train_s / n->wall_s;
        rc = 0;
    }
    store_end(q);
    return rc;
}

int report_numbers_read(struct store *db, const char *run, struct report_numbers *out, struct err *err)
{
    struct store_query *q = NULL;
    *out = (struct report_numbers){.mfu = NAN, .peak_flops = NAN};
    int rc = ask_run(db, "SELECT run, name, model FROM run WHERE run = ?1", run, &q, err);
    if (rc == 0)
        rc = store_next(q, err);
    if (rc > 0) {
        copy_text(out->run, sizeof out->run, q, 0);
        copy_text(out->name, sizeof out->name, q, 1);
        copy_text(out->model, sizeof out->model, q, 2);
    }
    store_end(q);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "%s holds nothing of run %s: run 'reel db ingest' first", store_path(db), run);
    return rc < 0 ? rc : (rc = start_facts(db, out, err)) < 0 ? rc : step_facts(db, out, err);
}

void report_numbers_write(const struct report_numbers *n, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", "reel.report/1");
    json_put_text(o, "run", n->run);
    json_put_text(o, "name", n->name);
    json_put_text(o, "model", n->model);
    json_put_text(o, "layout", n->layout);
    json_put_int(o, "steps", n->steps);
    json_put_int(o, "executions", n->executions);
    json_put_int(o, "replayed", n->replayed);
    json_put_int(o, "attempts", n->attempts);
    json_put_int(o, "trials", n->trials);
    json_put_num(o, "wall_s", n->wall_s);
    json_put_num(o, "train_s", n->train_s);
    json_put_num(o, "goodput", n->goodput);
    json_put_num(o, "mfu", n->mfu);
    json_put_text(o, "flops_formula", n->formula);
    json_put_num(o, "peak_flops", n->peak_flops);
    json_put_text(o, "peak_source", n->peak_source);
    json_put_text(o, "device", n->device);
    json_put_num(o, "first_loss", n->first_loss);
    json_put_num(o, "last_loss", n->last_loss);
    json_obj_end(o);
}

/* ---- parts of the page ---- */

static void fact(struct str *out, const char *value, const char *label)
{
    str_add(out, "<div><b>");
    html_escape(out, value);
    str_add(out, "</b><span>");
    html_escape(out, label);
    str_add(out, "</span></div>\n");
}

static void headline(const struct report_numbers *n, struct str *out)
{
    char a[64], b[160];
    str_add(out, "<h1>");
    html_escape(out, *n->name ? n->name : n->run);
    str_add(out, "</h1>\n<p class=\"sub\">");
    html_escape(out, n->model);
    str_addf(out, " · run %.8s · ", n->run);
    html_escape(out, n->layout);
    str_add(out, "</p>\n<div class=\"facts\">\n");
    snprintf(a, sizeof a, "%lld", (long long)n->steps);
    snprintf(b, sizeof b, "steps, %lld of them executed again", (long long)n->replayed);
    fact(out, a, b);
    snprintf(b, sizeof b, "from submission to the last event, %lld attempt%s", (long long)n->attempts, n->attempts == 1 ? "" : "s");
    fact(out, num_format_seconds(n->wall_s, a, sizeof a), b);
    snprintf(a, sizeof a, isfinite(n->goodput) ? "%.1f %%" : "-", 100 * n->goodput);
    fact(out, a, "goodput: time in steps done for the first time");
    snprintf(a, sizeof a, isfinite(n->mfu) ? "%.1f %%" : "no MFU", 100 * n->mfu);
    if (isfinite(n->mfu))
        snprintf(b, sizeof b, "MFU by %s, peak %.4g GFLOP/s: %.90s", n->formula, n->peak_flops / 1e9, n->peak_source);
    else
        snprintf(b, sizeof b, "no peak is known of this device");
    fact(out, a, b);
    str_add(out, "</div>\n");
}

/* Interruptions over a chart of steps: where each attempt but the last ended, and why. */
static int interruptions(struct store *db, const char *run, struct chart *c, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db, "SELECT attempt, cause, last_step FROM v_attempt WHERE run = ?1 AND last_step IS NOT NULL AND coalesce(cause, '') <> 'done'"
                         " ORDER BY attempt", run, &q, err);
    for (int row = 0; rc == 0 && (rc = store_next(q, err)) > 0; row++, rc = 0) {
        char label[96], data[64];
        snprintf(label, sizeof label, "attempt %lld: %.40s", (long long)store_int(q, 0), *store_text(q, 1) ? store_text(q, 1) : "not ended");
        snprintf(data, sizeof data, "data-attempt=\"%lld\"", (long long)store_int(q, 0));
        chart_event(c, (double)store_int(q, 2) + 0.5, label, row, data);
    }
    store_end(q);
    return rc;
}

struct range { double lo, hi; int64_t n; };

static int range_of(struct store *db, const char *run, const char *column, struct range *out, struct err *err)
{
    char sql[160];
    struct store_query *q = NULL;
    snprintf(sql, sizeof sql, "SELECT min(%s), max(%s), count(%s) FROM v_step WHERE run = ?1", column, column, column);
    int rc = ask_run(db, sql, run, &q, err);
    if (rc == 0 && (rc = store_next(q, err)) > 0) {
        *out = (struct range){store_num(q, 0), store_num(q, 1), store_int(q, 2)};
        rc = 0;
    }
    store_end(q);
    return rc;
}

static int step_marks(struct store *db, const char *run, const char *column, struct chart *c, struct err *err)
{
    char sql[192];
    struct store_query *q = NULL;
    snprintf(sql, sizeof sql, "SELECT step, %s, replayed, attempt FROM v_step WHERE run = ?1 AND %s IS NOT NULL ORDER BY attempt, step", column, column);
    int rc = ask_run(db, sql, run, &q, err);
    while (rc == 0 && (rc = store_next(q, err)) > 0) {
        char data[96], title[128];
        bool again = store_int(q, 2) != 0;
        snprintf(data, sizeof data, "data-step=\"%lld\" data-attempt=\"%lld\"", (long long)store_int(q, 0), (long long)store_int(q, 3));
        snprintf(title, sizeof title, "step %lld, attempt %lld: %.6g%s", (long long)store_int(q, 0), (long long)store_int(q, 3), store_num(q, 1),
                 again ? " (executed again)" : "");
        chart_mark(c, again ? CHART_RING : CHART_DOT, (double)store_int(q, 0), store_num(q, 1), again ? "replay" : "step", data, title);
        rc = 0;
    }
    store_end(q);
    return rc;
}

static int step_chart(struct store *db, const struct report_numbers *n, const char *column, const char *title, double scale, bool from_zero,
                      const char *nothing, struct str *out, struct err *err)
{
    struct range steps, values;
    int rc = range_of(db, n->run, "step", &steps, err);
    if (rc == 0)
        rc = range_of(db, n->run, column, &values, err);
    if (rc < 0)
        return rc;
    if (values.n == 0) {
        str_addf(out, "<p>%s</p>\n", nothing);
        return 0;
    }
    struct chart c = {.out = out, .x_title = "optimizer step", .y_title = title, .y_scale = scale,
                      .x = chart_axis_round(steps.lo, steps.hi, 8), .y = chart_axis_round(from_zero ? 0 : values.lo, values.hi, 5)};
    chart_begin(&c);
    rc = interruptions(db, n->run, &c, err);
    if (rc == 0)
        rc = step_marks(db, n->run, column, &c, err);
    chart_end(&c);
    return rc;
}

/* The tune that gave this run's layout, or the newest one: its trials. */
#define TRIALS_OF "FROM v_trial WHERE tune = (SELECT tune FROM v_trial ORDER BY (layout = ?1) DESC, predicted_at DESC LIMIT 1)"

static int trial_marks(struct store *db, const struct report_numbers *n, struct chart *c, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db, "SELECT trial, predicted_step_s, measured_step_s, layout = ?1, layout " TRIALS_OF
                         " AND predicted_step_s IS NOT NULL AND measured_step_s IS NOT NULL", n->layout, &q, err);
    while (rc == 0 && (rc = store_next(q, err)) > 0) {
        bool winner = store_int(q, 3) != 0;
        struct str data = STR_INIT, title = STR_INIT;
        str_add(&data, "data-trial=\"");
        html_escape(&data, store_text(q, 0));
        str_addc(&data, '"');
        html_escape(&title, store_text(q, 4));
        str_addf(&title, ": predicted %.4g s, measured %.4g s", store_num(q, 1), store_num(q, 2));
        chart_mark(c, winner ? CHART_DIAMOND : CHART_RING, store_num(q, 1), store_num(q, 2), winner ? "trial winner" : "trial", data.p, title.p);
        str_release(&data);
        str_release(&title);
        rc = 0;
    }
    store_end(q);
    return rc;
}

static int trial_chart(struct store *db, const struct report_numbers *n, struct str *out, struct err *err)
{
    struct store_query *q = NULL;
    double hi = NAN;
    int rc = ask_run(db, "SELECT max(max(predicted_step_s, measured_step_s)) " TRIALS_OF " AND measured_step_s IS NOT NULL", n->layout, &q, err);
    if (rc == 0 && (rc = store_next(q, err)) > 0)
        hi = store_num(q, 0);
    store_end(q);
    if (rc < 0 || !isfinite(hi)) {
        str_add(out, "<p>No trial was measured.</p>\n");
        return rc < 0 ? rc : 0;
    }
    struct chart c = {.out = out, .x_title = "predicted step, s", .y_title = "measured step, s (diamond: the layout of this run; dotted: as predicted)",
                      .y_scale = 1, .x = chart_axis_round(0, hi, 8), .y = chart_axis_round(0, hi, 5)};
    chart_begin(&c);
    double end = fmin(c.x.hi, c.y.hi);
    str_addf(out, "<line class=\"ideal\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", chart_x(&c, 0), chart_y(&c, 0), chart_x(&c, end), chart_y(&c, end));
    rc = trial_marks(db, n, &c, err);
    chart_end(&c);
    return rc;
}

static void cell_num(struct str *out, double v, const char *format)
{
    str_add(out, "<td class=\"n\">");
    isfinite(v) ? str_addf(out, format, v) : str_add(out, "-");
    str_add(out, "</td>");
}

static void cell_text(struct str *out, const char *text)
{
    str_add(out, "<td>");
    html_escape(out, text);
    str_add(out, "</td>");
}

static int trial_table(struct store *db, const struct report_numbers *n, struct str *out, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db, "SELECT dp, zero, mbs, recompute, predicted_step_s, measured_step_s, mfu, peak_bytes, state, cause, layout = ?1 " TRIALS_OF
                         " ORDER BY measured_step_s IS NULL, measured_step_s, predicted_step_s", n->layout, &q, err);
    str_add(out, "<table class=\"trials\"><tr><th>layout</th><th class=\"n\">predicted s</th><th class=\"n\">measured s</th><th class=\"n\">error %</th>"
                 "<th class=\"n\">MFU %</th><th class=\"n\">peak MiB</th><th>state</th><th></th></tr>\n");
    while (rc == 0 && (rc = store_next(q, err)) > 0) {
        double p = store_num(q, 4), m = store_num(q, 5);
        str_addf(out, "<tr class=\"trial-row\"><td>%sdp %lld, zero %lld, mbs %lld, recompute ", store_int(q, 10) ? "&#9670; " : "", (long long)store_int(q, 0),
                 (long long)store_int(q, 1), (long long)store_int(q, 2));
        html_escape(out, store_text(q, 3));
        str_add(out, "</td>");
        cell_num(out, p, "%.4g");
        cell_num(out, m, "%.4g");
        cell_num(out, 100 * (p / m - 1), "%+.1f");
        cell_num(out, 100 * store_num(q, 6), "%.1f");
        cell_num(out, store_num(q, 7) / 1048576, "%.0f");
        cell_text(out, store_text(q, 8));
        cell_text(out, store_text(q, 9));
        str_add(out, "</tr>\n");
        rc = 0;
    }
    str_add(out, "</table>\n");
    store_end(q);
    return rc;
}

/* One bar a cause, longest first; time that trained is filled, all other is outlined. */
static int time_bars(struct store *db, const struct report_numbers *n, struct str *out, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db, "SELECT cause, sum(seconds) s FROM v_time WHERE run = ?1 GROUP BY cause ORDER BY s DESC", n->run, &q, err);
    int row = 0;
    struct str bars = STR_INIT;
    while (rc == 0 && (rc = store_next(q, err)) > 0) {
        double s = store_num(q, 1), share = n->wall_s > 0 ? s / n->wall_s : 0;
        char text[32];
        bool train = strcmp(store_text(q, 0), "train") == 0;
        str_addf(&bars, "<text x=\"110\" y=\"%d\" text-anchor=\"end\" class=\"title\">", 20 + 26 * row);
        html_escape(&bars, store_text(q, 0));
        str_addf(&bars, "</text><rect class=\"bar%s\" data-seconds=\"%.6f\" x=\"120\" y=\"%d\" width=\"%.1f\" height=\"18\"/><text x=\"%.1f\" y=\"%d\">%s · %.1f %%</text>\n",
                 train ? "" : " lost", s, 6 + 26 * row, fmax(1, 560 * share), 126 + fmax(1, 560 * share), 20 + 26 * row,
                 num_format_seconds(s, text, sizeof text), 100 * share);
        row++;
        rc = 0;
    }
    store_end(q);
    if (rc == 0 && row)
        str_addf(out, "<svg viewBox=\"0 0 860 %d\" role=\"img\">\n%s</svg>\n", 10 + 26 * row, bars.p);
    else if (rc == 0)
        str_add(out, "<p>No time was recorded yet.</p>\n");
    str_release(&bars);
    return rc;
}

static int attempt_table(struct store *db, const struct report_numbers *n, struct str *out, struct err *err)
{
    struct store_query *q = NULL;
    int rc = ask_run(db, "SELECT attempt, scheduler, job_id, started_at, ended_at, cause, first_step, last_step FROM v_attempt WHERE run = ?1 ORDER BY attempt",
                     n->run, &q, err);
    str_add(out, "<table class=\"attempts\"><tr><th>attempt</th><th>scheduler</th><th>job</th><th>started (UTC)</th><th class=\"n\">lasted</th><th>ended by</th>"
                 "<th class=\"n\">first step</th><th class=\"n\">last step</th></tr>\n");
    while (rc == 0 && (rc = store_next(q, err)) > 0) {
        char when[32] = "-", lasted[32] = "-";
        if (isfinite(store_num(q, 3)))
            clock_format_utc(store_num(q, 3), when, sizeof when);
        if (isfinite(store_num(q, 4)))
            num_format_seconds(store_num(q, 4) - store_num(q, 3), lasted, sizeof lasted);
        str_addf(out, "<tr class=\"attempt-row\"><td>%lld</td>", (long long)store_int(q, 0));
        cell_text(out, store_text(q, 1));
        cell_text(out, store_text(q, 2));
        cell_text(out, when);
        str_addf(out, "<td class=\"n\">%s</td>", lasted);
        cell_text(out, *store_text(q, 5) ? store_text(q, 5) : "-");
        cell_num(out, store_num(q, 6), "%.0f");
        cell_num(out, store_num(q, 7), "%.0f");
        str_add(out, "</tr>\n");
        rc = 0;
    }
    str_add(out, "</table>\n");
    store_end(q);
    return rc;
}

int report_html(struct store *db, const struct report_numbers *n, struct str *out, struct err *err)
{
    str_add(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    html_escape(out, *n->name ? n->name : n->run);
    str_addf(out, " - reel report</title>\n%s</head><body>\n", style);
    headline(n, out);
    str_add(out, "<h2>Model-FLOPs utilisation over steps</h2>\n");
    int rc = step_chart(db, n, "mfu", "MFU, % of dense peak", 100, true, "No MFU: the peak of this device is not known.", out, err);
    str_add(out, "<h2>Loss over steps</h2>\n");
    if (rc == 0)
        rc = step_chart(db, n, "loss", "loss (dots: first execution; rings: executed again)", 1, false, "No step has been recorded yet.", out, err);
    str_add(out, "<h2>Layouts tried: predicted against measured</h2>\n");
    if (rc == 0)
        rc = trial_chart(db, n, out, err);
    if (rc == 0 && n->trials)
        rc = trial_table(db, n, out, err);
    str_add(out, "<h2>Where the time went</h2>\n");
    if (rc == 0)
        rc = time_bars(db, n, out, err);
    str_add(out, "<h2>Attempts</h2>\n");
    if (rc == 0)
        rc = attempt_table(db, n, out, err);
    str_add(out, "</body></html>\n");
    return rc < 0 ? rc : str_check(out, err);
}
