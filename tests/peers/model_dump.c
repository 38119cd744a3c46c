/* model_dump DIR: what the model makes of a small batch, in float64, one file a variant: for a
 * reference to make the same of.
 *
 *   in/weight/NAME  every weight, shapes and names as at the top of profiles/params.c
 *   in/latent/I, in/noise/I, in/cond/I [C, t, h, w], in/text/I [text_len, text_width] of sample I;
 *   no cond: zeros; noise as drawn
 *   in/level, dropped, fps, loss_weight [n], in/valid [n, 3] cells that count in the loss,
 *   in/inv_norm
 *   out/prediction/I [C, t, h, w], out/sample_loss [n], out/loss_sum, out/loss_x0_sum
 *   (trainer/dit/dit.h)
 *   out/grad/NAME             of inv_norm · loss_sum, of what is trained
 *
 * The model's fields, the objective and the finetune (profiles/finetune.c, with ' for ") are texts.
 */
#include "tests/lib/trainer_model.h"

#include "tests/peers/dump.h"

/* Mixed: one sample has no caption, of the others' some are dropped by their coins. */
enum captions { MIXED, NOWHERE, EVERYWHERE };

struct variant {
    const char *name;
    struct model m; /* what is left 0 is filled in by complete() */
    bool text;
    enum objective objective;
    int32_t shape[SAMPLES][3]; /* latent cells of the samples; all 0: the rig's */
    enum captions captions;
    const char *finetune; /* NULL: everything is trained */
    bool padded;        /* a part of each sample counts in the loss */
};

/* Samples with patch (1, 1, 2) of several tokens along every axis; one that is a single token. */
#define SPREAD {{2, 2, 4}, {1, 1, 2}, {3, 2, 4}, {3, 1, 2}}
#define LLAMA .family = MODEL_MOVIEGEN, .hidden = 48, .heads = 4, .kv_heads = 2, .gated_mlp = true
#define TABLES .pos_t = 4, .pos_h = 3, .pos_w = 4 /* longer than any sample */

#define EVERY_ADAPTER                                                                              \
    "{'lora': {'rank': 2, 'alpha': 3, 'match': ['*']}, 'groups': [{'match': '*_n*', 'trainable': " \
    "true}]}"
#define SOME_ADAPTERS                                                                              \
    "{'lora': {'rank': 3, 'alpha': 0.75, 'match': ['blocks.*.attn.*', 'blocks.1.cross.kv.*', "     \
    "'final.out.*']},"                                                                             \
    " 'groups': [{'match': 'blocks.0.attn.out.lora_a', 'trainable': false}, {'match': "            \
    "'blocks.1.mlp.*', 'trainable': true}]}"
#define LAST_LAYER_FROZEN                                                                          \
    "{'groups': [{'match': 'blocks.1.mlp.*', 'lr_scale': 0.5}, {'match': 'blocks.1.*', "           \
    "'trainable': false},"                                                                         \
    " {'match': 'text_null', 'trainable': false}]}"

