/* report_planned: writes the section about the planned layouts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/report/chart.h"
#include "launcher/report/report_plan.h"
#include "launcher/report/report_priv.h"

static void measured_row(struct store_query *q, void *ctx) { *(double *)ctx = store_num(q, 0); }

/* Finds the median time of the run's steps, in their first executions. *out is NaN if there is no
 * run, or if each of its rows covers several steps. */
static int run_step(const struct report *r, double *out, struct err *err)
{
    static const char sql[] =
        "SELECT step_s FROM (SELECT step_s, row_number() OVER (ORDER BY step_s) AS k, count(*)"
        " OVER () AS n FROM v_step WHERE run = ?1 AND NOT replayed AND steps = 1 AND step_s > 0)"
        " WHERE k = (n + 1) / 2";
    *out = NAN;
    return *r->scope->run ? store_each(r->db, sql, r->scope->run, measured_row, out, err) : 0;
}

/* Returns the measured step time of a layout: that of its plan, or else the run's if the run
 * trained this layout; NaN: none. */
static double measured_of(const struct report *r, const struct report_planned *p, double run_s)
{
    struct layout trained;
    if (isfinite(p->measured_s))
        return p->measured_s;
    return layout_parse(r->n->layout, &trained, NULL) == 0 && layout_equal(&trained, &p->layout)
               ? run_s : NAN;
}

static double free_of(const struct report_plans *plans, const struct report_planned *p)
{
    return plans->limit_bytes > 0 && p->bytes > 0
               ? 1 - (double)p->bytes / (double)plans->limit_bytes : NAN;
}

/* Tells whether any layout has an interval of expected step times. A run's own plan has none. */
static bool has_interval(const struct report_plans *plans)
{
    for (size_t i = 0; i < plans->n; i++)
        if (isfinite(plans->items[i].lo_s) && isfinite(plans->items[i].hi_s))
            return true;
    return false;
}

/* Lists the columns whose values may be missing in a file. */
enum column { COLUMN_MFU, COLUMN_BYTES, COLUMN_FREE, COLUMN_FITS, COLUMNS };
static const struct { const char *head, *format; } columns[COLUMNS] = {
    {"MFU %", "%.1f"}, {"GiB", "%.3g"}, {"free %", "%.0f"}, {"fits %", "%.0f"}};

/* Returns a layout's value in a column; NaN: unknown. */
static double column_of(const struct report_plans *plans, const struct report_planned *p,
                        enum column c)
{
    switch (c) {
    case COLUMN_MFU:
        return 100 * p->mfu;
    case COLUMN_BYTES:
        return p->bytes > 0 ? (double)p->bytes / 0x1p30 : NAN;
    case COLUMN_FREE:
        return 100 * free_of(plans, p);
    default:
        return 100 * p->p_fits;
    }
}

/* Tells whether any layout has a value in a column. */
static bool has_column(const struct report_plans *plans, enum column c)
{
    for (size_t i = 0; i < plans->n; i++)
        if (isfinite(column_of(plans, &plans->items[i], c)))
            return true;
    return false;
}

static void head_write(const struct report_plans *plans, struct str *out)
{
    str_add(out, "<section><h2>Layouts planned</h2>\n<p class=\"why\">Predicted for ");
    html_escape(out, plans->model);
    str_addf(out, " on %lld rank%s of ", (long long)plans->gpus, plans->gpus == 1 ? "" : "s");
    html_escape(out, *plans->cluster ? plans->cluster : "an unnamed machine");
    if (*plans->constants) {
        str_add(out, " by the constants ");
        html_escape(out, plans->constants);
    }
    str_addf(out, ".%s</p>\n",
             has_interval(plans) ? " Nine of ten steps are expected between the two times." : "");
}

static void row_write(const struct report *r, size_t i, double measured, bool with_measured)
{
    const struct report_plans *plans = r->scope->plans;
    const struct report_planned *p = &plans->items[i];
    struct str *out = r->out;
    struct str layout = STR_INIT;
    layout_brief(&p->layout, &layout);
    str_addf(out, "<tr class=\"plan-row%s\"><td class=\"n\">%zu</td>", i ? "" : " best", i + 1);
    report_cell_text(out, layout.p);
    str_release(&layout);
    report_cell_num(out, p->step_s, "%.4g");
    if (has_interval(plans)) {
        report_cell_num(out, p->lo_s, "%.4g");
        report_cell_num(out, p->hi_s, "%.4g");
    }
    if (with_measured) {
        report_cell_num(out, measured, "%.4g");
        report_cell_num(out, 100 * (p->step_s / measured - 1), "%+.1f");
    }
    for (int c = 0; c < COLUMNS; c++)
        if (has_column(plans, (enum column)c))
            report_cell_num(out, column_of(plans, p, (enum column)c), columns[c].format);
    str_add(out, "</tr>\n");
}

