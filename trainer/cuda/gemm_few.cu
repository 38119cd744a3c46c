/* Computes matrix products whose result has few rows, c = a bᵀ and c = a b. AdaLN has them: its
 * products have one row for each sample and read the weights of all modulations. The time to read
 * the weights bounds them, and a tile of the general kernel (gemm.cu) would be nearly empty.
 *
 * A thread reads weights eight at a time, in loads of 16 bytes, and multiplies them with up to ROWS
 * rows while they are in registers. Further rows belong to another strip, computed by other
 * threads. An element is summed in parts, one from each thread. The parts are added through shared
 * memory in an order that depends on k only: the bits of an element depend neither on other rows
 * nor on its position. */
#include "trainer/cuda/gemm.cuh"
#include "trainer/cuda/gemm.h"
#include "trainer/cuda/pack.cuh"

enum { WARPS = THREADS / WARP };

template <class real> struct few {
    enum {
        ROWS = 32 / sizeof(real), /* rows of a strip */
        /* c = a bᵀ: a warp computes COLUMNS columns of a strip, and its lanes take turns at groups
         * of eight terms. */
        COLUMNS = 4, FORTH = ROWS * COLUMNS, FORTH_PITCH = THREADS + 1,
        /* c = a b: a block computes LANES groups of eight columns of a strip; GROUPS groups of
         * LANES threads take turns at groups of four terms. */
        LANES = 4, ACROSS = LANES * PACK, GROUPS = THREADS / LANES, DEEP = 4, BACK = ROWS * PACK,
        BACK_PITCH = THREADS / 2 + LANES,
    };
};
template <class real> struct forth_parts { real at[few<real>::FORTH][few<real>::FORTH_PITCH]; };
template <class real> struct back_parts { real at[few<real>::BACK][few<real>::BACK_PITCH]; };
static_assert(sizeof(forth_parts<float>) <= 48 << 10 && sizeof(forth_parts<double>) <= 48 << 10 &&
              sizeof(back_parts<float>) <= 48 << 10 && sizeof(back_parts<double>) <= 48 << 10,
              "a block has as much without asking");

__device__ static inline float fma_of(float a, float b, float c) { return fmaf(a, b, c); }
__device__ static inline double fma_of(double a, double b, double c) { return fma(a, b, c); }

/* ---- numbers of tensors; T is their type if they are even, void for other tensors ---- */

template <class T> struct is_any { enum { YES = false }; };
template <> struct is_any<void> { enum { YES = true }; };

/* Returns columns col .. col+7 of a row, with zeros outside the tensor. */
template <class real, class T>
__device__ static inline eight<real> eight_get(const struct tensor &t, int64_t row, int64_t col)
{
    eight<real> x;
    if constexpr (is_any<T>::YES)
        x = row < t.rows ? get_eight<real>(t, row, col, false) : eight_of<real>(0);
    else
        load_pack((const T *)t.ptr + row * t.ld + col, x.at);
    return x;
}

__device__ static inline void four_load(const float *from, float (&x)[4])
{
    float4 four = *(const float4 *)from;
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}

__device__ static inline void four_load(const uint16_t *from, float (&x)[4])
{
    uint2 two = *(const uint2 *)from;
    x[0] = bf16_value((uint16_t)two.x), x[1] = bf16_value((uint16_t)(two.x >> 16));
    x[2] = bf16_value((uint16_t)two.y), x[3] = bf16_value((uint16_t)(two.y >> 16));
}

/* Writes columns col .. col+3 of a row to x. */
template <class real, class T>
__device__ static inline void four_get(const struct tensor &t, int64_t row, int64_t col,
                                       real (&x)[4])
{
    if constexpr (is_any<T>::YES)
        for (int i = 0; i < 4; i++)
            x[i] = col + i < t.cols ? get<real>(t, row, col + i) : (real)0;
    else
        four_load((const T *)t.ptr + row * t.ld + col, x);
}

/* ---- c = a bᵀ: the terms of a column are contiguous ---- */

/* Describes where a warp or block computes: first row, number of rows, and first column. */
struct few_place { int64_t row, col; int rows; };

template <class real> HOST_DEVICE static inline int64_t strips_of(const struct ops_gemm &g)
{
    return (g.c.rows + few<real>::ROWS - 1) / few<real>::ROWS;
}

