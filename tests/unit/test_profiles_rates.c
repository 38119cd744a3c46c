/* Rates by size: the value between two points, the choice among curves, shares of the compiled-in
 * devices. */
#include "tests/lib/test_profiles.h"

#include "profiles/rates.h"

static struct device device_of(const char *name)
{
    struct device d;
    struct err err;
    assert_ok(device_load(name, &d, &err), &err);
    return d;
}

static void between_points(void **state)
{
    static const struct curve c = {
        .n = 3, .size = {100, 1000, 1e6}, .value = {0.2, 0.6, 0.3}};
    static const struct { double size, value; } rows[] = {
        {1, 0.2}, {100, 0.2}, {316.227766, 0.4}, {1000, 0.6}, {1e4, 0.5}, {1e5, 0.4}, {1e6, 0.3},
        {1e12, 0.3},
    };
    static const struct curve one = {.n = 1, .size = {8}, .value = {0.7}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_close(curve_at(&c, rows[i].size), rows[i].value, 1e-8, "between");
    assert_true(curve_at(&one, 1) == 0.7 && curve_at(&one, 8) == 0.7 && curve_at(&one, 9) == 0.7);
}

/* dtype before mask before head size. */
static void nearest_curve(void **state)
{
    static const struct curves all = {
        .n = 6,
        .items = {{.of = {CURVE_ATTN_FWD, DTYPE_BF16, false, 128}},
                  {.of = {CURVE_ATTN_FWD, DTYPE_BF16, true, 128}},
                  {.of = {CURVE_ATTN_FWD, DTYPE_BF16, true, 64}},
                  {.of = {CURVE_ATTN_FWD, DTYPE_FP8, false, 64}},
                  {.of = {CURVE_NORM_FWD, DTYPE_BF16, false, 0}},
                  {.of = {CURVE_ATTN_BWD, DTYPE_FP8, false, 0}}}};
    static const struct { struct curve_case of; int at; } rows[] = {
        {{CURVE_ATTN_FWD, DTYPE_BF16, false, 128}, 0}, {{CURVE_ATTN_FWD, DTYPE_BF16, true, 120}, 1},
        {{CURVE_ATTN_FWD, DTYPE_BF16, true, 72}, 2},   {{CURVE_ATTN_FWD, DTYPE_BF16, false, 64}, 0},
        {{CURVE_ATTN_FWD, DTYPE_FP8, true, 128}, 3},   {{CURVE_ATTN_FWD, DTYPE_F32, true, 64}, 2},
        {{CURVE_NORM_FWD, DTYPE_F32, false, 0}, 4},    {{CURVE_ATTN_BWD, DTYPE_BF16, true, 64}, 5},
        {{CURVE_GEMM_SIDE, DTYPE_BF16, false, 0}, -1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct curve *want = rows[i].at < 0 ? NULL : &all.items[rows[i].at];
        assert_ptr_equal(curves_find(&all, &rows[i].of), want);
    }
}

/* Without curves the shares of the profile hold at any size, and what it does not know is 0. */
static void priors(void **state)
{
    struct device d = device_of("h100-pcie");
    struct attn_shape a = {DTYPE_BF16, 8192, 8, 128, true};
    (void)state;
    assert_int_equal(d.curves.n, 0);
    assert_true(device_gemm_share(&d, DTYPE_BF16, 1, 2, 3) == d.gemm_efficiency);
    assert_true(device_attn_fwd_share(&d, &a) == d.attn_fwd_efficiency);
    assert_true(device_attn_bwd_share(&d, &a) == d.attn_bwd_efficiency);
    assert_true(device_norm_fwd_share(&d, true, 1e6) == 0);
    assert_true(device_norm_bwd_share(&d, false, 1e6) == 0);
    assert_true(device_all_reduce_bytes_per_s(&d, 1e6) == 0);
}

/* What the published tables say at sizes that they hold. */
static void published(void **state)
{
    struct device h200 = device_of("h200-sxm"), b200 = device_of("b200"), gb200 = device_of("gb200"),
                  a100 = device_of("a100-pcie");
    struct attn_shape long_ = {DTYPE_BF16, 32768, 32, 128, false}, causal = long_, few = long_;
    (void)state;
    causal.causal = true;
    assert_close(device_attn_fwd_share(&h200, &long_) * 989.4, 693, 2e-3, "H200 forward");
    assert_close(device_attn_bwd_share(&h200, &causal) * 989.4, 581, 2e-3, "H200 causal backward");
    assert_close(device_attn_bwd_share(&gb200, &long_) * 2500, 1317, 3e-2, "GB200 backward");
    few.tokens = 4096, few.causal = true, few.heads = 4; /* one of sixteen ranks over tp */
    assert_close(device_attn_fwd_share(&b200, &few) * 2250, 376 / 2.0, 2e-2, "B200, 4 heads");
    few.head_dim = 64;
    assert_close(device_attn_fwd_share(&h200, &few) * 989.4, 336, 2e-2, "H200, head size 64");
    /* small matrices are slow; on B200 the least side decides, on A100 the FLOPs */
    assert_true(device_gemm_share(&b200, DTYPE_BF16, 160, 8192, 8192) < 0.2);
    assert_close(device_gemm_share(&b200, DTYPE_BF16, 8192, 8192, 8192), 0.481, 1e-3, "B200");
    assert_true(device_gemm_share(&a100, DTYPE_BF16, 2048, 1024, 1024) < 0.6);
    assert_close(device_gemm_share(&a100, DTYPE_BF16, 16384, 16384, 8192), 0.746, 1e-2, "A100");
    assert_close(device_norm_fwd_share(&h200, true, 134217728) * 4800, 3771, 2e-2, "fused norm");
    assert_true(device_norm_bwd_share(&h200, false, 134217728) * 4800 < 1600);
    assert_close(device_all_reduce_bytes_per_s(&h200, 0x1p25) / 1e9, 275.84, 2e-2, "32 MiB");
    assert_close(device_all_reduce_bytes_per_s(&h200, 0x1p26) / 1e9, 346.5, 3e-2, "64 MiB");
}

/* No device gets slower with more heads or bytes to move, and none is faster than its peak. */
static void all_devices(void **state)
{
    const char *const *names;
    size_t n = device_names(&names);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct device d = device_of(names[i]);
        double before = 0, link = 0;
        for (double size = 1; size < 1e7; size *= 4) {
            struct attn_shape a = {DTYPE_BF16, 256, size, 128, false};
            double share = device_attn_fwd_share(&d, &a);
            assert_true(share > 0 && share <= 1 && share >= before);
            double rate = device_all_reduce_bytes_per_s(&d, size * 1e3);
            assert_true(rate >= link && rate <= 1.1 * d.link_bytes_per_s);
            before = share, link = rate;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_points), cmocka_unit_test(nearest_curve),
        cmocka_unit_test(priors),         cmocka_unit_test(published),
        cmocka_unit_test(all_devices),
    };
    return cmocka_run_group_tests_name("profiles_rates", tests, NULL, NULL);
}
