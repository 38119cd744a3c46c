/* This is the parameter list, in its order. D is hidden, d head dim, H heads, K kv_heads, F ffn, c
 * text_width, r adaln_rank, C latent channels, P cells of a patch, A the modulated sub-blocks of a
 * layer (attn, cross, mlp: 3; 2 without text). All matrices are row-major [out, in]; there are no
 * biases.
 *
 *   patch_embed.weight        [D, (C + cond_channels) P]  input columns: channel, then patch t, h,
 *                                        w (fastest last)
 *   pos_t.weight, pos_h.weight, pos_w.weight  [pos_t, D], [pos_h, D], [pos_w, D]  with position
 *                                        tables: the rows of a token's place are added to its patch
 *                                        embedding
 *   time_mlp.0.weight         [D, D]     of the sinusoid of the noise level, width D; SiLU after it
 *   time_mlp.2.weight         [D, D]     full, lora_single, global: the conditioning vector e
 *                             [3D, D]    lora_separate, lora_fused: u, added to every modulation; e
 *                                        is the sinusoid itself
 *   fps_mlp.0.weight          [256, 256] of the frame rate's sinusoid, width 256; SiLU after it
 *   fps_mlp.2.weight          [min(256, D), 256]  added to the first components of e
 *   cond_norm.weight          [D]        RMSNorm gain on e
 *   text_null                 [c]        the one token that stands for a dropped caption
 *   blocks.N.attn.qkv.weight  [(H + 2K) d, D]     rows: all q heads, all k heads, all v heads
 *   blocks.N.attn.q_norm.weight, k_norm.weight  [d]  per-head RMSNorm gains
 *   blocks.N.attn.out.weight  [D, H d]
 *   blocks.N.cross.q.weight   [H d, D]
 *   blocks.N.cross.kv.weight  [2 K d, c]          rows: all k heads, all v heads
 *   blocks.N.cross.q_norm.weight, k_norm.weight [d]
 *   blocks.N.cross.out.weight [D, H d]
 *   blocks.N.mlp.fc1.weight   [F, D], gated: [2F, D], rows: gate, then up
 *   blocks.N.mlp.fc2.weight   [D, F]
 *   blocks.N.adaln.weight                 [3A D, D]         full; rows: shift, scale, gate of attn,
 *                                                           then of cross, then of mlp
 *   blocks.N.adaln.{attn,cross,mlp}.a.weight [r, D], .b.weight [3D, r]   lora_separate
 *   blocks.N.adaln.a.weight [A r, D], .b.weight [3A D, A r]              lora_fused
 *   blocks.N.adaln.a.weight [r, D], .b.weight [3A D, r]                  lora_single
 *   final.adaln.weight [2D, D], or final.adaln.a.weight [r, D] and .b.weight [2D, r]
 *                                        shift and scale of the last norm
 *   final.out.weight          [C P, D]   rows as the columns of patch_embed
 *
 * adaln none has no conditioning tensors (time_mlp, fps_mlp, cond_norm). stdit has two more
 * self-attentions of the same form before attn, named spatial and temporal, each with its
 * modulation (A is 5). moviegen is dit with its own kv_heads and gated MLP, and RMS norms. gpt and
 * llama (for planning) have token_embed.weight [vocab, D], blocks with norm1.weight and
 * norm2.weight [D] instead of AdaLN and without QK norm, final.norm.weight [D], and for llama
 * final.out.weight [vocab, D] (gpt ties it). adaln global (for planning) has adaln.global.weight
 * [3A D, D] outside the layers, blocks.N.adaln.table [3A D] and final.adaln.table [2D]. text_in
 * (for planning) has text_mlp.0.weight [c, text_in] and text_mlp.2.weight [c, c], for the caption's
 * tokens.
 *
 * Initialisation follows Cosmos's general_dit.py: linears are Xavier-uniform, embedder MLPs N(0,
 * 0.02), the last matrix of each modulation and the final output zero (with full AdaLN each gate
 * starts at 0, so a block is the identity), position tables N(0, 0.02), norm gains one. Weight
 * decay applies to matrices only. TP splits fc1 (gate and up each), q, qkv, kv (by heads), the
 * modulation's last matrix and the matrices with vocab rows, by rows; it splits out and fc2 by
 * columns. The rest is replicated, and so is adaln.global.
 */
#include "profiles/params.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

const char *const param_part_names[] = {
    "embedding", "conditioning", "self-attention", "cross-attention", "MLP", "modulation", "head",
    NULL};

