/* Computes AdaLN: gate, residual, norm and modulation of a row.
 *
 * Forward: a block computes one row. It writes x_out and reads it back three times, for the mean,
 * the variance and y; the row is then still in the cache.
 *
 * Backward also sums over the rows of each sample. A block computes a band of rows of one sample, a
 * few rows at a time. First each of its warps takes one row and computes two sums over its columns.
 * Then each of its threads takes columns and loops over the rows. The sums over rows are written to
 * `parts`; a second kernel adds the bands of a sample in a fixed order. That order depends on the
 * whole call: on the rows of all samples (rows_each) and on the longest of those that are added
 * together (threads_adding). So a call gives the same bits each time, but a sample whose neighbours
 * differ, under another mbs for one, may get gradients that differ in their last bits.
 */
#include "trainer/cuda/pack.cuh"
#include "trainer/cuda/parts.cuh"

enum {
    WARPS = THREADS / WARP,
    SUMS = 3, /* dshift, dscale, dgate */
    BANDS_WANTED = 512, /* this many blocks keep any GPU busy */
    BANDS_EACH = 8,     /* bands that one thread adds before another thread is used */
};

__device__ static inline int64_t sample_of(const struct ops_adaln &a, int64_t row)
{
    return a.sample ? a.sample[row] : 0;
}

/* Returns whether all tensors of the call are even (is_even). */
static bool all_even(const struct ops_adaln *a)
{
    const struct tensor *all[] = {&a->x, &a->branch, &a->x_out, &a->y, &a->gate, &a->shift,
                                  &a->scale, &a->dy, &a->dx, &a->dbranch};
    bool even = true;
    for (const struct tensor *t : all)
        even = even && is_even(*t);
    return even;
}

/* ---- forward ---- */

/* Writes x_out of a row. In this function and those below a thread has the same columns of every
 * tensor. */
template <class real>
__device__ static inline void residual_row(const struct ops_adaln &a, int64_t row, bool even)
{
    int64_t m = sample_of(a, row);
    for (int64_t col = 8 * threadIdx.x; col < a.x.cols; col += 8 * blockDim.x) {
        eight<real> x = get_eight<real>(a.x, row, col, even), gate = eight_of((real)1), add;
        if (a.branch.ptr) {
            add = get_eight<real>(a.branch, row, col, even);
            if (a.gate.ptr)
                gate = get_eight<real>(a.gate, m, col, even);
            UNROLL for (int i = 0; i < 8; i++)
                x.at[i] += gate.at[i] * add.at[i];
        }
        put_eight(a.x_out, row, col, even, x);
    }
}

/* Return this thread's sum of x (row_sum), or of (x - center)² (row_sumsq). */
template <class real>
__device__ static inline real row_sum(const struct tensor &t, int64_t row, bool even)
{
    real sum = 0;
    for (int64_t col = 8 * threadIdx.x; col < t.cols; col += 8 * blockDim.x) {
        eight<real> x = get_eight<real>(t, row, col, even);
        UNROLL for (int i = 0; i < 8; i++)
            sum += x.at[i];
    }
    return sum;
}

template <class real>
__device__ static inline real row_sumsq(const struct tensor &t, int64_t row, real center,
                                        bool even)
{
    real sum = 0;
    for (int64_t col = 8 * threadIdx.x; col < t.cols; col += 8 * blockDim.x) {
        eight<real> x = get_eight<real>(t, row, col, even);
        UNROLL for (int i = 0; i < 8; i++) {
            real off = col + i < t.cols ? x.at[i] - center : (real)0;
            sum += off * off;
        }
    }
    return sum;
}

template <class real>
__device__ static inline void modulate_row(const struct ops_adaln &a, const struct tensor &normed,
                                           int64_t row, real mean, real rstd, bool even)
{
    int64_t m = sample_of(a, row);
    for (int64_t col = 8 * threadIdx.x; col < a.y.cols; col += 8 * blockDim.x) {
        eight<real> x = get_eight<real>(normed, row, col, even);
        UNROLL for (int i = 0; i < 8; i++)
            x.at[i] = (x.at[i] - mean) * rstd;
        if (a.scale.ptr) {
            eight<real> scale = get_eight<real>(a.scale, m, col, even),
                        shift = get_eight<real>(a.shift, m, col, even);
            UNROLL for (int i = 0; i < 8; i++)
                x.at[i] = x.at[i] * (1 + scale.at[i]) + shift.at[i];
        }
        put_eight(a.y, row, col, even, x);
    }
}

