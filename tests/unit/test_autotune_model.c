/* Memory and cost: what may only grow or shrink, terms that add up, a fit that recovers. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/fit.h"
#include "autotune/memory.h"
#include "autotune/probe.h"
#include "profiles/shard.h"
#include "profiles/space.h"
#include "tests/lib/test_host.h"

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
    struct model m = host_model();
    struct held_spec spec = {&m, {1, 8, 8}, 8, DTYPE_F32, true};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct memory_bytes a, b;
        struct err err;
        struct layout less = host_layout(rows[i].less), more = host_layout(rows[i].more);
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
    struct model m = host_model();
    struct held_spec spec = {&m, {1, 8, 8}, 8, DTYPE_BF16, false};
    struct layout l[] = {host_layout("dp=2,zero=1"), host_layout("dp=2,zero=2"),
                         host_layout("dp=2,zero=3")};
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
    struct model m = host_model();
    struct held_spec spec = {&m, {1, 8, 8}, 8, DTYPE_F32, false};
    struct layout l = host_layout("pp=2");
    struct memory_bytes many, one;
    struct buffer_list stages[2];
    struct param_list params;
    struct err err;
    (void)state;
    assert_ok(params_build(&m, &params, &err), &err);
    assert_ok(memory_predict(&spec, &l, &many, &err), &err);
    for (int64_t i = 0; i < 2; i++) {
        struct buffer_state kept;
        assert_ok(held_state(&spec, &l, &params, i, &kept, &err), &err);
        assert_ok(held_list(&spec, &l, &kept, i, &stages[i], &err), &err);
    }
    double first = (double)stages[0].total, last = (double)stages[1].total;
    assert_true(first != last && many.total - many.process == fmax(first, last));
    spec.gbs = 1;
    assert_ok(memory_predict(&spec, &l, &one, &err), &err);
    /* a micro-batch of two layers: input and modulation, qkv, attention, cross-attention, MLP and
     * residuals of 64 tokens are 16 vectors a token and layer at least */
    assert_true(many.activations - one.activations > 2 * 16 * 64 * (double)m.hidden * 4);
    params_release(&params);
}

/* Over every layout of a space: all terms are >= 0, and a better rate never costs time. */
static void host_properties(void **state)
{
    struct model m = host_model();
    struct space_spec in = {&m, {1, 8, 8}, 8, (const int64_t[]){1, 2, 4}, 3};
    struct host *h = host_of(&m);
    struct speed wide = host_rates;
    struct space s = {0};
    struct err err;
    (void)state;
    wide.copy_bytes *= 2;
    wide.link.bytes_s *= 2, wide.link_shared.bytes_s *= 2;
    assert_ok(space_build(&in, &s, &err), &err);
    assert_true(s.n > 100);
    for (size_t i = 0; i < s.n; i++) {
        double sum = 0, scaled[PRICE_TERMS];
        struct fit fit;
        struct price_bill bill;
        struct price_step step = host_step(h, &host_rates, 2, &s.items[i]), bound,
                          better = host_step(h, &wide, 2, &s.items[i]);
        price_step(&h->price, &s.items[i], &bound);
        assert_true(bound.seconds <= better.seconds * (1 + 1e-12));
        fit_init(&fit);
        price_bill(&h->machine[0], &m, &s.items[i], &step, &bill);
        for (int t = 0; t < PRICE_TERMS; t++) {
            assert_true(step.term[t] >= 0);
            sum += step.term[t];
        }
        assert_true(fabs(step.seconds / sum - 1) < 1e-12 && better.seconds <= sum);
        assert_true(fabs(fit_step(&fit, &bill, scaled, NULL) / sum - 1) < 1e-12);
    }
    space_release(&s);
    struct speed broken = host_rates;
    broken.gemm.flops_s = NAN;
    assert_fails(host_set(h, &broken, 2, &err), ERR_INPUT, &err, "gemm_flops is nan");
}

/* Two replicas send each gradient once, as sum and as summed: 2 (n - 1) / n of P elements of four
 * bytes, each unit in 2 (n - 1) messages. AdamW moves 28 bytes a parameter, and norms read a rank's half
 * before and after the sum. */