struct builder {
    const struct model *m;
    struct param_list list;
    int64_t capacity;
    int64_t layer; /* layer of the next tensors */
    bool overflow, nomem;
};

static const unsigned MATRIX = PARAM_DECAY | PARAM_TRAINABLE;

static struct param *next_slot(struct builder *b)
{
    if (b->list.n == b->capacity) {
        int64_t capacity = b->capacity ? 2 * b->capacity : 64;
        struct param *items = realloc(b->list.items, (size_t)capacity * sizeof *items);
        if (!items) {
            b->nomem = true;
            return NULL;
        }
        b->list.items = items;
        b->capacity = capacity;
    }
    struct param *p = &b->list.items[b->list.n++];
    memset(p, 0, sizeof *p);
    return p;
}

/* Appends a copy of proto under the name "<prefix><name>", where the prefix is "blocks.N." inside a
 * layer. Fills count, layer and lr_scale. */
static void add(struct builder *b, struct param proto, const char *fmt, ...)
{
    struct param *p = b->nomem ? NULL : next_slot(b);
    if (!p)
        return;
    int at = 0;
    va_list ap;
    *p = proto;
    if (b->layer >= 0)
        at = snprintf(p->name, sizeof p->name, "blocks.%lld.", (long long)b->layer);
    va_start(ap, fmt);
    vsnprintf(p->name + at, sizeof p->name - (size_t)at, fmt, ap);
    va_end(ap);
    p->layer = b->layer;
    p->lr_scale = 1.0;
    p->count = 1;
    for (int i = 0; i < p->nd; i++)
        b->overflow |= !num_mul_i64(p->count, p->dim[i], &p->count);
    b->overflow |= !num_add_i64(b->list.total, p->count, &b->list.total);
}

static struct param matrix(enum param_part part, int64_t out, int64_t in, unsigned meets,
                           enum param_tp tp)
{
    return (struct param){.nd = 2,
                          .dim = {out, in},
                          .init = PARAM_XAVIER,
                          .flags = MATRIX | meets,
                          .tp = tp,
                          .part = part};
}

static struct param zero_matrix(enum param_part part, int64_t out, int64_t in, unsigned meets,
                                enum param_tp tp)
{
    struct param p = matrix(part, out, in, meets, tp);
    p.init = PARAM_ZERO;
    return p;
}

static struct param normal_matrix(enum param_part part, int64_t out, int64_t in, unsigned meets)
{
    struct param p = matrix(part, out, in, meets, PARAM_TP_NONE);
    p.init = PARAM_NORMAL;
    p.init_std = 0.02;
    return p;
}

static struct param gain(enum param_part part, int64_t n)
{
    return (struct param){.nd = 1,
                          .dim = {n},
                          .init = PARAM_ONE,
                          .flags = PARAM_TRAINABLE,
                          .part = part};
}

/* Returns a layer's table, which is added to the modulation that all layers share. */
static struct param table(enum param_part part, int64_t n)
{
    struct param p = gain(part, n);
    p.init = PARAM_ZERO;
    return p;
}

/* ---- outside the layers ---- */

static void add_embedding(struct builder *b)
{
    const struct model *m = b->m;
    b->layer = PARAM_LAYER_EMBED;
    if (!model_is_video(m)) {
        /* This is a look-up, not a product: it multiplies no token, unless the head uses it too. */
        struct param table = normal_matrix(PART_EMBED, m->vocab, m->hidden,
                                           m->tied_head ? PARAM_TIED : 0);
        table.tp = PARAM_TP_ROW;
        add(b, table, "token_embed.weight");
        return;
    }
    int64_t in = (m->latent_channels + m->cond_channels) * model_patch_cells(m);
    add(b, matrix(PART_EMBED, m->hidden, in, PARAM_PER_TOKEN, PARAM_TP_NONE), "patch_embed.weight");
    if (model_has_tables(m)) { /* these are look-ups, like token_embed */
        add(b, normal_matrix(PART_EMBED, m->pos_t, m->hidden, 0), "pos_t.weight");
        add(b, normal_matrix(PART_EMBED, m->pos_h, m->hidden, 0), "pos_h.weight");
        add(b, normal_matrix(PART_EMBED, m->pos_w, m->hidden, 0), "pos_w.weight");
    }
}

