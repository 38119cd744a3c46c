/* Products on the CUDA backend, on the shim's GPU, against a plain triple loop: mixed types, views,
 * forms and the edges of tiles; and who computes them: cuBLASLt's stand-in or our own kernels, by
 * which algorithm, from which table. */
#include <dlfcn.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/shim/cublasLt.h"
#include "tests/lib/trainer_cuda.h"
#include "trainer/cuda/gemm.h"
#include "trainer/ops/cuda_load.h"

#define F64 DTYPE_F64
#define F32 DTYPE_F32
#define B16 DTYPE_BF16

#define NO_AUX DTYPE_BYTE /* the kind that holds no numbers: no product writes it */

/* One product: the table, the types of a, b, c and aux, [m, n, k]. */
struct product {
    enum dtype table, a, b, c, aux;
    int m, n, k;
    bool ta, tb;
    double alpha, beta;
    enum ops_act_kind act;
};

static const struct product products[] = {
    {F64, F64, F64, F64, NO_AUX, 1, 1, 1, false, false, 1, 0, OPS_ACT_NONE},
    {F64, F64, F64, F64, NO_AUX, 65, 67, 33, false, true, -0.5, 0.25, OPS_ACT_NONE},
    {F64, F64, F64, F64, F64, 63, 130, 16, true, false, 1, 0, OPS_ACT_GELU_ERF},
    {F64, F64, F64, F64, NO_AUX, 5, 3, 200, true, true, 2, 1, OPS_ACT_NONE},
    {F64, F64, F64, F64, F64, 7, 9, 0, false, true, 1, 0, OPS_ACT_SILU},
    {F64, F64, F64, F64, NO_AUX, 7, 9, 0, true, false, 1, -2, OPS_ACT_NONE},
    {F64, F64, F64, F64, NO_AUX, 0, 9, 5, false, true, 1, 0, OPS_ACT_NONE},
    {F64, F64, F64, F64, NO_AUX, 9, 0, 5, false, true, 1, 0, OPS_ACT_NONE},
    {F32, F32, F32, F32, NO_AUX, 66, 34, 77, false, false, 1, 1, OPS_ACT_NONE},
    {F32, F32, F32, F32, NO_AUX, 17, 129, 31, true, true, 1, 0, OPS_ACT_GELU_TANH},
    {F32, F32, F32, F32, F32, 17, 31, 5, false, true, 1, 0, OPS_ACT_GELU_TANH},
    {B16, B16, B16, B16, B16, 33, 65, 40, false, true, 1, 0, OPS_ACT_GELU_ERF},
    {B16, B16, B16, B16, NO_AUX, 12, 40, 80, false, true, 1, 0, OPS_ACT_SILU},
    {B16, B16, B16, F32, NO_AUX, 40, 24, 70, true, false, 1, 1, OPS_ACT_NONE},
    {B16, F32, B16, F32, NO_AUX, 6, 130, 24, false, false, 1, 1, OPS_ACT_NONE},
    {B16, F32, B16, F32, NO_AUX, 70, 20, 6, true, false, 1, 0, OPS_ACT_NONE},
    {B16, B16, F32, B16, F32, 9, 20, 33, false, true, 0.5, 0, OPS_ACT_SILU},
    {B16, B16, B16, F32, B16, 9, 20, 33, true, true, 0.5, 0, OPS_ACT_GELU_TANH},
    {B16, B16, B16, B16, NO_AUX, 9, 20, 33, false, false, 1, 1, OPS_ACT_NONE},
    /* of few rows: a strip and more, terms of several turns, columns behind those of a block */
    {F64, F64, F64, F64, F64, 16, 37, 521, false, true, 0.5, 0, OPS_ACT_SILU},
    {F64, F64, F64, F64, NO_AUX, 5, 67, 521, false, false, 1, 0.5, OPS_ACT_NONE},
    {F32, F32, F32, F32, NO_AUX, 16, 72, 520, false, true, 1, 1, OPS_ACT_NONE},
    {F32, F32, F32, F32, F32, 9, 72, 520, false, false, 1, 0, OPS_ACT_GELU_ERF},
    {B16, B16, B16, B16, NO_AUX, 1, 8, 8, false, true, 1, 0, OPS_ACT_NONE},
    {B16, B16, B16, B16, NO_AUX, 16, 136, 520, false, true, 1, -0.5, OPS_ACT_NONE},
    {B16, B16, B16, B16, B16, 8, 40, 264, false, true, 1, 0, OPS_ACT_GELU_TANH},
    {B16, B16, B16, F32, NO_AUX, 3, 72, 520, false, false, 2, 0, OPS_ACT_NONE},
    {B16, F32, B16, F32, NO_AUX, 16, 72, 1032, false, false, 1, 1, OPS_ACT_NONE},
    {B16, F32, B16, B16, B16, 10, 24, 512, false, true, 1, 0, OPS_ACT_SILU},
    {B16, B16, B16, B16, NO_AUX, 2, 24, 0, false, false, 1, 0.5, OPS_ACT_NONE},
    {B16, B16, B16, B16, NO_AUX, 2, 0, 24, false, true, 1, 0, OPS_ACT_NONE},
    {B16, B16, B16, B16, NO_AUX, 0, 24, 24, false, true, 1, 1, OPS_ACT_NONE},
};

