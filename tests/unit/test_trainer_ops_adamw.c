/* The optimizer's step against its definition in f64: AdamW with an average of the weights, moments
 * in bf16, and the random rounding that they need. */
#include "tests/lib/trainer_fixture.h"

#include "base/bf16.h"

/* Between two neighbours, on average where it was; numbers of the format stay. */
static void test_round_random(void **state)
{
    (void)state;
    static const float between[] = {1.001f, -1.001f, 3.14159f, 1e-30f, -7e20f};
    for (int k = 0; k < LEN(between); k++) {
        double sum = 0, low = INFINITY, high = -INFINITY;
        for (uint32_t r = 0; r < 1 << 16; r++) { /* every draw there is, once */
            double y = (double)bf16_value(bf16_round_random(between[k], (uint16_t)r));
            sum += y / (1 << 16), low = fmin(low, y), high = fmax(high, y);
        }
        assert_true(low < (double)between[k] && (double)between[k] < high &&
                    high - low <= fabs(low + high) / 2 / 64);
        assert_true(fabs(sum - (double)between[k]) <= 1e-12 * fabs(sum));
    }
    static const float exact[] = {0, -0.0f, 1, -2.5f, INFINITY, -INFINITY};
    for (int k = 0; k < LEN(exact); k++)
        for (uint32_t r = 0; r < 1 << 16; r += 257)
            assert_true(bf16_value(bf16_round_random(exact[k], (uint16_t)r)) == exact[k]);
    assert_true(isnan(bf16_value(bf16_round_random(NAN, 0xffff))));
}

/* Moments in bf16: the weights move as by whole ones to the format's precision, in one call as in
 * parts, and a gradient too small for a step of the format still moves its average. */
static void test_adamw_bf16(void **state)
{
    (void)state;
    enum { N = 4096, T = 200, CUT = 1001 };
    struct bench b = bench_open(DTYPE_F64);
    static double w[N], parts[N], g[N];
    static uint16_t m[N], v[N], pm[N], pv[N];
    struct ops_step step = {.lr = 1e-3, .grad_scale = 1};
    struct ops_adamw_span whole = {.n = N, .first = 6, .lr_scale = 1}, cut[N / CUT + 1];
    for (int i = 0, first = 0; i < LEN(cut); i++, first += CUT)
        cut[i] = (struct ops_adamw_span){
            .grad = first, .master = first, .state = first, .first = 6 + (uint64_t)first,
            .n = first + CUT < N ? CUT : N - first, .lr_scale = 1};
    struct ops_adamw a = {
        .step = &step, .spans = &whole, .host_spans = &whole, .n = 1, .grad = f64(g, 1, N),
        .master = f64(w, 1, N), .m = tensor_of(m, DTYPE_BF16, 1, N),
        .v = tensor_of(v, DTYPE_BF16, 1, N),
        .beta1 = 0.999, .beta2 = 0.999, .eps = 1e-8, .seed = 7};
    struct ops_adamw b_cut = a;
    b_cut.spans = b_cut.host_spans = cut, b_cut.n = LEN(cut);
    b_cut.master = f64(parts, 1, N);
    b_cut.m.ptr = pm, b_cut.v.ptr = pv;
    memset(w, 0, sizeof w), memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    memset(parts, 0, sizeof parts), memset(pm, 0, sizeof pm), memset(pv, 0, sizeof pv);
    for (int i = 0; i < N; i++)
        g[i] = 1;
    for (int t = 1; t <= T; t++) {
        step.bias1 = step.bias2 = 1 - pow(0.999, t);
        step.update = (uint64_t)t;
        b.ops->adamw(b.ops, b.stream, &a);
        b.ops->adamw(b.ops, b.stream, &b_cut);
    }
    assert_memory_equal(m, pm, sizeof m);
    assert_memory_equal(v, pv, sizeof v);
    assert_memory_equal(w, parts, sizeof w);
    double mean_m = 0, mean_v = 0, want = 1 - pow(0.999, T);
    for (int i = 0; i < N; i++)
        mean_m += (double)bf16_value(m[i]) / N, mean_v += (double)bf16_value(v[i]) / N;
    assert_true(m[0] != m[1] || m[1] != m[2] || m[2] != m[3]);
    /* one rounding errs by up to 2^-8 of the number, T of them by sqrt(T) of that, the mean of N by
     * sqrt(N) less: 6 of these is 5e-3 */
    assert_true(fabs(mean_m / want - 1) < 5e-3 && fabs(mean_v / want - 1) < 5e-3);
    bench_close(&b);
}

/* A table of tensors in buffers of several orders, in one launch: as each element alone, with its
 * tensor's constants and its number in the model; what is between the spans stays. */