template <class real> static __global__ void adaln_fwd(struct ops_adaln a, bool even)
{
    real *parts = (real *)block_memory, d = (real)a.x.cols;
    const struct tensor normed = a.x_out.ptr ? a.x_out : a.x;
    for (int64_t row = blockIdx.x; row < a.x.rows; row += gridDim.x) {
        real mean = 0, rstd;
        if (a.x_out.ptr)
            residual_row<real>(a, row, even);
        if (!a.y.ptr)
            continue;
        if (!a.rms)
            mean = block_sum(row_sum<real>(normed, row, even), parts) / d;
        rstd = block_sum(row_sumsq<real>(normed, row, mean, even), parts) / d;
        rstd = 1 / sqrt_of(rstd + (real)a.eps);
        modulate_row<real>(a, normed, row, mean, rstd, even);
        if (threadIdx.x == 0) {
            put<real>(a.stats, row, 0, mean);
            put<real>(a.stats, row, 1, rstd);
        }
    }
}

static void adaln_check(const struct ops_adaln *a)
{
    BUG_ON(a->n > 0 && (!a->sample || !a->row_start || !a->host_row_start));
}

void kernel_adaln_fwd(struct ops_cuda *o, cudaStream_t s, const struct ops_adaln *a)
{
    int64_t warps = lesser((a->x.cols + 8 * WARP - 1) / (8 * WARP), WARPS);
    BUG_ON(a->branch.ptr && !a->x_out.ptr);
    adaln_check(a);
    LAUNCH_REAL(o, s, adaln_fwd, lesser(a->x.rows, 1 << 16), (int)warps * WARP,
                WARPS * (int64_t)sizeof(double), *a, all_even(a));
}

/* ---- bands of rows ---- */

/* Describes how the rows of each sample are cut into bands of `each` rows; a sample's last band may
 * be shorter. The bands of sample m are numbered from bands_before(m) on; a few numbers after its
 * last band may be unused. `start` is row_start in host or device memory. It is NULL if there are
 * no samples; then all rows belong to one sample. */
struct bands {
    const int32_t *start;
    int64_t n, rows, each;
};

HOST_DEVICE static inline int64_t rows_before(const struct bands &r, int64_t m)
{
    return r.start ? r.start[m] : m * r.rows;
}

HOST_DEVICE static inline int64_t bands_before(const struct bands &r, int64_t m)
{
    return rows_before(r, m) / r.each + m;
}

