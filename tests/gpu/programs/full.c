/* Checks products and attention at full sizes, by sampled rows. The operands are drawn on the
 * device and copied to the host, where some rows of the results are computed in f64. Every element
 * of a result must be written: it held NaN before.
 *
 *     full gemm M N K ROWS                       bf16 [M, K] x [N, K]ᵀ
 *     full attn SAMPLES TOKENS HEADS DIM ROWS    bf16, forward and backward
 *     full attn_low SAMPLES TOKENS HEADS DIM ROWS    the same, with logits near -100
 *
 * The right rows of dk and dv are computed from the device's o and lse, which are checked by
 * sampled rows. The program prints one JSON object with the relative L2 distance of each result. It
 * allows 4e-3, and 1e-5 for lse. Exit status: 0, 1 when a distance is larger or not finite, 2
 * usage, 4 no device, 5 a failure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "tests/gpu/desk.h"

enum { NUMBERS_MAX = 5 };

/* Holds sums of squares for a relative distance: of the differences, and of the right numbers. */
struct distance { double apart, size; };

static void distance_add(struct distance *d, double got, double want)
{
    d->apart += (got - want) * (got - want), d->size += want * want;
}

static bool is_first = true;
/* Prints a distance, and returns 1 if it is larger than allowed. */
static int distance_told(const char *name, struct distance d, double allowed)
{
    double l2 = sqrt(d.apart / d.size);
    printf("%s\"%s\": ", is_first ? "{" : ", ", name);
    printf(isfinite(l2) ? "%.3g" : "null", l2);
    is_first = false;
    if (l2 <= allowed)
        return 0;
    fprintf(stderr, "full: %s is %.3g off in relative L2, of which %.3g is allowed\n", name, l2,
            allowed);
    return 1;
}

/* Holds a whole matrix of bf16 on the host. */
struct matrix { const uint16_t *x; int64_t rows, cols; };

static struct matrix matrix_get(struct desk *d, struct tensor t)
{
    return (struct matrix){desk_get(d, &t), t.rows, t.cols};
}

static double at(struct matrix m, int64_t i, int64_t j)
{
    return (double)bf16_value(m.x[i * m.cols + j]);
}

static double dot(struct matrix a, int64_t i, int64_t first_a, struct matrix b, int64_t j,
                  int64_t first_b, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += at(a, i, first_a + k) * at(b, j, first_b + k);
    return sum;
}

static int unwritten(const char *name, struct matrix m)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < m.rows * m.cols; i++)
        bad += !isfinite(bf16_value(m.x[i]));
    if (bad)
        fprintf(stderr, "full: %ld elements of %s are not finite\n", (long)bad, name);
    return bad > 0;
}

/* Returns the k-th of n rows that are spread over all, the last one among them. */
static int64_t row_of(int64_t k, int64_t n, int64_t rows)
{
    return k == n - 1 ? rows - 1 : k * (rows / n) + k * 37 % (rows / n > 0 ? rows / n : 1);
}

static int gemm_check(struct desk *d, const int64_t *n)
{
    struct tensor a = desk_draw(d, DTYPE_BF16, n[0], n[2]),
                  b = desk_draw(d, DTYPE_BF16, n[1], n[2]),
                  c = desk_new(d, DTYPE_BF16, n[0], n[1]);
    struct ops_gemm g = {.a = a, .b = b, .c = c, .tb = true, .alpha = 1};
    d->c.ops->gemm(d->c.ops, d->c.stream, &g);
    struct matrix ha = matrix_get(d, a), hb = matrix_get(d, b), hc = matrix_get(d, c);
    struct distance off = {0};
    for (int64_t k = 0; k < n[3]; k++) {
        int64_t i = row_of(k, n[3], n[0]);
        for (int64_t j = 0; j < n[1]; j++)
            distance_add(&off, at(hc, i, j), dot(ha, i, 0, hb, j, 0, n[2]));
    }
    int wrong = unwritten("c", hc) | distance_told("c", off, 4e-3);
    free((void *)ha.x), free((void *)hb.x), free((void *)hc.x);
    return wrong;
}

