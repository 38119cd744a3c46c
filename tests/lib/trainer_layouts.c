#include "tests/lib/trainer_layouts.h"

#include "base/num.h"
#include "base/str.h"
#include "tests/lib/optim_step.h"
#include "trainer/state/fault.h"
#include "trainer/watch/scan.h"

struct layouts_conf layouts_conf = {.steps = 3, .scanned = true, .raw = true};

enum { LAYERS = 5, HEADS = 8, HEAD_DIM = 6 };
/* Sizes of every model; it has fewer heads of keys and values in the same ratio. */
static int64_t layers_most = LAYERS, heads = HEADS;
static const double TOLERANCE = 1e-11, MOVED = 1e-6;

void layouts_open(int *argc, char ***argv)
{
    struct err err = {0};
    int rc = getenv("OMPI_COMM_WORLD_SIZE") ? comm_mpi_open(argc, argv, &world, &err)
                                            : comm_self_open(&world, &err);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    world->conf->check = true;
    /* less than the test's own limit, and more than a machine needs that has eight times as much
     * to do */
    world->conf->deadline_s = 1200;
    if (world->rank != 0 && !freopen("/dev/null", "w", stdout))
        exit(1);
}

int layouts_close(int failed)
{
    if (failed)
        comm_abort(world, 1);
    comm_close(world);
    return failed;
}

/* ---- models: heads and widths that eight tp ranks divide ---- */

const struct model_case models[MODELS] = {
    [FULL] = {"full", MODEL_DIT, ADALN_FULL, 8, false, true, 0, 5, OBJECTIVE_EDM, LOSS_NORM_TOKEN},
    [STDIT] = {"stdit, 4 kv heads", MODEL_STDIT, ADALN_LORA_SINGLE, 4, false, true, 0, 4,
               OBJECTIVE_RECTIFIED_FLOW, LOSS_NORM_TOKEN},
    [MOVIEGEN] = {"moviegen, 2 kv heads, tables", MODEL_MOVIEGEN, ADALN_LORA_SEPARATE, 2, true,
                  true, 0, 5, OBJECTIVE_RECTIFIED_FLOW, LOSS_NORM_TOKEN, true},
    [SEPARATE] = {"lora_separate, 2 kv heads, gated", MODEL_DIT, ADALN_LORA_SEPARATE, 2, true, true,
                  2, 4, OBJECTIVE_RECTIFIED_FLOW, LOSS_NORM_TOKEN},
    [FUSED] = {"lora_fused, 1 kv head", MODEL_DIT, ADALN_LORA_FUSED, 1, false, true, 0, 4,
               OBJECTIVE_V, LOSS_NORM_TOKEN},
    [SINGLE] = {"lora_single, no text", MODEL_DIT, ADALN_LORA_SINGLE, 4, true, false, 2, 4,
                OBJECTIVE_EDM, LOSS_NORM_TOKEN},
    [BARE] = {"nothing but tokens", MODEL_DIT, ADALN_NONE, 8, false, false, 0, 4, OBJECTIVE_EDM,
              LOSS_NORM_TOKEN},
    [GROUPS] = {"groups", MODEL_DIT, ADALN_LORA_SINGLE, 2, true, true, 0, 4, OBJECTIVE_EDM,
                LOSS_NORM_TOKEN, true,
                "{\"groups\": [{\"match\": \"blocks.*.attn.qkv.*\", \"trainable\": false}, "
                "{\"match\": \"*.adaln.b.*\", \"trainable\": false},"
                " {\"match\": \"blocks.*.mlp.*\", \"lr_scale\": 0.1, \"decay\": false}, "
                "{\"match\": \"*.q_norm.*\", \"decay\": true},"
                " {\"match\": \"cond_norm.*\", \"trainable\": false}, {\"match\": \"*.k_norm.*\", "
                "\"trainable\": false},"
                " {\"match\": \"pos_h.*\", \"trainable\": false}, {\"match\": \"text_null\", "
                "\"trainable\": false}]}"},
    /* In one stage, and in the head, nothing is trained. */
    [FROZEN] = {"frozen layers", MODEL_DIT, ADALN_NONE, 8, false, false, 0, 4, OBJECTIVE_EDM,
                LOSS_NORM_TOKEN, false,
                "{\"groups\": [{\"match\": \"blocks.[12].*\", \"trainable\": false}, {\"match\": "
                "\"final.*\", \"trainable\": false},"
                " {\"match\": \"blocks.3.attn.*\", \"trainable\": false}]}"},
    [LORA] = {"lora", MODEL_DIT, ADALN_LORA_SEPARATE, 2, true, true, 2, 4, OBJECTIVE_EDM,
              LOSS_NORM_TOKEN, false,
              "{\"lora\": {\"rank\": 3, \"alpha\": 2, \"match\": [\"*\"]}}"},
    [LORA_FULL] = {"lora, groups", MODEL_DIT, ADALN_FULL, 1, false, true, 0, 4, OBJECTIVE_EDM,
                   LOSS_NORM_TOKEN, false,
                   "{\"lora\": {\"rank\": 2, \"alpha\": 4, \"match\": [\"blocks.[023].*.weight\", "
                   "\"blocks.*.adaln.weight\", \"final.adaln.*\"]},"
                   " \"groups\": [{\"match\": \"*.fc?.lora_a\", \"trainable\": false}, {\"match\": "
                   "\"*_norm.weight\", \"trainable\": true}]}"},
};

