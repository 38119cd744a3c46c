/* This is the account (work.h) of reel's own trainer. Its operations and their order are those of
 * trainer/dit; the messages are those of the table at the top of traffic.c, in closed form. The
 * letters mean:
 *
 *     n  samples of a micro-batch      T  tokens of this cp rank      R  its rows: T, with sp T / t
 *     t, c  tp, cp ranks      a  ranks of an all-to-all group, b = c / a groups in the ring
 *     u  tokens of such a group, a T      x  caption tokens
 *     D hidden, d head dim; H, K, F heads, k/v heads and ffn of this tp rank; h, k after the
 *     exchange
 *     w, z, f  bytes of an activation, of the residual stream, of a statistic or gradient
 *     S self-attentions, B sub-blocks of a layer, A of them modulated; r adaln_rank
 *
 * Products of a layer, forward [rows, columns, depth]:
 *
 *     qkv [T, (H + 2K) d, D]    out [T, D, H d]                       each self-attention
 *     q [T, H d, D]    kv [x, 2 K d, text_width]    out [T, D, H d]   cross-attention
 *     fc1 [T, F or 2F, D]    fc2 [T, D, F]
 *     modulation [n, 3 A D / t, D], or by low rank [n, r, D] and [n, 3 A D / t, r]
 *
 * Backward has two of each: the input's gradient [rows, depth, columns] and the weight's [columns,
 * depth, rows]; text has no gradient. A product whose result is summed over tp is computed in
 * slices, and with sp a product of gathered rows begins with the rank's own rows.
 *
 * Elementwise bytes, read and written, each counted once for an operation:
 *
 *     forward    gate, residual and norm  B (2 z + 2 w) R D
 *                norms and turns of heads S (2 w (H + K) d + 2 f d) T, cross 2 w (T H + x K) d
 *                gated activation         3 F w T
 *     backward   norms computed again     B (z + w) R D, those of heads as in forward
 *                gate, residual and norm  ((3 B + 1) z + 3 B w) R D, without AdaLN 2 B w
 *                norms and turns of heads S (3 w (H + K) d + 2 f d) T, cross 3 w (T H + x K) d
 *                activation               4 F w T, gated 6 F w T
 *     a chunk    its first norm (z + w) R D. Without the head its last output is not normed, which
 *                saves w R D.
 *                The gradient for the chunk before is copied, 2 z R D
 *     the head   norm again, clearing, norm  (5 z + 2 w) R D
 *     tables     forward 6 z R D, backward 3 z R D
 *
 * and the copies of context parallelism: each exchange packs and unpacks, 4 w for each number, and
 * a ring copies keys and merges outputs. Full recomputation does without the layer's last residual
 * and its norm, whose output is the next layer's input. What is counted for a sample and not for a
 * token, such as modulations, is small.
 */
#include "profiles/work_reel.h"

#include "base/num.h"
#include "profiles/schedule.h"
#include "profiles/work_priv.h"

struct reel {
    const struct work_spec *spec;
    const struct model *m;
    const struct layout *l;
    struct work *w;
    double n, T, R, t, c, a, b, x, D, d, H, K, F, h, k, S, B, A;
    double act, stream, stat; /* w, z, f */
    double slices;
    double mod;  /* 3 A D: columns of a layer's modulation */
    double cond, shared;
};

