/* These are the formulas of the account (work.h) for trainers of which only the stack's facts are
 * known. The account of reel's own trainer is in work_reel.c.
 *
 * Letters are those of work.h, and these:
 *
 *     Td   tokens of which a rank has norms and residuals: T/t with sequence parallelism, else T
 *     r    width of the keys, D·g/a: with fewer key heads than query heads it is less than D. With
 *          fewer key heads than tp ranks each rank has a copy of one, so that it is D·t/a.
 *     A    ranks of the all-to-all group, a part of cp
 *     s    sums over tp ranks in the forward of a layer: one for each self-attention, one for the
 *          MLP and one for cross-attention
 *     W    width of the caption's embedding
 *
 * The forward of a layer has these matrix products, [rows, depth] x [depth, columns]. Tensor
 * parallelism divides the columns of the first of a pair and the depth of the second:
 *
 *     self-attention    [T, D] x [D, (D + 2r)/t],  [T, D/t] x [D/t, D]
 *     cross-attention   [T, D] x [D, D/t],  [T, D/t] x [D/t, D],  [b x, W] x [W, 2r/t]
 *     MLP               [T, D] x [D, F/t] (gated: twice as wide),  [T, F/t] x [F/t, D]
 *     modulation        [b, D] x [D, 3 D/t] where AdaLN is full, for each sub-block that has one
 *
 * In attention itself the queries of S A/c tokens meet S keys, in b a/(t A) heads. There are q k
 * pairs, or half of them with a causal mask. The family stdit attends along frames and places
 * apart.
 *
 * Elementwise work counts numbers that are read or written, of w bytes each:
 *
 *     norms 2 Td D          residuals 3 Td D          rotation and QK norms 2 T (D + r)/t
 *     activation 2 T F/t, gated 3 T F/t (5 where it is not one operation)
 *     modulation 2 Td D for each            dropout 1.5 Td D for each sub-block
 *
 * Some trainers do more for a video model: work_video.c.
 *
 * Norms that a stack does in several operations, with their numbers kept in f32, move 24 bytes more
 * for each number.
 *
 * Messages. Over tp each of the s sums is of T D w bytes: an all-reduce moves 2 (t-1)/t of these;
 * with sequence parallelism it is a gather and a scatter, of half of that each. Over cp, the ring
 * sends keys and values on c/A - 1 times, 2 A T r/t w bytes each, while attention computes. The
 * all-to-all moves q, k, v and the result: (A-1)/A of T w (2D + 2r)/t bytes. Where the caption is
 * cut too, the ring also carries its keys and values, 2 b x A/c r/t w bytes, and cross-attention
 * meets them part by part.
 *
 * The backward of a layer does each product twice, for the gradient of its input and of its weight.
 * Attention takes 2.5 times its forward's work, elementwise work twice. The sums over tp come
 * again. The ring carries gradients beside the keys and values: twice as much.
 *
 * What the forward of a layer keeps for its backward is the sum of Korthikanti et al. 2022, taken
 * apart. These bytes for each token are whole on each tp rank, or divided with sequence
 * parallelism: for each sub-block 4 D, of its norm and of its product's input, 8 D more where its
 * norm is several operations, and D for a dropout mask; for each modulation 2 D. These are divided
 * by t in any case: the queries 2D, keys and values 4r, the attention's result 2D; for the MLP 4F,
 * or 6F where it is gated, or 8F where its activation is not one operation. Where the matrix of
 * scores is kept: 2 bytes for each pair (6 where softmax is several operations), and 3 more with
 * dropout. With full recomputation only 2 Td D bytes are kept.
 *
 * With products in fp8 a layer keeps their inputs in as many bytes as the stack says, one with
 * Transformer Engine: the product's part of the 4 D of each sub-block, and of the MLP its second
 * input, F. Attention keeps its result in bf16 for itself, and the product after it keeps another
 * copy: D more. A weight may have copies in fp8 beside it, of which Hopper needs a transposed one
 * too (2 bytes), or be kept in fp8 itself, as with Megatron's fp8-param-gather; then it is gathered
 * in one byte. (Transformer Engine's developers say so in its issues 257, 1261 and 1764;
 * Megatron-Bridge sets fp8_param_gather in training/mixed_precision.py.)
 *
 * Kept scores are in bf16. Forward, the product of queries and keys writes 2 bytes of each, the
 * softmax reads 2 and writes 2, the product with the values reads 2: 8. Backward the gradient's
 * product writes 2, the softmax reads that and its result and writes 2, and three products read 2
 * each: 14. A fused softmax with a causal mask reads only one half (Megatron's
 * scaled_upper_triang_masked_softmax.h): 7 and 12. Dropout takes 5 more either way. Where softmax
 * is several operations it is 18, and twice that.
 *
 * The head multiplies [T, D] x [D, V/t]. For each logit it keeps the stack's logit_bytes: 2, and
 * those of copies in f32. Where every rank has the logits of all tp ranks, gathering them takes 2w
 * more.
 */
