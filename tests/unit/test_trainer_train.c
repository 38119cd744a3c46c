/* Whole runs of a small model: nothing allocated in a step; resuming, grouping, recompute and
 * layouts change nothing; how training ends. Under mpirun the layouts spread over its ranks. */
// LINK: -Wl,--wrap=strdup,--wrap=strndup,--wrap=fopen,--wrap=opendir
#include "tests/lib/trainer_train.h"

#include <dirent.h>
#include <sys/time.h>

#include "tests/lib/allocations.h"
#include "trainer/data/loader.h"
#include "trainer/state/fault.h"

/* ---- what else allocates: copies of texts, files and folders ---- */

char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
FILE *__real_fopen(const char *path, const char *mode);
DIR *__real_opendir(const char *path);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
FILE *__wrap_fopen(const char *path, const char *mode);
DIR *__wrap_opendir(const char *path);
char *__wrap_strdup(const char *s) { allocations++; return __real_strdup(s); }
char *__wrap_strndup(const char *s, size_t n) { allocations++; return __real_strndup(s, n); }
FILE *__wrap_fopen(const char *path, const char *mode)
{
    allocations++;
    return __real_fopen(path, mode);
}
DIR *__wrap_opendir(const char *path) { allocations++; return __real_opendir(path); }

/* ---- the steady state ---- */

/* Returns how often a run allocates that has a name of its own, on this rank. */
static int64_t run_allocations(const char *name, const char *layout, int64_t steps)
{
    struct run run;
    run_make(&run, data_dir(), 6, steps);
    run.model.layers = 4;
    struct plan plan = plan_make_text(&run, layout);
    allocations = 0;
    if (layout_world(&plan.layout) <= world->size)
        train(&run, &(struct job){.name = name, .layout = layout});
    run_release(&run);
    return allocations;
}

/* On every rank, a run of 12 steps allocates as often as one of 2: steps from the third on do
 * not. A run comes first for what a process allocates once, the stand-in for a GPU for one. */
