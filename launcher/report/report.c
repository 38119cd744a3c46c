#include "launcher/report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "launcher/report/chart.h"
#include "launcher/report/queries.h"
#include "launcher/report/report_plan.h"
#include "launcher/report/report_priv.h"

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1c1c1e;--soft:#5f6368;--line:#e2e3e6;--rule:#9a9ca1;"
    "--paper:#fff;--mark:#2458a6;--again:#b3501a}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#ececee;--soft:#a9abb0;--line:#34353a;"
    "--rule:#7b7d83;--paper:#17181a;--mark:#7fb0ff;--again:#ff9d5c}}\n"
    "@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--line:#ccc;--rule:#888;"
    "--paper:#fff;--mark:#2458a6;--again:#b3501a}body{margin:0!important;max-width:none!important}"
    "section{break-inside:avoid}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2.5em auto;padding:0 20px;"
    "color:var(--ink);background:var(--paper)}\n"
    "h1,.sub{overflow-wrap:anywhere}h1{font-size:1.7em;line-height:1.2;margin:0}"
    "h2{font-size:1.15em;margin:2.4em 0 .4em}"
    "p{margin:.3em 0 .8em}.sub,.why{color:var(--soft)}.why{font-size:.87em}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(155px,1fr));gap:10px;"
    "margin:1.2em 0 .8em}\n"
    ".facts div{border:1px solid var(--line);border-radius:6px;padding:8px 12px}"
    ".facts b{display:block;font-size:1.4em;line-height:1.3;font-weight:600}\n"
    ".facts span{color:var(--soft);font-size:.82em;line-height:1.35;display:block}\n"
    "svg{width:100%;height:auto;display:block}text{font:12px system-ui,sans-serif;"
    "fill:var(--soft)}text.title{font-weight:600;fill:var(--ink)}\n"
    "text.note{font-weight:600;fill:var(--ink)}.grid{stroke:var(--line)}.axis{stroke:var(--rule)}"
    ".event{stroke:var(--ink);stroke-dasharray:4 3}\n"
    ".step{fill:var(--mark)}.line{fill:none;stroke:var(--mark);stroke-opacity:.4}"
    ".replay{fill:var(--paper);fill-opacity:.01;stroke:var(--again);stroke-width:1.6}\n"
    ".trial,.room{fill:var(--paper);stroke:var(--mark);stroke-width:1.6}.winner{fill:var(--mark)}"
    ".ideal{stroke:var(--rule);stroke-dasharray:2 4}.interval{stroke:var(--mark);"
    "stroke-opacity:.45}.cut{fill:var(--mark);fill-opacity:.6}"
    ".term{fill:var(--mark);stroke:var(--paper)}.measured{stroke:var(--ink);stroke-width:3}"
    ".within{fill:var(--ink)}.between{fill:none;stroke:var(--ink);stroke-width:1.2}\n"
    ".bar,.span{stroke:var(--mark);stroke-width:.6}.span{stroke:none;shape-rendering:crispEdges}"
    ".hatch{stroke:var(--mark);stroke-width:1.5;fill:none}.dots{fill:var(--mark)}.frame{fill:none;"
    "stroke:var(--rule)}\n"
    ".c-train{fill:var(--mark)}.c-replay{fill:url(#h-replay)}.c-save{fill:url(#h-save)}"
    ".c-load{fill:url(#h-load)}.c-start{fill:url(#h-start)}.c-down{fill:url(#h-down)}"
    ".c-queue,.c-other,.c-suspended{fill:none}\n"
    "table{border-collapse:collapse;width:100%;font-size:.87em;font-variant-numeric:tabular-nums}"
    "th{text-align:left;color:var(--soft);font-weight:600}\n"
    "td,th{padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "td.n,th.n{text-align:right;white-space:nowrap}tr.best td{font-weight:600}\n"
    ".wide{overflow-x:auto}@media screen and (max-width:760px){body{padding:0 12px}"
    "table{display:block;overflow-x:auto}.wide svg{min-width:520px}td,th{padding-right:9px}}\n"
    "</style>\n";

/* ---- queries ---- */

void report_copy(char *to, size_t size, struct store_query *q, int column)
{
    snprintf(to, size, "%s", store_text(q, column));
}

/* ---- the run, tuning and curation of a report ---- */

struct match {
    char id[LIMIT_NAME_BYTES];
    int exact, n;
};

