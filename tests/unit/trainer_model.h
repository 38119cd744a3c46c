/* What the tests of the model share: small models, a batch of mixed shapes, and a rig that holds
 * one rank's part of a model with random weights, the same whatever the layout. */
#ifndef TESTS_TRAINER_MODEL_H
#define TESTS_TRAINER_MODEL_H

#include "trainer_fixture.h"

#include "profiles/shard.h"
#include "trainer/data/objective.h"
#include "trainer/dit/dit.h"
#include "trainer/run/pipe.h"
#include "trainer/state/init.h"
#include "trainer/state/optim.h"

enum { CHANNELS = 3, TEXT_WIDTH = 5, SEED = 1 };

/* ---- samples: mixed shapes, captions of 0 to 4 tokens; with seed 1 and probability 0.5 some
 * captions drop ---- */

enum { SAMPLES = 4, MAX_CELLS = 24, BATCH_TOKENS = 24, BATCH_TEXT = 8 };
static const struct { int32_t t, h, w, text_len; double fps; } shapes[SAMPLES] = {
    {2, 4, 2, 3, 24}, {1, 2, 4, 0, 30}, {3, 4, 2, 1, 12}, {1, 4, 6, 4, 30},
};

static int32_t text_most = 4; /* captions are cut to so many tokens */

struct data {
    struct batch_sample samples[SAMPLES];
    float latent[SAMPLES][CHANNELS * MAX_CELLS], cond[SAMPLES][2 * MAX_CELLS],
        text[SAMPLES][4 * TEXT_WIDTH];
};

static inline void fill_float(float *out, int n, uint64_t id)
{
    double x[128];
    fill_normal(x, n, id);
    for (int i = 0; i < n; i++)
        out[i] = (float)x[i];
}

static const struct run_level batch_level = {.mean = -0.3, .std = 0.8, .shift = 1};

static inline void data_init(struct data *d)
{
    for (int i = 0; i < SAMPLES; i++) {
        fill_float(d->latent[i], CHANNELS * MAX_CELLS, 100 + (uint64_t)i);
        fill_float(d->cond[i], 2 * MAX_CELLS, 200 + (uint64_t)i);
        fill_float(d->text[i], 4 * TEXT_WIDTH, 300 + (uint64_t)i);
        d->samples[i] = (struct batch_sample){
            .ordinal = 40 + (uint64_t)i, .latent = d->latent[i], .cond = i == 2 ? NULL : d->cond[i],
            .t = shapes[i].t, .h = shapes[i].h, .w = shapes[i].w, .text = d->text[i],
            .text_len = shapes[i].text_len < text_most ? shapes[i].text_len : text_most,
            .fps = shapes[i].fps, .loss_weight = 1 + 0.25 * i,
            .level = objective_level_draw(SEED, 40 + (uint64_t)i, &batch_level, 1),
            .drop_text = objective_text_dropped(SEED, 40 + (uint64_t)i, 0.5)};
    }
}

/* ---- one rank's part of a model with random weights ---- */

/* The devices of ranks exchange memory by this; NULL: by pinned memory and messages of the host. */
static const struct coll_ops *rig_coll;

struct rig {
    struct bench b;
    struct model m;
    struct finetune finetune;
    struct layout layout;
    struct comm *self; /* opened here: a world of one */
    struct comm *world;
    struct param_list list;
    struct shards sh;
    struct comm_grid grid;
    struct units units;
    struct optim optim;    /* zeroed without a run */
    void *weights, *grads; /* device */
    struct dit_config config;
    struct dit *dit;
    struct pipe pipe;
    struct data data;
};

/* Returns the elements of a device buffer that zero shards from `level` on: of the weights with 3,
 * else of what is trained. */
static inline int64_t rig_elements(const struct rig *r, int level)
{
    int64_t all = level == 3 ? r->sh.total : r->sh.trained;
    return r->layout.zero >= level ? all / r->sh.group : all;
}

/* Draws tensor i of the whole model. All numbers are random and not zero, because gates and outputs
 * of zero would hide a broken attention. */
static inline double *rig_tensor_draw(const struct param *p, int64_t i)
{
    double *w = new_normal(p->count, 1000 + (uint64_t)i);
    double scale = p->nd > 1 ? 0.8 / sqrt((double)p->dim[1]) : 0.3;
    for (int64_t j = 0; j < p->count; j++)
        w[j] = scale * w[j] + (p->init == PARAM_ONE ? 1 : 0);
    return w;
}

/* Returns the same, drawn once for all the layouts of a process. It belongs to this function until
 * another model's tensor i takes its place. */
