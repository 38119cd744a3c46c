/* The stream of layouts: the best of it is that of a list of the whole space, priced one by one;
 * what is counted; how many GPUs are enough; what a plan refuses. */
#include "tests/lib/day.h"
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "autotune/planner.h"
#include "profiles/space.h"

static struct stream_found found;

static struct planner *planner_of(const char *model, const char *cluster, const char *stack,
                                  const char *seq, int64_t gbs)
{
    struct plan_ask ask = {.model = model, .cluster = cluster, .stack = stack, .gbs = gbs,
                           .dtype = DTYPE_BF16, .fits = 0.9};
    struct err err;
    assert_ok(seq_parse(seq, "seq", &ask.seq, &err), &err);
    struct planner *p = planner_new(&ask, &err);
    if (!p)
        fail_msg("%s", err.text);
    return p;
}

/* The fastest of the listed layouts that fit. */
static double listed_best(const struct planner *p, double limit, const struct space *space,
                          int64_t *fit)
{
    static struct work w;
    struct price price;
    struct price_step step;
    struct footprint f;
    struct err err;
    double best = INFINITY;
    *fit = 0;
    for (size_t i = 0; i < space->n; i++) {
        const struct layout *l = &space->items[i];
        work_build(&p->work, l, &w);
        footprint_of(&w, l, p->v, &f);
        if (f.total > limit)
            continue;
        ++*fit;
        price_parts(&p->machine, &w, &price);
        price_step(&price, l, &step);
        if (step.seconds > best)
            continue; /* its replay takes no less */
        assert_ok(price_replay(&price, l, &step, &err), &err);
        best = fmin(best, step.seconds);
    }
    return best;
}

static void best_of_list(const char *model, const char *stack, const char *seq, int64_t gpus,
                         int64_t gbs, double share, int64_t node)
{
    struct planner *p = planner_of(model, "dgx-a100-40:2", stack, seq, gbs);
    struct space_spec list = {&p->model, p->ask.seq, gbs, &gpus, 1, NULL, 0, true};
    struct space space = {0};
    struct err err;
    int64_t fit;
    assert_ok(planner_gpus(p, node ? 8 : gpus, &err), &err);
    if (node)
        p->cluster.node.devices = p->cluster.node.nics = node;
    assert_ok(space_build(&list, &space, &err), &err);
    struct stream_spec spec = {&p->work, &p->machine, gpus, share * planner_limit_bytes(p)};
    double best = listed_best(p, spec.limit_bytes, &space, &fit);
    assert_ok(stream_search(&spec, 3, &found, &err), &err);
    assert_int_equal(found.legal, space.n);
    assert_int_equal(found.n > 0, fit > 0);
    if (fit)
        assert_close(found.items[0].seconds, best, 1e-12, stack);
    assert_int_equal(node > 0, found.n > 0 && found.items[0].layout.order > 0);
    for (size_t i = 1; i < found.n; i++)
        assert_true(found.items[i].seconds >= found.items[i - 1].seconds);
    bool any;
    assert_ok(stream_any_fits(&spec, &any, &err), &err);
    assert_int_equal(any, fit > 0);
    space_release(&space);
    planner_free(p);
}

/* With less and less memory: everything fits, recomputation is needed, nothing fits. Each day has
 * half of the cases. */
