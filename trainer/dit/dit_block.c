/* Computes a block's forward. Before the first block, x = patches Wembedᵀ; after the last one, F =
 * modulate(norm(x)) Woutᵀ, rearranged into cells:
 *
 *     y = modulate(norm(x));  qkv = y Wqkvᵀ;  q, k = rope(rmsnorm per head)
 *                             x += gate · attention(q, k, v) Woutᵀ
 *     y = modulate(norm(x));  q = rmsnorm(y Wqᵀ), k, v = text Wkvᵀ (k normed)
 *                             x += gate · attention(q, k, v) Woutᵀ
 *     y = modulate(norm(x));  x += gate · act(y Wfc1ᵀ) Wfc2ᵀ
 *
 *     modulate(y) = (1 + scale) y + shift; without AdaLN it is y, and the gate is 1
 *     attention   = softmax(q kᵀ / sqrt(d)) v; query head h reads k/v head h / (H / K), in both
 *                   attentions
 *     act         = GELU by erf; gated: silu(gate) · up
 *     rope        rotates by a token's position in patches, (t, h, w). Of the d/2 pairs of a head,
 *                 h and w have a third each (rounded down), and t has the rest. ops.h says which
 *                 angles there are and which components make a pair. A model with learned tables
 *                 of positions adds their rows to x before the first block, and rotates nothing
 *
 * norm is LayerNorm without affine parameters, or RMSNorm for the family moviegen; every norm has
 * eps 1e-6. stdit has three self-attentions, each a sub-block: over the tokens of a frame, over one
 * place in all frames, and over all tokens (dit_segments.c). Gate, residual and the next norm are
 * one call. So the gate of a block's MLP belongs to the first call of the next block
 * (dit_block_close), which writes that block's input. The cross-attention sees only the caption's
 * true tokens, or the null token.
 *
 * The order and the formulas are those of the DiT with cross-attention of NVIDIA's Cosmos 1 and
 * NeMo. The forms of AdaLN are in dit_cond.c.
 *
 * Tensor parallelism is that of Megatron-LM (Shoeybi et al. 2019): qkv, q, kv and fc1 compute this
 * rank's heads and columns; out and fc2 compute its summand of the branch. In the residual stream
 * between them, a rank has only its own rows if there is sequence parallelism (Korthikanti et al.
 * 2022).
 */
#include <math.h>

#include "trainer/dit/dit_priv.h"
#include "trainer/state/fault.h"

struct tensor dit_mod(const struct dit *d, int64_t layer, int64_t sub, int64_t part)
{
    if (!dit_has_cond(d))
        return tensor_none();
    int64_t D = d->m->hidden;
    return tensor_cols(dit_buffer(d, DIT_MOD, layer, d->slot->now.n), (3 * sub + part) * D, D);
}

struct tensor dit_res(const struct dit *d, int64_t layer, int64_t sub)
{
    return sub ? dit_copy(d, DIT_RES, layer, sub - 1, d->slot->now.r) : dit_rows(d, DIT_X, layer);
}

struct tensor dit_out(const struct dit *d, int64_t layer, int64_t sub)
{
    return dit_copy(d, DIT_OUT, layer, sub, d->slot->now.r);
}

struct ops_adaln dit_adaln(const struct dit *d)
{
    const struct dit_slot *s = d->slot;
    return (struct ops_adaln){
        .sample = s->device.sample + s->now.r_first, .n = s->now.n,
        .row_start = s->device.row_start, .host_row_start = s->host.row_start,
        .stats = dit_rows(d, DIT_STATS, 0), .eps = DIT_EPS, .rms = model_rms_norm(d->m)
    };
}

/* Adds the gated output of sub-block `sub` to the residual, and computes a norm of it. */
static void residual_norm(struct dit *d, int64_t layer, int64_t sub, struct tensor x_out,
                          struct tensor y, struct tensor shift, struct tensor scale)
{
    struct ops_adaln a = dit_adaln(d);
    a.x = dit_res(d, layer, sub), a.branch = dit_out(d, layer, sub);
    a.x_out = x_out, a.y = y;
    a.gate = dit_mod(d, layer, sub, 2), a.shift = shift, a.scale = scale;
    d->o->adaln_fwd(d->o, d->stream, &a);
}

void dit_norm_again(struct dit *d, int64_t layer, int64_t sub)
{
    struct ops_adaln a = dit_adaln(d);
    a.x = dit_res(d, layer, sub), a.y = dit_rows(d, DIT_NORMED, 0);
    a.shift = dit_mod(d, layer, sub, 0), a.scale = dit_mod(d, layer, sub, 1);
    d->o->adaln_fwd(d->o, d->stream, &a);
}

