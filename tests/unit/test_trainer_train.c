/* Whole runs of a small model: nothing allocated in a step; resuming, grouping, recompute and layouts change nothing; how training
 * ends. Under mpirun the layouts spread over its ranks. */
// LINK: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=strdup,--wrap=strndup,--wrap=fopen,--wrap=opendir
#include "trainer_run.h"

#include <dirent.h>
#include <signal.h>
#include <sys/time.h>

#include "base/evlog.h"
#include "trainer/ckpt_diff.h"
#include "trainer/ckpt_priv.h"
#include "trainer/fault.h"
#include "trainer/objective.h"
#include "trainer/train.h"

/* ---- what allocates, called by our objects; calls from inside MPI and other libraries are theirs and not seen ---- */

static long allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
FILE *__real_fopen(const char *path, const char *mode);
DIR *__real_opendir(const char *path);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
FILE *__wrap_fopen(const char *path, const char *mode);
DIR *__wrap_opendir(const char *path);
void *__wrap_malloc(size_t n) { allocations++; return __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { allocations++; return __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { allocations++; return __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t align, size_t n) { allocations++; return __real_aligned_alloc(align, n); }
char *__wrap_strdup(const char *s) { allocations++; return __real_strdup(s); }
char *__wrap_strndup(const char *s, size_t n) { allocations++; return __real_strndup(s, n); }
FILE *__wrap_fopen(const char *path, const char *mode) { allocations++; return __real_fopen(path, mode); }
DIR *__wrap_opendir(const char *path) { allocations++; return __real_opendir(path); }

/* ---- training into <scratch>/<name>, by the first ranks of the world ---- */

static volatile sig_atomic_t stop;

struct job {
    const char *name, *layout;
    int64_t attempt, max_steps, memory_limit_bytes;
    bool trial;
    struct plan *plan; /* instead of layout */
    const char *layouts[LIMIT_STAGES]; /* of each stage, instead */
};

static int try_train(struct run *run, const struct job *j, struct train_report *report, struct err *err)
{
    struct plan plans[LIMIT_STAGES];
    for (int64_t i = 0; i < run->n_stages; i++) {
        plans[i] = j->plan ? *j->plan : plan_make_text(run, j->layouts[i] ? j->layouts[i] : j->layout ? j->layout : "dp=1");
        if (!j->plan)
            plans[i].gbs = run->stages[i].gbs;
    }
    int ranks = (int)layout_world(&plans[0].layout), rc = 0;
    struct comm *group = first_ranks(ranks < world->size ? ranks : world->size);
    char dir[512];
    snprintf(dir, sizeof dir, "%s", in_scratch(j->name));
    struct train_conf conf = {.run = run, .plans = plans, .run_dir = dir, .attempt = j->attempt ? j->attempt : 1, .trial = j->trial,
                              .max_steps = j->max_steps, .verify = true, .memory_limit_bytes = j->memory_limit_bytes,
                              .world = group, .stop = &stop};
    if (group) {
        rc = train_run(&conf, report, err);
        comm_close(group);
    }
    struct err none;
    comm_barrier(world, &none);
    return rc;
}

static struct train_report train(struct run *run, const struct job *j)
{
    struct train_report report = {0};
    struct err err = {0};
    must(try_train(run, j, &report, &err), &err);
    must(comm_broadcast_bytes(world, &report, sizeof report, 0, &err), &err); /* to ranks that had no part in it */
    return report;
}

/* ---- comparing ---- */

static void ckpt_open(const char *name, int64_t step, char dir[600], struct ckpt_manifest *m)
{
    struct err err = {0};
    snprintf(dir, 600, "%s/ckpt/step-%08lld", in_scratch(name), (long long)step);
    must(ckpt_manifest_load(dir, m, &err), &err);
    must(ckpt_verify(dir, m, 0, 1, &err), &err);
}

/* Largest relative difference over tensors of weights, moments and average; rank 0 looks, the others get 0. */
static double difference(const char *name_a, const char *name_b, int64_t step)
{
    struct ckpt_manifest a, b;
    struct ckpt_diff d;
    struct err err = {0};
    char da[600], db[600];
    if (world->rank != 0)
        return 0;
    ckpt_open(name_a, step, da, &a);
    ckpt_open(name_b, step, db, &b);
    assert_int_equal(a.n_tensors, b.n_tensors);
    assert_true(a.meta.updates == b.meta.updates && a.meta.ordinal == b.meta.ordinal);
    must(ckpt_diff(da, db, 0, 1e-12, &d, &err), &err);
    double most = d.rows[0].difference;
    ckpt_diff_release(&d);
    ckpt_manifest_release(&a);
    ckpt_manifest_release(&b);
    return most;
}

enum { STEPS_MAX = 100 };
struct told_steps { double loss[STEPS_MAX], norm[STEPS_MAX]; int64_t n, skipped, loaded; char end[16]; };

/* The phases of a step are parts of it: they do not overlap, and leave no more than all of it. */
static void phases_check(const cJSON *e)
{
    static const char *const names[] = {"data_s", "forward_s", "backward_s", "comm_s", "optim_s", "other_s"};
    double sum = 0, step = json_num(e, "step_s", NAN);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double s = json_num(e, names[i], NAN);
        if (!(s >= -1e-9)) /* rounding of clocks */
            fail_msg("step %lld of %g s: %s is %g", (long long)json_int(e, "step", -1), step, names[i], s);
        sum += s;
    }
    assert_true(fabs(sum - step) <= 1e-9);
}

/* What rank 0's log of one attempt says. */
static struct told_steps told(const char *name, int64_t attempt)
{
    struct told_steps t = {0};
    struct evlog_reader *r;
    struct err err = {0};
    const cJSON *e;
    char path[600];
    snprintf(path, sizeof path, "%s/events/rank0.a%lld.evlog", in_scratch(name), (long long)attempt);
    must(evlog_reader_open(path, &r, &err), &err);
    while (evlog_reader_next(r, &e, &err) == 1) {
        const char *ev = json_text(e, "ev", "");
        if (strcmp(ev, "step") == 0) {
            int64_t step = json_int(e, "step", -1);
            phases_check(e);
            if (step < STEPS_MAX) {
                t.loss[step] = json_num(e, "loss", NAN);
                t.norm[step] = json_num(e, "grad_norm", NAN);
            }
            t.skipped += cJSON_IsTrue(cJSON_GetObjectItem(e, "skipped"));
            t.n++;
        }
        t.loaded += strcmp(ev, "ckpt_loaded") == 0;
        if (strcmp(ev, "train_ended") == 0)
            snprintf(t.end, sizeof t.end, "%s", json_text(e, "reason", ""));
    }
    evlog_reader_close(r);
    return t;
}

enum { BINS = 5 };
struct told_validation { int64_t n, step[8]; double bins[8][BINS], average[8][BINS]; };

static void bins_read(const cJSON *event, const char *key, double out[BINS])
{
    const cJSON *list = json_member(event, key);
    for (int i = 0; i < BINS; i++)
        out[i] = cJSON_GetArraySize(list) == BINS ? cJSON_GetArrayItem(list, i)->valuedouble : NAN;
}

static struct told_validation told_validation(const char *name)
{
    struct told_validation v = {0};
    struct evlog_reader *r;
    struct err err = {0};
    const cJSON *e;
    char path[600];
    snprintf(path, sizeof path, "%s/events/rank0.a1.evlog", in_scratch(name));
    must(evlog_reader_open(path, &r, &err), &err);
    while (evlog_reader_next(r, &e, &err) == 1 && v.n < 8)
        if (strcmp(json_text(e, "ev", ""), "validation") == 0) {
            v.step[v.n] = json_int(e, "step", -1);
            bins_read(e, "bins", v.bins[v.n]);
            bins_read(e, "average_bins", v.average[v.n++]);
        }
    evlog_reader_close(r);
    return v;
}

/* ---- the steady state ---- */

/* On every rank, a run of 12 steps allocates as often as one of 2: steps from the third on do not. */
static void a_step_allocates_nothing(void **state)
{
    static const char *const layouts[] = {"dp=1,mbs=2", "dp=1,mbs=1,recompute=full", "dp=2,zero=0,mbs=2", "dp=2,zero=1,mbs=1",
                                          "dp=4,zero=0,mbs=1,recompute=full", "dp=4,zero=1,mbs=2"};
    long count[2];
    bool check = world->conf->check;
    (void)state;
    world->conf->check = false; /* whose copies are allocated */
    for (int i = 0; i < LEN(layouts); i++) {
        for (int k = 0; k < 2; k++) {
            struct run run;
            char name[32];
            snprintf(name, sizeof name, "alloc-%d-%d", i, k);
            run_make(&run, data_dir(), 6, k ? 12 : 2);
            struct plan plan = plan_make_text(&run, layouts[i]);
            allocations = 0;
            if (layout_world(&plan.layout) <= world->size)
                train(&run, &(struct job){.name = name, .layout = layouts[i]});
            count[k] = allocations;
            run_release(&run);
        }
        double more = (double)labs(count[1] - count[0]);
        struct err err = {0};
        must(comm_max(world, &more, 1, &err), &err);
        if (more > 0)
            fail_msg("%s: up to %.0f allocations in the steps from 3 to 12", layouts[i], more);
    }
    world->conf->check = check;
}

/* ---- the same run ---- */

static void resumed_is_bitwise_equal(void **state)
{
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 5, 9);
    run.ckpt_every_steps = 2;
    train(&run, &(struct job){.name = "whole"});
    assert_int_equal(train(&run, &(struct job){.name = "parts", .max_steps = 3}).end, TRAIN_LIMIT);
    assert_int_equal(train(&run, &(struct job){.name = "parts", .max_steps = 1, .attempt = 2}).next_step, 4);
    assert_int_equal(train(&run, &(struct job){.name = "parts", .attempt = 3}).end, TRAIN_DONE);
    assert_true(difference("whole", "parts", 9) == 0);
    if (world->rank == 0) {
        struct told_steps whole = told("whole", 1), parts[] = {told("parts", 1), told("parts", 2), told("parts", 3)};
        assert_true(whole.n == 9 && parts[0].n == 3 && parts[1].n == 1 && parts[2].n == 5 && parts[2].loaded == 1);
        for (int64_t step = 0; step < 9; step++)
            assert_true(whole.loss[step] == parts[step < 3 ? 0 : step < 4 ? 1 : 2].loss[step]);
        assert_true(whole.loss[8] != whole.loss[0]);
    }
    struct train_report again = train(&run, &(struct job){.name = "parts", .attempt = 4});
    assert_true(again.end == TRAIN_DONE && again.steps == 0); /* nothing left to do */
    run_release(&run);
}

