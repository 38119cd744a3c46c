/* Prices of parts and of classes, computed by hand: sides that no unit divides, rates that fall with
 * the working set, updates that slow each other, arrays of the state beside operations; and the work
 * that stands behind each term. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/planner.h"
#include "tests/lib/test_host.h"

/* Prices a part on a GPU that does 1e14 FLOP/s at any size, and is twice as slow for a side that 64
 * does not divide, and twice again for one that 8 does not; with its bytes at 1e20 B/s, and its
 * messages to the one neighbour at 1 B/s. */
static const struct price_part *part_priced(const struct work_part *part)
{
    const struct model model = host_model();
    const struct cluster cluster = {
        .nodes = 1, .domain_nodes = 1, .node = {.devices = 2, .link_bytes_per_s = 1},
        .device = {.peak_flops[DTYPE_BF16] = 1e14, .memory_bytes_per_s = 1e20}};
    const double v[CONSTANTS] = {
        [CONSTANT_GEMM_SHARE] = 1, [CONSTANT_COMPUTE] = 1, [CONSTANT_COPY_SHARE] = 1,
        [CONSTANT_RAGGED] = 0.5, [CONSTANT_ELEMENTWISE] = 1, [CONSTANT_LAUNCH_S] = 1e-5,
        [CONSTANT_LINK_SHARE] = 1};
    static struct work w;
    static struct price p;
    struct price_machine machine;
    struct price_routes routes = {0};
    struct stack stack = {0};
    w = (struct work){.grid = layout_default(), .model = &model, .stack = &stack};
    w.grid.cp = 2;
    w.parts[WORK_LAYER_FORWARD] = *part;
    price_machine(&cluster, v, DTYPE_BF16, false, &machine);
    price_terms(&machine, &w, (struct price_ids){WORK_LAYER_FORWARD, WORK_LAYER_FORWARD + 1},
                &routes, &p);
    return &p.parts[WORK_LAYER_FORWARD];
}

static double product_s(double m, double n, double k)
{
    const struct work_part part = {.gemms[0] = {m, n, k, 1}, .n_gemms = 1};
    return part_priced(&part)->gemm;
}

/* A part may take back bytes that another counted. Without operations it waits for no start. */
static void taken_back(void **state)
{
    const struct work_part part = {.bytes = -1e14};
    const struct price_part *p = part_priced(&part);
    (void)state;
    assert_close(p->elementwise, -1e-6, 1e-12, "bytes taken back");
    assert_true(p->launch == 0);
    assert_close(p->seconds, -1e-6, 1e-12, "the part");
}

/* While a part with operations is busy, the next one is prepared: only what is longer counts. */
static void starts_beside_bytes(void **state)
{
    const struct work_part part = {.bytes = 1e15, .kernels = 3}; /* 10 of 30 us */
    (void)state;
    assert_close(part_priced(&part)->launch, 2e-5, 1e-12, "the rest of three starts");
}

/* The messages of a ring share the compute under which they hide: what one has taken, the next finds
 * taken. */
static void messages_share_cover(void **state)
{
    const struct work_part part = {
        .kernels = 1e5, .n_messages = 3, /* the compute takes a second */
        .messages = {{TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION, 0.4, 2},
                     {TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_NOTHING, 0.25, 1},
                     {TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION, 0.3, 3}}};
    const struct price_part *p = part_priced(&part);
    (void)state;
    assert_close(p->cp_hidden, 1, 1e-12, "hidden");
    assert_close(p->cp, 0.8 + 0.25 + 0.9 - 1, 1e-12, "not hidden");
    assert_close(p->cp_under, 1, 1e-12, "under");
    assert_close(p->cp_alone, 0.25, 1e-12, "that nothing hides");
    /* the ring takes 1.7 s, so that the rank waits for 0.7 s, and 0.25 s for what nothing hides */
    assert_close(price_free(p, PRICE_LINKS), 1 + 0.95 - 1.95, 1e-12, "in which links are free");
    assert_close(price_free(p, PRICE_NICS), 1 + 0.95, 1e-12, "in which NICs are free");
}

/* Of two ragged sides the slower one tells; the rows of the result do not count. */
static void slower_side(void **state)
{
    static const struct { double m, n, k, factor; } cases[] = {
        {4096, 128, 256, 1}, {4099, 128, 256, 1}, {4096, 72, 256, 2}, {4096, 128, 72, 2},
        {4096, 72, 72, 2},   {4096, 72, 100, 4},  {4096, 100, 72, 4}, {4096, 100, 100, 4}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double flops = 2 * cases[i].m * cases[i].n * cases[i].k;
        assert_close(product_s(cases[i].m, cases[i].n, cases[i].k),
                     cases[i].factor * flops / 1e14, 1e-12, "a product");
    }
}

