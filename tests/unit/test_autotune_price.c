/* Prices and footprints: each formula computed by hand on a machine of round numbers; terms that add
 * up; the bound below the replay; what may only make a step shorter, or a layout likelier to fit. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/footprint.h"
#include "autotune/price_work.h"

static const struct model gpt = {.name = "g", .family = MODEL_GPT, .layers = 10, .hidden = 1024,
                                 .heads = 16, .kv_heads = 16, .ffn = 4096, .vocab = 32000,
                                 .patch_t = 1, .patch_h = 1, .patch_w = 1};

struct fixture {
    struct stack k;
    struct cluster c;
    struct work_weights weights;
    struct work_spec spec;
    double v[CONSTANTS];
    struct price_machine machine;
    struct work w;
    struct price p;
};

static void fixture_open(struct fixture *f, const char *stack, const char *cluster)
{
    static struct constants none;
    struct err err;
    *f = (struct fixture){0};
    assert_ok(stack_load(stack, &f->k, &err), &err);
    assert_ok(cluster_load(cluster, &f->c, &err), &err);
    assert_ok(work_weights(&gpt, &f->weights, &err), &err);
    constants_resolve(&none, &f->c.device, &f->k, f->v);
    f->spec = (struct work_spec){.model = &gpt, .stack = &f->k, .weights = &f->weights,
                                 .seq = {1, 1, 2048}, .gbs = 64, .act = DTYPE_BF16};
}

static struct layout layout_of(const char *text)
{
    struct layout l;
    struct err err;
    assert_ok(layout_parse(text, &l, &err), &err);
    return l;
}

static struct price_step price(struct fixture *f, const char *text)
{
    struct layout l = layout_of(text);
    struct price_step s;
    work_build(&f->spec, &l, &f->w);
    price_machine(&f->c, f->v, DTYPE_BF16, false, &f->machine);
    price_parts(&f->machine, &f->w, &f->p);
    price_step(&f->p, &l, &s);
    return s;
}

/* A group of 8 in a node goes by links; one of 16 over two nodes has all 8 NICs, and one of 2 whose
 * ranks are 8 apart shares them with the 7 others of its node. */
static void messages(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:2");
    f.c.node = (struct node_profile){.devices = 8, .link_bytes_per_s = 200e9, .nics = 8,
                                     .nic_bytes_per_s = 20e9};
    f.v[CONSTANT_LINK_SHARE] = f.v[CONSTANT_NIC_SHARE] = 0.5;
    price_machine(&f.c, f.v, DTYPE_BF16, false, &f.machine);
    const struct price_machine *m = &f.machine;
    double inside = price_message(m, price_row(8, 1), TRAFFIC_ALL_REDUCE, 1e9);
    double ring = price_message(m, price_row(16, 1), TRAFFIC_ALL_REDUCE, 1e9);
    double shared = price_message(m, price_row(2, 8), TRAFFIC_ALL_REDUCE, 1e9);
    double exchange = price_message(m, price_row(16, 1), TRAFFIC_ALL_TO_ALL, 1e9);
    f.c.node.link_latency_s = 1e-6;
    assert_close(price_message(m, price_row(8, 1), TRAFFIC_ALL_REDUCE, 1e9), inside + 14e-6, 1e-12,
                 "two rounds of the ring, of seven steps");
    assert_close(price_message(m, price_row(8, 1), TRAFFIC_ALL_GATHER, 1e9), inside + 7e-6, 1e-12,
                 "one round");
    assert_close(price_message(m, price_row(8, 1), TRAFFIC_SEND_RECV, 1e9), inside + 1e-6, 1e-12,
                 "one step");
    f.c.node.nic_latency_s = 5e-6;
    assert_close(price_message(m, price_row(16, 1), TRAFFIC_ALL_REDUCE, 1e9), ring + 8e-6, 1e-12,
                 "one hop between nodes, three inside");
    assert_close(inside, 1e9 / 100e9, 1e-12, "links");
    assert_close(ring, 1e9 / 80e9, 1e-12, "one ring on all NICs");
    assert_close(shared, 8e9 / 80e9, 1e-12, "eight groups on all NICs");
    assert_close(exchange, 8e9 * 8 / 15 / 80e9, 1e-12, "eight of fifteen peers are elsewhere");
    assert_true(price_message(m, price_row(1, 1), TRAFFIC_ALL_REDUCE, 1e9) == 0);
}

/* Eight nodes of 8 under leaves of 4, whose uplinks are a third of their downlinks: of a row of 64,
 * one rank in 32 sends what leaves a leaf, of pairs 32 apart each one. */