static void stages_follow_each_other(void **state)
{
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 4, 3);
    run.n_stages = 2;
    run.stages[1] = (struct run_stage){.data = "synthetic:1x4x4", .gbs = 2, .steps = 4};
    train(&run, &(struct job){.name = "whole"});
    for (int64_t i = 1; i <= 7; i++)
        train(&run, &(struct job){.name = "parts", .max_steps = 1, .attempt = i});
    assert_true(difference("whole", "parts", 7) == 0);
    struct ckpt_manifest m;
    char dir[600];
    ckpt_open("whole", 7, dir, &m);
    assert_int_equal(m.meta.ordinal, 3 * 4 + 4 * 2); /* ordinals go on over stages */
    ckpt_manifest_release(&m);
    run_release(&run);
}

/* Each stage under a layout of its own, in one attempt and stopped after every step; batches that grow; packs of mixed lengths. */
static void stages_under_their_own_layouts(void **state)
{
    static const char *const layouts[] = {"tp=2,sp=1,mbs=2", "dp=2,zero=3,recompute=full", "dp=2,zero=1", "pp=2,zero=0"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 4, 3);
    run.n_stages = 4;
    run.stages[1] = (struct run_stage){.data = "synthetic:1x4x4", .gbs = 5, .steps = 4, .gbs_first = 2, .gbs_more = 1, .gbs_every_steps = 1};
    run.stages[2] = (struct run_stage){.data = run.stages[0].data, .gbs = 3, .steps = 2, .pack_tokens = 5};
    run.stages[3] = run.stages[2];
    train(&run, &(struct job){.name = "whole"});
    if (world->size >= 2) {
        struct job j = {.name = "own", .max_steps = 0};
        memcpy(j.layouts, layouts, sizeof layouts);
        train(&run, &j);
        double d = difference("whole", "own", 11);
        if (!(d <= 1e-11))
            fail_msg("own layouts: %.3g", d);
        j.name = "steps", j.max_steps = 1;
        for (j.attempt = 1; j.attempt <= 11; j.attempt++)
            train(&run, &j);
        assert_true(difference("own", "steps", 11) == 0);
    }
    run_release(&run);
}