static void brute_force(void **state)
{
    static const struct {
        const char *model, *stack, *seq;
        int64_t gpus, gbs;
        double share; /* of the memory of a GPU */
        int64_t node; /* GPUs of one; 0: eight */
    } cases[] = {
        {"dit-tiny", "reel", "4x8x8", 4, 12, 1},
        {"dit-b", "reel", "16x32x32", 8, 9, 1},
        {"dit-b", "megatron", "16x32x32", 8, 9, 0.2},
        {"dit-b", "reel", "16x32x32", 8, 9, 0.1},
        {"moviegen-tiny", "fsdp2", "8x16x16", 4, 10, 0.05},
        {"stdit-tiny", "reel", "6x8x8", 4, 7, 0.045},
        {"dit-b", "reel", "16x32x32", 8, 9, 0.01},
        {"dit-b", "fsdp2", "16x32x32", 16, 5, 0.08},
        {"dit-b", "reel", "8x16x32", 8, 7, 0.1}, /* virtual stages win here and below */
        {"dit-b", "reel", "8x16x32", 4, 12, 0.06},
        {"dit-b", "reel", "5x9x5", 2, 65, 1},
        {"dit-b", "reel", "5x9x5", 2, 96, 1},
        {"dit-b", "megatron", "5x9x5", 4, 70, 0.06},
        /* here a size wins that is larger than it must be, but whose products have even sides */
        {"dit-xl", "megatron", "7x11x13", 2, 60, 1},
        {"stdit-xl", "reel", "1x16x16", 1, 45, 1},
        {"dit-l", "fsdp2", "5x9x5", 1, 60, 0.6},
        /* another order of ranks wins here and below */
        {"dit-l", "megatron-bridge", "16x32x32", 12, 1, 0.15, 2},
        {"dit-l", "reel", "32x64x64", 8, 2, 1, 2},
        {"dit-b", "megatron-bridge", "16x32x32", 12, 4, 1, 8}, /* borders of nodes go through groups */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (day_has((int64_t)i, 2))
            best_of_list(cases[i].model, cases[i].stack, cases[i].seq, cases[i].gpus, cases[i].gbs,
                         cases[i].share, cases[i].node);
}

/* The fewest bytes of a listed layout that the adapter's trainer can run; INFINITY: there is none. */
static double listed_least(const struct planner *p, const struct space *space)
{
    static struct work w;
    struct footprint f;
    double least = INFINITY;
    for (size_t i = 0; i < space->n; i++) {
        const struct layout *l = &space->items[i];
        struct adapter_facts facts = {l, &p->model, p->ask.seq, p->ask.gbs, 0, NULL};
        if (p->ask.adapter && adapter_broken_rule(p->ask.adapter, &facts) >= 0)
            continue;
        work_build(&p->work, l, &w);
        footprint_of(&w, l, p->v, &f);
        least = fmin(least, f.total);
    }
    return least;
}

static void nearest_of_list(struct planner *p, int64_t gpus)
{
    struct space_spec list = {&p->model, p->ask.seq, p->ask.gbs, &gpus, 1, NULL, 0, true};
    struct space space = {0};
    struct planned one;
    struct err err;
    assert_ok(planner_gpus(p, gpus, &err), &err);
    assert_ok(space_build(&list, &space, &err), &err);
    double least = listed_least(p, &space);
    p->ask.fits = 1 - 1e-9; /* nothing does */
    p->cluster.device.memory_bytes = (int64_t)least / 2;
    assert_int_equal(planner_search(p, 1, &found, &err), ERR_NO);
    assert_non_null(strstr(err.text, isfinite(least) ? "bytes) are missing" : "can run no layout"));
    if (isfinite(least)) {
        assert_close(found.nearest.bytes, least, 1e-15, "the nearest");
        assert_ok(planner_predict(p, &found.nearest.layout, &one, &err), &err);
        assert_true(one.footprint.total == least);
    }
    space_release(&space);
    planner_free(p);
}

/* Where nothing fits, the smallest of all layouts is named, or of all that the trainer can run. */
static void nearest(void **state)
{
    static const struct {
        const char *model, *stack, *seq;
        int64_t gpus, gbs;
        const char *adapter;
    } cases[] = {
        {"cosmos-7b", "scaling", "1x1x97", 4, 9}, {"wan-14b", "fsdp2", "1x1x97", 8, 1},
        {"dit-b", "megascale", "7x11x13", 16, 1}, {"cosmos-7b", "megatron-bridge", "4x8x8", 8, 5},
        {"dit-tiny", "deepspeed-zero3", "3x17x5", 4, 8}, {"dit-tiny", "reel", "1x1x3", 4, 5},
        {"stdit-tiny", "reel", "5x9x5", 8, 3}, {"llama-3-8b", "megatron", "96", 8, 6, "megatron-lm"},
        {"llama-3-8b", "fsdp2", "96", 8, 6, "torchtitan"},
        {"llama-3-8b", "fsdp2", "97", 8, 6, "torchtitan-0.2"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planner *p = planner_of(cases[i].model, "dgx-a100:2", cases[i].stack, cases[i].seq,
                                       cases[i].gbs);
        struct adapter *a = NULL;
        struct err err;
        if (cases[i].adapter)
            assert_ok(adapter_load(cases[i].adapter, &a, &err), &err);
        p->ask.adapter = a;
        nearest_of_list(p, cases[i].gpus);
        adapter_free(a);
    }
}

/* The result does not depend on how many are kept. */
static void prefix(void **state)
{
    static struct stream_found few;
    struct planner *p = planner_of("dit-7b", "dgx-h100", "reel", "16x32x32", 64);
    struct err err;
    (void)state;
    assert_ok(planner_gpus(p, 32, &err), &err);
    assert_ok(planner_search(p, 20, &found, &err), &err);
    assert_ok(planner_search(p, 3, &few, &err), &err);
    assert_int_equal(few.n, 3);
    for (size_t i = 0; i < few.n; i++)
        assert_close(few.items[i].seconds, found.items[i].seconds, 1e-12, "its time");
    planner_free(p);
}

/* Says whether layouts differ in order and shard group alone, hold the same bytes, and take the same
 * time to a ten-thousandth. */
static bool are_twins(const struct stream_item *first, const struct stream_item *other)
{
    struct layout l = other->layout;
    l.order = first->layout.order, l.fsdp = first->layout.fsdp;
    return layout_equal(&l, &first->layout) && other->bytes == first->bytes &&
           other->seconds <= first->seconds * (1 + STREAM_ALIKE);
}

static int keys_of(const struct layout *l) { return (l->order != 0) + (l->fsdp != 0); }

/* Makes places of layouts that are in the order of their times. */
static void places_of(struct stream_found *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct stream_item item = f->items[i], *of = f->items;
        while (of < f->items + n && !are_twins(of, &item))
            of++;
        if (of == f->items + n) {
            f->items[n++] = item;
            continue;
        }
        of->twins++;
        if (item.seconds == of->seconds && keys_of(&item.layout) < keys_of(&of->layout))
            of->layout = item.layout;
    }
    f->n = n;
}

static int64_t layouts_of(const struct stream_found *f, size_t places)
{
    int64_t n = 0;
    for (size_t i = 0; i < places; i++)
        n += 1 + f->items[i].twins;
    return n;
}

/* Layouts that differ in order or shard group alone, and in neither time nor bytes, are ranked once.
 * One search finds as many places as are asked for, and all layouts of them: those that a search
 * for many more layouts puts there. Each day has one of the cases. */
static void twins_once(void **state)
{
    static struct stream_found ranked;
    static const struct {
        const char *model, *cluster, *seq;
        int64_t gpus, gbs;
        size_t most;
        int64_t layouts; /* of these places */
    } cases[] = {
        {"llama-3-70b", "dgx-h100", "8192", 512, 512, 20, 31},
        {"gpt-3-175b", "dgx-h100", "2048", 192, 192, 200, 318},
        {"llama-3-405b", "dgx-h100", "2048", 960, 480, 200, 760}, /* lists are full on the way */
    };
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (!day_has((int64_t)i, 3))
            continue;
        struct planner *p = planner_of(cases[i].model, cases[i].cluster, "reel", cases[i].seq,
                                       cases[i].gbs);
        size_t most = cases[i].most;
        assert_ok(planner_gpus(p, cases[i].gpus, &err), &err);
        assert_ok(planner_search(p, 1000, &found, &err), &err);
        assert_ok(planner_rank(p, most, &ranked, &err), &err);
        double slowest = found.items[found.n - 1].seconds;
        places_of(&found);
        assert_true(found.items[most - 1].seconds * (1 + STREAM_ALIKE) < slowest);
        assert_int_equal(ranked.n, most);
        for (size_t k = 0; k < most; k++) {
            assert_true(ranked.items[k].seconds == found.items[k].seconds);
            assert_true(layout_equal(&ranked.items[k].layout, &found.items[k].layout));
            assert_int_equal(ranked.items[k].twins, found.items[k].twins);
        }
        assert_int_equal(layouts_of(&ranked, most), cases[i].layouts);
        planner_free(p);
    }
}

