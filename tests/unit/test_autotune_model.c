/* Memory and cost: what may only grow or shrink, terms that add up, a fit that recovers. */
#include "test_profiles.h"

#include <math.h>

#include "autotune/cost.h"
#include "autotune/memory.h"
#include "profiles/shard.h"
#include "profiles/space.h"

static const struct cost_rates rates = {5e10, 3e10, 1e10, 0.05, 1e-6, 1e9, 1e-6, 1e-3};

static struct model tiny(void)
{
    struct model m;
    struct err err;
    assert_ok(model_load("dit-tiny", &m, &err), &err);
    return m;
}

static struct layout layout_of(const char *text)
{
    struct layout l;
    struct err err;
    assert_ok(layout_parse(text, &l, &err), &err);
    return l;
}

/* less[i] needs fewer bytes than more[i]. */
static void memory_orders(void **state)
{
    static const struct {
        const char *less, *more;
    } rows[] = {
        {"mbs=1", "mbs=2"},
        {"recompute=full,mbs=2", "mbs=2"},
        {"dp=2,zero=1", "dp=2,zero=0"},
        {"dp=4,zero=1", "dp=2,zero=1"},
        {"dp=1", "dp=2"},
    };
    struct model m = tiny();
    struct held_spec spec = {&m, {1, 8, 8}, 8, DTYPE_F32, true};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct memory_bytes a, b;
        struct err err;
        struct layout less = layout_of(rows[i].less), more = layout_of(rows[i].more);
        assert_ok(memory_predict(&spec, &less, &a, &err), &err);
        assert_ok(memory_predict(&spec, &more, &b, &err), &err);
        assert_true(a.total < b.total);
        double sum = a.weights + a.gradients + a.optimizer + a.ema + a.activations + a.work +
                     a.comm + a.process;
        assert_true(fabs(sum / a.total - 1) < 1e-12);
        struct memory_learned none = {0};
        assert_true(memory_fits(&none, a.total, 1e9) >= memory_fits(&none, b.total, 1e9));
        /* more memory never fits less */
        assert_true(memory_fits(&none, a.total, 2e8) >= memory_fits(&none, a.total, 1e8));
    }
}

/* Two whole units are in use at a time on a rank that keeps pieces. Apart from these, zero 2 and 3
 * need the working memory that zero 1 needs. */
static void units_in_use_are_planned(void **state)
{
    struct model m = tiny();
    struct held_spec spec = {&m, {1, 8, 8}, 8, DTYPE_BF16, false};
    struct layout l[] = {layout_of("dp=2,zero=1"), layout_of("dp=2,zero=2"),
                         layout_of("dp=2,zero=3")};
    struct memory_bytes b[3];
    struct param_list params;
    struct shards sh;
    struct err err;
    (void)state;
    assert_ok(params_build(&m, &params, &err), &err);
    assert_ok(shards_build(&m, &params, &l[2], 0, &sh, &err), &err);
    for (int i = 0; i < 3; i++)
        assert_ok(memory_predict(&spec, &l[i], &b[i], &err), &err);
    double weights = 2.0 * (double)shards_most_elements(&sh) * 2,
           grads = 2.0 * (double)shards_most_trained(&sh) * 4;
    assert_true(weights > 1e6 && fabs(b[1].work - b[0].work - grads) < 2 * BUFFER_ALIGN_BYTES);
    assert_true(fabs(b[2].work - b[1].work - weights) < 2 * BUFFER_ALIGN_BYTES);
    shards_release(&sh);
    params_release(&params);
}

/* The first stage of two holds two micro-batches, which a batch of one sample does not have. The
 * fullest stage counts. */
static void pipelines_hold_more(void **state)
{
    struct model m = tiny();
    struct held_spec spec = {&m, {1, 8, 8}, 8, DTYPE_F32, false};
    struct layout l = layout_of("pp=2");
    struct memory_bytes many, one;
    struct buffer_list stages[2];
    struct param_list params;
    struct err err;
    (void)state;
    assert_ok(params_build(&m, &params, &err), &err);
    assert_ok(memory_predict(&spec, &l, &many, &err), &err);
    for (int64_t i = 0; i < 2; i++)
        assert_ok(held_list(&spec, &l, &params, i, &stages[i], &err), &err);
    double first = (double)stages[0].total, last = (double)stages[1].total;
    assert_true(first != last && many.total - many.process == fmax(first, last));
    spec.gbs = 1;
    assert_ok(memory_predict(&spec, &l, &one, &err), &err);
    /* a micro-batch of two layers: input and modulation, qkv, attention, cross-attention, MLP and
     * residuals of 64 tokens are 16 vectors a token and layer at least */
    assert_true(many.activations - one.activations > 2 * 16 * 64 * (double)m.hidden * 4);
    params_release(&params);
}