static const struct variant variants[] = {
    {"full", {.adaln = ADALN_FULL}, true, OBJECTIVE_EDM},
    {"full-v", {.adaln = ADALN_FULL, .layers = 1}, true, OBJECTIVE_V},
    {"full-flow", {.adaln = ADALN_FULL, .layers = 1}, true, OBJECTIVE_RECTIFIED_FLOW},
    {"none", {.adaln = ADALN_NONE}, true, OBJECTIVE_EDM},
    {"separate", {.adaln = ADALN_LORA_SEPARATE}, true, OBJECTIVE_EDM},
    {"fused", {.adaln = ADALN_LORA_FUSED}, true, OBJECTIVE_RECTIFIED_FLOW},
    {"single", {.adaln = ADALN_LORA_SINGLE}, true, OBJECTIVE_V},
    {"grouped", {.adaln = ADALN_FULL, .hidden = 48, .heads = 4, .kv_heads = 2}, true,
     OBJECTIVE_EDM},
    {"grouped-gated", {.adaln = ADALN_LORA_FUSED, .kv_heads = 1, .gated_mlp = true}, true,
     OBJECTIVE_RECTIFIED_FLOW},
    {"gated-none", {.adaln = ADALN_NONE, .gated_mlp = true}, false, OBJECTIVE_V},
    {"no-text-cond", {.adaln = ADALN_LORA_SEPARATE, .kv_heads = 1, .cond_channels = 2}, false,
     OBJECTIVE_V},
    {"no-text-fused", {.adaln = ADALN_LORA_FUSED}, false, OBJECTIVE_EDM},
    {"no-text-single", {.adaln = ADALN_LORA_SINGLE, .layers = 3}, false, OBJECTIVE_EDM},
    {"cond", {.adaln = ADALN_FULL, .cond_channels = 1}, true, OBJECTIVE_EDM},
    {"captions-nowhere", {.adaln = ADALN_FULL, .kv_heads = 1}, true, OBJECTIVE_EDM, {{0}}, NOWHERE},
    {"captions-everywhere", {.adaln = ADALN_NONE}, true, OBJECTIVE_RECTIFIED_FLOW, {{0}},
     EVERYWHERE},
    /* head dim 16: pairs 4, 2, 2; patches in time */
    {"patch-t", {.adaln = ADALN_FULL, .hidden = 32, .patch_t = 2, .patch_h = 1, .patch_w = 2}, true,
     OBJECTIVE_EDM,
     {{4, 2, 2}, {2, 3, 2}, {6, 1, 2}, {2, 2, 4}}},
    {"patch-none", {.adaln = ADALN_LORA_SEPARATE, .patch_t = 1, .patch_h = 1, .patch_w = 1}, true,
     OBJECTIVE_V,
     {{2, 1, 3}, {1, 2, 2}, {3, 2, 1}, {1, 1, 5}}},
    /* wider than the frame rate's embedding */
    {"wide", {.adaln = ADALN_LORA_SEPARATE, .layers = 1, .hidden = 264}, true, OBJECTIVE_EDM},
    {"padded", {.adaln = ADALN_FULL, .layers = 1, .cond_channels = 1}, true, OBJECTIVE_EDM,
     .padded = true},
    {"tables", {.adaln = ADALN_FULL, TABLES}, true, OBJECTIVE_V},

    {"moviegen", {LLAMA, TABLES, .adaln = ADALN_FULL}, true, OBJECTIVE_RECTIFIED_FLOW},
    {"moviegen-spread", {LLAMA, TABLES, .adaln = ADALN_FULL, .patch_h = 1}, true, OBJECTIVE_EDM,
     SPREAD},
    {"moviegen-rope", {LLAMA, .adaln = ADALN_LORA_SEPARATE, .patch_h = 1}, true, OBJECTIVE_EDM,
     SPREAD, EVERYWHERE},
    {"moviegen-none", {LLAMA, TABLES, .adaln = ADALN_NONE}, true, OBJECTIVE_V},
    {"moviegen-fused-cond", {LLAMA, TABLES, .adaln = ADALN_LORA_FUSED, .cond_channels = 2}, true,
     OBJECTIVE_RECTIFIED_FLOW,
     .padded = true},
    {"moviegen-single-plain",
     {.family = MODEL_MOVIEGEN, TABLES, .adaln = ADALN_LORA_SINGLE, .layers = 3}, true,
     OBJECTIVE_EDM},
    {"moviegen-no-text", {LLAMA, TABLES, .adaln = ADALN_LORA_SEPARATE}, false, OBJECTIVE_EDM},
    {"moviegen-captions-nowhere", {LLAMA, TABLES, .adaln = ADALN_FULL, .layers = 1}, true,
     OBJECTIVE_V,
     .captions = NOWHERE},

    {"stdit", {.family = MODEL_STDIT, .adaln = ADALN_FULL}, true, OBJECTIVE_RECTIFIED_FLOW},
    {"stdit-spread", {.family = MODEL_STDIT, .adaln = ADALN_FULL, .patch_h = 1}, true,
     OBJECTIVE_EDM, SPREAD},
    {"stdit-separate", {.family = MODEL_STDIT, .adaln = ADALN_LORA_SEPARATE, .patch_h = 1}, true,
     OBJECTIVE_V, SPREAD},
    {"stdit-fused", {.family = MODEL_STDIT, .adaln = ADALN_LORA_FUSED, .kv_heads = 1}, true,
     OBJECTIVE_EDM,
     .captions = EVERYWHERE},
    {"stdit-single", {.family = MODEL_STDIT, .adaln = ADALN_LORA_SINGLE, .layers = 3}, true,
     OBJECTIVE_RECTIFIED_FLOW},
    {"stdit-none", {.family = MODEL_STDIT, .adaln = ADALN_NONE, .patch_h = 1}, true, OBJECTIVE_EDM,
     SPREAD},
    {"stdit-no-text-cond",
     {.family = MODEL_STDIT, .adaln = ADALN_LORA_SEPARATE, .kv_heads = 1, .gated_mlp = true,
      .cond_channels = 1},
     false, OBJECTIVE_EDM,
     .padded = true},
    {"stdit-tables", {.family = MODEL_STDIT, TABLES, .adaln = ADALN_FULL, .patch_h = 1}, true,
     OBJECTIVE_V, SPREAD},

    /* adapters beside every matrix, or some; what a group says is trained or not */
    {"adapters", {.adaln = ADALN_FULL}, true, OBJECTIVE_EDM, .finetune = EVERY_ADAPTER},
    {"adapters-separate", {.adaln = ADALN_LORA_SEPARATE, .cond_channels = 1}, true, OBJECTIVE_V,
     .finetune = EVERY_ADAPTER},
    {"adapters-fused-moviegen", {LLAMA, TABLES, .adaln = ADALN_LORA_FUSED}, true,
     OBJECTIVE_RECTIFIED_FLOW,
     .finetune = EVERY_ADAPTER},
    {"adapters-single-stdit", {.family = MODEL_STDIT, .adaln = ADALN_LORA_SINGLE, .patch_h = 1},
     true, OBJECTIVE_EDM, SPREAD,
     .finetune = EVERY_ADAPTER},
    {"adapters-some", {LLAMA, TABLES, .adaln = ADALN_FULL}, true, OBJECTIVE_EDM,
     .finetune = SOME_ADAPTERS},
    {"adapters-some-none", {.adaln = ADALN_NONE}, true, OBJECTIVE_V, .finetune = SOME_ADAPTERS},
    {"frozen", {.family = MODEL_STDIT, .adaln = ADALN_FULL}, true, OBJECTIVE_EDM,
     .finetune = LAST_LAYER_FROZEN},
};

