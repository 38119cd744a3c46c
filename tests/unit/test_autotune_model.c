/* Memory and cost: what may only grow or shrink, terms that add up, a fit that recovers. */
#include "test_profiles.h"

#include <math.h>

#include "autotune/cost.h"
#include "autotune/memory.h"
#include "autotune/probe.h"
#include "profiles/shard.h"
#include "profiles/space.h"

static const struct cost_rates rates = {
    .gemm = {5e10, 1e11}, .attention = {3e10, 1e11}, .attention_backward = 2, .copy_bytes = 1e10,
    .input_s = 1e-9, .update_bytes = 1e10, .norm_bytes = 1e10, .rank_loss = 0.05,
    .comm = {1e-6, 1e9}, .comm_shared = {1e-6, 1e9}, .overhead_s = 1e-3};

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

static struct cost_spec spec_of(const struct model *m, int64_t cores)
{
    struct cost_spec spec = {.model = m, .seq = {1, 8, 8}, .gbs = 8, .dtype = DTYPE_F32,
                             .cores = cores};
    struct err err;
    assert_ok(cost_spec_open(&spec, &err), &err);
    return spec;
}

/* Over every layout of a space: all terms are >= 0, and a better rate never costs time. */
static void cost_properties(void **state)
{
    struct model m = tiny();
    struct space_spec in = {&m, {1, 8, 8}, 8, (const int64_t[]){1, 2, 4}, 3};
    struct cost_spec spec = spec_of(&m, 2);
    struct space s = {0};
    struct err err;
    (void)state;
    assert_ok(space_build(&in, &s, &err), &err);
    assert_true(s.n > 100);
    for (size_t i = 0; i < s.n; i++) {
        double terms[COST_TERMS], better[COST_TERMS], sum = 0, less = 0, scaled[COST_TERMS];
        struct cost_fit fit;
        struct cost_rates wide = rates;
        wide.copy_bytes *= 2;
        wide.comm.bytes_s *= 2, wide.comm_shared.bytes_s *= 2;
        assert_ok(cost_terms(&spec, &rates, &s.items[i], terms, &err), &err);
        assert_ok(cost_terms(&spec, &wide, &s.items[i], better, &err), &err);
        cost_fit_init(&fit);
        for (int t = 0; t < COST_TERMS; t++) {
            assert_true(terms[t] >= 0);
            sum += terms[t], less += better[t];
        }
        assert_true(less <= sum);
        assert_true(fabs(cost_step(&fit, terms, scaled, NULL) / sum - 1) < 1e-12);
    }
    space_release(&s);
    struct cost_rates broken = rates;
    struct layout plain = layout_of("");
    double terms[COST_TERMS];
    broken.gemm.flops_s = NAN;
    assert_fails(cost_terms(&spec, &broken, &plain, terms, &err), ERR_INPUT, &err,
                 "gemm_flops is nan");
}

static void terms_of(const struct cost_spec *spec, const struct cost_rates *r, const char *layout,
                     double terms[COST_TERMS])
{
    struct layout l = layout_of(layout);
    struct err err;
    assert_ok(cost_terms(spec, r, &l, terms, &err), &err);
}

/* Two replicas send each gradient once, as sum and as summed: 2 (n - 1) / n of P elements of four
 * bytes, each unit in 2 (n - 1) messages. AdamW moves 28 bytes a parameter, and norms read it before
 * and after the sum. */
