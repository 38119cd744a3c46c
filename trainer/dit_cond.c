/* The conditioning of a sample and the modulation of every layer.
 *
 * Noise level: sinusoid z of c_noise, width D, then a two-layer MLP with SiLU. In the full and single forms its output, D wide, is the
 * conditioning vector; in the separate and fused LoRA forms it is u, 3D wide, and the vector is z itself. The frame rate's
 * embedding (sinusoid of width 256, MLP) is added to the first components. An RMS norm with gain gives e.
 *
 * Modulation of a layer: silu(e) Wᵀ, or silu(e) Aᵀ Bᵀ, plus u in every chunk of 3D (shift, scale, gate) where there is a
 * u; the final layer takes shift and scale, 2D. u is one tensor for all layers: its gradient is summed over layers and sub-blocks
 * and goes on into the MLP (the published code detaches it and trains none).
 */
#include "base/num.h"
#include "trainer/dit_priv.h"

static bool shared(const struct dit *d) { return model_shared_modulation(d->m); }

static struct tensor per_sample(const struct dit *d, enum dit_buffer id) { return dit_buffer(d, id, 0, d->now.n); }

static struct tensor layer_rows(const struct dit *d, enum dit_buffer id, int64_t layer)
{
    return dit_buffer(d, id, layer, d->now.n);
}

static struct tensor fps_columns(struct tensor t) { return tensor_cols(t, 0, num_min_i64(MODEL_FPS_WIDTH, t.cols)); }

static void two_layer_mlp(struct dit *d, enum dit_buffer in, int64_t w0, enum dit_buffer pre, enum dit_buffer act, int64_t w2,
                          struct tensor out, bool add)
{
    struct ops_act silu = {.kind = OPS_ACT_SILU, .x = per_sample(d, pre), .y = per_sample(d, act)};
    dit_linear(d, per_sample(d, in), w0, silu.x);
    d->o->act_fwd(d->o, d->stream, &silu);
    if (add)
        dit_linear_add(d, silu.y, w2, out);
    else
        dit_linear(d, silu.y, w2, out);
}

static void embed(struct dit *d)
{
    struct ops_sinusoid time = {d->device.c_noise, per_sample(d, DIT_TIME_SIN)};
    struct ops_sinusoid fps = {d->device.fps, per_sample(d, DIT_FPS_SIN)};
    struct tensor pre = per_sample(d, DIT_COND_PRE);
    d->o->sinusoid(d->o, d->stream, &time);
    d->o->sinusoid(d->o, d->stream, &fps);
    struct tensor time_out = shared(d) ? per_sample(d, DIT_SHARED) : pre;
    two_layer_mlp(d, DIT_TIME_SIN, d->p.time0, DIT_TIME_PRE, DIT_TIME_ACT, d->p.time2, time_out, false);
    if (shared(d))
        d->o->copy(d->o, d->stream, &(struct ops_copy){time.out, pre});
    two_layer_mlp(d, DIT_FPS_SIN, d->p.fps0, DIT_FPS_PRE, DIT_FPS_ACT, d->p.fps2, fps_columns(pre), true);
}

static struct ops_headnorm cond_norm(const struct dit *d)
{
    return (struct ops_headnorm){.src = per_sample(d, DIT_COND_PRE), .dst = per_sample(d, DIT_COND), .heads = 1,
                                 .head_dim = d->m->hidden, .gain = dit_weight(d, d->p.cond_norm),
                                 .rstd = per_sample(d, DIT_COND_RSTD), .eps = DIT_EPS};
}

static void mod_fwd(struct dit *d, const struct mod_unit *units, int64_t n_units, struct tensor low, struct tensor mod)
{
    struct tensor e = per_sample(d, DIT_COND_SILU);
    int64_t chunk = num_min_i64(3 * d->m->hidden, mod.cols);
    for (int64_t col = 0; shared(d) && col < mod.cols; col += chunk) {
        struct tensor u = tensor_cols(per_sample(d, DIT_SHARED), 0, chunk);
        d->o->copy(d->o, d->stream, &(struct ops_copy){u, tensor_cols(mod, col, chunk)});
    }
    for (int64_t i = 0; i < n_units; i++) {
        const struct mod_unit *unit = &units[i];
        struct tensor in = e, out = tensor_cols(mod, unit->col, unit->width);
        if (unit->a >= 0) {
            in = tensor_cols(low, unit->low, unit->rank);
            dit_linear(d, e, unit->a, in);
        }
        if (shared(d))
            dit_linear_add(d, in, unit->w, out);
        else
            dit_linear(d, in, unit->w, out);
    }
}

