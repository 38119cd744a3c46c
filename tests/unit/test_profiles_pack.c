/* Packs: every sample once, no pack above its tokens, little room wasted, the same whatever is
 * asked twice. */
#include "tests/lib/test_profiles.h"

#include "base/philox.h"
#include "profiles/pack.h"

enum { N = 3000, MOST = 100 };

static int64_t *lengths(int64_t n, int64_t most)
{
    int64_t *t = calloc((size_t)n, sizeof *t);
    for (int64_t i = 0; i < n; i++)
        t[i] = 1 + (int64_t)(philox_at(3, PHILOX_TEST, 0, (uint64_t)i).w[0] % (uint64_t)most);
    return t;
}

static void every_sample_once(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= N; n = n * 7 + 1) {
        int64_t *tokens = lengths(n, MOST), sum = 0, *seen = calloc((size_t)n, sizeof *seen);
        struct packs p;
        struct err err;
        assert_ok(packs_build(tokens, n, MOST, 9, &p, &err), &err);
        assert_int_equal(p.first[0], 0);
        assert_int_equal(p.first[p.n], n);
        for (int64_t k = 0; k < p.n; k++) {
            int64_t room = MOST;
            assert_true(p.first[k + 1] > p.first[k]);
            for (int64_t i = p.first[k]; i < p.first[k + 1]; i++) {
                room -= tokens[p.members[i]];
                assert_int_equal(seen[p.members[i]]++, 0);
            }
            assert_true(room >= 0);
            sum += MOST - room;
        }
        if (n > 1000)
            assert_true((double)sum > 0.97 * (double)(p.n * MOST));
        packs_release(&p);
        free(tokens);
        free(seen);
    }
}

static void seed_and_order(void **state)
{
    int64_t *tokens = lengths(N, 30);
    struct packs a, b, c;
    struct err err;
    (void)state;
    assert_ok(packs_build(tokens, N, MOST, 9, &a, &err), &err);
    assert_ok(packs_build(tokens, N, MOST, 9, &b, &err), &err);
    assert_ok(packs_build(tokens, N, MOST, 10, &c, &err), &err);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.members, b.members, N * sizeof *a.members);
    assert_memory_not_equal(a.members, c.members, N * sizeof *a.members);
    packs_release(&a);
    packs_release(&b);
    packs_release(&c);
    free(tokens);
}

static void too_long(void **state)
{
    const int64_t tokens[] = {5, 9, 4};
    struct packs p = {0};
    struct err err;
    (void)state;
    assert_int_equal(packs_build(tokens, 3, 8, 1, &p, &err), ERR_INPUT);
    assert_says(&err, "sample 1 has 9 tokens, a pack takes 8");
    assert_true(p.n == 0 && !p.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_once),
                                       cmocka_unit_test(seed_and_order),
                                       cmocka_unit_test(too_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
