#include "trainer/cmd/probe_model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "trainer/data/loader.h"
#include "trainer/dit/dit.h"
#include "trainer/state/units.h"
#include "trainer/watch/meter.h"
#include "trainer/watch/meter_class.h"

const char *const probe_class_names[] = {
    "gemm_s", "attn_fwd_s", "attn_bwd_s", "elementwise_s", "samples_s", "angles_s", "patches_s",
    "loss_s", NULL};

/* A micro-batch is repeated this often, or until ENOUGH_S have passed, but at least twice. */
enum { REPEATS = 5 };
/* The update is repeated this often, always after a micro-batch: the largest one that is shorter
 * than BEFORE_S, or the smallest. */
enum { UPDATES = 9 };
static const double BEFORE_S = 0.1;
/* The update is measured over at most UPDATE_ELEMENTS, which are more than caches hold. */
enum { UPDATE_ELEMENTS = 1 << 23, UPDATE_APART = 1 << 20, UPDATE_PARTS = 5 };
static const double ENOUGH_S = 0.5;
/* A size is not begun if it is expected to take longer than VIEW_S, or if all sizes together would
 * take longer than ALL_S. */
static const double VIEW_S = 8, ALL_S = 20;
/* Every byte of the weights has this value, which makes a small number, not zero, in each
 * format. */
enum { WEIGHT_BYTE = 0x3c };

/* Holds a model of one layer and what it needs to run on this rank alone. */
struct small {
    struct compute *compute;
    struct run run;
    char data[64];
    struct layout layout;
    struct comm *self;
    struct comm_grid grid;
    struct param_list params;
    struct shards sh;
    struct units units;
    void *weights, *grads;
    struct loader *loader;
    struct dit *dit;
    struct meter meter;
};

/* ---- opening ---- */

static void run_of(struct small *s, const struct probe_model_spec *spec, struct seq seq)
{
    const struct model *m = &spec->model;
    run_init(&s->run);
    s->run.model = *m;
    s->run.model.layers = 1;
    s->run.dtype = spec->dtype;
    s->run.n_stages = 1;
    snprintf(s->data, sizeof s->data, "synthetic:%lldx%lldx%lld", (long long)(seq.t * m->patch_t),
             (long long)(seq.h * m->patch_h), (long long)(seq.w * m->patch_w));
    s->run.stages[0] = (struct run_stage){.data = s->data, .gbs = 1, .steps = 1};
}

static int weights_take(struct small *s, struct err *err)
{
    struct dev *dev = s->compute->dev;
    const struct ops *ops = s->compute->ops;
    int rc;
    if ((rc = params_build(&s->run.model, &s->params, err)) < 0)
        return rc;
    if ((rc = shards_build(&s->run.model, &s->params, &s->layout, 0, &s->sh, err)) < 0)
        return rc;
    int64_t weights = s->sh.total * dtype_bytes(ops->act),
            grads = s->sh.total * dtype_bytes(ops->stat);
    if ((rc = dev->alloc(dev, "weights", weights, &s->weights, err)) < 0)
        return rc;
    if ((rc = dev->alloc(dev, "gradients", grads, &s->grads, err)) < 0)
        return rc;
    dev->fill(dev, s->weights, WEIGHT_BYTE, weights, s->compute->stream);
    return units_open(&s->units, &s->sh, 0, s->grid.shard, s->compute->ops, s->compute->stream,
                      s->weights, s->grads, err);
}

static int dit_open(struct small *s, int64_t samples, struct err *err)
{
    int rc;
    if ((rc = loader_open(&s->run, &s->run.stages[0], NULL, samples, false, 0, 1, &s->loader,
                          err)) < 0)
        return rc;
    struct loader_bounds b = loader_bounds(s->loader);
    struct dit_config c = {
        .model = &s->run.model, .finetune = &s->run.finetune, .params = &s->params,
        .shards = &s->sh, .layout = &s->layout, .grid = &s->grid,
        .objective = s->run.objective, .seed = s->run.seed,
        .max_tokens = b.tokens, .max_samples = b.samples, .max_text_tokens = b.text_tokens,
        .max_segment = b.segment, .slots = 1, .most_micros = 1,
        .apart = !s->compute->dev->host_memory};
    return dit_new(&c, s->compute->ops, s->compute->stream, &s->units, &s->dit, err);
}