/* Returns how far a number may be off: a sum of k terms, whose squares' sum has the root `size`, and
 * the rounding of what is stored. */
static double room(const struct product *p, enum dtype stored, double size, double x)
{
    double sum = p->table == F64 ? 0x1p-53 : 0x1p-24;
    double store = stored == F64 ? 0x1p-53 : stored == F32 ? 0x1p-24 : 0x1p-8;
    return 8 * sum * sqrt(p->k + 4) * (size + 1) + store * fabs(x);
}

static double act(enum ops_act_kind kind, double x)
{
    switch (kind) {
    case OPS_ACT_SILU: return x / (1 + exp(-x));
    case OPS_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case OPS_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    default: return x;
    }
}

struct matrices { struct pair a, b, c, aux; };

static void near(const struct product *p, const char *what, int i, int j, double got, double want,
                 double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("[%d, %d, %d] of %s, %s (%d, %d): %.17g, want %.17g within %g", p->m, p->n, p->k,
                 dtype_names[p->a], what, i, j, got, want, within);
}

static double sum_of(const struct product *p, const struct matrices *x, int i, int j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int t = 0; t < p->k; t++) {
        double term = pair_at(x->a.host, &x->a.on, p->ta ? t : i, p->ta ? i : t) *
                      pair_at(x->b.host, &x->b.on, p->tb ? j : t, p->tb ? t : j);
        sum += term;
        *size += term * term;
    }
    *size = sqrt(*size);
    return sum;
}

/* Holds c and aux, as they come from the device, to what a, b and the old c give. */
static void check(const struct product *p, const struct matrices *x, const void *c, const void *aux)
{
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            double size, want = p->alpha * sum_of(p, x, i, j, &size);
            if (p->beta != 0)
                want += p->beta * pair_at(x->c.host, &x->c.on, i, j);
            if (x->aux.on.ptr) {
                double kept = pair_at(aux, &x->aux.on, i, j);
                near(p, "aux", i, j, kept, want, room(p, p->aux, size, want));
                want = kept;
                size = 0;
            }
            double y = act(p->act, want);
            near(p, "c", i, j, pair_at(c, &x->c.on, i, j), y, room(p, p->c, 2 * size, y));
        }
}

/* Sees that what stands behind the columns is as it was. */
static void check_between(const struct pair *p, const void *got)
{
    int64_t each = dtype_bytes(p->on.dtype);
    for (int64_t i = 0; i < p->on.rows; i++)
        assert_memory_equal((const char *)got + (i * p->on.ld + p->on.cols) * each,
                            (const char *)p->host + (i * p->on.ld + p->on.cols) * each,
                            (size_t)((p->on.ld - p->on.cols) * each));
}

