/* The buffers of a DiT's micro-batch, and their shapes. s tokens, n samples, x text rows (caption tokens, then at most one
 * null token a sample), D hidden, d head dim, H heads, K kv_heads, F ffn, c text width, C channels, P cells of a patch,
 * A modulated sub-blocks, R columns of the low-rank side of a block's modulation.
 *
 * What is saved from forward for backward is 16 vectors of width D a token and block at F = 4D, K = H: the block's
 * input, qkv (3), attention output, its projection, the residual after it, cross q, cross attention output, its
 * projection, the residual after it, the MLP before its activation (4) and its output. Normed and modulated inputs, normed
 * queries and keys, and activations are elementwise functions of these and made again in backward. With full recompute
 * only the input and the modulation of each block are kept, and there is one copy of the rest.
 */
#include "profiles/buffers.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

const char *const buffer_category_names[] = {"inputs", "activations", "work", "weights", "gradients", "optimizer",
                                             "average (EMA)", "communication", "loader", "process", NULL};

struct shape {
    const char *name;
    enum buffer_category category;
    enum { ACT, STAT, WIDE } type; /* WIDE: f64 whatever the others are */
    int64_t count, rows, cols;
};

struct dims {
    int64_t s, n, x, D, d, H, K, F, F1, c, C, Cc, P, L, A, R, saved;
    int64_t cond, shared, cross, low, gated; /* 0 or 1: does the model have it */
};

static struct dims dims_of(const struct buffer_spec *b)
{
    const struct model *m = b->model;
    struct dims v = {.s = b->tokens, .n = b->samples, .D = m->hidden, .d = model_head_dim(m), .H = m->heads,
                     .K = m->kv_heads, .F = m->ffn, .F1 = m->gated_mlp ? 2 * m->ffn : m->ffn, .c = m->text_width,
                     .C = m->latent_channels, .Cc = m->cond_channels, .P = model_patch_cells(m), .L = m->layers,
                     .A = model_modulations(m)};
    v.cond = m->adaln != ADALN_NONE;
    v.shared = v.cond && model_shared_modulation(m);
    v.low = v.cond && m->adaln != ADALN_FULL;
    v.cross = model_has_cross(m);
    v.gated = m->gated_mlp;
    v.R = !v.low ? 0 : m->adaln == ADALN_LORA_SINGLE ? m->adaln_rank : v.A * m->adaln_rank;
    v.x = v.cross ? b->text_tokens + b->samples : 0;
    v.saved = b->recompute == RECOMPUTE_FULL ? 1 : v.L;
    return v;
}

static void input_shapes(const struct dims *v, struct shape *t)
{
    int64_t cells = v->s * v->P;
    int64_t stage = num_max_i64(num_max_i64(cells * v->C, cells * v->Cc), v->x * v->c);
    t[DIT_STAGE] = (struct shape){"staging", BUFFER_INPUT, WIDE, 1, 1, stage};
    t[DIT_LATENT] = (struct shape){"latent", BUFFER_INPUT, STAT, 1, 1, cells * v->C};
    t[DIT_NOISE] = (struct shape){"noise", BUFFER_INPUT, STAT, 1, 1, cells * v->C};
    t[DIT_COND_LATENT] = (struct shape){"conditioning latent", BUFFER_INPUT, STAT, v->Cc > 0, 1, cells * v->Cc};
    t[DIT_PATCHES] = (struct shape){"patches", BUFFER_INPUT, ACT, 1, v->s, (v->C + v->Cc) * v->P};
    t[DIT_TEXT] = (struct shape){"text", BUFFER_INPUT, ACT, v->cross, v->x, v->c};
    t[DIT_COS] = (struct shape){"rope cos", BUFFER_INPUT, STAT, 1, v->s, v->d / 2};
    t[DIT_SIN] = (struct shape){"rope sin", BUFFER_INPUT, STAT, 1, v->s, v->d / 2};
}

