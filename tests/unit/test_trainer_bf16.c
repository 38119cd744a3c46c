/* The bf16 table beside f32's and f64's (trainer_trio.h says to what each operation is held), its
 * rounding, and what it refuses: conversions, products, attention. Norms, activations and the rest:
 * test_trainer_bf16_rows.c. */
#include "tests/unit/trainer_trio.h"

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

static void test_axpy(void **state)
{
    enum { R = 3, C = 4133 }; /* more than a piece of a row */
    struct tables t = tables_open();
    struct trio x = act_random(R, C, 1), y = act_random(R, C, 2), z = stat_random(R, C, 3),
                keep = act_random(R, C, 2);
    (void)state;
    EACH(&t, axpy, (struct ops_axpy){x.t[K], y.t[K], 0.3});
    trio_check("axpy", &y, 2 * F32 * (trio_most(&x) + trio_most(&y)));
    EACH(&t, axpy, (struct ops_axpy){x.t[K], z.t[K], -0.7}); /* bf16 into f32 */
    trio_check("axpy into stat", &z, 2 * F32 * (trio_most(&x) + trio_most(&z)));
    for (int k = 0; k < TRIO; k++)
        for (int from = 0; from < TRIO; from++)
            for (int to = 0; to < TRIO; to++) {
                trio_spread(&keep, 2), trio_spread(&x, 2);
                t.b[k].ops->axpy(t.b[k].ops, t.b[k].stream,
                                 &(struct ops_axpy){tensor_rows(x.t[from], 1, 1),
                                                    tensor_rows(keep.t[to], 2, 1), 0.5});
                /* halves of 8 bits, added in float: exact but for the last rounding, unless far
                 * apart */
                for (int64_t j = 0; j < C; j++) {
                    double want = trio_get(&keep.t[(to + 1) % TRIO], 2, j) +
                                  0.5 * trio_get(&x.t[from], 1, j),
                           got = trio_get(&keep.t[to], 2, j);
                    double step = to == 0 ? 0 : to == 1 ? F32 : 0x1p-8 + F32;
                    assert_true(fabs(got - want) <=
                                step * fabs(want) + (k == 0 ? 0 : F32 * fabs(want)));
                }
            }
    trio_free(&x), trio_free(&y), trio_free(&z), trio_free(&keep);
    tables_close(&t);
}

/* ---- products ---- */

static const int64_t shapes[][3] = {
    /* m, n, k: around registers, panels and blocks of rows, columns and sums */
    {1, 1, 1},     {13, 33, 257},  {12, 32, 256}, {11, 65, 7}, {145, 17, 300},
    {7, 801, 520}, {781, 19, 260}, {3, 5, 0},     {0, 4, 3},
};
struct form {
    bool ta, tb;
    double alpha, beta;
    enum dtype a, b, c; /* of the bf16 table */
    enum ops_act_kind act;
    bool aux;
};
static const struct form forms[] = {
    /* y = x Wᵀ */
    {false, true, 1, 0, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16},
    /* dx += dy W: reads what c was rounded to */
    {false, false, 1, 1, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16},
    {true, false, 1, 0.5, DTYPE_BF16, DTYPE_BF16, DTYPE_F32},                           /* dW */
    {true, true, -0.5, 0, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16},
    /* of the conditioning */
    {false, false, 1, 1, DTYPE_F32, DTYPE_BF16, DTYPE_F32},
    {true, false, 1, 0, DTYPE_F32, DTYPE_BF16, DTYPE_F32},
    /* act of what aux holds */
    {false, true, 1, 0, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, OPS_ACT_SILU, true},
    {false, true, 1, 0, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, OPS_ACT_GELU_ERF, false},
};

static struct ops_gemm gemm_of(const struct form *f, struct tensor a, struct tensor b,
                               struct tensor c, struct tensor aux)
{
    return (struct ops_gemm){.a = a, .b = b, .c = c, .ta = f->ta, .tb = f->tb, .alpha = f->alpha,
                             .beta = f->beta, .act = f->act, .aux = aux};
}

static struct trio absolute(const struct trio *x)
{
    struct trio y = trio_new(x->t[2].dtype, x->t[0].rows, x->t[0].cols);
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t j = 0; j < x->t[0].cols; j++)
            trio_put(&y.t[0], i, j, fabs(trio_get(&x->t[0], i, j)));
    return y;
}

/* k products and sums, blocks of them added, alpha, beta: of numbers of the size of the same
 * product of absolute values (Higham, "Accuracy and stability of numerical algorithms", section
 * 3.5). */
