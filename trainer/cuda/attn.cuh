/* attn: declares what forward and backward of our general attention kernels share.
 *
 * These kernels accept all types, segments and head dims. They compute f64, and whatever neither
 * cuDNN (attn_dnn.h) nor the kernels of short segments (attn_short.cu) accept. Tests compare the
 * results of cuDNN and of the kernels of short segments with the results of these.
 *
 * A block owns a tile of SIDE rows, queries or keys, of one head of one segment. It loops over
 * tiles of the other rows, the keys or queries of the segment. For each such tile it computes
 * scores, own rows times other rows; turns them into weights; and adds the weights times other rows
 * to its sums. Sums stay in registers until the end, so no two blocks add to the same number.
 *
 *     forward   own queries, other keys      weights P    o += P v
 *     dq        own queries, other keys      weights dS   dq += dS k
 *     dk, dv    own keys, other queries      weights P, dS, transposed   dv += Pt do, dk += dSt q
 *
 * Rows pass through shared memory PANEL columns at a time, so that the memory suffices for any head
 * dim. The threads form a square of ACROSS x ACROSS: a thread has rows y, y + ACROSS, ... of the
 * tile and columns x, x + ACROSS, ...; the threads of a row are 16 lanes of one warp.
 */
#ifndef TRAINER_CUDA_ATTN_CUH
#define TRAINER_CUDA_ATTN_CUH

#include "trainer/cuda/attn_dnn_run.h"
#include "trainer/cuda/kernel.cuh"

enum {
    ACROSS = 16,
    PANEL = 32,
    PANELS = OPS_HEAD_DIM_MAX / PANEL,
    PANEL_EACH = PANEL / ACROSS, /* columns of a panel that a thread has */
};
static_assert(ACROSS * ACROSS == THREADS && PANEL * PANELS == OPS_HEAD_DIM_MAX,
              "threads and panels cover tiles and heads");

/* SIDE is the largest power of two with which a block's shared memory stays within 48 KB. */
template <class real> struct tile {
    enum { SIDE = sizeof(real) == 8 ? 32 : 64, EACH = SIDE / ACROSS };
};
template <class real> struct attn_memory {
    real own[tile<real>::SIDE][PANEL + 1], other[tile<real>::SIDE][PANEL + 1]; /* rows */
    real weight[tile<real>::SIDE][tile<real>::SIDE + 1];                       /* [own][other] */
};
static_assert(sizeof(attn_memory<float>) <= 48 << 10 && sizeof(attn_memory<double>) <= 48 << 10,
              "a block has as much without asking");

/* Hold a thread's scores of a tile [own row][other row] and its sums [panel][own row][column]. */
template <class real> struct scores { real at[tile<real>::EACH][tile<real>::EACH]; };
template <class real> struct sums { real at[PANELS][tile<real>::EACH][PANEL_EACH]; };

/* Describes consecutive rows of one head of a tensor. */
struct strip {
    struct tensor t; /* with all heads */
    int64_t row, n;  /* first row, number of rows */
    int64_t head, d; /* each head has d columns */
};

__device__ static inline struct strip strip_of(const struct tensor &t, int64_t row, int64_t n,
                                               int64_t head, int64_t d)
{
    return {t, row, n, head, d};
}

__device__ static inline int thread_x(void) { return (int)threadIdx.x % ACROSS; }
__device__ static inline int thread_y(void) { return (int)threadIdx.x / ACROSS; }

/* Return the number in a row and column of a strip (strip_get), or store one (strip_put). */
template <class real>
__device__ static inline real strip_get(const struct strip &s, int row, int64_t col)
{
    return get<real>(s.t, s.row + row, s.head * s.d + col);
}

template <class real>
__device__ static inline void strip_put(const struct strip &s, int row, int64_t col, real x)
{
    put<real>(s.t, s.row + row, s.head * s.d + col, x);
}

