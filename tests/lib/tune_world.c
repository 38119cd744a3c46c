#include "tests/lib/tune_world.h"

#include <math.h>

#include "autotune/footprint.h"
#include "base/philox.h"
#include "launcher/sched/sim.h"
#include "tests/lib/test_profiles.h"

static const struct world_case world_cases[WORLD_CASES] = {
    {"llama-3-8b", "dgx-h100:8", "megatron", {1, 1, 8192}, 64, 128},
    {"llama-3-70b", "dgx-h100:16", "megatron", {1, 1, 8192}, 128, 128},
    {"gpt-3-175b", "dgx-a100:16", "megatron", {1, 1, 2048}, 128, 256},
    {"dit-7b", "dgx-h100:4", "megatron", {1, 128, 128}, 32, 64},
    {"dit-14b", "dgx-h100:16", "megatron", {2, 128, 128}, 128, 128},
    {"wan-14b", "dgx-h200:8", "megatron", {8, 64, 64}, 64, 64},
    {"moviegen-5b", "dgx-a100:8", "megatron", {4, 64, 64}, 64, 64},
};

static double world_draw(uint64_t seed, uint64_t what, int64_t i)
{
    return philox_uniform_at(seed, PHILOX_TEST, 200 + what, (uint64_t)i);
}

/* Layouts of one grid and micro-batch size come one after the other, so their account is built
 * once. */
void world_price(const struct world_known *k, const struct world_case *of,
                 const double v[CONSTANTS], struct price_bill *bills, double *seconds,
                 double *bytes)
{
    struct work_spec spec = {.model = &k->model, .stack = &k->stack, .weights = &k->weights,
                             .seq = of->seq, .gbs = of->gbs, .act = DTYPE_BF16};
    static struct work work;
    static struct price_machine machine;
    static struct price price;
    struct layout grid = {0};
    price_machine(&k->cluster, v, DTYPE_BF16, false, &machine);
    for (size_t i = 0; i < k->space.n; i++) {
        struct layout l = k->space.items[i], g = l;
        struct footprint f;
        struct price_step step;
        g.zero = g.fsdp = g.recompute_layers = 0;
        g.recompute = RECOMPUTE_NONE;
        if (!layout_equal(&g, &grid)) {
            work_build(&spec, &l, &work);
            price_parts(&machine, &work, &price);
            grid = g;
        }
        price_step(&price, &l, &step);
        footprint_of(&work, &l, v, &f);
        bytes[i] = f.total;
        if (bills)
            price_bill(&machine, &k->model, &l, &step, &bills[i]);
        if (seconds)
            seconds[i] = step.seconds;
    }
}

/* Says which layouts the worlds have: thousands, where the whole space has hundreds of thousands. */
static bool world_has(const struct layout *l)
{
    bool power = (l->mbs & (l->mbs - 1)) == 0 && l->mbs <= 8;
    return power && l->fsdp == 0 && l->cp_kind != CP_2D && l->zero != 2 &&
           (l->tp == 1 || l->sp);
}
static const struct space_limit world_limit = {"world", "the worlds leave it out", world_has};

static void world_known_make(struct world_known *k, const struct world_case *of)
{
    static struct constants set;
    struct err err = {0};
    struct space_spec spec = {&k->model, of->seq, of->gbs, &of->gpus, 1, &world_limit, 1,
                              false};
    assert_ok(model_load(of->model, &k->model, &err), &err);
    assert_ok(cluster_load(of->cluster, &k->cluster, &err), &err);
    assert_ok(stack_load(of->stack, &k->stack, &err), &err);
    assert_ok(constants_load(NULL, &set, &err), &err);
    assert_ok(work_weights(&k->model, &k->weights, &err), &err);
    assert_ok(space_build(&spec, &k->space, &err), &err);
    assert_true(k->space.n > 0);
    constants_resolve(&set, &k->cluster.device, &k->stack, k->v);
    k->bills = calloc(k->space.n, sizeof *k->bills);
    k->bytes = calloc(k->space.n, sizeof *k->bytes);
    assert_true(k->bills && k->bytes);
    world_price(k, of, k->v, k->bills, NULL, k->bytes);
    k->made = true;
}