static void cond_shapes(const struct dims *v, struct shape *t)
{
    t[DIT_TIME_SIN] = (struct shape){"time sinusoid", BUFFER_SAVED, ACT, v->cond, v->n, v->D};
    t[DIT_TIME_PRE] = (struct shape){"time hidden", BUFFER_SAVED, ACT, v->cond, v->n, v->D};
    t[DIT_TIME_ACT] = (struct shape){"time activated", BUFFER_SAVED, ACT, v->cond, v->n, v->D};
    t[DIT_FPS_SIN] = (struct shape){"fps sinusoid", BUFFER_SAVED, ACT, v->cond, v->n, MODEL_FPS_WIDTH};
    t[DIT_FPS_PRE] = (struct shape){"fps hidden", BUFFER_SAVED, ACT, v->cond, v->n, MODEL_FPS_WIDTH};
    t[DIT_FPS_ACT] = (struct shape){"fps activated", BUFFER_SAVED, ACT, v->cond, v->n, MODEL_FPS_WIDTH};
    t[DIT_COND_PRE] = (struct shape){"conditioning before norm", BUFFER_SAVED, ACT, v->cond, v->n, v->D};
    t[DIT_COND_RSTD] = (struct shape){"conditioning rstd", BUFFER_SAVED, STAT, v->cond, v->n, 1};
    t[DIT_COND] = (struct shape){"conditioning", BUFFER_SAVED, ACT, v->cond, v->n, v->D};
    t[DIT_COND_SILU] = (struct shape){"conditioning activated", BUFFER_SAVED, ACT, v->cond, v->n, v->D};
    t[DIT_SHARED] = (struct shape){"shared modulation", BUFFER_SAVED, ACT, v->shared, v->n, 3 * v->D};
    t[DIT_FINAL_LOW] = (struct shape){"final low rank", BUFFER_SAVED, ACT, v->low, v->n, v->R};
    t[DIT_FINAL_MOD] = (struct shape){"final modulation", BUFFER_SAVED, ACT, v->cond, v->n, 2 * v->D};
}

static void block_shapes(const struct dims *v, struct shape *t)
{
    int64_t s = v->s, D = v->D, Hd = v->H * v->d, Kd = v->K * v->d, each = v->saved, cross = v->cross ? each : 0;
    t[DIT_X] = (struct shape){"block input", BUFFER_SAVED, ACT, v->L, s, D};
    t[DIT_MOD_LOW] = (struct shape){"modulation low rank", BUFFER_SAVED, ACT, v->low ? v->L : 0, v->n, v->R};
    t[DIT_MOD] = (struct shape){"modulation", BUFFER_SAVED, ACT, v->cond ? v->L : 0, v->n, 3 * v->A * D};
    t[DIT_QKV] = (struct shape){"qkv", BUFFER_SAVED, ACT, each, s, Hd + 2 * Kd};
    t[DIT_ATTN] = (struct shape){"attention", BUFFER_SAVED, ACT, each, s, Hd};
    t[DIT_LSE] = (struct shape){"attention lse", BUFFER_SAVED, STAT, each, s, v->H};
    t[DIT_ATTN_OUT] = (struct shape){"attention out", BUFFER_SAVED, ACT, each, s, D};
    t[DIT_X_CROSS] = (struct shape){"residual before cross", BUFFER_SAVED, ACT, cross, s, D};
    t[DIT_CROSS_Q] = (struct shape){"cross q", BUFFER_SAVED, ACT, cross, s, Hd};
    t[DIT_CROSS_KV] = (struct shape){"cross kv", BUFFER_SAVED, ACT, cross, v->x, 2 * Kd};
    t[DIT_CROSS_ATTN] = (struct shape){"cross attention", BUFFER_SAVED, ACT, cross, s, Hd};
    t[DIT_CROSS_LSE] = (struct shape){"cross lse", BUFFER_SAVED, STAT, cross, s, v->H};
    t[DIT_CROSS_OUT] = (struct shape){"cross out", BUFFER_SAVED, ACT, cross, s, D};
    t[DIT_X_MLP] = (struct shape){"residual before mlp", BUFFER_SAVED, ACT, each, s, D};
    t[DIT_MLP_PRE] = (struct shape){"mlp hidden", BUFFER_SAVED, ACT, each, s, v->F1};
    t[DIT_MLP_OUT] = (struct shape){"mlp out", BUFFER_SAVED, ACT, each, s, D};
    t[DIT_X_FINAL] = (struct shape){"final input", BUFFER_SAVED, ACT, 1, s, D};
    t[DIT_PRED] = (struct shape){"prediction", BUFFER_SAVED, ACT, 1, s, v->C * v->P};
}

