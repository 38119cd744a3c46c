/* This file lists the buffers of a DiT's micro-batch on one rank, and their shapes. The letters
 * below mean:
 *
 *     n  samples                          s  tokens of this context-parallel rank
 *     x  text rows: caption tokens,       r  those of the s tokens that the rank has in the
 *        and a null token a sample           residual stream: all, or its part with sp
 *     D  hidden                           u  tokens of the rank's all-to-all group
 *     d  head dim                         g  tokens of the segments dealt to the rank
 *     c  text width                       H, K, F  heads, kv_heads, ffn of this tensor-parallel
 *                                                  rank
 *     C  latent channels                  h, k     heads and k/v heads after the all-to-all
 *     P  cells of a patch                 R  low-rank columns of a block's modulation
 *     S  self-attentions of a layer       B  sub-blocks of a layer, A of them are modulated
 *
 * Forward saves 16 vectors of width D for each token and block, at F = 4D and K = H: the block's
 * input, qkv (3), attention output, its projection, the residual after it, cross q, cross attention
 * output, its projection, the residual after it, the MLP before its activation (4) and its output.
 * Backward computes normed and modulated inputs, normed queries and keys, and activations again,
 * because they are elementwise functions of what is saved. Selective recompute keeps each block's
 * input, modulation, qkv and attention outputs, and does not run attention again. Full recompute
 * keeps only input and modulation, for the first layers of each pipeline chunk. The buffers that
 * are not kept exist once.
 *
 * How g is bounded: a sample of t tokens has N = t / l segments of l tokens (frames, or places over
 * time). A rank gets at most ceil(N / cp) of them, which are at most (t + l (cp - 1)) / cp tokens.
 * Let the segments of n samples have at most segment_tokens tokens each, and together no more than
 * all tokens; then g is (tokens + min(n · segment_tokens, tokens) (cp - 1)) / cp. An image is one
 * spatial segment and goes to one rank, so when only the number of tokens is known, g is all
 * tokens.
 */
#include "profiles/buffers.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

const char *const buffer_category_names[] = {
    "inputs", "activations", "work", "weights", "gradients", "optimizer", "average (EMA)",
    "communication", "loader", "process", NULL};

enum copies {
    ONCE,  /* working memory: one copy */
    SLOT,  /* one copy for each micro-batch in flight */
    LAYER, /* one copy for each micro-batch in flight and each layer */
    /* like LAYER, but layers that recompute their attention, or the rest of their block, share
     * copies */
    ATTENTION, BLOCK,
    COPIES
};
_Static_assert((int)COPIES == (int)BUFFER_COPIES, "buffers.h counts the kinds of copies");

struct shape {
    const char *name;
    enum buffer_category category;
    /* STREAM: type of the residual stream and its gradient. WIDE: always f64. */
    enum { ACT, STAT, STREAM, WIDE } type;
    enum copies copies;
    /* has: copies for one layer, or 1; 0 when the model has no such buffer */
    int64_t has, rows, cols;
};

struct dims {
    int64_t s, r, u, g, n, x, D, d, H, K, h, k, F, F1, c, C, Cc, P, A, S, B, R, tp, a, ring;
    /* Each is 1 if the model, the layout or the types have this property, else 0. */
    int64_t cond, shared, cross, low, gated, rope, sp, cp, pp, narrow;
};

int64_t buffers_span_tokens(const struct buffer_spec *spec, int64_t spans)
{
    return (spec->tokens + spec->samples * (spans - 1)) / spans;
}

int64_t buffers_dealt_tokens(const struct buffer_spec *spec)
{
    int64_t cp = spec->layout ? spec->layout->cp : 1, segments = spec->tokens;
    if (model_self_attentions(spec->model) == 1)
        return 0;
    if (spec->segment_tokens > 0 &&
        spec->segment_tokens < spec->tokens / num_max_i64(1, spec->samples))
        segments = spec->segment_tokens * spec->samples;
    return (spec->tokens + segments * (cp - 1)) / cp;
}

