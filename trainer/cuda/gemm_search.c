/* Searches for a product's fastest algorithm (cuda_load.h). The candidates are our own kernel, if
 * there are few rows, and all algorithms that the library proposes. They are timed in turn, in
 * several rounds, so that a falling clock rate affects all of them; the one with the lowest median
 * wins. Operands are random numbers, because a GPU that multiplies zeros draws less power and
 * clocks higher. */
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/gemm_lt.h"

enum { ROUNDS = 5, CALLS_MAX = 1000, MATRICES = 3 };

struct search {
    struct ops_cuda *o;
    struct dev *dev;
    struct dev_stream *stream;
    struct gemm_key key;
    struct ops_gemm gemm;
    void *block[MATRICES]; /* a, b and the result */
    struct dev_event *from, *to;
    struct gemm_entry proposals[1 + GEMM_PROPOSALS]; /* the first `own` (0 or 1): our kernel */
    double s[1 + GEMM_PROPOSALS][ROUNDS];
    int n, own;
};

/* Allocates a matrix on the device and fills it, and the gaps between its rows, with random
 * numbers. */
static int matrix_new(struct search *x, int which, int32_t dtype, const int64_t shape[3],
                      struct tensor *out, struct err *err)
{
    int64_t rows = shape[0], ld = shape[2];
    int rc = x->dev->alloc(x->dev, "an operand of a product", rows * ld * dtype_bytes(dtype),
                           &x->block[which], err);
    if (rc < 0)
        return rc;
    const struct ops_draw draw = {
        .out = tensor_of(x->block[which], (enum dtype)dtype, 1, rows * ld),
        .kind = OPS_DRAW_UNIFORM, .scale = 1, .seed = 7, .ordinal = (uint64_t)which};
    x->o->ops.draw(&x->o->ops, x->stream, &draw);
    *out = (struct tensor){x->block[which], (enum dtype)dtype, rows, shape[1], ld};
    return 0;
}

static int operands_make(struct search *x, struct err *err)
{
    const struct gemm_key *k = &x->key;
    const int64_t a[] = {k->ta ? k->k : k->m, k->ta ? k->m : k->k, k->lda},
                  b[] = {k->tb ? k->n : k->k, k->tb ? k->k : k->n, k->ldb},
                  d[] = {k->m, k->n, k->ldd};
    int rc;
    x->gemm = (struct ops_gemm){.ta = k->ta, .tb = k->tb, .alpha = 1};
    if ((rc = matrix_new(x, 0, k->in, a, &x->gemm.a, err)) < 0)
        return rc;
    if ((rc = matrix_new(x, 1, k->in, b, &x->gemm.b, err)) < 0)
        return rc;
    if ((rc = matrix_new(x, 2, k->out, d, &x->gemm.c, err)) < 0)
        return rc;
    if ((rc = x->dev->event_new(x->dev, &x->from, err)) < 0)
        return rc;
    return x->dev->event_new(x->dev, &x->to, err);
}

/* Writes the seconds of one call by a proposal, or infinity if the proposal cannot run. */
static int calls_time(struct search *x, int proposal, int calls, double *out, struct err *err)
{
    int rc;
    *out = (double)INFINITY;
    if (gemm_lt_use(x->o->lt, &x->proposals[proposal]) != CUBLAS_STATUS_SUCCESS)
        return 0;
    x->dev->event_record(x->dev, x->from, x->stream);
    for (int i = 0; i < calls; i++)
        kernel_gemm(x->o, x->stream->cuda, &x->gemm);
    x->dev->event_record(x->dev, x->to, x->stream);
    if ((rc = x->dev->stream_sync(x->dev, x->stream, err)) < 0)
        return rc;
    *out = x->dev->event_elapsed_s(x->dev, x->from, x->to) / calls;
    return 0;
}

static int rounds_time(struct search *x, double round_s, struct err *err)
{
    double once = 0;
    int rc;
    for (int warm = 0; warm < 2; warm++)
        if ((rc = calls_time(x, 0, 1, &once, err)) < 0)
            return rc;
    double wanted = once > 0 ? round_s / once : CALLS_MAX;
    int calls = wanted < 1 ? 1 : wanted > CALLS_MAX ? CALLS_MAX : (int)wanted;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < x->n; i++)
            if ((rc = calls_time(x, i, calls, &x->s[i][round], err)) < 0)
                return rc;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double s[ROUNDS])
{
    qsort(s, ROUNDS, sizeof *s, ascending);
    return s[ROUNDS / 2];
}

static int best_tell(struct search *x, struct gemm_found *out, struct err *err)
{
    struct gemm_found found = {.proposals = x->n, .best_s = (double)INFINITY,
                               .lt_s = (double)INFINITY};
    struct str line = STR_INIT;
    int best = 0, rc = 0;
    for (int i = 0; i < x->n; i++) {
        double s = median(x->s[i]);
        if (i == 0)
            found.first_s = s;
        if (i >= x->own)
            found.lt_s = fmin(found.lt_s, s);
        if (s < found.best_s)
            found.best_s = s, best = i;
    }
    gemm_entry_print(&x->proposals[best], dev_cuda_name(x->dev), (int64_t)cublasLtGetVersion(),
                     &line);
    found.flops = 2 * (double)x->key.m * (double)x->key.n * (double)x->key.k;
    if (line.failed || line.len >= sizeof found.line)
        rc = err_set(err, ERR_LIMIT, "the line of a product is too long for a table");
    else
        memcpy(found.line, line.p, line.len + 1), *out = found;
    str_release(&line);
    return rc;
}

static void search_release(struct search *x)
{
    for (int i = 0; i < MATRICES; i++)
        x->dev->free(x->dev, x->block[i]);
    if (x->from)
        x->dev->event_free(x->dev, x->from);
    if (x->to)
        x->dev->event_free(x->dev, x->to);
}

/* Writes the candidates for the product. Returns their number, or 0 if the library proposes no
 * algorithm, or a negative status of the library. */
static int proposals_write(struct search *x)
{
    x->own = gemm_is_few(&x->key);
    x->proposals[0] = (struct gemm_entry){.key = x->key};
    int n = gemm_lt_proposals(x->o->lt, &x->key, x->proposals + x->own, GEMM_PROPOSALS);
    return n <= 0 ? n : n + x->own;
}

int gemm_search(struct ops *ops, struct dev_stream *s, const char *product, double round_s,
                struct gemm_found *out, struct err *err)
{
    struct search x = {.o = (struct ops_cuda *)ops, .dev = ops->dev, .stream = s};
    int rc;
    if (!gemm_product_parse(product, &x.key))
        return err_set(err, ERR_INPUT, "'%s' is no product: give a line of REEL_GEMM_PRODUCTS",
                       product);
    if ((x.n = proposals_write(&x)) <= 0)
        return err_set(err, ERR_INPUT, "'%s': cuBLASLt proposes no algorithm (%s)", product,
                       cublasLtGetStatusString((cublasStatus_t)-x.n));
    if ((rc = operands_make(&x, err)) < 0)
        goto out;
    if ((rc = rounds_time(&x, round_s, err)) < 0)
        goto out;
    rc = best_tell(&x, out, err);
out:
    search_release(&x);
    return rc;
}
