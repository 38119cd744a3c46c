/* Computes matrix products of all types and shapes.
 *
 * A block of threads computes TILE x TILE elements of c, each thread EACH x EACH of them. Shared
 * memory holds DEPTH terms at a time, of the rows of op(a) and of the columns of op(b). Each
 * element is one sum from the first term to the last, in `real`. It does not depend on the numbers
 * of rows and columns, or on its position in c. */
#include "trainer/cuda/gemm.cuh"

enum { TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, PITCH = TILE + 1 };
static_assert(SIDE * SIDE == THREADS, "the threads of a block cover its tile");

/* Loads terms p0 .. p0+DEPTH-1 of TILE rows (or columns) from `first` on, as tile[term][row], with
 * zeros outside the tensor. With `deep`, the terms are the tensor's columns. In both cases
 * neighbouring threads read neighbouring numbers. */
template <class real>
__device__ static void tile_load(const struct tensor &t, bool deep, int64_t first, int64_t p0,
                                 real *tile)
{
    int64_t n = deep ? t.rows : t.cols, k = deep ? t.cols : t.rows;
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = deep ? e / DEPTH : e % TILE, p = deep ? e % DEPTH : e / TILE;
        int64_t row = first + i, term = p0 + p;
        real x = 0;
        if (row < n && term < k)
            x = deep ? get<real>(t, row, term) : get<real>(t, term, row);
        tile[p * PITCH + i] = x;
    }
}

/* Adds DEPTH terms to the sums of a thread, which has EACH consecutive rows, and EACH columns that
 * are SIDE apart. */
template <class real>
__device__ static void tile_add(const real *a, const real *b, real (&sum)[EACH][EACH])
{
    const real *at = a + threadIdx.x / SIDE * EACH, *bt = b + threadIdx.x % SIDE;
    for (int p = 0; p < DEPTH; p++)
        UNROLL
        for (int i = 0; i < EACH; i++)
            UNROLL
            for (int j = 0; j < EACH; j++)
                sum[i][j] += at[p * PITCH + i] * bt[p * PITCH + j * SIDE];
}

template <class real>
__device__ static void tile_put(const struct ops_gemm &g, int64_t row, int64_t col,
                                const real (&sum)[EACH][EACH])
{
    row += threadIdx.x / SIDE * EACH;
    col += threadIdx.x % SIDE;
    UNROLL
    for (int i = 0; i < EACH; i++)
        UNROLL
        for (int j = 0; j < EACH; j++)
            if (row + i < g.c.rows && col + j * SIDE < g.c.cols)
                element_put(g, row + i, col + j * SIDE, sum[i][j]);
}

/* Computes the tile of c whose first element is (row, col). Threads outside c only help to load. */
template <class real>
__device__ static void tile_make(const struct ops_gemm &g, int64_t row, int64_t col)
{
    real *a = (real *)block_memory, *b = a + DEPTH * PITCH;
    int64_t k = g.ta ? g.a.rows : g.a.cols;
    bool works = row + threadIdx.x / SIDE * EACH < g.c.rows && col + threadIdx.x % SIDE < g.c.cols;
    real sum[EACH][EACH] = {};
    for (int64_t p = 0; p < k; p += DEPTH) {
        tile_load(g.a, !g.ta, row, p, a);
        tile_load(g.b, g.tb, col, p, b);
        __syncthreads();
        if (works)
            tile_add(a, b, sum);
        __syncthreads();
    }
    tile_put(g, row, col, sum);
}

__host__ __device__ static inline int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

template <class real> static __global__ void gemm(struct ops_gemm g)
{
    int64_t across = tiles_of(g.c.cols), tiles = tiles_of(g.c.rows) * across;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x)
        tile_make<real>(g, t / across * TILE, t % across * TILE);
}

template <class real> static void queue(cudaStream_t s, const struct ops_gemm *g)
{
    int64_t threads = tiles_of(g->c.rows) * tiles_of(g->c.cols) * THREADS;
    launch(s, gemm<real>, blocks_for(threads), THREADS, 2 * DEPTH * PITCH * sizeof(real), *g);
}

void gemm_own(struct ops_cuda *o, cudaStream_t s, const struct ops_gemm *g)
{
    if (o->ops.stat == DTYPE_F64)
        queue<double>(s, g);
    else
        queue<float>(s, g);
}