static void match_row(struct store_query *q, void *ctx)
{
    struct match *m = ctx;
    bool exact = store_int(q, 1) != 0;
    if (m->exact && !exact)
        return;
    m->n = exact && !m->exact ? 1 : m->n + 1;
    m->exact = exact;
    report_copy(m->id, sizeof m->id, q, 0);
}

/* Finds the one id that `text` names. The SQL selects candidates, and for each whether `text` is
 * its whole id or name. */
static int match_find(struct store *db, const char *sql, const char *what, const char *list,
                      const char *text,
                      char out[LIMIT_NAME_BYTES], struct err *err)
{
    struct match m = {.n = 0};
    int rc = store_each(db, sql, text, match_row, &m, err);
    if (rc < 0)
        return rc;
    if (m.n == 0)
        return err_set(err, ERR_NOT_FOUND,
                       "%s holds no %s '%s'%s%s%s", store_path(db), what, text,
                       *list ? ": 'reel db query \"select " : "", list,
                       *list ? "\"' lists what it holds" : "");
    if (m.n > 1)
        return err_set(err, ERR_INPUT, "%s '%s' fits %d of them in %s: give more of the id", what,
                       text, m.n, store_path(db));
    memcpy(out, m.id, sizeof m.id);
    return 0;
}

static void first_row(struct store_query *q, void *ctx)
{
    report_copy(ctx, LIMIT_NAME_BYTES, q, 0);
}

static int run_find(struct store *db, const char *run, struct report_scope *s, struct err *err)
{
    static const char sql[] =
        "SELECT run, run = ?1 OR name = ?1 FROM run WHERE run = ?1 OR name = ?1"
        " OR (length(?1) >= 4 AND substr(run, 1, length(?1)) = ?1)";
    return run ? match_find(db, sql, "run", "run, name from v_run", run, s->run, err) : 0;
}

/* Selects the tuning or curation that an event of this kind began, by its id or the beginning of
 * it. */
#define BEGUN(kind)                                                                                \
    "SELECT run, run = ?1 FROM event WHERE kind = '" kind "'"                                      \
    " AND substr(run, 1, length(?1)) = ?1 GROUP BY run"

/* Finds the tuning that `tune` names; without a name, the newest of the run's model that measured
 * the run's layout, or else the newest of the model. */
static int tune_find(struct store *db, const char *tune, struct report_scope *s, struct err *err)
{
    if (tune)
        return match_find(db, BEGUN("tune_started"), "tuning", "distinct tune from v_trial", tune,
                          s->tune, err);
    return *s->run ? store_each(db, sql_run_tune, s->run, first_row, s->tune, err) : 0;
}

/* Finds the curation that `curation` names; without a name, the one that made the run's dataset. */
static int curation_find(struct store *db, const char *curation, struct report_scope *s,
                         struct err *err)
{
    if (curation)
        return match_find(db, BEGUN("curate_started"), "curation", "", curation, s->curation, err);
    return *s->run ? store_each(db, sql_run_curation, s->run, first_row, s->curation, err) : 0;
}

int report_scope_find(struct store *db, const char *run, const char *tune, const char *curation,
                      struct report_scope *out, struct err *err)
{
    struct report_scope s = {.run = ""};
    int rc;
    if ((rc = run_find(db, run, &s, err)) < 0)
        return rc;
    if ((rc = tune_find(db, tune, &s, err)) < 0)
        return rc;
    if ((rc = curation_find(db, curation, &s, err)) < 0)
        return rc;
    *out = s;
    return 0;
}

/* ---- numbers ---- */

static void run_row(struct store_query *q, void *ctx)
{
    struct report_numbers *n = ctx;
    report_copy(n->name, sizeof n->name, q, 0);
    report_copy(n->model, sizeof n->model, q, 1);
}

static void start_row(struct store_query *q, void *ctx)
{
    struct report_numbers *n = ctx;
    if (*store_text(q, 0)) /* otherwise the model from run_created stays */
        report_copy(n->model, sizeof n->model, q, 0);
    report_copy(n->layout, sizeof n->layout, q, 1);
    report_copy(n->device, sizeof n->device, q, 2);
    report_copy(n->peak_source, sizeof n->peak_source, q, 3);
    report_copy(n->formula, sizeof n->formula, q, 4);
    n->peak_flops = store_num(q, 5);
    report_copy(n->no_mfu, sizeof n->no_mfu, q, 6);
}

