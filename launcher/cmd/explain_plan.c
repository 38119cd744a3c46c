#include "launcher/cmd/explain_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autotune/interval.h"
#include "autotune/planner.h"
#include "base/log.h"
#include "base/num.h"
#include "db/store.h"
#include "profiles/catalog.h"

/* Holds the plan to explain and, if has_other, the layout to compare it with. Both are for the same
 * number of GPUs. */
struct explanation {
    struct plan plan;
    struct planner *planner;
    struct explained one, other;
    bool has_other;
    double measured_s[PRICE_TERMS]; /* s, in the plan's own trial, on CPUs of CPU time;
                                     * NaN: not recorded */
};

/* ---- the plan and the other layout ---- */

/* Checks that the model is still the one for which the plan was made. */
static int model_check_hash(const struct plan *plan, const struct planner *p, const char *path,
                            struct err *err)
{
    struct hash128 now = model_hash(&p->model), then = plan->model_hash;
    if ((!then.hi && !then.lo) || (then.hi == now.hi && then.lo == now.lo))
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: the plan is for another model '%s' than %s describes now (model_hash): "
                   "make it again with 'reel plan -o'",
                   path, plan->model, *plan->model_file ? plan->model_file : "this reel");
}

static int planner_of(const struct plan *plan, const char *path, struct planner **out,
                      struct err *err)
{
    struct plan_ask ask = {.model = *plan->model_file ? plan->model_file : plan->model,
                           .cluster = plan->cluster, .stack = plan->stack, .seq = plan->seq,
                           .gbs = plan->gbs, .dtype = plan->dtype,
                           .encoder_bytes = plan->encoder_bytes, .ema = plan->ema,
                           .residual_wide = plan->residual_wide,
                           .moments_bf16 = plan->moments_bf16,
                           .constants = *plan->constants ? plan->constants : NULL};
    if (!*plan->cluster || !*plan->stack)
        return err_set(err, ERR_INPUT,
                       "%s: the plan names no cluster or no stack, so there is nothing to explain "
                       "it by: give one that 'reel plan -o' wrote",
                       path);
    struct planner *p = planner_new(&ask, err);
    if (!p)
        return err_context(err, "%s", path);
    *out = p; /* the caller frees it, after an error too */
    int rc = model_check_hash(plan, p, path, err);
    if (rc < 0)
        return rc;
    rc = planner_gpus(p, layout_world(&plan->layout), err);
    return rc < 0 ? err_context(err, "%s", path) : 0;
}

/* Reads the other layout: from a plan if the text names a file, else from the text itself. */
static int other_read(const char *text, struct layout *out, struct err *err)
{
    struct plan other;
    struct err why;
    int rc;
    if (access(text, R_OK) == 0) {
        if ((rc = plan_load(text, &other, err)) == 0)
            *out = other.layout;
        return rc;
    }
    if (layout_parse(text, out, &why) < 0)
        return err_set(err, ERR_USAGE, "--against: there is no file '%s', and as a layout: %s",
                       text, why.text);
    return 0;
}

static int other_explain(struct explanation *e, const char *against, struct err *err)
{
    struct layout l;
    int rc = other_read(against, &l, err);
    if (rc < 0)
        return rc;
    e->has_other = true;
    return planner_explain(e->planner, &l, &e->other, err);
}

/* ---- the resource that limits a step ---- */

static int largest_term(const struct explained *e)
{
    int most = 0;
    for (int t = 1; t < PRICE_TERMS; t++)
        if (e->planned.step.term[t] > e->planned.step.term[most])
            most = t;
    return most;
}

static int largest_held(const struct explained *e)
{
    int most = 0;
    for (int i = 1; i < WORK_HELD; i++)
        if (e->planned.footprint.bytes[i] > e->planned.footprint.bytes[most])
            most = i;
    return most;
}

static double rate_of(const struct explained *e, int t)
{
    double s = e->planned.step.term[t] + e->planned.step.hidden[t];
    return s > 0 ? e->work[t] / s : NAN;
}

