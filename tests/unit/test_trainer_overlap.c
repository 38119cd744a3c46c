/* What runs under what, and where the time goes, read from the trace file and the report of small
 * runs.
 *
 *     test_trainer_overlap                 kinds name a step's time; the file is what its essay says;
 *                                          a device that queues computes while batches are read
 *     mpirun -n 4 test_trainer_overlap     and: between issue and wait of what a layout hides there
 *                                          is computation, on every rank
 *     OVERLAP=order mpirun -n 2 …          that alone, for devices whose times say nothing
 *     OVERLAP=timed mpirun -n 2 …          and: with a latency put on what is hidden a step hardly
 *                                          grows (CLAIM=tp: of layouts with that alone, here and with
 *                                          order)
 */
// LINK: -Wl,--wrap=dev_far_open,--wrap=loader_read,--wrap=loader_ahead,--wrap=clock_cpu_s,--wrap=train_profile_step_end
#include "tests/lib/trainer_run.h"

#include <math.h>
#include <signal.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "base/clock.h"
#include "trainer/data/loader.h"
#include "trainer/dev/dev_far.h"
#include "trainer/watch/meter.h"
#include "trainer/run/record.h"
#include "trainer/run/train.h"

enum { STEPS = 4, RANKS_MAX = 8 };
static volatile sig_atomic_t stop;
static int64_t run_steps = STEPS;

/* ---- a run and its trace ---- */

struct size { int64_t layers, hidden, heads; const char *data; };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define MIDDLE "synthetic:1x4x4" /* all is slower there */
#else
#define MIDDLE "synthetic:1x16x16"
#endif
static const struct size small = {4, 48, 4, "synthetic:1x8x8"}, middle = {2, 256, 4, MIDDLE},
                         large = {4, 384, 6, "synthetic:1x64x64"};

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

