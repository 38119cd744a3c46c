/* Sums the squares of tensors, and counts the numbers that are not finite. Each block computes a
 * share of the elements, and then one block adds the shares in a fixed order. */
#include "trainer/cuda/pack.cuh"

enum {
    SHARES = 1024, /* largest number of blocks: more than a GPU runs at once */
    LOOKS = 8      /* packs or elements that a thread reads before another block is used */
};

__device__ static inline void look(double v, struct ops_health *h)
{
    bool finite = v - v == 0;
    h->sumsq += finite ? v * v : 0;
    h->nonfinite += !finite;
}

/* Adds the results of all threads of a block; thread 0 gets the sum. */
__device__ static struct ops_health health_sum(struct ops_health own)
{
    struct ops_health h;
    h.sumsq = block_sum(own.sumsq, (double *)block_memory);
    h.nonfinite = block_sum(own.nonfinite, (int64_t *)block_memory);
    return h;
}

template <class real, int N>
static __global__ void health_share(struct tensor x, struct ops_health *shares)
{
    struct ops_health h = {0, 0};
    for (int64_t e = thread_first(); e < elements(x) / N; e += thread_step()) {
        real v[N];
        get_pack(x, place_of<N>(x, e), v);
        UNROLL
        for (int i = 0; i < N; i++)
            look((double)v[i], &h);
    }
    h = health_sum(h);
    if (threadIdx.x == 0)
        shares[blockIdx.x] = h;
}

/* Adds the shares of all blocks; called by one block. */
__device__ static struct ops_health shares_sum(const struct ops_health *shares, int n)
{
    struct ops_health h = {0, 0};
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        h.sumsq += shares[i].sumsq;
        h.nonfinite += shares[i].nonfinite;
    }
    return health_sum(h);
}

static __global__ void sumsq_add(const struct ops_health *shares, int n, struct ops_health *out,
                                 bool accumulate)
{
    struct ops_health h = shares_sum(shares, n);
    if (threadIdx.x != 0)
        return;
    out->sumsq = (accumulate ? out->sumsq : 0) + h.sumsq;
    out->nonfinite = (accumulate ? out->nonfinite : 0) + h.nonfinite;
}

static __global__ void finite_add(const struct ops_health *shares, int n, int64_t *bad)
{
    struct ops_health h = shares_sum(shares, n);
    if (threadIdx.x == 0)
        *bad += h.nonfinite;
}

enum { SUM_BYTES = THREADS / WARP * 8 }; /* shared memory of block_sum */

/* Queues the computation of shares of x and returns how many shares there are. f64 tensors are read
 * as f64 in every table, so that their large numbers stay finite. */
static int shares_make(struct ops_cuda *o, cudaStream_t s, const struct tensor *x)
{
    int64_t n = x->rows * x->cols / (packs(x) ? PACK : 1);
    int64_t blocks = lesser(blocks_for((n + LOOKS - 1) / LOOKS), SHARES);
    struct ops_health *shares = (struct ops_health *)o->parts;
    if (x->dtype == DTYPE_F64)
        launch(s, health_share<double, 1>, blocks, THREADS, SUM_BYTES, *x, shares);
    else if (packs(x))
        launch(s, health_share<float, PACK>, blocks, THREADS, SUM_BYTES, *x, shares);
    else
        launch(s, health_share<float, 1>, blocks, THREADS, SUM_BYTES, *x, shares);
    return (int)blocks;
}

void kernel_sumsq(struct ops_cuda *o, cudaStream_t s, const struct ops_sumsq *a)
{
    int n = shares_make(o, s, &a->x);
    launch(s, sumsq_add, 1, THREADS, SUM_BYTES, (const struct ops_health *)o->parts, n, a->out,
           a->accumulate);
}

void kernel_finite(struct ops_cuda *o, cudaStream_t s, const struct ops_finite *a)
{
    int n = shares_make(o, s, &a->x);
    launch(s, finite_add, 1, THREADS, SUM_BYTES, (const struct ops_health *)o->parts, n, a->bad);
}