static double memory_share(const struct explanation *x, const struct explained *e)
{ return e->planned.footprint.total / planner_limit_bytes(x->planner); }

/* Adds "4.55 PFLOP" or "64 ranks". */
static void amount_add(double amount, int t, struct str *out)
{
    char text[32];
    num_format_count(amount, text, sizeof text);
    bool bare = strchr(text, ' ') == NULL;
    size_t n = strlen(price_work_units[t]);
    n -= strcmp(text, "1") == 0 && str_ends(price_work_units[t], "s"); /* 1 stage */
    str_addf(out, "%s%s%.*s", text, bare ? " " : "", (int)n, price_work_units[t]);
}

/* Adds a sentence about the term that takes the largest share of the step's time. */
static void time_because(const struct explained *e, struct str *out)
{
    int t = largest_term(e);
    str_addf(out, "%s takes %.0f %% of the step, at ", price_term_names[t],
             100 * e->planned.step.term[t] / e->planned.step.seconds);
    amount_add(rate_of(e, t), t, out);
    str_add(out, "/s");
}

static void memory_because(const struct explanation *x, const struct explained *e,
                           struct str *out)
{
    int i = largest_held(e);
    char has[32];
    const char *name = work_held_names[i];
    bool several = str_ends(name, "s") && strcmp(name, "process") != 0;
    str_addf(out, "%s take%s %.0f %% of what the fullest GPU holds, which is %.0f %% of %s", name,
             several ? "" : "s",
             100 * e->planned.footprint.bytes[i] / e->planned.footprint.total,
             100 * memory_share(x, e),
             num_format_bytes((int64_t)planner_limit_bytes(x->planner), has, sizeof has));
}

/* Holds the constant of a term with its 90 % interval, which comes from the fit, or else from the
 * spread of its prior within the constant's bounds: no share is larger than 1. */
struct term_constant { const char *name, *source; double value, lo, hi; };

static struct term_constant constant_of(const struct explanation *x, int t)
{
    const struct planner *p = x->planner;
    int id = x->one.constant[t];
    if (id < 0)
        return (struct term_constant){NULL, "", NAN, NAN, NAN};
    const struct constant *k = constants_best(&p->constants, (enum constant_id)id,
                                              &p->cluster.device, &p->stack);
    const struct constant_info *info = &constant_table[id];
    double v = p->v[id], spread = exp(INTERVAL_SDS * info->sd);
    return k ? (struct term_constant){info->name, k->source, v, k->lo, k->hi}
             : (struct term_constant){info->name, "prior", v, fmax(v / spread, info->lo),
                                      fmin(v * spread, info->hi)};
}

/* ---- JSON ---- */

static void term_json(const struct explanation *x, int t, struct json_out *o)
{
    const struct explained *e = &x->one;
    struct term_constant k = constant_of(x, t);
    json_obj_begin(o, NULL);
    json_put_text(o, "name", price_term_names[t]);
    json_put_num(o, "seconds", e->planned.step.term[t]);
    json_put_num(o, "hidden_s", e->planned.step.hidden[t]);
    json_put_num(o, "work", e->work[t]);
    json_put_text(o, "unit", price_work_units[t]);
    json_put_num(o, "rate", rate_of(e, t));
    if (k.name)
        json_put_text(o, "constant", k.name);
    else
        json_put_null(o, "constant");
    json_put_text(o, "source", k.source);
    json_put_num(o, "value", k.value);
    json_put_num(o, "lo", k.lo);
    json_put_num(o, "hi", k.hi);
    json_put_num(o, "measured_s", x->measured_s[t]);
    json_obj_end(o);
}