static void state_by_hand(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct param_list params;
    struct err err;
    double t[PRICE_TERMS];
    (void)state;
    assert_ok(params_build(&m, &params, &err), &err);
    double P = (double)params.total, units = (double)m.layers + 3, plain;
    host_terms(h, &host_rates, 2, "dp=2", t);
    assert_close(t[PRICE_REDUCE], P * 4 / 1e9 + 2 * units * 1e-6, 1e-9, "reduce");
    assert_close(t[PRICE_OPTIMIZER], P * (28 + 4) / 1e10, 1e-9, "optimizer");
    assert_true(t[PRICE_GATHER] == 0);
    plain = t[PRICE_ELEMENTWISE];
    host_terms(h, &host_rates, 2, "dp=2,zero=1", t);
    assert_close(t[PRICE_OPTIMIZER], P * (14 + 4) / 1e10, 1e-9, "half of it");
    /* gradients are scattered in each of four micro-batches: half of P goes */
    host_terms(h, &host_rates, 2, "dp=2,zero=2", t);
    assert_close(t[PRICE_REDUCE], 4 * (P * 2 / 1e9 + units * 1e-6), 1e-9, "scatter");
    assert_close(t[PRICE_GATHER], P * 2 / 1e9 + units * 1e-6, 1e-9, "the weights after the update");
    /* weights are gathered before forward, but for the conditioning's, with which the backward
     * before has ended, and before backward, but for the last layer's and the head's */
    double cond = 0, head = 0, layer = 0;
    for (int64_t i = 0; i < params.n; i++) {
        const struct param *p = &params.items[i];
        *(p->layer == PARAM_LAYER_COND   ? &cond
          : p->layer == PARAM_LAYER_HEAD ? &head
                                         : &layer) += (double)p->count;
    }
    layer -= (double)m.hidden * (double)(model_patch_cells(&m) * m.latent_channels);
    layer /= (double)m.layers;
    host_terms(h, &host_rates, 2, "dp=2,zero=3", t);
    double first = (double)m.hidden * (double)(model_patch_cells(&m) * m.latent_channels),
           numbers = cond + 4 * (first + (double)m.layers * layer + head) +
                     4 * ((double)(m.layers - 1) * layer + cond);
    assert_close(t[PRICE_GATHER],
                 numbers * 2 / 1e9 + (4 * (2 * (double)m.layers + 2) + 1) * 1e-6, 1e-9, "gather");
    /* the first of four micro-batches is stored, and the others are added */
    assert_close(t[PRICE_ELEMENTWISE] - plain, P * 4 * (4 * 2.5 - 0.5) / 1e10, 1e-9, "pieces");
    /* whole arrays go at the update's rate, not at the operations' */
    struct speed updates = host_rates;
    updates.update_bytes = 2e10, updates.clear_bytes = 5e9; /* and what is cleared at its own */
    host_terms(h, &updates, 2, "dp=2,zero=3", t);
    assert_close(t[PRICE_ELEMENTWISE] - plain, P * 4 * (4 / 5e9 + (4 * 1.5 - 0.5) / 2e10), 1e-9,
                 "faster");
    params_release(&params);
}

/* The copies of a ring go at the rate of copies: its forward packs keys and values; its backward
 * packs them, adds up their gradients and converts these. */
static void copies_by_hand(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct speed faster = host_rates;
    double a[PRICE_TERMS], b[PRICE_TERMS], kv = 32 * 2 * 192; /* of 64 tokens on two ranks */
    (void)state;
    faster.move_bytes = 2e10;
    host_terms(h, &host_rates, 2, "cp=2", a);
    host_terms(h, &faster, 2, "cp=2", b);
    double bytes = h->work.micro_batches * 4 * (2 * 4 + 2 * 4 + 3 * 4 + 2 * 4) * kv;
    assert_close(a[PRICE_ELEMENTWISE] - b[PRICE_ELEMENTWISE], bytes / 1e10 - bytes / 2e10, 1e-9,
                 "copies");
}

/* Returns the seconds of attention in bf16 or f32, where only FLOPs take time. */
static double attention_s(struct host *h, enum dtype act, const char *layout)
{
    struct speed by_flops = host_rates;
    double s[PRICE_TERMS];
    by_flops.attention.bytes_s = 1e20;
    h->spec.act = act;
    host_terms(h, &by_flops, 2, layout, s);
    return s[PRICE_ATTENTION];
}

/* In bf16 the backward of a ring makes five products, any other one seven; forwards are alike. A
 * backward takes twice as long as a forward here. Of a query's 80 keys 16 are of the text, whose
 * attention has no ring. */
