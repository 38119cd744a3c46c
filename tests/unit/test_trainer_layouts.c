/* The same run under every layout: steps of a batch of mixed shapes and captions, in f64, against one
 * rank with everything. Of what is dealt to a day there are two, in the second of which moments and
 * average have a past; whole sets have three.
 *
 *     mpirun -n 8 test_trainer_layouts     an eighth of a covering set in which every legal
 *                                          combination of two settings' values occurs, another one
 *                                          the next day: its layouts are dealt to the first three
 *                                          models in turn, to another one first each day
 *     DRAW=1 mpirun -n 8 …                 by what is drawn on day 1 of a year
 *     LAYOUTS=covering mpirun -n 8 …       a set for every combination of three, for each of them
 *     LAYOUTS=pairs mpirun -n 8 …          the first set, of the first three models, and nothing else
 *     LAYOUTS=pairs:19 mpirun -n 8 …       a nineteenth of it, which is another one each day
 *     LAYOUTS=all mpirun -n 8 …            all layouts of the first three models, and nothing else
 *     LAYOUTS=all:3/40 mpirun -n 8 …       the third of forty shares of them
 *     MODEL=groups mpirun -n 8 …           of the models whose name begins so
 *     PLANE=nccl mpirun -n 8 …             each rank on a GPU of its own, which exchange by NCCL;
 *     PLANE=staged                         by messages of the host;
 *     PLANE=both                           a layout by the one and the next by the other
 *     STEPS=1 mpirun -n 8 …                one step of the smallest model on which the layout is legal
 *
 * Compared are the raw gradients of the first step, then losses, norms before clipping, weights,
 * moments and the average: every tensor to 1e-11 of its largest element. All weights are random and
 * not zero, and every tensor must have moved, frozen ones not. Layouts of fewer ranks than the
 * world's run side by side in parts of it. Then sums that are easy to lose are left out one by one,
 * a fourth of them each day, and must be missed; and those that many tensors share, for each of the
 * tensors alone, a sixth of them each day. */
#include <time.h>

#include "tests/lib/trainer_layouts.h"
#include "trainer/ops/cuda_load.h"
#include "trainer/state/fault.h"

/* ---- all of a model's layouts ---- */

/* Says whether layouts alone are asked for, of the first models. */
static bool wanted_pairs(void)
{
    const char *wish = getenv("LAYOUTS");
    return wish && strncmp(wish, "pairs", 5) == 0;
}

/* Says whether whole sets of all combinations of three settings' values are asked for. */
static bool wanted_whole(void)
{
    const char *wish = getenv("LAYOUTS");
    return every || getenv("MODEL") || (wish && strcmp(wish, "covering") == 0);
}

/* Returns of how many layouts of these one is tried today. */
static int64_t wanted_part(void)
{
    int n = wanted_pairs() || wanted_whole() ? 1 : 8;
    const char *wish = getenv("LAYOUTS");
    if (wanted_pairs() && wish[5] &&
        (sscanf(wish, "pairs:%d", &n) != 1 || n < 1 || (n > 1 && n % COVERED == 0)))
        fail_msg("LAYOUTS=%s: give pairs, or pairs:N for an Nth of them, N no multiple of the "
                 "models that they are dealt to", wish);
    return n;
}

/* Every other layout's ranks exchange by this, the rest by messages of the host, and the other way
 * round when they are tried next; NULL: all by one of these. */
static const struct coll_ops *plane_both;

/* Tries the layouts of w ranks, in parts of the world; the rest of it has nothing to do. */
static void layouts_of(int64_t w, int model, const struct candidates *c, int64_t drawn)
{
    struct comm *part;
    struct err err = {0};
    int parts = world->size / (int)w, mine = world->rank / (int)w, k = 0;
    must(comm_split(world, "part", mine < parts ? mine : parts, world->rank, &part, &err), &err);
    for (int64_t i = 0; i < c->n; i++) {
        struct layout l = layout_of(c->v[i]);
        if (layout_world(&l) != w)
            continue;
        if (plane_both)
            rig_coll = (i + drawn / wanted_part()) % 2 ? plane_both : NULL; /* in turns */
        if (world->rank == 0)
            print_message("# %s: %s%s\n", models[model].name, layout_text(&l),
                          rig_coll ? ", NCCL" : "");
        char text[256];
        if (k++ % parts == mine && layout_differs(part, model, &l, i % 2, text))
            fail_msg("%s, %s, clip %s: %s", models[model].name, layout_text(&l),
                     i % 2 ? "on" : "off", *text ? text : "(see another rank)");
    }
    comm_close(part);
}

