#include "trainer/cuda/attn_dnn.h"

#include <string.h>

enum { ALIGN_BYTES = 16, D_STEP = 8, D_SUM_STEP = 16 };

bool attn_class_has(const struct attn_class *c, enum attn_tensor t)
{
    if (t == ATTN_DQ_SUM)
        return c->backward && !c->deterministic;
    return c->backward || t <= ATTN_LSE;
}

bool attn_class_sum_is_packed(const struct attn_class *c)
{
    return c->packed && c->d % D_SUM_STEP == 0;
}

bool attn_dnn_dkv_by_way(const struct ops_attn *a)
{
    return a->accumulate_dkv || a->heads != a->kv_heads;
}

bool attn_dnn_dq_by_way(const struct ops_attn *a) { return a->accumulate_dq; }

/* ---- whole calls ---- */

static bool is_narrow(const struct tensor *t) { return t->dtype == DTYPE_BF16; }
static bool is_either(const struct tensor *t) { return is_narrow(t) || t->dtype == DTYPE_F32; }

static bool types_fit(const struct ops_attn *a, bool backward)
{
    if (!is_narrow(&a->q) || !is_narrow(&a->k) || !is_narrow(&a->v) || !is_either(&a->o) ||
        a->lse.dtype != DTYPE_F32)
        return false;
    return !backward || (is_narrow(&a->o) && is_narrow(&a->d_o) && a->delta.dtype == DTYPE_F32 &&
                         is_either(&a->dq) && is_either(&a->dk) && a->dv.dtype == a->dk.dtype);
}

/* Returns whether a tensor begins at an address that the library can read; with `rows`, also each
 * of its rows. The library reads lse and delta number by number, so their rows may begin
 * anywhere. */
static bool is_aligned(const struct tensor *t, bool rows)
{
    return (uintptr_t)t->ptr % ALIGN_BYTES == 0 &&
           (!rows || t->ld * dtype_bytes(t->dtype) % ALIGN_BYTES == 0);
}

static bool all_aligned(const struct ops_attn *a, bool backward)
{
    const struct tensor *rows[] = {&a->q, &a->k, &a->v, &a->o, &a->d_o, &a->dq, &a->dk, &a->dv};
    bool fit = is_aligned(&a->lse, false) && (!backward || is_aligned(&a->delta, false));
    for (int i = 0; i < (backward ? 8 : 4); i++)
        fit = fit && is_aligned(rows[i], true);
    return fit;
}

/* ---- segments ---- */

static int64_t queries_of(const struct ops_attn *a, int64_t i)
{
    return a->host.q_start[i + 1] - a->host.q_start[i];
}

static bool is_taken(const struct ops_attn *a, int64_t i)
{
    return attn_dnn_segment(queries_of(a, i), a->host.k_len[i]);
}

/* Returns whether the keys of the library's segments are in order. In backward they must also be
 * contiguous, except for keys of our segments between them: the library may write there, because
 * our kernels overwrite that later. The keys of other segments may be anywhere: the library never
 * gets their offsets (attn_lay.cu). */
static bool keys_in_order(const struct ops_attn *a, bool backward)
{
    int64_t end = -1;
    for (int64_t i = 0; i < a->n; i++) {
        int64_t start = a->host.k_start[i];
        bool taken = is_taken(a, i);
        if (taken && end >= 0 && (backward ? start != end : start < end))
            return false;
        if (taken || start == end)
            end = start + a->host.k_len[i];
    }
    return true;
}

/* Returns whether lse and delta of the first segment are aligned as tensors must be. */
static bool rows_begin_well(const struct ops_attn *a, bool backward)
{
    struct tensor lse = tensor_rows(a->lse, a->host.q_start[0], 1), delta = lse;
    if (backward)
        delta = tensor_rows(a->delta, a->host.q_start[0], 1);
    return is_aligned(&lse, false) && is_aligned(&delta, false);
}

/* Returns whether all segments are the library's, have equal lengths and equal distances, and other
 * calls of this kind do, too (not `uneven`). */
static bool is_dense(const struct ops_attn *a, bool backward)
{
    const struct ops_segments *h = &a->host;
    if (a->n == 0 || a->uneven || !rows_begin_well(a, backward))
        return false;
    for (int64_t i = 0; i < a->n; i++) {
        if (!is_taken(a, i))
            return false;
        if (queries_of(a, i) != queries_of(a, 0) || h->k_len[i] != h->k_len[0])
            return false;
        if (i > 1 && h->k_start[i] - h->k_start[i - 1] != h->k_start[1] - h->k_start[0])
            return false;
    }
    return a->n == 1 || h->k_start[1] - h->k_start[0] >= h->k_len[0];
}

