#include "trainer/dit/dit.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dit/dit_priv.h"
#include "trainer/watch/meter.h"

bool dit_has_cond(const struct dit *d) { return d->m->adaln != ADALN_NONE; }

bool dit_recomputed(const struct dit *d, int64_t layer)
{
    const struct layout *l = d->c.layout;
    int64_t most = l->recompute_layers ? l->recompute_layers : d->m->layers;
    return l->recompute == RECOMPUTE_SELECTIVE ||
           (l->recompute == RECOMPUTE_FULL && layer - d->slot->first < most);
}

/* Returns the index of a layer's copy in a buffer. Layers that share a copy get the index of the
 * shared copy; every other layer has a copy of its own. */
static int64_t copy_of(const struct dit *d, const struct buffer *b, int64_t layer, int64_t which)
{
    if (b->each == 0 || (b->per && b->shared && dit_recomputed(d, layer)))
        return b->count - b->shared + which;
    /* the first layers use the shared copies */
    int64_t skipped = b->per && b->shared ? d->c.layout->recompute_layers : 0;
    int64_t own = b->per ? (layer - d->slot->first - skipped) * b->per : 0;
    return d->slot->number * b->each + own + which;
}

struct tensor dit_copy(const struct dit *d, enum dit_buffer id, int64_t layer, int64_t which,
                       int64_t rows)
{
    const struct buffer *b = &d->memory.items[id];
    if (b->count == 0)
        return tensor_none();
    BUG_ON(rows > b->rows || which >= num_max_i64(1, b->per));
    char *at = (char *)d->arena + b->offset + copy_of(d, b, layer, which) * buffer_stride_bytes(b);
    return tensor_of(at, b->dtype, rows, b->cols);
}

struct tensor dit_buffer(const struct dit *d, enum dit_buffer id, int64_t layer, int64_t rows)
{
    return dit_copy(d, id, layer, 0, rows);
}

/* ---- weights and gradients ---- */

static struct tensor param_tensor(const struct dit *d, int64_t param, void *unit, enum dtype dtype)
{
    const struct shard_tensor *t = &d->c.shards->tensors[param];
    int64_t at = t->offset - shards_unit_of(d->c.shards, param)->offset;
    return tensor_of((char *)unit + at * dtype_bytes(dtype), dtype, t->rows, t->cols);
}

struct tensor dit_weight(const struct dit *d, int64_t param)
{
    return param_tensor(d, param, units_weights(d->units, d->c.shards->tensors[param].unit),
                        d->o->act);
}

bool dit_trained(const struct dit *d, int64_t param) { return shards_trained(d->c.shards, param); }

struct tensor dit_grad(const struct dit *d, int64_t param)
{
    if (!dit_trained(d, param))
        return tensor_none();
    return param_tensor(d, param, units_grads(d->units, d->c.shards->tensors[param].unit),
                        d->o->stat);
}

double dit_beta(const struct dit *d, int64_t param)
{
    return dit_trained(d, param) ? units_beta(d->units, d->c.shards->tensors[param].unit) : 0;
}

/* Sets the layer that is computed now, and makes its weights available. A model without
 * conditioning has no unit for PARAM_LAYER_COND. */
void dit_use(struct dit *d, int64_t layer, int64_t next)
{
    int64_t unit = shards_unit(d->c.shards, layer);
    d->o->layer = layer;
    if (unit >= 0)
        units_use(d->units, unit, next == DIT_NO_LAYER ? -1 : shards_unit(d->c.shards, next));
}

/* Says that the gradients of a layer are complete for this micro-batch. */
static void layer_done(struct dit *d, int64_t layer)
{
    int64_t unit = shards_unit(d->c.shards, layer);
    if (unit >= 0)
        units_done(d->units, unit);
}

void dit_linear(struct dit *d, struct tensor x, int64_t param, struct tensor y)
{
    struct ops_gemm g = {.a = x, .b = dit_weight(d, param), .c = y, .tb = true, .alpha = 1};
    d->o->gemm(d->o, d->stream, &g);
    dit_lora_add(d, x, param, y);
}