static int64_t or_else(int64_t value, int64_t otherwise) { return value ? value : otherwise; }

static struct model complete(const struct variant *v)
{
    struct model m = v->m;
    bool lora = m.adaln != ADALN_NONE && m.adaln != ADALN_FULL;
    snprintf(m.name, sizeof m.name, "%s", v->name);
    m.layers = or_else(m.layers, 2);
    m.hidden = or_else(m.hidden, 24);
    m.heads = or_else(m.heads, 2);
    m.kv_heads = or_else(m.kv_heads, m.heads);
    m.ffn = 20;
    m.text_width = v->text ? TEXT_WIDTH : 0;
    m.text_len = v->text ? 8 : 0;
    m.adaln_rank = lora ? 3 : 0;
    m.patch_t = or_else(m.patch_t, 1);
    m.patch_h = or_else(m.patch_h, 2);
    m.patch_w = or_else(m.patch_w, 2);
    m.latent_channels = CHANNELS;
    m.rope_theta = 100;
    return m;
}

static void write_model(struct dump *d, const struct model *m, enum objective objective)
{
    static const char *const objectives[] = {[OBJECTIVE_EDM] = "edm",
                                             [OBJECTIVE_RECTIFIED_FLOW] = "rectified_flow",
                                             [OBJECTIVE_V] = "v"};
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {{"layers", m->layers},
                  {"hidden", m->hidden},
                  {"heads", m->heads},
                  {"kv_heads", m->kv_heads},
                  {"ffn", m->ffn},
                  {"gated_mlp", m->gated_mlp},
                  {"text_width", m->text_width},
                  {"adaln_rank", m->adaln_rank},
                  {"patch_t", m->patch_t},
                  {"patch_h", m->patch_h},
                  {"patch_w", m->patch_w},
                  {"latent_channels", m->latent_channels},
                  {"cond_channels", m->cond_channels},
                  {"pos_t", m->pos_t}};
    dump_text(d, "op", "model");
    dump_text(d, "family", "%s", model_family_names[m->family]);
    dump_text(d, "adaln", "%s", model_adaln_names[m->adaln]);
    dump_text(d, "objective", "%s", objectives[objective]);
    dump_text(d, "rope_theta", "%.17g", m->rope_theta);
    for (int i = 0; i < LEN(fields); i++)
        dump_text(d, fields[i].name, "%" PRId64, fields[i].value);
}