static void leaves(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:8");
    f.c.node = (struct node_profile){.devices = 8, .link_bytes_per_s = 1e20, .nics = 8,
                                     .nic_bytes_per_s = 10e9};
    f.c.leaf_nodes = 4, f.c.spine_oversubscription = 3, f.c.switch_latency_s = 0;
    f.v[CONSTANT_LINK_SHARE] = f.v[CONSTANT_NIC_SHARE] = 1;
    price_machine(&f.c, f.v, DTYPE_BF16, false, &f.machine);
    const struct price_machine *m = &f.machine;
    double row = price_message(m, price_row(64, 1), TRAFFIC_ALL_REDUCE, 1e9);
    double near = price_message(m, price_row(4, 8), TRAFFIC_ALL_REDUCE, 1e9);
    double pair = price_message(m, price_row(2, 32), TRAFFIC_ALL_REDUCE, 1e9);
    double exchange = price_message(m, price_row(64, 1), TRAFFIC_ALL_TO_ALL, 1e9);
    assert_close(row, 1e9 / 80e9, 1e-12, "one ring crosses once");
    assert_close(near, 8e9 / 80e9, 1e-12, "eight groups under one leaf");
    assert_close(pair, 32e9 / (320e9 / 3), 1e-12, "thirty-two groups on the uplinks");
    assert_close(exchange, 32e9 * 32 / 63 / (320e9 / 3), 1e-12, "half of the peers");
    f.c.switch_latency_s = 1e-3;
    assert_close(price_message(m, price_row(4, 8), TRAFFIC_ALL_REDUCE, 1e9), near, 1e-12, "leaf");
    assert_close(price_message(m, price_row(2, 32), TRAFFIC_ALL_REDUCE, 1e9), pair + 2e-3, 1e-12,
                 "two switches more");
}

static bool with_rank_0(const struct layout *l, struct layout_place p, enum traffic_group group)
{
    int64_t data = layout_data_rank(l, p), shard = layout_shard_group(l);
    switch (group) {
    case TRAFFIC_TP: return !p.cp && !p.dp && !p.pp;
    case TRAFFIC_CP: return !p.tp && !p.dp && !p.pp;
    case TRAFFIC_PP: return !p.tp && !p.cp && !p.dp;
    case TRAFFIC_SHARD: return !p.tp && !p.pp && data < shard;
    default: return !p.tp && !p.pp && data % shard == 0;
    }
}

/* In every order, what leaves a domain follows from how many of a group's ranks are in it. */
static void orders(void **state)
{
    static const enum traffic_group groups[] = {TRAFFIC_TP, TRAFFIC_CP, TRAFFIC_PP, TRAFFIC_SHARD,
                                                TRAFFIC_REPLICA};
    static const int64_t shards[] = {0, 2, 8};
    struct layout l = layout_default();
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:4");
    f.c.node = (struct node_profile){.devices = 8, .link_bytes_per_s = 1e20, .nics = 8,
                                     .nic_bytes_per_s = 10e9};
    f.v[CONSTANT_LINK_SHARE] = f.v[CONSTANT_NIC_SHARE] = 1;
    price_machine(&f.c, f.v, DTYPE_BF16, false, &f.machine);
    l.tp = 2, l.cp = 2, l.dp = 4, l.pp = 2, l.zero = 1;
    for (l.order = 0; l.order < LAYOUT_ORDERS; l.order++)
        for (size_t i = 0; i < ARRAY_LEN(groups) * ARRAY_LEN(shards); i++) {
            enum traffic_group group = groups[i % ARRAY_LEN(groups)];
            double near = 0, all = 0;
            l.fsdp = shards[i / ARRAY_LEN(groups)];
            for (int64_t r = 0; r < 32; r++)
                if (with_rank_0(&l, layout_place(&l, r), group))
                    near += r < 8, all++;
            double s = price_message(&f.machine, price_group(&l, &gpt, group), TRAFFIC_ALL_REDUCE,
                                     1e9);
            assert_close(s, near == all ? 1e-11 * (all > 1) : 1e9 * 8 / near / 80e9, 1e-12,
                         layout_order_names[l.order]);
        }
}

