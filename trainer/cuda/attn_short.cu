/* Computes attention of short segments, of at most ATTN_DNN_SMALL queries and keys. ST-DiT has one
 * such segment for each position of a picture. Tiles of 64 or 128 rows would be mostly empty. Here
 * a team of threads computes one head of one segment completely. Scores are computed once, rows
 * pass through shared memory a panel of columns at a time, and forward and backward are one kernel
 * each. SIDE is the most queries or keys of a segment: 16, 32 or 64, by the longest short segment
 * of the call. A team of SIDE 16 is a warp, and a block has several; a larger team is a block.
 *
 * A team has SIDE x SIDE scores in registers. A thread has those of rows y, y + Y, ... and columns
 * x, x + X, ...; the threads of a row are X neighbouring lanes. The weights computed from them pass
 * through shared memory. Then a thread sums eight neighbouring columns of a few rows of the result
 * and stores them at once.
 *
 * Grouped queries, whose dk and dv are sums over heads, and f64 are computed by the general kernels
 * (attn.cuh). */
#include "trainer/cuda/attn.cuh"
#include "trainer/cuda/pack.cuh"

template <int SIDE> struct team {
    enum {
        SIZE = 2 * SIDE, /* threads */
        IN_BLOCK = SIDE == 16 ? 4 : 1,
        X = 8, Y = SIZE / X,
        EACH_Y = SIDE / Y, EACH_X = SIDE / X,
        OUT_X = PANEL / PACK, OUT_Y = SIZE / OUT_X, OUT_EACH = SIDE / OUT_Y,
    };
};
template <int SIDE> struct short_memory {
    float own[SIDE][PANEL + 1], other[SIDE][PANEL + 1]; /* rows */
    float weight[SIDE][SIDE + 1];                       /* [query][key] */
};
static_assert(sizeof(short_memory<64>) <= 48 << 10, "a block has as much without asking");

template <int SIDE> struct team_scores { float at[team<SIDE>::EACH_Y][team<SIDE>::EACH_X]; };

/* Describes the work of a team: the queries and keys of one head of one segment. */
struct short_pair {
    struct ops_attn a;
    int64_t q0, k0, queries, keys, head;
    bool one;  /* a query attends to at most one key (sees_one) */
    bool even; /* rows are read and written as packs */
};

template <int SIDE> __device__ static inline int team_thread(void)
{
    return (int)threadIdx.x % team<SIDE>::SIZE;
}
template <int SIDE> __device__ static inline int team_x(void)
{
    return team_thread<SIDE>() % team<SIDE>::X;
}
template <int SIDE> __device__ static inline int team_y(void)
{
    return team_thread<SIDE>() / team<SIDE>::X;
}

template <int SIDE> __device__ static inline void team_sync(void)
{
    if constexpr ((int)team<SIDE>::SIZE == (int)WARP)
        __syncwarp();
    else
        __syncthreads();
}

/* Return the sum (row_sum), or the maximum (row_top), over the lanes of a row. */
__device__ static inline float row_sum(float v)
{
    for (int distance = team<16>::X / 2; distance > 0; distance /= 2)
        v += __shfl_xor_sync((unsigned)ALL_LANES, v, distance);
    return v;
}

__device__ static inline float row_top(float v)
{
    for (int distance = team<16>::X / 2; distance > 0; distance /= 2) {
        float other = __shfl_xor_sync((unsigned)ALL_LANES, v, distance);
        v = other > v ? other : v;
    }
    return v;
}

/* ---- rows ---- */

/* Returns eight columns of the head in a row, with zeros past the head's end. */
__device__ static inline eight<float> head_get(const struct short_pair &p, const struct tensor &t,
                                               int64_t row, int64_t col)
{
    int64_t first = p.head * p.a.head_dim;
    if (col >= p.a.head_dim)
        return eight_of(0.0f);
    return get_eight<float>(t, row, first + col, first + p.a.head_dim, p.even);
}