/* Fills the extents that depend on the layout. */
static void dims_cut(struct dims *v, const struct buffer_spec *b, const struct layout *l)
{
    const struct model *m = b->model;
    v->tp = l->tp;
    v->a = layout_a2a_group(l, m);
    v->ring = l->cp / v->a;
    v->sp = l->sp;
    v->cp = l->cp > 1;
    v->pp = l->pp > 1;
    v->narrow = b->act != b->stat;
    v->s = buffers_span_tokens(b, l->cp);
    v->u = buffers_span_tokens(b, v->ring);
    v->g = buffers_dealt_tokens(b);
    v->r = l->sp ? num_ceil_div(v->s, l->tp) : v->s;
    v->H = m->heads / l->tp;
    v->K = num_max_i64(1, m->kv_heads / l->tp);
    v->h = v->H / v->a;
    v->k = num_max_i64(1, v->K / v->a);
    v->F = m->ffn / l->tp;
    v->F1 = m->gated_mlp ? 2 * v->F : v->F;
}

static struct dims dims_of(const struct buffer_spec *b, const struct layout *l)
{
    const struct model *m = b->model;
    struct dims v = {.n = b->samples,
                     .D = m->hidden,
                     .d = model_head_dim(m),
                     .c = m->text_width,
                     .C = m->latent_channels,
                     .Cc = m->cond_channels,
                     .P = model_patch_cells(m),
                     .A = model_modulations(m),
                     .S = model_self_attentions(m)};
    v.B = v.S + model_has_cross(m) + 1;
    dims_cut(&v, b, l);
    v.cond = m->adaln != ADALN_NONE;
    v.shared = v.cond && model_shared_modulation(m);
    v.low = v.cond && m->adaln != ADALN_FULL;
    v.cross = model_has_cross(m);
    v.gated = m->gated_mlp;
    v.rope = !model_has_tables(m);
    v.R = !v.low ? 0 : m->adaln == ADALN_LORA_SINGLE ? m->adaln_rank : v.A * m->adaln_rank;
    v.x = v.cross ? b->text_tokens + b->samples : 0;
    return v;
}

static void input_shapes(const struct buffer_spec *b, const struct dims *v, struct shape *t)
{
    int64_t cells = b->tokens * v->P;
    int64_t stage = num_max_i64(num_max_i64(cells * v->C, cells * v->Cc), v->x * v->c);
    t[DIT_STAGE] = (struct shape){"staging", BUFFER_INPUT, WIDE, ONCE, 1, 1, stage};
    t[DIT_LATENT] = (struct shape){"latent", BUFFER_INPUT, STAT, SLOT, 1, 1, cells * v->C};
    t[DIT_NOISE] = (struct shape){"noise", BUFFER_INPUT, STAT, SLOT, 1, 1, cells * v->C};
    t[DIT_COND_LATENT] =
        (struct shape){"conditioning latent", BUFFER_INPUT, STAT, SLOT, v->Cc > 0,
                       1, cells * v->Cc};
    t[DIT_PATCHES] =
        (struct shape){"patches", BUFFER_INPUT, ACT, SLOT, 1, v->r, (v->C + v->Cc) * v->P};
    t[DIT_TEXT] = (struct shape){"text", BUFFER_INPUT, ACT, SLOT, v->cross, v->x, v->c};
    t[DIT_COS] = (struct shape){"rope cos", BUFFER_INPUT, STAT, SLOT, v->rope, v->s, v->d / 2};
    t[DIT_SIN] = (struct shape){"rope sin", BUFFER_INPUT, STAT, SLOT, v->rope, v->s, v->d / 2};
}

static void cond_shapes(const struct dims *v, struct shape *t)
{
    t[DIT_TIME_SIN] = (struct shape){"time sinusoid", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, v->D};
    t[DIT_TIME_PRE] = (struct shape){"time hidden", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, v->D};
    t[DIT_TIME_ACT] =
        (struct shape){"time activated", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, v->D};
    t[DIT_FPS_SIN] =
        (struct shape){"fps sinusoid", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, MODEL_FPS_WIDTH};
    t[DIT_FPS_PRE] =
        (struct shape){"fps hidden", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, MODEL_FPS_WIDTH};
    t[DIT_FPS_ACT] =
        (struct shape){"fps activated", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, MODEL_FPS_WIDTH};
    t[DIT_COND_PRE] =
        (struct shape){"conditioning before norm", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, v->D};
    t[DIT_COND_RSTD] =
        (struct shape){"conditioning rstd", BUFFER_SAVED, STAT, SLOT, v->cond, v->n, 1};
    t[DIT_COND] = (struct shape){"conditioning", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, v->D};
    t[DIT_COND_SILU] =
        (struct shape){"conditioning activated", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, v->D};
    t[DIT_SHARED] =
        (struct shape){"shared modulation", BUFFER_SAVED, ACT, SLOT, v->shared, v->n, 3 * v->D};
    t[DIT_FINAL_LOW] =
        (struct shape){"final low rank", BUFFER_SAVED, ACT, SLOT, v->low, v->n, v->R};
    t[DIT_FINAL_MOD] =
        (struct shape){"final modulation", BUFFER_SAVED, ACT, SLOT, v->cond, v->n, 2 * v->D};
}