void dit_linear_add(struct dit *d, struct tensor x, int64_t param, struct tensor y)
{
    struct ops_gemm g = {
        .a = x, .b = dit_weight(d, param), .c = y,
        .tb = true, .alpha = 1, .beta = 1
    };
    d->o->gemm(d->o, d->stream, &g);
    dit_lora_add(d, x, param, y);
}

void dit_linear_dx(struct dit *d, struct tensor dy, int64_t param, struct tensor dx, double beta)
{
    struct ops_gemm g = {.a = dy, .b = dit_weight(d, param), .c = dx, .alpha = 1, .beta = beta};
    d->o->gemm(d->o, d->stream, &g);
    dit_lora_dx(d, dy, param, dx);
}

void dit_linear_dw(struct dit *d, struct tensor dy, struct tensor x, int64_t param)
{
    struct ops_gemm g = {
        .a = dy, .b = x, .c = dit_grad(d, param),
        .ta = true, .alpha = 1, .beta = dit_beta(d, param)
    };
    if (g.c.ptr)
        d->o->gemm(d->o, d->stream, &g);
    dit_lora_dw(d, dy, x, param);
}

/* ---- opening and closing ---- */

static int check_config(const struct dit_config *c, struct err *err)
{
    if (c->max_tokens < 1 || c->max_samples < 1 || c->max_text_tokens < 0)
        return err_set(err, ERR_INPUT,
                       "micro-batch bounds %lld tokens, %lld samples, %lld caption tokens: give "
                       "1, 1, 0 or more",
                       (long long)c->max_tokens, (long long)c->max_samples,
                       (long long)c->max_text_tokens);
    if (model_head_dim(c->model) > OPS_HEAD_DIM_MAX)
        return err_set(err, ERR_INPUT, "model %s: head dimension %lld is past %d: give more heads",
                       c->model->name, (long long)model_head_dim(c->model), OPS_HEAD_DIM_MAX);
    if (3 * c->model->hidden > OPS_ROW_MAX)
        return err_set(err, ERR_INPUT, "model %s: hidden %lld is past %d: give a smaller one",
                       c->model->name, (long long)c->model->hidden, OPS_ROW_MAX / 3);
    if (3 * (c->model->latent_channels + c->model->cond_channels) * model_patch_cells(c->model) >
        OPS_ROW_MAX)
        return err_set(err, ERR_INPUT,
                       "model %s: a token has more than %d numbers: give a smaller patch or "
                       "fewer channels",
                       c->model->name, OPS_ROW_MAX / 3);
    return 0;
}

struct buffer_spec dit_spec(const struct dit_config *c, enum dtype act, enum dtype stat)
{
    return (struct buffer_spec){
        .model = c->model, .act = act, .stat = stat,
        .tokens = c->max_tokens, .samples = c->max_samples, .text_tokens = c->max_text_tokens,
        .layout = c->layout, .slots = c->slots, .segment_tokens = c->max_segment,
        .lora_rank = c->finetune ? c->finetune->lora.rank : 0,
        .residual_wide = c->residual_wide
    };
}

static struct dit_index_most index_most(const struct dit_config *c)
{
    struct buffer_spec spec = dit_spec(c, DTYPE_F64, DTYPE_F64);
    return (struct dit_index_most){
        .tokens = buffers_span_tokens(&spec, c->layout->cp), .samples = c->max_samples,
        .ring = c->layout->cp / layout_a2a_group(c->layout, c->model),
        .dealt = buffers_dealt_tokens(&spec), .cp = c->layout->cp
    };
}

int64_t dit_tp_sum_bytes(const struct dit_config *c, enum dtype act, enum dtype stat)
{
    struct buffer_spec spec = dit_spec(c, act, stat);
    return buffers_tp_sum_bytes(&spec);
}

/* Numbers the items of the list that follow the model's own. */
enum { ITEM_INDEX = DIT_BUFFERS, ITEM_LOSSES, ITEM_HOST_INDEX, ITEM_HOST_LOSSES, ITEM_STAGING };