static void ring_by_hand(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    double whole = attention_s(h, DTYPE_F32, "cp=1"), ring = attention_s(h, DTYPE_F32, "cp=2");
    (void)state;
    assert_close(attention_s(h, DTYPE_BF16, "cp=1"), whole, 1e-9, "without a ring");
    assert_close(attention_s(h, DTYPE_BF16, "cp=2"),
                 ring * (1 + 2 * (64 * 5. / 7 + 16) / 80) / 3, 1e-9, "a ring");
    assert_close(attention_s(h, DTYPE_BF16, "cp=2,cp_kind=a2a"),
                 attention_s(h, DTYPE_F32, "cp=2,cp_kind=a2a"), 1e-9, "exchanged heads");
}

/* One of the recomputed layers is still there when its backward begins; a stage that is not the
 * last repeats it. */
static void recomputed_by_hand(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    double full[PRICE_TERMS], plain[PRICE_TERMS], forward;
    (void)state;
    host_terms(h, &host_rates, 8, "mbs=2", plain);
    host_terms(h, &host_rates, 8, "mbs=2,recompute=full", full);
    const struct price_part *layer = &h->price.parts[WORK_LAYER_FULL];
    forward = layer->gemm + layer->attention + layer->elementwise;
    assert_true(plain[PRICE_RECOMPUTE] == 0 && plain[PRICE_GEMM] == full[PRICE_GEMM]);
    assert_close(full[PRICE_RECOMPUTE], 4 * (double)(m.layers - 1) * forward, 1e-9, "all but one");
    host_terms(h, &host_rates, 8, "mbs=2,recompute=selective", full);
    assert_true(full[PRICE_RECOMPUTE] > 0 &&
                full[PRICE_RECOMPUTE] < 4 * (double)(m.layers - 1) * forward);
}

/* With tp the gains of q and k norms and the like are partial sums, once a step; between stages the
 * conditioning's gradients. */
static void partial_sums_by_hand(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    double t[PRICE_TERMS];
    (void)state;
    host_terms(h, &host_rates, 8, "tp=2", t);
    assert_close(t[PRICE_REDUCE],
                 (double)m.layers * h->weights.whole[UNIT_LAYER] * 4 / 1e9 + 2e-6, 1e-9, "of tp");
    host_terms(h, &host_rates, 8, "pp=2", t);
    assert_close(t[PRICE_REDUCE], h->work.unit_elements[UNIT_EACH] * 4 / 1e9 + 2e-6, 1e-9,
                 "of stages");
}

/* Ranks that compute at the same time slow each other's operations, and their updates in another
 * way. A stage that waits slows nobody. */
static void others_slow_classes(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct layout l = host_layout("dp=2,recompute=full");
    struct speed lossy = host_rates;
    double class_s[PRICE_TERMS], busy = 0;
    (void)state;
    lossy.loss = (struct speed_loss){0.05, 0.1, 0.15, 0.3, 0.2};
    struct price_step step = host_step(h, &lossy, 2, &l);
    host_classes(h, &l, &step, class_s);
    assert_true(step.class_s[PRICE_GEMM] > step.term[PRICE_GEMM]); /* some is recomputed */
    assert_close(class_s[PRICE_GEMM], 1.05 * step.class_s[PRICE_GEMM], 1e-9, "products");
    assert_close(class_s[PRICE_INPUTS], 1.3 * step.term[PRICE_INPUTS], 1e-9, "inputs");
    assert_close(class_s[PRICE_OPTIMIZER], 1.2 * step.term[PRICE_OPTIMIZER], 1e-9, "update");
    assert_true(class_s[PRICE_REDUCE] == 0);
    l = host_layout("pp=2");
    step = host_step(h, &lossy, 2, &l);
    host_classes(h, &l, &step, class_s);
    for (int t = PRICE_GEMM; t <= PRICE_PP; t++)
        busy += step.term[t];
    assert_true(step.term[PRICE_BUBBLE] > 0.1 * busy);
    assert_close(class_s[PRICE_GEMM],
                 (1.05 - 0.05 * step.term[PRICE_BUBBLE] / busy) * step.class_s[PRICE_GEMM], 1e-9,
                 "stages");
}

/* Two stages are uneven: the first has a layer more, and the last has the head, where results are
 * compared. Each class is that of the stage where it is longest. */
