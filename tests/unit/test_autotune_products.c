/* Products, scores and sums of tensor-parallel ranks, computed by hand: which products are never in
 * fp8, which heads an early cuBLAS multiplies slowly, what a kept score moves, and how much of a
 * sum hides under products. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/planner.h"
#include "tests/lib/test_host.h"

/* Describes a GPU that does 1e14 FLOP/s in bf16 and 4e14 in fp8 at any size, whose messages to the
 * one neighbour go at 1 B/s; and how a part is priced on it. */
struct rig {
    struct cluster cluster;
    struct stack stack;
    struct work work;
    double v[CONSTANTS];
    bool fp8;
    struct price price;
};

static void rig_init(struct rig *r)
{
    static const struct model none;
    *r = (struct rig){
        .cluster = {.nodes = 1, .domain_nodes = 1, .node = {.devices = 2, .link_bytes_per_s = 1},
                    .device = {.peak_flops = {[DTYPE_BF16] = 1e14, [DTYPE_FP8] = 4e14},
                               .memory_bytes_per_s = 1e20}},
        .work = {.grid = layout_default(), .model = &none}};
    for (int i = 0; i < CONSTANTS; i++)
        r->v[i] = 1;
    r->v[CONSTANT_GEMM_HALF] = r->v[CONSTANT_LAUNCH_S] = r->v[CONSTANT_KERNEL_S] = 0;
    r->v[CONSTANT_SUM_S] = 0;
    r->work.grid.tp = 2;
    r->work.stack = &r->stack;
}

static const struct price_part *priced(struct rig *r, enum work_part_id id,
                                       const struct work_part *part)
{
    struct price_routes routes = {0};
    static struct price_machine machine;
    r->work.parts[id] = *part;
    price_machine(&r->cluster, r->v, DTYPE_BF16, r->fp8, &machine);
    price_terms(&machine, &r->work, (struct price_ids){id, id + 1}, &routes, &r->price);
    return &r->price.parts[id];
}

/* With products in fp8, at half of that peak, those of layers are twice as fast as in bf16. Those
 * of the head are not, nor are those of scores. No constant makes a product faster than its peak. */
static void head_is_wide(void **state)
{
    static const struct work_part product = {.gemms[0] = {512, 512, 512, 1}, .n_gemms = 1},
        scores = {.attentions[0] = {.q = 64, .k = 64, .dim = 64, .heads = 1, .count = 1},
                  .n_attentions = 1};
    double wide = 2.0 * 512 * 512 * 512 / 1e14, scored = 4.0 * 64 * 64 * 64 / 1e14;
    struct rig r;
    (void)state;
    rig_init(&r);
    for (int fp8 = 0; fp8 < 2; fp8++) {
        r.fp8 = fp8, r.v[CONSTANT_FP8_SHARE] = 0.5, r.v[CONSTANT_COMPUTE] = 1;
        r.stack.attention = ATTENTION_FUSED_SCORES;
        double narrow = wide / (1 + fp8);
        assert_close(priced(&r, WORK_LAYER_FORWARD, &product)->gemm, narrow, 1e-12, "layer");
        assert_close(priced(&r, WORK_LAYER_FULL, &product)->gemm, narrow, 1e-12, "again");
        assert_close(priced(&r, WORK_FIRST_FORWARD, &product)->gemm, wide, 1e-12, "patches");
        assert_close(priced(&r, WORK_LAST_FORWARD, &product)->gemm, wide, 1e-12, "head");
        assert_close(priced(&r, WORK_LAST_BACKWARD, &product)->gemm, wide, 1e-12, "head backward");
        assert_close(priced(&r, WORK_LAYER_FORWARD, &scores)->attention, scored, 1e-12, "scores");
        r.v[CONSTANT_COMPUTE] = 0.01;
        assert_close(priced(&r, WORK_LAYER_FORWARD, &product)->gemm, wide / (fp8 ? 4 : 1), 1e-12,
                     "a layer at its peak");
        assert_close(priced(&r, WORK_LAST_FORWARD, &product)->gemm, wide, 1e-12, "head at peak");
    }
}