static int64_t power_above(int64_t n)
{
    int64_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* Rounds up to 4, 5, 6 or 7 times a power of 2, and to whole tiles. */
static int64_t tokens_above(int64_t n)
{
    int64_t step = power_above(n + 1) / 8;
    step = step < ATTN_DNN_TILE ? ATTN_DNN_TILE : step;
    return (n + step - 1) / step * step;
}

static void extents_dense(const struct ops_attn *a, struct attn_class *c)
{
    c->n = a->n;
    c->q = c->q_step = queries_of(a, 0);
    c->k = a->host.k_len[0];
    c->k_step = a->n > 1 ? a->host.k_start[1] - a->host.k_start[0] : c->k;
}

static void extents_packed(const struct ops_attn *a, struct attn_class *c)
{
    int64_t q = 0, k = 0;
    for (int64_t i = 0; i < a->n; i++)
        if (is_taken(a, i)) {
            q = q > queries_of(a, i) ? q : queries_of(a, i);
            k = k > a->host.k_len[i] ? k : a->host.k_len[i];
        }
    c->packed = true;
    c->n = power_above(a->n);
    c->q = tokens_above(q);
    c->k = tokens_above(k);
}

static void tensors_note(const struct ops_attn *a, struct attn_class *c)
{
    const int64_t whole = a->heads * a->head_dim;
    const bool dq = attn_dnn_dq_by_way(a), dkv = attn_dnn_dkv_by_way(a);
    const int64_t ld[ATTN_TENSORS] = {
        [ATTN_Q] = a->q.ld, [ATTN_K] = a->k.ld, [ATTN_V] = a->v.ld, [ATTN_O] = a->o.ld,
        [ATTN_LSE] = a->lse.ld, [ATTN_D_O] = a->d_o.ld, [ATTN_DQ] = dq ? whole : a->dq.ld,
        [ATTN_DK] = dkv ? whole : a->dk.ld, [ATTN_DV] = dkv ? whole : a->dv.ld,
        [ATTN_DELTA] = a->delta.ld, [ATTN_DQ_SUM] = whole};
    for (int t = 0; t < ATTN_TENSORS; t++)
        c->ld[t] = attn_class_has(c, (enum attn_tensor)t) ? ld[t] : 0;
    c->o = (int32_t)a->o.dtype;
    c->dq = (int32_t)(c->backward ? dq ? DTYPE_F32 : a->dq.dtype : DTYPE_BF16);
    c->dkv = (int32_t)(c->backward ? dkv ? DTYPE_F32 : a->dk.dtype : DTYPE_BF16);
}

enum ops_attn_own attn_dnn_takes(const struct ops_attn *a, bool backward, bool deterministic,
                                 struct attn_class *out)
{
    bool dense = is_dense(a, backward);
    int64_t taken = 0;
    if (!types_fit(a, backward))
        return OPS_ATTN_TYPES;
    if (a->head_dim % D_STEP != 0 || a->head_dim > OPS_HEAD_DIM_MAX)
        return OPS_ATTN_HEAD_DIM;
    if (!all_aligned(a, backward))
        return OPS_ATTN_ALIGNMENT;
    for (int64_t i = 0; i < a->n; i++)
        taken += is_taken(a, i);
    if (taken == 0)
        return OPS_ATTN_SEGMENTS;
    if (!dense && !keys_in_order(a, backward))
        return OPS_ATTN_ORDER;
    memset(out, 0, sizeof *out);
    out->heads = a->heads, out->kv_heads = a->kv_heads, out->d = a->head_dim;
    out->backward = backward;
    out->deterministic = backward && deterministic;
    tensors_note(a, out);
    if (out->deterministic && out->dq != DTYPE_BF16)
        return OPS_ATTN_ORDER_OF_DQ;
    (dense ? extents_dense : extents_packed)(a, out);
    return OPS_ATTN_TAKEN;
}

bool attn_dnn_leaves(const struct ops_attn *a, const struct attn_class *c)
{
    bool leaves = c->backward;
    for (int64_t i = 0; c->packed && i < a->n; i++)
        leaves = leaves || !is_taken(a, i);
    return leaves;
}
