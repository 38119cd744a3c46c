/* Compares a whole transformer block, forward and backward, in bf16 on the device with the CPU's
 * f64.
 *
 *     block MODEL T H W      a model that reel knows, of one layer; latent cells of the first sample
 *
 * A second sample has half as many rows of cells. Weights and inputs are numbers of bf16, so that
 * both sides get the same. The program compares the network's output for noised latents
 * (dit_forward), and the gradient of every tensor in a step. It allows a relative L2 distance of
 * 1e-2 for the output, and for the gradients of the block taken together. It prints one JSON object
 * with these distances, and the tensor that is furthest off. Exit status: 0, 1 when a distance is
 * larger or not finite, 2 usage, 4 no device, 5 a failure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/philox.h"
#include "trainer/dit/dit.h"
#include "trainer/ops/compute.h"
#include "trainer/state/init.h"

enum { SAMPLES = 2, SEED = 5, TEXT = 24 };
static const double allowed = 1e-2;
static struct err err;

static void must(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "failed: %s\n", err.text);
    exit(5);
}

static void *room(int64_t bytes)
{
    void *p = calloc((size_t)bytes + 1, 1);
    BUG_ON(!p);
    return p;
}

/* Fills x with normal numbers of this size around `mean`, rounded to bf16. */
static void draw(double *x, int64_t n, uint64_t id, double size, double mean)
{
    philox_normal_fill(SEED, PHILOX_TEST, id, 0, (size_t)n, x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)bf16_value(bf16_round_double(mean + size * x[i]));
}

static float *floats(int64_t n, uint64_t id)
{
    double *x = room(n * 8);
    float *out = room(n * 4);
    draw(x, n, id, 1, 0);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)x[i];
    free(x);
    return out;
}

/* ---- what both sides are given ---- */

struct given {
    struct model m;
    struct param_list params;
    struct batch_sample samples[SAMPLES];
    struct dit_eval_sample evals[SAMPLES]; /* without `out` */
    int64_t tokens, elements[SAMPLES];     /* elements: of a sample's latents */
};

static void sample_make(struct given *g, int i, int32_t t, int32_t h, int32_t w)
{
    int64_t n = g->elements[i] = g->m.latent_channels * t * h * w;
    double *x_t = room(n * 8);
    bool has_text = model_has_cross(&g->m);
    int32_t text_len = has_text ? i == 0 && g->m.text_len > TEXT ? TEXT : 1 + i : 0;
    float *text = floats(text_len * g->m.text_width, 20 + (uint64_t)i);
    float *cond = g->m.cond_channels ? floats(g->m.cond_channels * t * h * w, 30 + (uint64_t)i)
                                     : NULL;
    draw(x_t, n, 40 + (uint64_t)i, 1, 0);
    g->samples[i] = (struct batch_sample){
        .ordinal = (uint64_t)i, .latent = floats(n, 10 + (uint64_t)i), .cond = cond, .t = t, .h = h,
        .w = w, .text = text, .text_len = text_len, .fps = 24, .level = 0.25 - i, .loss_weight = 1};
    g->evals[i] = (struct dit_eval_sample){
        .x_t = x_t, .level = 0.25 - i, .cond = cond, .t = t, .h = h, .w = w, .text = text,
        .text_len = text_len, .fps = 24};
    g->tokens += (int64_t)t * h * w / model_patch_cells(&g->m);
}

static void given_make(struct given *g, const char *model, const int32_t *cells)
{
    must(model_load(model, &g->m, &err));
    g->m.layers = 1;
    must(params_build(&g->m, &g->params, &err));
    int32_t half = (int32_t)(cells[1] / 2 / g->m.patch_h * g->m.patch_h);
    sample_make(g, 0, cells[0], cells[1], cells[2]);
    sample_make(g, 1, cells[0], half > 0 ? half : cells[1], cells[2]);
}