/* ---- attention ---- */

enum { Q, K, V, O, D_O, DQ, DK, DV, MATRICES };
static const char *const names[MATRICES] = {"q", "k", "v", "o", "d_o", "dq", "dk", "dv"};

struct attn {
    struct matrix m[MATRICES];
    const float *lse;
    int64_t tokens, heads, dim;
    double scale;
    bool low; /* the first component of a head lowers each logit by 100 */
    struct distance off[MATRICES], lse_off;
};

/* Computes one query's row of a head (o, lse, dq), and adds its distances from the device's. */
static void query_check(struct attn *a, int64_t i, int64_t h)
{
    int64_t d = a->dim, first = h * d, begin = i / a->tokens * a->tokens;
    double *p = calloc((size_t)a->tokens, sizeof *p), o[OPS_HEAD_DIM_MAX] = {0},
           dq[OPS_HEAD_DIM_MAX] = {0}, most = -INFINITY, sum = 0, delta = 0;
    BUG_ON(!p);
    for (int64_t j = 0; j < a->tokens; j++) {
        p[j] = a->scale * dot(a->m[Q], i, first, a->m[K], begin + j, first, d);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < a->tokens; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < a->tokens; j++)
        for (int64_t c = 0; c < d; c++)
            o[c] += p[j] / sum * at(a->m[V], begin + j, first + c);
    for (int64_t c = 0; c < d; c++)
        delta += o[c] * at(a->m[D_O], i, first + c);
    for (int64_t j = 0; j < a->tokens; j++) {
        double dp = dot(a->m[D_O], i, first, a->m[V], begin + j, first, d) - delta;
        for (int64_t c = 0; c < d; c++)
            dq[c] += a->scale * p[j] / sum * dp * at(a->m[K], begin + j, first + c);
    }
    distance_add(&a->lse_off, (double)a->lse[i * a->heads + h], most + log(sum));
    for (int64_t c = 0; c < d; c++) {
        distance_add(&a->off[O], at(a->m[O], i, first + c), o[c]);
        if (c == 0 && a->low) /* large numbers cancel to 0, so that only roundings are left */
            continue;
        distance_add(&a->off[DQ], at(a->m[DQ], i, first + c), dq[c]);
    }
    free(p);
}

/* Computes one key's row of a head (dk, dv) over all queries of its sample, and adds its distances
 * from the device's. */
static void key_check(struct attn *a, int64_t j, int64_t h)
{
    int64_t d = a->dim, first = h * d, begin = j / a->tokens * a->tokens;
    double dk[OPS_HEAD_DIM_MAX] = {0}, dv[OPS_HEAD_DIM_MAX] = {0};
    for (int64_t i = begin; i < begin + a->tokens; i++) {
        double s = a->scale * dot(a->m[Q], i, first, a->m[K], j, first, d),
               p = exp(s - (double)a->lse[i * a->heads + h]),
               delta = dot(a->m[O], i, first, a->m[D_O], i, first, d),
               ds = p * (dot(a->m[D_O], i, first, a->m[V], j, first, d) - delta);
        for (int64_t c = 0; c < d; c++) {
            dk[c] += a->scale * ds * at(a->m[Q], i, first + c);
            dv[c] += p * at(a->m[D_O], i, first + c);
        }
    }
    for (int64_t c = 0; c < d; c++) {
        distance_add(&a->off[DK], at(a->m[DK], j, first + c), dk[c]);
        distance_add(&a->off[DV], at(a->m[DV], j, first + c), dv[c]);
    }
}

/* Sets the first component of each head. */
static void first_set(struct desk *d, const struct tensor *t, int64_t dim, double x)
{
    uint16_t *host = desk_get(d, t);
    for (int64_t e = 0; e < t->rows * t->cols; e += dim)
        host[e] = bf16_round_double(x);
    d->c.dev->copy(d->c.dev, t->ptr, host, t->rows * t->cols * 2, DEV_H2D, d->c.stream);
    desk_sync(d);
    free(host);
}

