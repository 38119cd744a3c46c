/* These tests are of what computation hides: messages of a ring and of the state under the same layer
 * or backward, on the same wires or on others, computed by hand; and layouts drawn at random, which
 * no faster device, link or network makes slower. */
#include "tests/lib/test_profiles.h"

#include <math.h>
#include <unistd.h>

#include "autotune/planner.h"
#include "base/philox.h"

static struct planner *planner_of(const char *model, const char *cluster, const char *stack,
                                  const char *seq)
{
    struct plan_ask ask = {.model = model, .cluster = cluster, .stack = stack, .gbs = 32,
                           .dtype = DTYPE_BF16, .fits = 0.9};
    struct err err;
    assert_ok(seq_parse(seq, "seq", &ask.seq, &err), &err);
    struct planner *p = planner_new(&ask, &err);
    if (!p)
        fail_msg("%s", err.text);
    return p;
}

/* ---- by hand ---- */

/* Adds for how long messages keep links (0) and NICs (1) busy, and the longer of these. */
static void busy_add(const struct price_route *r, double count, double bytes, double busy[3])
{
    double link = r->link_s > 0 ? bytes * r->link_s + r->latency_s : 0,
           nic = r->nic_s > 0 ? bytes * r->nic_s + r->latency_s : 0;
    busy[0] += count * link, busy[1] += count * nic, busy[2] += count * fmax(link, nic);
}

/* Returns the seconds of a gather of a unit that a part does not hide, and adds those of its ring
 * that attention does not hide. */
static double not_hidden(const struct price *p, const struct layout *l, enum work_unit_id unit,
                         enum work_part_id id, enum work_state_id gather, double *ring)
{
    const struct work_part *part = &p->work->parts[id];
    const struct price_part *q = &p->parts[id];
    struct price_route r;
    struct work_state st;
    double sent[3] = {0}, gathered[3] = {0}, most = 0;
    work_state(p->work, l, &st);
    for (int i = 0; i < part->n_messages; i++) {
        const struct work_message *g = &part->messages[i];
        r = price_route(p->machine, price_group(l, p->work->model, g->group), g->kind);
        if (g->hide == HIDE_ATTENTION)
            busy_add(&r, g->count, g->bytes, sent);
    }
    r = price_route(p->machine, price_group(l, p->work->model, st.group[gather]), st.kind[gather]);
    busy_add(&r, 1, st.bytes[gather] * p->work->unit_elements[unit], gathered);
    if (unit == UNIT_FIRST)
        return gathered[2]; /* nothing hides it */
    double wait = fmax(0, sent[2] - q->attention - q->launch +
                              part->kernels * p->machine->v[CONSTANT_KERNEL_S]);
    for (int x = 0; x < 2; x++)
        most = fmax(most, gathered[x] - p->machine->v[CONSTANT_GATHER_HIDDEN] *
                                            (price_compute(q) + q->cp_fixed + wait - sent[x]));
    *ring += wait;
    return most;
}

/* Returns the seconds of a micro-batch's gathers that nothing hides, on the only stage; *layer:
 * those of a layer. */
static double gathers(const struct price *p, const struct layout *l, double *layer, double *ring)
{
    double first = 0, last = 0;
    *layer = *ring = 0;
    for (int k = 0; k < 2; k++) {
        enum work_state_id id = STATE_GATHER_FORWARD + k;
        *layer += not_hidden(p, l, UNIT_LAYER, WORK_LAYER_FORWARD + k, id, ring);
        first += not_hidden(p, l, UNIT_FIRST, WORK_FIRST_FORWARD + k, id, ring);
        last += not_hidden(p, l, UNIT_LAST, WORK_LAST_FORWARD + k, id, ring);
    }
    return (double)p->work->model->layers * *layer + first + last;
}

struct priced {
    struct work w;
    struct layout l;
    struct price_machine m;
    struct price price;
    struct price_step s;
};

/* Prices a layout on GPUs whose links and NICs have these shares of their speeds. */
static void layout_price(struct planner *p, const char *layout, int64_t gpus, double link,
                         double nic, struct priced *out)
{
    struct err err;
    assert_ok(planner_gpus(p, gpus, &err), &err);
    assert_ok(layout_parse(layout, &out->l, &err), &err);
    p->cluster.node.link_bytes_per_s *= link;
    p->cluster.node.nic_bytes_per_s *= nic;
    price_machine(&p->cluster, p->v, DTYPE_BF16, false, &out->m);
    work_build(&p->work, &out->l, &out->w);
    price_parts(&out->m, &out->w, &out->price);
    price_step(&out->price, &out->l, &out->s);
}

/* A ring's messages come first. On the wires that both need, weights are gathered in what the ring
 * leaves of computation; on NICs, which a ring inside a node does not need, beside it, also while
 * the layer waits for the ring. */