static double *gemm_lost(struct tables *t, const struct form *f, int64_t k, const struct trio *a,
                         const struct trio *b, const struct trio *before)
{
    struct trio pa = absolute(a), pb = absolute(b), pc = absolute(before);
    struct form plain = *f;
    plain.alpha = fabs(f->alpha), plain.act = OPS_ACT_NONE;
    int64_t m = pc.t[0].rows, n = pc.t[0].cols;
    struct ops_gemm g = gemm_of(&plain, pa.t[0], pb.t[0], pc.t[0], tensor_none());
    t->b[0].ops->gemm(t->b[0].ops, t->b[0].stream, &g);
    double *lost = new_nan(m * n);
    for (int64_t i = 0; i < m * n; i++)
        lost[i] = (double)(k + 8) * F32 * trio_get(&pc.t[0], i / n, i % n);
    trio_free(&pa), trio_free(&pb), trio_free(&pc);
    return lost;
}

static void check_gemm(struct tables *t, const int64_t *s, const struct form *f)
{
    int64_t m = s[0], n = s[1], k = s[2];
    struct trio a = trio_random(f->a, f->ta ? k : m, f->ta ? m : k, 1),
                b = trio_random(f->b, f->tb ? n : k, f->tb ? k : n, 2);
    struct trio before = trio_random(f->c, m, n, 3),
                c = f->beta == 0 ? trio_new(f->c, m, n) : trio_random(f->c, m, n, 3);
    struct trio aux = f->aux ? act_new(m, n) : trio_none();
    EACH(t, gemm, gemm_of(f, a.t[K], b.t[K], c.t[K], aux.t[K]));
    double *lost = gemm_lost(t, f, k, &a, &b, &before);
    if (f->aux) {
        trio_same("aux", &aux);
        trio_near_each("aux", &aux, lost, 0);
        trio_spread(&aux, 2);
        struct trio from_aux = act_new(m, n);
        EACH(t, act_fwd, (struct ops_act){.kind = f->act, .x = aux.t[K], .y = from_aux.t[K]});
        /* as backward makes it again */
        assert_memory_equal(from_aux.t[2].ptr, c.t[2].ptr, (size_t)(m * c.t[2].ld) * 2);
        trio_free(&from_aux), trio_free(&aux);
    } else {
        trio_same("gemm", &c);
        /* its slope is below 1.13; and what f32's erf loses (test_trainer_ops) */
        for (int64_t i = 0; f->act && i < m * n; i++)
            lost[i] = 1.13 * lost[i] + 4e-7 * (1 + fabs(trio_get(&c.t[0], i / n, i % n)));
        trio_near_each("gemm", &c, lost, 0);
    }
    free(lost), trio_free(&a), trio_free(&b), trio_free(&before), trio_free(&c);
}

static void test_gemm(void **state)
{
    struct tables t = tables_open();
    (void)state;
    for (int i = 0; i < LEN(shapes); i++)
        for (int f = 0; f < LEN(forms); f++)
            check_gemm(&t, shapes[i], &forms[f]);
    tables_close(&t);
}

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

/* ---- attention ---- */

struct attn_case {
    const char *name;
    int64_t heads, kv_heads, d, n;
    int32_t q[3], k[3];
};
static const struct attn_case attn_cases[] = {
    {"one segment", 2, 2, 6, 1, {7}, {7}},
    {"grouped queries", 6, 2, 8, 2, {5, 9}, {5, 9}},
    {"longer than tiles", 2, 1, 20, 2, {200, 3}, {130, 250}},
    {"cross, one key, no keys", 2, 2, 4, 3, {6, 5, 4}, {3, 1, 0}},
    {"no queries", 1, 1, 34, 2, {0, 100}, {3, 97}},
};

struct attn_run {
    const struct attn_case *c;
    int32_t q_start[4], k_start[3], k_len[3];
    int64_t s, keys;
    struct trio q, k, v, o, lse, d_o, dq, dk, dv, delta;
};