/* Trains on the first ranks of the world. */
static struct train_report train(const struct size *size, const char *layout, int64_t gbs,
                                 const char *trace)
{
    struct run run;
    struct train_report report = {0};
    struct err err = {0};
    run_make_size(&run, size, gbs);
    struct plan plan = plan_make_text(&run, layout);
    struct comm *group = first_ranks((int)layout_world(&plan.layout));
    struct train_conf conf = {.run = &run, .plans = &plan, .run_dir = in_scratch("run"),
                              .attempt = 1, .trial = true, .trace = trace, .world = group,
                              .stop = &stop};
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

/* A call, by when the host made it; on a device that queues it is over at once. work: a product,
 * attention or update */
struct interval { double from, to; bool work; };
struct operation { const char *what; double at, wait_at, end, late_us; };
struct lane { struct interval *ops; struct operation *comm; int64_t n_ops, n_comm; };

static const char *text_of(const cJSON *e, const char *key) { return json_text(e, key, ""); }

static void lane_add(struct lane *l, const cJSON *e)
{
    const char *ph = text_of(e, "ph"), *cat = text_of(e, "cat");
    double ts = json_num(e, "ts", NAN);
    if (strcmp(ph, "X") == 0 && strcmp(cat, "op") == 0) {
        const char *name = text_of(e, "name");
        double queued = json_num(json_member(e, "args"), "queued_ts", NAN);
        bool work = strcmp(name, "gemm") == 0 || strncmp(name, "attn", 4) == 0 ||
                    strcmp(name, "adamw") == 0;
        l->ops[l->n_ops++] = isnan(queued)
                                 ? (struct interval){ts, ts + json_num(e, "dur", NAN), work}
                                 : (struct interval){queued, queued, work};
    }
    if (strcmp(ph, "b") == 0) {
        const cJSON *args = json_member(e, "args");
        double wait_at = json_num(args, "wait_ts", NAN);
        l->comm[l->n_comm++] = (struct operation){text_of(e, "name"), ts, wait_at,
                                                  wait_at + json_num(args, "wait_us", NAN),
                                                  json_num(args, "late_us", 0)};
    }
}

static void lanes_read(const cJSON *root, struct lane lanes[RANKS_MAX])
{
    const cJSON *events = json_member(root, "traceEvents"), *e;
    int64_t most = cJSON_GetArraySize(events);
    for (int r = 0; r < RANKS_MAX; r++)
        lanes[r] = (struct lane){calloc((size_t)most, sizeof(struct interval)),
                                 calloc((size_t)most, sizeof(struct operation)), 0, 0};
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

/* Some work lies wholly between issue and wait. All three are the host's doings, one behind another
 * in one thread, so this is their order and no matter of time. */
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
    /* So many of its operations of STEPS steps have computation to run under, of so many. The first
     * of a forward and the last of a backward have none, nor has the second of two chunks. */
    int under, all;
    /* how long half of those have at least, in forwards of a layer: at most half of what was
     * seen. 0: of four ranks, not timed */
    double cover;
} claims[] = {
    {"dp=2,zero=3", "weights of a unit", 80, 84, 0.5},
    {"dp=2,zero=3", "gradients of a unit", 52, 56, 1},
    {"dp=2,zero=2", "gradients of a unit", 52, 56, 1},
    {"dp=2,zero=1", "gradients of a unit", 24, 28, 1},
    {"dp=2,zero=1", "weights of a unit", 24, 28, 0.02},
    {"dp=2,zero=0", "gradients of a unit", 24, 28, 1},
    {"dp=2,zero=0", "summed gradients of a unit", 24, 28, 0.02},
    {"dp=4,zero=1,fsdp=2", "gradients over replicas", 16, 28, 0},
    {"dp=4,zero=3,fsdp=2", "gradients over replicas", 20, 28, 0},
    {"cp=2,cp_kind=ring", "keys and values of the ring", 128, 128, 0.07},
    {"cp=2,cp_kind=ring", "gradients of the ring's keys and values", 64, 128, 0.14},
    {"tp=2,sp=1", "gradient of a branch's input", 192, 192, 0.07},
    {"tp=2,sp=0", "gradient of a branch's input", 192, 192, 0.07},
    {"tp=2,sp=1", "token rows of tp ranks", 384, 576, 0.02},
    {"tp=2,sp=1", "MLP's output", 64, 128, 0.05},
    {"tp=2,sp=0", "MLP's output", 64, 128, 0.05},
};

/* Says whether the layout is asked for and there are enough ranks for it. */
static bool fits(const char *layout)
{
    const char *only = getenv("CLAIM");
    struct layout l;
    struct err err = {0};
    if (only && !strstr(layout, only))
        return false;
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
        if (all != c->all || under != c->under)
            fail_msg("%s, rank %d: %lld of %lld '%s' have computation between issue and wait, and "
                     "not %d of %d",
                     c->layout, r, (long long)under, (long long)all, c->what, c->under, c->all);
    }
}

/* Holds the trace of a run against all claims of its layout. */
static void claims_check(const char *layout)
{
    struct lane lanes[RANKS_MAX];
    cJSON *root = trace_load();
    lanes_read(root, lanes);
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        if (strcmp(claims[i].layout, layout) == 0)
            claim_check(&claims[i], lanes);
    lanes_release(lanes);
    cJSON_Delete(root);
}

static void operations_run_under_computation(void **state)
{
    int64_t n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        bool first = i == 0 || strcmp(claims[i].layout, claims[i - 1].layout) != 0;
        n += first;
        if (!first || !fits(claims[i].layout) || !(getenv("OVERLAP") || dealt(n, 2)))
            continue;
        train(&small, claims[i].layout, 4, trace_path());
        if (world->rank == 0)
            claims_check(claims[i].layout);
    }
}

/* ---- what the host reads while a device computes ---- */

/* While it is on: the events that a device has recorded, each with the batches that were read before;
 * how often the host waited for one, and for one with fewer than two batches behind it; batches read
 * in their turn, and ahead; the stream's syncs, and as many as there were when the last batch was
 * read; reads ahead behind a later sync. */
static struct {
    bool on;
    struct dev plain;
    struct { const struct dev_event *event; int64_t reads; } records[64];
    int64_t n_records, waits, near, reads, aheads, syncs, read_syncs, late;
} host;

int __real_dev_far_open(uint64_t seed, struct dev **out, struct err *err);
int __real_loader_read(struct loader *l, int64_t first, int64_t n, uint64_t base, struct batch *out,
                       struct err *err);
