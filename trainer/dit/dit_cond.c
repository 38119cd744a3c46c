/* Computes the conditioning of a sample and the modulation of every layer.
 *
 * Noise level: a sinusoid z of c_noise, of width D, goes through a two-layer MLP with SiLU. In the
 * full and single forms the MLP's output, of width D, is the conditioning vector. In the separate
 * and fused LoRA forms the output is u, of width 3D, and the vector is z itself. The embedding of
 * the frame rate (a sinusoid of the frames per second, of width 256, and an MLP with SiLU) is added
 * to the first components of the vector. An RMS norm with gain gives e.
 *
 * Modulation of a layer: silu(e) Wᵀ, or silu(e) Aᵀ Bᵀ. If there is a u, it is added to every 3D
 * columns (shift, scale, gate). The final layer has shift and scale, 2D columns, and uses the first
 * 2D of u. u is one tensor for all layers: its gradient is summed over layers and sub-blocks and
 * goes on into the MLP (the published code detaches it and does not train that).
 *
 * Over tp ranks the last matrix of each modulation is cut by rows: a rank computes its columns, and
 * all columns are gathered. In backward a rank uses its columns of the modulation's gradient; with
 * sequence parallelism these come from the sum over ranks, because each rank saw only its own
 * tokens. The gradients of e and u that follow from them are partial sums. They are summed once,
 * before the embedding's backward, which all tp ranks do alike.
 */
#include "base/num.h"
#include "trainer/dit/dit_priv.h"
#include "trainer/state/fault.h"

static bool shared(const struct dit *d) { return model_shared_modulation(d->m); }

static struct tensor per_sample(const struct dit *d, enum dit_buffer id)
{
    return dit_buffer(d, id, 0, d->slot->now.n);
}

static struct tensor layer_rows(const struct dit *d, enum dit_buffer id, int64_t layer)
{
    return dit_buffer(d, id, layer, d->slot->now.n);
}

static struct tensor fps_columns(struct tensor t)
{
    return tensor_cols(t, 0, num_min_i64(MODEL_FPS_WIDTH, t.cols));
}

static void two_layer_mlp(struct dit *d, enum dit_buffer in, int64_t w0, enum dit_buffer pre,
                          enum dit_buffer act, int64_t w2, struct tensor out, bool add)
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
    struct ops_sinusoid time = {d->slot->device.c_noise, per_sample(d, DIT_TIME_SIN)};
    struct ops_sinusoid fps = {d->slot->device.fps, per_sample(d, DIT_FPS_SIN)};
    struct tensor pre = per_sample(d, DIT_COND_PRE);
    d->o->sinusoid(d->o, d->stream, &time);
    d->o->sinusoid(d->o, d->stream, &fps);
    struct tensor time_out = shared(d) ? per_sample(d, DIT_SHARED) : pre;
    two_layer_mlp(d, DIT_TIME_SIN, d->p.time0, DIT_TIME_PRE, DIT_TIME_ACT, d->p.time2, time_out,
                  false);
    if (shared(d))
        d->o->copy(d->o, d->stream, &(struct ops_copy){time.out, pre});
    two_layer_mlp(d, DIT_FPS_SIN, d->p.fps0, DIT_FPS_PRE, DIT_FPS_ACT, d->p.fps2, fps_columns(pre),
                  true);
}

static struct ops_headnorm cond_norm(const struct dit *d)
{
    return (struct ops_headnorm){
        .src = per_sample(d, DIT_COND_PRE), .dst = per_sample(d, DIT_COND),
        .heads = 1, .head_dim = d->m->hidden, .gain = dit_weight(d, d->p.cond_norm),
        .rstd = per_sample(d, DIT_COND_RSTD), .eps = DIT_EPS
    };
}

/* Copies u into every 3D columns of the modulation, or adds it there. */
static void shared_fwd(struct dit *d, struct tensor mod, bool add)
{
    int64_t part = num_min_i64(3 * d->m->hidden, mod.cols);
    struct tensor u = tensor_cols(per_sample(d, DIT_SHARED), 0, part);
    for (int64_t col = 0; shared(d) && col < mod.cols; col += part) {
        struct tensor to = tensor_cols(mod, col, part);
        if (add)
            d->o->axpy(d->o, d->stream, &(struct ops_axpy){u, to, 1});
        else
            d->o->copy(d->o, d->stream, &(struct ops_copy){u, to});
    }
}

static void mod_fwd(struct dit *d, const struct mod_unit *units, int64_t n_units, struct tensor low,
                    struct tensor mod)
{
    struct tensor e = per_sample(d, DIT_COND_SILU), own = per_sample(d, DIT_MOD_OWN);
    bool cut = d->c.layout->tp > 1;
    int64_t at = 0;
    if (!cut)
        shared_fwd(d, mod, false);
    for (int64_t i = 0; i < n_units; at += dit_mod_width(d, &units[i]), i++) {
        const struct mod_unit *unit = &units[i];
        struct tensor in = e, out = cut ? tensor_cols(own, at, dit_mod_width(d, unit))
                                        : tensor_cols(mod, unit->col, unit->width);
        if (unit->a >= 0) {
            in = tensor_cols(low, unit->low, unit->rank);
            dit_linear(d, e, unit->a, in);
        }
        if (shared(d) && !cut)
            dit_linear_add(d, in, unit->w, out);
        else
            dit_linear(d, in, unit->w, out);
    }
    if (cut) {
        dit_mod_gather(d, mod, units, n_units);
        shared_fwd(d, mod, true);
    }
}

void dit_mod_fwd(struct dit *d, int64_t layer)
{
    if (dit_has_cond(d))
        mod_fwd(d, d->p.blocks[layer].units, d->p.blocks[layer].n_units,
                layer_rows(d, DIT_MOD_LOW, layer), layer_rows(d, DIT_MOD, layer));
}