/* [2048, 1024] x [1024, 3072] and so on at the peak, twice that backward, with no half sizes. */
static void products(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    f.v[CONSTANT_GEMM_HALF] = 0;
    f.v[CONSTANT_GEMM_SHARE] = 0.5;
    f.v[CONSTANT_COMPUTE] = 1;
    f.c.device.memory_bytes_per_s = 1e18;
    struct price_step s = price(&f, "dp=8");
    double layer = 6 * 2048.0 * (4 + 8) * 1024 * 1024, head = 6 * 2048.0 * 1024 * 32000;
    double peak = f.c.device.peak_flops[DTYPE_BF16];
    assert_close(s.term[PRICE_GEMM], 8 * (10 * layer + head) / (0.5 * peak), 1e-12, "gemm");
    f.v[CONSTANT_ATTENTION_HALF] = 0;
    f.v[CONSTANT_ATTENTION_FORWARD] = f.v[CONSTANT_ATTENTION_BACKWARD] = 0.25;
    s = price(&f, "dp=8");
    assert_close(s.term[PRICE_ATTENTION],
                 8 * 10 * 3.5 * 4 * 2048.0 * 2048 / 2 * 1024 / (0.25 * peak), 1e-12, "attention");
    struct price_step other;
    f.k.attention = ATTENTION_FLASH1, f.v[CONSTANT_FLASH1_SHARE] = 0.5;
    other = price(&f, "dp=8");
    assert_close(other.term[PRICE_ATTENTION], 2 * s.term[PRICE_ATTENTION], 1e-12, "the first one");
    f.v[CONSTANT_ATTENTION_HALF] = 1024;
    other = price(&f, "dp=8");
    assert_close(other.term[PRICE_ATTENTION], 3 * s.term[PRICE_ATTENTION], 1e-12, "few queries");
}

/* What hides is told apart, and is what the step would take longer: messages between stages under
 * other micro-batches, keys and values under attention. */
static void hidden_apart(void **state)
{
    struct price_step under, open;
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    f.k.sends_overlap = true;
    under = price(&f, "pp=2,dp=4");
    f.k.sends_overlap = false;
    open = price(&f, "pp=2,dp=4");
    assert_true(under.hidden[PRICE_PP] > 0 && open.hidden[PRICE_PP] == 0);
    assert_close(open.term[PRICE_PP] - under.term[PRICE_PP], under.hidden[PRICE_PP], 1e-9, "pp");
    under = price(&f, "cp=2,dp=4");
    double ring = price_message(&f.machine, price_row(2, 1), TRAFFIC_SEND_RECV, 1024 * 1024 * 4.0),
           back = price_message(&f.machine, price_row(2, 1), TRAFFIC_SEND_RECV, 1024 * 1024 * 8.0);
    assert_close(under.hidden[PRICE_CP], 16 * 10 * (ring + back), 1e-9, "cp");
    assert_close(under.term[PRICE_CP], 16 * 10 * 2 * f.v[CONSTANT_SUM_S], 1e-9, "what is left");
}

/* Norms in several operations move 24 bytes more for a number, 2 of them in a layer and twice as
 * much backward. The slowest of n nodes is waited for log2(n) times. */
static void norms_and_spread(void **state)
{
    struct price_step fused, several;
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:4");
    f.v[CONSTANT_NORM_PASSES] = 3, f.v[CONSTANT_SPREAD] = 0.01;
    f.k.fused_norm = true;
    fused = price(&f, "dp=32");
    f.k.fused_norm = false;
    several = price(&f, "dp=32");
    assert_close(several.term[PRICE_ELEMENTWISE] - fused.term[PRICE_ELEMENTWISE],
                 2 * 10 * 3 * 24 * 2 * 2048.0 * 1024 * 3 * f.v[CONSTANT_COMPUTE] /
                     f.machine.copy_bytes, 1e-9, "norms");
    double sum = fused.seconds - fused.term[PRICE_SPREAD] - fused.term[PRICE_OVERHEAD];
    assert_close(fused.term[PRICE_SPREAD], 0.01 * 2 * sum, 1e-12, "four nodes");
}