#include "profiles/work.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "profiles/params.h"
#include "profiles/work_own.h"
#include "profiles/work_priv.h"
#include "profiles/work_reel.h"
#include "profiles/work_video.h"

const char *const work_part_names[WORK_PARTS] = {
    "layer forward", "layer backward", "layer again in part", "layer again",
    "first forward", "first backward", "last forward", "last backward",
    "each forward", "each backward", "send"};

static enum work_unit_id unit_of(int64_t layer)
{
    return layer >= 0                      ? UNIT_LAYER
           : layer == PARAM_LAYER_EMBED ? UNIT_FIRST
           : layer == PARAM_LAYER_HEAD  ? UNIT_LAST
                                        : UNIT_EACH;
}

static void tensor_note(struct work_weights *w, enum work_unit_id unit, struct shard_kind kind)
{
    BUG_ON(w->n_tensors == WORK_TENSORS);
    w->tensors[w->n_tensors++] = (struct work_tensor){unit, kind};
}

int work_weights(const struct model *m, struct work_weights *out, struct err *err)
{
    struct param_list list;
    struct work_weights w = {0};
    int rc = params_build(m, &list, err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < list.n; i++) {
        const struct param *p = &list.items[i];
        enum work_unit_id u = unit_of(p->layer);
        double n = (double)p->count / (u == UNIT_LAYER ? (double)m->layers : 1);
        if (p->tp == PARAM_TP_NONE)
            w.whole[u] += n;
        else
            w.split[u] += n;
        if (p->layer <= 0)
            tensor_note(&w, u, shard_kind_of(m, p));
    }
    params_release(&list);
    *out = w;
    return 0;
}

/* Holds the sizes from which the parts are computed. */
struct shape {
    const struct work_spec *spec;
    const struct model *m;
    const struct stack *k;
    struct work *w;
    double D, F, r, t, c, A, b, S, x, w_bytes;
    double T, Td; /* tokens of a rank; of them, those of the residual stream */
    /* sub-blocks of a layer; its norms before them, and its sums behind them over tp */
    double blocks, norms;
    bool causal;
};

static struct shape shape_of(const struct work_spec *spec, const struct layout *l, struct work *w)
{
    const struct model *m = spec->model;
    struct shape s = {.spec = spec, .m = m, .k = spec->stack, .w = w};
    s.D = (double)m->hidden, s.F = (double)m->ffn;
    s.r = (double)(num_max_i64(m->kv_heads, l->tp) * model_head_dim(m));
    s.t = (double)l->tp, s.c = (double)l->cp, s.A = (double)layout_a2a_group(l, m);
    s.b = (double)l->mbs, s.S = (double)seq_tokens(spec->seq);
    s.x = model_has_cross(m) ? (double)(spec->text ? spec->text : m->text_len) : 0;
    s.w_bytes = (double)dtype_bytes(spec->act);
    s.T = s.b * s.S / s.c;
    s.Td = l->sp ? s.T / s.t : s.T;
    s.blocks = (double)(model_self_attentions(m) + model_has_cross(m) + 1);
    s.norms = s.blocks - s.k->parallel_block;
    s.causal = !model_is_video(m);
    return s;
}

/* ---- pieces of parts ---- */

/* Returns the bytes read and written for each score, forward or backward. */
static double score_traffic(const struct shape *s, bool backward)
{
    double dropout = s->k->dropout ? 5 : 0;
    if (s->k->attention == ATTENTION_SCORES)
        return (backward ? 36 : 18) + dropout;
    if (s->k->attention == ATTENTION_FUSED_SCORES)
        return (backward ? 14 - 2 * s->causal : 8 - s->causal) + dropout;
    return 0;
}

/* Fills the backward of a part from its forward: products twice, elementwise work twice. Frozen
 * weights have no product of their own. */
