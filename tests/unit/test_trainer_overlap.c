/* What runs under what, and where the time goes, read from the trace file and the report of small runs.
 *
 *     test_trainer_overlap                      kinds name a step's time; the file is what its essay says
 *     mpirun -n 4 test_trainer_overlap          and: between issue and wait of what a layout hides there is computation, on every rank
 *     OVERLAP=timed mpirun -n 2 …               and: with a latency put on what is hidden a step hardly grows (CLAIM=tp: of layouts with that alone)
 */
#include "trainer_run.h"

#include <math.h>
#include <signal.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "base/clock.h"
#include "trainer/meter.h"
#include "trainer/train.h"

enum { STEPS = 4, RANKS_MAX = 8 };
static volatile sig_atomic_t stop;
static bool timed;
static int64_t run_steps = STEPS;

/* ---- a run and its trace ---- */

struct size { int64_t layers, hidden, heads; const char *data; };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define MIDDLE "synthetic:1x4x4" /* all is slower there */
#else
#define MIDDLE "synthetic:1x32x32"
#endif
static const struct size small = {4, 48, 4, "synthetic:1x8x8"}, middle = {4, 384, 6, MIDDLE}, large = {4, 384, 6, "synthetic:1x64x64"};

static void run_make_size(struct run *run, const struct size *s, int64_t gbs)
{
    run_make(run, s->data, gbs, run_steps);
    run->model.layers = s->layers;
    run->model.hidden = s->hidden;
    run->model.heads = run->model.kv_heads = s->heads;
    run->model.ffn = 4 * s->hidden;
    run->dtype = DTYPE_F32;
}

static const char *trace_path(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/trace.json", scratch);
    return path;
}

/* By the first ranks of the world. */
static struct train_report train(const struct size *size, const char *layout, int64_t gbs, const char *trace)
{
    struct run run;
    struct train_report report = {0};
    struct err err = {0};
    run_make_size(&run, size, gbs);
    struct plan plan = plan_make_text(&run, layout);
    struct comm *group = first_ranks((int)layout_world(&plan.layout));
    struct train_conf conf = {.run = &run, .plans = &plan, .run_dir = in_scratch("run"), .attempt = 1, .trial = true, .trace = trace,
                              .world = group, .stop = &stop};
    if (group) {
        must(train_run(&conf, &report, &err), &err);
        comm_close(group);
    }
    run_release(&run);
    must(comm_barrier(world, &err), &err);
    return report;
}

static cJSON *trace_load(void)
{
    struct str text = STR_INIT;
    struct err err = {0};
    must(file_read(trace_path(), 1 << 28, &text, &err), &err);
    cJSON *root = cJSON_ParseWithLength(text.p, text.len);
    assert_non_null(root);
    str_release(&text);
    return root;
}

/* ---- intervals ---- */

struct interval { double from, to; bool work; }; /* work: a product, attention or update */
struct operation { const char *what; double at, wait_at, wait_us; };
struct lane { struct interval *ops; struct operation *comm; int64_t n_ops, n_comm; };

static const char *text_of(const cJSON *e, const char *key) { return json_text(e, key, ""); }

static void lane_add(struct lane *l, const cJSON *e)
{
    const char *ph = text_of(e, "ph"), *cat = text_of(e, "cat");
    double ts = json_num(e, "ts", NAN);
    if (strcmp(ph, "X") == 0 && strcmp(cat, "op") == 0) {
        const char *name = text_of(e, "name");
        l->ops[l->n_ops++] = (struct interval){ts, ts + json_num(e, "dur", NAN), strcmp(name, "gemm") == 0 || strncmp(name, "attn", 4) == 0 || strcmp(name, "adamw") == 0};
    }
    if (strcmp(ph, "b") == 0) {
        const cJSON *args = json_member(e, "args");
        l->comm[l->n_comm++] = (struct operation){text_of(e, "name"), ts, json_num(args, "wait_ts", NAN), json_num(args, "wait_us", NAN)};
    }
}

static void lanes_read(const cJSON *root, struct lane lanes[RANKS_MAX])
{
    const cJSON *events = json_member(root, "traceEvents"), *e;
    int64_t most = cJSON_GetArraySize(events);
    for (int r = 0; r < RANKS_MAX; r++)
        lanes[r] = (struct lane){calloc((size_t)most, sizeof(struct interval)), calloc((size_t)most, sizeof(struct operation)), 0, 0};
    cJSON_ArrayForEach(e, events) {
        int64_t pid = json_int(e, "pid", -1);
        assert_in_range(pid, 0, world->size - 1);
        lane_add(&lanes[pid], e);
    }
}

