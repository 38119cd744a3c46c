/* Computes self-attention over context-parallel ranks.
 *
 * cp = a · b: groups of a consecutive ranks exchange heads for tokens (DeepSpeed-Ulysses, Jacobs et
 * al. 2023), and the b groups form a ring on which keys and values circulate (ring attention, Liu
 * et al. 2023; the partial results are merged by their log-sum-exp). a = 1 is the plain ring, b = 1
 * the plain all-to-all. Video attention has no mask, so every rank has equal work and plain spans
 * of tokens are balanced.
 *
 * Before the exchange a rank has s tokens (its span of every sample) of H heads. After it, the rank
 * has the u tokens of its group's spans, sample by sample, of h = H / a heads and of the k/v heads
 * that these heads read. Several ranks may hold the same k/v head; its gradients are added up on
 * the way back.
 *
 * In step j of the ring, group R works on the keys of group R - j (modulo b) while those of group
 * R - (j + 1) arrive. In backward the gradient of a group's keys travels with the keys, each rank
 * adds its part, and after b steps it is back at its group. Where activations are rounded, the sums
 * are rounded only after the last step.
 */
#include "base/num.h"
#include "trainer/dit/dit_priv.h"
#include "trainer/state/fault.h"

/* ---- the exchange of heads ---- */

enum { VIEWS = 3 };

/* Views heads that are exchanged between ranks: `local` [s, H d] or [s, K d] before the exchange,
 * `grouped` [u, h d] or [u, k d] after it. */
struct heads {
    struct tensor local, grouped;
    bool kv;
};

static int64_t group_size(const struct dit *d) { return d->c.layout->cp / d->ring; }
static int64_t q_heads(const struct dit *d) { return d->heads / group_size(d); }
static int64_t kv_heads(const struct dit *d) { return num_max_i64(1, d->kv_heads / group_size(d)); }

/* Returns the columns of `s` for peer p of the group. */
static struct tensor peer_cols(const struct dit *d, const struct heads *s, int64_t p)
{
    int64_t first = p * q_heads(d), n = s->kv ? kv_heads(d) : q_heads(d);
    if (s->kv)
        first /= d->heads / d->kv_heads;
    return tensor_cols(s->local, first * d->head_dim, n * d->head_dim);
}

static int64_t span_first(const struct dit *d, int64_t i, int64_t r)
{
    const struct ops_sample *s = &d->slot->host.samples[i];
    int64_t tokens = (int64_t)s->t * s->h * s->w / model_patch_cells(d->m);
    return layout_span_first(tokens, d->c.layout->cp, r);
}

static int64_t cp_rank(const struct dit *d, int64_t p) { return d->ring_rank * group_size(d) + p; }

/* Returns how many tokens peer p of the group has, in all samples together. */
static int64_t peer_tokens(const struct dit *d, int64_t p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < d->slot->now.n; i++)
        n += span_first(d, i, cp_rank(d, p) + 1) - span_first(d, i, cp_rank(d, p));
    return n;
}

static int64_t block_width(const struct heads *s, int n)
{
    int64_t w = 0;
    for (int j = 0; j < n; j++)
        w += s[j].grouped.cols;
    return w;
}

struct tensor dit_cp_block(const struct dit *d, enum dit_buffer id, int64_t at, int64_t rows,
                           int64_t width)
{
    struct tensor t = dit_buffer(d, id, 0, 1);
    BUG_ON((at + rows) * width > t.cols);
    return tensor_of((char *)t.ptr + at * width * dtype_bytes(t.dtype), t.dtype, rows, width);
}

static void copy(struct dit *d, struct tensor from, struct tensor to, bool add)
{
    if (add)
        d->o->axpy(d->o, d->stream, &(struct ops_axpy){from, to, 1});
    else if (from.rows > 0)
        d->o->copy(d->o, d->stream, &(struct ops_copy){from, to});
}

/* Copies between the columns of all heads that belong to peer p and the block for p. */
static void local_copy(struct dit *d, const struct heads *s, int n, int64_t p, struct tensor b,
                       bool out)
{
    for (int64_t j = 0, at = 0; j < n; at += s[j].grouped.cols, j++) {
        struct tensor here = peer_cols(d, &s[j], p), there = tensor_cols(b, at, s[j].grouped.cols);
        copy(d, out ? here : there, out ? there : here,
             !out && s[j].kv && fault_active != FAULT_POINT_A2A_DKV);
    }
}

