#include "trainer/dit.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dit_priv.h"

bool dit_has_cond(const struct dit *d) { return d->m->adaln != ADALN_NONE; }

struct tensor dit_buffer(const struct dit *d, enum dit_buffer id, int64_t copy, int64_t rows)
{
    const struct buffer *b = &d->plan.items[id];
    if (b->count == 0)
        return tensor_none();
    BUG_ON(rows > b->rows);
    char *at = (char *)d->arena + b->offset + (b->count == 1 ? 0 : copy) * buffer_stride_bytes(b);
    return tensor_of(at, b->dtype, rows, b->cols);
}

struct tensor dit_weight(const struct dit *d, int64_t param)
{
    return flat_tensor(d->c.flat, d->c.params, param, d->weights, d->o->act);
}

struct tensor dit_grad(const struct dit *d, int64_t param)
{
    return flat_tensor(d->c.flat, d->c.params, param, d->grads, d->o->stat);
}

void dit_linear(struct dit *d, struct tensor x, int64_t param, struct tensor y)
{
    struct ops_gemm g = {.a = x, .b = dit_weight(d, param), .c = y, .tb = true, .alpha = 1};
    d->o->gemm(d->o, d->stream, &g);
}

void dit_linear_add(struct dit *d, struct tensor x, int64_t param, struct tensor y)
{
    struct ops_gemm g = {.a = x, .b = dit_weight(d, param), .c = y, .tb = true, .alpha = 1, .beta = 1};
    d->o->gemm(d->o, d->stream, &g);
}

void dit_linear_dx(struct dit *d, struct tensor dy, int64_t param, struct tensor dx, double beta)
{
    struct ops_gemm g = {.a = dy, .b = dit_weight(d, param), .c = dx, .alpha = 1, .beta = beta};
    d->o->gemm(d->o, d->stream, &g);
}

void dit_linear_dw(struct dit *d, struct tensor dy, struct tensor x, int64_t param)
{
    struct ops_gemm g = {.a = dy, .b = x, .c = dit_grad(d, param), .ta = true, .alpha = 1, .beta = d->beta};
    d->o->gemm(d->o, d->stream, &g);
}

/* ---- life ---- */

static int check_config(const struct dit_config *c, struct err *err)
{
    if (c->max_tokens < 1 || c->max_samples < 1 || c->max_text_tokens < 0)
        return err_set(err, ERR_INPUT, "micro-batch bounds %lld tokens, %lld samples, %lld caption tokens: give 1, 1, 0 or more",
                       (long long)c->max_tokens, (long long)c->max_samples, (long long)c->max_text_tokens);
    if (model_head_dim(c->model) > OPS_HEAD_DIM_MAX)
        return err_set(err, ERR_INPUT, "model %s: head dimension %lld is past %d: give more heads", c->model->name,
                       (long long)model_head_dim(c->model), OPS_HEAD_DIM_MAX);
    if (3 * c->model->hidden > OPS_ROW_MAX)
        return err_set(err, ERR_INPUT, "model %s: hidden %lld is past %d: give a smaller one", c->model->name,
                       (long long)c->model->hidden, OPS_ROW_MAX / 3);
    return 0;
}

int dit_plan(const struct dit_config *c, enum dtype act, enum dtype stat, struct buffer_list *plan, struct err *err)
{
    struct buffer_spec spec = {.model = c->model, .act = act, .stat = stat, .tokens = c->max_tokens, .samples = c->max_samples,
                               .text_tokens = c->max_text_tokens, .recompute = c->recompute};
    struct dit_index none;
    int rc = check_config(c, err);
    if (rc == 0)
        rc = buffers_dit(&spec, plan, err);
    if (rc < 0)
        return rc;
    int64_t bytes = dit_index_bind(&none, NULL, c->max_tokens, c->max_samples);
    return buffer_list_add(plan, "index arrays", BUFFER_INPUT, DTYPE_F64, 1, 1, num_ceil_div(bytes, 8), err);
}

static int new_events(struct dit *d, struct err *err)
{
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = d->dev->event_new(d->dev, &d->event[i], err);
    return rc;
}

