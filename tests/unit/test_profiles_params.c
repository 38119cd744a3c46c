/* The parameter list: published totals, every name and shape of each variant, rules all lists
 * keep. */
#include "tests/lib/test_profiles.h"

#include "profiles/params.h"

static struct model model_of(const char *name)
{
    struct model m;
    struct err err;
    assert_ok(model_load(name, &m, &err), &err);
    return m;
}

static struct param_list list_of(const struct model *m)
{
    struct param_list list;
    struct err err;
    assert_ok(params_build(m, &list, &err), &err);
    return list;
}

/* The published count of this family, in billions: weights of the layers alone, for five
 * modulations. */
static void published_table(void **state)
{
    static const char *const columns[] = {"none", "lora_separate", "lora_fused", "lora_single",
                                          "full"};
    static const struct { int64_t layers, hidden; double billions[5]; } rows[] = {
        {28, 4096, {6.81, 7.16, 7.69, 7.11, 11.04}},
        {36, 5120, {13.59, 14.16, 15.01, 14.06, 22.08}},
        {48, 6144, {25.97, 26.88, 28.24, 26.73, 42.28}},
        {32, 3072, {4.43, 4.73, 5.18, 4.68, 7.15}},
    };
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
            char name[64];
            snprintf(name, sizeof name, "dit-7b+%s", columns[c]);
            struct model m = model_of(name);
            m.layers = rows[r].layers;
            m.hidden = rows[r].hidden;
            m.heads = m.kv_heads = rows[r].hidden / 128;
            m.ffn = 4 * rows[r].hidden;
            struct param_list list = list_of(&m);
            snprintf(name, sizeof name, "%lld x %lld %s", (long long)m.layers, (long long)m.hidden,
                     columns[c]);
            assert_close((double)params_backbone(&list) / 1e9, rows[r].billions[c], 1e-3, name);
            params_release(&list);
        }
}

/* The compiled-in sizes are those rows. */
static void compiled_in_rows(void **state)
{
    static const struct {
        const char *name;
        double billions;
    } rows[] = {
        {"dit-7b", 7.16},
        {"dit-14b", 14.16},
        {"dit-28b", 26.88},
        {"dit-7b+full", 11.04},
        {"dit-28b+lora_fused", 28.24},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model m = model_of(rows[i].name);
        struct param_list list = list_of(&m);
        assert_close((double)params_backbone(&list) / 1e9, rows[i].billions, 1e-3, rows[i].name);
        params_release(&list);
    }
}

/* What the whole list holds beyond the published count, tensor by tensor (dit-7b: D 4096, r 256, c
 * 1024). */
static void outside_the_layers(void **state)
{
    static const struct { const char *name; int64_t count; } rows[] = {
        {"patch_embed.weight", 4096LL * 64},        {"time_mlp.0.weight", 4096LL * 4096},
        {"time_mlp.2.weight", 3LL * 4096 * 4096},   {"fps_mlp.0.weight", 256 * 256},
        {"fps_mlp.2.weight", 256 * 256},            {"cond_norm.weight", 4096},
        {"text_null", 1024},                        {"final.adaln.a.weight", 256 * 4096},
        {"final.adaln.b.weight", 2LL * 4096 * 256}, {"final.out.weight", 64LL * 4096},
    };
    struct model m = model_of("dit-7b");
    struct param_list list = list_of(&m);
    int64_t outside = 0, n_outside = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t at = params_find(&list, rows[i].name);
        assert_true(at >= 0);
        assert_int_equal(list.items[at].count, rows[i].count);
        assert_true(list.items[at].layer < 0);
        outside += rows[i].count;
    }
    for (int64_t i = 0; i < list.n; i++)
        n_outside += list.items[i].layer < 0;
    assert_int_equal(n_outside, ARRAY_LEN(rows));
    assert_int_equal(list.total - params_backbone(&list), outside);
    params_release(&list);
}

/* The whole list of a small model, layer 1 included: names, order, shapes, init, flags and split,
 * for each modulation. */
