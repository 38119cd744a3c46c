/* The account of a rank's work: the published formulas, computed by hand; parameters against the
 * list. */
#include "tests/lib/test_profiles.h"

#include "profiles/params.h"
#include "profiles/work.h"

enum { D = 64, F = 256, HEADS = 4, V = 1000, S = 128 };
static const struct model gpt = {.name = "g", .family = MODEL_GPT, .layers = 6, .hidden = D,
                                 .heads = HEADS, .kv_heads = HEADS, .ffn = F, .vocab = V,
                                 .patch_t = 1, .patch_h = 1, .patch_w = 1};

static const struct work_scales as_said = {1, 1, 1};

struct fixture {
    struct model m;
    struct stack k;
    struct work_weights weights;
    struct work_spec spec;
    struct work w;
};

static void fixture_open(struct fixture *f, const struct model *m, const char *stack)
{
    struct err err;
    f->m = *m;
    assert_ok(stack_load(stack, &f->k, &err), &err);
    assert_ok(work_weights(m, &f->weights, &err), &err);
    f->spec = (struct work_spec){.model = &f->m, .stack = &f->k, .weights = &f->weights,
                                 .seq = {1, 1, S}, .gbs = 32, .act = DTYPE_BF16};
}

static struct layout layout_of(const char *text)
{
    struct layout l;
    struct err err;
    assert_ok(layout_parse(text, &l, &err), &err);
    return l;
}

static const struct work *build(struct fixture *f, const char *layout)
{
    struct layout l = layout_of(layout);
    work_build(&f->spec, &l, &f->w);
    return &f->w;
}

static double gemm_flops(const struct work_part *p)
{
    double sum = 0;
    for (int i = 0; i < p->n_gemms; i++)
        sum += 2 * p->gemms[i].m * p->gemms[i].n * p->gemms[i].k * p->gemms[i].count;
    return sum;
}

/* Korthikanti et al. 2022: s b h (34 + 5 a s / h) bytes a layer; with tensor parallelism s b h (10
 * + 24/t + 5 a s / (h t)); with sequence parallelism all of it by t; recomputed, 2 s b h. */
static void activations(void **state)
{
    struct fixture f;
    double sbh = 2.0 * S * D, scores = 5.0 * HEADS * S / D;
    (void)state;
    fixture_open(&f, &gpt, "megatron-2021");
    assert_close(build(&f, "mbs=2")->kept.none, sbh * (34 + scores), 1e-12, "t 1");
    assert_close(f.w.kept.selective, sbh * 34, 1e-12, "selective");
    assert_close(f.w.kept.full, sbh * 2, 1e-12, "full");
    assert_close(build(&f, "mbs=2,tp=4")->kept.none, sbh * (10 + 24 / 4.0 + scores / 4), 1e-12,
                 "t 4");
    assert_close(f.w.kept.stream, sbh * 10, 1e-12, "whole");
    assert_close(build(&f, "mbs=2,tp=4,sp=1")->kept.none, sbh * (34 + scores) / 4, 1e-12, "sp");
}

/* 2 T (4 D^2 + 2 D F) a layer forward and twice that backward, divided by tp and cp; the head 2 T D
 * V; attention's causal half. */
static void work_of_layer(void **state)
{
    struct fixture f;
    double once = 2.0 * S * (4 * D * D + 2 * D * F);
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    build(&f, "tp=2,cp=2,dp=2");
    const struct work_part *p = f.w.parts;
    assert_close(gemm_flops(&p[WORK_LAYER_FORWARD]), once / 4, 1e-12, "forward");
    assert_close(gemm_flops(&p[WORK_LAYER_BACKWARD]), once / 2, 1e-12, "backward");
    assert_close(gemm_flops(&p[WORK_LAST_FORWARD]), 2.0 * S * D * V / 4, 1e-12, "head");
    assert_int_equal(p[WORK_LAYER_FORWARD].n_attentions, 1);
    const struct work_attention *a = &p[WORK_LAYER_FORWARD].attentions[0];
    assert_close(a->pairs * a->heads, S * S / 2 / 2.0 * HEADS / 2, 1e-12, "pairs");
}

/* Two samples of 512 caption tokens widened from 4096 to 5120: the products, twice them backward, and
 * what every stage keeps of them, in a model of which nothing else differs. */