static struct reel reel_of(const struct work_spec *spec, const struct layout *l, struct work *w)
{
    const struct model *m = spec->model;
    struct reel r = {.spec = spec, .m = m, .l = l, .w = w};
    int64_t a = layout_a2a_group(l, m), tokens = seq_tokens(spec->seq);
    r.n = (double)l->mbs, r.t = (double)l->tp, r.c = (double)l->cp;
    r.a = (double)a, r.b = r.c / r.a;
    r.T = r.n * (double)num_ceil_div(tokens, l->cp);
    r.R = l->sp ? (double)num_ceil_div((int64_t)r.T, l->tp) : r.T;
    r.x = model_has_cross(m) ? r.n * (double)(spec->text ? spec->text : m->text_len) : 0;
    r.D = (double)m->hidden, r.d = (double)model_head_dim(m);
    r.H = (double)(m->heads / l->tp), r.K = (double)num_max_i64(1, m->kv_heads / l->tp);
    r.F = (double)(m->ffn / l->tp);
    r.h = r.H / r.a, r.k = (double)num_max_i64(1, (int64_t)r.K / a);
    r.S = (double)model_self_attentions(m), r.A = (double)model_modulations(m);
    r.B = r.S + model_has_cross(m) + 1;
    r.act = (double)dtype_bytes(spec->act), r.stat = (double)dtype_bytes(dtype_stat(spec->act));
    r.stream = spec->residual_wide ? r.stat : r.act;
    r.slices = (double)layout_tp_slices(l, (int64_t)r.T);
    r.cond = m->adaln != ADALN_NONE, r.shared = r.cond && model_shared_modulation(m);
    r.mod = r.cond * 3 * r.A * r.D;
    return r;
}

/* ---- products ---- */

/* Adds a product and, to `back`, the products of its gradients. dx: its input has a gradient. */
static void product(struct work_part *f, struct work_part *back, double m, double n, double k,
                    double count, bool dx)
{
    work_gemm_add(f, m, n, k, count);
    if (!back)
        return;
    work_gemm_add(back, n, k, m, count);
    if (dx)
        work_gemm_add(back, m, k, n, count);
}

/* Adds a product of gathered rows: with sp, the rank's own rows are computed first. */
static void rows_product(const struct reel *r, struct work_part *f, struct work_part *back,
                         double n, double k, double count)
{
    if (!r->l->sp) {
        product(f, back, r->T, n, k, count, true);
        return;
    }
    work_gemm_add(f, r->R, n, k, count);
    work_gemm_add(f, r->T - r->R, n, k, count);
    if (back) {
        work_gemm_add(back, n, k, r->T, count);
        work_gemm_add(back, r->T, k, n, count);
    }
}

/* Adds a product whose result is summed over tp. */
static void sum_product(const struct reel *r, struct work_part *f, struct work_part *back,
                        double n, double k, double count)
{
    double parts = r->slices * (r->l->sp ? r->t : 1);
    work_gemm_add(f, r->T / parts, n, k, count * parts);
    if (back) {
        work_gemm_add(back, n, k, r->T, count);
        work_gemm_add(back, r->T, k, n, count);
    }
}

/* Adds the products that compute `width` columns of a modulation. */
static void mod_products(const struct reel *r, struct work_part *f, struct work_part *back,
                         double width, double units)
{
    double rank = (double)r->m->adaln_rank, own = width / r->t;
    if (!r->cond)
        return;
    if (r->m->adaln == ADALN_FULL) {
        product(f, back, r->n, own, r->D, 1, true);
        return;
    }
    if (r->m->adaln == ADALN_LORA_FUSED && units > 1)
        rank *= units, units = 1;
    if (r->m->adaln == ADALN_LORA_SINGLE)
        units = 1;
    product(f, back, r->n, rank, r->D, units, true);
    product(f, back, r->n, own / units, rank, units, true);
}

/* Adds the products of a layer; part: only those that selective recomputation repeats. */
static void layer_products(const struct reel *r, struct work_part *f, struct work_part *back,
                           bool part)
{
    double Hd = r->H * r->d, Kd = r->K * r->d;
    if (!part)
        rows_product(r, f, back, Hd + 2 * Kd, r->D, r->S);
    sum_product(r, f, back, r->D, Hd, r->S);
    if (r->x > 0) {
        rows_product(r, f, back, Hd, r->D, 1);
        product(f, back, r->x, 2 * Kd, (double)r->m->text_width, 1, false);
        sum_product(r, f, back, r->D, Hd, 1);
    }
    rows_product(r, f, back, (r->m->gated_mlp ? 2 : 1) * r->F, r->D, 1);
    sum_product(r, f, back, r->D, r->F, 1);
}

