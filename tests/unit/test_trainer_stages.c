/* Stages under layouts of their own, batches that grow, packs; validation. On mpirun's ranks, or
 * one. */
#include "tests/lib/trainer_train.h"

#include <sys/time.h>

#include "base/num.h"
#include "trainer/data/objective.h"

enum { BINS = 5 };
struct told_validation { int64_t n, step[8]; double bins[8][BINS], average[8][BINS]; };

static void bins_read(const cJSON *event, const char *key, double out[BINS])
{
    const cJSON *list = json_member(event, key);
    for (int i = 0; i < BINS; i++)
        out[i] = cJSON_GetArraySize(list) == BINS ? cJSON_GetArrayItem(list, i)->valuedouble : NAN;
}

static struct told_validation told_validation(const char *name, int attempt)
{
    struct told_validation v = {0};
    struct evlog_reader *r;
    struct err err = {0};
    const cJSON *e;
    char path[600];
    snprintf(path, sizeof path, "%s/events/rank0.a%d.evlog", in_scratch(name), attempt);
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

/* What a stage draws begins where those before it ended, counted in draws: 12 of them in three
 * steps or in six are followed by the same noise, and without them there is other noise. So small a
 * rate leaves the weights as they are. */
static void draws_go_on_over_stages(void **state)
{
    static const struct {
        const char *name;
        int64_t gbs, steps;
    } before[] = {{"three", 4, 3}, {"six", 2, 6}, {"none", 4, 0}};
    struct told_steps t[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct run_stage last = {.data = data_dir(), .gbs = 3, .steps = 2};
        struct run run;
        run_make(&run, data_dir(), before[i].gbs, before[i].steps ? before[i].steps : 2);
        run.adamw.lr = 1e-30;
        run.n_stages = before[i].steps ? 2 : 1;
        run.stages[run.n_stages - 1] = last;
        train(&run, &(struct job){.name = before[i].name});
        t[i] = world->rank == 0 ? told(before[i].name, 1) : (struct told_steps){.n = 0};
        run_release(&run);
    }
    for (int64_t s = 0; s < 2 && world->rank == 0; s++) {
        assert_true(fabs(t[0].loss[3 + s] / t[1].loss[6 + s] - 1) < 1e-12);
        assert_true(fabs(t[0].loss[3 + s] / t[2].loss[s] - 1) > 1e-3);
    }
}

/* Each stage under a layout of its own, in one attempt and stopped after every step; batches that
 * grow; packs of mixed lengths. */
static void stages_under_their_own_layouts(void **state)
{
    static const char *const layouts[] = {"tp=2,sp=1,mbs=2", "dp=2,zero=3,recompute=full",
                                          "dp=2,zero=1", "pp=2,zero=0"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 4, 3);
    run.n_stages = 4;
    run.stages[1] = (struct run_stage){.data = "synthetic:1x4x4", .gbs = 5, .steps = 4,
                                       .gbs_first = 2, .gbs_more = 1, .gbs_every_steps = 1};
    run.stages[2] = (struct run_stage){
        .data = run.stages[0].data, .gbs = 3, .steps = 2, .pack_tokens = 5};
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

/* Packs that have images, clips and captions of unlike lengths beside each other, cut by every
 * kind of parallelism. */
static void packs_of_unlike_samples(void **state)
{
    static const char *const layouts[] = {"dp=2,mbs=2,zero=3", "cp=2", "cp=2,cp_kind=a2a",
                                          "tp=2,sp=1,recompute=full", "pp=2"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 4, 3);
    run.stages[0].pack_tokens = 9;
    train(&run, &(struct job){.name = "one"});
    for (int i = 0; i < LEN(layouts) && world->size >= 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "packs-%d", i);
        train(&run, &(struct job){.name = name, .layout = layouts[i]});
        double d = difference("one", name, 3);
        if (!(d <= 1e-11))
            fail_msg("%s: %.3g", layouts[i], d);
    }
    run_release(&run);
}

/* Checkpoints written in the background: those of a run that waits for each, and the same after a
 * stop. */
static void async_is_the_same(void **state)
{
    static const char *const layouts[] = {"dp=1", "dp=2,zero=3", "dp=2,zero=1", "tp=2",
                                          "dp=2,pp=2,zero=2"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 4, 6);
    run.ckpt_every_steps = 1;
    run.ckpt_keep = 4;
    for (int i = 0; i < LEN(layouts); i++) {
        char waits[32], async[32];
        struct plan plan = plan_make_text(&run, layouts[i]);
        if (layout_world(&plan.layout) > world->size || !dealt(i, 2))
            continue;
        snprintf(waits, sizeof waits, "waits-%d", i);
        snprintf(async, sizeof async, "async-%d", i);
        run.ckpt_async = false;
        train(&run, &(struct job){.name = waits, .layout = layouts[i]});
        run.ckpt_async = true;
        struct train_report r = train(
            &run, &(struct job){.name = async, .layout = layouts[i], .max_steps = 3});
        assert_int_equal(r.end, TRAIN_LIMIT);
        r = train(&run, &(struct job){.name = async, .layout = layouts[i], .attempt = 2});
        assert_int_equal(r.end, TRAIN_DONE);
        for (int64_t step = 3; step <= 6; step++)
            assert_true(difference(waits, async, step) == 0);
        if (world->rank == 0) {
            assert_true(told(async, 1).saved == 3 && told(async, 2).saved == 3);
            char path[600];
            snprintf(path, sizeof path, "%s/ckpt/step-00000002", in_scratch(async));
            assert_false(file_exists(path));
        }
    }
    run_release(&run);
}

static void validation_run_make(struct run *run)
{
    run_make(run, data_dir(), 3, 5);
    run->model.layers = 8;
    run->adamw.lr = 1e-3; /* layers and a high rate make more of rounding */
    run->validation = (struct run_validation){
        .data = "synthetic:2x4x4", .every_steps = 2, .samples = 7, .bins = BINS};
}

/* Validation leaves the run as it is, bit for bit, and gives the same losses under every layout. */
static void validation_is_the_same(void **state)
{
    static const char *const layouts[] = {"dp=2,zero=0,mbs=2",
                                          "dp=2,zero=1", "dp=2,zero=2",
                                          "dp=2,zero=3,recompute=full", "tp=2", "tp=2,sp=1", "cp=2",
                                          "pp=2", "pp=2,vpp=2,mbs=2", "pp=2,vpp=4", "pp=4,vpp=2",
                                          "pp=2,dp=2,zero=3"};
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
        one = told_validation("with", 1);
        assert_true(one.n == 3 && one.step[0] == 2 && one.step[1] == 4 && one.step[2] == 5);
        assert_true(one.bins[2][0] != one.average[2][0] && one.bins[2][0] != one.bins[0][0]);
    }
    for (int i = 0; i < LEN(layouts); i++) {
        struct plan plan = plan_make_text(&run, layouts[i]);
        if (layout_world(&plan.layout) > world->size || !dealt(i, 5))
            continue;
        char name[32];
        snprintf(name, sizeof name, "val-%d", i);
        train(&run, &(struct job){.name = name, .layout = layouts[i]});
        double d = difference("with", name, 5);
        struct told_validation got = world->rank == 0 ? told_validation(name, 1) : one;
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

/* At rate 0 the network's output stays 0, and the loss is the target's square: for latents of mean
 * square M and EDM (sigma² M + d²) / (sigma² + d²) with d = 0.5, at the bin's own levels. */
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
        for (int64_t j = 0; j < RUN_CHANNELS * made_cells(i); j++, n++)
            square += pow(made_latent(i, j) - (float)made_mean, 2);
    d.latent_std = sqrt(square / n / M);
    comm_barrier(world, &err);
    if (world->rank == 0)
        must(dataset_save(in_scratch("data"), &d, &err), &err);
    comm_barrier(world, &err);
    run_make(&run, data_dir(), 3, 1);
    run.adamw.lr = 0;
    run.validation = (struct run_validation){
        .data = data_dir(), .every_steps = 1, .samples = 40 * d.n_samples, .bins = BINS};
    train(&run, &(struct job){.name = "bins"});
    if (world->rank == 0) {
        struct told_validation got = told_validation("bins", 1);
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

static const char *awaited; /* phase in which this rank hears a signal */
static void on_tick(int signo)
{
    (void)signo;
    if (phase && strcmp(phase, awaited) == 0)
        stop = 1;
}

/* Asked to stop in a validation, of the weights or of the average, in the middle of a run or at its
 * end: it is given up, the state saved as it would be without, and the next attempt begins with
 * it. */
static void a_validation_is_given_up(void **state)
{
    /* samples: whole minutes; or long enough to be met */
    static const struct {
        const char *phase;
        int64_t every_steps, samples;
    } cases[] = {{"validate", 2, 20000},
                 {"validate average", 2, 120},
                 {"validate", 5, 20000},
                 {"validate average", 5, 120}};
    const struct itimerval often = {.it_interval = {.tv_usec = 1000},
                                    .it_value = {.tv_usec = 1000}},
                           never = {0};
    struct run run;
    char layout[32];
    (void)state;
    validation_run_make(&run);
    int ranks = (int)num_min_i64(world->size, 3); /* as many as a step has samples */
    snprintf(layout, sizeof layout, "dp=%d,zero=1", ranks);
    train(&run, &(struct job){.name = "calm", .layout = layout});
    signal(SIGALRM, on_tick);
    for (int i = 0; i < LEN(cases); i++) {
        char name[32];
        snprintf(name, sizeof name, "given-up-%d", i);
        run.validation.every_steps = cases[i].every_steps;
        run.validation.samples = cases[i].samples;
        awaited = cases[i].phase, phase = "";
        if (world->rank == ranks - 1)
            assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
        struct train_report r = train(&run, &(struct job){.name = name, .layout = layout});
        assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
        stop = 0;
        assert_true(r.end == TRAIN_STOPPED && r.next_step == cases[i].every_steps);
        assert_true(world->rank != 0 || told_validation(name, 1).n == 0);
        run.validation.samples = 7;
        r = train(&run, &(struct job){.name = name, .layout = layout, .attempt = 2});
        assert_true(r.end == TRAIN_DONE && r.steps == 5 - cases[i].every_steps &&
                    difference("calm", name, 5) == 0);
        if (world->rank == 0) {
            struct told_validation calm = told_validation("calm", 1),
                                   got = told_validation(name, 2);
            int64_t skipped = cases[i].every_steps == 5 ? 2 : 0;
            assert_true(got.n == calm.n - skipped && got.step[0] == cases[i].every_steps);
            for (int64_t v = 0; v < got.n; v++) {
                assert_memory_equal(got.bins[v], calm.bins[v + skipped], sizeof got.bins[v]);
                assert_memory_equal(got.average[v], calm.average[v + skipped],
                                    sizeof got.average[v]);
            }
        }
    }
    run_release(&run);
}

/* A stop right behind a validation leaves it done: no attempt makes it again. */
static void validated_once(void **state)
{
    struct run run;
    int64_t of_all[8], n = 0;
    (void)state;
    validation_run_make(&run);
    run.stages[0].steps = 6;
    for (int attempt = 1; attempt <= 3; attempt++)
        train(&run, &(struct job){.name = "once", .max_steps = 2, .attempt = attempt});
    train(&run, &(struct job){.name = "once", .attempt = 4}); /* at its end already */
    for (int attempt = 1; attempt <= 4 && world->rank == 0; attempt++) {
        struct told_validation v = told_validation("once", attempt);
        for (int64_t i = 0; i < v.n; i++)
            of_all[n++] = v.step[i];
    }
    assert_true(world->rank != 0 || (n == 3 && of_all[0] == 2 && of_all[1] == 4 && of_all[2] == 6));
    run_release(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(stages_follow_each_other),       CASE(draws_go_on_over_stages),
        CASE(stages_under_their_own_layouts), CASE(packs_of_unlike_samples),
        CASE(async_is_the_same),
        CASE(validation_is_the_same),         CASE(validation_bins),
        CASE(a_validation_is_given_up),       CASE(validated_once),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