static void test_adamw_table(void **state)
{
    (void)state;
    enum { N = 400, ROW = 7, COLS = 20, COL = 3 };
    /* the second one is columns of a matrix, from the middle of a row on */
    static const struct ops_adamw_span table[] = {
        {.grad = 200, .master = 5, .state = 100, .weight = 40, .n = 33, .counted = 33, .first = 9,
         .weight_decay = 0.5, .lr_scale = 1},
        {.grad = 30, .master = 90, .state = 0, .weight = 100, .n = 60, .counted = 41, .first = 70,
         .col = COL, .row = ROW, .skip = COLS - ROW, .lr_scale = 3}};
    struct bench b = bench_open(DTYPE_F64);
    double *w[2] = {new_normal(N, 1), new_normal(N, 1)}, *g = new_normal(N, 2), out[2][N] = {{0}};
    uint16_t m[2][N] = {{0}}, v[2][N] = {{0}};
    struct ops_change change[2] = {{0}};
    struct ops_step step = {.lr = 0.1, .bias1 = 0.1, .bias2 = 0.1, .grad_scale = 1, .update = 4};
    struct ops_adamw a[2];
    for (int k = 0; k < 2; k++)
        a[k] = (struct ops_adamw){
            .step = &step, .spans = table, .host_spans = table, .n = LEN(table),
            .grad = f64(g, 1, N), .master = f64(w[k], 1, N), .weight = f64(out[k], 1, N),
            .m = tensor_of(m[k], DTYPE_BF16, 1, N), .v = tensor_of(v[k], DTYPE_BF16, 1, N),
            .seed = 5, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .change = &change[k]};
    b.ops->adamw(b.ops, b.stream, &a[0]);
    for (int k = 0; k < LEN(table); k++)
        for (int j = 0; j < table[k].n; j++) {
            struct ops_adamw_span s = table[k];
            s.grad += j, s.master += j, s.state += j, s.weight += j;
            s.first += (uint64_t)(k ? j + (COL + j) / ROW * (COLS - ROW) : j);
            s.n = 1, s.counted = j < table[k].counted, s.col = s.row = s.skip = 0;
            a[1].spans = a[1].host_spans = &s, a[1].n = 1;
            b.ops->adamw(b.ops, b.stream, &a[1]);
        }
    assert_memory_equal(w[0], w[1], N * sizeof *g), assert_memory_equal(out[0], out[1], sizeof *out);
    assert_memory_equal(m[0], m[1], sizeof *m), assert_memory_equal(v[0], v[1], sizeof *v);
    assert_true(fabs(change[0].weight_sumsq / change[1].weight_sumsq - 1) < 1e-13 &&
                fabs(change[0].update_sumsq / change[1].update_sumsq - 1) < 1e-13);
    assert_true(out[0][39] == 0 && out[0][40] == w[0][5] && m[0][99] == 0 && m[0][100] != 0);
    free(w[0]), free(w[1]), free(g);
    bench_close(&b);
}

static void test_adamw(void **state)
{
    (void)state;
    /* more than the pieces that are worked on, the last one counted in part */
    enum { N = 9001, COUNTED = 8990 };
    struct bench b = bench_open(DTYPE_F64);
    double *w = new_normal(N, 1), *want = new_normal(N, 1), *ema = new_normal(N, 1),
           *want_ema = new_normal(N, 1);
    static double m[N], v[N], wm[N], wv[N], before[N], out[N];
    struct ops_change change = {0}, counted = {0};
    struct ops_step step = {0};
    struct ops_adamw_span span = {
        .n = N, .counted = COUNTED, .weight_decay = 0.1, .lr_scale = 2};
    struct ops_adamw a = {.step = &step, .spans = &span, .host_spans = &span, .n = 1,
                          .master = f64(w, 1, N), .m = f64(m, 1, N),
                          .v = f64(v, 1, N), .ema = f64(ema, 1, N), .weight = f64(out, 1, N),
                          .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                          .ema_decay = 0.95, .change = &change};
    for (int t = 1; t <= 3; t++) {
        double *g = new_normal(N, 10 + (uint64_t)t);
        memcpy(before, w, sizeof before);
        a.grad = f64(g, 1, N);
        step = (struct ops_step){
            .lr = 1e-2 / t, .bias1 = 1 - pow(0.9, t), .bias2 = 1 - pow(0.99, t), .grad_scale = 0.5};
        b.ops->adamw(b.ops, b.stream, &a);
        for (int i = 0; i < N; i++) {
            double grad = 0.5 * g[i], lr = 2 * 1e-2 / t;
            wm[i] = 0.9 * wm[i] + 0.1 * grad;
            wv[i] = 0.99 * wv[i] + 0.01 * grad * grad;
            want[i] -= lr * (wm[i] / (1 - pow(0.9, t)) / (sqrt(wv[i] / (1 - pow(0.99, t))) + 1e-8) +
                             0.1 * want[i]);
            want_ema[i] = 0.95 * want_ema[i] + 0.05 * want[i];
            assert_true(fabs(w[i] - want[i]) < 1e-13 && fabs(ema[i] - want_ema[i]) < 1e-13 &&
                        out[i] == w[i]);
            counted.weight_sumsq += i < COUNTED ? before[i] * before[i] : 0;
            counted.update_sumsq += i < COUNTED ? (w[i] - before[i]) * (w[i] - before[i]) : 0;
        }
        free(g);
    }
    assert_true(fabs(change.weight_sumsq / counted.weight_sumsq - 1) < 1e-13 &&
                fabs(change.update_sumsq / counted.update_sumsq - 1) < 1e-13);
    step.skip = 1;
    counted = change;
    double *g = new_nan(N);
    memcpy(before, w, sizeof before);
    a.grad = f64(g, 1, N);
    b.ops->adamw(b.ops, b.stream, &a);
    assert_memory_equal(w, before, sizeof before);
    assert_true(m[0] == m[0] && v[0] == v[0] && ema[0] == ema[0]);
    assert_memory_equal(&change, &counted, sizeof change);
    free(g), free(w), free(want), free(ema), free(want_ema);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_table),
        cmocka_unit_test(test_adamw_bf16),
        cmocka_unit_test(test_round_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