/* A side is even at multiples of 64, and of 8; a fraction is no multiple of either. */
static void sides(void **state)
{
    const struct price_machine m = {.v = {[CONSTANT_RAGGED] = 0.5}};
    static const struct { double side, factor; } cases[] = {
        {128, 1}, {1, 4}, {72, 2}, {100, 4}, {64.5, 4}, {8.5, 4}, {7.5, 4}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_close(price_ragged(&m, cases[i].side), cases[i].factor, 1e-15, "a side");
}

/* What the terms are spent on: the products above, and messages and state by hand. */
static void amounts(void **state)
{
    struct fixture f;
    struct layout l = layout_of("tp=2,pp=2,dp=2,zero=1");
    double work[PRICE_TERMS];
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    struct price_step s = price(&f, "tp=2,pp=2,dp=2,zero=1");
    price_work(&f.p, &l, &s, work);
    double layer = 6 * 2048.0 * (4 + 8) * 1024 * 1024, head = 6 * 2048.0 * 1024 * 32000, m = 32;
    assert_int_equal(s.stage, 1); /* it has the head */
    assert_close(work[PRICE_GEMM], m * (5 * layer + head) / 2, 1e-12, "FLOPs");
    /* in each layer two sums forward and two backward; and the head's, of the input's gradient */
    assert_close(work[PRICE_TP], m * (5 * 4 + 1) * 2048 * 1024 * 2.0, 1e-12, "sums");
    assert_close(work[PRICE_PP], m * 2048 * 1024 * 2.0 / (f.k.sends_divided ? 2 : 1), 1e-12,
                 "the last stage sends gradients alone");
    /* what is added up is read and written, of the layers and of the head, beside activations */
    double added = 5 * f.w.parts[WORK_LAYER_BACKWARD].sum_bytes +
                   f.w.parts[WORK_LAST_BACKWARD].sum_bytes;
    assert_close(added, 2 * 4 * (5 * f.w.unit_elements[UNIT_LAYER] +
                                 f.w.unit_elements[UNIT_LAST]), 1e-12, "gradients");
    struct work_stage stage;
    work_stage(&f.w, &l, 1, &stage);
    assert_close(work[PRICE_GATHER], work_stage_elements(&f.w, &stage) / 2 * 2, 1e-12, "gathers");
}

/* An operation takes kernel_s besides its work; where work is less than the host needs to start
 * operations, that decides. */
static void operations(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    f.v[CONSTANT_LAUNCH_S] = 1e-12, f.v[CONSTANT_KERNEL_S] = 1e-6;
    struct price_step s = price(&f, "dp=8");
    double n = 0;
    for (int i = WORK_LAYER_FORWARD; i <= WORK_LAYER_BACKWARD; i++)
        n += 10 * f.w.parts[i].kernels;
    n += f.w.parts[WORK_FIRST_FORWARD].kernels + f.w.parts[WORK_FIRST_BACKWARD].kernels +
         f.w.parts[WORK_LAST_FORWARD].kernels + f.w.parts[WORK_LAST_BACKWARD].kernels;
    assert_close(s.term[PRICE_LAUNCH], 8 * n * 1e-6, 1e-12, "the device's own");
    f.v[CONSTANT_LAUNCH_S] = 1;
    s = price(&f, "dp=8");
    assert_close(s.term[PRICE_LAUNCH] + s.term[PRICE_GEMM] + s.term[PRICE_ATTENTION] +
                     s.term[PRICE_ELEMENTWISE], 8 * n, 1e-12, "the host's");
    f.v[CONSTANT_SUM_S] = 0;
    double sums = price(&f, "tp=2,dp=4").term[PRICE_TP];
    f.v[CONSTANT_SUM_S] = 1;
    assert_close(price(&f, "tp=2,dp=4").term[PRICE_TP] - sums, 16 * (10 * 4 + 1), 1e-9,
                 "a second for each sum");
}

/* A middle stage sends both ways with each of its chunks; the first sends no gradient of its first
 * chunk, and the last no activation of its last one. */
static void senders(void **state)
{
    static const struct { int64_t stage; double sends[2]; } rows[] = {
        {0, {3, 2}}, {1, {3, 3}}, {3, {2, 3}}};
    struct fixture f;
    struct work_stage s;
    struct layout l = layout_of("pp=4,vpp=3");
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    price(&f, "pp=4");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        work_stage(&f.w, &l, rows[i].stage, &s);
        assert_true(s.sends[0] == rows[i].sends[0] && s.sends[1] == rows[i].sends[1]);
    }
    l = layout_of("");
    work_stage(&f.w, &l, 0, &s);
    assert_true(s.sends[0] == 0 && s.sends[1] == 0);
}

static const char *const layouts[] = {
    "dp=8", "dp=8,zero=1", "dp=8,zero=3", "dp=8,zero=3,fsdp=4,recompute=full", "tp=8", "tp=4,sp=1,dp=2",
    "cp=4,dp=2", "cp=4,cp_kind=a2a,dp=2", "pp=4,dp=2", "pp=3,tp=2,recompute=selective",
    "pp=2,vpp=5,dp=4,mbs=2", "pp=8", "pp=7,recompute=full,recompute_layers=1", "dp=16,zero=2,mbs=4",
    "tp=2,pp=2,dp=4,zero=1,mbs=2",
};

static void terms_add_up(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-h100:2");
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        struct price_step s = price(&f, layouts[i]);
        double sum = 0;
        for (int t = 0; t < PRICE_TERMS; t++) {
            assert_true(s.term[t] >= 0 && s.hidden[t] >= 0);
            sum += s.term[t];
        }
        assert_close(sum, s.seconds, 1e-12, layouts[i]);
    }
}

static double computes(const struct price_part *p)
{ return p->gemm + p->attention + p->elementwise + p->inputs + p->launch; }