struct want {
    const char *name;
    int64_t d0, d1;
    enum param_init init;
    unsigned meets;
    enum param_tp tp;
};
enum { TOK = PARAM_PER_TOKEN, SMP = PARAM_PER_SAMPLE, TXT = PARAM_PER_TEXT };
#define NONE PARAM_TP_NONE
#define ROW PARAM_TP_ROW
#define COL PARAM_TP_COL
#define HEADS PARAM_TP_HEADS
#define FRONT(time_out)                                             \
    {"patch_embed.weight", 192, 64, PARAM_XAVIER, TOK, NONE},       \
    {"time_mlp.0.weight", 192, 192, PARAM_NORMAL, SMP, NONE},       \
    {"time_mlp.2.weight", time_out, 192, PARAM_NORMAL, SMP, NONE},  \
    {"fps_mlp.0.weight", 256, 256, PARAM_NORMAL, SMP, NONE},        \
    {"fps_mlp.2.weight", 192, 256, PARAM_NORMAL, SMP, NONE},        \
    {"cond_norm.weight", 192, 0, PARAM_ONE, 0, NONE},               \
    {"text_null", 64, 0, PARAM_NORMAL, 0, NONE}
#define LAYER(n)                                                                    \
    {"blocks." n ".attn.qkv.weight", 576, 192, PARAM_XAVIER, TOK, HEADS},           \
    {"blocks." n ".attn.q_norm.weight", 64, 0, PARAM_ONE, 0, NONE},                 \
    {"blocks." n ".attn.k_norm.weight", 64, 0, PARAM_ONE, 0, NONE},                 \
    {"blocks." n ".attn.out.weight", 192, 192, PARAM_XAVIER, TOK, COL},             \
    {"blocks." n ".cross.q.weight", 192, 192, PARAM_XAVIER, TOK, HEADS},            \
    {"blocks." n ".cross.kv.weight", 384, 64, PARAM_XAVIER, TXT, HEADS},            \
    {"blocks." n ".cross.q_norm.weight", 64, 0, PARAM_ONE, 0, NONE},                \
    {"blocks." n ".cross.k_norm.weight", 64, 0, PARAM_ONE, 0, NONE},                \
    {"blocks." n ".cross.out.weight", 192, 192, PARAM_XAVIER, TOK, COL},            \
    {"blocks." n ".mlp.fc1.weight", 768, 192, PARAM_XAVIER, TOK, ROW},              \
    {"blocks." n ".mlp.fc2.weight", 192, 768, PARAM_XAVIER, TOK, COL}
#define PAIR(prefix, rank, out)                                      \
    {prefix ".a.weight", rank, 192, PARAM_XAVIER, SMP, NONE},        \
    {prefix ".b.weight", out, rank, PARAM_ZERO, SMP, ROW}
#define OUT {"final.out.weight", 64, 192, PARAM_ZERO, TOK, NONE}

static const struct want full[] = {
    FRONT(192), LAYER("0"), {"blocks.0.adaln.weight", 1728, 192, PARAM_ZERO, SMP, ROW},
    LAYER("1"), {"blocks.1.adaln.weight", 1728, 192, PARAM_ZERO, SMP, ROW},
    {"final.adaln.weight", 384, 192, PARAM_ZERO, SMP, ROW}, OUT,
};
#define PAIRS3(n)                                                                                  \
    PAIR("blocks." n ".adaln.attn", 8, 576), PAIR("blocks." n ".adaln.cross", 8, 576),             \
        PAIR("blocks." n ".adaln.mlp", 8, 576)