static void classes_of_longest_stage(void **state)
{
    struct model m = host_model();
    m.layers = 3;
    struct host *h = host_of(&m);
    struct layout l = host_layout("pp=2");
    struct price_step step = host_step(h, &host_rates, 2, &l);
    const struct price_part *q = h->price.parts;
    double each[2], layer, n = h->work.micro_batches;
    (void)state;
    each[0] = q[WORK_EACH_FORWARD].inputs + q[WORK_EACH_BACKWARD].inputs;
    each[1] = each[0] + q[WORK_LAST_FORWARD].inputs + q[WORK_LAST_BACKWARD].inputs;
    layer = q[WORK_LAYER_FORWARD].attention + q[WORK_LAYER_BACKWARD].attention;
    assert_true(step.stage == 0 && each[1] > each[0]);
    assert_close(step.class_s[PRICE_ATTENTION], 2 * n * layer, 1e-9, "two layers on the first");
    assert_close(step.class_s[PRICE_INPUTS], n * each[1], 1e-9, "the loss on the last");
    assert_true(step.class_s[PRICE_INPUTS] > step.term[PRICE_INPUTS]);
}

/* Four ranks on two cores take twice as long, and those that wait in a pipeline leave their cores
 * to others. */
static void cores_are_shared(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct speed alone = host_rates;
    double a[PRICE_TERMS], b[PRICE_TERMS], compute = 0;
    (void)state;
    alone.rank_loss = 0;
    host_terms(h, &alone, 2, "dp=4", a);
    host_terms(h, &alone, 4, "dp=4", b);
    for (int t = PRICE_GEMM; t <= PRICE_INPUTS; t++)
        compute += a[t];
    assert_true(b[PRICE_CONTENTION] == 0);
    assert_close(a[PRICE_CONTENTION], compute + a[PRICE_OPTIMIZER], 1e-9, "twice as long");
    /* one micro-batch goes through four stages one after the other: a core is enough */
    h->spec.gbs = 1;
    host_terms(h, &alone, 2, "pp=4", a);
    double update = fmax(0, a[PRICE_CONTENTION]);
    assert_true(a[PRICE_BUBBLE] > 2.5 * (a[PRICE_GEMM] + a[PRICE_ATTENTION]));
    assert_true(update <= a[PRICE_OPTIMIZER]);
}

/* Half a link's bandwidth moves the terms of messages alone, and that of ranks which share cores only
 * theirs. */
static void links_move_their_terms(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct speed slow = host_rates;
    double a[PRICE_TERMS], b[PRICE_TERMS];
    (void)state;
    slow.link.bytes_s /= 2;
    host_terms(h, &host_rates, 2, "tp=3,dp=2,zero=2", a);
    host_terms(h, &slow, 2, "tp=3,dp=2,zero=2", b);
    for (int t = 0; t < PRICE_TERMS; t++)
        assert_true(a[t] == b[t]); /* six ranks on two cores */
    host_terms(h, &host_rates, 6, "tp=3,dp=2,zero=2", a);
    host_terms(h, &slow, 6, "tp=3,dp=2,zero=2", b);
    for (int t = 0; t < PRICE_TERMS; t++)
        assert_true(t == PRICE_TP || t == PRICE_GATHER || t == PRICE_REDUCE ? b[t] > a[t]
                                                                          : b[t] == a[t]);
}

/* What the busiest stage does not do in its own micro-batches is the bubble: of two equal halves,
 * with as much beside the layers, as long as the other's micro-batch. */
static void bubble_by_hand(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct speed r = host_rates;
    double one[PRICE_TERMS], many[PRICE_TERMS];
    (void)state;
    r.step_s = 0;
    h->spec.gbs = 2;
    host_terms(h, &r, 8, "pp=2", one);
    h->spec.gbs = 16;
    host_terms(h, &r, 8, "pp=2", many);
    assert_true(one[PRICE_BUBBLE] > 0);
    assert_close(many[PRICE_BUBBLE], one[PRICE_BUBBLE], 1e-9, "it does not grow with the batch");
    assert_close(many[PRICE_GEMM], 8 * one[PRICE_GEMM], 1e-9, "work does");
    host_terms(h, &r, 8, "pp=2,vpp=2", one);
    assert_true(one[PRICE_BUBBLE] < 0.7 * many[PRICE_BUBBLE]);
    assert_true(one[PRICE_PP] > 1.4 * many[PRICE_PP]);
}