static int small_open(struct small *s, const struct probe_model_spec *spec,
                      const struct probe_view *view, struct err *err)
{
    int rc;
    s->layout = layout_default();
    run_of(s, spec, view->size.seq);
    if ((rc = comm_self_open(&s->self, err)) < 0)
        return rc;
    comm_bind(s->self, s->compute->dev, NULL, NULL);
    if ((rc = comm_grid_open(s->self, &s->layout, &s->run.model, &s->grid, err)) < 0)
        return rc;
    if ((rc = weights_take(s, err)) < 0)
        return rc;
    if ((rc = dit_open(s, view->size.samples, err)) < 0)
        return rc;
    if ((rc = meter_open(&s->meter, 0, err)) < 0)
        return rc;
    return meter_attach(&s->meter, s->compute->ops, s->compute->stream, s->self, err);
}

static void small_close(struct small *s)
{
    struct dev *dev = s->compute->dev;
    meter_close(&s->meter);
    dit_free(s->dit);
    loader_close(s->loader);
    units_close(&s->units);
    dev->free(dev, s->weights);
    dev->free(dev, s->grads);
    comm_grid_close(&s->grid);
    if (s->self)
        comm_bind(s->self, NULL, NULL, NULL);
    comm_close(s->self);
    shards_release(&s->sh);
    params_release(&s->params);
    run_release(&s->run);
}

/* ---- measuring ---- */

static int micro_batch(struct small *s, int64_t samples, struct err *err)
{
    struct dev *dev = s->compute->dev;
    struct batch batch;
    struct dit_result result;
    int rc;
    struct meter_start at = meter_begin(&s->meter);
    if ((rc = loader_read(s->loader, 0, samples, 0, &batch, err)) < 0)
        return rc;
    meter_end(&s->meter, at, METER_DATA, -1);
    units_begin(&s->units, 1, 1);
    if ((rc = dit_begin(s->dit, 0, 0, &batch, 1, err)) < 0)
        return rc;
    dit_chunk_forward(s->dit, 0);
    dit_chunk_backward(s->dit, 0);
    if ((rc = dit_failed(s->dit, err)) < 0)
        return rc;
    dit_results_queue(s->dit);
    if ((rc = dev->stream_sync(dev, s->compute->stream, err)) < 0)
        return rc;
    dit_results_take(s->dit, &result);
    units_flush(&s->units);
    return units_failed(&s->units, err);
}

/* Writes what each kind took since the last call: CPU time, or a queueing device's own time. */
static void kinds_read(struct small *s, double seconds[METER_KINDS])
{
    if (s->compute->dev->host_memory)
        meter_cpu_step(&s->meter, seconds);
    else
        meter_step(&s->meter, 1, seconds);
}

/* Returns the class of a kind; PROBE_CLASSES: it has none here. */
static enum probe_class class_of(int kind)
{
    switch (kind) {
    case METER_OP_rope: return PROBE_ANGLES;
    case METER_OP_patchify: return PROBE_PATCHES;
    case METER_OP_loss: return PROBE_LOSS;
    default: break;
    }
    switch (meter_class_of(kind)) {
    case METER_CLASS_GEMM: return PROBE_GEMM;
    case METER_CLASS_ATTN_FWD: return PROBE_ATTN_FWD;
    case METER_CLASS_ATTN_BWD: return PROBE_ATTN_BWD;
    case METER_CLASS_ELEMENTWISE: return PROBE_ELEMENTWISE;
    case METER_CLASS_INPUTS: return PROBE_SAMPLES;
    case METER_CLASS_UPDATE:
    case METER_CLASSES: break;
    }
    return PROBE_CLASSES;
}