/* Returns the place of a warp. Consecutive warps of a block have the same columns, so that weights
 * are read from memory once. */
template <class real>
__device__ static inline struct few_place forth_place(const struct ops_gemm &g, int64_t warp)
{
    int64_t strips = strips_of<real>(g);
    int64_t row = warp % strips * few<real>::ROWS;
    return {row, warp / strips * few<real>::COLUMNS, (int)lesser(few<real>::ROWS, g.c.rows - row)};
}

/* Adds the terms p .. p+7. Past the last column it repeats that column; the result is not
 * stored. */
template <class real, class A, class B>
__device__ static inline void forth_add(const struct ops_gemm &g, const struct few_place &at,
                                        int64_t p, real (&sum)[few<real>::FORTH])
{
    enum { ROWS = few<real>::ROWS, COLUMNS = few<real>::COLUMNS };
    eight<real> b[COLUMNS];
    UNROLL for (int j = 0; j < COLUMNS; j++)
        b[j] = eight_get<real, B>(g.b, lesser(at.col + j, g.c.cols - 1), p);
    UNROLL for (int r = 0; r < ROWS; r++) {
        if (r >= at.rows)
            continue;
        eight<real> a = eight_get<real, A>(g.a, at.row + r, p);
        UNROLL for (int j = 0; j < COLUMNS; j++)
            UNROLL for (int i = 0; i < PACK; i++)
                sum[r * COLUMNS + j] = fma_of(a.at[i], b[j].at[i], sum[r * COLUMNS + j]);
    }
}

/* Adds the parts of the lanes for each element of a block, in the order of lanes, and stores it. */
template <class real>
__device__ static inline void forth_put(const struct ops_gemm &g, const struct forth_parts<real> *m)
{
    enum { COLUMNS = few<real>::COLUMNS, FORTH = few<real>::FORTH };
    for (int e = (int)threadIdx.x; e < WARPS * FORTH; e += THREADS) {
        int warp = e / FORTH, i = e % FORTH;
        struct few_place at = forth_place<real>(g, (int64_t)blockIdx.x * WARPS + warp);
        int64_t col = at.col + i % COLUMNS;
        real sum = 0;
        if (i / COLUMNS >= at.rows || col >= g.c.cols)
            continue;
        for (int lane = 0; lane < WARP; lane++)
            sum += m->at[i][warp * WARP + lane];
        element_put(g, at.row + i / COLUMNS, col, sum);
    }
}

template <class real, class A, class B> static __global__ void gemm_few(struct ops_gemm g)
{
    enum { FORTH = few<real>::FORTH };
    struct forth_parts<real> *m = (struct forth_parts<real> *)block_memory;
    struct few_place at = forth_place<real>(g, thread_first() / WARP);
    real sum[FORTH] = {};
    if (at.col < g.c.cols)
        for (int64_t p = threadIdx.x % WARP * PACK; p < g.a.cols; p += WARP * PACK)
            forth_add<real, A, B>(g, at, p, sum);
    UNROLL for (int i = 0; i < FORTH; i++)
        m->at[i][threadIdx.x] = sum[i];
    __syncthreads();
    forth_put(g, m);
}

/* ---- c = a b: consecutive terms of a column are one row apart ---- */

/* Returns the place of this block. */
template <class real> __device__ static inline struct few_place back_place(const struct ops_gemm &g)
{
    int64_t strips = strips_of<real>(g);
    int64_t row = blockIdx.x % strips * few<real>::ROWS;
    return {row, blockIdx.x / strips * few<real>::ACROSS,
            (int)lesser(few<real>::ROWS, g.c.rows - row)};
}

/* Adds the terms p .. p+3 of eight columns. */
template <class real, class A, class B>
__device__ static inline void back_add(const struct ops_gemm &g, const struct few_place &at,
                                       int p, real (&sum)[few<real>::BACK])
{
    enum { ROWS = few<real>::ROWS, DEEP = few<real>::DEEP };
    eight<real> b[DEEP];
    UNROLL for (int i = 0; i < DEEP; i++)
        b[i] = eight_get<real, B>(g.b, p + i, at.col);
    UNROLL for (int r = 0; r < ROWS; r++) {
        real a[DEEP];
        if (r >= at.rows)
            continue;
        four_get<real, A>(g.a, at.row + r, p, a);
        UNROLL for (int i = 0; i < DEEP; i++)
            UNROLL for (int j = 0; j < PACK; j++)
                sum[r * PACK + j] = fma_of(a[i], b[i].at[j], sum[r * PACK + j]);
    }
}