/* Runs a product whose rows are `pad` elements longer than they are wide, `before` bytes behind an
 * aligned place. */
static void run(const struct bench *b, const struct product *p, int pad, int before)
{
    struct matrices x = {0};
    int64_t ac = p->ta ? p->m : p->k, bc = p->tb ? p->k : p->n;
    x.a = pair_new(b, p->a, p->ta ? p->k : p->m, ac, ac + pad, before, 1);
    x.b = pair_new(b, p->b, p->tb ? p->n : p->k, bc, bc + pad, before, 2);
    x.c = pair_new(b, p->c, p->m, p->n, p->n + pad, before, 3);
    if (p->aux != NO_AUX)
        x.aux = pair_new(b, p->aux, p->m, p->n, p->n + pad, before, 4);
    if (p->beta == 0) /* c is never read: nothing of the NaN that it holds may be seen */
        for (int64_t i = 0; i < p->m * x.c.on.ld; i++)
            pair_set(x.c.host, p->c, i, NAN);
    bench_put(b, x.c.on.ptr, x.c.host, x.c.bytes);
    b->ops->gemm(b->ops, b->stream, &(struct ops_gemm){
        .a = x.a.on, .b = x.b.on, .c = x.c.on, .ta = p->ta, .tb = p->tb,
        .alpha = p->alpha, .beta = p->beta, .act = p->act, .aux = x.aux.on});
    void *c = bench_get(b, x.c.on.ptr, x.c.bytes);
    void *aux = x.aux.on.ptr ? bench_get(b, x.aux.on.ptr, x.aux.bytes) : NULL;
    check(p, &x, c, aux);
    check_between(&x.c, c);
    if (aux)
        check_between(&x.aux, aux);
    free(c), free(aux);
    pair_free(b, &x.a), pair_free(b, &x.b), pair_free(b, &x.c), pair_free(b, &x.aux);
}

static const enum dtype tables[] = {F64, F32, B16};

static void test_products(void **state)
{
    (void)state;
    for (int t = 0; t < LEN(tables); t++) {
        struct bench b = cuda_bench(tables[t]);
        for (int i = 0; i < LEN(products); i++)
            if (products[i].table == tables[t]) {
                run(&b, &products[i], 0, 0);
                run(&b, &products[i], 3, 8);
                run(&b, &products[i], 8, 16);
            }
        bench_close(&b);
    }
}

/* A product of few rows gives each row the bits that it has alone. */
static void rows_alone(const struct bench *b, enum dtype in, bool tb)
{
    enum { N = 40, K = 520 };
    enum dtype act = b->ops->act;
    struct pair a = pair_new(b, in, GEMM_FEW, K, K, 0, 1),
                w = pair_new(b, act, tb ? N : K, tb ? K : N, tb ? K : N, 0, 2),
                c = pair_new(b, act, GEMM_FEW, N, N, 0, 3);
    struct ops_gemm g = {.a = a.on, .b = w.on, .c = c.on, .tb = tb, .alpha = 1};
    b->ops->gemm(b->ops, b->stream, &g);
    char *all = bench_get(b, c.on.ptr, c.bytes);
    for (int i = 0; i < GEMM_FEW; i++) {
        g.a = tensor_rows(a.on, i, 1), g.c = tensor_rows(c.on, 0, 1);
        b->ops->gemm(b->ops, b->stream, &g);
        void *one = bench_get(b, c.on.ptr, c.bytes / GEMM_FEW);
        assert_memory_equal(one, all + i * (c.bytes / GEMM_FEW), (size_t)(c.bytes / GEMM_FEW));
        free(one);
    }
    free(all);
    pair_free(b, &a), pair_free(b, &w), pair_free(b, &c);
}

