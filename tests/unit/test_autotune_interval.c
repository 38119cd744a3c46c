/* Intervals of predicted steps: a constant that was fitted adds nothing to the spread of its stack;
 * one that was not adds its prior's, times how much the step depends on it. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/interval.h"

static const struct model gpt = {.name = "g", .family = MODEL_GPT, .layers = 10, .hidden = 1024,
                                 .heads = 16, .kv_heads = 16, .ffn = 4096, .vocab = 32000,
                                 .patch_t = 1, .patch_h = 1, .patch_w = 1};

struct fixture {
    struct stack stack;
    struct cluster cluster;
    struct work_weights weights;
    struct constants constants;
    double v[CONSTANTS];
    struct layout layout;
    struct work work;
};

static void fixture_open(struct fixture *f)
{
    struct err err;
    *f = (struct fixture){.layout = layout_default()};
    assert_ok(stack_load("megatron", &f->stack, &err), &err);
    assert_ok(cluster_load("dgx-a100:1", &f->cluster, &err), &err);
    assert_ok(work_weights(&gpt, &f->weights, &err), &err);
    struct work_spec spec = {.model = &gpt, .stack = &f->stack, .weights = &f->weights,
                             .seq = {1, 1, 2048}, .gbs = 64, .act = DTYPE_BF16};
    f->layout.dp = 8;
    work_build(&spec, &f->layout, &f->work);
}

static double sd_of(struct fixture *f)
{
    constants_resolve(&f->constants, &f->cluster.device, &f->stack, f->v);
    struct interval_of of = {.constants = &f->constants, .v = f->v, .cluster = &f->cluster,
                             .stack = &f->stack, .act = DTYPE_BF16};
    return interval_sd(&of, &f->work, &f->layout);
}

static double step_of(struct fixture *f)
{
    struct price_machine machine;
    struct price price;
    struct price_step step;
    constants_resolve(&f->constants, &f->cluster.device, &f->stack, f->v);
    price_machine(&f->cluster, f->v, DTYPE_BF16, false, &machine);
    price_parts(&machine, &f->work, &price);
    price_step(&price, &f->layout, &step);
    return step.seconds;
}

/* Adds each constant of time at its prior, but for one. */
static void tell_all_but(struct fixture *f, int untold)
{
    f->constants.n = 0;
    for (int id = 0; id < CONSTANTS; id++)
        if (id != untold)
            assert_non_null(constants_at(&f->constants, (enum constant_id)id, &f->cluster.device,
                                         &f->stack));
}

static void untold(void **state)
{
    static struct fixture f;
    (void)state;
    fixture_open(&f);
    tell_all_but(&f, -1);
    double s = step_of(&f), fitted = sd_of(&f);
    assert_close(fitted, f.v[CONSTANT_TIME_SD], 1e-12, "all were fitted");
    tell_all_but(&f, CONSTANT_STEP_S);
    double share = f.v[CONSTANT_STEP_S] / s * constant_table[CONSTANT_STEP_S].sd;
    assert_close(sd_of(&f), hypot(fitted, share), 1e-3, "step_s is added once");
    tell_all_but(&f, CONSTANT_LOGITS);
    assert_close(sd_of(&f), fitted, 1e-12, "memory tells nothing of time");
    f.constants.n = 0;
    double all = sd_of(&f);
    assert_true(all > 1.3 * fitted);
    struct constant *k = constants_at(&f.constants, CONSTANT_COMPUTE, &f.cluster.device, &f.stack);
    assert_non_null(k);
    assert_true(sd_of(&f) < all);
}

/* A stack on a device that no row was of is off by the spread between such pairs, 0.13, besides the
 * prior of what it computes; rows of the stack on another device, and of another stack on the device,
 * do not change that. */
static void untold_pair(void **state)
{
    static struct fixture f, other;
    (void)state;
    fixture_open(&f);
    tell_all_but(&f, -1);
    double fitted = sd_of(&f), v = f.v[CONSTANT_COMPUTE], s = step_of(&f);
    struct constant *k = constants_at(&f.constants, CONSTANT_COMPUTE, &f.cluster.device, &f.stack);
    k->value = v * 1.0001;
    double depends = log(step_of(&f) / s) / log(1.0001);
    assert_true(depends > 0.5 && depends <= 1);
    double prior = depends * constant_table[CONSTANT_COMPUTE].sd;
    tell_all_but(&f, CONSTANT_COMPUTE);
    assert_close(sd_of(&f), sqrt(fitted * fitted + prior * prior + 0.13 * 0.13), 1e-3, "a pair");
    fixture_open(&other);
    snprintf(other.cluster.device.name, sizeof other.cluster.device.name, "another");
    assert_non_null(constants_at(&f.constants, CONSTANT_COMPUTE, &other.cluster.device, &f.stack));
    snprintf(other.stack.name, sizeof other.stack.name, "another");
    assert_non_null(constants_at(&f.constants, CONSTANT_COMPUTE, &f.cluster.device, &other.stack));
    assert_close(sd_of(&f), sqrt(fitted * fitted + prior * prior + 0.13 * 0.13), 1e-3, "others");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(untold), cmocka_unit_test(untold_pair)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
