/* The bf16 table: its rounding, conversions, products and sums that have one right answer, and
 * what it refuses. What else it is held to: test_trainer_cases.c. */
#include "base/bf16.h"
#include "tests/lib/trainer_fixture.h"

/* ---- three tables on the same numbers ---- */

/* Tensors of f64, f32 and bf16 hold the same numbers. Columns from `cols` up to `ld` belong to
 * nobody and stay as they are. */
enum { TRIO = 3, MARGIN = 3 };
static const double F32 = 0x1p-24; /* of a number, at most, in one rounding */

struct trio { struct tensor t[TRIO]; };

static double trio_get(const struct tensor *t, int64_t i, int64_t j)
{
    const void *p = tensor_at(t, i, j);
    return t->dtype == DTYPE_F64   ? *(const double *)p
           : t->dtype == DTYPE_F32 ? (double)*(const float *)p
                                   : (double)bf16_value(*(const uint16_t *)p);
}

static void trio_put(const struct tensor *t, int64_t i, int64_t j, double x)
{
    void *p = tensor_at(t, i, j);
    if (t->dtype == DTYPE_F64)
        *(double *)p = x;
    else if (t->dtype == DTYPE_F32)
        *(float *)p = (float)x;
    else
        *(uint16_t *)p = bf16_round_double(x);
}

/* Returns three tensors that are NaN everywhere, margins included. */
static struct trio act_new(int64_t rows, int64_t cols)
{
    static const enum dtype types[TRIO] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
    struct trio x;
    for (int k = 0; k < TRIO; k++) {
        size_t bytes = (size_t)((rows + 1) * (cols + MARGIN) * dtype_bytes(types[k]));
        x.t[k] = (struct tensor){malloc(bytes), types[k], rows, cols, cols + MARGIN};
        assert_non_null(x.t[k].ptr);
        memset(x.t[k].ptr, 0xff, bytes);
    }
    return x;
}

/* Copies the numbers of one tensor, which have to be bf16's, into all three. */
static void trio_spread(const struct trio *x, int from)
{
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t j = 0; j < x->t[0].cols; j++)
            for (int k = 0; k < TRIO; k++)
                trio_put(&x->t[k], i, j, trio_get(&x->t[from], i, j));
}

static struct trio act_random(int64_t rows, int64_t cols, uint64_t id)
{
    struct trio x = act_new(rows, cols);
    double *v = new_normal(rows * cols, id);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            trio_put(&x.t[2], i, j, v[i * cols + j]);
    trio_spread(&x, 2);
    free(v);
    return x;
}

static void trio_free(struct trio *x)
{
    for (int k = 0; k < TRIO; k++)
        free(x->t[k].ptr);
}

struct tables { struct bench b[TRIO]; };

static struct tables tables_open(void)
{
    return (struct tables){{bench_open(DTYPE_F64), bench_open(DTYPE_F32), bench_open(DTYPE_BF16)}};
}

static void tables_close(struct tables *t)
{
    for (int k = 0; k < TRIO; k++)
        bench_close(&t->b[k]);
}

/* ---- rounding and conversion ---- */

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Nearest, ties to even, over carries, the ends of the range, and denormals. */
static void test_rounding(void **state)
{
    static const struct {
        uint32_t f32;
        uint16_t bf16;
    } rows[] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80},
        {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81},
        {0xbf818000, 0xbf82}, {0x3fffffff, 0x4000}, {0x3fff8000, 0x4000}, {0x7f7f7fff, 0x7f7f},
        {0x7f7f8000, 0x7f80}, {0xff7fffff, 0xff80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
        {0x00000001, 0x0000}, {0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x80018000, 0x8002},
        {0x007fffff, 0x0080}, {0x7f800001, 0x7fc0}, {0xffc01234, 0xffc0}, {0x7fffffff, 0x7fff},
    };
    (void)state;
    for (int i = 0; i < LEN(rows); i++) {
        float x = float_of(rows[i].f32);
        if (bf16_round(x) != rows[i].bf16 ||
            (x == x && bf16_round_double((double)x) != rows[i].bf16))
            fail_msg("%08x -> %04x, of double %04x, want %04x", rows[i].f32, bf16_round(x),
                     bf16_round_double((double)x), rows[i].bf16);
    }
    assert_true(isnan(bf16_value(bf16_round_double(NAN))));
    /* doubles that a float would make a tie of, or of a tie */
    assert_int_equal(bf16_round_double(1 + 0x1p-8 + 0x1p-40), 0x3f81);
    assert_int_equal(bf16_round_double(1 + 0x1p-8 - 0x1p-40), 0x3f80);
    assert_int_equal(bf16_round_double(-(1 + 0x3p-8 - 0x1p-40)), 0xbf81);
    assert_int_equal(bf16_round_double(1 + 0x3p-8), 0x3f82);
    assert_int_equal(bf16_round_double(1e300), 0x7f80);
    assert_int_equal(bf16_round_double(-1e-300), 0x8000);
    assert_int_equal(bf16_round_double(0x1p-134), 0x0000);
    assert_int_equal(bf16_round_double(0x1p-134 + 0x1p-170), 0x0001);
}

