/* Training in bf16: what must not change a bit does not, and what may, changes a run no more than
 * bf16 itself does.
 *
 * One rank in f32 and in bf16, from three seeds, say how far bf16 takes a run of STEPS steps from
 * f32: in its losses, and in the gradients of each tensor. Two runs of bf16 that round at other
 * places are each that far from f32, so at most twice as far from one another: that is the bound
 * for layouts that cut sums (tp, cp). A sum that is left out must be past it. With the residual
 * stream in f32 beside bf16 a run is nearer to f32's. */
#include "tests/lib/trainer_train.h"

#include "base/num.h"
#include "trainer/state/fault.h"

enum { STEPS = 8, SEEDS = 3, BEFORE_STEPS = 60, DEEP = 16 };
static const char *first_weights; /* a checkpoint of f32; NULL: the seed's */
static bool bare;                 /* nothing that all stages of a pipeline hold a part of */
static enum run_residual residual;
static int64_t layers; /* 0: as run_make has it */

static void run_make_as(struct run *run, enum dtype dtype, uint64_t seed)
{
    run_make(run, data_dir(), 4, STEPS);
    run->model.kv_heads = 1;
    run->model.layers = layers ? layers : run->model.layers;
    run->model.adaln = bare ? ADALN_NONE : ADALN_LORA_SINGLE, run->model.adaln_rank = bare ? 0 : 3;
    run->model.text_width = bare ? 0 : RUN_TEXT_WIDTH,
    run->model.text_len = bare ? 0 : RUN_TEXT_LEN;
    run->adamw.lr = 1e-3;
    run->dtype = dtype;
    run->residual = residual;
    run->seed = seed;
    run->warm.from = first_weights;
}

static struct train_report train_as(const char *name, const char *layout, enum dtype dtype,
                                    uint64_t seed)
{
    struct run run;
    run_make_as(&run, dtype, seed);
    struct train_report r = train(&run, &(struct job){.name = name, .layout = layout});
    run_release(&run);
    return r;
}

/* ---- distances ---- */

enum { TENSORS = 512 };
/* Of two runs of the same seed: the greatest relative difference of a loss; of each tensor's m, the
 * mean of the last gradients, the length of the difference over its length. */
struct distance { double loss, m[TENSORS]; int64_t n; };

static void tensors_apart(const char *a, const char *b, struct distance *d)
{
    const char *names[2] = {a, b};
    char dir[2][600];
    struct ckpt_manifest m[2];
    struct ckpt_source *source[2];
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        ckpt_open(names[i], STEPS, dir[i], &m[i]);
        must(ckpt_source_open(dir[i], &m[i], &source[i], &err), &err);
        assert_true(m[i].dtype == DTYPE_F32);
    }
    d->n = m[0].n_tensors;
    assert_true(d->n <= TENSORS);
    for (int64_t t = 0; t < d->n; t++) {
        int64_t count = m[0].tensors[t].count;
        float *x = calloc((size_t)count, sizeof *x), *y = calloc((size_t)count, sizeof *y);
        double apart = 0, length = 0;
        must(ckpt_source_read(source[0], CKPT_M, t, x, &err), &err);
        must(ckpt_source_read(source[1], CKPT_M, t, y, &err), &err);
        for (int64_t i = 0; i < count; i++)
            apart += (double)(x[i] - y[i]) * (double)(x[i] - y[i]),
                length += (double)x[i] * (double)x[i];
        d->m[t] = sqrt(apart / length);
        free(x), free(y);
    }
    for (int i = 0; i < 2; i++)
        ckpt_source_close(source[i]), ckpt_manifest_release(&m[i]);
}

/* Rank 0 looks, all know. */
static struct distance distance(const char *a, const char *b)
{
    struct distance d = {0};
    struct err err = {0};
    if (world->rank == 0) {
        struct told_steps x = told(a, 1), y = told(b, 1);
        assert_true(x.n == STEPS && y.n == STEPS);
        for (int i = 0; i < STEPS; i++)
            d.loss = fmax(d.loss, fabs(x.loss[i] / y.loss[i] - 1));
        tensors_apart(a, b, &d);
    }
    must(comm_broadcast_bytes(world, &d, sizeof d, 0, &err), &err);
    return d;
}

