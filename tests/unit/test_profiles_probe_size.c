/* The sizes by which a machine is measured: small ones first, whatever the extent; and growth. */
#include "tests/lib/test_profiles.h"

#include "profiles/probe_size.h"

static void sizes(void **state)
{
    static const struct { const char *model, *seq, *sizes; } rows[] = {
        {"dit-s", "1x16x16", "1x4x16*1 1x16x16*1 1x16x16*2 1x16x16*4 "},
        {"dit-s", "16x32x32", "4x8x8*1 16x8x8*1 16x8x32*1 16x32x32*1 16x32x32*2 16x32x32*4 "},
        {"dit-tiny", "1x1x1", "1x1x1*1 1x1x1*1 1x1x1*2 1x1x1*4 "},
        /* what is left are captions */
        {"dit-28b", "1x16x16", "1x4x4*1 1x4x16*1 1x16x16*1 1x16x16*2 1x16x16*4 "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct probe_size list[PROBE_SIZES];
        struct str text = STR_INIT;
        struct model m;
        struct seq seq;
        struct err err;
        int n;
        assert_ok(model_load(rows[i].model, &m, &err), &err);
        assert_ok(seq_parse(rows[i].seq, "seq", &seq, &err), &err);
        assert_ok(probe_sizes(&m, seq, list, &n, &err), &err);
        for (int k = 0; k < n; k++)
            str_addf(&text, "%lldx%lldx%lld*%lld ", (long long)list[k].seq.t,
                     (long long)list[k].seq.h, (long long)list[k].seq.w,
                     (long long)list[k].samples);
        assert_string_equal(text.p, rows[i].sizes);
        str_release(&text);
    }
}

/* An hour of video has no more sizes than there is room for. */
static void longest(void **state)
{
    struct probe_size list[PROBE_SIZES];
    struct model m;
    struct err err;
    int n;
    (void)state;
    assert_ok(model_load("dit-s", &m, &err), &err);
    assert_ok(probe_sizes(&m, (struct seq){1 << 14, 1 << 7, 1 << 7}, list, &n, &err), &err);
    assert_true(n > 8 && n <= PROBE_SIZES);
    for (int i = 1; i < n; i++)
        assert_true(probe_size_growth(&list[i - 1], &list[i], 0) == (i < n - 2 ? 4 : 2));
}

static void growth(void **state)
{
    const struct probe_size one = {{1, 4, 4}, 1}, more = {{4, 4, 4}, 1}, twice = {{1, 4, 4}, 2};
    (void)state;
    assert_true(probe_size_growth(&one, &more, 0) == 4);
    assert_true(probe_size_growth(&one, &more, 1) == 16);
    assert_true(probe_size_growth(&one, &more, 0.5) == 10);
    assert_true(probe_size_growth(&one, &twice, 0.5) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(longest),
                                       cmocka_unit_test(growth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