void dit_final_mod_fwd(struct dit *d)
{
    if (dit_has_cond(d))
        mod_fwd(d, &d->p.final_unit, 1, per_sample(d, DIT_FINAL_LOW), per_sample(d, DIT_FINAL_MOD));
}

void dit_cond_fwd(struct dit *d)
{
    d->o->layer = PARAM_LAYER_COND;
    if (!dit_has_cond(d))
        return;
    struct ops_headnorm norm = cond_norm(d);
    struct ops_act silu = {.kind = OPS_ACT_SILU, .x = norm.dst, .y = per_sample(d, DIT_COND_SILU)};
    embed(d);
    d->o->headnorm_fwd(d->o, d->stream, &norm);
    d->o->act_fwd(d->o, d->stream, &silu);
}

/* ---- backward ---- */

static void zero(struct dit *d, enum dit_buffer id)
{
    struct tensor t = per_sample(d, id);
    d->dev->fill(d->dev, t.ptr, 0, t.rows * t.cols * dtype_bytes(t.dtype), d->stream);
}

/* Clears the gradients that are summed over layers. */
void dit_cond_bwd_start(struct dit *d)
{
    if (d->p.text_null >= 0)
        zero(d, DIT_DNULL);
    if (!dit_has_cond(d))
        return;
    zero(d, DIT_DCOND_SILU);
    if (shared(d))
        zero(d, DIT_DSHARED);
}

/* Adds columns first .. first+n-1 of the modulation's gradient, which are in `own`, to the gradient
 * of u, which is repeated over the columns. */
static void shared_bwd(struct dit *d, struct tensor own, int64_t first)
{
    int64_t period = 3 * d->m->hidden;
    for (int64_t done = 0, n; shared(d) && done < own.cols; done += n) {
        int64_t col = (first + done) % period;
        n = num_min_i64(own.cols - done, period - col);
        struct tensor du = tensor_cols(per_sample(d, DIT_DSHARED), col, n);
        d->o->axpy(d->o, d->stream, &(struct ops_axpy){tensor_cols(own, done, n), du, 1});
    }
}

void dit_mod_bwd(struct dit *d, const struct mod_unit *units, int64_t n_units, struct tensor low,
                 struct tensor dmod)
{
    struct tensor e = per_sample(d, DIT_COND_SILU), de = per_sample(d, DIT_DCOND_SILU),
                  own = dit_dmod_own(d, dmod, units, n_units);
    for (int64_t i = 0, at = 0; i < n_units; at += dit_mod_width(d, &units[i]), i++) {
        const struct mod_unit *unit = &units[i];
        int64_t width = dit_mod_width(d, unit);
        struct tensor dout = tensor_cols(own, at, width);
        shared_bwd(d, dout, unit->col + d->place.tp * width);
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

static void two_layer_mlp_bwd(struct dit *d, struct tensor dout, int64_t w2, enum dit_buffer act,
                              enum dit_buffer pre, enum dit_buffer dhidden, int64_t w0,
                              enum dit_buffer in)
{
    struct tensor dh = per_sample(d, dhidden);
    struct ops_act silu = {.kind = OPS_ACT_SILU, .x = per_sample(d, pre), .dy = dh, .dx = dh};
    dit_linear_dw(d, dout, per_sample(d, act), w2);
    dit_linear_dx(d, dout, w2, dh, 0);
    d->o->act_bwd(d->o, d->stream, &silu);
    dit_linear_dw(d, dh, per_sample(d, in), w0);
}

/* Computes the null token's gradient, a sum over layers and samples. It is a sum of no rows when
 * the batch has no null token. */
static void null_bwd(struct dit *d)
{
    struct tensor rows = dit_buffer(d, DIT_DNULL, 0, d->slot->now.null_rows);
    if (d->p.text_null >= 0 && dit_trained(d, d->p.text_null))
        d->o->colsum(d->o, d->stream, &(struct ops_colsum){
            rows, dit_grad(d, d->p.text_null), dit_beta(d, d->p.text_null)
        });
}

void dit_cond_bwd(struct dit *d)
{
    null_bwd(d);
    if (!dit_has_cond(d))
        return;
    dit_sum_tp(d, per_sample(d, DIT_DCOND_SILU), "gradient of the conditioning",
               FAULT_POINT_SUM_COND);
    if (shared(d))
        dit_sum_tp(d, per_sample(d, DIT_DSHARED), "gradient of the shared modulation",
                   FAULT_POINT_SUM_SHARED);
    struct ops_headnorm norm = cond_norm(d);
    struct ops_act silu = {
        .kind = OPS_ACT_SILU, .x = norm.dst,
        .dy = per_sample(d, DIT_DCOND_SILU), .dx = per_sample(d, DIT_DCOND)
    };
    d->o->act_bwd(d->o, d->stream, &silu);
    norm.ddst = silu.dx;
    norm.dsrc = per_sample(d, DIT_DCOND_PRE);
    norm.dgain = dit_grad(d, d->p.cond_norm);
    norm.beta = dit_beta(d, d->p.cond_norm);
    d->o->headnorm_bwd(d->o, d->stream, &norm);
    two_layer_mlp_bwd(d, fps_columns(norm.dsrc), d->p.fps2, DIT_FPS_ACT, DIT_FPS_PRE, DIT_DFPS,
                      d->p.fps0, DIT_FPS_SIN);
    two_layer_mlp_bwd(d, shared(d) ? per_sample(d, DIT_DSHARED) : norm.dsrc, d->p.time2,
                      DIT_TIME_ACT, DIT_TIME_PRE, DIT_DTIME, d->p.time0, DIT_TIME_SIN);
}
