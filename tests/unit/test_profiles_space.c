/* Space: hand-counted layouts, every legal layout of the grid met once, the reasons add up. */
#include "test_profiles.h"

#include "profiles/space.h"

static struct model tiny(void)
{
    struct model m;
    struct err err;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    return m;
}

static bool same(const struct layout *a, const struct layout *b)
{
    struct str s = STR_INIT, t = STR_INIT;
    layout_format(a, &s);
    layout_format(b, &t);
    bool equal = strcmp(s.p, t.p) == 0;
    str_release(&s);
    str_release(&t);
    return equal;
}

/* What is visited is kept or has a reason, and a layout stands in the list once. */
static void check_sums(const struct space *s)
{
    int64_t out = 0;
    for (size_t k = 0; k < s->n_excluded; k++) {
        assert_true(s->excluded[k].count > 0 && s->excluded[k].sentence[0]);
        out += s->excluded[k].count;
        for (size_t i = 0; i < k; i++)
            assert_string_not_equal(s->excluded[k].rule, s->excluded[i].rule);
    }
    assert_int_equal(s->visited, (int64_t)s->n + out);
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(same(&s->items[i], &s->items[k]));
}

/* A caller's limits. */
static bool dp_alone(const struct layout *l) { return l->tp * l->cp * l->pp == 1; }
static bool plain_state(const struct layout *l)
{
    return l->zero <= 1 && l->fsdp == 0 && l->recompute != RECOMPUTE_SELECTIVE;
}
static const struct space_limit few[] = {{"dp-alone", "dp and nothing else", dp_alone}, {"plain-state", "little sharding", plain_state}};

/* What the trainer can run, counted by hand: micro-batches x recompute (none, full) x zero (0, and 1 when dp > 1). */
static void counts(void **state)
{
    static const struct { int64_t gbs, ranks[2]; size_t n_ranks, n; int rc; const char *says; } rows[] = {
        {1, {1}, 1, 2, 0, NULL},
        {4, {1}, 1, 8, 0, NULL},        /* mbs 1..4 */
        {4, {2}, 1, 8, 0, NULL},        /* mbs 1, 2 */
        {4, {1, 2}, 2, 16, 0, NULL},
        {9, {1}, 1, 18, 0, NULL},       /* mbs 1..8, 9 */
        {2, {4}, 1, 0, ERR_NO, "no layout is left for model 'dit-tiny', gbs 2"},
        {0, {1}, 1, 0, ERR_INPUT, "gbs is 0"},
        {4, {0}, 1, 0, ERR_INPUT, "ranks is 0"},
        {4, {2, 2}, 2, 0, ERR_INPUT, "ranks has 2 twice"},
        {4, {1}, 0, 0, ERR_INPUT, "no number of ranks"},
    };
    struct model m = tiny();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct space_spec spec = {&m, {1, 8, 8}, rows[i].gbs, rows[i].ranks, rows[i].n_ranks, few, ARRAY_LEN(few)};
        struct space s = {0};
        struct err err = {0};
        int rc = space_build(&spec, &s, &err);
        if (rc == 0)
            rc = space_check(&spec, &s, &err);
        if (rows[i].rc < 0)
            assert_fails(rc, rows[i].rc, &err, rows[i].says);
        else
            assert_ok(rc, &err);
        assert_int_equal(s.n, rows[i].n);
        check_sums(&s);
        space_release(&s);
    }
}

static size_t times_met(const struct space *s, const struct layout *l)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += same(&s->items[i], l);
    return n;
}

/* All that the rules allow on two ranks with one sample each, by hand. */
static void whole_of_two(void **state)
{
    static const char *const grids[] = {"tp=2", "tp=2,sp=1", "cp=2", "cp=2,cp_kind=a2a", "pp=2", "pp=2,vpp=2", "dp=2"};
    static const char *const states[] = {"", ",zero=1", ",zero=2", ",zero=3"}; /* one rank shards nothing: of dp=2 only */
    static const char *const over_cp[] = {"", ",zero=1,fsdp=2", ",zero=2,fsdp=2", ",zero=3,fsdp=2"};
    static const char *const recomputes[] = {"", ",recompute=selective", ",recompute=full"};
    struct model m = tiny();
    struct space_spec spec = {&m, {1, 8, 8}, 2, (const int64_t[]){2}, 1, NULL, 0};
    struct space s = {0};
    struct err err;
    size_t want = 0;
    (void)state;
    m.heads = m.kv_heads = 4;
    assert_ok(space_build(&spec, &s, &err), &err);
    check_sums(&s);
    for (size_t g = 0; g < ARRAY_LEN(grids); g++)
        for (size_t z = 0; z < (g == 2 || g == 3 || g == 6 ? 4 : 1); z++)
            for (size_t r = 0; r < ARRAY_LEN(recomputes); r++)
                for (int64_t mbs = 1; mbs <= (strcmp(grids[g], "dp=2") ? 2 : 1); mbs++, want++) {
                    char text[128];
                    struct layout l;
                    snprintf(text, sizeof text, "%s%s%s,mbs=%lld", grids[g], g == 6 ? states[z] : over_cp[z],
                             recomputes[r], (long long)mbs);
                    assert_ok(layout_parse(text, &l, &err), &err);
                    if (times_met(&s, &l) != 1)
                        fail_msg("%s is met %zu times", text, times_met(&s, &l));
                }
    assert_int_equal(s.n, want);
    space_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(whole_of_two)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
