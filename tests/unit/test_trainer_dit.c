/* The whole model: gradients against central differences for every tensor of every variant,
 * grouping, recompute, f32, memory. */
#include "tests/lib/trainer_model.h"

#include "tests/lib/allocations.h"
#include "tests/lib/dit_small.h"

/* ---- models ---- */

static const struct variant {
    const char *name;
    enum model_adaln adaln;
    int64_t kv_heads;
    bool gated, text;
    int64_t cond_channels;
    enum objective objective;
    enum model_family family;
    bool tables;
} variants[] = {
    {"full", ADALN_FULL, 2, false, true, 0, OBJECTIVE_EDM},
    {"none", ADALN_NONE, 2, false, true, 0, OBJECTIVE_EDM},
    {"lora_separate", ADALN_LORA_SEPARATE, 2, false, true, 0, OBJECTIVE_EDM},
    {"lora_fused", ADALN_LORA_FUSED, 2, false, true, 0, OBJECTIVE_EDM},
    {"lora_single", ADALN_LORA_SINGLE, 2, false, true, 0, OBJECTIVE_EDM},
    {"gated, grouped queries", ADALN_FULL, 1, true, true, 0, OBJECTIVE_RECTIFIED_FLOW},
    {"no text, conditioning channels", ADALN_LORA_SEPARATE, 1, false, false, 2, OBJECTIVE_V},
    {"stdit", ADALN_FULL, 2, false, true, 0, OBJECTIVE_RECTIFIED_FLOW, MODEL_STDIT},
    {"stdit, lora_separate, grouped queries, no text", ADALN_LORA_SEPARATE, 1, true, false, 1,
     OBJECTIVE_EDM, MODEL_STDIT},
    {"moviegen", ADALN_FULL, 1, true, true, 0, OBJECTIVE_RECTIFIED_FLOW, MODEL_MOVIEGEN, true},
    {"moviegen, lora_fused, rotary positions", ADALN_LORA_FUSED, 2, true, true, 0, OBJECTIVE_EDM,
     MODEL_MOVIEGEN},
};

static struct model model_of(const struct variant *v)
{
    struct model m = small(v->adaln, v->kv_heads, v->gated, v->text, v->cond_channels);
    m.family = v->family;
    if (v->tables)
        m.pos_t = 3, m.pos_h = 2, m.pos_w = 4; /* the last row of w: no token has it */
    return m;
}

static const struct layout plain = {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1};
static const struct layout recomputing[] = {
    {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1, .recompute = RECOMPUTE_FULL},
    {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1, .recompute = RECOMPUTE_SELECTIVE},
    {.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .mbs = 1, .recompute = RECOMPUTE_FULL,
     .recompute_layers = 2}};

/* ---- gradients ---- */

static void test_gradients(void **state)
{
    (void)state;
    /* text_null has a gradient because samples 1 (empty) and at least one other (coin) have no
     * caption, the text weights because at least one has */
    bool drop = false, keep = false;
    for (int i = 0; i < SAMPLES; i++)
        if (shapes[i].text_len > 0)
            *(objective_text_dropped(SEED, 40 + (uint64_t)i, 0.5) ? &drop : &keep) =
                true; /* as data_init does */
    assert_true(drop && keep);
    for (int v = 0; v < LEN(variants); v++) {
        struct model m = model_of(&variants[v]);
        struct rig r;
        rig_open(&r, NULL, &m, &plain, variants[v].objective, DTYPE_F64);
        gradients_check(&r, variants[v].name);
        rig_close(&r);
    }
}

/* Adapters beside every matrix; the base takes no gradient but passes it on. */
static void test_adapters(void **state)
{
    (void)state;
    struct finetune finetune = finetune_of(
        "{\"lora\": {\"rank\": 2, \"alpha\": 1, \"match\": [\"*\"]},"
        " \"groups\": [{\"match\": \"*_n*\", \"trainable\": true}]}");
    for (int v = 0; v < LEN(variants); v++) {
        struct model m = model_of(&variants[v]);
        struct rig r;
        rig_open_tuned(&r, NULL, &m, &plain, variants[v].objective, DTYPE_F64, NULL, &finetune);
        assert_true(r.sh.trained < r.sh.total);
        gradients_check(&r, variants[v].name);
        rig_close(&r);
    }
}

static double largest_difference(const double *a, const double *b, int64_t n, double *scale)
{
    double most = 0;
    *scale = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        *scale = fmax(*scale, fabs(a[i]));
    }
    return most;
}