static void lanes_release(struct lane lanes[RANKS_MAX])
{
    for (int r = 0; r < RANKS_MAX; r++)
        free(lanes[r].ops), free(lanes[r].comm);
}

/* Some work lies wholly between issue and wait. */
static bool hidden(const struct lane *l, const struct operation *c)
{
    for (int64_t i = 0; i < l->n_ops; i++)
        if (l->ops[i].work && l->ops[i].from >= c->at && l->ops[i].to <= c->wait_at)
            return true;
    return false;
}

/* ---- what a layout hides ---- */

static const struct claim {
    const char *layout, *what;
    double share; /* of its operations, at least. The first of a forward and the last of a backward have nothing to run under */
} claims[] = {
    {"dp=2,zero=3", "weights of a unit", 0.95},
    {"dp=2,zero=3", "gradients of a unit", 0.92},
    {"dp=2,zero=2", "gradients of a unit", 0.92},
    {"dp=2,zero=1", "gradients of a unit", 0.85},
    {"dp=2,zero=1", "weights of a unit", 0.85},
    {"dp=2,zero=0", "gradients of a unit", 0.85},
    {"dp=2,zero=0", "summed gradients of a unit", 0.85},
    {"dp=4,zero=1,fsdp=2", "gradients over replicas", 0.5},
    {"dp=4,zero=3,fsdp=2", "gradients over replicas", 0.5},
    {"cp=2,cp_kind=ring", "keys and values of the ring", 1},
    {"cp=2,cp_kind=ring", "gradients of the ring's keys and values", 0.5},
    {"tp=2,sp=1", "gradient of a branch's input", 1},
    {"tp=2,sp=0", "gradient of a branch's input", 1},
    {"tp=2,sp=1", "token rows of tp ranks", 0.66},
    {"tp=2,sp=1", "MLP's output", 0.5}, /* of two chunks the first */
    {"tp=2,sp=0", "MLP's output", 0.5},
};

static bool fits(const char *layout)
{
    struct layout l;
    struct err err = {0};
    must(layout_parse(layout, &l, &err), &err);
    return layout_world(&l) <= world->size && layout_world(&l) > 1;
}

static void claim_check(const struct claim *c, struct lane lanes[RANKS_MAX])
{
    for (int r = 0; r < RANKS_MAX; r++) {
        int64_t all = 0, under = 0;
        for (int64_t i = 0; i < lanes[r].n_comm; i++) {
            if (strcmp(lanes[r].comm[i].what, c->what) != 0)
                continue;
            all++;
            under += hidden(&lanes[r], &lanes[r].comm[i]);
        }
        if (lanes[r].n_comm == 0)
            continue;
        if (all < STEPS || (double)under < c->share * (double)all)
            fail_msg("%s, rank %d: %lld of %lld '%s' have computation between issue and wait", c->layout, r, (long long)under, (long long)all, c->what);
    }
}

static void operations_run_under_computation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct lane lanes[RANKS_MAX];
        if (!fits(claims[i].layout))
            continue;
        if (i == 0 || strcmp(claims[i].layout, claims[i - 1].layout) != 0)
            train(&small, claims[i].layout, 4, trace_path());
        if (world->rank > 0)
            continue;
        cJSON *root = trace_load();
        lanes_read(root, lanes);
        claim_check(&claims[i], lanes);
        lanes_release(lanes);
        cJSON_Delete(root);
    }
}

/* ---- a latency on what is hidden ---- */

enum { PAIRS = 40, SUMS = 3 /* comm_sum of a step: losses, gradients' squares, the update's */ };
static const double PUT = 0.06, EXPOSED = 0.2;

/* Of rank 0: the latency of each of the claim's operations so that it is PUT of a step altogether; what of that lies, per step, within the
 * operation as it was without it, from issue to the end of its wait, and what does not. */
struct timing { double step_s, latency_s, covered_s, bare_s; };