static void a_step_allocates_nothing(void **state)
{
    static const char *const layouts[] = {"dp=1,mbs=2",
                                          "dp=1,mbs=1,recompute=full", "dp=2,zero=0,mbs=2",
                                          "dp=2,zero=1,mbs=1", "dp=4,zero=0,mbs=1,recompute=full",
                                          "dp=4,zero=1,mbs=2", "tp=2,sp=1,recompute=selective",
                                          "cp=2", "cp=2,cp_kind=a2a", "pp=2,vpp=2", "dp=2,zero=2",
                                          "cp=2,dp=2,zero=3"};
    bool check = world->conf->check;
    (void)state;
    world->conf->check = false; /* whose copies are allocated */
    run_allocations("alloc-once", layouts[0], 2);
    for (int i = 0; i < LEN(layouts); i++) {
        if (!dealt(i, 3))
            continue;
        char name[2][32];
        snprintf(name[0], sizeof name[0], "alloc-%d-0", i);
        snprintf(name[1], sizeof name[1], "alloc-%d-1", i);
        double more = (double)labs(run_allocations(name[0], layouts[i], 2) -
                                   run_allocations(name[1], layouts[i], 12));
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
    assert_int_equal(
        train(&run, &(struct job){.name = "parts", .max_steps = 1, .attempt = 2}).next_step, 4);
    assert_int_equal(train(&run, &(struct job){.name = "parts", .attempt = 3}).end, TRAIN_DONE);
    assert_true(difference("whole", "parts", 9) == 0);
    if (world->rank == 0) {
        struct told_steps whole = told("whole", 1),
                          parts[] = {told("parts", 1), told("parts", 2), told("parts", 3)};
        assert_true(whole.n == 9 && parts[0].n == 3 && parts[1].n == 1 && parts[2].n == 5 &&
                    parts[2].loaded == 1);
        for (int64_t step = 0; step < 9; step++)
            assert_true(whole.loss[step] == parts[step < 3 ? 0 : step < 4 ? 1 : 2].loss[step]);
        assert_true(whole.loss[8] != whole.loss[0]);
    }
    struct train_report again = train(&run, &(struct job){.name = "parts", .attempt = 4});
    assert_true(again.end == TRAIN_DONE && again.steps == 0); /* nothing left to do */
    run_release(&run);
}

/* A step on a device that queues waits for it twice, however many micro-batches it has, measured or
 * not, and comes to the bits of the CPU. */
static void a_step_waits_twice(void **state)
{
    static const char *const layouts[] = {"mbs=5", "mbs=2", "mbs=1,recompute=full"};
    char *before = getenv("REEL_DEVICE") ? strdup(getenv("REEL_DEVICE")) : NULL;
    bool check = world->conf->check; /* its copies are of the host */
    (void)state;
    for (int i = 0; i < LEN(layouts); i++) {
        struct run run;
        char near[8], far[8];
        run_make(&run, data_dir(), 5, 3);
        run.n_stages = 2; /* the last step reads the first batch of another stage ahead */
        run.stages[1] = (struct run_stage){.data = "synthetic:2x4x4", .gbs = 5, .steps = 3};
        snprintf(near, sizeof near, "near-%d", i), snprintf(far, sizeof far, "far-%d", i);
        world->conf->check = false;
        setenv("REEL_DEVICE", "cpu", true);
        train(&run, &(struct job){.name = near, .layout = layouts[i]});
        setenv("REEL_DEVICE", i == 0 ? "far:1" : i == 1 ? "far:2" : "far:3", true);
        struct job job = {.name = far, .layout = layouts[i], .profile = i > 0};
        struct train_report r = train(&run, &job);
        world->conf->check = check;
        before ? setenv("REEL_DEVICE", before, true) : unsetenv("REEL_DEVICE");
        if (r.steps != 6 || r.step_syncs != 2)
            fail_msg("%s: %lld syncs in one of %lld steps", layouts[i], (long long)r.step_syncs,
                     (long long)r.steps);
        assert_true(i == 0 || (r.named_share > 0 && r.named_share < 1.0001));
        assert_true(difference(near, far, 6) == 0);
        run_release(&run);
    }
    free(before);
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

/* Every way to spread 5 samples: micro-batches, ranks that have fewer, ZeRO. Weights, moments,
 * average, losses and norms. */
static void layouts_agree(void **state)
{
    static const char *const layouts[] = {"mbs=2",
                                          "mbs=5", "dp=2,zero=0", "dp=2,zero=1",
                                          "dp=2,zero=1,mbs=2,recompute=full", "dp=3,zero=0",
                                          "dp=3,zero=1,mbs=2", "dp=4,zero=0", "dp=4,zero=1",
                                          "dp=2,zero=3",
                                          "tp=2,sp=1"};
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
            if (layout_world(&plan.layout) > world->size || !dealt(i + k, 3))
                continue;
            train(&run, &(struct job){.name = name, .layout = layouts[i]});
            double d = difference(base, name, 6);
            if (!(d <= 1e-11))
                fail_msg("%s: %.3g", layouts[i], d);
            struct told_steps a = {0}, b = {0};
            if (world->rank == 0)
                a = told(base, 1), b = told(name, 1);
            for (int64_t s = 0; s < a.n; s++)
                assert_true(fabs(a.loss[s] - b.loss[s]) <= 1e-12 * a.loss[s] &&
                            fabs(a.norm[s] - b.norm[s]) <= 1e-11 * a.norm[s] && a.loss_x0[s] > 0 &&
                            fabs(a.loss_x0[s] - b.loss_x0[s]) <= 1e-12 * a.loss_x0[s] &&
                            a.loss_x0[s] != a.loss[s]);
        }
        run_release(&run);
    }
}

/* Three and two samples a replica: each divides by the batch's total. When each divides by its own,
 * it is seen in losses and weights. */
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

