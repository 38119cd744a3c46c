/* This file shows the result of `reel plan`: a ranking, the terms and memory of the best layout,
 * and how many layouts each rule excluded. */
#include <math.h>
#include <stdio.h>

#include "autotune/interval.h"
#include "base/num.h"
#include "launcher/cmd/plan.h"

enum { BAR = 30 };

/* Returns the time, in s, that a training on the tokens of --tokens takes. */
static double train_seconds(const struct plan_answer *a, const struct planned *p)
{
    const struct plan_ask *ask = &a->planner->ask;
    double step_tokens = (double)(ask->gbs * seq_tokens(ask->seq));
    return ceil(a->tokens / step_tokens) * p->step.seconds;
}

static double gpu_seconds(const struct planned *p)
{ return p->step.seconds * (double)layout_world(&p->layout); }

static double gpu_hours(const struct plan_answer *a, const struct planned *p)
{ return train_seconds(a, p) * (double)layout_world(&p->layout) / 3600; }

/* ---- text ---- */

static void bar_add(double share, struct str *out)
{
    int n = (int)lround(fmin(1, fmax(0, share)) * BAR);
    for (int i = 0; i < BAR; i++)
        str_addc(out, i < n ? '#' : '.');
}

static void bytes_add(double bytes, struct str *out)
{
    char text[32];
    str_addf(out, "%10s", num_format_bytes((int64_t)bytes, text, sizeof text));
}

/* Says how much slower the given layout is than the best that fits, and on another number of GPUs
 * how many more GPU-hours it takes. A layout that does not fit may be faster. */
static void slower_add(const struct planned *given, const struct planned *best, struct str *out)
{
    int64_t gpus = layout_world(&given->layout);
    double slower = given->step.seconds / best->step.seconds - 1,
           more = gpu_seconds(given) / gpu_seconds(best) - 1;
    bool other = gpus != layout_world(&best->layout);
    str_add(out, "  (--layout");
    if (other)
        str_addf(out, ", on %lld GPU%s", (long long)gpus, gpus == 1 ? "" : "s");
    str_addf(out, ": %.1f %% %s than the best", 100 * fabs(slower),
             slower < 0 ? "faster" : "slower");
    if (other)
        str_addf(out, ", %.1f %% %s GPU-hours", 100 * fabs(more), more < 0 ? "fewer" : "more");
    str_addc(out, ')');
}

static void item_text(const struct plan_answer *a, size_t i, struct str *out)
{
    const struct planned *p = &a->items[i];
    double limit = planner_limit_bytes(a->planner);
    bool ranked = i < a->found->n;
    str_addf(out, ranked ? "%3zu " : "  - ", i + 1);
    str_addf(out, "%9.4g s (%.4g to %.4g) %5.1f %% MFU ", p->step.seconds, p->lo_s, p->hi_s,
             100 * p->mfu);
    bytes_add(p->footprint.total, out);
    str_addf(out, " [");
    bar_add(p->footprint.total / limit, out);
    str_addf(out, "] fits %3.0f %%  ", 100 * p->p_fits);
    layout_brief(&p->layout, out);
    if (a->given && a->given_at == i)
        slower_add(p, a->items, out);
    if (ranked && a->found->items[i].twins > 0)
        str_addf(out, "  (and %lld like it by other orders)",
                 (long long)a->found->items[i].twins);
    str_addc(out, '\n');
    if (a->tokens > 0)
        str_addf(out, "    %.4g days, %.4g GPU-hours\n", train_seconds(a, p) / 86400,
                 gpu_hours(a, p));
}

static void terms_text(const struct plan_answer *a, const struct planned *p, struct str *out)
{
    str_addf(out, "where the %s's %.4g s go:\n", p == a->items ? "best" : "given layout",
             p->step.seconds);
    for (int t = 0; t < PRICE_TERMS; t++) {
        if (!(p->step.term[t] > 1e-9 * p->step.seconds || p->step.hidden[t] > 0))
            continue;
        str_addf(out, "  %-12s %10.4g s %5.1f %%", price_term_names[t], p->step.term[t],
                 100 * p->step.term[t] / p->step.seconds);
        if (p->step.hidden[t] > 0)
            str_addf(out, ", %.4g s more hidden", p->step.hidden[t]);
        str_addc(out, '\n');
    }
}

static void memory_text(const struct plan_answer *a, const struct planned *p, struct str *out)
{
    double limit = planner_limit_bytes(a->planner);
    str_addf(out, "what its fullest GPU holds (stage %lld):\n", (long long)p->footprint.stage);
    for (int i = 0; i < WORK_HELD; i++) {
        if (!(p->footprint.bytes[i] > 0))
            continue;
        str_addf(out, "  %-14s", work_held_names[i]);
        bytes_add(p->footprint.bytes[i], out);
        str_add(out, " [");
        bar_add(p->footprint.bytes[i] / limit, out);
        str_add(out, "]\n");
    }
}

static void excluded_text(const struct stream_found *f, struct str *out)
{
    for (int i = 0; i < layout_rule_count(); i++)
        if (f->excluded[i])
            str_addf(out, "  %lld excluded by %s: %s\n", (long long)f->excluded[i],
                     layout_rule_name(i), layout_rule_sentence(i));
}

/* Adds how wide the errors of predictions are: of the best's time wider than of what was fitted,
 * where priors stand for constants of this device or stack. */