static void test_rows_alone(void **state)
{
    (void)state;
    for (int t = 0; t < LEN(tables); t++) {
        struct bench b = cuda_bench(tables[t]);
        rows_alone(&b, b.ops->act, true), rows_alone(&b, b.ops->act, false);
        rows_alone(&b, b.ops->stat, true), rows_alone(&b, b.ops->stat, false);
        bench_close(&b);
    }
}

/* ---- who computes them ---- */

/* Asks the stand-in, which is loaded once a table was opened. */
static struct shim_products library_products(void)
{
    void *library = dlopen(getenv("REEL_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    struct shim_products (*ask)(void);
    assert_non_null(library);
    void *symbol = dlsym(library, "shim_products");
    assert_non_null(symbol);
    memcpy(&ask, &symbol, sizeof ask);
    dlclose(library);
    return ask();
}

struct choice {
    struct product p;
    int pad, before; /* elements between rows, bytes before the first */
    bool library;
};

static const struct choice choices[] = {
    {{F64, F64, F64, F64, NO_AUX, 20, 6, 8, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, true},
    {{F64, F64, F64, F64, F64, 4, 6, 8, true, true, 1, 0, OPS_ACT_SILU}, 2, 16, true},
    {{F64, F64, F64, F64, NO_AUX, 20, 6, 8, false, true, 1, 0, OPS_ACT_SILU}, 0, 0, true},
    {{F64, F64, F64, F64, NO_AUX, 4, 6, 8, false, true, 1, 1, OPS_ACT_NONE}, 1, 0, false},
    {{F64, F64, F64, F64, NO_AUX, 4, 6, 8, false, true, 1, 1, OPS_ACT_NONE}, 0, 8, false},
    {{F64, F64, F64, F64, NO_AUX, 4, 6, 0, false, true, 1, 1, OPS_ACT_NONE}, 0, 0, false},
    {{F64, F64, F64, F64, NO_AUX, 0, 6, 8, false, true, 1, 1, OPS_ACT_NONE}, 0, 0, false},
    {{F32, F32, F32, F32, F32, 17, 12, 8, false, false, 0.5, 0, OPS_ACT_GELU_ERF}, 0, 0, true},
    {{F32, F32, F32, F32, NO_AUX, 8, 12, 5, true, false, 1, 1, OPS_ACT_NONE}, 4, 0, true},
    {{F32, F32, F32, F32, NO_AUX, 8, 12, 5, true, false, 1, 1, OPS_ACT_NONE}, 2, 0, false},
    {{B16, B16, B16, B16, B16, 17, 24, 80, false, true, 1, 0, OPS_ACT_GELU_TANH}, 0, 0, true},
    {{B16, B16, B16, B16, NO_AUX, 5, 24, 80, false, true, 1, 0, OPS_ACT_SILU}, 0, 0, false},
    {{B16, B16, B16, B16, NO_AUX, 17, 24, 80, false, false, 1, 1, OPS_ACT_NONE}, 8, 0, true},
    {{B16, B16, B16, F32, NO_AUX, 24, 16, 9, true, false, 1, 1, OPS_ACT_NONE}, 0, 0, true},
    {{B16, B16, B16, F32, B16, 24, 16, 9, true, false, 1, 0, OPS_ACT_SILU}, 0, 0, true},
    {{B16, F32, F32, F32, NO_AUX, 17, 24, 16, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, true},
    {{B16, F32, F32, B16, NO_AUX, 5, 24, 16, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, false},
    {{B16, F32, B16, F32, NO_AUX, 5, 24, 16, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, false},
    {{B16, B16, B16, B16, NO_AUX, 5, 24, 16, false, true, 1, 0, OPS_ACT_NONE}, 4, 0, false},
    /* of few rows */
    {{F64, F64, F64, F64, NO_AUX, 16, 6, 8, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, false},
    {{F32, F32, F32, F32, NO_AUX, 1, 12, 8, false, false, 1, 0, OPS_ACT_NONE}, 0, 0, false},
    {{B16, B16, B16, B16, NO_AUX, 16, 24, 80, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, false},
    {{B16, B16, B16, B16, NO_AUX, 17, 24, 80, false, true, 1, 0, OPS_ACT_NONE}, 0, 0, true},
    {{B16, B16, B16, F32, NO_AUX, 16, 24, 8, false, false, 1, 0, OPS_ACT_NONE}, 0, 0, false},
    {{B16, B16, B16, F32, NO_AUX, 16, 24, 8, true, false, 1, 0, OPS_ACT_NONE}, 0, 0, true},
};

static void check_choice(const struct bench *b, int i)
{
    const struct choice *c = &choices[i];
    int64_t before = library_products().n;
    run(b, &c->p, c->pad, c->before);
    if (library_products().n - before != c->library)
        fail_msg("product %d is computed %s cuBLASLt", i, c->library ? "without" : "by");
}

static void test_choice(void **state)
{
    (void)state;
    for (int t = 0; t < LEN(tables); t++) {
        struct bench b = cuda_bench(tables[t]);
        for (int i = 0; i < LEN(choices); i++)
            if (choices[i].p.table == tables[t])
                check_choice(&b, i);
        bench_close(&b);
    }
}

/* More products than there are places for their plans, twice: none is taken for another. */
static void test_many_products(void **state)
{
    enum { MOST = 1200, N = 2 };
    (void)state;
    struct bench b = cuda_bench(F64);
    struct pair a = pair_new(&b, F64, GEMM_FEW + MOST, N, N, 0, 1),
                w = pair_new(&b, F64, N, N, N, 0, 2),
                c = pair_new(&b, F64, GEMM_FEW + MOST, N, N, 0, 3);
    int64_t before = library_products().n;
    for (int m = 1; m <= 2 * MOST; m++) {
        int rows = GEMM_FEW + (m - 1) % MOST + 1;
        b.ops->gemm(b.ops, b.stream, &(struct ops_gemm){
            .a = tensor_rows(a.on, 0, rows), .b = w.on, .c = tensor_rows(c.on, 0, rows),
            .alpha = 1});
        double *got = bench_get(&b, c.on.ptr, rows * N * 8), *x = a.host, *y = w.host;
        for (int i = rows - 1; i < rows * N; i++)
            assert_true(got[i] == x[i / N * N] * y[i % N] + x[i / N * N + 1] * y[N + i % N]);
        free(got);
    }
    assert_int_equal(library_products().n - before, 2 * MOST);
    pair_free(&b, &a), pair_free(&b, &w), pair_free(&b, &c);
    bench_close(&b);
}

/* ---- failures ---- */

static const struct product split = {F64, F64, F64, F64, NO_AUX, 20, 6, 128, false, true, 1, 0,
                                     OPS_ACT_NONE};

/* Opens the table of f64 where it must not open. */
static struct err refused(int code)
{
    struct compute c = {0};
    struct err err = {0};
    setenv("REEL_DEVICE", "cuda:0", true);
    assert_int_equal(compute_open(&c, &(struct compute_conf){.dtype = F64}, &err), code);
    unsetenv("REEL_DEVICE");
    assert_null(c.ops);
    assert_int_equal(c.dev->alloc_bytes, 0);
    compute_close(&c);
    return err;
}

static void test_failures(void **state)
{
    struct err err;
    (void)state;
    setenv("REEL_SHIM_FAIL", "cublasLtCreate:1:1", true);
    err = refused(ERR_ENV);
    assert_int_equal(err_exit_code(err.code), 4);
    assert_non_null(strstr(err.text, "cuBLASLt 130100 does not open: the library was not init"));

    /* a product that the library has no algorithm for */
    struct bench b = cuda_bench(F64);
    int64_t before = library_products().n;
    setenv("REEL_SHIM_FAIL", "cublasLtMatmulAlgoGetHeuristic:1:15", true);
    run(&b, &split, 0, 0);
    run(&b, &split, 0, 0);
    assert_int_equal(library_products().n, before);

    /* an error of the library comes with the next sync */
    struct pair x = pair_new(&b, F64, 20, 20, 20, 0, 1);
    setenv("REEL_SHIM_FAIL", "cublasLtMatmul:1:13", true);
    b.ops->gemm(b.ops, b.stream, &(struct ops_gemm){.a = x.on, .b = x.on, .c = x.on, .alpha = 1});
    b.dev->stream_sync(b.dev, b.stream, NULL); /* who looks away hides nothing */
    assert_int_equal(b.dev->stream_sync(b.dev, b.stream, &err), ERR_TEMP);
    assert_non_null(strstr(err.text, "a product by cuBLASLt"));
    unsetenv("REEL_SHIM_FAIL");
    pair_free(&b, &x);
    bench_close(&b);
}

/* ---- tables ---- */

#define WORDS "0000000000000000 0000000000000000 0000000000000000"
/* The stand-in's algorithm 2 for f64: who made it, its number, types, alignment, workspace. */
#define PLAIN "000000000051a1b0 0000000000000002 0000000101010146 0000000000000010 " \
              "0000000000000000 " WORDS
#define PRODUCT "f64 f64 nt 20 6 128 128 128 6"
#define HEAD "reel.gemm/1\n"
#define LINE(device, version, product, words) device "\t" version "\t" product "\t" words "\n"

static char table_path[64];
static void table_write(const char *text)
{
    FILE *f = fopen(table_path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const struct { const char *text, *says; } bad_tables[] = {
    {"", "the first line is not \"reel.gemm/1\""},
    {"{\"schema\": 1}\n", "the first line is not \"reel.gemm/1\""},
    {HEAD "shim 130100\n", "line 2: it has not four fields"},
    {HEAD "#\n\n", "line 3: it has not four fields"},
    {HEAD LINE("shim", "130100", PRODUCT, PLAIN "\t"), "line 2: it has not four fields"},
    {HEAD LINE("shim", "13.1", PRODUCT, PLAIN), "line 2: the library's version is no number"},
    {HEAD LINE("shim", "130100", "f64 f64 nt 20 6 128 128 128", PLAIN), "line 2: the third field"},
    {HEAD LINE("shim", "130100", PRODUCT " 1", PLAIN), "line 2: the third field"},
    {HEAD LINE("shim", "130100", "f64 f16 nt 20 6 128 128 128 6", PLAIN), "line 2: the third field"},
    {HEAD LINE("shim", "130100", "f64 f64 nx 20 6 128 128 128 6", PLAIN), "line 2: the third field"},
    {HEAD LINE("shim", "130100", "f64 f64 nt 20 6 128 127 128 6", PLAIN), "line 2: the third field"},
    {HEAD LINE("shim", "130100", PRODUCT, "0 " PLAIN), "line 2: the fourth field"},
    {HEAD LINE("other", "130100", PRODUCT, WORDS), "line 2: the fourth field"},
    {HEAD LINE("shim", "130100", PRODUCT, PLAIN) LINE("shim", "130100", PRODUCT, PLAIN),
     "line 3: its product has a line already"},
    {HEAD "#\n" LINE("shim", "130100", "f64 f64 nt 20 6 64 64 64 6",
                     "000000000051a1b0 0000000000000003 0000000101010146 0000000000000010 "
                     "0000000000000000 " WORDS), "line 3: cuBLASLt does not take this algorithm"},
};

static void test_bad_tables(void **state)
{
    (void)state;
    setenv("REEL_GEMM_TABLE", table_path, true);
    for (int i = 0; i < LEN(bad_tables); i++) {
        table_write(bad_tables[i].text);
        struct err err = refused(ERR_INPUT);
        if (!strstr(err.text, bad_tables[i].says) || !strstr(err.text, table_path))
            fail_msg("table %d: %s", i, err.text);
    }
    setenv("REEL_GEMM_TABLE", "/nowhere/table", true);
    assert_int_equal(err_exit_code(refused(ERR_NOT_FOUND).code), 3);
    unsetenv("REEL_GEMM_TABLE");
}

/* Returns which of the stand-in's algorithms computes `split` with this table. */
static int64_t algorithm_with(const char *text)
{
    if (text) {
        table_write(text);
        setenv("REEL_GEMM_TABLE", table_path, true);
    }
    struct bench b = cuda_bench(F64);
    run(&b, &split, 0, 0);
    bench_close(&b);
    unsetenv("REEL_GEMM_TABLE");
    return library_products().algo;
}

struct said { enum log_level level; char text[600]; int times; };

static void said_keep(void *ctx, enum log_level level, const char *text)
{
    struct said *s = ctx;
    s->level = level, s->times++;
    snprintf(s->text, sizeof s->text, "%s", text);
}

/* Returns what is said while a table is opened. */
static struct said said_with(const char *text)
{
    struct said s = {0};
    log_set_level(LOG_INFO);
    log_set_sink(said_keep, &s);
    algorithm_with(text);
    log_set_sink(NULL, NULL);
    log_set_level(LOG_WARN);
    return s;
}

static void test_foreign(void **state)
{
    char want[600];
    (void)state;
    struct said s = said_with(HEAD LINE("shim", "130100", PRODUCT, PLAIN));
    assert_int_equal(s.times, 0);
    s = said_with(HEAD "#\n" LINE("shim", "130000", PRODUCT, PLAIN)
                  LINE("NVIDIA H200", "130100", PRODUCT, PLAIN));
    snprintf(want, sizeof want, "%s: 2 of 2 products are of another device or library and not "
             "used: line 3 is of 'shim' with cuBLASLt 130000, and here is 'shim' with 130100; the "
             "library chooses all algorithms", table_path);
    assert_string_equal(s.text, want);
    assert_true(s.times == 1 && s.level == LOG_WARN);
    s = said_with(HEAD LINE("shim", "130100", PRODUCT, PLAIN)
                  LINE("NVIDIA H200", "130100", PRODUCT, PLAIN));
    snprintf(want, sizeof want, "%s: 1 of 2 products are of another device or library and not "
             "used: line 3 is of 'NVIDIA H200' with cuBLASLt 130100, and here is 'shim' with "
             "130100", table_path);
    assert_string_equal(s.text, want);
    assert_true(s.times == 1 && s.level == LOG_INFO);
}

static void test_tables(void **state)
{
    (void)state;
    assert_int_equal(algorithm_with(NULL), 1); /* the library's first choice */
    assert_int_equal(algorithm_with(HEAD), 1);
    assert_int_equal(algorithm_with(HEAD LINE("shim", "130100", PRODUCT, PLAIN)), 2);
    assert_int_equal(algorithm_with(HEAD LINE("shim", "130000", PRODUCT, PLAIN)), 1);
    assert_int_equal(algorithm_with(HEAD LINE("NVIDIA H200", "130100", PRODUCT, PLAIN)), 1);
    assert_int_equal(algorithm_with(HEAD LINE("NVIDIA H200", "130100", PRODUCT, PLAIN)
                                    LINE("shim", "130100", "f64 f64 nn 20 6 128 128 6 6", PLAIN)
                                    LINE("shim", "130100", PRODUCT, PLAIN)), 2);
}

static const struct product few = {F64, F64, F64, F64, NO_AUX, 4, 6, 128, false, true, 1, 0,
                                   OPS_ACT_NONE};
#define FEW "f64 f64 nt 4 6 128 128 128 6"
#define OWN "0000000000000000 0000000000000000 0000000000000000 0000000000000000 " \
            "0000000000000000 " WORDS

/* Tells whether the library computes a product with this table, by the algorithm PLAIN. */
static bool library_has(const struct product *p, const char *text)
{
    table_write(text);
    setenv("REEL_GEMM_TABLE", table_path, true);
    struct bench b = cuda_bench(F64);
    int64_t before = library_products().n;
    run(&b, p, 0, 0);
    bool has = library_products().n > before;
    assert_true(!has || library_products().algo == 2);
    bench_close(&b);
    unsetenv("REEL_GEMM_TABLE");
    return has;
}

/* A table gives a product of few rows to the library, and any product to our own kernels. */
static void test_own(void **state)
{
    (void)state;
    assert_false(library_has(&few, HEAD));
    assert_true(library_has(&few, HEAD LINE("shim", "130100", FEW, PLAIN)));
    assert_false(library_has(&few, HEAD LINE("shim", "130100", FEW, OWN)));
    assert_false(library_has(&few, HEAD LINE("other", "130100", FEW, PLAIN)));
    assert_true(library_has(&split, HEAD LINE("shim", "130100", PRODUCT, PLAIN)));
    assert_false(library_has(&split, HEAD LINE("shim", "130100", PRODUCT, OWN)));
}

/* Products are told as the library meets them, each once, and a search writes a line that a table
 * takes back. */
static void test_search(void **state)
{
    const struct cuda_backend *cuda;
    struct gemm_found found = {0};
    struct err err = {0};
    char text[256] = "";
    (void)state;
    table_write("");
    setenv("REEL_GEMM_PRODUCTS", table_path, true);
    struct bench b = cuda_bench(F64);
    unsetenv("REEL_GEMM_PRODUCTS");
    run(&b, &split, 0, 0);
    run(&b, &split, 0, 0);
    FILE *f = fopen(table_path, "r");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text, f), sizeof PRODUCT);
    fclose(f);
    assert_string_equal(text, PRODUCT "\n");

    int64_t taken = b.dev->alloc_bytes;
    assert_int_equal(cuda_load(&cuda, &err), 0);
    assert_int_equal(cuda->gemm_search(b.ops, b.stream, text, 1e-6, &found, &err), ERR_INPUT);
    text[sizeof PRODUCT - 1] = '\0';
    assert_int_equal(cuda->gemm_search(b.ops, b.stream, text, 1e-6, &found, &err), 0);
    assert_int_equal(b.dev->alloc_bytes, taken);
    assert_int_equal(found.proposals, 2);
    assert_true(found.best_s <= found.first_s && found.best_s == found.lt_s);
    assert_true(found.flops == 2 * 20 * 6 * 128);
    bench_close(&b);
    snprintf(text, sizeof text, HEAD "%s", found.line);
    assert_int_equal(algorithm_with(text), strstr(found.line, " 0000000000000002 ") ? 2 : 1);
}

/* A search of a product of few rows tries our own kernel too, and the line may name it. */
static void test_few_search(void **state)
{
    const struct cuda_backend *cuda;
    struct gemm_found found = {0};
    struct err err = {0};
    char text[700];
    (void)state;
    struct bench b = cuda_bench(F64);
    assert_int_equal(cuda_load(&cuda, &err), 0);
    assert_int_equal(cuda->gemm_search(b.ops, b.stream, FEW, 1e-6, &found, &err), 0);
    bench_close(&b);
    assert_int_equal(found.proposals, 3);
    assert_true(found.best_s == fmin(found.first_s, found.lt_s));
    bool is_own = strstr(found.line, OWN) != NULL;
    assert_true(is_own || found.lt_s <= found.first_s);
    /* a line that names the library's other algorithm is as good, but not what library_has asks */
    snprintf(text, sizeof text, HEAD "%s", found.line);
    if (is_own || strstr(found.line, " 0000000000000002 "))
        assert_true(library_has(&few, text) != is_own);
}

int main(int argc, char **argv)
{
    (void)argc;
    cuda_library(argv[0]);
    snprintf(table_path, sizeof table_path, "/tmp/reel-gemm-table-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_rows_alone),
        cmocka_unit_test(test_own), cmocka_unit_test(test_few_search), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_many_products), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_bad_tables), cmocka_unit_test(test_tables),
        cmocka_unit_test(test_foreign), cmocka_unit_test(test_search),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(table_path);
    return rc;
}