static void step_row(struct store_query *q, void *ctx)
{
    struct report_numbers *n = ctx;
    n->steps = store_int(q, 0);
    n->executions = store_int(q, 1);
    n->replayed = store_int(q, 2);
    n->train_s = store_num(q, 3);
    n->mfu = store_num(q, 4);
    n->mfu_time_s = store_num(q, 5);
    n->first_loss = store_num(q, 6);
    n->last_loss = store_num(q, 7);
}

static void flops_row(struct store_query *q, void *ctx)
{
    ((struct report_numbers *)ctx)->model_flops = store_num(q, 0);
}

static void wall_row(struct store_query *q, void *ctx)
{
    struct report_numbers *n = ctx;
    n->wall_s = store_num(q, 0);
    n->attempts = store_int(q, 1);
}

static void restart_row(struct store_query *q, void *ctx)
{
    struct report_numbers *n = ctx;
    size_t used = strlen(n->restarts);
    snprintf(n->restarts + used, sizeof n->restarts - used, "%s%lld %.60s", used ? ", " : "",
             (long long)store_int(q, 1), store_text(q, 0));
}

static void trials_row(struct store_query *q, void *ctx)
{
    struct report_numbers *n = ctx;
    n->trials = store_int(q, 0);
    if (!*n->model)
        report_copy(n->model, sizeof n->model, q, 1);
}

/* Lists the queries about a run, each with the function that takes a row of its result. */
static const struct {
    const char *sql;
    store_row_fn *row;
} run_asks[] = {
    {"SELECT name, model FROM run WHERE run = ?1", run_row},
    {"SELECT t.model, t.layout, t.device, t.peak_source, t.flops_formula, t.peak_flops,"
     " json_extract(e.json, '$.no_mfu') FROM train_start t JOIN event e ON e.id = t.event"
     " WHERE t.run = ?1 AND NOT t.trial ORDER BY t.attempt DESC, t.seq DESC LIMIT 1",
     start_row},
    {sql_step_sums, step_row},
    {"SELECT sum(flops) FROM (SELECT coalesce(tokens * flops_per_token, model_flops) AS flops,"
     " again, row_number() OVER (PARTITION BY step ORDER BY attempt, seq, writer) AS k"
     " FROM step WHERE run = ?1 AND mfu IS NOT NULL) WHERE k = 1 AND NOT coalesce(again, 0)",
     flops_row},
    {"SELECT (SELECT sum(seconds) FROM v_time WHERE run = ?1), (SELECT count(*) FROM v_attempt"
     " WHERE run = ?1)",
     wall_row},
    {sql_restarts, restart_row},
};

int report_numbers_read(struct store *db, const struct report_scope *scope,
                        struct report_numbers *out, struct err *err)
{
    static const char trials[] = "SELECT count(*), max(model) FROM v_trial WHERE tune = ?1";
    *out = (struct report_numbers){.mfu = NAN, .peak_flops = NAN,
                                   .model_flops = NAN, .mfu_time_s = NAN,
                                   .first_loss = NAN, .last_loss = NAN};
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(run_asks) && *scope->run; i++)
        if ((rc = store_each(db, run_asks[i].sql, scope->run, run_asks[i].row, out, err)) < 0)
            return rc;
    if (*scope->tune && (rc = store_each(db, trials, scope->tune, trials_row, out, err)) < 0)
        return rc;
    out->goodput = out->wall_s > 0 && isfinite(out->train_s) ? out->train_s / out->wall_s : NAN;
    return 0;
}

/* ---- the page ---- */

void report_cell_num(struct str *out, double value, const char *format)
{
    str_add(out, "<td class=\"n\">");
    if (isfinite(value))
        str_addf(out, format, value);
    else
        str_add(out, "–");
    str_add(out, "</td>");
}

void report_cell_text(struct str *out, const char *text)
{
    str_add(out, "<td>");
    html_escape(out, text);
    str_add(out, "</td>");
}

static void fact(struct str *out, const char *value, const char *label)
{
    str_add(out, "<div><b>");
    html_escape(out, value);
    str_add(out, "</b><span>");
    html_escape(out, label);
    str_add(out, "</span></div>\n");
}