/* Rates that a probe's seconds were made with are found again, and a share that no such rates have
 * is kept. */
static void probe_is_fitted(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct probe probe = {.ranks = 1, .fma_flops = 1e11, .n_views = 3, .update_elements = 1e6,
                          .update_s = 28e6 / 1e10, .norm_s = 4e6 / 2e10, .clear_s = 4e6 / 5e9,
                          .move_s = 8e6 / 1e10};
    struct device device;
    struct speed found, made = host_rates;
    (void)state;
    made.attention.bytes_s = 1e20;
    for (int i = 0; i < 3; i++) {
        struct probe_view *v = &probe.view[i];
        struct model one = m;
        struct layout l = host_layout("");
        one.layers = 1, l.mbs = 1 << i;
        h->spec.model = &one, h->spec.gbs = l.mbs;
        struct price_step step = host_step(h, &made, 2, &l);
        const double *t = step.term;
        *v = (struct probe_view){h->spec.seq, l.mbs, t[PRICE_GEMM],
                                 {t[PRICE_ATTENTION] / 3, t[PRICE_ATTENTION] * 2 / 3},
                                 t[PRICE_ELEMENTWISE] * (i == 2 ? 1.5 : 1), {0}};
        for (int k = 0; k < WORK_INPUTS; k++)
            v->inputs_s[k] = made.input_s[k] * (h->work.parts[WORK_EACH_FORWARD].inputs[k] +
                                                h->work.parts[WORK_LAST_FORWARD].inputs[k]);
    }
    h->spec.model = &m;
    probe_rates(&probe, &probe, &probe, &h->spec, &device, &found);
    assert_close(found.gemm.flops_s, 5e10, 1e-6, "gemm");
    assert_close(found.gemm.bytes_s, 1e11, 1e-6, "gemm's bytes");
    assert_close(found.attention.flops_s, 3e10, 1e-6, "attention");
    assert_close(found.attention_backward, 2, 1e-9, "backward");
    for (int k = 0; k < WORK_INPUTS; k++)
        assert_close(found.input_s[k], made.input_s[k], 1e-9, "inputs");
    assert_close(found.update_bytes, 1e10, 1e-9, "update");
    assert_close(found.norm_bytes, 2e10, 1e-9, "norm");
    assert_close(found.clear_bytes, 5e9, 1e-9, "clearing");
    assert_close(found.move_bytes, 1e10, 1e-9, "copies");
    assert_close(found.copy_bytes, 1e10 / 1.5, 1e-9, "elementwise of the largest");
    assert_close(found.points[0].elementwise, 1 / 1.5, 1e-9, "which takes longer than the others");
    assert_close(found.points[1].gemm, 1, 1e-6, "share");
    assert_true(found.points[2].tokens == 256 && found.n_points == 3);
    assert_true(found.rank_loss == 0);
    struct probe apart = probe; /* one of three sizes takes longer beside two others */
    struct probe_view *slow = &apart.view[1];
    apart.ranks = 3, slow->gemm_s *= 1.6, slow->elementwise_s *= 1.6;
    slow->attn_s[0] *= 1.6, slow->attn_s[1] *= 1.6, slow->inputs_s[INPUT_LOSS] *= 3;
    apart.update_s *= 1.4, apart.norm_s *= 1.4;
    probe_rates(&probe, &apart, &apart, &h->spec, &device, &found);
    assert_close(found.rank_loss, 0.1, 1e-9, "loss");
    assert_close(found.loss.gemm, 0.1, 1e-9, "of products");
    assert_close(found.loss.update, 0.2, 1e-9, "of the update");
    assert_true(found.loss.inputs > 0.1);
    apart.n_views = 2, apart.view[0] = apart.view[1], apart.view[1] = probe.view[2];
    probe_rates(&probe, &apart, &apart, &h->spec, &device, &found);
    assert_close(found.rank_loss, 0.15, 1e-9, "of the same sizes");
}

/* A machine three times slower than the priors say is learnt from one measurement, and the interval
 * narrows. */