static void attn_setup(struct attn_run *r, const struct attn_case *c)
{
    *r = (struct attn_run){.c = c};
    for (int64_t i = 0; i < c->n; i++) {
        r->q_start[i + 1] = r->q_start[i] + c->q[i];
        r->k_start[i] = (int32_t)r->keys;
        r->k_len[i] = c->k[i];
        r->keys += c->k[i];
    }
    r->s = r->q_start[c->n];
    int64_t wq = c->heads * c->d, wk = c->kv_heads * c->d;
    r->q = act_random(r->s, wq, 1), r->k = act_random(r->keys, wk, 2),
    r->v = act_random(r->keys, wk, 3), r->d_o = act_random(r->s, wq, 4);
    r->o = act_new(r->s, wq), r->dq = act_new(r->s, wq), r->dk = act_new(r->keys, wk),
    r->dv = act_new(r->keys, wk);
    r->lse = stat_new(r->s, c->heads), r->delta = stat_new(r->s, c->heads);
}

static void attn_release(struct attn_run *r)
{
    struct trio *all[] = {&r->q,   &r->k,  &r->v,  &r->o,  &r->lse,
                          &r->d_o, &r->dq, &r->dk, &r->dv, &r->delta};
    for (int i = 0; i < LEN(all); i++)
        trio_free(all[i]);
}

static struct ops_attn attn_of(const struct attn_run *r, int k)
{
    return (struct ops_attn){.q = r->q.t[k], .k = r->k.t[k], .v = r->v.t[k], .o = r->o.t[k],
                             .lse = r->lse.t[k], .n = r->c->n, .q_start = r->q_start,
                             .k_start = r->k_start, .k_len = r->k_len,
                             .host = {r->q_start, r->k_start, r->k_len, NULL}, .max_q = r->s,
                             .max_k = r->keys, .heads = r->c->heads, .kv_heads = r->c->kv_heads,
                             .head_dim = r->c->d, .scale = 1 / sqrt((double)r->c->d),
                             .d_o = r->d_o.t[k], .dq = r->dq.t[k], .dk = r->dk.t[k],
                             .dv = r->dv.t[k], .delta = r->delta.t[k]};
}

/* The largest sum of |x_j y_j| over the components of a head, of any row of x with any of y. */
static double most_dot(const struct attn_run *r, const struct trio *x, const struct trio *y)
{
    double most = 0;
    int64_t d = r->c->d, group = r->c->heads / r->c->kv_heads;
    for (int64_t i = 0; i < x->t[0].rows; i++)
        for (int64_t k = 0; k < y->t[0].rows; k++)
            for (int64_t h = 0; h < r->c->heads; h++) {
                double sum = 0;
                for (int64_t j = 0; j < d; j++)
                    sum += fabs(trio_get(&x->t[0], i, h * d + j) *
                                trio_get(&y->t[0], k, h / group * d + j));
                most = fmax(most, sum);
            }
    return most;
}

/* A logit is a sum of d products, scaled; P = exp(logit - lse) relatively off by what logit and lse
 * (itself off by as much as the worst logit, a sum over the keys, and a logarithm) are, and by
 * exp's own roundings, eight at most. */
static double lost_of_p(const struct attn_run *r)
{
    double logit = most_dot(r, &r->q, &r->k) / sqrt((double)r->c->d);
    return F32 * (2 * (double)(r->c->d + 3) * logit + (double)r->keys + 12 + logit);
}

static void check_attn_fwd(struct tables *t, struct attn_run *r)
{
    double p = lost_of_p(r);
    EACH(t, attn_fwd, attn_of(r, K));
    trio_check("o", &r->o, (2 * p + (double)(r->keys + 4) * F32) * trio_most(&r->v));
    for (int64_t i = 0; i < r->s; i++) /* no keys: -inf in all three */
        for (int64_t h = 0; h < r->c->heads; h++)
            assert_true(isinf(trio_get(&r->lse.t[0], i, h)) == isinf(trio_get(&r->lse.t[2], i, h)));
    trio_check("lse", &r->lse, p);
}

/* dv = Pᵀ dO. With G = the largest sum of |dO_j v_j|, which bounds |dP| and |delta|: dS = P (dP -
 * delta) is off by P G (2 p + (2d + 6) u), and dq = scale dS K, dk = scale dSᵀ Q by that and their
 * own sums of at most 2 P G. Sums of P are 1 over keys; over queries they are what dv would be if
 * dO were 1: its largest element. */