static void facts(const struct report_numbers *n, struct str *out)
{
    char a[64], b[300];
    str_add(out, "<div class=\"facts\">\n");
    snprintf(a, sizeof a, "%lld", (long long)n->steps);
    snprintf(b, sizeof b, n->replayed ? "steps, %lld executed again" : "steps, none executed again",
             (long long)n->replayed);
    fact(out, a, b);
    fact(out, n->wall_s > 0 ? num_format_seconds(n->wall_s, a, sizeof a) : "–",
         "from submission to the last event");
    snprintf(a, sizeof a, isfinite(n->goodput) ? "%.1f %%" : "–", 100 * n->goodput);
    fact(out, a, "goodput: time in first executions of steps, over all time");
    snprintf(a, sizeof a, isfinite(n->mfu) ? "%.1f %%" : "no MFU", 100 * n->mfu);
    fact(out, a,
         isfinite(n->mfu) ? "mean MFU of first executions"
         : *n->no_mfu     ? n->no_mfu
                          : "no peak is known of this device");
    snprintf(a, sizeof a, "%lld", (long long)(n->attempts > 0 ? n->attempts - 1 : 0));
    snprintf(b, sizeof b, "restart%s%s%s", n->attempts == 2 ? "" : "s", *n->restarts ? ": " : "",
             n->restarts);
    fact(out, a, b);
    str_add(out, "</div>\n");
}

/* Writes the formula of MFU with the run's numbers, so that a reader can check it. */
static void mfu_sentence(const struct report_numbers *n, struct str *out)
{
    char time[32], flops[32], peak[32];
    if (!isfinite(n->mfu))
        return;
    str_addf(out,
             "<p class=\"why\">MFU = model FLOPs / (step time × dense peak of all ranks) = %sFLOP "
             "/ (%s × %sFLOP/s) = %.1f %%. Model FLOPs by ",
             num_format_count(n->model_flops, flops, sizeof flops),
             num_format_seconds(n->mfu_time_s, time, sizeof time),
             num_format_count(n->peak_flops, peak, sizeof peak), 100 * n->mfu);
    html_escape(out, *n->formula ? n->formula : "an unnamed formula");
    str_add(out, ", recomputation not counted. Peak: ");
    html_escape(out, n->device);
    str_add(out, ", ");
    html_escape(out, *n->peak_source ? n->peak_source : "source not recorded");
    str_add(out, ".</p>\n");
}

static void head(const struct report_scope *scope, const struct report_numbers *n, struct str *out)
{
    const char *id = *scope->run ? scope->run : scope->tune,
               *name = *n->name ? n->name : *id ? id : scope->plans->model;
    str_add(out, "<!doctype html>\n"
                 "<html lang=\"en\"><head><meta charset=\"utf-8\">"
                 "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                 "<title>");
    html_escape(out, name);
    str_addf(out, " – reel report</title>\n%s</head><body>\n<h1>", style);
    html_escape(out, name);
    str_add(out, "</h1>\n<p class=\"sub\">");
    html_escape(out, *id ? n->model : scope->plans->cluster);
    str_add(out, *scope->run ? " · run " : *id ? " · tuning " : "");
    html_escape(out, id);
    if (*n->layout) {
        str_add(out, "<br>");
        html_escape(out, n->layout);
    }
    str_add(out, "</p>\n");
}

/* Writes the sections about the run. */
static int run_html(struct report *r, struct err *err)
{
    int rc;
    facts(r->n, r->out);
    mfu_sentence(r->n, r->out);
    if ((rc = report_steps(r, err)) < 0)
        return rc;
    if ((rc = report_validation(r, err)) < 0)
        return rc;
    if ((rc = report_time(r, err)) < 0)
        return rc;
    return report_attempts(r, err);
}

int report_html(struct store *db, const struct report_scope *scope, const struct report_numbers *n,
                struct str *out, struct err *err)
{
    struct report r = {db, scope, n, out};
    int rc;
    head(scope, n, out);
    if (*scope->run && (rc = run_html(&r, err)) < 0)
        return rc;
    if ((rc = report_planned(&r, err)) < 0)
        return rc;
    if ((*scope->run || *scope->tune) && (rc = report_trials(&r, err)) < 0)
        return rc;
    if ((rc = report_curation(&r, err)) < 0)
        return rc;
    str_add(out, "</body></html>\n");
    return str_check(out, err);
}
