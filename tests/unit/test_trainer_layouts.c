/* The same run under every layout: three steps of a batch of mixed shapes and captions, in f64, against one rank with everything.
 *
 *     mpirun -n 8 test_trainer_layouts              a covering set: every legal combination of three settings' values occurs
 *     LAYOUTS=all mpirun -n 8 …                     all of them
 *
 * Compared are the raw gradients of the first step, then losses, norms before clipping, weights, moments and the average: every
 * tensor to 1e-11 of its largest element. All weights are random and not zero, and every tensor must have moved. Layouts of fewer
 * ranks than the world's run side by side in parts of it. Then each sum that is easy to lose is left out, and must be missed. */
#include "tests/unit/trainer_model.h"

#include <unistd.h>

#include "base/num.h"
#include "trainer/fault.h"

static struct comm *world;

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("rank %d: %s", world->rank, err->text);
}

enum { STEPS = 3 };
static const double TOLERANCE = 1e-11, MOVED = 1e-6;

/* ---- models: heads and widths that eight tp ranks divide ---- */

enum { FULL, STDIT, MOVIEGEN, COVERED, SEPARATE = COVERED, FUSED, SINGLE, BARE }; /* the first ones' layouts are all covered; the others meet some */
static const struct model_case {
    const char *name;
    enum model_family family;
    enum model_adaln adaln;
    int64_t kv_heads;
    bool gated, text;
    int64_t cond_channels, layers;
    enum objective objective;
    enum loss_norm norm;
    bool tables;
} models[] = {
    [FULL] = {"full", MODEL_DIT, ADALN_FULL, 8, false, true, 0, 5, OBJECTIVE_EDM, LOSS_NORM_TOKEN},
    [STDIT] = {"stdit, 4 kv heads", MODEL_STDIT, ADALN_LORA_SINGLE, 4, false, true, 0, 4, OBJECTIVE_RECTIFIED_FLOW, LOSS_NORM_TOKEN},
    [MOVIEGEN] = {"moviegen, 2 kv heads, tables", MODEL_MOVIEGEN, ADALN_LORA_SEPARATE, 2, true, true, 0, 5, OBJECTIVE_RECTIFIED_FLOW, LOSS_NORM_TOKEN, true},
    [SEPARATE] = {"lora_separate, 2 kv heads, gated", MODEL_DIT, ADALN_LORA_SEPARATE, 2, true, true, 2, 4, OBJECTIVE_RECTIFIED_FLOW, LOSS_NORM_TOKEN},
    [FUSED] = {"lora_fused, 1 kv head", MODEL_DIT, ADALN_LORA_FUSED, 1, false, true, 0, 4, OBJECTIVE_V, LOSS_NORM_TOKEN},
    [SINGLE] = {"lora_single, no text", MODEL_DIT, ADALN_LORA_SINGLE, 4, true, false, 2, 4, OBJECTIVE_EDM, LOSS_NORM_TOKEN},
    [BARE] = {"nothing but tokens", MODEL_DIT, ADALN_NONE, 8, false, false, 0, 4, OBJECTIVE_EDM, LOSS_NORM_TOKEN},
};

static struct model model_of(const struct model_case *c)
{
    return (struct model){.name = "small", .family = c->family, .layers = c->layers, .hidden = 48, .heads = 8, .kv_heads = c->kv_heads, .ffn = 16,
                          .gated_mlp = c->gated, .text_width = c->text ? TEXT_WIDTH : 0, .text_len = c->text ? 8 : 0, .adaln = c->adaln,
                          .adaln_rank = c->adaln == ADALN_NONE || c->adaln == ADALN_FULL ? 0 : 3, .patch_t = 1, .patch_h = 2, .patch_w = 2,
                          .latent_channels = CHANNELS, .cond_channels = c->cond_channels, .rope_theta = 100,
                          .pos_t = c->tables ? 3 : 0, .pos_h = c->tables ? 2 : 0, .pos_w = c->tables ? 4 : 0};
}

/* ---- layouts: settings and their values ---- */