/* trained: of what is trained alone */
static void write_params(struct dump *d, const struct rig *r, const char *prefix,
                         const double *flat, bool trained)
{
    char name[DUMP_NAME_BYTES];
    for (int64_t i = 0; i < r->list.n; i++) {
        const struct param *p = &r->list.items[i];
        if (trained && !shards_trained(&r->sh, i))
            continue;
        snprintf(name, sizeof name, "%s/%s", prefix, p->name);
        dump_tensor(d, name, flat + r->sh.tensors[i].offset, p->nd, p->dim);
    }
}

static void write_floats(struct dump *d, const char *name, const float *data, int nd,
                         const int64_t *dim)
{
    double x[CHANNELS * MAX_CELLS];
    int64_t n = 1;
    for (int i = 0; i < nd; i++)
        n *= dim[i];
    for (int64_t i = 0; i < n; i++)
        x[i] = data ? data[i] : 0;
    dump_tensor(d, name, x, nd, dim);
}

static void write_sample(struct dump *d, const struct model *m, const struct batch_sample *s, int i)
{
    char name[DUMP_NAME_BYTES];
    double noise[CHANNELS * MAX_CELLS];
    const int64_t latent[] = {CHANNELS, s->t, s->h, s->w},
                  cond[] = {m->cond_channels, s->t, s->h, s->w};
    snprintf(name, sizeof name, "in/latent/%d", i);
    write_floats(d, name, s->latent, 4, latent);
    snprintf(name, sizeof name, "in/cond/%d", i);
    write_floats(d, name, s->cond, 4, cond);
    snprintf(name, sizeof name, "in/text/%d", i);
    write_floats(d, name, s->text, 2, (int64_t[]){s->text_len, TEXT_WIDTH});
    snprintf(name, sizeof name, "in/noise/%d", i);
    philox_normal_fill(SEED, PHILOX_NOISE, s->ordinal, 0, (size_t)(CHANNELS * s->t * s->h * s->w),
                       noise);
    dump_tensor(d, name, noise, 4, latent);
}

static void write_batch(struct dump *d, const struct rig *r)
{
    double level[SAMPLES], dropped[SAMPLES], fps[SAMPLES], weight[SAMPLES], valid[SAMPLES][3];
    for (int i = 0; i < SAMPLES; i++) {
        const struct batch_sample *s = &r->data.samples[i];
        level[i] = s->level;
        dropped[i] = s->drop_text;
        fps[i] = s->fps;
        weight[i] = s->loss_weight;
        valid[i][0] = (double)or_else(s->valid_t, s->t);
        valid[i][1] = (double)or_else(s->valid_h, s->h);
        valid[i][2] = (double)or_else(s->valid_w, s->w);
        write_sample(d, &r->m, s, i);
    }
    dump_vector(d, "in/level", level, SAMPLES);
    dump_vector(d, "in/dropped", dropped, SAMPLES);
    dump_vector(d, "in/fps", fps, SAMPLES);
    dump_vector(d, "in/loss_weight", weight, SAMPLES);
    dump_matrix(d, "in/valid", valid[0], SAMPLES, 3);
    dump_number(d, "in/inv_norm", INV_NORM);
}