/* Every number of the format stays, and between two neighbours the near one is taken. */
static void test_every_number(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7f80; i++)
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            uint16_t x = (uint16_t)(i | sign), up = (uint16_t)(x + 1);
            assert_int_equal(bf16_round(bf16_value(x)), x);
            assert_int_equal(bf16_round_double((double)bf16_value(x)), x);
            if (i == 0x7f7f)
                continue; /* up is infinite */
            double low = bf16_value(x), high = bf16_value(up), middle = (low + high) / 2;
            assert_int_equal(bf16_round((float)(middle)), x & 1 ? up : x);
            assert_int_equal(bf16_round_double(middle), x & 1 ? up : x);
            assert_int_equal(bf16_round_double(nextafter(middle, low)), x);
            assert_int_equal(bf16_round_double(nextafter(middle, high)), up);
        }
}

/* Every pair of types in every table: views, one row repeated, a tail past a register. */
static void test_copy(void **state)
{
    enum { R = 5, C = 37 };
    struct tables t = tables_open();
    (void)state;
    for (int k = 0; k < TRIO; k++)
        for (int from = 0; from < TRIO; from++)
            for (int to = 0; to < TRIO; to++)
                for (int64_t rows = 1; rows <= R; rows += R - 1) {
                    struct trio x = act_random(rows, C, 1), y = act_new(R, C);
                    for (int64_t j = 0; from < 2 && j < C; j++) /* numbers between bf16's */
                        trio_put(&x.t[from], 0, j,
                                 trio_get(&x.t[from], 0, j) * (1 + 0x1p-9 * (double)j));
                    t.b[k].ops->copy(t.b[k].ops, t.b[k].stream,
                                     &(struct ops_copy){x.t[from], y.t[to]});
                    for (int64_t i = 0; i < R; i++)
                        for (int64_t j = 0; j < C + MARGIN; j++) {
                            double v = j < C ? trio_get(&x.t[from], rows == 1 ? 0 : i, j) : NAN;
                            double want = to == 0   ? v
                                          : to == 1 ? (double)(float)v
                                                    : (double)bf16_value(bf16_round_double(v));
                            double got = trio_get(&y.t[to], i, j);
                            assert_true(j < C ? got == want : isnan(got));
                        }
                    trio_free(&x), trio_free(&y);
                }
    tables_close(&t);
}

/* Between any two types: y + alpha x, rounded once to the type of y. */
static void test_axpy(void **state)
{
    enum { R = 3, C = 4133 }; /* more than a piece of a row */
    struct tables t = tables_open();
    struct trio x = act_random(R, C, 1), y = act_random(R, C, 2);
    (void)state;
    for (int k = 0; k < TRIO; k++)
        for (int from = 0; from < TRIO; from++)
            for (int to = 0; to < TRIO; to++) {
                trio_spread(&y, 2), trio_spread(&x, 2);
                t.b[k].ops->axpy(t.b[k].ops, t.b[k].stream,
                                 &(struct ops_axpy){tensor_rows(x.t[from], 1, 1),
                                                    tensor_rows(y.t[to], 2, 1), 0.5});
                /* halves of 8 bits, added in float: exact but for the last rounding, unless far
                 * apart */
                for (int64_t j = 0; j < C; j++) {
                    double want = trio_get(&y.t[(to + 1) % TRIO], 2, j) +
                                  0.5 * trio_get(&x.t[from], 1, j),
                           got = trio_get(&y.t[to], 2, j);
                    double step = to == 0 ? 0 : to == 1 ? F32 : 0x1p-8 + F32;
                    assert_true(fabs(got - want) <=
                                step * fabs(want) + (k == 0 ? 0 : F32 * fabs(want)));
                }
            }
    trio_free(&x), trio_free(&y);
    tables_close(&t);
}

/* ---- products ---- */

/* Sums of ones and minus ones, and one that would be lost if it went through bf16 between two
 * blocks of k: 257 is not of the format. */