static void work_shapes(const struct dims *v, struct shape *t)
{
    int64_t s = v->s, n = v->n, D = v->D, Hd = v->H * v->d, Kd = v->K * v->d;
    t[DIT_STATS] = (struct shape){"norm statistics", BUFFER_WORK, STAT, 1, s, 2};
    t[DIT_NORMED] = (struct shape){"normed", BUFFER_WORK, ACT, 1, s, D};
    t[DIT_QK] = (struct shape){"normed qk", BUFFER_WORK, ACT, 1, s, Hd + Kd};
    t[DIT_QK_RSTD] = (struct shape){"qk rstd", BUFFER_WORK, STAT, 1, s, v->H + v->K};
    t[DIT_CROSS_QN] = (struct shape){"normed cross q", BUFFER_WORK, ACT, v->cross, s, Hd};
    t[DIT_CROSS_KN] = (struct shape){"normed cross k", BUFFER_WORK, ACT, v->cross, v->x, Kd};
    t[DIT_CROSS_RSTD] = (struct shape){"cross q rstd", BUFFER_WORK, STAT, v->cross, s, v->H};
    t[DIT_CROSS_K_RSTD] = (struct shape){"cross k rstd", BUFFER_WORK, STAT, v->cross, v->x, v->K};
    t[DIT_MLP_ACT] = (struct shape){"mlp activated", BUFFER_WORK, ACT, 1, s, v->F};
    t[DIT_DPRED] = (struct shape){"d prediction", BUFFER_WORK, ACT, 1, s, v->C * v->P};
    t[DIT_DX] = (struct shape){"d residual", BUFFER_WORK, ACT, 1, s, D};
    t[DIT_DBRANCH] = (struct shape){"d branch", BUFFER_WORK, ACT, 1, s, D};
    t[DIT_DNORMED] = (struct shape){"d normed", BUFFER_WORK, ACT, 1, s, D};
    t[DIT_DATTN] = (struct shape){"d attention", BUFFER_WORK, ACT, 1, s, Hd};
    t[DIT_DELTA] = (struct shape){"attention delta", BUFFER_WORK, STAT, 1, s, v->H};
    t[DIT_DQKV] = (struct shape){"d qkv", BUFFER_WORK, ACT, 1, s, Hd + 2 * Kd};
    t[DIT_DCROSS_Q] = (struct shape){"d cross q", BUFFER_WORK, ACT, v->cross, s, Hd};
    t[DIT_DCROSS_KV] = (struct shape){"d cross kv", BUFFER_WORK, ACT, v->cross, v->x, 2 * Kd};
    t[DIT_DMLP] = (struct shape){"d mlp hidden", BUFFER_WORK, ACT, 1, s, v->F1};
    t[DIT_DMLP_ACT] = (struct shape){"d mlp activated", BUFFER_WORK, ACT, v->gated, s, v->F};
    t[DIT_DMOD] = (struct shape){"d modulation", BUFFER_WORK, STAT, v->cond, n, 3 * v->A * D};
    t[DIT_DLOW] = (struct shape){"d modulation low rank", BUFFER_WORK, STAT, v->low, n, v->R};
    t[DIT_DCOND_SILU] = (struct shape){"d conditioning activated", BUFFER_WORK, STAT, v->cond, n, D};
    t[DIT_DCOND] = (struct shape){"d conditioning", BUFFER_WORK, STAT, v->cond, n, D};
    t[DIT_DCOND_PRE] = (struct shape){"d conditioning before norm", BUFFER_WORK, STAT, v->cond, n, D};
    t[DIT_DSHARED] = (struct shape){"d shared modulation", BUFFER_WORK, STAT, v->shared, n, 3 * D};
    t[DIT_DTIME] = (struct shape){"d time", BUFFER_WORK, STAT, v->cond, n, D};
    t[DIT_DFPS] = (struct shape){"d fps", BUFFER_WORK, STAT, v->cond, n, MODEL_FPS_WIDTH};
    t[DIT_DNULL] = (struct shape){"d null text", BUFFER_WORK, STAT, v->cross, n, v->c};
}

int64_t buffer_stride_bytes(const struct buffer *b)
{
    return b->count ? b->bytes / b->count : 0;
}

int buffer_list_add(struct buffer_list *list, const char *name, enum buffer_category category, enum dtype dtype,
                    int64_t count, int64_t rows, int64_t cols, struct err *err)
{
    int64_t bytes;
    if (list->n == BUFFER_LIST_MAX)
        return err_set(err, ERR_LIMIT, "buffer '%s': the memory plan holds %d buffers", name, BUFFER_LIST_MAX);
    if (!num_mul_i64(rows, cols, &bytes) || !num_mul_i64(bytes, dtype_bytes(dtype), &bytes) || bytes > INT64_MAX / 4 ||
        !num_mul_i64(num_round_up(bytes, BUFFER_ALIGN_BYTES), count, &bytes) || bytes > INT64_MAX / 4 - list->total)
        return err_set(err, ERR_LIMIT, "buffer '%s': %lld x [%lld, %lld] elements are past 2^61 bytes: give a smaller micro-batch",
                       name, (long long)count, (long long)rows, (long long)cols);
    struct buffer *b = &list->items[list->n++];
    *b = (struct buffer){.category = category, .dtype = dtype, .count = count, .rows = rows, .cols = cols, .bytes = bytes,
                         .offset = list->total};
    snprintf(b->name, sizeof b->name, "%s", name);
    list->total += bytes;
    return 0;
}