static void text_mlp(void **state)
{
    struct fixture f;
    struct model m;
    struct err err;
    double with[WORK_HELD], without[WORK_HELD], rows = 2 * 512, in = 4096, W = 5120;
    struct layout l = layout_of("pp=4,mbs=2");
    struct work_stage last;
    (void)state;
    assert_ok(model_load("wan-14b", &m, &err), &err);
    fixture_open(&f, &m, "megatron");
    work_build(&f.spec, &l, &f.w);
    double products = 2 * rows * W * (in + W), kept = rows * (in + 3 * W) * 2;
    assert_close(gemm_flops(&f.w.parts[WORK_EACH_FORWARD]), products, 1e-12, "forward");
    assert_close(gemm_flops(&f.w.parts[WORK_EACH_BACKWARD]), 2 * products, 1e-12, "backward");
    work_stage(&f.w, &l, 3, &last);
    work_held(&f.w, &l, &last, &as_said, with);
    f.w.each_kept = 0;
    work_held(&f.w, &l, &last, &as_said, without);
    assert_close(with[HELD_ACTIVATIONS] - without[HELD_ACTIVATIONS], kept, 1e-9, "kept");
}

static const struct work_message *message_of(const struct work_part *p, enum traffic_group group)
{
    for (int i = 0; i < p->n_messages; i++)
        if (p->messages[i].group == group)
            return &p->messages[i];
    return NULL;
}

/* Four tp ranks and two heads of keys: each rank has a copy of one, as it has one of four. */
static void copied_heads(void **state)
{
    struct fixture two, four;
    struct model m = gpt;
    (void)state;
    fixture_open(&four, &gpt, "megatron");
    m.kv_heads = 2;
    fixture_open(&two, &m, "megatron");
    const struct work *b = build(&two, "tp=4,cp=2"), *a = build(&four, "tp=4,cp=2");
    assert_close(gemm_flops(&b->parts[WORK_LAYER_FORWARD]),
                 gemm_flops(&a->parts[WORK_LAYER_FORWARD]), 1e-12, "products");
    assert_close(message_of(&b->parts[WORK_LAYER_FORWARD], TRAFFIC_RING)->bytes,
                 message_of(&a->parts[WORK_LAYER_FORWARD], TRAFFIC_RING)->bytes, 1e-12, "ring");
    assert_close(b->unit_elements[UNIT_LAYER], a->unit_elements[UNIT_LAYER], 1e-12, "weights");
    const struct work *half = build(&two, "tp=2");
    double once = 2.0 * S * (3 * D * D + 2 * D * F) / 2;
    assert_close(gemm_flops(&half->parts[WORK_LAYER_FORWARD]), once, 1e-12, "divided, not copied");
}

/* The product that makes modulation has three vectors for each sub-block that is modulated:
 * moviegen's cross-attention is not. */
static void modulation(void **state)
{
    struct fixture f;
    struct model m, plain;
    struct err err;
    (void)state;
    assert_ok(model_load("moviegen-30b", &m, &err), &err);
    assert_int_equal(m.adaln, ADALN_FULL);
    plain = m, plain.cross_plain = !m.cross_plain;
    fixture_open(&f, &m, "megatron");
    double with = gemm_flops(&build(&f, "tp=1")->parts[WORK_LAYER_FORWARD]);
    fixture_open(&f, &plain, "megatron");
    double other = gemm_flops(&build(&f, "tp=1")->parts[WORK_LAYER_FORWARD]);
    double block = 2.0 * 3 * (double)(m.hidden * m.hidden);
    assert_close(m.cross_plain ? other - with : with - other, block, 1e-6, "of one sub-block");
}

/* Two all-reduces a layer of T D w bytes, 2 (t-1)/t of each; the ring's keys and values. */
static void messages(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    const struct work_part *p = &build(&f, "tp=4,cp=2")->parts[WORK_LAYER_FORWARD];
    const struct work_message *tp = message_of(p, TRAFFIC_TP), *ring = message_of(p, TRAFFIC_RING);
    assert_non_null(tp);
    assert_non_null(ring);
    assert_close(tp->bytes, 2 * 3 / 4.0 * S / 2 * D * 2, 1e-12, "all-reduce");
    assert_true(tp->count == 2 && tp->hide == HIDE_NOTHING);
    assert_close(ring->bytes, 2.0 * S / 2 * D / 4 * 2, 1e-12, "keys and values");
    assert_true(ring->count == 1 && ring->hide == HIDE_ATTENTION);
    p = &build(&f, "cp=2,cp_kind=a2a")->parts[WORK_LAYER_FORWARD];
    const struct work_message *a2a = message_of(p, TRAFFIC_A2A);
    assert_non_null(a2a);
    assert_close(a2a->bytes * a2a->count, 1 / 2.0 * S / 2 * 4 * D * 2, 1e-12, "q, k, v, result");
    assert_null(message_of(p, TRAFFIC_RING));
}