struct model model_of(const struct model_case *c)
{
    return (struct model){.name = "small", .family = c->family,
                          .layers = num_min_i64(c->layers, layers_most),
                          .hidden = HEAD_DIM * heads, .heads = heads,
                          .kv_heads = num_max_i64(c->kv_heads * heads / HEADS, 1), .ffn = 16,
                          .gated_mlp = c->gated,
                          .text_width = c->text ? TEXT_WIDTH : 0, .text_len = c->text ? 8 : 0,
                          .adaln = c->adaln,
                          .adaln_rank = c->adaln == ADALN_NONE || c->adaln == ADALN_FULL ? 0 : 3,
                          .patch_t = 1, .patch_h = 2, .patch_w = 2, .latent_channels = CHANNELS,
                          .cond_channels = c->cond_channels, .rope_theta = 100,
                          .pos_t = c->tables ? 3 : 0, .pos_h = c->tables ? 2 : 0,
                          .pos_w = c->tables ? 4 : 0};
}

/* ---- the sum of the ranks' gradients, by rules of this file's own ---- */

/* Returns the numbers of a device buffer of the rank's own pieces, or of everything, new. */
static double *held_get(struct rig *r, int state, const void *buffer, bool pieces)
{
    int64_t all = state == WEIGHTS ? r->sh.total : r->sh.trained;
    return bench_get(&r->b, buffer, (pieces ? all / r->sh.group : all) * 8);
}

/* Returns this rank's flat elements of a buffer, new. The buffer has the rank's own pieces of what
 * is trained, or all of it. */
static double *flat_of(struct rig *r, const void *buffer, bool pieces)
{
    struct err err = {0};
    double *held = held_get(r, GRADS, buffer, pieces);
    if (!pieces)
        return held;
    double *flat = calloc((size_t)r->sh.trained + 1, sizeof *flat);
    for (int64_t u = 0; u < r->sh.n_trained; u++) {
        const struct shard_unit *s = &r->sh.units[u];
        struct comm_op op = {.kind = COMM_ALL_GATHER, .what = "test", .dtype = DTYPE_F64,
                             .n = s->elements / r->sh.group,
                             .send = held + s->offset / r->sh.group,
                             .recv = flat + s->offset};
        must(comm_do(r->grid.shard, &op, NULL, &err), &err);
    }
    free(held);
    return flat;
}

/* Says whether element j of tensor t is a summand, or the only copy that counts. */
static bool counts_here(const struct rig *r, const struct shard_tensor *t, int64_t j)
{
    if ((t->sums & SHARD_SUM_TP) || ((t->sums & SHARD_SUM_PP) && r->sh.place.tp == 0))
        return true;
    return j < t->own_rows * t->cols || ((t->sums & SHARD_SUM_KV) && j >= t->kv_row * t->cols);
}

