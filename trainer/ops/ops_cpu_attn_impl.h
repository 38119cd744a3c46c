/* Computes softmax attention for REAL, forward and backward, by tiles of BQ queries and BK keys,
 * with the packed product of gemm_impl.h. Scores exist for one tile at a time.
 *
 * Forward is the online softmax (Milakov and Gimelshein 2018): a query has a running maximum m and
 * sum l, and its partial output is scaled by exp(m_old - m_new). The scores are stored transposed,
 * [key][query], so that maxima, sums and exponentials of a query run along a column and every step
 * is elementwise over queries.
 *
 * Backward (Dao et al., FlashAttention, algorithm 4) recomputes P = exp(scale q kᵀ - lse). With
 * delta = rowsum(dO · O): dV = Pᵀ dO, dS = P (dO Vᵀ - delta), dQ = scale dS K, dK = scale dSᵀ Q.
 * Its scores are [query][key]. In both passes the products that have P, Pᵀ, dS or dSᵀ on the left
 * read the scores in place. Keys are the outer loop, so every sum has one order.
 *
 * With one key, P = 1 and dS = 0: delta and dO Vᵀ are the same sum in two orders, and AdamW would
 * turn their rounding difference into an update. So this case only computes dV = sum of dO; dQ and
 * dK are 0.
 *
 * Where gradients are rounded to bf16, a tile of dK and dV is summed over all queries before it is
 * rounded, and a tile of dQ over all keys. One loop cannot do both, so a second pass, with queries
 * as the outer loop, recomputes the scores for dQ. This takes 7 products instead of 5, and no
 * memory that grows with the segment. The order of the sums is the same.
 */
#ifndef TRAINER_OPS_OPS_CPU_ATTN_IMPL_H
#define TRAINER_OPS_OPS_CPU_ATTN_IMPL_H

#include "trainer/ops/gemm_impl.h"
#include "trainer/ops/math_impl.h"

enum { BQ = 96, BK = 96, DMAX = OPS_HEAD_DIM_MAX };
_Static_assert(BQ % NR == 0 && BQ % MR == 0 && BK % NR == 0 && BK % MR == 0 && DMAX % NR == 0,
               "tiles hold whole panels");

/* Holds packed operands and scores of one pair of a query tile and a key tile. */
struct attn_tiles {
    REAL q_left[BQ * DMAX], g_left[BQ * DMAX]; /* Q, dO as left operands, if they must be packed */
    REAL q_rows[BQ * DMAX], g_rows[BQ * DMAX]; /* Q, dO as right operands */
    REAL k_rows[BK * DMAX], v_rows[BK * DMAX]; /* K, V as right operands */
    REAL k_cols[DMAX * BK], v_cols[DMAX * BK]; /* Kᵀ, Vᵀ as right operands */
    union {
        REAL q_cols[DMAX * BQ]; /* forward: Qᵀ as right operand */
        REAL dk[BK * DMAX];     /* backward: sums of dK before they are rounded */
    };
    union {
        REAL k_left[BK * DMAX]; /* forward: K as left operand, if it must be packed */
        REAL dv[BK * DMAX];     /* backward: sums of dV before they are rounded */
    };
    union {
        REAL out[BQ * DMAX]; /* forward: partial output */
        REAL dq[BQ * DMAX];  /* backward: sums of dQ before they are rounded */
    };
    REAL s[BK * BQ], ds[BK * BQ]; /* forward [key][query], backward [query][key] */
    REAL m[BQ], l[BQ], shrink[BQ], delta[BQ];
    struct left q, g; /* backward: Q, dO as left operands */
};
_Static_assert(sizeof(REAL) * DMAX * BQ % 64 == 0 && sizeof(REAL) * DMAX * BK % 64 == 0,
               "right operands stay aligned");

/* Returns n rows, from `row` on, of one head of a tensor. */
static struct tensor head_of(const struct ops_attn *a, const struct tensor *t, int64_t row,
                             int64_t n, int64_t head)
{
    return tensor_cols(tensor_rows(*t, row, n), head * a->head_dim, a->head_dim);
}

/* Returns n rows of one head as a left operand; `packed` is working memory. pack_rows and pack_cols
 * pack them as a right operand, as they are and transposed. */
static struct left left_rows(const struct ops_attn *a, const struct tensor *t, int64_t row,
                             int64_t n, int64_t head, REAL *packed)
{
    struct tensor h = head_of(a, t, row, n, head);
    return left_of(operand_of(&h, false), n, a->head_dim, packed);
}