/* ---- attention ---- */

static void attend(struct work_part *p, double q, double k, double heads, double dim, double count,
                   bool back)
{
    work_attention_add(p, (struct work_attention){.q = q, .k = k, .heads = heads, .dim = dim,
                                                  .pairs = q * k, .count = count,
                                                  .backward = back});
}

static void layer_attentions(const struct reel *r, struct work_part *p, bool back)
{
    const struct seq *e = &r->spec->seq;
    double frame = (double)(e->h * e->w), frames = (double)e->t, u = r->a * r->T / r->n;
    if (r->S > 1) {
        attend(p, frame, frame, r->n * frames / r->c * r->H, r->d, 1, back);
        attend(p, frames, frames, r->n * frame / r->c * r->H, r->d, 1, back);
    }
    attend(p, u, (double)seq_tokens(*e) / r->b, r->n * r->h, r->d, r->b, back);
    p->attentions[p->n_attentions - 1].one_pass = back && r->b > 1 && r->act < r->stat;
    if (r->x > 0)
        attend(p, r->T / r->n, r->x / r->n, r->n * r->H, r->d, 1, back);
}

/* ---- elementwise ---- */

/* Returns the bytes of two calls, one for queries and one for keys, that each read or write
 * `tensors` arrays of their size. In self-attention both read cosines and sines too. */
static double head_norm_bytes(const struct reel *r, double tensors)
{
    double turned = model_has_tables(r->m) ? 0 : 2 * r->stat * r->d;
    double own = r->S * r->T * (tensors * r->act * (r->H + r->K) * r->d + turned);
    return own + (r->x > 0 ? tensors * r->act * (r->T * r->H + r->x * r->K) * r->d : 0);
}

/* Returns the bytes that the exchange of heads copies. Gradients of keys that several ranks hold
 * are added into a cleared buffer. */
static double heads_bytes(const struct reel *r, bool back)
{
    double kv = r->T * 2 * r->k * r->a * r->d, o = r->T * r->H * r->d, qkv = o + kv;
    if (r->a == 1)
        return 0;
    if (!back)
        return 4 * r->act * (qkv + o);
    return 4 * r->act * (2 * qkv + 2 * o) + r->act * (kv + r->T * (r->H + 2 * r->K) * r->d);
}

/* Returns the bytes that moving tokens into segments and back copies. One rank orders its tokens in
 * place of packing and unpacking them, and its frames are in order. */
static double segments_bytes(const struct reel *r, bool back)
{
    double qkv = r->T * (r->H + 2 * r->K) * r->d, o = r->T * r->H * r->d,
           moves = r->c > 1 ? 2 * (r->S - 1) : r->S > 1;
    return moves * 2 * r->act * (back ? 2 * qkv + 2 * o : qkv + o);
}

/* Returns the bytes of the ring's copies and sums. */
static double ring_bytes(const struct reel *r, bool back)
{
    double u = r->a * r->T, kv = u * 2 * r->k * r->d, o = u * r->h * r->d,
           narrowed = r->act < r->stat ? (r->act + r->stat) * o : 0; /* o or dq, summed in f */
    if (r->b == 1)
        return 0;
    return 2 * r->act * kv + narrowed +
           (back ? (r->b - 1) * 3 * r->stat * kv + (r->act + r->stat) * kv
                 : (r->b - 1) * 3 * r->stat * o);
}

/* Returns the bytes that exchanges copy, and sums of a ring's gradients. Merging the outputs of a
 * ring computes, so its bytes are left out. */
static double copied_bytes(const struct reel *r, bool back)
{
    double o = r->a * r->T * r->h * r->d, merged = back ? 0 : (r->b - 1) * 3 * r->stat * o;
    return heads_bytes(r, back) + segments_bytes(r, back) + ring_bytes(r, back) - merged;
}

/* Returns the bytes of copying `width` columns of a modulation between tp ranks, and of adding the
 * part that all layers share. */