static void state_by_hand(void **state)
{
    struct model m = tiny();
    struct cost_spec spec = spec_of(&m, 2);
    struct param_list params;
    struct err err;
    double t[COST_TERMS];
    (void)state;
    assert_ok(params_build(&m, &params, &err), &err);
    double P = (double)params.total, units = (double)m.layers + 3, plain;
    terms_of(&spec, &rates, "dp=2", t);
    assert_close(t[COST_DP_REDUCE], P * 4 / 1e9 + 2 * units * 1e-6, 1e-9, "reduce");
    assert_close(t[COST_OPTIMIZER], P * (28 + 8) / 1e10, 1e-9, "optimizer");
    assert_true(t[COST_GATHER] == 0);
    plain = t[COST_ELEMENTWISE];
    terms_of(&spec, &rates, "dp=2,zero=1", t);
    assert_close(t[COST_OPTIMIZER], P * (14 + 6) / 1e10, 1e-9, "half of it");
    /* gradients are scattered in each of four micro-batches: half of P goes */
    terms_of(&spec, &rates, "dp=2,zero=2", t);
    assert_close(t[COST_GATHER], 4 * (P * 2 / 1e9 + units * 1e-6), 1e-9, "scatter");
    /* weights are gathered before forward, but for the conditioning's, with which the backward
     * before has ended, and before backward, but for the last layer's and the head's */
    double scattered = t[COST_GATHER], cond = 0, head = 0, layer = 0;
    for (int64_t i = 0; i < params.n; i++) {
        const struct param *p = &params.items[i];
        *(p->layer == PARAM_LAYER_COND   ? &cond
          : p->layer == PARAM_LAYER_HEAD ? &head
                                         : &layer) += (double)p->count;
    }
    layer -= (double)m.hidden * (double)(model_patch_cells(&m) * m.latent_channels);
    layer /= (double)m.layers;
    terms_of(&spec, &rates, "dp=2,zero=3", t);
    double first = (double)m.hidden * (double)(model_patch_cells(&m) * m.latent_channels),
           numbers = cond + 4 * (first + (double)m.layers * layer + head) +
                     4 * ((double)(m.layers - 1) * layer + cond);
    assert_close(t[COST_GATHER] - scattered,
                 numbers * 2 / 1e9 + (4 * (2 * (double)m.layers + 2) + 1) * 1e-6, 1e-9, "gather");
    assert_close(t[COST_ELEMENTWISE] - plain, 4 * P * 4 * 2.5 / 1e10, 1e-9, "pieces");
    params_release(&params);
}

/* Four ranks on two cores take twice as long, and those that wait in a pipeline leave their cores
 * to others. */
static void cores_are_shared(void **state)
{
    struct model m = tiny();
    struct cost_spec two = spec_of(&m, 2), four = spec_of(&m, 4);
    struct cost_rates alone = rates;
    double a[COST_TERMS], b[COST_TERMS], compute = 0;
    (void)state;
    alone.rank_loss = 0;
    terms_of(&two, &alone, "dp=4", a);
    terms_of(&four, &alone, "dp=4", b);
    for (int t = COST_GEMM; t <= COST_INPUTS; t++)
        compute += a[t];
    assert_true(b[COST_CONTENTION] == 0);
    assert_close(a[COST_CONTENTION], compute + a[COST_OPTIMIZER], 1e-9, "twice as long");
    /* one micro-batch goes through four stages one after the other: a core is enough */
    two.gbs = 1;
    terms_of(&two, &alone, "pp=4", a);
    double update = fmax(0, a[COST_CONTENTION]);
    assert_true(a[COST_BUBBLE] > 2.5 * (a[COST_GEMM] + a[COST_ATTENTION]));
    assert_true(update <= a[COST_OPTIMIZER]);
}

/* Half a link's bandwidth moves the terms of messages alone, and that of ranks which share cores only
 * theirs. */
static void links_move_their_terms(void **state)
{
    struct model m = tiny();
    struct cost_spec spec = spec_of(&m, 2);
    struct cost_rates slow = rates;
    double a[COST_TERMS], b[COST_TERMS];
    (void)state;
    slow.comm.bytes_s /= 2;
    terms_of(&spec, &rates, "tp=3,dp=2,zero=2", a);
    terms_of(&spec, &slow, "tp=3,dp=2,zero=2", b);
    for (int t = 0; t < COST_TERMS; t++)
        assert_true(a[t] == b[t]); /* six ranks on two cores */
    spec.cores = 6;
    terms_of(&spec, &rates, "tp=3,dp=2,zero=2", a);
    terms_of(&spec, &slow, "tp=3,dp=2,zero=2", b);
    for (int t = 0; t < COST_TERMS; t++)
        assert_true(t == COST_TP || t == COST_GATHER || t == COST_DP_REDUCE ? b[t] > a[t]
                                                                          : b[t] == a[t]);
}

