/* Does AdamW on a table of spans, in one launch.
 *
 * Spans are cut into pieces of PIECE elements; block b takes pieces b, b + blocks, and so on. If
 * all offsets of a span are multiples of PACK, each thread updates a pack of elements at a time.
 * The squares of counted elements are summed for each piece, and one block adds the pieces in a
 * fixed order, so that no sum depends on the number of blocks. */
#include "base/philox_impl.h"
#include "trainer/cuda/pack.cuh"

enum { PIECE = 4 * THREADS * PACK, ADD_THREADS = 1024 };

/* ---- one element ---- */

/* Holds the numbers that are the same for all elements of a span, in the type of arithmetic. */
template <class real> struct rates {
    real scale, beta1, beta2, eps, lr, decay, unbias1, unbias2, ema_decay;
};

template <class real>
__device__ static struct rates<real> rates_of(const struct ops_adamw &a,
                                              const struct ops_adamw_span &s)
{
    struct rates<real> r;
    r.scale = (real)a.step->grad_scale;
    r.beta1 = (real)a.beta1, r.beta2 = (real)a.beta2;
    r.eps = (real)a.eps;
    r.lr = (real)(a.step->lr * s.lr_scale);
    r.decay = (real)s.weight_decay;
    r.unbias1 = (real)(1 / a.step->bias1), r.unbias2 = (real)(1 / a.step->bias2);
    r.ema_decay = (real)a.ema_decay;
    return r;
}

/* Holds random bits: one draw serves four consecutive element numbers. */
struct draws {
    uint64_t block;
    struct philox_block bits;
    bool has;
};

/* Returns the 32 random bits of an element, given its number in the whole model. */
__device__ static uint32_t bits_of(const struct ops_adamw &a, uint64_t number, struct draws *d)
{
    if (!d->has || d->block != number / 4) {
        d->bits = philox_packed(a.seed, PHILOX_ROUND, a.step->update, number / 4);
        d->block = number / 4;
        d->has = true;
    }
    uint32_t low = number % 2 ? d->bits.w[1] : d->bits.w[0];
    uint32_t high = number % 2 ? d->bits.w[3] : d->bits.w[2];
    return number % 4 < 2 ? low : high;
}

/* Rounds both moments stochastically to bf16. */
template <class real>
__device__ static void moments_round(const struct ops_adamw &a, const struct ops_adamw_span &s,
                                     int64_t j, struct draws *d, real *m, real *v)
{
    int64_t rows = s.row ? (s.col + j) / s.row : 0;
    uint32_t bits = bits_of(a, s.first + (uint64_t)(j + rows * s.skip), d);
    *m = (real)bf16_value(bf16_round_random((float)*m, (uint16_t)bits));
    *v = (real)bf16_value(bf16_round_random((float)*v, (uint16_t)(bits >> 16)));
}

/* Adds the squares of the weight and of its change to c. */
template <class real>
__device__ static void change_count(real before, real after, struct ops_change *c)
{
    double change = (double)(after - before);
    c->weight_sumsq += (double)before * (double)before;
    c->update_sumsq += change * change;
}

/* ---- N elements ---- */

/* Updates elements j .. j + N - 1 of a span. w holds the old weights and receives the new ones. */
template <class real, int N>
__device__ static void weights_update(const struct ops_adamw &a, const struct ops_adamw_span &s,
                                      const struct rates<real> &r, int64_t j, real (&w)[N])
{
    real g[N], m[N], v[N];
    struct draws d = {};
    get_pack(a.grad, s.grad + j, g);
    get_pack(a.m, s.state + j, m);
    get_pack(a.v, s.state + j, v);
    UNROLL
    for (int i = 0; i < N; i++) {
        real scaled = r.scale * g[i];
        m[i] = r.beta1 * m[i] + (1 - r.beta1) * scaled;
        v[i] = r.beta2 * v[i] + (1 - r.beta2) * scaled * scaled;
        w[i] -= r.lr * (m[i] * r.unbias1 / (sqrt_of(v[i] * r.unbias2) + r.eps) + r.decay * w[i]);
        if (a.m.dtype == DTYPE_BF16)
            moments_round(a, s, j + i, &d, &m[i], &v[i]);
    }
    put_pack(a.m, s.state + j, m);
    put_pack(a.v, s.state + j, v);
    put_pack(a.master, s.master + j, w);
}

template <class real, int N>
__device__ static void average_update(const struct ops_adamw &a, int64_t place, real decay,
                                      const real (&w)[N])
{
    real average[N];
    if (!a.ema.ptr)
        return;
    get_pack(a.ema, place, average);
    UNROLL
    for (int i = 0; i < N; i++)
        average[i] = decay * average[i] + (1 - decay) * w[i];
    put_pack(a.ema, place, average);
}

template <class real, int N>
__device__ static void elements_update(const struct ops_adamw &a, const struct ops_adamw_span &s,
                                       const struct rates<real> &r, int64_t j,
                                       struct ops_change *c)
{
    real before[N], w[N];
    get_pack(a.master, s.master + j, before);
    UNROLL
    for (int i = 0; i < N; i++)
        w[i] = before[i];
    if (!a.step->skip) {
        weights_update(a, s, r, j, w);
        average_update(a, s.state + j, r.ema_decay, w);
        UNROLL
        for (int i = 0; i < N; i++)
            if (j + i < s.counted)
                change_count(before[i], w[i], c);
    }
    if (a.weight.ptr && a.weight.ptr != a.master.ptr)
        put_pack(a.weight, s.weight + j, w);
}