/* 1 x 4, 2 x 2, 4 x 1 samples: same loss and gradient of every tensor; each draw hangs on its
 * ordinal alone. */
static void test_grouping(void **state)
{
    (void)state;
    for (int v = 0; v < LEN(variants); v++) {
        struct model m = model_of(&variants[v]);
        struct rig r;
        rig_open(&r, NULL, &m, &plain, variants[v].objective, DTYPE_F64);
        double loss = step(&r, 0, SAMPLES, false).loss_sum;
        double *want = grads_get(&r);
        for (int size = 1; size <= 2; size++) {
            double sum = 0, scale;
            for (int first = 0; first < SAMPLES; first += size)
                sum += step(&r, first, size, first > 0).loss_sum;
            assert_true(fabs(sum - loss) <= 1e-12 * loss);
            double *got = grads_get(&r);
            for (int64_t i = 0; i < r.list.n; i++) {
                double most = largest_difference(want + r.sh.tensors[i].offset,
                                                 got + r.sh.tensors[i].offset,
                                                 r.list.items[i].count, &scale);
                if (!(most <= 1e-12 * scale))
                    fail_msg("%s by %d: %s differs by %.3g of %.3g", variants[v].name, size,
                             r.list.items[i].name, most, scale);
            }
            free(got);
        }
        free(want);
        rig_close(&r);
    }
}

static void test_empty_micro_batch(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct rig r;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    step(&r, 0, 2, false);
    double *before = grads_get(&r);
    assert_true(step(&r, 0, 0, true).loss_sum == 0);
    double *behind = grads_get(&r);
    assert_memory_equal(before, behind, (size_t)r.sh.total * sizeof *before);
    assert_true(step(&r, 0, 0, false).loss_x0_sum == 0);
    double *empty = grads_get(&r);
    for (int64_t i = 0; i < r.sh.total; i++)
        assert_true(empty[i] == 0);
    free(before);
    free(behind);
    free(empty);
    rig_close(&r);
}

/* A batch without any null token overwrites the gradient of text_null too. */
static void test_overwrite_unused(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct rig r;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    int with_caption = -1;
    for (int i = 0; i < SAMPLES; i++)
        if (shapes[i].text_len > 0 && !objective_text_dropped(SEED, 40 + (uint64_t)i, 0.5))
            with_caption = i;
    assert_true(with_caption >= 0);
    step(&r, 0, SAMPLES, false);
    double g[TEXT_WIDTH];
    const double *at = (double *)r.grads + r.sh.tensors[params_find(&r.list, "text_null")].offset;
    bench_get_to(&r.b, g, at, sizeof g);
    assert_true(dot(g, g, TEXT_WIDTH) > 0);
    step(&r, with_caption, 1, false);
    bench_get_to(&r.b, g, at, sizeof g);
    assert_true(dot(g, g, TEXT_WIDTH) == 0);
    rig_close(&r);
}

/* ---- the same numbers by other ways ---- */

static void test_recompute_bitwise(void **state)
{
    (void)state;
    for (enum dtype dtype = DTYPE_F64; dtype <= DTYPE_BF16; dtype++)
        for (int k = 0; k < LEN(variants) * LEN(recomputing); k++) {
            const struct variant *v = &variants[k % LEN(variants)];
            const struct layout *l = &recomputing[k / LEN(variants)];
            struct model m = model_of(v);
            struct rig kept, again;
            m.layers = 3;
            rig_open(&kept, NULL, &m, &plain, v->objective, dtype);
            rig_open(&again, NULL, &m, l, v->objective, dtype);
            double a = step(&kept, 0, SAMPLES, false).loss_sum,
                   b = step(&again, 0, SAMPLES, false).loss_sum;
            assert_true(a == b);
            void *ours = grads_get(&kept), *others = grads_get(&again);
            assert_memory_equal(ours, others,
                                (size_t)(kept.sh.total * dtype_bytes(kept.b.ops->stat)));
            free(ours);
            free(others);
            assert_true(again.b.dev->alloc_bytes < kept.b.dev->alloc_bytes);
            rig_close(&kept);
            rig_close(&again);
        }
}

/* ---- what is computed again: calls of the table, counted ---- */

