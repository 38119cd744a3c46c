/* Layouts: both spellings, each rule met from both sides, who gets which samples. */
#include "tests/lib/test_profiles.h"

#include "profiles/layout.h"

/* ---- text ---- */

static void brief(void **state)
{
    static const struct {
        const char *text, *brief;
    } rows[] = {
        {"", "dp=1 zero=0 mbs=1 recompute=none"},
        {"dp=4,zero=1,recompute=full", "dp=4 zero=1 mbs=1 recompute=full"},
        {"tp=2,sp=1,cp=2,cp_kind=a2a,pp=2,vpp=2,zero=3,fsdp=2,recompute=full,recompute_layers=1",
         "tp=2 sp=1 cp=2 cp_kind=a2a pp=2 vpp=2 dp=1 zero=3 fsdp=2 mbs=1 recompute=full "
         "recompute_layers=1"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct layout l;
        struct err err;
        struct str text = STR_INIT;
        assert_ok(layout_parse(rows[i].text, &l, &err), &err);
        layout_brief(&l, &text);
        assert_string_equal(text.p, rows[i].brief);
        str_release(&text);
    }
}

static void parse_good(void **state)
{
    static const struct {
        const char *text, *canonical;
    } rows[] = {
        {"", "tp=1,sp=0,cp=1,cp_kind=ring,pp=1,vpp=1,dp=1,zero=0,fsdp=0,mbs=1,recompute=none,"
             "recompute_layers=0"},
        {"tp=2,dp=4,zero=1,recompute=full", "tp=2,sp=0,cp=1,cp_kind=ring,pp=1,vpp=1,dp=4,zero=1,"
                                            "fsdp=0,mbs=1,recompute=full,recompute_layers=0"},
        {"recompute_layers=3,recompute=full,mbs=7,fsdp=2,zero=3,dp=8,vpp=2,pp=4,cp_kind=2d,cp=4,sp="
         "1,tp=8",
         "tp=8,sp=1,cp=4,cp_kind=2d,pp=4,vpp=2,dp=8,zero=3,fsdp=2,mbs=7,recompute=full,recompute_"
         "layers=3"},
        {"cp=2,cp_kind=a2a,recompute=selective",
         "tp=1,sp=0,cp=2,cp_kind=a2a,pp=1,vpp=1,dp=1,zero=0,fsdp=0,mbs=1,recompute=selective,"
         "recompute_layers=0"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct layout l, back;
        struct err err;
        struct str s = STR_INIT;
        assert_ok(layout_parse(rows[i].text, &l, &err), &err);
        layout_format(&l, &s);
        assert_string_equal(s.p, rows[i].canonical);
        assert_ok(layout_parse(s.p, &back, &err), &err);
        str_clear(&s);
        layout_format(&back, &s);
        assert_string_equal(s.p, rows[i].canonical);
        str_release(&s);
    }
}

static void parse_bad(void **state)
{
    static const struct { const char *text, *says; } rows[] = {
        {"tp", "tp has no value: give tp=VALUE"},
        {"tp=", "layout: tp is ''"},
        {"tp=0", "layout: tp is 0: give 1 to 1048576"},
        {"tp=-1", "tp is -1"},
        {"tp=2x", "tp is '2x'"},
        {"dp=1048577", "dp is 1048577: give 1 to"},
        {"zero=4", "zero is 4: give 0 to 3"},
        {"sp=2", "sp is 2: give 0 to 1"},
        {"tp=2,tp=2", "tp is given twice"},
        {"recompute=all", "recompute is 'all': give one of none, selective, full"},
        {"recompute_layer=1", "did you mean recompute_layers"},
        {"tp=2,", "'' is no key"},
        {",tp=2", "'' is no key"},
        {"tp=2 dp=3", "tp is '2 dp=3'"},
        {"TP=2", "'TP' is no key"},
    };
    struct layout l = layout_default();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        l.tp = 77;
        assert_fails(layout_parse(rows[i].text, &l, &err), ERR_INPUT, &err, rows[i].says);
        assert_int_equal(l.tp, 77);
    }
}

/* Layouts that differ in one key are not equal. */
static void equal(void **state)
{
    static const char *const others[] = {
        "tp=4", "sp=1", "cp=2", "cp_kind=2d", "pp=2", "vpp=2", "dp=3", "zero=1", "fsdp=2", "mbs=2",
        "recompute=full", "recompute_layers=1", "dp=2,tp=2,order=dp-tp-cp-pp"};
    struct layout l, other;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        const char *from = strstr(others[i], "order") ? "dp=2,tp=2" : "";
        assert_ok(layout_parse(from, &l, &err), &err);
        assert_ok(layout_parse(others[i], &other, &err), &err);
        if (layout_equal(&l, &other) || !layout_equal(&l, &l) || !layout_equal(&other, &other))
            fail_msg("'%s' and '%s'", from, others[i]);
    }
}