/* The parts of zero: 16 bytes and more divided as they say; three messages with zero 3. */
static void sharded_state(void **state)
{
    struct fixture f;
    struct work_stage s;
    struct work_state t;
    double bytes[WORK_HELD];
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    for (int zero = 0; zero <= 3; zero++) {
        struct layout l = layout_of("dp=8");
        l.zero = zero;
        const struct work *w = build(&f, "dp=8");
        work_stage(w, &l, 0, &s);
        work_held(w, &l, &s, &as_said, bytes);
        work_state(w, &l, &t);
        double n = work_stage_elements(w, &s);
        assert_close(bytes[HELD_PARAMETERS], 2 * n / (zero == 3 ? 8 : 1), 1e-12, "parameters");
        assert_close(bytes[HELD_GRADIENTS], 4 * n / (zero >= 2 ? 8 : 1), 1e-12, "gradients");
        assert_close(bytes[HELD_OPTIMIZER], 12 * n / (zero ? 8 : 1), 1e-12, "optimizer");
        assert_close(t.bytes[STATE_REDUCE], (zero ? 1 : 2) * 7 / 8.0 * 4, 1e-12, "reduce");
        assert_close(t.bytes[STATE_GATHER_FORWARD], zero == 3 ? 7 / 8.0 * 2 : 0, 1e-12, "gather");
        assert_close(t.bytes[STATE_GATHER_STEP], zero == 1 || zero == 2 ? 7 / 8.0 * 2 : 0, 1e-12,
                     "after the step");
    }
}

/* The backward sends gradients beside keys and values round the ring, and as much as the forward
 * over tp and in the all-to-all. The head's gradient of its input is summed over tp once. */
static void messages_backward(void **state)
{
    static const struct { const char *layout; enum traffic_group group; double by; } rows[] = {
        {"tp=4,cp=2", TRAFFIC_TP, 1}, {"tp=4,sp=1", TRAFFIC_TP, 1}, {"cp=2", TRAFFIC_RING, 2},
        {"cp=2,cp_kind=a2a", TRAFFIC_A2A, 1}};
    struct fixture f;
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct work *w = build(&f, rows[i].layout);
        const struct work_message *forward = message_of(&w->parts[WORK_LAYER_FORWARD],
                                                        rows[i].group),
                                  *back = message_of(&w->parts[WORK_LAYER_BACKWARD], rows[i].group);
        assert_non_null(forward);
        assert_non_null(back);
        assert_close(back->bytes * back->count, rows[i].by * forward->bytes * forward->count,
                     1e-12, rows[i].layout);
    }
    const struct work_message *head = message_of(&build(&f, "tp=4")->parts[WORK_LAST_BACKWARD],
                                                 TRAFFIC_TP);
    assert_non_null(head);
    assert_close(head->bytes * head->count, 2 * 3 / 4.0 * S * D * 2, 1e-12, "the head's sum");
    assert_int_equal(head->kind, TRAFFIC_ALL_REDUCE);
}

/* Four shard groups of 2 in 8 replicas: half of the gradients is scattered inside a group, and what
 * is left is summed over the four ranks that own the same half. */
static void shard_groups(void **state)
{
    struct layout l = layout_of("dp=8,zero=1,fsdp=2");
    struct fixture f;
    struct work_state t;
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    work_state(build(&f, "dp=8,zero=1,fsdp=2"), &l, &t);
    assert_close(t.bytes[STATE_REDUCE], 1 / 2.0 * 4, 1e-12, "inside a group");
    assert_int_equal(t.group[STATE_REDUCE], TRAFFIC_SHARD);
    assert_close(t.bytes[STATE_REPLICAS], 2 * 3 / 4.0 * 4 / 2, 1e-12, "between groups");
    assert_int_equal(t.group[STATE_REPLICAS], TRAFFIC_REPLICA);
    assert_int_equal(t.kind[STATE_REPLICAS], TRAFFIC_ALL_REDUCE);
    assert_close(t.bytes[STATE_GATHER_STEP], 1 / 2.0 * 2, 1e-12, "weights");
    assert_int_equal(t.group[STATE_GATHER_STEP], TRAFFIC_SHARD);
}

