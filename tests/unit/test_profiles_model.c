/* Models: the compiled-in ones, variants, strict reading, the canonical text, extents. */
#include "tests/lib/test_profiles.h"

#include "profiles/model.h"
#include "tests/lib/scratch.h"

static void compiled_in(void **state)
{
    static const struct {
        const char *name;
        int64_t layers, hidden, heads;
    } sizes[] = {
        {"dit-tiny", 4, 192, 3},   {"dit-s", 12, 384, 6},     {"dit-b", 12, 768, 12},
        {"dit-l", 24, 1024, 16},   {"dit-xl", 28, 1152, 16},  {"dit-7b", 28, 4096, 32},
        {"dit-14b", 36, 5120, 40}, {"dit-28b", 48, 6144, 48},
    };
    const char *const *names;
    struct err err;
    (void)state;
    assert_int_equal(model_names(&names), ARRAY_LEN(sizes) + 13); /* and others */
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct model m;
        assert_ok(model_load(sizes[i].name, &m, &err), &err);
        assert_string_equal(m.name, sizes[i].name);
        assert_int_equal(m.layers, sizes[i].layers);
        assert_int_equal(m.hidden, sizes[i].hidden);
        assert_int_equal(m.heads, sizes[i].heads);
        assert_int_equal(m.kv_heads, sizes[i].heads);
        assert_int_equal(m.ffn, 4 * sizes[i].hidden);
        assert_int_equal(model_patch_cells(&m), 4);
        assert_int_equal(m.latent_channels, 16);
        bool tiny = i == 0;
        assert_int_equal(m.text_width, tiny ? 64 : 1024);
        assert_int_equal(m.text_len, tiny ? 16 : 512);
    }
}

static void other_families(void **state)
{
    struct model m;
    struct err err;
    (void)state;
    assert_ok(model_load("stdit-tiny", &m, &err), &err);
    assert_true(m.family == MODEL_STDIT && m.layers == 4 && m.hidden == 192 && m.heads == 4 &&
                m.kv_heads == 4 && m.adaln == ADALN_LORA_SINGLE);
    assert_ok(model_load("moviegen-tiny", &m, &err), &err);
    assert_true(m.family == MODEL_MOVIEGEN && m.layers == 4 && m.hidden == 192 && m.heads == 4 &&
                m.kv_heads == 2 && m.pos_h == 16);
    assert_ok(model_load("stdit-xl", &m, &err), &err);
    assert_true(m.family == MODEL_STDIT && m.layers == 28 && m.hidden == 1152 && m.heads == 16 &&
                m.kv_heads == 16 && m.ffn == 4608);
    assert_true(!m.gated_mlp && !model_has_tables(&m) && !model_rms_norm(&m) &&
                model_modulations(&m) == 5);
    assert_ok(model_load("moviegen-1b", &m, &err), &err);
    assert_true(m.family == MODEL_MOVIEGEN && m.layers == 16 && m.hidden == 2048 && m.heads == 32 &&
                m.kv_heads == 8 && m.ffn == 8192);
    assert_true(m.gated_mlp && model_has_tables(&m) && model_rms_norm(&m) && m.pos_t == 128 &&
                m.pos_h == 120 && m.pos_w == 120);
}

static void variants(void **state)
{
    static const struct {
        const char *name;
        enum model_adaln adaln;
        int64_t rank;
    } good[] = {
        {"dit-7b", ADALN_LORA_SEPARATE, 256},
        {"dit-7b+none", ADALN_NONE, 0},
        {"dit-7b+full", ADALN_FULL, 0},
        {"dit-7b+lora_separate", ADALN_LORA_SEPARATE, 256},
        {"dit-14b+lora_fused", ADALN_LORA_FUSED, 256},
        {"dit-28b+lora_single", ADALN_LORA_SINGLE, 256},
        {"dit-b", ADALN_FULL, 0},
        {"dit-b+lora_separate", ADALN_LORA_SEPARATE, 256},
    };
    static const struct { const char *name, *says; } bad[] = {
        {"dit-7c", "did you mean 'dit-7b'?"},
        {"", "there is no model ''"},
        {"+full", "there is no model ''"},
        {"dit-7b+lora_fuse", "did you mean lora_fused"},
        {"dit-7b+", "'' is no AdaLN variant"},
        {"dit-7b+full+none", "is no AdaLN variant"},
        {"gpus/h100-sxm", "gpus/h100-sxm"},
        {"missing.json", "missing.json"},
    };
    struct err err;
    struct model m;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_ok(model_load(good[i].name, &m, &err), &err);
        assert_string_equal(m.name, good[i].name);
        assert_int_equal(m.adaln, good[i].adaln);
        assert_int_equal(m.adaln_rank, good[i].rank);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct model before = m;
        int rc = model_load(bad[i].name, &m, &err);
        assert_true(rc < 0);
        assert_int_equal(err_exit_code(rc), rc == ERR_IO ? 5 : 3);
        assert_says(&err, bad[i].says);
        assert_memory_equal(&before, &m, sizeof m);
    }
}