/* ---- a piece ---- */

__device__ static bool has_packs(const struct ops_adamw_span &s)
{
    return (s.grad | s.master | s.state | s.weight) % PACK == 0;
}

/* Updates elements at .. end - 1 of a span. Returns the sums of squares of this thread. */
template <class real>
__device__ static struct ops_change piece_update(const struct ops_adamw &a,
                                                 const struct ops_adamw_span &s, int64_t at,
                                                 int64_t end, bool packed)
{
    struct rates<real> r = rates_of<real>(a, s);
    struct ops_change c = {0, 0};
    if constexpr (sizeof(real) == sizeof(float))
        if (packed && has_packs(s)) {
            int64_t whole = at + (end - at) / PACK * PACK;
            for (int64_t j = at + threadIdx.x * PACK; j < whole; j += THREADS * PACK)
                elements_update<real, PACK>(a, s, r, j, &c);
            at = whole;
        }
    for (int64_t j = at + threadIdx.x; j < end; j += THREADS)
        elements_update<real, 1>(a, s, r, j, &c);
    return c;
}

/* Adds the sums of all threads of a block; thread 0 gets the result. */
__device__ static struct ops_change change_sum(struct ops_change own)
{
    struct ops_change c;
    c.weight_sumsq = block_sum(own.weight_sumsq, (double *)block_memory);
    c.update_sumsq = block_sum(own.update_sumsq, (double *)block_memory);
    return c;
}

__host__ __device__ static inline int64_t pieces_of(const struct ops_adamw_span &s)
{
    return (s.n + PIECE - 1) / PIECE;
}

template <class real>
static __global__ void adamw(struct ops_adamw a, int64_t pieces, bool packed,
                             struct ops_change *sums)
{
    int64_t first = 0; /* piece of span k */
    for (int64_t p = blockIdx.x, k = 0; p < pieces; p += gridDim.x) {
        while (p - first >= pieces_of(a.spans[k]))
            first += pieces_of(a.spans[k++]);
        const struct ops_adamw_span &s = a.spans[k];
        int64_t at = (p - first) * PIECE, end = at + PIECE < s.n ? at + PIECE : s.n;
        struct ops_change c = piece_update<real>(a, s, at, end, packed);
        if (at < s.counted)
            c = change_sum(c);
        if (threadIdx.x == 0)
            sums[p] = c;
    }
}

static __global__ void change_add(const struct ops_change *sums, int64_t pieces,
                                  struct ops_change *change)
{
    struct ops_change c = {0, 0};
    for (int64_t p = threadIdx.x; p < pieces; p += blockDim.x) {
        c.weight_sumsq += sums[p].weight_sumsq;
        c.update_sumsq += sums[p].update_sumsq;
    }
    c = change_sum(c);
    if (threadIdx.x == 0) {
        change->weight_sumsq += c.weight_sumsq;
        change->update_sumsq += c.update_sumsq;
    }
}

/* ---- the call ---- */

/* Returns whether all buffers are aligned to packs. Their lengths do not matter here. */
static bool begin_packs(const struct ops_adamw *a)
{
    const struct tensor all[] = {a->grad, a->master, a->m, a->v, a->ema, a->weight};
    for (const struct tensor &t : all)
        if ((uintptr_t)t.ptr % PACK_BYTES != 0)
            return false;
    return true;
}

/* Checks the spans and returns the number of pieces. */
static int64_t spans_check(const struct ops_adamw *a)
{
    int64_t pieces = 0;
    BUG_ON(a->n > 0 && !a->host_spans);
    for (int64_t k = 0; k < a->n; k++) {
        const struct ops_adamw_span *s = &a->host_spans[k];
        BUG_ON(s->counted > s->n || (s->counted && !a->change));
        pieces += pieces_of(*s);
    }
    return pieces;
}

static void dtypes_check(const struct ops_cuda *o, const struct ops_adamw *a)
{
    enum dtype stat = o->ops.stat;
    BUG_ON(a->master.rows != 1 || a->master.dtype != stat || a->grad.dtype != stat);
    BUG_ON(a->m.dtype != a->v.dtype || (a->m.dtype != DTYPE_BF16 && a->m.dtype != stat));
    BUG_ON(a->ema.ptr && a->ema.dtype != stat);
}

void kernel_adamw(struct ops_cuda *o, cudaStream_t s, const struct ops_adamw *a)
{
    struct ops_change *sums = (struct ops_change *)o->parts;
    int64_t pieces = spans_check(a), blocks = pieces < 1 << 16 ? pieces : 1 << 16;
    dtypes_check(o, a);
    BUG_ON(pieces * (int64_t)sizeof *sums > (int64_t)CUDA_PARTS * OPS_ROW_MAX * 8);
    LAUNCH_REAL(o, s, adamw, blocks, THREADS, THREADS / WARP * 8, *a, pieces, begin_packs(a),
                sums);
    if (a->change && pieces)
        launch(s, change_add, 1, ADD_THREADS, ADD_THREADS / WARP * 8,
               (const struct ops_change *)sums, pieces, a->change);
}