/* What the busiest stage does not do in its own micro-batches is the bubble: of two equal halves,
 * with as much beside the layers, as long as the other's micro-batch. */
static void bubble_by_hand(void **state)
{
    struct model m = tiny();
    struct cost_spec spec = spec_of(&m, 8);
    struct cost_rates r = rates;
    double one[COST_TERMS], many[COST_TERMS];
    (void)state;
    r.overhead_s = 0;
    spec.gbs = 2;
    terms_of(&spec, &r, "pp=2", one);
    spec.gbs = 16;
    terms_of(&spec, &r, "pp=2", many);
    assert_true(one[COST_BUBBLE] > 0);
    assert_close(many[COST_BUBBLE], one[COST_BUBBLE], 1e-9, "it does not grow with the batch");
    assert_close(many[COST_GEMM], 8 * one[COST_GEMM], 1e-9, "work does");
    terms_of(&spec, &r, "pp=2,vpp=2", one);
    assert_true(one[COST_BUBBLE] < 0.7 * many[COST_BUBBLE]);
    assert_true(one[COST_PP] > 1.4 * many[COST_PP]);
}

/* Rates that a probe's seconds were made with are found again, and a share that no such rates have
 * is kept. */
static void probe_is_fitted(void **state)
{
    struct model m = tiny();
    struct cost_spec spec = spec_of(&m, 2);
    struct probe probe = {.ranks = 1, .fma_flops = 1e11, .n_views = 3, .update_elements = 1e6,
                          .update_s = 28e6 / 1e10, .norm_s = 4e6 / 2e10};
    struct device device;
    struct cost_rates found, made = rates;
    (void)state;
    made.attention.bytes_s = 1e20;
    for (int i = 0; i < 3; i++) {
        struct probe_view *v = &probe.view[i];
        struct model one = m;
        struct cost_spec layer = spec;
        struct layout l = layout_of("");
        double t[COST_TERMS];
        struct err err;
        one.layers = 1, l.mbs = 1 << i;
        layer.model = &one, layer.gbs = l.mbs;
        assert_ok(cost_terms(&layer, &made, &l, t, &err), &err);
        *v = (struct probe_view){spec.seq, l.mbs, t[COST_GEMM],
                                 {t[COST_ATTENTION] / 3, t[COST_ATTENTION] * 2 / 3},
                                 t[COST_ELEMENTWISE] * (i == 2 ? 1.5 : 1), t[COST_INPUTS]};
    }
    probe_rates(&probe, &probe, &probe, &spec, &device, &found);
    assert_close(found.gemm.flops_s, 5e10, 1e-6, "gemm");
    assert_close(found.gemm.bytes_s, 1e11, 1e-6, "gemm's bytes");
    assert_close(found.attention.flops_s, 3e10, 1e-6, "attention");
    assert_close(found.attention_backward, 2, 1e-9, "backward");
    assert_close(found.input_s, 1e-9, 1e-9, "inputs");
    assert_close(found.update_bytes, 1e10, 1e-9, "update");
    assert_close(found.norm_bytes, 2e10, 1e-9, "norm");
    assert_close(found.copy_bytes, 1e10 / 1.5, 1e-9, "elementwise of the largest");
    assert_close(found.curve[0].elementwise, 1 / 1.5, 1e-9, "which takes longer than the others");
    assert_close(found.curve[1].gemm, 1, 1e-6, "share");
    assert_true(found.curve[2].tokens == 256 && found.n_curve == 3);
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
        cmocka_unit_test(state_by_hand), cmocka_unit_test(cores_are_shared),
        cmocka_unit_test(links_move_their_terms), cmocka_unit_test(bubble_by_hand), cmocka_unit_test(probe_is_fitted),
        cmocka_unit_test(fit_learns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
