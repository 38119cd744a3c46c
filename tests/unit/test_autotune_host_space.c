/* The layouts of a probed machine: those that are looked at dominate all others, and those that are
 * kept are the fastest of them. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/host_space.h"
#include "autotune/memory.h"
#include "base/num.h"

/* TIGHT: bytes with which some layouts must recompute */
enum { BEST = 40, OF_DEGREES = 3, ALL = 1 << 20, TIGHT = 200000000 };
static const int64_t ranks[] = {2, 4};
static const struct speed rates = {
    .gemm = {5e10, 1e11}, .attention = {3e10, 1e11}, .attention_backward = 2, .copy_bytes = 1e10,
    .input_s = {1e-9, 2e-9, 3e-9, 4e-9}, .update_bytes = 1e10, .norm_bytes = 1e10,
    .clear_bytes = 1e10, .move_bytes = 1e10, .rank_loss = 0.05,
    .link = {1e-6, 1e9}, .link_shared = {1e-6, 1e9}, .step_s = 1e-3};

/* A layout of a list, the probability that it fits, and whether it is to be kept. */
struct listed { double seconds, bytes, chance; bool fits, kept; };

static bool degrees(const struct layout *a, const struct layout *b)
{ return a->tp == b->tp && a->cp == b->cp && a->pp == b->pp && a->dp == b->dp; }

static bool world(const struct layout *a, const struct layout *b)
{ return layout_world(a) == layout_world(b); }

/* Returns how many of those that are alike and fit come before item i. */
static size_t before(const struct space *all, const struct listed *list, size_t i,
                     bool (*alike)(const struct layout *a, const struct layout *b))
{
    size_t n = 0;
    for (size_t k = 0; k < all->n; k++)
        n += list[k].fits && alike(&all->items[i], &all->items[k]) &&
             (list[k].seconds < list[i].seconds || (list[k].seconds == list[i].seconds && k < i));
    return n;
}

/* Prices, sizes and judges every layout of the list, one by one. Returns how many fit. Without
 * `always` all are to be kept. */
static int64_t judge(struct host_space *h, const struct host_space_spec *spec,
                     const struct layout *always, const struct space *all, struct listed *list)
{
    static const struct memory_learned nothing;
    struct target target = host_space_target(h);
    int64_t fit = 0;
    struct err err;
    for (size_t i = 0; i < all->n; i++) {
        struct target_item item;
        assert_ok(target_predict(&target, &all->items[i], &item, &err), &err);
        for (int t = 0; t < PRICE_TERMS; t++)
            list[i].seconds += item.bill.term[t];
        double limit = spec->memory_bytes / (double)layout_world(&all->items[i]);
        list[i].bytes = item.bytes;
        list[i].chance = memory_fits(&nothing, item.bytes, limit);
        list[i].fits = list[i].chance >= spec->min_fit;
        fit += list[i].fits;
    }
    for (size_t i = 0; i < all->n; i++)
        list[i].kept = !always;
    for (size_t i = 0; i < all->n && always; i++)
        list[i].kept = layout_equal(&all->items[i], always) ||
                       (list[i].fits && (before(all, list, i, world) < BEST ||
                                         before(all, list, i, degrees) < OF_DEGREES));
    return fit;
}

static bool same_but_recompute(struct layout a, const struct layout *b)
{
    a.recompute = b->recompute, a.recompute_layers = b->recompute_layers;
    a.mbs = b->mbs, a.order = b->order;
    return layout_equal(&a, b);
}

/* Tells whether no smaller micro-batches are as few. */
static bool smallest(const struct layout *l, const struct host_space_spec *spec)
{
    int64_t share = num_ceil_div(spec->space.gbs, l->dp);
    return l->mbs == 1 || num_ceil_div(share, l->mbs) < num_ceil_div(share, l->mbs - 1);
}

/* Every layout that fits, of all values of all keys, is looked at or dominated: another one with
 * the same degrees, virtual stages and way to shard is at least as fast, and either surely fits or
 * holds no more. Where ranks share cores, the price takes a short last micro-batch for a part of
 * one, also of what is done once for each; so larger ones of the same number are left out there. */
static void nothing_better(const struct space *all, const struct listed *of_all,
                           const struct space *some, const struct listed *of_some,
                           const struct host_space_spec *spec, bool shared)
{
    for (size_t i = 0; i < all->n; i++) {
        bool dominated = !of_all[i].fits || (shared && !smallest(&all->items[i], spec));
        for (size_t k = 0; k < some->n && !dominated; k++)
            dominated = same_but_recompute(some->items[k], &all->items[i]) &&
                        of_some[k].seconds <= of_all[i].seconds * (1 + 1e-12) &&
                        (of_some[k].chance >= 1 - spec->min_fit ||
                         of_some[k].bytes <= of_all[i].bytes);
        if (!dominated) {
            struct str text = STR_INIT;
            layout_format(&all->items[i], &text);
            fail_msg("%s is not looked at", text.p);
        }
    }
}