static void backward_of(const struct shape *s, const struct work_part *f, struct work_part *p)
{
    for (int i = 0; i < f->n_gemms; i++) {
        const struct work_gemm *g = &f->gemms[i];
        work_gemm_add(p, g->m, g->k, g->n, g->count);
        if (!s->spec->frozen)
            work_gemm_add(p, g->k, g->n, g->m, g->count);
    }
    for (int i = 0; i < f->n_attentions; i++) {
        struct work_attention a = f->attentions[i];
        a.score_bytes *= score_traffic(s, true) / fmax(1, score_traffic(s, false));
        a.backward = true;
        work_attention_add(p, a);
    }
    p->bytes = 2 * f->bytes;
    p->norm_bytes = 2 * f->norm_bytes;
    p->kernels = 2 * f->kernels;
}

/* ---- a layer ---- */

static double score_kept(const struct shape *s)
{
    double once = s->k->attention == ATTENTION_SCORES ? 6 : 2;
    return attention_keeps_scores(s->k->attention) ? once + (s->k->dropout ? 3 : 0) : 0;
}

/* Makes the attention of q queries to k keys in each head of each of `sets` sets. */
static struct work_attention attention_of(const struct shape *s, double q, double k, double sets)
{
    struct work_attention a = {.q = q, .k = k, .dim = (double)model_head_dim(s->m), .count = 1};
    a.heads = sets * (double)s->m->heads / s->t;
    a.pairs = s->causal ? q * k / 2 : q * k;
    a.score_bytes = score_traffic(s, false) * q * k * a.heads;
    return a;
}

/* Returns into how many parts, one for each rank of a ring, the caption's keys are cut. */
static double text_parts(const struct shape *s)
{ return s->k->ring_text && s->x > 0 ? s->c / s->A : 1; }

static void layer_attentions(const struct shape *s, struct work_part *p)
{
    const struct seq *e = &s->spec->seq;
    double frame = (double)(e->h * e->w), frames = (double)e->t;
    work_attention_add(p, attention_of(s, s->S * s->A / s->c, s->S, s->b / s->A));
    if (s->m->family == MODEL_STDIT) {
        work_attention_add(p, attention_of(s, frame, frame, s->b * frames / s->c));
        work_attention_add(p, attention_of(s, frames, frames, s->b * frame / s->c));
    }
    if (s->x > 0) {
        double parts = text_parts(s);
        struct work_attention a = attention_of(s, s->S / s->c, s->x / parts, s->b);
        a.pairs = a.q * a.k, a.count = parts;
        work_attention_add(p, a);
    }
}

static void mlp_gemms(const struct shape *s, struct work_part *p)
{
    work_gemm_add(p, s->T, (s->m->gated_mlp ? 2 : 1) * s->F / s->t, s->D, 1);
    work_gemm_add(p, s->T, s->D, s->F / s->t, 1);
}

/* Returns the bytes that the activation of an MLP reads and writes. */
static double activation_bytes(const struct shape *s)
{
    double numbers = s->m->gated_mlp ? (s->k->fused_gate ? 3 : 5) : 2;
    return s->w_bytes * s->T * numbers * s->F / s->t;
}

static void layer_gemms(const struct shape *s, struct work_part *p)
{
    double selfs = (double)model_self_attentions(s->m);
    work_gemm_add(p, s->T, (s->D + 2 * s->r) / s->t, s->D, selfs);
    work_gemm_add(p, s->T, s->D, s->D / s->t, selfs);
    if (s->x > 0) {
        work_gemm_add(p, s->T, s->D / s->t, s->D, 1);
        work_gemm_add(p, s->T, s->D, s->D / s->t, 1);
        work_gemm_add(p, s->b * s->x, 2 * s->r / s->t, (double)s->m->text_width, 1);
    }
    mlp_gemms(s, p);
    if (s->m->adaln == ADALN_FULL)
        work_gemm_add(p, s->b, 3 * (double)model_modulations(s->m) * s->D / s->t, s->D, 1);
}