/* ---- the cluster on which trials run ---- */

static const struct sim_partition world_partitions[] = {
    {"tune", 0, SCHED_PREEMPT_REQUEUE, 0, 0}, {"urgent", 1, SCHED_PREEMPT_OFF, 0, 0}};

enum { WORLD_START_S = 60, WORLD_GPUS = 8, WORLD_SILENT_S = 3600 };

/* Names the troubles of a trial that are not the layout's fault. */
enum world_trouble { TROUBLE_NONE, TROUBLE_HANG, TROUBLE_NODE, TROUBLE_PREEMPTED };

static enum world_trouble world_trouble(const struct world *w)
{
    double u = world_draw(w->seed, 1, w->tries);
    return u < 0.03 ? TROUBLE_HANG : u < 0.06 ? TROUBLE_NODE : u < 0.09 ? TROUBLE_PREEMPTED
                                                                        : TROUBLE_NONE;
}

/* Returns what the steps of a trial take: the truth, 1 % of noise, and for one of thirty a
 * neighbour that slows them by a fifth. */
static double world_step_s(const struct world *w)
{
    double u = world_draw(w->seed, 2, w->tries), noise = philox_normal_from_uniform(u);
    bool disturbed = world_draw(w->seed, 3, w->tries) < 1.0 / 30;
    return w->seconds[w->at] * exp(0.01 * noise) * (disturbed ? 1.2 : 1);
}

static void world_run(void *ctx, const struct sim_exec *exec, struct sim_outcome *out)
{
    struct world *w = ctx;
    if (!exec->is_step)
        *out = (struct sim_outcome){strcmp(exec->name, "urgent") == 0 ? 600 : INFINITY, 0, 0};
    else if (world_trouble(w) == TROUBLE_HANG)
        *out = (struct sim_outcome){INFINITY, 0, 0};
    else if (isinf(w->seconds[w->at]))
        *out = (struct sim_outcome){WORLD_START_S, 1, 0};
    else
        *out = (struct sim_outcome){WORLD_START_S + WORLD_STEPS * world_step_s(w), 0, 0};
    if (exec->is_step)
        w->node = exec->where[0];
}

static void world_submit(struct world *w, const char *name, int64_t nodes, bool urgent,
                         char id[SCHED_ID_BYTES])
{
    static const char *const argv[] = {"/bin/tune", NULL}, *const env[] = {NULL};
    struct sched_spec spec = SCHED_SPEC_INIT;
    struct err err = {0};
    char token[33];
    snprintf(token, sizeof token, "%032llx", (unsigned long long)++w->jobs);
    spec.token = token, spec.name = name;
    spec.argv = argv, spec.env = env, spec.cwd = "/", spec.log_path = "/log";
    spec.nodes = (int)nodes, spec.requeue = !urgent;
    spec.partition = urgent ? "urgent" : "tune";
    assert_ok(sched_submit(w->sched, &spec, id, &err), &err);
}

/* Waits until the allocation runs, and enters it. */
static void world_enter(struct world *w)
{
    sched_sim_advance(w->sched, 0);
    while (sched_sim_enter(w->sched, w->job, NULL) < 0)
        assert_true(sched_sim_step(w->sched));
}