enum { SETTINGS = 11 };
static const int64_t values[SETTINGS][5] = {
    {1, 2, 4, 8, 0},       /* tp */
    {0, 1, -1},            /* sp */
    {1, 2, 3, 4, 8},       /* cp; 8 when all are wanted */
    {0, 1, 2, -1},         /* cp_kind */
    {1, 2, 3, 4, 5},       /* pp; 5 likewise */
    {1, 2, 0},             /* vpp */
    {1, 2, 3, 4, 0},       /* dp: four samples; 4 likewise */
    {0, 1, 2, 3, -1},      /* zero */
    {0, 1, 2, -1},         /* shard group: dp, 2, dp·cp */
    {1, 2, 3, 0},          /* mbs */
    {0, 1, 2, 3, -1},      /* recompute: none, selective, full, full of one layer */
};
static const int counts[SETTINGS] = {4, 2, 5, 3, 5, 2, 4, 4, 3, 3, 4}, few_counts[SETTINGS] = {4, 2, 4, 3, 4, 2, 3, 4, 3, 2, 4};
static bool every; /* LAYOUTS=all */

static struct layout layout_of(const int *v)
{
    struct layout l = layout_default();
    l.tp = values[0][v[0]], l.sp = values[1][v[1]], l.cp = values[2][v[2]], l.cp_kind = (enum cp_kind)v[3];
    l.pp = values[4][v[4]], l.vpp = values[5][v[5]], l.dp = values[6][v[6]], l.zero = v[7];
    l.fsdp = v[8] == 0 ? 0 : v[8] == 1 ? 2 : l.dp * l.cp;
    l.mbs = values[9][v[9]];
    l.recompute = v[10] == 0 ? RECOMPUTE_NONE : v[10] == 1 ? RECOMPUTE_SELECTIVE : RECOMPUTE_FULL;
    l.recompute_layers = v[10] == 3;
    return l;
}

/* A second spelling of another one, or not legal. */
static bool left_out(const struct layout *l, const struct model *m, const int *v)
{
    bool zero_alone = l->zero > 0 && layout_shard_group(l) == 1, group = v[8] > 0 && (l->zero == 0 || l->fsdp == l->dp || l->fsdp == 1);
    int64_t w = layout_world(l);
    return w > 8 || zero_alone || group || (v[8] == 2 && l->fsdp == 2) || layout_broken_rule(l, m, (struct seq){1, 1, 8}, SAMPLES, w) >= 0;
}

struct candidates { int (*v)[SETTINGS]; int64_t n; };

static bool next(int *v)
{
    for (int i = 0; i < SETTINGS; i++) {
        if (++v[i] < (every ? counts : few_counts)[i])
            return true;
        v[i] = 0;
    }
    return false;
}

static struct candidates legal(const struct model *m)
{
    struct candidates c = {0};
    int v[SETTINGS] = {0};
    int64_t room = 1 << 16;
    c.v = calloc((size_t)room, sizeof *c.v);
    do {
        struct layout l = layout_of(v);
        if (left_out(&l, m, v))
            continue;
        assert_true(c.n < room);
        memcpy(c.v[c.n++], v, sizeof v);
    } while (next(v));
    return c;
}

/* ---- the covering set: greedily, the candidate with the most triples of values not met yet ---- */

enum { VALUES = 5, TRIPLES = SETTINGS * SETTINGS * SETTINGS * VALUES * VALUES * VALUES };
static int64_t triple(const int *v, int a, int b, int c)
{
    return ((((int64_t)a * SETTINGS + b) * SETTINGS + c) * VALUES + v[a]) * VALUES * VALUES + v[b] * VALUES + v[c];
}

static int64_t triples(const int *v, bool *met, bool mark)
{
    int64_t n = 0;
    for (int a = 0; a < SETTINGS; a++)
        for (int b = a + 1; b < SETTINGS; b++)
            for (int c = b + 1; c < SETTINGS; c++) {
                bool *m = &met[triple(v, a, b, c)];
                n += !*m;
                *m |= mark;
            }
    return n;
}

static struct candidates covering(struct candidates all)
{
    struct candidates c = {.v = calloc((size_t)all.n, sizeof *c.v)};
    bool *met = calloc(TRIPLES, sizeof *met);
    int64_t *left = malloc((size_t)all.n * sizeof *left); /* an upper bound: what was not met when it was last looked at */
    for (int64_t i = 0; i < all.n; i++)
        left[i] = triples(all.v[i], met, false);
    for (;;) {
        int64_t best = 0, most = 0;
        for (int64_t i = 0; i < all.n; i++)
            if (left[i] > most && (left[i] = triples(all.v[i], met, false)) > most)
                most = left[i], best = i;
        if (most == 0)
            break;
        triples(all.v[best], met, true);
        memcpy(c.v[c.n++], all.v[best], sizeof *c.v);
    }
    free(met);
    free(left);
    return c;
}

/* ---- the sum of the ranks' gradients, by rules of this test's own ---- */