static void layer_elementwise(const struct shape *s, struct work_part *p)
{
    double selfs = (double)model_self_attentions(s->m), cross = s->x > 0;
    double residuals = 3 * s->blocks - 2 * s->k->parallel_block;
    double stream = (2 * s->norms + residuals + (s->k->dropout ? 1.5 * s->blocks : 0)) * s->D +
                    2 * (double)model_modulations(s->m) * s->D;
    double inner = 2 * (selfs * (s->D + s->r) + cross * s->D);
    p->bytes = s->w_bytes * (s->Td * stream + s->T * inner / s->t) + activation_bytes(s);
    p->norm_bytes = s->k->fused_norm ? 0 : 24 * s->norms * s->Td * s->D;
    p->kernels = 8 * s->blocks + (s->k->fused_norm ? 0 : 6 * s->norms) +
                 (attention_keeps_scores(s->k->attention) ? 5 : 0);
}

static struct work_video video_of(const struct shape *s)
{
    return (struct work_video){.model = s->m, .stack = s->k, .tokens = s->T, .stream_tokens = s->Td,
                               .tp = s->t, .ring = s->c / s->A, .act_bytes = s->w_bytes};
}

static double sum_bytes(const struct shape *s)
{ return (s->t - 1) / s->t * s->T * s->D * s->w_bytes; }

/* Adds sums over tensor-parallel ranks; with sp each is a gather and a scatter instead. */
static void sums_add(const struct shape *s, const struct layout *l, double count,
                     struct work_part *p)
{
    double part = sum_bytes(s);
    if (l->sp) {
        work_message_add(p, TRAFFIC_TP, TRAFFIC_ALL_GATHER, HIDE_NOTHING, part, count);
        work_message_add(p, TRAFFIC_TP, TRAFFIC_REDUCE_SCATTER, HIDE_NOTHING, part, count);
    } else {
        work_message_add(p, TRAFFIC_TP, TRAFFIC_ALL_REDUCE, HIDE_NOTHING, 2 * part, count);
    }
}

static void layer_sums(const struct shape *s, const struct layout *l, struct work_part *p)
{
    sums_add(s, l, s->norms, p);
    struct work_video v = video_of(s);
    if (work_video_gathers(&v))
        work_message_add(p, TRAFFIC_TP, TRAFFIC_ALL_GATHER, HIDE_NOTHING, sum_bytes(s),
                         work_video_normed(s->m) / s->D);
}

static void layer_exchanges(const struct shape *s, struct work_part *p, double ring)
{
    double selfs = (double)model_self_attentions(s->m);
    double row = s->T * s->w_bytes / s->t, a2a = (s->A - 1) / s->A * row * (2 * s->D + 2 * s->r);
    work_message_add(p, TRAFFIC_A2A, TRAFFIC_ALL_TO_ALL, HIDE_NOTHING, a2a / 4, 4 * selfs);
    work_message_add(p, TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION,
                     ring * 2 * s->A * row * s->r,
                     selfs * (s->c / s->A - 1));
    double parts = text_parts(s), text = s->b * s->x / parts * s->w_bytes / s->t;
    work_message_add(p, TRAFFIC_RING, TRAFFIC_SEND_RECV, HIDE_ATTENTION, ring * 2 * text * s->r,
                     parts - 1);
}

/* Returns the bytes read and written to add up the gradients of a unit's weights. Where no product
 * does that, an operation of its own also reads the new gradient. */
static double sums_of(const struct shape *s, enum work_unit_id u)
{
    double each = 2 * (double)s->k->gradient_bytes + (s->k->sums_apart ? s->w_bytes : 0);
    return s->spec->frozen ? 0 : s->w->unit_elements[u] * each;
}

static bool repeats(const struct shape *s, enum work_again what)
{ return (s->spec->again ? s->spec->again : WORK_AGAIN_ATTENTION) & what; }

/* Fills what selective recomputation repeats of a layer's forward. A repeated MLP is summed over tp
 * once more, though nothing needs that, as it is repeated as a whole. */
static void selective_part(const struct shape *s, const struct layout *l, struct work_part *p)
{
    const struct work_part *f = &s->w->parts[WORK_LAYER_FORWARD];
    for (int i = 0; i < f->n_attentions && repeats(s, WORK_AGAIN_ATTENTION); i++)
        work_attention_add(p, f->attentions[i]);
    p->kernels = 2 * p->n_attentions;
    if (!repeats(s, WORK_AGAIN_MLP))
        return;
    mlp_gemms(s, p);
    p->bytes = activation_bytes(s);
    p->kernels += 3;
    sums_add(s, l, 1, p);
}