/* A plan at 4,096 GPUs takes little work: grids and micro-batch sizes whose layers are priced,
 * layouts sized and priced, and schedules replayed. The limits are a third to a half above what it
 * was when they were set. Each day has a fourth of the cases. */
static void effort(void **state)
{
    static const struct {
        const char *model, *cluster, *seq;
        int64_t gpus, gbs;
        size_t most;
        int64_t opened, computed, replayed;
    } cases[] = {
        {"llama-3-405b", "dgx-a800", "2048", 3840, 46080, 5, 250000, 1000000, 60},
        {"llama-3-405b", "dgx-a800", "2048", 4096, 2048, 100, 46000, 230000, 900},
        {"llama-3-405b", "dgx-h100", "2048", 3840, 2048, 5, 155000, 440000, 250},
        {"llama-3-405b", "dgx-h100", "8192", 4096, 2048, 200, 31000, 430000, 12000},
        {"llama-3-405b", "dgx-h100", "2048", 4096, 1 << 24, 5, 250000, 2400000, 16},
        {"llama-3-405b", "dgx-h100", "8192", 3840, 64, 5, 52000, 125000, 180},
        {"moviegen-30b", "dgx-a800", "32x48x48", 3840, 46080, 5, 27000, 68000, 18},
        {"moviegen-30b", "dgx-h100", "16x32x32", 3840, 720720, 5, 67000, 365000, 18},
        {"stdit-xl", "dgx-h100", "16x32x32", 4096, 46080, 5, 2200, 1500, 60},
        {"stdit-xl", "dgx-h100", "16x32x32", 3840, 14414400, 5, 8500, 5500, 50},
        {"dit-28b", "dgx-h100", "32x45x80", 4096, 46080, 5, 3100, 6800, 15},
    };
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (!day_has((int64_t)i, 4))
            continue;
        struct planner *p = planner_of(cases[i].model, cases[i].cluster, "reel", cases[i].seq,
                                       cases[i].gbs);
        assert_ok(planner_gpus(p, cases[i].gpus, &err), &err);
        assert_ok(planner_rank(p, cases[i].most, &found, &err), &err);
        int64_t computed = found.sized + found.priced;
        if (found.opened > cases[i].opened || computed > cases[i].computed ||
            found.replayed > cases[i].replayed)
            fail_msg("%s: %lld grids opened, %lld layouts computed, %lld replayed", cases[i].model,
                     (long long)found.opened, (long long)computed, (long long)found.replayed);
        planner_free(p);
    }
}