/* A whole profile with one piece replaced. */
#define HEAD "{\"schema\": \"reel.model/1\", \"name\": \"x\", \"family\": \"dit\", "
#define SIZE "\"layers\": 2, \"hidden\": 64, \"heads\": 4, "
static const struct {
    const char *text, *says;
} bad_texts[] = {
    {"{\"schema\": \"reel.gpu/1\"}",
     "m.json: schema is 'reel.gpu/1': give a file of schema 'reel.model/1'"},
    {HEAD SIZE "\"latent_channels\": 16, \"layer\": 3}",
     "m.json: layer is not a known key: did you mean 'layers'?"},
    {HEAD "\"layers\": 0, \"hidden\": 64, \"heads\": 4, \"latent_channels\": 16}",
     "layers is 0: give an integer from 1 to 4096"},
    {HEAD "\"layers\": 2.5, \"hidden\": 64, \"heads\": 4, \"latent_channels\": 16}",
     "layers is 2.5"},
    {HEAD "\"hidden\": 64, \"heads\": 4, \"latent_channels\": 16}", "layers is missing"},
    {HEAD "\"layers\": 2, \"hidden\": 64, \"heads\": 5, \"latent_channels\": 16}",
     "heads must divide hidden"},
    {HEAD "\"layers\": 2, \"hidden\": 60, \"heads\": 4, \"latent_channels\": 16}", "must be even"},
    {HEAD SIZE "\"kv_heads\": 3, \"latent_channels\": 16}", "kv_heads must divide heads"},
    {HEAD SIZE "\"text_width\": 8, \"latent_channels\": 16}",
     "text_width and text_len go together"},
    {HEAD SIZE "\"text_len\": 8, \"latent_channels\": 16}", "text_width and text_len go together"},
    {HEAD SIZE "\"adaln\": \"lora_fused\", \"latent_channels\": 16}",
     "adaln_rank belongs to the lora forms"},
    {HEAD SIZE "\"adaln\": \"full\", \"adaln_rank\": 8, \"latent_channels\": 16}",
     "adaln_rank belongs to the lora forms"},
    {HEAD SIZE "\"adaln\": \"lora\", \"latent_channels\": 16}",
     "adaln is \"lora\": give one of none, full"},
    {HEAD SIZE "\"patch_h\": 0, \"latent_channels\": 16}", "patch_h is 0"},
    {HEAD SIZE "\"rope_theta\": \"10000\", \"latent_channels\": 16}",
     "rope_theta is \"10000\": give a number"},
    {HEAD "\"layers\": 2, \"hidden\": 64, \"heads\": 4}",
     "latent_channels belongs to the video families"},
    {HEAD SIZE "\"latent_channels\": 16, \"tied_head\": true}", "tied_head belongs to gpt and llama"},
    {HEAD SIZE "\"latent_channels\": 16, \"text_in\": 64}", "text_in needs text_width"},
    {HEAD SIZE "\"latent_channels\": 16, \"cross_plain\": true}",
     "cross_plain needs cross-attention"},
    {HEAD SIZE "\"latent_channels\": 16, \"vocab\": 7}", "vocab belongs to gpt and llama"},
    {"{\"schema\": \"reel.model/1\", \"name\": \"g\", \"family\": \"gpt\", " SIZE
     "\"vocab\": 100, \"adaln\": \"full\"}",
     "gpt and llama have no AdaLN"},
    {HEAD SIZE "\"latent_channels\": 16, \"pos_t\": 4, \"pos_h\": 4}",
     "pos_t, pos_h and pos_w go together"},
    {HEAD SIZE "\"latent_channels\": 16, \"pos_w\": 4}", "pos_t, pos_h and pos_w go together"},
    {HEAD SIZE "\"latent_channels\": 16, \"pos_w\": -1}", "pos_w is -1"},
    {"{\"schema\": \"reel.model/1\", \"name\": \"g\", \"family\": \"gpt\", " SIZE
     "\"vocab\": 100, \"pos_t\": 1, \"pos_h\": 1, \"pos_w\": 1}",
     "in the video families"},
    {"{\"schema\": \"reel.model/1\", \"name\": \"\", \"family\": \"dit\", " SIZE
     "\"latent_channels\": 16}",
     "name has 0 bytes"},
    {"{\"schema\": \"reel.model/1\", \"name\": \"a\\nb\", \"family\": \"dit\", " SIZE
     "\"latent_channels\": 16}",
     "with a control character as byte 2"},
};