static void layer_parts(const struct shape *s, const struct layout *l)
{
    struct work_part *p = s->w->parts, *f = &p[WORK_LAYER_FORWARD];
    struct work_video v = video_of(s);
    layer_gemms(s, f);
    layer_attentions(s, f);
    layer_elementwise(s, f);
    backward_of(s, f, &p[WORK_LAYER_BACKWARD]);
    work_video_bytes(&v, f, &p[WORK_LAYER_BACKWARD]);
    p[WORK_LAYER_BACKWARD].sum_bytes = sums_of(s, UNIT_LAYER);
    layer_sums(s, l, f);
    layer_exchanges(s, f, 1);
    layer_sums(s, l, &p[WORK_LAYER_BACKWARD]);
    layer_exchanges(s, &p[WORK_LAYER_BACKWARD], 2);
    p[WORK_LAYER_FULL] = *f;
    selective_part(s, l, &p[WORK_LAYER_SELECTIVE]);
}

/* Returns the bytes for each score that one layer's backward uses besides those that are kept. */
static double score_work(const struct shape *s)
{
    double once = s->k->attention == ATTENTION_SCORES ? 10 : 4;
    return attention_keeps_scores(s->k->attention) ? once : 0;
}

static double scored_pairs(const struct shape *s)
{
    const struct work_part *f = &s->w->parts[WORK_LAYER_FORWARD];
    double pairs = 0;
    for (int i = 0; i < f->n_attentions; i++)
        pairs += f->attentions[i].q * f->attentions[i].k * f->attentions[i].heads;
    return pairs;
}

/* Returns the bytes in which a layer keeps the inputs of its products. */
static double input_bytes(const struct shape *s)
{
    return s->spec->fp8 && s->k->fp8_input_bytes ? (double)s->k->fp8_input_bytes : s->w_bytes;
}

/* Returns by how much what sub-blocks keep inside differs for each token, where the inputs of
 * products are kept in fp8: the MLP's second input is narrower. Attention keeps its result for
 * itself, and the next product keeps a copy of it. */
static double inner_in_fp8(const struct shape *s, double attentions)
{
    double i = input_bytes(s), e = s->w_bytes;
    return i == e ? 0 : (i - e) * s->F + attentions * i * s->D;
}

static void layer_kept(const struct shape *s)
{
    double cross = s->x > 0, selfs = (double)model_self_attentions(s->m), e = s->w_bytes;
    double i = input_bytes(s);
    double gate = s->m->gated_mlp ? (s->k->fused_gate ? 3 : 4) : 2;
    double stream = (s->norms * (e + i) + (s->k->dropout ? s->blocks : 0)) * s->D +
                    (s->k->fused_norm ? 0 : s->norms * 8 * s->D) +
                    (double)model_modulations(s->m) * e * s->D;
    double inner = selfs * (2 * s->D + 2 * s->r) + cross * 2 * s->D + gate * s->F;
    struct work_kept *k = &s->w->kept;
    double gathered = s->k->keeps_gathered ? s->norms * i * s->D : 0;
    k->stream = s->Td * stream + (s->T - s->Td) * gathered;
    k->selective = k->stream + s->T * e * inner / s->t + s->b * s->x * e * 2 * s->r / s->t +
                   s->T * inner_in_fp8(s, selfs + cross) / s->t;
    k->none = k->selective + score_kept(s) * scored_pairs(s);
    if (!repeats(s, WORK_AGAIN_ATTENTION))
        k->selective = k->none;
    if (repeats(s, WORK_AGAIN_MLP))
        k->selective -= s->T * (e * gate + (i - e)) * s->F / s->t;
    k->full = s->Td * e * s->D;
    s->w->layer_work = 2 * s->Td * e * s->D + s->T * e * gate * s->F / s->t +
                       score_work(s) * scored_pairs(s);
}

/* ---- what stands beside the layers ---- */

static void first_parts(const struct shape *s)
{
    struct work_part *f = &s->w->parts[WORK_FIRST_FORWARD];
    double cells = (double)((s->m->latent_channels + s->m->cond_channels) *
                            model_patch_cells(s->m));
    if (model_is_video(s->m))
        work_gemm_add(f, s->T, s->D, cells, 1);
    f->bytes = 2 * s->T * s->D * s->w_bytes;
    f->kernels = 4;
    backward_of(s, f, &s->w->parts[WORK_FIRST_BACKWARD]);
    s->w->parts[WORK_FIRST_BACKWARD].sum_bytes = sums_of(s, UNIT_FIRST);
    s->w->first_kept = s->T * (model_is_video(s->m) ? cells * s->w_bytes : 8) +
                       (s->k->dropout ? s->Td * s->D : 0);
}