void __real_loader_ahead(struct loader *l, int64_t first, int64_t n, uint64_t base);
int __wrap_dev_far_open(uint64_t seed, struct dev **out, struct err *err);
int __wrap_loader_read(struct loader *l, int64_t first, int64_t n, uint64_t base, struct batch *out,
                       struct err *err);
void __wrap_loader_ahead(struct loader *l, int64_t first, int64_t n, uint64_t base);

static int64_t record_of(const struct dev_event *e)
{
    int64_t i = 0;
    while (i < host.n_records && host.records[i].event != e)
        i++;
    assert_true(i < (int64_t)LEN(host.records));
    host.n_records = num_max_i64(host.n_records, i + 1);
    return i;
}

static void noting_record(struct dev *d, struct dev_event *e, struct dev_stream *s)
{
    int64_t i = record_of(e);
    host.records[i].event = e, host.records[i].reads = host.reads;
    host.plain.event_record(d, e, s);
}

static void noting_event_sync(struct dev *d, struct dev_event *e)
{
    host.waits++;
    host.near += host.reads - host.records[record_of(e)].reads < 2;
    host.plain.event_sync(d, e);
}

static int noting_stream_sync(struct dev *d, struct dev_stream *s, struct err *err)
{
    host.syncs++;
    return host.plain.stream_sync(d, s, err);
}

int __wrap_dev_far_open(uint64_t seed, struct dev **out, struct err *err)
{
    int rc = __real_dev_far_open(seed, out, err);
    if (rc < 0 || !host.on)
        return rc;
    host.plain = **out;
    (*out)->event_record = noting_record;
    (*out)->event_sync = noting_event_sync;
    (*out)->stream_sync = noting_stream_sync;
    return rc;
}

int __wrap_loader_read(struct loader *l, int64_t first, int64_t n, uint64_t base, struct batch *out,
                       struct err *err)
{
    host.reads += host.on;
    host.read_syncs = host.syncs;
    return __real_loader_read(l, first, n, base, out, err);
}

void __wrap_loader_ahead(struct loader *l, int64_t first, int64_t n, uint64_t base)
{
    host.aheads += host.on;
    host.late += host.on && host.syncs != host.read_syncs;
    __real_loader_ahead(l, first, n, base);
}

/* A micro-batch is staged as soon as the copy of the last but one is over, and the first batch of
 * the next step is read before this step is waited for. */
static void batches_are_read_under_computation(void **state)
{
    enum { BATCHES = 4 };
    char *before = getenv("REEL_DEVICE") ? strdup(getenv("REEL_DEVICE")) : NULL;
    bool check = world->conf->check; /* its copies are of the host */
    (void)state;
    host.on = true;
    world->conf->check = false;
    setenv("REEL_DEVICE", "far:1", true);
    train(&small, "mbs=1", BATCHES, NULL);
    host.on = false;
    before ? setenv("REEL_DEVICE", before, true) : unsetenv("REEL_DEVICE");
    world->conf->check = check;
    free(before);
    if (world->rank > 0)
        return;
    assert_int_equal(host.reads, STEPS * BATCHES);
    assert_int_equal(host.waits, STEPS * BATCHES - 2);
    assert_int_equal(host.near, 0);
    assert_int_equal(host.aheads, STEPS - 1);
    assert_int_equal(host.late, 0);
}

/* ---- a latency on what is hidden ---- */

enum {
    PAIRS = 12,
    LOW = 3 /* a median is below the third of twelve once in fifty times */,
    SUMS = 3 /* comm_sum of a step */
};
static const double PART = 0.5, EXPOSED = 0.2;

/* The claim's operations of STEPS steps, matched over the ranks: how many; those that have
 * computation between issue and wait on all ranks; how long a quarter and half of these have at
 * most; what was late of these, and of the others (comm.h, late_s: of each the most of a rank); how
 * long the shortest operation took. */
struct hiding {
    double step_s, layer_s, quarter_s, half_s, late_s, bare_s, least_s;
    int64_t n, under;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t keep_claimed(struct lane *l, const char *what)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_comm; i++)
        if (strcmp(l->comm[i].what, what) == 0)
            l->comm[n++] = l->comm[i];
    return l->n_comm = n;
}