static bool wanted_model(int model)
{
    const char *name = getenv("MODEL");
    return name ? strncmp(models[model].name, name, strlen(name)) == 0
                : model < COVERED || !(every || wanted_pairs());
}

/* Returns what is dealt by: rank 0's day, for ranks may start on both sides of midnight. */
static int64_t drawn_day(void)
{
    const char *draw = getenv("DRAW");
    time_t now = time(NULL);
    struct tm day;
    struct err err = {0};
    int64_t drawn = draw ? atoi(draw) : gmtime_r(&now, &day) ? day.tm_yday : 0;
    must(comm_broadcast_bytes(world, &drawn, sizeof drawn, 0, &err), &err);
    return drawn;
}

/* Says whether the model meets layout i of a covering set. Where a day has an eighth of the
 * small set, each of the first models meets each layout of it in 24 days. In the order in which it was found
 * the first have the most new combinations. */
static bool is_dealt(int model, int64_t i, int64_t drawn)
{
    enum { OTHERS = LEN(models) - COVERED };
    if (wanted_whole())
        return model < COVERED || i < 12;
    if (model < COVERED)
        return (i + drawn) % COVERED == model && (i + drawn) % wanted_part() == 0;
    return i < 4 * OTHERS && i % OTHERS == model - COVERED &&
           (i / OTHERS + drawn) % wanted_part() == 0;
}

static void deal(struct candidates *c, int model, int64_t drawn)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (is_dealt(model, i, drawn))
            memmove(c->v[n++], c->v[i], sizeof *c->v);
    c->n = n;
}

/* Returns every n-th legal layout from the k-th on, and how many are legal. */
static struct candidates share_of(const struct model *m, int k, int n, int64_t *n_legal)
{
    struct candidates all = legal(m), some = share(all, k, n);
    *n_legal = all.n;
    free(all.v);
    return some;
}

static void test_layouts(void **state)
{
    (void)state;
    int k = 1, n = 1;
    const char *wish = getenv("LAYOUTS");
    int64_t drawn = drawn_day();
    bool used[LEN(models)];
    if (world->rank == 0)
        print_message("# dealt as on day %lld: DRAW=%lld repeats it\n", (long long)drawn,
                      (long long)drawn);
    every = wish && strncmp(wish, "all", 3) == 0;
    for (int model = 0; model < LEN(models); model++)
        used[model] = wanted_model(model);
    if (!layouts_conf.least)
        wanted_share(used);
    if (every && wish[3] && (sscanf(wish, "all:%d/%d", &k, &n) != 2 || k < 1 || k > n))
        fail_msg("LAYOUTS=%s: give all, or all:K/N with K of 1 to N", wish);
    for (int model = 0; model < LEN(models); model++) {
        struct model m = model_of(&models[model]);
        if (!used[model])
            continue;
        int64_t n_legal;
        struct candidates some = every ? share_of(&m, k, n, &n_legal)
                                       : covering_given(&m, wanted_whole() ? 3 : 2, &n_legal);
        if (!every)
            deal(&some, model, drawn);
        if (world->rank == 0)
            print_message("# %s: %lld of %lld layouts\n", models[model].name, (long long)some.n,
                          (long long)n_legal);
        for (int64_t w = 1; w <= world->size; w++)
            layouts_of(w, model, &some, drawn);
        free(some.v);
    }
}

/* ---- what is left out is missed ---- */