static void validation_run_make(struct run *run)
{
    run_make(run, data_dir(), 3, 5);
    run->model.layers = 8;
    run->adamw.lr = 1e-3; /* layers and a high rate make more of rounding */
    run->validation = (struct run_validation){.data = "synthetic:2x4x4", .every_steps = 2, .samples = 7, .bins = BINS};
}

/* Validation leaves the run as it is, bit for bit, and gives the same losses under every layout. */
static void validation_is_the_same(void **state)
{
    static const char *const layouts[] = {"dp=2,zero=0,mbs=2", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3,recompute=full", "tp=2", "tp=2,sp=1",
                                          "cp=2", "pp=2", "pp=2,vpp=2,mbs=2", "pp=2,vpp=4", "pp=4,vpp=2", "pp=2,dp=2,zero=3"};
    struct run run;
    struct told_validation one;
    (void)state;
    validation_run_make(&run);
    run.validation.every_steps = 0;
    train(&run, &(struct job){.name = "without"});
    run.validation.every_steps = 2;
    train(&run, &(struct job){.name = "with"});
    assert_true(difference("without", "with", 5) == 0);
    if (world->rank == 0) {
        one = told_validation("with");
        assert_true(one.n == 3 && one.step[0] == 2 && one.step[1] == 4 && one.step[2] == 5);
        assert_true(one.bins[2][0] != one.average[2][0] && one.bins[2][0] != one.bins[0][0]);
    }
    for (int i = 0; i < LEN(layouts); i++) {
        struct plan plan = plan_make_text(&run, layouts[i]);
        if (layout_world(&plan.layout) > world->size)
            continue;
        char name[32];
        snprintf(name, sizeof name, "val-%d", i);
        train(&run, &(struct job){.name = name, .layout = layouts[i]});
        double d = difference("with", name, 5);
        struct told_validation got = world->rank == 0 ? told_validation(name) : one;
        for (int64_t v = 0; v < got.n && world->rank == 0; v++)
            for (int b = 0; b < BINS; b++) {
                d = fmax(d, fabs(got.bins[v][b] / one.bins[v][b] - 1));
                d = fmax(d, fabs(got.average[v][b] / one.average[v][b] - 1));
            }
        if (!(d <= 1e-11) || (world->rank == 0 && got.n != one.n))
            fail_msg("%s: %.3g", layouts[i], d);
    }
    run_release(&run);
}