static int allocate(struct dit *d, struct err *err)
{
    int64_t n = d->c.max_samples, bytes = d->plan.items[DIT_BUFFERS].bytes;
    int rc = d->dev->alloc(d->dev, "activations of a micro-batch", d->plan.total, &d->arena, err);
    if (rc < 0)
        return rc;
    d->host_block = calloc(1, (size_t)bytes);
    d->views = calloc((size_t)n, sizeof *d->views);
    d->sample_loss = calloc((size_t)(4 * n), sizeof *d->sample_loss);
    if (!d->host_block || !d->views || !d->sample_loss)
        return err_set(err, ERR_NOMEM, "model %s: no memory for the tables of %lld samples", d->m->name, (long long)n);
    d->sample_level = d->sample_loss + n;
    d->sample_w = d->sample_level + n;
    d->sample_out = d->sample_w + n;
    d->device_block = (char *)d->arena + d->plan.items[DIT_BUFFERS].offset;
    dit_index_bind(&d->host, d->host_block, d->c.max_tokens, n);
    dit_index_bind(&d->device, d->device_block, d->c.max_tokens, n);
    if (d->grads)
        d->dev->zero(d->dev, d->grads, d->c.flat->total * dtype_bytes(d->o->stat), d->stream);
    return new_events(d, err);
}

int dit_new(const struct dit_config *c, struct ops *ops, struct dev_stream *stream, void *weights, void *grads,
            struct dit **out, struct err *err)
{
    struct dit *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "model %s: no memory", c->model->name);
    *d = (struct dit){.c = *c, .m = c->model, .o = ops, .dev = ops->dev, .stream = stream, .weights = weights, .grads = grads,
                      .head_dim = model_head_dim(c->model),
                      .mlp_act = c->model->gated_mlp ? OPS_ACT_SWIGLU : OPS_ACT_GELU_ERF};
    d->q_width = d->m->heads * d->head_dim;
    d->kv_width = d->m->kv_heads * d->head_dim;
    int rc = dit_plan(c, ops->act, ops->stat, &d->plan, err);
    if (rc == 0)
        rc = dit_params_find(c->model, c->params, &d->p, err);
    if (rc == 0)
        rc = allocate(d, err);
    if (rc < 0)
        dit_free(d);
    else
        *out = d;
    return rc;
}

void dit_free(struct dit *d)
{
    if (!d)
        return;
    for (int i = 0; i < 4; i++)
        if (d->event[i])
            d->dev->event_free(d->dev, d->event[i]);
    d->dev->free(d->dev, d->arena);
    free(d->host_block);
    free(d->views);
    free(d->sample_loss);
    free(d->p.blocks);
    free(d);
}

/* ---- one micro-batch ---- */

static struct tensor final_mod(const struct dit *d, enum dit_buffer id, int64_t chunk)
{
    if (!dit_has_cond(d))
        return tensor_none();
    return tensor_cols(dit_buffer(d, id, 0, d->now.n), chunk * d->m->hidden, d->m->hidden);
}

static void forward(struct dit *d)
{
    int64_t s = d->now.s, last = d->m->layers - 1;
    struct tensor normed = dit_buffer(d, DIT_NORMED, 0, s);
    dit_cond_fwd(d);
    dit_linear(d, dit_buffer(d, DIT_PATCHES, 0, s), d->p.patch_embed, dit_buffer(d, DIT_X, 0, s));
    for (int64_t l = 0; l <= last; l++)
        dit_block_fwd(d, l);
    dit_close_block(d, last, dit_buffer(d, DIT_X_FINAL, 0, s), normed, final_mod(d, DIT_FINAL_MOD, 0),
                    final_mod(d, DIT_FINAL_MOD, 1));
    dit_linear(d, normed, d->p.final_out, dit_buffer(d, DIT_PRED, 0, s));
}

static void loss(struct dit *d, double inv_norm)
{
    const struct model *m = d->m;
    struct ops_latents a = {.samples = d->device.samples, .n = d->now.n, .channels = m->latent_channels, .patch_t = m->patch_t,
                            .patch_h = m->patch_h, .patch_w = m->patch_w, .latent = dit_buffer(d, DIT_LATENT, 0, 1),
                            .noise = dit_buffer(d, DIT_NOISE, 0, 1), .tokens = dit_buffer(d, DIT_PRED, 0, d->now.s),
                            .dtokens = dit_buffer(d, DIT_DPRED, 0, d->now.s), .inv_norm = inv_norm, .loss = d->device.loss};
    d->o->loss(d->o, d->stream, &a);
}