static void block_shapes(const struct dims *v, struct shape *t)
{
    int64_t s = v->s, r = v->r, D = v->D, Hd = v->H * v->d, Kd = v->K * v->d,
            u = num_max_i64(v->a > 1 ? v->u : s, v->g);
    t[DIT_X] = (struct shape){"block input", BUFFER_SAVED, STREAM, LAYER, 1, r, D};
    t[DIT_MOD_LOW] =
        (struct shape){"modulation low rank", BUFFER_SAVED, ACT, LAYER, v->low, v->n, v->R};
    t[DIT_MOD] =
        (struct shape){"modulation", BUFFER_SAVED, ACT, LAYER, v->cond, v->n, 3 * v->A * D};
    t[DIT_QKV] = (struct shape){"qkv", BUFFER_SAVED, ACT, ATTENTION, v->S, s, Hd + 2 * Kd};
    t[DIT_ATTN] = (struct shape){"attention", BUFFER_SAVED, ACT, ATTENTION, v->S, s, Hd};
    t[DIT_LSE] =
        (struct shape){"attention lse", BUFFER_SAVED, STAT, ATTENTION, v->S, u, v->g ? v->H : v->h};
    t[DIT_CROSS_Q] = (struct shape){"cross q", BUFFER_SAVED, ACT, BLOCK, v->cross, s, Hd};
    t[DIT_CROSS_KV] = (struct shape){"cross kv", BUFFER_SAVED, ACT, BLOCK, v->cross, v->x, 2 * Kd};
    t[DIT_CROSS_ATTN] =
        (struct shape){"cross attention", BUFFER_SAVED, ACT, ATTENTION, v->cross, s, Hd};
    t[DIT_CROSS_LSE] =
        (struct shape){"cross lse", BUFFER_SAVED, STAT, ATTENTION, v->cross, s, v->H};
    t[DIT_MLP_PRE] = (struct shape){"mlp hidden", BUFFER_SAVED, ACT, BLOCK, 1, s, v->F1};
    t[DIT_RES] =
        (struct shape){"residual before a sub-block", BUFFER_SAVED, STREAM, BLOCK, v->B - 1, r, D};
    t[DIT_OUT] = (struct shape){"sub-block out", BUFFER_SAVED, ACT, BLOCK, v->B, r, D};
    t[DIT_X_FINAL] = (struct shape){"final input", BUFFER_SAVED, STREAM, SLOT, 1, r, D};
    t[DIT_PRED] = (struct shape){"prediction", BUFFER_WORK, ACT, ONCE, 1, r, v->C * v->P};
    t[DIT_DPRED] = (struct shape){"d prediction", BUFFER_SAVED, ACT, SLOT, 1, r, v->C * v->P};
}