/* Which steps are spikes follows from the losses and norms that were recorded; such a step changes
 * nothing, is not computed again, and is the same one under any layout and over a stop. A stage
 * begins anew. */
enum { SPIKE_RUN = 84, SPIKE_STAGE = 2 };
static void spikes_check(const char *name, int64_t first, double z, int seen[2])
{
    struct told_steps t = told(name, 1);
    struct spike_history h = {0};
    for (int64_t s = 0; s < SPIKE_RUN; s++) {
        if (s == first)
            h.n = 0;
        bool loss = t.loss[s] > spike_limit(h.loss, h.n, z),
             norm = t.norm[s] > spike_limit(h.norm, h.n, z);
        assert_string_equal(t.spike[s], loss ? "loss" : norm ? "grad_norm" : "");
        assert_true(t.was_skipped[s] == (loss || norm) && t.bad_rank[s] == -2);
        seen[loss ? 0 : 1] += loss || norm;
        spike_note(&h, t.loss[s], t.norm[s]);
    }
}

static void spikes_are_skipped(void **state)
{
    static const char *const layouts[] = {"dp=1", "dp=2,zero=3", "pp=2,mbs=1",
                                          "tp=2,sp=1,recompute=full", "tp=2,pp=2"};
    struct run run;
    bool parted = false; /* one of them */
    (void)state;
    run_make(&run, data_dir(), 2, SPIKE_STAGE);
    run.n_stages = 2;
    run.stages[1] = run.stages[0];
    run.stages[1].steps = SPIKE_RUN - SPIKE_STAGE;
    run.adamw.lr = 1e-3;
    run.adamw.spike_z = 1.2;
    for (int i = 0; i < LEN(layouts); i++) {
        struct plan plan = plan_make_text(&run, layouts[i]);
        char whole[16], parts[16];
        int seen[2] = {0};
        if (i > 0 && layout_world(&plan.layout) != world->size)
            continue;
        snprintf(whole, sizeof whole, "spikes-%d", i);
        snprintf(parts, sizeof parts, "parted-%d", i);
        train(&run, &(struct job){.name = whole, .layout = layouts[i]});
        assert_true(difference("spikes-0", whole, SPIKE_RUN) <= 1e-9);
        if (world->rank == 0) {
            spikes_check(whole, SPIKE_STAGE, run.adamw.spike_z, seen);
            assert_true(seen[0] > 0 && seen[1] > 0);
        }
        if (parted || layout_world(&plan.layout) != world->size)
            continue;
        parted = true;
        train(&run, &(struct job){.name = parts, .layout = layouts[i], .max_steps = SPIKE_RUN - 9});
        train(&run, &(struct job){.name = parts, .layout = layouts[i], .attempt = 2});
        assert_true(difference(whole, parts, SPIKE_RUN) == 0);
        assert_true(world->rank != 0 || told(parts, 2).skipped > 0);
    }
    run_release(&run);
}

/* A number lost in every step, and not when it is computed again: the steps come out as those of an
 * undisturbed run, to the bit. */
static void a_transient_fault_costs_time_alone(void **state)
{
    static const char *const layouts[] = {"dp=1", "dp=2,zero=3", "pp=2,mbs=1",
                                          "tp=2,sp=1,recompute=full"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 5, 4);
    for (int i = 0; i < LEN(layouts); i++) {
        struct plan plan = plan_make_text(&run, layouts[i]);
        char sound[16], struck[16];
        if (layout_world(&plan.layout) > world->size || (world->size > 1 && !dealt(i, 2)))
            continue;
        snprintf(sound, sizeof sound, "sound-%d", i);
        snprintf(struck, sizeof struck, "struck-%d", i);
        train(&run, &(struct job){.name = sound, .layout = layouts[i]});
        fault_active = FAULT_POINT_TRANSIENT;
        train(&run, &(struct job){.name = struck, .layout = layouts[i]});
        fault_active = FAULT_POINT_NONE;
        assert_true(difference(sound, struck, 4) == 0);
        if (world->rank != 0)
            continue;
        struct told_steps a = told(sound, 1), b = told(struck, 1);
        assert_true(a.n == 4 && b.n == 4 && a.skipped == 0 && b.skipped == 0);
        for (int s = 0; s < 4; s++)
            assert_true(a.bad_rank[s] == -2 && b.bad_rank[s] >= 0 && !b.bad_op[s][0] &&
                        a.loss[s] == b.loss[s] && a.norm[s] == b.norm[s]);
    }
    run_release(&run);
}