/* At rate 0 the network's output stays 0, and the loss is the target's square: for latents of mean square M and EDM
 * (sigma² M + d²) / (sigma² + d²) with d = 0.5, at the bin's own levels. */
static void validation_bins(void **state)
{
    struct run run;
    struct dataset d;
    struct err err = {0};
    const double M = 9;
    (void)state;
    must(dataset_load(in_scratch("data"), &d, &err), &err);
    double square = 0, n = 0;
    for (int64_t i = 0; i < d.n_samples; i++)
        for (int64_t j = 0; j < RUN_CHANNELS * 2 * made_w(i); j++, n++)
            square += pow(made_latent(i, j) - (float)made_mean, 2);
    d.latent_std = sqrt(square / n / M);
    comm_barrier(world, &err);
    if (world->rank == 0)
        must(dataset_save(in_scratch("data"), &d, &err), &err);
    comm_barrier(world, &err);
    run_make(&run, data_dir(), 3, 1);
    run.adamw.lr = 0;
    run.validation = (struct run_validation){.data = data_dir(), .every_steps = 1, .samples = 40 * d.n_samples, .bins = BINS};
    train(&run, &(struct job){.name = "bins"});
    if (world->rank == 0) {
        struct told_validation got = told_validation("bins");
        for (int b = 0; b < BINS; b++) {
            double want = 0;
            for (int k = 0; k < 100; k++) {
                double s = exp(2 * objective_level(&run.level, (b + (k + 0.5) / 100) / BINS, 1));
                want += (s * M + 0.25) / (s + 0.25) / 100;
            }
            if (!(fabs(got.bins[0][b] / want - 1) < 0.05))
                fail_msg("bin %d: %g, should be about %g", b, got.bins[0][b], want);
        }
    }
    dataset_release(&d);
    run_release(&run);
}