struct calls { int64_t attn_fwd, attn_bwd, gemm; };
static struct { struct ops real; struct calls calls; } counted;
static void count_attn_fwd(struct ops *o, struct dev_stream *s, const struct ops_attn *a)
{
    counted.calls.attn_fwd++;
    counted.real.attn_fwd(o, s, a);
}
static void count_attn_bwd(struct ops *o, struct dev_stream *s, const struct ops_attn *a)
{
    counted.calls.attn_bwd++;
    counted.real.attn_bwd(o, s, a);
}
static void count_gemm(struct ops *o, struct dev_stream *s, const struct ops_gemm *a)
{
    counted.calls.gemm++;
    counted.real.gemm(o, s, a);
}

static struct calls calls_of(const struct variant *v, const struct layout *l)
{
    struct model m = model_of(v);
    struct rig r;
    m.layers = 3;
    rig_open(&r, NULL, &m, l, v->objective, DTYPE_F64);
    counted.real = *r.b.ops;
    counted.calls = (struct calls){0};
    r.b.ops->attn_fwd = count_attn_fwd, r.b.ops->attn_bwd = count_attn_bwd,
    r.b.ops->gemm = count_gemm;
    step(&r, 0, SAMPLES, false);
    *r.b.ops = counted.real;
    rig_close(&r);
    return counted.calls;
}

/* Selective recomputation makes products again and no attention; full both, and less of it when it
 * is of the first layers only. */
static void test_what_is_recomputed(void **state)
{
    (void)state;
    for (int v = 0; v < LEN(variants); v++) {
        struct calls none = calls_of(&variants[v], &plain),
                     full = calls_of(&variants[v], &recomputing[0]);
        struct calls selective = calls_of(&variants[v], &recomputing[1]),
                     first_two = calls_of(&variants[v], &recomputing[2]);
        assert_true(none.attn_fwd >= 3 && none.attn_bwd >= 3); /* of every layer */
        assert_int_equal(selective.attn_fwd, none.attn_fwd);
        assert_true(first_two.attn_fwd > none.attn_fwd && full.attn_fwd > first_two.attn_fwd);
        assert_true(selective.gemm > none.gemm && first_two.gemm > none.gemm &&
                    full.gemm > first_two.gemm);
        assert_true(selective.attn_bwd == none.attn_bwd && first_two.attn_bwd == none.attn_bwd &&
                    full.attn_bwd == none.attn_bwd);
    }
}

enum { TENSORS = 100 };
/* How far a table of another type is from f64's: the loss relative to it, each tensor's gradient
 * relative to its norm. */
struct away { double loss, grads[TENSORS]; };

static void away_from_f64(const struct variant *v, enum dtype dtype, struct away *out)
{
    struct model m = model_of(v);
    struct rig d, f;
    rig_open(&d, NULL, &m, &plain, v->objective, DTYPE_F64);
    rig_open(&f, NULL, &m, &plain, v->objective, dtype);
    double a = step(&d, 0, SAMPLES, false).loss_sum, b = step(&f, 0, SAMPLES, false).loss_sum;
    assert_true(d.list.n <= TENSORS);
    *out = (struct away){.loss = fabs(a - b) / a};
    double *exact = grads_get(&d);
    float *near = grads_get(&f);
    for (int64_t i = 0; i < d.list.n; i++) {
        double num = 0, den = 0;
        for (int64_t j = d.sh.tensors[i].offset; j < d.sh.tensors[i].offset + d.list.items[i].count;
             j++) {
            double want = exact[j], diff = want - near[j];
            num += diff * diff;
            den += want * want;
        }
        assert_true(den > 0);
        out->grads[i] = sqrt(num / den);
    }
    free(exact);
    free(near);
    rig_close(&d);
    rig_close(&f);
}

/* f32 differs from f64 by its rounding: 24-bit numbers through two blocks, a few 1e-6 relative to
 * the tensor's norm. bf16's table rounds to 8 bits what it stores, which f32's rounds as well,
 * besides every sum and product inside; roundings of 2^-9 there for 2^-25 here, so to first order
 * 2^16 of f32's error is more than what to expect, and twice that is for chance: these are two
 * draws of it. The loss, one number whose errors may cancel in either, is held to the most that
 * f32's differs in any variant. */
