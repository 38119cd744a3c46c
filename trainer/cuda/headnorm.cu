/* Computes the RMS norm of heads with a learned gain, and rotary positions.
 *
 * An item is one head of one row. A group of lanes of a warp computes an item. Each lane takes
 * eight pairs at a time, and the group has the smallest power of two of lanes that covers a head
 * (at most a warp). So neighbouring groups have neighbouring heads. A thread holds both numbers of
 * a pair (j, j + half), because a rotation needs both. It reads the item a second time after the
 * sum over it; that read comes from a cache.
 *
 * The gain's gradient is summed over items. Each group has a part [d] in memory, to which it adds
 * several items at a time. A block adds the parts of its groups in order, and a second kernel adds
 * those of the blocks.
 */
#include "trainer/cuda/pack.cuh"
#include "trainer/cuda/parts.cuh"

enum {
    ITEMS = 4,         /* items that a group adds to its part at a time */
    BLOCKS_SUM = 512,  /* largest number of blocks that sum a gain's gradient */
};

/* Describes how the work is divided. */
struct heads {
    int64_t items, heads, d;
    int64_t half;  /* pairs; with an odd d the last pair has only its first number */
    int lanes;     /* of a group */
    bool even;
};

/* Holds eight pairs of an item: columns j .. j+7 of each half. */
template <class real> struct pairs { struct eight<real> low, high; };

template <class real>
__device__ static inline struct pairs<real> get_pairs(const struct heads &h, const struct tensor &t,
                                                      int64_t row, int64_t head, int64_t j)
{
    int64_t at = head * h.d;
    return {get_eight<real>(t, row, at + j, at + h.half, h.even),
            get_eight<real>(t, row, at + h.half + j, at + h.d, h.even)};
}

template <class real>
__device__ static inline void put_pairs(const struct heads &h, const struct tensor &t, int64_t row,
                                        int64_t head, int64_t j, const struct pairs<real> &x)
{
    int64_t at = head * h.d;
    put_eight(t, row, at + j, at + h.half, h.even, x.low);
    put_eight(t, row, at + h.half + j, at + h.d, h.even, x.high);
}

/* Returns the sum over a group to all its lanes. Every lane of the warp must call it. */
template <class real> __device__ static inline real group_sum(const struct heads &h, real v)
{
    for (int distance = h.lanes / 2; distance > 0; distance /= 2)
        v += __shfl_xor_sync((unsigned)ALL_LANES, v, distance);
    return v;
}

/* Rotates pairs by the angles of a row: forward with sign 1, back with sign -1. */
template <class real>
__device__ static inline void turn(const struct heads &h, const struct ops_headnorm &a, int64_t row,
                                   int64_t j, real sign, struct pairs<real> *x)
{
    eight<real> c = get_eight<real>(a.cos, row, j, h.even),
                s = get_eight<real>(a.sin, row, j, h.even);
    UNROLL for (int i = 0; i < 8; i++) {
        real low = x->low.at[i], high = x->high.at[i], sine = sign * s.at[i];
        x->low.at[i] = low * c.at[i] - high * sine;
        x->high.at[i] = low * sine + high * c.at[i];
    }
}

/* Return the first item of a group, and the distance to its next one. */
__device__ static inline int64_t group_first(const struct heads &h)
{
    return thread_first() / h.lanes;
}
__device__ static inline int64_t group_step(const struct heads &h)
{
    return thread_step() / h.lanes;
}
/* Returns this thread's first column in a half; pair_step returns the distance to its next one. */
__device__ static inline int64_t pair_first(const struct heads &h)
{
    return 8 * ((int64_t)threadIdx.x % h.lanes);
}
__device__ static inline int64_t pair_step(const struct heads &h) { return 8 * h.lanes; }

/* ---- forward ---- */

template <class real>
__device__ static inline real item_sumsq(const struct heads &h, const struct ops_headnorm &a,
                                         int64_t item)
{
    real sum = 0;
    for (int64_t j = pair_first(h); item < h.items && j < h.half; j += pair_step(h)) {
        struct pairs<real> x = get_pairs<real>(h, a.src, item / h.heads, item % h.heads, j);
        UNROLL for (int i = 0; i < 8; i++)
            sum += x.low.at[i] * x.low.at[i] + x.high.at[i] * x.high.at[i];
    }
    return group_sum(h, sum);
}