/* Beside its pieces a sharded rank holds units that it gathers, of 2 bytes, and with zero 2 and 3
 * one whose gradients of 4 bytes are on their way. The head is the largest unit here, or a
 * layer. Stages have two buffers in each direction. */
static void units_in_use(void **state)
{
    static const struct { const char *layout; double bytes; } rows[] = {
        {"dp=8", 0}, {"dp=8,zero=1", 0}, {"dp=8,zero=2", 4}, {"dp=8,zero=3", 8}};
    struct fixture f;
    struct work_stage s;
    struct err err;
    double bytes[WORK_HELD];
    (void)state;
    fixture_open(&f, &gpt, "fsdp2");
    for (int small = 0; small < 2; small++) {
        f.m.vocab = small ? 8 : V;
        assert_ok(work_weights(&f.m, &f.weights, &err), &err);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            struct layout l = layout_of(rows[i].layout);
            const struct work *w = build(&f, rows[i].layout);
            work_stage(w, &l, 0, &s);
            work_held(w, &l, &s, &as_said, bytes);
            assert_close(bytes[HELD_GATHERED],
                         rows[i].bytes * w->unit_elements[small ? UNIT_LAYER : UNIT_LAST], 1e-12,
                         rows[i].layout);
            assert_true(bytes[HELD_BUFFERS] == 0);
        }
    }
    struct layout l = layout_of("pp=2");
    const struct work *w = build(&f, "pp=2");
    work_stage(w, &l, 0, &s);
    work_held(w, &l, &s, &as_said, bytes);
    assert_close(bytes[HELD_BUFFERS], 4.0 * S * D * 2, 1e-12, "messages between stages");
}

/* An embedding keeps 8 bytes of each token, and its dropout a mask. Where it is the head's matrix
 * too, this exists once more if the two are on different stages. */
static void embedding(void **state)
{
    struct layout one = layout_of(""), l = layout_of("pp=2,tp=2");
    struct model tied = gpt;
    struct fixture f;
    struct work_stage s;
    double bytes[2][WORK_HELD];
    (void)state;
    tied.tied_head = true;
    fixture_open(&f, &tied, "megatron");
    for (int mask = 0; mask < 2; mask++) {
        f.k.dropout = mask;
        assert_close(build(&f, "")->first_kept, S * (8.0 + mask * D), 1e-12, "of each token");
        work_stage(&f.w, &one, 0, &s);
        work_held(&f.w, &one, &s, &as_said, bytes[0]);
        s.first = false;
        work_held(&f.w, &one, &s, &as_said, bytes[1]);
        assert_close(bytes[0][HELD_ACTIVATIONS] - bytes[1][HELD_ACTIVATIONS],
                     S * (8.0 + mask * D), 1e-12, "of the first stage");
    }
    double alone = build(&f, "tp=2")->unit_elements[UNIT_LAST];
    assert_close(build(&f, "pp=2,tp=2")->unit_elements[UNIT_LAST], alone + V * D / 2.0, 1e-12,
                 "a tied head");
    work_stage(&f.w, &l, 1, &s);
    assert_close(work_stage_elements(&f.w, &s),
                 3 * f.w.unit_elements[UNIT_LAYER] + alone + V * D / 2.0, 1e-12, "last stage");
}

/* A stack that keeps gathered inputs has those of the other ranks beside its own: of two products in
 * each layer. Dropout reads and writes 5 bytes more of each score. */
static void kept_and_dropped(void **state)
{
    struct fixture f;
    double stream[2], scores[2];
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    f.k.attention = ATTENTION_SCORES;
    for (int i = 0; i < 2; i++) {
        f.k.keeps_gathered = f.k.dropout = false;
        f.k.keeps_gathered = i;
        stream[i] = build(&f, "tp=4,sp=1")->kept.stream;
        f.k.keeps_gathered = false, f.k.dropout = i;
        scores[i] = build(&f, "tp=4")->parts[WORK_LAYER_FORWARD].attentions[0].score_bytes;
    }
    assert_close(stream[1] - stream[0], 2 * 3 / 4.0 * S * D * 2, 1e-12, "gathered");
    assert_close(scores[1] - scores[0], 5.0 * S * S * HEADS / 4, 1e-12, "dropped scores");
    assert_close(scores[0], 18.0 * S * S * HEADS / 4, 1e-12, "scores");
}