static void given_release(struct given *g)
{
    for (int i = 0; i < SAMPLES; i++) {
        free((void *)g->samples[i].latent), free((void *)g->samples[i].cond);
        free((void *)g->samples[i].text), free((void *)g->evals[i].x_t);
    }
    params_release(&g->params);
}

/* ---- one side ---- */

struct side {
    struct compute c;
    struct comm *self;
    struct layout layout;
    struct comm_grid grid;
    struct shards sh;
    struct units units;
    struct dit *dit;
    void *weights, *grads;
    double *out[SAMPLES], *grad; /* [sh.trained] */
};

/* Draws the weights. Gates are not zero, which would hide the branches behind them. */
static void weights_put(struct side *s, const struct given *g)
{
    enum dtype act = s->c.ops->act;
    int64_t bytes = s->sh.total * dtype_bytes(act);
    void *stored = room(bytes);
    for (int64_t i = 0; i < g->params.n; i++) {
        const struct param *p = &g->params.items[i];
        double *x = room(p->count * 8);
        draw(x, p->count, 100 + (uint64_t)i, p->nd > 1 ? 0.8 / sqrt((double)p->dim[1]) : 0.3,
             p->init == PARAM_ONE ? 1 : 0);
        init_store(stored, act, s->sh.tensors[i].offset, x, p->count);
        free(x);
    }
    s->c.dev->copy(s->c.dev, s->weights, stored, bytes, DEV_H2D, s->c.stream);
    must(s->c.dev->stream_sync(s->c.dev, s->c.stream, &err));
    free(stored);
}

static void side_open(struct side *s, const struct given *g)
{
    struct dev *dev = s->c.dev;
    s->layout = layout_default();
    must(comm_self_open(&s->self, &err));
    must(comm_bind(s->self, dev, NULL, &err));
    must(shards_build(&g->m, &g->params, &s->layout, 0, &s->sh, &err));
    must(comm_grid_open(s->self, &s->layout, &g->m, &s->grid, &err));
    must(dev->alloc(dev, "weights", s->sh.total * dtype_bytes(s->c.ops->act), &s->weights, &err));
    must(dev->alloc(dev, "gradients", s->sh.trained * dtype_bytes(s->c.ops->stat), &s->grads, &err));
    dev->fill(dev, s->grads, 0, s->sh.trained * dtype_bytes(s->c.ops->stat), s->c.stream);
    weights_put(s, g);
    must(units_open(&s->units, &s->sh, 0, s->grid.shard, s->c.ops, s->c.stream, s->weights,
                    s->grads, &err));
    struct dit_config c = {.model = &g->m, .params = &g->params, .shards = &s->sh,
                           .layout = &s->layout, .grid = &s->grid, .seed = SEED,
                           .objective = OBJECTIVE_RECTIFIED_FLOW, .max_tokens = g->tokens,
                           .max_samples = SAMPLES, .max_text_tokens = SAMPLES * TEXT,
                           .apart = !dev->host_memory};
    must(dit_new(&c, s->c.ops, s->c.stream, &s->units, &s->dit, &err));
}

static void side_close(struct side *s)
{
    dit_free(s->dit);
    units_close(&s->units);
    s->c.dev->free(s->c.dev, s->weights);
    s->c.dev->free(s->c.dev, s->grads);
    comm_grid_close(&s->grid);
    comm_bind(s->self, NULL, NULL, NULL);
    comm_close(s->self);
    shards_release(&s->sh);
    compute_close(&s->c);
    for (int i = 0; i < SAMPLES; i++)
        free(s->out[i]);
    free(s->grad);
}

/* Copies the gradients to the host, as f64. */
static void grads_take(struct side *s)
{
    enum dtype stat = s->c.ops->stat;
    int64_t bytes = s->sh.trained * dtype_bytes(stat);
    void *host = room(bytes);
    s->grad = room(s->sh.trained * 8);
    s->c.dev->copy(s->c.dev, host, s->grads, bytes, DEV_D2H, s->c.stream);
    must(s->c.dev->stream_sync(s->c.dev, s->c.stream, &err));
    for (int64_t i = 0; i < s->sh.trained; i++)
        s->grad[i] = stat == DTYPE_F64 ? ((double *)host)[i] : (double)((float *)host)[i];
    free(host);
}