static void work_shapes(const struct dims *v, struct shape *t)
{
    int64_t s = v->s, r = v->r, n = v->n, D = v->D, Hd = v->H * v->d, Kd = v->K * v->d,
            own = 3 * v->A * D / v->tp, tp = v->tp > 1 && v->cond;
    t[DIT_STATS] = (struct shape){"norm statistics", BUFFER_WORK, STAT, ONCE, 1, r, 2};
    t[DIT_NORMED] = (struct shape){"normed", BUFFER_WORK, ACT, ONCE, 1, r, D};
    t[DIT_NORMED_ALL] =
        (struct shape){"normed, all tp ranks'", BUFFER_WORK, ACT, ONCE, v->sp, s, D};
    t[DIT_PARTIAL] = (struct shape){"partial sums over tp", BUFFER_WORK, ACT, ONCE, v->sp, s, D};
    t[DIT_QK] = (struct shape){"normed qk", BUFFER_WORK, ACT, ONCE, 1, s, Hd + Kd};
    t[DIT_QK_RSTD] = (struct shape){"qk rstd", BUFFER_WORK, STAT, ONCE, 1, s, v->H + v->K};
    t[DIT_CROSS_QN] = (struct shape){"normed cross q", BUFFER_WORK, ACT, ONCE, v->cross, s, Hd};
    t[DIT_CROSS_KN] = (struct shape){"normed cross k", BUFFER_WORK, ACT, ONCE, v->cross, v->x, Kd};
    t[DIT_CROSS_RSTD] = (struct shape){"cross q rstd", BUFFER_WORK, STAT, ONCE, v->cross, s, v->H};
    t[DIT_CROSS_K_RSTD] =
        (struct shape){"cross k rstd", BUFFER_WORK, STAT, ONCE, v->cross, v->x, v->K};
    t[DIT_MLP_ACT] = (struct shape){"mlp activated", BUFFER_WORK, ACT, ONCE, 1, s, v->F};
    t[DIT_MOD_OWN] = (struct shape){"modulation, own columns", BUFFER_WORK, ACT, ONCE, tp, n, own};
    t[DIT_MOD_PARTS] =
        (struct shape){"modulation by tp rank", BUFFER_WORK, ACT, ONCE, tp, v->tp * n, own};
    t[DIT_DX] = (struct shape){"d residual", BUFFER_WORK, STREAM, ONCE, 1, r, D};
    t[DIT_DX_OUT] = (struct shape){"d residual on its way", BUFFER_WORK, STREAM, ONCE, v->pp, r, D};
    t[DIT_DBRANCH] = (struct shape){"d branch", BUFFER_WORK, ACT, ONCE, 1, r, D};
    t[DIT_DNORMED] = (struct shape){"d normed", BUFFER_WORK, ACT, ONCE, 1, r, D};
    t[DIT_DATTN] = (struct shape){"d attention", BUFFER_WORK, ACT, ONCE, 1, s, Hd};
    t[DIT_DELTA] = (struct shape){"attention delta", BUFFER_WORK, STAT, ONCE, 1, s, v->H};
    t[DIT_DQKV] = (struct shape){"d qkv", BUFFER_WORK, ACT, ONCE, 1, s, Hd + 2 * Kd};
    t[DIT_DCROSS_Q] = (struct shape){"d cross q", BUFFER_WORK, ACT, ONCE, v->cross, s, Hd};
    t[DIT_DCROSS_KV] = (struct shape){"d cross kv", BUFFER_WORK, ACT, ONCE, v->cross, v->x, 2 * Kd};
    t[DIT_DMLP] = (struct shape){"d mlp hidden", BUFFER_WORK, ACT, ONCE, 1, s, v->F1};
    t[DIT_DMLP_ACT] = (struct shape){"d mlp activated", BUFFER_WORK, ACT, ONCE, v->gated, s, v->F};
    t[DIT_DMOD] = (struct shape){"d modulation", BUFFER_WORK, STAT, ONCE, v->cond, n, 3 * v->A * D};
    t[DIT_DMOD_OWN] =
        (struct shape){"d modulation, own columns", BUFFER_WORK, STAT, ONCE, tp, n, own};
    t[DIT_DMOD_PARTS] =
        (struct shape){"d modulation by tp rank", BUFFER_WORK, STAT, ONCE, tp && v->sp,
                       v->tp * n, own};
    t[DIT_DLOW] = (struct shape){"d modulation low rank", BUFFER_WORK, STAT, ONCE, v->low, n, v->R};
    t[DIT_DCOND_SILU] =
        (struct shape){"d conditioning activated", BUFFER_WORK, STAT, ONCE, v->cond, n, D};
    t[DIT_DCOND] = (struct shape){"d conditioning", BUFFER_WORK, STAT, ONCE, v->cond, n, D};
    t[DIT_DCOND_PRE] =
        (struct shape){"d conditioning before norm", BUFFER_WORK, STAT, ONCE, v->cond, n, D};
    t[DIT_DSHARED] =
        (struct shape){"d shared modulation", BUFFER_WORK, STAT, ONCE, v->shared, n, 3 * D};
    t[DIT_DTIME] = (struct shape){"d time", BUFFER_WORK, STAT, ONCE, v->cond, n, D};
    t[DIT_DFPS] = (struct shape){"d fps", BUFFER_WORK, STAT, ONCE, v->cond, n, MODEL_FPS_WIDTH};
    t[DIT_DNULL] = (struct shape){"d null text", BUFFER_WORK, STAT, ONCE, v->cross, n, v->c};
}