/* The update reads gradient, state and average, and writes the latter two and the weight. */
static void update(void **state)
{
    struct layout l = layout_of("dp=4,zero=1");
    struct fixture f;
    struct work_moved moved;
    struct work_stage s;
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    for (int ema = 0; ema < 2; ema++) {
        f.spec.ema = ema;
        const struct work *w = build(&f, "dp=4,zero=1");
        work_stage(w, &l, 0, &s);
        work_moved(w, &l, &s, &moved);
        double n = work_stage_elements(w, &s) / 4;
        assert_close(moved.update, n * (4 + 2 * 12 + 2 + (ema ? 8 : 0)), 1e-12, "the update");
        assert_close(moved.norm, n * 4, 1e-12, "the norm");
    }
}

/* Frozen weights, beside which small adapters are trained: the backward has the products of inputs
 * alone, as many FLOPs as the forward, and nothing is added up, reduced, kept of an optimizer or
 * updated. With zero 3 the weights are still gathered. */
static void frozen_weights(void **state)
{
    struct fixture f;
    struct layout l = layout_of("dp=8,zero=1,mbs=2"), whole = layout_of("dp=8,zero=3,mbs=2");
    struct work_stage s;
    struct work_state t;
    struct work_moved moved;
    double bytes[WORK_HELD];
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    f.spec.frozen = true;
    const struct work_part *p = build(&f, "dp=8,zero=1,mbs=2")->parts;
    assert_close(gemm_flops(&p[WORK_LAYER_BACKWARD]), gemm_flops(&p[WORK_LAYER_FORWARD]), 1e-12,
                 "of a layer");
    assert_close(gemm_flops(&p[WORK_LAST_BACKWARD]), 2.0 * 2 * S * D * V, 1e-12, "of the head");
    assert_true(p[WORK_LAYER_BACKWARD].sum_bytes == 0);
    work_stage(&f.w, &l, 0, &s);
    work_held(&f.w, &l, &s, &as_said, bytes);
    assert_close(bytes[HELD_PARAMETERS], 2 * work_stage_elements(&f.w, &s), 1e-12, "weights");
    assert_true(bytes[HELD_GRADIENTS] == 0 && bytes[HELD_OPTIMIZER] == 0);
    work_moved(&f.w, &l, &s, &moved);
    assert_true(moved.update == 0 && moved.norm == 0);
    work_state(&f.w, &l, &t);
    assert_true(t.bytes[STATE_REDUCE] == 0 && t.bytes[STATE_GATHER_STEP] == 0);
    fixture_open(&f, &gpt, "fsdp");
    f.spec.frozen = true;
    build(&f, "dp=8,zero=3,mbs=2");
    work_state(&f.w, &whole, &t);
    assert_true(t.bytes[STATE_REDUCE] == 0 && t.bytes[STATE_GATHER_FORWARD] > 0);
}

/* Selective recomputation may repeat the MLP, with its two products of 2 T D F/t FLOPs and its sum
 * over tp; then the 4 F/t bytes of a token inside it are not kept. */
static void again_mlp(void **state)
{
    struct fixture f;
    const double T = 2 * S;
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    build(&f, "tp=2,sp=1,mbs=2");
    assert_int_equal(f.w.parts[WORK_LAYER_SELECTIVE].n_gemms, 0);
    assert_int_equal(f.w.parts[WORK_LAYER_SELECTIVE].n_attentions, 1);
    for (unsigned again = WORK_AGAIN_MLP; again <= (WORK_AGAIN_MLP | WORK_AGAIN_ATTENTION);
         again++) {
        f.spec.again = again;
        const struct work_part *p = &build(&f, "tp=2,sp=1,mbs=2")->parts[WORK_LAYER_SELECTIVE];
        assert_int_equal(p->n_attentions, again & WORK_AGAIN_ATTENTION ? 1 : 0);
        assert_close(gemm_flops(p), 2 * 2 * T * D * F / 2, 1e-12, "products");
        assert_close(p->bytes, 2 * T * 2 * F / 2, 1e-12, "the activation");
        assert_int_equal(p->n_messages, 2);
        assert_close(p->messages[0].bytes * p->messages[0].count, T * D * 2 / 2, 1e-12, "gather");
        assert_close(f.w.kept.none - f.w.kept.selective, T * 4 * F / 2, 1e-12, "what is not kept");
    }
}

/* A parallel block has one norm, one input of products and one sum over tp, and adds both results
 * to the stream at once: of 2 numbers of a norm and 3 of a residual for each of two sub-blocks 2 and
 * 2 go. */
