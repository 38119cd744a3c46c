#include "trainer/run/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/npy.h"
#include "base/num.h"
#include "base/philox.h"
#include "profiles/dataset.h"
#include "trainer/ckpt/ckpt_priv.h"
#include "trainer/data/loader.h"
#include "trainer/data/objective.h"
#include "trainer/dit/dit.h"
#include "trainer/ops/compute.h"

/* Holds a model on one rank, and the samples being generated. */
struct generate {
    const struct generate_conf *conf;
    struct run run;            /* shallow copy of conf->run, with the changes that sampling needs */
    struct ckpt_manifest manifest;
    struct layout layout;
    struct param_list params;
    struct shards sh;
    struct comm *self;
    struct comm_grid grid;
    struct compute compute;
    struct slab *slab;
    void *weights, *grads;
    struct units units;
    struct dit *dit;
    struct loader *loader;
    double mean, std;          /* of the dataset's latents */

    struct batch batch;
    int64_t *cells;            /* [batch + 1] where each sample's numbers begin */
    struct dit_eval_sample *eval; /* [batch] */
    double *x, *x_t, *out, *null_out, *scratch;
};

/* ---- opening ---- */

/* Fails with the value on which samples depend and which differs between the run's file and the
 * checkpoint. */
static int foreign(const struct generate *g, const char *field, const char *is, const char *was,
                   struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: %s is %s, the run of checkpoint '%s' was trained with %s: give that run's "
                   "own file with --run",
                   g->conf->run_path, field, is, g->conf->ckpt, was);
}

/* Checks that the file is that of the run that wrote the checkpoint, as far as samples depend on
 * it. */
static int run_own_check(const struct generate *g, struct err *err)
{
    const struct run *r = g->conf->run;
    const struct ckpt_manifest *m = &g->manifest;
    struct hash128 is = model_hash(&r->model), was = model_hash(&m->model);
    char is_text[32], was_text[32];
    if (memcmp(&is, &was, sizeof is) != 0)
        return err_set(err, ERR_INPUT,
                       "%s: model %s is not the one that checkpoint '%s' holds: give the file of "
                       "the run that wrote it with --run",
                       g->conf->run_path, r->model.name, g->conf->ckpt);
    if (!m->says_objective)
        return 0;
    if (r->objective != m->objective)
        return foreign(g, "objective.kind", objective_names[r->objective],
                       objective_names[m->objective], err);
    snprintf(is_text, sizeof is_text, "%lld", (long long)r->condition_frames);
    snprintf(was_text, sizeof was_text, "%lld", (long long)m->condition_frames);
    if (r->condition_frames != m->condition_frames)
        return foreign(g, "objective.condition_frames", is_text, was_text, err);
    snprintf(is_text, sizeof is_text, "%llu", (unsigned long long)r->seed);
    snprintf(was_text, sizeof was_text, "%llu", (unsigned long long)m->seed);
    return r->seed == m->seed ? 0 : foreign(g, "random.seed", is_text, was_text, err);
}

static int checkpoint_open(struct generate *g, struct err *err)
{
    int rc;
    if ((rc = ckpt_manifest_load(g->conf->ckpt, &g->manifest, err)) < 0)
        return rc;
    if ((rc = ckpt_verify(g->conf->ckpt, &g->manifest, 0, 1, err)) < 0)
        return rc;
    if (g->conf->average && !g->manifest.ema)
        return err_set(err, ERR_INPUT, "%s: holds no average (EMA): sample the weights themselves",
                       g->conf->ckpt);
    if ((rc = run_own_check(g, err)) < 0)
        return rc;
    g->run = *g->conf->run;
    g->run.model = g->manifest.model;
    g->run.dtype = g->manifest.run_dtype;
    g->run.residual = g->manifest.residual;
    g->run.text_dropout = 0;
    g->run.condition_probability = g->conf->first_frames ? 1 : 0;
    if (g->conf->first_frames && !model_cond_frames(&g->run.model))
        return err_set(err, ERR_INPUT,
                       "model %s has no channels for first frames: leave --first-frames out",
                       g->run.model.name);
    return 0;
}