/* Copies columns from .. from+PANEL-1 of n rows to shared memory, with zeros outside them. */
template <int SIDE>
__device__ static inline void short_stage(const struct short_pair &p, const struct tensor &t,
                                          int64_t row, int64_t n, int64_t from,
                                          float (*to)[PANEL + 1])
{
    for (int e = team_thread<SIDE>(); e < SIDE * PANEL / PACK; e += team<SIDE>::SIZE) {
        int i = e / (PANEL / PACK), col = e % (PANEL / PACK) * PACK;
        eight<float> x = i < n ? head_get(p, t, row + i, from + col) : eight_of(0.0f);
        UNROLL for (int j = 0; j < PACK; j++)
            to[i][col + j] = x.at[j];
    }
}

/* Computes the scores: products of rows of a at queries with rows of b at keys. */
template <int SIDE>
__device__ static inline void short_scores(struct short_memory<SIDE> *m,
                                           const struct short_pair &p, const struct tensor &a,
                                           const struct tensor &b, struct team_scores<SIDE> *s)
{
    using T = team<SIDE>;
    *s = {};
    for (int64_t from = 0; from < p.a.head_dim; from += PANEL) {
        team_sync<SIDE>(); /* all threads have read the previous contents */
        short_stage<SIDE>(p, a, p.q0, p.queries, from, m->own);
        short_stage<SIDE>(p, b, p.k0, p.keys, from, m->other);
        team_sync<SIDE>();
        for (int c = 0; c < lesser(PANEL, p.a.head_dim - from); c++) {
            float x[T::EACH_Y], y[T::EACH_X];
            UNROLL for (int i = 0; i < T::EACH_Y; i++)
                x[i] = m->own[team_y<SIDE>() + i * T::Y][c];
            UNROLL for (int j = 0; j < T::EACH_X; j++)
                y[j] = m->other[team_x<SIDE>() + j * T::X][c];
            UNROLL for (int i = 0; i < T::EACH_Y; i++)
                UNROLL for (int j = 0; j < T::EACH_X; j++)
                    s->at[i][j] += x[i] * y[j];
        }
    }
}

/* Stores this thread's weights. All threads must have read the previous weights before. */
template <int SIDE>
__device__ static inline void short_weights(struct short_memory<SIDE> *m,
                                            const struct team_scores<SIDE> &w)
{
    using T = team<SIDE>;
    UNROLL for (int i = 0; i < T::EACH_Y; i++)
        UNROLL for (int j = 0; j < T::EACH_X; j++)
            m->weight[team_y<SIDE>() + i * T::Y][team_x<SIDE>() + j * T::X] = w.at[i][j];
}

/* Describes a result: to = scale · weights · from, or with of_keys, to = scale · weightsᵀ · from.
 * `add` adds it to `to`. */
struct short_sum {
    struct tensor from, to;
    float scale;
    bool of_keys, add;
};

/* Returns eight columns of a row of a result, from the rows in m->other. */
template <int SIDE>
__device__ static inline eight<float> short_row(const struct short_memory<SIDE> *m,
                                                const struct short_sum &r, int64_t others, int row,
                                                int col)
{
    eight<float> sum = eight_of(0.0f);
    for (int k = 0; k < others; k++) {
        float w = r.of_keys ? m->weight[k][row] : m->weight[row][k];
        UNROLL for (int j = 0; j < PACK; j++)
            sum.at[j] += w * m->other[k][col + j];
    }
    return sum;
}

