/* The account of reel's own trainer: what it sends is traffic_step's, operation by operation, under
 * every layout of a covering set; what it multiplies is flops_reel's count; what it holds is
 * held_list's. */
#include "tests/lib/layout_set.h"

#include "profiles/catalog.h"
#include "profiles/flops.h"
#include "profiles/held.h"
#include "profiles/work_reel.h"

/* of 12 frames and 12 places, which up to four cp ranks divide, and their tokens tp ranks */
static const struct seq seq = {12, 3, 4};
static const struct model models[] = {
    {.name = "full", .family = MODEL_DIT, .layers = 5, .hidden = 64, .heads = 8, .kv_heads = 8,
     .ffn = 256, .text_width = 32, .text_len = 16, .adaln = ADALN_FULL, .patch_t = 1, .patch_h = 2,
     .patch_w = 2, .latent_channels = 4, .rope_theta = 100},
    {.name = "stdit", .family = MODEL_STDIT, .layers = 4, .hidden = 64, .heads = 8, .kv_heads = 4,
     .ffn = 128, .text_width = 32, .text_len = 16, .adaln = ADALN_LORA_SINGLE, .adaln_rank = 8,
     .patch_t = 1, .patch_h = 2, .patch_w = 2, .latent_channels = 4, .rope_theta = 100},
    {.name = "moviegen", .family = MODEL_MOVIEGEN, .layers = 5, .hidden = 96, .heads = 8,
     .kv_heads = 2, .ffn = 64, .gated_mlp = true, .text_width = 32, .text_len = 16,
     .adaln = ADALN_LORA_SEPARATE, .adaln_rank = 8, .patch_t = 1, .patch_h = 2, .patch_w = 2,
     .latent_channels = 4, .cond_channels = 2, .rope_theta = 100, .pos_t = 12, .pos_h = 4,
     .pos_w = 4},
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static void assert_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s: got %.17g, want %.17g", what, got, want);
}

struct fixture {
    struct stack stack;
    struct work_weights weights;
    struct param_list params;
    struct work_spec spec;
    struct work w;
};

static void fixture_open(struct fixture *f, const struct model *m, enum dtype act, bool wide)
{
    struct err err;
    must(stack_load("reel", &f->stack, &err), &err);
    must(work_weights(m, &f->weights, &err), &err);
    must(params_build(m, &f->params, &err), &err);
    f->spec = (struct work_spec){.model = m, .stack = &f->stack, .weights = &f->weights, .seq = seq,
                                 .gbs = SAMPLES, .act = act, .residual_wide = wide};
}

/* ---- messages ---- */

enum { OF_MICRO = (1 << TRAFFIC_TP) | (1 << TRAFFIC_CP) | (1 << TRAFFIC_A2A) |
                  (1 << TRAFFIC_RING) | (1 << TRAFFIC_PP) };

struct sent { double bytes[TRAFFIC_GROUPS][5], ops[TRAFFIC_GROUPS][5]; };

static void part_sum(const struct work *w, enum work_part_id id, double times, struct sent *s)
{
    const struct work_part *p = &w->parts[id];
    for (int i = 0; i < p->n_messages; i++) {
        const struct work_message *m = &p->messages[i];
        s->bytes[m->group][m->kind] += times * m->count * m->bytes;
        s->ops[m->group][m->kind] += times * m->count;
    }
}

/* Adds up what a stage sends in all micro-batches of a step. */
static void stage_sum(const struct work *w, const struct layout *l, int64_t stage, struct sent *s)
{
    struct work_stage st;
    double m = w->micro_batches, v = (double)l->vpp;
    work_stage(w, l, stage, &st);
    part_sum(w, WORK_LAYER_FORWARD, m * st.layers, s);
    part_sum(w, WORK_LAYER_BACKWARD, m * st.layers, s);
    part_sum(w, WORK_LAYER_SELECTIVE, m * (st.selective > 0 ? st.selective - st.there : 0), s);
    part_sum(w, WORK_LAYER_FULL, m * (st.full > 0 ? st.full - st.there : 0), s);
    part_sum(w, WORK_EACH_FORWARD, m * v, s);
    part_sum(w, WORK_EACH_BACKWARD, m * v, s);
    if (st.first)
        part_sum(w, WORK_FIRST_FORWARD, m, s), part_sum(w, WORK_FIRST_BACKWARD, m, s);
    if (st.last)
        part_sum(w, WORK_LAST_FORWARD, m, s), part_sum(w, WORK_LAST_BACKWARD, m, s);
    part_sum(w, WORK_SEND, m * (2 * v - st.first - st.last), s);
}