static int groups_open(struct generate *g, struct err *err)
{
    int rc;
    if ((rc = comm_self_open(&g->self, err)) < 0)
        return rc;
    struct compute_conf compute = g->conf->compute;
    compute.dtype = g->run.dtype;
    if ((rc = compute_open(&g->compute, &compute, err)) < 0)
        return rc;
    comm_bind(g->self, g->compute.dev, NULL, NULL);
    return comm_grid_open(g->self, &g->layout, &g->run.model, &g->grid, err);
}

/* Loads the average of the trained weights into the gradients' memory, in the type of the files,
 * and converts it into the weights. */
static int average_load(struct generate *g, struct err *err)
{
    struct ckpt_state to = {
        .params = &g->params, .sh = &g->sh,
        .dtype = g->compute.ops->stat, .act = g->compute.ops->stat, .slab = g->slab};
    struct ops_copy copy = {
        .src = tensor_of(g->grads, g->compute.ops->stat, 1, g->sh.trained),
        .dst = tensor_of(g->weights, g->compute.ops->act, 1, g->sh.trained)};
    to.buffers[CKPT_EMA] = g->grads;
    g->compute.dev->fill(g->compute.dev, g->grads, 0,
                         g->sh.trained * dtype_bytes(g->compute.ops->stat), g->compute.stream);
    int rc;
    if ((rc = ckpt_state_load(g->conf->ckpt, &g->manifest, &to, err)) < 0)
        return rc;
    g->compute.ops->copy(g->compute.ops, g->compute.stream, &copy);
    return g->compute.dev->stream_sync(g->compute.dev, g->compute.stream, err);
}

static int weights_load(struct generate *g, struct err *err)
{
    int rc;
    if ((rc = finetune_params(&g->run.model, &g->manifest.finetune, &g->params, err)) < 0)
        return rc;
    if ((rc = shards_build(&g->run.model, &g->params, &g->layout, 0, &g->sh, err)) < 0)
        return rc;
    int64_t bytes = g->sh.total * dtype_bytes(g->compute.ops->act),
            wide_bytes = g->sh.total * dtype_bytes(g->compute.ops->stat);
    if ((rc = g->compute.dev->alloc(g->compute.dev, "weights", bytes, &g->weights, err)) < 0)
        return rc;
    /* Units need memory for gradients; the average is loaded through it. */
    if ((rc = g->compute.dev->alloc(g->compute.dev, "gradients", wide_bytes, &g->grads, err)) < 0)
        return rc;
    if ((rc = slab_new(g->compute.dev, g->compute.stream, &g->slab, err)) < 0)
        return rc;
    g->compute.dev->fill(g->compute.dev, g->weights, 0, bytes, g->compute.stream);
    struct ckpt_state to = {
        .params = &g->params, .sh = &g->sh,
        .dtype = g->compute.ops->stat, .act = g->compute.ops->act, .slab = g->slab,
        .buffers = {g->weights}};
    if ((rc = ckpt_state_load(g->conf->ckpt, &g->manifest, &to, err)) < 0)
        return rc;
    if (g->conf->average && (rc = average_load(g, err)) < 0)
        return rc;
    return units_open(&g->units, &g->sh, 0, g->grid.shard, g->compute.ops, g->compute.stream,
                      g->weights, g->grads, err);
}

static int data_open(struct generate *g, struct err *err)
{
    /* The run's generation of the data is opened: data that has grown since then has another mean
     * and deviation. */
    const char *data = g->conf->data;
    struct run_stage stage = {
        .data = data, .data_fingerprint = run_data_generation(&g->run, data), .gbs = 1};
    struct datasets set = {0};
    const struct dataset *d = NULL;
    int64_t thw[3];
    int rc;
    g->std = 1;
    if ((rc = loader_open(&g->run, &stage, &set, g->conf->batch, false, 0, 1, &g->loader,
                          err)) < 0)
        goto out;
    if ((rc = run_synthetic(g->conf->data, "--data", thw, err)) != 0) {
        rc = rc < 0 ? rc : 0;
        goto out;
    }
    if ((rc = datasets_open(&set, stage.data, stage.data_fingerprint, &d, err)) < 0)
        goto out;
    g->mean = d->latent_mean, g->std = d->latent_std;
out:
    datasets_close(d);
    datasets_drop(&set);
    return rc;
}