/* Computes a result and stores it, or adds it to the stored values. */
template <int SIDE>
__device__ static inline void short_sums(struct short_memory<SIDE> *m, const struct short_pair &p,
                                         const struct short_sum &r)
{
    using T = team<SIDE>;
    int64_t rows = r.of_keys ? p.keys : p.queries, others = r.of_keys ? p.queries : p.keys,
            to = r.of_keys ? p.k0 : p.q0, from = r.of_keys ? p.q0 : p.k0,
            head = p.head * p.a.head_dim, end = head + p.a.head_dim;
    int x = team_thread<SIDE>() % T::OUT_X * PACK, y = team_thread<SIDE>() / T::OUT_X;
    for (int64_t at = 0; at < p.a.head_dim; at += PANEL) {
        team_sync<SIDE>(); /* all have read the previous contents and stored their weights */
        short_stage<SIDE>(p, r.from, from, others, at, m->other);
        team_sync<SIDE>();
        for (int i = 0; i < T::OUT_EACH; i++) {
            int row = y + i * T::OUT_Y;
            if (row >= rows || at + x >= p.a.head_dim)
                continue;
            eight<float> sum = short_row<SIDE>(m, r, others, row, x),
                         was = r.add ? head_get(p, r.to, to + row, at + x) : eight_of(0.0f);
            UNROLL for (int j = 0; j < PACK; j++)
                was.at[j] += r.scale * sum.at[j];
            put_eight(r.to, to + row, head + at + x, end, p.even, was);
        }
    }
}

/* ---- division of work ---- */

/* Finds the work of this team. Returns false if it has none. */
template <int SIDE>
__device__ static inline bool pair_find(const struct ops_attn &a, bool even, struct short_pair *p)
{
    int64_t pair = (int64_t)blockIdx.x * team<SIDE>::IN_BLOCK + threadIdx.x / team<SIDE>::SIZE,
            segment = pair / a.heads;
    if (segment >= a.n || !attn_is_short(a.q_start, a.k_len, segment))
        return false;
    int64_t q0 = a.q_start[segment], keys = a.k_len[segment];
    *p = {a, q0, a.k_start[segment], a.q_start[segment + 1] - q0, keys, pair % a.heads,
          sees_one(a, segment), even};
    return true;
}

template <int SIDE> __device__ static inline struct short_memory<SIDE> *memory_find(void)
{
    return (struct short_memory<SIDE> *)block_memory + threadIdx.x / team<SIDE>::SIZE;
}

/* ---- forward ---- */

/* Replaces the scores of own row i by weights, and stores lse. */
template <int SIDE>
__device__ static inline void short_softmax(const struct short_pair &p, int i,
                                            struct team_scores<SIDE> *s)
{
    using T = team<SIDE>;
    int64_t row = team_y<SIDE>() + i * T::Y;
    float top = -INFINITY, sum = 0;
    UNROLL for (int j = 0; j < T::EACH_X; j++) {
        s->at[i][j] *= (float)p.a.scale;
        if (team_x<SIDE>() + j * T::X < p.keys && s->at[i][j] > top)
            top = s->at[i][j];
    }
    top = row_top(top);
    UNROLL for (int j = 0; j < T::EACH_X; j++) {
        bool is_there = team_x<SIDE>() + j * T::X < p.keys;
        s->at[i][j] = is_there ? exp_of(s->at[i][j] - top) : 0;
        sum += s->at[i][j];
    }
    sum = row_sum(sum);
    UNROLL for (int j = 0; j < T::EACH_X; j++)
        s->at[i][j] = sum == 0 ? 0 : s->at[i][j] / sum;
    if (row < p.queries && team_x<SIDE>() == 0)
        put<float>(p.a.lse, p.q0 + row, p.head, top + log_of(sum));
}

template <int SIDE> static __global__ void attn_short_fwd(struct ops_attn a, bool even)
{
    struct short_memory<SIDE> *m = memory_find<SIDE>();
    struct team_scores<SIDE> s;
    struct short_pair p;
    if (!pair_find<SIDE>(a, even, &p))
        return;
    short_scores<SIDE>(m, p, a.q, a.k, &s);
    UNROLL for (int i = 0; i < team<SIDE>::EACH_Y; i++)
        short_softmax<SIDE>(p, i, &s);
    short_weights<SIDE>(m, s);
    short_sums<SIDE>(m, p, {a.v, a.o, 1, false, false});
}

/* ---- backward ---- */