static double mod_bytes(const struct reel *r, double width, bool back)
{
    double numbers = r->n * width, cut = r->t > 1;
    if (back)
        return r->stat * numbers * (cut * 2 / (r->l->sp ? 1 : r->t) + r->shared * 3 / r->t);
    return r->act * numbers * (cut * (2 + 2 / r->t) + r->shared * (cut ? 3 : 2));
}

static double layer_bytes(const struct reel *r)
{
    double gated = r->m->gated_mlp ? 3 * r->F * r->act * r->T : 0;
    return r->B * (2 * r->stream + 2 * r->act) * r->R * r->D + head_norm_bytes(r, 2) + gated +
           heads_bytes(r, false) + segments_bytes(r, false) + ring_bytes(r, false);
}

static double layer_back_bytes(const struct reel *r)
{
    double norms = r->B * (r->stream + r->act) + (3 * r->B + 1) * r->stream +
                   (2 + r->cond) * r->B * r->act;
    return norms * r->R * r->D + head_norm_bytes(r, 2) + head_norm_bytes(r, 3) +
           (r->m->gated_mlp ? 6 : 4) * r->F * r->act * r->T + heads_bytes(r, true) +
           segments_bytes(r, true) + ring_bytes(r, true);
}

/* ---- messages ---- */

/* Adds the sum of statistics over tp. */
static void stat_sum(const struct reel *r, struct work_part *p, double numbers)
{
    work_message_add(p, TRAFFIC_TP, TRAFFIC_ALL_REDUCE, HIDE_NOTHING,
                     2 * (r->t - 1) / r->t * numbers * r->stat, 1);
}

/* Adds the exchange of `width` columns of a modulation, or of their gradients. */
static void mod_messages(const struct reel *r, struct work_part *f, struct work_part *back,
                         double width)
{
    double numbers = r->n * width / r->t * (r->t - 1);
    if (!r->cond)
        return;
    work_message_add(f, TRAFFIC_TP, TRAFFIC_ALL_GATHER, HIDE_NOTHING, numbers * r->act, 1);
    if (r->l->sp)
        work_message_add(back, TRAFFIC_TP, TRAFFIC_REDUCE_SCATTER, HIDE_NOTHING, numbers * r->stat,
                         1);
}

static void rows_gather(const struct reel *r, struct work_part *p, double count)
{
    if (r->l->sp)
        work_message_add(p, TRAFFIC_TP, TRAFFIC_ALL_GATHER, HIDE_NOTHING,
                         r->R * r->D * (r->t - 1) * r->act, count);
}

/* Adds `count` sums of all tokens' rows over tp, each in `slices` slices. */
static void rows_sum(const struct reel *r, struct work_part *p, double slices, double count)
{
    double part = (r->t - 1) / r->t * r->T / slices * r->D * r->act;
    work_message_add(p, TRAFFIC_TP, r->l->sp ? TRAFFIC_REDUCE_SCATTER : TRAFFIC_ALL_REDUCE,
                     HIDE_NOTHING, (r->l->sp ? 1 : 2) * part, count * slices);
}

static void heads_messages(const struct reel *r, struct work_part *p, bool back)
{
    double row = r->T * (r->a - 1) * r->d * r->act;
    work_message_add(p, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, row * (r->h + 2 * r->k),
                     back ? 2 : 1);
    work_message_add(p, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, row * r->h, back ? 2 : 1);
}

static void ring_messages(const struct reel *r, struct work_part *p, bool back)
{
    double kv = r->a * r->T * 2 * r->k * r->d;
    if (r->b == 1)
        return;
    work_message_add(p, TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION, kv * r->act, r->b - 1);
    if (back)
        work_message_add(p, TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION, kv * r->stat, r->b);
}