static int model_open(struct generate *g, struct err *err)
{
    struct loader_bounds b = loader_bounds(g->loader);
    struct dit_config c = {
        .model = &g->run.model, .finetune = &g->manifest.finetune, .params = &g->params,
        .shards = &g->sh, .layout = &g->layout, .grid = &g->grid,
        .objective = g->run.objective, .seed = g->run.seed,
        .max_tokens = b.tokens, .max_samples = b.samples, .max_text_tokens = b.text_tokens,
        .max_segment = b.segment, .slots = 1,
        .residual_wide = g->run.residual == RESIDUAL_F32};
    size_t n = (size_t)b.latent_elements;
    g->cells = calloc((size_t)b.samples + 1, sizeof *g->cells);
    g->eval = calloc((size_t)b.samples, sizeof *g->eval);
    g->x = calloc(6 * n, sizeof *g->x);
    if (!g->cells || !g->eval || !g->x)
        return err_set(err, ERR_NOMEM, "out of memory for %lld samples at a time",
                       (long long)b.samples);
    g->x_t = g->x + n, g->out = g->x_t + n, g->null_out = g->out + n;
    g->scratch = g->null_out + n;
    return dit_new(&c, g->compute.ops, g->compute.stream, &g->units, &g->dit, err);
}

void generate_close(struct generate *g)
{
    if (!g)
        return;
    dit_free(g->dit);
    units_close(&g->units);
    loader_close(g->loader);
    slab_free(g->slab);
    if (g->compute.dev) {
        g->compute.dev->free(g->compute.dev, g->weights);
        g->compute.dev->free(g->compute.dev, g->grads);
    }
    comm_grid_close(&g->grid);
    if (g->self)
        comm_bind(g->self, NULL, NULL, NULL);
    compute_close(&g->compute);
    comm_close(g->self);
    shards_release(&g->sh);
    params_release(&g->params);
    ckpt_manifest_release(&g->manifest);
    free(g->cells);
    free(g->eval);
    free(g->x);
    free(g);
}

/* ---- sampling ---- */

static int network(struct generate *g, double level, bool drop_text, double *out, struct err *err)
{
    for (int64_t i = 0; i < g->batch.n; i++) {
        const struct batch_sample *s = &g->batch.samples[i];
        g->eval[i] = (struct dit_eval_sample){
            .x_t = g->x_t + g->cells[i], .out = out + g->cells[i], .level = level,
            .drop_text = drop_text, .cond = s->cond, .t = s->t, .h = s->h, .w = s->w,
            .text = s->text, .text_len = s->text_len, .fps = s->fps};
    }
    return dit_forward(g->dit, g->eval, g->batch.n, err);
}

/* Sets the sample to zero beyond its valid part, as the loader pads data: there the network's
 * output was never trained. */
static void padding_clear(const struct batch_sample *s, int64_t channels, double *clean)
{
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < s->t; t++)
            for (int64_t h = 0; h < s->h; h++)
                for (int64_t w = 0; w < s->w; w++, clean++)
                    if (t >= s->valid_t || h >= s->valid_h || w >= s->valid_w)
                        *clean = 0;
}

/* Computes clean estimates of all current samples from x, which is divided by the data amplitude,
 * and s, the noise over data amplitude. */
static int denoise(void *ctx, const double *x, double s, double *clean, struct err *err)
{
    struct generate *g = ctx;
    struct objective_coef k;
    double level = log(s), guidance = g->conf->guidance;
    int64_t n = g->cells[g->batch.n];
    int rc;
    objective_rows[g->run.objective].coef(level, &k);
    for (int64_t j = 0; j < n; j++)
        g->x_t[j] = k.alpha * x[j];
    if ((rc = network(g, level, false, g->out, err)) < 0)
        return rc;
    if (guidance != 1 && (rc = network(g, level, true, g->null_out, err)) < 0)
        return rc;
    for (int64_t j = 0; j < n; j++) {
        double f = guidance == 1 ? g->out[j]
                                 : g->null_out[j] + guidance * (g->out[j] - g->null_out[j]);
        clean[j] = k.c_skip * g->x_t[j] + k.c_out * f;
    }
    for (int64_t i = 0; i < g->batch.n; i++)
        padding_clear(&g->batch.samples[i], g->run.model.latent_channels, clean + g->cells[i]);
    return 0;
}

