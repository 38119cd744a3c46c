#include "launcher/cmd/explain_print.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

/* ---- the resource that limits a step ---- */

static int largest_term(const struct explain_side *e)
{
    int most = 0;
    for (int t = 1; t < PRICE_TERMS; t++)
        if (e->seconds[t] > e->seconds[most])
            most = t;
    return most;
}

static int largest_held(const struct explain_side *e)
{
    int most = 0;
    for (int i = 1; i < e->n_held; i++)
        if (e->held[i].bytes > e->held[most].bytes)
            most = i;
    return most;
}

static double rate_of(const struct explain_side *e, int t)
{
    double s = e->seconds[t] + e->hidden_s[t];
    return s > 0 ? e->work[t] / s : NAN;
}

static double memory_share(const struct explain_told *x, const struct explain_side *e)
{ return x->limit_bytes > 0 ? e->bytes / x->limit_bytes : NAN; }

/* Tells whether a term is a share of those before it, and so has no rate of its own. */
static bool is_share(int t) { return t == PRICE_CONTENTION || t == PRICE_SPREAD; }

/* Adds "4.55 PFLOP" or "64 stages". */
static void amount_add(double amount, int t, struct str *out)
{
    char text[32];
    num_format_count(amount, text, sizeof text);
    bool bare = strchr(text, ' ') == NULL;
    size_t n = strlen(price_work_units[t]);
    n -= strcmp(text, "1") == 0 && str_ends(price_work_units[t], "s"); /* 1 stage */
    str_addf(out, "%s%s%.*s", text, bare ? " " : "", (int)n, price_work_units[t]);
}

/* Adds a sentence about the term that takes the largest share of the step's time, and names the
 * stage for which the others wait. */
static void time_because(const struct explain_side *e, struct str *out)
{
    int t = largest_term(e);
    str_addf(out, "%s takes %.0f %% of the step", price_term_names[t],
             100 * e->seconds[t] / e->step_s);
    if (!is_share(t)) {
        str_add(out, ", at ");
        amount_add(rate_of(e, t), t, out);
        str_add(out, "/s");
    }
    if (e->layout.pp > 1)
        str_addf(out, ", on stage %lld, the busiest of %lld", (long long)e->stage,
                 (long long)e->layout.pp);
}

static void memory_because(const struct explain_told *x, const struct explain_side *e,
                           struct str *out)
{
    int i = largest_held(e);
    char has[32];
    const char *name = e->held[i].name;
    bool several = str_ends(name, "s") && strcmp(name, "process") != 0;
    str_addf(out, "%s take%s %.0f %% of what the fullest %s holds", name, several ? "" : "s",
             100 * e->held[i].bytes / e->bytes, x->ranks);
    if (x->limit_bytes > 0)
        str_addf(out, ", which is %.0f %% of %s", 100 * memory_share(x, e),
                 num_format_bytes((int64_t)x->limit_bytes, has, sizeof has));
}

/* ---- JSON ---- */

static void term_json(const struct explain_told *x, int t, struct json_out *o)
{
    const struct explain_side *e = &x->one;
    const struct explain_constant *k = &x->constant[t];
    json_obj_begin(o, NULL);
    json_put_text(o, "name", price_term_names[t]);
    json_put_num(o, "seconds", e->seconds[t]);
    json_put_num(o, "hidden_s", e->hidden_s[t]);
    json_put_num(o, "work", e->work[t]);
    json_put_text(o, "unit", price_work_units[t]);
    json_put_num(o, "rate", rate_of(e, t));
    if (k->name)
        json_put_text(o, "constant", k->name);
    else
        json_put_null(o, "constant");
    json_put_text(o, "source", k->source);
    json_put_num(o, "value", k->value);
    json_put_num(o, "lo", k->lo);
    json_put_num(o, "hi", k->hi);
    if (x->curve[t])
        json_put_text(o, "curve", x->curve[t]);
    else
        json_put_null(o, "curve");
    json_put_num(o, "measured_s", x->measured_s[t]);
    json_obj_end(o);
}