/* Returns the gradient of the whole model, all tensors in the list's order, new. */
static double *whole_gradient(struct rig *r, struct comm *part)
{
    struct err err = {0};
    bool pieces = r->layout.zero >= 2, mine = !pieces || r->sh.group_rank == 0;
    double *flat = flat_of(r, r->grads, pieces),
           *whole = calloc((size_t)r->list.total, sizeof *whole);
    for (int64_t i = 0, at = 0; i < r->list.n; at += r->list.items[i].count, i++) {
        const struct shard_tensor *t = &r->sh.tensors[i];
        for (int64_t j = 0, run; mine && shards_trained(&r->sh, i) && j < t->count; j += run) {
            int64_t g = shard_to_global(t, &r->list.items[i], j, &run);
            for (int64_t k = 0; k < run; k++)
                whole[at + g + k] += counts_here(r, t, j + k) ? flat[t->offset + j + k] : 0;
        }
    }
    struct comm_op op = {.kind = COMM_ALL_REDUCE, .what = "test", .dtype = DTYPE_F64, .recv = whole,
                         .n = r->list.total};
    must(comm_do(part, &op, NULL, &err), &err);
    free(flat);
    return whole;
}

/* ---- a run ---- */

const char *const state_names[STATES] = {"gradient", "weight", "m", "v", "average"};

static int micro_batch(void *ctx, int64_t micro, struct batch *out, struct err *err)
{
    struct rig *r = ctx;
    (void)err;
    out->n = layout_micro_batch_samples(&r->layout, SAMPLES, r->sh.place.dp, micro);
    out->samples = r->data.samples + layout_replica_first(&r->layout, SAMPLES, r->sh.place.dp) +
                   micro * r->layout.mbs;
    return 0;
}

double gradients(struct rig *r, struct comm *part)
{
    struct err err = {0};
    const struct layout *l = &r->layout;
    struct pipe_task w = {
        .micros = layout_micro_batches(l, SAMPLES, l->zero >= 2 ? 0 : r->sh.place.dp),
        .inv_norm = INV_NORM, .batch = micro_batch, .ctx = r};
    struct pipe_result out;
    units_begin(&r->units, w.micros, l->vpp);
    must(pipe_run(&r->pipe, &w, &err), &err);
    units_flush(&r->units);
    must(pipe_wait(&r->pipe, &out, &err), &err);
    must(units_failed(&r->units, &err), &err);
    double loss = l->tp == 1 || l->sp || r->sh.place.tp == 0 ? out.loss_sum : 0;
    must(comm_sum(part, &loss, 1, &err), &err);
    return loss * INV_NORM;
}

/* Does what gradients does, and checks that no operation reads or makes a number that is not
 * finite. Fresh memory is NaN: who reads it before it is written is seen. Without the scan results
 * alone show it, and nobody is named. */
static double gradients_scanned(struct rig *r, struct comm *part)
{
    struct scan scan;
    struct err err = {0};
    must(scan_open(&scan, r->b.ops, &err), &err);
    scan_attach(&scan, r->b.stream);
    double loss = gradients(r, part);
    scan_detach(&scan);
    if (scan.found.any && fault_active == FAULT_POINT_NONE)
        fail_msg("rank %d: %s of layer %lld %s what is not finite", part->rank,
                 meter_kind_names[scan.found.op], (long long)scan.found.layer,
                 scan.found.made ? "made" : "read");
    scan_close(&scan);
    return loss;
}

void run_init_for(struct run *run, const struct model_case *c, bool clip)
{
    run_init(run);
    run->model = model_of(c);
    run->finetune = finetune_of(c->finetune);
    run->loss_norm = c->norm;
    run->adamw.lr = 1e-3;
    /* AdamW divides a gradient by its own size, and makes the rounding of one that is nearly
     * nothing as large as any: with few elements to compare, such ones are left small. */
    if (layouts_conf.least)
        run->adamw.eps = 1e-3;
    run->adamw.clip_norm = clip ? 0.5 : 0;
    run->adamw.ema_decay = 0.9;
    run->warmup_steps = 0;
    run->lr_schedule = LR_CONSTANT;
    run->n_stages = 1;
    run->stages[0] = (struct run_stage){.gbs = SAMPLES, .steps = layouts_conf.steps};
}

double largest(const double *a, const double *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - (b ? b[i] : 0));
        if (!(d <= most))
            most = isnan(d) ? INFINITY : d;
    }
    return most;
}