/* Where all runs begin: at the first weights of a model, many of them zero, a step of AdamW goes by
 * the signs of gradients that are nearly nothing, and rounding throws them. */
static void train_before(void)
{
    static char dir[600];
    struct run run;
    run_make_as(&run, DTYPE_F32, 9);
    run.stages[0].steps = BEFORE_STEPS;
    run.adamw.lr = 1e-2;
    train(&run, &(struct job){.name = "before"});
    run_release(&run);
    snprintf(dir, sizeof dir, "%s/ckpt/step-%08d", in_scratch("before"), BEFORE_STEPS);
    first_weights = dir;
}

/* Of a run of one rank in bf16 from f32's. */
static struct distance from_f32(const char *name, int seed)
{
    char wide[32];
    snprintf(wide, sizeof wide, "f32-%d", seed);
    train_as(name, NULL, DTYPE_BF16, (uint64_t)seed);
    return distance(wide, name);
}

/* How far f32 and bf16 are from one another on one rank. Leaves runs f32-<seed> and bf16-<seed>. */
static struct distance spread(void)
{
    struct distance most = {0};
    for (int seed = 1; seed <= SEEDS; seed++) {
        char wide[32], narrow[32];
        snprintf(wide, sizeof wide, "f32-%d", seed);
        snprintf(narrow, sizeof narrow, "bf16-%d", seed);
        train_as(wide, NULL, DTYPE_F32, (uint64_t)seed);
        struct distance d = from_f32(narrow, seed);
        double sum = 0;
        most.loss = fmax(most.loss, d.loss), most.n = d.n;
        for (int64_t t = 0; t < d.n; t++)
            most.m[t] = fmax(most.m[t], d.m[t]), sum += d.m[t];
        print_message("# seed %d, f32 to bf16: losses %.3g, gradients %.3g apart on average\n",
                      seed, d.loss, sum / (double)d.n);
    }
    return most;
}

/* How often the distance is what f32 and bf16 are apart: of the losses, or of the worst tensor. */
static double times(const struct distance *d, const struct distance *spread)
{
    double most = d->loss / spread->loss;
    for (int64_t t = 0; t < d->n; t++)
        most = fmax(most, d->m[t] / spread->m[t]);
    return most;
}

static double times_on_average(const struct distance *d, const struct distance *spread)
{
    double sum = 0;
    for (int64_t t = 0; t < d->n; t++)
        sum += d->m[t] / spread->m[t];
    return sum / (double)d->n;
}

/* Layers enough that what each adds is small beside the stream: with that in f32, bf16 is nearer to
 * f32, on average over tensors and seeds. */
static void wide_residual_is_nearer(void **state)
{
    double sum = 0;
    (void)state;
    if (world->size > 1)
        return; /* one rank's work */
    layers = DEEP;
    train_before();
    spread();
    residual = RESIDUAL_F32;
    for (int seed = 1; seed <= SEEDS; seed++) {
        char wide[32], narrow[32], name[32];
        snprintf(wide, sizeof wide, "f32-%d", seed);
        snprintf(narrow, sizeof narrow, "bf16-%d", seed);
        snprintf(name, sizeof name, "residual-%d", seed);
        struct distance d = from_f32(name, seed), n = distance(wide, narrow);
        double times = times_on_average(&d, &n);
        print_message("# seed %d, residual stream of f32: losses %.3g, gradients %.3g times f32 "
                      "and bf16 on average\n",
                      seed, d.loss, times);
        sum += times;
    }
    assert_true(sum > 0 && sum < SEEDS * 0.8);
    residual = RESIDUAL_SAME, layers = 0, first_weights = NULL;
}

