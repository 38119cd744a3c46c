/* reel model: shows what a model is made of: parameters, FLOPs per token by part, and bytes of its
 * training state. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/num.h"
#include "launcher/cmd/cmd.h"
#include "profiles/flops.h"
#include "profiles/hw.h"
#include "profiles/params.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"seq", 0, OPT_TEXT, "S",
     "tokens of one sample: 8192, or frames x height x width after patching: 32x16x16"},
};
const struct opt_cmd cmd_model = {
    "model",
    "show a model: parameters, FLOPs per token, bytes of its training state",
    "[MODEL|FILE]", opts, ARRAY_LEN(opts), 0, 1,
    "MODEL is a compiled-in model, with another AdaLN if wanted: dit-7b, dit-7b+none, +full, "
    "+lora_separate, +lora_fused, +lora_single, +global. FILE is a reel.model/1 profile, with a "
    "slash in its name or ending in .json. Without either, the compiled-in models are listed. "
    "FLOPs need --seq, as attention depends on it.\n\n"
    "The backbone is the layers alone, which is what published parameter tables of this family "
    "count; what lies outside is listed tensor by tensor. FLOPs are forward and backward, "
    "recompute not counted, by two formulas: flops_reel/3, the one MFU is computed with, counts "
    "each product where it happens; flops_seed/1 is the count behind NVIDIA's published numbers "
    "for this family, for comparison with them only.",
};

struct report {
    struct model m;
    struct param_list list;
    int64_t part[PARAM_PARTS]; /* elements */
    bool has_seq;
    struct seq seq;
    struct flops reel;                  /* of one sample */
    double seed_linear, seed_attention; /* per token */
};

/* Holds the number of bytes for each parameter while AdamW trains it, by the type in which weights
 * are stored. */
static const struct state_row {
    const char *dtype;
    int weight, gradient, master, moments, ema;
} state_rows[] = {
    {"f64", 8, 8, 0, 16, 8},
    {"f32", 4, 4, 0, 8, 4},
    {"bf16", 2, 4, 4, 8, 4}, /* f32 gradients, master weights, moments and average */
};

static int state_bytes(const struct state_row *r)
{
    return r->weight + r->gradient + r->master + r->moments;
}