static void widths_text(const struct plan_answer *a, struct str *out)
{
    const struct planner *p = a->planner;
    const struct planned *best = a->items;
    double fitted = p->v[CONSTANT_TIME_SD],
           sd = log(best->hi_s / best->step.seconds) / INTERVAL_SDS;
    str_addf(out, "constants %s: ln(measured/predicted) is %.0f %% wide for times",
             p->constants.name, 100 * sd);
    if (sd > 1.01 * fitted)
        str_addf(out, " (%.0f %% where none is a prior)", 100 * fitted);
    str_addf(out, ", %.0f %% for bytes\n", 100 * p->v[CONSTANT_MEMORY_SD]);
}

void plan_text(const struct plan_answer *a, struct str *out)
{
    const struct planner *p = a->planner;
    str_addf(out, "%s on %lld GPU%s of %s (%lld node%s of %lld), %lld tokens x %lld samples, %s, "
                  "stack %s\n",
             p->model.name, (long long)p->gpus, p->gpus == 1 ? "" : "s", p->cluster.name,
             (long long)p->cluster.nodes, p->cluster.nodes == 1 ? "" : "s",
             (long long)p->cluster.node.devices, (long long)seq_tokens(p->ask.seq),
             (long long)p->ask.gbs, dtype_names[p->ask.dtype], p->stack.name);
    widths_text(a, out);
    str_add(out, "  ");
    held_out_say(&p->constants.held_out, &p->cluster.device, out);
    str_addc(out, '\n');
    for (size_t i = 0; i < a->n; i++)
        item_text(a, i, out);
    terms_text(a, a->items, out);
    memory_text(a, a->items, out);
    if (a->given && a->given_at > 0) {
        terms_text(a, &a->items[a->given_at], out);
        memory_text(a, &a->items[a->given_at], out);
    }
    str_addf(out, "%lld legal layouts in %.2g s: %lld sized, %lld priced, the others dominated\n",
             (long long)a->found->legal, a->seconds, (long long)a->found->sized,
             (long long)a->found->priced);
    excluded_text(a->found, out);
}

/* ---- JSON ---- */

static void terms_json(const struct price_step *s, struct json_out *o)
{
    json_arr_begin(o, "terms");
    for (int t = 0; t < PRICE_TERMS; t++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", price_term_names[t]);
        json_put_num(o, "seconds", s->term[t]);
        json_put_num(o, "hidden_s", s->hidden[t]);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void memory_json(const struct footprint *f, struct json_out *o)
{
    double sum = 0;
    json_arr_begin(o, "memory");
    for (int i = 0; i < WORK_HELD; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", work_held_names[i]);
        json_put_int(o, "bytes", num_round_part(&sum, f->bytes[i]));
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void item_json(const struct plan_answer *a, const struct planned *p, struct json_out *o)
{
    json_obj_begin(o, NULL);
    layout_write(&p->layout, o, "layout");
    json_put_int(o, "gpus", layout_world(&p->layout));
    json_put_num(o, "step_s", p->step.seconds);
    json_put_num(o, "lo_s", p->lo_s);
    json_put_num(o, "hi_s", p->hi_s);
    json_put_num(o, "tokens_per_s_gpu", p->tokens_per_s_gpu);
    json_put_num(o, "mfu", p->mfu);
    json_put_int(o, "bytes", llround(p->footprint.total));
    json_put_num(o, "p_fits", p->p_fits);
    if (p < a->items + a->found->n)
        json_put_int(o, "twins", a->found->items[p - a->items].twins);
    if (a->tokens > 0) {
        json_put_num(o, "days", train_seconds(a, p) / 86400);
        json_put_num(o, "gpu_hours", gpu_hours(a, p));
    }
    terms_json(&p->step, o);
    memory_json(&p->footprint, o);
    json_obj_end(o);
}

static void rule_json(const char *rule, const char *because, int64_t count, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "rule", rule);
    json_put_int(o, "count", count);
    json_put_text(o, "because", because);
    json_obj_end(o);
}

/* Adds how many layouts each rule excluded: the rules of layouts, then those of the adapter, which
 * may be NULL. */
static void excluded_json(const struct stream_found *f, const struct adapter *a,
                          struct json_out *o)
{
    json_arr_begin(o, "excluded");
    for (int i = 0; i < layout_rule_count(); i++)
        if (f->excluded[i])
            rule_json(layout_rule_name(i), layout_rule_sentence(i), f->excluded[i], o);
    for (int64_t i = 0; a && i < a->n_rules; i++)
        if (f->refused[i])
            rule_json(a->rules[i].rule, a->rules[i].because, f->refused[i], o);
    json_arr_end(o);
}

void plan_json(const struct plan_answer *a, struct json_out *o)
{
    const struct planner *p = a->planner;
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", "reel.plans/1");
    json_put_text(o, "model", p->model.name);
    json_put_text(o, "cluster", p->cluster.name);
    json_put_int(o, "gpus", p->gpus);
    json_put_text(o, "constants", p->constants.name);
    held_out_write(&p->constants.held_out, &p->cluster.device, o);
    json_put_int(o, "limit_bytes", llround(planner_limit_bytes(p)));
    json_put_int(o, "searched", a->found->legal);
    json_put_int(o, "fit", a->found->fit);
    json_put_num(o, "seconds", a->seconds);
    json_arr_begin(o, "layouts");
    for (size_t i = 0; i < a->n; i++)
        item_json(a, &a->items[i], o);
    json_arr_end(o);
    excluded_json(a->found, p->ask.adapter, o);
    if (*a->chosen.adapter) {
        json_put_text(o, "adapter", a->chosen.adapter);
        json_put_text(o, "flags", a->chosen.flags);
    }
    if (*a->chosen.environment)
        json_put_text(o, "environment", a->chosen.environment);
    json_obj_end(o);
}
