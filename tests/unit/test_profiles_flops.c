/* FLOPs: the published rows of flops_seed/1; flops_reel/3 against a walk over the matrix products
 * of a forward pass. */
#include "tests/lib/test_profiles.h"

#include "profiles/flops.h"

static struct model model_of(const char *name)
{
    struct model m;
    struct err err;
    assert_ok(model_load(name, &m, &err), &err);
    return m;
}

static double seed_token(const struct model *m, double tokens)
{
    double linear, attention;
    flops_seed_terms(m, tokens, &linear, &attention);
    return linear + attention;
}

static void seed_rows(void **state)
{
    static const struct {
        const char *model;
        double layers, hidden, tokens;
        const char *printed;
    } rows[] = {
        {"dit-7b", 28, 4096, 8192, "50.7343"},
        {"dit-7b", 28, 4096, 73728, "140.9286"},
        {"dit-28b", 48, 6144, 8192, "181.1939"},
        {"dit-28b", 48, 6144, 73728, "413.1222"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model m = model_of(rows[i].model);
        double got = seed_token(&m, rows[i].tokens), D = rows[i].hidden, L = rows[i].layers, linear,
               attention;
        char digits[32];
        snprintf(digits, sizeof digits, "%.4f", got / 1e9);
        assert_string_equal(digits, rows[i].printed);
        assert_close(got, 6 * 14 * D * D * L + 12 * rows[i].tokens * D * L, 1e-6, rows[i].model);
        flops_seed_terms(&m, rows[i].tokens, &linear, &attention);
        assert_close(linear, 6 * 14 * D * D * L, 1e-12, "linear");
        assert_close(attention, 12 * rows[i].tokens * D * L, 1e-12, "attention");
    }
}

/* Within 0.5 % of what NVIDIA's printed TFLOPS over tokens/s per GPU come to. */
static void seed_against_print(void **state)
{
    static const struct {
        const char *model;
        double tokens, tflops, tokens_per_s;
    } rows[] = {
        {"dit-7b", 8192, 457, 8969},
        {"dit-7b", 73728, 414, 2933},
        {"dit-28b", 8192, 435, 2392},
        {"dit-28b", 73728, 411, 994},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model m = model_of(rows[i].model);
        assert_close(seed_token(&m, rows[i].tokens), rows[i].tflops * 1e12 / rows[i].tokens_per_s,
                     5e-3, rows[i].model);
    }
}

/* ---- the independent count: every product [m,k] x [k,n] of a forward pass, and how many times it
 * is done ---- */

struct walk { double linear, self_attn, cross_attn, per_text, per_sample; };

static double product(double m, double n, double k, double times)
{
    return 2.0 * m * n * k * times;
}

/* Scores and values of `times` separate attentions over `q` queries and `k` keys. */
static double attention(double heads, double dim, double q, double k, double times)
{
    return product(q, k, dim, heads * times) + product(q, dim, k, heads * times);
}

static void walk_self_attention(const struct model *m, double s, struct walk *w)
{
    double D = (double)m->hidden, dim = D / (double)m->heads, L = (double)m->layers;
    w->linear += product(s, (double)m->heads * dim, D, L);        /* q */
    w->linear += product(s, (double)m->kv_heads * dim, D, 2 * L); /* k, v */
    w->linear += product(s, D, (double)m->heads * dim, L);        /* out */
}

static void walk_cross_attention(const struct model *m, double s, double text, struct walk *w)
{
    double D = (double)m->hidden, H = (double)m->heads, dim = D / H, L = (double)m->layers;
    w->linear += product(s, D, D, 2 * L); /* q, out */
    w->per_text += product(text, (double)m->kv_heads * dim, (double)m->text_width, 2 * L);
    if (m->text_in > 0)
        w->per_text += product(text, (double)m->text_width, (double)(m->text_in + m->text_width), 1);
    w->cross_attn += attention(H, dim, s, text, L);
}

static void walk_modulation(const struct model *m, double sub_blocks, struct walk *w)
{
    double D = (double)m->hidden, L = (double)m->layers, r = (double)m->adaln_rank;
    switch (m->adaln) {
    case ADALN_NONE: return;
    case ADALN_FULL:
        w->per_sample += product(1, 3 * D, D, sub_blocks * L) + product(1, 2 * D, D, 1);
        break;
    case ADALN_LORA_SEPARATE:
        w->per_sample += product(1, r, D, sub_blocks * L) + product(1, 3 * D, r, sub_blocks * L);
        break;
    case ADALN_LORA_FUSED:
        w->per_sample += product(1, sub_blocks * r, D, L) +
                         product(1, sub_blocks * 3 * D, sub_blocks * r, L);
        break;
    case ADALN_LORA_SINGLE:
        w->per_sample += product(1, r, D, L) + product(1, sub_blocks * 3 * D, r, L);
        break;
    case ADALN_GLOBAL: w->per_sample += product(1, sub_blocks * 3 * D, D, 1); break;
    }
    if (m->adaln != ADALN_FULL && m->adaln != ADALN_GLOBAL)
        w->per_sample += product(1, r, D, 1) + product(1, 2 * D, r, 1); /* final norm */
    bool shared = m->adaln == ADALN_LORA_SEPARATE || m->adaln == ADALN_LORA_FUSED;
    /* noise level */
    w->per_sample += product(1, D, D, 1) + product(1, shared ? 3 * D : D, D, 1);
    /* frame rate */
    w->per_sample += product(1, 256, 256, 1) + product(1, D < 256 ? D : 256, 256, 1);
}

static struct walk walk_forward(const struct model *m, struct seq e, int64_t text)
{
    struct walk w = {0};
    double s = (double)(e.t * e.h * e.w), D = (double)m->hidden, H = (double)m->heads,
           L = (double)m->layers;
    double patch = (double)(m->patch_t * m->patch_h * m->patch_w), frame = (double)(e.h * e.w),
           t = (double)e.t;
    double sub_blocks = 2;
    w.linear += product(s, D, (double)(m->latent_channels + m->cond_channels) * patch, 1);
    walk_self_attention(m, s, &w);
    w.self_attn += attention(H, D / H, s, s, L);
    if (m->family == MODEL_STDIT) {
        walk_self_attention(m, s, &w);
        w.self_attn += attention(H, D / H, frame, frame, L * t);
        walk_self_attention(m, s, &w);
        w.self_attn += attention(H, D / H, t, t, L * frame);
        sub_blocks += 2;
    }
    if (m->text_width > 0) {
        walk_cross_attention(m, s, (double)text, &w);
        sub_blocks += m->cross_plain ? 0 : 1;
    }
    w.linear += product(s, (double)m->ffn, D, m->gated_mlp ? 2 * L : L) +
                product(s, D, (double)m->ffn, L);
    walk_modulation(m, sub_blocks, &w);
    w.linear += product(s, (double)m->latent_channels * patch, D, 1);
    return w;
}

static void assert_walk_text(const struct model *m, struct seq s, int64_t text)
{
    struct flops f;
    struct err err;
    struct walk w = walk_forward(m, s, text);
    assert_ok(flops_reel_sample(m, s, text, &f, &err), &err);
    assert_close(f.linear, 3 * w.linear, 1e-12, "linear");
    assert_close(f.self_attn, 3 * w.self_attn, 1e-12, "self_attn");
    assert_close(f.cross_attn, 3 * w.cross_attn, 1e-12, "cross_attn");
    assert_close(f.per_text, 3 * w.per_text, 1e-12, "per_text");
    assert_close(f.per_sample, 3 * w.per_sample, 1e-12, "per_sample");
    assert_close(f.total, 3 * (w.linear + w.self_attn + w.cross_attn + w.per_text + w.per_sample),
                 1e-12, "total");
    double parts = 0;
    for (int i = 0; i < PARAM_PARTS; i++)
        parts += f.by_part[i];
    assert_close(parts, f.total, 1e-12, "parts");
}

/* With the longest caption, and with the null token in place of one. */
static void assert_walk(const struct model *m, struct seq s)
{
    assert_walk_text(m, s, m->text_len);
    assert_walk_text(m, s, 1);
}

static void reel_against_walk(void **state)
{
    static const char *const names[] = {"dit-tiny",
                                        "dit-xl", "dit-7b", "dit-7b+full", "dit-7b+lora_fused",
                                        "dit-14b", "dit-28b+lora_single",
                                        "dit-28b+none", "cosmos-7b", "moviegen-30b", "wan-14b"};
    static const struct seq extents[] = {{1, 1, 8192}, {32, 48, 48}, {5, 8, 8}, {1, 1, 1}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (size_t k = 0; k < ARRAY_LEN(extents); k++) {
            struct model m = model_of(names[i]);
            assert_walk(&m, extents[k]);
        }
}

static void reel_against_walk_unusual(void **state)
{
    struct model m = model_of("dit-tiny");
    struct seq s = {5, 8, 6};
    (void)state;
    m.kv_heads = 1;
    assert_walk(&m, s);
    m.gated_mlp = true;
    m.ffn = 500;
    m.cond_channels = 1;
    m.patch_t = 2;
    assert_walk(&m, s);
    m.family = MODEL_STDIT;
    assert_walk(&m, s);
    m.text_width = m.text_len = 0;
    assert_walk(&m, s);
    m.family = MODEL_MOVIEGEN;
    m.adaln = ADALN_LORA_SEPARATE;
    m.adaln_rank = 4;
    assert_walk(&m, s);
}

/* A language model's mask is causal: half the pairs; its table is looked up, and multiplied where
 * it is the head too. A head of its own does the same work. */
static void causal(void **state)
{
    struct model m = {.name = "g", .family = MODEL_GPT, .layers = 3, .hidden = 64, .heads = 4,
                      .kv_heads = 4, .ffn = 256, .vocab = 100, .tied_head = true, .patch_t = 1,
                      .patch_h = 1, .patch_w = 1};
    struct flops f;
    struct err err;
    (void)state;
    assert_ok(flops_reel_sample(&m, (struct seq){1, 1, 128}, 0, &f, &err), &err);
    double head = 6.0 * 100 * 64 * 128;
    assert_close(f.linear, 6.0 * 12 * 64 * 64 * 3 * 128 + head, 1e-12, "linear");
    assert_close(f.by_part[PART_HEAD], head, 1e-12, "head");
    assert_true(f.by_part[PART_EMBED] == 0);
    assert_close(f.self_attn, 12.0 * 64 * 3 * 128 * 128 / 2, 1e-12, "self_attn");
    assert_true(f.cross_attn == 0 && f.per_text == 0 && f.per_sample == 0);
    double tied = f.total;
    m.tied_head = false;
    assert_ok(flops_reel_sample(&m, (struct seq){1, 1, 128}, 0, &f, &err), &err);
    assert_true(f.total == tied && f.by_part[PART_HEAD] == head);
}

/* Llama 3 405B's report counts 3.8e25 FLOPs in 15.6 T tokens by 6 N; ours adds attention. */
static void language(void **state)
{
    struct model m = model_of("llama-3-405b");
    struct flops f;
    struct err err;
    (void)state;
    assert_ok(flops_reel_sample(&m, (struct seq){1, 1, 8192}, 0, &f, &err), &err);
    assert_close((f.total - f.self_attn) / 8192 * 15.6e12, 3.8e25, 1e-2, "3.8e25");
    assert_close(f.self_attn / 8192, 6.0 * 8192 * 16384 * 126, 1e-12, "attention");
}

/* A third of what the recomputed layers do is done once more. */
static void computed_again(void **state)
{
    struct model m = {.name = "g", .family = MODEL_GPT, .layers = 8, .hidden = 64, .heads = 4,
                      .kv_heads = 4, .ffn = 256, .vocab = 100, .patch_t = 1, .patch_h = 1,
                      .patch_w = 1};
    static const struct { const char *layout; double layers; } rows[] = {
        {"dp=1", 0}, {"recompute=selective", 0}, {"recompute=full", 8}, {"pp=2,recompute=full", 8},
        {"recompute=full,recompute_layers=2", 2}, {"pp=2,recompute=full,recompute_layers=1", 2},
        {"pp=2,vpp=2,recompute=full,recompute_layers=1", 4},
        {"pp=2,vpp=2,recompute=full,recompute_layers=3", 8}};
    struct flops f;
    struct err err;
    (void)state;
    assert_ok(flops_reel_sample(&m, (struct seq){1, 1, 128}, 0, &f, &err), &err);
    double of_layers = (f.total - f.by_part[PART_HEAD]) / f.total;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct layout l;
        assert_ok(layout_parse(rows[i].layout, &l, &err), &err);
        assert_close(flops_again(&f, &m, &l), of_layers * rows[i].layers / 8 / 3, 1e-12,
                     rows[i].layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seed_rows),
        cmocka_unit_test(seed_against_print),
        cmocka_unit_test(reel_against_walk),
        cmocka_unit_test(reel_against_walk_unusual),
        cmocka_unit_test(causal),
        cmocka_unit_test(language),
        cmocka_unit_test(computed_again),
    };
    return cmocka_run_group_tests_name("profiles_flops", tests, NULL, NULL);
}