/* Heads of 108 in bf16 reach a twentieth of the peak where the stack's cuBLAS is an early one, and
 * neither heads of 104 nor another stack do. Backward has twice the products. */
static void heads_unaligned(void **state)
{
    static const struct { bool early; double dim, slow; } cases[] = {
        {true, 108, 20}, {true, 104, 2}, {false, 108, 4}, {false, 128, 1}, {true, 128, 1}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int back = 0; back < 2; back++) {
            const struct work_part part = {
                .attentions[0] = {.q = 2048, .k = 2048, .dim = cases[i].dim, .heads = 3, .count = 1,
                                  .backward = back},
                .n_attentions = 1};
            struct rig r;
            rig_init(&r);
            r.stack.attention = ATTENTION_FUSED_SCORES, r.stack.early_cublas = cases[i].early;
            r.v[CONSTANT_RAGGED] = 0.5, r.v[CONSTANT_UNALIGNED_SHARE] = 0.05;
            assert_close(priced(&r, WORK_LAYER_FORWARD + back, &part)->attention,
                         (1 + back) * cases[i].slow * 4 * 2048.0 * 2048 * 3 * cases[i].dim / 1e14,
                         1e-12, "scores");
        }
}

/* Opens a plan of a model by a stack. */
static struct planner *planner_of(const char *model, const char *stack)
{
    const struct plan_ask ask = {.model = model, .cluster = "dgx-a100:3", .stack = stack,
                                 .seq = {1, 64, 64}, .gbs = 64, .dtype = DTYPE_BF16, .fits = 0.5};
    struct err err;
    struct planner *p = planner_new(&ask, &err);
    assert_ok(p ? 0 : err.code, &err);
    return p;
}

/* Tells the bytes for each score that a stack keeps in bf16. Queries by keys write 2, the softmax
 * reads and writes 2 each, scores by values read 2. Backward, the gradient is written with 2, which
 * the softmax reads beside its result and writes again, and three products read 2 each. The fused
 * softmax with a causal mask reads one half. Dropout reads, writes, and keeps or reads a mask. */
static void scores_moved(void **state)
{
    static const struct {
        const char *model;
        enum stack_attention attention;
        bool dropout;
        double bytes[2];
    } cases[] = {{"gpt-3-175b", ATTENTION_FUSED_SCORES, false, {7, 12}},
                 {"gpt-3-175b", ATTENTION_FUSED_SCORES, true, {12, 17}},
                 {"dit-b", ATTENTION_FUSED_SCORES, false, {8, 14}},
                 {"dit-b", ATTENTION_FUSED_SCORES, true, {13, 19}},
                 {"gpt-3-175b", ATTENTION_SCORES, false, {18, 36}},
                 {"gpt-3-175b", ATTENTION_SCORES, true, {23, 41}},
                 {"gpt-3-175b", ATTENTION_FLASH2, true, {0, 0}}};
    static struct work w;
    struct layout l = layout_default();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planner *p = planner_of(cases[i].model, "megatron");
        p->stack.attention = cases[i].attention, p->stack.dropout = cases[i].dropout;
        work_build(&p->work, &l, &w);
        for (int back = 0; back < 2; back++) {
            const struct work_attention *a = &w.parts[WORK_LAYER_FORWARD + back].attentions[0];
            assert_close(a->score_bytes / (a->q * a->k * a->heads), cases[i].bytes[back], 1e-12,
                         cases[i].model);
        }
        planner_free(p);
    }
}

/* Two products take 3 s and 1 s, the first of them three times. Sums of which eight tenths hide are
 * spread over the four: each takes as much as it lasts. What is left hides while the device waits
 * for the host, once. */