static void path_format(const struct generate *g, int64_t number, char path[LIMIT_PATH_BYTES])
{
    snprintf(path, LIMIT_PATH_BYTES, "%s/%06lld.npy", g->conf->out, (long long)number);
}

/* Converts a sample, without its padding, to the dataset's units. Returns whether all its numbers
 * are finite. */
static bool sample_convert(const struct generate *g, int64_t i, float *to)
{
    const struct batch_sample *s = &g->batch.samples[i];
    double scale = g->std / objective_rows[g->run.objective].data_scale;
    const double *from = g->x + g->cells[i];
    bool finite = true;
    for (int64_t c = 0; c < g->run.model.latent_channels; c++)
        for (int64_t t = 0; t < s->valid_t; t++)
            for (int64_t h = 0; h < s->valid_h; h++)
                for (int64_t w = 0; w < s->valid_w; w++) {
                    *to = (float)(from[((c * s->t + t) * s->h + h) * s->w + w] * scale + g->mean);
                    finite = finite && isfinite(*to++);
                }
    return finite;
}

/* Writes a sample's file. Returns ERR_INPUT when a number is not finite. */
static int sample_write(const struct generate *g, int64_t i, int64_t number, struct err *err)
{
    const struct batch_sample *s = &g->batch.samples[i];
    const int64_t C = g->run.model.latent_channels,
                  shape[] = {C, s->valid_t, s->valid_h, s->valid_w};
    float *values = calloc((size_t)(C * s->valid_t * s->valid_h * s->valid_w), sizeof *values);
    struct str file = STR_INIT;
    char path[LIMIT_PATH_BYTES];
    int rc;
    if (!values)
        return err_set(err, ERR_NOMEM, "out of memory for a sample");
    if (!sample_convert(g, i, values)) {
        rc = err_set(err, ERR_INPUT,
                     "sample %lld is not finite: take an earlier checkpoint, less guidance or "
                     "closer levels",
                     (long long)number);
        goto out;
    }
    npy_format(values, shape, 4, &file);
    if ((rc = str_check(&file, err)) < 0)
        goto out;
    path_format(g, number, path);
    rc = file_publish(path, file.p, file.len, err);
out:
    str_release(&file);
    free(values);
    return rc;
}

static int64_t number_of(const struct generate *g, int64_t draw)
{
    return loader_sample(g->loader, loader_draw(g->loader, draw).pack, 0);
}

/* Draws the noise from which each current sample starts, by the sample's own number. */
static void noise_draw(struct generate *g, int64_t first, int64_t n, double level)
{
    for (int64_t i = 0; i < n; i++) {
        const struct batch_sample *s = &g->batch.samples[i];
        int64_t count = (int64_t)s->t * s->h * s->w * g->run.model.latent_channels;
        g->cells[i + 1] = g->cells[i] + count;
        philox_normal_fill(g->conf->seed, PHILOX_SAMPLE, (uint64_t)number_of(g, first + i), 0,
                           (size_t)count, g->x + g->cells[i]);
    }
    for (int64_t j = 0; j < g->cells[n]; j++)
        g->x[j] *= level;
}

static int batch_run(struct generate *g, int64_t first, int64_t n, struct err *err)
{
    const struct generate_conf *c = g->conf;
    struct sampler p = {
        .kind = c->sampler, .steps = c->steps,
        .level_max = c->level_max, .level_min = c->level_min, .rho = 7,
        .denoise = denoise, .ctx = g};
    int rc;
    if ((rc = loader_read(g->loader, first, n, 0, &g->batch, err)) < 0)
        return rc;
    noise_draw(g, first, n, sampler_level(&p, 0));
    if ((rc = sampler_run(&p, g->x, g->cells[n], g->scratch, err)) < 0)
        return rc;
    for (int64_t i = 0; i < n; i++)
        if ((rc = sample_write(g, i, number_of(g, first + i), err)) < 0)
            return rc;
    return 0;
}

/* Returns how many of `samples` this rank makes: whole batches, and perhaps a last smaller one. */
static int64_t share(const struct generate_conf *c, int64_t samples)
{
    int64_t n = 0;
    for (int64_t i = c->rank * c->batch; i < samples; i += c->ranks * c->batch)
        n += num_min_i64(c->batch, samples - i);
    return n;
}

