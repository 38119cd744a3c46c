/* Norms on the CUDA backend where their sums over rows are cut more often than the operations'
 * cases do: a band of rows that is looked at in several pieces, samples that do not all fit into the
 * memory of the sums, and groups of lanes that take one item after another. They are held to the
 * CPU's table for f64. */
#include "tests/lib/trainer_cuda.h"

enum { TENSORS = 16, ORDERS = 2 };
static const char *const orders[ORDERS] = {"0", "5"}; /* of threads, by REEL_SHIM_SEED */
static const double TOL = 1e-12;

/* The tensors of a call on both sides. */
struct both {
    struct bench gpu, cpu;
    struct pair pair[TENSORS];
    struct tensor near[TENSORS]; /* the same numbers for the CPU's table */
    int n;
};

static void both_open(struct both *b)
{
    *b = (struct both){.cpu = bench_open(DTYPE_F64), .gpu = cuda_bench(DTYPE_F64)};
}

static int both_new(struct both *b, int64_t rows, int64_t cols)
{
    b->pair[b->n] = pair_new(&b->gpu, DTYPE_F64, rows, cols, cols, 0, (uint64_t)b->n);
    b->near[b->n] = tensor_of(b->pair[b->n].host, DTYPE_F64, rows, cols);
    return b->n++;
}

static void *both_bytes(struct both *b, const void *from, int64_t bytes)
{
    struct err err = {0};
    void *at;
    assert_int_equal(b->gpu.dev->alloc(b->gpu.dev, "x", bytes, &at, &err), 0);
    bench_put(&b->gpu, at, from, bytes);
    return at;
}

/* Puts the numbers of the start on the device again, under another order of threads. */
static void both_begin(struct both *b, double *const *start, int order)
{
    setenv("REEL_SHIM_SEED", orders[order], true);
    for (int k = 0; k < b->n; k++)
        bench_put(&b->gpu, b->pair[k].on.ptr, start[k], b->pair[k].bytes);
}

static void both_start(const struct both *b, double **start)
{
    for (int k = 0; k < b->n; k++) {
        start[k] = malloc((size_t)b->pair[k].bytes);
        assert_non_null(start[k]);
        memcpy(start[k], b->pair[k].host, (size_t)b->pair[k].bytes);
    }
}

/* Compares a tensor of both sides. */
static void both_look(const struct both *b, const char *what, int k)
{
    double *got = bench_get(&b->gpu, b->pair[k].on.ptr, b->pair[k].bytes), apart = 0, size = 0;
    const double *want = b->pair[k].host;
    for (int64_t i = 0; i < b->pair[k].bytes / 8; i++) {
        apart += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(sqrt(apart / size) <= TOL))
        fail_msg("%s: %.3g apart", what, sqrt(apart / size));
    free(got);
}

static void both_close(struct both *b, double **start)
{
    for (int k = 0; k < b->n; k++) {
        free(start[k]);
        pair_free(&b->gpu, &b->pair[k]);
    }
    bench_close(&b->gpu);
    bench_close(&b->cpu);
}

enum { DX, X_OUT, DY, BRANCH, DBRANCH, STATS, GATE, SHIFT, SCALE, DGATE, DSHIFT, DSCALE };

static struct ops_adaln adaln_of(const struct tensor *t, int64_t n)
{
    return (struct ops_adaln){
        .n = n, .x_out = t[X_OUT], .branch = t[BRANCH], .gate = t[GATE], .shift = t[SHIFT],
        .scale = t[SCALE], .stats = t[STATS], .dy = t[DY], .dx = t[DX], .dbranch = t[DBRANCH],
        .dgate = t[DGATE], .dshift = t[DSHIFT], .dscale = t[DSCALE]};
}