/* Gradients that are scattered in each micro-batch can hide under a share of the backward of layers
 * and head, whether they need all of it or not. Weights that are gathered for the next step can hide
 * under the same share of one forward. */
static void rooms_by_hand(void **state)
{
    struct fixture f;
    const struct price_part *q = f.p.parts;
    (void)state;
    fixture_open(&f, "fsdp2", "dgx-h100:2");
    struct price_step s = price(&f, "dp=16,zero=2,mbs=2");
    double share = f.v[CONSTANT_GATHER_HIDDEN], m = f.w.micro_batches,
           back = 10 * computes(&q[WORK_LAYER_BACKWARD]) + computes(&q[WORK_LAST_BACKWARD]),
           forward = 10 * computes(&q[WORK_LAYER_FORWARD]) + computes(&q[WORK_LAST_FORWARD]) +
                     computes(&q[WORK_FIRST_FORWARD]);
    assert_true(m == 2 && s.hidden[PRICE_REDUCE] > 0);
    assert_close(s.under[PRICE_REDUCE], m * share * back, 1e-9, "scattered");
    assert_close(s.under[PRICE_GATHER], share * forward, 1e-9, "gathered once");
    s = price(&f, "dp=16,zero=3,mbs=2");
    forward -= computes(&q[WORK_FIRST_FORWARD]);
    assert_close(s.under[PRICE_GATHER], m * share * (forward + back), 1e-9, "gathered each time");
    assert_true(s.under[PRICE_REDUCE] < m * share * back);
}

/* Bounds a layout more and more loosely, and returns the step of its replay. */
static struct price_step bounds(struct fixture *f, struct layout l)
{
    struct price_step step, bound, replay;
    struct price_state st;
    struct err err;
    work_build(&f->spec, &l, &f->w);
    price_machine(&f->c, f->v, DTYPE_BF16, false, &f->machine);
    price_parts(&f->machine, &f->w, &f->p);
    price_state(&f->p, &l, &st);
    price_step(&f->p, &l, &step);
    price_bound(&f->p, &l, &st, &bound);
    assert_ok(price_replay(&f->p, &l, &replay, &err), &err);
    double least = price_least(&f->p, &l, &st, l.vpp, 0), bare = price_least(&f->p, &l, NULL, l.vpp, 0);
    if (!(bare <= least && least <= bound.seconds * (1 + 1e-12) && step.seconds <= bound.seconds &&
          bound.seconds <= replay.seconds * (1 + 1e-12)))
        fail_msg("tp %lld pp %lld vpp %lld mbs %lld: %g, %g, %g, %g, %g", (long long)l.tp,
                 (long long)l.pp, (long long)l.vpp, (long long)l.mbs, bare, least, step.seconds,
                 bound.seconds, replay.seconds);
    return replay;
}

/* With any number of stages, virtual stages and micro-batches no bound is above the replay; and
 * where pp does not divide the micro-batches, price_bound() is closer to it than price_step(). */
static void bound_of_any(void **state)
{
    struct fixture f;
    struct model deep = gpt;
    double off[2] = {0, 0};
    (void)state;
    fixture_open(&f, "reel", "dgx-h100:40");
    deep.layers = 60;
    f.spec.model = &deep;
    for (int64_t pp = 2; pp <= 16; pp++)
        for (int64_t vpp = 1; vpp <= deep.layers / pp && vpp <= 7; vpp++)
            for (f.spec.gbs = 1; f.spec.gbs < 60; f.spec.gbs += 1 + f.spec.gbs % 7) {
                struct layout l = layout_of("tp=2,dp=2,zero=3");
                struct price_step step;
                struct price_state st;
                l.pp = pp, l.vpp = vpp, l.recompute = (enum recompute)(f.spec.gbs % 3);
                double replay = bounds(&f, l).seconds;
                price_step(&f.p, &l, &step);
                off[0] += 1 - step.seconds / replay;
                price_state(&f.p, &l, &st);
                price_bound(&f.p, &l, &st, &step);
                off[1] += 1 - step.seconds / replay;
                l.vpp = 1, l.recompute = RECOMPUTE_NONE;
                assert_true(price_least(&f.p, &l, NULL, vpp, 0) <= replay);
            }
    assert_true(off[1] < 0.5 * off[0]);
}

/* Equal stages: the bound is the replay, (m + pp - 1) of them. Unequal ones: it is below. */
static void bound(void **state)
{
    struct fixture f;
    struct price_step r;
    struct err err;
    (void)state;
    fixture_open(&f, "megatron", "dgx-h100:2");
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        struct layout l = layout_of(layouts[i]);
        struct price_step s = price(&f, layouts[i]);
        assert_ok(price_replay(&f.p, &l, &r, &err), &err);
        if (!(s.seconds <= r.seconds * (1 + 1e-12)))
            fail_msg("%s: bound %g above replay %g", layouts[i], s.seconds, r.seconds);
        assert_true(s.seconds >= 0.9 * r.seconds);
        double least = price_least(&f.p, &l, NULL, l.vpp, 0);
        assert_true(least > 0 && least <= s.seconds);
        l.vpp = 1;
        assert_true(price_least(&f.p, &l, NULL, 64, 0) <= least);
    }
}

