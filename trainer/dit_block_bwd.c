/* The block, backward: DIT_DX goes from the gradient of the block's output to that of its input. What forward did not
 * keep (normed inputs, normed queries and keys, activations) is made again just before its use, by the same calls, so that it
 * has the same bits.
 */
#include "trainer/dit_priv.h"

static struct tensor tokens(const struct dit *d, enum dit_buffer id, int64_t layer)
{
    return dit_buffer(d, id, layer, d->now.s);
}

static struct tensor dmod(const struct dit *d, int64_t sub, int64_t chunk)
{
    if (!dit_has_cond(d))
        return tensor_none();
    int64_t D = d->m->hidden;
    return tensor_cols(dit_buffer(d, DIT_DMOD, 0, d->now.n), (3 * sub + chunk) * D, D);
}

/* Gate of sub-block `sub` (its output `branch`), and before it the norm of the sub-block after it over `x`, whose output
 * gradient is DIT_DNORMED. `norm` or `gate` off: that half alone. */
static void adaln_bwd(struct dit *d, int64_t layer, int64_t sub, struct tensor x, struct tensor branch, bool norm, bool gate)
{
    struct ops_adaln a = {.sample = d->device.sample, .n = d->now.n, .eps = DIT_EPS, .dx = tokens(d, DIT_DX, 0)};
    if (norm) {
        a.x_out = x;
        a.stats = tokens(d, DIT_STATS, 0);
        a.dy = tokens(d, DIT_DNORMED, 0);
        a.shift = dit_mod(d, layer, sub + 1, 0);
        a.scale = dit_mod(d, layer, sub + 1, 1);
        a.dshift = dmod(d, sub + 1, 0);
        a.dscale = dmod(d, sub + 1, 1);
    }
    if (gate) {
        a.branch = branch;
        a.dbranch = tokens(d, DIT_DBRANCH, 0);
        a.gate = dit_mod(d, layer, sub, 2);
        a.dgate = dmod(d, sub, 2);
    }
    d->o->adaln_bwd(d->o, d->stream, &a);
}

/* DIT_DBRANCH -> DIT_DNORMED of the MLP's input; leaves the statistics of that norm in DIT_STATS. */
static void mlp_bwd(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct tensor dout = tokens(d, DIT_DBRANCH, 0), dhidden = tokens(d, DIT_DMLP, 0), act = tokens(d, DIT_MLP_ACT, 0);
    struct tensor dact = d->mlp_act == OPS_ACT_SWIGLU ? tokens(d, DIT_DMLP_ACT, 0) : dhidden;
    struct ops_act a = {.kind = d->mlp_act, .x = tokens(d, DIT_MLP_PRE, layer), .y = act, .dy = dact, .dx = dhidden};
    dit_linear_dx(d, dout, p->fc2, dact, 0);
    d->o->act_bwd(d->o, d->stream, &a);
    dit_linear_dw(d, dout, act, p->fc2);
    dit_norm_again(d, tokens(d, DIT_X_MLP, layer), layer, dit_sub_mlp(d));
    dit_linear_dw(d, dhidden, tokens(d, DIT_NORMED, 0), p->fc1);
    dit_linear_dx(d, dhidden, p->fc1, tokens(d, DIT_DNORMED, 0), 0);
}

/* Through the head norm, in place in `dsrc`. */
static void headnorm_bwd(struct dit *d, struct tensor src, int64_t gain, struct tensor rstd, bool positions, struct tensor dsrc)
{
    struct ops_headnorm h = dit_headnorm(d, src, tensor_none(), gain, rstd, positions);
    h.ddst = h.dsrc = dsrc;
    h.dgain = dit_grad(d, gain);
    h.beta = d->beta;
    d->o->headnorm_bwd(d->o, d->stream, &h);
}