/* Over every layout of a space: bound <= sum of terms, all terms >= 0, and a better rate never
 * costs time. */
static void cost_properties(void **state)
{
    struct model m = tiny();
    struct space_spec in = {&m, {1, 8, 8},   8,          (const int64_t[]){1, 2, 4},
                            3,  cost_limits, COST_LIMITS};
    struct cost_spec spec = {&m, {1, 8, 8}, 8, DTYPE_F32, 2, true};
    struct space s = {0};
    struct err err;
    (void)state;
    assert_ok(space_build(&in, &s, &err), &err);
    for (size_t i = 0; i < s.n; i++) {
        double terms[COST_TERMS], better[COST_TERMS], bound, sum = 0, scaled[COST_TERMS];
        struct cost_fit fit;
        struct cost_rates wide = rates;
        wide.copy_bytes *= 2;
        wide.comm_bytes *= 2;
        assert_ok(cost_terms(&spec, &rates, &s.items[i], terms, &err), &err);
        assert_ok(cost_terms(&spec, &wide, &s.items[i], better, &err), &err);
        assert_ok(cost_bound(&spec, &rates, &s.items[i], &bound, &err), &err);
        cost_fit_init(&fit);
        for (int t = 0; t < COST_TERMS; t++) {
            assert_true(terms[t] >= 0 && better[t] <= terms[t]);
            sum += terms[t];
        }
        assert_true(bound <= sum);
        assert_true(fabs(cost_step(&fit, terms, scaled, NULL) / sum - 1) < 1e-12);
    }
    space_release(&s);
    struct layout tp = layout_of("tp=2");
    struct cost_rates broken = rates;
    double terms[COST_TERMS];
    assert_fails(cost_terms(&spec, &rates, &tp, terms, &err), ERR_INPUT, &err, "tp 2");
    broken.gemm_flops = NAN;
    tp = layout_of("");
    /* a wide residual stream: two bytes more in six passes of a sub-block, of which there are
     * three, and of nothing else */
    double narrow[COST_TERMS], more = 6.0 * 2 * 3 *
                                      (double)(layout_replica_samples(&tp, spec.gbs, 0) *
                                               seq_tokens(spec.seq) * m.layers * m.hidden);
    spec.dtype = DTYPE_BF16;
    assert_ok(cost_terms(&spec, &rates, &tp, narrow, &err), &err);
    spec.residual_wide = true;
    assert_ok(cost_terms(&spec, &rates, &tp, terms, &err), &err);
    for (int t = 0; t < COST_TERMS; t++)
        assert_true(t == COST_ELEMENTWISE
                        ? fabs((terms[t] - narrow[t]) * rates.copy_bytes / more - 1) < 1e-9
                        : t == COST_CONTENTION || terms[t] == narrow[t]);
    assert_fails(cost_terms(&spec, &broken, &tp, terms, &err), ERR_INPUT, &err,
                 "gemm_flops is nan");
}

/* A machine three times slower than the priors say is learnt from one measurement, and the interval
 * narrows. */
static void fit_learns(void **state)
{
    struct cost_fit fit;
    double terms[COST_TERMS] = {1, 0.5, 0.3, 0.1, 0, 0.1, 0.1, 0.1, 0.01, 0.01}, before, after;
    (void)state;
    cost_fit_init(&fit);
    double sum = cost_step(&fit, terms, NULL, &before);
    cost_fit_add(&fit, terms, 3 * sum);
    double learnt = cost_step(&fit, terms, NULL, &after);
    assert_true(fabs(learnt / (3 * sum) - 1) < 0.05);
    assert_true(after < before / 3);
    cost_fit_add(&fit, terms, NAN);
    cost_fit_add(&fit, terms, 0);
    assert_int_equal(fit.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_orders), cmocka_unit_test(units_in_use_are_planned),
        cmocka_unit_test(pipelines_hold_more), cmocka_unit_test(cost_properties),
        cmocka_unit_test(fit_learns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