static struct timing timing_of(const struct claim *c)
{
    struct timing t = {.step_s = INFINITY};
    struct lane lanes[RANKS_MAX];
    cJSON *root = trace_load();
    const cJSON *e;
    double n = 0;
    cJSON_ArrayForEach(e, json_member(root, "traceEvents"))
        if (json_int(e, "pid", -1) == 0 && strcmp(text_of(e, "name"), "step") == 0)
            t.step_s = fmin(t.step_s, 1e-6 * json_num(e, "dur", NAN));
    lanes_read(root, lanes);
    for (int64_t i = 0; i < lanes[0].n_comm; i++)
        n += strcmp(lanes[0].comm[i].what, c->what) == 0;
    t.latency_s = PUT * t.step_s * STEPS / n;
    for (int64_t i = 0; i < lanes[0].n_comm; i++)
        if (strcmp(lanes[0].comm[i].what, c->what) == 0)
            t.covered_s += fmin(t.latency_s, 1e-6 * (lanes[0].comm[i].wait_at + lanes[0].comm[i].wait_us - lanes[0].comm[i].at)) / STEPS;
    t.bare_s = PUT * t.step_s - t.covered_s;
    lanes_release(lanes);
    cJSON_Delete(root);
    return t;
}

/* Every other step has the latency, so that what else the machine does meets both alike: its last sum is where one ends and one begins. */
static struct { double latency_s, since_s, step_s[2 * PAIRS + 1]; int sums, steps, late; /* operations that took the latency */ } turns;