/* DIT_DPRED -> DIT_DX of the last block's output. DIT_NORMED and DIT_STATS still hold the final norm's. */
static void final_bwd(struct dit *d)
{
    int64_t s = d->now.s;
    struct tensor dpred = dit_buffer(d, DIT_DPRED, 0, s), dx = dit_buffer(d, DIT_DX, 0, s);
    struct ops_adaln a = {.sample = d->device.sample, .n = d->now.n, .x_out = dit_buffer(d, DIT_X_FINAL, 0, s),
                          .stats = dit_buffer(d, DIT_STATS, 0, s), .eps = DIT_EPS, .dx = dx,
                          .dy = dit_buffer(d, DIT_DNORMED, 0, s), .shift = final_mod(d, DIT_FINAL_MOD, 0),
                          .scale = final_mod(d, DIT_FINAL_MOD, 1), .dshift = final_mod(d, DIT_DMOD, 0),
                          .dscale = final_mod(d, DIT_DMOD, 1)};
    dit_linear_dw(d, dpred, dit_buffer(d, DIT_NORMED, 0, s), d->p.final_out);
    dit_linear_dx(d, dpred, d->p.final_out, a.dy, 0);
    d->dev->zero(d->dev, dx.ptr, s * dx.cols * dtype_bytes(dx.dtype), d->stream);
    d->o->adaln_bwd(d->o, d->stream, &a);
    if (dit_has_cond(d))
        dit_mod_bwd(d, &d->p.final_unit, 1, dit_buffer(d, DIT_FINAL_LOW, 0, d->now.n),
                    tensor_cols(dit_buffer(d, DIT_DMOD, 0, d->now.n), 0, 2 * d->m->hidden));
}

static void backward(struct dit *d)
{
    dit_cond_bwd_start(d);
    final_bwd(d);
    for (int64_t l = d->m->layers - 1; l >= 0; l--) {
        if (d->c.recompute == RECOMPUTE_FULL && l < d->m->layers - 1)
            dit_block_again(d, l);
        dit_block_bwd(d, l);
    }
    dit_linear_dw(d, dit_buffer(d, DIT_DX, 0, d->now.s), dit_buffer(d, DIT_PATCHES, 0, d->now.s), d->p.patch_embed);
    dit_cond_bwd(d);
    if (d->p.text_null >= 0) /* without a null token in the batch: a sum of no rows */
        d->o->colsum(d->o, d->stream, &(struct ops_colsum){dit_buffer(d, DIT_DNULL, 0, d->now.null_rows),
                                                           dit_grad(d, d->p.text_null), d->beta});
}

static void fill_result(struct dit *d, const struct batch *b, struct dit_result *out)
{
    struct dit_result r = {.tokens = d->now.s, .elements = d->now.cells * d->m->latent_channels,
                           .sample_loss = d->sample_loss, .sample_level = d->sample_level};
    for (int64_t i = 0; i < b->n; i++) {
        const struct ops_sample *s = &d->host.samples[i];
        double squares = d->host.loss[i], cells = (double)s->t * s->h * s->w * (double)d->m->latent_channels;
        r.loss_sum += s->weight * squares;
        r.loss_x0_sum += b->samples[i].loss_weight * d->sample_out[i] * d->sample_out[i] * squares;
        d->sample_loss[i] = d->sample_w[i] * squares / cells;
    }
    r.stage_s = d->dev->event_elapsed_s(d->dev, d->event[0], d->event[1]);
    r.forward_s = d->dev->event_elapsed_s(d->dev, d->event[1], d->event[2]);
    r.backward_s = d->dev->event_elapsed_s(d->dev, d->event[2], d->event[3]);
    *out = r;
}

static int empty_step(struct dit *d, const struct batch *b, struct dit_result *out, struct err *err)
{
    if (!b->accumulate)
        d->dev->zero(d->dev, d->grads, d->c.flat->total * dtype_bytes(d->o->stat), d->stream);
    *out = (struct dit_result){.sample_loss = d->sample_loss, .sample_level = d->sample_level};
    return d->dev->stream_sync(d->dev, d->stream, err);
}

int dit_step(struct dit *d, const struct batch *b, double inv_norm, struct dit_result *out, struct err *err)
{
    struct dev *dev = d->dev;
    BUG_ON(!d->grads);
    if (b->n == 0)
        return empty_step(d, b, out, err);
    d->beta = b->accumulate ? 1 : 0;
    dev->event_record(dev, d->event[0], d->stream);
    int rc = dit_stage(d, b, err);
    if (rc < 0)
        return rc;
    dev->event_record(dev, d->event[1], d->stream);
    forward(d);
    loss(d, inv_norm);
    dev->event_record(dev, d->event[2], d->stream);
    backward(d);
    dev->event_record(dev, d->event[3], d->stream);
    dev->copy(dev, d->host.loss, d->device.loss, b->n * 8, DEV_D2H, d->stream);
    rc = dev->stream_sync(dev, d->stream, err);
    if (rc == 0)
        fill_result(d, b, out);
    return rc;
}

int dit_forward(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err)
{
    if (n == 0)
        return 0;
    int rc = dit_stage_eval(d, samples, n, err);
    if (rc < 0)
        return rc;
    forward(d);
    dit_fetch_eval(d, samples, n);
    return d->dev->stream_sync(d->dev, d->stream, err);
}