void dit_block_close(struct dit *d, int64_t layer, struct tensor x_out, struct tensor y,
                     struct tensor shift, struct tensor scale)
{
    residual_norm(d, layer, d->n_subs - 1, x_out, y, shift, scale);
}

struct ops_headnorm dit_headnorm(const struct dit *d, struct tensor src, struct tensor dst,
                                 int64_t gain, struct tensor rstd, bool positions)
{
    struct ops_headnorm h = {
        .src = src, .dst = dst,
        .heads = src.cols / d->head_dim, .head_dim = d->head_dim,
        .gain = dit_weight(d, gain), .rstd = rstd, .eps = DIT_EPS
    };
    if (positions && !model_has_tables(d->m)) {
        h.cos = dit_tokens(d, DIT_COS, 0);
        h.sin = dit_tokens(d, DIT_SIN, 0);
    }
    return h;
}

void dit_qk_again(struct dit *d, int64_t layer, int64_t self)
{
    const struct dit_attn_params *p = &d->p.blocks[layer].self[self];
    struct tensor qkv = dit_copy(d, DIT_QKV, layer, self, d->slot->now.s),
                  qk = dit_tokens(d, DIT_QK, 0), rstd = dit_tokens(d, DIT_QK_RSTD, 0);
    int64_t H = d->heads, K = d->kv_heads;
    struct ops_headnorm q =
        dit_headnorm(d, tensor_cols(qkv, 0, d->q_width), tensor_cols(qk, 0, d->q_width), p->q_norm,
                     tensor_cols(rstd, 0, H), true);
    struct ops_headnorm k =
        dit_headnorm(d, tensor_cols(qkv, d->q_width, d->kv_width),
                     tensor_cols(qk, d->q_width, d->kv_width), p->k_norm, tensor_cols(rstd, H, K),
                     true);
    d->o->headnorm_fwd(d->o, d->stream, &q);
    d->o->headnorm_fwd(d->o, d->stream, &k);
}

void dit_cross_qk_again(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct tensor kv = dit_buffer(d, DIT_CROSS_KV, layer, d->slot->now.text);
    struct ops_headnorm q =
        dit_headnorm(d, dit_tokens(d, DIT_CROSS_Q, layer), dit_tokens(d, DIT_CROSS_QN, 0),
                     p->cross_q_norm, dit_tokens(d, DIT_CROSS_RSTD, 0), false);
    struct ops_headnorm k =
        dit_headnorm(d, tensor_cols(kv, 0, d->kv_width),
                     dit_buffer(d, DIT_CROSS_KN, 0, d->slot->now.text), p->cross_k_norm,
                     dit_buffer(d, DIT_CROSS_K_RSTD, 0, d->slot->now.text), false);
    d->o->headnorm_fwd(d->o, d->stream, &q);
    d->o->headnorm_fwd(d->o, d->stream, &k);
}

struct ops_attn dit_attn(const struct dit *d)
{
    return (struct ops_attn){
        .n = d->slot->now.n, .q_start = d->slot->device.q_start,
        .host.q_start = d->slot->host.q_start,
        .heads = d->heads, .kv_heads = d->kv_heads, .head_dim = d->head_dim,
        .max_q = d->slot->now.max_q, .scale = 1 / sqrt((double)d->head_dim),
        .delta = dit_tokens(d, DIT_DELTA, 0), .d_o = dit_tokens(d, DIT_DATTN, 0)
    };
}

struct ops_attn dit_cross_attn(const struct dit *d, int64_t layer, bool backward)
{
    struct ops_attn a = dit_attn(d);
    a.q = dit_tokens(d, DIT_CROSS_QN, 0);
    a.k = dit_buffer(d, DIT_CROSS_KN, 0, d->slot->now.text);
    a.v = tensor_cols(dit_buffer(d, DIT_CROSS_KV, layer, d->slot->now.text), d->kv_width,
                      d->kv_width);
    a.o = dit_tokens(d, DIT_CROSS_ATTN, layer);
    a.lse = dit_tokens(d, DIT_CROSS_LSE, layer);
    a.k_start = d->slot->device.k_start, a.host.k_start = d->slot->host.k_start;
    a.k_len = d->slot->device.k_len, a.host.k_len = d->slot->host.k_len;
    a.max_k = d->slot->now.max_k;
    a.uneven = true;
    if (!backward)
        return a;
    struct tensor dkv = dit_buffer(d, DIT_DCROSS_KV, 0, d->slot->now.text);
    a.dq = dit_tokens(d, DIT_DCROSS_Q, 0);
    a.dk = tensor_cols(dkv, 0, d->kv_width);
    a.dv = tensor_cols(dkv, d->kv_width, d->kv_width);
    return a;
}

