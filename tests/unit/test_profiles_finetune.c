/* Groups of parameters and adapters: which tensor gets what, their place in a rank's buffers, and
 * what is refused. */
#include "tests/lib/test_profiles.h"

#include "profiles/shard.h"
#include "profiles/finetune.h"

static struct model small(void)
{
    struct model m;
    struct err err;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    m.layers = 3;
    return m;
}

static int read_text(const char *text, struct finetune *t, struct err *err)
{
    struct json_doc doc = {0};
    int rc = json_parse(text, strlen(text), "t.json", &doc, err);
    if (rc == 0)
        rc = finetune_read(&doc, doc.root, t, err);
    json_release(&doc);
    return rc;
}

static struct param_list list_of(const char *text)
{
    struct model m = small();
    struct finetune t;
    struct param_list list;
    struct err err;
    assert_ok(read_text(text, &t, &err), &err);
    assert_ok(finetune_params(&m, &t, &list, &err), &err);
    return list;
}

static const struct param *named(const struct param_list *list, const char *name)
{
    int64_t i = params_find(list, name);
    if (i < 0)
        fail_msg("no '%s'", name);
    return &list->items[i];
}

static void the_first_group_decides(void **state)
{
    struct param_list list = list_of(
        "{\"groups\": [{\"match\": \"blocks.0.attn.out.*\", \"lr_scale\": 3},"
        "{\"match\": \"blocks.*.attn.*\", \"lr_scale\": 0.1, \"decay\": true, \"trainable\": "
        "false},"
        "{\"match\": \"*.fc1.weight\", \"decay\": false}]}");
    (void)state;
    static const struct { const char *name; double lr_scale; unsigned flags; } rows[] = {
        /* and nothing of the second group */
        {"blocks.0.attn.out.weight", 3, PARAM_DECAY | PARAM_TRAINABLE},
        {"blocks.1.attn.out.weight", 0.1, PARAM_DECAY},
        {"blocks.1.attn.q_norm.weight", 0.1, PARAM_DECAY},
        {"blocks.1.cross.q_norm.weight", 1, PARAM_TRAINABLE},
        {"blocks.2.mlp.fc1.weight", 1, PARAM_TRAINABLE},
        {"blocks.2.mlp.fc2.weight", 1, PARAM_TRAINABLE | PARAM_DECAY},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct param *p = named(&list, rows[i].name);
        assert_true(p->lr_scale == rows[i].lr_scale);
        assert_int_equal(p->flags & (PARAM_DECAY | PARAM_TRAINABLE), rows[i].flags);
    }
    params_release(&list);
}

#define LORA                                                                                       \
    "\"lora\": {\"rank\": 4, \"alpha\": 8, \"match\": [\"blocks.*.attn.*\", "                      \
    "\"blocks.2.mlp.fc2.weight\"]}"

static void adapters_follow_their_base(void **state)
{
    struct param_list list = list_of("{" LORA
                                     ", \"groups\": [{\"match\": \"final.*\", \"trainable\": "
                                     "true}, {\"match\": \"*.lora_b\", \"lr_scale\": 16}]}");
    struct param_list plain;
    struct model m = small();
    struct err err;
    int64_t adapters = 0, elements = 0;
    (void)state;
    assert_ok(params_build(&m, &plain, &err), &err);
    for (int64_t i = 0; i < list.n; i++) {
        const struct param *p = &list.items[i], *base = p - (p->lora == PARAM_LORA_A ? 1 : 2);
        bool trained = p->lora != PARAM_LORA_NONE || strncmp(p->name, "final.", 6) == 0;
        assert_int_equal(!!(p->flags & PARAM_TRAINABLE), trained);
        if (p->lora == PARAM_LORA_NONE)
            continue;
        bool a = p->lora == PARAM_LORA_A;
        adapters++, elements += p->count;
        assert_true(base->layer == p->layer && base->lora == PARAM_LORA_NONE && base->nd == 2);
        assert_int_equal(p->dim[a ? 1 : 0], base->dim[a ? 1 : 0]);
        assert_int_equal(p->dim[a ? 0 : 1], 4);
        assert_true(p->init == (a ? PARAM_NORMAL : PARAM_ZERO) && p->lr_scale == (a ? 1 : 16));
    }
    /* of qkv and out of each layer, and of one fc2: gains are no matrices */
    assert_int_equal(adapters, 2 * (3 * 2 + 1));
    assert_int_equal(list.n, plain.n + adapters);
    assert_int_equal(list.total, plain.total + elements);
    assert_string_equal(named(&list, "blocks.0.attn.qkv.lora_a")[-1].name,
                        "blocks.0.attn.qkv.weight");
    assert_int_equal(named(&list, "blocks.0.attn.qkv.lora_b")->tp, PARAM_TP_HEADS);
    assert_int_equal(named(&list, "blocks.0.attn.qkv.lora_a")->tp, PARAM_TP_NONE);
    assert_int_equal(named(&list, "blocks.2.mlp.fc2.lora_a")->tp, PARAM_TP_COL);
    assert_int_equal(named(&list, "blocks.2.mlp.fc2.lora_b")->tp, PARAM_TP_NONE);
    params_release(&plain);
    params_release(&list);
}