static void pack_rows(const struct ops_attn *a, const struct tensor *t, int64_t row, int64_t n,
                      int64_t head, REAL *out)
{
    struct tensor h = head_of(a, t, row, n, head);
    pack_b(operand_of(&h, false), n, a->head_dim, out);
}

static void pack_cols(const struct ops_attn *a, const struct tensor *t, int64_t row, int64_t n,
                      int64_t head, REAL *out)
{
    struct tensor h = head_of(a, t, row, n, head);
    pack_b(operand_of(&h, true), a->head_dim, n, out);
}

/* Return a tile of scores [.][ld] in place as a left operand (left_scores), or its transpose
 * (left_turned). */
static inline struct left left_scores(const REAL *scores, int64_t ld)
{
    return (struct left){scores, MR * ld, ld, 1};
}
static inline struct left left_turned(const REAL *scores, int64_t ld)
{
    return (struct left){scores, MR, 1, ld};
}

/* Replaces scores [keys][BQ] by probabilities relative to the running maximum. Sums over earlier
 * keys must then be multiplied by `shrink`. */
static void softmax_tile(struct attn_tiles *w, int64_t keys, int64_t queries)
{
    REAL top[BQ], sum[BQ] = {0};
    memcpy(top, w->m, sizeof top);
    for (int64_t k = 0; k < keys; k++)
        for (int64_t q = 0; q < queries; q++)
            top[q] = w->s[k * BQ + q] > top[q] ? w->s[k * BQ + q] : top[q];
    for (int64_t k = 0; k < keys; k++)
        for (int64_t q = 0; q < queries; q++) {
            REAL p = real_exp_low(w->s[k * BQ + q] - top[q]);
            w->s[k * BQ + q] = p;
            sum[q] += p;
        }
    for (int64_t q = 0; q < queries; q++) {
        w->shrink[q] = real_exp_low(w->m[q] - top[q]);
        w->l[q] = w->l[q] * w->shrink[q] + sum[q];
        w->m[q] = top[q];
    }
}

static void attn_fwd_tile(const struct ops_attn *a, struct attn_tiles *w, int64_t seg, int64_t q0,
                          int64_t nq, int64_t head)
{
    int64_t d = a->head_dim, kv = head / (a->heads / a->kv_heads);
    int64_t end = a->k_start[seg] + a->k_len[seg];
    for (int64_t q = 0; q < nq; q++) {
        w->m[q] = -(REAL)INFINITY;
        w->l[q] = 0;
    }
    memset(w->out, 0, (size_t)(nq * d) * sizeof(REAL));
    pack_cols(a, &a->q, q0, nq, head, w->q_cols);
    for (int64_t k0 = a->k_start[seg]; k0 < end; k0 += BK) {
        int64_t nk = end - k0 < BK ? end - k0 : BK;
        struct left k = left_rows(a, &a->k, k0, nk, kv, w->k_left);
        gemm_packed(k, w->q_cols, nk, nq, d, (REAL)a->scale, 0, w->s, BQ);
        softmax_tile(w, nk, nq);
        for (int64_t q = 0; q < nq; q++)
            for (int64_t j = 0; j < d; j++)
                w->out[q * d + j] *= w->shrink[q];
        pack_rows(a, &a->v, k0, nk, kv, w->v_rows);
        gemm_packed(left_turned(w->s, BQ), w->v_rows, nq, d, nk, 1, 1, w->out, d);
    }
}

static void store_tile(const struct ops_cpu *c, const struct ops_attn *a, int64_t q0, int64_t nq,
                       int64_t head)
{
    const struct attn_tiles *w = c->tiles;
    int64_t d = a->head_dim;
    struct tensor out = head_of(a, &a->o, q0, nq, head);
    for (int64_t q = 0; q < nq; q++) {
        REAL *o = row_open(c, &out, q, SLOT_Y), inv = w->l[q] == 0 ? 0 : 1 / w->l[q];
        for (int64_t j = 0; j < d; j++)
            o[j] = w->out[q * d + j] * inv;
        row_store(&out, q, o);
        row_of(&a->lse, q0 + q)[head] = w->m[q] + (REAL)log(w->l[q]); /* no keys: -inf */
    }
}