/* An adapter's rule that excludes a whole grid does so at once: at 4,096 GPUs too, few layouts are
 * computed where it excludes all of them, and where what it leaves does not fit. */
static void refused(void **state)
{
    static const struct { const char *seq; int64_t encoders; const char *why; } cases[] = {
        {"8191", 0, "can run no layout"}, {"8192", 76000000000, "bytes) are missing"},
    };
    struct adapter *a;
    struct err err;
    (void)state;
    assert_ok(adapter_load("torchtitan-0.2", &a, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planner *p = planner_of("llama-3-405b", "dgx-h100", "fsdp2", cases[i].seq, 46080);
        p->ask.adapter = a;
        p->ask.encoder_bytes = p->work.encoder_bytes = cases[i].encoders;
        assert_ok(planner_gpus(p, 4096, &err), &err);
        assert_int_equal(planner_search(p, 1, &found, &err), ERR_NO);
        if (!strstr(err.text, cases[i].why) || found.sized > 18000)
            fail_msg("%lld sized, %s", (long long)found.sized, err.text);
        planner_free(p);
    }
    adapter_free(a);
}

/* Leaves this process one of the processors that it may use. Returns those it had. */
static cpu_set_t one_processor(void)
{
    cpu_set_t all, one;
    int first = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    return all;
}

/* One processor finds the same layouts as all of them, in as many steps: in a space where few are
 * kept, and in one where the list overflows. */
static void processors(void **state)
{
    static const struct { const char *model, *seq; int64_t gpus, gbs; } cases[] = {
        {"dit-7b", "16x32x32", 32, 64},
        {"dit-28b", "32x45x80", 4096, 4096},
    };
    static struct stream_found alone;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planner *p = planner_of(cases[i].model, "dgx-h100", "reel", cases[i].seq,
                                       cases[i].gbs);
        assert_ok(planner_gpus(p, cases[i].gpus, &err), &err);
        cpu_set_t all = one_processor();
        assert_ok(planner_search(p, 40, &alone, &err), &err);
        assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
        assert_ok(planner_search(p, 40, &found, &err), &err);
        assert_int_equal(found.n, alone.n);
        for (size_t k = 0; k < found.n; k++) {
            assert_true(found.items[k].seconds == alone.items[k].seconds);
            assert_true(layout_equal(&found.items[k].layout, &alone.items[k].layout));
        }
        const int64_t a[] = {found.grids, found.legal, found.sized, found.priced, found.fit,
                             found.replayed, found.nearest.grid};
        const int64_t b[] = {alone.grids, alone.legal, alone.sized, alone.priced, alone.fit,
                             alone.replayed, alone.nearest.grid};
        assert_memory_equal(a, b, sizeof a);
        planner_free(p);
    }
}