/* Fills the buffers of context parallelism. Ranks exchange blocks in which q, k and v of each row
 * follow each other; in backward with segments, the blocks hold the output and its gradient
 * instead. DIT_CP_PACK and DIT_CP_UNPACK have the size of the larger direction. */
static void cp_shapes(const struct dims *v, struct shape *t)
{
    int64_t d = v->d, y = v->ring > 1, h = v->g ? v->H : v->h, k = v->g ? v->K : v->k,
            qkv = (h + 2 * k) * d;
    int64_t u = num_max_i64(v->a > 1 ? v->u : 0, v->g), x = u > 0,
            heads = v->a > 1 ? num_max_i64(v->s * v->a, v->u) : 0;
    int64_t pack = num_max_i64(heads * (v->h + 2 * v->k) * d,
                               num_max_i64(v->s, v->g) * num_max_i64(qkv, 2 * h * d));
    t[DIT_CP_PACK] =
        (struct shape){"heads or segments leaving", BUFFER_WORK, ACT, ONCE, v->cp && x, 1, pack};
    t[DIT_CP_UNPACK] =
        (struct shape){"heads or segments arriving", BUFFER_WORK, ACT, ONCE, v->cp && x, 1, pack};
    t[DIT_CP_QKV] = (struct shape){"exchanged qkv", BUFFER_WORK, ACT, ONCE, x, u, qkv};
    t[DIT_CP_O] = (struct shape){"exchanged attention", BUFFER_WORK, ACT, ONCE, x, u, h * d};
    t[DIT_CP_D_O] = (struct shape){"d exchanged attention", BUFFER_WORK, ACT, ONCE, x, u, h * d};
    t[DIT_CP_DELTA] = (struct shape){"exchanged delta", BUFFER_WORK, STAT, ONCE, x, u, h};
    t[DIT_CP_DQKV] = (struct shape){"d exchanged qkv", BUFFER_WORK, ACT, ONCE, x, u, qkv};
    t[DIT_CP_KV] = (struct shape){"ring k, v", BUFFER_WORK, ACT, ONCE, y, 2 * v->u, 2 * v->k * d};
    t[DIT_CP_O_PART] =
        (struct shape){"ring attention part", BUFFER_WORK, STAT, ONCE, y, v->u, v->h * d};
    t[DIT_CP_LSE_PART] = (struct shape){"ring lse part", BUFFER_WORK, STAT, ONCE, y, v->u, v->h};
    t[DIT_CP_DKV] =
        (struct shape){"ring d k, v", BUFFER_WORK, STAT, ONCE, y, 3 * v->u, 2 * v->k * d};
    t[DIT_CP_O_SUM] =
        (struct shape){"ring attention", BUFFER_WORK, STAT, ONCE, y && v->narrow, v->u, v->h * d};
    t[DIT_CP_DQ] =
        (struct shape){"ring d q", BUFFER_WORK, STAT, ONCE, y && v->narrow, v->u, v->h * d};
}

int64_t buffers_staged_bytes(const struct buffer_spec *spec)
{
    const struct model *m = spec->model;
    int64_t cells = spec->tokens * model_patch_cells(m),
            wide = m->latent_channels + m->cond_channels,
            text = model_has_cross(m) ? spec->text_tokens * m->text_width : 0;
    return (cells * wide + text) * dtype_bytes(DTYPE_F32);
}

int64_t buffers_tp_sum_bytes(const struct buffer_spec *spec)
{
    struct layout plain = layout_default();
    struct dims v = dims_of(spec, spec->layout ? spec->layout : &plain);
    int64_t rows = (v.sp ? v.r * v.tp : v.s) * v.D * dtype_bytes(spec->act);
    int64_t cond = v.cond * v.n * num_max_i64(v.shared ? 3 * v.D : v.D, v.sp ? 3 * v.A * v.D : 0) *
                   dtype_bytes(spec->stat);
    return v.tp == 1 ? 0 : num_max_i64(rows, cond);
}

/* Fills the buffers of low-rank adapters (finetune.h), which must hold the rows of any product:
 * tokens, text or samples. */