/* Copies between peer p's rows of every sample in the grouped tensors and the block for p. */
static void grouped_copy(struct dit *d, const struct heads *s, int n, int64_t p, struct tensor b,
                         bool out)
{
    for (int64_t i = 0, row = 0; i < d->slot->now.n; i++) {
        int64_t first = span_first(d, i, cp_rank(d, p)),
                rows = span_first(d, i, cp_rank(d, p) + 1) - first;
        int64_t to = d->slot->host.u_start[i] + first - span_first(d, i, cp_rank(d, 0));
        for (int64_t j = 0, at = 0; j < n; at += s[j].grouped.cols, j++) {
            struct tensor there = tensor_cols(tensor_rows(b, row, rows), at, s[j].grouped.cols),
                          here = tensor_rows(s[j].grouped, to, rows);
            copy(d, out ? here : there, out ? there : here, false);
        }
        row += rows;
    }
}

/* Exchanges heads for tokens. With `in`, a rank gives its tokens of all heads and gets the group's
 * tokens of its heads. Otherwise these go back, and gradients of k/v heads are added up. */
static void exchange(struct dit *d, const struct heads *s, int n, bool in, const char *what)
{
    int64_t a = group_size(d), w = block_width(s, n), here = 0, there = 0;
    int64_t *counts[4] = {d->cp_counts, d->cp_counts + a, d->cp_counts + 2 * a,
                          d->cp_counts + 3 * a};
    /* in one direction a block has s rows for every peer, in the other as many as the peer has */
    for (int64_t p = 0; p < a; p++) {
        int64_t rows = peer_tokens(d, p);
        struct tensor local = dit_cp_block(d, in ? DIT_CP_PACK : DIT_CP_UNPACK, here,
                                           d->slot->now.s, w);
        struct tensor grouped = dit_cp_block(d, in ? DIT_CP_UNPACK : DIT_CP_PACK, there, rows, w);
        counts[in ? 0 : 2][p] = d->slot->now.s * w, counts[in ? 1 : 3][p] = here * w;
        counts[in ? 2 : 0][p] = rows * w, counts[in ? 3 : 1][p] = there * w;
        if (in)
            local_copy(d, s, n, p, local, true);
        else
            grouped_copy(d, s, n, p, grouped, true);
        here += d->slot->now.s;
        there += rows;
    }
    dit_comm(d, d->c.grid->a2a, &(struct comm_op){
        .kind = COMM_ALL_TO_ALL, .what = what, .dtype = d->o->act,
        .send = dit_cp_block(d, DIT_CP_PACK, 0, 0, w).ptr,
        .recv = dit_cp_block(d, DIT_CP_UNPACK, 0, 0, w).ptr,
        .counts = counts[0], .at = counts[1], .recv_counts = counts[2], .recv_at = counts[3]
    });
    for (int64_t p = 0; p < a; p++) {
        if (in)
            grouped_copy(d, s, n, p,
                         dit_cp_block(d, DIT_CP_UNPACK, counts[3][p] / w, counts[2][p] / w, w),
                         false);
        else
            local_copy(d, s, n, p,
                       dit_cp_block(d, DIT_CP_UNPACK, counts[3][p] / w, d->slot->now.s, w), false);
    }
}

/* ---- the ring ---- */

static int64_t ring_tokens(const struct dit *d, int64_t group)
{
    int64_t at = group * d->c.max_samples + d->slot->now.n - 1;
    return d->slot->now.n ? d->slot->host.ring_start[at] + d->slot->host.ring_len[at] : 0;
}

static int64_t ring_group(const struct dit *d, int64_t step)
{
    return (d->ring_rank - step + 2 * d->ring) % d->ring;
}

/* Returns ring buffer number i of `id` (keys and values, or their gradients), cut to the rows of
 * `group`. */
static struct tensor travelling(const struct dit *d, enum dit_buffer id, int64_t i, int64_t group,
                                int copies)
{
    const struct buffer *b = &d->memory.items[id];
    struct tensor t = dit_buffer(d, id, 0, b->rows);
    return tensor_rows(t, i * (b->rows / copies), ring_tokens(d, group));
}