static double predicted_s(const struct planner *p, const char *text)
{
    struct layout l;
    struct planned one;
    struct err err;
    assert_ok(layout_parse(text, &l, &err), &err);
    assert_ok(planner_predict(p, &l, &one, &err), &err);
    return one.step.seconds;
}

/* Thousands of layouts have a bound below the best one's time: none of them is lost. */
static void crowded(void **state)
{
    struct planner *p = planner_of("cosmos-7b", "dgx-h100", "megascale", "1x16x16", 64);
    struct err err;
    (void)state;
    p->cluster.node.nic_bytes_per_s = 100e9;
    assert_ok(planner_gpus(p, 32, &err), &err);
    assert_ok(planner_search(p, 1, &found, &err), &err);
    double best = found.items[0].seconds;
    assert_true(best <= predicted_s(p, "tp=2,pp=4,vpp=7,dp=4,zero=1,mbs=4"));
    p->cluster.node.nic_bytes_per_s = 50e9;
    assert_ok(planner_search(p, 1, &found, &err), &err);
    assert_true(best <= found.items[0].seconds);
    planner_free(p);
}

/* With zero 3, ranks with more virtual stages gather less often. What is found with them is no slower
 * for that, and none of it is lost. */
static void gathered_less(void **state)
{
    static const char text[] = "tp=2,sp=1,cp=8,pp=2,vpp=19,dp=8,zero=3,fsdp=64,mbs=7,"
                               "recompute=full,recompute_layers=1";
    struct planner *p = planner_of("llama-3-70b", "dgx-h100", "reel", "8192", 100);
    struct layout l;
    struct err err;
    bool found_it = false;
    (void)state;
    assert_ok(planner_gpus(p, 256, &err), &err);
    assert_ok(planner_search(p, 50, &found, &err), &err);
    assert_ok(layout_parse(text, &l, &err), &err);
    assert_true(predicted_s(p, text) < found.items[found.n - 1].seconds);
    for (size_t i = 0; i < found.n; i++)
        found_it = found_it || layout_equal(&found.items[i].layout, &l);
    assert_true(found_it);
    planner_free(p);
}

