/* report_validation: writes the section about validation: losses over steps, and by noise level. */
#include <math.h>
#include <stdio.h>

#include "base/num.h"
#include "launcher/report/chart.h"
#include "launcher/report/report_priv.h"

struct extent { double first, last, lo, hi; int64_t n; };

static void extent_row(struct store_query *q, void *ctx)
{
    *(struct extent *)ctx = (struct extent){store_num(q, 0), store_num(q, 1), store_num(q, 2),
                                            store_num(q, 3), store_int(q, 4)};
}

static void mark_row(struct store_query *q, void *ctx)
{
    char data[96], title[128];
    long long step = store_int(q, 0);
    bool average = store_int(q, 2) != 0;
    const char *of = average ? "average" : "model";
    snprintf(data, sizeof data, "data-step=\"%lld\" data-weights=\"%s\"", step, of);
    snprintf(title, sizeof title, "after %lld steps, %s: %.6g", step,
             average ? "average of the weights" : "the weights", store_num(q, 1));
    chart_mark(ctx, average ? CHART_RING : CHART_DIAMOND, (double)step, store_num(q, 1),
               average ? "replay" : "step", data, title);
}

/* Selects the mean loss over the noise levels by step, weights and attempt. A replayed step has the
 * same losses in each attempt. */
#define MEANS \
    "(SELECT step, weights, avg(loss) AS loss, attempt FROM v_validation WHERE run = ?1" \
    " GROUP BY step, weights, attempt)"

static int means_draw(struct report *r, const struct extent *e, struct err *err)
{
    struct chart c = {.out = r->out,
                      .x_title = "optimizer steps done",
                      .y_title = "loss",
                      .label = "validation loss over optimizer steps",
                      .y_scale = 1,
                      .x = chart_axis_count(e->first, e->last, 8),
                      .y = chart_axis_round(e->lo, e->hi, 5)};
    chart_begin(&c);
    int rc = store_each(r->db,
                        "SELECT step, max(loss), weights = 'average' FROM " MEANS
                        " WHERE loss IS NOT NULL GROUP BY step, weights ORDER BY 3, 1",
                        r->scope->run, mark_row, &c, err);
    chart_end(&c);
    return rc;
}

static void cell_row(struct store_query *q, void *ctx)
{
    struct report *r = ctx;
    if (store_int(q, 1) == 0)
        str_addf(r->out, "%s<tr><td>%s</td>", store_int(q, 3) ? "</tr>\n" : "",
                 store_int(q, 0) ? "average" : "weights");
    report_cell_num(r->out, store_num(q, 2), "%.4g");
}

static void head_row(struct store_query *q, void *ctx)
{
    struct report *r = ctx;
    str_addf(r->out, "<th class=\"n\">%lld</th>", (long long)store_int(q, 0) + 1);
}

/* Writes the losses of the newest validation by noise level. */
static int bins_draw(struct report *r, struct err *err)
{
    static const char bins[] = "SELECT DISTINCT bin FROM v_validation WHERE run = ?1 ORDER BY 1";
    static const char newest[] =
        "SELECT weights = 'average', bin, max(loss), weights = 'average' AND bin = 0"
        " FROM v_validation WHERE run = ?1"
        " AND step = (SELECT max(step) FROM v_validation WHERE run = ?1)"
        " GROUP BY weights, bin ORDER BY 1, 2";
    int rc;
    str_add(r->out, "<table class=\"bins\"><tr><th>part of the noise levels</th>");
    if ((rc = store_each(r->db, bins, r->scope->run, head_row, r, err)) < 0)
        return rc;
    str_add(r->out, "</tr>\n");
    if ((rc = store_each(r->db, newest, r->scope->run, cell_row, r, err)) < 0)
        return rc;
    str_add(r->out, "</tr></table>\n");
    return 0;
}

int report_validation(struct report *r, struct err *err)
{
    struct extent e = {0};
    int rc = store_each(
        r->db, "SELECT min(step), max(step), min(loss), max(loss), count(loss) FROM " MEANS,
        r->scope->run, extent_row, &e, err);
    if (rc < 0 || e.n == 0)
        return rc;
    str_add(r->out, "<section><h2>Validation</h2>\n"
                    "<p class=\"why\">Loss on fixed draws. Diamonds: the weights. Rings: their "
                    "average. Below, after the last step measured, by noise level: equally "
                    "probable parts of the run's distribution, rising noise.</p>\n");
    if ((rc = means_draw(r, &e, err)) < 0)
        return rc;
    if ((rc = bins_draw(r, err)) < 0)
        return rc;
    str_add(r->out, "</section>\n");
    return 0;
}