static void parallel_block(void **state)
{
    struct fixture one, two;
    (void)state;
    fixture_open(&one, &gpt, "megatron"), fixture_open(&two, &gpt, "megatron");
    one.k.parallel_block = true;
    const struct work_part *p = &build(&one, "tp=2,mbs=2")->parts[WORK_LAYER_FORWARD],
                           *q = &build(&two, "tp=2,mbs=2")->parts[WORK_LAYER_FORWARD];
    assert_close(q->bytes - p->bytes, 2 * 2.0 * S * 4 * D, 1e-12, "bytes");
    assert_true(p->n_messages == 1 && q->n_messages == 1);
    assert_true(p->messages[0].count == 1 && q->messages[0].count == 2);
    assert_true(p->messages[0].bytes == q->messages[0].bytes);
    assert_close(two.w.kept.none - one.w.kept.none, 2 * S * 4.0 * D, 1e-12, "kept");
    assert_close(gemm_flops(p), gemm_flops(q), 1e-12, "products");
}

/* With products in fp8 under Transformer Engine: of the 32 bytes for each number of the stream that a
 * layer keeps of a token, the inputs of two products take 1 less, and the MLP's second input, four
 * times as wide, 4; a copy of the attention's result takes 1 more. Weights of layers have two copies
 * of a byte; or they are kept so and gathered in one. */
static void in_fp8(void **state)
{
    static const struct { const char *stack; double kept, copies, gathered; } rows[] = {
        {"megatron", 32 - 2 - 4 + 1, 2, 2},
        {"megatron-bridge", 32 - 2 - 4 + 1, 0, 1},
        {"fsdp", 32 - 2 - 4 + 1, 0, 2},
        {"fsdp2", 32, 0, 2},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fixture f;
        struct layout l = layout_of("dp=8,zero=1,mbs=2");
        struct work_stage s;
        struct work_state t;
        double wide[WORK_HELD], bytes[WORK_HELD];
        fixture_open(&f, &gpt, rows[i].stack);
        for (int fp8 = 0; fp8 < 2; fp8++) {
            f.spec.fp8 = fp8;
            build(&f, "dp=8,zero=1,mbs=2");
            work_stage(&f.w, &l, 0, &s);
            work_held(&f.w, &l, &s, &as_said, fp8 ? bytes : wide);
            assert_close(f.w.kept.none, 2.0 * S * D * (fp8 ? rows[i].kept : 32), 1e-12, "kept");
        }
        double layers = 6 * f.w.unit_elements[UNIT_LAYER];
        assert_close(bytes[HELD_PARAMETERS] - wide[HELD_PARAMETERS], rows[i].copies * layers, 1e-9,
                     "copies of weights");
        assert_true(bytes[HELD_OPTIMIZER] == wide[HELD_OPTIMIZER]);
        work_state(&f.w, &l, &t);
        assert_close(t.layer_bytes[STATE_GATHER_STEP], 7 / 8.0 * rows[i].gathered, 1e-12, "gather");
        assert_close(t.bytes[STATE_GATHER_STEP], 7 / 8.0 * 2, 1e-12, "gather beside the layers");
        assert_close(t.layer_bytes[STATE_REDUCE], t.bytes[STATE_REDUCE], 1e-12, "reduce");
    }
}

/* Returns the bytes that one layer's backward uses with full recomputation. */
static double layer_bytes(const struct work *w)
{ return w->layer_work + w->kept.none - w->kept.full; }

/* Logits that every rank has whole are 16 bytes, and 4 more where they are gathered, in this stack,
 * of which half of a layer's bytes stays beside them. A layer that uses more than that has them
 * alone, and so has a stage without a head. */
static void largest(void **state)
{
    struct fixture f;
    struct work_stage s;
    double bytes[WORK_HELD];
    static const char *const layouts[] = {"recompute=full", "tp=2,recompute=full",
                                          "tp=2,pp=2,recompute=full"};
    (void)state;
    fixture_open(&f, &gpt, "scaling");
    for (int small = 0; small < 2; small++) {
        f.m.vocab = small ? 8 : V;
        for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
            struct layout l = layout_of(layouts[i]);
            const struct work *w = build(&f, layouts[i]);
            bool logits = !small && i < 2;
            work_stage(w, &l, 0, &s);
            work_held(w, &l, &s, &as_said, bytes);
            assert_close(w->logits, S * (double)f.m.vocab * (i ? 20 : 16) + 2.0 * S * D * 2, 1e-12,
                         "the peak of logits");
            assert_close(bytes[HELD_LOGITS], logits ? w->logits : 0, 1e-12, "logits");
            assert_close(bytes[HELD_WORKSPACE], layer_bytes(w) * (logits ? 0.5 : 1), 1e-12,
                         "of a layer");
        }
    }
}