static const struct {
    int fault, model;
    const char *layout;
} faults[] = {
    {FAULT_POINT_SUM_REPLICA, FULL, "dp=4,zero=1,fsdp=2"},
    {FAULT_POINT_SUM_REPLICA, FULL, "cp=2,dp=2,zero=3"},
    {FAULT_POINT_SUM_REPLICA, STDIT, "cp=2"},
    {FAULT_POINT_SUM_REPLICA, MOVIEGEN, "cp=2,cp_kind=a2a"},
    {FAULT_POINT_SUM_TP, FULL, "tp=2"},
    {FAULT_POINT_SUM_TP, SEPARATE, "tp=2,sp=1"},
    {FAULT_POINT_SUM_KV, FUSED, "tp=2"},
    {FAULT_POINT_SUM_KV, SEPARATE, "tp=8"},
    {FAULT_POINT_SUM_PP, FULL, "pp=2"},
    {FAULT_POINT_SUM_PP, SEPARATE, "pp=2,vpp=2"},
    {FAULT_POINT_COUNT_ONCE, FULL, "tp=2"},
    {FAULT_POINT_COUNT_ONCE, SEPARATE, "pp=2"},
    {FAULT_POINT_SUM_UNIT, FULL, "dp=2,zero=3"},
    {FAULT_POINT_SUM_UNIT, SEPARATE, "dp=2,zero=2"},
    {FAULT_POINT_SUM_UNIT, FULL, "dp=2"},
    {FAULT_POINT_SUM_UNIT, SEPARATE, "cp=2,dp=2,zero=1,fsdp=4"},
    {FAULT_POINT_SUM_BRANCH, FULL, "tp=2"},
    {FAULT_POINT_SUM_BRANCH, SEPARATE, "tp=2,sp=1"},
    {FAULT_POINT_SUM_INPUT, FULL, "tp=2"},
    {FAULT_POINT_SUM_INPUT, SEPARATE, "tp=2,sp=1"},
    {FAULT_POINT_SUM_MOD, FULL, "tp=2,sp=1"},
    {FAULT_POINT_SUM_MOD, SEPARATE, "tp=4,sp=1"},
    {FAULT_POINT_SUM_COND, FULL, "tp=2"},
    {FAULT_POINT_SUM_SHARED, SEPARATE, "tp=2"},
    {FAULT_POINT_RING_MERGE, FULL, "cp=2"},
    {FAULT_POINT_RING_DKV, SEPARATE, "cp=3"},
    {FAULT_POINT_A2A_DKV, FUSED, "cp=2,cp_kind=a2a"},
    {FAULT_POINT_A2A_DKV, SEPARATE, "cp=8,cp_kind=2d"},
    {FAULT_POINT_SUM_TP, MOVIEGEN, "tp=2,sp=1"},
    {FAULT_POINT_SEGMENTS_IN, STDIT, "cp=2"},
    {FAULT_POINT_SEGMENTS_OUT, STDIT, "cp=3"},
    {FAULT_POINT_SEGMENTS_D_IN, STDIT, "tp=2,cp=4"},
    {FAULT_POINT_SEGMENTS_D_OUT, STDIT, "cp=2,cp_kind=a2a"},
};

/* Says whether a fault before this one has its model and layout, which then was seen without one. */
static bool met_before(int i)
{
    for (int k = 0; k < i; k++)
        if (faults[k].model == faults[i].model && strcmp(faults[k].layout, faults[i].layout) == 0)
            return true;
    return false;
}

/* Runs the layout with the fault; where whole sets are asked for, first without. */
static void fault_run(int i)
{
    char text[256];
    struct comm *part;
    struct layout l;
    struct err err = {0};
    must(layout_parse(faults[i].layout, &l, &err), &err);
    bool in = layout_part(&l, &part);
    int broken = !wanted_whole() || met_before(i);
    for (; broken <= 1 && in; broken++) {
        wanted(faults[i].model, true);
        fault_active = broken ? faults[i].fault : FAULT_POINT_NONE;
        bool bad = layout_differs(part, faults[i].model, &l, true, text);
        fault_active = FAULT_POINT_NONE;
        if (bad != broken)
            fail_msg("fault %d, %s: %s", faults[i].fault, faults[i].layout,
                     broken ? "not missed" : text);
    }
    comm_close(part);
}