/* A run may change its layout at every restart. */
static void a_layout_resumes_another(void **state)
{
    static const char *const layouts[] = {"dp=1",        "dp=2,zero=1", "dp=3,zero=0,mbs=2",
                                          "dp=4,zero=1", "dp=1,mbs=3",  "dp=2,zero=0"};
    struct run run;
    (void)state;
    run_make(&run, data_dir(), 5, LEN(layouts));
    train(&run, &(struct job){.name = "whole"});
    for (int i = 0; i < LEN(layouts); i++) {
        struct plan plan = plan_make_text(&run, layouts[i]);
        const char *layout = layout_world(&plan.layout) <= world->size ? layouts[i] : "dp=1,mbs=2";
        assert_int_equal(
            train(
                &run,
                &(struct job){.name = "parts", .layout = layout, .max_steps = 1, .attempt = i + 1})
                .steps,
            1);
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

/* Mean over all elements and mean of the samples' means are one where samples are alike, and two
 * where they are not. */
static void loss_norms(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) { /* samples of one size, of several, packs of one size */
        struct run run;
        struct told_steps t[2] = {{{0}}};
        run_make(&run, k == 1 ? data_dir() : "synthetic:1x4x4", 5, 4);
        run.stages[0].pack_tokens = k == 2 ? 8 : 0;
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
            assert_true(k == 1 ? off > 1e-6 : off < 1e-12);
            /* a mean of squares of numbers near 1 */
            assert_true(t[0].loss[s] > 0.05 && t[0].loss[s] < 20);
        }
        run_release(&run);
    }
}

/* A later stage may have fewer samples than there are replicas: those without run empty
 * micro-batches. */
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

/* One rank hears a signal in the middle of a run: sent by its own timer, so that it falls into a
 * step. */
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
    /* asked before it began */
    struct train_report again = train(&run,
                                      &(struct job){.name = "x", .layout = layout, .attempt = 2});
    assert_true(again.end == TRAIN_STOPPED && again.steps == 0 && again.next_step == r.next_step);
    stop = 0;
    run_release(&run);
}

/* Latents that overflow float32 when normalised: every gradient is NaN, every step skipped, and
 * then it is enough. */
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
    /* they are counted over a stop */
    must(try_train(&run, &(struct job){.name = "x", .layout = layout, .max_steps = 6}, &r, &err),
         &err);
    must_fail(try_train(&run, &(struct job){.name = "x", .layout = layout, .attempt = 2}, &r, &err),
              ERR_DIVERGED, &err,
              "10 steps in a row had a gradient that is not finite (last: step 9, first met in the "
              "head on rank 0, read by copy of the embedding on rank 0, in forward)");
    if (world->rank == 0) {
        struct told_steps t = told("x", 2);
        assert_true(t.n == 4 && t.skipped == 4);
        assert_string_equal(t.end, "error");
        assert_true(file_exists(in_scratch("x/ckpt/step-00000010")));
    }
    run_release(&run);
}

/* A sample that is past the numbers, drawn once by one replica: that rank is named, its step alone
 * skipped. */