static const struct {
    const char *layout;
    int fault;
} others[] = {{"tp=2", FAULT_POINT_SUM_BRANCH},
              {"tp=2,sp=1", FAULT_POINT_SUM_INPUT},
              {"cp=2", FAULT_POINT_RING_MERGE},
              {"cp=2,cp_kind=a2a", FAULT_POINT_A2A_DKV},
              {"tp=2,dp=2,zero=3,mbs=2", FAULT_POINT_SUM_TP},
              {"tp=2,sp=1,cp=2", FAULT_POINT_SUM_MOD},
              {"pp=2,tp=2", FAULT_POINT_SUM_PP},
              {"cp=2,dp=2,zero=2", FAULT_POINT_RING_DKV},
              {"cp=4", FAULT_POINT_RING_MERGE}};

static bool fits(const char *text)
{
    struct layout l;
    return layout_parse(text, &l, NULL) == 0 && layout_world(&l) == world->size;
}

static void layout_try(int i, int fault, const struct distance *spread)
{
    char name[32];
    snprintf(name, sizeof name, "layout-%d-%d", i, fault);
    fault_active = fault;
    train_as(name, others[i].layout, DTYPE_BF16, 1);
    fault_active = FAULT_POINT_NONE;
    struct distance d = distance("bf16-1", name);
    double most = times(&d, spread);
    print_message("# %s%s: losses %.3g, all at most %.3g times f32 and bf16, gradients %.3g times "
                  "on average\n", others[i].layout, fault ? " without a sum" : "", d.loss, most,
                  times_on_average(&d, spread));
    if (!(most <= 2) != (fault != FAULT_POINT_NONE))
        fail_msg("%s%s: %.3g times as far as f32 and bf16", others[i].layout,
                 fault ? " without a sum" : "", most);
}

/* With the residual stream of f32 no farther, from one rank's run with it. */
static void wide_layout_try(int i, const struct distance *spread)
{
    residual = RESIDUAL_F32;
    train_as("wide-cut", others[i].layout, DTYPE_BF16, 1);
    struct distance d = distance("wide", "wide-cut");
    print_message("# %s, residual stream of f32: gradients %.3g times f32 and bf16 on average\n",
                  others[i].layout, times_on_average(&d, spread));
    assert_true(times(&d, spread) <= 2);
    residual = RESIDUAL_SAME;
}

static void layouts_are_as_far_as_rounding(void **state)
{
    (void)state;
    train_before();
    struct distance s = spread();
    residual = RESIDUAL_F32;
    train_as("wide", NULL, DTYPE_BF16, 1);
    residual = RESIDUAL_SAME;
    for (int i = 0; i < LEN(others); i++)
        if (fits(others[i].layout)) {
            layout_try(i, FAULT_POINT_NONE, &s);
            layout_try(i, others[i].fault, &s);
            wide_layout_try(i, &s);
        }
    first_weights = NULL;
}

/* ---- bits ---- */

/* Runs that are to be the same: the first's checkpoint is every other's. */
static void same_runs(const char *set, const char *const layouts[4], enum dtype dtype)
{
    char name[64], first[64];
    snprintf(first, sizeof first, "%s-%s-%s-0", set, dtype_names[dtype], residual_names[residual]);
    for (int k = 0; k < 4 && layouts[k]; k++) {
        struct layout l;
        struct err err = {0};
        must(layout_parse(layouts[k], &l, &err), &err);
        if (layout_world(&l) > world->size)
            return;
        snprintf(name, sizeof name, "%s-%s-%s-%d", set, dtype_names[dtype],
                 residual_names[residual], k);
        train_as(name, layouts[k], dtype, 1);
        double d = difference(first, name, STEPS);
        if (d != 0)
            fail_msg("%s: %s and %s are %.3g apart", dtype_names[dtype], layouts[0], layouts[k], d);
    }
}

/* Recomputation; zero with one micro-batch a step; with several 0 and 1, and 2 and 3, which sum
 * each one's gradients over the ranks. */