static void test_faults(void **state)
{
    (void)state;
    bool met[FAULT_POINTS] = {false};
    int64_t drawn = drawn_day();
    for (int i = 0; i < LEN(faults); i++) {
        if (wanted_model(faults[i].model) && (i + drawn) % wanted_part() == 0)
            fault_run(i);
        met[faults[i].fault] = true;
    }
    /* not in this rig: test_trainer_train.c */
    met[FAULT_POINT_LOSS_NORM] = met[FAULT_POINT_TRANSIENT] = true;
    for (int f = FAULT_POINT_NONE + 1; f < FAULT_POINTS; f++)
        if (!met[f])
            fail_msg("fault point %d has no case", f);
}

/* ---- the partial sums of one tensor ---- */

static const struct {
    int model;
    const char *layout;
} partial[] = {
    {FULL, "tp=2"},  {SEPARATE, "tp=2,sp=1"}, {FUSED, "tp=2"}, {SINGLE, "tp=2,sp=1"},
    {STDIT, "tp=2"}, {MOVIEGEN, "tp=2,sp=1"}, {FULL, "pp=2"},  {SEPARATE, "pp=2"},
};

/* Tensors of the first layer, or of none, whose gradients the ranks of a layout hold in parts. Two
 * ranks try one of them at a time: in six days all, where whole sets are asked for all at once. */
static int partial_run(int i, struct comm *part, int mine, int parts, int64_t drawn)
{
    struct model m = model_of(&models[partial[i].model]);
    struct param_list list;
    struct shards sh;
    struct layout l;
    struct err err = {0};
    int n = 0;
    char text[256];
    must(layout_parse(partial[i].layout, &l, &err), &err);
    must(params_build(&m, &list, &err), &err);
    must(shards_build(&m, &list, &l, 0, &sh, &err), &err);
    wanted(partial[i].model, true);
    for (int64_t t = 0; t < list.n; t++) {
        if (sh.tensors[t].sums == 0 || list.items[t].layer > 0)
            continue;
        if ((!wanted_whole() && (t + drawn) % (2 * COVERED) != 0) || n++ % parts != mine)
            continue;
        rig_unsummed = t;
        if (!layout_differs(part, partial[i].model, &l, true, text))
            fail_msg("%s, %s: a lost sum of %s is not missed", models[partial[i].model].name,
                     partial[i].layout, list.items[t].name);
        rig_unsummed = -1;
    }
    shards_release(&sh);
    params_release(&list);
    return n;
}

static void test_partial_sums(void **state)
{
    struct comm *part;
    struct err err = {0};
    int parts = world->size / 2, mine = world->rank / 2, n = 0;
    int64_t drawn = drawn_day();
    (void)state;
    must(comm_split(world, "part", mine, world->rank, &part, &err), &err);
    for (int i = 0; i < LEN(partial) && mine < parts; i++)
        n += partial_run(i, part, mine, parts, drawn);
    print_message("# %d tensors' sums left out one by one\n", n);
    comm_close(part);
}

/* ---- gradients that are nothing ---- */

/* With captions of one token and of none every query sees one key: what leads to the queries and
 * keys has no gradient, in no bit. Else AdamW divides what rounding left, which each layout leaves
 * in its own way, by its own root. */
static void nothing_check(int model, const struct outcome *o)
{
    static const char *const parts[] = {"cross.q.", "cross.q_norm.", "cross.k_norm."};
    struct model m = model_of(&models[model]);
    struct finetune finetune = finetune_of(models[model].finetune);
    struct param_list list;
    struct err err = {0};
    int met = 0;
    must(finetune_params(&m, &finetune, &list, &err), &err);
    for (int64_t i = 0, at = 0; i < list.n; at += list.items[i].count, i++)
        for (int k = 0; k < LEN(parts); k++)
            if (strstr(list.items[i].name, parts[k]) && (list.items[i].flags & PARAM_TRAINABLE)) {
                for (int state = GRADS; state <= MOMENT2; state++)
                    if (state != WEIGHTS && o->state[state] &&
                        largest(o->state[state] + at, NULL, list.items[i].count) != 0)
                        fail_msg("%s: %s of %s is not 0", models[model].name, state_names[state],
                                 list.items[i].name);
                met++;
            }
    assert_true(met > 0);
    params_release(&list);
}