/* Lists the memory on the host, all of which is pinned. */
static int host_memory(const struct dit_config *c, const struct buffer_spec *spec,
                       struct buffer_list *memory, struct err *err)
{
    const struct buffer *index = &memory->items[ITEM_INDEX], *loss = &memory->items[ITEM_LOSSES];
    int64_t each = (int64_t)(sizeof(double) + sizeof(struct dit_factors)),
            staged = buffer_stride_bytes(index) + buffers_staged_bytes(spec);
    int rc;
    if ((rc = buffer_list_add_host(memory, "index arrays of the host", BUFFER_INPUT, BUFFER_PINNED,
                                   1, index->bytes, err)) < 0)
        return rc;
    if ((rc = buffer_list_add_host(memory, "losses on the host", BUFFER_INPUT, BUFFER_PINNED, 1,
                                   loss->cols * each, err)) < 0)
        return rc;
    return buffer_list_add_host(memory, "staged micro-batches", BUFFER_INPUT, BUFFER_PINNED,
                                c->apart ? 2 : 0, staged, err);
}

int dit_memory(const struct dit_config *c, enum dtype act, enum dtype stat,
               struct buffer_list *memory, struct err *err)
{
    struct buffer_spec spec = dit_spec(c, act, stat);
    struct dit_index none;
    int rc;
    if ((rc = check_config(c, err)) < 0)
        return rc;
    if ((rc = buffers_dit(&spec, memory, err)) < 0)
        return rc;
    struct dit_index_most most = index_most(c);
    int64_t bytes = dit_index_bind(&none, NULL, &most), slots = num_max_i64(1, c->slots),
            losses = num_max_i64(1, c->most_micros) * c->max_samples;
    if ((rc = buffer_list_add(memory, "index arrays", BUFFER_INPUT, DTYPE_F64, slots, 1,
                              num_ceil_div(bytes, 8), err)) < 0)
        return rc;
    if ((rc = buffer_list_add(memory, "losses of a step", BUFFER_INPUT, DTYPE_F64, 1, 1, losses,
                              err)) < 0)
        return rc;
    return host_memory(c, &spec, memory, err);
}

int64_t dit_staging_bytes(const struct dit *d) { return d->memory.items[ITEM_STAGING].cols; }

static int pinned_take(struct dit *d, int item, void **out, struct err *err)
{
    const struct buffer *b = &d->memory.items[item];
    return d->dev->alloc_host(d->dev, b->name, b->cols, out, err);
}

static int staging_open(struct dit *d, struct err *err)
{
    int rc;
    for (int64_t i = 0; i < d->memory.items[ITEM_STAGING].count; i++) {
        struct dit_staging *s = &d->staging[i];
        if ((rc = pinned_take(d, ITEM_STAGING, (void **)&s->ptr, err)) < 0)
            return rc;
        if ((rc = d->dev->event_new(d->dev, &s->copied, err)) < 0)
            return rc;
    }
    return 0;
}

static int losses_open(struct dit *d, struct err *err)
{
    struct dit_losses *l = &d->losses;
    int64_t n = d->memory.items[ITEM_LOSSES].cols;
    int rc;
    if ((rc = pinned_take(d, ITEM_HOST_LOSSES, (void **)&l->host, err)) < 0)
        return rc;
    l->factors = (struct dit_factors *)(void *)(l->host + n);
    l->device = (double *)(void *)((char *)d->arena + d->memory.items[ITEM_LOSSES].offset);
    return 0;
}

/* Allocates the host's tables, which last as long as the dit. */
static int tables_make(struct dit *d, struct err *err)
{
    int64_t n = d->c.max_samples;
    d->slots = calloc((size_t)d->c.slots, sizeof *d->slots);
    d->views = calloc((size_t)n, sizeof *d->views);
    d->losses.samples = calloc((size_t)d->c.most_micros, sizeof *d->losses.samples);
    d->part_n = calloc((size_t)(4 * d->c.layout->tp + 4 * d->c.layout->cp), sizeof *d->part_n);
    if (!d->slots || !d->views || !d->losses.samples || !d->part_n)
        return err_set(err, ERR_NOMEM, "model %s: no memory for the tables of %lld samples",
                       d->m->name, (long long)n);
    d->part_at = d->part_n + d->c.layout->tp;
    d->slice_n = d->part_at + d->c.layout->tp;
    d->slice_at = d->slice_n + d->c.layout->tp;
    d->cp_counts = d->slice_at + d->c.layout->tp;
    return 0;
}