/* What is trained comes first in the flat buffer, without gaps but the units' padding; the rest has
 * no place in gradients. */
static void frozen_units_come_last(void **state)
{
    struct param_list list = list_of("{" LORA "}");
    struct model m = small();
    struct layout l;
    struct shards sh;
    struct err err;
    int64_t trained = 0;
    (void)state;
    assert_ok(layout_parse("dp=2,zero=3", &l, &err), &err);
    assert_ok(shards_build(&m, &list, &l, 1, &sh, &err), &err);
    assert_int_equal(sh.n_trained, 3);
    for (int64_t i = 0; i < list.n; i++) {
        const struct shard_tensor *t = &sh.tensors[i];
        bool adapter = list.items[i].lora != PARAM_LORA_NONE;
        trained += adapter ? t->count : 0;
        assert_true(shards_trained(&sh, i) == adapter && (t->offset < sh.trained) == adapter);
        assert_true(t->offset >= shards_unit_of(&sh, i)->offset);
        assert_int_equal(shards_unit_of(&sh, i)->layer, list.items[i].layer);
    }
    assert_true(sh.trained >= trained && sh.trained < trained + 3 * 2 * 16 * 2 &&
                sh.total > 10 * sh.trained);
    for (int64_t u = 0; u < sh.n_trained; u++) {
        const struct shard_unit *other = &sh.units[sh.units[u].sibling];
        assert_true(other->layer == sh.units[u].layer &&
                    &sh.units[other->sibling] == &sh.units[u] && other - sh.units >= sh.n_trained);
        assert_int_equal(shards_unit(&sh, other->layer), u);
    }
    shards_release(&sh);
    params_release(&list);
}

static void what_is_written_reads_alike(void **state)
{
    static const char text[] = "{\"groups\":[{\"match\":\"a*\",\"lr_scale\":0.5,\"decay\":false},{"
                               "\"match\":\"b\",\"lr_scale\":1,\"trainable\":true}],"
                               "\"lora\":{\"rank\":4,\"alpha\":8,\"match\":[\"x\",\"y\"]}}";
    struct finetune t;
    struct err err;
    struct str s = STR_INIT;
    struct json_out o;
    (void)state;
    assert_ok(read_text(text, &t, &err), &err);
    assert_true(finetune_lora_scale(&t) == 2);
    json_out_init(&o, &s, 0);
    json_obj_begin(&o, NULL);
    finetune_write(&t, &o);
    json_obj_end(&o);
    char *tight = s.p; /* without the spaces of the writer */
    for (char *p = s.p; *p; p++)
        if (*p != ' ')
            *tight++ = *p;
    *tight = 0;
    assert_string_equal(s.p, text);
    str_release(&s);
}

static void refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"groups\": {}}", "groups is no array"},
        {"{\"groups\": []}", "groups is empty: give an array of 1 to 32"},
        {"{\"groups\": [{\"lr_scale\": 1}]}", "groups[0].match is missing"},
        {"{\"groups\": [{\"match\": \"*\", \"scale\": 1}]}", "groups[0].scale is not a known key"},
        {"{\"groups\": [{\"match\": \"*\", \"lr_scale\": -1}]}", "groups[0].lr_scale is -1"},
        {"{\"groups\": [{\"match\": \"*\", \"trainable\": 0}]}", "groups[0].trainable is 0"},
        {"{\"groups\": [{\"match\": \"\"}]}", "groups[0].match has 0 bytes"},
        {"{\"groups\": [{\"match\": \"block.*\"}]}", "groups[0].match 'block.*' matches no tensor"},
        {"{\"groups\": [{\"match\": \"*\"}, {\"match\": \"final.*\"}]}",
         "groups[1].match 'final.*' matches no tensor that an earlier"},
        {"{\"groups\": [{\"match\": \"*\", \"trainable\": false}]}", "no tensor trainable"},
        {"{\"lora\": {\"rank\": 0, \"alpha\": 1, \"match\": [\"*\"]}}", "lora.rank is 0"},
        {"{\"lora\": {\"rank\": 2, \"match\": [\"*\"]}}", "lora.alpha is missing"},
        {"{\"lora\": {\"rank\": 2, \"alpha\": 1}}", "lora.match is missing"},
        {"{\"lora\": {\"rank\": 2, \"alpha\": 1, \"match\": [3]}}", "lora.match[0] is no text"},
        {"{\"lora\": {\"rank\": 2, \"alpha\": 1, \"match\": [\"*.q_norm.*\"]}}",
         "lora.match '*.q_norm.*' matches no matrix"},
    };
    struct model m = small();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct finetune t;
        struct param_list list = {0};
        struct err err;
        int rc = read_text(rows[i].text, &t, &err);
        if (rc == 0)
            rc = finetune_params(&m, &t, &list, &err);
        assert_fails(rc, ERR_INPUT, &err, rows[i].says);
        assert_null(list.items);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_group_decides), cmocka_unit_test(adapters_follow_their_base),
        cmocka_unit_test(frozen_units_come_last), cmocka_unit_test(what_is_written_reads_alike),
        cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