/* Returns the sample to which a band belongs, searching samples first .. end-1. */
__device__ static inline int64_t sample_of_band(const struct bands &r, int64_t band, int64_t first,
                                               int64_t end)
{
    while (end - first > 1) {
        int64_t middle = (first + end) / 2;
        if (bands_before(r, middle) <= band)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* ---- backward ---- */

/* Holds a row's mean and rstd. The norm's backward subtracts level + slope · (x - mean) from the
 * row's gradient. */
template <class real> struct norm_row { real mean, rstd, level, slope; };

/* Computes the norm_row of a row with one warp. */
template <class real>
__device__ static inline void row_look(const struct ops_adaln &a, int64_t row, bool even,
                                       struct norm_row<real> *to)
{
    int lane = (int)threadIdx.x % WARP;
    int64_t m = sample_of(a, row);
    real mean = get<real>(a.stats, row, 0), rstd = get<real>(a.stats, row, 1), sum = 0, dot = 0,
         d = (real)a.dx.cols;
    for (int64_t col = 8 * lane; col < a.dx.cols; col += 8 * WARP) {
        eight<real> dy = get_eight<real>(a.dy, row, col, even),
                    x = get_eight<real>(a.x_out, row, col, even), scale = eight_of((real)0);
        if (a.scale.ptr)
            scale = get_eight<real>(a.scale, m, col, even);
        UNROLL for (int i = 0; i < 8; i++) {
            real g = dy.at[i] * (1 + scale.at[i]);
            sum += g;
            dot += g * (x.at[i] - mean);
        }
    }
    sum = warp_sum(sum);
    dot = warp_sum(dot);
    if (lane == 0)
        *to = {mean, rstd, a.rms ? 0 : sum / d, dot * rstd * rstd / d};
}

/* Holds eight columns of a sample: the modulation, read once for several rows, and the sums. */
template <class real> struct columns {
    struct eight<real> scale, gate, sum[SUMS];
};

template <class real>
__device__ static inline struct columns<real> columns_begin(const struct ops_adaln &a, int64_t m,
                                                            int64_t col, bool even)
{
    eight<real> none = eight_of((real)0);
    struct columns<real> c = {none, eight_of((real)1), {none, none, none}};
    if (a.scale.ptr)
        c.scale = get_eight<real>(a.scale, m, col, even);
    if (a.gate.ptr)
        c.gate = get_eight<real>(a.gate, m, col, even);
    return c;
}

/* Computes eight columns of a row: adds the norm's gradient to dx and writes dbranch. */
template <class real>
__device__ static inline void columns_bwd(const struct ops_adaln &a, int64_t row, int64_t col,
                                          const struct norm_row<real> &n, bool even,
                                          struct columns<real> *c)
{
    eight<real> dx = get_eight<real>(a.dx, row, col, even);
    if (a.dy.ptr) {
        eight<real> dy = get_eight<real>(a.dy, row, col, even),
                    x = get_eight<real>(a.x_out, row, col, even);
        UNROLL for (int i = 0; i < 8; i++) {
            real off = x.at[i] - n.mean, g = dy.at[i] * (1 + c->scale.at[i]);
            dx.at[i] += n.rstd * (g - n.level - off * n.slope);
            c->sum[0].at[i] += dy.at[i];
            c->sum[1].at[i] += dy.at[i] * off * n.rstd;
        }
        put_eight(a.dx, row, col, even, dx);
    }
    if (a.branch.ptr) {
        eight<real> branch = get_eight<real>(a.branch, row, col, even);
        UNROLL for (int i = 0; i < 8; i++) {
            c->sum[2].at[i] += dx.at[i] * branch.at[i];
            dx.at[i] *= c->gate.at[i];
        }
        put_eight(a.dbranch, row, col, even, dx);
    }
}

/* Writes the sums of a band's first rows to its part [SUMS, D]; adds the sums of later rows. */
template <class real>
__device__ static inline void columns_end(const struct tensor &part, int64_t col, bool is_first,
                                          bool even, const struct columns<real> &c)
{
    UNROLL for (int k = 0; k < SUMS; k++) {
        eight<real> sum = c.sum[k];
        if (!is_first) {
            eight<real> before = get_eight<real>(part, k, col, even);
            UNROLL for (int i = 0; i < 8; i++)
                sum.at[i] += before.at[i];
        }
        put_eight(part, k, col, even, sum);
    }
}

/* Computes rows first .. first+count-1, all of sample m; count is at most the number of warps. */
template <class real>
__device__ static void rows_bwd(const struct ops_adaln &a, int64_t m, int64_t first, int64_t count,
                                const struct tensor &part, bool is_first, bool even)
{
    struct norm_row<real> *rows = (struct norm_row<real> *)block_memory;
    int warp = (int)threadIdx.x / WARP;
    if (a.dy.ptr && warp < count)
        row_look<real>(a, first + warp, even, &rows[warp]);
    __syncthreads();
    for (int64_t col = 8 * threadIdx.x; col < a.dx.cols; col += 8 * THREADS) {
        struct columns<real> c = columns_begin<real>(a, m, col, even);
        for (int64_t r = 0; r < count; r++)
            columns_bwd<real>(a, first + r, col, rows[r], even, &c);
        if (part.ptr)
            columns_end(part, col, is_first, even, c);
    }
    __syncthreads();
}

/* Computes one band in each block, for the bands of samples m0 .. m1-1. */
template <class real>
static __global__ void adaln_bwd(struct ops_adaln a, struct bands r, int64_t m0, int64_t m1,
                                 struct tensor parts, bool even)
{
    int64_t band = bands_before(r, m0) + blockIdx.x, m = sample_of_band(r, band, m0, m1);
    int64_t begin = rows_before(r, m) + (band - bands_before(r, m)) * r.each,
            end = lesser(begin + r.each, rows_before(r, m + 1));
    if (parts.ptr)
        parts.ptr = (real *)parts.ptr + (int64_t)blockIdx.x * SUMS * parts.ld;
    for (int64_t row = begin; row < end; row += WARPS)
        rows_bwd<real>(a, m, row, lesser(end - row, WARPS), parts, row == begin, even);
}

/* Adds the bands of each sample in a fixed order (parts_sum). A block computes 32 columns of one
 * sum of one sample. */
template <class real>
static __global__ void adaln_sums(struct ops_adaln a, struct bands r, int64_t m0,
                                  struct tensor parts)
{
    int64_t d = a.dx.cols, tiles = (d + WARP - 1) / WARP;
    int64_t m = m0 + blockIdx.x / tiles / SUMS, which = blockIdx.x / tiles % SUMS,
            col = blockIdx.x % tiles * WARP + threadIdx.x % WARP;
    const struct tensor out = which == 0 ? a.dshift : which == 1 ? a.dscale : a.dgate;
    bool made = which == 2 ? a.branch.ptr && a.gate.ptr : a.dy.ptr && a.scale.ptr;
    int64_t rows = rows_before(r, m + 1) - rows_before(r, m), n = (rows + r.each - 1) / r.each,
            first = bands_before(r, m) - bands_before(r, m0);
    if (!out.ptr)
        return;
    real sum = parts_sum((const real *)parts.ptr + (first * SUMS + which) * d + col, SUMS * d,
                         made ? n : 0, col < d, (real *)block_memory);
    if (threadIdx.x < WARP && col < d)
        put<real>(out, m, col, sum);
}

/* Returns m1 such that the bands of samples m0 .. m1-1 fit into `room` parts. m0's bands always
 * fit. */
static int64_t group_end(const struct bands &host, int64_t m0, int64_t room)
{
    int64_t m1 = m0 + 1;
    while (m1 < host.n && bands_before(host, m1 + 1) - bands_before(host, m0) <= room)
        m1++;
    return m1;
}

/* Returns how many threads add bands. A few suffice if no sample has many bands. */
static int threads_adding(const struct bands &host, int64_t m0, int64_t m1)
{
    int64_t most = 0;
    for (int64_t m = m0; m < m1; m++)
        most = greater(most, rows_before(host, m + 1) - rows_before(host, m));
    return WARP * (int)lesser(1 + most / host.each / BANDS_EACH, WARPS);
}

/* Returns how many rows a band has, so that the bands of any one sample fit into `room` parts. */
static int64_t rows_each(int64_t rows, int64_t room)
{
    int64_t rows_of_all = WARPS * lesser(room / 2, BANDS_WANTED); /* with one row per warp */
    int64_t looks = (rows + rows_of_all - 1) / rows_of_all;
    return WARPS * (looks ? looks : 1);
}

void kernel_adaln_bwd(struct ops_cuda *o, cudaStream_t s, const struct ops_adaln *a)
{
    int64_t d = a->dx.cols, room = (int64_t)CUDA_PARTS * OPS_ROW_MAX / (SUMS * d);
    bool even = all_even(a), summed = a->dshift.ptr || a->dgate.ptr;
    struct tensor parts = tensor_of(summed ? o->parts : NULL, o->ops.stat, SUMS, d);
    struct bands host = {a->n ? a->host_row_start : NULL, a->n ? a->n : 1, a->dx.rows,
                        rows_each(a->dx.rows, room)};
    struct bands r = host;
    r.start = a->n ? a->row_start : NULL;
    BUG_ON(SUMS * d > OPS_ROW_MAX);
    adaln_check(a);
    for (int64_t m0 = 0, m1; m0 < host.n; m0 = m1) {
        m1 = group_end(host, m0, room);
        int64_t count = bands_before(host, m1) - bands_before(host, m0);
        BUG_ON(summed && count > room);
        LAUNCH_REAL(o, s, adaln_bwd, count, THREADS,
                    WARPS * (int64_t)sizeof(struct norm_row<double>), *a, r, m0, m1, parts, even);
        if (summed)
            LAUNCH_REAL(o, s, adaln_sums, (m1 - m0) * SUMS * ((d + WARP - 1) / WARP),
                        threads_adding(host, m0, m1), THREADS * (int64_t)sizeof(double), *a, r, m0,
                        parts);
    }
}