static void adaln_bwd_both(struct both *b, int64_t n, const int32_t *start, const int32_t *sample)
{
    struct tensor far[TENSORS];
    double *before[TENSORS];
    int64_t s = start[n];
    for (int k = 0; k < b->n; k++)
        far[k] = b->pair[k].on;
    struct ops_adaln near = adaln_of(b->near, n), a = adaln_of(far, n);
    near.row_start = near.host_row_start = a.host_row_start = start;
    near.sample = sample;
    a.row_start = both_bytes(b, start, (n + 1) * (int64_t)sizeof *start);
    a.sample = both_bytes(b, sample, s * (int64_t)sizeof *sample);
    both_start(b, before);
    b->cpu.ops->adaln_bwd(b->cpu.ops, b->cpu.stream, &near);
    for (int k = 0; k < ORDERS; k++) {
        both_begin(b, before, k);
        b->gpu.ops->adaln_bwd(b->gpu.ops, b->gpu.stream, &a);
        both_look(b, "dx", DX), both_look(b, "dbranch", DBRANCH), both_look(b, "dgate", DGATE);
        both_look(b, "dshift", DSHIFT), both_look(b, "dscale", DSCALE);
    }
    b->gpu.dev->free(b->gpu.dev, (void *)a.row_start);
    b->gpu.dev->free(b->gpu.dev, (void *)a.sample);
    both_close(b, before);
}

static void adaln_check(int64_t n, const int32_t *start, int64_t d)
{
    struct both b;
    int64_t s = start[n];
    int32_t *sample = calloc((size_t)s, sizeof *sample);
    assert_non_null(sample);
    for (int64_t m = 0; m < n; m++)
        for (int64_t i = start[m]; i < start[m + 1]; i++)
            sample[i] = (int32_t)m;
    both_open(&b);
    for (int k = DX; k <= DSCALE; k++)
        both_new(&b, k >= GATE ? n : s, k == STATS ? 2 : d);
    adaln_bwd_both(&b, n, start, sample);
    free(sample);
}

static void test_long_samples(void **state)
{
    (void)state;
    adaln_check(3, (int32_t[]){0, 4200, 4201, 4300}, 264); /* two warps have columns */
}

/* OPS_ROW_MAX / 3 columns leave room for the fewest parts. */
static void test_many_samples(void **state)
{
    (void)state;
    enum { N = 70 };
    int32_t start[N + 1];
    for (int m = 0; m <= N; m++)
        start[m] = m;
    adaln_check(N, start, OPS_ROW_MAX / 3);
}

enum { SRC, DDST, DSRC, GAIN, RSTD, DGAIN };

static struct ops_headnorm headnorm_of(const struct tensor *t, int64_t heads)
{
    return (struct ops_headnorm){.src = t[SRC], .heads = heads, .head_dim = t[GAIN].cols,
                                 .gain = t[GAIN], .rstd = t[RSTD], .ddst = t[DDST],
                                 .dsrc = t[DSRC], .dgain = t[DGAIN], .beta = 0.5};
}

static void test_many_heads(void **state)
{
    (void)state;
    enum { ROWS = 135000, HEADS = 4, D = 2 };
    struct both b;
    struct tensor far[TENSORS];
    double *before[TENSORS];
    both_open(&b);
    for (int k = SRC; k <= DSRC; k++)
        both_new(&b, ROWS, HEADS * D);
    both_new(&b, 1, D), both_new(&b, ROWS, HEADS), both_new(&b, 1, D);
    for (int k = 0; k < b.n; k++)
        far[k] = b.pair[k].on;
    struct ops_headnorm near = headnorm_of(b.near, HEADS), a = headnorm_of(far, HEADS);
    both_start(&b, before);
    b.cpu.ops->headnorm_bwd(b.cpu.ops, b.cpu.stream, &near);
    for (int k = 0; k < ORDERS; k++) {
        both_begin(&b, before, k);
        b.gpu.ops->headnorm_bwd(b.gpu.ops, b.gpu.stream, &a);
        both_look(&b, "dsrc", DSRC), both_look(&b, "dgain", DGAIN);
    }
    both_close(&b, before);
}

int main(int argc, char **argv)
{
    (void)argc;
    cuda_library(argv[0]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_samples),
                                       cmocka_unit_test(test_many_samples),
                                       cmocka_unit_test(test_many_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