static double shortest(const cJSON *root, const char *span)
{
    const cJSON *e;
    double least = INFINITY;
    cJSON_ArrayForEach(e, json_member(root, "traceEvents"))
        if (strcmp(text_of(e, "name"), span) == 0)
            least = fmin(least, 1e-6 * json_num(e, "dur", NAN));
    return least;
}

static struct hiding hiding_of(const struct claim *c)
{
    struct lane lanes[RANKS_MAX];
    cJSON *root = trace_load();
    lanes_read(root, lanes);
    struct hiding h = {.step_s = shortest(root, "step"), .layer_s = shortest(root, "layer forward"),
                       .least_s = INFINITY, .n = keep_claimed(&lanes[0], c->what)};
    double *covers = calloc((size_t)h.n + 1, sizeof *covers);
    for (int r = 1; r < world->size; r++)
        assert_int_equal(keep_claimed(&lanes[r], c->what), h.n);
    for (int64_t i = 0; i < h.n; i++) {
        bool under = true;
        double cover_us = INFINITY, late_us = 0;
        for (int r = 0; r < world->size; r++) {
            const struct operation *o = &lanes[r].comm[i];
            under &= hidden(&lanes[r], o);
            cover_us = fmin(cover_us, o->wait_at - o->at);
            late_us = fmax(late_us, o->late_us);
            h.least_s = fmin(h.least_s, 1e-6 * (o->end - o->at));
        }
        *(under ? &h.late_s : &h.bare_s) += 1e-6 * late_us;
        if (under)
            covers[h.under++] = 1e-6 * cover_us;
    }
    assert_true(h.under > 0);
    qsort(covers, (size_t)h.under, sizeof *covers, by_size);
    h.quarter_s = covers[h.under / 4];
    h.half_s = covers[h.under / 2];
    free(covers);
    lanes_release(lanes);
    cJSON_Delete(root);
    return h;
}

/* Every other step has the latency, so that what else the machine does meets both alike: its last
 * sum is where one ends and one begins. */
static struct { double latency_s, since_s, step_s[2 * PAIRS + 1]; int sums, steps; } turns;

static void take_turns(void *ctx, const struct comm *c, const struct comm_op *op,
                       const struct comm_times *t)
{
    (void)ctx, (void)c;
    if (strcmp(op->what, "sum") != 0 || ++turns.sums % SUMS != 0)
        return;
    turns.step_s[turns.steps++] = t->end_s - turns.since_s;
    turns.since_s = t->end_s;
    world->conf->latency_s = turns.steps % 2 ? turns.latency_s : 0;
}

/* How much longer a step with the latency takes than the next one without, by size. */
static void growth_of(const struct claim *c, double latency_s, double more[PAIRS])
{
    turns.latency_s = latency_s;
    turns.sums = turns.steps = 0;
    world->conf->trace = take_turns;
    run_steps = 2 * PAIRS + 1;
    train(&large, c->layout, 2, NULL);
    run_steps = STEPS;
    world->conf->trace = NULL;
    world->conf->latency_s = 0;
    assert_int_equal(turns.steps, 2 * PAIRS + 1);
    for (int i = 0; i < PAIRS; i++)
        more[i] = turns.step_s[2 * i + 1] - turns.step_s[2 * i + 2];
    qsort(more, PAIRS, sizeof *more, by_size);
}

/* Operations have the time to pass that the design gives them; and with half of what three quarters
 * of them have put on each, less than EXPOSED of it makes the step longer. How late waits were
 * bounds that, whatever else the machine does; the clock says it too, of all but the operations
 * that have nothing to run under, as far as its spread allows. */