/* Returns delta = rowsum(dO O) of a query to all lanes of its row. */
template <int SIDE>
__device__ static inline float short_delta(const struct short_pair &p, int64_t row)
{
    float sum = 0;
    for (int64_t col = team_x<SIDE>() * PACK; row < p.queries && col < p.a.head_dim;
         col += team<SIDE>::X * PACK) {
        eight<float> o = head_get(p, p.a.o, p.q0 + row, col),
                     d = head_get(p, p.a.d_o, p.q0 + row, col);
        UNROLL for (int j = 0; j < PACK; j++)
            sum += o.at[j] * d.at[j];
    }
    return row_sum(sum);
}

/* Replaces scores by P, and the products of dO with values by dS. */
template <int SIDE>
__device__ static inline void short_weigh(const struct short_pair &p,
                                          struct team_scores<SIDE> *products,
                                          struct team_scores<SIDE> *s)
{
    using T = team<SIDE>;
    UNROLL for (int i = 0; i < T::EACH_Y; i++) {
        int64_t row = team_y<SIDE>() + i * T::Y;
        float delta = short_delta<SIDE>(p, row),
              lse = row < p.queries ? get<float>(p.a.lse, p.q0 + row, p.head) : 0;
        UNROLL for (int j = 0; j < T::EACH_X; j++) {
            bool is_there = row < p.queries && team_x<SIDE>() + j * T::X < p.keys;
            float w = p.one ? 1 : exp_of((float)p.a.scale * s->at[i][j] - lse);
            s->at[i][j] = is_there ? w : 0;
            products->at[i][j] = is_there && !p.one ? w * (products->at[i][j] - delta) : 0;
        }
    }
}

template <int SIDE> static __global__ void attn_short_bwd(struct ops_attn a, bool even)
{
    struct short_memory<SIDE> *m = memory_find<SIDE>();
    struct team_scores<SIDE> s, products;
    struct short_pair p;
    if (!pair_find<SIDE>(a, even, &p))
        return;
    short_scores<SIDE>(m, p, a.q, a.k, &s);
    short_scores<SIDE>(m, p, a.d_o, a.v, &products);
    short_weigh<SIDE>(p, &products, &s);
    short_weights<SIDE>(m, s);
    short_sums<SIDE>(m, p, {a.d_o, a.dv, 1, true, a.accumulate_dkv});
    team_sync<SIDE>(); /* all threads have read P */
    short_weights<SIDE>(m, products);
    short_sums<SIDE>(m, p, {a.k, a.dq, (float)a.scale, false, a.accumulate_dq});
    short_sums<SIDE>(m, p, {a.q, a.dk, (float)a.scale, true, a.accumulate_dkv});
}

/* ---- host calls ---- */

/* Returns whether rows of all tensors, of any head, can be read and written as packs. */
static bool all_even(const struct ops_attn *a, bool backward)
{
    bool even = a->head_dim % PACK == 0 && is_even(a->q) && is_even(a->k) && is_even(a->v) &&
                is_even(a->o);
    return even && (!backward || (is_even(a->d_o) && is_even(a->dq) && is_even(a->dk) &&
                                  is_even(a->dv)));
}

template <int SIDE>
static void short_launch(cudaStream_t s, const struct ops_attn *a, bool backward)
{
    using T = team<SIDE>;
    int64_t blocks = (a->n * a->heads + T::IN_BLOCK - 1) / T::IN_BLOCK;
    launch(s, backward ? attn_short_bwd<SIDE> : attn_short_fwd<SIDE>, blocks,
           T::SIZE * T::IN_BLOCK, T::IN_BLOCK * (int64_t)sizeof(struct short_memory<SIDE>), *a,
           all_even(a, backward));
}

void kernel_attn_short(cudaStream_t s, const struct ops_attn *a, bool backward)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < a->n; i++)
        if (attn_is_short(a->host.q_start, a->host.k_len, i))
            longest = greater(longest, greater(a->host.q_start[i + 1] - a->host.q_start[i],
                                               a->host.k_len[i]));
    if (longest == 0)
        return;
    if (longest <= 16)
        short_launch<16>(s, a, backward);
    else if (longest <= 32)
        short_launch<32>(s, a, backward);
    else
        short_launch<64>(s, a, backward);
}