static void add_conditioning(struct builder *b)
{
    const struct model *m = b->m;
    int64_t D = m->hidden, fps = MODEL_FPS_WIDTH;
    b->layer = PARAM_LAYER_COND;
    if (m->adaln != ADALN_NONE) {
        int64_t time_out = model_shared_modulation(m) ? 3 * D : D;
        add(b, normal_matrix(PART_COND, D, D, PARAM_PER_SAMPLE), "time_mlp.0.weight");
        add(b, normal_matrix(PART_COND, time_out, D, PARAM_PER_SAMPLE), "time_mlp.2.weight");
        add(b, normal_matrix(PART_COND, fps, fps, PARAM_PER_SAMPLE), "fps_mlp.0.weight");
        add(b, normal_matrix(PART_COND, num_min_i64(fps, D), fps, PARAM_PER_SAMPLE),
            "fps_mlp.2.weight");
        add(b, gain(PART_COND, D), "cond_norm.weight");
    }
    if (m->adaln == ADALN_GLOBAL)
        add(b, zero_matrix(PART_MODULATION, 3 * model_modulations(m) * D, D, PARAM_PER_SAMPLE,
                           PARAM_TP_NONE),
            "adaln.global.weight");
    if (model_has_cross(m)) {
        struct param null_token = {.nd = 1,
                                   .dim = {m->text_width},
                                   .init = PARAM_NORMAL,
                                   .init_std = 0.02,
                                   .flags = PARAM_TRAINABLE,
                                   .part = PART_COND};
        add(b, null_token, "text_null");
    }
    if (m->text_in > 0) {
        add(b, matrix(PART_COND, m->text_width, m->text_in, PARAM_PER_TEXT, PARAM_TP_NONE),
            "text_mlp.0.weight");
        add(b, matrix(PART_COND, m->text_width, m->text_width, PARAM_PER_TEXT, PARAM_TP_NONE),
            "text_mlp.2.weight");
    }
}

static void add_head(struct builder *b)
{
    const struct model *m = b->m;
    int64_t D = m->hidden, r = m->adaln_rank;
    b->layer = PARAM_LAYER_HEAD;
    if (m->adaln == ADALN_GLOBAL) {
        add(b, table(PART_HEAD, 2 * D), "final.adaln.table");
    } else if (m->adaln == ADALN_FULL) {
        add(b, zero_matrix(PART_HEAD, 2 * D, D, PARAM_PER_SAMPLE, PARAM_TP_ROW),
            "final.adaln.weight");
    } else if (m->adaln != ADALN_NONE) {
        add(b, matrix(PART_HEAD, r, D, PARAM_PER_SAMPLE, PARAM_TP_NONE), "final.adaln.a.weight");
        add(b, zero_matrix(PART_HEAD, 2 * D, r, PARAM_PER_SAMPLE, PARAM_TP_ROW),
            "final.adaln.b.weight");
    }
    if (!model_is_video(m))
        add(b, gain(PART_HEAD, D), "final.norm.weight");
    if (!model_is_video(m) && !m->tied_head)
        add(b, matrix(PART_HEAD, m->vocab, D, PARAM_PER_TOKEN, PARAM_TP_ROW), "final.out.weight");
    if (model_is_video(m)) {
        int64_t out = m->latent_channels * model_patch_cells(m);
        add(b, zero_matrix(PART_HEAD, out, D, PARAM_PER_TOKEN, PARAM_TP_NONE), "final.out.weight");
    }
}

/* ---- one layer ---- */

static void add_qk_norm(struct builder *b, enum param_part part, const char *sub)
{
    if (!model_is_video(b->m))
        return;
    add(b, gain(part, model_head_dim(b->m)), "%s.q_norm.weight", sub);
    add(b, gain(part, model_head_dim(b->m)), "%s.k_norm.weight", sub);
}

static void add_self_attention(struct builder *b, const char *sub)
{
    const struct model *m = b->m;
    int64_t d = model_head_dim(m);
    add(b,
        matrix(PART_ATTN, (m->heads + 2 * m->kv_heads) * d, m->hidden, PARAM_PER_TOKEN,
               PARAM_TP_HEADS),
        "%s.qkv.weight", sub);
    add_qk_norm(b, PART_ATTN, sub);
    add(b, matrix(PART_ATTN, m->hidden, m->heads * d, PARAM_PER_TOKEN, PARAM_TP_COL),
        "%s.out.weight", sub);
}

static void add_cross_attention(struct builder *b)
{
    const struct model *m = b->m;
    int64_t d = model_head_dim(m);
    add(b, matrix(PART_CROSS, m->heads * d, m->hidden, PARAM_PER_TOKEN, PARAM_TP_HEADS),
        "cross.q.weight");
    add(b, matrix(PART_CROSS, 2 * m->kv_heads * d, m->text_width, PARAM_PER_TEXT, PARAM_TP_HEADS),
        "cross.kv.weight");
    add_qk_norm(b, PART_CROSS, "cross");
    add(b, matrix(PART_CROSS, m->hidden, m->heads * d, PARAM_PER_TOKEN, PARAM_TP_COL),
        "cross.out.weight");
}