static void last_parts(const struct shape *s, const struct layout *l)
{
    bool whole = s->k->logits_whole;
    double video = model_is_video(s->m);
    double n = video ? (double)(s->m->latent_channels * model_patch_cells(s->m))
                     : (double)s->m->vocab,
           logits = s->T * n / (whole || video ? 1 : s->t);
    struct work_part *f = &s->w->parts[WORK_LAST_FORWARD], *p = &s->w->parts[WORK_LAST_BACKWARD];
    work_gemm_add(f, s->T, n / (video ? 1 : s->t), s->D, 1);
    f->bytes = logits * (double)s->k->logit_bytes + 2 * s->Td * s->D * s->w_bytes;
    f->kernels = 10;
    backward_of(s, f, p);
    p->bytes = f->bytes;
    p->sum_bytes = sums_of(s, UNIT_LAST);
    /* The gather of whole logits uses the parts of all ranks, and a flat copy of them. */
    double gathered = whole && !video && s->t > 1 ? 2 * s->w_bytes : 0;
    s->w->logits = logits * ((double)s->k->logit_bytes + gathered) +
                   (s->Td + s->T) * s->D * s->w_bytes;
    if (video)
        return;
    double part = (s->t - 1) / s->t * s->T * s->w_bytes;
    if (whole)
        work_message_add(f, TRAFFIC_TP, TRAFFIC_ALL_GATHER, HIDE_NOTHING, part * n / s->t, 1);
    work_message_add(p, TRAFFIC_TP, l->sp ? TRAFFIC_REDUCE_SCATTER : TRAFFIC_ALL_REDUCE,
                     HIDE_NOTHING,
                (l->sp ? 1 : 2) * part * s->D, 1);
}

/* Adds the MLP that widens the caption's tokens. It keeps its input, its activation's input and
 * result, and what it gives to all layers. */
static void text_mlp(const struct shape *s, struct work_part *f)
{
    double in = (double)s->m->text_in, width = (double)s->m->text_width, rows = s->b * s->x;
    if (in <= 0)
        return;
    work_gemm_add(f, rows, width, in, 1);
    work_gemm_add(f, rows, width, width, 1);
    s->w->each_kept = rows * (in + 3 * width) * s->w_bytes;
}

static void each_parts(const struct shape *s)
{
    struct work_part *f = &s->w->parts[WORK_EACH_FORWARD];
    text_mlp(s, f);
    f->bytes = s->w->unit_elements[UNIT_EACH] * s->w_bytes;
    f->kernels = s->w->unit_elements[UNIT_EACH] > 0 ? 8 : 0;
    backward_of(s, f, &s->w->parts[WORK_EACH_BACKWARD]);
}

static void send_part(const struct shape *s, const struct layout *l)
{
    s->w->boundary = s->Td * s->D * s->w_bytes;
    double bytes = s->T * s->D * s->w_bytes / (l->sp || s->k->sends_divided ? s->t : 1);
    if (l->pp > 1)
        work_message_add(&s->w->parts[WORK_SEND], TRAFFIC_PP, TRAFFIC_SEND_RECV,
                    s->k->sends_overlap ? HIDE_FORWARD : HIDE_NOTHING, bytes, 1);
}

/* Returns the weights of a layer that all tp ranks have together beyond the list of parameters, as
 * they have copies of the heads of keys and values. */
static double copied_weights(const struct shape *s)
{
    double width = s->r - (double)(s->m->kv_heads * model_head_dim(s->m));
    double inputs = (double)model_self_attentions(s->m) * s->D +
                    (s->x > 0 ? (double)s->m->text_width : 0);
    return 2 * width * inputs;
}

static void elements_of(const struct shape *s, const struct layout *l)
{
    for (int u = 0; u < WORK_UNITS; u++)
        s->w->unit_elements[u] = s->spec->weights->split[u] / s->t + s->spec->weights->whole[u];
    s->w->unit_elements[UNIT_LAYER] += copied_weights(s) / s->t;
    /* A head tied to the embedding exists twice if the two are on different stages. */
    if (l->pp > 1 && !model_is_video(s->m) && s->spec->weights->split[UNIT_LAST] == 0)
        s->w->unit_elements[UNIT_LAST] += (double)s->m->vocab * s->D / s->t;
}