static const struct want separate[] = {
    FRONT(576), LAYER("0"), PAIRS3("0"), LAYER("1"), PAIRS3("1"), PAIR("final.adaln", 8, 384), OUT,
};
static const struct want fused[] = {
    FRONT(576), LAYER("0"), PAIR("blocks.0.adaln", 24, 1728), LAYER("1"),
    PAIR("blocks.1.adaln", 24, 1728), PAIR("final.adaln", 8, 384), OUT,
};
static const struct want single[] = {
    FRONT(192), LAYER("0"), PAIR("blocks.0.adaln", 8, 1728), LAYER("1"),
    PAIR("blocks.1.adaln", 8, 1728), PAIR("final.adaln", 8, 384), OUT,
};
static const struct want none[] = {
    {"patch_embed.weight", 192, 64, PARAM_XAVIER, TOK, NONE},
    {"text_null", 64, 0, PARAM_NORMAL, 0, NONE}, LAYER("0"), LAYER("1"), OUT,
};
static const struct {
    enum model_adaln adaln;
    int64_t rank;
    const struct want *rows;
    size_t n;
} lists[] = {
    {ADALN_FULL, 0, full, ARRAY_LEN(full)},
    {ADALN_LORA_SEPARATE, 8, separate, ARRAY_LEN(separate)},
    {ADALN_LORA_FUSED, 8, fused, ARRAY_LEN(fused)},
    {ADALN_LORA_SINGLE, 8, single, ARRAY_LEN(single)},
    {ADALN_NONE, 0, none, ARRAY_LEN(none)},
};

static void assert_param(const struct param *p, const struct want *w)
{
    bool is_matrix = w->d1 > 0;
    assert_string_equal(p->name, w->name);
    assert_int_equal(p->nd, is_matrix ? 2 : 1);
    assert_int_equal(p->dim[0], w->d0);
    assert_int_equal(p->dim[1], w->d1);
    assert_int_equal(p->count, is_matrix ? w->d0 * w->d1 : w->d0);
    assert_int_equal(p->init, w->init);
    assert_int_equal(p->flags, PARAM_TRAINABLE | (is_matrix ? PARAM_DECAY : 0) | w->meets);
    assert_int_equal(p->tp, w->tp);
    assert_true(p->lr_scale == 1.0);
    assert_true(p->init != PARAM_NORMAL || p->init_std == 0.02);
}

static void whole_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        struct model m = model_of("dit-tiny");
        m.layers = 2;
        m.adaln = lists[i].adaln;
        m.adaln_rank = lists[i].rank;
        struct param_list list = list_of(&m);
        int64_t total = 0;
        assert_int_equal(list.n, lists[i].n);
        for (int64_t k = 0; k < list.n; k++) {
            assert_param(&list.items[k], &lists[i].rows[k]);
            assert_int_equal(params_find(&list, list.items[k].name), k); /* names are unique */
            total += list.items[k].count;
        }
        assert_int_equal(list.total, total);
        assert_int_equal(params_find(&list, "blocks.2.attn.qkv.weight"), -1);
        params_release(&list);
    }
}

/* Grouped queries, a gated MLP and conditioning channels change these shapes and no others. */
static void shapes_follow_fields(void **state)
{
    static const struct { const char *name; int64_t d0, d1; } rows[] = {
        {"patch_embed.weight", 192, 68},      {"blocks.0.attn.qkv.weight", 320, 192},
        {"blocks.0.attn.out.weight", 192, 192}, {"blocks.0.cross.kv.weight", 128, 64},
        {"blocks.0.cross.q.weight", 192, 192},  {"blocks.0.mlp.fc1.weight", 1000, 192},
        {"blocks.0.mlp.fc2.weight", 192, 500},  {"final.out.weight", 64, 192},
    };
    struct model m = model_of("dit-tiny");
    (void)state;
    m.kv_heads = 1;
    m.gated_mlp = true;
    m.ffn = 500;
    m.cond_channels = 1;
    struct param_list list = list_of(&m);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t at = params_find(&list, rows[i].name);
        assert_true(at >= 0);
        assert_int_equal(list.items[at].dim[0], rows[i].d0);
        assert_int_equal(list.items[at].dim[1], rows[i].d1);
    }
    params_release(&list);
}