static void add_mlp(struct builder *b)
{
    const struct model *m = b->m;
    add(b,
        matrix(PART_MLP, m->gated_mlp ? 2 * m->ffn : m->ffn, m->hidden, PARAM_PER_TOKEN,
               PARAM_TP_ROW),
        "mlp.fc1.weight");
    add(b, matrix(PART_MLP, m->hidden, m->ffn, PARAM_PER_TOKEN, PARAM_TP_COL), "mlp.fc2.weight");
}

/* Adds one pair D -> rank -> out; `sub` is "adaln" or "adaln.attn". */
static void add_lora(struct builder *b, const char *sub, int64_t rank, int64_t out)
{
    add(b, matrix(PART_MODULATION, rank, b->m->hidden, PARAM_PER_SAMPLE, PARAM_TP_NONE),
        "%s.a.weight", sub);
    add(b, zero_matrix(PART_MODULATION, out, rank, PARAM_PER_SAMPLE, PARAM_TP_ROW), "%s.b.weight",
        sub);
}

static void add_modulation(struct builder *b)
{
    const struct model *m = b->m;
    int64_t D = m->hidden, n = model_modulations(m), r = m->adaln_rank;
    switch (m->adaln) {
    case ADALN_NONE:
        return;
    case ADALN_FULL:
        add(b, zero_matrix(PART_MODULATION, 3 * n * D, D, PARAM_PER_SAMPLE, PARAM_TP_ROW),
            "adaln.weight");
        return;
    case ADALN_LORA_SEPARATE:
        if (m->family == MODEL_STDIT) {
            add_lora(b, "adaln.spatial", r, 3 * D);
            add_lora(b, "adaln.temporal", r, 3 * D);
        }
        add_lora(b, "adaln.attn", r, 3 * D);
        if (model_has_cross(m) && !m->cross_plain)
            add_lora(b, "adaln.cross", r, 3 * D);
        add_lora(b, "adaln.mlp", r, 3 * D);
        return;
    case ADALN_LORA_FUSED:
        add_lora(b, "adaln", n * r, 3 * n * D);
        return;
    case ADALN_LORA_SINGLE:
        add_lora(b, "adaln", r, 3 * n * D);
        return;
    case ADALN_GLOBAL:
        add(b, table(PART_MODULATION, 3 * n * D), "adaln.table");
        return;
    }
}

static void add_layer(struct builder *b, int64_t layer)
{
    const struct model *m = b->m;
    b->layer = layer;
    if (m->family == MODEL_STDIT) {
        add_self_attention(b, "spatial");
        add_self_attention(b, "temporal");
    }
    if (!model_is_video(m))
        add(b, gain(PART_ATTN, m->hidden), "norm1.weight");
    add_self_attention(b, "attn");
    if (model_has_cross(m))
        add_cross_attention(b);
    if (!model_is_video(m))
        add(b, gain(PART_MLP, m->hidden), "norm2.weight");
    add_mlp(b);
    add_modulation(b);
}

/* ---- the list ---- */

int params_build(const struct model *m, struct param_list *out, struct err *err)
{
    struct builder b = {.m = m};
    int rc = model_check(m, m->name, err);
    if (rc < 0)
        return rc;
    add_embedding(&b);
    add_conditioning(&b);
    for (int64_t i = 0; i < m->layers && !b.nomem; i++)
        add_layer(&b, i);
    add_head(&b);
    if (b.nomem)
        rc = err_set(err, ERR_NOMEM, "model %s: no memory for the list of its %lld layers", m->name,
                     (long long)m->layers);
    else if (b.overflow)
        rc = err_set(err, ERR_LIMIT,
                     "model %s: more than 2^63 parameters: give fewer layers or a smaller hidden",
                     m->name);
    if (rc < 0) {
        params_release(&b.list);
        return rc;
    }
    *out = b.list;
    return 0;
}

void params_release(struct param_list *list)
{
    free(list->items);
    *list = (struct param_list){0};
}

int64_t params_find(const struct param_list *list, const char *name)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return i;
    return -1;
}

int64_t params_backbone(const struct param_list *list)
{
    int64_t n = 0;
    for (int64_t i = 0; i < list->n; i++)
        n += list->items[i].layer >= 0 ? list->items[i].count : 0;
    return n;
}