static void table_write(const struct report *r, double run_s)
{
    const struct report_plans *plans = r->scope->plans;
    bool measured = false;
    for (size_t i = 0; i < plans->n; i++)
        measured = measured || isfinite(measured_of(r, &plans->items[i], run_s));
    str_addf(r->out, "<table class=\"plans\"><tr><th class=\"n\">#</th><th>layout</th>"
                     "<th class=\"n\">predicted s</th>%s%s",
             has_interval(plans) ? "<th class=\"n\">from</th><th class=\"n\">to</th>" : "",
             measured ? "<th class=\"n\">measured s</th><th class=\"n\">error %</th>" : "");
    for (int c = 0; c < COLUMNS; c++)
        if (has_column(plans, (enum column)c))
            str_addf(r->out, "<th class=\"n\">%s</th>", columns[c].head);
    str_add(r->out, "</tr>\n");
    for (size_t i = 0; i < plans->n; i++)
        row_write(r, i, measured_of(r, &plans->items[i], run_s), measured);
    str_add(r->out, "</table>\n");
}

static void bar_fill(const struct report_planned *p, int64_t k, double measured,
                     struct report_bar *out)
{
    *out = (struct report_bar){.k = k, .predicted_s = p->step_s, .lo_s = p->lo_s, .hi_s = p->hi_s,
                               .measured_s = measured};
    for (int64_t t = 0; t < p->n_terms && out->n_terms < REPORT_TERMS; t++) {
        struct report_term *to = &out->terms[out->n_terms++];
        snprintf(to->name, sizeof to->name, "%s", p->terms[t].name);
        to->seconds = p->terms[t].seconds;
        to->recorded_s = to->priced_s = NAN;
    }
}

static int charts_write(const struct report *r, double run_s, struct err *err)
{
    const struct report_plans *plans = r->scope->plans;
    struct report_bar *bars = calloc(REPORT_BARS, sizeof *bars);
    struct report_room *rooms = calloc(REPORT_ROOMS, sizeof *rooms);
    int n_bars = 0, n_rooms = 0, rc = 0;
    if (!bars || !rooms) {
        rc = err_set(err, ERR_NOMEM, "out of memory for the planned layouts");
        goto out;
    }
    for (size_t i = 0; i < plans->n; i++) {
        const struct report_planned *p = &plans->items[i];
        double free = free_of(plans, p);
        if (n_bars < REPORT_BARS)
            bar_fill(p, (int64_t)i + 1, measured_of(r, p, run_s), &bars[n_bars++]);
        if (n_rooms < REPORT_ROOMS && isfinite(free))
            rooms[n_rooms++] = (struct report_room){(int64_t)i + 1, free, p->tokens_per_s_gpu,
                                                    "planned"};
    }
    report_bars(r->out, "are", bars, n_bars);
    report_rooms(r->out, "tokens/s of a GPU", rooms, n_rooms);
out:
    free(rooms);
    free(bars);
    return rc;
}

int report_planned(struct report *r, struct err *err)
{
    const struct report_plans *plans = r->scope->plans;
    double run_s;
    int rc;
    if (!plans || plans->n == 0)
        return 0;
    if ((rc = run_step(r, &run_s, err)) < 0)
        return rc;
    head_write(plans, r->out);
    table_write(r, run_s);
    if ((rc = charts_write(r, run_s, err)) < 0)
        return rc;
    str_add(r->out, "</section>\n");
    return 0;
}

void report_planned_json(const struct report_plans *plans, struct json_out *o)
{
    json_arr_begin(o, "plan_list");
    for (size_t i = 0; plans && i < plans->n; i++) {
        const struct report_planned *p = &plans->items[i];
        json_obj_begin(o, NULL);
        layout_write(&p->layout, o, "layout");
        json_put_num(o, "step_s", p->step_s);
        json_put_num(o, "lo_s", p->lo_s);
        json_put_num(o, "hi_s", p->hi_s);
        json_put_num(o, "measured_s", p->measured_s);
        json_put_num(o, "tokens_per_s_gpu", p->tokens_per_s_gpu);
        json_put_num(o, "mfu", p->mfu);
        json_put_int(o, "bytes", p->bytes);
        json_put_num(o, "p_fits", p->p_fits);
        json_obj_end(o);
    }
    json_arr_end(o);
}