static void recompute_is_bitwise_equal(void **state)
{
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 5, 6);
    train(&run, &(struct job){.name = "kept", .layout = "mbs=2"});
    train(&run, &(struct job){.name = "again", .layout = "mbs=2,recompute=full"});
    assert_true(difference("kept", "again", 6) == 0);
    run_release(&run);
}

/* Every way to spread 5 samples: micro-batches, ranks that have fewer, ZeRO. Weights, moments, average, losses and norms. */
static void layouts_agree(void **state)
{
    static const char *const layouts[] = {"mbs=2", "mbs=5", "dp=2,zero=0", "dp=2,zero=1", "dp=2,zero=1,mbs=2,recompute=full",
                                          "dp=3,zero=0", "dp=3,zero=1,mbs=2", "dp=4,zero=0", "dp=4,zero=1", "dp=2,zero=3", "tp=2,sp=1"};
    static const enum loss_norm norms[] = {LOSS_NORM_TOKEN, LOSS_NORM_SAMPLE};
    (void)state;
    for (int k = 0; k < LEN(norms); k++) {
        struct run run;
        char base[32];
        snprintf(base, sizeof base, "one-%d", k);
        run_make(&run, data_dir(), 5, 6);
        run.loss_norm = norms[k];
        train(&run, &(struct job){.name = base});
        for (int i = 0; i < LEN(layouts); i++) {
            char name[32];
            snprintf(name, sizeof name, "many-%d-%d", k, i);
            struct plan plan = plan_make_text(&run, layouts[i]);
            if (layout_world(&plan.layout) > world->size)
                continue;
            train(&run, &(struct job){.name = name, .layout = layouts[i]});
            double d = difference(base, name, 6);
            if (!(d <= 1e-11))
                fail_msg("%s: %.3g", layouts[i], d);
            struct told_steps a = {0}, b = {0};
            if (world->rank == 0)
                a = told(base, 1), b = told(name, 1);
            for (int64_t s = 0; s < a.n; s++)
                assert_true(fabs(a.loss[s] - b.loss[s]) <= 1e-12 * a.loss[s] && fabs(a.norm[s] - b.norm[s]) <= 1e-11 * a.norm[s]);
        }
        run_release(&run);
    }
}

/* Three and two samples a replica: each divides by the batch's total. When each divides by its own, it is seen in losses and weights. */
static void the_normaliser_is_global(void **state)
{
    static const enum loss_norm norms[] = {LOSS_NORM_TOKEN, LOSS_NORM_SAMPLE};
    (void)state;
    for (int k = 0; k < LEN(norms) && world->size >= 2; k++) {
        struct run run;
        char one[16], two[16];
        run_make(&run, data_dir(), 5, 2);
        run.loss_norm = norms[k];
        snprintf(one, sizeof one, "one-%d", k);
        train(&run, &(struct job){.name = one});
        for (int broken = 0; broken <= 1; broken++) {
            snprintf(two, sizeof two, "two-%d-%d", k, broken);
            fault_active = broken ? FAULT_POINT_LOSS_NORM : FAULT_POINT_NONE;
            train(&run, &(struct job){.name = two, .layout = "dp=2"});
            fault_active = FAULT_POINT_NONE;
            double d = difference(one, two, 2), differ[2] = {d > 1e-11, 0};
            struct err err = {0};
            if (world->rank == 0)
                differ[1] = fabs(told(one, 1).loss[0] - told(two, 1).loss[0]) > 1e-11;
            must(comm_max(world, differ, 2, &err), &err);
            assert_true(differ[0] == broken && differ[1] == broken);
        }
        run_release(&run);
    }
}