/* A buffer of own pieces, or a whole one, as this rank's flat elements. */
static double *flat_of(struct rig *r, const void *buffer, bool pieces)
{
    struct err err = {0};
    double *flat = calloc((size_t)r->sh.total, sizeof *flat);
    if (!pieces) {
        memcpy(flat, buffer, (size_t)r->sh.total * sizeof *flat);
        return flat;
    }
    for (int64_t u = 0; u < r->sh.n_units; u++) {
        const struct shard_unit *s = &r->sh.units[u];
        struct comm_op op = {.kind = COMM_ALL_GATHER, .what = "test", .dtype = DTYPE_F64, .n = s->elements / r->sh.group,
                             .send = (const double *)buffer + s->offset / r->sh.group, .recv = flat + s->offset};
        must(comm_do(r->grid.shard, &op, NULL, &err), &err);
    }
    return flat;
}

/* Is element j of tensor t a summand, or the only copy that counts? */
static bool counts_here(const struct rig *r, const struct shard_tensor *t, int64_t j)
{
    if ((t->sums & SHARD_SUM_TP) || ((t->sums & SHARD_SUM_PP) && r->sh.place.tp == 0))
        return true;
    return j < t->own_rows * t->cols || ((t->sums & SHARD_SUM_KV) && j >= t->kv_row * t->cols);
}

/* [total of all tensors, in the list's order] of the model. */
static double *whole_gradient(struct rig *r, struct comm *part)
{
    struct err err = {0};
    bool pieces = r->layout.zero >= 2, mine = !pieces || r->sh.group_rank == 0;
    double *flat = flat_of(r, r->grads, pieces), *whole = calloc((size_t)r->list.total, sizeof *whole);
    for (int64_t i = 0, at = 0; i < r->list.n; at += r->list.items[i].count, i++) {
        const struct shard_tensor *t = &r->sh.tensors[i];
        for (int64_t j = 0, run; mine && t->offset >= 0 && j < t->count; j += run) {
            int64_t g = shard_to_global(t, &r->list.items[i], j, &run);
            for (int64_t k = 0; k < run; k++)
                whole[at + g + k] += counts_here(r, t, j + k) ? flat[t->offset + j + k] : 0;
        }
    }
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "test", .dtype = DTYPE_F64, .recv = whole, .n = r->list.total};
    must(comm_do(part, &op, NULL, &err), &err);
    free(flat);
    return whole;
}

/* ---- a run ---- */

enum { GRADS, WEIGHTS, MOMENT1, MOMENT2, AVERAGE, STATES };
static const char *const state_names[] = {"gradient", "weight", "m", "v", "average"};
/* What one rank with everything gives. */
struct outcome {
    double *state[STATES]; /* [total], tensor after tensor */
    double loss[STEPS], norm[STEPS];
};
struct compare { const struct outcome *want; char *text; }; /* text: the first difference, or empty; 256 bytes */

static int micro_batch(void *ctx, int64_t micro, struct batch *out, struct err *err)
{
    struct rig *r = ctx;
    (void)err;
    out->n = layout_micro_batch_samples(&r->layout, SAMPLES, r->sh.place.dp, micro);
    out->samples = r->data.samples + layout_replica_first(&r->layout, SAMPLES, r->sh.place.dp) + micro * r->layout.mbs;
    return 0;
}

/* All micro-batches of this replica, empty ones at the end where others have more; the loss of the batch. */
static double gradients(struct rig *r, struct comm *part)
{
    struct err err = {0};
    const struct layout *l = &r->layout;
    struct pipe_work w = {.micros = layout_micro_batches(l, SAMPLES, l->zero >= 2 ? 0 : r->sh.place.dp), .inv_norm = INV_NORM,
                          .batch = micro_batch, .ctx = r};
    struct pipe_result out;
    units_begin(&r->units, w.micros, l->vpp);
    must(pipe_run(&r->pipe, &w, &out, &err), &err);
    units_flush(&r->units);
    must(units_failed(&r->units, &err), &err);
    double loss = l->tp == 1 || l->sp || r->sh.place.tp == 0 ? out.loss_sum : 0;
    must(comm_sum(part, &loss, 1, &err), &err);
    return loss * INV_NORM;
}

static void run_init_for(struct run *run, const struct model_case *c, bool clip)
{
    run_init(run);
    run->model = model_of(c);
    run->loss_norm = c->norm;
    run->adamw.lr = 1e-3;
    run->adamw.clip_norm = clip ? 0.5 : 0;
    run->adamw.ema_decay = 0.9;
    run->warmup_steps = 0;
    run->lr_schedule = LR_CONSTANT;
    run->n_stages = 1;
    run->stages[0] = (struct run_stage){.gbs = SAMPLES, .steps = STEPS};
}