static void the_rank_is_named(void **state)
{
    enum { SAMPLE = 5, NPY_HEADER_BYTES = 128, STEPS = 12 };
    const float huge = 3e38f; /* its square is past f32 */
    struct run run;
    struct loader *l;
    struct err err = {0};
    (void)state;
    if (world->rank == 0) {
        struct dataset d;
        struct hash128 hash;
        must(dataset_load(in_scratch("data"), &d, &err), &err);
        int fd = open(in_scratch("data/s1.tar"), O_RDWR);
        assert_true(fd >= 0 && pwrite(fd, &huge, sizeof huge,
                                      (off_t)d.samples[SAMPLE].latent_offset + NPY_HEADER_BYTES) ==
                                   sizeof huge);
        close(fd);
        must(hash_file(in_scratch("data/s1.tar"), &hash, &err), &err);
        d.shards[1].bytes_hash = hash.lo;
        must(dataset_save(in_scratch("data"), &d, &err), &err);
        dataset_release(&d);
    }
    comm_barrier(world, &err);
    run_make(&run, data_dir(), world->size, STEPS / world->size);
    run.dtype = DTYPE_F32;
    must(loader_open(&run, &run.stages[0], NULL, 1, false, 0, 1, &l, &err), &err);
    /* 4: in two stages, of which the last one meets it first */
    for (int zero = 0; zero <= (world->size > 1 ? 4 : 0); zero++) {
        char layout[32];
        bool stages = zero == 4 && world->size % 2 == 0;
        int dp = stages ? world->size / 2 : world->size;
        if (zero == 4 && !stages)
            continue;
        snprintf(layout, sizeof layout, stages ? "dp=%d,pp=2,mbs=%d" : "dp=%d,zero=%d", dp,
                 stages ? 1 : zero);
        train(&run, &(struct job){.name = layout, .layout = layout});
        struct told_steps t = world->rank == 0 ? told(layout, 1) : (struct told_steps){.n = 0};
        assert_true(world->rank != 0 || t.skipped == 1);
        for (int64_t i = 0; i < STEPS && world->rank == 0; i++)
            if (loader_sample(l, loader_draw(l, i).pack, 0) == SAMPLE) {
                int64_t step = i / world->size,
                        rank = stages ? dp + i % world->size / 2 : i % world->size;
                char made[80];
                snprintf(made, sizeof made,
                         "made by adaln_bwd of the head on rank %lld, in backward",
                         (long long)rank);
                assert_true(t.bad_rank[step] == rank &&
                            strstr(t.bad_in[step], "the head on rank ") &&
                            strcmp(t.bad_op[step], made) == 0);
            }
    }
    loader_close(l);
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
    /* the index is told of the damaged bytes, so that only reading finds out */
    if (world->rank == 0) {
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
    must_fail(try_train(&run, &(struct job){.name = "x", .layout = layout}, &r, &err), ERR_CORRUPT,
              &err, "s1.tar', sample 1 at offset");
    run_release(&run);
}

static void refusals(void **state)
{
    static const struct { const char *layout; int code; const char *says; } cases[] = {
        {"dp=64", ERR_USAGE, "use mpirun -n 64"},
        {"dp=1,mbs=9", ERR_INPUT, "mbs"},
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
        must_fail(rc, ERR_INPUT, &err,
                  "the plan was made for batches of 6 samples, the run's have 5");
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
    run.dtype = DTYPE_FP8;
    rc = try_train(&run, &(struct job){.name = "x"}, &r, &err);
    if (world->rank == 0)
        must_fail(rc, ERR_INPUT, &err, "'fp8'");
    run_release(&run);
}

/* Holds what the device has given, and what was pinned, against the plan: to the byte. */
static void memory_check(const char *what, const struct train_report *r)
{
    if (r->taken_bytes != r->device_bytes || r->taken_pinned_bytes != r->pinned_bytes)
        fail_msg("%s, rank %d: on the device %lld bytes of %lld planned, pinned %lld of %lld", what,
                 world->rank, (long long)r->taken_bytes, (long long)r->device_bytes,
                 (long long)r->taken_pinned_bytes, (long long)r->pinned_bytes);
}

/* All that a run does takes what the plan says, on the CPU and where messages are staged: steps,
 * validations, checkpoints in the background. */
static void the_plan_is_what_is_taken(void **state)
{
    static const char *const layouts[] = {
        "mbs=2", "dp=2,zero=0", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3", "tp=2,sp=1", "tp=2",
        "cp=2", "cp=2,cp_kind=a2a", "pp=2", "pp=2,vpp=2", "dp=4,zero=1,fsdp=2", "tp=2,sp=1,pp=2"};
    const char *device = getenv("REEL_DEVICE");
    char *before = device ? strdup(device) : NULL;
    (void)state;
    for (int i = 0; i < 2 * LEN(layouts); i++) {
        struct run run;
        struct train_report r = {0};
        struct err err = {0};
        struct layout l;
        must(layout_parse(layouts[i / 2], &l, &err), &err);
        if (layout_world(&l) > world->size || !dealt(i, world->size > 1 ? 5 : 1))
            continue;
        run_make(&run, data_dir(), 4, 4);
        run.model.layers = 4;
        run.ckpt_every_steps = 2;
        run.ckpt_async = true;
        run.validation = (struct run_validation){
            .data = "synthetic:1x4x4", .every_steps = 2, .samples = 4, .bins = 2};
        setenv("REEL_DEVICE", i % 2 ? "far:6" : "cpu", true);
        must(try_train(&run, &(struct job){.name = i % 2 ? "plan-far" : "plan",
                                           .layout = layouts[i / 2]}, &r, &err), &err);
        if (world->rank < layout_world(&l) && r.steps == 4)
            memory_check(layouts[i / 2], &r);
        else
            assert_true(world->rank >= layout_world(&l));
        if (world->rank == 0)
            must(file_remove_tree(in_scratch(i % 2 ? "plan-far" : "plan"), &err), &err);
        run_release(&run);
    }
    if (before)
        setenv("REEL_DEVICE", before, true);
    else
        unsetenv("REEL_DEVICE");
    free(before);
}

/* The plan is a promise: a limit above its total passes, one that its buffers alone fill does not;
 * a trial leaves no checkpoint and no events. The process's part is measured anew each time, and
 * this one has grown. */
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
        assert_true(ok.process_bytes > 0 &&
                    ok.process_bytes <= ok.peak_bytes + (world->size << 20));
        assert_true(ok.steps == 3 && ok.median_step_s > 0 && ok.planned_bytes > 0 &&
                    ok.peak_bytes > ok.planned_bytes / 2);
        memory_check("trial", &ok);
        assert_true(ok.min_step_s <= ok.median_step_s && ok.median_step_s <= ok.max_step_s &&
                    isnan(ok.mfu));
        assert_false(file_exists(in_scratch("x/ckpt")) || file_exists(in_scratch("x/events")));
    }
    train(&run, &(struct job){.name = "x",
                              .trial = true, .max_steps = 1,
                              .memory_limit_bytes = 2 * ok.planned_bytes});
    int rc = try_train(
        &run,
        &(struct job){.name = "x", .trial = true, .max_steps = 1,
                      .memory_limit_bytes = ok.device_bytes - 1},
        &r, &err);
    if (world->rank == 0) {
        must_fail(rc, ERR_NO, &err, "out of memory by plan");
        assert_true(r.planned_bytes - r.process_bytes == buffers && r.steps == 0);
    }
    run_release(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_step_allocates_nothing),   CASE(resumed_is_bitwise_equal),
        CASE(a_step_waits_twice),
        CASE(recompute_is_bitwise_equal), CASE(layouts_agree),
        CASE(a_layout_resumes_another),   CASE(zero_is_bitwise_equal),
        CASE(replicas_without_samples),   CASE(loss_norms),
        CASE(the_normaliser_is_global),   CASE(asked_to_stop),
        CASE(not_finite_for_too_long),    CASE(the_rank_is_named),
        CASE(spikes_are_skipped),         CASE(a_transient_fault_costs_time_alone),
        CASE(one_rank_meets_damage),      CASE(refusals),
        CASE(the_plan_is_what_is_taken),  CASE(memory_limit_and_trial),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