template <class real>
__device__ static inline void item_fwd(const struct heads &h, const struct ops_headnorm &a,
                                       int64_t row, int64_t head, real rstd)
{
    for (int64_t j = pair_first(h); j < h.half; j += pair_step(h)) {
        struct pairs<real> x = get_pairs<real>(h, a.src, row, head, j),
                           gain = get_pairs<real>(h, a.gain, 0, 0, j);
        UNROLL for (int i = 0; i < 8; i++) {
            x.low.at[i] *= rstd * gain.low.at[i];
            x.high.at[i] *= rstd * gain.high.at[i];
        }
        if (a.cos.ptr)
            turn<real>(h, a, row, j, 1, &x);
        put_pairs(h, a.dst, row, head, j, x);
    }
}

template <class real> static __global__ void headnorm_fwd(struct ops_headnorm a, struct heads h)
{
    int64_t groups = WARP / h.lanes; /* of a warp; all of them must do the same number of rounds */
    for (int64_t item = group_first(h); item / groups * groups < h.items; item += group_step(h)) {
        real rstd = item_sumsq<real>(h, a, item) / (real)h.d;
        rstd = 1 / sqrt_of(rstd + (real)a.eps);
        if (item >= h.items)
            continue;
        item_fwd<real>(h, a, item / h.heads, item % h.heads, rstd);
        if (pair_first(h) == 0)
            put<real>(a.rstd, item / h.heads, item % h.heads, rstd);
    }
}

/* Divides the work; `all` are the call's tensors whose numbers are read or written by eights. */
template <int N>
static struct heads heads_of(const struct ops_headnorm *a, const struct tensor *const (&all)[N])
{
    int64_t d = a->head_dim, half = (d + 1) / 2;
    struct heads h = {a->src.rows * a->heads, a->heads, d, half, 1, d % 16 == 0};
    while (h.lanes < WARP && 8 * h.lanes < half)
        h.lanes *= 2;
    for (const struct tensor *t : all)
        h.even = h.even && is_even(*t);
    BUG_ON(a->src.cols != a->heads * d || a->gain.cols != d || (a->cos.ptr && d % 2));
    return h;
}

static int64_t groups_of(const struct heads &h) { return THREADS / h.lanes; }

void kernel_headnorm_fwd(struct ops_cuda *o, cudaStream_t s, const struct ops_headnorm *a)
{
    const struct tensor *const all[] = {&a->src, &a->dst, &a->gain, &a->cos, &a->sin};
    struct heads h = heads_of(a, all);
    BUG_ON(a->dst.cols != a->heads * a->head_dim);
    LAUNCH_REAL(o, s, headnorm_fwd, blocks_for(h.items * h.lanes), THREADS, 0, *a, h);
}

/* ---- backward ---- */

/* Returns the gradient of the rotation's input: ddst, rotated back. */
template <class real>
__device__ static inline struct pairs<real> get_turned(const struct heads &h,
                                                       const struct ops_headnorm &a, int64_t row,
                                                       int64_t head, int64_t j)
{
    struct pairs<real> dy = get_pairs<real>(h, a.ddst, row, head, j);
    if (a.cos.ptr)
        turn<real>(h, a, row, j, -1, &dy);
    return dy;
}

/* Returns the factor of x · rstd that is subtracted from an item's gradient: rstd² mean(dy gain
 * x). */
template <class real>
__device__ static inline real item_slope(const struct heads &h, const struct ops_headnorm &a,
                                         int64_t item)
{
    int64_t row = item / h.heads, head = item % h.heads;
    bool is_there = item < h.items;
    real dot = 0, rstd = is_there ? get<real>(a.rstd, row, head) : 0;
    for (int64_t j = pair_first(h); is_there && j < h.half; j += pair_step(h)) {
        struct pairs<real> x = get_pairs<real>(h, a.src, row, head, j),
                           dy = get_turned<real>(h, a, row, head, j),
                           gain = get_pairs<real>(h, a.gain, 0, 0, j);
        UNROLL for (int i = 0; i < 8; i++)
            dot += dy.low.at[i] * gain.low.at[i] * x.low.at[i] +
                   dy.high.at[i] * gain.high.at[i] * x.high.at[i];
    }
    return group_sum(h, dot) * rstd * rstd / (real)h.d;
}