static void test_near_f64(void **state)
{
    const double coarser = 0x1p16, chance = 2;
    struct away f32[LEN(variants)], bf16;
    double most = 0;
    (void)state;
    for (int v = 0; v < LEN(variants); v++) {
        away_from_f64(&variants[v], DTYPE_F32, &f32[v]);
        most = fmax(most, f32[v].loss);
        for (int i = 0; i < TENSORS; i++)
            if (!(f32[v].grads[i] <= 2e-5))
                fail_msg("%s in f32: tensor %d differs by %.3g", variants[v].name, i,
                         f32[v].grads[i]);
    }
    assert_true(most <= 2e-6);
    for (int v = 0; v < LEN(variants); v++) {
        away_from_f64(&variants[v], DTYPE_BF16, &bf16);
        if (!(bf16.loss <= chance * coarser * most))
            fail_msg("%s in bf16: loss differs by %.3g, in f32 by up to %.3g", variants[v].name,
                     bf16.loss, most);
        for (int i = 0; i < TENSORS; i++)
            if (!(bf16.grads[i] <= chance * coarser * f32[v].grads[i]))
                fail_msg("%s in bf16: tensor %d differs by %.3g, in f32 by %.3g", variants[v].name,
                         i, bf16.grads[i], f32[v].grads[i]);
    }
}

/* dit_forward on a sample noised by hand gives the loss that a step reports for it. */
static void test_forward_agrees(void **state)
{
    (void)state;
    for (int v = 0; v < LEN(variants); v++) {
        struct model m = model_of(&variants[v]);
        const struct objective_row *row = &objective_rows[variants[v].objective];
        struct rig r;
        struct err err = {0};
        rig_open(&r, NULL, &m, &plain, variants[v].objective, DTYPE_F64);
        struct dit_result result = step(&r, 0, SAMPLES, false);
        double x[SAMPLES][CHANNELS * MAX_CELLS], out[SAMPLES][CHANNELS * MAX_CELLS],
            noise[CHANNELS * MAX_CELLS], sum = 0, sum_x0 = 0;
        double loss[SAMPLES];
        struct dit_eval_sample eval[SAMPLES];
        memcpy(loss, result.sample_loss, sizeof loss);
        for (int i = 0; i < SAMPLES; i++) {
            const struct batch_sample *s = &r.data.samples[i];
            struct objective_coef c;
            int n = CHANNELS * s->t * s->h * s->w;
            row->coef(s->level, &c);
            philox_normal_fill(SEED, PHILOX_NOISE, s->ordinal, 0, (size_t)n, noise);
            for (int j = 0; j < n; j++)
                x[i][j] = c.alpha * row->data_scale * s->latent[j] + c.sigma * noise[j];
            eval[i] = (struct dit_eval_sample){x[i], out[i], s->level, s->drop_text, s->cond, s->t,
                                               s->h, s->w, s->text, s->text_len, s->fps};
        }
        if (dit_forward(r.dit, eval, SAMPLES, &err) < 0)
            fail_msg("%s", err.text);
        for (int i = 0; i < SAMPLES; i++) {
            const struct batch_sample *s = &r.data.samples[i];
            struct objective_coef c;
            int n = CHANNELS * s->t * s->h * s->w;
            double squares = 0, squares_x0 = 0;
            row->coef(s->level, &c);
            philox_normal_fill(SEED, PHILOX_NOISE, s->ordinal, 0, (size_t)n, noise);
            for (int j = 0; j < n; j++) {
                double x0 = row->data_scale * s->latent[j], target = c.p * x0 + c.q * noise[j];
                double clean = c.c_skip * x[i][j] + c.c_out * out[i][j];
                squares += (out[i][j] - target) * (out[i][j] - target);
                squares_x0 += (clean - x0) * (clean - x0);
            }
            assert_true(fabs(loss[i] - c.w * squares / n) <= 1e-12 * loss[i]);
            sum += s->loss_weight * c.w * squares;
            sum_x0 += s->loss_weight * squares_x0;
        }
        assert_true(fabs(sum - result.loss_sum) <= 1e-12 * sum);
        assert_true(fabs(sum_x0 - result.loss_x0_sum) <= 1e-11 * sum_x0);
        rig_close(&r);
    }
}

/* Looks at the gradients by the table's own operation. */
static struct ops_health health_of(struct rig *r)
{
    struct ops_health h, *on;
    struct err err = {0};
    assert_int_equal(r->b.dev->alloc(r->b.dev, "health", sizeof h, (void **)&on, &err), 0);
    struct ops_sumsq norm = {tensor_of(r->grads, r->b.ops->stat, 1, r->sh.total), on, false};
    r->b.ops->sumsq(r->b.ops, r->b.stream, &norm);
    bench_get_to(&r->b, &h, on, sizeof h);
    r->b.dev->free(r->b.dev, on);
    return h;
}

