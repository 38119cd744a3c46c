/* Products on the CUDA backend, on the shim's GPU, against a plain triple loop: mixed types, views,
 * forms and the edges of tiles. */
#include "tests/unit/trainer_cuda.h"

#define F64 DTYPE_F64
#define F32 DTYPE_F32
#define B16 DTYPE_BF16

/* One product: the table, the types of a, b, c and aux (DTYPE_FP8: no aux), [m, n, k]. */
struct product {
    enum dtype table, a, b, c, aux;
    int m, n, k;
    bool ta, tb;
    double alpha, beta;
    enum ops_act_kind act;
};

static const struct product products[] = {
    {F64, F64, F64, F64, DTYPE_FP8, 1, 1, 1, false, false, 1, 0, OPS_ACT_NONE},
    {F64, F64, F64, F64, DTYPE_FP8, 65, 67, 33, false, true, -0.5, 0.25, OPS_ACT_NONE},
    {F64, F64, F64, F64, F64, 63, 130, 16, true, false, 1, 0, OPS_ACT_GELU_ERF},
    {F64, F64, F64, F64, DTYPE_FP8, 5, 3, 200, true, true, 2, 1, OPS_ACT_NONE},
    {F64, F64, F64, F64, F64, 7, 9, 0, false, true, 1, 0, OPS_ACT_SILU},
    {F64, F64, F64, F64, DTYPE_FP8, 7, 9, 0, true, false, 1, -2, OPS_ACT_NONE},
    {F64, F64, F64, F64, DTYPE_FP8, 0, 9, 5, false, true, 1, 0, OPS_ACT_NONE},
    {F64, F64, F64, F64, DTYPE_FP8, 9, 0, 5, false, true, 1, 0, OPS_ACT_NONE},
    {F32, F32, F32, F32, DTYPE_FP8, 66, 34, 77, false, false, 1, 1, OPS_ACT_NONE},
    {F32, F32, F32, F32, DTYPE_FP8, 17, 129, 31, true, true, 1, 0, OPS_ACT_GELU_TANH},
    {F32, F32, F32, F32, F32, 17, 31, 5, false, true, 1, 0, OPS_ACT_GELU_TANH},
    {B16, B16, B16, B16, B16, 33, 65, 40, false, true, 1, 0, OPS_ACT_GELU_ERF},
    {B16, B16, B16, B16, DTYPE_FP8, 12, 40, 80, false, true, 1, 0, OPS_ACT_SILU},
    {B16, B16, B16, F32, DTYPE_FP8, 40, 24, 70, true, false, 1, 1, OPS_ACT_NONE},
    {B16, F32, B16, F32, DTYPE_FP8, 6, 130, 24, false, false, 1, 1, OPS_ACT_NONE},
    {B16, F32, B16, F32, DTYPE_FP8, 70, 20, 6, true, false, 1, 0, OPS_ACT_NONE},
    {B16, B16, F32, B16, F32, 9, 20, 33, false, true, 0.5, 0, OPS_ACT_SILU},
    {B16, B16, B16, F32, B16, 9, 20, 33, true, true, 0.5, 0, OPS_ACT_GELU_TANH},
    {B16, B16, B16, B16, DTYPE_FP8, 9, 20, 33, false, false, 1, 1, OPS_ACT_NONE},
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
        fail_msg("product %d, %s (%d, %d): %.17g, want %.17g within %g",
                 (int)(p - products), what, i, j, got, want, within);
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
    if (p->aux != DTYPE_FP8)
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

static void test_products(void **state)
{
    static const enum dtype tables[] = {F64, F32, B16};
    (void)state;
    for (int t = 0; t < LEN(tables); t++) {
        struct bench b = cuda_bench(tables[t]);
        for (int i = 0; i < LEN(products); i++)
            if (products[i].table == tables[t]) {
                run(&b, &products[i], 0, 0);
                run(&b, &products[i], 3, 8);
            }
        bench_close(&b);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    cuda_library(argv[0]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