static void json_both_ways(void **state)
{
    static const struct { const char *text, *says; } bad[] = {
        {"{\"tp\": 2, \"ttp\": 3}", "layout.ttp is not a known key"},
        {"{\"tp\": 0}", "layout.tp is 0"},
        {"{\"cp_kind\": \"star\"}", "layout.cp_kind is \"star\""},
        {"[]", "layout is an array"},
        {"\"tp=0\"", "t: layout: tp is 0"},
        {"\"dq=2\"", "t: layout: 'dq' is no key"},
    };
    static const char of_before[] =
        "{\"tp\": 2, \"sp\": 1, \"cp\": 4, \"cp_kind\": \"2d\", \"pp\": 3, \"vpp\": 2, \"dp\": 5, "
        "\"zero\": 2, \"fsdp\": 10, \"mbs\": 3, \"recompute\": \"full\", \"recompute_layers\": 9}";
    struct layout l, back;
    struct err err;
    struct str s = STR_INIT, a = STR_INIT, b = STR_INIT;
    struct json_out o;
    struct json_doc doc = {0};
    (void)state;
    assert_ok(layout_parse("tp=2,sp=1,cp=4,cp_kind=2d,pp=3,vpp=2,dp=5,zero=2,fsdp=10,mbs=3,"
                           "recompute=full,recompute_layers=9", &l, &err),
              &err);
    json_out_init(&o, &s, 0);
    layout_write(&l, &o, NULL);
    assert_ok(json_parse(s.p, s.len, "t", &doc, &err), &err);
    assert_ok(layout_read(&doc, doc.root, "layout", &back, &err), &err);
    layout_format(&l, &a);
    layout_format(&back, &b);
    assert_string_equal(a.p, b.p);
    json_release(&doc);
    assert_ok(json_parse(of_before, strlen(of_before), "t", &doc, &err), &err);
    assert_ok(layout_read(&doc, doc.root, "layout", &back, &err), &err);
    assert_true(layout_equal(&l, &back));
    json_release(&doc);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_ok(json_parse(bad[i].text, strlen(bad[i].text), "t", &doc, &err), &err);
        assert_fails(layout_read(&doc, doc.root, "layout", &back, &err), ERR_INPUT, &err,
                     bad[i].says);
        json_release(&doc);
    }
    str_release(&s);
    str_release(&a);
    str_release(&b);
}

/* ---- rules: 12 heads of 16, 4 K/V heads, ffn 96, 6 layers, extent 1 x 4 x 4 ---- */

static const struct model small = {.name = "small", .family = MODEL_DIT, .layers = 6, .hidden = 192,
                                   .heads = 12, .kv_heads = 4, .ffn = 96, .patch_t = 1,
                                   .patch_h = 1, .patch_w = 1, .latent_channels = 4};