static double largest(const double *a, const double *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - (b ? b[i] : 0));
        most = fmax(most, isnan(d) ? INFINITY : d);
    }
    return most;
}

static void differs(struct compare *c, int state, const char *tensor, double most, double scale)
{
    if (!*c->text && !(most <= TOLERANCE * scale))
        snprintf(c->text, 256, "%s of %s differs by %.3g of %.3g", state_names[state], tensor, most, scale);
}

static void compare_whole(struct compare *c, const struct param_list *list, int state, const double *got)
{
    const double *want = c->want->state[state];
    for (int64_t i = 0, at = 0; i < list->n; at += list->items[i].count, i++)
        differs(c, state, list->items[i].name, largest(got + at, want + at, list->items[i].count), largest(want + at, NULL, list->items[i].count));
}

/* Where flat element e of unit u stands in a buffer; -1: in another rank's piece. */
static int64_t place_of(const struct rig *r, const struct shard_unit *u, int64_t e, bool pieces)
{
    int64_t piece = u->elements / r->sh.group, in = e - u->offset;
    if (!pieces)
        return e;
    return in / piece == r->sh.group_rank ? u->offset / r->sh.group + in % piece : -1;
}

/* All that this rank holds of a buffer, copies included; `save` instead: the whole, when it is all here. */
static void compare_own(struct compare *c, struct rig *r, int state, const void *buffer, bool pieces, double *save)
{
    int64_t at[256] = {0};
    assert_true(r->list.n < LEN(at));
    for (int64_t i = 1; i < r->list.n; i++)
        at[i] = at[i - 1] + r->list.items[i - 1].count;
    for (int64_t n = 0; n < r->sh.n_units; n++) {
        const struct shard_unit *u = &r->sh.units[n];
        for (int64_t i = u->first_param; i < u->first_param + u->n_params; i++) {
            const struct shard_tensor *t = &r->sh.tensors[i];
            double most = 0, scale = save ? 0 : largest(c->want->state[state] + at[i], NULL, r->list.items[i].count);
            for (int64_t j = 0, run; j < t->count; j += run) {
                int64_t g = at[i] + shard_to_global(t, &r->list.items[i], j, &run);
                for (int64_t k = 0, p; k < run; k++)
                    if ((p = place_of(r, u, t->offset + j + k, pieces)) >= 0) {
                        const double *got = (const double *)buffer + p;
                        if (save)
                            save[g + k] = *got;
                        else
                            most = fmax(most, largest(got, c->want->state[state] + g + k, 1));
                    }
            }
            if (!save)
                differs(c, state, r->list.items[i].name, most, scale);
        }
    }
}

static void compare_step(struct compare *c, int s, double loss, double norm)
{
    double l = c->want->loss[s], n = c->want->norm[s];
    if (!*c->text && !(fabs(loss - l) <= TOLERANCE * fabs(l) && fabs(norm - n) <= TOLERANCE * n))
        snprintf(c->text, 256, "step %d: loss %.17g, norm %.17g instead of %.17g, %.17g", s, loss, norm, l, n);
}

/* A step's gradients, their whole when asked for, and the update. */
static struct optim_result step_run(struct rig *r, struct comm *part, int s, double *loss, double **gradient)
{
    struct optim_result done;
    struct err err = {0};
    r->units.sums = s == 0 ? NULL : &r->optim.sums; /* the first step's gradients are read before their sums */
    *loss = gradients(r, part);
    if (s == 0)
        *gradient = whole_gradient(r, part);
    must(optim_step(&r->optim, s, &done, &err), &err);
    assert_false(done.skipped);
    units_forget(&r->units);
    for (int i = 0; i < SAMPLES; i++)
        r->data.samples[i].ordinal += SAMPLES; /* every step's draws are others */
    return done;
}

