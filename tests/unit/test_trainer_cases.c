/* Every operation's cases (tests/gpu/cases.h) on the tables of the CPU and on the far device. The
 * tables of f32 and bf16 are held to that of f64, which the other tests hold to definitions and to
 * central differences. That of bf16 is f32's on the same numbers, each result rounded once. The far
 * device gives the bits of the CPU, of each case in one type, in another one on each day.
 *
 *     ORDERS=all test_trainer_cases            in all types
 *     DRAW=1 test_trainer_cases                in the types of day 1 */
// SLOW
#include <time.h>

#include "tests/gpu/cases.h"
#include "tests/lib/trainer_fixture.h"

#include "base/bf16.h"
#include "trainer/dev/dev_far.h"
#include "trainer/ops/ops_far.h"

enum { TYPES = 3 };
static const enum dtype types[TYPES] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static struct bench near_open(enum dtype dtype)
{
    struct bench b = {0};
    struct err err = {0};
    must(dev_cpu_open(true, &b.dev, &err), &err);
    must(b.dev->stream_new(b.dev, "compute", DEV_PRIORITY_NORMAL, &b.stream, &err), &err);
    must(ops_cpu_open(b.dev, dtype, OPS_BLAS_OWN, &b.ops, &err), &err);
    return b;
}

static struct bench far_open(uint64_t seed, enum dtype dtype)
{
    struct bench b = {0};
    struct err err = {0};
    must(dev_far_open(seed, &b.dev, &err), &err);
    must(b.dev->stream_new(b.dev, "compute", DEV_PRIORITY_NORMAL, &b.stream, &err), &err);
    must(ops_far_open(b.dev, dtype, OPS_BLAS_OWN, &b.ops, &err), &err);
    return b;
}

/* Tells of every difference, before the test fails. */
static int told(int rc, const struct err *err)
{
    if (rc < 0)
        print_error("%s\n", err->text);
    return rc < 0;
}

static struct case_result run(const struct bench *b, const struct op_case *c, const struct ops *as)
{
    struct case_result r = {0};
    struct err err = {0};
    must(case_run(b->ops, b->stream, c, case_types_of(as), &r, &err), &err);
    return r;
}

static void test_all_operations(void **state)
{
    (void)state;
#define HAS_CASES(op, args) assert_true(case_count_of(#op) >= 2);
    OPS_LIST(HAS_CASES)
    assert_int_equal(case_count_of("no such operation"), 0);
}

/* Against f64 on the same numbers. */
static void test_near_f64(void **state)
{
    (void)state;
    int wrong = 0;
    struct bench f64_table = near_open(DTYPE_F64);
    for (int k = 1; k < TYPES; k++) {
        struct bench b = near_open(types[k]);
        for (int i = 0; i < case_count(); i++) {
            const struct op_case c = case_at(i);
            struct case_result want = run(&f64_table, &c, b.ops), got = run(&b, &c, b.ops);
            struct err err = {0};
            wrong += told(case_near(&got, &want, NULL, &err), &err);
            case_release(&want), case_release(&got);
        }
        bench_close(&b);
    }
    bench_close(&f64_table);
    assert_int_equal(wrong, 0);
}

/* Rounds what f32 gives to the type that bf16's table has stored. */
static void round_once(struct case_result *r, const struct case_result *like)
{
    for (int k = 0; k < r->n; k++)
        for (int64_t i = 0; i < r->out[k].rows * r->out[k].cols; i++)
            if (like->out[k].rounds_itself)
                r->out[k].x[i] = like->out[k].x[i];
            else if (like->out[k].stored == DTYPE_BF16)
                r->out[k].x[i] = (double)bf16_value(bf16_round_double(r->out[k].x[i]));
}

static void test_bf16_is_f32_rounded(void **state)
{
    (void)state;
    int wrong = 0;
    struct bench wide = near_open(DTYPE_F32), narrow = near_open(DTYPE_BF16);
    for (int i = 0; i < case_count(); i++) {
        const struct op_case c = case_at(i);
        struct case_result want = run(&wide, &c, narrow.ops), got = run(&narrow, &c, narrow.ops);
        struct err err = {0};
        round_once(&want, &got);
        wrong += told(case_same(&got, &want, &err), &err);
        case_release(&want), case_release(&got);
    }
    bench_close(&wide), bench_close(&narrow);
    assert_int_equal(wrong, 0);
}

static bool far_is_tried(int i, int type)
{
    const char *orders = getenv("ORDERS"), *draw = getenv("DRAW");
    int64_t day = draw ? atoi(draw) : time(NULL) / (24 * 3600);
    return (orders && strcmp(orders, "all") == 0) || (i + day) % TYPES == type;
}

static void test_far(void **state)
{
    (void)state;
    int wrong = 0;
    for (int k = 0; k < TYPES; k++) {
        struct bench b = near_open(types[k]), far[2] = {far_open(1, types[k]),
                                                        far_open(77, types[k])};
        for (int i = 0; i < case_count(); i++) {
            if (!far_is_tried(i, k))
                continue;
            const struct op_case c = case_at(i);
            struct case_result want = run(&b, &c, b.ops);
            for (int f = 0; f < 2; f++) {
                struct case_result got = run(&far[f], &c, b.ops);
                struct err err = {0};
                wrong += told(case_same(&got, &want, &err), &err);
                case_release(&got);
            }
            case_release(&want);
        }
        bench_close(&b), bench_close(&far[0]), bench_close(&far[1]);
    }
    assert_int_equal(wrong, 0);
}