static void differs(struct compare *c, int state, const char *tensor, double most, double scale)
{
    if (!*c->text && !(most <= TOLERANCE * scale))
        snprintf(c->text, 256, "%s of %s differs by %.3g of %.3g", state_names[state], tensor, most,
                 scale);
}

static void compare_whole(struct compare *c, const struct param_list *list, int state,
                          const double *got)
{
    const double *want = c->want->state[state];
    for (int64_t i = 0, at = 0; i < list->n; at += list->items[i].count, i++)
        differs(c, state, list->items[i].name, largest(got + at, want + at, list->items[i].count),
                largest(want + at, NULL, list->items[i].count));
}

/* This rank holds some of n flat elements from e on, all of unit u, in a buffer of pieces or of
 * everything: `skip` stand before these, and `n` are here, from `at` on. */
struct held_span { int64_t skip, n, at; };

static struct held_span held_of(const struct rig *r, const struct shard_unit *u, int64_t e,
                               int64_t n, bool pieces)
{
    int64_t piece = u->elements / r->sh.group, in = e - u->offset, first = r->sh.group_rank * piece;
    if (!pieces)
        return (struct held_span){0, n, e};
    int64_t from = num_max_i64(in, first), to = num_min_i64(in + n, first + piece);
    return (struct held_span){from - in, num_max_i64(to - from, 0),
                         u->offset / r->sh.group + from - first};
}

/* Compares all that this rank holds of a buffer, copies included. With `save` it puts the numbers
 * there instead, which are the whole when all of it is here. */
static void compare_own(struct compare *c, struct rig *r, int state, const void *buffer,
                        bool pieces, double *save)
{
    int64_t at[512] = {0};
    double *held = held_get(r, state, buffer, pieces);
    assert_true(r->list.n < LEN(at));
    for (int64_t i = 1; i < r->list.n; i++)
        at[i] = at[i - 1] + r->list.items[i - 1].count;
    for (int64_t i = 0; i < r->list.n; i++) {
        const struct shard_tensor *t = &r->sh.tensors[i];
        if (t->unit < 0 || (state != WEIGHTS && !shards_trained(&r->sh, i)))
            continue;
        double most = 0,
               scale = save ? 0
                            : largest(c->want->state[state] + at[i], NULL, r->list.items[i].count);
        for (int64_t j = 0, run; j < t->count; j += run) {
            int64_t g = at[i] + shard_to_global(t, &r->list.items[i], j, &run);
            struct held_span h = held_of(r, &r->sh.units[t->unit], t->offset + j, run, pieces);
            const double *got = held + h.at;
            if (save)
                memcpy(save + g + h.skip, got, (size_t)h.n * sizeof *got);
            else if (h.n > 0)
                most = fmax(most, largest(got, c->want->state[state] + g + h.skip, h.n));
        }
        if (!save)
            differs(c, state, r->list.items[i].name, most, scale);
    }
    free(held);
}

void compare_step(struct compare *c, int64_t s, double loss, const struct optim_result *done)
{
    const struct optim_result *w = &c->want->step[s];
    const struct {
        const char *what;
        double got, want;
    } all[] = {{"loss", loss, c->want->loss[s]},
               {"norm of gradients", done->grad_norm, w->grad_norm},
               {"norm of weights", done->weight_norm, w->weight_norm},
               {"norm of the update", done->update_norm, w->update_norm}};
    for (int i = 0; i < LEN(all) && !*c->text; i++)
        if (!(fabs(all[i].got - all[i].want) <= TOLERANCE * fabs(all[i].want)))
            snprintf(c->text, 256, "step %lld: %s %.17g instead of %.17g", (long long)s,
                     all[i].what, all[i].got, all[i].want);
}

struct optim_result step_run(struct rig *r, struct comm *part, int64_t s, double *loss,
                             double **gradient)
{
    struct optim_result done;
    struct err err = {0};
    /* the first step's gradients are read before their sums */
    r->units.sums = s == 0 && gradient ? NULL : &r->optim.sums;
    *loss = s == 0 && layouts_conf.scanned ? gradients_scanned(r, part) : gradients(r, part);
    if (s == 0 && gradient)
        *gradient = whole_gradient(r, part);
    must(optim_step(&r->optim, s, INFINITY, &done, &err), &err);
    assert_false(done.skipped);
    units_forget(&r->units);
    for (int i = 0; i < SAMPLES; i++)
        r->data.samples[i].ordinal += SAMPLES; /* every step's draws are others */
    return done;
}