static void fit_learns(void **state)
{
    struct fit fit;
    struct price_bill bill = {.term = {1, 0.5, 0.3, 0.1, 0, 0.1, 0.1, 0.1, 0.01, 0.01}};
    double before, after;
    (void)state;
    fit_init(&fit);
    double sum = fit_step(&fit, &bill, NULL, &before);
    fit_add(&fit, &bill, 3 * sum);
    double learnt = fit_step(&fit, &bill, NULL, &after);
    assert_true(fabs(learnt / (3 * sum) - 1) < 0.05);
    assert_true(after < before / 3);
    fit_add(&fit, &bill, NAN);
    fit_add(&fit, &bill, 0);
    fit_add(&fit, &(struct price_bill){0}, 1); /* as an event that was cut short has it */
    fit_add(&fit, &(struct price_bill){.term = {NAN}}, 1);
    assert_int_equal(fit.n, 1);
}

/* Holds a bill with every kind of message: ones that are hidden, seen, half far, and that nothing
 * hides. None is near the edge between hidden and seen. */
static const struct price_bill all_kinds = {
    .term = {[PRICE_GEMM] = 3, [PRICE_ATTENTION] = 1, [PRICE_ELEMENTWISE] = 0.5,
             [PRICE_RECOMPUTE] = 0.4, [PRICE_LAUNCH] = 0.1, [PRICE_TP] = 0.5, [PRICE_CP] = 0.2,
             [PRICE_PP] = 0.1, [PRICE_BUBBLE] = 0.6, [PRICE_GATHER] = 1.5, [PRICE_REDUCE] = 0.05,
             [PRICE_OPTIMIZER] = 0.1, [PRICE_SPREAD] = 0.2, [PRICE_OVERHEAD] = 0.02},
    .hidden = {[PRICE_TP] = 0.3, [PRICE_CP] = 0.1, [PRICE_PP] = 0.4, [PRICE_GATHER] = 0.02,
               [PRICE_REDUCE] = 0.5},
    .under = {[PRICE_CP] = 1, [PRICE_GATHER] = 0.02, [PRICE_REDUCE] = 3},
    .alone = {[PRICE_CP] = 0.2, [PRICE_GATHER] = 0.01, [PRICE_REDUCE] = 0.05},
    .fixed = {[PRICE_TP] = 0.1, [PRICE_CP] = 0.2, [PRICE_PP] = 0.1},
    .far = {[PRICE_TP] = 0.3, [PRICE_CP] = 1, [PRICE_PP] = 1, [PRICE_GATHER] = 0.5}};

static void scale_set(struct fit *fit, int k, double log_scale)
{
    fit->log_scale[k] = log_scale;
    fit->scale[k] = exp(log_scale);
}

/* The slopes from which the fit learns are the derivatives of what it predicts, by every scale. */
static void slopes_are_derivatives(void **state)
{
    const double h = 1e-5;
    struct fit fit;
    double J[FIT_SCALES], nowhere[FIT_SCALES];
    (void)state;
    fit_init(&fit);
    for (int k = 0; k < FIT_SCALES; k++)
        scale_set(&fit, k, 0.02 * (k % 5 - 2));
    fit_slopes(&fit, &all_kinds, J);
    for (int k = 0; k < FIT_SCALES; k++) {
        double at = fit.log_scale[k];
        scale_set(&fit, k, at + h);
        double more = log(fit_slopes(&fit, &all_kinds, nowhere));
        scale_set(&fit, k, at - h);
        double less = log(fit_slopes(&fit, &all_kinds, nowhere));
        scale_set(&fit, k, at);
        if (fabs((more - less) / (2 * h) - J[k]) > 1e-4)
            fail_msg("scale %d: %g, its slope %g", k, (more - less) / (2 * h), J[k]);
        assert_true(k == PRICE_INPUTS || k == PRICE_CONTENTION || fabs(J[k]) > 1e-4);
    }
}

/* A slower network lengthens the messages that cross it as soon as compute no longer hides them, but
 * not the fixed cost of each message. */