/* Position tables follow the patch embedding; they are looked up, no token's product. */
static void position_tables(void **state)
{
    static const struct want rows[] = {{"pos_t.weight", 9, 192, PARAM_NORMAL, 0, PARAM_TP_NONE},
                                       {"pos_h.weight", 5, 192, PARAM_NORMAL, 0, PARAM_TP_NONE},
                                       {"pos_w.weight", 7, 192, PARAM_NORMAL, 0, PARAM_TP_NONE}};
    struct model m = model_of("dit-tiny");
    (void)state;
    struct param_list without = list_of(&m);
    m.pos_t = 9, m.pos_h = 5, m.pos_w = 7;
    struct param_list list = list_of(&m);
    for (int i = 0; i < 3; i++) {
        assert_param(&list.items[i + 1], &rows[i]);
        assert_int_equal(list.items[i + 1].layer, PARAM_LAYER_EMBED);
        assert_int_equal(list.items[i + 1].part, PART_EMBED);
    }
    assert_int_equal(list.n, without.n + 3);
    assert_int_equal(list.total, without.total + 21 * 192);
    params_release(&list);
    params_release(&without);
}

/* Without text: no cross-attention, two modulated sub-blocks, no null token. */
static void without_text(void **state)
{
    struct model m = model_of("dit-tiny");
    (void)state;
    m.text_width = m.text_len = 0;
    struct param_list list = list_of(&m);
    assert_int_equal(params_find(&list, "text_null"), -1);
    assert_int_equal(params_find(&list, "blocks.0.cross.q.weight"), -1);
    assert_int_equal(list.items[params_find(&list, "blocks.0.adaln.weight")].dim[0], 6 * 192);
    params_release(&list);
}

/* Published totals: exact where the source gives every weight, else as near as what we leave out
 * (biases, learned positions, an MLP on the text). */
static void published_totals(void **state)
{
    static const struct { const char *name; double total, tolerance; } rows[] = {
        {"llama-3-8b", 8030261248.0, 0},      /* of the published weights' index */
        {"llama-3-70b", 70553706496.0, 0},
        {"llama-3-405b", 405853388800.0, 0},
        {"gpt-3-175b", 174600e6, 5e-4},       /* arXiv 2005.14165, table D.1 */
        {"wan-14b", 14288491584.0, 2e-3},     /* Wan 2.1 T2V-14B */
        {"cosmos-7b", 7.2e9, 1e-2},
        {"cosmos-14b", 14.2e9, 1e-2},
        /* NeMo's layers: 2D²(1 + g/a) + 3DF, cross-attention's 2D² and 2·1024·g·128, AdaLN 6D²;
         * 0.7 % lie outside them */
        {"moviegen-5b", 32 * (25165824.0 + 75497472 + 18874368 + 2097152 + 56623104), 7e-3},
        {"moviegen-30b", 48 * (88080384.0 + 301989888 + 75497472 + 2097152 + 226492416), 7e-3},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model m = model_of(rows[i].name);
        struct param_list list = list_of(&m);
        assert_close((double)list.total, rows[i].total, rows[i].tolerance, rows[i].name);
        params_release(&list);
    }
}

/* Wan 2.1 T2V-14B to the last weight, from its published code: the MLP on text is there, biases and
 * the wider gains are left out, and what ours has besides is counted. */
static void wan_by_hand(void **state)
{
    struct model m = model_of("wan-14b");
    struct param_list list = list_of(&m);
    int64_t D = 5120, F = 13824, published = 14288491584;
    int64_t layer = 8 * D + (F + D) + 2 * D + (4 * D - 4 * 128); /* biases, a norm, Q and K norms */
    int64_t outside = D + 2 * D + 2 * D + 6 * D + 64;            /* biases */
    int64_t more = D * (D - 256) + 2 * 256 * 256 + 2 * D; /* sinusoid, frame rate, norm, null token */
    (void)state;
    assert_int_equal(list.items[params_find(&list, "text_mlp.0.weight")].count, 4096 * D);
    assert_int_equal(list.items[params_find(&list, "text_mlp.2.weight")].count, D * D);
    assert_int_equal(list.total, published - 40 * layer - outside + more);
    params_release(&list);
}