static void cross_attention_bwd(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct ops_attn a = dit_cross_attn(d, layer);
    struct tensor dout = tokens(d, DIT_DBRANCH, 0), dkv = dit_buffer(d, DIT_DCROSS_KV, 0, d->now.text);
    struct tensor kv = dit_buffer(d, DIT_CROSS_KV, layer, d->now.text);
    a.dq = tokens(d, DIT_DCROSS_Q, 0);
    a.dk = tensor_cols(dkv, 0, d->kv_width);
    a.dv = tensor_cols(dkv, d->kv_width, d->kv_width);
    dit_linear_dw(d, dout, a.o, p->cross_out);
    dit_linear_dx(d, dout, p->cross_out, a.d_o, 0);
    dit_cross_qk_again(d, layer);
    d->o->attn_bwd(d->o, d->stream, &a);
    headnorm_bwd(d, tokens(d, DIT_CROSS_Q, layer), p->cross_q_norm, tokens(d, DIT_CROSS_RSTD, 0), false, a.dq);
    headnorm_bwd(d, tensor_cols(kv, 0, d->kv_width), p->cross_k_norm, dit_buffer(d, DIT_CROSS_K_RSTD, 0, d->now.text), false, a.dk);
    dit_norm_again(d, tokens(d, DIT_X_CROSS, layer), layer, 1);
    dit_linear_dw(d, a.dq, tokens(d, DIT_NORMED, 0), p->cross_q);
    dit_linear_dx(d, a.dq, p->cross_q, tokens(d, DIT_DNORMED, 0), 0);
    dit_linear_dw(d, dkv, dit_buffer(d, DIT_TEXT, 0, d->now.text), p->cross_kv);
    /* of the text, only null tokens are ours to learn: they are the first rows; summed over layers */
    if (d->now.null_rows > 0)
        dit_linear_dx(d, tensor_rows(dkv, 0, d->now.null_rows), p->cross_kv, dit_buffer(d, DIT_DNULL, 0, d->now.null_rows),
                      layer == d->m->layers - 1 ? 0 : 1);
}

static void self_attention_bwd(struct dit *d, int64_t layer)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    int64_t H = d->m->heads, K = d->m->kv_heads;
    struct ops_attn a = dit_self_attn(d, layer);
    struct tensor dout = tokens(d, DIT_DBRANCH, 0), dqkv = tokens(d, DIT_DQKV, 0), qkv = tokens(d, DIT_QKV, layer);
    struct tensor rstd = tokens(d, DIT_QK_RSTD, 0);
    a.dq = tensor_cols(dqkv, 0, d->q_width);
    a.dk = tensor_cols(dqkv, d->q_width, d->kv_width);
    a.dv = tensor_cols(dqkv, d->q_width + d->kv_width, d->kv_width);
    dit_linear_dw(d, dout, a.o, p->out);
    dit_linear_dx(d, dout, p->out, a.d_o, 0);
    dit_qk_again(d, layer);
    d->o->attn_bwd(d->o, d->stream, &a);
    headnorm_bwd(d, tensor_cols(qkv, 0, d->q_width), p->q_norm, tensor_cols(rstd, 0, H), true, a.dq);
    headnorm_bwd(d, tensor_cols(qkv, d->q_width, d->kv_width), p->k_norm, tensor_cols(rstd, H, K), true, a.dk);
    dit_norm_again(d, tokens(d, DIT_X, layer), layer, 0);
    dit_linear_dw(d, dqkv, tokens(d, DIT_NORMED, 0), p->qkv);
    dit_linear_dx(d, dqkv, p->qkv, tokens(d, DIT_DNORMED, 0), 0);
}

void dit_block_bwd(struct dit *d, int64_t layer)
{
    struct tensor x_mlp = tokens(d, DIT_X_MLP, layer), none = tensor_none();
    int64_t mlp = dit_sub_mlp(d);
    adaln_bwd(d, layer, mlp, none, tokens(d, DIT_MLP_OUT, layer), false, true);
    mlp_bwd(d, layer);
    if (model_has_cross(d->m)) {
        adaln_bwd(d, layer, 1, x_mlp, tokens(d, DIT_CROSS_OUT, layer), true, true);
        cross_attention_bwd(d, layer);
        adaln_bwd(d, layer, 0, tokens(d, DIT_X_CROSS, layer), tokens(d, DIT_ATTN_OUT, layer), true, true);
    } else {
        adaln_bwd(d, layer, 0, x_mlp, tokens(d, DIT_ATTN_OUT, layer), true, true);
    }
    self_attention_bwd(d, layer);
    adaln_bwd(d, layer, -1, tokens(d, DIT_X, layer), none, true, false);
    if (dit_has_cond(d))
        dit_mod_bwd(d, d->p.blocks[layer].units, d->p.blocks[layer].n_units, dit_buffer(d, DIT_MOD_LOW, layer, d->now.n),
                    dit_buffer(d, DIT_DMOD, 0, d->now.n));
}