static void sums_under_products(void **state)
{
    static const struct { double sums, kernels, hidden; } cases[] = {
        {4, 0, 3.2}, {8, 0, 3 * 1.6 + 1}, {20, 0, 3 * 3 + 1}, {8, 12, 6.4},
        {20, 12, 3 * 3 + 1 + 1}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            const struct work_part part = {
                .gemms = {{64 * 3, 64, 64, 3}, {64, 64, 64, 1}}, .n_gemms = 2,
                .messages[0] = {TRAFFIC_TP, TRAFFIC_ALL_REDUCE, HIDE_NOTHING, cases[i].sums / 2, 2},
                .n_messages = 1, .kernels = cases[i].kernels};
            struct rig r;
            rig_init(&r);
            r.stack.sums_overlap = overlaps;
            r.v[CONSTANT_SUM_HIDDEN] = 0.8, r.v[CONSTANT_SUM_S] = 0.25;
            r.v[CONSTANT_LAUNCH_S] = 11.0 / 12; /* 12 take 11 s: the device waits for one */
            r.cluster.device.peak_flops[DTYPE_BF16] = 2 * 64.0 * 64 * 64;
            const struct price_part *p = priced(&r, WORK_LAYER_FORWARD, &part);
            double hidden = overlaps ? cases[i].hidden : 0;
            assert_close(p->gemm, 10, 1e-12, "products");
            assert_close(p->tp_hidden, hidden, 1e-12, "hidden");
            assert_close(p->tp, cases[i].sums + 0.5 - hidden, 1e-12, "exposed");
            assert_close(p->tp_alone, 0.5 + cases[i].sums * (overlaps ? 0.2 : 1), 1e-12, "alone");
            assert_close(price_free(p, PRICE_LINKS), price_compute(p) + 0.5 - hidden, 1e-12,
                         "links are free");
            assert_close(price_free(p, PRICE_NICS), price_compute(p) + cases[i].sums + 0.5 - hidden,
                         1e-12, "NICs are free");
        }
}

/* A layer starts 12 operations, for half a second each the device is busy with a start, and it waits
 * for the host for 1 s, of which sums use 0.4 s. Its ring hides under 2 s of attention and in the
 * rest of that wait, but not in starts. */
static void ring_beside_sums(void **state)
{
    const struct work_part part = {
        .gemms = {{64, 64, 64, 1}}, .n_gemms = 1,
        .attentions[0] = {.q = 64, .k = 64, .pairs = 64 * 64, .dim = 64, .heads = 1, .count = 1},
        .n_attentions = 1,
        .messages = {{TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION, 5, 1},
                     {TRAFFIC_TP, TRAFFIC_ALL_REDUCE, HIDE_NOTHING, 2, 1}},
        .n_messages = 2, .kernels = 12};
    struct rig r;
    (void)state;
    rig_init(&r);
    r.stack.sums_overlap = true, r.stack.attention = ATTENTION_FLASH2;
    r.work.grid.cp = 2, r.cluster.node.devices = 4;
    r.cluster.device.peak_flops[DTYPE_FP8] = 0;
    r.cluster.device.peak_flops[DTYPE_BF16] = 2 * 64.0 * 64 * 64;
    r.v[CONSTANT_ATTENTION_HALF] = 0;
    r.v[CONSTANT_SUM_HIDDEN] = 0.7, r.v[CONSTANT_KERNEL_S] = 0.5;
    r.v[CONSTANT_LAUNCH_S] = 10.0 / 12; /* 10 s, of which 1 + 2 + 6 s pass anyway */
    const struct price_part *p = priced(&r, WORK_LAYER_FORWARD, &part);
    assert_close(p->launch, 7, 1e-12, "starts, and what the device waits");
    assert_close(p->tp_hidden, 1.4, 1e-12, "a sum under a product, and in the wait");
    assert_close(p->cp_hidden, 2 + 0.6, 1e-12, "the ring");
    assert_close(p->tp, 0.6, 1e-12, "exposed sums");
    assert_close(p->cp, 5 - 2.6, 1e-12, "the exposed ring");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_is_wide), cmocka_unit_test(heads_unaligned),
        cmocka_unit_test(scores_moved), cmocka_unit_test(sums_under_products),
        cmocka_unit_test(ring_beside_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