static struct comm_work *pass_on(struct dit *d, struct tensor out, struct tensor in,
                                 const char *what)
{
    struct comm *ring = d->c.grid->ring;
    struct comm_message m[2] = {
        {out.ptr, out.rows * out.cols, (ring->rank + 1) % ring->size, true},
        {in.ptr, in.rows * in.cols, (ring->rank + ring->size - 1) % ring->size, false}
    };
    struct comm_op op = {
        .kind = COMM_SEND_RECV, .what = what, .dtype = out.dtype,
        .messages = m, .n_messages = 2
    };
    return dit_comm_start(d, ring, &op);
}

static void arrive(struct dit *d, struct comm_work *work)
{
    dit_comm_wait(d, d->c.grid->ring, work);
}

/* Says where the keys of a group of the ring lie. */
static void keys_stand(const struct dit *d, struct ops_attn *a, int64_t group)
{
    const struct dit_index *far = &d->slot->device, *near = &d->slot->host;
    int64_t at = group * d->c.max_samples;
    a->k_start = far->ring_start + at, a->host.k_start = near->ring_start + at;
    a->k_len = far->ring_len + at, a->host.k_len = near->ring_len + at;
}

/* Points the attention at the keys and values of a step's group, and at the places of their
 * samples. */
static void keys_of(const struct dit *d, struct ops_attn *a, int64_t step, struct tensor kv)
{
    keys_stand(d, a, ring_group(d, step));
    a->k = tensor_cols(kv, 0, kv.cols / 2);
    a->v = tensor_cols(kv, kv.cols / 2, kv.cols / 2);
}

/* Returns the accumulator of the ring: `out` itself if its type is wide enough, else the wide
 * buffer `id`. */
static struct tensor sum_of(const struct dit *d, struct tensor out, enum dit_buffer id)
{
    return out.dtype == d->o->stat ? out : dit_buffer(d, id, 0, out.rows);
}

/* Returns the keys and values of a step of the ring. */
static struct tensor keys_at(const struct dit *d, int64_t step)
{
    return travelling(d, DIT_CP_KV, step % 2, ring_group(d, step), 2);
}

static struct ops_lse_merge merge_of(const struct dit *d, const struct ops_attn *a)
{
    return (struct ops_lse_merge){
        .o = sum_of(d, a->o, DIT_CP_O_SUM), .lse = a->lse,
        .o_part = dit_buffer(d, DIT_CP_O_PART, 0, d->slot->now.u),
        .lse_part = dit_buffer(d, DIT_CP_LSE_PART, 0, d->slot->now.u),
        .heads = a->heads, .head_dim = a->head_dim
    };
}

/* Turns the attention over whole samples into that of one step of the ring. */
static struct ops_attn fwd_at(const struct dit *d, struct ops_attn a, int64_t step)
{
    const struct ops_lse_merge merge = merge_of(d, &a);
    keys_of(d, &a, step, keys_at(d, step));
    a.o = step ? merge.o_part : merge.o;
    a.lse = step ? merge.lse_part : merge.lse;
    return a;
}

static void ring_fwd(struct dit *d, struct ops_attn a)
{
    struct tensor kv = keys_at(d, 0);
    struct ops_lse_merge merge = merge_of(d, &a);
    copy(d, a.k, tensor_cols(kv, 0, a.k.cols), false);
    copy(d, a.v, tensor_cols(kv, a.k.cols, a.v.cols), false);
    for (int64_t j = 0; j < d->ring; j++) {
        struct comm_work *work =
            j + 1 < d->ring ? pass_on(d, keys_at(d, j), keys_at(d, j + 1),
                                      "keys and values of the ring") : NULL;
        struct ops_attn step = fwd_at(d, a, j);
        d->o->attn_fwd(d->o, d->stream, &step);
        if (j && fault_active != FAULT_POINT_RING_MERGE)
            d->o->lse_merge(d->o, d->stream, &merge);
        arrive(d, work);
    }
    if (merge.o.dtype != a.o.dtype)
        copy(d, merge.o, a.o, false);
}