static void bits_stay(void **state)
{
    static const char *const one[4] = {"dp=1", "dp=1,recompute=full", "dp=1,zero=1",
                                       "dp=1,recompute=selective"};
    static const char *const two[4] = {"dp=2,mbs=2", "dp=2,zero=1,mbs=2", "dp=2,zero=2,mbs=2",
                                       "dp=2,zero=3,mbs=2"};
    static const char *const late[4] = {"dp=2", "dp=2,zero=1"}, *const early[4] = {"dp=2,zero=2",
                                                                                   "dp=2,zero=3"};
    static const char *const four[4] = {"dp=4", "dp=4,zero=1", "dp=4,zero=2",
                                        "dp=4,zero=3,recompute=full"};
    (void)state;
    for (residual = RESIDUAL_SAME; residual <= RESIDUAL_F32; residual++) {
        if (!dealt(residual, 2))
            continue;
        same_runs("one", one, DTYPE_BF16);
        if (world->size >= 2) {
            same_runs("two", two, DTYPE_BF16);
            same_runs("late", late, DTYPE_BF16);
            same_runs("early", early, DTYPE_BF16);
        }
        if (world->size >= 4)
            same_runs("four", four, DTYPE_BF16);
    }
    residual = RESIDUAL_SAME;
}

/* Stages send what they would have kept, and all gradients of a tensor are one rank's: in f32, and
 * in bf16. */
static void stages_keep_bits(void **state)
{
    static const char *const stages[4] = {"dp=1", "pp=2", "pp=2,recompute=full"};
    (void)state;
    bare = true;
    same_runs("stages", stages, DTYPE_F32);
    same_runs("stages", stages, DTYPE_BF16);
    residual = RESIDUAL_F32;
    same_runs("stages", stages, DTYPE_BF16);
    residual = RESIDUAL_SAME;
    bare = false;
}

static void a_stop_changes_no_bit(void **state)
{
    static const char *const layouts[] = {"dp=1", "dp=2,zero=3", "tp=2", "dp=4,zero=1",
                                          "tp=2,pp=2"};
    (void)state;
    for (int i = 0; i < LEN(layouts); i++) {
        char whole[32], parts[32];
        struct run run;
        if (!fits(layouts[i]))
            continue;
        snprintf(whole, sizeof whole, "whole-%d", i);
        snprintf(parts, sizeof parts, "parts-%d", i);
        train_as(whole, layouts[i], DTYPE_BF16, 1);
        run_make_as(&run, DTYPE_BF16, 1);
        run.ckpt_every_steps = 3;
        run.ckpt_async = true;
        train(&run, &(struct job){.name = parts, .layout = layouts[i], .max_steps = STEPS / 2});
        train(&run, &(struct job){.name = parts, .layout = layouts[i], .attempt = 2});
        assert_true(difference(whole, parts, STEPS) == 0);
        run_release(&run);
    }
}

/* Validation looks at the average in the weights' place: the run goes on as if it had not. */
static void a_look_at_the_average_changes_no_bit(void **state)
{
    struct run run;
    char layout[32];
    (void)state;
    snprintf(layout, sizeof layout, "dp=%d,zero=1", world->size);
    train_as("unseen", layout, DTYPE_BF16, 1);
    run_make_as(&run, DTYPE_BF16, 1);
    run.validation.every_steps = 4, run.validation.samples = 2, run.validation.bins = 2;
    run.validation.data = "synthetic:1x4x4";
    train(&run, &(struct job){.name = "seen", .layout = layout});
    assert_true(difference("unseen", "seen", STEPS) == 0);
    run_release(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CASE(wide_residual_is_nearer),
                                       CASE(layouts_are_as_far_as_rounding), CASE(bits_stay),
                                       CASE(stages_keep_bits),
                                       CASE(a_stop_changes_no_bit),
                                       CASE(a_look_at_the_average_changes_no_bit)};
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