static inline const double *rig_tensor(const struct rig *r, int64_t i)
{
    static struct { struct param as; double *w; } kept[1024];
    const struct param *p = &r->list.items[i];
    assert_true(i < (int64_t)(sizeof kept / sizeof *kept));
    if (kept[i].w && kept[i].as.count == p->count && kept[i].as.init == p->init &&
        (kept[i].as.nd > 1) == (p->nd > 1) && (p->nd < 2 || kept[i].as.dim[1] == p->dim[1]))
        return kept[i].w;
    free(kept[i].w);
    kept[i].as = *p;
    return kept[i].w = rig_tensor_draw(p, i);
}

/* Returns this rank's whole flat buffer of weights, new. */
static inline double *rig_flat(const struct rig *r)
{
    double *flat = calloc((size_t)r->sh.total, sizeof *flat);
    for (int64_t i = 0; i < r->list.n; i++) {
        const struct shard_tensor *t = &r->sh.tensors[i];
        const double *whole = rig_tensor(r, i);
        for (int64_t j = 0, run; t->offset >= 0 && j < t->count; j += run) {
            int64_t g = shard_to_global(t, &r->list.items[i], j, &run);
            memcpy(flat + t->offset + j, whole + g, (size_t)run * sizeof *flat);
        }
    }
    return flat;
}

/* Puts n flat numbers at element `at` of a device buffer. */
static inline void rig_put_run(const struct rig *r, const double *flat, int64_t n, void *buffer,
                               enum dtype dtype, int64_t at)
{
    int64_t bytes = n * dtype_bytes(dtype);
    void *stored = malloc((size_t)bytes + 1);
    assert_non_null(stored);
    init_store(stored, dtype, 0, flat, n);
    bench_put(&r->b, (char *)buffer + at * dtype_bytes(dtype), stored, bytes);
    free(stored);
}

/* Puts units 0 .. n-1 of the flat numbers into a buffer of this rank's pieces, or into a buffer of
 * everything. */
static inline void rig_put(const struct rig *r, const double *flat, int64_t n, void *buffer,
                           enum dtype dtype, bool whole)
{
    for (int64_t u = 0; u < n; u++) {
        const struct shard_unit *s = &r->sh.units[u];
        int64_t piece = s->elements / r->sh.group;
        if (whole)
            rig_put_run(r, flat + s->offset, s->elements, buffer, dtype, s->offset);
        else
            rig_put_run(r, flat + s->offset + r->sh.group_rank * piece, piece, buffer, dtype,
                        s->offset / r->sh.group);
    }
}

/* Sets the weights, and the masters where there are any. */
static inline void rig_weights(struct rig *r)
{
    double *flat = rig_flat(r);
    rig_put(r, flat, r->sh.n_units, r->weights, r->b.ops->act, r->layout.zero < 3);
    if (r->optim.master)
        rig_put(r, flat, r->sh.n_trained, r->optim.master, r->b.ops->stat, r->layout.zero < 1);
    free(flat);
}

/* The optimizer is not told that the sums of this tensor are partial ones over ranks; -1: it is
 * told of all. */
static int64_t rig_unsummed = -1;

static inline int rig_optim(struct rig *r, const struct optim_conf *c, struct err *err)
{
    struct shard_tensor *t = rig_unsummed < 0 ? NULL : &r->sh.tensors[rig_unsummed];
    unsigned sums = t ? t->sums : 0;
    if (t)
        t->sums = 0;
    int rc = optim_open(&r->optim, c, err);
    if (t)
        t->sums = sums;
    return rc;
}

static inline void rig_memory(struct rig *r, struct comm *world, const struct run *run)
{
    struct err err = {0};
    int64_t weights = rig_elements(r, 3) * dtype_bytes(r->b.ops->act),
            grads = rig_elements(r, 2) * dtype_bytes(r->b.ops->stat);
    if (run) {
        struct optim_conf c = {.params = &r->list, .sh = &r->sh, .run = run, .layout = &r->layout,
                               .world = world, .grid = &r->grid, .ops = r->b.ops,
                               .stream = r->b.stream};
        if (rig_optim(r, &c, &err) < 0 || optim_zero(&r->optim, &err) < 0)
            fail_msg("%s", err.text);
        r->weights = r->optim.weights;
        r->grads = r->optim.grads;
        return;
    }
    r->b.dev->alloc(r->b.dev, "weights", weights, &r->weights, &err);
    r->b.dev->alloc(r->b.dev, "gradients", grads, &r->grads, &err);
    r->b.dev->fill(r->b.dev, r->grads, 0, grads, r->b.stream);
}

/* Opens a rig. world NULL: it is alone. run: it has an optimizer, and its weights and gradients are
 * the optimizer's. */