static void refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_texts); i++) {
        struct json_doc doc = {0};
        struct err err;
        struct model m;
        assert_ok(json_parse(bad_texts[i].text, strlen(bad_texts[i].text), "m.json", &doc, &err),
                  &err);
        int rc = json_check_schema(&doc, "reel.model/1", &err);
        if (rc == 0)
            rc = model_read(&doc, doc.root, "", &m, &err);
        assert_fails(rc, ERR_INPUT, &err, bad_texts[i].says);
        assert_says(&err, "m.json");
        json_release(&doc);
    }
}

/* What is written reads back equal, from a file too; hashes tell descriptions apart. */
static void round_trip(void **state)
{
    static const char *const names[] = {"dit-tiny", "dit-7b+lora_fused", "dit-xl+none",
                                        "moviegen-1b", "wan-14b", "gpt-3-175b", "llama-3-8b"};
    struct hash128 seen[ARRAY_LEN(names)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct model m, back;
        struct err err;
        struct str s = STR_INIT;
        struct json_out o;
        const char *path = in_scratch("m.json");
        assert_ok(model_load(names[i], &m, &err), &err);
        m.cond_channels = model_is_video(&m);
        m.rope_theta = 12345.678;
        m.gated_mlp = true;
        json_out_init(&o, &s, 2);
        model_write(&m, &o, NULL);
        assert_ok(file_publish(path, s.p, s.len, &err), &err);
        assert_ok(model_load(path, &back, &err), &err);
        assert_memory_equal(&m, &back, sizeof m);
        seen[i] = model_hash(&m);
        struct hash128 again = model_hash(&back);
        assert_memory_equal(&seen[i], &again, sizeof again);
        for (size_t j = 0; j < i; j++)
            assert_true(seen[j].lo != seen[i].lo);
        str_release(&s);
    }
}

static void extents(void **state)
{
    static const struct {
        const char *text;
        struct seq want;
    } good[] = {
        {"8192", {1, 1, 8192}},
        {"5x8x8", {5, 8, 8}},
        {"1", {1, 1, 1}},
        {"2147483647", {1, 1, 2147483647}},
        {"1048576x1x2", {1048576, 1, 2}},
    };
    static const char *const bad[] = {"",
                                      "0", "-1", "5x8", "5x8x8x8", "5x8x", "x8x8", "5x0x8", "8192 ",
                                      " 8192", "8k", "2147483648", "99999999999999999999",
                                      "65536x65536x65536", "1e3",
                                      "1048577x1x1", "1x1048577x2",
                                      "5X8X8"};
    struct err err;
    struct seq s = {7, 7, 7};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_ok(seq_parse(good[i].text, "--seq", &s, &err), &err);
        assert_memory_equal(&s, &good[i].want, sizeof s);
    }
    s = (struct seq){7, 7, 7};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_fails(seq_parse(bad[i], "--seq", &s, &err), ERR_INPUT, &err, "--seq is '");
        assert_int_equal(seq_tokens(s), 343);
    }
}

static void latent_to_tokens(void **state)
{
    static const struct {
        int64_t t, h, w, tokens;
    } rows[] = {
        {5, 16, 16, 320}, {1, 2, 2, 1},   {32, 96, 96, 73728}, {5, 15, 16, 0},
        {5, 16, 15, 0},   {0, 16, 16, 0}, {5, -2, 16, 0},
    };
    struct model m;
    struct err err;
    (void)state;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct seq s;
        int rc = seq_from_latent(&m, rows[i].t, rows[i].h, rows[i].w, &s, &err);
        if (rows[i].tokens)
            assert_int_equal(seq_tokens(s), rows[i].tokens);
        else
            assert_fails(rc, ERR_INPUT, &err, "give multiples of the patch");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_in), cmocka_unit_test(other_families),
        cmocka_unit_test(variants),
        cmocka_unit_test(refused),
        cmocka_unit_test_setup_teardown(round_trip, scratch_setup, scratch_teardown),
        cmocka_unit_test(extents),
        cmocka_unit_test(latent_to_tokens),
    };
    return cmocka_run_group_tests_name("profiles_model", tests, NULL, NULL);
}