/* However short its chunks are, one micro-batch goes through all stages. */
static void few_batches(void **state)
{
    static const char text[] = "pp=5,vpp=2,dp=64";
    struct fixture f;
    struct layout l = layout_of(text);
    struct price_step r;
    struct err err;
    (void)state;
    fixture_open(&f, "megatron", "dgx-h100:40");
    struct price_step s = price(&f, text);
    assert_close(f.w.micro_batches, 1, 0, "one micro-batch");
    assert_ok(price_replay(&f.p, &l, &r, &err), &err);
    assert_close(s.seconds, r.seconds, 1e-9, "bound and replay");
}

/* Faster parts never make a step longer; half of a network's bandwidth moves what crosses it. */
static void faster_is_not_slower(void **state)
{
    struct fixture f;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        fixture_open(&f, "fsdp2", "dgx-h100:2");
        struct price_step base = price(&f, layouts[i]);
        double *speeds[] = {&f.c.node.link_bytes_per_s, &f.c.node.nic_bytes_per_s,
                            &f.c.device.memory_bytes_per_s, &f.c.device.peak_flops[DTYPE_BF16]};
        for (size_t k = 0; k < ARRAY_LEN(speeds); k++) {
            *speeds[k] *= 2;
            double fast_s = price(&f, layouts[i]).seconds;
            if (!(fast_s <= base.seconds * (1 + 1e-12)))
                fail_msg("%s: %g with speed %zu doubled, %g before", layouts[i], fast_s, k,
                         base.seconds);
            *speeds[k] /= 2;
        }
        f.c.node.nic_bytes_per_s /= 2;
        struct price_step slow = price(&f, layouts[i]);
        assert_true(slow.term[PRICE_GEMM] == base.term[PRICE_GEMM] &&
                    slow.term[PRICE_ATTENTION] == base.term[PRICE_ATTENTION] &&
                    slow.term[PRICE_TP] == base.term[PRICE_TP]);
    }
}

/* What is recomputed sends its messages again: they belong to the terms of their groups, and a
 * slower network does not move the term of recomputation. */
static void messages_again(void **state)
{
    static const char *const kinds[] = {"", ",recompute=full", ",recompute=full,recompute_layers=3"};
    struct fixture f;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        char text[80];
        snprintf(text, sizeof text, "tp=16,cp=2%s", kinds[i]);
        fixture_open(&f, "fsdp2", "dgx-h100:4");
        f.v[CONSTANT_SPREAD] = 0;
        struct price_step plain = price(&f, "tp=16,cp=2"), base = price(&f, text);
        double sum = 0;
        for (int t = 0; t < PRICE_TERMS; t++)
            sum += base.term[t];
        assert_close(sum, base.seconds, 1e-12, "the sum");
        assert_true((base.term[PRICE_TP] > plain.term[PRICE_TP]) == (i > 0));
        assert_true((base.term[PRICE_RECOMPUTE] > 0) == (i > 0));
        f.c.node.nic_bytes_per_s /= 2;
        struct price_step slow = price(&f, text);
        assert_true(slow.term[PRICE_RECOMPUTE] == base.term[PRICE_RECOMPUTE]);
        assert_true(slow.term[PRICE_TP] > base.term[PRICE_TP]);
    }
}

/* A slower link, network or spine makes the terms longer whose messages it carries, and no other. */
static void slower_alone(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "fsdp2", "dgx-h100:4"); /* tp in a node, replicas under a leaf, stages above */
    f.c.leaf_nodes = 2, f.v[CONSTANT_SPREAD] = 0;
    const char *text = "tp=8,pp=2,dp=2,zero=1";
    struct price_step base = price(&f, text);
    struct { double *value, by; enum price_term moves[4]; int n; } parts[] = {
        {&f.c.node.link_bytes_per_s, 0.5, {PRICE_TP}, 1},
        {&f.c.node.nic_bytes_per_s, 0.5, {PRICE_PP, PRICE_GATHER, PRICE_REDUCE}, 3},
        {&f.c.spine_oversubscription, 16, {PRICE_PP}, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        *parts[i].value *= parts[i].by;
        struct price_step slow = price(&f, text);
        *parts[i].value /= parts[i].by;
        for (int t = 0; t < PRICE_TERMS; t++) {
            bool moves = false, is = slow.term[t] + slow.hidden[t] >
                                     (base.term[t] + base.hidden[t]) * (1 + 1e-9);
            for (int k = 0; k < parts[i].n; k++)
                moves = moves || t == (int)parts[i].moves[k];
            if (is != moves && t != PRICE_BUBBLE) /* the bubble is of all of them */
                fail_msg("part %zu: %s went from %g to %g", i, price_term_names[t], base.term[t],
                         slow.term[t]);
        }
    }
}