/* Adds the exchange of segments for spatial or for temporal attention. */
static void segment_messages(const struct reel *r, struct work_part *p, bool spatial, bool back)
{
    struct traffic_dealt deal = traffic_dealt(r->spec->seq, r->l->cp, 0, 0, spatial);
    double leave = r->T - r->n * (double)deal.own, come = r->n * (double)(deal.all - deal.own),
           qkv = (r->H + 2 * r->K) * r->d * r->act, o = r->H * r->d * r->act;
    if (r->S == 1 || r->c == 1)
        return;
    work_message_add(p, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, leave * qkv, 1);
    if (back) {
        work_message_add(p, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, leave * 2 * o, 1);
        work_message_add(p, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, come * qkv, 1);
    } else {
        work_message_add(p, TRAFFIC_CP, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, come * o, 1);
    }
}

static void attention_messages(const struct reel *r, struct work_part *p, bool back)
{
    segment_messages(r, p, true, back);
    segment_messages(r, p, false, back);
    heads_messages(r, p, back);
    ring_messages(r, p, back);
}

/* ---- parts ---- */

static void layer_parts(const struct reel *r)
{
    struct work_part *f = &r->w->parts[WORK_LAYER_FORWARD],
                     *back = &r->w->parts[WORK_LAYER_BACKWARD],
                     *part = &r->w->parts[WORK_LAYER_SELECTIVE],
                     *full = &r->w->parts[WORK_LAYER_FULL];
    layer_products(r, f, back, false);
    layer_attentions(r, f, false), layer_attentions(r, back, true);
    f->bytes = layer_bytes(r), back->bytes = layer_back_bytes(r);
    f->copied = copied_bytes(r, false), back->copied = copied_bytes(r, true);
    rows_gather(r, f, r->B), rows_gather(r, back, 2 * r->B);
    rows_sum(r, f, r->slices, r->B), rows_sum(r, back, 1, r->B);
    attention_messages(r, f, false), attention_messages(r, back, true);
    *full = *f; /* without the modulation and the layer's output, which are kept */
    full->bytes -= (r->stream + r->act) * r->R * r->D;
    mod_products(r, f, back, r->mod, r->A);
    mod_messages(r, f, back, r->mod);
    f->bytes += mod_bytes(r, r->mod, false), back->bytes += mod_bytes(r, r->mod, true);
    layer_products(r, part, NULL, true);
    part->bytes = (r->B - 1) * (2 * r->stream + 2 * r->act) * r->R * r->D +
                  (r->m->gated_mlp ? 3 * r->F * r->act * r->T : 0);
    rows_gather(r, part, r->B - r->S), rows_sum(r, part, r->slices, r->B);
}

/* Adds the first and the last part: patch embedding, head and loss. */
static void ends_parts(const struct reel *r)
{
    struct work_part *p = r->w->parts;
    double P = (double)model_patch_cells(r->m), C = (double)r->m->latent_channels,
           in = (C + (double)r->m->cond_channels) * P, out = C * P, norm = r->R * r->D,
           tables = model_has_tables(r->m) ? 3 * norm : 0, final = r->cond * 2 * r->D,
           boundary = r->l->pp > 1 ? 2 * norm * r->stream : 0;
    product(&p[WORK_FIRST_FORWARD], NULL, r->R, r->D, in, 1, false);
    work_gemm_add(&p[WORK_FIRST_BACKWARD], r->D, in, r->R, 1);
    p[WORK_FIRST_FORWARD].input_bytes = r->R * in * (2 * r->stat + r->act);
    p[WORK_FIRST_FORWARD].bytes = tables * 2 * r->stream;
    /* no gradient leaves the first chunk, though each_parts() counts one for every chunk */
    p[WORK_FIRST_BACKWARD].bytes = tables * r->stream - boundary;
    product(&p[WORK_LAST_FORWARD], &p[WORK_LAST_BACKWARD], r->R, out, r->D, 1, true);
    mod_products(r, &p[WORK_LAST_FORWARD], &p[WORK_LAST_BACKWARD], final, 1);
    mod_messages(r, &p[WORK_LAST_FORWARD], &p[WORK_LAST_BACKWARD], final);
    p[WORK_LAST_FORWARD].input_bytes = r->R * out * (2 * r->stat + 2 * r->act);
    p[WORK_LAST_FORWARD].inputs[INPUT_LOSS] = r->R * out;
    p[WORK_LAST_FORWARD].bytes = norm * r->act + mod_bytes(r, final, false);
    p[WORK_LAST_BACKWARD].bytes = norm * (5 * r->stream + 2 * r->act) + mod_bytes(r, final, true);
}

