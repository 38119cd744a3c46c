/* Attention in f64 against its definition and central differences (1e-7), in parts as the ring does
 * it. */
#include "tests/lib/trainer_fixture.h"

static const double TOL = 1e-7;

struct attn_case {
    const char *name;
    int64_t heads, kv_heads, d, n;
    int32_t q[3], k[3];
    double logit_scale;
    double shift; /* added to q's first component and to k's: logits far from 0 */
};
static const struct attn_case attn_cases[] = {
    {"one segment", 2, 2, 6, 1, {7}, {7}, 1, 0},
    {"grouped queries", 6, 2, 8, 2, {5, 9}, {5, 9}, 1, 0},
    {"longer than tiles", 2, 1, 20, 2, {200, 3}, {130, 250}, 1, 0},
    {"cross, one key, no keys", 2, 2, 4, 3, {6, 5, 4}, {3, 1, 0}, 1, 0},
    {"one key, grouped queries", 4, 2, 20, 2, {70, 3}, {1, 2}, 1, 0},
    {"no queries", 1, 1, 4, 2, {0, 4}, {3, 5}, 1, 0},
    {"logits near -100", 2, 2, 8, 1, {20}, {130}, 1, -17},
    {"sharp logits", 2, 2, 8, 1, {20}, {30}, 4, 0},
};

struct attn_run {
    struct bench *b;
    struct ops_attn a;
    const double *cot;
    int64_t s, keys;
    int32_t q_start[4], k_start[3], k_len[3];
};

static void attn_setup(struct attn_run *r, struct bench *b, const struct attn_case *c)
{
    *r = (struct attn_run){.b = b};
    for (int64_t i = 0; i < c->n; i++) {
        r->q_start[i + 1] = r->q_start[i] + c->q[i];
        r->k_start[i] = (int32_t)r->keys;
        r->k_len[i] = c->k[i];
        r->keys += c->k[i];
    }
    r->s = r->q_start[c->n];
    int64_t wq = c->heads * c->d, wk = c->kv_heads * c->d;
    r->a = (struct ops_attn){.q = f64(new_normal(r->s * wq, 1), r->s, wq),
                             .k = f64(new_normal(r->keys * wk, 2), r->keys, wk),
                             .v = f64(new_normal(r->keys * wk, 3), r->keys, wk),
                             .o = f64(new_nan(r->s * wq), r->s, wq),
                             .lse = f64(new_nan(r->s * c->heads), r->s, c->heads), .n = c->n,
                             .q_start = r->q_start, .k_start = r->k_start, .k_len = r->k_len,
                             .host = {r->q_start, r->k_start, r->k_len, NULL},
                             .max_q = r->s, .max_k = r->keys, .heads = c->heads,
                             .kv_heads = c->kv_heads, .head_dim = c->d,
                             .scale = c->logit_scale / sqrt((double)c->d),
                             .d_o = f64(new_normal(r->s * wq, 4), r->s, wq),
                             .dq = f64(new_nan(r->s * wq), r->s, wq),
                             .dk = f64(new_nan(r->keys * wk), r->keys, wk),
                             .dv = f64(new_nan(r->keys * wk), r->keys, wk),
                             .delta = f64(new_nan(r->s * c->heads), r->s, c->heads)};
    r->cot = r->a.d_o.ptr;
    for (int64_t i = 0; i < r->s * c->heads; i++)
        ((double *)r->a.q.ptr)[i * c->d] -= c->shift;
    for (int64_t i = 0; i < r->keys * c->kv_heads; i++)
        ((double *)r->a.k.ptr)[i * c->d] += c->shift;
}

static void attn_release(struct attn_run *r)
{
    void *all[] = {r->a.q.ptr,   r->a.k.ptr,  r->a.v.ptr,  r->a.o.ptr,  r->a.lse.ptr,
                   r->a.d_o.ptr, r->a.dq.ptr, r->a.dk.ptr, r->a.dv.ptr, r->a.delta.ptr};
    for (int i = 0; i < LEN(all); i++)
        free(all[i]);
}

static double attn_value(void *ctx)
{
    struct attn_run *r = ctx;
    r->b->ops->attn_fwd(r->b->ops, r->b->stream, &r->a);
    return dot(r->a.o.ptr, r->cot, r->s * r->a.o.cols);
}

/* Output and lse of one query by the definition. */
static void attn_plain(const struct ops_attn *a, int64_t seg, int64_t q, int64_t h, double *out,
                       double *lse)
{
    int64_t d = a->head_dim, kv = h / (a->heads / a->kv_heads);
    const double *Q = (const double *)a->q.ptr + q * a->q.ld + h * d;
    double top = -INFINITY, sum = 0, logit[512];
    for (int64_t k = 0; k < a->k_len[seg]; k++) {
        logit[k] = a->scale *
                   dot(Q, (const double *)a->k.ptr + (a->k_start[seg] + k) * a->k.ld + kv * d, d);
        top = fmax(top, logit[k]);
    }
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t k = 0; k < a->k_len[seg]; k++) {
        double p = exp(logit[k] - top);
        sum += p;
        for (int64_t j = 0; j < d; j++)
            out[j] += p * ((const double *)a->v.ptr)[(a->k_start[seg] + k) * a->v.ld + kv * d + j];
    }
    for (int64_t j = 0; j < d && sum > 0; j++)
        out[j] /= sum;
    *lse = top + log(sum);
}

