#include "launcher/report/report_priv.h"

#include "launcher/report/queries.h"

static void numbers_put(const struct report_numbers *n, struct json_out *o)
{
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
    json_put_num(o, "model_flops", n->model_flops);
    json_put_num(o, "peak_flops", n->peak_flops);
    json_put_text(o, "peak_source", n->peak_source);
    json_put_text(o, "flops_formula", n->formula);
    json_put_text(o, "device", n->device);
    json_put_num(o, "first_loss", n->first_loss);
    json_put_num(o, "last_loss", n->last_loss);
}

static void row_put(struct store_query *q, void *ctx) { store_row_write(q, ctx); }

/* Writes the lists of rows: each is about the run, the tuning or the curation. */
static int lists_put(struct store *db, const struct report_scope *scope, struct json_out *o,
                     struct err *err)
{
    const struct {
        const char *key, *sql, *of;
    } lists[] = {
        {"restarts", sql_restarts, scope->run},
        {"time",
         "SELECT cause, sum(seconds) AS seconds FROM v_time WHERE run = ?1 GROUP BY cause"
         " ORDER BY 2 DESC",
         scope->run},
        {"attempt_list", "SELECT * FROM v_attempt WHERE run = ?1 ORDER BY attempt", scope->run},
        {"trial_list",
         "SELECT * FROM v_trial WHERE tune = ?1 ORDER BY measured_step_s IS NULL, measured_step_s,"
         " predicted_step_s, trial",
         scope->tune},
        {"source_list", sql_sources, scope->curation},
    };
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        json_arr_begin(o, lists[i].key);
        if (*lists[i].of &&
            (rc = store_each(db, lists[i].sql, lists[i].of, row_put, o, err)) < 0)
            return rc;
        json_arr_end(o);
    }
    return 0;
}

int report_json(struct store *db, const struct report_scope *scope, const struct report_numbers *n,
                struct str *out, struct err *err)
{
    struct json_out o;
    int rc;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.report/1");
    json_put_int(&o, "version", 1);
    json_put_text(&o, "run", scope->run);
    json_put_text(&o, "tune", scope->tune);
    json_put_text(&o, "curation", scope->curation);
    numbers_put(n, &o);
    json_put_int(&o, "claimed_attempt", scope->claimed);
    report_planned_json(scope->plans, &o);
    if ((rc = lists_put(db, scope, &o, err)) < 0)
        return rc;
    json_obj_end(&o);
    str_addc(out, '\n');
    return str_check(out, err);
}