/* Returns this rank's part of the gradients of a step's keys and values. */
static struct tensor part_at(const struct dit *d, int64_t step)
{
    return travelling(d, DIT_CP_DKV, step ? 2 : 0, ring_group(d, step), 3);
}

static struct ops_attn bwd_at(const struct dit *d, struct ops_attn a, int64_t step)
{
    struct tensor part = part_at(d, step);
    keys_of(d, &a, step, keys_at(d, step));
    a.dq = sum_of(d, a.dq, DIT_CP_DQ);
    a.dk = tensor_cols(part, 0, a.dk.cols);
    a.dv = tensor_cols(part, a.dk.cols, a.dv.cols);
    a.accumulate_dq = step > 0;
    return a;
}

static void ring_bwd(struct dit *d, struct ops_attn a)
{
    struct tensor kv = keys_at(d, 0), dq = a.dq, dk = a.dk, dv = a.dv, sum = tensor_none(),
                  wide = sum_of(d, dq, DIT_CP_DQ);
    struct comm_work *sums = NULL;
    copy(d, a.k, tensor_cols(kv, 0, dk.cols), false);
    copy(d, a.v, tensor_cols(kv, dk.cols, dv.cols), false);
    for (int64_t j = 0; j < d->ring; j++) {
        struct comm_work *work =
            j + 1 < d->ring ? pass_on(d, keys_at(d, j), keys_at(d, j + 1),
                                      "keys and values of the ring") : NULL;
        struct ops_attn step = bwd_at(d, a, j);
        struct tensor part = part_at(d, j), more;
        d->o->attn_bwd(d->o, d->stream, &step);
        if (j) {
            arrive(d, sums);
            d->o->axpy(d->o, d->stream, &(struct ops_axpy){
                part, sum, fault_active == FAULT_POINT_RING_DKV ? 0 : 1
            });
        } else {
            sum = part;
        }
        more = travelling(d, DIT_CP_DKV, (j + 1) % 2, ring_group(d, j + 1), 3);
        sums = pass_on(d, sum, more, "gradients of the ring's keys and values");
        arrive(d, work);
        sum = more;
    }
    arrive(d, sums);
    if (wide.dtype != dq.dtype)
        copy(d, wide, dq, false);
    copy(d, tensor_cols(sum, 0, dk.cols), dk, false);
    copy(d, tensor_cols(sum, dk.cols, dv.cols), dv, false);
}

/* ---- both ---- */

static struct tensor cp_rows(const struct dit *d, enum dit_buffer id, int64_t rows, int64_t cols)
{
    return tensor_cols(dit_buffer(d, id, 0, rows), 0, cols);
}

void dit_attention_tensors(const struct dit *d, struct ops_attn *a, int64_t layer, int64_t self,
                           bool moved, int64_t rows)
{
    int64_t q = a->heads * d->head_dim, kv = a->kv_heads * d->head_dim;
    struct tensor qk = dit_tokens(d, DIT_QK, 0),
                  qkv = dit_copy(d, DIT_QKV, layer, self, d->slot->now.s),
                  dqkv = dit_tokens(d, DIT_DQKV, 0);
    if (moved) {
        qk = qkv = cp_rows(d, DIT_CP_QKV, rows, q + 2 * kv);
        dqkv = cp_rows(d, DIT_CP_DQKV, rows, q + 2 * kv);
        a->d_o = cp_rows(d, DIT_CP_D_O, rows, q);
        a->delta = cp_rows(d, DIT_CP_DELTA, rows, a->heads);
    }
    a->q = tensor_cols(qk, 0, q), a->k = tensor_cols(qk, q, kv),
    a->v = tensor_cols(qkv, q + kv, kv);
    a->dq = tensor_cols(dqkv, 0, q), a->dk = tensor_cols(dqkv, q, kv),
    a->dv = tensor_cols(dqkv, q + kv, kv);
    a->o = moved ? cp_rows(d, DIT_CP_O, rows, q)
                 : dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s);
    a->lse = tensor_cols(dit_copy(d, DIT_LSE, layer, self, rows), 0, a->heads);
}

/* Returns the attention over whole samples, with q, k, v and their gradients as they are after the
 * exchange of heads, if there is one. */