/* Ends a branch with a row-parallel product: `out` gets this rank's rows of the sum over tp ranks.
 * Each slice is summed while the product of the next one is computed. */
static void branch_out(struct dit *d, struct tensor x, int64_t param, struct tensor out,
                       const char *what)
{
    dit_linear_sum(d, x, param, out, what, FAULT_POINT_SUM_BRANCH);
}

/* Begins a branch with a column-parallel product of the normed rows of all tokens. */
static void branch_in(struct dit *d, int64_t param, struct tensor y)
{
    struct tensor in = dit_gemm_all(d, (struct ops_gemm){
        .b = dit_weight(d, param), .c = y,
        .tb = true, .alpha = 1
    });
    dit_lora_add(d, in, param, y);
}

/* Computes a self-attention with its output product. With `kept` the attention itself is still in
 * memory, and only the product is computed again. */
static void self_attention(struct dit *d, int64_t layer, int64_t self, struct tensor out, bool kept)
{
    const struct dit_attn_params *p = &d->p.blocks[layer].self[self];
    if (!kept) {
        branch_in(d, p->qkv, dit_copy(d, DIT_QKV, layer, self, d->slot->now.s));
        dit_qk_again(d, layer, self);
        dit_attention_fwd(d, layer, self);
    }
    branch_out(d, dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s), p->out, out,
               "self-attention's output");
}

static void cross_attention(struct dit *d, int64_t layer, struct tensor out, bool kept)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    branch_in(d, p->cross_q, dit_tokens(d, DIT_CROSS_Q, layer));
    dit_linear(d, dit_buffer(d, DIT_TEXT, 0, d->slot->now.text), p->cross_kv,
               dit_buffer(d, DIT_CROSS_KV, layer, d->slot->now.text));
    if (!kept) {
        dit_cross_qk_again(d, layer);
        struct ops_attn a = dit_cross_attn(d, layer, false);
        d->o->attn_fwd(d->o, d->stream, &a);
    }
    branch_out(d, dit_tokens(d, DIT_CROSS_ATTN, layer), p->cross_out, out,
               "cross-attention's output");
}

static void mlp(struct dit *d, int64_t layer, struct tensor out)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct tensor pre = dit_tokens(d, DIT_MLP_PRE, layer), act = dit_tokens(d, DIT_MLP_ACT, 0);
    if (d->mlp_act == OPS_ACT_SWIGLU || dit_lora_has(d, p->fc1)) {
        struct ops_act a = {.kind = d->mlp_act, .x = pre, .y = act};
        branch_in(d, p->fc1, pre);
        d->o->act_fwd(d->o, d->stream, &a);
    } else {
        dit_gemm_all(d, (struct ops_gemm){
            .b = dit_weight(d, p->fc1), .c = act,
            .tb = true, .alpha = 1, .act = d->mlp_act, .aux = pre
        });
    }
    branch_out(d, act, p->fc2, out, "MLP's output");
}

static void sub_block(struct dit *d, int64_t layer, int64_t sub, bool kept)
{
    struct tensor out = dit_out(d, layer, sub);
    switch (d->subs[sub].kind) {
    case DIT_SELF: self_attention(d, layer, d->subs[sub].self, out, kept); break;
    case DIT_CROSS: cross_attention(d, layer, out, kept); break;
    case DIT_MLP: mlp(d, layer, out); break;
    }
}

/* Computes all sub-blocks. DIT_NORMED holds the input of the first one, unless the attentions are
 * kept in memory. */
static void sub_blocks(struct dit *d, int64_t layer, bool kept)
{
    for (int64_t sub = 0; sub < d->n_subs; sub++) {
        sub_block(d, layer, sub, kept);
        if (sub + 1 < d->n_subs)
            residual_norm(d, layer, sub, dit_res(d, layer, sub + 1), dit_rows(d, DIT_NORMED, 0),
                          dit_mod(d, layer, sub + 1, 0), dit_mod(d, layer, sub + 1, 1));
    }
    if (dit_recomputed(d, layer))
        d->kept = layer, d->kept_slot = d->slot;
}

void dit_block_again(struct dit *d, int64_t layer)
{
    bool kept = d->c.layout->recompute == RECOMPUTE_SELECTIVE;
    if (!kept)
        dit_norm_again(d, layer, 0);
    sub_blocks(d, layer, kept);
}

void dit_block_fwd(struct dit *d, int64_t layer)
{
    dit_mod_fwd(d, layer);
    if (layer == d->slot->first)
        dit_norm_again(d, layer, 0);
    else
        dit_block_close(d, layer - 1, dit_rows(d, DIT_X, layer), dit_rows(d, DIT_NORMED, 0),
                        dit_mod(d, layer, 0, 0), dit_mod(d, layer, 0, 1));
    sub_blocks(d, layer, false);
}