static void lora_shapes(const struct buffer_spec *spec, const struct dims *v, struct shape *t)
{
    int64_t rows = num_max_i64(v->s, num_max_i64(v->x, v->n)), has = spec->lora_rank > 0;
    t[DIT_LORA_LOW] =
        (struct shape){"adapter low rank", BUFFER_WORK, ACT, ONCE, has, rows, spec->lora_rank};
    t[DIT_LORA_DLOW] =
        (struct shape){"d adapter low rank", BUFFER_WORK, ACT, ONCE, has, rows, spec->lora_rank};
}

/* Returns how many of a chunk's layers share their copies, because they are recomputed. */
static int64_t layers_again(enum copies copies, const struct layout *l, int64_t layers)
{
    bool attention = copies == ATTENTION, block = copies == BLOCK;
    if (l->recompute == RECOMPUTE_FULL && (attention || block))
        return l->recompute_layers ? num_min_i64(l->recompute_layers, layers) : layers;
    return l->recompute == RECOMPUTE_SELECTIVE && block ? layers : 0;
}

/* Sets the number of copies. Each layer of a chunk that is not recomputed has its copies in every
 * slot; all recomputed layers share one set. */
static void copies_set(struct buffer *b, enum copies copies, int64_t has, const struct layout *l,
                       int64_t layers, int64_t slots)
{
    int64_t again = layers_again(copies, l, layers);
    b->per = copies >= LAYER ? has : 0;
    b->each = copies == ONCE ? 0 : copies == SLOT ? 1 : (layers - again) * has;
    b->shared = copies == ONCE ? 1 : again > 0 ? has : 0;
    b->count = b->each * slots + b->shared;
}

/* Returns the layers of the longest pipeline chunk. */
static int64_t chunk_layers(const struct layout *l, int64_t layers)
{ return num_ceil_div(layers, l->pp * l->vpp); }

int64_t buffer_stride_bytes(const struct buffer *b)
{
    return b->count ? b->bytes / b->count : 0;
}

bool buffer_copy_bytes(int64_t rows, int64_t cols, enum dtype dtype, int64_t *out)
{
    int64_t bytes;
    if (!num_mul_i64(rows, cols, &bytes) || !num_mul_i64(bytes, dtype_bytes(dtype), &bytes) ||
        bytes > INT64_MAX / 4)
        return false;
    *out = num_round_up(bytes, BUFFER_ALIGN_BYTES);
    return true;
}

static int list_add(struct buffer_list *list, const char *name, enum buffer_category category,
                    enum buffer_side side, enum dtype dtype, int64_t count, int64_t rows,
                    int64_t cols, struct err *err)
{
    int64_t bytes;
    if (list->n == BUFFER_LIST_MAX)
        return err_set(err, ERR_LIMIT, "buffer '%s': the memory plan holds %d buffers", name,
                       BUFFER_LIST_MAX);
    if (!buffer_copy_bytes(rows, cols, dtype, &bytes) || !num_mul_i64(bytes, count, &bytes) ||
        bytes > INT64_MAX / 4 - list->total)
        return err_set(err, ERR_LIMIT,
                       "buffer '%s': %lld x [%lld, %lld] elements are past 2^61 bytes: give a "
                       "smaller micro-batch",
                       name, (long long)count, (long long)rows, (long long)cols);
    struct buffer *b = &list->items[list->n++];
    *b = (struct buffer){
        .category = category, .side = side, .dtype = dtype,
        .count = count, .rows = rows, .cols = cols,
        .bytes = bytes, .offset = list->sides[side]
    };
    memcpy(b->name, name, strnlen(name, sizeof b->name - 1));
    list->total += bytes;
    list->sides[side] += bytes;
    return 0;
}

int buffer_list_add(struct buffer_list *list, const char *name, enum buffer_category category,
                    enum dtype dtype, int64_t count, int64_t rows, int64_t cols, struct err *err)
{
    return list_add(list, name, category, BUFFER_ON_DEVICE, dtype, count, rows, cols, err);
}

int buffer_list_add_host(struct buffer_list *list, const char *name, enum buffer_category category,
                         enum buffer_side side, int64_t count, int64_t bytes, struct err *err)
{
    return list_add(list, name, category, side, DTYPE_BYTE, count, 1, bytes, err);
}

int64_t buffer_list_bytes(const struct buffer_list *list, enum buffer_category category)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < list->n; i++)
        sum += list->items[i].category == category ? list->items[i].bytes : 0;
    return sum;
}