/* Copies columns from .. from+PANEL-1 of a strip to shared memory, with zeros outside the strip. */
template <class real>
__device__ static inline void stage(const struct strip &s, int64_t from, real (*to)[PANEL + 1])
{
    for (int e = (int)threadIdx.x; e < tile<real>::SIDE * PANEL; e += THREADS) {
        int row = e / PANEL, col = e % PANEL;
        bool is_there = row < s.n && from + col < s.d;
        to[row][col] = is_there ? strip_get<real>(s, row, from + col) : (real)0;
    }
}

/* Computes the scores: products of own rows with other rows. */
template <class real>
__device__ static void scores_make(struct attn_memory<real> *m, const struct strip &own,
                                   const struct strip &other, struct scores<real> *s)
{
    enum { EACH = tile<real>::EACH };
    *s = {};
    for (int64_t from = 0; from < own.d; from += PANEL) {
        __syncthreads(); /* all threads have read the previous contents */
        stage(own, from, m->own);
        stage(other, from, m->other);
        __syncthreads();
        for (int c = 0; c < lesser(PANEL, own.d - from); c++) {
            real a[EACH], b[EACH];
            UNROLL for (int i = 0; i < EACH; i++) {
                a[i] = m->own[thread_y() + i * ACROSS][c];
                b[i] = m->other[thread_x() + i * ACROSS][c];
            }
            UNROLL for (int i = 0; i < EACH; i++)
                UNROLL for (int j = 0; j < EACH; j++)
                    s->at[i][j] += a[i] * b[j];
        }
    }
}

/* Stores this thread's weights. All threads must have read the previous weights before. */
template <class real>
__device__ static inline void weights_put(struct attn_memory<real> *m, const struct scores<real> &w)
{
    UNROLL for (int i = 0; i < tile<real>::EACH; i++)
        UNROLL for (int j = 0; j < tile<real>::EACH; j++)
            m->weight[thread_y() + i * ACROSS][thread_x() + j * ACROSS] = w.at[i][j];
}

/* Adds the weights times other rows to the sums. */
template <class real>
__device__ static inline void sums_add(struct attn_memory<real> *m, const struct strip &other,
                                       struct sums<real> *sum)
{
    enum { EACH = tile<real>::EACH };
    UNROLL for (int panel = 0; panel < PANELS; panel++) {
        if (panel * PANEL >= other.d)
            continue;
        __syncthreads(); /* all have read the previous contents and stored their weights */
        stage(other, panel * PANEL, m->other);
        __syncthreads();
        for (int k = 0; k < other.n; k++) {
            real w[EACH], x[PANEL_EACH];
            UNROLL for (int i = 0; i < EACH; i++)
                w[i] = m->weight[thread_y() + i * ACROSS][k];
            UNROLL for (int j = 0; j < PANEL_EACH; j++)
                x[j] = m->other[k][thread_x() + j * ACROSS];
            UNROLL for (int i = 0; i < EACH; i++)
                UNROLL for (int j = 0; j < PANEL_EACH; j++)
                    sum->at[panel][i][j] += w[i] * x[j];
        }
    }
}

/* Multiplies the sums of own row i by a factor. */
template <class real>
__device__ static inline void sums_scale(struct sums<real> *sum, int i, real by)
{
    UNROLL for (int panel = 0; panel < PANELS; panel++)
        UNROLL for (int j = 0; j < PANEL_EACH; j++)
            sum->at[panel][i][j] *= by;
}

/* Stores the sums, or adds them to the stored values. */
template <class real>
__device__ static inline void sums_put(const struct strip &to, const struct sums<real> &sum,
                                       bool add)
{
    UNROLL for (int panel = 0; panel < PANELS; panel++)
        UNROLL for (int i = 0; i < tile<real>::EACH; i++)
            UNROLL for (int j = 0; j < PANEL_EACH; j++) {
                int row = thread_y() + i * ACROSS, col = panel * PANEL + thread_x() + j * ACROSS;
                if (row >= to.n || col >= to.d)
                    continue;
                real was = add ? strip_get<real>(to, row, col) : (real)0;
                strip_put(to, row, col, was + sum.at[panel][i][j]);
            }
}