void compare_states(struct compare *c, struct rig *r, struct outcome *save)
{
    const void *buffers[STATES] = {NULL, r->weights, r->optim.m, r->optim.v, r->optim.ema};
    for (int k = WEIGHTS; k < STATES; k++)
        compare_own(c, r, k, buffers[k], r->layout.zero >= (k == WEIGHTS ? 3 : 1),
                    save ? save->state[k] : NULL);
}

bool layout_part(const struct layout *l, struct comm **part)
{
    struct err err = {0};
    int64_t ranks = layout_world(l);
    bool in = world->rank < ranks;
    must(comm_split(world, "part", !in, world->rank, part, &err), &err);
    return in && ranks <= world->size;
}

bool part_differs(struct comm *part, const char *text)
{
    struct err err = {0};
    double bad = *text != 0;
    must(comm_max(part, &bad, 1, &err), &err);
    return bad > 0;
}

void run_layout(struct comm *part, const struct model_case *c, const struct layout *l, bool clip,
                struct compare *cmp, struct outcome *save)
{
    struct model m = model_of(c);
    struct run run;
    struct rig r;
    struct err err = {0};
    double *gradient = NULL;
    bool over = false;
    run_init_for(&run, c, clip);
    rig_open_run(&r, part, &m, l, c->objective, DTYPE_F64, &run);
    for (int64_t s = 0; s < layouts_conf.steps && !over; s++) {
        double loss;
        struct optim_result done = step_run(&r, part, s, &loss,
                                            layouts_conf.raw ? &gradient : NULL);
        if (save)
            save->loss[s] = loss, save->step[s] = done;
        else
            compare_step(cmp, s, loss, &done);
        over = cmp && cmp->soon && part_differs(part, cmp->text);
    }
    for (int k = WEIGHTS; k < STATES && save; k++)
        save->state[k] = calloc((size_t)r.list.total, sizeof(double));
    if (!over)
        compare_states(cmp, &r, save);
    if (save)
        save->state[GRADS] = gradient;
    else if (layouts_conf.raw)
        compare_whole(cmp, &r.list, GRADS, gradient), free(gradient);
    must(comm_order_check(part, &err), &err);
    rig_close(&r);
    run_release(&run);
}

static void moved_check(int model, const struct outcome *o)
{
    struct model m = model_of(&models[model]);
    struct finetune finetune = finetune_of(models[model].finetune);
    struct layout one = layout_default();
    struct rig r;
    rig_open_tuned(&r, NULL, &m, &one, models[model].objective, DTYPE_F64, NULL, &finetune);
    double *before = calloc((size_t)r.list.total, sizeof *before);
    compare_own(NULL, &r, WEIGHTS, r.weights, false, before);
    for (int64_t i = 0, at = 0; i < r.list.n; at += r.list.items[i].count, i++) {
        double moved = largest(before + at, o->state[WEIGHTS] + at, r.list.items[i].count);
        if (r.list.items[i].flags & PARAM_TRAINABLE ? !(moved >= MOVED) : moved != 0)
            fail_msg("%s: %s has moved by %g in %lld steps", models[model].name,
                     r.list.items[i].name, moved, (long long)layouts_conf.steps);
    }
    free(before);
    rig_close(&r);
}

void alone(int model, bool clip, struct outcome *out)
{
    struct layout one = layout_default();
    struct comm *self;
    struct err err = {0};
    must(comm_self_open(&self, &err), &err);
    run_layout(self, &models[model], &one, clip, NULL, out);
    comm_close(self);
}

static struct outcome *wanted_kept(int model, bool clip)
{
    static struct outcome kept[LEN(models)][2];
    return &kept[model][clip];
}