static bool is_hidden(const struct claim *c)
{
    struct hiding h = {0}, with;
    struct err err = {0};
    double more[PAIRS], latency_s;
    train(&large, c->layout, 2, trace_path());
    if (world->rank == 0)
        h = hiding_of(c);
    latency_s = PART * h.quarter_s;
    must(comm_max(world, &latency_s, 1, &err), &err);
    world->conf->latency_what = c->what;
    world->conf->latency_s = latency_s;
    train(&large, c->layout, 2, trace_path());
    growth_of(c, latency_s, more);
    world->conf->latency_what = NULL;
    if (world->rank > 0)
        return true;
    with = hiding_of(c);
    assert_true(with.least_s > 0.999 * latency_s); /* it was put on */
    double put_s = latency_s * (double)with.under / STEPS,
           bare_s = latency_s * (double)(with.n - with.under) / STEPS, late_s = with.late_s / STEPS;
    printf(
        "# %s, '%s': %g of %g a step under computation, half of them for %.0f %% of a layer's "
        "forward; of %.2f ms each, %.1f ms, late %.2f ms, "
        "%.1f %%; of the others' %.1f ms %.1f; a step of %.0f ms grows by %.1f ms (%.1f to %.1f)\n",
        c->layout, c->what, (double)with.under / STEPS, (double)with.n / STEPS,
        100 * h.half_s / h.layer_s, 1e3 * latency_s, 1e3 * put_s, 1e3 * late_s,
        100 * late_s / put_s, 1e3 * bare_s, 1e3 * with.bare_s / STEPS, 1e3 * h.step_s,
        1e3 * (more[PAIRS / 2 - 1] + more[PAIRS / 2]) / 2, 1e3 * more[LOW - 1],
        1e3 * more[PAIRS - LOW]);
    fflush(stdout);
    return h.half_s > c->cover * h.layer_s && late_s < EXPOSED * put_s &&
           more[LOW - 1] < EXPOSED * put_s + bare_s;
}

static void latency_is_hidden(void **state)
{
    int missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        missed += fits(claims[i].layout) && claims[i].cover > 0 && !is_hidden(&claims[i]);
    if (missed)
        fail_msg("%d of the claims above have less to run under, or more than %g of the delay "
                 "makes the step longer",
                 missed, EXPOSED);
}

/* ---- the file and the table ---- */

/* Notes of all steps the shortest time that kinds have in one, and the shortest that they have not. */
static struct { double named_s, unnamed_s; int steps; } least;
struct train;
void __real_train_profile_step_end(struct train *t, struct record_step *s);
void __wrap_train_profile_step_end(struct train *t, struct record_step *s);
void __wrap_train_profile_step_end(struct train *t, struct record_step *s)
{
    double named_s = 0;
    __real_train_profile_step_end(t, s);
    for (int k = 0; s->kinds_s && k < METER_KINDS; k++)
        named_s += s->kinds_s[k];
    double unnamed_s = s->step_s - named_s;
    least.named_s = least.steps ? fmin(least.named_s, named_s) : named_s;
    least.unnamed_s = least.steps ? fmin(least.unnamed_s, unnamed_s) : unnamed_s;
    least.steps++;
}

/* Where a rank gets no processor between two kinds that time has no name. Little of a step is
 * between kinds, so that in some of these steps a rank is never stopped there, however busy the
 * machine is: the least time without a name is the program's own. Of two ranks' layouts a day has
 * one. */
static void kinds_name_the_step(void **state)
{
    enum { RUNS = 4 };
    static const char *const layouts[] = {"dp=1", "dp=2,zero=3",      "tp=2,sp=1",
                                          "cp=2", "cp=2,cp_kind=a2a", "pp=2"};
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (i > 0 ? world->size != 2 || !dealt((int64_t)i, 5) : world->size == 2 && !dealt(0, 5))
            continue;
        least.steps = 0;
        for (int run = 0; run < RUNS; run++)
            train(&middle, layouts[i], 2, trace_path());
        if (world->rank > 0) /* rank 0's times are reported */
            continue;
        double share = least.named_s / (least.named_s + least.unnamed_s);
        assert_int_equal(least.steps, RUNS * STEPS);
        if (!(share >= 0.98 && share <= 1.0001))
            fail_msg("%s: the kinds name %.4f of a step", layouts[i], share);
        print_message("# %s: the kinds name %.4f of a step\n", layouts[i], share);
    }
}

/* Spans enclose what is within them: no two of lane 0 cross. */
static void the_trace_is_well_formed(void **state)
{
    (void)state;
    train(&small, "dp=1", 2, trace_path());
    if (world->rank > 0)
        return;
    cJSON *root = trace_load();
    const cJSON *e, *events = json_member(root, "traceEvents"),
                    *other = json_member(root, "otherData");
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
    /* micro-batches, forward and backward */
    assert_int_equal(layers, STEPS * 2 * 2 * small.layers);
    assert_true(begun > 0 && begun == ended);
    cJSON_Delete(root);
}