static void ring_beside_gathers(void **state)
{
    static const struct {
        const char *layout;
        int64_t gpus;
        double link, nic; /* factors of their speeds */
        bool waits, exposed; /* a layer waits for its ring; for its weights */
    } cases[] = {
        {"cp=4,dp=2,zero=3,mbs=4", 8, 1, 1, false, false},
        {"cp=4,dp=2,zero=3,mbs=4", 8, 0.21, 1, false, true},
        {"cp=4,dp=2,zero=3,mbs=4", 8, 0.01, 1, true, true},
        {"cp=8,dp=2,zero=3,fsdp=16,mbs=4", 16, 1, 0.02, false, true},
        {"cp=8,dp=2,zero=3,fsdp=16,mbs=4", 16, 0.05, 1, true, true},
        {"cp=8,dp=2,zero=3,fsdp=16,mbs=4", 16, 0.05, 0.05, true, true},
        {"cp=8,dp=2,zero=3,fsdp=16,mbs=4", 16, 0.05, 0.01, true, true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planner *p = planner_of("llama-3-8b", "dgx-h100", "fsdp2", "8192");
        static struct priced at;
        double layer, ring;
        layout_price(p, cases[i].layout, cases[i].gpus, cases[i].link, cases[i].nic, &at);
        double want = at.w.micro_batches * gathers(&at.price, &at.l, &layer, &ring);
        assert_close(at.s.term[PRICE_GATHER], want, 1e-9, cases[i].layout);
        assert_int_equal(ring > 0, cases[i].waits);
        assert_int_equal(layer > 0, cases[i].exposed);
        planner_free(p);
    }
}

/* Adds for how long a layer's messages keep wires busy. */
static void layers_busy(const struct price *p, const struct layout *l, enum work_part_id id,
                        double count, double busy[3])
{
    const struct work_part *part = &p->work->parts[id];
    for (int i = 0; i < part->n_messages; i++) {
        const struct work_message *g = &part->messages[i];
        struct price_route r =
            price_route(p->machine, price_group(l, p->work->model, g->group), g->kind);
        busy_add(&r, count * g->count, g->bytes, busy);
    }
}

/* Returns the seconds of sums over replicas, once a step, that the only stage's backward does not
 * hide; *last: those of the last layer, which come when nothing computes any more. */
static double sums_exposed(const struct price *p, const struct layout *l, double *last)
{
    const struct price_part *q = p->parts;
    const struct work *w = p->work;
    double layers = (double)w->model->layers, elements = 0, sent[3] = {0}, taken[3] = {0},
           most = 0;
    double pass = layers * q[WORK_LAYER_BACKWARD].seconds + q[WORK_FIRST_BACKWARD].seconds +
                  q[WORK_LAST_BACKWARD].seconds + q[WORK_EACH_BACKWARD].seconds;
    struct work_state st;
    work_state(w, l, &st);
    for (int u = 0; u < WORK_UNITS; u++)
        elements += w->unit_elements[u] * (u == UNIT_LAYER ? layers : 1);
    for (int i = STATE_REDUCE; i <= STATE_REPLICAS; i++)
        if (st.bytes[i] > 0) {
            struct price_route r = price_route(
                p->machine, price_group(l, w->model, st.group[i]), st.kind[i]);
            busy_add(&r, 1, elements * st.bytes[i], sent);
        }
    layers_busy(p, l, WORK_LAYER_BACKWARD, layers, taken);
    layers_busy(p, l, WORK_LAST_BACKWARD, 1, taken);
    for (int x = 0; x < 2; x++)
        most = fmax(most, sent[x] - p->machine->v[CONSTANT_REDUCE_HIDDEN] *
                                        fmax(0, pass - taken[x]));
    *last = sent[2] / layers;
    return fmax(most, *last);
}

/* Gradients that are summed once a step do not hide on wires while a ring, or sums of
 * tensor-parallel ranks, use them: less of them hides, the slower the links are that both need. */
static void sums_beside_ring(void **state)
{
    static const struct {
        const char *layout;
        int64_t gpus;
        double link;
        bool exposed; /* more than the last layer's */
    } cases[] = {
        {"cp=4,dp=2,zero=1,mbs=1", 8, 4, false},
        {"cp=4,dp=2,zero=1,mbs=1", 8, 1, true},
        {"cp=4,dp=2,zero=1,mbs=1", 8, 0.08, true},
        {"tp=4,sp=1,dp=2,zero=1,mbs=1", 8, 1, false},
        {"tp=4,sp=1,dp=2,zero=1,mbs=1", 8, 0.05, true},
        {"cp=8,dp=2,zero=1,mbs=1", 16, 0.05, true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planner *p = planner_of("llama-3-8b", "dgx-h100", "megatron", "8192");
        static struct priced at;
        double last;
        p->cluster.node.link_latency_s = p->cluster.node.nic_latency_s = 0;
        layout_price(p, cases[i].layout, cases[i].gpus, cases[i].link, 1, &at);
        double want = sums_exposed(&at.price, &at.l, &last);
        assert_close(at.s.term[PRICE_REDUCE], want, 1e-9, cases[i].layout);
        assert_int_equal(want > last, cases[i].exposed);
        planner_free(p);
    }
}

/* ---- drawn ---- */

static uint64_t seed, draws;

static int64_t drawn(int64_t n)
{ return (int64_t)(philox_uniform_at(seed, PHILOX_TEST, 1, draws++) * (double)n); }

/* Draws a layout of this many GPUs, a number without other prime factors than 2 and 3. */
static struct layout layout_drawn(int64_t gpus, bool orders)
{
    struct layout l = layout_default();
    int64_t *sizes[] = {&l.tp, &l.cp, &l.cp, &l.pp, &l.dp};
    int all[LAYOUT_ORDERS];
    for (int64_t left = gpus; left > 1;) {
        int64_t by = left % 2 == 0 ? 2 : 3;
        *sizes[drawn(5)] *= by;
        left /= by;
    }
    l.sp = l.tp > 1 ? drawn(2) : 0;
    l.cp_kind = l.cp > 1 && drawn(2) ? (enum cp_kind)drawn(CP_2D + 1) : CP_RING;
    l.zero = drawn(2) ? 3 : drawn(4);
    l.vpp = l.pp > 1 ? 1 + drawn(3) : 1;
    l.mbs = 1 + drawn(8);
    l.recompute = (enum recompute)drawn(RECOMPUTE_FULL + 1);
    if (orders)
        l.order = all[drawn(layout_orders(&l, all))];
    return l;
}

static double priced(const struct planner *p, const struct cluster *c, const struct layout *l,
                     struct price_step *step)
{
    static struct work w;
    struct price_machine m;
    struct price price;
    struct price_step replay;
    struct err err;
    work_build(&p->work, l, &w);
    price_machine(c, p->v, DTYPE_BF16, false, &m);
    price_parts(&m, &w, &price);
    price_step(&price, l, step);
    assert_ok(price_replay(&price, l, &replay, &err), &err);
    return replay.seconds;
}

/* Makes one part of a cluster faster, and sees that no layout gets slower. Returns whether a ring
 * and the state both hide. */
static bool faster_drawn(const struct planner *p, const struct layout *l)
{
    struct price_step before, after;
    double replay = priced(p, &p->cluster, l, &before);
    for (int what = 0; what < 5; what++) {
        struct cluster c = p->cluster;
        double by = 1 + 0.01 * (double)(1 + drawn(200));
        double *speeds[] = {&c.node.link_bytes_per_s, &c.node.nic_bytes_per_s,
                            &c.device.memory_bytes_per_s, &c.device.peak_flops[DTYPE_BF16]};
        if (what < 4)
            *speeds[what] *= by;
        else
            c.node.link_latency_s /= by, c.node.nic_latency_s /= by;
        double faster = priced(p, &c, l, &after);
        struct str text = STR_INIT;
        layout_format(l, &text);
        if (faster > replay * (1 + 1e-9) || after.seconds > before.seconds * (1 + 1e-4))
            fail_msg("SEED=%llu: %s of %s on %s, %s: %.15g s, bound %.15g; with speed %d times %g "
                     "%.15g s, bound %.15g", (unsigned long long)seed, text.p, p->model.name,
                     p->cluster.name, p->stack.name, replay, before.seconds, what, by, faster,
                     after.seconds);
        str_release(&text);
    }
    return before.hidden[PRICE_CP] > 0 && before.hidden[PRICE_GATHER] + before.hidden[PRICE_REDUCE] > 0;
}

static void faster_is_not_slower(void **state)
{
    static const char *const models[][2] = {{"dit-b", "16x32x32"}, {"moviegen-1b", "5x9x5"},
                                            {"llama-3-8b", "2048"}, {"moviegen-5b", "8x16x16"},
                                            {"llama-3-8b", "32768"}},
        *const clusters[] = {"dgx-a100-40", "dgx-h100", "dgx-b200"},
        *const stacks[] = {"reel", "reel", "fsdp2", "megatron", "deepspeed-zero3"};
    static const int64_t gpus[] = {8, 16, 24, 48, 64};
    const char *given = getenv("SEED");
    int64_t both = 0;
    (void)state;
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)getpid();
    for (int i = 0; i < 40; i++) {
        int64_t m = drawn(ARRAY_LEN(models)), s = drawn(ARRAY_LEN(stacks));
        struct planner *p = planner_of(models[m][0], clusters[drawn(ARRAY_LEN(clusters))],
                                       stacks[s], models[m][1]);
        struct err err;
        assert_ok(planner_gpus(p, gpus[drawn(ARRAY_LEN(gpus))], &err), &err);
        for (int k = 0; k < 100; k++) {
            struct layout l = layout_drawn(p->gpus, p->stack.kind == STACK_REEL);
            if (layout_broken_rule(&l, &p->model, p->ask.seq, p->ask.gbs, p->gpus) < 0)
                both += faster_drawn(p, &l);
        }
        planner_free(p);
    }
    if (both < 100)
        fail_msg("SEED=%llu: in %lld layouts both hide", (unsigned long long)seed, (long long)both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ring_beside_gathers),
                                       cmocka_unit_test(sums_beside_ring),
                                       cmocka_unit_test(faster_is_not_slower)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