static void one_key_layout(int model, const char *text, const struct outcome *want)
{
    struct comm *part;
    struct layout l;
    struct err err = {0};
    char differs[256] = "";
    struct compare c = {want, differs};
    must(layout_parse(text, &l, &err), &err);
    if (layout_part(&l, &part))
        run_layout(part, &models[model], &l, true, &c, NULL);
    comm_close(part);
    if (differs[0])
        fail_msg("%s, %s: %s", models[model].name, text, differs);
}

static void test_one_key(void **state)
{
    static const char *const layouts[] = {"cp=3",           "cp=2,cp_kind=a2a", "cp=4,cp_kind=2d",
                                          "tp=2,sp=1,cp=3", "dp=2,cp=3,zero=3", "pp=2,mbs=2"};
    static const int with[] = {LORA, MOVIEGEN, FULL};
    struct outcome want[LEN(with)] = {{{0}}};
    int64_t drawn = drawn_day();
    (void)state;
    text_most = 1;
    for (int k = world->rank; k < LEN(with); k += world->size)
        alone(with[k], true, &want[k]);
    for (int k = 0; k < LEN(with); k++) {
        outcome_send(world, &want[k], with[k], k % world->size);
        nothing_check(with[k], &want[k]);
        for (int i = 0; i < LEN(layouts); i++)
            if (wanted_whole() || (i + drawn) % LEN(with) == k)
                one_key_layout(with[k], layouts[i], &want[k]);
        for (int i = 0; i < STATES; i++)
            free(want[k].state[i]);
    }
    text_most = 4;
}

/* Gives this rank the GPU of its number, whose memory the ranks exchange by what PLANE names. On the
 * shim's a scan would be four fifths of the work. */
static void plane_open(void)
{
    const struct cuda_backend *backend;
    struct err err = {0};
    char device[32];
    snprintf(device, sizeof device, "cuda:%d", world->rank);
    setenv("REEL_DEVICE", device, true);
    must(cuda_load(&backend, &err), &err);
    if (strcmp(getenv("PLANE"), "nccl") == 0)
        rig_coll = backend->coll;
    else if (strcmp(getenv("PLANE"), "both") == 0)
        plane_both = backend->coll;
    layouts_conf.scanned = false;
}

/* Opens the device once for all layouts, for it fills its workspace with poison each time. STEPS=1
 * asks for the least that has every part of a step: its moments tell of its gradients, and each layout
 * has a model of as few layers and heads as it allows. */
static void device_open(void)
{
    static struct bench bench;
    const char *wish = getenv("STEPS");
    if (!wanted_whole() || getenv("PLANE"))
        layouts_conf.steps = 2;
    if (getenv("PLANE"))
        plane_open();
    if (wish && strcmp(wish, "1") == 0) {
        layouts_conf.steps = 1;
        layouts_conf.scanned = layouts_conf.raw = false;
        layouts_conf.least = true;
    }
    bench = bench_open(DTYPE_F64);
    rig_bench = &bench;
}

int main(int argc, char **argv)
{
    layouts_open(&argc, &argv);
    device_open();
    const struct CMUnitTest layouts[] = {cmocka_unit_test(test_layouts)},
                            sums[] = {cmocka_unit_test(test_one_key), cmocka_unit_test(test_faults),
                                      cmocka_unit_test(test_partial_sums)};
    int failed = cmocka_run_group_tests_name("layouts", layouts, NULL, NULL);
    return layouts_close(failed || every || wanted_pairs()
                             ? failed : cmocka_run_group_tests_name("sums", sums, NULL, NULL));
}