/* Gives slot i its parts of the blocks of index arrays, on the host and on the device. */
static void slot_open(struct dit *d, int64_t i)
{
    const struct buffer *b = &d->memory.items[DIT_BUFFERS];
    struct dit_index_most most = index_most(&d->c);
    struct dit_slot *s = &d->slots[i];
    s->number = i;
    s->host_block = (char *)d->host_block + i * buffer_stride_bytes(b);
    s->device_block = (char *)d->arena + b->offset + i * buffer_stride_bytes(b);
    dit_index_bind(&s->host, s->host_block, &most);
    dit_index_bind(&s->device, s->device_block, &most);
}

/* Allocates the activations, the losses and the staging memory. */
static int arena_take(struct dit *d, struct err *err)
{
    int rc;
    if ((rc = d->dev->alloc(d->dev, "activations of a micro-batch",
                            d->memory.sides[BUFFER_ON_DEVICE], &d->arena, err)) < 0)
        return rc;
    if ((rc = losses_open(d, err)) < 0)
        return rc;
    return staging_open(d, err);
}

/* Stands for the arena of a dit without device memory; nothing reads it. */
static void *const NO_ARENA = (void *)(uintptr_t)DEV_ALIGN_BYTES;

static int allocate(struct dit *d, struct err *err)
{
    int rc = 0;
    if (d->c.bare)
        d->arena = NO_ARENA;
    else
        rc = arena_take(d, err);
    if (rc < 0 || (rc = pinned_take(d, ITEM_HOST_INDEX, &d->host_block, err)) < 0)
        return rc;
    memset(d->host_block, 0, (size_t)d->memory.items[ITEM_HOST_INDEX].cols);
    if ((rc = tables_make(d, err)) < 0)
        return rc;
    for (int64_t i = 0; i < d->c.slots; i++)
        slot_open(d, i);
    d->slot = d->slots;
    return 0;
}

static void subs_set(struct dit *d)
{
    int64_t selves = model_self_attentions(d->m);
    for (int64_t i = 0; i < selves; i++)
        d->subs[d->n_subs++] =
            (struct dit_sub){DIT_SELF, i, (enum dit_reach)(DIT_FULL + 1 - selves + i)};
    if (model_has_cross(d->m))
        d->subs[d->n_subs++] = (struct dit_sub){.kind = DIT_CROSS};
    d->subs[d->n_subs++] = (struct dit_sub){.kind = DIT_MLP};
}

/* Computes which part of the model is this rank's: heads, widths, and its place in the ring. */
static void cut(struct dit *d)
{
    const struct layout *l = d->c.layout;
    int64_t a = layout_a2a_group(l, d->m);
    d->place = d->c.shards->place;
    d->head_dim = model_head_dim(d->m);
    d->heads = d->m->heads / l->tp;
    d->kv_heads = num_max_i64(1, d->m->kv_heads / l->tp);
    d->q_width = d->heads * d->head_dim;
    d->kv_width = d->kv_heads * d->head_dim;
    d->mlp_act = d->m->gated_mlp ? OPS_ACT_SWIGLU : OPS_ACT_GELU_ERF;
    d->ring = l->cp / a;
    d->ring_rank = d->place.cp / a;
}

int dit_new(const struct dit_config *c, struct ops *ops, struct dev_stream *stream,
            struct units *units, struct dit **out, struct err *err)
{
    struct dit *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "model %s: no memory", c->model->name);
    *d = (struct dit){
        .c = *c, .m = c->model,
        .o = ops, .dev = ops->dev, .stream = stream, .units = units,
        .kept = -1
    };
    d->c.slots = num_max_i64(1, c->slots);
    d->c.most_micros = num_max_i64(1, c->most_micros);
    d->lora_scale = c->finetune ? finetune_lora_scale(c->finetune) : 0;
    cut(d);
    subs_set(d);
    int rc;
    if ((rc = dit_memory(c, ops->act, ops->stat, &d->memory, err)) < 0)
        goto out;
    if ((rc = dit_params_find(c->model, c->params, &d->p, err)) < 0)
        goto out;
    if ((rc = allocate(d, err)) < 0)
        goto out;
    *out = d;
    d = NULL; /* the caller owns it now */