/* A run may change its layout at every restart. */
static void a_layout_resumes_another(void **state)
{
    static const char *const layouts[] = {"dp=1", "dp=2,zero=1", "dp=3,zero=0,mbs=2", "dp=4,zero=1", "dp=1,mbs=3", "dp=2,zero=0"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 5, LEN(layouts));
    train(&run, &(struct job){.name = "whole"});
    for (int i = 0; i < LEN(layouts); i++) {
        struct plan plan = plan_make_text(&run, layouts[i]);
        const char *layout = layout_world(&plan.layout) <= world->size ? layouts[i] : "dp=1,mbs=2";
        assert_int_equal(train(&run, &(struct job){.name = "parts", .layout = layout, .max_steps = 1, .attempt = i + 1}).steps, 1);
    }
    double d = difference("whole", "parts", LEN(layouts));
    if (!(d <= 1e-11))
        fail_msg("%.3g", d);
    run_release(&run);
}

static void zero_is_bitwise_equal(void **state)
{
    struct run run;
    char a[16], b[16];
    (void)state;
    run_make(&run, data_dir(), 5, 6);
    snprintf(a, sizeof a, "dp=%d,zero=0", world->size);
    snprintf(b, sizeof b, "dp=%d,zero=1", world->size);
    train(&run, &(struct job){.name = "a", .layout = a});
    train(&run, &(struct job){.name = "b", .layout = b});
    assert_true(difference("a", "b", 6) == 0);
    run_release(&run);
}

/* Mean over all elements and mean of the samples' means are one where samples are alike, and two where they are not. */
static void loss_norms(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct run run;
        struct told_steps t[2] = {{{0}}};
        run_make(&run, k ? data_dir() : "synthetic:1x4x4", 5, 4);
        for (int i = 0; i < 2; i++) {
            char name[16];
            snprintf(name, sizeof name, "x-%d-%d", k, i);
            run.loss_norm = i ? LOSS_NORM_SAMPLE : LOSS_NORM_TOKEN;
            train(&run, &(struct job){.name = name});
            if (world->rank == 0)
                t[i] = told(name, 1);
        }
        for (int64_t s = 0; s < t[0].n; s++) {
            double off = fabs(t[0].loss[s] / t[1].loss[s] - 1);
            assert_true(k ? off > 1e-6 : off < 1e-12);
            assert_true(t[0].loss[s] > 0.05 && t[0].loss[s] < 20); /* a mean of squares of numbers near 1 */
        }
        run_release(&run);
    }
}

/* A later stage may have fewer samples than there are replicas: those without run empty micro-batches. */
static void replicas_without_samples(void **state)
{
    struct run run;
    char layout[32];
    (void)state;
    run_make(&run, "synthetic:2x4x6", 8, 2);
    run.n_stages = 2;
    run.stages[1] = (struct run_stage){.data = "synthetic:1x4x8", .gbs = 1, .steps = 4};
    train(&run, &(struct job){.name = "one"});
    for (int zero = 0; zero < 2; zero++) {
        snprintf(layout, sizeof layout, "dp=%d,mbs=2,zero=%d", world->size, zero);
        train(&run, &(struct job){.name = layout, .layout = layout});
        double d = difference("one", layout, 6);
        if (!(d <= 1e-11))
            fail_msg("%s: %.3g", layout, d);
    }
    run_release(&run);
}

/* ---- how it ends ---- */