/* ---- what is refused ---- */

static struct op_case case_named(const char *op, const char *name, bool views)
{
    int i = 0;
    struct op_case c = case_at(0);
    while (strcmp(c.op, op) != 0 || strcmp(c.name, name) != 0 || c.views != views) {
        assert_true(++i < case_count());
        c = case_at(i);
    }
    return c;
}

static const struct ops *honest;

/* These add one column too many, take alpha for 1, and do not write y again. */
static void axpy_beside(struct ops *o, struct dev_stream *s, const struct ops_axpy *a)
{
    struct ops_axpy wide = *a;
    wide.x.cols++, wide.y.cols++;
    honest->axpy(o, s, &wide);
}
static void axpy_plain(struct ops *o, struct dev_stream *s, const struct ops_axpy *a)
{
    honest->axpy(o, s, &(struct ops_axpy){a->x, a->y, 1});
}
static void act_bwd_lazy(struct ops *o, struct dev_stream *s, const struct ops_act *a)
{
    struct ops_act less = *a;
    less.y = tensor_none();
    honest->act_bwd(o, s, &less);
}

static void run_is_refused(struct bench *b, const struct op_case *c, int code, const char *word)
{
    struct case_result r = {0};
    struct err err = {0};
    assert_int_equal(case_run(b->ops, b->stream, c, case_types_of(b->ops), &r, &err), code);
    assert_int_equal(r.n, 0);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not name %s", err.text, word);
}

/* A write beside a view, a twin that is not written, a wrong number. */
static void test_broken_tables(void **state)
{
    (void)state;
    struct bench b = near_open(DTYPE_F32);
    struct ops keep = *b.ops;
    struct op_case axpy = case_named("axpy", "of its own", true),
                   silu = case_named("act_bwd", "silu", false);
    struct case_result want = run(&b, &axpy, b.ops), got;
    struct err err = {0};
    honest = &keep;
    b.ops->axpy = axpy_beside;
    run_is_refused(&b, &axpy, ERR_CORRUPT, "memory of 'y'");
    b.ops->act_bwd = act_bwd_lazy;
    run_is_refused(&b, &silu, ERR_NO, "'y again'");
    b.ops->axpy = axpy_plain;
    got = run(&b, &axpy, b.ops);
    assert_int_equal(case_near(&got, &want, NULL, &err), ERR_NO);
    assert_non_null(strstr(err.text, "axpy, of its own, views: output 'y'"));
    *b.ops = keep;
    case_release(&got), case_release(&want);
    bench_close(&b);
}

/* Distances at what is allowed: one element, all of them, more than the CPU's, NaN, a bit. */
static void test_distances(void **state)
{
    (void)state;
    struct bench wide = near_open(DTYPE_F64), narrow = near_open(DTYPE_BF16);
    struct op_case c = case_named("axpy", "even", false);
    struct case_result want = run(&wide, &c, narrow.ops), cpu = run(&narrow, &c, narrow.ops),
                       got = run(&narrow, &c, narrow.ops);
    struct case_output *x = &got.out[0];
    struct err err = {0};
    int64_t n = x->rows * x->cols;
    assert_int_equal(case_near(&got, &want, &cpu, &err), 0);
    for (int64_t i = 0; i < n; i++) /* 1.4 times the error, and far below 4e-3 */
        x->x[i] += 0.4 * (x->x[i] - want.out[0].x[i]);
    assert_int_equal(case_near(&got, &want, NULL, &err), 0);
    assert_int_equal(case_near(&got, &want, &cpu, &err), ERR_NO);
    memcpy(x->x, cpu.out[0].x, (size_t)n * sizeof *x->x);
    x->x[n - 1] = nextafter(x->x[n - 1], 9);
    assert_int_equal(case_near(&got, &want, &cpu, &err), 0);
    assert_int_equal(case_same(&got, &cpu, &err), ERR_NO);
    x->x[n - 1] = want.out[0].x[n - 1] + 0.1; /* 2e-3 of all, 2e-2 of the largest */
    assert_int_equal(case_near(&got, &want, NULL, &err), ERR_NO);
    x->x[n - 1] = NAN;
    assert_int_equal(case_near(&got, &want, NULL, &err), ERR_NO);
    x->x[n - 1] = want.out[0].x[n - 1], x->exact = true; /* now it is not rounded */
    assert_int_equal(case_near(&got, &want, NULL, &err), ERR_NO);
    case_release(&got), case_release(&want), case_release(&cpu);
    bench_close(&wide), bench_close(&narrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_operations), cmocka_unit_test(test_near_f64),
        cmocka_unit_test(test_bf16_is_f32_rounded), cmocka_unit_test(test_far),
        cmocka_unit_test(test_broken_tables), cmocka_unit_test(test_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