out:
    dit_free(d);
    return rc;
}

void dit_free(struct dit *d)
{
    if (!d)
        return;
    d->dev->free(d->dev, d->c.bare ? NULL : d->arena);
    d->dev->free_host(d->dev, d->host_block);
    d->dev->free_host(d->dev, d->losses.host);
    for (int i = 0; i < 2; i++) {
        d->dev->free_host(d->dev, d->staging[i].ptr);
        if (d->staging[i].copied)
            d->dev->event_free(d->dev, d->staging[i].copied);
    }
    free(d->slots);
    free(d->views);
    free(d->losses.samples);
    free(d->part_n);
    free(d->p.blocks);
    free(d);
}

/* ---- one chunk of a micro-batch ---- */

static void slot_take(struct dit *d, int64_t slot)
{
    d->slot = &d->slots[slot];
    dit_parts(d);
}

static bool is_first(const struct dit *d) { return d->slot->first == 0; }
static bool is_last(const struct dit *d) { return d->slot->end == d->m->layers; }

void dit_chunk_take(struct dit *d, int64_t slot, int64_t chunk)
{
    d->slots[slot].first = layout_chunk_first(d->c.layout, d->m->layers, chunk);
    d->slots[slot].end = layout_chunk_first(d->c.layout, d->m->layers, chunk + 1);
    slot_take(d, slot);
}

static struct tensor final_mod(const struct dit *d, enum dit_buffer id, int64_t part)
{
    if (!dit_has_cond(d))
        return tensor_none();
    return tensor_cols(dit_buffer(d, id, 0, d->slot->now.n), part * d->m->hidden, d->m->hidden);
}

static void head_fwd(struct dit *d)
{
    struct tensor normed = dit_rows(d, DIT_NORMED, 0);
    dit_use(d, PARAM_LAYER_HEAD, DIT_NO_LAYER);
    dit_final_mod_fwd(d);
    dit_block_close(d, d->slot->end - 1, dit_rows(d, DIT_X_FINAL, 0), normed,
                    final_mod(d, DIT_FINAL_MOD, 0), final_mod(d, DIT_FINAL_MOD, 1));
    dit_linear(d, normed, d->p.final_out, dit_rows(d, DIT_PRED, 0));
}

static struct ops_table position_table(const struct dit *d, int axis)
{
    return (struct ops_table){
        .index = d->slot->device.pos + 3 * d->slot->now.r_first + axis,
        .stride = 3
    };
}

static void embed_fwd(struct dit *d)
{
    struct tensor x = dit_rows(d, DIT_X, 0);
    dit_use(d, PARAM_LAYER_EMBED, 0);
    dit_linear(d, dit_rows(d, DIT_PATCHES, 0), d->p.patch_embed, x);
    for (int axis = 0; axis < 3 && model_has_tables(d->m); axis++) {
        struct ops_table t = position_table(d, axis);
        t.x = x, t.table = dit_weight(d, d->p.pos[axis]);
        d->o->table_fwd(d->o, d->stream, &t);
    }
}

static void forward(struct dit *d)
{
    int64_t after = is_last(d) ? PARAM_LAYER_HEAD : DIT_NO_LAYER;
    dit_cond_fwd(d);
    if (is_first(d))
        embed_fwd(d);
    for (int64_t l = d->slot->first; l < d->slot->end; l++) {
        struct meter_start at = meter_begin(d->dev->meter);
        dit_use(d, l, l + 1 < d->slot->end ? l + 1 : after);
        dit_block_fwd(d, l);
        meter_span(d->dev->meter, at, "layer forward", l);
    }
    if (is_last(d))
        head_fwd(d);
    else
        dit_block_close(d, d->slot->end - 1, dit_rows(d, DIT_X_FINAL, 0), tensor_none(),
                        tensor_none(), tensor_none());
}