/* A bad latent shows in the loss and is counted in the gradients: nothing on the way swallows
 * it. */
static void test_nonfinite_shows(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    for (enum dtype dtype = DTYPE_F64; dtype <= DTYPE_BF16; dtype++) {
        struct rig r;
        struct ops_health h;
        rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, dtype);
        step(&r, 0, SAMPLES, false);
        h = health_of(&r);
        assert_true(h.nonfinite == 0 && h.sumsq > 0);
        r.data.latent[2][5] = NAN;
        assert_true(isnan(step(&r, 0, SAMPLES, false).loss_sum));
        assert_true(health_of(&r).nonfinite > 0);
        rig_close(&r);
    }
}

/* ---- memory ---- */

static void test_steady_state_allocates_nothing(void **state)
{
    (void)state;
    for (int v = 0; v < LEN(variants); v++)
        for (int recompute = 0; recompute <= 1; recompute++) {
            struct model m = model_of(&variants[v]);
            struct rig r;
            rig_open(&r, NULL, &m, recompute ? &recomputing[0] : &plain, variants[v].objective,
                     DTYPE_F32);
            step(&r, 0, SAMPLES, false);
            int64_t before = allocations, bytes = r.b.dev->alloc_bytes;
            step(&r, 0, SAMPLES, false);
            step(&r, 1, 2, true);
            step(&r, 0, 0, true);
            if (r.b.dev->host_memory) /* the queues of one that queues are its own affair */
                assert_int_equal(allocations, before);
            assert_int_equal(r.b.dev->alloc_bytes, bytes);
            rig_close(&r);
        }
}

/* The plan states the bytes before anything is taken, and dit_new takes those. */
static void test_plan_is_what_is_taken(void **state)
{
    (void)state;
    struct model m = small(ADALN_LORA_FUSED, 1, true, true, 1);
    struct rig r;
    struct err err = {0};
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    struct buffer_list plan = {0};
    struct dit *second;
    assert_int_equal(dit_memory(&r.config, DTYPE_F64, DTYPE_F64, &plan, &err), 0);
    int64_t before = r.b.dev->alloc_bytes, sum = 0;
    assert_int_equal(dit_new(&r.config, r.b.ops, r.b.stream, &r.units, &second, &err), 0);
    assert_int_equal(r.b.dev->alloc_bytes - before, plan.sides[BUFFER_ON_DEVICE]);
    for (int c = 0; c < BUFFER_CATEGORIES; c++)
        sum += buffer_list_bytes(&plan, (enum buffer_category)c);
    assert_int_equal(sum, plan.total);
    for (int64_t i = 1; i < plan.n && plan.items[i].side == BUFFER_ON_DEVICE; i++)
        assert_int_equal(plan.items[i].offset, plan.items[i - 1].offset + plan.items[i - 1].bytes);
    dit_free(second);
    rig_close(&r);
}

/* ---- what is refused ---- */

static void test_bad_batches(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct rig r;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    const struct batch_sample good = r.data.samples[0];
    struct {
        const char *word;
        struct batch_sample s;
    } bad[] = {{"patches", good}, {"patches", good}, {"text_len", good}, {"text_len", good},
               {"fps", good},     {"fps", good},     {"planned", good},  {"planned", good}};
    bad[0].s.h = 3;
    bad[1].s.t = 0;
    bad[2].s.text_len = -1;
    bad[3].s.text = NULL;
    bad[4].s.fps = 0;
    bad[5].s.fps = NAN;
    bad[6].s.t = 100;
    bad[7].s.text_len = 9;
    bad[7].s.drop_text = false;
    for (int i = 0; i < LEN(bad); i++) {
        struct err err = {0};
        struct dit_result out;
        struct batch b = {&bad[i].s, 1};
        assert_int_equal(step_try(&r, r.dit, &b, &out, &err), ERR_INPUT);
        if (!strstr(err.text, bad[i].word))
            fail_msg("case %d: '%s' does not say '%s'", i, err.text, bad[i].word);
    }
    struct batch many = {r.data.samples, SAMPLES + 1};
    struct err err = {0};
    struct dit_result out;
    assert_int_equal(step_try(&r, r.dit, &many, &out, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "samples"));
    rig_close(&r);
}