static struct sched_step_status world_step(struct world *w)
{
    static const char *const argv[] = {"/bin/train", NULL}, *const env[] = {NULL};
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step_status st;
    struct sched_step *step;
    struct err err = {0};
    char id[SCHED_ID_BYTES];
    enum world_trouble trouble = world_trouble(w);
    spec.argv = argv, spec.env = env;
    spec.ranks = (int)w->of->gpus;
    spec.deadline_s = WORLD_SILENT_S;
    assert_ok(sched_step_start(w->sched, &spec, &step, &err), &err);
    assert_ok(sched_step_poll(step, WORLD_START_S / 2.0, &st, &err), &err);
    if (trouble == TROUBLE_NODE)
        sched_sim_node_fail(w->sched, w->node);
    if (trouble == TROUBLE_PREEMPTED)
        world_submit(w, "urgent", w->of->gpus / WORLD_GPUS + 1, true, id);
    assert_ok(sched_step_poll(step, -1, &st, &err), &err);
    sched_step_free(step);
    return st;
}

struct world_outcome world_trial(struct world *w, int64_t i)
{
    w->at = i;
    for (;;) {
        char cause[256], evidence[OOM_EVIDENCE_BYTES];
        world_enter(w);
        w->tries++;
        struct sched_step_status st = world_step(w);
        bool oom = !st.lost && st.exit_code == 1;
        struct trial_end end = {.step = st, .silent_s = st.timed_out ? WORLD_SILENT_S : 0};
        enum trial_state state =
            trial_classify(&end, oom ? "torch.OutOfMemoryError: CUDA out of memory.\n" : "", cause,
                           evidence);
        w->nodes_lost += state == TRIAL_NODE;
        w->preempted += st.lost && state != TRIAL_NODE;
        w->hangs += state == TRIAL_HANG;
        if (st.lost || state == TRIAL_HANG)
            continue;
        w->ooms += trial_is_oom(state);
        assert_true(isinf(w->seconds[i]) ? trial_is_oom(state) : state == TRIAL_OK);
        return (struct world_outcome){
            state, (st.ended_at - st.started_at - WORLD_START_S) / WORLD_STEPS, w->bytes[i]};
    }
}

/* ---- a world ---- */

static void world_draw_truth(struct world *w)
{
    const struct world_known *k = w->known;
    double limit = (double)device_usable_bytes(&k->cluster.device);
    for (int c = 0; c < CONSTANTS; c++) {
        const struct constant_info *info = &constant_table[c];
        double z = philox_normal_from_uniform(world_draw(w->seed, 4, c));
        w->v[c] = fmin(info->hi, fmax(info->lo, k->v[c] * exp(info->sd * z)));
    }
    world_price(k, w->of, w->v, NULL, w->seconds, w->bytes);
    w->best_s = INFINITY;
    for (size_t i = 0; i < w->n; i++) {
        if (w->bytes[i] > limit)
            w->seconds[i] = INFINITY;
        w->best_s = fmin(w->best_s, w->seconds[i]);
    }
}

void world_make(struct world *w, uint64_t seed)
{
    static struct world_known known[WORLD_CASES];
    struct sim_conf conf = SIM_CONF_INIT;
    struct err err = {0};
    int c = (int)(seed % WORLD_CASES);
    if (!known[c].made)
        world_known_make(&known[c], &world_cases[c]);
    *w = (struct world){.seed = seed, .of = &world_cases[c], .known = &known[c],
                        .layouts = known[c].space.items, .n = known[c].space.n};
    w->seconds = calloc(w->n, sizeof *w->seconds);
    w->bytes = calloc(w->n, sizeof *w->bytes);
    assert_true(w->seconds && w->bytes);
    world_draw_truth(w);
    conf.seed = seed;
    conf.nodes = (int)(w->of->gpus / WORLD_GPUS) + 2;
    conf.cores_per_node = 64, conf.gpus_per_node = WORLD_GPUS;
    conf.partitions = world_partitions, conf.n_partitions = ARRAY_LEN(world_partitions);
    conf.run = world_run, conf.ctx = w;
    assert_ok(sched_sim_open(&conf, &w->sched, &err), &err);
    world_submit(w, "tune", w->of->gpus / WORLD_GPUS, false, w->job);
}

void world_release(struct world *w)
{
    sched_close(w->sched);
    free(w->seconds);
    free(w->bytes);
}