static void attn_check_forward(const struct attn_run *r, const char *name)
{
    const struct ops_attn *a = &r->a;
    for (int64_t seg = 0; seg < a->n; seg++)
        for (int64_t q = a->q_start[seg]; q < a->q_start[seg + 1]; q++)
            for (int64_t h = 0; h < a->heads; h++) {
                double want[64], lse, got = ((const double *)a->lse.ptr)[q * a->heads + h];
                attn_plain(a, seg, q, h, want, &lse);
                if (!(lse == got || fabs(lse - got) <= 1e-12 * (1 + fabs(lse))))
                    fail_msg("%s: lse(%ld, %ld) %.15g, want %.15g", name, (long)q, (long)h, got,
                             lse);
                for (int64_t j = 0; j < a->head_dim; j++)
                    assert_true(fabs(((const double *)a->o.ptr)[q * a->o.ld + h * a->head_dim + j] -
                                     want[j]) <= 1e-12);
            }
}

static void test_attention(void **state)
{
    (void)state;
    struct bench b = bench_open(DTYPE_F64);
    for (int i = 0; i < LEN(attn_cases); i++) {
        struct attn_run r;
        attn_setup(&r, &b, &attn_cases[i]);
        attn_value(&r);
        attn_check_forward(&r, attn_cases[i].name);
        b.ops->attn_bwd(b.ops, b.stream, &r.a);
        const struct fd_slot slots[] = {{"q", r.a.q.ptr, r.a.dq.ptr, r.s * r.a.q.cols},
                                        {"k", r.a.k.ptr, r.a.dk.ptr, r.keys * r.a.k.cols},
                                        {"v", r.a.v.ptr, r.a.dv.ptr, r.keys * r.a.v.cols}};
        for (int s = 0; s < 3; s++)
            fd_check(attn_cases[i].name, &slots[s], 10 + (uint64_t)s, attn_value, &r, TOL);
        attn_release(&r);
    }
    bench_close(&b);
}

/* The keys in two parts, merged by lse, and the backward of both parts accumulated, equal one pass:
 * the ring. */
static void test_attention_in_parts(void **state)
{
    (void)state;
    static const struct attn_case c = {"ring", 4, 2, 8, 3, {130, 9, 5}, {140, 6, 2}, 1, 0};
    struct bench b = bench_open(DTYPE_F64);
    struct attn_run whole, part;
    attn_setup(&whole, &b, &c);
    attn_setup(&part, &b, &c);
    b.ops->attn_fwd(b.ops, b.stream, &whole.a);
    b.ops->attn_bwd(b.ops, b.stream, &whole.a);
    struct tensor o2 = f64(new_nan(part.s * part.a.o.cols), part.s, part.a.o.cols),
                  lse2 = f64(new_nan(part.s * 4), part.s, 4);
    /* the second segment has all its keys in the first part, the third one in each */
    int32_t start2[3], len1[3] = {50, 6, 1}, len2[3];
    for (int i = 0; i < 3; i++) {
        start2[i] = part.k_start[i] + len1[i];
        len2[i] = part.k_len[i] - len1[i];
    }
    part.a.k_all = part.a.host.k_all = whole.k_len;
    struct ops_attn first = part.a, second = part.a;
    first.k_len = first.host.k_len = len1;
    second.k_start = second.host.k_start = start2;
    second.k_len = second.host.k_len = len2;
    second.o = o2;
    second.lse = lse2;
    b.ops->attn_fwd(b.ops, b.stream, &first);
    b.ops->attn_fwd(b.ops, b.stream, &second);
    b.ops->lse_merge(b.ops, b.stream, &(struct ops_lse_merge){first.o, first.lse, o2, lse2, 4, 8});
    second.o = first.o;
    second.lse = first.lse;
    b.ops->attn_bwd(b.ops, b.stream, &first);
    second.accumulate_dq = true;
    b.ops->attn_bwd(b.ops, b.stream, &second);
    const struct tensor *pairs[][2] = {{&whole.a.o, &part.a.o},
                                       {&whole.a.lse, &part.a.lse},
                                       {&whole.a.dq, &part.a.dq},
                                       {&whole.a.dk, &part.a.dk},
                                       {&whole.a.dv, &part.a.dv}};
    for (int p = 0; p < LEN(pairs); p++)
        for (int64_t i = 0; i < pairs[p][0]->rows * pairs[p][0]->cols; i++)
            assert_true(fabs(((double *)pairs[p][0]->ptr)[i] - ((double *)pairs[p][1]->ptr)[i]) <=
                        1e-13);
    /* dk and dv accumulate when asked */
    part.a.accumulate_dkv = true;
    b.ops->attn_bwd(b.ops, b.stream, &part.a);
    for (int64_t i = 0; i < part.keys * part.a.dk.cols; i++)
        assert_true(fabs(((double *)part.a.dk.ptr)[i] - 2 * ((double *)whole.a.dk.ptr)[i]) <=
                    1e-13);
    free(o2.ptr), free(lse2.ptr);
    attn_release(&whole);
    attn_release(&part);
    bench_close(&b);
}

/* A value that is not a number reaches the outputs of its queries, and of no other sample's. */
static void test_nan_is_not_lost(void **state)
{
    (void)state;
    static const struct attn_case c = {"nan", 2, 2, 8, 2, {5, 4}, {5, 4}, 1, 0};
    struct bench b = bench_open(DTYPE_F64);
    struct attn_run r;
    attn_setup(&r, &b, &c);
    ((double *)r.a.k.ptr)[3 * r.a.k.ld] = NAN; /* key 3, head 0 */
    attn_value(&r);
    for (int64_t q = 0; q < r.s; q++)
        for (int64_t j = 0; j < r.a.o.cols; j++)
            assert_true(isnan(((double *)r.a.o.ptr)[q * r.a.o.ld + j]) == (q < 5 && j < 8));
    attn_release(&r);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention), cmocka_unit_test(test_attention_in_parts),
        cmocka_unit_test(test_nan_is_not_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