static const struct { const char *layout; int64_t gbs, world; const char *rule; } cases[] = {
    {"", 1, 1, NULL},
    {"dp=4", 4, 4, NULL},
    {"dp=4", 7, 4, NULL}, /* uneven shares */
    {"dp=2", 0, 2, "ranges"},
    {"dp=4", 8, 8, "world-is-product"},
    {"tp=2,cp=2,pp=2,dp=2", 8, 16, NULL},
    {"tp=2,cp=2,pp=2,dp=2", 8, 15, "world-is-product"},
    {"tp=4", 1, 4, NULL},
    {"tp=5", 1, 5, "tp-divides-heads"},
    {"tp=12", 1, 12, NULL}, /* each K/V head on three ranks */
    {"tp=6", 1, 6, "tp-fits-kv-heads"},
    {"tp=3", 1, 3, "tp-fits-kv-heads"},
    {"tp=2,sp=1", 1, 2, NULL},
    {"sp=1", 1, 1, "sp-needs-tp"},
    {"cp=16", 1, 16, NULL},
    {"cp=5", 1, 5, NULL}, /* near-equal spans */
    {"cp=17", 1, 17, "tokens-for-cp"},
    {"tp=2,sp=1,cp=8", 1, 16, NULL},
    {"tp=2,sp=1,cp=9", 1, 18, "tokens-for-sp"},
    {"tp=2,cp=9", 1, 18, NULL},
    {"cp_kind=a2a", 1, 1, "cp-kind-needs-cp"},
    {"cp_kind=2d", 1, 1, "cp-kind-needs-cp"},
    {"cp=4,cp_kind=a2a", 1, 4, NULL},
    {"tp=2,cp=2,cp_kind=a2a", 1, 4, NULL},
    {"cp=8,cp_kind=a2a", 1, 8, "a2a-divides-heads"},
    {"tp=2,cp=3,cp_kind=a2a", 1, 6, "a2a-divides-heads"}, /* 6 ranks against 4 K/V heads */
    {"cp=4,cp_kind=2d", 1, 4, NULL},
    {"cp=7,cp_kind=2d", 1, 7, "cp-2d-splits"},
    {"cp=2,cp_kind=2d", 1, 2, "cp-2d-splits"},
    {"pp=6", 1, 6, NULL},
    {"pp=4", 1, 4, NULL}, /* uneven stages */
    {"pp=7", 1, 7, "layers-for-pp"},
    {"pp=3,vpp=2", 1, 3, NULL},
    {"pp=3,vpp=3", 1, 3, "layers-for-pp"},
    {"vpp=2", 1, 1, "vpp-needs-pp"},
    {"dp=5", 4, 5, "sample-for-dp"},
    {"dp=2,mbs=2", 4, 2, NULL},
    {"dp=2,mbs=3", 4, 2, "mbs-within-share"},
    {"dp=2,mbs=3", 5, 2, NULL}, /* the larger share is 3 */
    {"dp=4,zero=3,fsdp=2", 4, 4, NULL},
    {"dp=2,cp=3,zero=3,fsdp=6", 4, 6, NULL},
    {"dp=2,cp=3,zero=3", 4, 6, NULL},
    {"dp=4,zero=3,fsdp=3", 4, 4, "fsdp-divides-dp-cp"},
    {"dp=4,zero=3,fsdp=8", 4, 4, "fsdp-divides-dp-cp"},
    {"recompute=full,recompute_layers=6", 1, 1, NULL},
    {"recompute=selective,recompute_layers=1", 1, 1, "recompute-count-with-full"},
    {"recompute_layers=1", 1, 1, "recompute-count-with-full"},
    {"recompute=full,recompute_layers=7", 1, 1, "recompute-within-layers"},
    {"tp=1048576,cp=1048576,pp=1048576,dp=1048576", 1, 1, "world-is-product"},
};

static int rule_index(const char *name)
{
    for (int i = 0; i < layout_rule_count(); i++)
        if (strcmp(layout_rule_name(i), name) == 0)
            return i;
    fail_msg("there is no rule %s", name);
    return -1;
}

static void rules(void **state)
{
    struct seq s = {1, 4, 4};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct layout l;
        struct err err;
        assert_ok(layout_parse(cases[i].layout, &l, &err), &err);
        int rc = layout_check(&l, &small, s, cases[i].gbs, cases[i].world, &err);
        if (!cases[i].rule) {
            assert_ok(rc, &err);
            continue;
        }
        int rule = rule_index(cases[i].rule);
        assert_fails(rc, ERR_INPUT, &err, cases[i].rule);
        assert_says(&err, layout_rule_sentence(rule));
        assert_says(&err, "model small");
        assert_int_equal(layout_broken_rule(&l, &small, s, cases[i].gbs, cases[i].world), rule);
    }
}

/* A layout that breaks the rule the small model cannot, and then: every rule is met by some
 * case. */
static void every_rule_is_met(void **state)
{
    struct model m = small;
    struct layout l;
    struct err err;
    struct seq s = {1, 4, 4};
    (void)state;
    m.ffn = 98;
    assert_ok(layout_parse("tp=4", &l, &err), &err);
    assert_fails(layout_check(&l, &m, s, 1, 4, &err), ERR_INPUT, &err, "tp-divides-ffn");
    m = (struct model){.name = "g", .family = MODEL_GPT, .layers = 2, .hidden = 64, .heads = 4,
                       .kv_heads = 4, .ffn = 256, .vocab = 101, .patch_t = 1, .patch_h = 1,
                       .patch_w = 1};
    assert_ok(layout_check(&l, &m, s, 1, 4, &err), &err); /* a vocabulary is padded */
    for (int i = 0; i < layout_rule_count(); i++) {
        bool met = i == rule_index("tp-divides-ffn");
        for (size_t k = 0; k < ARRAY_LEN(cases); k++)
            met |= cases[k].rule && rule_index(cases[k].rule) == i;
        if (!met)
            fail_msg("no case breaks rule %s", layout_rule_name(i));
    }
}