/* A working set of four samples, 256 tokens, no longer fits a cache, and all of its classes take 1.3
 * times as long for a number: then two samples are cheaper each than four, which at even rates read
 * the weights half as often and are cheaper. A micro-batch beyond the table is as slow as its last. */
static void rates_fall_with_working_set(void **state)
{
    static const enum price_term classes[] = {PRICE_GEMM, PRICE_ATTENTION, PRICE_ELEMENTWISE};
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct speed even = host_rates, falls = host_rates;
    double at_even[3][PRICE_TERMS], at_falling[3][PRICE_TERMS], even_s[3] = {0},
        falling_s[3] = {0};
    (void)state;
    even.n_points = falls.n_points = 3;
    for (int i = 0; i < 3; i++) {
        even.points[i] = falls.points[i] = (struct speed_point){64 << i, 1, 1, 1};
        falls.points[i].gemm = falls.points[i].attention = falls.points[i].elementwise =
            i < 2 ? 1 : 1.3;
    }
    for (int i = 0; i < 3; i++) {
        static const char *const sizes[] = {"mbs=2", "mbs=4", "mbs=8"};
        host_terms(h, &even, 1, sizes[i], at_even[i]);
        host_terms(h, &falls, 1, sizes[i], at_falling[i]);
        for (int t = 0; t < PRICE_TERMS; t++)
            even_s[i] += at_even[i][t], falling_s[i] += at_falling[i][t];
    }
    assert_true(even_s[1] < even_s[0] && even_s[2] < even_s[1]);
    assert_true(falling_s[0] < falling_s[1]);
    assert_true(falling_s[0] == even_s[0]);
    for (size_t c = 0; c < ARRAY_LEN(classes); c++)
        for (int i = 1; i < 3; i++)
            assert_close(at_falling[i][classes[c]], 1.3 * at_even[i][classes[c]], 1e-9, "a class");
}

/* Updates of ranks that have a core each slow each other by a share of their own for each further
 * core, whatever computation loses. */
static void updates_slow_each_other(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct speed lossy = host_rates;
    double t[PRICE_TERMS];
    (void)state;
    lossy.rank_loss = 0, lossy.loss.update = 0.2;
    host_terms(h, &lossy, 8, "", t);
    assert_true(t[PRICE_CONTENTION] == 0);
    host_terms(h, &lossy, 8, "dp=2", t);
    assert_close(t[PRICE_CONTENTION], 0.2 * t[PRICE_OPTIMIZER], 1e-9, "of two");
    host_terms(h, &lossy, 8, "dp=4", t);
    assert_close(t[PRICE_CONTENTION], 0.6 * t[PRICE_OPTIMIZER], 1e-9, "of four");
    lossy.rank_loss = 0.1;
    host_terms(h, &lossy, 8, "dp=2", t);
    double computes = t[PRICE_GEMM] + t[PRICE_ATTENTION] + t[PRICE_ELEMENTWISE] + t[PRICE_INPUTS];
    assert_close(t[PRICE_CONTENTION], 0.2 * t[PRICE_OPTIMIZER] + 0.1 * computes, 1e-9, "of both");
}

/* A trial measures as elementwise what its operations move and what clears and adds up gradients:
 * where nothing is recomputed, on one stage, the class is the term. */
static void class_has_its_pieces(void **state)
{
    struct model m = host_model();
    struct host *h = host_of(&m);
    struct layout plain = host_layout("dp=2"), sharded = host_layout("dp=2,zero=3");
    struct price_step a = host_step(h, &host_rates, 2, &plain),
                      b = host_step(h, &host_rates, 2, &sharded);
    double pieces = b.term[PRICE_ELEMENTWISE] - a.term[PRICE_ELEMENTWISE];
    (void)state;
    assert_true(pieces > 0.05 * a.term[PRICE_ELEMENTWISE]);
    assert_close(a.class_s[PRICE_ELEMENTWISE], a.term[PRICE_ELEMENTWISE], 1e-12, "plain");
    assert_close(b.class_s[PRICE_ELEMENTWISE], b.term[PRICE_ELEMENTWISE], 1e-12, "sharded");
}

/* Opens a plan of a model on GPUs of at most three nodes, by a stack. */
static struct planner *planner_of(const char *model, const char *stack, int64_t gpus)
{
    const struct plan_ask ask = {.model = model, .cluster = "dgx-a100:3", .stack = stack,
                                 .seq = {1, 64, 64}, .gbs = 64, .dtype = DTYPE_BF16, .fits = 0.5};
    struct err err;
    struct planner *p = planner_new(&ask, &err);
    assert_ok(p ? 0 : err.code, &err);
    assert_ok(planner_gpus(p, gpus, &err), &err);
    return p;
}