/* Counts the traffic of a step on the first rank of a stage. */
static void traffic_of(const struct fixture *f, const struct layout *l, int64_t stage,
                       struct traffic_list *out)
{
    int64_t rank = layout_rank(l, (struct layout_place){.pp = stage});
    struct seq samples[SAMPLES];
    struct traffic_micro micros[SAMPLES];
    struct shards sh;
    struct err err;
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = seq, micros[i] = (struct traffic_micro){l->mbs, samples};
    must(shards_build(f->spec.model, &f->params, l, rank, &sh, &err), &err);
    struct traffic_spec spec = {.model = f->spec.model, .params = &f->params, .shards = &sh,
                                .layout = l, .act = f->spec.act, .stat = dtype_stat(f->spec.act),
                                .micros = micros, .n_micros = (int64_t)f->w.micro_batches,
                                .residual_wide = f->spec.residual_wide};
    must(traffic_step(&spec, out, &err), &err);
    shards_release(&sh);
}

/* Adds up what it counts but for the update and units. */
static void traffic_sum(const struct fixture *f, const struct layout *l, int64_t stage,
                        struct sent *s)
{
    struct traffic_list list;
    traffic_of(f, l, stage, &list);
    for (int64_t i = 0; i < list.n; i++) {
        const struct traffic *t = &list.items[i];
        bool update = strstr(t->what, "gradients of") == t->what &&
                      (strstr(t->what, "replicates") || strstr(t->what, "the conditioning"));
        if (!(OF_MICRO >> t->group & 1) || update)
            continue;
        s->bytes[t->group][t->kind] += (double)t->bytes;
        s->ops[t->group][t->kind] += (double)t->ops;
    }
}

static void layout_check_sums(struct fixture *f, const struct layout *l)
{
    for (int64_t stage = 0; stage < l->pp; stage++) {
        struct sent got = {0}, want = {0};
        char what[320];
        struct str text = STR_INIT;
        work_build(&f->spec, l, &f->w);
        stage_sum(&f->w, l, stage, &got);
        traffic_sum(f, l, stage, &want);
        layout_format(l, &text);
        for (int g = 0; g < TRAFFIC_GROUPS; g++)
            for (int k = 0; k < 5; k++) {
                snprintf(what, sizeof what, "%s, %s, stage %lld: %s of %s", f->spec.model->name,
                         text.p, (long long)stage, traffic_kind_names[k], traffic_group_names[g]);
                assert_near(got.bytes[g][k], want.bytes[g][k], 1e-12, what);
                /* of no bytes are receives, and exchanges of frames that stay */
                if (g != TRAFFIC_PP && g != TRAFFIC_CP)
                    assert_near(got.ops[g][k], want.ops[g][k], 1e-12, what);
            }
        str_release(&text);
    }
}

static void sends_what_traffic_counts(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(models); i++) {
        struct candidates all = legal(&models[i]), some = covering(all, 3);
        struct fixture f;
        fixture_open(&f, &models[i], i == 1 ? DTYPE_BF16 : DTYPE_F32, i == 1);
        for (int64_t k = 0; k < some.n; k++) {
            struct layout l = layout_of(some.v[k]);
            layout_check_sums(&f, &l);
        }
        assert_true(some.n > 100);
        params_release(&f.params);
        free(all.v);
        free(some.v);
    }
}

/* ---- the state ---- */

/* Adds up what the messages of a stage's units send in a step. */
static double state_bytes(const struct work *w, const struct layout *l, int64_t stage)
{
    struct work_stage st;
    struct work_state state;
    double sum = 0, share[WORK_UNITS];
    work_stage(w, l, stage, &st);
    work_state(w, l, &state);
    work_reel_gather_share(w, l, stage, share);
    const double units[WORK_UNITS] = {st.layers, st.first, st.last, st.each};
    double once = work_stage_elements(w, &st),
           each = once + ((double)l->vpp - 1) * w->unit_elements[UNIT_EACH];
    for (int id = STATE_REDUCE; id < WORK_STATES; id++)
        sum += state.bytes[id] * (state.each[id] ? w->micro_batches * each : once);
    for (int u = 0; u < WORK_UNITS; u++)
        sum += state.bytes[STATE_GATHER_FORWARD] * 2 * w->micro_batches * units[u] * share[u] *
               w->unit_elements[u];
    return sum;
}