static void loss(struct dit *d)
{
    const struct model *m = d->m;
    struct ops_latents a = {
        .samples = d->slot->device.samples, .n = d->slot->now.n, .channels = m->latent_channels,
        .cells = d->slot->now.cells,
        .patch_t = m->patch_t, .patch_h = m->patch_h, .patch_w = m->patch_w,
        .latent = dit_buffer(d, DIT_LATENT, 0, 1), .noise = dit_buffer(d, DIT_NOISE, 0, 1),
        .tokens = dit_rows(d, DIT_PRED, 0), .dtokens = dit_rows(d, DIT_DPRED, 0),
        .loss = d->slot->loss
    };
    d->o->loss(d->o, d->stream, &a);
}

static struct ops_adaln final_norm(const struct dit *d)
{
    struct ops_adaln a = dit_adaln(d);
    a.shift = final_mod(d, DIT_FINAL_MOD, 0), a.scale = final_mod(d, DIT_FINAL_MOD, 1);
    return a;
}

/* Computes, from DIT_DPRED, the gradient DIT_DX of the last block's output. */
static void final_bwd(struct dit *d)
{
    struct tensor dpred = dit_rows(d, DIT_DPRED, 0), dx = dit_rows(d, DIT_DX, 0),
                  x = dit_rows(d, DIT_X_FINAL, 0);
    struct ops_adaln again = final_norm(d), a = again;
    again.x = x;
    again.y = dit_rows(d, DIT_NORMED, 0);
    d->o->adaln_fwd(d->o, d->stream, &again);
    a.x_out = x;
    a.dx = dx;
    a.dy = dit_rows(d, DIT_DNORMED, 0);
    a.dshift = final_mod(d, DIT_DMOD, 0);
    a.dscale = final_mod(d, DIT_DMOD, 1);
    dit_linear_dw(d, dpred, again.y, d->p.final_out);
    dit_linear_dx(d, dpred, d->p.final_out, a.dy, 0);
    d->dev->fill(d->dev, dx.ptr, 0, dx.rows * dx.cols * dtype_bytes(dx.dtype), d->stream);
    d->o->adaln_bwd(d->o, d->stream, &a);
    if (dit_has_cond(d))
        dit_mod_bwd(d, &d->p.final_unit, 1, dit_buffer(d, DIT_FINAL_LOW, 0, d->slot->now.n),
                    tensor_cols(dit_buffer(d, DIT_DMOD, 0, d->slot->now.n), 0, 2 * d->m->hidden));
    layer_done(d, PARAM_LAYER_HEAD);
}

/* Says whether the embedding's backward needs weights: an adapter is two products in a row, and the
 * gradient of the first needs the weight of the second. */
static bool embed_again(const struct dit *d)
{
    return is_first(d) && dit_lora_has(d, d->p.patch_embed);
}

static void embed_bwd(struct dit *d)
{
    d->o->layer = PARAM_LAYER_EMBED;
    if (embed_again(d))
        dit_use(d, PARAM_LAYER_EMBED, PARAM_LAYER_COND);
    dit_linear_dw(d, dit_rows(d, DIT_DX, 0), dit_rows(d, DIT_PATCHES, 0), d->p.patch_embed);
    for (int axis = 0; axis < 3 && model_has_tables(d->m); axis++) {
        struct ops_table t = position_table(d, axis);
        t.dx = dit_rows(d, DIT_DX, 0), t.dtable = dit_grad(d, d->p.pos[axis]),
        t.beta = dit_beta(d, d->p.pos[axis]);
        if (t.dtable.ptr)
            d->o->table_bwd(d->o, d->stream, &t);
    }
    layer_done(d, PARAM_LAYER_EMBED);
}

static void backward(struct dit *d)
{
    dit_cond_bwd_start(d);
    if (is_last(d)) {
        dit_use(d, PARAM_LAYER_HEAD, d->slot->end - 1);
        final_bwd(d);
    }
    for (int64_t l = d->slot->end - 1; l >= d->slot->first; l--) {
        struct meter_start at = meter_begin(d->dev->meter);
        dit_use(d, l,
                l > d->slot->first ? l - 1
                : embed_again(d)   ? PARAM_LAYER_EMBED
                                   : PARAM_LAYER_COND);
        if (dit_recomputed(d, l) && (d->kept != l || d->kept_slot != d->slot))
            dit_block_again(d, l);
        dit_block_bwd(d, l);
        layer_done(d, l);
        meter_span(d->dev->meter, at, "layer backward", l);
    }
    if (is_first(d))
        embed_bwd(d);
    dit_use(d, PARAM_LAYER_COND, DIT_NO_LAYER);
    dit_cond_bwd(d);
    layer_done(d, PARAM_LAYER_COND);
}