static void attn_compute(struct desk *d, struct attn *a, int64_t samples)
{
    int64_t s = samples * a->tokens, cols = a->heads * a->dim;
    struct tensor t[MATRICES], lse = desk_new(d, DTYPE_F32, s, a->heads);
    for (int k = 0; k < MATRICES; k++)
        t[k] = k <= V || k == D_O ? desk_draw(d, DTYPE_BF16, s, cols)
                                  : desk_new(d, DTYPE_BF16, s, cols);
    struct ops_attn x = {.q = t[Q], .k = t[K], .v = t[V], .o = t[O], .lse = lse,
                         .heads = a->heads, .kv_heads = a->heads, .head_dim = a->dim,
                         .scale = a->scale, .d_o = t[D_O], .dq = t[DQ], .dk = t[DK], .dv = t[DV],
                         .delta = desk_new(d, DTYPE_F32, s, a->heads)};
    if (a->low) {
        first_set(d, &t[Q], a->dim, sqrt(100 / a->scale));
        first_set(d, &t[K], a->dim, -sqrt(100 / a->scale));
    }
    desk_segments(d, &x, (struct desk_samples){samples, a->tokens, a->tokens, false});
    d->c.ops->attn_fwd(d->c.ops, d->c.stream, &x);
    d->c.ops->attn_bwd(d->c.ops, d->c.stream, &x);
    for (int k = 0; k < MATRICES; k++)
        a->m[k] = matrix_get(d, t[k]);
    a->lse = desk_get(d, &lse);
}

static int attn_hold(struct desk *d, const int64_t *n, bool low)
{
    struct attn a = {.tokens = n[1], .heads = n[2], .dim = n[3],
                     .scale = 1 / sqrt((double)n[3]), .low = low};
    int wrong = 0;
    attn_compute(d, &a, n[0]);
    for (int64_t k = 0; k < n[4]; k++) {
        int64_t row = row_of(k, n[4], n[0] * n[1]), h = k * 5 % n[2];
        query_check(&a, row, h), key_check(&a, row, h);
    }
    for (int k = 0; k < MATRICES; k++)
        if (k > V && k != D_O)
            wrong |= unwritten(names[k], a.m[k]) | distance_told(names[k], a.off[k], 4e-3);
    wrong |= distance_told("lse", a.lse_off, 1e-5);
    for (int k = 0; k < MATRICES; k++)
        free((void *)a.m[k].x);
    free((void *)a.lse);
    return wrong;
}

static int attn_check(struct desk *d, const int64_t *n) { return attn_hold(d, n, false); }
static int low_check(struct desk *d, const int64_t *n) { return attn_hold(d, n, true); }

static const struct {
    const char *name;
    int numbers;
    int (*check)(struct desk *d, const int64_t *n);
} kinds[] = {{"gemm", 4, gemm_check}, {"attn", 5, attn_check},
             {"attn_low", 5, low_check}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool wish_read(int argc, char **argv, int *kind, int64_t *n)
{
    for (*kind = 0; argc > 1 && *kind < KINDS; ++*kind)
        if (strcmp(argv[1], kinds[*kind].name) == 0)
            break;
    bool good = argc > 1 && *kind < KINDS && argc == 2 + kinds[*kind].numbers;
    for (int i = 0; good && i < kinds[*kind].numbers; i++)
        good = (n[i] = strtoll(argv[2 + i], NULL, 10)) > 0;
    return good && (kinds[*kind].check == gemm_check || n[3] <= OPS_HEAD_DIM_MAX);
}

int main(int argc, char **argv)
{
    struct desk d = {0};
    int64_t n[NUMBERS_MAX];
    int kind;
    if (!wish_read(argc, argv, &kind, n)) {
        fputs("usage: full gemm M N K ROWS | attn|attn_low SAMPLES TOKENS HEADS DIM ROWS\n",
              stderr);
        return 2;
    }
    desk_open(&d, DTYPE_BF16);
    int wrong = kinds[kind].check(&d, n);
    puts("}");
    desk_close(&d);
    return wrong;
}