/* ---- division of work ---- */

/* Describes a tile of a head of a segment: rows first .. first+n-1 of the segment; n may be 0. */
struct attn_place { int64_t segment, head, first, n; };

/* Returns the place of this block if each head of each segment has `tiles` blocks; first is the
 * tile's number until place_cut replaces it. */
__device__ static inline struct attn_place place_of(int64_t heads, int64_t tiles)
{
    int64_t pair = blockIdx.x / tiles;
    return {pair / heads, pair % heads, blockIdx.x % tiles, 0};
}

/* Returns whether a segment is short: whether it has at most ATTN_DNN_SMALL queries and keys. */
HOST_DEVICE static inline bool attn_is_short(const int32_t *q_start, const int32_t *k_len,
                                             int64_t segment)
{
    return q_start[segment + 1] - q_start[segment] <= ATTN_DNN_SMALL &&
           k_len[segment] <= ATTN_DNN_SMALL;
}

/* Returns whether the kernels of short segments compute the short segments of a call. */
template <class real> HOST_DEVICE static inline bool attn_has_short(const struct ops_attn &a)
{
    return sizeof(real) == sizeof(float) && a.heads == a.kv_heads;
}

/* Returns whether another kernel computes this segment: `left` exists and does not name it, or the
 * segment is short and the kernels of short segments compute it. */
template <class real>
__device__ static inline bool is_others(const struct ops_attn &a, const int32_t *left,
                                        const struct attn_place &p)
{
    return (left && !left[p.segment]) ||
           (attn_has_short<real>(a) && attn_is_short(a.q_start, a.k_len, p.segment));
}

/* Returns whether a query of this segment attends to at most one key: k_len is 0, or the segment
 * has one key in total. */
__device__ static inline bool sees_one(const struct ops_attn &a, int64_t segment)
{
    return a.k_len[segment] == 0 || (a.k_all ? a.k_all : a.k_len)[segment] == 1;
}

/* Replaces the tile's number in a place by its rows, at most SIDE of the segment's `rows`. */
template <class real> __device__ static inline void place_cut(struct attn_place *p, int64_t rows)
{
    p->first *= tile<real>::SIDE;
    p->n = rows < p->first ? 0 : lesser(rows - p->first, tile<real>::SIDE);
}

/* Returns how many tiles the longest segment needs. */
template <class real> static inline int64_t tiles_of(int64_t longest)
{
    return (longest + tile<real>::SIDE - 1) / tile<real>::SIDE;
}

/* Holds the largest numbers of queries and of keys of the segments that these kernels compute. */
struct longest { int64_t q, k; };

template <class real> static inline struct longest longest_of(const struct ops_attn *a)
{
    struct longest most = {0, 0};
    for (int64_t i = 0; i < a->n; i++)
        if (!attn_has_short<real>(*a) || !attn_is_short(a->host.q_start, a->host.k_len, i)) {
            most.q = greater(most.q, a->host.q_start[i + 1] - a->host.q_start[i]);
            most.k = greater(most.k, a->host.k_len[i]);
        }
    return most;
}

static inline void attn_check(const struct ops_attn *a)
{
    BUG_ON(a->head_dim > OPS_HEAD_DIM_MAX || a->head_dim < 1 || a->heads % a->kv_heads != 0);
    BUG_ON(a->q.cols != a->heads * a->head_dim || a->k.cols != a->kv_heads * a->head_dim ||
           a->v.cols != a->k.cols);
    BUG_ON(a->n > 0 && (!a->host.q_start || !a->host.k_start || !a->host.k_len ||
                        !a->host.k_all != !a->k_all));
}

/* Queues the kernels of short segments, if there are some, for a call in f32 or bf16. */
void kernel_attn_short(cudaStream_t s, const struct ops_attn *a, bool backward);

#endif
