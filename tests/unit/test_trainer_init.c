/* First values: each tensor has the deviation that its kind asks for, and any part of it has the
 * values of the whole. */
#include "tests/lib/dit_small.h"


static void test_init(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct param_list list;
    struct err err = {0};
    assert_int_equal(params_build(&m, &list, &err), 0);
    for (int64_t i = 0; i < list.n; i++) {
        const struct param *p = &list.items[i];
        double *x = malloc((size_t)p->count * sizeof *x), part[7];
        first_values(p, 3, 0, p->count, x);
        double rms = sqrt(dot(x, x, p->count) / (double)p->count);
        double fans = (double)(p->dim[0] + p->dim[1]);
        /* a uniform distribution of half width a has the deviation a / sqrt(3) */
        double want = p->init == PARAM_ZERO     ? 0
                      : p->init == PARAM_ONE    ? 1
                      : p->init == PARAM_NORMAL ? p->init_std
                                                : sqrt(2.0 / fans);
        assert_true(fabs(rms - want) <= (p->init == PARAM_ZERO || p->init == PARAM_ONE
                                             ? 0
                                             : 4 * want / sqrt((double)p->count)));
        if (p->count >= 20) { /* any part alone, as a rank that owns a shard makes it */
            first_values(p, 3, 11, 7, part);
            assert_memory_equal(part, x + 11, sizeof part);
        }
        free(x);
    }
    params_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
