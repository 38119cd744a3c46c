/* Computes the backward of attention by our general kernels (attn.cuh; Dao et al., FlashAttention,
 * algorithm 4). P = exp(scale q kt - lse) is recomputed; with delta = rowsum(dO O), dS = P (dO vt -
 * delta). One kernel owns queries and sums dq over keys. Another owns keys and sums dk and dv over
 * the queries of all heads that read them, head by head. Both compute the scores: 7 products
 * instead of 5, but no two blocks add to the same number.
 *
 * If a query attends to one key only, P = 1 and dS = 0 exactly, without rounding errors. */
#include "trainer/cuda/attn.cuh"

/* ---- delta ---- */

/* Computes delta for a tile of rows with all heads. A warp computes one head of one row at a
 * time. */
template <class real>
static __global__ void attn_delta(struct ops_attn a, int64_t tiles, const int32_t *left)
{
    struct attn_place p = place_of(1, tiles);
    int64_t q0 = a.q_start[p.segment], lane = threadIdx.x % WARP;
    if (is_others<real>(a, left, p))
        return;
    place_cut<real>(&p, a.q_start[p.segment + 1] - q0);
    for (int64_t item = threadIdx.x / WARP; item < p.n * a.heads; item += THREADS / WARP) {
        int64_t row = q0 + p.first + item / a.heads, head = item % a.heads;
        real sum = 0;
        for (int64_t j = lane; j < a.head_dim; j += WARP)
            sum += get<real>(a.o, row, head * a.head_dim + j) *
                   get<real>(a.d_o, row, head * a.head_dim + j);
        sum = warp_sum(sum);
        if (lane == 0)
            put<real>(a.delta, row, head, sum);
    }
}

/* ---- dq ---- */

/* Holds lse and delta of a query. They are 0 for rows outside the tile. */
template <class real> struct query { real lse, delta; };

template <class real>
__device__ static inline struct query<real> query_of(const struct ops_attn &a,
                                                     const struct strip &q, int row)
{
    if (row >= q.n)
        return {0, 0};
    return {get<real>(a.lse, q.row + row, q.head), get<real>(a.delta, q.row + row, q.head)};
}

/* Replaces scores of own queries by dS. `products` are the products of dO with the values. */
template <class real>
__device__ static inline void queries_weigh(const struct ops_attn &a, const struct strip &q,
                                            const struct scores<real> &products,
                                            struct scores<real> *s)
{
    UNROLL for (int i = 0; i < tile<real>::EACH; i++) {
        struct query<real> own = query_of<real>(a, q, thread_y() + i * ACROSS);
        UNROLL for (int j = 0; j < tile<real>::EACH; j++)
            s->at[i][j] = exp_of((real)a.scale * s->at[i][j] - own.lse) *
                          (products.at[i][j] - own.delta);
    }
}

template <class real>
static __global__ void attn_bwd_q(struct ops_attn a, int64_t tiles, const int32_t *left)
{
    struct attn_memory<real> *m = (struct attn_memory<real> *)block_memory;
    struct attn_place p = place_of(a.heads, tiles);
    int64_t q0 = a.q_start[p.segment], k0 = a.k_start[p.segment], d = a.head_dim,
            keys = sees_one(a, p.segment) ? 0 : a.k_len[p.segment],
            kv = p.head / (a.heads / a.kv_heads);
    struct sums<real> dq = {};
    struct scores<real> s, products;
    place_cut<real>(&p, a.q_start[p.segment + 1] - q0);
    if (is_others<real>(a, left, p) || p.n == 0 || (keys == 0 && a.accumulate_dq))
        return;
    const struct strip q = strip_of(a.q, q0 + p.first, p.n, p.head, d),
                       d_o = strip_of(a.d_o, q0 + p.first, p.n, p.head, d);
    for (int64_t at = 0; at < keys; at += tile<real>::SIDE) {
        int64_t n = lesser(keys - at, tile<real>::SIDE);
        const struct strip k = strip_of(a.k, k0 + at, n, kv, d);
        scores_make(m, q, k, &s);
        scores_make(m, d_o, strip_of(a.v, k0 + at, n, kv, d), &products);
        queries_weigh(a, q, products, &s);
        weights_put(m, s);
        sums_add(m, k, &dq);
    }
    UNROLL for (int i = 0; i < tile<real>::EACH; i++)
        sums_scale(&dq, i, (real)a.scale);
    sums_put(strip_of(a.dq, q0 + p.first, p.n, p.head, d), dq, a.accumulate_dq);
}