static void test_gemm_exact(void **state)
{
    enum { M = 20, N = 40, K_ = 512 };
    struct bench b = bench_open(DTYPE_BF16);
    static uint16_t a[M * K_], w[N * K_], c[M * N];
    (void)state;
    for (int i = 0; i < M * K_; i++)
        a[i] = bf16_round((float)(i % 7 % 3 - 1));
    for (int i = 0; i < N * K_; i++)
        w[i] = bf16_round((float)(i % 5 % 3 - 1));
    for (int p = 0; p < K_; p++) {
        a[p] = bf16_round(p == 0 ? 2 : p < 256 ? 1 : -1);
        w[p] = bf16_round(1);
    }
    b.ops->gemm(b.ops, b.stream,
                &(struct ops_gemm){.a = tensor_of(a, DTYPE_BF16, M, K_),
                                   .b = tensor_of(w, DTYPE_BF16, N, K_),
                                   .c = tensor_of(c, DTYPE_BF16, M, N), .tb = true, .alpha = 1});
    assert_true(bf16_value(c[0]) == 1);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float want = 0;
            for (int p = 0; p < K_; p++)
                want += bf16_value(a[i * K_ + p]) * bf16_value(w[j * K_ + p]);
            assert_true(bf16_value(c[i * N + j]) == bf16_value(bf16_round(want)) &&
                        (fabsf(want) > 256 || bf16_value(c[i * N + j]) == want));
        }
    bench_close(&b);
}

/* A row has the same bits whatever rows stand around it, across the blocks that a product is
 * rounded in. */
static void test_rows_independent(void **state)
{
    enum { M = 790, N = 21, K_ = 300 };
    struct bench b = bench_open(DTYPE_BF16);
    struct trio a = act_random(M, K_, 1), w = act_random(N, K_, 2), all = act_random(M, N, 3),
                one = act_random(M, N, 3);
    (void)state;
    struct ops_gemm g = {
        .a = a.t[2], .b = w.t[2], .c = all.t[2], .tb = true, .alpha = 0.5, .beta = 1};
    b.ops->gemm(b.ops, b.stream, &g);
    for (int64_t i = 0, n; i < M; i += n) {
        n = 1 + i % 5 < M - i ? 1 + i % 5 : M - i;
        g.a = tensor_rows(a.t[2], i, n), g.c = tensor_rows(one.t[2], i, n);
        b.ops->gemm(b.ops, b.stream, &g);
    }
    assert_memory_equal(all.t[2].ptr, one.t[2].ptr, (size_t)(M * all.t[2].ld) * 2);
    trio_free(&a), trio_free(&w), trio_free(&all), trio_free(&one);
    bench_close(&b);
}

/* ---- sums ---- */

/* Squares of these numbers are exact in f64, whatever type holds them, and lanes are summed in one
 * order: the same bits. What is not finite is counted, in registers and behind them. */
static void test_sumsq(void **state)
{
    enum { R = 3, LONG = 4133 /* more than a piece of a row, odd */ };
    struct tables t = tables_open();
    (void)state;
    for (int64_t cols = 1; cols <= LONG; cols += cols < 40          ? 1
                                                 : LONG - cols > 41 ? LONG - cols - 1
                                                                    : 1) {
        struct trio x = act_random(R, cols, 5);
        double plain = 0;
        for (int k = 0; k < TRIO; k++) {
            trio_put(&x.t[k], 0, cols / 2, INFINITY), trio_put(&x.t[k], 1, 0, NAN),
                trio_put(&x.t[k], 2, cols - 1, -INFINITY);
            struct ops_health h = {0.25, 2};
            t.b[k].ops->sumsq(t.b[k].ops, t.b[k].stream, &(struct ops_sumsq){x.t[k], &h, true});
            double sum = 0;
            for (int64_t i = 0; i < R * cols; i++) {
                double v = trio_get(&x.t[k], i / cols, i % cols);
                sum += isfinite(v) ? v * v : 0;
            }
            plain = k == 0 ? h.sumsq : plain;
            if (h.nonfinite != 5 || h.sumsq != plain ||
                !(fabs(h.sumsq - 0.25 - sum) <= (double)(R * cols) * 0x1p-52 * (sum + 0.25)))
                fail_msg("table %d, %ld columns: %.17g, want %.17g; %ld not finite", k, (long)cols,
                         h.sumsq, sum + 0.25, (long)h.nonfinite);
        }
        trio_free(&x);
    }
    tables_close(&t);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    struct bench b = bench_open(DTYPE_BF16);
    struct ops *o = NULL;
    struct err err = {0};
    (void)state;
    assert_true(b.ops->act == DTYPE_BF16 && b.ops->stat == DTYPE_F32 &&
                b.dev->alloc_bytes == b.ops->workspace_bytes);
    assert_string_equal(b.ops->name, "cpu-bf16");
    assert_int_equal(ops_cpu_open(b.dev, DTYPE_BF16, OPS_BLAS_OPENBLAS, &o, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "give --blas own"));
    assert_null(o);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_every_number),
        cmocka_unit_test(test_copy), cmocka_unit_test(test_axpy),
        cmocka_unit_test(test_gemm_exact), cmocka_unit_test(test_rows_independent),
        cmocka_unit_test(test_sumsq), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