/* Three steps on `part`, compared with what is wanted; or `save`d. */
static void run_layout(struct comm *part, const struct model_case *c, const struct layout *l, bool clip, struct compare *cmp, struct outcome *save)
{
    struct model m = model_of(c);
    struct run run;
    struct rig r;
    struct err err = {0};
    double *gradient = NULL;
    run_init_for(&run, c, clip);
    rig_open_run(&r, part, &m, l, c->objective, DTYPE_F64, &run);
    for (int s = 0; s < STEPS; s++) {
        double loss;
        struct optim_result done = step_run(&r, part, s, &loss, &gradient);
        if (save)
            save->loss[s] = loss, save->norm[s] = done.grad_norm;
        else
            compare_step(cmp, s, loss, done.grad_norm);
    }
    const void *buffers[STATES] = {NULL, r.weights, r.optim.m, r.optim.v, r.optim.ema};
    for (int k = WEIGHTS; k < STATES; k++) {
        if (save)
            save->state[k] = calloc((size_t)r.list.total, sizeof(double));
        compare_own(cmp, &r, k, buffers[k], l->zero >= (k == WEIGHTS ? 3 : 1), save ? save->state[k] : NULL);
    }
    if (save)
        save->state[GRADS] = gradient;
    else
        compare_whole(cmp, &r.list, GRADS, gradient), free(gradient);
    must(comm_order_check(part, &err), &err);
    rig_close(&r);
    run_release(&run);
}

static void moved_check(int model, const struct outcome *o)
{
    struct model m = model_of(&models[model]);
    struct layout one = layout_default();
    struct rig r;
    rig_open(&r, NULL, &m, &one, models[model].objective, DTYPE_F64);
    double *before = calloc((size_t)r.list.total, sizeof *before);
    compare_own(NULL, &r, WEIGHTS, r.weights, false, before);
    for (int64_t i = 0, at = 0; i < r.list.n; at += r.list.items[i].count, i++)
        if (!(largest(before + at, o->state[WEIGHTS] + at, r.list.items[i].count) >= MOVED))
            fail_msg("%s: %s has not moved in %d steps", models[model].name, r.list.items[i].name, STEPS);
    free(before);
    rig_close(&r);
}

/* What one rank gives, made once by each process. */
static const struct outcome *wanted(int model, bool clip)
{
    static struct outcome kept[LEN(models)][2];
    struct outcome *o = &kept[model][clip];
    struct layout one = layout_default();
    struct comm *self;
    struct err err = {0};
    if (o->state[0])
        return o;
    must(comm_self_open(&self, &err), &err);
    run_layout(self, &models[model], &one, clip, NULL, o);
    comm_close(self);
    moved_check(model, o);
    return o;
}

static const char *layout_text(const struct layout *l)
{
    static char text[256];
    struct str s = STR_INIT;
    layout_format(l, &s);
    snprintf(text, sizeof text, "%s", s.p);
    str_release(&s);
    return text;
}

/* Does it differ from one rank's run? The same answer on all ranks of the part. */
static bool layout_differs(struct comm *part, int model, const struct layout *l, bool clip, char text[256])
{
    struct err err = {0};
    struct compare c = {wanted(model, clip), text};
    text[0] = 0;
    run_layout(part, &models[model], l, clip, &c, NULL);
    double bad = *text != 0;
    must(comm_max(part, &bad, 1, &err), &err);
    return bad > 0;
}

/* ---- all of a model's layouts ---- */

/* Those of w ranks, by parts of the world; the rest of it has nothing to do. */
static void layouts_of(int64_t w, int model, const struct candidates *c)
{
    struct comm *part;
    struct err err = {0};
    int parts = world->size / (int)w, mine = world->rank / (int)w, k = 0;
    must(comm_split(world, "part", mine < parts ? mine : parts, world->rank, &part, &err), &err);
    for (int64_t i = 0; i < c->n; i++) {
        struct layout l = layout_of(c->v[i]);
        if (layout_world(&l) != w)
            continue;
        if (world->rank == 0)
            print_message("# %s: %s\n", models[model].name, layout_text(&l));
        char text[256];
        if (k++ % parts == mine && layout_differs(part, model, &l, i % 2, text))
            fail_msg("%s, %s, clip %s: %s", models[model].name, layout_text(&l), i % 2 ? "on" : "off", *text ? text : "(see another rank)");
    }
    comm_close(part);
}

static void test_layouts(void **state)
{
    (void)state;
    every = getenv("LAYOUTS") && strcmp(getenv("LAYOUTS"), "all") == 0;
    for (int model = 0; model < LEN(models); model++) {
        struct model m = model_of(&models[model]);
        struct candidates all = legal(&m), some = every ? all : covering(all);
        if (model >= COVERED && !every)
            some.n = num_min_i64(some.n, 20);
        if (world->rank == 0)
            print_message("# %s: %lld of %lld layouts\n", models[model].name, (long long)some.n, (long long)all.n);
        for (int64_t w = 1; w <= world->size; w++)
            layouts_of(w, model, &some);
        if (!every)
            free(some.v);
        free(all.v);
    }
}