static void attn_check(const struct ops_attn *a)
{
    BUG_ON(a->head_dim > DMAX || a->head_dim < 1 || a->heads % a->kv_heads != 0);
    BUG_ON(a->q.cols != a->heads * a->head_dim || a->k.cols != a->kv_heads * a->head_dim ||
           a->v.cols != a->k.cols);
    BUG_ON(a->n > 0 && (!a->host.q_start || !a->host.k_start || !a->host.k_len ||
                        !a->host.k_all != !a->k_all));
}

static void op_attn_fwd(struct ops *o, struct dev_stream *s, const struct ops_attn *a)
{
    (void)s;
    struct attn_tiles *w = ((struct ops_cpu *)o)->tiles;
    attn_check(a);
    for (int64_t seg = 0; seg < a->n; seg++)
        for (int64_t head = 0; head < a->heads; head++)
            for (int64_t q0 = a->q_start[seg]; q0 < a->q_start[seg + 1]; q0 += BQ) {
                int64_t nq = a->q_start[seg + 1] - q0 < BQ ? a->q_start[seg + 1] - q0 : BQ;
                attn_fwd_tile(a, w, seg, q0, nq, head);
                store_tile((struct ops_cpu *)o, a, q0, nq, head);
                ops_cpu_tick(o);
            }
}

/* ---- backward ---- */

static void attn_delta(const struct ops_cpu *c, const struct ops_attn *a, int64_t seg)
{
    int64_t d = a->head_dim;
    for (int64_t i = a->q_start[seg]; i < a->q_start[seg + 1]; i++) {
        const REAL *o = row_load(c, &a->o, i, SLOT_X), *d_o = row_load(c, &a->d_o, i, SLOT_Y);
        for (int64_t h = 0; h < a->heads; h++)
            row_of(&a->delta, i)[h] = row_dot(o + h * d, d_o + h * d, d);
    }
}

/* Replaces s by probabilities and ds by the gradient of the scores before `scale` is applied. */
static void softmax_tile_bwd(struct attn_tiles *w, int64_t keys, int64_t queries)
{
    for (int64_t q = 0; q < queries; q++) {
        REAL *restrict s = w->s + q * BK, *restrict ds = w->ds + q * BK, l = w->l[q],
                       delta = w->delta[q];
        for (int64_t k = 0; k < keys; k++) {
            REAL p = real_exp_low(s[k] - l);
            s[k] = p;
            ds[k] = p * (ds[k] - delta);
        }
    }
}

static void load_query_tile(const struct ops_attn *a, struct attn_tiles *w, int64_t q0, int64_t nq,
                            int64_t head)
{
    w->q = left_rows(a, &a->q, q0, nq, head, w->q_left);
    w->g = left_rows(a, &a->d_o, q0, nq, head, w->g_left);
    pack_rows(a, &a->q, q0, nq, head, w->q_rows);
    pack_rows(a, &a->d_o, q0, nq, head, w->g_rows);
    for (int64_t q = 0; q < nq; q++) {
        w->l[q] = row_of(&a->lse, q0 + q)[head];
        w->delta[q] = row_of(&a->delta, q0 + q)[head];
    }
}

static void load_key_tile(const struct ops_attn *a, struct attn_tiles *w, int64_t k0, int64_t nk,
                          int64_t kv)
{
    pack_cols(a, &a->k, k0, nk, kv, w->k_cols);
    pack_cols(a, &a->v, k0, nk, kv, w->v_cols);
    pack_rows(a, &a->k, k0, nk, kv, w->k_rows);
}

/* Computes probabilities and score gradients for the query tile and key tile that are loaded. */
static void scores_bwd(const struct ops_attn *a, struct attn_tiles *w, int64_t nq, int64_t nk)
{
    int64_t d = a->head_dim;
    gemm_packed(w->q, w->k_cols, nq, nk, d, (REAL)a->scale, 0, w->s, BK);
    gemm_packed(w->g, w->v_cols, nq, nk, d, 1, 0, w->ds, BK);
    softmax_tile_bwd(w, nk, nq);
}

/* Add the products of a pair of tiles to dk and dv (add_dkv), or to dq (add_dq). With beta 0 they
 * overwrite the old values. */
static void add_dkv(const struct ops_attn *a, struct attn_tiles *w, int64_t nq, int64_t nk,
                    REAL beta, struct block dk, struct block dv)
{
    int64_t d = a->head_dim;
    gemm_packed(left_turned(w->s, BK), w->g_rows, nk, d, nq, 1, beta, dv.ptr, dv.ld);
    gemm_packed(left_turned(w->ds, BK), w->q_rows, nk, d, nq, (REAL)a->scale, beta, dk.ptr, dk.ld);
}