/* Adds the parts of the upper half of the threads to those of the lower half. The sums are then in
 * shared memory. */
template <class real>
__device__ static inline void back_fold(struct back_parts<real> *m, real (&sum)[few<real>::BACK])
{
    enum { HALF = THREADS / 2, BACK = few<real>::BACK };
    int own = (int)threadIdx.x % HALF;
    bool is_upper = threadIdx.x >= HALF;
    if (is_upper)
        UNROLL for (int i = 0; i < BACK; i++)
            m->at[i][own] = sum[i];
    __syncthreads();
    if (!is_upper)
        UNROLL for (int i = 0; i < BACK; i++)
            m->at[i][own] += sum[i];
    __syncthreads();
}

/* Adds the parts of the groups for each element of a block, in order, and stores it. */
template <class real>
__device__ static inline void back_put(const struct ops_gemm &g, const struct few_place &first,
                                       const struct back_parts<real> *m)
{
    enum { ACROSS = few<real>::ACROSS, LANES = few<real>::LANES, ROWS = few<real>::ROWS };
    for (int e = (int)threadIdx.x; e < ROWS * ACROSS; e += THREADS) {
        int row = e / ACROSS, col = e % ACROSS;
        real sum = 0;
        if (row >= first.rows || first.col + col >= g.c.cols)
            continue;
        for (int group = 0; group < few<real>::GROUPS / 2; group++)
            sum += m->at[row * PACK + col % PACK][group * LANES + col / PACK];
        element_put(g, first.row + row, first.col + col, sum);
    }
}

/* Computes c = a b. In f32, two blocks must fit into a multiprocessor. */
template <class real, class A, class B>
static __global__ void __launch_bounds__(THREADS, sizeof(real) == 4 ? 2 : 1)
    gemm_few_back(struct ops_gemm g)
{
    enum { LANES = few<real>::LANES, DEEP = few<real>::DEEP, BACK = few<real>::BACK };
    struct back_parts<real> *m = (struct back_parts<real> *)block_memory;
    struct few_place first = back_place<real>(g), at = first;
    real sum[BACK] = {};
    at.col += threadIdx.x % LANES * PACK;
    if (at.col < g.c.cols)
        for (int p = (int)threadIdx.x / LANES * DEEP; p < g.a.cols; p += few<real>::GROUPS * DEEP)
            back_add<real, A, B>(g, at, p, sum);
    back_fold(m, sum);
    back_put(g, first, m);
}

/* ---- host calls ---- */

template <class real, class A, class B> static void queue(cudaStream_t s, const struct ops_gemm *g)
{
    enum { COLUMNS = few<real>::COLUMNS, ACROSS = few<real>::ACROSS };
    int64_t strips = strips_of<real>(*g), warps = (g->c.cols + COLUMNS - 1) / COLUMNS * strips;
    if (g->tb)
        launch(s, gemm_few<real, A, B>, (warps + WARPS - 1) / WARPS, THREADS,
               sizeof(struct forth_parts<real>), *g);
    else
        launch(s, gemm_few_back<real, A, B>, (g->c.cols + ACROSS - 1) / ACROSS * strips, THREADS,
               sizeof(struct back_parts<real>), *g);
}

void gemm_few_rows(struct ops_cuda *o, cudaStream_t s, const struct ops_gemm *g)
{
    bool is_f32 = g->a.dtype == DTYPE_F32, even = is_even(g->a) && is_even(g->b);
    BUG_ON(g->a.cols > INT32_MAX / 2); /* an int counts terms, which saves registers */
    if (o->ops.stat == DTYPE_F64)
        queue<double, void, void>(s, g);
    else if (even && g->a.dtype == DTYPE_BF16 && g->b.dtype == DTYPE_BF16)
        queue<float, uint16_t, uint16_t>(s, g);
    else if (even && is_f32 && g->b.dtype == DTYPE_BF16)
        queue<float, float, uint16_t>(s, g);
    else if (even && is_f32 && g->b.dtype == DTYPE_F32)
        queue<float, float, float>(s, g);
    else
        queue<float, void, void>(s, g);
}