/* Fills the parts for a stack of which only facts are known. */
static void stack_parts(const struct shape *s, const struct layout *l)
{
    layer_parts(s, l);
    layer_kept(s);
    first_parts(s);
    last_parts(s, l);
    each_parts(s);
    send_part(s, l);
}

/* Clears all but the cut, and the rooms for operations: they are most of it, and their counts say
 * what is set. */
static void work_clear(struct work *w)
{
    size_t behind = offsetof(struct work, parts) + sizeof w->parts;
    memset(w, 0, offsetof(struct work, parts));
    memset((char *)w + behind, 0, offsetof(struct work, cut) - behind);
    for (int i = 0; i < WORK_PARTS; i++)
        memset(&w->parts[i], 0, offsetof(struct work_part, gemms));
}

static bool is_own(const struct work_spec *spec)
{ return spec->stack->kind == STACK_REEL && model_is_trainable(spec->model); }

void work_cut(const struct work_spec *spec, const struct layout *l, struct work *out)
{
    if (is_own(spec))
        work_own_cut(spec, l, &out->cut);
}

/* Sets the bytes of an element's gradient and optimizer. Those of adapters do not count. */
static void state_bytes_of(const struct work_spec *spec, struct work *out)
{
    out->frozen = spec->frozen;
    if (spec->frozen)
        return;
    out->gradient_bytes = (double)spec->stack->gradient_bytes;
    out->optimizer_bytes = (double)spec->stack->optimizer_bytes - (spec->moments_bf16 ? 4 : 0);
    out->ema_bytes = spec->ema ? 4 : 0;
}

void work_rebuild_times(const struct work_spec *spec, const struct layout *l, struct work *out)
{
    work_clear(out);
    struct shape s = shape_of(spec, l, out);
    out->grid = *l, out->stack = spec->stack, out->model = spec->model;
    out->micro_batches = (double)layout_micro_batches(l, spec->gbs, 0);
    out->samples = s.b, out->samples_of_step = (double)spec->gbs, out->tokens = s.T;
    out->weight_bytes = spec->stack->weight_bytes ? (double)spec->stack->weight_bytes : s.w_bytes;
    state_bytes_of(spec, out);
    out->act_bytes = s.w_bytes, out->stat_bytes = (double)dtype_bytes(dtype_stat(spec->act));
    out->moment_bytes = spec->moments_bf16 ? (double)dtype_bytes(DTYPE_BF16) : out->stat_bytes;
    out->encoder_bytes = (double)spec->encoder_bytes;
    out->copy_bytes = spec->fp8 ? (double)spec->stack->fp8_copy_bytes : 0;
    out->gather_bytes = spec->fp8 && spec->stack->fp8_gather_bytes
                            ? (double)spec->stack->fp8_gather_bytes
                            : s.w_bytes;
    elements_of(&s, l);
    if (is_own(spec))
        work_reel_parts(spec, l, out);
    else
        stack_parts(&s, l);
}

void work_rebuild(const struct work_spec *spec, const struct layout *l, struct work *out)
{
    work_rebuild_times(spec, l, out);
    out->own = is_own(spec), out->act = spec->act;
    if (out->own)
        work_own_micro(spec, l, out);
}

void work_build(const struct work_spec *spec, const struct layout *l, struct work *out)
{
    work_cut(spec, l, out);
    work_rebuild(spec, l, out);
}

/* ---- sums over parts ---- */

/* Returns for how many micro-batches a stage holds activations, each counted over all its layers.
 * It is the bound of schedule_in_flight, as a share of vpp chunks. */
static double in_flight(const struct work *w, const struct layout *l, int64_t stage)
{
    double pp = (double)l->pp, v = (double)l->vpp, after = pp - (double)stage;
    double chunks = l->vpp == 1 ? after : 2 * (after - 1) + (v - 1) * pp + 1;
    return fmin(chunks, v * w->micro_batches) / v;
}

/* Returns how many of a micro-batch's recomputed layers still have their activations when their
 * backward begins. reel's recomputed layers share one copy, which holds the layer that ran last;
 * its backward comes next on the last stage, or if there is one micro-batch. */
static double still_there(const struct work *w, const struct layout *l, int64_t stage)
{
    bool next = stage == l->pp - 1 || w->micro_batches == 1;
    return w->stack->kind == STACK_REEL && l->recompute != RECOMPUTE_NONE && next;
}

