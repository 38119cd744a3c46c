/* The layouts of a probed machine: those that are kept are the fastest of the whole list. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/host_space.h"
#include "autotune/memory.h"

enum { BEST = 40, OF_DEGREES = 3 };
static const int64_t ranks[] = {2, 4};
static const struct speed rates = {
    .gemm = {5e10, 1e11}, .attention = {3e10, 1e11}, .attention_backward = 2, .copy_bytes = 1e10,
    .input_s = {1e-9, 2e-9, 3e-9, 4e-9}, .update_bytes = 1e10, .norm_bytes = 1e10,
    .clear_bytes = 1e10, .move_bytes = 1e10, .rank_loss = 0.05,
    .link = {1e-6, 1e9}, .link_shared = {1e-6, 1e9}, .step_s = 1e-3};

/* A layout of the whole list, and whether it is to be kept. */
struct listed { double seconds; bool fits, kept; };

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

/* Prices, sizes and judges every layout of the list, one by one. Returns how many fit. */
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
        list[i].fits = memory_fits(&nothing, item.bytes, limit) >= spec->min_fit;
        fit += list[i].fits;
    }
    for (size_t i = 0; i < all->n; i++)
        list[i].kept = layout_equal(&all->items[i], always) ||
                       (list[i].fits && (before(all, list, i, world) < BEST ||
                                         before(all, list, i, degrees) < OF_DEGREES));
    return fit;
}

/* No layout's ranks need fewer bytes together than those of the nearest. */
static void nearest_is(const struct target *target, const struct space *all,
                       const struct host_space_survey *survey)
{
    struct target_item item;
    struct err err;
    double least = INFINITY;
    for (size_t i = 0; i < all->n; i++) {
        assert_ok(target_predict(target, &all->items[i], &item, &err), &err);
        least = fmin(least, item.bytes * (double)layout_world(&all->items[i]));
    }
    assert_ok(target_predict(target, &survey->nearest, &item, &err), &err);
    assert_true(item.bytes == survey->nearest_bytes);
    assert_true(item.bytes * (double)layout_world(&survey->nearest) == least);
}

static void held_to_list(const struct host_space_spec *spec, bool all_fit)
{
    struct host_space_survey survey;
    struct space all = {0}, some = {0}, counts = {0};
    struct err err;
    size_t n = 0;
    struct host_space *h = host_space_new(spec, &err);
    assert_non_null(h);
    assert_ok(space_build(&spec->space, &all, &err), &err);
    assert_ok(host_space_survey(h, &counts, &survey, &err), &err);
    assert_ok(host_set(host_space_host(h), &rates, 2, &err), &err);
    struct listed *list = calloc(all.n, sizeof *list);
    assert_non_null(list);
    const struct layout *always = &all.items[all.n - 1]; /* none of the best */
    int64_t fit = judge(h, spec, always, &all, list);
    struct target target = host_space_target(h);
    assert_ok(target_list(&target, always, 1, &some, &err), &err);
    assert_int_equal(survey.fit, fit);
    nearest_is(&target, &all, &survey);
    assert_true((fit == (int64_t)all.n) == all_fit && fit > 0);
    assert_int_equal(counts.legal, all.n);
    assert_int_equal(some.legal, all.n);
    assert_int_equal(some.visited, all.visited);
    for (size_t i = 0; i < all.n; i++)
        if (list[i].kept && (n >= some.n || !layout_equal(&all.items[i], &some.items[n++])))
            fail_msg("item %zu of %zu is missing or out of place", i, all.n);
    assert_int_equal(n, some.n);
    assert_true(some.n > BEST && some.n < all.n);
    free(list);
    space_release(&all);
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
    struct host_space_spec spec = {
        .space = {&run.model, {1, 8, 8}, 8, ranks, ARRAY_LEN(ranks)},
        .run = &run, .baseline = &two, .min_fit = 0.05, .best = BEST, .of_degrees = OF_DEGREES};
    held_to_list(&spec, true);
    spec.memory_bytes = 120e6;
    held_to_list(&spec, false);
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