/* Computes a micro-batch and writes what each class took. */
static int micro_measure(struct small *s, int64_t samples, double class_s[PROBE_CLASSES + 1],
                         struct err *err)
{
    double kind_s[METER_KINDS];
    int rc = micro_batch(s, samples, err);
    if (rc < 0)
        return rc;
    kinds_read(s, kind_s);
    memset(class_s, 0, (PROBE_CLASSES + 1) * sizeof *class_s);
    for (int k = 0; k < METER_KINDS; k++)
        class_s[class_of(k)] += kind_s[k];
    return 0;
}

/* Repeats a micro-batch and keeps the median time of each class. The first one does not count,
 * because it touches memory for the first time. */
static int view_repeat(struct small *s, struct probe_view *view, struct err *err)
{
    double started_s = clock_mono_s(), all[PROBE_CLASSES][REPEATS];
    int n = 0;
    for (int i = 0; i < REPEATS && (i < 2 || clock_mono_s() - started_s < ENOUGH_S); i++) {
        double class_s[PROBE_CLASSES + 1], begun_s = clock_mono_s();
        int rc = micro_measure(s, view->size.samples, class_s, err);
        if (rc < 0)
            return rc;
        if (i == 0)
            continue;
        view->wall_s = fmax(view->wall_s, clock_mono_s() - begun_s);
        for (int c = 0; c < PROBE_CLASSES; c++)
            all[c][n] = class_s[c];
        n++;
    }
    for (int c = 0; c < PROBE_CLASSES; c++)
        view->seconds[c] = num_median(all[c], n);
    return 0;
}

static int view_measure(struct compute *compute, const struct probe_model_spec *spec,
                        struct probe_view *view, struct err *err)
{
    struct small s = {.compute = compute};
    int rc;
    if ((rc = small_open(&s, spec, view, err)) < 0)
        goto out;
    rc = view_repeat(&s, view, err);
out:
    small_close(&s);
    return rc;
}

/* Sets how many elements are updated: all of the model's, or as many of a larger one's that the
 * same elements of two arrays lie as far from each other as in a trainer, modulo UPDATE_APART
 * elements. A power of two would put them all into the same sets of the caches. */
static int update_elements(const struct model *m, int64_t *out, struct err *err)
{
    struct param_list list;
    int rc = params_build(m, &list, err);
    if (rc < 0)
        return rc;
    int64_t over = num_max_i64(0, list.total - UPDATE_ELEMENTS);
    *out = list.total - num_round_up(over, UPDATE_APART);
    params_release(&list);
    return 0;
}

/* Holds what an update reads and writes beside the optimizer's state. It is in device memory. */
struct update_block {
    struct ops_step step;
    struct ops_health health;
    struct ops_change change;
    struct ops_adamw_span span;
};

/* Returns CPU time, or, where a device computes, the time that passes. */
static double clock_of(const struct dev *dev)
{
    return dev->host_memory ? clock_cpu_s() : clock_mono_s();
}

/* Holds the update's arrays, each by itself, and its update_block. It is device memory. */
struct update_memory { void *state[UPDATE_PARTS], *block; };
struct update_times { double norm_s, update_s, clear_s, move_s; };

