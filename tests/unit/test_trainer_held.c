/* What profiles/held.h lists of a rank is what the trainer plans for it: under every layout of a
 * covering set, on every stage, pipelines included. Nothing is allocated: both are lists. */
#include "tests/lib/layout_set.h"

#include "profiles/held.h"
#include "trainer/data/loader.h"
#include "trainer/watch/scan.h"

static const struct model models[] = {
    {.name = "full", .family = MODEL_DIT, .layers = 5, .hidden = 384, .heads = 8, .kv_heads = 8,
     .ffn = 1536, .text_width = 64, .text_len = 16, .adaln = ADALN_FULL, .patch_t = 1, .patch_h = 2,
     .patch_w = 2, .latent_channels = 16, .rope_theta = 100},
    {.name = "stdit", .family = MODEL_STDIT, .layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4,
     .ffn = 1024, .text_width = 32, .text_len = 16, .adaln = ADALN_LORA_SINGLE, .adaln_rank = 16,
     .patch_t = 1, .patch_h = 2, .patch_w = 2, .latent_channels = 16, .rope_theta = 100},
    {.name = "moviegen", .family = MODEL_MOVIEGEN, .layers = 5, .hidden = 320, .heads = 8,
     .kv_heads = 2, .ffn = 896, .gated_mlp = true, .text_width = 64, .text_len = 16,
     .adaln = ADALN_LORA_SEPARATE, .adaln_rank = 16, .patch_t = 1, .patch_h = 2, .patch_w = 2,
     .latent_channels = 16, .cond_channels = 4, .rope_theta = 100, .pos_t = 4, .pos_h = 8,
     .pos_w = 8},
};
static const struct seq seq = {4, 8, 8};
static const double NEAR = 0.02;

static void run_of(struct run *run, const struct model *m, bool wide)
{
    run_init(run);
    run->model = *m;
    run->adamw.ema_decay = 0.9;
    run->residual = wide ? RESIDUAL_F32 : RESIDUAL_SAME;
    run->n_stages = 1;
    run->stages[0] = (struct run_stage){.data = "synthetic:4x16x16", .gbs = SAMPLES, .steps = 1};
}

static void loader_add(const struct run *run, const struct layout *l, struct dit_config *c,
                       int64_t *bytes)
{
    struct loader *loader;
    struct err err = {0};
    if (loader_open(run, &run->stages[0], NULL, l->mbs, false, 0, (int)layout_world(l), &loader,
                    &err) < 0)
        fail_msg("%s", err.text);
    struct loader_bounds b = loader_bounds(loader);
    c->max_tokens = b.tokens, c->max_samples = b.samples, c->max_text_tokens = b.text_tokens;
    c->max_segment = b.segment;
    *bytes = loader_bytes(loader);
    loader_close(loader);
}

/* Plans as train_open.c does, for a rank that is no process. */
static void plan(struct bench *b, const struct run *run, const struct param_list *params,
                 const struct layout *l, int64_t rank, struct buffer_list *out)
{
    struct shards sh;
    struct err err = {0};
    int64_t loader;
    if (shards_build(&run->model, params, l, rank, &sh, &err) < 0)
        fail_msg("%s", err.text);
    struct dit_config c = {
        .model = &run->model, .finetune = &run->finetune, .params = params, .shards = &sh,
        .layout = l, .most_micros = layout_micro_batches(l, SAMPLES, 0),
        .residual_wide = run->residual == RESIDUAL_F32};
    c.slots = pipe_slots(l, c.most_micros, sh.place.pp);
    loader_add(run, l, &c, &loader);
    struct optim_conf o = {.params = params, .sh = &sh, .run = run, .layout = l, .ops = b->ops,
                           .tp_bytes = dit_tp_sum_bytes(&c, b->ops->act, b->ops->stat)};
    *out = (struct buffer_list){0};
    if (dit_memory(&c, b->ops->act, b->ops->stat, out, &err) < 0 ||
        optim_memory(&o, out, &err) < 0 || scan_memory(out, &err) < 0 ||
        buffer_list_add(out, "tiles", BUFFER_WORK, DTYPE_BYTE, 1, 1, b->ops->workspace_bytes,
                        &err) < 0 ||
        buffer_list_add_host(out, "loader", BUFFER_LOADER, BUFFER_ON_HOST, 1, loader, &err) < 0)
        fail_msg("%s", err.text);
    shards_release(&sh);
}

/* Returns the greatest share by which a rank's list differs from the trainer's. */
static double layout_off(struct bench *b, const struct run *run, const struct param_list *params,
                         const struct layout *l)
{
    struct held_spec spec = {.model = &run->model, .seq = seq, .gbs = SAMPLES, .dtype = b->ops->act,
                             .ema = true, .residual_wide = run->residual == RESIDUAL_F32};
    static struct buffer_list held, planned;
    double most = 0;
    struct err err = {0};
    for (int64_t rank = 0; rank < layout_world(l); rank++) {
        int64_t stage = layout_place(l, rank).pp;
        struct buffer_state kept;
        if (held_state(&spec, l, params, stage, &kept, &err) < 0 ||
            held_list(&spec, l, &kept, stage, &held, &err) < 0)
            fail_msg("%s", err.text);
        plan(b, run, params, l, rank, &planned);
        most = fmax(most, fabs((double)held.total / (double)planned.total - 1));
    }
    return most;
}

/* Checks a covering set of the model's layouts; wide: bf16 with the residual stream in f32. */
static void model_check_all(const struct model *m, bool wide)
{
    struct candidates all = legal(m), some = covering(all, 3);
    struct bench b = bench_open(wide ? DTYPE_BF16 : DTYPE_F32);
    struct run run;
    struct param_list params;
    struct err err = {0};
    double most = 0;
    run_of(&run, m, wide);
    if (params_build(m, &params, &err) < 0)
        fail_msg("%s", err.text);
    for (int64_t k = 0; k < some.n; k++) {
        struct layout l = layout_of(some.v[k]);
        most = fmax(most, layout_off(&b, &run, &params, &l));
    }
    print_message("%s: %lld of %lld layouts, at most %.2f %% off\n", m->name, (long long)some.n,
                  (long long)all.n, 100 * most);
    assert_true(some.n > 100 && most < NEAR);
    params_release(&params);
    bench_close(&b);
    run_release(&run);
    free(all.v);
    free(some.v);
}

static void all_layouts(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(models); i++)
        model_check_all(&models[i], i == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