/* ---- samples: what must hold for every gbs, dp and mbs ---- */

static void shares(void **state)
{
    (void)state;
    for (int64_t gbs = 1; gbs <= 40; gbs++)
        for (int64_t dp = 1; dp <= gbs; dp++) {
            struct layout l = layout_default();
            l.dp = dp;
            int64_t next = 0, least = gbs, most = 0;
            for (int64_t r = 0; r < dp; r++) {
                int64_t n = layout_replica_samples(&l, gbs, r);
                assert_int_equal(layout_replica_first(&l, gbs, r), next);
                next += n;
                least = n < least ? n : least;
                most = n > most ? n : most;
            }
            assert_int_equal(next, gbs);
            assert_true(most - least <= 1 && least >= 1);
        }
}

static void micro_batches(void **state)
{
    (void)state;
    for (int64_t gbs = 1; gbs <= 24; gbs++)
        for (int64_t dp = 1; dp <= gbs; dp++)
            for (int64_t mbs = 1; mbs <= gbs; mbs++) {
                struct layout l = layout_default();
                l.dp = dp;
                l.mbs = mbs;
                for (int64_t r = 0; r < dp; r++) {
                    int64_t n = layout_micro_batches(&l, gbs, r), sum = 0;
                    for (int64_t k = 0; k < n; k++) {
                        int64_t size = layout_micro_batch_samples(&l, gbs, r, k);
                        assert_true(size >= 1 && size <= mbs && (size == mbs || k == n - 1));
                        sum += size;
                    }
                    assert_int_equal(sum, layout_replica_samples(&l, gbs, r));
                    /* a short replica's empty ones */
                    assert_int_equal(layout_micro_batch_samples(&l, gbs, r, n), 0);
                }
                assert_true(layout_micro_batches(&l, gbs, 0) >=
                            layout_micro_batches(&l, gbs, dp - 1));
            }
}

/* ---- who stands where ---- */

/* A rank and its place give each other; tp is fastest, then cp, dp, pp; data ranks count cp
 * first. */
static void places(void **state)
{
    struct layout l = layout_default();
    int64_t rank = 0;
    (void)state;
    l.tp = 2, l.cp = 3, l.dp = 4, l.pp = 5;
    for (int64_t pp = 0; pp < 5; pp++)
        for (int64_t dp = 0; dp < 4; dp++)
            for (int64_t cp = 0; cp < 3; cp++)
                for (int64_t tp = 0; tp < 2; tp++, rank++) {
                    struct layout_place p = layout_place(&l, rank);
                    assert_true(p.tp == tp && p.cp == cp && p.dp == dp && p.pp == pp);
                    assert_int_equal(layout_rank(&l, p), rank);
                    assert_int_equal(layout_data_rank(&l, p), rank / 2 % 12);
                }
}

/* Every order gives each rank a place of its own, with the axis that it names first fastest. */
static void orders(void **state)
{
    static const struct layout_place one[] = {{.tp = 1}, {.cp = 1}, {.dp = 1}, {.pp = 1}};
    struct layout l = layout_default();
    (void)state;
    l.tp = 2, l.cp = 3, l.dp = 4, l.pp = 5;
    for (l.order = 0; layout_order_names[l.order]; l.order++) {
        const char *name = layout_order_names[l.order];
        int64_t stride = 1;
        for (int i = 0; i < 4; i++, name += 3) {
            int axis = *name == 't' ? 0 : *name == 'c' ? 1 : *name == 'd' ? 2 : 3;
            assert_int_equal(layout_rank(&l, one[axis]), stride);
            stride *= axis + 2;
        }
        for (int64_t rank = 0; rank < layout_world(&l); rank++) {
            struct layout_place p = layout_place(&l, rank);
            assert_true(p.tp < 2 && p.cp < 3 && p.dp < 4 && p.pp < 5);
            assert_int_equal(layout_rank(&l, p), rank);
        }
    }
    assert_int_equal(l.order, LAYOUT_ORDERS);
}