/* Measures the norm of gradients and the update, and then clearing and copying the gradients. */
static int update_time(struct compute *compute, const struct ops_sumsq *norm,
                       const struct ops_adamw *update, struct update_times *out, struct err *err)
{
    struct dev *dev = compute->dev;
    struct ops *ops = compute->ops;
    int rc;
    double started_s = clock_of(dev);
    ops->sumsq(ops, compute->stream, norm);
    if ((rc = dev->stream_sync(dev, compute->stream, err)) < 0)
        return rc;
    double normed_s = clock_of(dev);
    ops->adamw(ops, compute->stream, update);
    if ((rc = dev->stream_sync(dev, compute->stream, err)) < 0)
        return rc;
    double updated_s = clock_of(dev);
    dev->fill(dev, update->grad.ptr, 0, update->grad.cols * dtype_bytes(ops->stat),
              compute->stream);
    if ((rc = dev->stream_sync(dev, compute->stream, err)) < 0)
        return rc;
    double cleared_s = clock_of(dev);
    ops->copy(ops, compute->stream, &(struct ops_copy){update->grad, update->m});
    if ((rc = dev->stream_sync(dev, compute->stream, err)) < 0)
        return rc;
    *out = (struct update_times){normed_s - started_s, updated_s - normed_s,
                                 cleared_s - updated_s, clock_of(dev) - cleared_s};
    return 0;
}

static double time_median(const struct update_times *times, size_t member)
{
    double v[UPDATES];
    for (int i = 0; i < UPDATES; i++)
        memcpy(&v[i], (const char *)&times[i] + member, sizeof v[i]);
    return num_median(v, UPDATES);
}

/* Measures one update as a step does it: after a micro-batch, which leaves other data in the
 * caches, and on all ranks at the same time. A rank that fails ends it on all. */
static int update_once(struct small *s, struct comm *world, int64_t samples,
                       const struct ops_sumsq *norm, const struct ops_adamw *update,
                       struct update_times *out, struct err *err)
{
    int rc = comm_agree(world, micro_batch(s, samples, err), err);
    if (rc < 0)
        return rc;
    return comm_agree(world, update_time(s->compute, norm, update, out, err), err);
}

static int update_repeat(struct small *s, struct comm *world, int64_t samples,
                         const struct ops_sumsq *norm, const struct ops_adamw *update,
                         struct probe_views *out, struct err *err)
{
    struct update_times times[UPDATES];
    int rc;
    for (int i = 0; i < UPDATES; i++)
        if ((rc = update_once(s, world, samples, norm, update, &times[i], err)) < 0)
            return rc;
    out->norm_s = time_median(times, offsetof(struct update_times, norm_s));
    out->update_s = time_median(times, offsetof(struct update_times, update_s));
    out->clear_s = time_median(times, offsetof(struct update_times, clear_s));
    out->move_s = time_median(times, offsetof(struct update_times, move_s));
    return 0;
}

/* Measures norm and update of out->update_elements consecutive elements: gradient, weight, moments,
 * and the compute weight if it has another type. */
static int update_of(struct small *s, struct comm *world, int64_t samples,
                     const struct update_memory *memory, struct probe_views *out,
                     struct err *err)
{
    struct dev *dev = s->compute->dev;
    struct ops *ops = s->compute->ops;
    int64_t n = out->update_elements;
    struct update_block *block = memory->block;
    struct tensor part[UPDATE_PARTS];
    for (int i = 0; i < UPDATE_PARTS; i++)
        part[i] = tensor_of(memory->state[i], i + 1 < UPDATE_PARTS ? ops->stat : ops->act, 1, n);
    struct update_block here = {
        .step = {.lr = 1e-3, .bias1 = 0.1, .bias2 = 0.1, .grad_scale = 1},
        .span = {.n = n, .counted = n, .lr_scale = 1}};
    dev->copy(dev, block, &here, sizeof here, DEV_H2D, s->compute->stream);
    struct ops_adamw update = {
        .step = &block->step, .spans = &block->span, .host_spans = &here.span, .n = 1,
        .grad = part[0], .master = part[1], .m = part[2], .v = part[3],
        .weight = ops->act == ops->stat ? part[1] : part[4],
        .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .change = &block->change};
    struct ops_sumsq norm = {.x = part[0], .out = &block->health};
    return update_repeat(s, world, samples, &norm, &update, out, err);
}