static void add_dq(const struct ops_attn *a, struct attn_tiles *w, int64_t nq, int64_t nk,
                   REAL beta, struct block dq)
{
    gemm_packed(left_scores(w->ds, BK), w->k_rows, nq, a->head_dim, nk, (REAL)a->scale, beta,
                dq.ptr, dq.ld);
}

static void zero_range(const struct tensor *t, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++)
        memset(tensor_at(t, i, 0), 0, (size_t)(t->cols * dtype_bytes(t->dtype)));
}

static inline int64_t tile_of(int64_t end, int64_t at, int64_t most)
{
    return end - at < most ? end - at : most;
}

/* Computes dk and dv of one key tile from all query tiles of the heads that read kv head `kv`. Also
 * adds to dq, unless dq is rounded. */
static void attn_bwd_keys(const struct ops_attn *a, struct attn_tiles *w, int64_t seg, int64_t kv,
                          int64_t k0, int64_t nk)
{
    int64_t group = a->heads / a->kv_heads, first = a->q_start[seg], end = a->q_start[seg + 1];
    REAL beta_q = k0 > a->k_start[seg] || a->accumulate_dq ? 1 : 0;
    struct tensor dk = head_of(a, &a->dk, k0, nk, kv), dv = head_of(a, &a->dv, k0, nk, kv);
    struct block dk_sum = block_open(&dk, w->dk, a->accumulate_dkv),
                 dv_sum = block_open(&dv, w->dv, a->accumulate_dkv);
    load_key_tile(a, w, k0, nk, kv);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t q0 = first; q0 < end; q0 += BQ) {
            int64_t nq = tile_of(end, q0, BQ);
            bool opened = head > kv * group || q0 > first || a->accumulate_dkv;
            load_query_tile(a, w, q0, nq, head);
            scores_bwd(a, w, nq, nk);
            add_dkv(a, w, nq, nk, opened ? 1 : 0, dk_sum, dv_sum);
            if (!is_narrow(&a->dq)) {
                struct tensor dq = head_of(a, &a->dq, q0, nq, head);
                add_dq(a, w, nq, nk, beta_q, block_open(&dq, NULL, true));
            }
        }
    block_store(&dk, dk_sum);
    block_store(&dv, dv_sum);
}

/* Computes dq of one query tile from all key tiles, and rounds it once. */
static void attn_bwd_queries(const struct ops_attn *a, struct attn_tiles *w, int64_t seg,
                             int64_t head, int64_t q0, int64_t nq)
{
    int64_t start = a->k_start[seg], end = start + a->k_len[seg];
    struct tensor dq = head_of(a, &a->dq, q0, nq, head);
    struct block dq_sum = block_open(&dq, w->dq, a->accumulate_dq);
    load_query_tile(a, w, q0, nq, head);
    for (int64_t k0 = start; k0 < end; k0 += BK) {
        int64_t nk = tile_of(end, k0, BK);
        load_key_tile(a, w, k0, nk, head / (a->heads / a->kv_heads));
        scores_bwd(a, w, nq, nk);
        add_dq(a, w, nq, nk, k0 > start || a->accumulate_dq ? 1 : 0, dq_sum);
    }
    block_store(&dq, dq_sum);
}

/* Computes backward of a segment that has queries and keys. */
static void attn_bwd_segment(struct ops *o, const struct ops_attn *a, int64_t seg)
{
    struct attn_tiles *w = ((struct ops_cpu *)o)->tiles;
    int64_t k_end = a->k_start[seg] + a->k_len[seg], q_end = a->q_start[seg + 1];
    for (int64_t k0 = a->k_start[seg]; k0 < k_end; k0 += BK)
        for (int64_t kv = 0; kv < a->kv_heads; kv++) {
            attn_bwd_keys(a, w, seg, kv, k0, tile_of(k_end, k0, BK));
            ops_cpu_tick(o);
        }
    for (int64_t q0 = a->q_start[seg]; q0 < q_end && is_narrow(&a->dq); q0 += BQ)
        for (int64_t head = 0; head < a->heads; head++) {
            attn_bwd_queries(a, w, seg, head, q0, tile_of(q_end, q0, BQ));
            ops_cpu_tick(o);
        }
}