/* Returns the bytes of a chunk besides its layers and its conditioning, forward: its samples are
 * copied, and its first layer's input is normed. (The norm's write is left out
 * here, because a chunk without the head leaves out its last norm.) */
static double chunk_bytes(const struct reel *r)
{
    double P = (double)model_patch_cells(r->m),
           latents = (double)(r->m->latent_channels + r->m->cond_channels) * P *
                     (double)seq_tokens(r->spec->seq),
           text = r->x * (double)r->m->text_width, f32 = (double)dtype_bytes(DTYPE_F32);
    double rounded = r->act == f32 ? 0 : f32 + r->act;
    return 2 * r->n * latents * f32 + text * (2 * f32 + rounded) + r->R * r->D * r->stream;
}

/* Sets the bytes of the conditioning. */
static void cond_bytes(const struct reel *r, struct work_part *f, struct work_part *back)
{
    double D = r->n * r->D, fps = r->n * MODEL_FPS_WIDTH, three = r->act + 2 * r->stat;
    f->bytes += 2 * r->act * ((3 + r->shared) * D + fps);
    back->bytes += three * (3 * D + fps) + r->stat * D * (1 + 3 * r->shared);
}

static void each_parts(const struct reel *r)
{
    struct work_part *f = &r->w->parts[WORK_EACH_FORWARD], *back = &r->w->parts[WORK_EACH_BACKWARD];
    double fps = MODEL_FPS_WIDTH, numbers = r->n * r->D, added = fps < r->D ? fps : r->D;
    double patch = (double)(r->m->latent_channels * model_patch_cells(r->m));
    f->inputs[INPUT_SAMPLES] = r->n * (double)seq_tokens(r->spec->seq) * patch;
    f->inputs[INPUT_ANGLES] = model_has_tables(r->m) ? 0 : r->T * r->d;
    f->inputs[INPUT_PATCHES] = r->R * (patch + (double)(r->m->cond_channels *
                                                        model_patch_cells(r->m)));
    f->bytes = chunk_bytes(r);
    back->bytes = r->l->pp > 1 ? 2 * r->R * r->D * r->stream : 0;
    if (!r->cond)
        return;
    product(f, back, r->n, r->D, r->D, 1, false);
    product(f, back, r->n, r->shared ? 3 * r->D : r->D, r->D, 1, true);
    product(f, back, r->n, fps, fps, 1, false);
    product(f, back, r->n, added, fps, 1, true);
    cond_bytes(r, f, back);
    stat_sum(r, back, numbers);
    if (r->shared)
        stat_sum(r, back, 3 * numbers);
}

void work_reel_parts(const struct work_spec *spec, const struct layout *l, struct work *out)
{
    struct reel r = reel_of(spec, l, out);
    layer_parts(&r);
    ends_parts(&r);
    each_parts(&r);
    out->tokens = r.T;
    out->partial[UNIT_LAYER] = spec->weights->whole[UNIT_LAYER];
    for (int id = UNIT_FIRST; id <= UNIT_LAST && l->sp; id++)
        out->partial[id] = spec->weights->whole[id];
    if (l->pp > 1)
        work_message_add(&out->parts[WORK_SEND], TRAFFIC_PP, TRAFFIC_SEND_RECV, HIDE_NOTHING,
                         r.R * r.D * r.stream, 1);
}

/* ---- weights that are gathered ---- */

/* Holds the units in the two working buffers. Layers are 0 and up; other units are -1 - their
 * id. */
struct held { int64_t unit[2]; double *times; };
enum { NO_UNIT = -100, MICRO_BATCHES = 8 };