/* Of several constants the one counts that names more of device and stack; others' do not. */
static void special_constants(void **state)
{
    static struct constants c;
    static const struct { const char *device, *stack; double value; } rows[] = {
        {"", "", 1.1}, {"h100-sxm", "megatron", 1.4}, {"h100-sxm", "", 1.2},
        {"b200", "megatron", 1.9}, {"", "megatron", 1.3},
    };
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-h100:1");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct constant *k = &c.items[c.n++];
        k->id = CONSTANT_COMPUTE, k->value = rows[i].value;
        snprintf(k->device, sizeof k->device, "%s", rows[i].device);
        snprintf(k->stack, sizeof k->stack, "%s", rows[i].stack);
    }
    constants_resolve(&c, &f.c.device, &f.k, f.v);
    assert_true(f.v[CONSTANT_COMPUTE] == 1.4);
    snprintf(f.k.name, sizeof f.k.name, "fsdp");
    constants_resolve(&c, &f.c.device, &f.k, f.v);
    assert_true(f.v[CONSTANT_COMPUTE] == 1.2);
    assert_true(f.v[CONSTANT_GEMM_SHARE] == f.c.device.gemm_efficiency);
    snprintf(f.c.device.name, sizeof f.c.device.name, "a100-sxm");
    constants_resolve(&c, &f.c.device, &f.k, f.v);
    assert_true(f.v[CONSTANT_COMPUTE] == 1.1);
}

/* A node of 72 devices' domain uses no NIC; FlashAttention-2 is slower than the best on fp8's. */
static void devices(void **state)
{
    struct fixture f;
    struct price_step fast;
    (void)state;
    fixture_open(&f, "megatron", "gb200-nvl72:18");
    price_machine(&f.c, f.v, DTYPE_BF16, false, &f.machine);
    double wide = price_message(&f.machine, price_row(64, 1), TRAFFIC_ALL_REDUCE, 1e9);
    f.c.node.nic_bytes_per_s /= 2;
    price_machine(&f.c, f.v, DTYPE_BF16, false, &f.machine);
    assert_true(wide == price_message(&f.machine, price_row(64, 1), TRAFFIC_ALL_REDUCE,
                                      1e9));
    f.c.device.curves.n = 0, fast = price(&f, "dp=8");
    f.k.attention = ATTENTION_FLASH2;
    assert_close(price(&f, "dp=8").term[PRICE_ATTENTION],
                 fast.term[PRICE_ATTENTION] / f.v[CONSTANT_FLASH2_SHARE], 1e-12, "flash2");
}

/* 18 bytes a weight, what is kept, and what the constants add; a limit in the middle is a coin. */
static void footprints(void **state)
{
    struct fixture f;
    struct footprint p;
    struct layout l = layout_of("");
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    price(&f, "");
    footprint_of(&f.w, &l, f.v, &p);
    double n = f.w.unit_elements[UNIT_LAYER] * 10 + f.w.unit_elements[UNIT_FIRST] +
               f.w.unit_elements[UNIT_LAST];
    assert_close(p.bytes[HELD_PARAMETERS] + p.bytes[HELD_GRADIENTS] + p.bytes[HELD_OPTIMIZER],
                 18 * n, 1e-12, "state");
    assert_close(p.bytes[HELD_ACTIVATIONS], 10 * f.w.kept.none + f.w.first_kept, 1e-12, "kept");
    assert_close(p.bytes[HELD_LOGITS], 2048.0 * 32000 * 10 + 2 * 2048 * 1024 * 2, 1e-12, "logits");
    assert_true(p.bytes[HELD_PROCESS] == f.v[CONSTANT_PROCESS_BYTES]);
    l = layout_of("pp=2,dp=2,zero=2");
    price(&f, "pp=2,dp=2,zero=2");
    struct footprint two;
    footprint_of(&f.w, &l, f.v, &two);
    assert_true(two.bytes[HELD_BUFFERS] > 0 && two.bytes[HELD_GATHERED] > 0);
    assert_close(two.bytes[HELD_FRAGMENTATION],
                 f.v[CONSTANT_FRAGMENTATION] *
                     (two.bytes[HELD_ACTIVATIONS] + two.bytes[HELD_LOGITS] +
                      two.bytes[HELD_WORKSPACE] + two.bytes[HELD_GATHERED] +
                      two.bytes[HELD_BUFFERS]), 1e-12, "fragmentation");
    assert_close(footprint_fits(&p, f.v, p.total), 0.5, 1e-12, "at the limit");
    double before = 0;
    for (double limit = p.total / 2; limit < 2 * p.total; limit *= 1.01) {
        double now = footprint_fits(&p, f.v, limit);
        assert_true(now >= before);
        before = now;
    }
}