/* Writes dsrc of eight pairs of an item, and adds their part of the gain's gradient to dgain. */
template <class real>
__device__ static inline void pairs_bwd(const struct heads &h, const struct ops_headnorm &a,
                                        int64_t item, int64_t j, real slope,
                                        const struct pairs<real> &gain, struct pairs<real> *dgain)
{
    int64_t row = item / h.heads, head = item % h.heads;
    struct pairs<real> x = get_pairs<real>(h, a.src, row, head, j),
                       dy = get_turned<real>(h, a, row, head, j);
    real rstd = get<real>(a.rstd, row, head);
    UNROLL for (int i = 0; i < 8; i++) {
        dgain->low.at[i] += dy.low.at[i] * x.low.at[i] * rstd;
        dgain->high.at[i] += dy.high.at[i] * x.high.at[i] * rstd;
        dy.low.at[i] = rstd * (dy.low.at[i] * gain.low.at[i] - x.low.at[i] * slope);
        dy.high.at[i] = rstd * (dy.high.at[i] * gain.high.at[i] - x.high.at[i] * slope);
    }
    put_pairs(h, a.dsrc, row, head, j, dy);
}

/* Computes the ITEMS items first, first + step, ... of a group, and adds to the group's part. */
template <class real>
__device__ static void items_bwd(const struct heads &h, const struct ops_headnorm &a, int64_t first,
                                 const struct tensor &part)
{
    int64_t step = group_step(h);
    real slope[ITEMS];
    UNROLL for (int k = 0; k < ITEMS; k++)
        slope[k] = item_slope<real>(h, a, first + k * step);
    for (int64_t j = pair_first(h); j < h.half; j += pair_step(h)) {
        struct pairs<real> gain = get_pairs<real>(h, a.gain, 0, 0, j),
                           sum = {eight_of((real)0), eight_of((real)0)};
        UNROLL for (int k = 0; k < ITEMS; k++)
            if (first + k * step < h.items)
                pairs_bwd<real>(h, a, first + k * step, j, slope[k], gain, &sum);
        if (!part.ptr)
            continue;
        struct pairs<real> before = get_pairs<real>(h, part, 0, 0, j);
        UNROLL for (int i = 0; i < 8; i++) {
            sum.low.at[i] += before.low.at[i];
            sum.high.at[i] += before.high.at[i];
        }
        put_pairs(h, part, 0, 0, j, sum);
    }
}

/* Adds the parts of a block's groups into the first one. */
template <class real> __device__ static void groups_sum(const struct heads &h, real *parts)
{
    int64_t groups = blockDim.x / h.lanes;
    for (int64_t col = threadIdx.x; col < h.d; col += blockDim.x) {
        real sum = 0;
        for (int64_t g = 0; g < groups; g++)
            sum += parts[g * h.d + col];
        parts[col] = sum;
    }
}

template <class real>
static __global__ void headnorm_bwd(struct ops_headnorm a, struct heads h, struct tensor parts)
{
    int64_t group = group_first(h), groups = WARP / h.lanes;
    struct tensor part = parts;
    if (parts.ptr) {
        struct pairs<real> none = {eight_of((real)0), eight_of((real)0)};
        part.ptr = (real *)parts.ptr + group * h.d;
        for (int64_t j = pair_first(h); j < h.half; j += pair_step(h))
            put_pairs(h, part, 0, 0, j, none);
    }
    for (int64_t item = group; item / groups * groups < h.items; item += ITEMS * group_step(h))
        items_bwd<real>(h, a, item, part);
    if (!parts.ptr)
        return;
    __syncthreads();
    groups_sum(h, (real *)parts.ptr + blockIdx.x * (blockDim.x / h.lanes) * h.d);
}

template <class real>
static void headnorm_bwd_all(struct ops_cuda *o, cudaStream_t s, const struct ops_headnorm *a)
{
    const struct tensor *const all[] = {&a->src,  &a->ddst, &a->dsrc,
                                        &a->gain, &a->cos,  &a->sin};
    struct heads h = heads_of(a, all);
    int64_t d = h.d, groups = groups_of(h), room = (int64_t)CUDA_PARTS * OPS_ROW_MAX / (groups * d);
    int64_t blocks = lesser((h.items + groups * ITEMS - 1) / (groups * ITEMS),
                            lesser(room, BLOCKS_SUM));
    struct tensor parts = tensor_of(a->dgain.ptr ? o->parts : NULL, o->ops.stat, 1, d);
    BUG_ON(3 * d > OPS_ROW_MAX || (a->dgain.ptr && a->dgain.cols != d));
    launch(s, headnorm_bwd<real>, blocks, THREADS, 0, *a, h, parts);
    if (a->dgain.ptr)
        parts_add<real>(o, s, blocks, groups * d, a->dgain, a->beta);
}

void kernel_headnorm_bwd(struct ops_cuda *o, cudaStream_t s, const struct ops_headnorm *a)
{
    if (o->ops.stat == DTYPE_F64)
        headnorm_bwd_all<double>(o, s, a);
    else
        headnorm_bwd_all<float>(o, s, a);
}