static struct explained explained(const struct planner *p, const char *layout)
{
    struct layout l = host_layout(layout);
    struct explained e;
    struct err err;
    assert_ok(planner_explain(p, &l, &e, &err), &err);
    return e;
}

/* Messages without latency go at the rate of the links, whether forwards that are repeated take half
 * as long or twice as long as the first: the rate is of the machine, and what is repeated is more
 * work. */
static void repeated_messages(void **state)
{
    struct planner *p = planner_of("llama-3-8b", "megatron", 16);
    double link = p->cluster.node.link_bytes_per_s * p->v[CONSTANT_LINK_SHARE];
    (void)state;
    p->cluster.node.link_latency_s = 0, p->machine.v[CONSTANT_SUM_S] = 0;
    for (double again = 0.5; again <= 2; again *= 2) {
        p->machine.v[CONSTANT_AGAIN] = again;
        struct explained e = explained(p, "tp=8,dp=2,recompute=full,sp=1");
        double s = e.planned.step.term[PRICE_TP] + e.planned.step.hidden[PRICE_TP];
        assert_close(e.work[PRICE_TP] / s, link, 1e-9, "a rate");
    }
    planner_free(p);
}

/* One replica reduces no gradients over others. What it sums once a step are those of the gains of q
 * and k norms and the like, of which each of eight tensor-parallel ranks has a part: 7/8 of them go
 * out twice, in f32. */
static void sums_of_once(void **state)
{
    struct planner *p = planner_of("dit-7b", "reel", 8);
    double link = p->cluster.node.link_bytes_per_s * p->v[CONSTANT_LINK_SHARE],
           numbers = (double)p->model.layers * p->weights.whole[UNIT_LAYER];
    (void)state;
    p->cluster.node.link_latency_s = 0;
    struct explained e = explained(p, "tp=8");
    assert_close(e.work[PRICE_REDUCE], 2 * 7 / 8.0 * numbers * 4, 1e-12, "bytes");
    assert_close(e.planned.step.term[PRICE_REDUCE], e.work[PRICE_REDUCE] / link, 1e-12, "seconds");
    planner_free(p);
}

/* Whatever takes time has work behind it: no rate is 0. Contention and spread are shares of the
 * seconds before them, of two nodes once the constant. */
static void work_behind_terms(void **state)
{
    static const char *const stacks[] = {"megatron", "megatron-bridge", "reel", "scaling"},
                      *const layouts[] = {"dp=16", "tp=4,dp=4", "tp=8,pp=2,dp=1",
                                          "tp=8,pp=2,dp=1,recompute=full", "cp=4,dp=4,zero=1",
                                          "dp=16,zero=3", "pp=4,dp=4,vpp=2,recompute=selective"};
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(stacks); k++) {
        struct planner *p = planner_of("llama-3-8b", stacks[k], 16);
        for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
            struct explained e = explained(p, layouts[i]);
            const struct price_step *s = &e.planned.step;
            for (int t = 0; t < PRICE_TERMS; t++)
                if (s->term[t] + s->hidden[t] > 0 && !(e.work[t] > 0))
                    fail_msg("%s, %s: %s takes %g s for no work", stacks[k], layouts[i],
                             price_term_names[t], s->term[t]);
            assert_close(s->term[PRICE_SPREAD],
                         p->v[CONSTANT_SPREAD] * e.work[PRICE_SPREAD], 1e-9, "a share");
        }
        planner_free(p);
    }
}

/* The first of three stages has a layer more than the last, which computes longer because of its
 * head. The step waits for the first one's update: its bytes go at the memory's rate. */
static void update_of_another_stage(void **state)
{
    static const char *const stacks[] = {"megatron", "megatron-bridge", "reel", "scaling"};
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(stacks); k++) {
        struct planner *p = planner_of("llama-3-8b", stacks[k], 24);
        double memory = p->cluster.device.memory_bytes_per_s * p->v[CONSTANT_COPY_SHARE];
        struct explained e = explained(p, "tp=4,pp=3,dp=2");
        assert_int_equal(e.planned.step.stage, 2);
        assert_int_equal(e.planned.step.once_stage, 0);
        assert_close(e.work[PRICE_OPTIMIZER] / e.planned.step.term[PRICE_OPTIMIZER], memory, 1e-9,
                     stacks[k]);
        planner_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slower_side), cmocka_unit_test(taken_back),
        cmocka_unit_test(starts_beside_bytes), cmocka_unit_test(messages_share_cover),
        cmocka_unit_test(rates_fall_with_working_set),
        cmocka_unit_test(updates_slow_each_other), cmocka_unit_test(class_has_its_pieces),
        cmocka_unit_test(repeated_messages), cmocka_unit_test(sums_of_once),
        cmocka_unit_test(work_behind_terms), cmocka_unit_test(update_of_another_stage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
