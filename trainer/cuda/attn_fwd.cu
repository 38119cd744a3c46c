/* Computes the forward of attention by our general kernels (attn.cuh): the online softmax (Milakov
 * and Gimelshein, "Online normalizer calculation for softmax", 2018), and the merge of two partial
 * results. */
#include "trainer/cuda/attn.cuh"

/* Holds, for each of a thread's own rows, the running maximum, and the sum of exponentials relative
 * to it over this thread's columns only. */
template <class real> struct running { real top[tile<real>::EACH], sum[tile<real>::EACH]; };

/* Return the maximum of 16 lanes (lanes_top), or their sum (lanes_sum), to all of them. lanes_top
 * may ignore NaN. */
template <class real> __device__ static inline real lanes_top(real v)
{
    for (int distance = ACROSS / 2; distance > 0; distance /= 2) {
        real other = __shfl_xor_sync((unsigned)ALL_LANES, v, distance);
        v = other > v ? other : v;
    }
    return v;
}

template <class real> __device__ static inline real lanes_sum(real v)
{
    for (int distance = ACROSS / 2; distance > 0; distance /= 2)
        v += __shfl_xor_sync((unsigned)ALL_LANES, v, distance);
    return v;
}

/* Replaces the scores of own row i with n keys by weights relative to the running maximum, and
 * scales the sums over earlier keys to the new maximum. */
template <class real>
__device__ static inline void softmax_row(int i, int64_t n, real scale, struct scores<real> *s,
                                          struct running<real> *r, struct sums<real> *out)
{
    real top = r->top[i], shrink;
    UNROLL for (int j = 0; j < tile<real>::EACH; j++) {
        s->at[i][j] *= scale;
        if (thread_x() + j * ACROSS < n && s->at[i][j] > top)
            top = s->at[i][j];
    }
    top = lanes_top(top);
    shrink = exp_of(r->top[i] - top);
    r->sum[i] *= shrink;
    UNROLL for (int j = 0; j < tile<real>::EACH; j++) {
        bool is_there = thread_x() + j * ACROSS < n;
        s->at[i][j] = is_there ? exp_of(s->at[i][j] - top) : (real)0;
        r->sum[i] += s->at[i][j];
    }
    r->top[i] = top;
    sums_scale(out, i, shrink);
}

/* Stores o and lse. Without keys the sum is 0 and the maximum -inf, so that o = 0, lse = -inf. */
template <class real>
__device__ static inline void outputs_put(const struct ops_attn &a, const struct strip &q,
                                          const struct running<real> &r, struct sums<real> *out)
{
    struct strip o = q;
    o.t = a.o;
    UNROLL for (int i = 0; i < tile<real>::EACH; i++) {
        int row = thread_y() + i * ACROSS;
        real sum = lanes_sum(r.sum[i]);
        sums_scale(out, i, sum == 0 ? (real)0 : 1 / sum);
        if (row < q.n && thread_x() == 0)
            put<real>(a.lse, q.row + row, q.head, r.top[i] + log_of(sum));
    }
    sums_put(o, *out, false);
}

template <class real>
static __global__ void attn_fwd(struct ops_attn a, int64_t tiles, const int32_t *left)
{
    struct attn_memory<real> *m = (struct attn_memory<real> *)block_memory;
    struct attn_place p = place_of(a.heads, tiles);
    int64_t q0 = a.q_start[p.segment], k0 = a.k_start[p.segment], keys = a.k_len[p.segment],
            kv = p.head / (a.heads / a.kv_heads);
    struct sums<real> out = {};
    struct scores<real> s;
    struct running<real> r;
    place_cut<real>(&p, a.q_start[p.segment + 1] - q0);
    if (is_others<real>(a, left, p) || p.n == 0)
        return;
    const struct strip q = strip_of(a.q, q0 + p.first, p.n, p.head, a.head_dim);
    UNROLL for (int i = 0; i < tile<real>::EACH; i++)
        r.top[i] = -(real)INFINITY, r.sum[i] = 0;
    for (int64_t at = 0; at < keys; at += tile<real>::SIDE) {
        int64_t n = lesser(keys - at, tile<real>::SIDE);
        scores_make(m, q, strip_of(a.k, k0 + at, n, kv, a.head_dim), &s);
        UNROLL for (int i = 0; i < tile<real>::EACH; i++)
            softmax_row(i, n, (real)a.scale, &s, &r, &out);
        weights_put(m, s);
        sums_add(m, strip_of(a.v, k0 + at, n, kv, a.head_dim), &out);
    }
    outputs_put(a, q, r, &out);
}

template <class real>
static void attn_fwd_all(cudaStream_t s, const struct ops_attn *a, const int32_t *left)
{
    int64_t tiles = tiles_of<real>(longest_of<real>(a).q);
    launch(s, attn_fwd<real>, a->n * a->heads * tiles, THREADS,
           (int64_t)sizeof(struct attn_memory<real>), *a, tiles, left);
    if (attn_has_short<real>(*a))
        kernel_attn_short(s, a, false);
}

void kernel_attn_fwd(struct ops_cuda *o, cudaStream_t s, const struct ops_attn *a)
{
    const int32_t *left = NULL;
    attn_check(a);
    if (attn_dnn_queue(o->dnn, s, a, false, &left) && !left)
        return;
    if (o->ops.stat == DTYPE_F64)
        attn_fwd_all<double>(s, a, left);
    else
        attn_fwd_all<float>(s, a, left);
}

/* ---- the merge ---- */

/* Merges one head of one row in each warp, whose lanes take columns. If neither part has seen keys,
 * o and lse do not change. */
template <class real> static __global__ void lse_merge(struct ops_lse_merge a)
{
    int64_t step = thread_step() / WARP, lane = threadIdx.x % WARP;
    for (int64_t item = thread_first() / WARP; item < a.o.rows * a.heads; item += step) {
        int64_t row = item / a.heads, head = item % a.heads;
        real own = get<real>(a.lse, row, head), part = get<real>(a.lse_part, row, head),
             top = own > part ? own : part;
        __syncwarp(); /* all lanes have read lse */
        if (top == -(real)INFINITY)
            continue;
        real keep = exp_of(own - top), add = exp_of(part - top), all = keep + add;
        for (int64_t j = lane; j < a.head_dim; j += WARP) {
            int64_t col = head * a.head_dim + j;
            put<real>(a.o, row, col, (get<real>(a.o, row, col) * keep +
                                      get<real>(a.o_part, row, col) * add) / all);
        }
        if (lane == 0)
            put<real>(a.lse, row, head, top + log_of(all));
    }
}

void kernel_lse_merge(struct ops_cuda *o, cudaStream_t s, const struct ops_lse_merge *a)
{
    LAUNCH_REAL(o, s, lse_merge, blocks_for(a->o.rows * a->heads * WARP), THREADS, 0, *a);
}