static int report_make(const char *operand, const char *seq, struct report *r, struct err *err)
{
    struct err why;
    if (seq && seq_parse(seq, "--seq", &r->seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text); /* the error names an option and not a
                                                         * file */
    int rc;
    if ((rc = model_load(operand, &r->m, err)) < 0)
        return rc;
    if ((rc = params_build(&r->m, &r->list, err)) < 0)
        return rc;
    if (seq && (rc = flops_reel_sample(&r->m, r->seq, r->m.text_len, &r->reel, err)) < 0)
        return rc;
    for (int64_t i = 0; i < r->list.n; i++)
        r->part[r->list.items[i].part] += r->list.items[i].count;
    r->has_seq = seq != NULL;
    if (seq)
        flops_seed_terms(&r->m, (double)seq_tokens(r->seq), &r->seed_linear, &r->seed_attention);
    return 0;
}

/* ---- text ---- */

/* Formats a number with commas: "7163912192" becomes "7,163,912,192". */
static char *with_commas(int64_t n, char *buf, size_t size)
{
    char digits[32];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (size_t i = 0; i < len && at + 2 < size; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

static void text_heading(const struct report *r, struct str *out)
{
    const struct model *m = &r->m;
    str_addf(out, "model %s: %s, %lld layers, hidden %lld, %lld heads of %lld", m->name,
             model_family_names[m->family], (long long)m->layers, (long long)m->hidden,
             (long long)m->heads, (long long)model_head_dim(m));
    if (m->kv_heads != m->heads)
        str_addf(out, " (%lld for keys and values)", (long long)m->kv_heads);
    str_addf(out, ", %sMLP %lld\n", m->gated_mlp ? "gated " : "", (long long)m->ffn);
    str_addf(out, "adaln %s", model_adaln_names[m->adaln]);
    if (m->adaln_rank)
        str_addf(out, " rank %lld", (long long)m->adaln_rank);
    if (model_has_cross(m))
        str_addf(out, ", text %lld tokens x %lld", (long long)m->text_len,
                 (long long)m->text_width);
    if (m->cross_plain)
        str_add(out, ", cross-attention not modulated");
    if (!model_is_video(m))
        str_addf(out, ", vocabulary %lld, head %s", (long long)m->vocab,
                 m->tied_head ? "tied to the embedding" : "of its own");
    else
        str_addf(out, ", patch %lldx%lldx%lld of %lld + %lld channels", (long long)m->patch_t,
                 (long long)m->patch_h, (long long)m->patch_w, (long long)m->latent_channels,
                 (long long)m->cond_channels);
    str_addc(out, '\n');
}

static void text_param_row(struct str *out, const char *what, int64_t n, int64_t total)
{
    char count[40];
    str_addf(out, "  %-28s %18s  %6.2f %%\n", what, with_commas(n, count, sizeof count),
             100.0 * (double)n / (double)total);
}

static void text_params(const struct report *r, struct str *out)
{
    int64_t total = r->list.total, backbone = params_backbone(&r->list);
    str_add(out, "\nparameters\n");
    for (int i = 0; i < PARAM_PARTS; i++)
        text_param_row(out, param_part_names[i], r->part[i], total);
    text_param_row(out, "total", total, total);
    text_param_row(out, "backbone (the layers alone)", backbone, total);
    text_param_row(out, "outside the layers", total - backbone, total);
    for (int64_t i = 0; i < r->list.n; i++) {
        const struct param *p = &r->list.items[i];
        char count[40];
        if (p->layer >= 0)
            continue;
        str_addf(out, "    %-26s %18s  ", p->name, with_commas(p->count, count, sizeof count));
        for (int d = 0; d < p->nd; d++)
            str_addf(out, "%s%lld", d ? " x " : "", (long long)p->dim[d]);
        str_addc(out, '\n');
    }
}

static void text_flops(const struct report *r, struct str *out)
{
    double tokens = (double)seq_tokens(r->seq), giga = 1e-9 / tokens;
    const struct flops *f = &r->reel;
    str_addf(out, "\nGFLOP per token, forward and backward, at %lld tokens (%lld x %lld x %lld)\n",
             (long long)seq_tokens(r->seq), (long long)r->seq.t, (long long)r->seq.h,
             (long long)r->seq.w);
    for (int i = 0; i < PARAM_PARTS; i++)
        str_addf(out, "  %-28s %18.4f  %6.2f %%\n", param_part_names[i], f->by_part[i] * giga,
                 100 * f->by_part[i] / f->total);
    str_addf(out, "  %-28s %18.4f  linear %.4f + self-attention %.4f + cross-attention %.4f\n",
             FLOPS_REEL_VERSION, f->total * giga, f->linear * giga, f->self_attn * giga,
             f->cross_attn * giga);
    str_addf(out, "  %-47s  + text keys and values %.6f + per sample %.6f\n", "",
             f->per_text * giga, f->per_sample * giga);
    str_addf(
        out,
        "  %-28s %18.4f  84 D^2 L %.4f + 12 s D L %.4f; for comparison with published tables\n",
        FLOPS_SEED_VERSION, (r->seed_linear + r->seed_attention) / 1e9, r->seed_linear / 1e9,
        r->seed_attention / 1e9);
}

static void text_states(const struct report *r, struct str *out)
{
    str_addf(out,
             "\nbytes of the whole model in training (AdamW), before any sharding\n  %-6s %12s "
             "%12s %12s %12s %12s %14s\n",
             "dtype", "weights", "gradients", "master", "moments", "together", "average (EMA)");
    for (size_t i = 0; i < ARRAY_LEN(state_rows); i++) {
        const struct state_row *s = &state_rows[i];
        const int columns[] = {s->weight,  s->gradient,    s->master,
                               s->moments, state_bytes(s), s->ema};
        str_addf(out, "  %-6s", s->dtype);
        for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
            char bytes[32];
            str_addf(out, " %*s", c + 1 < ARRAY_LEN(columns) ? 12 : 14,
                     columns[c] ? num_format_bytes(columns[c] * r->list.total, bytes, sizeof bytes)
                                : "-");
        }
        str_addc(out, '\n');
    }
}

static void report_text(const struct report *r, struct str *out)
{
    text_heading(r, out);
    text_params(r, out);
    if (r->has_seq)
        text_flops(r, out);
    text_states(r, out);
}

/* ---- JSON ---- */

static void json_params(const struct report *r, struct json_out *o)
{
    int64_t backbone = params_backbone(&r->list);
    json_obj_begin(o, "parameters");
    json_put_int(o, "total", r->list.total);
    json_put_int(o, "backbone", backbone);
    json_put_int(o, "outside_layers", r->list.total - backbone);
    json_obj_begin(o, "by_part");
    for (int i = 0; i < PARAM_PARTS; i++)
        json_put_int(o, param_part_names[i], r->part[i]);
    json_obj_end(o);
    json_obj_begin(o, "outside");
    for (int64_t i = 0; i < r->list.n; i++)
        if (r->list.items[i].layer < 0)
            json_put_int(o, r->list.items[i].name, r->list.items[i].count);
    json_obj_end(o);
    json_put_int(o, "tensors", r->list.n);
    json_obj_end(o);
}

static void json_flops(const struct report *r, struct json_out *o)
{
    double tokens = (double)seq_tokens(r->seq);
    const struct flops *f = &r->reel;
    json_obj_begin(o, "seq");
    json_put_int(o, "t", r->seq.t);
    json_put_int(o, "h", r->seq.h);
    json_put_int(o, "w", r->seq.w);
    json_put_int(o, "tokens", seq_tokens(r->seq));
    json_obj_end(o);
    json_obj_begin(o, "flops_per_token");
    json_obj_begin(o, FLOPS_REEL_VERSION);
    json_put_num(o, "total", f->total / tokens);
    json_put_num(o, "linear", f->linear / tokens);
    json_put_num(o, "self_attn", f->self_attn / tokens);
    json_put_num(o, "cross_attn", f->cross_attn / tokens);
    json_put_num(o, "per_text", f->per_text / tokens);
    json_put_num(o, "per_sample", f->per_sample / tokens);
    json_obj_begin(o, "by_part");
    for (int i = 0; i < PARAM_PARTS; i++)
        json_put_num(o, param_part_names[i], f->by_part[i] / tokens);
    json_obj_end(o);
    json_obj_end(o);
    json_obj_begin(o, FLOPS_SEED_VERSION);
    json_put_num(o, "total", r->seed_linear + r->seed_attention);
    json_put_num(o, "linear", r->seed_linear);
    json_put_num(o, "self_attn", r->seed_attention);
    json_obj_end(o);
    json_obj_end(o);
}

static void json_states(const struct report *r, struct json_out *o)
{
    json_obj_begin(o, "bytes");
    for (size_t i = 0; i < ARRAY_LEN(state_rows); i++) {
        const struct state_row *s = &state_rows[i];
        json_obj_begin(o, s->dtype);
        json_put_int(o, "weights", s->weight * r->list.total);
        json_put_int(o, "gradients", s->gradient * r->list.total);
        json_put_int(o, "master", s->master * r->list.total);
        json_put_int(o, "moments", s->moments * r->list.total);
        json_put_int(o, "together", state_bytes(s) * r->list.total);
        json_put_int(o, "ema", s->ema * r->list.total);
        json_obj_end(o);
    }
    json_obj_end(o);
}

static void report_json(const struct report *r, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.model_report/1");
    json_put_int(&o, "version", 1);
    model_write(&r->m, &o, "model");
    json_params(r, &o);
    if (r->has_seq)
        json_flops(r, &o);
    json_states(r, &o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

/* ---- the list of names ---- */

static int list_models(bool json, struct str *out, struct err *err)
{
    const char *const *names;
    size_t n = model_names(&names);
    struct json_out o;
    json_out_init(&o, out, 2);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.model_list/1");
        json_put_int(&o, "version", 1);
        json_obj_begin(&o, "parameters");
    }
    for (size_t i = 0; i < n; i++) {
        struct report r = {0};
        char count[40];
        int rc = report_make(names[i], NULL, &r, err);
        if (rc < 0)
            return rc;
        if (json)
            json_put_int(&o, names[i], r.list.total);
        else
            str_addf(out, "%-14s %3lld layers x %-5lld %18s parameters, adaln %s\n", names[i],
                     (long long)r.m.layers, (long long)r.m.hidden,
                     with_commas(r.list.total, count, sizeof count), model_adaln_names[r.m.adaln]);
        params_release(&r.list);
    }
    if (json) {
        json_obj_end(&o);
        json_obj_end(&o);
        str_addc(out, '\n');
    }
    return 0;
}

int cmd_model_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct report r = {0};
    struct str out = STR_INIT;
    bool json = opt_bool(v, "json"), listed = opt_operands(v, &operands) == 0;
    int rc;

    (void)env;
    if (listed && opt_given(v, "seq"))
        return err_set(err, ERR_USAGE,
                       "--seq without a model: give a NAME or FILE, see 'reel model'");
    if (listed && (rc = list_models(json, &out, err)) < 0)
        goto out;
    if (!listed && (rc = report_make(operands[0], opt_text(v, "seq"), &r, err)) < 0)
        goto out;
    if (!listed)
        (json ? report_json : report_text)(&r, &out);
    rc = cmd_print(&out, err);
out:
    params_release(&r.list);
    str_release(&out);
    return rc;
}