static void networks_leave_fixed_costs(void **state)
{
    static const struct price_bill bill = {
        .term = {[PRICE_GEMM] = 2, [PRICE_TP] = 1, [PRICE_CP] = 0.1, [PRICE_PP] = 0.2},
        .hidden = {[PRICE_CP] = 0.5, [PRICE_PP] = 9},
        .under = {[PRICE_CP] = 1}, .alone = {[PRICE_CP] = 0.1},
        .fixed = {[PRICE_TP] = 0.4, [PRICE_CP] = 0.1, [PRICE_PP] = 0.2},
        .far = {[PRICE_TP] = 1, [PRICE_CP] = 1, [PRICE_PP] = 1}};
    double x[PRICE_TERMS];
    struct fit fit;
    (void)state;
    fit_init(&fit);
    scale_set(&fit, FIT_NET, log(1.9));
    fit_step(&fit, &bill, x, NULL);
    assert_close(x[PRICE_CP], 0.1, 1e-9, "0.95 s fit under 1 s");
    scale_set(&fit, FIT_NET, log(4));
    fit_step(&fit, &bill, x, NULL);
    assert_close(x[PRICE_CP], 0.1 + 4 * 0.5 - 1, 1e-9, "2 s do not");
    assert_close(x[PRICE_TP], 0.4 + 4 * 0.6, 1e-9, "sums");
    assert_close(x[PRICE_PP], 0.2, 1e-9, "a hidden message's start");
    scale_set(&fit, FIT_FIXED, log(3));
    fit_step(&fit, &bill, x, NULL);
    assert_close(x[PRICE_PP], 0.6, 1e-9, "three times");
}

/* Plans of any size that all lack the same bytes are corrected by these, and the spread that is left
 * is as narrow as with plans of one size. Where each lacks other bytes, the spread is wide. */
static void memory_learns_what_is_left(void **state)
{
    static const double plans[] = {1e8, 1e10, 7e10}, lack[] = {1e9, -1e9, 2e10};
    struct memory_learned same = {0}, sizes = {0}, apart = {0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        memory_learn(&same, 6e10, 6.5e10);
        memory_learn(&sizes, plans[i], plans[i] + 5e9);
        memory_learn(&apart, 6e10, 6e10 + lack[i]);
    }
    assert_close(memory_peak(&sizes, 6e10), 6.5e10, 1e-9, "peak");
    for (double limit = 5.5e10; limit < 8e10; limit += 1e9)
        assert_close(memory_fits(&sizes, 6e10, limit), memory_fits(&same, 6e10, limit), 1e-6,
                     "fits");
    double peak = memory_peak(&apart, 6e10);
    assert_true(memory_fits(&same, 6e10, 0.85 * 6.5e10) < 0.01);
    assert_true(memory_fits(&apart, 6e10, 0.85 * peak) > 0.05);
}

/* The time of a class teaches its own term: the others stay where they were, and its interval is
 * narrower than a step alone makes it. */
static void classes_teach_their_terms(void **state)
{
    static const struct price_bill bill = {.term = {[PRICE_GEMM] = 1, [PRICE_ATTENTION] = 1}};
    static const double priced[PRICE_TERMS] = {[PRICE_GEMM] = 1, [PRICE_ATTENTION] = 1},
                        measured[PRICE_TERMS] = {[PRICE_GEMM] = 1, [PRICE_ATTENTION] = 2};
    struct fit step, both;
    double by_step[PRICE_TERMS], by_both[PRICE_TERMS];
    (void)state;
    fit_init(&step), fit_init(&both);
    fit_add(&step, &bill, 3);
    fit_classes(&both, priced, measured);
    fit_add(&both, &bill, 3);
    fit_step(&step, &bill, by_step, NULL);
    fit_step(&both, &bill, by_both, NULL);
    assert_true(by_step[PRICE_ATTENTION] < 1.3 * by_step[PRICE_GEMM]);
    assert_true(by_both[PRICE_ATTENTION] > 1.6 * by_both[PRICE_GEMM]);
    assert_true(both.cov[PRICE_ATTENTION][PRICE_ATTENTION] <
                step.cov[PRICE_ATTENTION][PRICE_ATTENTION]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_orders), cmocka_unit_test(units_in_use_are_planned),
        cmocka_unit_test(pipelines_hold_more), cmocka_unit_test(host_properties),
        cmocka_unit_test(state_by_hand), cmocka_unit_test(copies_by_hand),
        cmocka_unit_test(ring_by_hand), cmocka_unit_test(others_slow_classes),
        cmocka_unit_test(classes_of_longest_stage),
        cmocka_unit_test(cores_are_shared),
        cmocka_unit_test(recomputed_by_hand), cmocka_unit_test(partial_sums_by_hand),
        cmocka_unit_test(links_move_their_terms), cmocka_unit_test(bubble_by_hand),
        cmocka_unit_test(classes_teach_their_terms), cmocka_unit_test(slopes_are_derivatives),
        cmocka_unit_test(networks_leave_fixed_costs), cmocka_unit_test(memory_learns_what_is_left),
        cmocka_unit_test(probe_is_fitted), cmocka_unit_test(fit_learns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