static void memory_json(const struct explained *e, struct json_out *o)
{
    json_arr_begin(o, "memory");
    for (int i = 0; i < WORK_HELD; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", work_held_names[i]);
        json_put_int(o, "bytes", llround(e->planned.footprint.bytes[i]));
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void binding_json(const struct explanation *x, struct json_out *o)
{
    const struct explained *e = &x->one;
    struct str time = STR_INIT, memory = STR_INIT;
    time_because(e, &time);
    memory_because(x, e, &memory);
    json_arr_begin(o, "binding");
    json_obj_begin(o, NULL);
    json_put_text(o, "what", "time");
    json_put_text(o, "name", price_term_names[largest_term(e)]);
    json_put_num(o, "share_of_step",
                 e->planned.step.term[largest_term(e)] / e->planned.step.seconds);
    json_put_text(o, "because", time.p);
    json_obj_end(o);
    json_obj_begin(o, NULL);
    json_put_text(o, "what", "memory");
    json_put_text(o, "name", work_held_names[largest_held(e)]);
    json_put_num(o, "share_of_bytes",
                 e->planned.footprint.bytes[largest_held(e)] / e->planned.footprint.total);
    json_put_num(o, "bytes_of_limit", memory_share(x, e));
    json_put_text(o, "because", memory.p);
    json_obj_end(o);
    json_arr_end(o);
    str_release(&time);
    str_release(&memory);
}

/* Writes the other layout with its step time and memory. "loses_s" is the number of seconds that it
 * takes more than the plan, in total and for each term. */
static void against_json(const struct explanation *x, struct json_out *o)
{
    const struct planned *a = &x->one.planned, *b = &x->other.planned;
    if (!x->has_other) {
        json_put_null(o, "against");
        return;
    }
    json_obj_begin(o, "against");
    layout_write(&b->layout, o, "layout");
    json_put_num(o, "step_s", b->step.seconds);
    json_put_num(o, "loses_s", b->step.seconds - a->step.seconds);
    json_put_int(o, "bytes", llround(b->footprint.total));
    json_put_num(o, "p_fits", b->p_fits);
    json_arr_begin(o, "terms");
    for (int t = 0; t < PRICE_TERMS; t++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", price_term_names[t]);
        json_put_num(o, "seconds", b->step.term[t]);
        json_put_num(o, "hidden_s", b->step.hidden[t]);
        json_put_num(o, "loses_s", b->step.term[t] - a->step.term[t]);
        json_obj_end(o);
    }
    json_arr_end(o);
    memory_json(&x->other, o);
    json_obj_end(o);
}

static void print_json(const struct explanation *x, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.explanation/1");
    layout_write(&x->one.planned.layout, &o, "layout");
    json_put_num(&o, "step_s", x->one.planned.step.seconds);
    json_arr_begin(&o, "terms");
    for (int t = 0; t < PRICE_TERMS; t++)
        term_json(x, t, &o);
    json_arr_end(&o);
    memory_json(&x->one, &o);
    binding_json(x, &o);
    against_json(x, &o);
    json_put_text(&o, "constants", x->planner->constants.name);
    held_out_write(&x->planner->constants.held_out, &x->planner->cluster.device, &o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

/* ---- text ---- */

static bool shows(const struct explained *e, int t)
{
    const struct price_step *s = &e->planned.step;
    return s->term[t] > 1e-9 * s->seconds || s->hidden[t] > 1e-9 * s->seconds;
}

static void term_text(const struct explanation *x, int t, struct str *out)
{
    const struct explained *e = &x->one;
    struct term_constant k = constant_of(x, t);
    str_addf(out, "  %-12s %10.4g s", price_term_names[t], e->planned.step.term[t]);
    if (e->planned.step.hidden[t] > 0)
        str_addf(out, " and %.4g s hidden", e->planned.step.hidden[t]);
    str_add(out, ": ");
    amount_add(e->work[t], t, out);
    str_add(out, " at ");
    amount_add(rate_of(e, t), t, out);
    str_add(out, "/s");
    if (k.name)
        str_addf(out, "; %s %.4g (%.4g to %.4g, %s)", k.name, k.value, k.lo, k.hi, k.source);
    if (isfinite(x->measured_s[t]))
        str_addf(out, "; measured %.4g s", x->measured_s[t]);
    str_addc(out, '\n');
}

/* Adds the other layout's time and memory, and each term that differs by more than a thousandth of
 * the step. */
static void against_text(const struct explanation *x, struct str *out)
{
    const struct planned *a = &x->one.planned, *b = &x->other.planned;
    double loses = b->step.seconds - a->step.seconds;
    char bytes[32];
    str_add(out, "against ");
    layout_brief(&b->layout, out);
    str_addf(out, ": %.4g s, %.1f %% %s; it holds %s and fits with %.0f %%\n", b->step.seconds,
             100 * fabs(loses) / a->step.seconds, loses < 0 ? "faster" : "slower",
             num_format_bytes((int64_t)b->footprint.total, bytes, sizeof bytes), 100 * b->p_fits);
    for (int t = 0; t < PRICE_TERMS; t++) {
        double d = b->step.term[t] - a->step.term[t];
        if (fabs(d) > 1e-3 * a->step.seconds)
            str_addf(out, "  it %s %.4g s in %s: %.4g in place of %.4g s\n",
                     d > 0 ? "loses" : "gains", fabs(d), price_term_names[t], b->step.term[t],
                     a->step.term[t]);
    }
}

static void print_text(const struct explanation *x, struct str *out)
{
    const struct planned *a = &x->one.planned;
    str_addf(out, "%s on %lld GPU%s of %s: ", x->planner->model.name, (long long)x->planner->gpus,
             x->planner->gpus == 1 ? "" : "s", x->planner->cluster.name);
    layout_brief(&a->layout, out);
    str_addf(out, ": %.4g s a step (%.4g to %.4g), %.1f %% MFU\n", a->step.seconds, a->lo_s,
             a->hi_s, 100 * a->mfu);
    for (int t = 0; t < PRICE_TERMS; t++)
        if (shows(&x->one, t))
            term_text(x, t, out);
    str_add(out, "what binds: ");
    time_because(&x->one, out);
    str_add(out, "; ");
    memory_because(x, &x->one, out);
    str_addf(out, "\nconstants %s: ", x->planner->constants.name);
    held_out_say(&x->planner->constants.held_out, &x->planner->cluster.device, out);
    str_addc(out, '\n');
    if (x->has_other)
        against_text(x, out);
}

/* ---- what the trial measured ---- */

static void measured_row(struct store_query *q, void *ctx)
{
    struct explanation *x = ctx;
    for (int t = 0; t < PRICE_TERMS; t++)
        if (strcmp(store_text(q, 0), price_term_names[t]) == 0)
            x->measured_s[t] = store_num(q, 1);
}

/* Reads what the terms took in the trial that measured the plan's layout. A trial of fewer replicas
 * measured another one. */
static int measured_read(const struct cmd_env *env, struct explanation *x, struct err *err)
{
    struct store *db = NULL;
    int rc;
    for (int t = 0; t < PRICE_TERMS; t++)
        x->measured_s[t] = NAN;
    if (x->plan.n_evidence == 0 || x->plan.scaled_dp > 0)
        return 0;
    cmd_ingest(env);
    if ((rc = store_open(env->db_path, STORE_READ, &db, err)) < 0)
        return rc;
    rc = store_each(db, "SELECT term, measured_s FROM v_term WHERE trial = ?1",
                    x->plan.evidence[0], measured_row, x, err);
    store_close(db);
    return rc;
}

/* ---- what has changed since the plan was made ---- */

static bool differs(double then, double now)
{ return then > 0 && fabs(now - then) > 1e-6 * then; }

/* Adds the plan's bytes and its GPU's limit, as "68.2 GiB of 72.0 GiB". A limit of 0 is not
 * known. */
static void held_add(double bytes, double limit, struct str *out)
{
    char text[32];
    str_add(out, num_format_bytes((int64_t)bytes, text, sizeof text));
    if (limit > 0)
        str_addf(out, " of %s", num_format_bytes((int64_t)limit, text, sizeof text));
}

/* Adds what of the prediction is another now. Measurements have corrected the predictions of a plan
 * that has trials, so nothing is added for one. */
static void changes_add(const struct explanation *x, struct str *out)
{
    const struct plan *p = &x->plan;
    const struct planned *now = &x->one.planned;
    double limit = planner_limit_bytes(x->planner);
    if (p->predicted_at <= 0 || p->predicted_step_s <= 0 || p->n_evidence > 0)
        return;
    if (differs(p->predicted_step_s, now->step.seconds))
        str_addf(out, "%.4g s a step were predicted, and now it is %.4g s", p->predicted_step_s,
                 now->step.seconds);
    if (!differs((double)p->predicted_bytes, now->footprint.total) &&
        !differs((double)p->limit_bytes, limit))
        return;
    str_addf(out, "%sa GPU was predicted to hold ", out->len ? ", and " : "");
    held_add((double)p->predicted_bytes, (double)p->limit_bytes, out);
    str_add(out, ", and now it is ");
    held_add(now->footprint.total, limit, out);
}

/* Adds what can have changed: the inputs that are files, or else reel itself, which the compiled-in
 * ones are part of. The model is not among them, because its hash was checked. */
static void causes_add(const struct plan *p, struct str *out)
{
    const struct { const char *what, *name; } inputs[] = {
        {"constants", p->constants}, {"cluster", p->cluster}, {"stack", p->stack}};
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
        if (catalog_is_path(inputs[i].name))
            str_addf(out, "%sits %s (%s)", out->len ? ", " : "", inputs[i].what, inputs[i].name);
    str_addf(out, "%sreel itself", out->len ? " or " : "");
}

/* Warns if what the plan predicted is not what its inputs predict now. */
static void change_tell(const struct explanation *x, const char *path)
{
    struct str changes = STR_INIT, causes = STR_INIT;
    changes_add(x, &changes);
    causes_add(&x->plan, &causes);
    if (changes.len && causes.len)
        log_msg(LOG_WARN, "%s: %s: what has changed since is %s: 'reel plan -o' makes it anew",
                path, changes.p, causes.p);
    str_release(&changes);
    str_release(&causes);
}

/* Warns if the plan is more likely not to fit than to fit, and says whether that was so when it was
 * made. */
static void fit_tell(const struct explanation *x, const char *path)
{
    double limit = planner_limit_bytes(x->planner), then = (double)x->plan.limit_bytes;
    struct str held = STR_INIT;
    if (x->one.planned.footprint.total <= limit)
        return;
    held_add(x->one.planned.footprint.total, limit, &held);
    if (held.len)
        log_msg(LOG_WARN, "%s: the plan %s: its fullest GPU holds %s (it fits with probability "
                "%.2g)", path,
                then > 0 && (double)x->plan.predicted_bytes <= then ? "no longer fits"
                                                                    : "does not fit",
                held.p, x->one.planned.p_fits);
    str_release(&held);
}

static int explain(const struct cmd_env *env, struct explanation *x, const char *path,
                   const char *against, bool json, struct err *err)
{
    struct str out = STR_INIT;
    int rc;
    if ((rc = plan_load(path, &x->plan, err)) < 0)
        return rc;
    if ((rc = measured_read(env, x, err)) < 0)
        return rc;
    if ((rc = planner_of(&x->plan, path, &x->planner, err)) < 0)
        return rc;
    if ((rc = planner_explain(x->planner, &x->plan.layout, &x->one, err)) < 0)
        return err_context(err, "%s", path);
    change_tell(x, path);
    fit_tell(x, path);
    if (against && (rc = other_explain(x, against, err)) < 0)
        return rc;
    if (json)
        print_json(x, &out);
    else
        print_text(x, &out);
    rc = cmd_print(&out, err);
    str_release(&out);
    return rc;
}

int explain_plan(const struct cmd_env *env, const char *path, const char *against, bool json,
                 struct err *err)
{
    struct explanation *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "out of memory for a plan");
    int rc = explain(env, x, path, against, json, err);
    planner_free(x->planner);
    free(x);
    return rc;
}