/* Units are padded, and where tp ranks share k/v heads each has a whole one: the account has
 * neither. Both are small: at most 4 % here. */
static void sends_its_state(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(models); i++) {
        struct candidates all = legal(&models[i]), some = covering(all, 3);
        struct fixture f;
        fixture_open(&f, &models[i], DTYPE_F32, false);
        for (int64_t k = 0; k < some.n; k++) {
            struct layout l = layout_of(some.v[k]);
            work_build(&f.spec, &l, &f.w);
            for (int64_t stage = 0; stage < l.pp; stage++) {
                struct traffic_list list;
                struct str text = STR_INIT;
                traffic_of(&f, &l, stage, &list);
                layout_format(&l, &text);
                assert_near(state_bytes(&f.w, &l, stage),
                            (double)(traffic_bytes(&list, TRAFFIC_SHARD) +
                                     traffic_bytes(&list, TRAFFIC_REPLICA)),
                            0.04, text.p);
                str_release(&text);
            }
        }
        params_release(&f.params);
        free(all.v);
        free(some.v);
    }
}

/* ---- products and attention ---- */

static double part_flops(const struct work_part *p, bool attention)
{
    double sum = 0;
    for (int i = 0; i < p->n_gemms && !attention; i++)
        sum += 2 * p->gemms[i].m * p->gemms[i].n * p->gemms[i].k * p->gemms[i].count;
    for (int i = 0; i < p->n_attentions && attention; i++)
        sum += 4 * p->attentions[i].pairs * p->attentions[i].dim * p->attentions[i].heads *
               p->attentions[i].count;
    return sum;
}

/* Returns the FLOPs of all layers and what stands beside them, forward and backward, of the ranks
 * of a replica together. */
static double all_flops(const struct work *w, const struct layout *l, bool attention)
{
    double sum = 0, ranks = (double)(l->tp * l->cp);
    double backward = attention ? 2 : 1; /* of attention, which is not listed as two */
    sum += part_flops(&w->parts[WORK_LAYER_FORWARD], attention) * (double)w->model->layers;
    sum += backward * part_flops(&w->parts[WORK_LAYER_BACKWARD], attention) *
           (double)w->model->layers;
    for (int id = WORK_FIRST_FORWARD; id <= WORK_EACH_BACKWARD; id++)
        sum += part_flops(&w->parts[id], attention);
    return sum * ranks;
}

/* Without tp and cp a rank multiplies what flops_reel counts for a micro-batch, but for gradients
 * that nobody needs: those of patches, of text, and of what goes into the embedders. */
static void multiplies_what_flops_counts(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(models); i++) {
        const struct model *m = &models[i];
        struct fixture f;
        struct layout l = layout_default();
        struct flops flops;
        struct err err;
        double unneeded = 0, D = (double)m->hidden, n, tokens = (double)seq_tokens(seq);
        l.mbs = 2, n = 2;
        fixture_open(&f, m, DTYPE_F32, false);
        work_build(&f.spec, &l, &f.w);
        must(flops_reel_sample(m, seq, m->text_len, &flops, &err), &err);
        double in = (double)((m->latent_channels + m->cond_channels) * model_patch_cells(m));
        unneeded += 2 * n * tokens * in * D;
        unneeded += flops.per_text * n / 3;
        unneeded += 2 * n * (D * D + (double)MODEL_FPS_WIDTH * MODEL_FPS_WIDTH);
        assert_near(all_flops(&f.w, &l, false),
                    n * (flops.linear + flops.per_text + flops.per_sample) - unneeded, 1e-12,
                    m->name);
        assert_near(all_flops(&f.w, &l, true), n * (flops.self_attn + flops.cross_attn), 1e-12,
                    m->name);
        /* tp and cp divide all of a layer's attention */
        struct layout cut = l;
        cut.tp = 2, cut.cp = 2;
        double whole = all_flops(&f.w, &l, true);
        work_build(&f.spec, &cut, &f.w);
        assert_near(all_flops(&f.w, &cut, true), whole, 1e-12, m->name);
        params_release(&f.params);
    }
}

/* ---- what is held ---- */