/* Sums rows q0 .. q0 + nq - 1 of one head of dO and adds the sum to `to`. */
static void add_output_rows(const struct ops_cpu *c, const struct ops_attn *a, int64_t q0,
                            int64_t nq, int64_t head, REAL *to)
{
    REAL sum[DMAX] = {0};
    struct tensor g = head_of(a, &a->d_o, q0, nq, head);
    for (int64_t q = 0; q < nq; q++) {
        const REAL *row = row_load(c, &g, q, SLOT_X);
        for (int64_t j = 0; j < a->head_dim; j++)
            sum[j] += row[j];
    }
    for (int64_t j = 0; j < a->head_dim; j++)
        to[j] += sum[j];
}

/* Computes dv of a segment with a single key, from the heads that read kv head `kv`. */
static void add_dv_single(const struct ops_cpu *c, const struct ops_attn *a, int64_t seg,
                          int64_t kv)
{
    struct attn_tiles *w = c->tiles;
    int64_t group = a->heads / a->kv_heads, end = a->q_start[seg + 1];
    struct tensor dv = head_of(a, &a->dv, a->k_start[seg], 1, kv);
    struct block sum = block_open(&dv, w->dv, a->accumulate_dkv);
    if (!a->accumulate_dkv)
        memset(sum.ptr, 0, (size_t)a->head_dim * sizeof(REAL));
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t q0 = a->q_start[seg]; q0 < end; q0 += BQ)
            add_output_rows(c, a, q0, tile_of(end, q0, BQ), head, sum.ptr);
    block_store(&dv, sum);
}

static void attn_bwd_single(struct ops *o, const struct ops_attn *a, int64_t seg)
{
    if (!a->accumulate_dq)
        zero_range(&a->dq, a->q_start[seg], a->q_start[seg + 1] - a->q_start[seg]);
    if (!a->accumulate_dkv)
        zero_range(&a->dk, a->k_start[seg], 1);
    for (int64_t kv = 0; kv < a->kv_heads; kv++)
        add_dv_single((struct ops_cpu *)o, a, seg, kv);
    ops_cpu_tick(o);
}

static void op_attn_bwd(struct ops *o, struct dev_stream *s, const struct ops_attn *a)
{
    (void)s;
    attn_check(a);
    for (int64_t seg = 0; seg < a->n; seg++) {
        int64_t queries = a->q_start[seg + 1] - a->q_start[seg], keys = a->k_len[seg];
        bool single = keys > 0 && queries > 0 && (a->k_all ? a->k_all : a->k_len)[seg] == 1;
        attn_delta((struct ops_cpu *)o, a, seg);
        if (keys == 0 && !a->accumulate_dq)
            zero_range(&a->dq, a->q_start[seg], queries);
        if (queries == 0 && !a->accumulate_dkv) {
            zero_range(&a->dk, a->k_start[seg], keys);
            zero_range(&a->dv, a->k_start[seg], keys);
        }
        if (single)
            attn_bwd_single(o, a, seg);
        else if (keys > 0 && queries > 0)
            attn_bwd_segment(o, a, seg);
    }
}

static void op_lse_merge(struct ops *o, struct dev_stream *s, const struct ops_lse_merge *a)
{
    struct ops_cpu *c = (struct ops_cpu *)o;
    int64_t d = a->head_dim;
    (void)s;
    for (int64_t i = 0; i < a->o.rows; i++) {
        REAL *row = row_load(c, &a->o, i, SLOT_Y);
        const REAL *part_row = row_load(c, &a->o_part, i, SLOT_X);
        for (int64_t h = 0; h < a->heads; h++) {
            REAL *restrict out = row + h * d, *lse = row_of(&a->lse, i) + h;
            const REAL *restrict part = part_row + h * d;
            REAL l0 = *lse, l1 = row_of(&a->lse_part, i)[h], top = l0 > l1 ? l0 : l1;
            if (top == -(REAL)INFINITY)
                continue;
            REAL e0 = real_exp_low(l0 - top), e1 = real_exp_low(l1 - top), inv = 1 / (e0 + e1);
            for (int64_t j = 0; j < d; j++)
                out[j] = (out[j] * e0 + part[j] * e1) * inv;
            *lse = top + (REAL)log(e0 + e1);
        }
        row_store(&a->o, i, row);
    }
}

#endif
