/* The matrix product against a plain triple loop: shapes around every block edge, all forms,
 * strides, epilogue. */
#include "tests/lib/trainer_fixture.h"

static const int64_t shapes[][3] = {
    /* m, n, k */
    {1, 1, 1},      {1, 33, 5},    {12, 32, 256},  {13, 31, 257}, {11, 65, 7},
    {145, 17, 300}, {29, 513, 19}, {144, 64, 256}, {3, 5, 0},     {0, 4, 3},
};

/* Elements as double, whatever the type. */
static double get(const struct tensor *t, int64_t i, int64_t j)
{
    const void *p = tensor_at(t, i, j);
    return t->dtype == DTYPE_F64 ? *(const double *)p : *(const float *)p;
}

static struct tensor new_matrix(enum dtype dtype, int64_t rows, int64_t cols, int64_t ld,
                                uint64_t id)
{
    double *x = new_normal(rows * ld, id);
    struct tensor t = {x, dtype, rows, cols, ld};
    if (dtype == DTYPE_F32)
        for (int64_t i = 0; i < rows * ld; i++)
            ((float *)t.ptr)[i] = (float)x[i]; /* in place, forward: 4 bytes never overtake 8 */
    return t;
}

static double tolerance(enum dtype d) { return d == DTYPE_F64 ? 1e-13 : 1e-5; }

static void check_one(struct bench *b, enum dtype dtype, const int64_t *s, int form, double alpha,
                      double beta)
{
    bool ta = form & 1, tb = form & 2;
    int64_t m = s[0], n = s[1], k = s[2];
    struct tensor a = new_matrix(dtype, ta ? k : m, ta ? m : k, (ta ? m : k) + 3, 1);
    struct tensor w = new_matrix(dtype, tb ? n : k, tb ? k : n, (tb ? k : n) + 1, 2);
    struct tensor c = new_matrix(dtype, m, n, n + 2, 3), before = new_matrix(dtype, m, n, n + 2, 3);
    struct ops_gemm g = {.a = a, .b = w, .c = c, .ta = ta, .tb = tb, .alpha = alpha, .beta = beta};
    if (beta == 0) /* must not be read */
        for (int64_t i = 0; i < m; i++)
            memset(tensor_at(&c, i, 0), 0xff, (size_t)(n * dtype_bytes(dtype)));
    b->ops->gemm(b->ops, b->stream, &g);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n + 2; j++) {
            double want = 0;
            for (int64_t p = 0; p < k && j < n; p++)
                want += (ta ? get(&a, p, i) : get(&a, i, p)) * (tb ? get(&w, j, p) : get(&w, p, j));
            want = j < n ? alpha * want + (beta == 0 ? 0 : beta * get(&before, i, j))
                         : get(&before, i, j);
            if (!(fabs(get(&c, i, j) - want) <= tolerance(dtype) * (1 + sqrt((double)k))))
                fail_msg("%s form %d [%ld %ld %ld] (%ld, %ld): %.9g, want %.9g", b->ops->name, form,
                         (long)m, (long)n, (long)k, (long)i, (long)j, get(&c, i, j), want);
        }
    free(a.ptr);
    free(w.ptr);
    free(c.ptr);
    free(before.ptr);
}

static void test_shapes(void **state)
{
    (void)state;
    for (enum dtype d = DTYPE_F64; d <= DTYPE_F32; d++) {
        struct bench b = bench_open(d);
        for (int i = 0; i < LEN(shapes); i++)
            for (int form = 0; form < 4; form++) {
                check_one(&b, d, shapes[i], form, 1, 0);
                check_one(&b, d, shapes[i], form, -0.5, 0.25);
            }
        bench_close(&b);
    }
}

/* A row's result has the same bits whatever rows stand around it: what makes grouping and recompute
 * exact. */
static void test_rows_independent(void **state)
{
    (void)state;
    enum { M = 40, N = 70, K = 530 };
    for (enum dtype d = DTYPE_F64; d <= DTYPE_F32; d++) {
        struct bench b = bench_open(d);
        struct tensor a = new_matrix(d, M, K, K, 1), w = new_matrix(d, N, K, K, 2),
                      all = new_matrix(d, M, N, N, 3), one = new_matrix(d, M, N, N, 4);
        b.ops->gemm(b.ops, b.stream,
                    &(struct ops_gemm){.a = a, .b = w, .c = all, .tb = true, .alpha = 1});
        for (int64_t i = 0; i < M; i++)
            b.ops->gemm(b.ops, b.stream,
                        &(struct ops_gemm){.a = tensor_rows(a, i, 1), .b = w,
                                           .c = tensor_rows(one, i, 1), .tb = true, .alpha = 1});
        assert_memory_equal(all.ptr, one.ptr, (size_t)(M * N * dtype_bytes(d)));
        free(a.ptr), free(w.ptr), free(all.ptr), free(one.ptr);
        bench_close(&b);
    }
}

static void test_epilogue(void **state)
{
    (void)state;
    enum { M = 15, N = 37, K = 20 };
    struct bench b = bench_open(DTYPE_F64);
    struct tensor a = new_matrix(DTYPE_F64, M, K, K, 1), w = new_matrix(DTYPE_F64, N, K, K, 2),
                  y = new_matrix(DTYPE_F64, M, N, N, 3);
    struct tensor aux = new_matrix(DTYPE_F64, M, N, N, 4),
                  plain = new_matrix(DTYPE_F64, M, N, N, 5);
    b.ops->gemm(b.ops, b.stream,
                &(struct ops_gemm){.a = a, .b = w, .c = plain, .tb = true, .alpha = 1});
    b.ops->gemm(
        b.ops, b.stream,
        &(struct ops_gemm){
            .a = a, .b = w, .c = y, .tb = true, .alpha = 1, .act = OPS_ACT_GELU_ERF, .aux = aux});
    assert_memory_equal(aux.ptr, plain.ptr, M * N * sizeof(double));
    for (int64_t i = 0; i < M * N; i++) {
        double x = ((double *)plain.ptr)[i], want = 0.5 * x * (1 + erf(x / sqrt(2)));
        assert_true(fabs(((double *)y.ptr)[i] - want) <= 1e-14 * (1 + fabs(want)));
    }
    free(a.ptr), free(w.ptr), free(y.ptr), free(aux.ptr), free(plain.ptr);
    bench_close(&b);
}

static void test_openblas(void **state)
{
    (void)state;
    for (enum dtype d = DTYPE_F64; d <= DTYPE_F32; d++) {
        struct bench b = bench_open(d);
        struct ops *blas = NULL;
        struct err err = {0};
        int rc = ops_cpu_open(b.dev, d, OPS_BLAS_OPENBLAS, &blas, &err);
        /* allowed on a machine without it, but then with the sentence that says what to do */
        if (rc < 0) {
            assert_int_equal(rc, ERR_ENV);
            assert_non_null(strstr(err.text, "libopenblas0"));
            assert_null(blas);
        } else {
            struct bench with = b;
            with.ops = blas;
            for (int i = 0; i < LEN(shapes); i++)
                for (int form = 0; form < 4; form++)
                    check_one(&with, d, shapes[i], form, 0.5, 0.25);
            blas->close(blas);
        }
        bench_close(&b);
    }
}

static void test_dtype_refused(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    struct ops *o = NULL;
    struct err err = {0};
    assert_int_equal(ops_cpu_open(b.dev, DTYPE_FP8, OPS_BLAS_OWN, &o, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "fp8"));
    assert_null(o);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_rows_independent),
        cmocka_unit_test(test_epilogue),      cmocka_unit_test(test_openblas),
        cmocka_unit_test(test_dtype_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
