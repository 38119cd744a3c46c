/* Traffic worked out by hand for plain layouts. That the trainer sends what the formulas say:
 * test_trainer_traffic.c. */
#include "tests/lib/test_profiles.h"

#include "profiles/traffic.h"

enum { LAYERS = 4, HIDDEN = 32, ELEMENT = 4 };
static const struct model model = {.name = "m", .family = MODEL_DIT, .layers = LAYERS,
                                   .hidden = HIDDEN, .heads = 8, .kv_heads = 4, .ffn = 64,
                                   .text_width = 16, .text_len = 4, .adaln = ADALN_FULL,
                                   .patch_t = 1, .patch_h = 2, .patch_w = 2, .latent_channels = 4,
                                   .rope_theta = 100};
static const struct seq two[] = {{2, 3, 4}, {1, 4, 4}};
enum { TOKENS = 24 + 16 };

static struct traffic_list step_with(const struct model *m, const struct seq *pair,
                                     const char *text, int64_t rank, int64_t n_micros,
                                     int64_t *elements)
{
    struct layout l;
    struct err err = {0};
    struct param_list params;
    struct shards sh;
    struct traffic_list list;
    struct traffic_micro micros[4] = {{2, pair}, {2, pair}, {2, pair}, {2, pair}};
    assert_true(layout_parse(text, &l, &err) == 0 && params_build(m, &params, &err) == 0 &&
                shards_build(m, &params, &l, rank, &sh, &err) == 0);
    struct traffic_spec spec = {m, &params, &sh, &l, DTYPE_F32, DTYPE_F32, micros, n_micros};
    assert_int_equal(traffic_step(&spec, &list, &err), 0);
    if (elements)
        *elements = sh.total;
    shards_release(&sh);
    params_release(&params);
    return list;
}

static struct traffic_list step_of(const char *text, int64_t rank, int64_t n_micros,
                                   int64_t *elements)
{
    return step_with(&model, two, text, rank, n_micros, elements);
}

static int64_t bytes_of(const struct traffic_list *list, const char *what)
{
    int64_t bytes = -1;
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].what, what) == 0)
            bytes = (bytes < 0 ? 0 : bytes) + list->items[i].bytes;
    return bytes;
}

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(step_of("recompute=full", 0, 2, NULL).n, 0);
}

/* ZeRO (Rajbhandari et al., section 7): 2 (g - 1) / g of the parameters for zero 0 to 2 and one
 * micro-batch; zero 3 gathers twice. */
static void test_zero(void **state)
{
    (void)state;
    for (int zero = 0; zero < 4; zero++) {
        char text[32];
        int64_t n;
        snprintf(text, sizeof text, "dp=4,zero=%d", zero);
        struct traffic_list list = step_of(text, 1, 1, &n);
        int64_t once = n / 4 * 3 * ELEMENT, sums = bytes_of(&list, "gradients of a unit");
        assert_int_equal(sums, once);
        if (zero < 3)
            assert_int_equal(traffic_bytes(&list, TRAFFIC_SHARD), 2 * once);
        else /* what is in the working buffers when the backward begins is not gathered again */
            assert_true(traffic_bytes(&list, TRAFFIC_SHARD) < 3 * once &&
                        traffic_bytes(&list, TRAFFIC_SHARD) > 2 * once + once / 2);
    }
}

/* Megatron-LM: an all-reduce of the tokens for every branch, forward and backward: here three
 * branches. With sequence parallelism (Korthikanti et al.) reduce-scatter and all-gather in its
 * place, and one more gather of each in backward. */
static void test_tp(void **state)
{
    (void)state;
    int64_t branch = TOKENS * HIDDEN * ELEMENT; /* of two ranks, an all-reduce sends half twice */
    struct traffic_list plain = step_of("tp=2", 0, 1, NULL), sp = step_of("tp=2,sp=1", 0, 1, NULL);
    static const char *const outputs[] = {"self-attention's output", "cross-attention's output",
                                          "MLP's output"};
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        assert_int_equal(bytes_of(&plain, outputs[i]), LAYERS * branch);
        assert_int_equal(bytes_of(&sp, outputs[i]), LAYERS * branch / 2);
    }
    assert_int_equal(bytes_of(&plain, "gradient of a branch's input"), 3 * LAYERS * branch);
    assert_int_equal(bytes_of(&sp, "token rows of tp ranks"), 3 * 3 * LAYERS * branch / 2);
}

static void test_pp(void **state)
{
    (void)state;
    int64_t edge = TOKENS * HIDDEN * ELEMENT;
    for (int64_t rank = 0; rank < 4; rank++) {
        struct traffic_list list = step_of("pp=4", rank, 3, NULL);
        assert_int_equal(bytes_of(&list, "residual stream between stages"),
                         rank < 3 ? 3 * edge : 0);
        assert_int_equal(bytes_of(&list, "gradient between stages"), rank > 0 ? 3 * edge : 0);
    }
}

/* Keys and values of each span of tokens go round: forward cp - 1 times, backward again, and home
 * with cp gradients. */
static void test_ring(void **state)
{
    (void)state;
    int64_t kv = TOKENS * 2 * HIDDEN / 2 * ELEMENT, all = 0; /* half as many k/v heads as heads */
    for (int64_t rank = 0; rank < 4; rank++) {
        struct traffic_list list = step_of("cp=4", rank, 1, NULL);
        all += traffic_bytes(&list, TRAFFIC_RING);
    }
    /* of all ranks, as their runs differ in length */
    assert_int_equal(all, LAYERS * kv * (3 + 3 + 4));
}

/* Where ranks have whole frames, frames stay: of every sample half of a rank's tokens go, for
 * temporal attention, to the other of two. */
static void test_segments(void **state)
{
    static const struct seq even[] = {{2, 2, 4}, {4, 2, 4}};
    struct model m = model;
    (void)state;
    m.family = MODEL_STDIT;
    for (int64_t rank = 0; rank < 2; rank++) {
        struct traffic_list list = step_with(&m, even, "cp=2", rank, 1, NULL);
        assert_int_equal(bytes_of(&list, "q, k, v by segments"),
                         LAYERS * 2 * (16 + 32) / 4 * 2 * HIDDEN * ELEMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone), cmocka_unit_test(test_zero), cmocka_unit_test(test_tp),
        cmocka_unit_test(test_pp),    cmocka_unit_test(test_ring), cmocka_unit_test(test_segments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
