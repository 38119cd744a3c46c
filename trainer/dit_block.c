/* The block, forward.
 *
 *     y = modulate(norm(x));  qkv = y Wqkvᵀ;  q, k = rope(rmsnorm per head);  x += gate · attention(q, k, v) Woutᵀ
 *     y = modulate(norm(x));  q = rmsnorm(y Wqᵀ), k, v = text Wkvᵀ (k normed);  x += gate · attention Woutᵀ
 *     y = modulate(norm(x));  x += gate · act(y Wfc1ᵀ) Wfc2ᵀ
 *
 * norm is LayerNorm without affine. Gate, residual and the next norm are one call, so the gate of a block's MLP belongs to
 * the first call of the block after it (dit_close_block), which writes that block's input. Order and forms as the DiT with cross-attention of
 * NVIDIA's Cosmos 1 and NeMo; the AdaLN forms are in dit_cond.c. The cross-attention sees the caption's true tokens only.
 */
#include <math.h>

#include "trainer/dit_priv.h"

static struct tensor tokens(const struct dit *d, enum dit_buffer id, int64_t layer)
{
    return dit_buffer(d, id, layer, d->now.s);
}

struct tensor dit_mod(const struct dit *d, int64_t layer, int64_t sub, int64_t chunk)
{
    if (!dit_has_cond(d))
        return tensor_none();
    int64_t D = d->m->hidden;
    return tensor_cols(dit_buffer(d, DIT_MOD, layer, d->now.n), (3 * sub + chunk) * D, D);
}

/* Residual with the gated branch of sub-block `sub`, then the norm of the sub-block after it. */
static void residual_norm(struct dit *d, int64_t layer, int64_t sub, struct tensor x, struct tensor branch, struct tensor x_out)
{
    struct ops_adaln a = {.sample = d->device.sample, .n = d->now.n, .x = x, .branch = branch, .x_out = x_out,
                          .y = tokens(d, DIT_NORMED, 0), .stats = tokens(d, DIT_STATS, 0), .eps = DIT_EPS,
                          .gate = dit_mod(d, layer, sub, 2), .shift = dit_mod(d, layer, sub + 1, 0),
                          .scale = dit_mod(d, layer, sub + 1, 1)};
    d->o->adaln_fwd(d->o, d->stream, &a);
}

void dit_norm_again(struct dit *d, struct tensor x, int64_t layer, int64_t sub)
{
    struct ops_adaln a = {.sample = d->device.sample, .n = d->now.n, .x = x, .y = tokens(d, DIT_NORMED, 0),
                          .stats = tokens(d, DIT_STATS, 0), .eps = DIT_EPS, .shift = dit_mod(d, layer, sub, 0),
                          .scale = dit_mod(d, layer, sub, 1)};
    d->o->adaln_fwd(d->o, d->stream, &a);
}

void dit_close_block(struct dit *d, int64_t layer, struct tensor x_out, struct tensor y, struct tensor shift,
                     struct tensor scale)
{
    struct ops_adaln a = {.sample = d->device.sample, .n = d->now.n, .x = tokens(d, DIT_X_MLP, layer),
                          .branch = tokens(d, DIT_MLP_OUT, layer), .x_out = x_out, .y = y, .stats = tokens(d, DIT_STATS, 0),
                          .eps = DIT_EPS, .gate = dit_mod(d, layer, dit_sub_mlp(d), 2), .shift = shift, .scale = scale};
    d->o->adaln_fwd(d->o, d->stream, &a);
}

struct ops_headnorm dit_headnorm(const struct dit *d, struct tensor src, struct tensor dst, int64_t gain, struct tensor rstd,
                                 bool positions)
{
    struct ops_headnorm h = {.src = src, .dst = dst, .heads = src.cols / d->head_dim, .head_dim = d->head_dim,
                             .gain = dit_weight(d, gain), .rstd = rstd, .eps = DIT_EPS};
    if (positions) {
        h.cos = tokens(d, DIT_COS, 0);
        h.sin = tokens(d, DIT_SIN, 0);
    }
    return h;
}

void dit_qk_again(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct tensor qkv = tokens(d, DIT_QKV, layer), qk = tokens(d, DIT_QK, 0), rstd = tokens(d, DIT_QK_RSTD, 0);
    int64_t H = d->m->heads, K = d->m->kv_heads;
    struct ops_headnorm q = dit_headnorm(d, tensor_cols(qkv, 0, d->q_width), tensor_cols(qk, 0, d->q_width), p->q_norm,
                                         tensor_cols(rstd, 0, H), true);
    struct ops_headnorm k = dit_headnorm(d, tensor_cols(qkv, d->q_width, d->kv_width), tensor_cols(qk, d->q_width, d->kv_width),
                                         p->k_norm, tensor_cols(rstd, H, K), true);
    d->o->headnorm_fwd(d->o, d->stream, &q);
    d->o->headnorm_fwd(d->o, d->stream, &k);
}

void dit_cross_qk_again(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct tensor kv = dit_buffer(d, DIT_CROSS_KV, layer, d->now.text);
    struct ops_headnorm q = dit_headnorm(d, tokens(d, DIT_CROSS_Q, layer), tokens(d, DIT_CROSS_QN, 0), p->cross_q_norm,
                                         tokens(d, DIT_CROSS_RSTD, 0), false);
    struct ops_headnorm k = dit_headnorm(d, tensor_cols(kv, 0, d->kv_width), dit_buffer(d, DIT_CROSS_KN, 0, d->now.text),
                                         p->cross_k_norm, dit_buffer(d, DIT_CROSS_K_RSTD, 0, d->now.text), false);
    d->o->headnorm_fwd(d->o, d->stream, &q);
    d->o->headnorm_fwd(d->o, d->stream, &k);
}