/* With less latency another stage is the busiest, and the step is no longer for that. */
static void less_latency(void **state)
{
    struct planner *p = planner_of("llama-3-8b", "dgx-h100", "colossalai", "512", 64);
    const char *text = "tp=2,pp=4,vpp=4,dp=16,zero=1,mbs=1";
    struct err err;
    (void)state;
    assert_ok(planner_gpus(p, 128, &err), &err);
    double before = INFINITY;
    for (double latency = 20e-6; latency > 1e-6; latency *= 0.8) {
        p->cluster.node.nic_latency_s = latency;
        double s = predicted_s(p, text);
        assert_true(s <= before);
        before = s;
    }
    planner_free(p);
}

/* The fewest GPUs fit, and no smaller number that nodes divide. */
static void least(void **state)
{
    struct planner *p = planner_of("dit-14b", "dgx-h100", "reel", "16x32x32", 64);
    struct err err;
    (void)state;
    assert_ok(planner_least(p, &err), &err);
    int64_t gpus = p->gpus;
    assert_true(gpus > 1);
    assert_ok(planner_search(p, 1, &found, &err), &err);
    assert_ok(planner_gpus(p, gpus > 8 ? gpus - 8 : gpus / 2, &err), &err);
    assert_int_equal(planner_search(p, 1, &found, &err), ERR_NO);
    assert_non_null(strstr(err.text, "bytes) are missing"));
    planner_free(p);
}

/* What could make room for a model is no advice where encoders fill a GPU. */
static void encoders_fill(void **state)
{
    struct planner *p = planner_of("dit-b", "dgx-h100:2", "reel", "16x32x32", 64);
    struct err err;
    (void)state;
    p->ask.encoder_bytes = p->work.encoder_bytes = 200LL << 30;
    assert_int_equal(planner_least(p, &err), ERR_NO);
    assert_non_null(strstr(err.text, "the frozen encoders (--encoders) take 200 GiB of each GPU"));
    assert_null(strstr(err.text, "nodes"));
    assert_null(strstr(err.text, "--seq"));
    int64_t room = (int64_t)footprint_room(p->v, planner_limit_bytes(p), 0.9);
    p->ask.encoder_bytes = p->work.encoder_bytes = room - (1LL << 30); /* the process takes more */
    assert_int_equal(planner_least(p, &err), ERR_NO);
    assert_non_null(strstr(err.text, "of each GPU and the process 1.40 GiB, under every layout"));
    planner_free(p);
}

/* Predicts dp=8,zero=1 of dit-7b on eight GPUs, with an average of the weights or without. */
static struct planned averaged(bool ema, const char *stack)
{
    struct plan_ask ask = {.model = "dit-7b", .cluster = "dgx-h100", .stack = stack, .gbs = 64,
                           .seq = {16, 32, 32}, .dtype = DTYPE_BF16, .fits = 0.9, .ema = ema};
    struct layout l = layout_default();
    struct planned out;
    struct err err;
    struct planner *p = planner_new(&ask, &err);
    assert_non_null(p);
    assert_ok(planner_gpus(p, 8, &err), &err);
    l.dp = 8, l.zero = 1, l.recompute = RECOMPUTE_FULL;
    assert_ok(planner_predict(p, &l, &out, &err), &err);
    planner_free(p);
    return out;
}

/* An average of the weights is 4 bytes for each of them, divided as the moments are, and else
 * nothing: 7,234,800,640 weights of dit-7b. */