/* ---- dk and dv ---- */

/* Replaces scores of own keys with other queries by P, and `products` by dS. `one`: P is 1. */
template <class real>
__device__ static inline void keys_weigh(const struct ops_attn &a, const struct strip &q,
                                         bool one, struct scores<real> *products,
                                         struct scores<real> *s)
{
    UNROLL for (int j = 0; j < tile<real>::EACH; j++) {
        struct query<real> other = query_of<real>(a, q, thread_x() + j * ACROSS);
        UNROLL for (int i = 0; i < tile<real>::EACH; i++) {
            real p = one ? (real)1 : exp_of((real)a.scale * s->at[i][j] - other.lse);
            s->at[i][j] = p;
            products->at[i][j] = p * (products->at[i][j] - other.delta);
        }
    }
}

/* Adds the contributions of a tile of queries to dk and dv of a tile of keys. */
template <class real>
__device__ static inline void keys_meet(const struct ops_attn &a, struct attn_memory<real> *m,
                                        const struct strip &k, const struct strip &v,
                                        const struct strip &q, bool one,
                                        struct sums<real> *dk, struct sums<real> *dv)
{
    struct scores<real> s, products = {};
    struct strip d_o = q;
    d_o.t = a.d_o;
    scores_make(m, k, q, &s);
    if (!one)
        scores_make(m, v, d_o, &products);
    keys_weigh(a, q, one, &products, &s);
    weights_put(m, s);
    sums_add(m, d_o, dv);
    if (one)
        return;
    __syncthreads(); /* all threads have read P */
    weights_put(m, products);
    sums_add(m, q, dk);
}

template <class real>
static __global__ void attn_bwd_k(struct ops_attn a, int64_t tiles, const int32_t *left)
{
    struct attn_memory<real> *m = (struct attn_memory<real> *)block_memory;
    struct attn_place p = place_of(a.kv_heads, tiles);
    int64_t q0 = a.q_start[p.segment], q1 = a.q_start[p.segment + 1], d = a.head_dim,
            group = a.heads / a.kv_heads, k0 = a.k_start[p.segment];
    bool one = sees_one(a, p.segment);
    struct sums<real> dk = {}, dv = {};
    place_cut<real>(&p, a.k_len[p.segment]);
    if (is_others<real>(a, left, p) || p.n == 0 || (q0 == q1 && a.accumulate_dkv))
        return;
    const struct strip k = strip_of(a.k, k0 + p.first, p.n, p.head, d),
                       v = strip_of(a.v, k0 + p.first, p.n, p.head, d);
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++)
        for (int64_t at = q0; at < q1; at += tile<real>::SIDE)
            keys_meet(a, m, k, v, strip_of(a.q, at, lesser(q1 - at, tile<real>::SIDE), head, d),
                      one, &dk, &dv);
    UNROLL for (int i = 0; i < tile<real>::EACH; i++)
        sums_scale(&dk, i, (real)a.scale);
    sums_put(strip_of(a.dv, k0 + p.first, p.n, p.head, d), dv, a.accumulate_dkv);
    if (!one || !a.accumulate_dkv)
        sums_put(strip_of(a.dk, k0 + p.first, p.n, p.head, d), dk, a.accumulate_dkv);
}

/* ---- host calls ---- */

template <class real>
static void attn_bwd_all(cudaStream_t s, const struct ops_attn *a, const int32_t *left)
{
    struct longest most = longest_of<real>(a);
    int64_t q_tiles = tiles_of<real>(most.q), k_tiles = tiles_of<real>(most.k),
            bytes = (int64_t)sizeof(struct attn_memory<real>);
    launch(s, attn_delta<real>, a->n * q_tiles, THREADS, 0, *a, q_tiles, left);
    launch(s, attn_bwd_q<real>, a->n * a->heads * q_tiles, THREADS, bytes, *a, q_tiles, left);
    launch(s, attn_bwd_k<real>, a->n * a->kv_heads * k_tiles, THREADS, bytes, *a, k_tiles, left);
    if (attn_has_short<real>(*a))
        kernel_attn_short(s, a, true);
}

void kernel_attn_bwd(struct ops_cuda *o, cudaStream_t s, const struct ops_attn *a)
{
    const int32_t *left = NULL;
    attn_check(a);
    if (attn_dnn_queue(o->dnn, s, a, true, &left) && !left)
        return;
    if (o->ops.stat == DTYPE_F64)
        attn_bwd_all<double>(s, a, left);
    else
        attn_bwd_all<float>(s, a, left);
}
