/* Curves by size: the value between two points, the choice among curves, those of the compiled-in
 * devices. */
#include "tests/lib/test_profiles.h"

#include "profiles/hw.h"

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

/* Returns what a device's curve says at a size, nearest to the case in bf16. */
static double at(const struct device *d, int kind, bool causal, int64_t head_dim, double size)
{
    const struct curve *c = curves_find(
        &d->curves, &(struct curve_case){kind, DTYPE_BF16, causal, head_dim});
    assert_non_null(c);
    return curve_at(c, size);
}

/* What the published tables say at sizes that they hold. */
static void published(void **state)
{
    struct device h200 = device_of("h200-sxm"), b200 = device_of("b200"), gb200 = device_of("gb200"),
                  a100 = device_of("a100-pcie");
    (void)state;
    assert_close(at(&h200, CURVE_ATTN_FWD, false, 128, 32768) * 989.4, 693, 2e-3, "H200 forward");
    assert_close(at(&h200, CURVE_ATTN_BWD, true, 128, 32768) * 989.4, 581, 2e-3, "causal backward");
    assert_close(at(&gb200, CURVE_ATTN_BWD, false, 128, 32768) * 2500, 1317, 3e-2, "GB200");
    assert_close(at(&h200, CURVE_ATTN_FWD, true, 64, 4096) * 989.4, 420, 2e-3, "head size 64");
    assert_close(at(&h200, CURVE_ATTN_FWD, false, 72, 16384) * 989.4, 497, 2e-3, "head size 72");
    assert_close(at(&h200, CURVE_ATTN_BWD, false, 64, 4096) * 989.4, 453, 2e-3, "its backward");
    /* one of sixteen ranks over tp has 4 heads of 4,096 tokens */
    assert_close(at(&b200, CURVE_ATTN_FWD, true, 128, 4096) *
                     at(&b200, CURVE_ATTN_FWD_FILL, false, 0, 4 * 4096) * 2250, 376 / 2.0, 2e-2,
                 "B200, 4 heads");
    /* small matrices are slow; on B200 the least side decides, on A100 the FLOPs */
    assert_true(at(&b200, CURVE_GEMM_SIDE, false, 0, 160) < 0.2);
    assert_close(at(&b200, CURVE_GEMM_SIDE, false, 0, 8192), 0.481, 1e-3, "B200");
    assert_true(at(&a100, CURVE_GEMM_FLOPS, false, 0, 2 * 2048.0 * 1024 * 1024) < 0.6);
    assert_close(at(&a100, CURVE_GEMM_FLOPS, false, 0, 2 * 16384.0 * 16384 * 8192), 0.746, 1e-2,
                 "A100");
    assert_close(at(&h200, CURVE_NORM_FWD, false, 0, 134217728) * 4800, 3771, 2e-2, "fused norm");
    assert_true(at(&h200, CURVE_UNFUSED_BWD, false, 0, 134217728) * 4800 < 1600);
    assert_close(at(&h200, CURVE_ALL_REDUCE, false, 0, 0x1p25) / 1e9, 275.84, 2e-2, "32 MiB");
    assert_close(at(&h200, CURVE_ALL_REDUCE, false, 0, 0x1p26) / 1e9, 346.5, 3e-2, "64 MiB");
}

/* No device gets slower with more heads or bytes to move, and none is faster than its peak. */
static void all_devices(void **state)
{
    const char *const *names;
    size_t n = device_names(&names);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct device d = device_of(names[i]);
        for (int k = 0; k < d.curves.n; k++) {
            const struct curve *c = &d.curves.items[k];
            bool rises = c->of.kind == CURVE_ATTN_FWD_FILL || c->of.kind == CURVE_ATTN_BWD_FILL ||
                         c->of.kind == CURVE_ALL_REDUCE;
            double most = c->of.kind == CURVE_ALL_REDUCE ? 1.1 * d.link_bytes_per_s : 1, before = 0;
            for (double size = 1; size < 1e13; size *= 4) {
                double value = curve_at(c, size);
                assert_true(value > 0 && value <= most && (!rises || value >= before));
                before = value;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_points), cmocka_unit_test(nearest_curve),
        cmocka_unit_test(published),      cmocka_unit_test(all_devices),
    };
    return cmocka_run_group_tests_name("profiles_curve", tests, NULL, NULL);
}
