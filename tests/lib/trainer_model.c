#include "tests/lib/trainer_model.h"

int32_t text_most = 4;

void fill_float(float *out, int n, uint64_t id)
{
    double x[128];
    fill_normal(x, n, id);
    for (int i = 0; i < n; i++)
        out[i] = (float)x[i];
}

void data_init(struct data *d)
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

const struct coll_ops *rig_coll;
const struct bench *rig_bench;

int64_t rig_elements(const struct rig *r, int level)
{
    int64_t all = level == 3 ? r->sh.total : r->sh.trained;
    return r->layout.zero >= level ? all / r->sh.group : all;
}

double *rig_tensor_draw(const struct param *p, int64_t i)
{
    double *w = new_normal(p->count, 1000 + (uint64_t)i);
    double scale = p->nd > 1 ? 0.8 / sqrt((double)p->dim[1]) : 0.3;
    for (int64_t j = 0; j < p->count; j++)
        w[j] = scale * w[j] + (p->init == PARAM_ONE ? 1 : 0);
    return w;
}

const double *rig_tensor(const struct rig *r, int64_t i)
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

double *rig_flat(const struct rig *r)
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

void rig_put_run(const struct rig *r, const double *flat, int64_t n, void *buffer,
                 enum dtype dtype, int64_t at)
{
    int64_t bytes = n * dtype_bytes(dtype);
    void *stored = malloc((size_t)bytes + 1);
    assert_non_null(stored);
    init_store(stored, dtype, 0, flat, n);
    bench_put(&r->b, (char *)buffer + at * dtype_bytes(dtype), stored, bytes);
    free(stored);
}

void rig_put(const struct rig *r, const double *flat, int64_t n, void *buffer,
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

void rig_weights(struct rig *r)
{
    double *flat = rig_flat(r);
    rig_put(r, flat, r->sh.n_units, r->weights, r->b.ops->act, r->layout.zero < 3);
    if (r->optim.master)
        rig_put(r, flat, r->sh.n_trained, r->optim.master, r->b.ops->stat, r->layout.zero < 1);
    free(flat);
}

int64_t rig_unsummed = -1;

int rig_optim(struct rig *r, const struct optim_conf *c, struct err *err)
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

void rig_memory(struct rig *r, struct comm *world, const struct run *run)
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

void rig_open_tuned(struct rig *r, struct comm *world, const struct model *m,
                    const struct layout *l, enum objective objective,
                    enum dtype dtype, const struct run *run,
                    const struct finetune *finetune)
{
    struct err err = {0};
    memset(r, 0, sizeof *r);
    r->is_lent = rig_bench != NULL;
    r->b = rig_bench ? *rig_bench : bench_open(dtype);
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

void rig_open_run(struct rig *r, struct comm *world, const struct model *m,
                  const struct layout *l, enum objective objective, enum dtype dtype,
                  const struct run *run)
{
    static const struct finetune plain;
    rig_open_tuned(r, world, m, l, objective, dtype, run, run ? &run->finetune : &plain);
}

struct finetune finetune_of(const char *text)
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

void rig_open(struct rig *r, struct comm *world, const struct model *m,
              const struct layout *l, enum objective objective, enum dtype dtype)
{
    rig_open_run(r, world, m, l, objective, dtype, NULL);
}

void rig_close(struct rig *r)
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
    if (r->is_lent)
        bench_is_idle(&r->b);
    else
        bench_close(&r->b);
}

int step_try(const struct rig *r, struct dit *d, const struct batch *b,
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

struct dit_result step(struct rig *r, int first, int n, bool accumulate)
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