static void side_compute(struct side *s, const struct given *g)
{
    struct dit_eval_sample evals[SAMPLES];
    struct batch b = {g->samples, SAMPLES};
    memcpy(evals, g->evals, sizeof evals);
    for (int i = 0; i < SAMPLES; i++)
        evals[i].out = s->out[i] = room(g->elements[i] * 8);
    must(dit_forward(s->dit, evals, SAMPLES, &err));
    units_begin(&s->units, 0, 1);
    must(dit_begin(s->dit, 0, 0, &b, 1.0 / (double)g->elements[0], &err));
    dit_chunk_forward(s->dit, 0);
    dit_chunk_backward(s->dit, 0);
    must(dit_failed(s->dit, &err));
    units_flush(&s->units);
    must(units_failed(&s->units, &err));
    grads_take(s);
}

static void side_run(struct side *s, const struct given *g, enum compute_device device,
                     enum dtype dtype)
{
    struct compute_conf conf = {.device = device, .dtype = dtype, .poison = true};
    if (compute_open(&s->c, &conf, &err) < 0) {
        fprintf(stderr, "no device: %s\n", err.text);
        exit(4);
    }
    side_open(s, g);
    side_compute(s, g);
}

/* ---- the comparison ---- */

/* Holds sums of squares for a relative distance: of the differences, and of the right numbers. */
struct distance { double apart, size; };

static void distance_add(struct distance *d, const double *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d->apart += (got[i] - want[i]) * (got[i] - want[i]), d->size += want[i] * want[i];
}

static double l2(struct distance d) { return sqrt(d.apart / d.size); }

/* Prints a distance, and returns 1 if it is larger than allowed. */
static int told(const char *name, double x, bool is_first)
{
    printf("%s\"%s\": ", is_first ? "{" : ", ", name);
    printf(isfinite(x) ? "%.3g" : "null", x);
    if (x <= allowed)
        return 0;
    fprintf(stderr, "block: %s is %.3g off in relative L2, of which %.3g is allowed\n", name, x,
            allowed);
    return 1;
}

static int compare(const struct given *g, const struct side *got, const struct side *want)
{
    struct distance out = {0}, block = {0};
    double worst = 0;
    const char *of = "none";
    for (int i = 0; i < SAMPLES; i++)
        distance_add(&out, got->out[i], want->out[i], g->elements[i]);
    for (int64_t i = 0; i < g->params.n; i++) {
        struct distance one = {0};
        int64_t at = want->sh.tensors[i].offset;
        distance_add(&one, got->grad + at, want->grad + at, g->params.items[i].count);
        if (g->params.items[i].layer >= 0)
            block.apart += one.apart, block.size += one.size;
        if (one.size > 0 && !(l2(one) <= worst))
            worst = l2(one), of = g->params.items[i].name;
    }
    int wrong = told("out", l2(out), true) | told("gradients", l2(block), false);
    printf(", \"worst\": \"%s\", \"its\": ", of);
    printf(isfinite(worst) ? "%.3g}\n" : "null}\n", worst);
    return wrong;
}

int main(int argc, char **argv)
{
    struct given g = {0};
    struct side got = {0}, want = {0};
    int32_t cells[3] = {0};
    bool good = argc == 5;
    for (int i = 0; good && i < 3; i++)
        good = (cells[i] = (int32_t)strtol(argv[2 + i], NULL, 10)) > 0;
    if (!good) {
        fputs("usage: block MODEL T H W\n", stderr);
        return 2;
    }
    given_make(&g, argv[1], cells);
    side_run(&got, &g, COMPUTE_CUDA, DTYPE_BF16);
    side_run(&want, &g, COMPUTE_CPU, DTYPE_F64);
    int wrong = compare(&g, &got, &want);
    side_close(&got), side_close(&want);
    given_release(&g);
    return wrong;
}