static inline void rig_open_tuned(struct rig *r, struct comm *world, const struct model *m,
                                  const struct layout *l, enum objective objective,
                                  enum dtype dtype, const struct run *run,
                                  const struct finetune *finetune)
{
    struct err err = {0};
    memset(r, 0, sizeof *r);
    r->b = bench_open(dtype);
    r->m = *m;
    r->layout = *l;
    data_init(&r->data);
    if (!world && comm_self_open(&r->self, &err) < 0)
        fail_msg("%s", err.text);
    r->world = world = world ? world : r->self;
    if (comm_bind(world, r->b.dev, rig_coll, &err) < 0)
        fail_msg("%s", err.text);
    if (finetune_params(&r->m, finetune, &r->list, &err) < 0 ||
        shards_build(&r->m, &r->list, l, world->rank, &r->sh, &err) < 0 ||
        comm_grid_open(world, l, m, &r->grid, &err) < 0)
        fail_msg("%s", err.text);
    rig_memory(r, world, run);
    rig_weights(r);
    if (units_open(&r->units, &r->sh, (int)l->zero, r->grid.shard, r->b.ops, r->b.stream,
                   r->weights, r->grads, &err) < 0)
        fail_msg("%s", err.text);
    r->finetune = *finetune;
    r->config = (struct dit_config){.model = &r->m, .finetune = &r->finetune, .params = &r->list,
                                    .shards = &r->sh, .layout = &r->layout, .grid = &r->grid,
                                    .objective = objective, .seed = SEED,
                                    .max_tokens = BATCH_TOKENS, .max_samples = SAMPLES,
                                    .max_text_tokens = BATCH_TEXT,
                                    .slots = pipe_slots(l, SAMPLES, r->sh.place.pp),
                                    .residual_wide = run && run->residual == RESIDUAL_F32,
                                    .most_micros = SAMPLES, .apart = !r->b.dev->host_memory};
    if (dit_new(&r->config, r->b.ops, r->b.stream, &r->units, &r->dit, &err) < 0 ||
        pipe_open(&r->pipe, r->dit, &r->layout, r->sh.place, r->grid.pp, r->b.dev, r->b.stream,
                  SAMPLES, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void rig_open_run(struct rig *r, struct comm *world, const struct model *m,
                                const struct layout *l, enum objective objective, enum dtype dtype,
                                const struct run *run)
{
    static const struct finetune plain;
    rig_open_tuned(r, world, m, l, objective, dtype, run, run ? &run->finetune : &plain);
}

/* Returns what an object with the members "groups" and "lora" says is trained; of NULL, an empty
 * one. */
static inline struct finetune finetune_of(const char *text)
{
    struct json_doc doc;
    struct finetune t = {0};
    struct err err = {0};
    if (!text)
        return t;
    if (json_parse(text, strlen(text), "finetune", &doc, &err) < 0 ||
        finetune_read(&doc, doc.root, &t, &err) < 0)
        fail_msg("%s", err.text);
    json_release(&doc);
    return t;
}

static inline void rig_open(struct rig *r, struct comm *world, const struct model *m,
                            const struct layout *l, enum objective objective, enum dtype dtype)
{
    rig_open_run(r, world, m, l, objective, dtype, NULL);
}

static inline void rig_close(struct rig *r)
{
    pipe_close(&r->pipe);
    dit_free(r->dit);
    units_close(&r->units);
    if (r->optim.weights) {
        optim_close(&r->optim);
    } else {
        r->b.dev->free(r->b.dev, r->weights);
        r->b.dev->free(r->b.dev, r->grads);
    }
    comm_grid_close(&r->grid);
    comm_bind(r->world, NULL, NULL, NULL);
    comm_close(r->self);
    shards_release(&r->sh);
    params_release(&r->list);
    bench_close(&r->b);
}

static const double INV_NORM = 1.0 / 37;

/* Computes a micro-batch with a dit of the rig, as a pipeline of one stage does. */
static inline int step_try(const struct rig *r, struct dit *d, const struct batch *b,
                           struct dit_result *out, struct err *err)
{
    int rc;
    if ((rc = dit_begin(d, 0, 0, b, INV_NORM, err)) < 0)
        return rc;
    dit_chunk_forward(d, 0);
    dit_chunk_backward(d, 0);
    if ((rc = dit_failed(d, err)) < 0)
        return rc;
    dit_results_queue(d);
    if ((rc = r->b.dev->stream_sync(r->b.dev, r->b.stream, err)) < 0)
        return rc;
    dit_results_take(d, out);
    return 0;
}

/* Computes a micro-batch of the rig. `accumulate`: it is not the first of its step. */
static inline struct dit_result step(struct rig *r, int first, int n, bool accumulate)
{
    struct err err = {0};
    struct dit_result out = {0};
    struct batch b = {r->data.samples + first, n};
    if (!accumulate)
        units_begin(&r->units, 0, 1);
    if (step_try(r, r->dit, &b, &out, &err) < 0)
        fail_msg("%s", err.text);
    units_flush(&r->units);
    if (units_failed(&r->units, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

#endif
