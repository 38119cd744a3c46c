/* The bounds of the stream hold for every micro-batch size, and the sizes that it passes over are
 * no faster: a layer is priced with each size, one by one. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/planner.h"
#include "autotune/stream_priv.h"
#include "base/num.h"

static struct stream stream;

enum { SAMPLES = 150 };

/* Prices a layer with l.mbs samples. */
static double priced(struct layout l, const struct price_machine *m)
{
    stream.work.grid = l;
    work_rebuild_times(stream.spec->work, &l, &stream.work);
    price_parts(m, &stream.work, &stream.orders[0].price);
    return stream_layer_seconds(&stream.orders[0].price);
}

/* No size in a step takes less than n X, where X is that of the largest size. */
static void floor_holds(const struct layout *grid, const double x[SAMPLES + 1])
{
    struct layout l = *grid;
    l.mbs = SAMPLES;
    stream_even_set(&stream, grid, SAMPLES);
    priced(l, &stream.even);
    double least = stream_least_seconds(&stream, &stream.orders[0].price);
    for (int64_t b = 1; b <= SAMPLES; b = stream_next_mbs(&stream, grid, b))
        if ((double)num_ceil_div(SAMPLES, b) * x[b] < least)
            fail_msg("mbs %lld: %.9g s, and the floor is %.9g s", (long long)b,
                     (double)num_ceil_div(SAMPLES, b) * x[b], least);
}

/* No size takes less than a smaller one that is as even as can be. Returns whether one takes less
 * than a smaller one. */
static bool even_holds(const struct layout *grid, const double x[SAMPLES + 1])
{
    struct layout l = *grid;
    bool falls = false;
    for (l.mbs = 1; l.mbs <= SAMPLES; l.mbs++) {
        double seconds = priced(l, stream.spec->machine),
               even = seconds - stream_uneven_seconds(&stream, &stream.orders[0].price);
        for (int64_t b = l.mbs + 1; b <= SAMPLES; b++) {
            falls = falls || x[b] < seconds;
            if (x[b] < even * (1 - 1e-12))
                fail_msg("mbs %lld: %.9g s, and mbs %lld as even %.9g s", (long long)b, x[b],
                         (long long)l.mbs, even);
        }
    }
    return falls;
}

/* Each size has one that is considered, with as many micro-batches, is no larger and no slower. */
static void considered_hold(const struct layout *grid, const double x[SAMPLES + 1])
{
    for (int64_t b = 1; b <= SAMPLES; b++) {
        double best = INFINITY;
        for (int64_t k = 1; k <= b; k = stream_next_mbs(&stream, grid, k)) {
            assert_int_equal(stream_considered_mbs(&stream, grid, k), k);
            if (num_ceil_div(SAMPLES, k) == num_ceil_div(SAMPLES, b))
                best = fmin(best, x[k]);
        }
        if (x[b] < best * (1 - 1e-12))
            fail_msg("mbs %lld: %.9g s, and the sizes considered take %.9g s", (long long)b, x[b],
                     best);
    }
}

static void sizes(void **state)
{
    static const struct { const char *model, *stack, *seq, *layout; } cases[] = {
        {"llama-3-8b", "colossalai", "256", "cp=5"}, {"llama-3-8b", "megatron", "939", "cp=2"},
        {"llama-3-8b", "reel", "791", "cp=3,pp=2"},  {"llama-3-8b", "fsdp2", "2048", "cp=2"},
        {"dit-7b", "scaling", "5x8x8", "cp=7,pp=2"}, {"dit-b", "reel", "5x9x5", "tp=2,sp=1,cp=2"},
        {"cosmos-7b", "megatron", "7x11x13", "tp=2,cp=6"}, {"stdit-xl", "reel", "5x9x5", "cp=3"},
        {"moviegen-5b", "megascale", "1x16x16", "cp=3"}, {"wan-14b", "reel", "1x1x97", "tp=4"},
    };
    int falls = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan_ask ask = {.model = cases[i].model, .cluster = "dgx-h100:4",
                               .stack = cases[i].stack, .dtype = DTYPE_BF16, .fits = 0.9};
        double x[SAMPLES + 1];
        struct layout l;
        struct err err;
        assert_ok(layout_parse(cases[i].layout, &l, &err), &err);
        assert_ok(seq_parse(cases[i].seq, "seq", &ask.seq, &err), &err);
        ask.gbs = SAMPLES * l.dp;
        struct planner *p = planner_new(&ask, &err);
        assert_non_null(p);
        struct stream_spec spec = {&p->work, &p->machine, layout_world(&l), 0};
        stream = (struct stream){.spec = &spec, .even = p->machine};
        stream_multiples_find(&stream, &l);
        for (struct layout one = l; one.mbs <= SAMPLES; one.mbs++)
            x[one.mbs] = priced(one, &p->machine);
        floor_holds(&l, x);
        falls += even_holds(&l, x);
        considered_hold(&l, x);
        planner_free(p);
    }
    assert_true(falls > 0); /* or else the bound of even products is not tried */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes)};
    return cmocka_run_group_tests_name("autotune_stream_bound", tests, NULL, NULL);
}