void dit_cond_fwd(struct dit *d)
{
    if (!dit_has_cond(d))
        return;
    struct ops_headnorm norm = cond_norm(d);
    struct ops_act silu = {.kind = OPS_ACT_SILU, .x = norm.dst, .y = per_sample(d, DIT_COND_SILU)};
    embed(d);
    d->o->headnorm_fwd(d->o, d->stream, &norm);
    d->o->act_fwd(d->o, d->stream, &silu);
    for (int64_t l = 0; l < d->m->layers; l++)
        mod_fwd(d, d->p.blocks[l].units, d->p.blocks[l].n_units, layer_rows(d, DIT_MOD_LOW, l), layer_rows(d, DIT_MOD, l));
    mod_fwd(d, &d->p.final_unit, 1, per_sample(d, DIT_FINAL_LOW), per_sample(d, DIT_FINAL_MOD));
}

/* ---- backward ---- */

static void zero(struct dit *d, enum dit_buffer id)
{
    struct tensor t = per_sample(d, id);
    d->dev->zero(d->dev, t.ptr, t.rows * t.cols * dtype_bytes(t.dtype), d->stream);
}

/* Sums over layers start from nothing. */
void dit_cond_bwd_start(struct dit *d)
{
    if (!dit_has_cond(d))
        return;
    zero(d, DIT_DCOND_SILU);
    if (shared(d))
        zero(d, DIT_DSHARED);
}

void dit_mod_bwd(struct dit *d, const struct mod_unit *units, int64_t n_units, struct tensor low, struct tensor dmod)
{
    struct tensor e = per_sample(d, DIT_COND_SILU), de = per_sample(d, DIT_DCOND_SILU);
    int64_t chunk = num_min_i64(3 * d->m->hidden, dmod.cols);
    for (int64_t col = 0; shared(d) && col < dmod.cols; col += chunk) {
        struct tensor du = tensor_cols(per_sample(d, DIT_DSHARED), 0, chunk);
        d->o->axpy(d->o, d->stream, &(struct ops_axpy){tensor_cols(dmod, col, chunk), du, 1});
    }
    for (int64_t i = 0; i < n_units; i++) {
        const struct mod_unit *unit = &units[i];
        struct tensor dout = tensor_cols(dmod, unit->col, unit->width);
        if (unit->a < 0) {
            dit_linear_dw(d, dout, e, unit->w);
            dit_linear_dx(d, dout, unit->w, de, 1);
            continue;
        }
        struct tensor dlow = tensor_cols(per_sample(d, DIT_DLOW), unit->low, unit->rank);
        dit_linear_dw(d, dout, tensor_cols(low, unit->low, unit->rank), unit->w);
        dit_linear_dx(d, dout, unit->w, dlow, 0);
        dit_linear_dw(d, dlow, e, unit->a);
        dit_linear_dx(d, dlow, unit->a, de, 1);
    }
}

static void two_layer_mlp_bwd(struct dit *d, struct tensor dout, int64_t w2, enum dit_buffer act, enum dit_buffer pre,
                              enum dit_buffer dhidden, int64_t w0, enum dit_buffer in)
{
    struct tensor dh = per_sample(d, dhidden);
    struct ops_act silu = {.kind = OPS_ACT_SILU, .x = per_sample(d, pre), .dy = dh, .dx = dh};
    dit_linear_dw(d, dout, per_sample(d, act), w2);
    dit_linear_dx(d, dout, w2, dh, 0);
    d->o->act_bwd(d->o, d->stream, &silu);
    dit_linear_dw(d, dh, per_sample(d, in), w0);
}

void dit_cond_bwd(struct dit *d)
{
    if (!dit_has_cond(d))
        return;
    struct ops_headnorm norm = cond_norm(d);
    struct ops_act silu = {.kind = OPS_ACT_SILU, .x = norm.dst, .dy = per_sample(d, DIT_DCOND_SILU), .dx = per_sample(d, DIT_DCOND)};
    d->o->act_bwd(d->o, d->stream, &silu);
    norm.ddst = silu.dx;
    norm.dsrc = per_sample(d, DIT_DCOND_PRE);
    norm.dgain = dit_grad(d, d->p.cond_norm);
    norm.beta = d->beta;
    d->o->headnorm_bwd(d->o, d->stream, &norm);
    two_layer_mlp_bwd(d, fps_columns(norm.dsrc), d->p.fps2, DIT_FPS_ACT, DIT_FPS_PRE, DIT_DFPS, d->p.fps0, DIT_FPS_SIN);
    two_layer_mlp_bwd(d, shared(d) ? per_sample(d, DIT_DSHARED) : norm.dsrc, d->p.time2, DIT_TIME_ACT, DIT_TIME_PRE, DIT_DTIME,
                      d->p.time0, DIT_TIME_SIN);
}
