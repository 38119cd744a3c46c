/* Adds rows of a learned table by index, and computes the gradient of the table. */
#include "trainer/cuda/pack.cuh"

template <class real, int N> static __global__ void table_fwd(struct ops_table a)
{
    int64_t each = a.x.cols / N;
    for (int64_t e = thread_first(); e < elements(a.x) / N; e += thread_step()) {
        real x[N], learned[N];
        int64_t row = e / each, col = e % each * N;
        get_pack(a.table, a.index[row * a.stride] * a.table.ld + col, learned);
        get_pack(a.x, row * a.x.ld + col, x);
        UNROLL
        for (int i = 0; i < N; i++)
            x[i] += learned[i];
        put_pack(a.x, row * a.x.ld + col, x);
    }
}

void kernel_table_fwd(struct ops_cuda *o, cudaStream_t s, const struct ops_table *a)
{
    BUG_ON(a->x.cols != a->table.cols);
    LAUNCH_PACKS(o, s, packs(&a->x) && packs(&a->table), table_fwd, a->x.rows * a->x.cols, *a);
}

/* Lists, in order, which of THREADS consecutive rows of dx are added to the row of the gradient
 * that the block computes. */
struct matches {
    int of_warp[THREADS / WARP]; /* number of rows that each warp found */
    int row[THREADS];            /* numbers of these rows, counted from `first` */
};

/* Lists which of rows first .. first + THREADS - 1 have index k. Returns their number. */
__device__ static int matches_find(const struct ops_table &a, int64_t k, int64_t first,
                                   struct matches *m)
{
    int64_t row = first + threadIdx.x;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, before = 0, all = 0;
    bool mine = row < a.dx.rows && a.index[row * a.stride] == k;
    unsigned found = __ballot_sync((unsigned)ALL_LANES, mine);
    if (lane == 0)
        m->of_warp[warp] = __popc(found);
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++) {
        before += w < warp ? m->of_warp[w] : 0;
        all += m->of_warp[w];
    }
    if (mine)
        m->row[before + __popc(found & ((1u << lane) - 1))] = (int)threadIdx.x;
    __syncthreads();
    return all;
}

/* Computes THREADS columns of row k of the gradient, one in each thread, adding rows of dx in
 * order. The two barriers in matches_find suffice: a warp's count is overwritten only after all
 * threads have read it, and the list only after all threads have used it. */
template <class real>
__device__ static void table_row(const struct ops_table &a, int64_t k, int64_t col)
{
    struct matches *m = (struct matches *)block_memory;
    bool works = col < a.dtable.cols;
    real sum = works && a.beta != 0 ? (real)a.beta * get<real>(a.dtable, k, col) : 0;
    for (int64_t first = 0; first < a.dx.rows; first += THREADS) {
        int n = matches_find(a, k, first, m);
        for (int i = 0; works && i < n; i++)
            sum += get<real>(a.dx, first + m->row[i], col);
    }
    if (works)
        put(a.dtable, k, col, sum);
}

__host__ __device__ static inline int64_t pieces_of(int64_t cols)
{
    return (cols + THREADS - 1) / THREADS;
}

template <class real> static __global__ void table_bwd(struct ops_table a)
{
    int64_t across = pieces_of(a.dtable.cols);
    for (int64_t b = blockIdx.x; b < a.dtable.rows * across; b += gridDim.x)
        table_row<real>(a, b / across, b % across * THREADS + threadIdx.x);
}

void kernel_table_bwd(struct ops_cuda *o, cudaStream_t s, const struct ops_table *a)
{
    int64_t threads = a->dtable.rows * pieces_of(a->dtable.cols) * THREADS;
    BUG_ON(a->dx.cols != a->dtable.cols);
    LAUNCH_REAL(o, s, table_bwd, blocks_for(threads), THREADS, (int64_t)sizeof(struct matches), *a);
}