/* One rank hears a signal in the middle of a run: sent by its own timer, so that it falls into a step. */
static void on_alarm(int signo)
{
    (void)signo;
    stop = 1;
}

static void asked_to_stop(void **state)
{
    struct run run;
    char layout[16];
    (void)state;
    run_make(&run, data_dir(), 5, 100000);
    snprintf(layout, sizeof layout, "dp=%d", world->size);
    signal(SIGALRM, on_alarm);
    const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
    if (world->rank == world->size - 1)
        assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    struct train_report r = train(&run, &(struct job){.name = "x", .layout = layout});
    assert_true(r.end == TRAIN_STOPPED && r.next_step < 100000);
    if (world->rank == 0) {
        char file[64];
        assert_string_equal(told("x", 1).end, "stop");
        snprintf(file, sizeof file, "x/ckpt/step-%08lld", (long long)r.next_step);
        assert_true(r.next_step == 0 || file_exists(in_scratch(file)));
    }
    struct train_report again = train(&run, &(struct job){.name = "x", .layout = layout, .attempt = 2}); /* asked before it began */
    assert_true(again.end == TRAIN_STOPPED && again.steps == 0 && again.next_step == r.next_step);
    stop = 0;
    run_release(&run);
}

/* Latents that overflow float32 when normalised: every gradient is NaN, every step skipped, and then it is enough. */
static void not_finite_for_too_long(void **state)
{
    struct run run;
    struct dataset d;
    struct err err = {0};
    struct train_report r;
    char layout[16];
    (void)state;
    if (world->rank == 0) {
        must(dataset_load(in_scratch("data"), &d, &err), &err);
        d.latent_std = 1e-44;
        must(dataset_save(in_scratch("data"), &d, &err), &err);
        dataset_release(&d);
    }
    comm_barrier(world, &err);
    run_make(&run, data_dir(), 5, 40);
    snprintf(layout, sizeof layout, "dp=%d,zero=1", world->size);
    must_fail(try_train(&run, &(struct job){.name = "x", .layout = layout}, &r, &err), ERR_DIVERGED, &err,
              "10 steps in a row had a gradient that is not finite (last: step 9)");
    if (world->rank == 0) {
        struct told_steps t = told("x", 1);
        assert_true(t.n == 10 && t.skipped == 10);
        assert_string_equal(t.end, "error");
        assert_true(file_exists(in_scratch("x/ckpt/step-00000010")));
    }
    run_release(&run);
}

/* One rank's data is damaged after it was verified: all end with its sentence. */
static void one_rank_meets_damage(void **state)
{
    struct run run;
    struct train_report r;
    struct err err = {0};
    char layout[16];
    (void)state;
    if (world->rank == 0) { /* the index is told of the damaged bytes, so that only reading finds out */
        struct dataset d;
        struct hash128 hash;
        must(dataset_load(in_scratch("data"), &d, &err), &err);
        file_flip(in_scratch("data/s1.tar"), d.samples[5].latent_offset);
        must(hash_file(in_scratch("data/s1.tar"), &hash, &err), &err);
        d.shards[1].bytes_hash = hash.lo;
        must(dataset_save(in_scratch("data"), &d, &err), &err);
        dataset_release(&d);
    }
    comm_barrier(world, &err);
    run_make(&run, data_dir(), 5, 40);
    snprintf(layout, sizeof layout, "dp=%d", world->size);
    must_fail(try_train(&run, &(struct job){.name = "x", .layout = layout}, &r, &err), ERR_CORRUPT, &err,
              "s1.tar', sample 1 at offset");
    run_release(&run);
}