/* Takes the update's memory and opens the model of the micro-batch before it. Each part is taken by
 * itself, as a trainer's optimizer takes it: on CPUs the update's speed depends on the distance
 * between the same elements of the parts. */
static int update_open(struct small *s, const struct probe_model_spec *spec,
                       const struct probe_view *before, struct probe_views *views,
                       struct update_memory *out, struct err *err)
{
    struct dev *dev = s->compute->dev;
    int rc;
    if ((rc = update_elements(&spec->model, &views->update_elements, err)) < 0)
        return rc;
    int64_t bytes = views->update_elements * dtype_bytes(s->compute->ops->stat);
    for (int i = 0; i < UPDATE_PARTS; i++) {
        if ((rc = dev->alloc(dev, "probe update", bytes, &out->state[i], err)) < 0)
            return rc;
        dev->fill(dev, out->state[i], 0, bytes, s->compute->stream);
    }
    if ((rc = dev->alloc(dev, "probe step", sizeof(struct update_block), &out->block, err)) < 0)
        return rc;
    return small_open(s, spec, before, err);
}

static void update_close(struct small *s, struct update_memory *m)
{
    struct dev *dev = s->compute->dev;
    small_close(s);
    dev->free(dev, m->block);
    for (int i = 0; i < UPDATE_PARTS; i++)
        dev->free(dev, m->state[i]);
}

/* Returns the micro-batch that comes before each update. */
static const struct probe_view *view_before(const struct probe_views *v)
{
    int i = v->n - 1;
    while (i > 0 && v->view[i].wall_s > BEFORE_S)
        i--;
    return &v->view[i];
}

/* ---- which sizes ---- */

static double attention_share(const struct probe_view *v)
{
    double attention = v->seconds[PROBE_ATTN_FWD] + v->seconds[PROBE_ATTN_BWD], all = 0;
    for (int c = 0; c < PROBE_CLASSES; c++)
        all += v->seconds[c];
    return all > 0 ? attention / all : 1;
}

/* Says whether the next size would take too long, judging by the size before it and the time spent
 * so far. Twice the time of one micro-batch is expected, because the first one does not count. */
static bool too_long(const struct probe_view *last, const struct probe_view *next, double spent_s)
{
    double s = 2 * last->wall_s * probe_size_growth(&last->size, &next->size,
                                                    attention_share(last));
    return s > VIEW_S || spent_s + s > ALL_S;
}

static int views_measure(struct compute *compute, const struct probe_model_spec *spec,
                         struct probe_views *v, struct err *err)
{
    double started_s = clock_mono_s();
    struct probe_size sizes[PROBE_SIZES];
    int all, rc;
    if ((rc = probe_sizes(&spec->model, spec->seq, sizes, &all, err)) < 0)
        return rc;
    for (v->n = 0; v->n < all; v->n++) {
        struct probe_view *view = &v->view[v->n];
        view->size = sizes[v->n];
        if (v->n > 0 && too_long(view - 1, view, clock_mono_s() - started_s))
            break;
        if ((rc = view_measure(compute, spec, view, err)) < 0)
            return rc;
    }
    return 0;
}

int probe_model_views(struct compute *compute, const struct probe_model_spec *spec,
                      struct probe_views *out, struct err *err)
{
    struct probe_views v = {0};
    int rc;
    if ((rc = views_measure(compute, spec, &v, err)) < 0)
        return rc;
    *out = v;
    return 0;
}

int probe_model_update(struct compute *compute, const struct probe_model_spec *spec,
                       struct comm *world, struct probe_views *out, struct err *err)
{
    struct small s = {.compute = compute};
    struct update_memory memory = {.block = NULL};
    const struct probe_view *before = view_before(out);
    int rc;
    if ((rc = comm_agree(world, update_open(&s, spec, before, out, &memory, err), err)) < 0)
        goto out;
    rc = update_of(&s, world, before->size.samples, &memory, out, err);
out:
    update_close(&s, &memory);
    return rc;
}
