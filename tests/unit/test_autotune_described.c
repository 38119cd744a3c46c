/* Predictions for a cluster that is described: which layouts are looked at, and trials that are
 * smaller than they are. */
// SLOW
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/described.h"
#include "profiles/params.h"

static const int64_t ranks[] = {64};

static struct described_spec spec_of(const struct model *m, int64_t scale_down)
{
    return (struct described_spec){.cluster = "dgx-h100",
                                   .stack = "megatron",
                                   .model = m,
                                   .seq = {1, 128, 128},
                                   .gbs = 128,
                                   .dtype = DTYPE_BF16,
                                   .ranks = ranks,
                                   .n_ranks = 1,
                                   .scale_down = scale_down};
}

static void trials(void **state)
{
    static const struct {
        const char *layout;
        int64_t gbs, scale_down;
        const char *trial; /* NULL: none can be run */
        int64_t trial_gbs;
    } rows[] = {
        {"tp=2,dp=8,mbs=2", 64, 0, "tp=2,dp=8,mbs=2", 64},
        {"tp=2,dp=8,mbs=2", 64, 2, "tp=2,dp=2,mbs=2", 16},
        {"tp=2,dp=2", 64, 4, "tp=2,dp=2", 64},
        {"dp=8,zero=3", 8, 1, "dp=1,zero=3", 1},
        {"dp=8,zero=3,fsdp=4", 64, 4, "dp=4,zero=3", 32},
        {"dp=8,zero=3,fsdp=2", 64, 4, "dp=4,zero=3,fsdp=2", 32},
        {"dp=8,zero=3,fsdp=4", 64, 2, "dp=2,zero=3", 16},
        {"dp=6", 64, 4, NULL, 0},
        {"dp=8", 10, 2, NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct layout l, trial, wanted;
        struct err err;
        assert_ok(layout_parse(rows[i].layout, &l, &err), &err);
        int64_t gbs = described_trial(&l, rows[i].gbs, rows[i].scale_down, &trial);
        if (gbs != rows[i].trial_gbs)
            fail_msg("row %zu: %lld samples", i, (long long)gbs);
        if (!rows[i].trial)
            continue;
        assert_ok(layout_parse(rows[i].trial, &wanted, &err), &err);
        if (!layout_equal(&trial, &wanted))
            fail_msg("row %zu: another trial", i);
    }
}

static void looked_at(void **state)
{
    struct layout always[2] = {layout_default(), layout_default()};
    struct space space;
    struct model m;
    struct err err;
    (void)state;
    always[0].dp = 64, always[1].dp = 63;
    assert_ok(model_load("dit-7b", &m, &err), &err);
    struct described_spec spec = spec_of(&m, 0);
    struct described *d = described_new(&spec, &err);
    assert_non_null(d);
    struct target target = described_target(d);
    assert_ok(target_list(&target, always, 2, &space, &err), &err);
    assert_true(space.n > 100 && space.visited > (int64_t)space.n);
    assert_true(layout_equal(&space.items[0], &always[0])); /* and none of 63 ranks */
    double before = 0;
    for (size_t i = 1; i < space.n; i++) {
        struct target_item item;
        double sum = 0;
        assert_int_equal(layout_world(&space.items[i]), 64);
        assert_ok(target_predict(&target, &space.items[i], &item, &err), &err);
        for (int t = 0; t < PRICE_TERMS; t++)
            sum += item.bill.term[t];
        assert_true(sum >= before * (1 - 1e-9) && item.bytes <= described_device_bytes(d));
        assert_memory_equal(item.bill.term, item.trial_bill.term, sizeof item.bill.term);
        before = sum;
    }
    space_release(&space);
    described_free(d);
}

/* Returns how many of the layouts that are looked at have not the default order of ranks. */
static int64_t other_orders(int64_t on)
{
    struct space space;
    struct model m;
    struct err err;
    int64_t n = 0;
    assert_ok(model_load("dit-7b", &m, &err), &err);
    struct described_spec spec = spec_of(&m, 0);
    spec.stack = "reel", spec.ranks = &on, spec.gbs = 16;
    struct described *d = described_new(&spec, &err);
    assert_non_null(d);
    struct target target = described_target(d);
    assert_ok(target_list(&target, NULL, 0, &space, &err), &err);
    for (size_t i = 0; i < space.n; i++)
        n += space.items[i].order != 0;
    assert_true(space.n > 100);
    space_release(&space);
    described_free(d);
    return n;
}

/* Which ranks are neighbours matters where they are on several nodes, and is looked at there. */
static void orders(void **state)
{
    (void)state;
    assert_int_equal(other_orders(8), 0);
    assert_true(other_orders(16) > 0);
}

/* A smaller trial does the same work on each rank; what its fewer replicas lack is what they send
 * each other and what they share. */
static void smaller(void **state)
{
    static const enum price_term same[] = {PRICE_GEMM, PRICE_ATTENTION, PRICE_ELEMENTWISE, PRICE_LAUNCH,
                                          PRICE_RECOMPUTE, PRICE_TP, PRICE_PP};
    struct target_item item;
    struct layout l;
    struct model m;
    struct err err;
    (void)state;
    assert_ok(model_load("dit-7b", &m, &err), &err);
    assert_ok(layout_parse("tp=4,sp=1,pp=2,dp=8,zero=1", &l, &err), &err);
    struct described_spec spec = spec_of(&m, 2);
    struct described *d = described_new(&spec, &err);
    assert_non_null(d);
    struct target target = described_target(d);
    assert_ok(target_predict(&target, &l, &item, &err), &err);
    for (size_t k = 0; k < ARRAY_LEN(same); k++)
        if (fabs(item.bill.term[same[k]] - item.trial_bill.term[same[k]]) > 1e-9 * item.bill.term[same[k]])
            fail_msg("%s is not the same", price_term_names[same[k]]);
    assert_true(item.bill.term[PRICE_REDUCE] > item.trial_bill.term[PRICE_REDUCE]);
    assert_true(item.bill.term[PRICE_SPREAD] > item.trial_bill.term[PRICE_SPREAD]);
    assert_true(item.bill.term[PRICE_OPTIMIZER] < item.trial_bill.term[PRICE_OPTIMIZER]);
    l.dp = 3;
    assert_int_equal(target_predict(&target, &l, &item, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "--scale-down 2 does not divide"));
    described_free(d);
}

/* An average of the weights takes its memory of a search's layouts too: 4 bytes a weight. */
static void average(void **state)
{
    struct target_item item[2];
    struct param_list params;
    struct layout l;
    struct model m;
    struct err err;
    (void)state;
    assert_ok(model_load("dit-7b", &m, &err), &err);
    assert_ok(params_build(&m, &params, &err), &err);
    assert_ok(layout_parse("dp=64,zero=1", &l, &err), &err);
    for (int ema = 0; ema < 2; ema++) {
        struct described_spec spec = spec_of(&m, 0);
        spec.ema = ema;
        struct described *d = described_new(&spec, &err);
        assert_non_null(d);
        struct target target = described_target(d);
        assert_ok(target_predict(&target, &l, &item[ema], &err), &err);
        described_free(d);
    }
    assert_close(item[1].bytes - item[0].bytes, 4.0 * (double)params.total / 64, 1e-6, "average");
    params_release(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trials), cmocka_unit_test(looked_at),
                                       cmocka_unit_test(orders), cmocka_unit_test(smaller),
                                       cmocka_unit_test(average)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