int dit_failed(struct dit *d, struct err *err)
{
    int rc;
    if ((rc = units_failed(d->units, err)) < 0)
        return rc;
    return d->failed < 0 ? err_set(err, d->failed, "%s", d->err.text) : 0;
}

int dit_begin(struct dit *d, int64_t slot, int64_t chunk, const struct batch *b, double inv_norm,
              struct err *err)
{
    struct meter_start at = meter_begin(d->dev->meter);
    dit_chunk_take(d, slot, chunk);
    d->o->layer = PARAM_LAYER_EMBED;
    int rc = dit_stage(d, b, inv_norm, err);
    meter_end(d->dev->meter, at, METER_STAGE, chunk);
    return rc;
}

struct tensor dit_boundary_in(struct dit *d, int64_t slot)
{
    slot_take(d, slot);
    return dit_rows(d, DIT_X, d->slot->first);
}

struct tensor dit_boundary_out(struct dit *d, int64_t slot)
{
    slot_take(d, slot);
    return dit_rows(d, DIT_X_FINAL, 0);
}

struct tensor dit_gradient_in(struct dit *d, int64_t slot)
{
    slot_take(d, slot);
    return dit_rows(d, DIT_DX, 0);
}

struct tensor dit_gradient_out(struct dit *d, int64_t slot)
{
    slot_take(d, slot);
    return dit_rows(d, DIT_DX_OUT, 0);
}

void dit_chunk_forward(struct dit *d, int64_t slot)
{
    struct meter_start at = meter_begin(d->dev->meter);
    slot_take(d, slot);
    forward(d);
    if (is_last(d))
        loss(d);
    meter_span(d->dev->meter, at, "forward of a chunk", d->slot->first);
}

void dit_chunk_backward(struct dit *d, int64_t slot)
{
    struct meter_start at = meter_begin(d->dev->meter);
    slot_take(d, slot);
    d->o->backward = true;
    backward(d);
    d->o->backward = false;
    if (!is_first(d))
        d->o->copy(d->o, d->stream,
                   &(struct ops_copy){dit_rows(d, DIT_DX, 0), dit_rows(d, DIT_DX_OUT, 0)});
    meter_span(d->dev->meter, at, "backward of a chunk", d->slot->first);
}

void dit_results_queue(struct dit *d)
{
    struct dit_losses *l = &d->losses;
    d->dev->copy(d->dev, l->host, l->device,
                 l->n * d->c.max_samples * (int64_t)sizeof *l->host, DEV_D2H, d->stream);
}

/* Adds a micro-batch's losses to *r, and turns its squares into means per sample. */
static void result_add(struct dit *d, int64_t micro, struct dit_result *r)
{
    double *squares = d->losses.host + micro * d->c.max_samples, loss = 0, loss_x0 = 0;
    const struct dit_factors *f = d->losses.factors + micro * d->c.max_samples;
    for (int64_t i = 0; i < d->losses.samples[micro]; i++) {
        loss += f[i].loss * squares[i];
        loss_x0 += f[i].loss_x0 * squares[i];
        squares[i] = f[i].w * squares[i] / f[i].elements;
    }
    r->loss_sum += loss;
    r->loss_x0_sum += loss_x0;
}

void dit_results_take(struct dit *d, struct dit_result *out)
{
    struct dit_result r = {.sample_loss = d->losses.host};
    for (int64_t k = 0; k < d->losses.n; k++)
        result_add(d, k, &r);
    d->losses.n = 0;
    *out = r;
}

int dit_forward(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err)
{
    BUG_ON(d->c.layout->sp || d->c.layout->cp > 1 || d->c.layout->pp > 1);
    dit_chunk_take(d, 0, 0);
    int rc;
    if ((rc = dit_stage_eval(d, samples, n, err)) < 0)
        return rc;
    forward(d);
    dit_fetch_eval(d, samples, n);
    if ((rc = d->dev->stream_sync(d->dev, d->stream, err)) < 0)
        return rc;
    return dit_failed(d, err);
}
