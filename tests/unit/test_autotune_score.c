/* The figures of a score, computed by hand from a few rows. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/score.h"

enum { ROOM = 18 };
struct rows {
    struct table_case cases[ROOM];
    struct score_row predicted[ROOM];
    struct table table;
};

/* Makes a table of rows that took a second each, and were predicted to take so many. The last two
 * have no time: one ran out of memory, and one is skipped. */
static struct score scored(struct rows *r, const double *predicted_s, size_t n)
{
    struct score s;
    struct err err;
    *r = (struct rows){.table = {.name = (char *)"by hand", .cases = r->cases, .n = n + 2}};
    for (size_t i = 0; i < n; i++) {
        r->cases[i].measured_s = 1;
        r->predicted[i].p.seconds = predicted_s[i];
    }
    r->cases[n].status = TABLE_OOM, r->predicted[n].p.seconds = 1000;
    r->cases[n + 1].skipped = "a mixture of experts", r->cases[n + 1].measured_s = 1;
    assert_ok(score_rows(&r->table, r->predicted, &s, &err), &err);
    return s;
}

/* Predictions are 0, 100, 300, 300 and 700 % too long. Divided by 4, the one in the middle, they are
 * 75, 50, 0, 0 and 100 % off. Of four, the larger of the two in the middle is 4 again. */
static void errors_of_times(void **state)
{
    static struct rows r;
    (void)state;
    struct score five = scored(&r, (const double[]){8, 1, 4, 2, 4}, 5),
                 four = scored(&r, (const double[]){8, 1, 4, 2}, 4);
    assert_close(five.mape_pct, 1400.0 / 5, 1e-12, "the mean");
    assert_close(five.p90_pct, 700, 1e-12, "the ninetieth percentile of five is the last");
    assert_close(five.mape_scaled_pct, 225.0 / 5, 1e-12, "after one factor");
    assert_close(four.mape_scaled_pct, 225.0 / 4, 1e-12, "of an even number");
    assert_true(five.used == 6 && five.skipped == 1 && five.oom_rows == 1);
}

/* A sweep whose eight rows took equally long has no rank correlation, and counts in none. One whose
 * predictions are equal says nothing of its order: 0. */
static void ranks_of_equals(void **state)
{
    static const struct { bool differ[2], predicted; double mean, worst; } cases[] = {
        {{false, false}, true, NAN, NAN}, {{true, false}, true, 1, 1}, {{false, true}, true, 1, 1},
        {{true, true}, true, 1, 1},       {{true, false}, false, 0, 0}};
    static struct rows r;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct score s;
        struct err err;
        r = (struct rows){.table = {.name = (char *)"by hand", .cases = r.cases, .n = 16}};
        for (int k = 0; k < 16; k++) {
            r.cases[k].sweep[0] = k < 8 ? 'a' : 'b';
            r.cases[k].measured_s = cases[i].differ[k / 8] ? 1 + k : 1;
            r.predicted[k].p.seconds = cases[i].predicted ? 2 + k : 2;
            r.predicted[k].p.p_fits = 1;
        }
        assert_ok(score_rows(&r.table, r.predicted, &s, &err), &err);
        assert_int_equal(s.sweeps, 2);
        if (isfinite(cases[i].mean))
            assert_true(s.spearman_mean == cases[i].mean && s.spearman_worst == cases[i].worst);
        else
            assert_true(isnan(s.spearman_mean) && isnan(s.spearman_worst));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_of_times),
                                       cmocka_unit_test(ranks_of_equals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