static void check_attn_bwd(struct tables *t, struct attn_run *r, bool add)
{
    double p = lost_of_p(r), g = 0, scale = 1 / sqrt((double)r->c->d),
           group = (double)(r->c->heads / r->c->kv_heads), columns, terms;
    struct trio ones = act_new(r->s, r->o.t[0].cols);
    for (int64_t i = 0; i < r->s; i++)
        for (int64_t j = 0; j < r->o.t[0].cols; j++)
            trio_put(&ones.t[0], i, j, 1);
    struct ops_attn a = attn_of(r, 0);
    a.d_o = ones.t[0];
    t->b[0].ops->attn_bwd(t->b[0].ops, t->b[0].stream, &a);
    columns = trio_most(&r->dv);
    if (add) { /* to numbers that are there */
        struct trio *sums[] = {&r->dq, &r->dk, &r->dv};
        for (int i = 0; i < 3; i++)
            trio_free(sums[i]);
        r->dq = act_random(r->s, r->q.t[0].cols, 5), r->dk = act_random(r->keys, r->k.t[0].cols, 6),
        r->dv = act_random(r->keys, r->k.t[0].cols, 7);
    }
    double was = add ? 8 * F32 * fmax(trio_most(&r->dq), fmax(trio_most(&r->dk), trio_most(&r->dv)))
                     : 0;
    for (int k = 0; k < TRIO; k++) {
        a = attn_of(r, k);
        a.accumulate_dq = a.accumulate_dkv = add;
        t->b[k].ops->attn_bwd(t->b[k].ops, t->b[k].stream, &a);
    }
    g = most_dot(r, &r->d_o, &r->v);
    trio_check("delta", &r->delta, (double)(r->c->d + 2) * F32 * g);
    terms = 2 * p + (double)(2 * r->c->d + 6) * F32;
    trio_check("dq", &r->dq,
               was + scale * g * trio_most(&r->k) * (terms + 2 * (double)(r->keys + 4) * F32));
    terms += 2 * (group * (double)r->s + 4) * F32;
    trio_check("dk", &r->dk, was + scale * g * trio_most(&r->q) * columns * terms);
    trio_check("dv", &r->dv,
               was + trio_most(&r->d_o) * columns * (p + (group * (double)r->s + 4) * F32));
    trio_free(&ones);
}

/* A query that sees one key alone does not depend on it: not by rounding either. */
static void check_one_key(const struct attn_run *r)
{
    for (int k = 0; k < TRIO; k++)
        for (int64_t seg = 0; seg < r->c->n; seg++) {
            for (int64_t i = r->q_start[seg]; i < r->q_start[seg + 1] && r->k_len[seg] == 1; i++)
                for (int64_t j = 0; j < r->dq.t[k].cols; j++)
                    assert_true(trio_get(&r->dq.t[k], i, j) == 0);
            for (int64_t j = 0; j < r->dk.t[k].cols && r->k_len[seg] == 1; j++)
                assert_true(trio_get(&r->dk.t[k], r->k_start[seg], j) == 0);
        }
}

static void test_attention(void **state)
{
    struct tables t = tables_open();
    (void)state;
    for (int i = 0; i < LEN(attn_cases); i++) {
        struct attn_run r;
        attn_setup(&r, &attn_cases[i]);
        check_attn_fwd(&t, &r);
        trio_spread(&r.o, 2), trio_spread(&r.lse, 2); /* backward reads what forward has stored */
        check_attn_bwd(&t, &r, false);
        check_one_key(&r);
        check_attn_bwd(&t, &r, true);
        attn_release(&r);
    }
    tables_close(&t);
}

/* Two parts over other keys: o off by what the weights (exp of a difference, eight roundings) are,
 * twice. */
static void test_lse_merge(void **state)
{
    enum { S = 9, H = 3, D = 7 };
    struct tables t = tables_open();
    struct trio o = act_random(S, H * D, 1), part = act_random(S, H * D, 2),
                lse = stat_random(S, H, 3), lse_part = stat_random(S, H, 4);
    (void)state;
    for (int k = 0; k < TRIO; k++) { /* one has seen no keys, then neither has */
        trio_put(&lse.t[k], 1, 0, -INFINITY);
        trio_put(&lse.t[k], 2, 1, -INFINITY), trio_put(&lse_part.t[k], 2, 1, -INFINITY);
    }
    EACH(&t, lse_merge, (struct ops_lse_merge){o.t[K], lse.t[K], part.t[K], lse_part.t[K], H, D});
    trio_check("merged o", &o, 24 * F32 * (trio_most(&part) + trio_most(&o)));
    trio_check("merged lse", &lse, 12 * F32 * 6);
    trio_free(&o), trio_free(&part), trio_free(&lse), trio_free(&lse_part);
    tables_close(&t);
}

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
        cmocka_unit_test(test_copy), cmocka_unit_test(test_axpy), cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_gemm_exact), cmocka_unit_test(test_rows_independent),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_lse_merge),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
