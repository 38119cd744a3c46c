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
#include "launcher/cmd/explain_print.h"
#include "profiles/catalog.h"
#include "profiles/speed.h"

/* Holds the plan to explain and, if there is one, the plan to compare it with. The planner is NULL
 * for a plan of a machine that was probed: only the tuning knew its rates, so its prices are taken
 * from the plan. */
struct explanation {
    struct plan plan, against;
    struct planner *planner;
    struct explained one, other;
    struct explain_told told;
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
                       "%s: the plan names no cluster or no stack, and has no work of a probed "
                       "machine, so there is nothing to explain it by: give one that 'reel plan "
                       "-o' or 'reel tune' wrote",
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
static int other_read(const char *text, struct plan *out, struct err *err)
{
    struct err why;
    if (access(text, R_OK) == 0)
        return plan_load(text, out, err);
    if (layout_parse(text, &out->layout, &why) < 0)
        return err_set(err, ERR_USAGE, "--against: there is no file '%s', and as a layout: %s",
                       text, why.text);
    return 0;
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

/* ---- prices of a described cluster ---- */

static struct explain_constant constant_of(const struct planner *p, int id)
{
    if (id < 0)
        return (struct explain_constant){NULL, "", NAN, NAN, NAN};
    const struct constant *k = constants_best(&p->constants, (enum constant_id)id,
                                              &p->cluster.device, &p->stack);
    const struct constant_info *info = &constant_table[id];
    /* the interval comes from the fit, or else from the spread of the prior within the constant's
     * bounds: no share is larger than 1 */
    double v = p->v[id], spread = exp(INTERVAL_SDS * info->sd);
    return k ? (struct explain_constant){info->name, k->source, v, k->lo, k->hi}
             : (struct explain_constant){info->name, "prior", v, fmax(v / spread, info->lo),
                                         fmin(v * spread, info->hi)};
}

static void explained_take(const struct explained *e, struct explain_side *out)
{
    const struct planned *p = &e->planned;
    *out = (struct explain_side){.layout = p->layout, .stage = p->step.stage,
                                 .step_s = p->step.seconds, .lo_s = p->lo_s, .hi_s = p->hi_s,
                                 .mfu = p->mfu, .p_fits = p->p_fits,
                                 .bytes = p->footprint.total, .n_held = WORK_HELD};
    memcpy(out->seconds, p->step.term, sizeof out->seconds);
    memcpy(out->hidden_s, p->step.hidden, sizeof out->hidden_s);
    memcpy(out->work, e->work, sizeof out->work);
    for (int i = 0; i < WORK_HELD; i++)
        out->held[i].name = work_held_names[i], out->held[i].bytes = p->footprint.bytes[i];
}

static int described_explain(struct explanation *x, const char *path, const char *against,
                             struct err *err)
{
    struct explain_told *told = &x->told;
    int rc;
    if ((rc = planner_of(&x->plan, path, &x->planner, err)) < 0)
        return rc;
    if ((rc = planner_explain(x->planner, &x->plan.layout, &x->one, err)) < 0)
        return err_context(err, "%s", path);
    change_tell(x, path);
    fit_tell(x, path);
    const struct planner *p = x->planner;
    told->model = p->model.name, told->ranks = "GPU", told->place = p->cluster.name;
    told->limit_bytes = planner_limit_bytes(p);
    told->constants = p->constants.name;
    told->held_out = &p->constants.held_out, told->device = &p->cluster.device;
    for (int t = 0; t < PRICE_TERMS; t++)
        told->constant[t] = constant_of(p, x->one.constant[t]);
    told->curve[PRICE_ATTENTION] = x->one.attention ? x->one.attention->source : NULL;
    explained_take(&x->one, &told->one);
    if (!against)
        return 0;
    if ((rc = planner_explain(p, &x->against.layout, &x->other, err)) < 0)
        return rc;
    explained_take(&x->other, &told->other);
    return 0;
}

/* ---- prices of a probed machine ---- */

/* Tells whether the plan has the prices of a probed machine, with what they follow from. */
static bool is_probed(const struct plan *p)
{
    return !*p->cluster && p->n_memory > 0 && p->predicted_step_s > 0 && p->predicted_bytes > 0;
}

static struct explain_constant rate_of(const struct plan_term *term)
{
    const struct speed_info *i = speed_table;
    while (i->name && strcmp(i->name, term->rate) != 0)
        i++;
    return *term->rate ? (struct explain_constant){term->rate, i->name ? i->source : "probe",
                                                   term->value, NAN, NAN}
                       : (struct explain_constant){NULL, "", NAN, NAN, NAN};
}

/* Takes a side from a plan. Terms that it does not know take no time. */
static void plan_take(const struct plan *p, struct explain_side *out,
                      struct explain_constant constant[PRICE_TERMS])
{
    *out = (struct explain_side){.layout = p->layout, .stage = p->stage,
                                 .step_s = p->predicted_step_s, .lo_s = NAN, .hi_s = NAN,
                                 .mfu = NAN, .p_fits = NAN, .bytes = (double)p->predicted_bytes,
                                 .n_held = (int)p->n_memory};
    for (int t = 0; t < PRICE_TERMS; t++)
        constant[t] = (struct explain_constant){NULL, "", NAN, NAN, NAN};
    for (int64_t i = 0; i < p->n_terms; i++)
        for (int t = 0; t < PRICE_TERMS; t++) {
            if (strcmp(p->terms[i].name, price_term_names[t]) != 0)
                continue;
            out->seconds[t] = p->terms[i].seconds, out->work[t] = p->terms[i].work;
            constant[t] = rate_of(&p->terms[i]);
        }
    for (int64_t i = 0; i < p->n_memory; i++) {
        out->held[i].name = p->memory[i].name;
        out->held[i].bytes = (double)p->memory[i].bytes;
    }
}

/* Checks that the other plan has a price of the same tuning's question: another machine, model or
 * batch would tell nothing of the layout, and a layout alone has no price. */
static int against_check(const struct plan *a, const struct plan *b, const char *text,
                         struct err *err)
{
    bool same = strcmp(a->device, b->device) == 0 && strcmp(a->model, b->model) == 0 &&
                a->model_hash.hi == b->model_hash.hi && a->model_hash.lo == b->model_hash.lo &&
                memcmp(&a->seq, &b->seq, sizeof a->seq) == 0 && a->gbs == b->gbs &&
                a->dtype == b->dtype;
    if (is_probed(b) && same)
        return 0;
    return err_set(err, ERR_INPUT,
                   "--against '%s': on a probed machine a layout has a price where 'reel tune' "
                   "made one, of the same model, extent, batch and type: give the plan that 'reel "
                   "tune --layout ... -o FILE' writes", text);
}

static int probed_explain(struct explanation *x, const char *against, struct err *err)
{
    struct explain_told *told = &x->told;
    struct explain_constant ignored[PRICE_TERMS];
    int rc;
    told->model = x->plan.model, told->ranks = "rank", told->place = x->plan.device;
    told->limit_bytes = (double)x->plan.limit_bytes;
    told->constants = "the probe's, corrected by trials";
    plan_take(&x->plan, &told->one, told->constant);
    if (!against)
        return 0;
    if ((rc = against_check(&x->plan, &x->against, against, err)) < 0)
        return rc;
    plan_take(&x->against, &told->other, ignored);
    return 0;
}

/* ---- what the trial measured ---- */

static void measured_row(struct store_query *q, void *ctx)
{
    struct explain_told *x = ctx;
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
    x->told.measured_step_s = NAN;
    for (int t = 0; t < PRICE_TERMS; t++)
        x->told.measured_s[t] = NAN;
    if (x->plan.n_evidence == 0 || x->plan.scaled_dp > 0)
        return 0;
    if (x->plan.measured_step_s > 0)
        x->told.measured_step_s = x->plan.measured_step_s;
    cmd_ingest(env);
    if ((rc = store_open(env->db_path, STORE_READ, &db, err)) < 0)
        return rc;
    rc = store_each(db, "SELECT term, measured_s FROM v_term WHERE trial = ?1",
                    x->plan.evidence[0], measured_row, &x->told, err);
    store_close(db);
    return rc;
}

static int explain(const struct cmd_env *env, struct explanation *x, const char *path,
                   const char *against, bool json, struct err *err)
{
    struct str out = STR_INIT;
    int rc;
    if ((rc = plan_load(path, &x->plan, err)) < 0)
        return rc;
    if (against && (rc = other_read(against, &x->against, err)) < 0)
        return rc;
    x->told.has_other = against != NULL;
    x->told.planned_step_s = x->plan.predicted_step_s > 0 ? x->plan.predicted_step_s : NAN;
    x->told.tuned = x->plan.n_evidence > 0;
    if ((rc = measured_read(env, x, err)) < 0)
        return rc;
    rc = is_probed(&x->plan) ? probed_explain(x, against, err)
                             : described_explain(x, path, against, err);
    if (rc < 0)
        return rc;
    (json ? explain_json : explain_text)(&x->told, &out);
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