static struct ops_attn attention(const struct dit *d)
{
    return (struct ops_attn){.n = d->now.n, .q_start = d->device.q_start, .heads = d->m->heads, .kv_heads = d->m->kv_heads,
                             .head_dim = d->head_dim, .max_q = d->now.max_q, .scale = 1 / sqrt((double)d->head_dim),
                             .delta = tokens(d, DIT_DELTA, 0), .d_o = tokens(d, DIT_DATTN, 0)};
}

struct ops_attn dit_self_attn(const struct dit *d, int64_t layer)
{
    struct ops_attn a = attention(d);
    struct tensor qk = tokens(d, DIT_QK, 0);
    a.q = tensor_cols(qk, 0, d->q_width);
    a.k = tensor_cols(qk, d->q_width, d->kv_width);
    a.v = tensor_cols(tokens(d, DIT_QKV, layer), d->q_width + d->kv_width, d->kv_width);
    a.o = tokens(d, DIT_ATTN, layer);
    a.lse = tokens(d, DIT_LSE, layer);
    a.k_start = d->device.q_start;
    a.k_len = d->device.q_len;
    a.max_k = d->now.max_q;
    return a;
}

struct ops_attn dit_cross_attn(const struct dit *d, int64_t layer)
{
    struct ops_attn a = attention(d);
    a.q = tokens(d, DIT_CROSS_QN, 0);
    a.k = dit_buffer(d, DIT_CROSS_KN, 0, d->now.text);
    a.v = tensor_cols(dit_buffer(d, DIT_CROSS_KV, layer, d->now.text), d->kv_width, d->kv_width);
    a.o = tokens(d, DIT_CROSS_ATTN, layer);
    a.lse = tokens(d, DIT_CROSS_LSE, layer);
    a.k_start = d->device.k_start;
    a.k_len = d->device.k_len;
    a.max_k = d->now.max_k;
    return a;
}

static void self_attention(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    dit_linear(d, tokens(d, DIT_NORMED, 0), p->qkv, tokens(d, DIT_QKV, layer));
    dit_qk_again(d, layer);
    struct ops_attn a = dit_self_attn(d, layer);
    d->o->attn_fwd(d->o, d->stream, &a);
    dit_linear(d, a.o, p->out, tokens(d, DIT_ATTN_OUT, layer));
}

static void cross_attention(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    dit_linear(d, tokens(d, DIT_NORMED, 0), p->cross_q, tokens(d, DIT_CROSS_Q, layer));
    dit_linear(d, dit_buffer(d, DIT_TEXT, 0, d->now.text), p->cross_kv, dit_buffer(d, DIT_CROSS_KV, layer, d->now.text));
    dit_cross_qk_again(d, layer);
    struct ops_attn a = dit_cross_attn(d, layer);
    d->o->attn_fwd(d->o, d->stream, &a);
    dit_linear(d, a.o, p->cross_out, tokens(d, DIT_CROSS_OUT, layer));
}

static void mlp(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct tensor pre = tokens(d, DIT_MLP_PRE, layer), act = tokens(d, DIT_MLP_ACT, 0);
    if (d->mlp_act == OPS_ACT_SWIGLU) {
        struct ops_act a = {.kind = d->mlp_act, .x = pre, .y = act};
        dit_linear(d, tokens(d, DIT_NORMED, 0), p->fc1, pre);
        d->o->act_fwd(d->o, d->stream, &a);
    } else {
        struct ops_gemm g = {.a = tokens(d, DIT_NORMED, 0), .b = dit_weight(d, p->fc1), .c = act, .tb = true, .alpha = 1,
                             .act = d->mlp_act, .aux = pre};
        d->o->gemm(d->o, d->stream, &g);
    }
    dit_linear(d, act, p->fc2, tokens(d, DIT_MLP_OUT, layer));
}

/* With DIT_NORMED holding the input of self-attention. */
static void sub_blocks(struct dit *d, int64_t layer)
{
    struct tensor x = tokens(d, DIT_X, layer);
    int64_t sub = 0;
    self_attention(d, layer);
    if (model_has_cross(d->m)) {
        residual_norm(d, layer, sub++, x, tokens(d, DIT_ATTN_OUT, layer), tokens(d, DIT_X_CROSS, layer));
        x = tokens(d, DIT_X_CROSS, layer);
        cross_attention(d, layer);
        residual_norm(d, layer, sub, x, tokens(d, DIT_CROSS_OUT, layer), tokens(d, DIT_X_MLP, layer));
    } else {
        residual_norm(d, layer, sub, x, tokens(d, DIT_ATTN_OUT, layer), tokens(d, DIT_X_MLP, layer));
    }
    mlp(d, layer);
}

void dit_block_again(struct dit *d, int64_t layer)
{
    dit_norm_again(d, tokens(d, DIT_X, layer), layer, 0);
    sub_blocks(d, layer);
}

void dit_block_fwd(struct dit *d, int64_t layer)
{
    if (layer == 0) {
        dit_block_again(d, 0);
        return;
    }
    dit_close_block(d, layer - 1, tokens(d, DIT_X, layer), tokens(d, DIT_NORMED, 0), dit_mod(d, layer, 0, 0),
                    dit_mod(d, layer, 0, 1));
    sub_blocks(d, layer);
}