/* Axes of one rank may stand anywhere: the first of the names that mean the same is taken. */
static void order_names(void **state)
{
    static const struct { const char *text, *name; int orders; } rows[] = {
        {"tp=2,dp=2", "tp-cp-dp-pp", 2},
        {"tp=2,dp=2,order=tp-dp-pp-cp", "tp-cp-dp-pp", 2},
        {"order=pp-dp-cp-tp,tp=4", "tp-cp-dp-pp", 1},
        {"order=pp-dp-cp-tp", "tp-cp-dp-pp", 1},
        {"tp=2,dp=2,order=pp-dp-cp-tp", "cp-dp-tp-pp", 2},
        {"tp=2,dp=2,pp=2,order=tp-pp-dp-cp", "tp-cp-pp-dp", 6},
        {"tp=2,cp=2,dp=2,pp=2,order=pp-dp-cp-tp", "pp-dp-cp-tp", 24},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct layout l;
        struct err err;
        int all[LAYOUT_ORDERS];
        struct str text = STR_INIT;
        assert_ok(layout_parse(rows[i].text, &l, &err), &err);
        assert_string_equal(layout_order_names[l.order], rows[i].name);
        assert_int_equal(layout_orders(&l, all), rows[i].orders);
        assert_int_equal(all[0], 0);
        layout_format(&l, &text);
        assert_int_equal(strstr(text.p, ",order=") != NULL, l.order != 0);
        str_release(&text);
    }
}

/* Runs of layers: all of them, in order, none empty, the longer ones first and by one layer. */
static void chunks_of_layers(void **state)
{
    (void)state;
    for (int64_t pp = 1; pp <= 5; pp++)
        for (int64_t vpp = 1; vpp <= 3; vpp++)
            for (int64_t layers = pp * vpp; layers <= 3 * pp * vpp + 2; layers++) {
                struct layout l = layout_default();
                l.pp = pp, l.vpp = vpp;
                int64_t n = pp * vpp, before = layers;
                assert_int_equal(layout_chunk_first(&l, layers, 0), 0);
                assert_int_equal(layout_chunk_first(&l, layers, n), layers);
                for (int64_t c = 0; c < n; c++) {
                    int64_t has = layout_chunk_first(&l, layers, c + 1) -
                                  layout_chunk_first(&l, layers, c);
                    assert_true(has >= 1 && has <= before &&
                                (has == layers / n || has == layers / n + 1));
                    before = has;
                }
            }
}

static void spans_of_tokens(void **state)
{
    (void)state;
    for (int64_t cp = 1; cp <= 8; cp++)
        for (int64_t tokens = cp; tokens <= 40; tokens++) {
            assert_int_equal(layout_span_first(tokens, cp, 0), 0);
            assert_int_equal(layout_span_first(tokens, cp, cp), tokens);
            for (int64_t r = 0; r < cp; r++) {
                int64_t has = layout_span_first(tokens, cp, r + 1) -
                              layout_span_first(tokens, cp, r);
                assert_true(has == tokens / cp || has == tokens / cp + 1);
            }
        }
}

static void a2a_groups(void **state)
{
    static const struct { const char *layout; int64_t heads, kv_heads, group; } rows[] = {
        {"", 12, 12, 1},
        {"cp=4", 12, 12, 1},
        {"cp=4,cp_kind=a2a", 12, 12, 4},
        {"cp=4,cp_kind=2d", 12, 12, 2},
        {"cp=12,cp_kind=2d", 12, 12, 6},
        {"cp=12,cp_kind=2d", 4, 4, 4},       /* 6 does not divide 4 heads */
        {"cp=12,cp_kind=2d,tp=2", 12, 12, 6},
        {"cp=12,cp_kind=2d,tp=4", 12, 12, 3}, /* 4·6 and 4·4 do not divide 12 */
        {"cp=12,cp_kind=2d", 12, 4, 4},       /* 6 and 4 k/v heads: neither divides the other */
        {"cp=16,cp_kind=2d", 16, 2, 8},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model m = small;
        struct layout l;
        struct err err;
        m.heads = rows[i].heads, m.kv_heads = rows[i].kv_heads;
        assert_ok(layout_parse(rows[i].layout, &l, &err), &err);
        assert_int_equal(layout_a2a_group(&l, &m), rows[i].group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_good), cmocka_unit_test(brief),        cmocka_unit_test(parse_bad),
        cmocka_unit_test(equal),
        cmocka_unit_test(json_both_ways),    cmocka_unit_test(rules),
        cmocka_unit_test(every_rule_is_met), cmocka_unit_test(shares),
        cmocka_unit_test(micro_batches),     cmocka_unit_test(places), cmocka_unit_test(orders),
        cmocka_unit_test(order_names),
        cmocka_unit_test(chunks_of_layers),  cmocka_unit_test(spans_of_tokens),
        cmocka_unit_test(a2a_groups),
    };
    return cmocka_run_group_tests_name("profiles_layout", tests, NULL, NULL);
}
