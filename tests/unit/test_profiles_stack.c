/* Stacks: by name, by what tables call them, and those whose constants another shares. */
#include "tests/lib/test_profiles.h"

#include "profiles/catalog.h"
#include "profiles/constants.h"
#include "profiles/stack.h"

static void framework_is(const char *framework, int attention, const char *name)
{
    struct stacks all = {0};
    struct err err;
    assert_ok(stacks_load(&all, &err), &err);
    const struct stack *s = stack_of_framework(&all, framework, attention);
    assert_string_equal(s ? s->name : "none", name ? name : "none");
    stacks_release(&all);
}

static void stacks(void **state)
{
    const char *const *names = catalog_stack_names;
    struct stack s;
    struct err err;
    (void)state;
    assert_non_null(*names);
    for (; *names; names++) {
        assert_ok(stack_load(*names, &s, &err), &err);
        assert_string_equal(s.name, *names);
    }
    assert_fails(stack_load("megatorn", &s, &err), ERR_NOT_FOUND, &err, "mean 'megatron'");
    framework_is("Megatron-LM 0.14", -1, "megatron");
    framework_is("Megatron-LM", ATTENTION_FUSED_SCORES, "megatron-2021");
    framework_is("Megatron-LM", ATTENTION_FLASH2, "megatron-2021");
    framework_is("Megatron-DeepSpeed", ATTENTION_FLASH, "megatron-deepspeed");
    framework_is("PyTorch FSDP (Composer)", -1, "fsdp");
    framework_is("FSDP2", -1, "fsdp2");
    framework_is("NeMo Automodel FSDP2", -1, "automodel");
    framework_is("megatron-lm 0.14", -1, "megatron");
    framework_is("megatron-lmx", -1, NULL);
    framework_is("fsdp2x", -1, NULL);
    framework_is("nobody's", -1, NULL);
}

/* DFM runs on Megatron-Core: what was learnt for that holds for it. Automodel stands alone. */
static void like_another(void **state)
{
    static struct constants c = {.n = 1};
    static const struct { const char *name; double value; } cases[] = {
        {"megatron", 1.7}, {"dfm", 1.7}, {"automodel", 1}};
    double v[CONSTANTS];
    struct cluster h100;
    struct err err;
    (void)state;
    assert_ok(cluster_load("dgx-h100:1", &h100, &err), &err);
    c.items[0] = (struct constant){.id = CONSTANT_ELEMENTWISE, .stack = "megatron", .value = 1.7};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct stack s;
        assert_ok(stack_load(cases[i].name, &s, &err), &err);
        constants_resolve(&c, &h100.device, &s, v);
        assert_true(v[CONSTANT_ELEMENTWISE] == cases[i].value);
        assert_non_null(constants_at(&c, CONSTANT_ELEMENTWISE, &h100.device, &s));
        assert_int_equal(c.n, i == 2 ? 2 : 1); /* only Automodel gets one of its own */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stacks), cmocka_unit_test(like_another)};
    return cmocka_run_group_tests_name("profiles_stack", tests, NULL, NULL);
}