/* 1F1B holds min(p - s, m) micro-batches, the interleaved first stage p (1 + (p-1)/(p v)); an
 * uneven cut gives the first chunks one layer more. */
static void stages(void **state)
{
    struct fixture f;
    struct work_stage s;
    struct layout l = layout_of("pp=4,recompute=full,recompute_layers=1");
    (void)state;
    fixture_open(&f, &gpt, "megatron");
    const struct work *w = build(&f, "pp=4");
    work_stage(w, &l, 0, &s);
    assert_true(s.layers == 2 && s.full == 1 && s.first && !s.last && s.in_flight == 4);
    work_stage(w, &l, 3, &s);
    assert_true(s.layers == 1 && s.full == 1 && !s.first && s.last && s.in_flight == 1);
    l.recompute_layers = 2; /* the first chunk has two layers, the last one */
    work_stage(w, &l, 0, &s);
    assert_true(s.full == 2);
    work_stage(w, &l, 3, &s);
    assert_true(s.full == 1);
    l = layout_of("pp=2,vpp=3");
    work_stage(build(&f, "pp=2,vpp=3"), &l, 0, &s);
    assert_close(s.in_flight, 2 * (1 + 1 / 6.0), 1e-12, "interleaved");
    assert_true(s.layers == 3);
}

/* The units are the parameter list, whatever the family. */
static void units(void **state)
{
    static const char *const names[] = {"dit-7b", "stdit-tiny", "moviegen-tiny", "dit-28b+full"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct model m;
        struct fixture f;
        struct param_list list;
        struct work_stage s;
        struct layout l = layout_default();
        struct err err;
        assert_ok(model_load(names[i], &m, &err), &err);
        assert_ok(params_build(&m, &list, &err), &err);
        fixture_open(&f, &m, "megatron");
        work_stage(build(&f, ""), &l, 0, &s);
        assert_close(work_stage_elements(&f.w, &s), (double)list.total, 1e-12, names[i]);
        params_release(&list);
    }
}

static double count_of(const struct work_part *p, enum traffic_group g, enum traffic_kind k,
                       double bytes)
{
    double sum = 0;
    for (int i = 0; i < p->n_messages; i++)
        if (p->messages[i].group == g && p->messages[i].kind == k && p->messages[i].bytes == bytes)
            sum += p->messages[i].count;
    return sum;
}

static void wan_open(struct fixture *f, const char *stack)
{
    struct model m;
    struct err err;
    assert_ok(model_load("wan-14b", &m, &err), &err);
    fixture_open(f, &m, stack);
    f->spec.seq = (struct seq){24, 52, 30}, f->spec.gbs = 128;
}

/* DFM's layout of Wan: 37,440 tokens over a ring of 4, so 9,360 of a rank and 4,680 of its residual
 * stream; D 5,120, F 13,824. Forward 4,680 x 19 D and 9,360 x (6 D + 2 F)/2 numbers of 2 bytes, as
 * anywhere; 9,360 x 3 D (6 + 4/2) of gathered queries and keys; 9,360/2 x (3 x 4 x 2 D + 4 D) of the
 * ring's steps. Backward twice the first two, 3 D (7 + 0/2), 3 x 4 x 2 D + 10 x 4 D. */
static void gathered_heads(void **state)
{
    struct fixture f;
    const double row = 9360 * 5120 * 2.0, text = 2 * 128 * 5120 / 2 * 2.0;
    (void)state;
    wan_open(&f, "dfm");
    const struct work_part *p = build(&f, "tp=2,sp=1,cp=4,dp=16")->parts,
                           *there = &p[WORK_LAYER_FORWARD], *back = &p[WORK_LAYER_BACKWARD];
    double common = 910540800.0 + 546324480.0;
    assert_close(there->bytes, common + 24 * row + 14 * row, 1e-12, "forward");
    assert_close(back->bytes, 2 * common + 21 * row + 32 * row, 1e-12, "backward");
    assert_close(p[WORK_LAYER_FULL].bytes, there->bytes, 0, "again");
    for (int i = 0; i < 2; i++) { /* as many gathers again as for the three sub-blocks */
        assert_true(count_of(i ? back : there, TRAFFIC_TP, TRAFFIC_ALL_GATHER, row / 2) == 6);
        assert_true(count_of(i ? back : there, TRAFFIC_TP, TRAFFIC_REDUCE_SCATTER, row / 2) == 3);
        assert_true(count_of(i ? back : there, TRAFFIC_RING, TRAFFIC_SEND_RECV, (i + 1) * row) == 3);
        assert_true(count_of(i ? back : there, TRAFFIC_RING, TRAFFIC_SEND_RECV, (i + 1) * text) == 3);
    }
    const struct work_attention *a = &there->attentions[1];
    assert_true(a->q == 9360 && a->k == 128 && a->heads == 20 && a->count == 4);
}