static int64_t beside(enum work_unit_id id) { return -1 - (int64_t)id; }

static void gather(struct held *h, int at, int64_t unit)
{
    if (h->unit[at] != unit)
        h->times[unit >= 0 ? UNIT_LAYER : -1 - unit]++;
    h->unit[at] = unit;
}

/* Uses a unit, and fetches the next one into the other buffer. */
static void use(struct held *h, int64_t unit, int64_t next)
{
    int at = h->unit[1] == unit;
    gather(h, at, unit);
    if (next != NO_UNIT)
        gather(h, !at, next);
}

/* Uses n layers, `from` first, each `step` after the one before. Each layer between the first and
 * the last fetches the next one, which is in no buffer. */
static void layers_use(struct held *h, int64_t from, int64_t n, int step, int64_t after)
{
    int64_t last = from + (n - 1) * step;
    if (n > 1)
        use(h, from, from + step);
    if (n > 2) {
        h->times[UNIT_LAYER] += (double)(n - 2);
        h->unit[0] = last - step, h->unit[1] = last;
    }
    if (n > 0)
        use(h, last, after);
}

/* Describes a chunk of a stage: layers first .. end - 1, and the units outside the layers that it
 * uses. */
struct chunk { int64_t first, end; bool each, embed, opens, last; };

static void forward_uses(struct held *h, const struct chunk *c)
{
    int64_t after = c->last ? beside(UNIT_LAST) : NO_UNIT;
    if (c->each)
        use(h, beside(UNIT_EACH), c->embed ? beside(UNIT_FIRST) : NO_UNIT);
    if (c->opens)
        use(h, beside(UNIT_FIRST), 0);
    layers_use(h, c->first, c->end - c->first, 1, after);
    if (c->last)
        use(h, beside(UNIT_LAST), NO_UNIT);
}

static void backward_uses(struct held *h, const struct chunk *c)
{
    int64_t after = c->each ? beside(UNIT_EACH) : NO_UNIT;
    if (c->last)
        use(h, beside(UNIT_LAST), c->end - 1);
    layers_use(h, c->end - 1, c->end - c->first, -1, after);
    if (c->each)
        use(h, beside(UNIT_EACH), NO_UNIT);
}

/* Counts the gathers of m micro-batches. */
static void gathers_count(const struct work *w, const struct layout *l, int64_t stage, int64_t m,
                          double times[WORK_UNITS])
{
    struct schedule_walk walk = schedule_walk(l->pp, l->vpp, m, stage);
    struct held h = {{NO_UNIT, NO_UNIT}, times};
    struct chunk c = {.each = w->unit_elements[UNIT_EACH] > 0, .embed = stage == 0};
    struct pipe_step step;
    for (int id = 0; id < WORK_UNITS; id++)
        times[id] = 0;
    while (schedule_next(&walk, &step)) {
        int64_t chunk = step.chunk * l->pp + stage;
        c.first = layout_chunk_first(l, w->model->layers, chunk);
        c.end = layout_chunk_first(l, w->model->layers, chunk + 1);
        c.opens = c.first == 0, c.last = c.end == w->model->layers;
        if (step.kind == PIPE_FORWARD)
            forward_uses(&h, &c);
        else
            backward_uses(&h, &c);
    }
}

int64_t work_reel_gather_batches(const struct work *w)
{ return num_min_i64((int64_t)w->micro_batches, num_max_i64(MICRO_BATCHES, 2 * w->grid.pp)); }

void work_reel_gather_share(const struct work *w, const struct layout *l, int64_t stage,
                            double share[WORK_UNITS])
{
    int64_t m = work_reel_gather_batches(w);
    struct work_stage s;
    work_stage(w, l, stage, &s);
    const double units[WORK_UNITS] = {s.layers, s.first, s.last, s.each};
    gathers_count(w, l, stage, m, share);
    for (int id = 0; id < WORK_UNITS; id++)
        share[id] = units[id] > 0 ? share[id] / (2 * (double)m * units[id]) : 0;
}