static void assert_bytes(double got, double want, const struct fixture *f, const struct layout *l,
                         int64_t stage, const char *what)
{
    struct str text = STR_INIT;
    if (got == want)
        return;
    layout_format(l, &text);
    fail_msg("%s, %s, stage %lld: %.0f bytes of %s, the trainer's list has %.0f",
             f->spec.model->name, text.p, (long long)stage, got, what, want);
}

static double device_bytes(const struct buffer_list *list, enum buffer_category category)
{
    double sum = 0;
    for (int64_t i = 0; i < list->n; i++)
        if (list->items[i].side == BUFFER_ON_DEVICE && list->items[i].category == category)
            sum += (double)list->items[i].bytes;
    return sum;
}

/* Compares the bytes of a stage with those of the list. Of units in use the account has a category of
 * its own; in the list they are work, and their sums communication. */
static void stage_check_bytes(const struct fixture *f, const struct layout *l, int64_t stage,
                              const struct buffer_list *list, const double b[WORK_HELD])
{
    double sum = 0, of[BUFFER_CATEGORIES];
    for (int c = 0; c < BUFFER_CATEGORIES; c++)
        of[c] = device_bytes(list, (enum buffer_category)c);
    const struct { const char *name; double got, want; } rows[] = {
        {"weights", b[HELD_PARAMETERS], of[BUFFER_WEIGHT]},
        {"gradients", b[HELD_GRADIENTS], of[BUFFER_GRAD]},
        {"optimizer", b[HELD_OPTIMIZER], of[BUFFER_OPTIM]},
        {"average", b[HELD_EMA], of[BUFFER_EMA]},
        {"activations", b[HELD_ACTIVATIONS], of[BUFFER_INPUT] + of[BUFFER_SAVED]},
        {"work and messages", b[HELD_GATHERED] + b[HELD_BUFFERS] + b[HELD_WORKSPACE],
         of[BUFFER_WORK] + of[BUFFER_COMM]},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_bytes(rows[i].got, rows[i].want, f, l, stage, rows[i].name);
    for (int i = 0; i < WORK_HELD; i++)
        sum += b[i];
    assert_bytes(sum, (double)list->sides[BUFFER_ON_DEVICE], f, l, stage, "all");
}

static void layout_check_bytes(struct fixture *f, const struct layout *l)
{
    static const struct work_scales as_said = {1, 1, 1};
    static struct buffer_list list;
    const struct held_spec spec = {.model = f->spec.model, .seq = f->spec.seq, .gbs = f->spec.gbs,
                                   .dtype = f->spec.act, .ema = f->spec.ema,
                                   .residual_wide = f->spec.residual_wide,
                                   .moments_bf16 = f->spec.moments_bf16, .gpus = true};
    work_build(&f->spec, l, &f->w);
    for (int64_t stage = 0; stage < l->pp; stage++) {
        struct buffer_state kept;
        struct work_stage st;
        double bytes[WORK_HELD];
        struct err err;
        must(held_state(&spec, l, &f->params, stage, &kept, &err), &err);
        must(held_list(&spec, l, &kept, stage, &list, &err), &err);
        work_stage(&f->w, l, stage, &st);
        work_held(&f->w, l, &st, &as_said, bytes);
        stage_check_bytes(f, l, stage, &list, bytes);
    }
}

static const struct model fused = {
    .name = "fused", .family = MODEL_DIT, .layers = 5, .hidden = 96, .heads = 8, .kv_heads = 2,
    .ffn = 64, .text_width = 48, .text_len = 7, .adaln = ADALN_LORA_FUSED, .adaln_rank = 5,
    .patch_t = 1, .patch_h = 1, .patch_w = 2, .latent_channels = 3, .rope_theta = 100};

static void model_check_bytes(const struct model *m, enum dtype act, bool wide, bool ema)
{
    struct candidates all = legal(m), some = covering(all, 3);
    struct fixture f;
    fixture_open(&f, m, act, wide);
    f.spec.ema = ema, f.spec.moments_bf16 = wide || ema;
    for (int64_t k = 0; k < some.n; k++) {
        struct layout l = layout_of(some.v[k]);
        layout_check_bytes(&f, &l);
    }
    assert_true(some.n > 100);
    params_release(&f.params);
    free(all.v);
    free(some.v);
}

/* The device's bytes of every stage are those of the trainer's own list, category by category. */
static void holds_what_is_listed(void **state)
{
    (void)state;
    for (int i = 0; i <= LEN(models); i++) {
        const struct model *m = i < LEN(models) ? &models[i] : &fused;
        model_check_bytes(m, DTYPE_F32, false, false);
        model_check_bytes(m, DTYPE_F32, false, true);
        model_check_bytes(m, DTYPE_BF16, true, true);
        model_check_bytes(m, DTYPE_BF16, false, false);
    }
}

/* The same of all models that are compiled in, on up to 64 GPUs. */
static void holds_what_is_listed_of_large_models(void **state)
{
    static const char *const layouts[] = {
        "dp=8", "dp=8,zero=1", "dp=8,zero=3", "dp=64,zero=3,recompute=full",
        "dp=8,zero=2,recompute=selective", "tp=8,sp=1", "tp=4,dp=2,zero=1", "cp=4,dp=2,zero=1",
        "cp=4,cp_kind=a2a,dp=2,zero=3", "pp=4,dp=2,zero=1", "pp=4,vpp=4,dp=2,zero=1",
        "pp=4,vpp=7,dp=2", "pp=8,recompute=full", "pp=2,tp=2,dp=2,zero=2,mbs=2",
        "pp=4,dp=2,zero=3", "dp=8,zero=1,recompute=full,recompute_layers=10",
        "tp=8,sp=1,cp=2,dp=4,zero=3,fsdp=8", "tp=2,pp=2,dp=16,zero=3,fsdp=4"};
    int checked = 0;
    (void)state;
    for (int i = 0; catalog_model_names[i]; i++) {
        struct model m;
        struct fixture f;
        struct err err;
        must(model_load(catalog_model_names[i], &m, &err), &err);
        if (!model_is_trainable(&m))
            continue;
        fixture_open(&f, &m, DTYPE_BF16, false);
        f.spec.seq = (struct seq){16, 32, 32}, f.spec.gbs = 64, f.spec.ema = i % 2;
        for (int k = 0; k < LEN(layouts); k++) {
            struct layout l;
            must(layout_parse(layouts[k], &l, &err), &err);
            if (layout_check(&l, &m, f.spec.seq, f.spec.gbs, layout_world(&l), &err) < 0)
                continue;
            layout_check_bytes(&f, &l);
            checked++;
        }
        params_release(&f.params);
    }
    assert_true(checked > 200);
}

static double stage_bytes(const struct work *w, const struct layout *l, int64_t stage)
{
    static const struct work_scales as_said = {1, 1, 1};
    struct work_stage st;
    double bytes[WORK_HELD], sum = 0;
    work_stage(w, l, stage, &st);
    work_held(w, l, &st, &as_said, bytes);
    for (int i = 0; i < WORK_HELD; i++)
        sum += bytes[i];
    return sum;
}

/* A larger shard group holds no more than a smaller one, but for the padding of its units, which may
 * be more than what it divides further. */
static void larger_groups_hold_less(void **state)
{
    static const char *const grids[] = {"dp=512", "cp=2,dp=256", "tp=4,sp=1,dp=128", "pp=2,dp=256"};
    int more = 0;
    (void)state;
    for (int i = 0; i < LEN(grids); i++)
        for (int zero = 1; zero <= 3; zero++) {
            struct fixture f;
            struct layout l;
            struct err err;
            fixture_open(&f, &models[0], i % 2 ? DTYPE_F32 : DTYPE_BF16, false);
            must(layout_parse(grids[i], &l, &err), &err);
            f.spec.gbs = 512, l.zero = zero;
            work_build(&f.spec, &l, &f.w);
            for (int64_t stage = 0; stage < l.pp; stage++) {
                double least = INFINITY; /* of all smaller groups */
                for (l.fsdp = 2; l.fsdp <= l.dp * l.cp; l.fsdp *= 2) {
                    double bytes = stage_bytes(&f.w, &l, stage);
                    more += bytes > least;
                    assert_true(bytes - work_padding_bytes(&f.w, &l) <= least);
                    least = fmin(least, bytes);
                }
                l.fsdp = 0;
            }
            params_release(&f.params);
        }
    assert_true(more > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sends_what_traffic_counts),
                                       cmocka_unit_test(sends_its_state),
                                       cmocka_unit_test(multiplies_what_flops_counts),
                                       cmocka_unit_test(holds_what_is_listed),
                                       cmocka_unit_test(holds_what_is_listed_of_large_models),
                                       cmocka_unit_test(larger_groups_hold_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