static void average(void **state)
{
    static const char *const stacks[] = {"reel", "megatron"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stacks); i++) {
        struct planned with = averaged(true, stacks[i]), without = averaged(false, stacks[i]);
        double bytes = 4.0 * 7234800640 / 8;
        assert_true(without.footprint.bytes[HELD_EMA] == 0);
        assert_close(with.footprint.bytes[HELD_EMA], bytes, 1e-12, "average");
        assert_close(with.footprint.total - without.footprint.total, bytes, 1e-6, "total");
        assert_true(with.p_fits < without.p_fits);
        for (int k = 0; k < WORK_HELD; k++)
            if (k != HELD_EMA && with.footprint.bytes[k] != without.footprint.bytes[k])
                fail_msg("%s is another", work_held_names[k]);
    }
}

/* Only our own trainer places its ranks as it is told. */
static void other_trainers(void **state)
{
    struct planner *ours = planner_of("dit-b", "dgx-a100", "reel", "16x32x32", 64),
                   *theirs = planner_of("dit-b", "dgx-a100", "megatron", "16x32x32", 64);
    struct err err;
    (void)state;
    assert_ok(planner_gpus(ours, 32, &err), &err);
    assert_ok(planner_gpus(theirs, 32, &err), &err);
    assert_ok(planner_search(ours, 1, &found, &err), &err);
    int64_t legal = found.legal;
    assert_ok(planner_search(theirs, 1000, &found, &err), &err);
    assert_true(found.legal < legal);
    for (size_t i = 0; i < found.n; i++)
        assert_int_equal(found.items[i].layout.order, 0);
    planner_free(ours);
    planner_free(theirs);
}

/* What is predicted adds up, and its interval is around it. */
static void predicted(void **state)
{
    struct planner *p = planner_of("dit-7b", "dgx-h100", "reel", "16x32x32", 64);
    struct planned one;
    struct plan plan;
    struct err err;
    (void)state;
    assert_ok(planner_gpus(p, 64, &err), &err);
    assert_ok(planner_search(p, 1, &found, &err), &err);
    assert_ok(planner_predict(p, &found.items[0].layout, &one, &err), &err);
    assert_close(one.step.seconds, found.items[0].seconds, 1e-12, "seconds");
    assert_close(one.footprint.total, found.items[0].bytes, 1e-12, "bytes");
    assert_true(one.p_fits >= 0.9);
    one.footprint.total = footprint_room(p->v, planner_limit_bytes(p), 0.9);
    assert_close(footprint_fits(&one.footprint, p->v, planner_limit_bytes(p)), 0.9, 1e-9, "room");
    assert_ok(planner_interval(p, &one, &err), &err);
    assert_true(one.lo_s < one.step.seconds && one.step.seconds < one.hi_s);
    assert_true(one.mfu > 0.2 && one.mfu < 0.8);
    assert_ok(planner_plan(p, &one, &plan, &err), &err);
    assert_string_equal(plan.cluster, "dgx-h100:8");
    double sum = 0;
    for (int i = 0; i < plan.n_terms; i++)
        sum += plan.terms[i].seconds;
    assert_close(sum, plan.predicted_step_s, 1e-9, "terms");
    planner_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force), cmocka_unit_test(prefix), cmocka_unit_test(twins_once),
        cmocka_unit_test(least),
        cmocka_unit_test(encoders_fill), cmocka_unit_test(average),
        cmocka_unit_test(processors), cmocka_unit_test(effort),
        cmocka_unit_test(nearest), cmocka_unit_test(refused),
        cmocka_unit_test(crowded), cmocka_unit_test(gathered_less),
        cmocka_unit_test(less_latency),
        cmocka_unit_test(predicted), cmocka_unit_test(other_trainers),
    };
    return cmocka_run_group_tests_name("autotune_stream", tests, NULL, NULL);
}