void work_stage(const struct work *w, const struct layout *l, int64_t stage, struct work_stage *out)
{
    int64_t chunks = l->pp * l->vpp, fewest = w->model->layers / chunks,
            more = w->model->layers % chunks; /* the first chunks have one layer more */
    int64_t longer = more > stage ? num_ceil_div(more - stage, l->pp) : 0;
    int64_t layers = l->vpp * fewest + longer, full = 0;
    bool first = stage == 0, last = stage == l->pp - 1;
    if (l->recompute == RECOMPUTE_FULL && l->recompute_layers)
        full = longer * num_min_i64(fewest + 1, l->recompute_layers) +
               (l->vpp - longer) * num_min_i64(fewest, l->recompute_layers);
    else if (l->recompute == RECOMPUTE_FULL)
        full = layers;
    *out = (struct work_stage){.stage = stage,
                               .layers = (double)layers,
                               .each = w->stack->kind == STACK_REEL ? (double)l->vpp : 1,
                               .full = (double)full,
                               .selective =
                                   l->recompute == RECOMPUTE_SELECTIVE ? (double)layers : 0,
                               .there = still_there(w, l, stage),
                               .first = first,
                               .last = last,
                               .sends = {l->pp > 1 ? (double)(l->vpp - last) : 0,
                                         l->pp > 1 ? (double)(l->vpp - first) : 0},
                               .in_flight = in_flight(w, l, stage)};
}

static void state_set(struct work_state *s, enum work_state_id id, double bytes,
                      enum traffic_group group, enum traffic_kind kind, bool each)
{
    s->bytes[id] = s->layer_bytes[id] = bytes;
    s->group[id] = group, s->kind[id] = kind, s->each[id] = each;
}

/* Adds the gather of weights over the shard group. */
static void state_gather(const struct work *w, enum work_state_id id, double part, bool each,
                         struct work_state *out)
{
    state_set(out, id, part * w->act_bytes, TRAFFIC_SHARD, TRAFFIC_ALL_GATHER, each);
    out->layer_bytes[id] = part * w->gather_bytes;
}

/* Adds the messages of gradients when ranks shard them or the state. */
static void state_scatter(const struct work *w, const struct layout *l, double g, double replicas,
                          struct work_state *out)
{
    double part = (g - 1) / g, reduce = (double)w->stack->reduce_bytes;
    bool each = l->zero >= 2 && w->stack->reduce_each;
    if (w->stack->scatter || l->zero >= 2)
        state_set(out, STATE_REDUCE, part * reduce, TRAFFIC_SHARD, TRAFFIC_REDUCE_SCATTER, each);
    else
        state_set(out, STATE_REDUCE, 2 * part * reduce, TRAFFIC_SHARD, TRAFFIC_ALL_REDUCE, each);
    if (replicas > 1)
        state_set(out, STATE_REPLICAS, 2 * (replicas - 1) / replicas * reduce / g, TRAFFIC_REPLICA,
                  TRAFFIC_ALL_REDUCE, false);
}

void work_state(const struct work *w, const struct layout *l, struct work_state *out)
{
    double n = (double)(l->dp * l->cp), g = (double)layout_shard_group(l), part = (g - 1) / g;
    memset(out, 0, sizeof *out);
    if (w->frozen && l->zero < 3)
        return;
    if (l->zero == 0) {
        state_set(out, STATE_REDUCE, 2 * (n - 1) / n * (double)w->stack->reduce_bytes,
                  TRAFFIC_REPLICA, TRAFFIC_ALL_REDUCE, false);
        return;
    }
    if (!w->frozen)
        state_scatter(w, l, g, n / g, out);
    if (l->zero == 3) {
        state_gather(w, STATE_GATHER_FORWARD, part, true, out);
        if (w->stack->regather)
            state_gather(w, STATE_GATHER_BACKWARD, part, true, out);
    } else {
        state_gather(w, STATE_GATHER_STEP, part, false, out);
    }
}

double work_stage_elements(const struct work *w, const struct work_stage *s)
{
    return s->layers * w->unit_elements[UNIT_LAYER] + w->unit_elements[UNIT_EACH] +
           (s->first ? w->unit_elements[UNIT_FIRST] : 0) +
           (s->last ? w->unit_elements[UNIT_LAST] : 0);
}