int64_t buffer_list_bytes(const struct buffer_list *list, enum buffer_category category)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < list->n; i++)
        sum += list->items[i].category == category ? list->items[i].bytes : 0;
    return sum;
}

int64_t buffers_flat_elements(const struct param_list *params)
{
    int64_t n = 0;
    for (int64_t i = 0; i < params->n; i++)
        n += num_round_up(params->items[i].count, BUFFER_FLAT_ALIGN);
    return n;
}

int64_t buffers_piece_elements(int64_t elements, int64_t dp)
{
    return num_round_up(num_ceil_div(elements, dp), BUFFER_FLAT_ALIGN);
}

int64_t buffers_exchange_bytes(int64_t dp, int64_t piece_bytes)
{
    return dp == 1 ? 0 : num_round_up(num_min_i64(piece_bytes, BUFFER_EXCHANGE_BYTES) * dp, BUFFER_ALIGN_BYTES);
}

int buffers_state(const struct buffer_state *spec, struct buffer_list *list, struct err *err)
{
    int64_t piece = buffers_piece_elements(spec->elements, spec->dp), all = piece * spec->dp, own = spec->zero ? piece : all;
    enum dtype t = spec->dtype;
    int rc = buffer_list_add(list, "weights", BUFFER_WEIGHT, t, 1, 1, all, err);
    if (rc == 0)
        rc = buffer_list_add(list, "gradients", BUFFER_GRAD, t, 1, 1, all, err);
    if (rc == 0)
        rc = buffer_list_add(list, "adamw m, v", BUFFER_OPTIM, t, 2, 1, own, err);
    if (rc == 0)
        rc = buffer_list_add(list, "ema", BUFFER_EMA, t, spec->ema, 1, own, err);
    return rc < 0 ? rc : buffer_list_add(list, "gradient chunks of all ranks", BUFFER_COMM, DTYPE_FP8, 1, 1,
                                         buffers_exchange_bytes(spec->dp, piece * dtype_bytes(t)), err);
}

enum { KIB = 1024, MIB = 1024 * KIB };

int64_t buffers_process_bytes(int64_t ranks)
{
    return ranks == 1 ? 7 * MIB / 2 : 15 * MIB / 2 + ranks * 7 * MIB / 4;
}

int64_t buffers_process_growth_bytes(int64_t ranks)
{
    return ranks * 512 * KIB;
}

int buffers_dit(const struct buffer_spec *spec, struct buffer_list *list, struct err *err)
{
    struct shape table[DIT_BUFFERS];
    int rc = 0;
    BUG_ON(list->n != 0);
    if (spec->model->family != MODEL_DIT)
        return err_set(err, ERR_INPUT, "model %s: family '%s' has no buffer list: give a model of family dit",
                       spec->model->name, model_family_names[spec->model->family]);
    if (spec->recompute == RECOMPUTE_SELECTIVE)
        return err_set(err, ERR_INPUT, "layout: recompute=selective has no buffer list: give none or full");
    if (spec->tokens > INT32_MAX || spec->samples > INT32_MAX || spec->text_tokens > INT32_MAX)
        return err_set(err, ERR_LIMIT, "micro-batch of %lld tokens, %lld samples, %lld text tokens: each must be below 2^31",
                       (long long)spec->tokens, (long long)spec->samples, (long long)spec->text_tokens);
    struct dims v = dims_of(spec);
    input_shapes(&v, table);
    cond_shapes(&v, table);
    block_shapes(&v, table);
    work_shapes(&v, table);
    for (int i = 0; i < DIT_BUFFERS && rc == 0; i++) {
        const struct shape *t = &table[i];
        enum dtype type = t->type == ACT ? spec->act : t->type == STAT ? spec->stat : DTYPE_F64;
        rc = buffer_list_add(list, t->name, t->category, type, t->count, t->rows, t->cols, err);
    }
    return rc;
}
