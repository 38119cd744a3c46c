/* Computes a block's backward: DIT_DX holds the gradient of the block's output before, and that of
 * its input after. What forward did not keep (normed inputs, normed queries and keys, activations)
 * is recomputed just before its use, by the same calls, so it has the same bits.
 */
#include "trainer/dit/dit_priv.h"
#include "trainer/state/fault.h"

static struct tensor dmod(const struct dit *d, int64_t sub, int64_t part)
{
    if (!dit_has_cond(d))
        return tensor_none();
    int64_t D = d->m->hidden;
    return tensor_cols(dit_buffer(d, DIT_DMOD, 0, d->slot->now.n), (3 * sub + part) * D, D);
}

/* Does the backward of the norm of sub-block sub+1, whose output gradient is DIT_DNORMED, and then
 * of the gate of sub-block `sub`. At either end of the layer there is only one of the two. */
static void adaln_bwd(struct dit *d, int64_t layer, int64_t sub)
{
    struct ops_adaln a = dit_adaln(d);
    a.dx = dit_rows(d, DIT_DX, 0);
    if (sub + 1 < d->n_subs) {
        a.x_out = dit_res(d, layer, sub + 1);
        a.dy = dit_rows(d, DIT_DNORMED, 0);
        a.shift = dit_mod(d, layer, sub + 1, 0);
        a.scale = dit_mod(d, layer, sub + 1, 1);
        a.dshift = dmod(d, sub + 1, 0);
        a.dscale = dmod(d, sub + 1, 1);
    }
    if (sub >= 0) {
        a.branch = dit_out(d, layer, sub);
        a.dbranch = dit_rows(d, DIT_DBRANCH, 0);
        a.gate = dit_mod(d, layer, sub, 2);
        a.dgate = dmod(d, sub, 2);
    }
    d->o->adaln_bwd(d->o, d->stream, &a);
}

/* Starts to gather the gradient of a branch's output for all tokens, which the backward of the
 * row-parallel product needs. */
static struct tensor dbranch_all(struct dit *d, struct comm_work **work)
{
    return dit_gather_rows(d, dit_rows(d, DIT_DBRANCH, 0), DIT_PARTIAL, work);
}

/* Recomputes the input of a sub-block's column-parallel product, and computes from `dout` the
 * gradients of its weight and of the input. Leaves the statistics of its norm in DIT_STATS. The
 * rows of other tp ranks arrive during the first product, and the sum is formed during the
 * second. */
static void branch_in_bwd(struct dit *d, int64_t layer, int64_t sub, struct tensor dout,
                          int64_t param)
{
    struct tensor own = dit_rows(d, DIT_DNORMED, 0), part = dit_partial(d, own);
    struct comm_work *rows, *sum;
    dit_norm_again(d, layer, sub);
    struct tensor in = dit_gather_rows(d, dit_rows(d, DIT_NORMED, 0), DIT_NORMED_ALL, &rows);
    dit_linear_dx(d, dout, param, part, 0);
    sum = dit_sum_rows(d, part, own, (struct dit_slice){0, 1}, "gradient of a branch's input",
                       FAULT_POINT_SUM_INPUT);
    dit_rows_wait(d, rows);
    dit_linear_dw(d, dout, in, param);
    dit_rows_wait(d, sum);
}

/* Computes, from DIT_DBRANCH, the gradient DIT_DNORMED of the MLP's input. */
static void mlp_bwd(struct dit *d, int64_t layer, int64_t sub)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct comm_work *rows;
    struct tensor dout = dbranch_all(d, &rows), dhidden = dit_tokens(d, DIT_DMLP, 0),
                  act = dit_tokens(d, DIT_MLP_ACT, 0);
    struct tensor dact = d->mlp_act == OPS_ACT_SWIGLU ? dit_tokens(d, DIT_DMLP_ACT, 0) : dhidden;
    struct ops_act a = {
        .kind = d->mlp_act, .x = dit_tokens(d, DIT_MLP_PRE, layer), .y = act,
        .dy = dact, .dx = dhidden
    };
    dit_rows_wait(d, rows);
    dit_linear_dx(d, dout, p->fc2, dact, 0);
    d->o->act_bwd(d->o, d->stream, &a);
    dit_linear_dw(d, dout, act, p->fc2);
    branch_in_bwd(d, layer, sub, dhidden, p->fc1);
}