/* Without a ring and tensor parallelism DFM's layer is like another's, and so is a language model's. */
static void gathered_nothing(void **state)
{
    static const char *const layouts[] = {"dp=8", "tp=2,cp=2,dp=2"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture dfm, other;
        wan_open(&dfm, "dfm"), wan_open(&other, "megatron");
        if (i) {
            fixture_open(&dfm, &gpt, "dfm");
            fixture_open(&other, &gpt, "megatron");
        }
        const struct work_part *a = build(&dfm, layouts[i])->parts,
                               *b = build(&other, layouts[i])->parts;
        for (int k = WORK_LAYER_FORWARD; k <= WORK_LAYER_BACKWARD; k++) {
            assert_close(a[k].bytes, b[k].bytes, 0, "bytes");
            assert_int_equal(a[k].n_messages, b[k].n_messages);
        }
    }
}

/* Bytes of 37,440 tokens, each operation alone: forward (2 x 36 + 20 + 68 + 6) D, 4 x 3 D of norms,
 * 24 x 2 D of rotation, 4 F; backward (2 x 52 + 32 + 82 + 18 + 12 + 6) D, 10 x 3 D, 39 x 2 D, 6 F, and
 * 2 (4 D + F) of results. */
static void eager(void **state)
{
    struct fixture f;
    const double there = 226.0 * 5120 + 4 * 13824, back = 370.0 * 5120 + 8 * 13824;
    (void)state;
    wan_open(&f, "automodel");
    const struct work_part *p = build(&f, "dp=8,zero=3")->parts;
    assert_close(p[WORK_LAYER_FORWARD].bytes, 37440 * there, 1e-12, "forward");
    assert_close(p[WORK_LAYER_BACKWARD].bytes, 37440 * back, 1e-12, "backward");
    assert_true(p[WORK_LAYER_FORWARD].norm_bytes == 0 && p[WORK_LAYER_BACKWARD].norm_bytes == 0);
}

/* DeepSpeed's pipeline leaves a micro-batch's gradient beside the sum, both of 2 bytes: both are
 * read and one is written. Megatron's products add to the sum of 4 bytes themselves. */
static void sums_apart(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, &gpt, "megatron-deepspeed");
    build(&f, "mbs=2");
    double n = f.w.unit_elements[UNIT_LAYER];
    assert_close(f.w.parts[WORK_LAYER_BACKWARD].sum_bytes, 6 * n, 1e-12, "by operations");
    fixture_open(&f, &gpt, "megatron");
    assert_close(build(&f, "mbs=2")->parts[WORK_LAYER_BACKWARD].sum_bytes, 8 * n, 1e-12,
                 "by products");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations), cmocka_unit_test(work_of_layer),
        cmocka_unit_test(copied_heads), cmocka_unit_test(modulation),
        cmocka_unit_test(text_mlp), cmocka_unit_test(messages),
        cmocka_unit_test(messages_backward), cmocka_unit_test(sharded_state),
        cmocka_unit_test(shard_groups), cmocka_unit_test(units_in_use),
        cmocka_unit_test(embedding), cmocka_unit_test(kept_and_dropped),
        cmocka_unit_test(update), cmocka_unit_test(stages),
        cmocka_unit_test(frozen_weights), cmocka_unit_test(again_mlp),
        cmocka_unit_test(parallel_block),
        cmocka_unit_test(units), cmocka_unit_test(largest),
        cmocka_unit_test(in_fp8), cmocka_unit_test(gathered_heads),
        cmocka_unit_test(gathered_nothing), cmocka_unit_test(eager),
        cmocka_unit_test(sums_apart),
    };
    return cmocka_run_group_tests_name("profiles_work", tests, NULL, NULL);
}