/* A sample that needs a row past the end of one of the tables, for each. */
static void test_past_the_tables(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct rig r;
    m.pos_t = m.pos_h = m.pos_w = 2;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    for (int axis = 0; axis < 4; axis++) {
        struct batch_sample s = r.data.samples[0];
        struct batch b = {&s, 1};
        struct dit_result out;
        struct err err = {0};
        s.t = axis == 0 ? 3 : 2, s.h = axis == 1 ? 6 : 2, s.w = axis == 2 ? 6 : 2;
        int rc = step_try(&r, r.dit, &b, &out, &err);
        assert_int_equal(rc, axis < 3 ? ERR_INPUT : 0);
        assert_true(axis == 3 || strstr(err.text, "position tables"));
    }
    rig_close(&r);
}

/* Memory planned for segments of at most three tokens: the image of six is refused, the video of
 * two frames of two is not. */
static void test_past_the_longest_segment(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct rig r;
    struct err err = {0};
    struct dit *d;
    m.family = MODEL_STDIT;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    struct dit_config c = r.config;
    c.max_segment = 3;
    assert_int_equal(dit_new(&c, r.b.ops, r.b.stream, &r.units, &d, &err), 0);
    for (int i = 0; i < SAMPLES; i += SAMPLES - 1) {
        struct batch b = {&r.data.samples[i], 1};
        struct dit_result out;
        units_begin(&r.units, 0, 1);
        assert_int_equal(step_try(&r, d, &b, &out, &err), i ? ERR_INPUT : 0);
    }
    assert_non_null(strstr(err.text, "has 6 tokens: memory is planned for 3"));
    dit_free(d);
    rig_close(&r);
}

/* A step whose gradients are not finite in the layers of `bad` alone (INT64_MAX ends them): where
 * backward met that first. */
static void nonfinite_in(struct rig *r, const int64_t *bad, int64_t first)
{
    enum dtype t = r->b.ops->stat;
    struct err err = {0};
    int64_t found;
    units_begin(&r->units, 1, 1);
    for (int64_t u = 0; u < r->sh.n_trained; u++) {
        int64_t n = r->sh.units[u].elements;
        double *g = calloc((size_t)n, sizeof *g);
        for (int i = 0; bad[i] != INT64_MAX; i++)
            if (r->sh.units[u].layer == bad[i])
                g[n - 1] = i % 2 ? NAN : INFINITY;
        bench_put(&r->b, units_grads(&r->units, u), g, n * dtype_bytes(t));
        free(g);
        units_done(&r->units, u);
    }
    units_flush(&r->units);
    assert_int_equal(r->b.dev->stream_sync(r->b.dev, r->b.stream, &err), 0);
    assert_int_equal(units_nonfinite(&r->units, &found, &err), 0);
    assert_int_equal(found, first == INT64_MAX ? -1 : shards_unit(&r->sh, first));
}

static void test_where_it_was_not_finite(void **state)
{
    static const int64_t rows[][5] = {{INT64_MAX},
                                      {0, INT64_MAX},
                                      {0, 1, INT64_MAX},
                                      {PARAM_LAYER_COND, PARAM_LAYER_EMBED, INT64_MAX},
                                      {1, PARAM_LAYER_COND, 0, PARAM_LAYER_HEAD, INT64_MAX}};
    static const int64_t first[] = {INT64_MAX, 0, 1, PARAM_LAYER_EMBED, PARAM_LAYER_HEAD};
    struct model m = small(ADALN_FULL, 2, false, true, 0);
    struct rig r;
    (void)state;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    for (int i = 0; i < LEN(rows); i++)
        nonfinite_in(&r, rows[i], first[i]);
    rig_close(&r);
}

static void test_bad_configurations(void **state)
{
    (void)state;
    struct model m = small(ADALN_FULL, 2, false, true, 0),
                 other = small(ADALN_LORA_FUSED, 2, false, true, 0);
    struct rig r;
    rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
    struct model language = m, wide = m;
    language.family = MODEL_GPT;
    wide.hidden = 1024;
    struct {
        const char *word;
        struct dit_config c;
    } bad[] = {{"family", r.config},
               {"family", r.config},
               {"head dim", r.config},
               {"bounds", r.config},
               {"adaln.a.weight", r.config}};
    bad[0].c.model = bad[1].c.model = &language;
    bad[2].c.model = &wide;
    bad[3].c.max_samples = 0;
    bad[4].c.model = &other; /* with another model's parameter list */
    for (int i = 0; i < LEN(bad); i++) {
        struct err err = {0};
        struct dit *d = NULL;
        assert_int_equal(dit_new(&bad[i].c, r.b.ops, r.b.stream, &r.units, &d, &err), ERR_INPUT);
        assert_null(d);
        if (!strstr(err.text, bad[i].word))
            fail_msg("case %d: '%s' does not say '%s'", i, err.text, bad[i].word);
    }
    rig_close(&r);
}