const struct outcome *wanted(int model, bool clip)
{
    struct outcome *o = wanted_kept(model, clip);
    const struct coll_ops *coll = rig_coll;
    const struct bench *bench = rig_bench;
    const char *named = getenv("REEL_DEVICE");
    char *device = named ? strdup(named) : NULL;
    if (!o->state[WEIGHTS]) {
        unsetenv("REEL_DEVICE");
        rig_coll = NULL;
        rig_bench = NULL;
        alone(model, clip, o);
        moved_check(model, o);
        rig_coll = coll;
        rig_bench = bench;
        if (device)
            setenv("REEL_DEVICE", device, true);
    }
    free(device);
    return o;
}

void outcome_send(struct comm *part, struct outcome *o, int model, int root)
{
    struct model m = model_of(&models[model]);
    struct finetune finetune = finetune_of(models[model].finetune);
    struct param_list list;
    struct err err = {0};
    must(finetune_params(&m, &finetune, &list, &err), &err);
    int64_t bytes = list.total * (int64_t)sizeof(double);
    must(comm_broadcast_bytes(part, o->loss, sizeof o->loss, root, &err), &err);
    must(comm_broadcast_bytes(part, o->step, sizeof o->step, root, &err), &err);
    for (int k = layouts_conf.raw ? GRADS : WEIGHTS; k < STATES; k++) {
        if (part->rank != root)
            o->state[k] = malloc((size_t)bytes);
        must(comm_broadcast_bytes(part, o->state[k], bytes, root, &err), &err);
    }
    params_release(&list);
}

void wanted_share(const bool used[LEN(models)])
{
    int n = 0;
    for (int i = 0; i < 2 * LEN(models); i++)
        if (used[i / 2] && n++ % world->size == world->rank)
            wanted(i / 2, i % 2);
    n = 0;
    for (int i = 0; i < 2 * LEN(models); i++)
        if (used[i / 2])
            outcome_send(world, wanted_kept(i / 2, i % 2), i / 2, n++ % world->size);
}

struct candidates covering_given(const struct model *m, int ways, int64_t *n_legal)
{
    struct candidates some = {0};
    struct err err = {0};
    if (world->rank == 0) {
        struct candidates all = legal(m);
        some = covering(all, ways);
        *n_legal = all.n;
        free(all.v);
    }
    must(comm_broadcast_bytes(world, n_legal, sizeof *n_legal, 0, &err), &err);
    must(comm_broadcast_bytes(world, &some.n, sizeof some.n, 0, &err), &err);
    if (world->rank != 0)
        some.v = malloc((size_t)some.n * sizeof *some.v);
    must(comm_broadcast_bytes(world, some.v, some.n * (int64_t)sizeof *some.v, 0, &err), &err);
    return some;
}

const char *layout_text(const struct layout *l)
{
    static char text[256];
    struct str s = STR_INIT;
    layout_format(l, &s);
    snprintf(text, sizeof text, "%s", s.p);
    str_release(&s);
    return text;
}

/* Sets the sizes of the smallest model on which a layout is legal. */
static void least_size(int model, const struct layout *l)
{
    for (heads = 2; heads <= HEADS; heads *= 2)
        for (layers_most = 2; layers_most <= 4; layers_most++) {
            struct model m = model_of(&models[model]);
            if (layout_broken_rule(l, &m, (struct seq){1, 1, 8}, SAMPLES, layout_world(l)) < 0)
                return;
        }
    fail_msg("%s: no small model is legal under %s", models[model].name, layout_text(l));
}

/* Makes what one rank gives on the smallest model for a layout, on one rank of the part for all. */
static void least_wanted(struct comm *part, int model, const struct layout *l, bool clip)
{
    struct outcome *o = wanted_kept(model, clip);
    least_size(model, l);
    for (int k = 0; k < STATES; k++)
        free(o->state[k]), o->state[k] = NULL;
    if (part->rank == 0)
        wanted(model, clip);
    outcome_send(part, o, model, 0);
}

bool layout_differs(struct comm *part, int model, const struct layout *l, bool clip,
                    char text[256])
{
    if (layouts_conf.least)
        least_wanted(part, model, l, clip);
    struct compare c = {.want = wanted(model, clip), .text = text, .soon = true};
    text[0] = 0;
    run_layout(part, &models[model], l, clip, &c, NULL);
    if (layouts_conf.least)
        heads = HEADS, layers_most = LAYERS;
    return part_differs(part, text);
}