/* CPU time that passes within waits for messages alone, 1 s in each. */
static struct { bool on; double s; struct comm_conf conf; } cpu;
double __real_clock_cpu_s(void);
double __wrap_clock_cpu_s(void);
double __wrap_clock_cpu_s(void) { return cpu.on ? cpu.s : __real_clock_cpu_s(); }

static void second_pass(void *ctx, const struct comm *c, const struct comm_op *op,
                        const struct comm_times *t)
{
    cpu.s += 1;
    cpu.conf.trace(ctx, c, op, t);
}

enum { SUMMED = 1 << 20 };
/* Sums numbers over ranks, and returns how long a measured call takes without its part in that: its start if
 * starts is set, else its wait. *whole is the call with that part, *wait_s the wait. */
static double stage_beside(struct meter *m, bool starts, double *whole, double *wait_s)
{
    static float x[SUMMED];
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "x", .recv = x,
                               .n = SUMMED, .dtype = DTYPE_F32};
    struct comm_work *work;
    struct meter_start at = meter_begin(m);
    struct err err = {0};
    double before_s = m->seconds[METER_STAGE];
    must(comm_start(world, &op, NULL, &work, &err), &err);
    if (starts)
        meter_end(m, at, METER_STAGE, -1);
    else
        at = meter_begin(m);
    must(comm_wait(world, work, NULL, &err), &err);
    if (!starts)
        meter_end(m, at, METER_STAGE, -1);
    const struct meter_span *call = &m->spans[(m->n - 1 - starts) % m->room],
                            *message = &m->spans[(m->n - 2 + starts) % m->room];
    *whole = call->end_s - call->start_s;
    *wait_s = message->end_s - message->wait_s;
    return m->seconds[METER_STAGE] - before_s;
}

/* A call's time is without that of messages, also where one is only started or only awaited in it. */
static void messages_are_apart(void **state)
{
    enum { KIND = METER_COMM + COMM_ALL_REDUCE };
    const double rounding = 1e-9;
    bool check = world->conf->check;
    struct bench b = bench_open(DTYPE_F32);
    struct meter m;
    struct err err = {0};
    double whole, wait_s, stage_s;
    (void)state;
    must(comm_reserve(world, 1, SUMMED * sizeof(float), &err), &err);
    must(meter_open(&m, 2, &err), &err);
    must(meter_attach(&m, b.ops, b.stream, world, &err), &err);
    world->conf->check = true; /* it copies what is sent, and the start takes a millisecond */
    cpu.conf = *world->conf, cpu.on = true;
    world->conf->trace = second_pass;
    stage_s = stage_beside(&m, true, &whole, &wait_s);
    if (b.dev->host_memory)
        assert_true(stage_s + m.seconds[KIND] <= whole + wait_s + rounding);
    stage_s = stage_beside(&m, false, &whole, &wait_s);
    if (b.dev->host_memory) {
        assert_true(stage_s >= 0 && stage_s <= whole - wait_s + rounding);
        assert_true(cpu.s == 2 && m.cpu_s[METER_STAGE] == 0);
    }
    cpu.on = false;
    world->conf->check = check;
    meter_close(&m);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_apart),
        cmocka_unit_test(the_trace_is_well_formed),
        cmocka_unit_test(batches_are_read_under_computation),
        cmocka_unit_test(kinds_name_the_step),
        cmocka_unit_test(operations_run_under_computation),
    };
    const struct CMUnitTest slow[] = {cmocka_unit_test(latency_is_hidden)},
                            order[] = {cmocka_unit_test(operations_run_under_computation)};
    const char *asked = getenv("OVERLAP");
    bool timed = asked && strcmp(asked, "timed") == 0, alone = asked && strcmp(asked, "order") == 0;
    world_open(argc, argv);
    int failed = alone
        ? cmocka_run_group_tests_name("order", order, shared_setup, shared_teardown)
        : cmocka_run_group_tests_name("overlap", tests, shared_setup, shared_teardown);
    return world_close(failed || !timed ? failed
                                        : cmocka_run_group_tests_name("latency", slow, shared_setup,
                                                                      shared_teardown));
}