/* Does the backward of the head norm, in place in `dsrc`. */
static void headnorm_bwd(struct dit *d, struct tensor src, int64_t gain, struct tensor rstd,
                         bool positions, struct tensor dsrc)
{
    struct ops_headnorm h = dit_headnorm(d, src, tensor_none(), gain, rstd, positions);
    h.ddst = h.dsrc = dsrc;
    h.dgain = dit_grad(d, gain);
    h.beta = dit_beta(d, gain);
    d->o->headnorm_bwd(d->o, d->stream, &h);
}

static void cross_attention_bwd(struct dit *d, int64_t layer, int64_t sub)
{
    const struct dit_block_params *p = &d->p.blocks[layer];
    struct ops_attn a = dit_cross_attn(d, layer, true);
    struct comm_work *rows;
    struct tensor dout = dbranch_all(d, &rows),
                  dkv = dit_buffer(d, DIT_DCROSS_KV, 0, d->slot->now.text);
    struct tensor kv = dit_buffer(d, DIT_CROSS_KV, layer, d->slot->now.text);
    dit_cross_qk_again(d, layer);
    dit_rows_wait(d, rows);
    dit_linear_dw(d, dout, a.o, p->cross_out);
    dit_linear_dx(d, dout, p->cross_out, a.d_o, 0);
    d->o->attn_bwd(d->o, d->stream, &a);
    headnorm_bwd(d, dit_tokens(d, DIT_CROSS_Q, layer), p->cross_q_norm,
                 dit_tokens(d, DIT_CROSS_RSTD, 0), false, a.dq);
    headnorm_bwd(d, tensor_cols(kv, 0, d->kv_width), p->cross_k_norm,
                 dit_buffer(d, DIT_CROSS_K_RSTD, 0, d->slot->now.text), false, a.dk);
    branch_in_bwd(d, layer, sub, a.dq, p->cross_q);
    dit_linear_dw(d, dkv, dit_buffer(d, DIT_TEXT, 0, d->slot->now.text), p->cross_kv);
    /* Of the text only the null tokens are learned. They are the first rows, and their gradient is
     * summed over layers. */
    if (d->slot->now.null_rows > 0)
        dit_linear_dx(d, tensor_rows(dkv, 0, d->slot->now.null_rows), p->cross_kv,
                      dit_buffer(d, DIT_DNULL, 0, d->slot->now.null_rows), 1);
}

static void self_attention_bwd(struct dit *d, int64_t layer, int64_t sub)
{
    int64_t self = d->subs[sub].self;
    const struct dit_attn_params *p = &d->p.blocks[layer].self[self];
    int64_t H = d->heads, K = d->kv_heads;
    struct comm_work *rows;
    struct tensor dout = dbranch_all(d, &rows), dqkv = dit_tokens(d, DIT_DQKV, 0),
                  qkv = dit_copy(d, DIT_QKV, layer, self, d->slot->now.s);
    struct tensor rstd = dit_tokens(d, DIT_QK_RSTD, 0), dq = tensor_cols(dqkv, 0, d->q_width),
                  dk = tensor_cols(dqkv, d->q_width, d->kv_width);
    dit_qk_again(d, layer, self);
    dit_rows_wait(d, rows);
    dit_linear_dw(d, dout, dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s), p->out);
    dit_linear_dx(d, dout, p->out, dit_tokens(d, DIT_DATTN, 0), 0);
    dit_attention_bwd(d, layer, self);
    headnorm_bwd(d, tensor_cols(qkv, 0, d->q_width), p->q_norm, tensor_cols(rstd, 0, H), true, dq);
    headnorm_bwd(d, tensor_cols(qkv, d->q_width, d->kv_width), p->k_norm, tensor_cols(rstd, H, K),
                 true, dk);
    branch_in_bwd(d, layer, sub, dqkv, p->qkv);
}

static void sub_block_bwd(struct dit *d, int64_t layer, int64_t sub)
{
    switch (d->subs[sub].kind) {
    case DIT_SELF: self_attention_bwd(d, layer, sub); break;
    case DIT_CROSS: cross_attention_bwd(d, layer, sub); break;
    case DIT_MLP: mlp_bwd(d, layer, sub); break;
    }
}

void dit_block_bwd(struct dit *d, int64_t layer)
{
    for (int64_t sub = d->n_subs - 1; sub >= 0; sub--) {
        adaln_bwd(d, layer, sub);
        sub_block_bwd(d, layer, sub);
    }
    adaln_bwd(d, layer, -1);
    if (dit_has_cond(d))
        dit_mod_bwd(d, d->p.blocks[layer].units, d->p.blocks[layer].n_units,
                    dit_buffer(d, DIT_MOD_LOW, layer, d->slot->now.n),
                    dit_buffer(d, DIT_DMOD, 0, d->slot->now.n));
}