/* ---- who sees whom ---- */

enum { SEEN_T = 3, SEEN_H = 4, SEEN_W = 2, SEEN_CELLS = SEEN_T * SEEN_H * SEEN_W };

/* The prediction for two samples, the second 1 x 4 x 2; cell `changed` of the first one is
 * another. */
static void predict(struct rig *r, int changed, double out[2][CHANNELS * SEEN_CELLS])
{
    double x[CHANNELS * SEEN_CELLS], other[CHANNELS * SEEN_CELLS];
    struct err err = {0};
    fill_normal(x, CHANNELS * SEEN_CELLS, 77);
    fill_normal(other, CHANNELS * SEEN_CELLS, 78);
    if (changed >= 0)
        x[changed] += 1;
    struct dit_eval_sample s[2] = {
        {.x_t = x, .out = out[0], .level = 0.1, .t = SEEN_T, .h = SEEN_H, .w = SEEN_W, .fps = 24},
        {.x_t = other, .out = out[1], .level = 0.1, .t = 1, .h = SEEN_H, .w = SEEN_W, .fps = 24}};
    if (dit_forward(r->dit, s, 2, &err) < 0)
        fail_msg("%s", err.text);
}

/* One layer with only one of its self-attentions: a change of one cell reaches the tokens of its
 * frame, or of its place in all frames, and no others, bit for bit. */
static void test_reaches(void **state)
{
    (void)state;
    static const char *const outs[] = {"blocks.0.spatial.out.weight",
                                       "blocks.0.temporal.out.weight", "blocks.0.attn.out.weight"};
    for (int reach = 0; reach < 3; reach++) {
        struct model m = small(ADALN_FULL, 2, false, false, 0);
        struct rig r;
        double before[2][CHANNELS * SEEN_CELLS], after[2][CHANNELS * SEEN_CELLS];
        m.family = MODEL_STDIT;
        m.layers = 1;
        rig_open(&r, NULL, &m, &plain, OBJECTIVE_EDM, DTYPE_F64);
        for (int k = 0; k < 3; k++) {
            int64_t at = params_find(&r.list, outs[k]);
            r.b.dev->fill(r.b.dev, (double *)r.weights + r.sh.tensors[at].offset, 0,
                          k == reach ? 0 : r.list.items[at].count * 8, r.b.stream);
        }
        /* channel 0, frame 1, row 2: the token of frame 1, place (1, 0) */
        int changed = 1 * SEEN_H * SEEN_W + 2 * SEEN_W;
        predict(&r, -1, before);
        predict(&r, changed, after);
        for (int j = 0; j < CHANNELS * SEEN_CELLS; j++) {
            bool frame = j / (SEEN_H * SEEN_W) % SEEN_T == 1, place = j / SEEN_W % SEEN_H / 2 == 1;
            bool sees = reach == 0 ? frame : reach == 1 ? place : true;
            if ((before[0][j] != after[0][j]) != sees)
                fail_msg("%s alone: element %d %s", outs[reach], j,
                         sees ? "has not changed" : "has changed");
        }
        assert_memory_equal(before[1], after[1], CHANNELS * SEEN_H * SEEN_W * 8);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_grouping), cmocka_unit_test(test_empty_micro_batch),
        cmocka_unit_test(test_overwrite_unused), cmocka_unit_test(test_recompute_bitwise),
        cmocka_unit_test(test_what_is_recomputed), cmocka_unit_test(test_near_f64),
        cmocka_unit_test(test_forward_agrees), cmocka_unit_test(test_nonfinite_shows),
        cmocka_unit_test(test_steady_state_allocates_nothing),
        cmocka_unit_test(test_plan_is_what_is_taken), cmocka_unit_test(test_bad_batches),
        cmocka_unit_test(test_past_the_tables), cmocka_unit_test(test_past_the_longest_segment),
        cmocka_unit_test(test_where_it_was_not_finite), cmocka_unit_test(test_bad_configurations),
        cmocka_unit_test(test_reaches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