/* One modulation for all layers: a matrix outside, a vector in each; cross-attention has none. */
static void global_modulation(void **state)
{
    struct model m = model_of("wan-14b");
    struct param_list list = list_of(&m);
    int64_t D = 5120, at = params_find(&list, "adaln.global.weight");
    (void)state;
    assert_true(at >= 0 && list.items[at].count == 6 * D * D &&
                list.items[at].layer == PARAM_LAYER_COND);
    assert_int_equal(list.items[params_find(&list, "blocks.39.adaln.table")].count, 6 * D);
    assert_int_equal(list.items[params_find(&list, "final.adaln.table")].count, 2 * D);
    assert_int_equal(params_backbone(&list), 40 * (8 * D * D + 2 * D * 13824 + 6 * D + 4 * 128));
    params_release(&list);
    m = model_of("dit-7b");
    m.cross_plain = true;
    list = list_of(&m);
    assert_int_equal(params_find(&list, "blocks.0.adaln.cross.a.weight"), -1);
    params_release(&list);
}

/* The planning families: 12 h² a layer for gpt; llama's gated MLP and grouped K/V; stdit's two more
 * attentions. */
static void planning_families(void **state)
{
    struct model m = {.name = "g", .family = MODEL_GPT, .layers = 2, .hidden = 64, .heads = 4,
                      .kv_heads = 4, .ffn = 256, .vocab = 100, .tied_head = true, .patch_t = 1,
                      .patch_h = 1, .patch_w = 1};
    (void)state;
    struct param_list list = list_of(&m);
    assert_int_equal(list.items[0].flags & (PARAM_TIED | PARAM_PER_TOKEN), PARAM_TIED);
    assert_int_equal(params_backbone(&list), 2 * (12 * 64 * 64 + 2 * 64));
    assert_int_equal(list.total - params_backbone(&list), 100 * 64 + 64);
    params_release(&list);

    m.family = MODEL_LLAMA;
    m.tied_head = false;
    m.kv_heads = 2;
    m.gated_mlp = true;
    list = list_of(&m);
    assert_int_equal(params_backbone(&list), 2 * (2 * 64 * 64 * 3 / 2 + 3 * 64 * 256 + 2 * 64));
    assert_int_equal(list.total - params_backbone(&list), 2 * 100 * 64 + 64);
    params_release(&list);

    m = model_of("dit-tiny");
    list = list_of(&m);
    int64_t plain = params_backbone(&list) / m.layers;
    params_release(&list);
    m.family = MODEL_STDIT;
    list = list_of(&m);
    assert_int_equal(params_backbone(&list) / m.layers - plain,
                     2 * (4 * 192 * 192 + 2 * 64 + 3 * 192 * 192));
    params_release(&list);
}

static void refused(void **state)
{
    struct model m = model_of("dit-tiny");
    struct param_list list = {0};
    struct err err;
    (void)state;
    m.heads = 5;
    assert_fails(params_build(&m, &list, &err), ERR_INPUT, &err, "heads must divide hidden");
    m = model_of("dit-tiny");
    m.hidden = (int64_t)1 << 40;
    m.heads = m.kv_heads = 1;
    assert_fails(params_build(&m, &list, &err), ERR_LIMIT, &err, "more than 2^63 parameters");
    assert_null(list.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_table), cmocka_unit_test(compiled_in_rows),
        cmocka_unit_test(published_totals), cmocka_unit_test(wan_by_hand), cmocka_unit_test(global_modulation),
        cmocka_unit_test(outside_the_layers), cmocka_unit_test(whole_lists),
        cmocka_unit_test(shapes_follow_fields), cmocka_unit_test(position_tables),
        cmocka_unit_test(without_text), cmocka_unit_test(planning_families),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("profiles_params", tests, NULL, NULL);
}