static void memory_json(const struct explain_side *e, struct json_out *o)
{
    double sum = 0;
    json_arr_begin(o, "memory");
    for (int i = 0; i < e->n_held; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", e->held[i].name);
        json_put_int(o, "bytes", num_round_part(&sum, e->held[i].bytes));
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void binding_json(const struct explain_told *x, struct json_out *o)
{
    const struct explain_side *e = &x->one;
    struct str time = STR_INIT, memory = STR_INIT;
    int t = largest_term(e), i = largest_held(e);
    time_because(e, &time);
    memory_because(x, e, &memory);
    json_arr_begin(o, "binding");
    json_obj_begin(o, NULL);
    json_put_text(o, "what", "time");
    json_put_text(o, "name", price_term_names[t]);
    json_put_num(o, "share_of_step", e->seconds[t] / e->step_s);
    json_put_int(o, "stage", e->stage);
    json_put_text(o, "because", time.p);
    json_obj_end(o);
    json_obj_begin(o, NULL);
    json_put_text(o, "what", "memory");
    json_put_text(o, "name", e->held[i].name);
    json_put_num(o, "share_of_bytes", e->held[i].bytes / e->bytes);
    json_put_num(o, "bytes_of_limit", memory_share(x, e));
    json_put_text(o, "because", memory.p);
    json_obj_end(o);
    json_arr_end(o);
    str_release(&time);
    str_release(&memory);
}

/* Writes the other layout with its step time and memory. "loses_s" is the number of seconds that it
 * takes more than the plan, in total and for each term. */
static void against_json(const struct explain_told *x, struct json_out *o)
{
    const struct explain_side *a = &x->one, *b = &x->other;
    if (!x->has_other) {
        json_put_null(o, "against");
        return;
    }
    json_obj_begin(o, "against");
    layout_write(&b->layout, o, "layout");
    json_put_num(o, "step_s", b->step_s);
    json_put_num(o, "loses_s", b->step_s - a->step_s);
    json_put_int(o, "stage", b->stage);
    json_put_int(o, "bytes", llround(b->bytes));
    json_put_num(o, "p_fits", b->p_fits);
    json_arr_begin(o, "terms");
    for (int t = 0; t < PRICE_TERMS; t++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", price_term_names[t]);
        json_put_num(o, "seconds", b->seconds[t]);
        json_put_num(o, "hidden_s", b->hidden_s[t]);
        json_put_num(o, "loses_s", b->seconds[t] - a->seconds[t]);
        json_obj_end(o);
    }
    json_arr_end(o);
    memory_json(b, o);
    json_obj_end(o);
}

void explain_json(const struct explain_told *x, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.explanation/1");
    layout_write(&x->one.layout, &o, "layout");
    json_put_num(&o, "step_s", x->one.step_s);
    json_put_num(&o, "planned_step_s", x->planned_step_s);
    json_put_num(&o, "measured_step_s", x->measured_step_s);
    json_arr_begin(&o, "terms");
    for (int t = 0; t < PRICE_TERMS; t++)
        term_json(x, t, &o);
    json_arr_end(&o);
    memory_json(&x->one, &o);
    binding_json(x, &o);
    against_json(x, &o);
    json_put_text(&o, "constants", x->constants);
    if (x->held_out)
        held_out_write(x->held_out, x->device, &o);
    else
        json_put_null(&o, "held_out");
    json_obj_end(&o);
    str_addc(out, '\n');
}

/* ---- text ---- */

static bool shows(const struct explain_side *e, int t)
{ return e->seconds[t] > 1e-9 * e->step_s || e->hidden_s[t] > 1e-9 * e->step_s; }

/* Adds "4.55 PFLOP at 312 TFLOP/s", or "1.2 % of 0.9 s". */
static void work_text(const struct explain_side *e, int t, struct str *out)
{
    if (is_share(t)) {
        str_addf(out, "%.2g %% of %.4g s", 100 / rate_of(e, t), e->work[t]);
        return;
    }
    amount_add(e->work[t], t, out);
    str_add(out, " at ");
    amount_add(rate_of(e, t), t, out);
    str_add(out, "/s");
}

static void term_text(const struct explain_told *x, int t, struct str *out)
{
    const struct explain_side *e = &x->one;
    const struct explain_constant *k = &x->constant[t];
    str_addf(out, "  %-12s %10.4g s", price_term_names[t], e->seconds[t]);
    if (e->hidden_s[t] > 0)
        str_addf(out, " and %.4g s hidden", e->hidden_s[t]);
    str_add(out, ": ");
    work_text(e, t, out);
    if (k->name && isfinite(k->lo))
        str_addf(out, "; %s %.4g (%.4g to %.4g, %s)", k->name, k->value, k->lo, k->hi, k->source);
    else if (k->name)
        str_addf(out, "; %s %.4g (%s)", k->name, k->value, k->source);
    if (x->curve[t])
        str_addf(out, ", times the curve of %s", x->curve[t]);
    if (isfinite(x->measured_s[t]))
        str_addf(out, "; measured %.4g s", x->measured_s[t]);
    str_addc(out, '\n');
}

/* Adds the other layout's time and memory, and each term that differs by more than a thousandth of
 * the step. */
static void against_text(const struct explain_told *x, struct str *out)
{
    const struct explain_side *a = &x->one, *b = &x->other;
    double loses = b->step_s - a->step_s;
    char bytes[32];
    str_add(out, "against ");
    layout_brief(&b->layout, out);
    str_addf(out, ": %.4g s, %.1f %% %s; it holds %s", b->step_s, 100 * fabs(loses) / a->step_s,
             loses < 0 ? "faster" : "slower",
             num_format_bytes((int64_t)b->bytes, bytes, sizeof bytes));
    if (isfinite(b->p_fits))
        str_addf(out, " and fits with %.0f %%", 100 * b->p_fits);
    str_addc(out, '\n');
    for (int t = 0; t < PRICE_TERMS; t++) {
        double d = b->seconds[t] - a->seconds[t];
        if (fabs(d) > 1e-3 * a->step_s)
            str_addf(out, "  it %s %.4g s in %s: %.4g in place of %.4g s\n",
                     d > 0 ? "loses" : "gains", fabs(d), price_term_names[t], b->seconds[t],
                     a->seconds[t]);
    }
    if (b->layout.pp > 1 && b->stage != a->stage)
        str_addf(out, "  its busiest stage is %lld of %lld\n", (long long)b->stage,
                 (long long)b->layout.pp);
}

/* Adds what the tuning predicted, if its trials have made that another time than the one that is
 * explained. */
static void planned_text(const struct explain_told *x, struct str *out)
{
    double step_s = x->one.step_s;
    if (!x->tuned || !(fabs(x->planned_step_s - step_s) > 1e-3 * step_s))
        return;
    str_addf(out, "the tuning predicted %.4g s after its trials, whose corrections are not in "
             "these constants: 'reel calibrate --db -o mine.json' and 'reel plan --constants "
             "mine.json' put them in\n", x->planned_step_s);
}

void explain_text(const struct explain_told *x, struct str *out)
{
    const struct explain_side *a = &x->one;
    int64_t world = layout_world(&a->layout);
    str_addf(out, "%s on %lld %s%s of %s: ", x->model, (long long)world, x->ranks,
             world == 1 ? "" : "s", x->place);
    layout_brief(&a->layout, out);
    str_addf(out, ": %.4g s a step", a->step_s);
    if (isfinite(a->lo_s))
        str_addf(out, " (%.4g to %.4g)", a->lo_s, a->hi_s);
    if (isfinite(a->mfu))
        str_addf(out, ", %.1f %% MFU", 100 * a->mfu);
    if (isfinite(x->measured_step_s))
        str_addf(out, "; measured %.4g s", x->measured_step_s);
    str_addc(out, '\n');
    for (int t = 0; t < PRICE_TERMS; t++)
        if (shows(a, t))
            term_text(x, t, out);
    str_add(out, "what binds: ");
    time_because(a, out);
    str_add(out, "; ");
    memory_because(x, a, out);
    str_addf(out, "\nconstants %s", x->constants);
    if (x->held_out) {
        str_add(out, ": ");
        held_out_say(x->held_out, x->device, out);
    }
    str_addc(out, '\n');
    planned_text(x, out);
    if (x->has_other)
        against_text(x, out);
}