/* The network on the samples as the step noised them. */
static void write_prediction(struct dump *d, struct rig *r)
{
    const struct objective_row *row = &objective_rows[r->config.objective];
    struct dit_eval_sample eval[SAMPLES];
    double x[SAMPLES][CHANNELS * MAX_CELLS], out[SAMPLES][CHANNELS * MAX_CELLS],
        noise[CHANNELS * MAX_CELLS];
    struct err err = {0};
    for (int i = 0; i < SAMPLES; i++) {
        const struct batch_sample *s = &r->data.samples[i];
        struct objective_coef c;
        int64_t n = (int64_t)CHANNELS * s->t * s->h * s->w;
        row->coef(s->level, &c);
        philox_normal_fill(SEED, PHILOX_NOISE, s->ordinal, 0, (size_t)n, noise);
        for (int64_t j = 0; j < n; j++)
            x[i][j] = c.alpha * row->data_scale * s->latent[j] + c.sigma * noise[j];
        eval[i] = (struct dit_eval_sample){x[i], out[i], s->level, s->drop_text, s->cond, s->t,
                                           s->h, s->w,   s->text,  s->text_len,  s->fps};
    }
    if (dit_forward(r->dit, eval, SAMPLES, &err) < 0)
        dump_fail("forward", err.text);
    for (int i = 0; i < SAMPLES; i++) {
        char name[DUMP_NAME_BYTES];
        snprintf(name, sizeof name, "out/prediction/%d", i);
        dump_tensor(d, name, out[i], 4, (int64_t[]){CHANNELS, eval[i].t, eval[i].h, eval[i].w});
    }
}

/* 1 or 3 tokens that stay, or none. */
static void set_caption(struct rig *r, int i, enum captions captions)
{
    struct batch_sample *s = &r->data.samples[i];
    if (captions == MIXED)
        return;
    s->text_len = captions == EVERYWHERE ? 1 + 2 * (i % 2) : 0;
    s->drop_text = false;
}

/* Padding along every axis, but for the first sample. */
static void set_padding(struct batch_sample *s, int i)
{
    if (i == 0)
        return;
    s->valid_t = s->t > 1 ? s->t - 1 : 1;
    s->valid_h = s->h - 1;
    s->valid_w = s->w - 1;
}

static void set_samples(struct rig *r, const struct variant *v)
{
    for (int i = 0; i < SAMPLES; i++)
        set_caption(r, i, v->captions);
    for (int i = 0; i < SAMPLES && v->shape[i][0]; i++) {
        r->data.samples[i].t = v->shape[i][0];
        r->data.samples[i].h = v->shape[i][1];
        r->data.samples[i].w = v->shape[i][2];
    }
    for (int i = 0; i < SAMPLES && v->padded; i++)
        set_padding(&r->data.samples[i], i);
}

/* Of the text with ' for ". */
static struct finetune quoted_finetune(const char *text)
{
    char quoted[DUMP_TEXT_BYTES];
    snprintf(quoted, sizeof quoted, "%s", text);
    for (char *c = quoted; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return finetune_of(quoted);
}

static void write_variant(struct dump *d, const struct variant *v, const char *dir)
{
    static const struct layout plain = {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1};
    struct model m = complete(v);
    struct rig r;
    const char *text = v->finetune ? v->finetune : "{}";
    struct finetune finetune = quoted_finetune(text);
    rig_open_tuned(&r, NULL, &m, &plain, v->objective, DTYPE_F64, NULL, &finetune);
    set_samples(&r, v);
    struct dit_result result = step(&r, 0, SAMPLES, false);
    write_model(d, &m, v->objective);
    dump_text(d, "finetune", "%s", text);
    write_params(d, &r, "in/weight", r.weights, false);
    write_batch(d, &r);
    dump_vector(d, "out/sample_loss", result.sample_loss, SAMPLES);
    dump_number(d, "out/loss_sum", result.loss_sum);
    dump_number(d, "out/loss_x0_sum", result.loss_x0_sum);
    write_params(d, &r, "out/grad", r.grads, true);
    write_prediction(d, &r);
    dump_save(d, dir, v->name);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    static struct dump d;
    if (argc != 2)
        dump_fail("usage", "model_dump DIR");
    for (int i = 0; i < LEN(variants); i++)
        write_variant(&d, &variants[i], argv[1]);
    return 0;
}