static void take_turns(void *ctx, const struct comm *c, const struct comm_op *op, const struct comm_times *t)
{
    (void)ctx, (void)c;
    if (world->conf->latency_s > 0 && strcmp(op->what, world->conf->latency_what) == 0)
        turns.late += t->end_s - t->start_s >= turns.latency_s;
    if (strcmp(op->what, "sum") != 0 || ++turns.sums % SUMS != 0)
        return;
    turns.step_s[turns.steps++] = t->end_s - turns.since_s;
    turns.since_s = t->end_s;
    world->conf->latency_s = turns.steps % 2 ? turns.latency_s : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over pairs of steps of how much longer the one with the latency takes. */
static double late_by(const struct claim *c, double latency_s)
{
    double more[PAIRS];
    turns.latency_s = latency_s;
    turns.sums = turns.steps = turns.late = 0;
    world->conf->latency_what = c->what;
    world->conf->trace = take_turns;
    run_steps = 2 * PAIRS + 1;
    train(&large, c->layout, 2, NULL);
    run_steps = STEPS;
    world->conf->trace = NULL;
    world->conf->latency_what = NULL;
    world->conf->latency_s = 0;
    assert_int_equal(turns.steps, 2 * PAIRS + 1);
    assert_true(turns.late >= PAIRS); /* it was put on */
    for (int i = 0; i < PAIRS; i++)
        more[i] = turns.step_s[2 * i + 1] - turns.step_s[2 * i + 2];
    qsort(more, PAIRS, sizeof *more, by_size);
    return (more[PAIRS / 2 - 1] + more[PAIRS / 2]) / 2;
}

/* Does a step grow by less than EXPOSED of the delay that has time to pass within the operations as they were, over what has not? That there is
 * computation between issue and wait is another test's. */
static bool is_hidden(const struct claim *c)
{
    struct timing t = {0};
    struct err err = {0};
    train(&large, c->layout, 2, trace_path());
    if (world->rank == 0)
        t = timing_of(c);
    double latency_s = t.latency_s;
    must(comm_max(world, &latency_s, 1, &err), &err);
    double more = late_by(c, latency_s), share = (more - t.bare_s) / t.covered_s;
    if (world->rank > 0)
        return true;
    printf("# %s, '%s': of %.1f ms each, %.0f ms a step altogether, %.0f ms have time to pass; a step of %.0f ms grows by %.1f ms, %.1f ms of it "
           "without cover: %.0f %% of what has time\n", c->layout, c->what, 1e3 * latency_s, 1e3 * (t.covered_s + t.bare_s), 1e3 * t.covered_s, 1e3 * t.step_s,
           1e3 * more, 1e3 * t.bare_s, 100 * share);
    fflush(stdout);
    return share < EXPOSED;
}

static void latency_is_hidden(void **state)
{
    const char *only = getenv("CLAIM");
    int missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        missed += fits(claims[i].layout) && (!only || strstr(claims[i].layout, only)) && !is_hidden(&claims[i]);
    if (missed)
        fail_msg("the step grows by more than %g of the delay in %d of the claims above", EXPOSED, missed);
}

/* ---- the file and the table ---- */

static void kinds_name_the_step(void **state)
{
    (void)state;
    struct train_report r = train(&middle, "dp=1", 1, trace_path());
    if (world->rank == 0 && !(r.named_share >= 0.98 && r.named_share <= 1.0001))
        fail_msg("the kinds name %.4f of a step", r.named_share);
}

/* Spans enclose what is within them: no two of lane 0 cross. */
static void the_trace_is_well_formed(void **state)
{
    (void)state;
    train(&small, "dp=1", 2, trace_path());
    if (world->rank > 0)
        return;
    cJSON *root = trace_load();
    const cJSON *e, *events = json_member(root, "traceEvents"), *other = json_member(root, "otherData");
    int64_t steps = 0, layers = 0, begun = 0, ended = 0;
    assert_string_equal(json_text(other, "schema", ""), "reel.trace/1");
    assert_int_equal(cJSON_GetArraySize(json_member(other, "dropped")), 1);
    cJSON_ArrayForEach(e, events) {
        steps += strcmp(text_of(e, "name"), "step") == 0;
        layers += strncmp(text_of(e, "name"), "layer ", 6) == 0;
        begun += strcmp(text_of(e, "ph"), "b") == 0, ended += strcmp(text_of(e, "ph"), "e") == 0;
        if (strcmp(text_of(e, "ph"), "M") != 0)
            assert_true(json_num(e, "ts", -1) >= 0 && json_num(e, "dur", 0) >= 0);
    }
    assert_int_equal(steps, STEPS);
    assert_int_equal(layers, STEPS * 2 * 2 * small.layers); /* micro-batches, forward and backward */
    assert_true(begun > 0 && begun == ended);
    cJSON_Delete(root);
}

static void the_newest_spans_win(void **state)
{
    struct meter m;
    struct err err = {0};
    (void)state;
    must(meter_open(&m, 3, &err), &err);
    for (int i = 0; i < 5; i++)
        meter_span(&m, meter_begin(&m), "x", i);
    assert_int_equal(m.n, 5);
    for (int i = 2; i < 5; i++)
        assert_int_equal(m.spans[i % 3].arg, i);
    meter_close(&m);
}

/* An inner call's time is its own: the outer one's is what is left. */
static void times_are_exclusive(void **state)
{
    struct meter m;
    struct err err = {0};
    double step_s[METER_KINDS];
    (void)state;
    must(meter_open(&m, 0, &err), &err);
    struct meter_mark outer = meter_begin(&m), span = meter_begin(&m), inner = meter_begin(&m);
    clock_sleep_s(0.01);
    meter_end(&m, inner, METER_OP_gemm, -1);
    meter_span(&m, span, "layer", 0);
    double took = clock_mono_s() - outer.start_s;
    meter_end(&m, outer, METER_STAGE, -1);
    assert_true(m.seconds[METER_OP_gemm] >= 0.01 && m.seconds[METER_STAGE] >= 0);
    assert_true(m.seconds[METER_STAGE] <= took - 0.01 + (clock_mono_s() - outer.start_s - took));
    double sum = m.seconds[METER_OP_gemm] + m.seconds[METER_STAGE];
    assert_true(fabs(meter_step(&m, sum, step_s) - 1) < 1e-9 && step_s[METER_OP_gemm] == m.seconds[METER_OP_gemm]);
    assert_true(meter_step(&m, 1, step_s) == 0);
    meter_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_spans_win),
        cmocka_unit_test(times_are_exclusive),
        cmocka_unit_test(the_trace_is_well_formed),
        cmocka_unit_test(kinds_name_the_step),
        cmocka_unit_test(operations_run_under_computation),
    };
    const struct CMUnitTest slow[] = {cmocka_unit_test(latency_is_hidden)};
    timed = getenv("OVERLAP") && strcmp(getenv("OVERLAP"), "timed") == 0;
    world_open(argc, argv);
    int failed = cmocka_run_group_tests_name("overlap", tests, shared_setup, shared_teardown);
    return world_close(failed || !timed ? failed : cmocka_run_group_tests_name("latency", slow, shared_setup, shared_teardown));
}