static struct ops_attn attention_of(const struct dit *d, int64_t layer, int64_t self)
{
    struct ops_attn a = dit_attn(d);
    bool x = group_size(d) > 1;
    a.heads = q_heads(d);
    a.kv_heads = kv_heads(d);
    dit_attention_tensors(d, &a, layer, self, x, x ? d->slot->now.u : d->slot->now.s);
    a.q_start = d->slot->device.u_start, a.host.q_start = d->slot->host.u_start;
    a.k_all = d->slot->device.tokens, a.host.k_all = d->slot->host.tokens;
    keys_stand(d, &a, d->ring_rank);
    a.max_q = a.max_k = d->slot->now.max_u;
    return a;
}

int dit_attention_plan(struct dit *d, int64_t layer, int64_t self, bool backward, struct err *err)
{
    if (dit_self_reach(d, self) != DIT_FULL)
        return dit_segments_plan(d, layer, self, backward, err);
    const struct ops_attn whole = attention_of(d, layer, self);
    int rc = 0;
    for (int64_t j = 0; j < d->ring && rc == 0; j++) {
        struct ops_attn a = d->ring == 1 ? whole
                            : backward   ? bwd_at(d, whole, j)
                                         : fwd_at(d, whole, j);
        rc = d->o->attn_plan(d->o, &a, backward, err);
    }
    return rc;
}

static void exchange_qkv(struct dit *d, struct tensor qkv, const struct ops_attn *a)
{
    struct tensor qk = dit_tokens(d, DIT_QK, 0);
    struct heads s[VIEWS] = {
        {tensor_cols(qk, 0, d->q_width), a->q, false},
        {tensor_cols(qk, d->q_width, d->kv_width), a->k, true},
        {tensor_cols(qkv, d->q_width + d->kv_width, d->kv_width), a->v, true}
    };
    exchange(d, s, VIEWS, true, "q, k, v by heads");
}

void dit_attention_fwd(struct dit *d, int64_t layer, int64_t self)
{
    if (dit_self_reach(d, self) != DIT_FULL) {
        dit_segments_fwd(d, layer, self);
        return;
    }
    struct ops_attn a = attention_of(d, layer, self);
    bool x = group_size(d) > 1;
    if (x)
        exchange_qkv(d, dit_copy(d, DIT_QKV, layer, self, d->slot->now.s), &a);
    if (d->ring > 1)
        ring_fwd(d, a);
    else
        d->o->attn_fwd(d->o, d->stream, &a);
    if (x)
        exchange(d, &(struct heads){dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s), a.o, false},
                 1, false, "attention by tokens");
}

/* Brings the gradients back. The buffer is zeroed first, because several ranks of the group may add
 * to the gradients of k and v. */
static void exchange_back(struct dit *d, const struct ops_attn *a)
{
    struct tensor dqkv = dit_tokens(d, DIT_DQKV, 0);
    struct heads s[VIEWS] = {
        {tensor_cols(dqkv, 0, d->q_width), a->dq, false},
        {tensor_cols(dqkv, d->q_width, d->kv_width), a->dk, true},
        {tensor_cols(dqkv, d->q_width + d->kv_width, d->kv_width), a->dv, true}
    };
    d->dev->fill(d->dev, dqkv.ptr, 0, dqkv.rows * dqkv.cols * dtype_bytes(dqkv.dtype), d->stream);
    exchange(d, s, VIEWS, false, "gradients of q, k, v by tokens");
}

void dit_attention_bwd(struct dit *d, int64_t layer, int64_t self)
{
    if (dit_self_reach(d, self) != DIT_FULL) {
        dit_segments_bwd(d, layer, self);
        return;
    }
    struct ops_attn a = attention_of(d, layer, self);
    bool x = group_size(d) > 1;
    if (x) {
        exchange_qkv(d, dit_copy(d, DIT_QKV, layer, self, d->slot->now.s), &a);
        exchange(d, &(struct heads){dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s), a.o, false},
                 1, true, "attention by heads");
        exchange(d, &(struct heads){dit_tokens(d, DIT_DATTN, 0), a.d_o, false}, 1, true,
                 "gradient of attention by heads");
    }
    if (d->ring > 1)
        ring_bwd(d, a);
    else
        d->o->attn_bwd(d->o, d->stream, &a);
    if (x)
        exchange_back(d, &a);
}
