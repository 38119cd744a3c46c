/* Comparing checkpoints: layouts do not matter, the measure is what it says, and what cannot be
 * compared is never equal. */
#include "tests/lib/fault.h"
#include "tests/lib/trainer_state.h"

#include "trainer/ckpt/ckpt_diff.h"

/* Numbers from -1 to 1, v's of 1e-20; one of them may be another. */
static double odd_number, odd_value;
static bool odd;

static void put_small(double *element, double number)
{
    int buffer = (int)((int64_t)(number / 0x1p38) % 4);
    *element = sin(number / 0x1p28 + fmod(number, 0x1p28)) * (buffer == CKPT_V ? 1e-20 : 1);
    if (odd && number == odd_number)
        *element = odd_value;
}

static void folder_of(const char *name, const struct model *m, const char *layout)
{
    struct layout l = layout_of_text(layout);
    struct param_list params;
    struct err err = {0};
    char dir[LIMIT_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", in_scratch(name));
    must(params_build(m, &params, &err), &err);
    folder_write(dir, m, &(struct finetune){0}, &params, &l, 9, put_small);
    params_release(&params);
}

static struct ckpt_diff diff_of(double tol, double floor)
{
    struct ckpt_diff d;
    struct err err = {0};
    char a[LIMIT_PATH_BYTES], b[LIMIT_PATH_BYTES];
    snprintf(a, sizeof a, "%s", in_scratch("a"));
    snprintf(b, sizeof b, "%s", in_scratch("b"));
    must(ckpt_diff(a, b, tol, floor, &d, &err), &err);
    return d;
}

static void layouts_do_not_matter(void **state)
{
    struct model m = wide_model(MODEL_DIT, ADALN_LORA_FUSED);
    (void)state;
    folder_of("a", &m, "tp=4,sp=1,dp=2,zero=3");
    folder_of("b", &m, "pp=4");
    struct ckpt_diff d = diff_of(0, 1e-12);
    assert_true(d.n == 4 * d.n_tensors && d.n_beyond == 0 && d.largest == 0 && d.n_tensors > 50);
    ckpt_diff_release(&d);
}

/* One number of tensor 2 is another: how far, in which buffer, and when that is too far. */
static void the_measure(void **state)
{
    struct model m = wide_model(MODEL_DIT, ADALN_NONE);
    static const struct { int buffer; double by, floor, want; } rows[] = {
        {CKPT_WEIGHTS, 1e-3, 1e-12, 1e-3}, {CKPT_M, 1e-13, 1e-12, 1e-13}, {CKPT_EMA, 3, 1e-12, 3},
        {CKPT_WEIGHTS, 1e-3, 10, 1e-4},     /* the floor, where it is above the numbers */
        /* v's numbers are squares: a floor of 1e-12 would hide them, its square does not */
        {CKPT_V, 1e-21, 1e-12, 0.1},
        {CKPT_V, 1e-21, 1e-9, 1e-3},
    };
    (void)state;
    for (int i = 0; i < LEN(rows); i++) {
        odd = false;
        folder_of("a", &m, "dp=1");
        odd = true;
        odd_number = state_number(9, rows[i].buffer, 2, 17);
        odd = false, put_small(&odd_value, odd_number), odd = true;
        odd_value += rows[i].by;
        folder_of("b", &m, "tp=2,dp=2,zero=1");
        struct ckpt_diff d = diff_of(rows[i].want / 2, rows[i].floor),
                         wide = diff_of(rows[i].want * 2, rows[i].floor);
        assert_true(d.n_beyond == 1 && d.rows[0].beyond &&
                    (int)d.rows[0].buffer == rows[i].buffer && d.rows[0].kind == CKPT_DIFF_VALUE);
        if (!(d.rows[0].difference > 0.95 * rows[i].want &&
              d.rows[0].difference < 1.3 * rows[i].want))
            fail_msg("row %d: %.3g", i, d.rows[0].difference);
        assert_true(wide.n_beyond == 0 && wide.largest == d.rows[0].difference &&
                    strcmp(d.rows[0].name, wide.rows[0].name) == 0);
        ckpt_diff_release(&d);
        ckpt_diff_release(&wide);
    }
    odd = false;
}

static int64_t count_of(const struct ckpt_diff *d, enum ckpt_diff_kind kind)
{
    int64_t n = 0;
    for (int64_t i = 0; i < d->n; i++)
        n += d->rows[i].kind == kind && d->rows[i].beyond;
    return n;
}

static void what_cannot_be_compared(void **state)
{
    struct model m = wide_model(MODEL_DIT, ADALN_NONE), other = m, fewer = m;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    folder_of("a", &m, "dp=2,zero=3");
    for (int i = 0; i < LEN(bad); i++) {
        odd = true, odd_value = bad[i], odd_number = state_number(9, CKPT_V, 2, 5);
        folder_of("b", &m, "dp=1");
        odd = false;
        struct ckpt_diff d = diff_of(1e9, 1e-12);
        assert_true(d.n_beyond == 1 && count_of(&d, CKPT_DIFF_NOT_FINITE) == 1 && d.rows[0].beyond);
        ckpt_diff_release(&d);
    }
    other.text_width += 2; /* cross.kv of each layer, and the null token */
    folder_of("b", &other, "dp=1");
    struct ckpt_diff d = diff_of(1e9, 1e-12);
    assert_true(d.n_beyond == 4 * 5 && count_of(&d, CKPT_DIFF_SHAPE) == 4 * 5);
    ckpt_diff_release(&d);
    fewer.layers = 3;
    folder_of("b", &fewer, "dp=1");
    d = diff_of(1e9, 1e-12);
    int64_t missing = count_of(&d, CKPT_DIFF_MISSING);
    assert_true(missing > 20 && missing == d.n_beyond);
    ckpt_diff_release(&d);
    folder_of("b", &m, "dp=1"); /* the other way round */
    folder_of("a", &fewer, "dp=1");
    d = diff_of(1e9, 1e-12);
    assert_true(count_of(&d, CKPT_DIFF_MISSING) == missing && missing == d.n_beyond);
    ckpt_diff_release(&d);
}

/* Every allocation and read fails once: an error, never another answer. */
static void any_call_may_fail(void **state)
{
    struct model m = wide_model(MODEL_DIT, ADALN_NONE);
    static const enum fault_kind kinds[] = {FAULT_ALLOC, FAULT_READ};
    char a[LIMIT_PATH_BYTES], b[LIMIT_PATH_BYTES];
    (void)state;
    folder_of("a", &m, "tp=2,pp=2,zero=1,dp=2");
    folder_of("b", &m, "dp=1");
    snprintf(a, sizeof a, "%s", in_scratch("a"));
    snprintf(b, sizeof b, "%s", in_scratch("b"));
    for (int k = 0; k < LEN(kinds); k++) {
        bool met = true;
        long n = 1;
        for (; met; n += fault_step(7)) {
            struct ckpt_diff d = {0};
            struct err err = {0};
            fault_arm(kinds[k], n);
            int rc = ckpt_diff(a, b, 0, 1e-12, &d, &err);
            met = fault_disarm();
            if (met ? rc != (kinds[k] == FAULT_ALLOC ? ERR_NOMEM : ERR_IO) || !err.text[0]
                    : rc != 0 || d.n_beyond != 0)
                fail_msg("%s %ld: %d '%s'", fault_names[kinds[k]], n, rc, err.text);
            ckpt_diff_release(&d);
        }
        assert_true(n > 20);
    }
}

#define ALONE(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {ALONE(layouts_do_not_matter), ALONE(the_measure),
                                       ALONE(what_cannot_be_compared), ALONE(any_call_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