/* Of a pipeline the first stage is fullest, with its micro-batches in flight, unless the last one's
 * logits are more. */
static void fullest(void **state)
{
    struct fixture f;
    struct footprint p;
    struct layout l = layout_of("pp=2,mbs=8,recompute=full");
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:1");
    price(&f, "pp=2,mbs=8,recompute=full");
    footprint_of(&f.w, &l, f.v, &p);
    assert_int_equal(p.stage, 1);
    l.recompute = RECOMPUTE_NONE;
    f.k.logit_bytes = 2;
    price(&f, "pp=2,mbs=8");
    footprint_of(&f.w, &l, f.v, &p);
    assert_int_equal(p.stage, 0);
    assert_close(p.bytes[HELD_ACTIVATIONS], 2 * (5 * f.w.kept.none + f.w.first_kept), 1e-12,
                 "two micro-batches of five layers");
}

/* A pipeline with a million micro-batches is priced at once: the busiest stage never waits long. */
static void many_batches(void **state)
{
    struct fixture f;
    struct layout l = layout_of("pp=4,vpp=2,dp=2");
    struct price_step s;
    struct err err;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:2");
    f.spec.gbs = 2000000;
    struct price_step bound = price(&f, "pp=4,vpp=2,dp=2");
    assert_ok(price_replay(&f.p, &l, &s, &err), &err);
    assert_true(s.seconds >= bound.seconds * (1 - 1e-12));
    assert_true(s.term[PRICE_BUBBLE] < 1e-3 * s.seconds);
    struct price_step short1, short2; /* these are replayed whole; as many more add as much again */
    f.spec.gbs = 2 * 2000;
    price(&f, "pp=4,vpp=2,dp=2");
    assert_ok(price_replay(&f.p, &l, &short1, &err), &err);
    f.spec.gbs = 2 * 4000;
    price(&f, "pp=4,vpp=2,dp=2");
    assert_ok(price_replay(&f.p, &l, &short2, &err), &err);
    f.spec.gbs = 2 * 6000;
    price(&f, "pp=4,vpp=2,dp=2");
    assert_ok(price_replay(&f.p, &l, &s, &err), &err);
    assert_close(s.seconds, 2 * short2.seconds - short1.seconds, 1e-9, "six thousand");
}

/* Constants that were fitted elsewhere make no product faster than the device. */
static void no_faster_than_peak(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "megatron", "dgx-a100:2");
    double flops = 0;
    f.v[CONSTANT_COMPUTE] = 0.1;
    struct price_step s = price(&f, "dp=8");
    for (int part = WORK_LAYER_FORWARD; part <= WORK_LAYER_BACKWARD; part++)
        for (int i = 0; i < f.w.parts[part].n_gemms; i++) {
            const struct work_gemm *g = &f.w.parts[part].gemms[i];
            flops += 10 * g->count * 2 * g->m * g->n * g->k * f.w.micro_batches;
        }
    assert_true(flops > 0 && s.term[PRICE_GEMM] >= flops / f.c.device.peak_flops[DTYPE_BF16]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),     cmocka_unit_test(products),
        cmocka_unit_test(sides),        cmocka_unit_test(norms_and_spread),
        cmocka_unit_test(hidden_apart),
        cmocka_unit_test(orders),       cmocka_unit_test(leaves),
        cmocka_unit_test(slower_alone), cmocka_unit_test(messages_again),
        cmocka_unit_test(amounts),      cmocka_unit_test(operations),
        cmocka_unit_test(senders),      cmocka_unit_test(rooms_by_hand),
        cmocka_unit_test(terms_add_up), cmocka_unit_test(bound), cmocka_unit_test(bound_of_any),
        cmocka_unit_test(few_batches),
        cmocka_unit_test(faster_is_not_slower), cmocka_unit_test(footprints),
        cmocka_unit_test(fullest),      cmocka_unit_test(special_constants),
        cmocka_unit_test(devices),      cmocka_unit_test(many_batches),
        cmocka_unit_test(no_faster_than_peak),
    };
    return cmocka_run_group_tests_name("autotune_price", tests, NULL, NULL);
}
