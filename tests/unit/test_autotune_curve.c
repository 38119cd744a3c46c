/* Attention that is priced by a device's published curves, computed by hand: at a point, between two
 * and beyond the ends; and where constants alone say its price. */
#include "tests/lib/test_profiles.h"

#include "autotune/price.h"

/* Describes a GPU whose attention is published forward, backward and with a mask. By the profile it
 * reaches half of its peak forward and 0.4 backward. */
static struct cluster published(void)
{
    struct cluster c = {.nodes = 1, .domain_nodes = 1,
                        .node = {.devices = 1, .link_bytes_per_s = 1},
                        .device = {.peak_flops = {[DTYPE_BF16] = 1e14, [DTYPE_FP8] = 2e14},
                                   .memory_bytes_per_s = 1e20, .attn_fwd_efficiency = 0.5,
                                   .attn_bwd_efficiency = 0.4}};
    c.device.curves = (struct curves){
        .n = 3,
        .items = {{{CURVE_ATTN_FWD, DTYPE_BF16, false, 128}, "A", 2, {1024, 4096}, {0.2, 0.6}},
                  {{CURVE_ATTN_BWD, DTYPE_BF16, false, 128}, "A", 2, {1024, 4096}, {0.1, 0.3}},
                  {{CURVE_ATTN_FWD, DTYPE_BF16, true, 128}, "B", 2, {1024, 4096}, {0.1, 0.4}}}};
    return c;
}

/* Prices an attention: forward 1.2 times as fast as the profile says, and backward half as fast. */
static double seconds(const struct cluster *c, enum stack_attention kind, struct work_attention a)
{
    const double v[CONSTANTS] = {
        [CONSTANT_GEMM_SHARE] = 1,         [CONSTANT_COMPUTE] = 1,
        [CONSTANT_COPY_SHARE] = 1,         [CONSTANT_ATTENTION_PACE] = 1.5,
        [CONSTANT_ATTENTION_FORWARD] = 0.6, [CONSTANT_ATTENTION_BACKWARD] = 0.2,
        [CONSTANT_ATTENTION_HALF] = 1024,  [CONSTANT_FLASH1_SHARE] = 0.5,
        [CONSTANT_FLASH2_SHARE] = 0.25};
    static const struct model model = {.hidden = 128};
    static struct work w;
    static struct price p;
    const struct stack stack = {.attention = kind};
    struct price_machine machine;
    struct price_routes routes = {0};
    w = (struct work){.grid = layout_default(), .model = &model, .stack = &stack};
    w.parts[0].attentions[0] = a, w.parts[0].n_attentions = 1;
    price_machine(c, v, DTYPE_BF16, false, &machine);
    price_terms(&machine, &w, (struct price_ids){0, 1}, &routes, &p);
    return p.parts[0].attention;
}

static struct work_attention square(double q, double k)
{
    return (struct work_attention){.q = q, .k = k, .heads = 3, .dim = 128, .pairs = q * k,
                                   .count = 2};
}

/* The seconds at a share of the peak: two operations of three heads, four FLOPs for each pair and
 * number, half as long again as the shares say. */
static double at_share(double pairs, double share)
{ return 1.5 * 2 * 4 * pairs * 3 * 128 / (1e14 * share); }

/* The size is the side of a square of as many scores. */
static void by_size(void **state)
{
    static const struct { double q, k, share, back, masked; } rows[] = {
        {1024, 1024, 0.2, 0.1, 0.1}, {4096, 4096, 0.6, 0.3, 0.4}, {2048, 2048, 0.4, 0.2, 0.25},
        {512, 512, 0.2, 0.1, 0.1}, {65536, 65536, 0.6, 0.3, 0.4}, {512, 2048, 0.2, 0.1, 0.1},
        {32768, 512, 0.6, 0.3, 0.4}, {8192, 512, 0.4, 0.2, 0.25},
    };
    struct cluster c = published();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct work_attention a = square(rows[i].q, rows[i].k);
        double pairs = rows[i].q * rows[i].k;
        assert_close(seconds(&c, ATTENTION_FLASH, a), at_share(pairs, 1.2 * rows[i].share), 1e-12,
                     "forward");
        a.backward = true;
        assert_close(seconds(&c, ATTENTION_FLASH, a), 2.5 * at_share(pairs, 0.5 * rows[i].back),
                     1e-12, "backward");
        a.backward = false, a.pairs = pairs / 2;
        assert_close(seconds(&c, ATTENTION_FLASH, a), at_share(pairs / 2, 1.2 * rows[i].masked),
                     1e-12, "with a mask");
    }
}

/* A curve is of the fastest kernel: on a GPU with fp8 that is not FlashAttention-2. One of a single
 * point, or in another dtype, says nothing. */
static void by_constants(void **state)
{
    struct cluster c = published();
    struct work_attention a = square(1024, 1024);
    double by_share = 2 * at_share(1024 * 1024, 0.6); /* half of it, with as many queries */
    (void)state;
    assert_close(seconds(&c, ATTENTION_FLASH2, a), 4 * by_share, 1e-12, "the second, with fp8");
    assert_close(seconds(&c, ATTENTION_FLASH1, a), 2 * by_share, 1e-12, "the first");
    c.device.peak_flops[DTYPE_FP8] = 0;
    assert_close(seconds(&c, ATTENTION_FLASH2, a), at_share(1024 * 1024, 1.2 * 0.2), 1e-12,
                 "the second, without fp8");
    c.device.curves.items[0].n = 1;
    assert_close(seconds(&c, ATTENTION_FLASH, a), by_share, 1e-12, "one point");
    c.device.curves.items[0].n = 2;
    for (int i = 0; i < c.device.curves.n; i++)
        c.device.curves.items[i].of.dtype = DTYPE_FP8;
    assert_close(seconds(&c, ATTENTION_FLASH, a), by_share, 1e-12, "another dtype");
    c.device.curves.n = 0;
    assert_close(seconds(&c, ATTENTION_FLASH, a), by_share, 1e-12, "no curve");
}

/* Of a device that no constant was fitted on, attention takes what is published: 693 TFLOP/s on an
 * H200 for 32,768 tokens, and 581 backward with a mask. */
static void unfitted(void **state)
{
    static struct constants none;
    static struct work w;
    static struct price p;
    struct price_machine machine;
    struct price_routes routes = {0};
    struct cluster c;
    struct stack stack;
    struct err err;
    double v[CONSTANTS];
    (void)state;
    assert_ok(cluster_load("dgx-h200:1", &c, &err), &err);
    assert_ok(stack_load("megatron", &stack, &err), &err);
    constants_resolve(&none, &c.device, &stack, v);
    w = (struct work){.grid = layout_default(), .stack = &stack};
    static const struct model model = {.hidden = 128};
    w.model = &model;
    struct work_attention a = square(32768, 32768);
    double flops = 2 * 4 * a.pairs * 3 * 128;
    w.parts[0].attentions[0] = a, w.parts[0].n_attentions = 1;
    a.backward = true, a.pairs /= 2;
    w.parts[1].attentions[0] = a, w.parts[1].n_attentions = 1;
    price_machine(&c, v, DTYPE_BF16, false, &machine);
    price_terms(&machine, &w, (struct price_ids){0, 2}, &routes, &p);
    assert_close(flops / p.parts[0].attention, 693e12, 2e-3, "forward");
    assert_close(2.5 * flops / 2 / p.parts[1].attention, 581e12, 2e-3, "backward");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_size), cmocka_unit_test(by_constants),
                                       cmocka_unit_test(unfitted)};
    return cmocka_run_group_tests_name("autotune_curve", tests, NULL, NULL);
}