static void refusals(void **state)
{
    static const struct { const char *layout; int code; const char *says; } cases[] = {
        {"dp=64", ERR_USAGE, "use mpirun -n 64"},
        {"dp=1,mbs=9", ERR_NO, "mbs"},
    };
    struct run run;
    struct train_report r;
    (void)state;
    run_make(&run, data_dir(), 5, 4);
    for (int i = 0; i < LEN(cases); i++) {
        struct err err = {0};
        int rc = try_train(&run, &(struct job){.name = "x", .layout = cases[i].layout}, &r, &err);
        if (world->rank == 0)
            must_fail(rc, cases[i].code, &err, cases[i].says);
    }
    struct plan plan = plan_make_text(&run, "dp=1");
    struct err err = {0};
    plan.gbs = 6;
    int rc = try_train(&run, &(struct job){.name = "x", .plan = &plan}, &r, &err);
    if (world->rank == 0)
        must_fail(rc, ERR_INPUT, &err, "the plan was made for batches of 6 samples, the run's have 5");
    plan.gbs = 5;
    plan.model_hash.lo = 1;
    rc = try_train(&run, &(struct job){.name = "x", .plan = &plan}, &r, &err);
    if (world->rank == 0)
        must_fail(rc, ERR_INPUT, &err, "the plan was made for model");
    plan.model_hash.lo = 0;
    plan.dtype = DTYPE_F32;
    rc = try_train(&run, &(struct job){.name = "x", .plan = &plan}, &r, &err);
    if (world->rank == 0)
        must_fail(rc, ERR_INPUT, &err, "the plan was made for f32, the run trains in f64");
    run.dtype = DTYPE_BF16;
    rc = try_train(&run, &(struct job){.name = "x"}, &r, &err);
    if (world->rank == 0)
        must_fail(rc, ERR_INPUT, &err, "'bf16'");
    run_release(&run);
}

/* The plan is a promise: a limit above its total passes, one that its buffers alone fill does not; a trial leaves no checkpoint
 * and no events. The process's part is measured anew each time, and this one has grown. */
static void memory_limit_and_trial(void **state)
{
    struct run run;
    struct train_report r = {0};
    struct err err = {0};
    (void)state;
    run_make(&run, data_dir(), 5, 40);
    struct train_report ok = train(&run, &(struct job){.name = "x", .trial = true, .max_steps = 3});
    int64_t buffers = ok.planned_bytes - ok.process_bytes;
    if (world->rank == 0) {
        assert_true(ok.process_bytes > 0 && ok.process_bytes <= ok.peak_bytes + (world->size << 20));
        assert_true(ok.steps == 3 && ok.median_step_s > 0 && ok.planned_bytes > 0 && ok.peak_bytes > ok.planned_bytes / 2);
        /* what the device gave is what was planned, but for the loader, communication, and one page or so of small blocks */
        assert_in_range(ok.taken_bytes, buffers * 9 / 10, buffers + 8192);
        assert_true(ok.min_step_s <= ok.median_step_s && ok.median_step_s <= ok.max_step_s && isnan(ok.mfu));
        assert_false(file_exists(in_scratch("x/ckpt")) || file_exists(in_scratch("x/events")));
    }
    train(&run, &(struct job){.name = "x", .trial = true, .max_steps = 1, .memory_limit_bytes = 2 * ok.planned_bytes});
    int rc = try_train(&run, &(struct job){.name = "x", .trial = true, .max_steps = 1, .memory_limit_bytes = buffers}, &r, &err);
    if (world->rank == 0) {
        must_fail(rc, ERR_NO, &err, "out of memory by plan");
        assert_true(r.planned_bytes - r.process_bytes == buffers && r.steps == 0);
    }
    run_release(&run);
}

static int setup(void **state)
{
    struct err err;
    if (shared_setup(state) < 0)
        return -1;
    if (world->rank == 0)
        dataset_make(3, 4);
    return comm_barrier(world, &err);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, shared_teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_step_allocates_nothing), CASE(resumed_is_bitwise_equal), CASE(stages_follow_each_other), CASE(stages_under_their_own_layouts), CASE(validation_is_the_same), CASE(validation_bins),
        CASE(recompute_is_bitwise_equal), CASE(layouts_agree), CASE(a_layout_resumes_another), CASE(zero_is_bitwise_equal),
        CASE(replicas_without_samples), CASE(loss_norms), CASE(the_normaliser_is_global), CASE(asked_to_stop), CASE(not_finite_for_too_long), CASE(one_rank_meets_damage), CASE(refusals), CASE(memory_limit_and_trial),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