/* No layout's ranks need fewer bytes together than those of the nearest. */
static void nearest_is(const struct space *all, const struct listed *list,
                       const struct host_space_survey *survey)
{
    double least = INFINITY;
    for (size_t i = 0; i < all->n; i++)
        least = fmin(least, list[i].bytes * (double)layout_world(&all->items[i]));
    assert_true(survey->nearest_bytes * (double)layout_world(&survey->nearest) == least);
}

static struct listed *judged(struct host_space *h, const struct host_space_spec *spec,
                             const struct layout *always, const struct space *space, int64_t *fit)
{
    struct listed *list = test_calloc(space->n, sizeof *list);
    *fit = judge(h, spec, always, space, list);
    return list;
}

/* Opens the machine, with room for `best` layouts, and lists its layouts. */
static struct host_space *list_open(struct host_space_spec spec, int64_t cores, size_t best,
                                    size_t of_degrees, const struct layout *always, size_t n,
                                    struct space *out)
{
    struct err err;
    spec.best = best, spec.of_degrees = of_degrees;
    struct host_space *h = host_space_new(&spec, &err);
    assert_non_null(h);
    assert_ok(host_set(host_space_host(h), &rates, cores, &err), &err);
    struct target target = host_space_target(h);
    assert_ok(target_list(&target, always, n, out, &err), &err);
    return h;
}

/* Drops a layout that the list must have once. */
static void always_drop(struct space *some, const struct layout *always)
{
    size_t n = 0;
    for (size_t i = 0; i < some->n; i++)
        if (!layout_equal(&some->items[i], always))
            some->items[n++] = some->items[i];
    assert_int_equal(n, some->n - 1);
    some->n = n;
}

/* Holds what is looked at, as a list, and what is kept of it. */
static void held_to_list(const struct host_space_spec *spec, int64_t cores, bool surely)
{
    struct host_space_survey survey;
    struct space_spec every = spec->space;
    struct space all = {0}, looked = {0}, some = {0}, counts = {0};
    struct err err;
    int64_t fit, all_fit;
    size_t n = 0;
    every.all = true;
    assert_ok(space_build(&every, &all, &err), &err);
    const struct layout *always = &all.items[all.n - 1]; /* none of the best */
    struct host_space *h = list_open(*spec, cores, ALL, ALL, NULL, 0, &looked);
    struct listed *of_all = judged(h, spec, NULL, &all, &all_fit),
                  *of_looked = judged(h, spec, always, &looked, &fit);
    assert_ok(host_space_survey(h, &counts, &survey, &err), &err);
    nothing_better(&all, of_all, &looked, of_looked, spec, cores < 4);
    assert_int_equal(survey.fit, looked.n);
    assert_int_equal(survey.looked == survey.fit, surely);
    assert_int_equal(counts.legal, all.n);
    assert_int_equal(counts.visited, all.visited);
    if (!surely)
        nearest_is(&all, of_all, &survey);
    host_space_free(list_open(*spec, cores, BEST, OF_DEGREES, always, 1, &some));
    always_drop(&some, always);
    for (size_t i = 0; i < looked.n; i++)
        if (of_looked[i].kept && !layout_equal(&looked.items[i], always) &&
            (n >= some.n || !layout_equal(&looked.items[i], &some.items[n++])))
            fail_msg("item %zu of %zu is missing or out of place", i, looked.n);
    assert_int_equal(some.n, n);
    assert_true(some.n + 1 >= BEST && some.n < looked.n);
    test_free(of_all);
    test_free(of_looked);
    space_release(&all);
    space_release(&looked);
    space_release(&some);
    host_space_free(h);
}

static void the_fastest(void **state)
{
    struct run run;
    struct err err;
    struct layout two = layout_default();
    (void)state;
    two.dp = 2;
    run_init(&run);
    run.dtype = DTYPE_F32;
    assert_ok(model_load("dit-tiny", &run.model, &err), &err);
    run.model.layers = 7; /* up to three virtual stages; uneven ones */
    struct host_space_spec spec = {
        .space = {&run.model, {1, 8, 8}, 11, ranks, ARRAY_LEN(ranks)},
        .run = &run, .baseline = &two, .min_fit = 0.05};
    for (int64_t cores = 2; cores <= 4; cores += 2) {
        spec.memory_bytes = 0;
        held_to_list(&spec, cores, true);
        spec.memory_bytes = TIGHT;
        held_to_list(&spec, cores, false);
    }
    run_release(&run);
}

/* A baseline that is not met is told before anything is measured. */
static void baseline(void **state)
{
    struct run run;
    struct err err;
    struct host_space_survey survey;
    struct space counts;
    struct layout l = layout_default();
    (void)state;
    run_init(&run);
    assert_ok(model_load("dit-tiny", &run.model, &err), &err);
    struct host_space_spec spec = {.space = {&run.model, {1, 8, 8}, 8, ranks, 1},
                                   .run = &run, .baseline = &l};
    struct host_space *h = host_space_new(&spec, &err);
    assert_non_null(h);
    for (l.dp = 1; l.dp <= 2; l.dp++) {
        assert_ok(host_space_survey(h, &counts, &survey, &err), &err);
        assert_int_equal(survey.baseline, l.dp == 2);
    }
    host_space_free(h);
    run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_fastest), cmocka_unit_test(baseline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