static enum dtype dtype_of(const struct buffer_spec *spec, const struct shape *t)
{
    switch (t->type) {
    case ACT: return spec->act;
    case STAT: return spec->stat;
    case STREAM: return spec->residual_wide ? spec->stat : spec->act;
    case WIDE: break;
    }
    return DTYPE_F64;
}

/* Says whether kernels cannot count what a micro-batch has of something. */
static bool is_large(const struct buffer_spec *spec)
{
    return spec->tokens > INT32_MAX || spec->samples > INT32_MAX || spec->text_tokens > INT32_MAX;
}

static int buffers_check(const struct buffer_spec *spec, struct err *err)
{
    if (!model_is_trainable(spec->model))
        return err_set(err, ERR_INPUT,
                       "model %s: family '%s' with adaln '%s' has no buffer list: give a model "
                       "that is not for planning only ('reel model' lists them)",
                       spec->model->name, model_family_names[spec->model->family],
                       model_adaln_names[spec->model->adaln]);
    if (is_large(spec))
        return err_set(err, ERR_LIMIT,
                       "micro-batch of %lld tokens, %lld samples, %lld text tokens: each must be "
                       "below 2^31",
                       (long long)spec->tokens, (long long)spec->samples,
                       (long long)spec->text_tokens);
    return 0;
}

static int row_add(const struct buffer_spec *spec, const struct layout *l, const struct shape *t,
                   struct buffer_list *list, struct err *err)
{
    struct buffer b = {.each = 0};
    int rc;
    if (t->has)
        copies_set(&b, t->copies, t->has, l, chunk_layers(l, spec->model->layers),
                   num_max_i64(1, spec->slots));
    if ((rc = buffer_list_add(list, t->name, t->category, dtype_of(spec, t), b.count, t->rows,
                              t->cols, err)) < 0)
        return rc;
    struct buffer *added = &list->items[list->n - 1];
    added->each = b.each, added->shared = b.shared, added->per = b.per;
    return 0;
}

static void shapes_fill(const struct buffer_spec *spec, const struct layout *l,
                        struct shape table[DIT_BUFFERS])
{
    struct dims v = dims_of(spec, l);
    input_shapes(spec, &v, table);
    cond_shapes(&v, table);
    block_shapes(&v, table);
    work_shapes(&v, table);
    cp_shapes(&v, table);
    lora_shapes(spec, &v, table);
}

int buffers_dit(const struct buffer_spec *spec, struct buffer_list *list, struct err *err)
{
    struct layout plain = layout_default();
    const struct layout *l = spec->layout ? spec->layout : &plain;
    struct shape table[DIT_BUFFERS];
    int rc;
    BUG_ON(list->n != 0);
    if ((rc = buffers_check(spec, err)) < 0)
        return rc;
    shapes_fill(spec, l, table);
    for (int i = 0; i < DIT_BUFFERS; i++)
        if ((rc = row_add(spec, l, &table[i], list, err)) < 0)
            return rc;
    return 0;
}

/* ---- sums of the list ---- */

void buffers_dit_totals(const struct buffer_spec *spec, struct buffer_totals *out)
{
    struct shape table[DIT_BUFFERS];
    *out = (struct buffer_totals){{{0}}};
    if (is_large(spec)) {
        out->bytes[BUFFER_WORK][ONCE] = BUFFER_TOO_MANY_BYTES;
        return;
    }
    shapes_fill(spec, spec->layout, table);
    for (int i = 0; i < DIT_BUFFERS; i++) {
        const struct shape *t = &table[i];
        double *sum = &out->bytes[t->category][t->copies];
        int64_t copy, n = t->copies >= LAYER ? t->has : t->has > 0;
        if (n > 0)
            *sum += buffer_copy_bytes(t->rows, t->cols, dtype_of(spec, t), &copy)
                        ? (double)n * (double)copy
                        : BUFFER_TOO_MANY_BYTES;
    }
}

void buffers_totals_add(const struct buffer_totals *sums, const struct layout *l, int64_t layers,
                      int64_t slots, double bytes[BUFFER_CATEGORIES])
{
    int64_t in_chunk = chunk_layers(l, layers);
    for (int kind = 0; kind < COPIES; kind++) {
        struct buffer b;
        copies_set(&b, (enum copies)kind, 1, l, in_chunk, slots);
        for (int c = 0; c < BUFFER_OF_DIT; c++)
            bytes[c] += (double)b.count * sums->bytes[c][kind];
    }
}