static void progress_say(const struct generate_conf *c, int64_t made, int64_t own)
{
    char line[160];
    if (c->ranks > 1)
        snprintf(line, sizeof line, "rank %lld: %lld of its %lld samples", (long long)c->rank,
                 (long long)made, (long long)own);
    else
        snprintf(line, sizeof line, "%lld of %lld samples", (long long)made, (long long)own);
    if (c->say)
        c->say(c->say_ctx, line);
}

static int64_t samples_of(const struct generate *g)
{
    int64_t packs = loader_packs(g->loader);
    return num_min_i64(g->conf->samples, packs - g->conf->first % packs);
}

/* Refuses, unless `force` is set, to write over samples that exist already. */
static int outputs_check(const struct generate *g, struct err *err)
{
    const struct generate_conf *c = g->conf;
    int64_t n = samples_of(g);
    char path[LIMIT_PATH_BYTES];
    for (int64_t i = 0; i < n && !c->force; i++) {
        path_format(g, number_of(g, c->first + i), path);
        if (file_exists(path))
            return err_set(err, ERR_EXISTS,
                           "'%s' exists already: give another --output, or --force to write over "
                           "what is there",
                           path);
    }
    return 0;
}

static int parts_open(struct generate *g, struct err *err)
{
    int rc;
    if ((rc = checkpoint_open(g, err)) < 0)
        return rc;
    if ((rc = groups_open(g, err)) < 0)
        return rc;
    if ((rc = weights_load(g, err)) < 0)
        return rc;
    if ((rc = data_open(g, err)) < 0)
        return rc;
    if ((rc = outputs_check(g, err)) < 0)
        return rc;
    return model_open(g, err);
}

int generate_open(const struct generate_conf *conf, struct generate **out, struct err *err)
{
    struct generate *g = calloc(1, sizeof *g);
    int rc;
    if (!g)
        return err_set(err, ERR_NOMEM, "out of memory for sampling");
    g->conf = conf;
    g->layout = layout_default();
    if ((rc = parts_open(g, err)) < 0)
        generate_close(g);
    else
        *out = g;
    return rc;
}

/* Announces all attention calls to a device that plans attention, and makes it allocate memory for
 * them. Cross-attention to dropped captions is not announced: a query then attends to one key, and
 * no library computes such calls. */
static int attn_prepare(struct generate *g, int64_t samples, struct err *err)
{
    const struct generate_conf *c = g->conf;
    struct ops *ops = g->compute.ops;
    int rc;
    if (!ops->attn_plan)
        return 0;
    for (int64_t i = c->rank * c->batch; i < samples; i += c->ranks * c->batch) {
        int64_t n = num_min_i64(c->batch, samples - i);
        loader_describe(g->loader, c->first + i, n, 0, &g->batch);
        if ((rc = dit_attn_plan(g->dit, &g->batch, false, err)) < 0)
            return rc;
    }
    return ops->attn_reserve(ops, g->compute.stream, err);
}

int generate_make(struct generate *g, int64_t *made, struct err *err)
{
    const struct generate_conf *c = g->conf;
    int64_t samples = samples_of(g), own = share(c, samples), step = c->ranks * c->batch;
    char line[COMPUTE_OWN_ATTN_LINE];
    int rc;
    if ((rc = file_mkdirs(c->out, err)) < 0)
        return rc;
    snprintf(line, sizeof line,
             "the data has %lld samples from draw %lld on: after them the same come again, and "
             "are not made",
             (long long)samples, (long long)c->first);
    if (samples < c->samples && c->say)
        c->say(c->say_ctx, line);
    if ((rc = attn_prepare(g, samples, err)) < 0)
        return rc;
    for (int64_t i = c->rank * c->batch, done = 0; i < samples; i += step) {
        int64_t n = num_min_i64(c->batch, samples - i);
        if ((rc = batch_run(g, c->first + i, n, err)) < 0)
            return rc;
        progress_say(c, done += n, own);
    }
    if (c->say && compute_attn_format(&g->compute, line, sizeof line))
        c->say(c->say_ctx, line);
    if (c->say && compute_own_attn_format(&g->compute, line, sizeof line))
        c->say(c->say_ctx, line);
    *made = own;
    return 0;
}