/* ---- what is left out is missed ---- */

static const struct {
    int fault, model;
    const char *layout;
} faults[] = {
    {FAULT_POINT_SUM_REPLICA, FULL, "dp=4,zero=1,fsdp=2"}, {FAULT_POINT_SUM_REPLICA, FULL, "cp=2,dp=2,zero=3"},
    {FAULT_POINT_SUM_TP, FULL, "tp=2"},                     {FAULT_POINT_SUM_TP, SEPARATE, "tp=2,sp=1"},
    {FAULT_POINT_SUM_KV, FUSED, "tp=2"},                     {FAULT_POINT_SUM_KV, SEPARATE, "tp=8"},
    {FAULT_POINT_SUM_PP, FULL, "pp=2"},                     {FAULT_POINT_SUM_PP, SEPARATE, "pp=2,vpp=2"},
    {FAULT_POINT_COUNT_ONCE, FULL, "tp=2"},                 {FAULT_POINT_COUNT_ONCE, SEPARATE, "pp=2"},
    {FAULT_POINT_SUM_UNIT, FULL, "dp=2,zero=3"},            {FAULT_POINT_SUM_UNIT, SEPARATE, "dp=2,zero=2"},
    {FAULT_POINT_SUM_BRANCH, FULL, "tp=2"},                 {FAULT_POINT_SUM_BRANCH, SEPARATE, "tp=2,sp=1"},
    {FAULT_POINT_SUM_INPUT, FULL, "tp=2"},                  {FAULT_POINT_SUM_INPUT, SEPARATE, "tp=2,sp=1"},
    {FAULT_POINT_SUM_MOD, FULL, "tp=2,sp=1"},               {FAULT_POINT_SUM_MOD, SEPARATE, "tp=4,sp=1"},
    {FAULT_POINT_SUM_COND, FULL, "tp=2"},                   {FAULT_POINT_SUM_SHARED, SEPARATE, "tp=2"},
    {FAULT_POINT_RING_MERGE, FULL, "cp=2"},                 {FAULT_POINT_RING_DKV, SEPARATE, "cp=3"},
    {FAULT_POINT_A2A_DKV, FUSED, "cp=2,cp_kind=a2a"},        {FAULT_POINT_A2A_DKV, SEPARATE, "cp=8,cp_kind=2d"},
    {FAULT_POINT_SUM_TP, MOVIEGEN, "tp=2,sp=1"},
    {FAULT_POINT_SEGMENTS_IN, STDIT, "cp=2"},            {FAULT_POINT_SEGMENTS_OUT, STDIT, "cp=3"},
    {FAULT_POINT_SEGMENTS_D_IN, STDIT, "tp=2,cp=4"},     {FAULT_POINT_SEGMENTS_D_OUT, STDIT, "cp=2,cp_kind=a2a"},
};

static void fault_run(int i)
{
    char text[256];
    struct comm *part;
    struct layout l;
    struct err err = {0};
    must(layout_parse(faults[i].layout, &l, &err), &err);
    bool in = world->rank < layout_world(&l);
    must(comm_split(world, "part", !in, world->rank, &part, &err), &err);
    for (int broken = 0; broken <= 1 && in && layout_world(&l) <= world->size; broken++) {
        wanted(faults[i].model, true);
        fault_active = broken ? faults[i].fault : FAULT_POINT_NONE;
        bool bad = layout_differs(part, faults[i].model, &l, true, text);
        fault_active = FAULT_POINT_NONE;
        if (bad != broken)
            fail_msg("fault %d, %s: %s", faults[i].fault, faults[i].layout, broken ? "not missed" : text);
    }
    comm_close(part);
}

static void test_faults(void **state)
{
    (void)state;
    bool met[FAULT_POINTS] = {false};
    for (int i = 0; i < LEN(faults); i++) {
        fault_run(i);
        met[faults[i].fault] = true;
    }
    for (int f = FAULT_POINT_NONE + 1; f < FAULT_POINTS; f++)
        if (!met[f])
            fail_msg("fault point %d has no case", f);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    int rc = getenv("OMPI_COMM_WORLD_SIZE") ? comm_mpi_open(&argc, &argv, &world, &err) : comm_self_open(&world, &err);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    world->conf->check = true;
    world->conf->deadline_s = 120;
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts), cmocka_unit_test(test_faults)};
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (rc)
        comm_abort(world, 1);
    comm_close(world);
    return rc;
}
